//! The calls of the store. Takes and looks are in `memory.rs`, with the way in which every call gets its states.

use tollgate_core::store::{Answer, Counter, Forget, HoldsOrder, HoldsReport, Refunded, Store, StoreError};
use tollgate_core::{Charges, Outcome, Ticket, Timestamp};

use super::{Aim, Mark, MemoryStore, Scene, Trace, shard_of};

impl MemoryStore {
    pub(crate) fn refund_now(
        &self,
        charges: &Charges<'_>,
        taken_at: Timestamp,
    ) -> Result<Refunded, StoreError> {
        let aged_out = charges.ages_out().is_some_and(|span| taken_at + span <= self.clock.now());
        if charges.is_empty() || aged_out {
            return Ok(Refunded::TooOld);
        }
        let mut left = Charges::new(charges.ticket, charges.cost, None);
        left.calendar = charges.calendar.clone();
        let mut refunded = Refunded::Already;
        {
            let mut spent = self.spent.lock();
            for charge in charges.iter() {
                match spent.spend(Mark::new(taken_at, charges.ticket, charge.plan)) {
                    Refunded::Already => continue,
                    Refunded::Done if spent.remembers(charge.plan.rule(), taken_at) => {
                        left.push_taken(charge.plan, charges.key(charge), charge.cost, charge.fate);
                    }
                    Refunded::Done | Refunded::TooOld => {}
                }
                refunded = Refunded::TooOld;
            }
        }
        if left.is_empty() {
            return Ok(refunded);
        }
        self.with_states(&left, Aim::Refund(taken_at), |states, Scene { now, lost }| {
            if lost.count_ones() as usize == left.len() {
                return Ok((Refunded::TooOld, 0));
            }
            left.refund(states, taken_at, now);
            let altered = left.iter().enumerate().filter(|(_, charge)| charge.frees());
            Ok((Refunded::Done, altered.fold(0, |bits, (index, _)| bits | 1 << index)))
        })
    }

    pub(crate) fn retract_now(&self, charges: &Charges<'_>) -> Result<(), StoreError> {
        self.with_states(charges, Aim::Look, |states, Scene { now, .. }| {
            charges.retract(states, now);
            Ok(((), (1 << charges.len()) - 1))
        })
    }

    pub(crate) fn holds_now(
        &self,
        counter: &Counter<'_>,
        order: HoldsOrder<'_>,
    ) -> Result<(HoldsReport, Trace), StoreError> {
        let mut charges = Charges::new(Ticket(0), 1, None);
        charges.push(counter.plan, counter.key, true);
        let aim = match order {
            HoldsOrder::Replace(ids, _) if !ids.is_empty() => Aim::Take,
            HoldsOrder::Claim(ids, _) if !ids.is_empty() => Aim::Take,
            _ => Aim::Look,
        };
        self.with_states(&charges, aim, |states, Scene { now, .. }| {
            let (report, changed) = order.settle(counter.plan, states, now);
            let trace = if changed { Trace::Left } else { Trace::None };
            Ok(((report, trace), u32::from(changed)))
        })
    }

    pub(crate) fn forget_now(&self, what: Forget<'_>) {
        match what {
            Forget::Key(counter) => {
                let key = self.hash(counter.plan, counter.key.as_bytes());
                self.shards[shard_of(key)].lock().forget(key);
                self.forgot(Some(counter.plan.rule()));
            }
            Forget::Rule(rule) => {
                self.shards.iter().for_each(|shard| shard.lock().forget_all(Some(rule)));
                self.forgot(Some(rule));
            }
            Forget::All => {
                self.shards.iter().for_each(|shard| shard.lock().forget_all(None));
                self.forgot(None);
            }
        }
    }

    /// Records that counters were forgotten, once they are. Earlier charges can then no longer be refunded;
    /// otherwise a refund would reduce later counts.
    fn forgot(&self, rule: Option<&str>) {
        self.spent.lock().forget(rule, self.clock.now());
    }
}

impl Store for MemoryStore {
    fn now(&self) -> Answer<'_, Timestamp> {
        Answer::ready(Ok(self.clock.now()))
    }

    fn answers_at_once(&self) -> bool {
        true
    }

    fn take<'a>(&'a self, charges: &'a Charges<'_>, outcome: &'a mut Outcome) -> Answer<'a, ()> {
        Answer::ready(self.take_now(charges, outcome))
    }

    fn peek<'a>(&'a self, charges: &'a Charges<'_>, outcome: &'a mut Outcome) -> Answer<'a, ()> {
        Answer::ready(self.peek_now(charges, outcome))
    }

    fn refund<'a>(&'a self, charges: &'a Charges<'_>, taken_at: Timestamp) -> Answer<'a, Refunded> {
        Answer::ready(self.refund_now(charges, taken_at))
    }

    fn holds<'a>(&'a self, counter: &'a Counter<'a>, order: HoldsOrder<'a>) -> Answer<'a, HoldsReport> {
        Answer::ready(self.holds_now(counter, order).map(|(report, _)| report))
    }

    fn forget<'a>(&'a self, what: Forget<'a>) -> Answer<'a, ()> {
        self.forget_now(what);
        Answer::ready(Ok(()))
    }

    fn retract<'a>(&'a self, charges: &'a Charges<'_>) -> Answer<'a, ()> {
        Answer::ready(self.retract_now(charges))
    }
}
