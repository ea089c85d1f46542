//! The run-time configuration: limits of single keys, policies, and the policies assigned to names.
//!
//! It is stored in records, read as a whole, and merged into a copy of the configuration. An
//! entry that does not fit the current configuration is left out and logged; it is not deleted.

mod dynamic_policy;
mod merged;
mod overrides;
mod policy_spec;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;

use tollgate_core::Policies;
use tollgate_core::versioned_map::{Changes, Scope};

pub use dynamic_policy::DynamicPolicy;
pub(crate) use merged::{Merged, Misfit, UNREADABLE};
pub(crate) use overrides::{Override, Overrides};
pub use policy_spec::{BadSpec, PolicyDraft, PolicySpec};

/// Policies created at run time, by name.
pub type DynamicPolicies = BTreeMap<Arc<str>, Arc<DynamicPolicy>>;
/// The policies assigned at run time, by the name that each is assigned to. The callers define the names.
pub type Assignments = BTreeMap<Arc<str>, Arc<str>>;

/// The rule that is part of every policy created at run time: what one consumer may do with all these
/// policies together. It limits only consumers that have an override.
pub const CONSUMER: &str = "consumer";

/// The run-time configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuntimeConfig {
    pub(crate) overrides: Overrides,
    pub(crate) dynamic_policies: Arc<DynamicPolicies>,
    pub(crate) assignments: Arc<Assignments>,
    /// Records that cannot be read.
    unreadable: BTreeMap<String, Vec<u8>>,
}

/// The subject of a record, encoded in the record's name. Only this type knows the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject<'r> {
    /// `override/RULE/KEY`: the limits of a key. Rule names contain no slash, so the first one ends them.
    Override { rule: &'r str, key: &'r str },
    /// `policy/NAME`: a policy.
    Policy(&'r str),
    /// `route/NAME`: the policy assigned to a name. Stores contain records of this form, so the word stays.
    Assignment(&'r str),
}

/// The part of the configuration that a set of changes affected.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Touched {
    /// Rules of which only limits of single keys changed.
    pub(crate) rules: BTreeSet<String>,
    /// Whether anything else changed.
    pub(crate) more: bool,
}

/// The entries that do not fit, by the name of their record, and why.
#[derive(Debug, Default)]
pub(crate) struct LeftOut(pub(crate) BTreeMap<String, String>);

impl<'r> Subject<'r> {
    /// Parses the name of a record; `None` if it is unknown.
    pub(crate) fn of(record: &'r str) -> Option<Self> {
        let (kind, rest) = record.split_once('/')?;
        match kind {
            "override" => rest.split_once('/').map(|(rule, key)| Self::Override { rule, key }),
            "policy" => Some(Self::Policy(rest)),
            "route" => Some(Self::Assignment(rest)),
            _ => None,
        }
    }

    /// The name of its record.
    pub(crate) fn record(self) -> String {
        match self {
            Self::Override { rule, key } => format!("override/{rule}/{key}"),
            Self::Policy(name) => format!("policy/{name}"),
            Self::Assignment(name) => format!("route/{name}"),
        }
    }
}

impl LeftOut {
    pub(crate) fn note(&mut self, subject: Subject<'_>, why: impl Display) {
        self.0.insert(subject.record(), why.to_string());
    }
}

impl RuntimeConfig {
    /// The most policies that may be created at run time.
    pub(crate) const MOST_DYNAMIC_POLICIES: usize = 10_000;
    /// The most names that may have a policy assigned.
    pub(crate) const MOST_ASSIGNMENTS: usize = 10_000;
    /// The most keys that may have limits of their own.
    pub(crate) const MOST_OVERRIDES: usize = 100_000;

    /// The number of records that this node knows.
    pub(crate) fn len(&self) -> usize {
        self.overrides.count() + self.dynamic_policies.len() + self.assignments.len() + self.unreadable.len()
    }

    /// Applies changes of the records. A plan or policy whose record is unchanged stays the same object:
    /// stores identify plans by their address.
    pub(crate) fn apply(&mut self, changes: &Changes, base: &Policies) -> Touched {
        let whole = changes.scope == Scope::All;
        let before = whole.then(|| std::mem::take(self));
        let rules = self.overrides.end(changes.now);
        let mut touched = Touched { more: whole, rules };
        for (record, value) in &changes.entries {
            let Some(subject) = Subject::of(record) else { continue };
            let was_unreadable = self.unreadable.remove(record).is_some();
            let readable = self.put(subject, value.as_deref(), before.as_ref(), base);
            if let (false, Some(value)) = (readable, value) {
                // The former entry is no longer in force.
                self.put(subject, None, None, base);
                self.unreadable.insert(record.clone(), value.clone());
            }
            match subject {
                Subject::Override { rule, .. } if readable && !was_unreadable => {
                    touched.rules.insert(rule.to_owned());
                }
                _ => touched.more = true,
            }
        }
        touched
    }

    /// Applies one record, or its removal. Returns whether it can be read.
    fn put(
        &mut self,
        subject: Subject<'_>,
        value: Option<&[u8]>,
        before: Option<&Self>,
        base: &Policies,
    ) -> bool {
        let known = before.unwrap_or(self);
        match (subject, value) {
            (Subject::Override { rule, key }, None) => self.overrides.remove(rule, key),
            (Subject::Policy(name), None) => drop(Arc::make_mut(&mut self.dynamic_policies).remove(name)),
            (Subject::Assignment(name), None) => drop(Arc::make_mut(&mut self.assignments).remove(name)),
            (Subject::Override { rule, key }, Some(value)) => {
                let (same, first) = (known.overrides.at(rule, key), self.overrides.first(rule));
                let name =
                    base.rule(rule).map(|rule| &rule.name).or_else(|| first.map(|own| own.plan.rule()));
                let name = name.map_or_else(|| rule.into(), Arc::clone);
                let Some(own) = Override::read(&name, value, same) else { return false };
                self.overrides.set(rule, key, own);
            }
            (Subject::Policy(name), Some(value)) => {
                let same = known.dynamic_policies.get(name).filter(|same| same.written() == value).cloned();
                let policy = same.or_else(|| DynamicPolicy::read(name, value).map(Arc::new));
                let Some(policy) = policy else { return false };
                Arc::make_mut(&mut self.dynamic_policies).insert(Arc::clone(&policy.spec.name), policy);
            }
            (Subject::Assignment(name), Some(value)) => {
                let Ok(policy) = std::str::from_utf8(value) else { return false };
                Arc::make_mut(&mut self.assignments).insert(name.into(), policy.into());
            }
        }
        true
    }

    /// The record of an override, a policy or an assignment, as far as this node knows it.
    pub(crate) fn recorded(&self, subject: Subject<'_>) -> Option<Vec<u8>> {
        let read = match subject {
            Subject::Override { rule, key } => self.overrides.at(rule, key).map(Override::write),
            Subject::Policy(name) => self.dynamic_policies.get(name).map(|policy| policy.written().to_vec()),
            Subject::Assignment(name) => self.assignments.get(name).map(|policy| policy.as_bytes().to_vec()),
        };
        read.or_else(|| self.unreadable.get(&subject.record()).cloned())
    }
}
