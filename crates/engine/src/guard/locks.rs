//! Locks for operators: list who is locked, show the state of a user's ladders, and unlock.
//!
//! The counters know which keys are locked, but no caller can list them. So the engine also records every
//! lock in the store, sealed and under a name that reveals nothing, where all nodes read it. The store
//! removes the record when the lock ends. A listed lock was looked up in the counters just before.

use std::sync::Arc;

use tollgate_core::store::{Counter, Forget};
use tollgate_core::versioned_map::{Edit, Expect, Namespace};
use tollgate_core::{
    Attempt, Charges, Climb, Decision, Guard, Line, Mistake, Origin, Outcome, Policy, Receipt, ReceiptLine,
    Rule, Span, StoreError, Timestamp,
};

use super::Guards;
use crate::counters::Aim;
use crate::engine::Fault;
use crate::live_config::Snapshot;
use crate::receipt::{Home, Kind};
use crate::ticket;

/// The state of one rule's ladder at a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LadderState {
    /// The rule.
    pub rule: Arc<str>,
    /// The key, as operators may see it.
    pub key: String,
    /// Whether the rule is enforced, or only observes.
    pub enforced: bool,
    /// The number of remembered failures.
    pub failures: u64,
    /// The wait before the next attempt.
    pub delay: Span,
    /// The time of the next attempt, if it has to wait.
    pub next_at: Option<Timestamp>,
    /// Whether the next attempt must present a CAPTCHA.
    pub captcha: bool,
    /// The end of the lock, if there is one.
    pub locked_until: Option<Timestamp>,
    /// The time at which all failures are forgotten, if there are any.
    pub forgotten_at: Option<Timestamp>,
}

/// A locked key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// The rule that locks.
    pub rule: Arc<str>,
    /// The key, as operators may see it.
    pub key: String,
    /// The fields that form the key, with their values; `None` if they are secret.
    pub fields: Option<Vec<(Arc<str>, String)>>,
    /// The number of remembered failures.
    pub failures: u64,
    /// The time of the last failure.
    pub since: Timestamp,
    /// The end of the lock.
    pub until: Timestamp,
}

/// A recorded lock.
struct Recorded {
    rule: String,
    key: String,
    since: Timestamp,
}

/// The most locks that are recorded.
const MOST: usize = Namespace::Locks.most_entries();

impl Guards {
    /// The state of a guard's ladders for these fields, by rule. Rules for which fields are missing are left
    /// out.
    pub async fn standings(
        &self,
        pinned: &Snapshot,
        guard: &Guard,
        fields: &[(&str, &str)],
    ) -> Result<Vec<LadderState>, Fault> {
        let policy = pinned.policies.find(&guard.policy).map_err(Fault::Mistake)?;
        let decision = self.look_up(pinned, policy, fields).await?;
        let now = decision.outcome.now;
        Ok(decision.lines().flat_map(|line| self.standings_of(&line, now)).collect())
    }

