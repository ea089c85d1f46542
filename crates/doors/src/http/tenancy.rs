//! What a key with a tenant reaches: what carries that tenant, and nothing else.
//!
//! An endpoint refuses every key with a tenant, unless it is marked with
//! [`serves_tenants`](super::endpoint::Endpoint::serves_tenants). A marked endpoint checks with these functions what it
//! looks at and changes. A counter carries a tenant if its key has it in the field `tenant`. So a counter of all tenants,
//! or of a sender or an address, needs a key without a tenant.

use tollgate_core::{Attempt, Charges, Policies, Rule, Ticket};

use super::auth::Caller;
use super::endpoint::Ask;
use super::path::{self, Place};
use super::problem::Problem;

const FIELD: &str = "tenant";

/// Whether a rule's key has this tenant.
pub(crate) fn carries(rule: &Rule, key: &str, tenant: &str) -> bool {
    rule.key_has_values(key, &[(FIELD, tenant)])
}

/// The refusal of a key with a tenant, where a key without one is needed.
pub(crate) fn needs_no_tenant(own: &str) -> Problem {
    Problem::forbidden(format!("the key belongs to tenant `{own}`: this needs a key without a tenant"))
}

impl Ask {
    /// The tenant of the caller's key.
    pub(crate) fn tenant(&self) -> Option<&str> {
        self.key().and_then(Caller::tenant).map(|own| &*own.name)
    }

    /// Refuses a caller whose key belongs to another tenant.
    pub(crate) fn check_tenant(&self, tenant: &str) -> Result<(), Problem> {
        match self.tenant() {
            Some(own) if own != tenant => {
                Err(Problem::forbidden(format!("the key belongs to tenant `{own}`, and may use no other")))
            }
            _ => Ok(()),
        }
    }

    /// The tenant that a list is about: the one that the query names, or that of the caller's key.
    pub(crate) fn tenant_filter(&self, name: &str) -> Result<Option<String>, Problem> {
        let Some(asked) = self.query(name) else { return Ok(self.tenant().map(str::to_owned)) };
        let asked = path::decode_query(asked)?;
        self.check_tenant(&asked)?;
        Ok(Some(asked))
    }

    /// Refuses a counter that is not of the tenant of the caller's key.
    pub(crate) fn check_place(&self, place: &Place<'_>) -> Result<(), Problem> {
        self.check_counter(place.rule, &place.key)
    }

    /// Refuses a rule's key that is not of the tenant of the caller's key.
    pub(crate) fn check_counter(&self, rule: &Rule, key: &str) -> Result<(), Problem> {
        match self.tenant() {
            Some(own) if !carries(rule, key, own) => Err(Problem::forbidden(format!(
                "the key belongs to tenant `{own}`, and rule `{}` counts here for another tenant or for all: this \
                 needs a key without a tenant",
                rule.name
            ))),
            _ => Ok(()),
        }
    }

    /// Refuses an attempt that would count at a key without the tenant of the caller's key.
    pub(crate) fn check_attempt(&self, policies: &Policies, attempt: &Attempt<'_>) -> Result<(), Problem> {
        let Some(own) = self.tenant().filter(|_| policies.enabled) else { return Ok(()) };
        // An attempt that cannot be charged takes nothing. Deciding it says why.
        let Ok(policy) = policies.find(attempt.policy) else { return Ok(()) };
        let mut charges = Charges::new(Ticket(0), attempt.cost, attempt.id);
        if policy.charge_listed(attempt, policies.roster(), &mut charges).is_err() {
            return Ok(());
        }
        for charge in charges.iter() {
            let rule = policy.rules.iter().find(|rule| *rule.name == **charge.plan.rule());
            self.check_counter(rule.ok_or_else(|| needs_no_tenant(own))?, charges.key(charge))?;
        }
        Ok(())
    }
}
