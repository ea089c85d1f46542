//! Remembers refunds, so that none is repeated, and which charges were forgotten and can no longer be
//! refunded. A ticket may be refunded in parts: each of its rules once.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_core::store::Refunded;
use tollgate_core::{Plan, Ticket, Timestamp};

use super::Saving;

/// A refund: when the charge was taken, its ticket, and the number of its rule, which an attempt charges
/// once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark {
    pub(crate) taken_at: Timestamp,
    pub(crate) ticket: Ticket,
    pub(crate) rule: u64,
}

/// The refunds, in the order in which their charges were taken. If there are too many, the oldest are
/// forgotten, and from then on nothing that old can be refunded.
#[derive(Debug)]
pub(crate) struct Spent {
    marks: BTreeSet<Mark>,
    /// Everything taken until then is too old for a refund.
    horizon: Timestamp,
    /// The same for single rules, some of whose counters were forgotten.
    rules: BTreeMap<Box<str>, Timestamp>,
    rules_unsaved: bool,
    /// Those not saved yet, if they are saved at all.
    unsaved: Option<BTreeSet<Mark>>,
}

impl Mark {
    /// The mark of a charge.
    pub(crate) fn new(taken_at: Timestamp, ticket: Ticket, plan: &Plan) -> Self {
        Self { taken_at, ticket, rule: plan.salt() }
    }
}

impl Spent {
    /// The most marks that are kept.
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

    /// Marks a charge as refunded, unless it already is.
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

    /// Records that counters of a rule, or of all, were forgotten. Earlier charges must not be refunded to
    /// counters that started since.
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

    /// The time until which nothing can be refunded.
    pub(crate) fn horizon(&self) -> Timestamp {
        self.horizon
    }

    /// Whether a rule's charge of this time may still exist.
    pub(crate) fn remembers(&self, rule: &str, taken_at: Timestamp) -> bool {
        self.rules.get(rule).is_none_or(|forgotten| taken_at > *forgotten)
    }

    /// The times until which rules were forgotten, if they must be saved.
    pub(crate) fn changed_rules(&mut self) -> Vec<(Box<str>, Timestamp)> {
        let unsaved = std::mem::take(&mut self.rules_unsaved);
        self.rules.iter().filter(|_| unsaved).map(|(rule, at)| (rule.clone(), *at)).collect()
    }

    /// Restores the time until which a rule was forgotten.
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

    /// Restores marks from a file.
    pub(crate) fn restore(&mut self, horizon: Timestamp, marks: impl IntoIterator<Item = Mark>) {
        self.horizon = horizon;
        self.marks.extend(marks);
        self.bound();
    }

    /// Removes the marks to save, and considers them saved. The second value is the time up to which marks
    /// need not be kept.
    pub(crate) fn changed(&mut self) -> (Vec<Mark>, Timestamp) {
        let unsaved = self.unsaved.as_mut().map(std::mem::take).unwrap_or_default();
        (unsaved.into_iter().collect(), self.horizon)
    }

    /// Returns marks that could not be saved.
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
    fn a_charge_beyond_the_horizon_is_never_refunded() {
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
        spent.not_saved([1, 2, 3].map(mark));
        assert_eq!(spent.changed(), (vec![mark(2), mark(3)], at(1)), "the first is beyond it");
    }

    #[test]
    fn charges_from_before_a_reset_of_their_rule_are_not_remembered() {
        let mut spent = Spent::new(Saving::On);
        assert!(spent.remembers("rule", at(0)) && spent.changed_rules().is_empty());
        spent.forget(Some("rule"), at(5));
        spent.forget(Some("rule"), at(3));
        assert_eq!([5, 6].map(|taken| spent.remembers("rule", at(taken))), [false, true]);
        assert!(spent.remembers("other", at(5)) && spent.horizon() == at(0));
        assert_eq!(spent.changed_rules(), [("rule".into(), at(5))]);
        assert!(spent.changed_rules().is_empty(), "they are considered saved");
        spent.not_saved([]);
        assert_eq!(spent.changed_rules().len(), 1);
        spent.restore_rule("other", at(9));
        assert!(!spent.remembers("other", at(9)) && spent.changed_rules().is_empty());
        spent.forget(None, at(7));
        spent.forget(None, at(2));
        assert_eq!(spent.horizon(), at(7));
        assert_eq!([7, 8].map(|count| spent.spend(mark(count))), [Refunded::TooOld, Refunded::Done]);
    }

    #[test]
    fn marks_from_a_file_are_spent_and_need_no_saving() {
        let mut spent = Spent::new(Saving::On);
        spent.restore(at(2), [3, 4].map(mark));
        let spends = [2, 3, 4, 5].map(|count| spent.spend(mark(count)));
        assert_eq!(spends, [Refunded::TooOld, Refunded::Already, Refunded::Already, Refunded::Done]);
        assert_eq!(spent.changed(), (vec![mark(5)], at(2)));
        assert_eq!(spent.changed(), (vec![], at(2)));
        let mut unsaved = Spent::new(Saving::Off);
        assert_eq!(unsaved.spend(mark(1)), Refunded::Done);
        assert_eq!(unsaved.changed(), (vec![], at(0)), "nothing is saved");
    }
}
