//! A cache of recent denials by the shared store, so that a client that keeps retrying is refused on this
//! node.
//!
//! A denial is cached until its retry time, for at most one second. It answers an attempt with the same
//! charges and the same cost. It also answers a greater cost, if the readings tell when that would pass. The
//! cache never denies what the store would admit: the time counts from before the store was called, and
//! whatever may free units on this node invalidates the denials it affects. The waits of the rules that denied
//! an attempt are never too short: units taken on this node at their keys invalidate the denial too.
//!
//! The cached answer may differ from the store's in three ways, for at most one second. Units that other
//! attempts take at a rule that did not deny the cached one do not show, neither in its reading nor in the retry
//! time; otherwise every admission at a rule that all clients share would empty the cache. `remaining` of a rule
//! that denied is not raised while its units come back, and a `reset` that has passed stays as it was. Changes
//! made by other nodes do not show either. The cache stores only a keyed hash of the keys.

use std::hash::Hasher;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use siphasher::sip128::{Hasher128, SipHasher13};
use smallvec::SmallVec;
use tollgate_core::{Charges, Decision, Limit, Outcome, Plan, Reading, Span, Timestamp, When};

/// A table of fixed size: a new denial replaces an old one.
pub(crate) struct Denied {
    slots: Box<[Mutex<Option<Denial>>]>,
    /// Changes at the keys that share a number.
    events: Box<[Events]>,
    /// The number of events that may have freed units at any key.
    freed_anywhere: AtomicU64,
    keys: (u64, u64),
}

/// The number of events that freed units, and of those that took units.
#[derive(Default)]
struct Events {
    freed: AtomicU64,
    taken: AtomicU64,
}

/// The fingerprint of an attempt, taken before the store is called.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    print: u128,
    /// The number of events that freed units at any of its keys, when the fingerprint was taken.
    freed: u64,
    /// For each of its keys, the number of events that took units.
    taken: SmallVec<[u64; 6]>,
    asked: Timestamp,
}

/// One denial.
struct Denial {
    print: u128,
    freed: u64,
    /// Bit `i` is set if charge `i` was exceeded.
    exceeded: u32,
    /// The number of events that took units at the exceeded keys.
    taken: u64,
    cost: u64,
    /// When the reply came. Readings age from here, so that no reported time is too short.
    answered: Timestamp,
    /// The time until which the denial is valid.
    until: Timestamp,
    now: Timestamp,
    readings: Box<[Reading]>,
}

/// The longest that a denial is cached.
const MOST: Span = Span::from_secs(1);
const SLOTS: usize = 4_096;
const NUMBERS: usize = 1_024;

impl Denied {
    pub(crate) fn new() -> Self {
        let random = || getrandom::u64().expect("the system gives random numbers");
        Self {
            slots: (0..SLOTS).map(|_| Mutex::new(None)).collect(),
            events: (0..NUMBERS).map(|_| Events::default()).collect(),
            freed_anywhere: AtomicU64::new(0),
            keys: (random(), random()),
        }
    }

    /// The fingerprint of an attempt, taken before the store is called. Another set of policies, with another
    /// number, gives another fingerprint.
    pub(crate) fn trace(&self, policies: u64, charges: &Charges<'_>, now: Timestamp) -> Trace {
        let mut hasher = SipHasher13::new_with_keys(self.keys.0, self.keys.1);
        hasher.write_u64(policies);
        let mut freed = self.freed_anywhere.load(Ordering::Acquire);
        let mut taken = SmallVec::new();
        for charge in charges.iter() {
            let key = charges.key(charge);
            hasher.write_u64(charge.plan.salt());
            hasher.write_u8(u8::from(charge.enforced));
            write_text(&mut hasher, key);
            let events = self.events_at(charge.plan, key);
            freed += events.freed.load(Ordering::Acquire);
            taken.push(events.taken.load(Ordering::Acquire));
        }
        for (field, amount) in charges.amounts() {
            write_text(&mut hasher, field);
            hasher.write_u64(*amount);
        }
        if let Some(id) = charges.id {
            write_text(&mut hasher, id);
        }
        Trace { print: hasher.finish128().as_u128(), freed, taken, asked: now }
    }

