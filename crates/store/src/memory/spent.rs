//! Which tickets have been given back, so that none is twice, and which can no longer be, because
//! what they took was forgotten.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_core::store::Given;
use tollgate_core::{Ticket, Timestamp};

use super::Saving;

/// The tickets given back, by the time they were taken. When there are too many, the oldest are
/// forgotten, and from then on nothing that old can be given back.
#[derive(Debug)]
pub(crate) struct Spent {
    tickets: BTreeSet<(Timestamp, Ticket)>,
    /// Everything up to here is too old to tell.
    horizon: Timestamp,
    /// The same for single rules, some of whose counters were forgotten.
    rules: BTreeMap<Box<str>, Timestamp>,
    rules_unsaved: bool,
    /// Those not saved yet, if somebody saves them.
    unsaved: Option<BTreeSet<(Timestamp, Ticket)>>,
}

impl Spent {
    /// How many tickets are remembered.
    pub(crate) const MOST: usize = 1_000_000;

    pub(crate) fn new(saving: Saving) -> Self {
        let unsaved = (saving == Saving::On).then(BTreeSet::new);
        Self {
            tickets: BTreeSet::new(),
            horizon: Timestamp::ZERO,
            rules: BTreeMap::new(),
            rules_unsaved: false,
            unsaved,
        }
    }

    /// Marks a ticket as given back, if it was not before.
    pub(crate) fn spend(&mut self, taken_at: Timestamp, ticket: Ticket) -> Given {
        if taken_at <= self.horizon {
            return Given::TooOld;
        }
        if !self.tickets.insert((taken_at, ticket)) {
            return Given::Already;
        }
        if let Some(unsaved) = &mut self.unsaved {
            unsaved.insert((taken_at, ticket));
        }
        self.bound();
        Given::Back
    }

    /// Counters of a rule, or of all, were forgotten: what was taken before must not be given back to
    /// those that were begun since.
    pub(crate) fn forget(&mut self, rule: Option<&str>, now: Timestamp) {
        match rule {
            Some(rule) => {
                let forgotten = self.rules.entry(rule.into()).or_default();
                *forgotten = now.max(*forgotten);
                self.rules_unsaved = true;
            }
            None => self.horizon = self.horizon.max(now),
        }
    }

    /// The moment up to which nothing can be given back.
    pub(crate) fn horizon(&self) -> Timestamp {
        self.horizon
    }

    /// Whether what a rule took at a moment may still be there.
    pub(crate) fn remembers(&self, rule: &str, taken_at: Timestamp) -> bool {
        self.rules.get(rule).is_none_or(|forgotten| taken_at > *forgotten)
    }

    /// The moment up to which each rule was forgotten, if that is to be saved.
    pub(crate) fn changed_rules(&mut self) -> Vec<(Box<str>, Timestamp)> {
        let unsaved = std::mem::take(&mut self.rules_unsaved);
        self.rules.iter().filter(|_| unsaved).map(|(rule, at)| (rule.clone(), *at)).collect()
    }

    /// Puts in up to when a rule was forgotten.
    pub(crate) fn restore_rule(&mut self, rule: &str, forgotten: Timestamp) {
        self.rules.insert(rule.into(), forgotten);
    }

    fn bound(&mut self) {
        while self.tickets.len() > Self::MOST {
            if let Some(oldest) = self.tickets.pop_first() {
                self.horizon = oldest.0;
                if let Some(unsaved) = &mut self.unsaved {
                    unsaved.remove(&oldest);
                }
            }
        }
    }

    /// Puts in what was saved.
    pub(crate) fn restore(
        &mut self,
        horizon: Timestamp,
        tickets: impl IntoIterator<Item = (Timestamp, Ticket)>,
    ) {
        self.horizon = horizon;
        self.tickets.extend(tickets);
        self.bound();
    }

    /// Takes out the tickets to be saved, and holds them for saved. Nothing up to the moment told
    /// needs to be kept any longer.
    pub(crate) fn changed(&mut self) -> (Vec<(Timestamp, Ticket)>, Timestamp) {
        let unsaved = self.unsaved.as_mut().map(std::mem::take).unwrap_or_default();
        (unsaved.into_iter().collect(), self.horizon)
    }

    /// Notes again that tickets are to be saved: they could not be.
    pub(crate) fn not_saved(&mut self, tickets: impl IntoIterator<Item = (Timestamp, Ticket)>) {
        self.rules_unsaved = true;
        let horizon = self.horizon;
        if let Some(unsaved) = &mut self.unsaved {
            unsaved.extend(tickets.into_iter().filter(|(at, _)| *at > horizon));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    #[test]
    fn a_ticket_beyond_the_horizon_is_never_given_back() {
        let mut spent = Spent::new(Saving::On);
        for count in 1..=Spent::MOST as u64 + 1 {
            assert_eq!(spent.spend(at(count), Ticket(count)), Given::Back);
        }
        assert_eq!(spent.spend(at(1), Ticket(1)), Given::TooOld, "it may have been given back");
        assert_eq!(spent.spend(at(2), Ticket(2)), Given::Already);
        let (unsaved, horizon) = spent.changed();
        assert_eq!((unsaved.len(), horizon), (Spent::MOST, at(1)), "what is beyond it needs no saving");
    }
}
