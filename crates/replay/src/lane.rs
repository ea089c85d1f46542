//! One configuration under replay: an engine, a store in memory, and a clock that jumps from attempt to
//! attempt.
//!
//! Before each attempt the lane does everything that is due by then, each at its own time: requests end and
//! release their holds, waiting attempts get their turns, and the engine's periodic work runs, four times a
//! second as in a server. Nothing sleeps.

mod records;
mod seeing;
mod turns;

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::Arc;

use futures_lite::future::block_on;
use smallvec::SmallVec;
use tollgate_core::{Attempt, Clock, Policies, Records, Span, Store, StoreError, Timestamp, Verdict};
use tollgate_engine::admit::{Admitted, Holds, Wait};
use tollgate_engine::{
    Admission, Admissions, Admit, Engine, Leases, Pacer, PacerOptions, Parts, Taken, Terms, Turns,
};
use tollgate_store::{ManualClock, MemoryStore};
use tollgate_web::Statuses;

use crate::choose::{Choice, Choosing, SlotValues, Wishes};
use crate::order::Entry;
use crate::waiting::WaitRoom;
use records::ReplayRecords;
use seeing::{BLOCKLIST, Seen, see};

pub struct Lane {
    clock: Arc<ManualClock>,
    store: Arc<MemoryStore>,
    admissions: Admissions,
    turns: Turns,
    policies: Policies,
    choosing: Arc<Choosing>,
    /// For each policy, its fields and their slots.
    fields: Vec<FieldSlots>,
    slots: Vec<Arc<str>>,
    tend_at: Option<Timestamp>,
    /// The number of rounds of periodic work since an attempt was last denied or deferred.
    idle: u32,
    ends: BinaryHeap<Reverse<End>>,
    waiting: WaitRoom<Seen>,
    /// The number of keys at which the store is swept next.
    sweep_from: usize,
}

type Fields<'f> = SmallVec<[(&'f str, &'f str); 8]>;
type FieldSlots = Vec<(Arc<str>, Slotted)>;

/// The source of a field's value: a slot of the line, or the chosen route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slotted {
    Slot(usize),
    Route,
}

/// The policy that an attempt passes, and the route that chose it.
#[derive(Clone, Copy, Debug)]
struct Arrival<'a> {
    policy: &'a str,
    route: Option<&'a str>,
}

/// One attempt, in the form that all lanes share.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'m> {
    pub number: u64,
    pub entry: &'m Entry<'m>,
    /// The values of its fields, by slot.
    pub values: SlotValues<'m>,
}

/// The result of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Allowed after this wait; zero if it did not wait.
    Allowed(Span),
    /// The rule tells the client to come back later.
    Deferred(Box<Named>),
    Denied(Box<Named>),
    /// Its route has no policy.
    Unlimited,
    /// It has no route.
    Unrouted,
    /// The server would refuse the attempt as a mistake of the caller.
    Invalid(Box<str>),
}

/// The rule that a decision names, and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The rule; `blocklist` for an entry of the blocklist.
    pub rule: Arc<str>,
    pub key: Box<str>,
}

