//! Pauses by operators. They are records of the store, so that all nodes follow them and a restart keeps them.

use std::collections::BTreeSet;
use std::fmt;

use super::draft::check_name;
use super::fault::AccountFault;
use super::registry::AccountRegistry;
use crate::lanes::Scope;
use crate::session::address::normal_domain;

/// A scope or an account that an operator can pause.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pausable {
    /// All mail, the mail of a tenant, or that to one domain.
    Mail(Scope),
    /// An account: others of the tenant are used, or mail waits.
    Account {
        /// The tenant that the account belongs to.
        tenant: String,
        /// Its name.
        id: String,
    },
}

/// The prefix of the names of pause records.
pub(super) const PREFIX: &str = "pause/";
/// The value of a pause record. The name has all the data.
const PAUSED: &[u8] = b"{}";

impl Pausable {
    /// The mail of a tenant, to one domain if one is named; all mail if none is.
    pub fn mail(tenant: Option<&str>, domain: Option<&str>) -> Result<Self, AccountFault> {
        let invalid = |reason: &str| AccountFault::Invalid { reason: reason.to_owned() };
        let Some(tenant) = tenant else {
            return match domain {
                None => Ok(Self::Mail(Scope::Queue)),
                Some(_) => Err(invalid("`domain` needs `tenant`")),
            };
        };
        check_name("tenant", tenant)?;
        let Some(domain) = domain else { return Ok(Self::Mail(Scope::Tenant(tenant.into()))) };
        let domain = normal_domain(domain).ok_or_else(|| invalid("`domain` is not a domain"))?;
        Ok(Self::Mail(Scope::Domain { tenant: tenant.into(), domain: domain.into() }))
    }

    /// The name of its record.
    fn record(&self) -> String {
        match self {
            Self::Mail(Scope::Queue) => format!("{PREFIX}queue"),
            Self::Mail(Scope::Tenant(tenant)) => format!("{PREFIX}tenant/{tenant}"),
            Self::Mail(Scope::Domain { tenant, domain }) => format!("{PREFIX}domain/{tenant}/{domain}"),
            Self::Account { tenant, id } => format!("{PREFIX}account/{tenant}/{id}"),
        }
    }

    /// Parses the name of a record; `None` if it is not the name of a pause.
    fn of_record(name: &str) -> Option<Self> {
        let rest = name.strip_prefix(PREFIX)?;
        let mut parts = rest.splitn(3, '/');
        match (parts.next()?, parts.next(), parts.next()) {
            ("queue", None, None) => Some(Self::Mail(Scope::Queue)),
            ("tenant", Some(tenant), None) => Some(Self::Mail(Scope::Tenant(tenant.into()))),
            ("domain", Some(tenant), Some(domain)) => {
                Some(Self::Mail(Scope::Domain { tenant: tenant.into(), domain: domain.into() }))
            }
            ("account", Some(tenant), Some(id)) => {
                Some(Self::Account { tenant: tenant.to_owned(), id: id.to_owned() })
            }
            _ => None,
        }
    }
}

impl fmt::Display for Pausable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mail(Scope::Queue) => f.write_str("all mail"),
            Self::Mail(Scope::Tenant(tenant)) => write!(f, "mail of {tenant}"),
            Self::Mail(Scope::Domain { tenant, domain }) => write!(f, "mail of {tenant} to {domain}"),
            Self::Account { tenant, id } => write!(f, "account {tenant}/{id}"),
        }
    }
}

impl AccountRegistry {
    /// Pauses a scope on all nodes. Deliveries in flight continue. Returns whether it was not paused before.
    pub async fn pause(&self, what: &Pausable) -> Result<bool, AccountFault> {
        if let Pausable::Account { tenant, id } = what
            && self.view(tenant, id).is_none()
        {
            return Err(AccountFault::Unknown { name: format!("{tenant}/{id}") });
        }
        self.engine.accounts.refresh().await?;
        let new = self.engine.accounts.swap(&what.record(), None, Some(PAUSED.to_vec())).await?;
        self.apply_pauses();
        Ok(new)
    }

    /// Resumes a scope or an account on all nodes; for an account it also ends the pause after a failed login,
    /// on this node. Returns whether it was paused.
    pub async fn resume(&self, what: &Pausable) -> Result<bool, AccountFault> {
        self.engine.accounts.refresh().await?;
        let record = what.record();
        let known = self.engine.accounts.at(&record);
        let was = known.is_some() && self.engine.accounts.swap(&record, known, None).await?;
        self.apply_pauses();
        Ok(match what {
            Pausable::Account { tenant, id } => self.sender.release_account(tenant, id) || was,
            Pausable::Mail(_) => was,
        })
    }

    /// Everything that operators paused, also what no mail waits for.
    pub fn pauses(&self) -> Vec<Pausable> {
        let records = self.engine.accounts.all();
        let mut pauses: Vec<Pausable> =
            records.iter().filter_map(|(name, _)| Pausable::of_record(name)).collect();
        pauses.sort();
        pauses
    }

    /// Whether this scope or account itself is paused.
    pub fn is_paused(&self, what: &Pausable) -> bool {
        self.engine.accounts.at(&what.record()).is_some()
    }

    /// Pauses exactly the scopes and accounts that the records name.
    pub(super) fn apply_pauses(&self) {
        let records = self.engine.accounts.all();
        let wanted: BTreeSet<Pausable> =
            records.iter().filter_map(|(name, _)| Pausable::of_record(name)).collect();
        let held = self.sender.holds().into_iter().map(Pausable::Mail);
        let accounts = self.accounts.held().into_iter().map(|(tenant, id)| Pausable::Account { tenant, id });
        let known: BTreeSet<Pausable> = held.chain(accounts).collect();
        for what in wanted.difference(&known) {
            match what {
                Pausable::Mail(scope) => drop(self.sender.hold(scope.clone())),
                Pausable::Account { tenant, id } => drop(self.sender.hold_account(tenant, id)),
            }
        }
        for what in known.difference(&wanted) {
            match what {
                Pausable::Mail(scope) => drop(self.sender.release(scope)),
                Pausable::Account { tenant, id } => drop(self.sender.release_account(tenant, id)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_found_again_by_its_record() {
        let account = Pausable::Account { tenant: "acme".to_owned(), id: "main".to_owned() };
        let mail = |tenant, domain| Pausable::mail(tenant, domain).unwrap();
        let all =
            [account, mail(None, None), mail(Some("acme"), None), mail(Some("acme"), Some("Example.COM"))];
        for what in all {
            assert_eq!(Pausable::of_record(&what.record()), Some(what));
        }
        for name in ["account/acme/main", "pause/", "pause/queue/x", "pause/domain/x"] {
            assert_eq!(Pausable::of_record(name), None, "{name}");
        }
        assert!(Pausable::mail(None, Some("example.com")).is_err());
        assert!(Pausable::mail(Some("a/b"), None).is_err());
    }
}
