//! Decides when to reconnect: soon at first, then once a second for all connections to one server together.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The back-off of the connections to one server.
pub(crate) struct Redial {
    pace: Mutex<Pace>,
    /// Notified when a connection has lasted, so that the others need not wait.
    lasted: Notify,
}

struct Pace {
    /// Failed attempts since a connection last lasted.
    failures: u32,
    /// When the next attempt may begin.
    next: Option<Instant>,
}

/// The back-off after the first failures.
const FIRST: [Duration; 4] = [
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(400),
];
/// The back-off after all further failures.
const LATER: Duration = Duration::from_secs(1);
/// A connection must last this long to count as established. A server that accepts connections and closes them
/// at once does not work.
pub(crate) const LASTS: Duration = Duration::from_secs(1);

impl Redial {
    pub(crate) fn new() -> Self {
        Self { pace: Mutex::new(Pace { failures: 0, next: None }), lasted: Notify::new() }
    }

    /// Waits until the caller may try to connect.
    pub(crate) async fn turn(&self) {
        let at = self.pace.lock().reserve(Instant::now(), fastrand::f64());
        tokio::select! {
            () = tokio::time::sleep_until(at) => {}
            () = self.lasted.notified() => {}
        }
    }

    /// Records that an attempt failed, or that its connection did not last.
    pub(crate) fn failed(&self) {
        self.pace.lock().fail(Instant::now(), fastrand::f64());
    }

    /// Records that a connection has lasted.
    pub(crate) fn lasted(&self) {
        *self.pace.lock() = Pace { failures: 0, next: None };
        self.lasted.notify_waiters();
    }
}

impl Pace {
    /// When the next attempt may begin. Delays the one after it.
    fn reserve(&mut self, now: Instant, chance: f64) -> Instant {
        let at = self.next.map_or(now, |next| next.max(now));
        self.next = Some(at + self.pause(chance));
        at
    }

    fn fail(&mut self, now: Instant, chance: f64) {
        self.failures = self.failures.saturating_add(1);
        let next = now + self.pause(chance);
        self.next = Some(self.next.map_or(next, |reserved| reserved.max(next)));
    }

    /// The back-off after this many failures. The first ones have jitter, so that nodes that lost a server
    /// together do not reconnect together.
    fn pause(&self, chance: f64) -> Duration {
        match self.failures.checked_sub(1) {
            None => Duration::ZERO,
            Some(before) => {
                FIRST.get(before as usize).map_or(LATER, |pause| pause.mul_f64(0.5 + chance / 2.0))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_connections_together_try_once_a_second_after_the_first_attempts() {
        let start = Instant::now();
        let mut pace = Pace { failures: 0, next: None };
        let mut due = vec![pace.reserve(start, 0.5), pace.reserve(start, 0.5)];
        let mut begun = Vec::new();
        while begun.len() < 40 {
            due.sort();
            let now = due.remove(0);
            begun.push(now - start);
            pace.fail(now, 0.5);
            due.push(pace.reserve(now, 0.5));
        }
        let first = begun.iter().filter(|at| **at < Duration::from_secs(2)).count();
        assert!((4..=8).contains(&first), "{first} attempts in the first two seconds");
        for pair in begun[8..].windows(2) {
            assert!(pair[1] - pair[0] >= LATER, "{pair:?}");
        }
    }
}