    /// Answers an attempt from a cached denial, if one is still valid. Returns whether it did.
    pub(crate) fn recall(&self, trace: &Trace, charges: &Charges<'_>, outcome: &mut Outcome) -> bool {
        let slot = self.slot(trace).lock();
        let Some(denial) = &*slot else { return false };
        let same = denial.print == trace.print && denial.freed == trace.freed;
        let holds = same && denial.taken == trace.taken_at(denial.exceeded) && trace.asked < denial.until;
        let same_cost = charges.cost == denial.cost;
        // If a rule counts a field, the store must decide an attempt of another cost.
        let counts_fields = charges.iter().any(|charge| charge.cost != charges.cost);
        if !holds || charges.cost < denial.cost || (counts_fields && !same_cost) {
            return false;
        }
        let elapsed = trace.asked.since(denial.answered);
        let limits =
            charges.iter().flat_map(|charge| charge.plan.limits().iter().map(move |limit| (charge, limit)));
        outcome.readings.clear();
        outcome.now = denial.now + elapsed;
        (outcome.allowed, outcome.repeated, outcome.taken) = (false, false, 0);
        for ((charge, limit), reading) in limits.zip(&denial.readings) {
            let cost = if same_cost { charge.cost } else { denial.cost };
            let moved = aged(limit, *reading, elapsed, cost);
            if same_cost {
                outcome.readings.push(moved);
                continue;
            }
            match limit.when_greater(moved, charges.cost, outcome.now) {
                Some(when) => outcome.readings.push(Reading { when, ..moved }),
                None => return false,
            }
        }
        true
    }

    /// Caches a denial by the store.
    pub(crate) fn remember(&self, trace: &Trace, decision: &Decision<'_>, now: Timestamp) {
        let lasts = match decision.retry {
            When::Now => return,
            When::After(span) => span.min(MOST),
            When::OnRelease | When::Never => MOST,
        };
        let exceeded = decision.lines().enumerate().filter(|(_, line)| line.exceeded());
        let exceeded = exceeded.fold(0, |bits, (index, _)| bits | 1 << index);
        let outcome = &decision.outcome;
        *self.slot(trace).lock() = Some(Denial {
            print: trace.print,
            freed: trace.freed,
            exceeded,
            taken: trace.taken_at(exceeded),
            cost: decision.charges.cost,
            answered: now,
            until: trace.asked + lasts,
            now: outcome.now,
            readings: outcome.readings.as_slice().into(),
        });
    }

    /// Units may have been freed at a key.
    pub(crate) fn free(&self, plan: &Plan, key: &str) {
        self.events_at(plan, key).freed.fetch_add(1, Ordering::Release);
    }

    /// Units were taken at a key.
    pub(crate) fn took(&self, plan: &Plan, key: &str) {
        self.events_at(plan, key).taken.fetch_add(1, Ordering::Release);
    }

    /// Units may have been freed at any key.
    pub(crate) fn free_all(&self) {
        self.freed_anywhere.fetch_add(1, Ordering::Release);
    }

    fn slot(&self, trace: &Trace) -> &Mutex<Option<Denial>> {
        &self.slots[trace.print as usize % SLOTS]
    }

    fn events_at(&self, plan: &Plan, key: &str) -> &Events {
        let mut hasher = SipHasher13::new_with_keys(self.keys.1, self.keys.0);
        hasher.write_u64(plan.salt());
        hasher.write(key.as_bytes());
        &self.events[hasher.finish128().h1 as usize % NUMBERS]
    }
}

impl Trace {
    /// The number of events that took units at the keys of these charges.
    fn taken_at(&self, charges: u32) -> u64 {
        self.taken
            .iter()
            .enumerate()
            .filter(|(index, _)| charges & (1 << index) != 0)
            .map(|(_, taken)| taken)
            .sum()
    }
}

/// Hashes a text with its length before it, so that different lists of texts never hash alike.
fn write_text(hasher: &mut SipHasher13, text: &str) {
    hasher.write_usize(text.len());
    hasher.write(text.as_bytes());
}

/// A reading some time later, if nothing changed in between.
fn aged(limit: &Limit, reading: Reading, elapsed: Span, cost: u64) -> Reading {
    match reading.when {
        When::After(span) if span > elapsed => {
            let left = Span::from_micros(span.as_micros() - elapsed.as_micros());
            Reading { when: When::After(left), ..reading }
        }
        When::After(_) => limit.read_after_wait(reading, cost),
        When::Now | When::OnRelease | When::Never => reading,
    }
}
