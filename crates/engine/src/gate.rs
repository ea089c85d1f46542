//! The way to the shared store: who may ask it, what its answers say about it, and the two lines in
//! the log that tell when it went and when it came back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tollgate_core::{Clock, Reason, Span, StoreError, Timestamp};

use crate::breaker::{Breaker, Pass, Turned};

/// A breaker that many ask at once.
pub(crate) struct Gate {
    breaker: Mutex<Breaker>,
    /// What everybody needs to know of the breaker, without the lock: its turn, whether a success
    /// would be news, whether it is open.
    face: AtomicU64,
    /// How many decisions did without the store, ever, and how many when the breaker opened.
    degraded: AtomicU64,
    degraded_before: AtomicU64,
    clock: Arc<dyn Clock>,
}

/// A probe in flight. One that is dropped unanswered has failed.
pub(crate) struct Probing<'g> {
    gate: &'g Gate,
    ended: bool,
}

const OPEN: u64 = 1;
const STRAINED: u64 = 2;

impl Gate {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            breaker: Mutex::new(Breaker::closed()),
            face: AtomicU64::new(0),
            degraded: AtomicU64::new(0),
            degraded_before: AtomicU64::new(0),
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

    /// Whether the store failed whoever asked last.
    pub(crate) fn is_strained(&self) -> bool {
        self.face.load(Ordering::Relaxed) & STRAINED != 0
    }

    /// Takes note of what came of asking. Being full, or finding something damaged, is an answer.
    pub(crate) fn note<T>(&self, pass: Pass, answer: &Result<T, StoreError>) {
        match answer {
            Err(error @ (StoreError::TimedOut | StoreError::Unavailable { .. })) => self.failed(pass, error),
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
            tracing::warn!(
                component = "store",
                reason = reason.name(),
                %error,
                "the store cannot be used: rules do what their `on_outage` says"
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
    /// The store answered, and all that was missed is known: it is asked again.
    pub(crate) fn succeeded(mut self) {
        self.ended = true;
        let gate = self.gate;
        let now = gate.now();
        if let Some(Turned::Closed(lasted)) = gate.turn(|breaker| breaker.probe_succeeded(now)) {
            let before = gate.degraded_before.load(Ordering::Relaxed);
            tracing::info!(
                component = "store",
                lasted = %Span::from_micros(lasted.as_millis_ceil() * 1_000),
                degraded = gate.degraded.load(Ordering::Relaxed) - before,
                "the store can be used again"
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
