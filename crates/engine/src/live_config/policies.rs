//! Policies created at run time, and the names to which policies are assigned. Before one that exists is changed, this
//! node reads what other nodes have changed.

use std::sync::Arc;

use tollgate_core::versioned_map::Edit;

use super::{ChangeFault, Configured, LiveConfig};
use crate::runtime_config::{CONSUMER, DynamicPolicy, PolicySpec, RuntimeConfig, Subject};

/// The most times that a change is tried if other callers are faster.
const TRIES: usize = 4;

/// A policy before and after a change.
#[derive(Clone, Debug)]
pub struct Change {
    /// The policy before.
    pub before: Arc<DynamicPolicy>,
    /// The policy after.
    pub after: Arc<DynamicPolicy>,
}

impl LiveConfig {
    /// Creates a policy with a rule of the same name. The policy consists of that rule and the consumer rule.
    pub async fn create_policy(&self, spec: PolicySpec) -> Result<Arc<DynamicPolicy>, ChangeFault> {
        let _alone = self.changing.lock().await;
        let name = Arc::clone(&spec.name);
        let policy = Arc::new(DynamicPolicy::new(spec, self.counters.stamp().await?));
        for _ in 0..TRIES {
            self.check_new(&policy)?;
            // Overrides for a former rule of this name must not apply to the new one. If another node has created
            // the policy meanwhile, they are its own and stay.
            if !self.orphans_of(&name).is_empty() {
                self.records.refresh(self).await?;
                self.check_new(&policy)?;
                self.forget_overrides(&name).await?;
            }
            if self.swap(Subject::Policy(&name), Some(policy.written())).await? {
                return Ok(policy);
            }
        }
        Err(ChangeFault::Contended { name: name.to_string() })
    }

    /// Replaces everything of a created policy except its name. If `expected` has tags, the policy must have
    /// one of them.
    pub async fn change_policy(
        &self,
        spec: PolicySpec,
        expected: Option<&[String]>,
    ) -> Result<Change, ChangeFault> {
        let _alone = self.changing.lock().await;
        self.records.refresh(self).await?;
        let now = self.counters.stamp().await?;
        for _ in 0..TRIES {
            let before = self.dynamic_policy(&spec.name, expected)?;
            let after = Arc::new(before.changed(spec.clone(), now));
            self.check_fit(&self.configured.lock(), &after)?;
            if self.swap(Subject::Policy(&spec.name), Some(after.written())).await? {
                return Ok(Change { before, after });
            }
        }
        Err(ChangeFault::Contended { name: spec.name.to_string() })
    }

    /// Deletes a created policy and the overrides of its rule, unless it is assigned to a name, or the
    /// configuration uses it under the names in `configured_users`. Returns the deleted policy.
    pub async fn delete_policy(
        &self,
        name: &str,
        expected: Option<&[String]>,
        configured_users: &[String],
    ) -> Result<Arc<DynamicPolicy>, ChangeFault> {
        let _alone = self.changing.lock().await;
        self.records.refresh(self).await?;
        for _ in 0..TRIES {
            let policy = self.dynamic_policy(name, expected)?;
            let users = self.users_of(name, configured_users);
            if !users.is_empty() {
                return Err(ChangeFault::InUse { name: name.to_owned(), users });
            }
            if self.swap(Subject::Policy(name), None).await? {
                self.forget_overrides(name).await?;
                return Ok(policy);
            }
        }
        Err(ChangeFault::Contended { name: name.to_owned() })
    }

    /// Assigns a policy to a name. Returns the policy assigned before.
    pub async fn assign(&self, name: &str, policy: &str) -> Result<Option<Arc<str>>, ChangeFault> {
        let _alone = self.changing.lock().await;
        self.records.refresh(self).await?;
        for _ in 0..TRIES {
            let policy = {
                let pinned = self.in_force.load();
                Arc::clone(&pinned.policies.find(policy).map_err(ChangeFault::NoPolicy)?.name)
            };
            let assignments = Arc::clone(&self.configured.lock().runtime.assignments);
            let before = assignments.get(name).cloned();
            if before.is_none() && assignments.len() >= RuntimeConfig::MOST_ASSIGNMENTS {
                let most = RuntimeConfig::MOST_ASSIGNMENTS;
                return Err(ChangeFault::TooMany { most, what: "assigned policies" });
            }
            if self.swap(Subject::Assignment(name), Some(policy.as_bytes())).await? {
                return Ok(before);
            }
        }
        Err(ChangeFault::Contended { name: name.to_owned() })
    }

