//! A circuit breaker for one server of a Cluster, so that the other servers are used while it is down.

use std::sync::atomic::{AtomicU32, Ordering};

/// The breaker's state. Up to [`FAILURES`] it is the number of failures in a row. Above that the server is
/// suspended, and the rest is the number of probes that must succeed.
#[derive(Debug, Default)]
pub(crate) struct Standing(AtomicU32);

/// How many failures in a row suspend a server.
const FAILURES: u32 = 3;
/// How many probes in a row must succeed before it is used again.
const PROBES: u32 = 3;

impl Standing {
    /// Whether the server gets only probes.
    pub(crate) fn is_suspended(&self) -> bool {
        self.0.load(Ordering::Relaxed) > FAILURES
    }

    /// Records that it answered a call.
    pub(crate) fn answered(&self) {
        let strikes = self.0.load(Ordering::Relaxed);
        if (1..=FAILURES).contains(&strikes) {
            let _ = self.0.compare_exchange(strikes, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Records that it failed a call.
    pub(crate) fn failed(&self) {
        self.step(|strikes| match strikes {
            0..FAILURES if strikes + 1 < FAILURES => strikes + 1,
            0..=FAILURES => FAILURES + PROBES,
            suspended => suspended,
        });
    }

    /// Records that it answered a probe.
    pub(crate) fn probe_answered(&self) {
        self.step(|strikes| match strikes.checked_sub(FAILURES) {
            None | Some(0 | 1) => 0,
            Some(_) => strikes - 1,
        });
    }

    /// Records that it failed a probe.
    pub(crate) fn probe_failed(&self) {
        self.0.store(FAILURES + PROBES, Ordering::Relaxed);
    }

    fn step(&self, next: impl Fn(u32) -> u32) {
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |strikes| Some(next(strikes)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_failures_in_a_row_suspend_a_server_and_three_probes_bring_it_back() {
        let standing = Standing::default();
        for _ in 0..10 {
            standing.failed();
            standing.failed();
            standing.answered();
        }
        assert!(!standing.is_suspended(), "not in a row");
        (0..3).for_each(|_| standing.failed());
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
}
