//! What has been given back, so that nothing is twice, and what can no longer be, because it was
//! forgotten. A ticket may be given back in parts: each of its rules once.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_core::store::Refunded;
use tollgate_core::{Plan, Ticket, Timestamp};

use super::Saving;

/// What was given back: when it was taken, by whom, and the number that stands for its rule, which an
/// attempt charges once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark {
    pub(crate) taken_at: Timestamp,
    pub(crate) ticket: Ticket,
    pub(crate) rule: u64,
}

/// What was given back, by the time it was taken. When there is too much, the oldest is forgotten, and
/// from then on nothing that old can be given back.
#[derive(Debug)]
pub(crate) struct Spent {
    marks: BTreeSet<Mark>,
    /// Everything up to here is too old to tell.
    horizon: Timestamp,
    /// The same for single rules, some of whose counters were forgotten.
    rules: BTreeMap<Box<str>, Timestamp>,
    rules_unsaved: bool,
    /// Those not saved yet, if somebody saves them.
    unsaved: Option<BTreeSet<Mark>>,
}

impl Mark {
    /// What a rule took.
    pub(crate) fn new(taken_at: Timestamp, ticket: Ticket, plan: &Plan) -> Self {
        Self { taken_at, ticket, rule: plan.salt() }
    }
}

impl Spent {
    /// How many are remembered.
    pub(crate) const MOST: usize = 1_000_000;

    pub(crate) fn new(saving: Saving) -> Self {
        let unsaved = (saving == Saving::On).then(BTreeSet::new);
        Self {
            marks: BTreeSet::new(),
            horizon: Timestamp::ZERO,
            rules: BTreeMap::new(),
            rules_unsaved: false,
            unsaved,
        }
    }

    /// Marks something as given back, if it was not before.
    pub(crate) fn spend(&mut self, mark: Mark) -> Refunded {
        if mark.taken_at <= self.horizon {
            return Refunded::TooOld;
        }
        if !self.marks.insert(mark) {
            return Refunded::Already;
        }
        if let Some(unsaved) = &mut self.unsaved {
            unsaved.insert(mark);
        }
        self.bound();
        Refunded::Done
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
        while self.marks.len() > Self::MOST {
            if let Some(oldest) = self.marks.pop_first() {
                self.horizon = oldest.taken_at;
                if let Some(unsaved) = &mut self.unsaved {
                    unsaved.remove(&oldest);
                }
            }
        }
    }

    /// Puts in what was saved.
    pub(crate) fn restore(&mut self, horizon: Timestamp, marks: impl IntoIterator<Item = Mark>) {
        self.horizon = horizon;
        self.marks.extend(marks);
        self.bound();
    }

    /// Takes out what is to be saved, and holds it for saved. Nothing up to the moment told needs to be
    /// kept any longer.
    pub(crate) fn changed(&mut self) -> (Vec<Mark>, Timestamp) {
        let unsaved = self.unsaved.as_mut().map(std::mem::take).unwrap_or_default();
        (unsaved.into_iter().collect(), self.horizon)
    }

    /// Notes again what is to be saved: it could not be.
    pub(crate) fn not_saved(&mut self, marks: impl IntoIterator<Item = Mark>) {
        self.rules_unsaved = true;
        let horizon = self.horizon;
        if let Some(unsaved) = &mut self.unsaved {
            unsaved.extend(marks.into_iter().filter(|mark| mark.taken_at > horizon));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    fn mark(count: u64) -> Mark {
        Mark { taken_at: at(count), ticket: Ticket(count), rule: 7 }
    }

    #[test]
    fn what_is_beyond_the_horizon_is_never_given_back() {
        let mut spent = Spent::new(Saving::On);
        for count in 1..=Spent::MOST as u64 + 1 {
            assert_eq!(spent.spend(mark(count)), Refunded::Done);
        }
        assert_eq!(spent.spend(mark(1)), Refunded::TooOld, "it may have been given back");
        assert_eq!(spent.spend(Mark { rule: 8, ..mark(1) }), Refunded::TooOld, "this too");
        assert_eq!(spent.spend(mark(2)), Refunded::Already);
        assert_eq!(spent.horizon(), at(1));
        let (unsaved, horizon) = spent.changed();
        assert_eq!((unsaved.len(), horizon), (Spent::MOST, at(1)), "what is beyond it needs no saving");
    }
}
