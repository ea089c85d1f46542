//! Deciding: from an attempt to a decision, and what is noted about it.

use std::sync::Arc;

use tollgate_core::{
    Attempt, Charges, Decision, Listing, Origin, Outcome, Plan, Span, Store, StoreError, Ticket, Timestamp,
    Verdict, When,
};

use super::{Engine, Fault, Snapshot};
use crate::journal::Entry;
use crate::meter::Meters;
use crate::receipt::Home;
use crate::ticket;

/// How often a calendar is turned to the store's time: enough unless its clock jumps from page to page.
const MOST_TURNS: usize = 3;

/// What stands for a rule's name where somebody is refused who is on the blocklist.
const BLOCKLIST: &str = "blocklist";

/// Whether charges are taken, or only looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    Take,
    Peek,
}

/// How an attempt is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Everything it asks for is taken, or nothing.
    Take,
    /// The same, for a caller that goes to a pacer with what has to wait: so does what has to wait until a
    /// hold is released, though nobody knows when that will be.
    TakeOrWait,
    /// The same, and nothing is noted: a pacer asks about one attempt again and again, and notes what
    /// becomes of it.
    TakeInTurn,
    /// What would be decided is found out. Nothing is taken or noted.
    Peek,
}

impl Manner {
    fn aim(self) -> Aim {
        match self {
            Self::Take | Self::TakeOrWait | Self::TakeInTurn => Aim::Take,
            Self::Peek => Aim::Peek,
        }
    }

    fn may_wait(self) -> bool {
        matches!(self, Self::TakeOrWait | Self::TakeInTurn)
    }

    fn is_noted(self) -> bool {
        matches!(self, Self::Take | Self::TakeOrWait)
    }
}

