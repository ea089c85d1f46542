//! Changes while the engine runs: the configuration as a whole, and the run-time configuration entry by
//! entry.
//!
//! A change is recorded first and takes effect then. A policy or a route is only changed if its record is
//! what this node knows. So of two callers that change the same one at once, on one node or on two, one
//! succeeds.

use std::collections::BTreeSet;
use std::sync::Arc;

use tollgate_core::versioned_map::{Changes, Edit, Expect, Namespace};
use tollgate_core::{Limit, Plan, Policies, Rule, StoreError, Timestamp};

use super::{ChangeFault, Engine, Snapshot};
use crate::followed::{Entries, Followed};
use crate::runtime_config::{BadSpec, LeftOut, RuntimeConfig, Subject, Touched, UNREADABLE, write_plan};

/// How many rules are renewed one by one. If more have changed, all are renewed.
const MOST_RULES: usize = 8;

/// What the file says and what was set on top of it at run time.
pub(crate) struct Configured {
    pub(crate) base: Policies,
    pub(crate) runtime: RuntimeConfig,
    pub(crate) followed: Followed,
    /// The records that were logged as unusable beside this configuration.
    told: BTreeSet<String>,
}

impl Configured {
    pub(super) fn new(base: Policies) -> Self {
        Self { base, runtime: RuntimeConfig::default(), followed: Followed::default(), told: BTreeSet::new() }
    }
}

impl Engine {
    /// Gives one key limits of its own. They take effect now and survive restarts. Returns the limits that
    /// were set before.
    pub async fn set_override(
        &self,
        rule: &str,
        key: &str,
        limits: Vec<Limit>,
    ) -> Result<Option<Arc<Plan>>, ChangeFault> {
        let _alone = self.changing.lock().await;
        let name = self.pin().policies.rule(rule).map_or_else(|| rule.into(), |rule| Arc::clone(&rule.name));
        let plan = Plan::new(name, limits).map_err(BadSpec::Plan)?;
        let before = {
            let overrides = &self.configured.lock().runtime.overrides;
            let before = overrides.at(rule, key).cloned();
            if before.is_none() && overrides.count() >= RuntimeConfig::MOST_OVERRIDES {
                let most = RuntimeConfig::MOST_OVERRIDES;
                return Err(ChangeFault::TooMany { most, what: "keys with limits of their own" });
            }
            before
        };
        self.record_override(rule, key, Some(&plan)).await?;
        Ok(before)
    }

    /// Removes the limits set for a key: the configuration applies again. Returns what was set.
    pub async fn remove_override(&self, rule: &str, key: &str) -> Result<Option<Arc<Plan>>, ChangeFault> {
        let _alone = self.changing.lock().await;
        let before = self.configured.lock().runtime.overrides.at(rule, key).cloned();
        self.record_override(rule, key, None).await?;
        Ok(before)
    }

    /// Whether a key's limits were set at run time.
    pub fn is_overridden(&self, rule: &str, key: &str) -> bool {
        self.configured.lock().runtime.overrides.at(rule, key).is_some()
    }

    /// Replaces all policies at once. Counters and run-time changes stay.
    pub fn reload(&self, policies: Policies) {
        let mut configured = self.configured.lock();
        self.watch.meters.know(&policies);
        configured.base = policies;
        self.renew(&mut configured);
        self.live_lists.configure(&configured.base);
    }

    /// Applies changes of the records, and puts them in force.
    pub(crate) fn follow_config(&self, known: Option<u64>, changes: &Changes) -> Entries {
        let mut configured = self.configured.lock();
        let Configured { base, runtime, followed, .. } = &mut *configured;
        if !followed.accept(known, changes) {
            return Entries::Complete;
        }
        let Touched { rules, more } = runtime.apply(changes, base);
        let entries = followed.check_size(changes, runtime.len());
        if more || rules.len() > MOST_RULES {
            self.renew(&mut configured);
        } else {
            rules.iter().for_each(|rule| self.renew_rule(&mut configured, rule));
        }
        entries
    }