    /// Removes the assignment of a name: the configuration applies again. Returns what was assigned.
    pub async fn unassign(&self, name: &str) -> Result<Option<Arc<str>>, ChangeFault> {
        let _alone = self.changing.lock().await;
        for _ in 0..TRIES {
            let before = self.configured.lock().runtime.assignments.get(name).cloned();
            if self.swap(Subject::Assignment(name), None).await? {
                return Ok(before);
            }
        }
        Err(ChangeFault::Contended { name: name.to_owned() })
    }

    /// A created policy, if it is in the expected state.
    fn dynamic_policy(
        &self,
        name: &str,
        expected: Option<&[String]>,
    ) -> Result<Arc<DynamicPolicy>, ChangeFault> {
        let policy = self.configured.lock().runtime.dynamic_policies.get(name).cloned();
        let policy = policy.ok_or_else(|| ChangeFault::Unknown { name: name.to_owned() })?;
        if expected.is_some_and(|expected| !expected.contains(&policy.tag())) {
            return Err(ChangeFault::Changed { name: name.to_owned() });
        }
        Ok(policy)
    }

    /// Whether there is room for another policy, under this name.
    fn check_new(&self, policy: &DynamicPolicy) -> Result<(), ChangeFault> {
        let configured = self.configured.lock();
        let known = &configured.runtime.dynamic_policies;
        if known.contains_key(&policy.spec.name) {
            return Err(ChangeFault::Taken { name: policy.spec.name.to_string() });
        }
        self.check_fit(&configured, policy)?;
        if known.len() >= RuntimeConfig::MOST_DYNAMIC_POLICIES {
            return Err(ChangeFault::TooMany {
                most: RuntimeConfig::MOST_DYNAMIC_POLICIES,
                what: "policies created over the API",
            });
        }
        Ok(())
    }

    /// Whether a policy is compatible with the configuration and with the consumer overrides.
    fn check_fit(&self, configured: &Configured, policy: &DynamicPolicy) -> Result<(), ChangeFault> {
        let pinned = self.in_force.load();
        let consumer = pinned.policies.rule(CONSUMER).expect("there always is a rule of consumers");
        match policy.misfit(&configured.base, consumer) {
            Some(misfit) => Err(ChangeFault::of(misfit, &policy.spec.name)),
            None => Ok(()),
        }
    }

    /// The names that use a policy, by assignment or by the configuration, sorted.
    fn users_of(&self, policy: &str, configured: &[String]) -> Vec<String> {
        let assignments = Arc::clone(&self.configured.lock().runtime.assignments);
        let assigned = assignments.iter().filter(|(_, assigned)| ***assigned == *policy);
        let assigned = assigned.map(|(name, _)| name.to_string());
        let mut users: Vec<String> = assigned.chain(configured.iter().cloned()).collect();
        users.sort();
        users.dedup();
        users
    }

    /// The records of overrides of a rule that the configuration does not have.
    fn orphans_of(&self, rule: &str) -> Vec<String> {
        let configured = self.configured.lock();
        if configured.base.rule(rule).is_some() {
            return Vec::new();
        }
        let record = |key| Subject::Override { rule, key }.record();
        configured.runtime.overrides.keys_of(rule).map(record).collect()
    }

    /// Removes the overrides of a rule that does not exist.
    async fn forget_overrides(&self, rule: &str) -> Result<(), ChangeFault> {
        let edits: Vec<Edit> = self.orphans_of(rule).into_iter().map(Edit::remove).collect();
        if !edits.is_empty() {
            self.records.change(self, &edits).await?;
        }
        Ok(())
    }
}
