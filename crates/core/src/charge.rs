//! The charges of an attempt, and how they settle: all are taken, or none.
//!
//! [`Charges::settle`] is the one specification. A store with its states in this process calls it. A store
//! that settles elsewhere is tested against it.

use alloc::sync::Arc;
use core::ops::Range;

use arrayvec::ArrayVec;
use smallvec::SmallVec;

use crate::Ticket;
use crate::limit::{Draft, Limit, Page, Period, Refund, State, amount_in};
use crate::plan::Plan;
use crate::reading::{Reading, When};
use crate::time::{Span, Timestamp};

/// The text of keys that had to be written; inline unless it is unusually long.
pub(crate) type KeyText = SmallVec<[u8; 128]>;

/// All the charges of one attempt.
#[derive(Clone, Debug)]
pub struct Charges<'a> {
    /// The ticket of the attempt.
    pub ticket: Ticket,
    /// The cost at a rule that does not count a field; 0 takes nothing and only reads.
    pub cost: u64,
    /// The id of holds.
    pub id: Option<&'a str>,
    /// The calendar around now, with one page for each of [`Charges::periods`].
    pub calendar: SmallVec<[Page; 1]>,
    pub(crate) amounts: SmallVec<[(&'a str, u64); 1]>,
    pub(crate) text: KeyText,
    list: ArrayVec<Charge<'a>, { Charges::MOST }>,
    takes: bool,
    by_calendar: bool,
}

/// One rule at one key, with all its limits.
#[derive(Clone, Debug)]
pub struct Charge<'a> {
    /// The limits at this key.
    pub plan: &'a Arc<Plan>,
    /// How much it takes; 0 takes nothing and only reads.
    pub cost: u64,
    /// Whether it is enforced, or only observed.
    pub enforced: bool,
    /// What happens to it when the attempt is refunded or finished.
    pub fate: Fate,
    key: Key<'a>,
}

/// What happens to a charge when its attempt is refunded or finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    /// It is refunded, as far as it still counts.
    #[default]
    Back,
    /// This much of it is refunded, as far as it still counts; the rest stays counted.
    Part(u64),
    /// It is refunded, and a ladder also forgets every earlier failure, because the attempt has succeeded.
    Clear,
    /// It stays counted: the attempt has failed, and is only marked as finished. Its holds end.
    Keep,
}

/// The text of a key. Most values are already in their normalized form and are not copied.
#[derive(Clone, Debug)]
pub(crate) enum Key<'a> {
    /// With the caller, in its normalized form already.
    Borrowed(&'a str),
    /// Among the text that was written for it.
    Written(Range<u32>),
}

/// The result of settling charges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The store's time when they settled.
    pub now: Timestamp,
    /// Whether every enforced charge conformed.
    pub allowed: bool,
    /// The id was already held, so nothing was taken.
    pub repeated: bool,
    /// Bit `i` is set if charge `i` was taken.
    pub taken: u32,
    /// One reading for each limit of each charge, in order.
    pub readings: SmallVec<[Reading; 10]>,
}

/// The calendar in the charges does not cover the store's time. Nothing was done. Repeat the call with the
/// calendar around `now`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale {
    /// The store's time.
    pub now: Timestamp,
}

impl<'a> Charges<'a> {
    /// The most charges one attempt may have.
    pub const MOST: usize = 16;

    /// No charges yet.
    #[inline]
    pub fn new(ticket: Ticket, cost: u64, id: Option<&'a str>) -> Self {
        Self {
            ticket,
            cost,
            id,
            calendar: SmallVec::new(),
            amounts: SmallVec::new(),
            list: ArrayVec::new(),
            text: KeyText::new(),
            takes: false,
            by_calendar: false,
        }
    }

    /// Removes all charges.
    pub fn clear(&mut self) {
        self.calendar.clear();
        self.amounts.clear();
        self.list.clear();
        self.text.clear();
        (self.takes, self.by_calendar) = (false, false);
    }

    /// Adds a charge at a key of the plan's rule, with the attempt's cost.
    #[inline]
    pub fn push(&mut self, plan: &'a Arc<Plan>, key: &'a str, enforced: bool) {
        self.push_costing(plan, key, enforced, self.cost);
    }

    /// Adds a charge at a key of the plan's rule, with its own cost.
    #[inline]
    pub fn push_costing(&mut self, plan: &'a Arc<Plan>, key: &'a str, enforced: bool, cost: u64) {
        self.add(Charge { plan, cost, enforced, fate: Fate::Back, key: Key::Borrowed(key) });
    }

    /// Adds a charge that was taken at this cost and is to be refunded or finished.
    pub fn push_taken(&mut self, plan: &'a Arc<Plan>, key: &'a str, cost: u64, fate: Fate) {
        self.add(Charge { plan, cost, enforced: true, fate, key: Key::Borrowed(key) });
    }

    /// Adds a charge at a key that a policy's rule has written.
    #[inline]
    pub(crate) fn push_at(&mut self, plan: &'a Arc<Plan>, key: Key<'a>, enforced: bool, cost: u64) {
        self.add(Charge { plan, cost, enforced, fate: Fate::Back, key });
    }

