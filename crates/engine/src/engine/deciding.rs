//! Deciding: from an attempt to a decision, and recording the decision.

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

/// How often a decision fetches new calendar pages: enough unless the store's clock jumps from page to page.
const MOST_TURNS: usize = 3;

/// Stands for a rule's name where the blocklist refuses an attempt.
const BLOCKLIST: &str = "blocklist";

/// Whether charges are taken or only peeked at.
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
    /// The same, for a caller that takes a waiting attempt to a pacer. An attempt that has to wait for a hold
    /// to be released goes there too, though its wait is unknown.
    TakeOrWait,
    /// The same, without recording: a pacer decides one attempt many times, and records the final result.
    TakeInTurn,
    /// Finds out what would be decided. Nothing is taken or recorded.
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
    ///
    /// This and the next two functions are the layer below [`Pinned::admit`](crate::Pinned::admit), which
    /// doors use. They do not wait, keep no leases, and refund nothing when a caller goes away.
    pub async fn decide<'a>(
        &self,
        pinned: &'a Snapshot,
        attempt: &Attempt<'a>,
    ) -> Result<Decision<'a>, Fault> {
        let mut decision = Decision::blank();
        self.decide_as(Manner::Take, pinned, attempt, &mut decision).await?;
        Ok(decision)
    }

    /// Returns what [`Engine::decide`] would, and takes nothing. Below [`Pinned::admit`](crate::Pinned::admit).
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

    /// Decides an attempt. The decision is written in place. Below [`Pinned::admit`](crate::Pinned::admit).
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
            // Boxed, so that the future of an in-process decision stays small.
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

    /// Begins a decision: blocks the attempt if it is on the blocklist, or computes its charges.
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

    /// Takes or peeks. If the store's time has left the known calendar pages, fetches the pages around it and
    /// calls the store again.
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

    /// The readings of every limit of a rule at a key.
    pub async fn look(&self, plan: &Arc<Plan>, key: &str) -> Result<Outcome, StoreError> {
        self.look_in(Home::Store, plan, key).await
    }

    /// As [`Engine::look`], in the store that took the charge.
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

    /// Counts a decision, and records it for operators.
    #[inline]
    pub(crate) fn note(&self, pinned: &Snapshot, decision: &Decision<'_>) {
        // While limits are switched off there is no policy to count for.
        if pinned.policies.enabled
            && let Some(meter) = pinned.meters.get(decision.policy().number())
        {
            meter.count(decision);
        }
        // A client denied by an outage is no offender.
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

    /// Records a blocked attempt: which blocklist entry matched, its reason, and until when it blocks.
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

    /// Logs a blocked client to which no policy applies, and writes it to the journal.
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

    /// The keys at which a blocked attempt would have been counted, so that operators can find it by them.
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

/// The id by which the caller knows an attempt: its own, or one derived from the ticket.
fn correlation<'c>(given: Option<&'c str>, made: &'c [u8; 16]) -> &'c str {
    given.unwrap_or_else(|| str::from_utf8(made).unwrap_or_default())
}

/// Allows an attempt without charges, unless it has none because it is blocked.
#[cold]
fn allow_unless_barred(decision: &mut Decision<'_>) {
    if decision.barred().is_none() {
        decision.allow_unmetered();
    }
}
