//! Guards: which policy a login passes, and what its success clears.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::mistake::{Mistake, nearest, shown};
use crate::plan::Plan;
use crate::policy::Policies;
use crate::rule::Rule;

/// What protects one kind of login: a policy with ladders, and what a success clears of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// Its name.
    pub name: Arc<str>,
    /// The policy that attempts pass.
    pub policy: Arc<str>,
    /// Where a success clears failures. Elsewhere it takes back its own alone.
    pub clears: Clears,
}

/// Where a success clears failures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Clears {
    /// On the ladders whose keys are made of the most fields: on that of an account at an address, where
    /// there is one. Whoever knows one password must not clear what an address did to others.
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
    /// A guard of this name over a policy, which clears where the keys are narrowest.
    pub fn new(name: impl Into<Arc<str>>, policy: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), policy: policy.into(), clears: Clears::Narrowest }
    }
}

impl Clears {
    /// Which of the rules that an attempt was charged at a success clears.
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

    /// The fields without which an attempt would pass some ladder of a guard uncounted, and which are not
    /// among these. Whoever asks for a login has to know them.
    pub fn missing_fields<'p>(&'p self, guard: &Guard, fields: &[(&str, &str)]) -> Vec<&'p str> {
        let Some(policy) = self.named(&guard.policy) else { return Vec::new() };
        let known = |name: &str| fields.iter().any(|(own, _)| *own == name);
        let source =
            |name: &str| policy.derived().find(|(field, _)| *field == name).map(|(_, source)| source);
        let ladders = policy.rules.iter().filter(|rule| rule.enabled && rule.plan.has_ladder());
        let mut missing: Vec<&str> = Vec::new();
        for field in ladders.flat_map(|rule| rule.by.iter()) {
            let name = &*field.name;
            // A field that can be derived need not be brought, if its source is.
            let wanted = source(name).filter(|_| !known(name)).unwrap_or(name);
            if !missing.contains(&wanted) && !known(wanted) {
                missing.push(wanted);
            }
        }
        missing
    }

    /// As [`Policies::find_guard`], for whoever knows what to do without.
    pub fn guard(&self, name: &str) -> Option<&Guard> {
        self.guards().iter().find(|guard| *guard.name == *name)
    }
}
