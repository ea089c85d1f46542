//! What one attempt asks of a store, and how it settles: all charges are taken, or none.
//!
//! [`Charges::settle`] is the one specification. A store that holds its states in this process calls it;
//! a store that settles elsewhere is checked against it.

use alloc::sync::Arc;
use core::ops::Range;

use smallvec::SmallVec;

use crate::Ticket;
use crate::limit::{Draft, Limit, Page, Period, Refund, State, amount_in};
use crate::plan::Plan;
use crate::reading::{Reading, When};
use crate::time::{Span, Timestamp};

/// Text of the keys that had to be written; inline for all but unusually long ones.
pub(crate) type KeyText = SmallVec<[u8; 128]>;

/// All the charges of one attempt.
#[derive(Clone, Debug)]
pub struct Charges<'a> {
    /// Who takes them.
    pub ticket: Ticket,
    /// What an attempt costs at a rule that does not count a field of its own; 0 only looks.
    pub cost: u64,
    /// Under which id holds are taken.
    pub id: Option<&'a str>,
    /// The calendar around now, one page for each of [`Charges::periods`].
    pub calendar: SmallVec<[Page; 1]>,
    pub(crate) amounts: SmallVec<[(&'a str, u64); 1]>,
    pub(crate) text: KeyText,
    list: SmallVec<[Charge<'a>; 6]>,
}

/// One rule at one key, with all its limits.
#[derive(Clone, Debug)]
pub struct Charge<'a> {
    /// The limits that hold there.
    pub plan: &'a Arc<Plan>,
    /// How much it takes; 0 only looks.
    pub cost: u64,
    /// Whether it is enforced, or only observed.
    pub enforced: bool,
    /// What becomes of it when the attempt is given back.
    pub fate: Fate,
    key: Key<'a>,
}

/// What becomes of a charge when its attempt is given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    /// What it took comes back, as far as it still counts.
    #[default]
    Back,
    /// As much of it as this comes back, as far as it still counts; the rest stays counted.
    Part(u64),
    /// The same, and a ladder forgets every failure before it as well: the attempt has succeeded.
    Clear,
    /// It stays counted: the attempt has failed, and is only marked as over. Since it is, what it held
    /// ends.
    Keep,
}

/// Where the text of a key is. Most values are in their comparable form already, and nothing is
/// copied.
#[derive(Clone, Debug)]
pub(crate) enum Key<'a> {
    /// With the caller, in its comparable form already.
    Borrowed(&'a str),
    /// Among the text that was written for it.
    Written(Range<u32>),
}

/// What came of the charges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The store's time when they settled.
    pub now: Timestamp,
    /// Whether every enforced charge conformed.
    pub allowed: bool,
    /// The id was held already, so nothing was taken.
    pub repeated: bool,
    /// Bit `i` is set if charge `i` was taken.
    pub taken: u32,
    /// One reading for each limit of each charge, in order.
    pub readings: SmallVec<[Reading; 10]>,
}

