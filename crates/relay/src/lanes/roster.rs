//! The lanes of one tenant and priority: those that take turns, and those that wait until servers that may not answer
//! have left them room.

use super::LaneNumber;
use super::line::WaitingLine;
use super::ring::Ring;

/// What a lane can send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offer {
    /// Nothing at this priority.
    Nothing,
    /// An item to a server that answered the last time.
    Known,
    /// An item to a server of which nothing is known.
    New,
    /// An item to a server that did not answer the last time.
    Silent,
}

#[derive(Debug)]
pub(super) struct Roster {
    ring: Ring<LaneNumber>,
    /// Lanes that wait for room for a trial: those of new servers, and those of silent ones.
    new: WaitingLine,
    silent: WaitingLine,
    /// Counts the lanes that got room.
    calls: u8,
}

impl Roster {
    pub(super) fn new(quantum: u32) -> Self {
        let (new, silent) = (WaitingLine::default(), WaitingLine::default());
        Self { ring: Ring::new(quantum), new, silent, calls: 0 }
    }

    pub(super) fn join(&mut self, lane: LaneNumber) {
        self.ring.join(lane);
    }

    pub(super) fn charge(&mut self, recipients: u32) {
        self.ring.charge(recipients);
    }

    /// Whether lanes take turns.
    pub(super) fn has_turns(&self) -> bool {
        !self.ring.is_empty()
    }

    /// Whether lanes wait for room for a trial.
    pub(super) fn has_bench(&self) -> bool {
        !self.new.is_empty() || !self.silent.is_empty()
    }

    /// The lane whose turn it is, and whether its item is a trial. `open` tells whether there is room for one.
    pub(super) fn next(
        &mut self,
        open: bool,
        benched: &mut usize,
        mut offer: impl FnMut(LaneNumber) -> Offer,
    ) -> Option<(LaneNumber, bool)> {
        loop {
            if open && let Some(lane) = self.call() {
                *benched -= 1;
                self.ring.join_first(lane);
            }
            let mut kind = Offer::Nothing;
            let lane = self.ring.turn(|lane| {
                kind = offer(*lane);
                kind != Offer::Nothing
            });
            let bench = if kind == Offer::New { &mut self.new } else { &mut self.silent };
            match lane {
                Some(lane) if kind != Offer::Known && !open => {
                    self.ring.leave_first();
                    bench.push_back(lane);
                    *benched += 1;
                }
                Some(lane) => return Some((lane, kind != Offer::Known)),
                None if open && self.has_bench() => {}
                None => return None,
            }
        }
    }

    /// A lane that gets room. In turns it is the newest of those that were never tried, the oldest of them, and one whose
    /// server was silent: mail to a domain that comes now need not wait for thousands of domains that may all be
    /// unreachable, and none of those waits for ever.
    fn call(&mut self) -> Option<LaneNumber> {
        self.calls = (self.calls + 1) % 3;
        match self.calls {
            0 => self.silent.pop_front().or_else(|| self.new.pop_front()),
            1 => self.new.pop_back().or_else(|| self.silent.pop_front()),
            _ => self.new.pop_front().or_else(|| self.silent.pop_front()),
        }
    }

    /// Lets a lane take turns again that waited for room. Returns whether it did.
    pub(super) fn recall(&mut self, lane: LaneNumber) -> bool {
        let waited = self.new.remove(lane) || self.silent.remove(lane);
        if waited {
            self.ring.join(lane);
        }
        waited
    }
}
