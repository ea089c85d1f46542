//! What changes while the engine runs: the configuration as a whole, and the run-time configuration entry by entry.
//!
//! A change is written down first and holds then. Policies and routes are only changed from what they
//! are known to be, so that of two who change the same at once, on one node or two, neither does so
//! unseen.

use std::collections::BTreeSet;
use std::sync::Arc;

use tollgate_core::store::Answer;
use tollgate_core::{Limit, Plan, Policies, Rule, StoreError, Timestamp};

use super::{ChangeFault, Engine, Snapshot};
use crate::runtime_config::{BadSpec, Edit, LeftOut, RuntimeConfig, Subject, UNREADABLE};

/// What the file says and what was set on top of it.
pub(crate) struct Configured {
    pub(crate) base: Policies,
    pub(crate) runtime: RuntimeConfig,
    /// How often something was set or removed on this node.
    pub(crate) edits: u64,
    /// The records that the log was told about, because they do not fit.
    told: BTreeSet<String>,
}

/// A change that is being written down. If nobody waits for that to end, or it fails, what is written
/// down is looked at again: it may have been.
struct Writing<'e> {
    engine: &'e Engine,
    settled: bool,
}

impl Configured {
    pub(super) fn new(base: Policies) -> Self {
        Self { base, runtime: RuntimeConfig::default(), edits: 0, told: BTreeSet::new() }
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        if !self.settled {
            self.engine.look_again();
        }
    }
}

impl Engine {
    /// Gives one key limits of its own, which hold from now on and survive restarts. Answers those that
    /// were set before.
    pub async fn set_override(
        &self,
        rule: &str,
        key: &str,
        limits: Vec<Limit>,
    ) -> Result<Option<Arc<Plan>>, ChangeFault> {
        let _alone = self.changing.lock().await;
        let name = self.pin().policies.rule(rule).map_or_else(|| rule.into(), |rule| Arc::clone(&rule.name));
        let plan = Plan::new(Arc::clone(&name), limits).map_err(BadSpec::Plan)?;
        let before = {
            let overrides = &self.configured.lock().runtime.overrides;
            let before = overrides.at(rule, key).cloned();
            if before.is_none() && overrides.count() >= RuntimeConfig::MOST_OVERRIDES {
                let most = RuntimeConfig::MOST_OVERRIDES;
                return Err(ChangeFault::TooMany { most, what: "keys with limits of their own" });
            }
            before
        };
        let edit = Edit::Override { rule: name, key: key.to_owned(), plan: Some(Arc::new(plan)) };
        self.write(edit).await?;
        Ok(before)
    }

    /// Takes back what was set for a key: the configuration holds again. Answers what was set.
    pub async fn remove_override(&self, rule: &str, key: &str) -> Result<Option<Arc<Plan>>, ChangeFault> {
        let _alone = self.changing.lock().await;
        let before = self.configured.lock().runtime.overrides.at(rule, key).cloned();
        self.write(Edit::Override { rule: rule.into(), key: key.to_owned(), plan: None }).await?;
        Ok(before)
    }

    /// Whether a key's limits were set at run time.
    pub fn is_overridden(&self, rule: &str, key: &str) -> bool {
        self.configured.lock().runtime.overrides.at(rule, key).is_some()
    }

    /// Puts other policies in force, all at once. Counters stay; so does what was set at run time.
    pub fn reload(&self, policies: Policies) {
        let mut configured = self.configured.lock();
        self.watch.meters.know(&policies);
        configured.base = policies;
        self.renew(&mut configured);
        self.barrier.configure(&configured.base);
    }

    /// Puts another run-time configuration in force, unless something was set here since there were so many `edits`.
    pub(crate) fn follow_books(&self, records: &[(String, Vec<u8>)], edits: u64) -> bool {
        let mut configured = self.configured.lock();
        let current = configured.edits == edits;
        if current {
            configured.runtime = RuntimeConfig::read(records, &configured.runtime, &configured.base);
            self.renew(&mut configured);
        }
        current
    }

    /// Writes a change down, whatever is there, and puts it in force.
    pub(super) async fn write(&self, edit: Edit) -> Result<(), StoreError> {
        let record = edit.subject().record();
        let mut writing = Writing { engine: self, settled: false };
        match edit.value() {
            Some(value) => self.ask(self.records.put(&record, &value)).await?,
            None => self.ask(self.records.delete(&record)).await?,
        }
        writing.settled = true;
        self.enter(edit);
        Ok(())
    }

    /// Writes a change down if what is there is still known, and puts it in force. Answers whether it
    /// was; if not, what is there is known from now on.
    pub(super) async fn swap(&self, edit: Edit) -> Result<bool, StoreError> {
        let record = edit.subject().record();
        let from = self.configured.lock().runtime.recorded(edit.subject());
        let mut writing = Writing { engine: self, settled: false };
        let done = self.ask(self.records.swap(&record, from.as_deref(), edit.value().as_deref())).await?;
        writing.settled = true;
        if done {
            self.enter(edit);
        } else {
            let kept = self.ask(self.read_kept()).await?;
            self.put_in_force(kept);
        }
        Ok(done)
    }

    fn enter(&self, edit: Edit) {
        let mut configured = self.configured.lock();
        configured.edits += 1;
        let rule = match &edit {
            Edit::Override { rule, .. } => Some(Arc::clone(rule)),
            Edit::Policy { .. } | Edit::Route { .. } => None,
        };
        configured.runtime.enter(edit);
        match rule {
            Some(rule) => self.renew_rule(&mut configured, &rule),
            None => self.renew(&mut configured),
        }
    }

    /// Looks at what is written down in this process. Others are followed anyway.
    fn look_again(&self) {
        if self.shared.is_none()
            && let Answer::Ready(Some(Ok(records))) = self.records.all()
        {
            let edits = self.configured.lock().edits;
            self.follow_books(&records, edits);
        }
    }

    /// The time by which things are written down.
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

    /// As [`Engine::renew`], where nothing but the limits of single keys of one rule has changed.
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

    /// Tells the log once of what does not fit what is in force now.
    fn tell(&self, left_out: &LeftOut, told: &BTreeSet<String>) {
        let pinned = self.pin();
        for (record, why) in left_out.0.iter().filter(|(record, _)| !told.contains(*record)) {
            let record = match Subject::of(record) {
                // Whether the keys of a rule that is gone were secret, nobody knows.
                Some(Subject::Override { rule, key })
                    if pinned.policies.rule(rule).is_none_or(|rule| rule.secret) =>
                {
                    Subject::Override { rule, key: &self.seals.veil(key) }.record()
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