/// An event that a lane reports.
pub enum Report<'r> {
    /// The result of an attempt.
    Fate(&'r Moment<'r>, &'r Fate),
    /// A rule that only observes would have denied an attempt.
    Observed(&'r Moment<'r>, &'r Named),
}

/// The callback that receives the reports of a lane.
pub type Hear<'h> = &'h mut dyn FnMut(Report<'_>);

/// The end of a request that holds something, or whose status decides what counts.
struct End {
    at: Timestamp,
    number: u64,
    status: u16,
    taken: Taken,
}

/// The interval of a server's periodic work.
const EVERY: Span = Span::from_millis(250);
/// The engine needs at most this many rounds to process the denials that it has recorded.
const ROUNDS: u32 = 40;
/// The store is swept only if it has at least this many keys. With fewer, adding swept keys again costs more
/// than it saves.
const FEWEST_SWEPT: usize = 250_000;
/// The most requests in flight; beyond that, a request ends when it begins.
const MOST_ENDS: usize = Leases::MOST;

impl Lane {
    /// Makes a lane for these policies, with room for `max_keys` keys.
    pub fn new(
        policies: Policies,
        max_keys: usize,
        choosing: Arc<Choosing>,
        wishes: &Wishes,
    ) -> Result<Self, StoreError> {
        let clock = Arc::new(ManualClock::default());
        let store = Arc::new(MemoryStore::new(Arc::clone(&clock) as Arc<dyn Clock>, max_keys));
        let records = Arc::new(ReplayRecords(Arc::clone(&store))) as Arc<dyn Records>;
        let parts = Parts { store: Arc::clone(&store) as Arc<dyn Store>, records, fallback: None };
        let engine = Arc::new(block_on(Engine::start(policies.clone(), parts))?);
        let leases = Arc::new(Leases::new(Arc::clone(&engine), Arc::clone(&clock) as Arc<dyn Clock>));
        let (pacer, turns) =
            Pacer::on_clock(Arc::clone(&engine), PacerOptions::default(), Arc::clone(&clock) as _);
        let admissions = Admissions { engine, pacer: Some(pacer), leases };
        let slots = wishes.list.iter().map(|wish| Arc::clone(&wish.field)).collect();
        let mut lane = Self {
            clock,
            store,
            admissions,
            turns,
            policies,
            choosing,
            fields: Vec::new(),
            slots,
            tend_at: None,
            idle: 0,
            ends: BinaryHeap::new(),
            waiting: WaitRoom::default(),
            sweep_from: FEWEST_SWEPT,
        };
        lane.place_fields();
        Ok(lane)
    }

    /// Assigns slots to the fields of each policy and of the lists.
    fn place_fields(&mut self) {
        let wanted = self.admissions.engine.lists.wanted();
        let listed = wanted.as_deref().map_or(&[][..], |wanted| wanted);
        let slots = &self.slots;
        let place = |field: &str| match field {
            "route" => Some(Slotted::Route),
            field => slots.iter().position(|slot| **slot == *field).map(Slotted::Slot),
        };
        self.fields = self
            .policies
            .iter()
            .map(|policy| {
                let derived = |field: &str| policy.derived().any(|(name, _)| name == field);
                let own = policy.fields().filter(|field| !derived(field));
                let beside = listed.iter().map(|field| &**field);
                let beside = beside.filter(|field| !policy.fields().any(|known| known == *field));
                own.chain(beside).filter_map(|field| Some((field.into(), place(field)?))).collect()
            })
            .collect();
    }

    /// Decides an attempt, after everything that is due before it.
    #[inline]
    pub fn attempt(&mut self, moment: &Moment<'_>, hear: Hear<'_>) {
        self.advance(moment.entry.at, hear);
        let choosing = Arc::clone(&self.choosing);
        match choosing.choose(moment.values) {
            Choice::Policy(policy, route) => self.arrive(Arrival { policy, route }, moment, hear),
            Choice::Unlimited => hear(Report::Fate(moment, &self.pass_unlimited(moment))),
            Choice::Unrouted => hear(Report::Fate(moment, &Fate::Unrouted)),
        }
    }

    #[inline]
    fn arrive(&mut self, arrival: Arrival<'_>, moment: &Moment<'_>, hear: Hear<'_>) {
        let Arrival { policy, route } = arrival;
        let Some(found) = self.policies.named(policy) else {
            let fate = Fate::Invalid(format!("there is no policy `{policy}`").into());
            return hear(Report::Fate(moment, &fate));
        };
        let fields = self.fields_of(found.number(), route, moment);
        let attempt = Attempt { policy, fields: &fields, cost: 1, id: None };
        let wait = if found.lets_wait() { Wait::AsRulesSay } else { Wait::No };
        let holds = if found.holds() { Holds::ByTaken } else { Holds::ByCaller };
        let terms = Terms { holds, wait, ..Terms::default() };
        let admit = self.admissions.pin().admit(&attempt, terms, see);
        drop(fields);
        match admit {
            Admit::Ready(Some(admitted)) => self.conclude(admitted, arrival, moment, hear),
            later => self.wait(later, arrival, moment, hear),
        }
    }

    /// Reports the result of a decided attempt.
    #[inline]
    fn conclude(
        &mut self,
        admitted: Admitted<Seen>,
        arrival: Arrival<'_>,
        moment: &Moment<'_>,
        hear: Hear<'_>,
    ) {
        let fate = match admitted {
            Ok(Admission { waited, seen, taken }) => {
                if let Some(observed) = &seen.observed {
                    observed.iter().for_each(|named| hear(Report::Observed(moment, named)));
                }
                self.settle(seen, taken, moment, waited)
            }
            Err(reason) => match self.given_up(&reason, arrival, moment) {
                Some(named) => Fate::Denied(Box::new(named)),
                None => Fate::Invalid(reason.to_string().into()),
            },
        };
        hear(Report::Fate(moment, &fate));
    }

    /// The result for a request whose route has no policy. The blocklist still applies.
    fn pass_unlimited(&self, moment: &Moment<'_>) -> Fate {
        let Some(wanted) = self.admissions.engine.lists.wanted() else { return Fate::Unlimited };
        let place = |field: &Arc<str>| self.slots.iter().position(|slot| slot == field);
        let value = |field| moment.values[place(field)?];
        let fields: Fields<'_> = wanted.iter().filter_map(|field| Some((&**field, value(field)?))).collect();
        match self.admissions.pin().blocks(&fields) {
            Some(blocked) => {
                let key = blocked.note("").target.to_string().into();
                Fate::Denied(Box::new(Named { rule: BLOCKLIST.into(), key }))
            }
            None => Fate::Unlimited,
        }
    }

    /// The fields that a policy needs of an attempt.
    #[inline]
    fn fields_of<'f>(&'f self, policy: usize, route: Option<&'f str>, moment: &Moment<'f>) -> Fields<'f> {
        let mut fields = Fields::new();
        for (field, slot) in &self.fields[policy] {
            let value = match slot {
                Slotted::Slot(slot) => moment.values[*slot],
                Slotted::Route => route.or_else(|| self.logged_route(moment)),
            };
            fields.extend(value.map(|value| (&**field, value)));
        }
        fields
    }

    /// The route that the line of the log contains, if any.
    fn logged_route<'m>(&self, moment: &Moment<'m>) -> Option<&'m str> {
        let place = self.slots.iter().position(|slot| &**slot == "route")?;
        moment.values[place]
    }

    /// The result of a decided attempt. Its holds and charges are kept until the request ends.
    #[inline]
    fn settle(&mut self, seen: Seen, taken: Taken, moment: &Moment<'_>, waited: Span) -> Fate {
        match (seen.verdict, seen.named) {
            (Verdict::Allow, _) => {
                self.hold(taken, moment, waited);
                Fate::Allowed(waited)
            }
            (Verdict::Defer(_), Some(named)) => {
                self.idle = 0;
                Fate::Deferred(named)
            }
            (_, named) => {
                self.idle = 0;
                let unnamed = || Box::new(Named { rule: BLOCKLIST.into(), key: "".into() });
                Fate::Denied(named.unwrap_or_else(unnamed))
            }
        }
    }

    /// Keeps the holds and charges of a request until it ends.
    #[inline]
    fn hold(&mut self, mut taken: Taken, moment: &Moment<'_>, waited: Span) {
        if taken.is_settled() {
            return;
        }
        let Entry { at, duration, status, .. } = *moment.entry;
        if duration == Span::ZERO || self.ends.len() >= MOST_ENDS {
            drop(taken.settle(Statuses::class_of(status)));
            return;
        }
        let at = at + waited + duration;
        self.ends.push(Reverse(End { at, number: moment.number, status, taken }));
    }

    /// Does everything that is due by `to`, and moves the clock there.
    #[inline]
    fn advance(&mut self, to: Timestamp, hear: Hear<'_>) {
        if self.tend_at.is_none_or(|at| at <= to) || !self.ends.is_empty() || !self.waiting.is_empty() {
            self.catch_up(to, hear);
        }
        self.clock.set(to);
    }

    #[cold]
    fn catch_up(&mut self, to: Timestamp, hear: Hear<'_>) {
        let mut tend_at = *self.tend_at.get_or_insert(to);
        loop {
            let end = self.ends.peek().map(|Reverse(end)| end.at);
            let turn = self.next_turn(self.clock.now());
            let due = [Some(tend_at), end, turn].into_iter().flatten().min().unwrap_or(tend_at);
            if due > to {
                break;
            }
            self.clock.set(due);
            if end == Some(due) {
                self.end_one();
            } else if turn == Some(due) {
                self.give_turns(hear);
            } else {
                block_on(self.admissions.engine.tend());
                if !self.ends.is_empty() {
                    block_on(self.admissions.leases.tend());
                }
                self.place_listed_fields();
                self.sweep_idle();
                self.idle = self.idle.saturating_add(1);
                tend_at = tend_at + self.until_next(tend_at, to);
            }
        }
        self.tend_at = Some(tend_at);
    }

    /// The time until the next periodic work. If nothing happens, none is needed until just before the next
    /// attempt.
    fn until_next(&self, now: Timestamp, to: Timestamp) -> Span {
        let gap = to.since(now).as_micros() / EVERY.as_micros();
        let quiet = self.idle > ROUNDS && self.ends.is_empty() && self.waiting.is_empty();
        Span::from_micros(EVERY.as_micros() * if quiet { gap.max(1) } else { 1 })
    }

    /// Removes idle keys before the store is full: a small table is faster, and need not evict keys that count.
    /// The next search is due when the number of keys has doubled, so that it is worth its cost.
    fn sweep_idle(&mut self) {
        if self.store.len() >= self.sweep_from {
            self.store.sweep();
            self.sweep_from = FEWEST_SWEPT.max(2 * self.store.len());
        }
    }

    /// Adds the fields of the lists, because a ban may need a field that no rule of the policy uses.
    fn place_listed_fields(&mut self) {
        if self.idle == 0 && self.policies.rules().iter().any(|rule| rule.ban.is_some()) {
            self.place_fields();
        }
    }

    fn end_one(&mut self) {
        if let Some(Reverse(mut end)) = self.ends.pop() {
            drop(end.taken.settle(Statuses::class_of(end.status)));
        }
    }

    /// Decides the attempts that still wait.
    pub fn finish(&mut self, hear: Hear<'_>) {
        while let Some(due) = self.next_turn(self.clock.now()) {
            self.catch_up(due, hear);
        }
    }

    /// The last time at which the store evicted a key that counted something, to make room for another.
    pub fn last_eviction(&self) -> Option<Timestamp> {
        self.store.last_eviction()
    }
}

impl PartialEq for End {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for End {}

impl PartialOrd for End {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for End {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}