/// The calendar brought along does not cover the store's time: nothing was done. Ask again with
/// the calendar around `now`.
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
            list: SmallVec::new(),
            text: KeyText::new(),
        }
    }

    /// Starts over, with no charges.
    pub fn clear(&mut self) {
        self.calendar.clear();
        self.amounts.clear();
        self.list.clear();
        self.text.clear();
    }

    /// Adds a charge at a key of the plan's rule, at the attempt's own cost.
    #[inline]
    pub fn push(&mut self, plan: &'a Arc<Plan>, key: &'a str, enforced: bool) {
        self.push_costing(plan, key, enforced, self.cost);
    }

    /// Adds a charge at a key of the plan's rule, at a cost of its own.
    #[inline]
    pub fn push_costing(&mut self, plan: &'a Arc<Plan>, key: &'a str, enforced: bool, cost: u64) {
        self.add(Charge { plan, cost, enforced, fate: Fate::Back, key: Key::Borrowed(key) });
    }

    /// Adds a charge that was taken at this cost, and is to be given back in this way.
    pub fn push_taken(&mut self, plan: &'a Arc<Plan>, key: &'a str, cost: u64, fate: Fate) {
        self.add(Charge { plan, cost, enforced: true, fate, key: Key::Borrowed(key) });
    }

    /// Adds a charge at a key that a policy's rule has made.
    #[inline]
    pub(crate) fn push_at(&mut self, plan: &'a Arc<Plan>, key: Key<'a>, enforced: bool, cost: u64) {
        self.add(Charge { plan, cost, enforced, fate: Fate::Back, key });
    }

    /// The key that was written to [`Charges::text`] from `start` on.
    pub(crate) fn written_from(&self, start: usize) -> Key<'a> {
        let short = |length: usize| u32::try_from(length).expect("the keys of an attempt are short");
        Key::Written(short(start)..short(self.text.len()))
    }

    #[inline(always)]
    fn add(&mut self, charge: Charge<'a>) {
        assert!(self.list.len() < Self::MOST, "a policy has at most as many rules");
        self.list.push(charge);
    }

    /// The charges, in the order of the policy's rules.
    pub fn iter(&self) -> core::slice::Iter<'_, Charge<'a>> {
        self.list.iter()
    }

    /// How many charges there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether some charge takes something; if none does, the attempt only looks.
    #[inline]
    pub fn takes(&self) -> bool {
        self.list.iter().any(|charge| charge.cost > 0)
    }

    /// Whether there is nothing to settle.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// A charge's key. With the name of its plan's rule it is the identity of its counters.
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

    /// Whether some limit goes by the calendar.
    #[inline]
    pub fn by_calendar(&self) -> bool {
        self.list.iter().any(|charge| charge.plan.has_calendar())
    }

    /// Adds a number that limits may bound, by the field it came in.
    pub fn push_amount(&mut self, field: &'a str, amount: u64) {
        self.amounts.push((field, amount));
    }

    /// Numbers in the attempt that limits may bound, by the field they came in.
    pub fn amounts(&self) -> &[(&'a str, u64)] {
        &self.amounts
    }

    /// The calendar periods that must be known to settle.
    pub fn periods(&self) -> impl Iterator<Item = &Period> {
        self.list.iter().flat_map(|charge| charge.plan.limits()).filter_map(|limit| limit.calendar())
    }

    /// The number of the attempt in a field, if it brought one.
    pub fn amount(&self, field: &str) -> Option<u64> {
        amount_in(&self.amounts, field)
    }

    /// Takes all charges if every enforced one conforms, or none. `states` has one entry for each
    /// limit of each charge, in order. An observed charge follows the verdict and never makes it: it
    /// is taken if the attempt is allowed and it conforms itself.
    pub fn settle(&self, states: &mut [State], now: Timestamp) -> Result<Outcome, Stale> {
        let mut outcome = Outcome::default();
        self.settle_into(states, now, &mut outcome)?;
        Ok(outcome)
    }

    /// What [`Charges::settle`] would say, without taking anything.
    pub fn survey(&self, states: &mut [State], now: Timestamp) -> Result<Outcome, Stale> {
        let mut outcome = Outcome::default();
        self.survey_into(states, now, &mut outcome)?;
        Ok(outcome)
    }

    /// As [`Charges::settle`], into an outcome that is there already: an outcome is too large to be
    /// handed from call to call.
    #[inline]
    pub fn settle_into(
        &self,
        states: &mut [State],
        now: Timestamp,
        outcome: &mut Outcome,
    ) -> Result<(), Stale> {
        let mut draft = self.draft(now)?;
        self.weigh(states, &mut draft, outcome);
        let takes = outcome.allowed && !outcome.repeated;
        self.finish(states, &mut draft, outcome, takes);
        Ok(())
    }

    /// As [`Charges::survey`], into an outcome that is there already.
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

    /// Gives back what these charges took at `taken_at`, as the fate of each says, as far as it still
    /// counts. The calendar is that of the take.
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

    /// How long after they were taken nothing of these charges counts any more. Where there is a ladder they
    /// are too old then to be given back: an attempt that somebody was told of must not end twice.
    pub fn ages_out(&self) -> Option<Span> {
        let spans = self.list.iter().map(|charge| charge.plan.matters_for());
        spans.max().filter(|_| self.list.iter().any(|charge| charge.plan.has_ladder()))
    }

    /// What the charges ask of a limit at a moment that their calendar covers.
    #[inline]
    pub fn draft(&self, now: Timestamp) -> Result<Draft<'_>, Stale> {
        let covered = |period: &Period| {
            self.calendar.iter().any(|page| page.period == *period && page.end_at(now).is_some())
        };
        if self.by_calendar() && !self.periods().all(covered) {
            return Err(Stale { now });
        }
        Ok(self.draft_unchecked(now))
    }

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

    /// Brings the states to the present and finds out when each limit lets the attempt pass.
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
                outcome.readings.push(Reading { capacity: 0, remaining: 0, reset: None, when });
            }
        }
        outcome.now = draft.now;
        outcome.repeated = holds > 0 && held == holds;
        outcome.allowed = allowed || outcome.repeated;
        outcome.taken = 0;
    }

    /// Takes every charge that costs something and conforms, if the attempt `takes` anything, and reads
    /// every limit. All enforced charges conform then.
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
                if taken {
                    limit.take(state, draft);
                }
                *reading = limit.read(state, reading.when, draft);
            }
        }
    }
}

impl Charge<'_> {
    /// Whether something is free again once it was given back.
    pub fn frees(&self) -> bool {
        !matches!(self.fate, Fate::Keep | Fate::Part(0)) || self.plan.limits().iter().any(Limit::holds)
    }
}

impl Outcome {
    /// What one charge came to: its readings, one for each limit, or none if nothing was read.
    pub fn of<'o>(&'o self, charges: &Charges<'_>, index: usize) -> &'o [Reading] {
        let start: usize = charges.iter().take(index).map(|charge| charge.plan.limits().len()).sum();
        self.readings_from(start, charges.list[index].plan.limits().len())
    }

    /// So many readings from here on; none if no counter was asked.
    #[inline]
    pub(crate) fn readings_from(&self, start: usize, count: usize) -> &[Reading] {
        self.readings.get(start..start + count).unwrap_or_default()
    }
}
