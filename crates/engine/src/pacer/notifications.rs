//! How those who wait hear what became of it.

use std::sync::Arc;

use tokio::sync::oneshot;
use tollgate_core::{Decision, Span};

use super::answer::{Bound, Paced, Refusal, Unpaced};
use super::unclaimed::Unclaimed;
use crate::engine::{Engine, Fault};

/// What became of waiting.
pub(super) enum Notification<'d, 'a> {
    /// It may pass.
    Passed { engine: &'d Arc<Engine>, decision: &'d Decision<'a>, waited: Span, unclaimed: Unclaimed },
    /// A rule refuses it.
    Denied { engine: &'d Arc<Engine>, decision: &'d Decision<'a> },
    /// Its turn would come too late.
    TooLate { waited: Span, wait: Span, bound: Bound },
    /// It cannot be decided.
    Fault(Fault),
}

/// Somebody who wants to hear.
pub(super) trait Listener: Send {
    fn hear(self: Box<Self>, notification: Notification<'_, '_>);
}

/// A caller, and what it wants to see of the decision.
pub(super) struct Caller<T, F> {
    pub(super) see: F,
    pub(super) answer: oneshot::Sender<Heard<T>>,
}

/// What a caller hears. Unless it is claimed, what was taken is given back.
pub(super) struct Heard<T> {
    pub(super) answer: Result<Paced<T>, Unpaced<T>>,
    pub(super) unclaimed: Unclaimed,
}

impl<T, F> Listener for Caller<T, F>
where
    T: Send,
    F: FnOnce(&Arc<Engine>, &Decision<'_>) -> T + Send,
{
    fn hear(self: Box<Self>, notification: Notification<'_, '_>) {
        let Self { see, answer } = *self;
        let heard = match notification {
            Notification::Passed { engine, decision, waited, unclaimed } => {
                Heard { answer: Ok(Paced { waited, seen: see(engine, decision) }), unclaimed }
            }
            Notification::Denied { engine, decision } => Heard::of(denied(engine, decision, see)),
            Notification::TooLate { waited, wait, bound } => {
                Heard::of(Unpaced::TooLate { waited, wait, bound })
            }
            Notification::Fault(fault) => Heard::of(Unpaced::Fault(fault)),
        };
        // Whoever is gone does not hear it, and what was taken goes back as it is dropped.
        let _ = answer.send(heard);
    }
}

impl<T> Heard<T> {
    fn of(unpaced: Unpaced<T>) -> Self {
        Self { answer: Err(unpaced), unclaimed: Unclaimed::nothing() }
    }
}

/// What is answered to whom a rule refuses.
pub(super) fn denied<T>(
    engine: &Arc<Engine>,
    decision: &Decision<'_>,
    see: impl FnOnce(&Arc<Engine>, &Decision<'_>) -> T,
) -> Unpaced<T> {
    let line = decision.denied_by();
    let refusal = Refusal {
        rule: line.map(|line| Arc::clone(&line.rule.name)),
        key: line.map(|line| engine.shown_key(line.rule, line.key).into_owned()),
        retry: decision.retry,
    };
    Unpaced::Denied { refusal, seen: see(engine, decision) }
}
