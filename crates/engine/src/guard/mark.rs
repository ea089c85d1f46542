//! What a ticket says beside what it took: which ladders its attempt climbs to a step that locks or
//! notifies. It is decided once, by the store, when the attempt begins; and so whoever ends the attempt
//! knows that nobody else tells of the same step.

use smallvec::SmallVec;
use tollgate_core::limit::Pause;
use tollgate_core::{Decision, Span};

/// One ladder at a step that locks or notifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Which of the charges that were taken it belongs to.
    pub(super) charge: usize,
    /// How many failures there are then.
    pub(super) failures: u64,
    /// For how long it locks; nothing if it does not.
    pub(super) lock: Span,
    /// How long failures are remembered.
    pub(super) forget: Span,
    /// Whether the step is reached by this attempt: if not, it was told of before.
    pub(super) arrives: bool,
    /// Whether somebody is to be notified.
    pub(super) notify: bool,
}

/// How long an attempt may last before it counts as failed though nobody said so.
const MOST: Span = Span::from_secs(5 * 60);

impl Mark {
    /// How long after it began the attempt counts as failed though nobody said so: while the store still
    /// knows its ticket.
    pub(super) fn due_after(&self) -> Span {
        MOST.min(Span::from_micros(self.forget.as_micros() / 2))
    }
}

/// The marks of an attempt that was let through.
pub(super) fn of(decision: &Decision<'_>) -> SmallVec<[Mark; 2]> {
    let mut marks = SmallVec::new();
    for (charge, line) in decision.lines().filter(|line| line.taken).enumerate() {
        for climb in line.climbs() {
            let Some(step) = climb.reached() else { continue };
            let lock = match step.pause {
                Pause::Lock(span) if !line.rule.observes() => span,
                _ => Span::ZERO,
            };
            let arrives = climb.arrives();
            let notify = step.notify && arrives;
            if notify || lock > Span::ZERO {
                let (failures, forget) = (climb.failures(), climb.forget());
                marks.push(Mark { charge, failures, lock, forget, arrives, notify });
            }
        }
    }
    marks
}

/// Marks as a ticket says them.
pub(super) fn written(marks: &[Mark]) -> String {
    let mark = |mark: &Mark| {
        let Mark { charge, failures, lock, forget, .. } = mark;
        let (arrives, notify) = (u8::from(mark.arrives), u8::from(mark.notify));
        format!("{charge} {failures} {} {} {arrives} {notify}", lock.as_micros(), forget.as_micros())
    };
    marks.iter().map(mark).collect::<Vec<_>>().join(",")
}

/// The marks that a ticket says.
pub(super) fn read(text: &str) -> SmallVec<[Mark; 2]> {
    text.split(',').filter_map(read_one).collect()
}

fn read_one(text: &str) -> Option<Mark> {
    let mut words = text.split(' ').map(str::parse::<u64>);
    let mut word = || words.next()?.ok();
    Some(Mark {
        charge: usize::try_from(word()?).ok()?,
        failures: word()?,
        lock: Span::from_micros(word()?),
        forget: Span::from_micros(word()?),
        arrives: word()? != 0,
        notify: word()? != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_as_they_were_written() {
        let lock = Mark {
            charge: 2,
            failures: 11,
            lock: Span::from_secs(900),
            forget: Span::from_secs(900),
            arrives: true,
            notify: true,
        };
        let again = Mark { charge: 0, arrives: false, notify: false, ..lock };
        assert_eq!(*read(&written(&[lock, again])), [lock, again]);
        assert!(read(&written(&[])).is_empty());
    }
}
