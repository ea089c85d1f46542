//! The circuit breaker of the shared store: which calls may reach the store, what their results say about it,
//! and the log lines that report when it failed, what its server said, and when it recovered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tollgate_core::{Clock, Reason, Span, StoreError, Timestamp};

use crate::breaker::{Breaker, Pass, Turned};

/// A breaker that many threads use at once.
pub(crate) struct BreakerGate {
    breaker: Mutex<Breaker>,
    /// The breaker's state, readable without the lock: its news, whether a success would change its
    /// state, whether it is open.
    face: AtomicU64,
    /// The number of decisions without the store: in total, and at the time when the breaker opened.
    degraded: AtomicU64,
    degraded_before: AtomicU64,
    /// The latest failure, while the breaker is open.
    cause: Mutex<Option<StoreError>>,
    clock: Arc<dyn Clock>,
}

/// A probe in flight. A probe that is dropped without a result has failed.
pub(crate) struct Probing<'g> {
    gate: &'g BreakerGate,
    ended: bool,
}

const OPEN: u64 = 1;
const STRAINED: u64 = 2;

impl BreakerGate {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            breaker: Mutex::new(Breaker::closed()),
            face: AtomicU64::new(0),
            degraded: AtomicU64::new(0),
            degraded_before: AtomicU64::new(0),
            cause: Mutex::new(None),
            clock,
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Permission to call the store.
    #[inline]
    pub(crate) fn pass(&self) -> Option<Pass> {
        let face = self.face.load(Ordering::Acquire);
        (face & OPEN == 0).then_some(Pass(face >> 2))
    }

    /// The time at which the breaker opened, and the reason; `None` while it is closed.
    pub(crate) fn outage(&self) -> Option<(Timestamp, Reason)> {
        self.breaker.lock().outage()
    }

    /// Why the store is not called, in words.
    pub(crate) fn cause(&self) -> Option<String> {
        self.cause.lock().as_ref().map(StoreError::to_string)
    }

    /// Whether the latest call to the store failed.
    pub(crate) fn is_strained(&self) -> bool {
        self.face.load(Ordering::Relaxed) & STRAINED != 0
    }

    /// Records the result of a call. An error that concerns one call or one key counts as an answer.
    pub(crate) fn note<T>(&self, pass: Pass, answer: &Result<T, StoreError>) {
        match answer {
            Err(error) if error.is_outage() => self.failed(pass, error),
            _ if self.is_strained() => drop(self.turn(|breaker| {
                breaker.succeeded(pass);
                None
            })),
            _ => {}
        }
    }

    fn failed(&self, pass: Pass, error: &StoreError) {
        let reason = error.reason().unwrap_or(Reason::Unreachable);
        let now = self.now();
        if self.turn(|breaker| breaker.failed(pass, reason, now, chance())).is_some() {
            self.degraded_before.store(self.degraded.load(Ordering::Relaxed), Ordering::Relaxed);
            *self.cause.lock() = Some(error.clone());
            tracing::warn!(
                component = "store",
                reason = reason.name(),
                %error,
                "the store is down: each rule applies its `on_outage`"
            );
        }
    }

    /// Opens the breaker at once, whatever the error is.
    pub(crate) fn shut(&self, error: &StoreError) {
        while let Some(pass) = self.pass() {
            self.failed(pass, error);
        }
    }

    /// Counts a decision made without the store.
    pub(crate) fn note_degraded(&self) {
        self.degraded.fetch_add(1, Ordering::Relaxed);
    }

    /// Begins a probe, if the breaker is open, one is due, and none is in flight.
    pub(crate) fn probe(&self) -> Option<Probing<'_>> {
        let now = self.now();
        let begun = self.breaker.lock().begin_probe(now);
        begun.then(|| Probing { gate: self, ended: false })
    }

    /// Changes the breaker, and publishes its state.
    fn turn(&self, change: impl FnOnce(&mut Breaker) -> Option<Turned>) -> Option<Turned> {
        let mut breaker = self.breaker.lock();
        let turned = change(&mut breaker);
        let open = u64::from(breaker.outage().is_some()) * OPEN;
        let strained = u64::from(breaker.strained()) * STRAINED;
        self.face.store(breaker.news() << 2 | strained | open, Ordering::Release);
        turned
    }
}

impl Probing<'_> {
    /// Whether the breaker closes if this probe succeeds.
    pub(crate) fn is_last(&self) -> bool {
        self.gate.breaker.lock().would_close()
    }

    /// Records why the probe failed. What the server said is logged the first time: most outages begin with a
    /// closed connection, which explains nothing.
    pub(crate) fn failed(self, error: StoreError) {
        let mut cause = self.gate.cause.lock();
        let is_new_cause = matches!(error, StoreError::Refused { .. }) && cause.as_ref() != Some(&error);
        if is_new_cause {
            tracing::warn!(component = "store", %error, "the store is still down");
        }
        // A refusal by the server explains more than a connection that cannot be made.
        if is_new_cause || !matches!(*cause, Some(StoreError::Refused { .. })) {
            *cause = Some(error);
        }
    }

    /// The store answered. After the last probe this node has read every change it missed, and the breaker
    /// closes.
    pub(crate) fn succeeded(mut self) {
        self.ended = true;
        let gate = self.gate;
        let now = gate.now();
        if let Some(Turned::Closed(lasted)) = gate.turn(|breaker| breaker.probe_succeeded(now, chance())) {
            *gate.cause.lock() = None;
            let before = gate.degraded_before.load(Ordering::Relaxed);
            tracing::info!(
                component = "store",
                lasted = %Span::from_micros(lasted.as_millis_ceil() * 1_000),
                degraded = gate.degraded.load(Ordering::Relaxed) - before,
                "the store is up again"
            );
        }
    }
}

impl Drop for Probing<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let now = self.gate.now();
            self.gate.breaker.lock().probe_failed(now, chance());
        }
    }
}

fn chance() -> u64 {
    getrandom::u64().expect("the system gives random numbers")
}
