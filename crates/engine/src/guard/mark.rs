//! The marks of a ticket: the ladders that are at or above a step that locks or notifies. If the attempt fails,
//! only these ladders are checked.

use smallvec::SmallVec;
use tollgate_core::limit::{Pause, Step};
use tollgate_core::{Decision, Line, Span};

/// A ladder that is checked if the attempt fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// The index of its charge among those taken.
    pub(super) charge: usize,
    /// The time for which failures are remembered.
    pub(super) forget: Span,
}

/// After this time, an attempt without a report counts as failed.
const MOST: Span = Span::from_secs(5 * 60);

impl Mark {
    /// The time after its begin at which the attempt counts as failed if there is no report. The store still
    /// knows its ticket then.
    pub(super) fn due_after(&self) -> Span {
        MOST.min(Span::from_micros(self.forget.as_micros() / 2))
    }
}

/// Whether reaching a step of this rule's ladder is reported. The ladder of a rule that only observes locks
/// nothing.
pub(super) fn tells(line: &Line<'_>, step: &Step) -> bool {
    step.notify || (matches!(step.pause, Pause::Lock(_)) && !line.rule.observes())
}

pub(super) fn of(decision: &Decision<'_>) -> SmallVec<[Mark; 2]> {
    let mut marks = SmallVec::new();
    for (charge, line) in decision.lines().filter(|line| line.taken).enumerate() {
        for climb in line.climbs() {
            if climb.steps_reached().any(|step| tells(&line, step)) {
                marks.push(Mark { charge, forget: climb.forget() });
            }
        }
    }
    marks
}

/// The marks in the text form of a ticket.
pub(super) fn written(marks: &[Mark]) -> String {
    marks.iter().map(|mark| mark.charge.to_string()).collect::<Vec<_>>().join(",")
}

/// Reads the charges that a ticket marks. Older tickets have more data about each mark, which is skipped.
pub(super) fn read(text: &str) -> SmallVec<[usize; 2]> {
    let charge = |mark: &str| mark.split(' ').next()?.parse().ok();
    let mut charges: SmallVec<[usize; 2]> = text.split(',').filter_map(charge).collect();
    charges.dedup();
    charges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_as_they_were_written() {
        let mark = |charge| Mark { charge, forget: Span::from_secs(900) };
        assert_eq!(*read(&written(&[mark(0), mark(2), mark(2)])), [0, 2]);
        assert!(read(&written(&[])).is_empty());
        assert_eq!(*read("0 11 900000000 900000000 1 1,2 3 0 60000000 0 0"), [0, 2], "of older tickets too");
    }
}