    /// Records the limits of a key, or that the key has no limits of its own any more.
    async fn record_override(&self, rule: &str, key: &str, plan: Option<&Plan>) -> Result<(), StoreError> {
        let record = Subject::Override { rule, key }.record();
        let edit = plan.map_or_else(|| Edit::remove(&*record), |plan| Edit::put(&*record, write_plan(plan)));
        self.change_records(Namespace::Config, &[edit]).await.map(drop)
    }

    /// Changes or removes the record of a policy or a route, if the record is what this node knows. Returns
    /// whether it was; if not, this node knows the current record afterwards.
    pub(super) async fn swap(&self, subject: Subject<'_>, to: Option<&[u8]>) -> Result<bool, StoreError> {
        let record = subject.record();
        let edit = to.map_or_else(|| Edit::remove(&*record), |to| Edit::put(&*record, to));
        let expect = Expect::exactly(self.configured.lock().runtime.recorded(subject));
        let held = self.change_records(Namespace::Config, &[edit.expecting(expect)]).await?;
        Ok(held == [true])
    }

    /// The time that records are stamped with.
    pub(super) async fn now(&self) -> Result<Timestamp, StoreError> {
        let store = self.shared.as_ref().map_or(&self.store, |shared| &shared.fallback);
        store.now().await
    }

    fn renew(&self, configured: &mut Configured) {
        let merged = configured.runtime.over(&configured.base);
        let local = self.shared.is_some().then(|| merged.policies.in_outage());
        let (snapshot, left_out) = Snapshot::new(merged, local, &configured.runtime, &self.meters);
        self.current.store(Arc::new(snapshot));
        self.tell(&left_out, &configured.told);
        configured.told = left_out.0.into_keys().collect();
    }

    /// As [`Engine::renew`], where only limits of single keys of one rule have changed.
    fn renew_rule(&self, configured: &mut Configured, rule: &str) {
        let current = self.current.load();
        let bare = configured.runtime.bare_rule(rule, &configured.base);
        let Some(bare) = bare.filter(|_| current.policies.rule(rule).is_some()) else { return };
        let mut left_out = LeftOut::default();
        let renewed = configured.runtime.overrides.over(&bare, &current.policies, &mut left_out);
        let renewed = Rule::clone(&renewed);
        let local = current.local.as_ref().map(|local| local.with_rule(renewed.in_outage()));
        let policies = current.policies.with_rule(renewed);
        self.current.store(Arc::new(current.with_policies(policies, local, &self.meters)));
        self.tell(&left_out, &configured.told);
        let of_rule = Subject::Override { rule, key: "" }.record();
        configured.told.retain(|record| !record.starts_with(&of_rule));
        configured.told.extend(left_out.0.into_keys());
    }

    /// Logs once each record that does not fit what is in force now.
    fn tell(&self, left_out: &LeftOut, told: &BTreeSet<String>) {
        let pinned = self.pin();
        for (record, why) in left_out.0.iter().filter(|(record, _)| !told.contains(*record)) {
            let record = match Subject::of(record) {
                // The rule is gone, so nothing tells whether its keys were secret.
                Some(Subject::Override { rule, key })
                    if pinned.policies.rule(rule).is_none_or(|rule| rule.secret) =>
                {
                    Subject::Override { rule, key: &self.seals.pseudonym(key) }.record()
                }
                _ => record.clone(),
            };
            if why == UNREADABLE {
                if let Some(shared) = &self.shared {
                    shared.condition.note_unreadable(1);
                }
                tracing::error!(component = "engine", record, "a record cannot be read and is ignored");
                continue;
            }
            tracing::warn!(
                component = "engine",
                record,
                why,
                "a run-time change conflicts with the configuration and is not in force"
            );
        }
    }
}
