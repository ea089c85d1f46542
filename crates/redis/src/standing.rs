//! A circuit breaker for one server of a Cluster, so that the other servers are used while it is down.

use std::sync::atomic::{AtomicU64, Ordering};

/// The breaker's state. The lower half counts strikes: up to [`FAILURES`] they are failures one after the other.
/// Above that the server is suspended, and the rest is the number of probes that must succeed. The upper half counts
/// the changes, so that calls that wait side by side for a silent server count once.
#[derive(Debug, Default)]
pub(crate) struct Standing(AtomicU64);

/// The state when a call began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen(u64);

/// This many failures one after the other suspend a server.
const FAILURES: u32 = 3;
/// This many probes in a row must succeed before the server is used again.
const PROBES: u32 = 3;

impl Standing {
    /// The state as a call begins.
    pub(crate) fn seen(&self) -> Seen {
        Seen(self.0.load(Ordering::Relaxed))
    }

    /// Whether the server gets only probes.
    pub(crate) fn is_suspended(&self) -> bool {
        strikes(self.0.load(Ordering::Relaxed)) > FAILURES
    }

    /// Records that it answered a call.
    pub(crate) fn answered(&self) {
        self.step(|_, strikes| if strikes <= FAILURES { 0 } else { strikes });
    }

    /// Records that it failed a call that began at `seen`.
    pub(crate) fn failed(&self, seen: Seen) {
        self.step(|now, strikes| match strikes {
            _ if now != seen.0 => strikes,
            0..FAILURES if strikes + 1 < FAILURES => strikes + 1,
            0..=FAILURES => FAILURES + PROBES,
            suspended => suspended,
        });
    }

    /// Records that it answered a probe.
    pub(crate) fn probe_answered(&self) {
        self.step(|_, strikes| match strikes.checked_sub(FAILURES) {
            None | Some(0 | 1) => 0,
            Some(_) => strikes - 1,
        });
    }

    /// Records that it failed a probe.
    pub(crate) fn probe_failed(&self) {
        self.step(|_, _| FAILURES + PROBES);
    }

    /// Changes the strikes. If they stay the same, nothing is written.
    fn step(&self, next: impl Fn(u64, u32) -> u32) {
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
            let (old, new) = (strikes(now), next(now, strikes(now)));
            (old != new).then(|| ((now >> 32).wrapping_add(1) << 32) | u64::from(new))
        });
    }
}

fn strikes(state: u64) -> u32 {
    (state & u64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_failures_in_a_row_suspend_a_server_and_three_probes_bring_it_back() {
        let standing = Standing::default();
        for _ in 0..10 {
            standing.failed(standing.seen());
            standing.failed(standing.seen());
            standing.answered();
        }
        assert!(!standing.is_suspended(), "not in a row");
        (0..3).for_each(|_| standing.failed(standing.seen()));
        standing.answered();
        assert!(standing.is_suspended(), "only probes bring it back");
        standing.probe_answered();
        standing.probe_answered();
        standing.probe_failed();
        standing.probe_answered();
        standing.probe_answered();
        assert!(standing.is_suspended(), "not in a row");
        standing.probe_answered();
        assert!(!standing.is_suspended());
    }
    #[test]
    fn calls_that_wait_side_by_side_count_once() {
        let standing = Standing::default();
        for _ in 0..2 {
            let seen = standing.seen();
            (0..1_000).for_each(|_| standing.failed(seen));
        }
        assert!(!standing.is_suspended(), "two moments of silence, whatever the number of calls");
        let late = standing.seen();
        standing.answered();
        standing.failed(late);
        (0..2).for_each(|_| standing.failed(standing.seen()));
        assert!(!standing.is_suspended(), "it answered since the late call began");
        standing.failed(standing.seen());
        assert!(standing.is_suspended());
    }
}
