//! The configuration in force: that of the file, with the changes that any node made to it at run time.
//!
//! A change is recorded first and takes effect then. A policy or an assignment is changed only if its record is
//! the one that this node has. So if two callers change the same one at once, on one node or on two, one
//! succeeds.

mod change_fault;
mod policies;
mod snapshot;

use std::collections::BTreeSet;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tollgate_core::versioned_map::{Changes, Edit, Expect, Namespace};
use tollgate_core::{Limit, Plan, Policies, Rule, Span, StoreError, Timestamp};

use crate::counters::Counters;
use crate::followed::{Entries, Followed, RecordStore, Replica};
use crate::observer::Observer;
pub use change_fault::ChangeFault;
pub use policies::Change;
pub use snapshot::Snapshot;

use crate::receipt::Seals;
use crate::runtime_config::{BadSpec, LeftOut, Override, RuntimeConfig, Subject, Touched, UNREADABLE};

/// Up to this many changed rules are renewed one by one. If more have changed, all rules are renewed.
const MOST_RULES: usize = 8;

/// The configuration in force, and the way to change it.
pub struct LiveConfig {
    in_force: Arc<ArcSwap<Snapshot>>,
    configured: Mutex<Configured>,
    /// Held while the run-time configuration changes, so that checks stay true until the change is written.
    changing: tokio::sync::Mutex<()>,
    records: Arc<RecordStore>,
    counters: Arc<Counters>,
    observer: Arc<Observer>,
    seals: Arc<Seals>,
}

/// The configuration of the file, and the changes that were made to it at run time.
struct Configured {
    base: Policies,
    runtime: RuntimeConfig,
    followed: Followed,
    /// The records that were logged as unusable beside this configuration.
    logged: BTreeSet<String>,
}

/// The end of the limits that were set for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverrideEnd {
    /// The time of the end, by the store's clock.
    pub at: Timestamp,
    /// The time until then.
    pub after: Span,
}

impl Configured {
    fn new(base: Policies) -> Self {
        Self {
            base,
            runtime: RuntimeConfig::default(),
            followed: Followed::default(),
            logged: BTreeSet::new(),
        }
    }
}

/// The policies of a configuration to which nothing was added at run time.
pub(crate) fn first_snapshot(policies: &Policies, is_shared: bool, observer: &Observer) -> Snapshot {
    let merged = RuntimeConfig::default().over(policies);
    let local = is_shared.then(|| merged.policies.in_outage());
    Snapshot::new(merged, local, &RuntimeConfig::default(), &observer.meters).0
}

impl LiveConfig {
    pub(crate) fn new(
        policies: Policies,
        in_force: Arc<ArcSwap<Snapshot>>,
        records: Arc<RecordStore>,
        counters: Arc<Counters>,
        observer: Arc<Observer>,
        seals: Arc<Seals>,
    ) -> Self {
        let (configured, changing) = (Mutex::new(Configured::new(policies)), tokio::sync::Mutex::new(()));
        Self { in_force, configured, changing, records, counters, observer, seals }
    }

    /// Gives one key limits of its own, until they are removed. They take effect now and survive restarts.
    /// Returns the limits that were set before.
    pub async fn set_override(
        &self,
        rule: &str,
        key: &str,
        limits: Vec<Limit>,
    ) -> Result<Option<Arc<Plan>>, ChangeFault> {
        self.set_override_for(rule, key, limits, None).await
    }

    /// As [`LiveConfig::set_override`], for this long: then the configuration applies again, on every node.
    pub async fn set_override_for(
        &self,
        rule: &str,
        key: &str,
        limits: Vec<Limit>,
        lasts: Option<Span>,
    ) -> Result<Option<Arc<Plan>>, ChangeFault> {
        let _alone = self.changing.lock().await;
        let name = self
            .in_force
            .load()
            .policies
            .rule(rule)
            .map_or_else(|| rule.into(), |rule| Arc::clone(&rule.name));
        let plan = Plan::new(name, limits).map_err(BadSpec::Plan)?;
        let before = {
            let overrides = &self.configured.lock().runtime.overrides;
            let before = overrides.lasting(rule, key).map(|own| Arc::clone(&own.plan));
            if before.is_none() && overrides.count() >= RuntimeConfig::MOST_OVERRIDES {
                let most = RuntimeConfig::MOST_OVERRIDES;
                return Err(ChangeFault::TooMany { most, what: "keys with limits of their own" });
            }
            before
        };
        let until = match lasts {
            // The span counts from the store's time, so the delay of the call does not shorten it.
            Some(lasts) => Some(self.counters.now().await? + lasts.min(Span::MAX)),
            None => None,
        };
        self.record_override(rule, key, Some(Override { plan: Arc::new(plan), until })).await?;
        self.forget_near(rule, key);
        Ok(before)
    }

    /// Removes the limits set for a key: the configuration applies again. Returns what was set.
    pub async fn remove_override(&self, rule: &str, key: &str) -> Result<Option<Arc<Plan>>, ChangeFault> {
        let _alone = self.changing.lock().await;
        let before = self.configured.lock().runtime.overrides.lasting(rule, key).cloned();
        self.record_override(rule, key, None).await?;
        self.forget_near(rule, key);
        Ok(before.map(|before| before.plan))
    }

    /// A key with new limits is no longer as near to them.
    fn forget_near(&self, rule: &str, key: &str) {
        if let Some(rule) = self.in_force.load().policies.rule(rule) {
            self.observer.nearest.forget(Some(&rule.name), Some(&self.observer.shown_key(rule, key)));
        }
    }

