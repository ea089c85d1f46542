//! The way to the shared store: who may ask it, what its answers say about it, and the lines in the log
//! that tell when it went, what its server said about that, and when it came back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tollgate_core::{Clock, Reason, Span, StoreError, Timestamp};

use crate::breaker::{Breaker, Pass, Turned};

/// A breaker that many ask at once.
pub(crate) struct BreakerGate {
    breaker: Mutex<Breaker>,
    /// What everybody needs to know of the breaker, without the lock: its turn, whether a success
    /// would be news, whether it is open.
    face: AtomicU64,
    /// How many decisions did without the store, ever, and how many when the breaker opened.
    degraded: AtomicU64,
    degraded_before: AtomicU64,
    /// What the latest failure said, while the gate is shut.
    cause: Mutex<Option<StoreError>>,
    clock: Arc<dyn Clock>,
}

/// A probe in flight. One that is dropped unanswered has failed.
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

    /// Leave to ask the store.
    #[inline]
    pub(crate) fn pass(&self) -> Option<Pass> {
        let face = self.face.load(Ordering::Acquire);
        (face & OPEN == 0).then_some(Pass(face >> 2))
    }

    /// Since when the store is not asked, and why.
    pub(crate) fn outage(&self) -> Option<(Timestamp, Reason)> {
        self.breaker.lock().outage()
    }

    /// Why the store is not asked, in words.
    pub(crate) fn cause(&self) -> Option<String> {
        self.cause.lock().as_ref().map(StoreError::to_string)
    }

    /// Whether the store failed whoever asked last.
    pub(crate) fn is_strained(&self) -> bool {
        self.face.load(Ordering::Relaxed) & STRAINED != 0
    }

    /// Takes note of what came of asking. An error that is about one call or one key is an answer.
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

    /// Takes the store for gone at once, whatever was the matter with it.
    pub(crate) fn shut(&self, error: &StoreError) {
        while let Some(pass) = self.pass() {
            self.failed(pass, error);
        }
    }

    /// Counts a decision that did without the store.
    pub(crate) fn note_degraded(&self) {
        self.degraded.fetch_add(1, Ordering::Relaxed);
    }

    /// Begins a probe, if the gate is shut, it is time for one, and none is in flight.
    pub(crate) fn probe(&self) -> Option<Probing<'_>> {
        let now = self.now();
        let begun = self.breaker.lock().begin_probe(now);
        begun.then(|| Probing { gate: self, ended: false })
    }

    /// Changes the breaker, and shows everybody.
    fn turn(&self, change: impl FnOnce(&mut Breaker) -> Option<Turned>) -> Option<Turned> {
        let mut breaker = self.breaker.lock();
        let turned = change(&mut breaker);
        let open = u64::from(breaker.outage().is_some()) * OPEN;
        let strained = u64::from(breaker.strained()) * STRAINED;
        self.face.store(breaker.turns() << 2 | strained | open, Ordering::Release);
        turned
    }
}

impl Probing<'_> {
    /// Whether the store is asked again if this probe succeeds.
    pub(crate) fn is_last(&self) -> bool {
        self.gate.breaker.lock().would_close(self.gate.now())
    }

    /// The store failed, and this is why. What its server said is logged when it says it first: most
    /// outages begin with a connection that was closed, which explains nothing.
    pub(crate) fn failed(self, error: StoreError) {
        let mut cause = self.gate.cause.lock();
        let is_news = matches!(error, StoreError::Refused { .. }) && cause.as_ref() != Some(&error);
        if is_news {
            tracing::warn!(component = "store", %error, "the store is still down");
        }
        // What the server said is worth more than that it cannot be reached any more.
        if is_news || !matches!(*cause, Some(StoreError::Refused { .. })) {
            *cause = Some(error);
        }
    }

    /// The store answered. If this is the last probe, all that was missed is known, and the store is asked
    /// again.
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
