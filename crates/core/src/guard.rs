//! Guards: the policy of logins, and what a success clears.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::mistake::{Mistake, nearest, shown};
use crate::plan::Plan;
use crate::policy::Policies;
use crate::rule::Rule;

/// Protects one kind of login: a policy with ladders, and what a success clears of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// Its name.
    pub name: Arc<str>,
    /// The policy of the attempts.
    pub policy: Arc<str>,
    /// The ladders on which a success clears the earlier failures. On the others only the login itself is refunded.
    pub clears: Clears,
}

/// Where a success clears failures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Clears {
    /// On the ladders whose keys have the most fields, such as an account at an address. A client that knows
    /// one password must not clear the failures of its address at other accounts.
    #[default]
    Narrowest,
    /// On the ladders of these rules.
    Rules(Vec<Arc<str>>),
    /// On every ladder.
    All,
    /// Nowhere.
    Nothing,
}

impl Guard {
    /// A guard of this name over a policy, which clears the narrowest keys.
    pub fn new(name: impl Into<Arc<str>>, policy: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), policy: policy.into(), clears: Clears::Narrowest }
    }
}

impl Clears {
    /// For each rule that an attempt was charged at, whether a success clears it.
    pub fn of<'t>(&'t self, taken: &'t [(&Rule, &Arc<Plan>)]) -> impl Iterator<Item = bool> + 't {
        let ladders = taken.iter().filter(|(_, plan)| plan.has_ladder());
        let most = ladders.map(|(rule, _)| rule.by.len()).max().unwrap_or(0);
        taken.iter().map(move |(rule, plan)| match self {
            Self::Narrowest => plan.has_ladder() && rule.by.len() == most,
            Self::Rules(names) => names.contains(&rule.name),
            Self::All => plan.has_ladder(),
            Self::Nothing => false,
        })
    }
}

impl Plan {
    /// Whether one of its limits is a ladder.
    pub fn has_ladder(&self) -> bool {
        self.limits().iter().any(|limit| limit.ladder().is_some())
    }
}

impl Policies {
    /// The guard of this name.
    pub fn find_guard(&self, name: &str) -> Result<&Guard, Mistake> {
        self.guard(name).ok_or_else(|| {
            let near = nearest(name, self.guards().iter().map(|guard| &*guard.name));
            Mistake::UnknownGuard { guard: shown(name), near }
        })
    }

    /// The fields that a login lacks but a ladder of the guard counts by. Without them that ladder would not count
    /// the login, so the door must refuse it.
    pub fn missing_fields<'p>(&'p self, guard: &Guard, fields: &[(&str, &str)]) -> Vec<&'p str> {
        let Some(policy) = self.named(&guard.policy) else { return Vec::new() };
        let known = |name: &str| fields.iter().any(|(own, _)| *own == name);
        let source =
            |name: &str| policy.derived().find(|(field, _)| *field == name).map(|(_, source)| source);
        let ladders = policy.rules.iter().filter(|rule| rule.enabled && rule.plan.has_ladder());
        let mut missing: Vec<&str> = Vec::new();
        for field in ladders.flat_map(|rule| rule.by.iter()) {
            let name = &*field.name;
            // A field that can be derived may be missing, if its source is there.
            let wanted = source(name).filter(|_| !known(name)).unwrap_or(name);
            if !missing.contains(&wanted) && !known(wanted) {
                missing.push(wanted);
            }
        }
        missing
    }

    /// As [`Policies::find_guard`], but without an error.
    pub fn guard(&self, name: &str) -> Option<&Guard> {
        self.guards().iter().find(|guard| *guard.name == *name)
    }
}