    fn standings_of(&self, line: &Line<'_>, now: Timestamp) -> Vec<LadderState> {
        let enforced = !line.rule.observes();
        let standing = |climb: tollgate_core::Climb<'_>| {
            let failures = climb.failures();
            let next_at = Some(climb.next_at()).filter(|at| enforced && failures > 0 && *at > now);
            LadderState {
                rule: Arc::clone(&line.rule.name),
                key: self.observer.shown_key(line.rule, line.key).into_owned(),
                enforced,
                failures,
                delay: next_at.map_or(Span::ZERO, |at| at.since(now)),
                next_at,
                captcha: climb.reached().is_some_and(|step| step.captcha),
                locked_until: climb.locked_until().filter(|until| enforced && *until > now),
                forgotten_at: (failures > 0).then(|| climb.forgotten_at()),
            }
        };
        line.climbs().map(standing).collect()
    }

    /// Looks at all counters of a policy for these fields.
    async fn look_up<'a>(
        &self,
        pinned: &'a Snapshot,
        policy: &'a Policy,
        fields: &'a [(&'a str, &'a str)],
    ) -> Result<Decision<'a>, Fault> {
        let attempt = Attempt { policy: &policy.name, fields, cost: 0, id: None };
        let mut charges = Charges::new(ticket::next(), 0, None);
        policy.charge_listed(&attempt, pinned.policies.roster(), &mut charges).map_err(Fault::Mistake)?;
        let mut outcome = Outcome::default();
        let looked = self.counters.settle_in_store(Aim::Peek, &mut charges, &mut outcome).await;
        looked.map_err(Fault::Store)?;
        Ok(Decision::new(policy, charges, outcome, Origin::Store))
    }

    /// Forgets all failures at a guard for these fields: at every rule that has all its fields, and at every
    /// locked key that includes these values. Returns the rules and the keys, as operators may see them.
    pub async fn unlock(
        &self,
        pinned: &Snapshot,
        guard: &Guard,
        fields: &[(&str, &str)],
    ) -> Result<Vec<(Arc<str>, String)>, Fault> {
        let policy = pinned.policies.find(&guard.policy).map_err(Fault::Mistake)?;
        let mut counters: Vec<(&Rule, String)> = Vec::new();
        match self.look_up(pinned, policy, fields).await {
            Ok(decision) => {
                let lines = decision.lines().filter(|line| line.plan.has_ladder());
                let own = |line: Line<'_>| Some((&**policy.rule(&line.rule.name)?, line.key.to_owned()));
                counters.extend(lines.filter_map(own));
            }
            // No rule has all its fields, but a locked key may include these.
            Err(Fault::Mistake(Mistake::NoRuleApplies { .. })) => {}
            Err(fault) => return Err(fault),
        }
        let recorded = self.locks.page(&lock_name(&guard.name, "", ""), None, MOST);
        for locked in recorded.iter().filter_map(|(_, value)| self.read_lock(value)) {
            let Some(rule) = policy.rules.iter().find(|rule| *rule.name == *locked.rule) else { continue };
            let known = |(own, key): &(&Rule, String)| *own.name == *rule.name && *key == locked.key;
            if rule.key_has_values(&locked.key, fields) && !counters.iter().any(known) {
                counters.push((rule, locked.key));
            }
        }
        let mut unlocked = Vec::new();
        for (rule, key) in counters {
            let counter = Counter { plan: rule.plan_at(&key), key: &key };
            self.counters.forget(Forget::Key(counter)).await.map_err(Fault::Store)?;
            self.remove_lock(&lock_name(&guard.name, &rule.name, &self.seals.pseudonym(&key))).await?;
            unlocked.push((Arc::clone(&rule.name), self.observer.shown_key(rule, &key).into_owned()));
        }
        Ok(unlocked)
    }

    /// Up to `most` locks of a guard, after the record `after`, and the name of the last record if more
    /// follow. Recorded locks that have ended or cannot be read are left out, so there may be fewer.
    pub async fn locks(
        &self,
        pinned: &Snapshot,
        guard: &Guard,
        after: Option<&str>,
        most: usize,
    ) -> Result<(Vec<Lock>, Option<String>), StoreError> {
        let start = lock_name(&guard.name, "", "");
        let after = after.map(|after| format!("{start}{after}"));
        let mut recorded = self.locks.page(&start, after.as_deref(), most.saturating_add(1));
        let follows = recorded.len() > most;
        recorded.truncate(most);
        let last = recorded.last().filter(|_| follows);
        let more = last.and_then(|(name, _)| name.strip_prefix(&start)).map(str::to_owned);
        let mut locks = Vec::new();
        for (name, value) in recorded {
            let Some(locked) = self.read_lock(&value) else { continue };
            let Some(rule) = pinned.policies.rule(&locked.rule) else { continue };
            let plan = rule.plan_at(&locked.key);
            let outcome = self.counters.look(plan, &locked.key).await?;
            let line = Line::looked_up(rule, &locked.key, plan, &outcome);
            let longest =
                self.standings_of(&line, outcome.now).into_iter().max_by_key(|own| own.locked_until);
            let Some((standing, until)) = longest.and_then(|own| own.locked_until.map(|until| (own, until)))
            else {
                // If that fails, the record expires by itself.
                let _ = self.remove_lock(&name).await;
                continue;
            };
            let fields = if rule.secret { None } else { rule.values_of(&locked.key) };
            let (failures, since) = (standing.failures, locked.since);
            locks.push(Lock { rule: standing.rule, key: standing.key, fields, failures, since, until });
        }
        Ok((locks, more))
    }

    /// Records a lock. If that fails, the key is still locked, and only missing from lists.
    pub(super) async fn record_lock(
        &self,
        home: Home,
        guard: &str,
        line: &Line<'_>,
        climb: &Climb<'_>,
        until: Timestamp,
    ) {
        // Counters of this process are dropped when the store recovers.
        if home == Home::Local {
            return;
        }
        let name = lock_name(guard, &line.rule.name, &self.seals.pseudonym(line.key));
        let start = format!("{}\n", until.as_micros());
        match self.locks.at(&name) {
            // The lock was recorded when the attempt began.
            Some(value) if value.starts_with(start.as_bytes()) => return,
            None if self.locks.len() >= MOST => return,
            _ => {}
        }
        let receipt = Receipt {
            ticket: ticket::next(),
            at: climb.last_at(),
            taken: vec![ReceiptLine {
                rule: line.rule.name.to_string(),
                key: line.key.to_owned(),
                cost: climb.failures(),
            }],
        };
        let Some(sealed) = self.seals.with(Home::Store, |seal| seal.seal(Kind::Lock, &receipt)) else {
            return;
        };
        let edit = Edit::put(name, format!("{start}{sealed}")).until(Some(until));
        if let Err(error) = self.records.change(&self.locks, &[edit]).await {
            tracing::warn!(component = "guard", %error, "a lock could not be recorded");
        }
    }

    async fn remove_lock(&self, name: &str) -> Result<(), Fault> {
        let Some(value) = self.locks.at(name) else { return Ok(()) };
        // Another node may have recorded a new lock meanwhile. That one stays.
        let edits = [Edit::remove(name).expecting(Expect::Is(value))];
        self.records.change(&self.locks, &edits).await.map(drop).map_err(Fault::Store)
    }

    /// The lock in a record; `None` if another version or a node with another secret wrote it, or it is damaged.
    fn read_lock(&self, value: &[u8]) -> Option<Recorded> {
        let sealed = std::str::from_utf8(value).ok()?.split_once('\n')?.1;
        let Ok((Kind::Lock, receipt, Home::Store)) = self.seals.open(sealed) else { return None };
        let ReceiptLine { rule, key, .. } = receipt.taken.into_iter().next()?;
        Some(Recorded { rule, key, since: receipt.at })
    }
}

/// The name of a lock's record. Names of guards and rules contain no slash.
fn lock_name(guard: &str, rule: &str, pseudonym: &str) -> String {
    let start = format!("{guard}/");
    if rule.is_empty() { start } else { format!("{start}{rule}/{pseudonym}") }
}