    /// Whether a key's limits were set at run time.
    pub fn is_overridden(&self, rule: &str, key: &str) -> bool {
        self.configured.lock().runtime.overrides.lasting(rule, key).is_some()
    }

    /// When the limits set for a key end; `None` if they do not, or none are set.
    pub fn override_end(&self, rule: &str, key: &str) -> Option<OverrideEnd> {
        let at = self.configured.lock().runtime.overrides.lasting(rule, key)?.until?;
        Some(OverrideEnd { at, after: at.since(self.counters.time()) })
    }

    /// The keys of a rule whose limits end, with their ends.
    pub fn override_ends(&self, rule: &str) -> Vec<(String, OverrideEnd)> {
        let now = self.counters.time();
        let configured = self.configured.lock();
        let ends = configured.runtime.overrides.ends_of(rule);
        ends.map(|(key, at)| (key.to_owned(), OverrideEnd { at, after: at.since(now) })).collect()
    }

    /// Puts the configured limits in force again where the limits set for a key have ended. It needs no reply
    /// from the store, so an outage does not prolong them.
    pub(crate) fn end_overrides(&self) {
        let mut configured = self.configured.lock();
        let rules = configured.runtime.overrides.end(self.counters.time());
        self.renew_rules(&mut configured, &rules);
    }

    /// Replaces the policies of the file at once. Run-time changes stay. `also` configures the parts that
    /// depend on the policies, before another caller can replace the policies again.
    pub(crate) fn replace(&self, policies: Policies, also: impl FnOnce(&Policies)) {
        let mut configured = self.configured.lock();
        configured.base = policies;
        self.renew(&mut configured);
        also(&configured.base);
    }

    /// Records the limits of a key, or that the key has no limits of its own any more.
    async fn record_override(&self, rule: &str, key: &str, own: Option<Override>) -> Result<(), StoreError> {
        let record = Subject::Override { rule, key }.record();
        let edit = own
            .map_or_else(|| Edit::remove(&*record), |own| Edit::put(&*record, own.write()).until(own.until));
        self.records.change(self, &[edit]).await.map(drop)
    }

    /// Changes or removes the record of a policy or an assignment, if the record is what this node knows. Returns
    /// whether it was; if not, this node knows the current record afterwards.
    async fn swap(&self, subject: Subject<'_>, to: Option<&[u8]>) -> Result<bool, StoreError> {
        let record = subject.record();
        let edit = to.map_or_else(|| Edit::remove(&*record), |to| Edit::put(&*record, to));
        let expect = Expect::exactly(self.configured.lock().runtime.recorded(subject));
        let held = self.records.change(self, &[edit.expecting(expect)]).await?;
        Ok(held == [true])
    }

    fn renew(&self, configured: &mut Configured) {
        let merged = configured.runtime.over(&configured.base);
        let local = self.counters.are_shared().then(|| merged.policies.in_outage());
        let (snapshot, left_out) = Snapshot::new(merged, local, &configured.runtime, &self.observer.meters);
        self.in_force.store(Arc::new(snapshot));
        self.log_left_out(&left_out, &configured.logged);
        configured.logged = left_out.0.into_keys().collect();
    }

    /// Renews rules of which only limits of single keys have changed.
    fn renew_rules(&self, configured: &mut Configured, rules: &BTreeSet<String>) {
        if rules.len() > MOST_RULES {
            self.renew(configured);
        } else {
            rules.iter().for_each(|rule| self.renew_rule(configured, rule));
        }
    }

    /// As [`LiveConfig::renew`], where only limits of single keys of one rule have changed.
    fn renew_rule(&self, configured: &mut Configured, rule: &str) {
        let current = self.in_force.load();
        let bare = configured.runtime.bare_rule(rule, &configured.base);
        let Some(bare) = bare.filter(|_| current.policies.rule(rule).is_some()) else { return };
        let mut left_out = LeftOut::default();
        let renewed = configured.runtime.overrides.over(&bare, &current.policies, &mut left_out);
        let renewed = Rule::clone(&renewed);
        let local = current.local.as_ref().map(|local| local.with_rule(renewed.in_outage()));
        let policies = current.policies.with_rule(renewed);
        self.in_force.store(Arc::new(current.with_policies(policies, local, &self.observer.meters)));
        self.log_left_out(&left_out, &configured.logged);
        let of_rule = Subject::Override { rule, key: "" }.record();
        configured.logged.retain(|record| !record.starts_with(&of_rule));
        configured.logged.extend(left_out.0.into_keys());
    }

    /// Logs once each record that does not fit what is in force now.
    fn log_left_out(&self, left_out: &LeftOut, logged: &BTreeSet<String>) {
        let pinned = self.in_force.load();
        for (record, why) in left_out.0.iter().filter(|(record, _)| !logged.contains(*record)) {
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
                if let Some(shared) = &self.counters.shared {
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

impl Replica for LiveConfig {
    fn space(&self) -> Namespace {
        Namespace::Config
    }

    fn version(&self) -> Option<u64> {
        self.configured.lock().followed.version()
    }

    fn has_entries(&self) -> bool {
        self.configured.lock().followed.has_entries()
    }

    fn apply(&self, known: Option<u64>, changes: &Changes) -> Entries {
        let mut configured = self.configured.lock();
        let Configured { base, runtime, followed, .. } = &mut *configured;
        if !followed.accept(known, changes) {
            return Entries::Complete;
        }
        let Touched { rules, more } = runtime.apply(changes, base);
        let entries = followed.check_size(changes, runtime.len());
        if more {
            self.renew(&mut configured);
        } else {
            self.renew_rules(&mut configured, &rules);
        }
        entries
    }
}