    /// The key in [`Charges::text`] from `start` on.
    pub(crate) fn written_from(&self, start: usize) -> Key<'a> {
        let short = |length: usize| u32::try_from(length).expect("the keys of an attempt are short");
        Key::Written(short(start)..short(self.text.len()))
    }

    #[inline(always)]
    fn add(&mut self, charge: Charge<'a>) {
        self.takes |= charge.cost > 0;
        self.by_calendar |= charge.plan.has_calendar();
        self.list.push(charge);
    }

    /// The charges, in the order of the policy's rules.
    pub fn iter(&self) -> core::slice::Iter<'_, Charge<'a>> {
        self.list.iter()
    }

    /// The number of charges.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether any charge takes something.
    #[inline]
    pub fn takes(&self) -> bool {
        self.takes
    }

    /// Whether there is nothing to settle.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// A charge's key. Together with the rule's name it identifies the counters.
    #[inline]
    pub fn key<'c>(&'c self, charge: &'c Charge<'_>) -> &'c str {
        self.key_text(&charge.key)
    }

    #[inline]
    pub(crate) fn key_text<'c>(&'c self, key: &'c Key<'_>) -> &'c str {
        match key {
            Key::Borrowed(key) => key,
            Key::Written(range) => {
                let bytes = &self.text[range.start as usize..range.end as usize];
                core::str::from_utf8(bytes).expect("keys are written as text")
            }
        }
    }

    /// The bytes of a charge's key.
    #[inline]
    pub fn key_bytes<'c>(&'c self, charge: &'c Charge<'_>) -> &'c [u8] {
        match &charge.key {
            Key::Borrowed(key) => key.as_bytes(),
            Key::Written(range) => &self.text[range.start as usize..range.end as usize],
        }
    }

    /// Whether any limit is a calendar limit.
    #[inline]
    pub fn by_calendar(&self) -> bool {
        self.by_calendar
    }

    /// Adds a number that limits may bound, with its field.
    pub fn push_amount(&mut self, field: &'a str, amount: u64) {
        self.amounts.push((field, amount));
    }

    /// The numbers that limits may bound, with their fields.
    pub fn amounts(&self) -> &[(&'a str, u64)] {
        &self.amounts
    }

    /// The calendar periods that are needed to settle.
    pub fn periods(&self) -> impl Iterator<Item = &Period> {
        self.list.iter().flat_map(|charge| charge.plan.limits()).filter_map(|limit| limit.calendar())
    }

    /// The number in a field of the attempt, if it has one.
    pub fn amount(&self, field: &str) -> Option<u64> {
        amount_in(&self.amounts, field)
    }

    /// Takes all charges if every enforced one conforms, or none. `states` has one entry for each limit of
    /// each charge, in order. An observed charge does not affect the verdict: it is taken if the attempt is
    /// allowed and the charge itself conforms.
    pub fn settle(&self, states: &mut [State], now: Timestamp) -> Result<Outcome, Stale> {
        let mut outcome = Outcome::default();
        self.settle_into(states, now, &mut outcome)?;
        Ok(outcome)
    }

    /// What [`Charges::settle`] would return, without taking anything.
    pub fn survey(&self, states: &mut [State], now: Timestamp) -> Result<Outcome, Stale> {
        let mut outcome = Outcome::default();
        self.survey_into(states, now, &mut outcome)?;
        Ok(outcome)
    }

    /// As [`Charges::settle`], but writes to an existing outcome, which is too large to move from call to
    /// call.
    #[inline]
    pub fn settle_into(
        &self,
        states: &mut [State],
        now: Timestamp,
        outcome: &mut Outcome,
    ) -> Result<(), Stale> {
        self.check_calendar(now)?;
        let mut draft = self.draft_unchecked(now);
        self.weigh(states, &mut draft, outcome);
        let takes = outcome.allowed && !outcome.repeated;
        self.finish(states, &mut draft, outcome, takes);
        Ok(())
    }

    /// As [`Charges::survey`], but writes to an existing outcome.
    pub fn survey_into(
        &self,
        states: &mut [State],
        now: Timestamp,
        outcome: &mut Outcome,
    ) -> Result<(), Stale> {
        let mut draft = self.draft(now)?;
        self.weigh(states, &mut draft, outcome);
        self.finish(states, &mut draft, outcome, false);
        Ok(())
    }

    /// Refunds or finishes charges that were taken at `taken_at`, by the fate of each, as far as they still
    /// count. The calendar is that of the take.
    pub fn refund(&self, states: &mut [State], taken_at: Timestamp, now: Timestamp) {
        let mut draft = self.draft_unchecked(now);
        let mut states = states.iter_mut();
        for charge in &self.list {
            draft.cost = charge.cost;
            let all = Refund { taken_at, amount: charge.cost };
            for (limit, state) in charge.plan.limits().iter().zip(&mut states) {
                match charge.fate {
                    Fate::Back => limit.refund(state, &draft, all),
                    Fate::Part(part) => {
                        limit.refund(state, &draft, Refund { amount: part.min(charge.cost), ..all });
                    }
                    Fate::Clear => limit.clear(state, &draft, all),
                    Fate::Keep if limit.holds() => limit.refund(state, &draft, all),
                    Fate::Keep => {}
                }
            }
        }
    }

    /// Undoes a take whose answer never came, where the state keeps its ticket. Plain counts stay: they
    /// cannot tell whether it was made.
    pub fn retract(&self, states: &mut [State], now: Timestamp) {
        let mut draft = self.draft_unchecked(now);
        let mut states = states.iter_mut();
        for charge in &self.list {
            draft.cost = charge.cost;
            for (limit, state) in charge.plan.limits().iter().zip(&mut states) {
                if limit.keeps_tickets() {
                    limit.refund(state, &draft, Refund { taken_at: now, amount: charge.cost });
                }
            }
        }
    }

    /// How long after the take none of these charges counts any more. With a ladder they are then too old for
    /// a refund: an attempt that was reported must not end twice.
    pub fn ages_out(&self) -> Option<Span> {
        let spans = self.list.iter().map(|charge| charge.plan.matters_for());
        spans.max().filter(|_| self.list.iter().any(|charge| charge.plan.has_ladder()))
    }

    /// The draft of the charges at a time that their calendar covers.
    pub fn draft(&self, now: Timestamp) -> Result<Draft<'_>, Stale> {
        self.check_calendar(now)?;
        Ok(self.draft_unchecked(now))
    }

    /// Whether the calendar covers this time.
    #[inline]
    fn check_calendar(&self, now: Timestamp) -> Result<(), Stale> {
        let covered = |period: &Period| {
            self.calendar.iter().any(|page| page.period == *period && page.end_at(now).is_some())
        };
        if self.by_calendar && !self.periods().all(covered) { Err(Stale { now }) } else { Ok(()) }
    }

    #[inline]
    fn draft_unchecked(&self, now: Timestamp) -> Draft<'_> {
        Draft {
            cost: self.cost,
            id: self.id,
            ticket: self.ticket,
            now,
            amounts: &self.amounts,
            calendar: &self.calendar,
        }
    }

    /// Brings the states to the present, and computes when each limit admits the attempt.
    #[inline]
    fn weigh(&self, states: &mut [State], draft: &mut Draft<'_>, outcome: &mut Outcome) {
        outcome.readings.clear();
        let mut allowed = true;
        let mut holds = 0;
        let mut held = 0;
        let mut states = states.iter_mut();
        for charge in &self.list {
            draft.cost = charge.cost;
            for limit in charge.plan.limits() {
                let state = states.next().expect("there is a state for each limit");
                let when = limit.weigh(state, draft);
                allowed &= when == When::Now || !charge.enforced;
                if charge.enforced && limit.holds() {
                    holds += 1;
                    held += u32::from(state.holds().is_some_and(|holds| holds.has(draft.id)));
                }
                outcome.readings.push(Reading::at(when));
            }
        }
        outcome.now = draft.now;
        outcome.repeated = holds > 0 && held == holds;
        outcome.allowed = allowed || outcome.repeated;
        outcome.taken = 0;
    }

    /// Takes every charge that costs something and conforms, if the attempt `takes` anything, and reads every
    /// limit. The caller has checked that all enforced charges conform.
    #[inline]
    fn finish(&self, states: &mut [State], draft: &mut Draft<'_>, outcome: &mut Outcome, takes: bool) {
        let mut states = states.iter_mut();
        let mut readings = &mut *outcome.readings;
        for (index, charge) in self.list.iter().enumerate() {
            draft.cost = charge.cost;
            let (own, others) = readings.split_at_mut(charge.plan.limits().len());
            readings = others;
            let taken = takes && charge.cost > 0 && own.iter().all(|reading| reading.when == When::Now);
            outcome.taken |= u32::from(taken) << index;
            for ((limit, reading), state) in charge.plan.limits().iter().zip(own).zip(&mut states) {
                limit.conclude(state, draft, taken, reading);
            }
        }
    }
}

impl Charge<'_> {
    /// Whether finishing it frees capacity.
    pub fn frees(&self) -> bool {
        !matches!(self.fate, Fate::Keep | Fate::Part(0)) || self.plan.limits().iter().any(Limit::holds)
    }
}

impl Outcome {
    /// The readings of one charge, one for each limit; none if nothing was read.
    pub fn of<'o>(&'o self, charges: &Charges<'_>, index: usize) -> &'o [Reading] {
        let start: usize = charges.iter().take(index).map(|charge| charge.plan.limits().len()).sum();
        self.readings_from(start, charges.list[index].plan.limits().len())
    }

    /// This many readings from `start` on; none if no counter was read.
    #[inline]
    pub(crate) fn readings_from(&self, start: usize, count: usize) -> &[Reading] {
        self.readings.get(start..start + count).unwrap_or_default()
    }
}
