//! One consistent set of policies: the configuration with all changes that were made at run time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::{HashMap, HashSet};
use tollgate_core::{Policies, Policy};

use crate::meter::{Meters, PolicyMeter};
use crate::runtime_config::{Assignments, DynamicPolicies, LeftOut, Merged, RuntimeConfig, Subject};

/// One consistent set of policies. Pin it, decide with it, let it go.
pub struct Snapshot {
    /// The policies, with everything set at run time.
    pub policies: Policies,
    /// The policies that decide while the store cannot be used, if that can happen.
    pub(crate) local: Option<Policies>,
    /// No other set has this number.
    pub(crate) number: u64,
    pub(crate) meters: Vec<PolicyMeter>,
    /// The changes that were made at run time, whether in force or not.
    runtime: Arc<RuntimePages>,
    /// Takes the place of every policy while limits are switched off: it charges nothing.
    pub(crate) off: Policy,
}

/// The policies and assignments of the run-time configuration. It is kept when only limits of single keys change.
struct RuntimePages {
    /// The number of configured policies. They come first.
    configured: usize,
    built_in_consumer: bool,
    dynamic_policies: Arc<DynamicPolicies>,
    assignments: Arc<Assignments>,
    /// The index of the policy that is assigned to each name.
    assigned: HashMap<Arc<str>, usize>,
    /// The created policies that are not in force.
    left_out: HashSet<Arc<str>>,
}

impl Snapshot {
    /// The policies in force, and those left out.
    pub(super) fn new(
        merged: Merged,
        local: Option<Policies>,
        runtime: &RuntimeConfig,
        meters: &Meters,
    ) -> (Self, LeftOut) {
        let Merged { policies, configured, built_in_consumer, assigned, left_out } = merged;
        let policy = |record: &String| match Subject::of(record) {
            Some(Subject::Policy(name)) => Some(name.into()),
            _ => None,
        };
        let pages = RuntimePages {
            configured,
            built_in_consumer,
            dynamic_policies: Arc::clone(&runtime.dynamic_policies),
            assignments: Arc::clone(&runtime.assignments),
            assigned,
            left_out: left_out.0.keys().filter_map(policy).collect(),
        };
        (Self::with_pages(policies, local, Arc::new(pages), meters), left_out)
    }

    /// The same snapshot, with policies that differ only in the limits of single keys.
    pub(super) fn with_policies(&self, policies: Policies, local: Option<Policies>, meters: &Meters) -> Self {
        Self::with_pages(policies, local, Arc::clone(&self.runtime), meters)
    }

    fn with_pages(
        policies: Policies,
        local: Option<Policies>,
        runtime: Arc<RuntimePages>,
        meters: &Meters,
    ) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let meters = meters.of(&policies, runtime.configured);
        let off = Policy::new("off".into(), Vec::new(), true);
        Self { policies, local, number, meters, runtime, off }
    }

    /// The policy assigned to a name at run time.
    #[inline]
    pub fn assigned_policy(&self, name: &str) -> Option<&Policy> {
        let assigned = &self.runtime.assigned;
        if assigned.is_empty() {
            return None;
        }
        self.policies.at(*assigned.get(name)?)
    }

    /// The policies created at run time, including those that are not in force.
    pub fn dynamic_policies(&self) -> &DynamicPolicies {
        &self.runtime.dynamic_policies
    }

    /// The policies assigned at run time, by name. An assignment whose policy does not exist is not in force.
    pub fn assignments(&self) -> &Assignments {
        &self.runtime.assignments
    }

    /// Whether a created policy is in force. It is not while the configuration has something of its name, or
    /// something that it clashes with.
    pub fn holds(&self, policy: &str) -> bool {
        !self.runtime.left_out.contains(policy)
    }

    /// Whether the consumer rule is the built-in one, because none is configured.
    pub fn has_built_in_consumer(&self) -> bool {
        self.runtime.built_in_consumer
    }

    /// Whether a policy is configured.
    pub fn is_configured(&self, policy: &Policy) -> bool {
        policy.number() < self.runtime.configured
    }
}
