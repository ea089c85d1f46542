//! What was set at run time: limits of single keys, policies, and which routes pass them.
//!
//! It is kept in records, read as a whole, and laid over the configuration, which it never changes.
//! What does not go with the configuration of the day is left out and told; it is not forgotten.

mod dynamic_policy;
mod merged;
mod overrides;
mod policy_spec;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::sync::Arc;

use tollgate_core::{Plan, Policies};

pub use dynamic_policy::DynamicPolicy;
pub(crate) use merged::{Merged, Misfit, UNREADABLE};
pub(crate) use overrides::Overrides;
pub use policy_spec::{BadSpec, PolicyDraft, PolicySpec};

/// Policies made at run time, by name.
pub type DynamicPolicies = BTreeMap<Arc<str>, Arc<DynamicPolicy>>;
/// The policies that routes pass because they were told to at run time, by route.
pub type Assignments = BTreeMap<Arc<str>, Arc<str>>;

/// The rule that is part of every policy made at run time: what one consumer may do on all routes
/// together. Nobody is limited by it for whom nothing was set.
pub const CONSUMER: &str = "consumer";

/// Everything that was set at run time.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuntimeConfig {
    pub(crate) overrides: Overrides,
    pub(crate) made: Arc<DynamicPolicies>,
    pub(crate) routes: Arc<Assignments>,
    /// Records that cannot be read.
    unreadable: BTreeMap<String, Vec<u8>>,
}

/// What a record is about, by its name: the one place that knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject<'r> {
    /// `override/RULE/KEY`: the limits of a key. Rule names hold no slash, so the first one ends them.
    Override { rule: &'r str, key: &'r str },
    /// `policy/NAME`: a policy.
    Policy(&'r str),
    /// `route/NAME`: the policy that a route passes.
    Route(&'r str),
}

/// One change of the run-time configuration, and of its record. Without a value it removes.
#[derive(Clone, Debug)]
pub(crate) enum Edit {
    Override { rule: Arc<str>, key: String, plan: Option<Arc<Plan>> },
    Policy { name: Arc<str>, policy: Option<Arc<DynamicPolicy>> },
    Route { route: Arc<str>, policy: Option<Arc<str>> },
}

/// What does not fit, by the name of its record, and why.
#[derive(Debug, Default)]
pub(crate) struct LeftOut(pub(crate) BTreeMap<String, String>);

impl<'r> Subject<'r> {
    /// What a record is about; `None` if it is none of ours.
    pub(crate) fn of(record: &'r str) -> Option<Self> {
        let (kind, rest) = record.split_once('/')?;
        match kind {
            "override" => rest.split_once('/').map(|(rule, key)| Self::Override { rule, key }),
            "policy" => Some(Self::Policy(rest)),
            "route" => Some(Self::Route(rest)),
            _ => None,
        }
    }

    /// The name of its record.
    pub(crate) fn record(self) -> String {
        match self {
            Self::Override { rule, key } => format!("override/{rule}/{key}"),
            Self::Policy(name) => format!("policy/{name}"),
            Self::Route(name) => format!("route/{name}"),
        }
    }
}

impl Edit {
    pub(crate) fn subject(&self) -> Subject<'_> {
        match self {
            Self::Override { rule, key, .. } => Subject::Override { rule, key },
            Self::Policy { name, .. } => Subject::Policy(name),
            Self::Route { route, .. } => Subject::Route(route),
        }
    }

    /// What its record says from then on.
    pub(crate) fn value(&self) -> Option<Vec<u8>> {
        match self {
            Self::Override { plan, .. } => plan.as_deref().map(overrides::write),
            Self::Policy { policy, .. } => policy.as_ref().map(|policy| policy.written().to_vec()),
            Self::Route { policy, .. } => policy.as_ref().map(|policy| policy.as_bytes().to_vec()),
        }
    }
}

impl LeftOut {
    pub(crate) fn note(&mut self, subject: Subject<'_>, why: impl Display) {
        self.0.insert(subject.record(), why.to_string());
    }
}

impl RuntimeConfig {
    /// The most policies that may be made at run time.
    pub(crate) const MOST_MADE: usize = 10_000;
    /// The most routes that may be told what they pass.
    pub(crate) const MOST_ROUTES: usize = 10_000;
    /// The most keys that may have limits of their own.
    pub(crate) const MOST_OVERRIDES: usize = 100_000;

    /// Reads the records. What says the same as `before` is the same: stores know plans by their
    /// address.
    pub(crate) fn read(records: &[(String, Vec<u8>)], before: &Self, base: &Policies) -> Self {
        let mut runtime = Self::default();
        let (mut made, mut routes) = (DynamicPolicies::new(), Assignments::new());
        let mut names: HashMap<&str, Arc<str>> = HashMap::new();
        for (record, value) in records {
            let read = match Subject::of(record) {
                None => Some(()),
                Some(Subject::Override { rule, key }) => {
                    let known = || base.rule(rule).map_or_else(|| rule.into(), |rule| Arc::clone(&rule.name));
                    let name = names.entry(rule).or_insert_with(known);
                    let plan = overrides::read(name, value, before.overrides.at(rule, key));
                    plan.map(|plan| runtime.overrides.set(rule, key, plan))
                }
                Some(Subject::Policy(name)) => {
                    let known = before.made.get(name).filter(|made| made.written() == value);
                    let read = || DynamicPolicy::read(name, value).map(Arc::new);
                    let policy = known.cloned().or_else(read);
                    policy.map(|policy| drop(made.insert(Arc::clone(&policy.spec.name), policy)))
                }
                Some(Subject::Route(route)) => {
                    let policy = std::str::from_utf8(value).ok();
                    policy.map(|policy| drop(routes.insert(route.into(), policy.into())))
                }
            };
            if read.is_none() {
                runtime.unreadable.insert(record.clone(), value.clone());
            }
        }
        Self { made: Arc::new(made), routes: Arc::new(routes), ..runtime }
    }

    /// What the record of a policy or a route says, as far as is known.
    pub(crate) fn recorded(&self, subject: Subject<'_>) -> Option<Vec<u8>> {
        let read = match subject {
            Subject::Override { rule, key } => {
                self.overrides.at(rule, key).map(|plan| overrides::write(plan))
            }
            Subject::Policy(name) => self.made.get(name).map(|policy| policy.written().to_vec()),
            Subject::Route(route) => self.routes.get(route).map(|policy| policy.as_bytes().to_vec()),
        };
        read.or_else(|| self.unreadable.get(&subject.record()).cloned())
    }

    /// Takes over a change that was recorded.
    pub(crate) fn enter(&mut self, edit: Edit) {
        self.unreadable.remove(&edit.subject().record());
        match edit {
            Edit::Override { rule, key, plan: Some(plan) } => self.overrides.set(&rule, &key, plan),
            Edit::Override { rule, key, plan: None } => self.overrides.remove(&rule, &key),
            Edit::Policy { name, policy } => set(&mut self.made, name, policy),
            Edit::Route { route, policy } => set(&mut self.routes, route, policy),
        }
    }
}

fn set<T: Clone>(map: &mut Arc<BTreeMap<Arc<str>, T>>, name: Arc<str>, value: Option<T>) {
    let map = Arc::make_mut(map);
    match value {
        Some(value) => drop(map.insert(name, value)),
        None => drop(map.remove(&name)),
    }
}