impl Engine {
    /// Decides an attempt: everything it asks for is taken, or nothing.
    pub async fn decide<'a>(
        &self,
        pinned: &'a Snapshot,
        attempt: &Attempt<'a>,
    ) -> Result<Decision<'a>, Fault> {
        let mut decision = Decision::blank();
        self.decide_as(Manner::Take, pinned, attempt, &mut decision).await?;
        Ok(decision)
    }

    /// Says what [`Engine::decide`] would, and takes nothing.
    pub async fn peek<'a>(&self, pinned: &'a Snapshot, attempt: &Attempt<'a>) -> Result<Decision<'a>, Fault> {
        let mut decision = Decision::blank();
        self.decide_as(Manner::Peek, pinned, attempt, &mut decision).await?;
        Ok(decision)
    }

    /// Whether the store answers every take at once: it is in this process and nobody shares it.
    pub fn answers_at_once(&self) -> bool {
        self.at_once
    }

    /// Whether a decision by this policy is ready at its first poll: the store answers at once, and no rows
    /// are counted.
    #[inline]
    pub(crate) fn decides_at_once(&self, pinned: &Snapshot, policy: &str) -> bool {
        self.at_once && !pinned.policies.count_rows(policy)
    }

    /// Decides an attempt. The decision is made where it stands.
    #[inline]
    pub async fn decide_as<'a>(
        &self,
        manner: Manner,
        pinned: &'a Snapshot,
        attempt: &Attempt<'a>,
        decision: &mut Decision<'a>,
    ) -> Result<(), Fault> {
        let ticket = ticket::next();
        let timed = ticket.0.is_multiple_of(Meters::SAMPLED).then(|| self.stopwatch.raw());
        self.open(pinned, attempt, ticket, decision)?;
        if decision.charges.is_empty() {
            allow_unless_barred(decision);
        } else if decision.policy().counts_rows() {
            Box::pin(self.decide_with_rows(manner.aim(), pinned, attempt, decision)).await?;
        } else if let Some(shared) = &self.shared {
            // Boxed, so that the future of what is decided in this process stays small.
            Box::pin(self.decide_shared(shared, manner.aim(), pinned, attempt, decision)).await?;
        } else {
            let Decision { charges, outcome, .. } = &mut *decision;
            self.settle(&*self.store, manner.aim(), charges, outcome).await.map_err(Fault::Store)?;
            decision.conclude(Origin::Store);
        }
        if manner.may_wait() {
            decision.let_wait();
        }
        if manner.is_noted() {
            self.note(pinned, decision);
            if let Some(start) = timed {
                let nanos = self.stopwatch.delta_as_nanos(start, self.stopwatch.raw());
                self.meters.latency.observe(nanos as f64 / 1e9);
            }
        }
        Ok(())
    }

    /// Begins a decision: bars the attempt if it is on the blocklist, or works out its charges.
    pub(crate) fn open<'a>(
        &self,
        pinned: &'a Snapshot,
        attempt: &Attempt<'a>,
        ticket: Ticket,
        decision: &mut Decision<'a>,
    ) -> Result<(), Fault> {
        if self.has_lists() && self.bar(pinned, attempt, ticket, decision)? {
            return Ok(());
        }
        pinned.open(attempt, ticket, decision)
    }

    /// Takes or looks, and asks again with the calendar around the store's time if that has left the
    /// pages known here.
    #[inline]
    pub(crate) async fn settle(
        &self,
        store: &dyn Store,
        aim: Aim,
        charges: &mut Charges<'_>,
        outcome: &mut Outcome,
    ) -> Result<(), StoreError> {
        let mut turns = 0;
        loop {
            self.calendars.fill(charges);
            let answer = match aim {
                Aim::Take => store.take(charges, outcome).await,
                Aim::Peek => store.peek(charges, outcome).await,
            };
            match answer {
                Err(StoreError::Stale { now }) if turns < MOST_TURNS => self.calendars.turn(charges, now),
                answer => return answer,
            }
            turns += 1;
        }
    }

    /// What every limit of a rule shows at a key.
    pub async fn look(&self, plan: &Arc<Plan>, key: &str) -> Result<Outcome, StoreError> {
        self.look_in(Home::Store, plan, key).await
    }

    /// As [`Engine::look`], where something was taken.
    pub(crate) async fn look_in(
        &self,
        home: Home,
        plan: &Arc<Plan>,
        key: &str,
    ) -> Result<Outcome, StoreError> {
        let mut charges = Charges::new(Ticket(0), 0, None);
        charges.push(plan, key, true);
        let mut outcome = Outcome::default();
        let looking = self.settle(self.own_store(home), Aim::Peek, &mut charges, &mut outcome);
        match home {
            Home::Store => self.ask(looking).await?,
            Home::Local => looking.await?,
        }
        Ok(outcome)
    }

    /// Counts a decision, and keeps what people need to see why.
    #[inline]
    pub(crate) fn note(&self, pinned: &Snapshot, decision: &Decision<'_>) {
        // While limits are switched off there is no policy to count for.
        if pinned.policies.enabled
            && let Some(meter) = pinned.meters.get(decision.policy().number())
        {
            meter.count(decision);
        }
        // Whom an outage denies has done nothing wrong.
        if !decision.allowed() && !matches!(decision.origin, Origin::Outage(_)) {
            self.note_refusal(decision);
        }
        self.journal.record(decision.verdict, decision.outcome.now, || self.entry(pinned, decision));
    }

    #[cold]
    fn note_refusal(&self, decision: &Decision<'_>) {
        if let Some(listing) = decision.barred() {
            let (made, policy) = (decision.charges.ticket.id(), &decision.policy().name);
            let id = correlation(decision.correlation, &made);
            return self.note_barred(policy, listing, id, decision.outcome.now);
        }
        self.note_denial(decision);
        let Some(line) = decision.denied_by() else { return };
        let now = decision.outcome.now;
        let key = self.shown_key(line.rule, line.key);
        self.offenders.note(&line.rule.name, &key, now);
        if matches!(decision.verdict, Verdict::Wait(_)) {
            return;
        }
        let Some(held_back) = self.paced_log.admit(now) else { return };
        let retry_after = match decision.wait() {
            Some(wait) => Span::from_secs(wait.as_secs_ceil()).to_string(),
            None => String::from("never"),
        };
        let (policy, denied_by) = (&*decision.policy().name, &*line.rule.name);
        let code = line.rule.code.as_deref();
        let retry_by = decision.retry_by().map(|line| line.rule.name.to_string());
        let made = decision.charges.ticket.id();
        let held_back = Some(held_back).filter(|lines| *lines > 0);
        tracing::warn!(
            component = "ratelimit",
            policy,
            denied_by,
            code,
            key = &*key,
            retry_after,
            retry_by,
            correlation = correlation(decision.correlation, &made),
            held_back,
            "rate limit exceeded"
        );
    }

    /// Takes note of a blocked caller: which entry of the blocklist it is, why, and until when.
    fn note_barred(&self, policy: &str, listing: &Listing, correlation: &str, now: Timestamp) {
        let target = listing.target.to_string();
        self.offenders.note(BLOCKLIST, &target, now);
        let Some(held_back) = self.paced_log.admit(now) else { return };
        let reason = Some(&*listing.reason).filter(|reason| !reason.is_empty());
        let ends_in = listing.until.map(|until| Span::from_secs(until.since(now).as_secs_ceil()).to_string());
        let author = listing.author.to_string();
        tracing::info!(
            component = "lists",
            policy,
            target,
            reason,
            ends_in,
            author,
            correlation,
            held_back,
            "barred"
        );
    }

    /// Logs a blocked caller to whom no policy applies, and writes it to the journal.
    pub(crate) fn note_barred_elsewhere(&self, listing: &Arc<Listing>, correlation: &str, now: Timestamp) {
        self.note_barred("", listing, correlation, now);
        self.journal.record(Verdict::Deny, now, || Entry {
            at: now,
            policy: String::new(),
            verdict: Verdict::Deny,
            origin: Origin::Barred,
            rule: None,
            code: None,
            key: Some(listing.target.to_string()),
            keys: Vec::new(),
            correlation: Some(correlation.to_owned()),
            listing: Some(Arc::clone(listing)),
            cost: 1,
            retry: listing.until.map_or(When::Never, |until| When::After(until.since(now))),
            banned: None,
            locked: None,
        });
    }

    #[cold]
    fn entry(&self, pinned: &Snapshot, decision: &Decision<'_>) -> Entry {
        let named = decision.denied_by();
        let line = named.or_else(|| decision.lines().next());
        let barred = decision.barred().map(|listing| listing.target.to_string());
        let mut keys = Vec::new();
        for line in decision.lines() {
            let key = self.shown_key(line.rule, line.key);
            self.busiest.note(&line.rule.name, &key, decision.outcome.now);
            keys.push((Arc::clone(&line.rule.name), key.into_owned()));
        }
        if decision.barred().is_some() {
            keys = self.keys_of_barred(pinned, decision);
        }
        let made = decision.charges.ticket.id();
        let told = decision.correlation.is_some() || !decision.allowed();
        Entry {
            at: decision.outcome.now,
            policy: decision.policy().name.to_string(),
            verdict: decision.verdict,
            origin: decision.origin,
            rule: named.map(|line| line.rule.name.to_string()),
            code: named.and_then(|line| line.rule.code.clone()),
            key: barred.or_else(|| line.map(|line| self.shown_key(line.rule, line.key).into_owned())),
            keys,
            correlation: told.then(|| correlation(decision.correlation, &made).to_owned()),
            listing: decision.barred().cloned(),
            cost: decision.charges.cost,
            retry: decision.wait().map_or(decision.retry, When::After),
            banned: None,
            locked: None,
        }
    }

    /// The keys at which a blocked caller would have been counted, so that it is found by them.
    fn keys_of_barred(&self, pinned: &Snapshot, decision: &Decision<'_>) -> Vec<(Arc<str>, String)> {
        let policy = decision.policy();
        let attempt = Attempt { policy: &policy.name, fields: decision.barred_fields, cost: 0, id: None };
        let mut charges = Charges::new(Ticket(0), 0, None);
        // These fields are not checked yet: a malformed value is no key.
        let _ = policy.charge_listed(&attempt, pinned.policies.roster(), &mut charges);
        let keys = charges.iter().filter_map(|charge| {
            let rule = policy.rule(charge.plan.rule())?;
            Some((Arc::clone(&rule.name), self.shown_key(rule, charges.key(charge)).into_owned()))
        });
        keys.collect()
    }
}

/// The id by which the caller knows an attempt: its own, or the one that is made up from the ticket.
fn correlation<'c>(given: Option<&'c str>, made: &'c [u8; 16]) -> &'c str {
    given.unwrap_or_else(|| str::from_utf8(made).unwrap_or_default())
}

/// Allows an attempt that has nothing to charge, unless that is because it is barred.
#[cold]
fn allow_unless_barred(decision: &mut Decision<'_>) {
    if decision.barred().is_none() {
        decision.allow_unmetered();
    }
}
