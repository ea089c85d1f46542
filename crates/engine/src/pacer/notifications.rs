//! Sends waiting callers their result.

use std::sync::Arc;

use tokio::sync::oneshot;
use tollgate_core::{Decision, Span};

use super::answer::{Bound, Paced, Refusal, Unpaced};
use super::unclaimed::Unclaimed;
use crate::engine::{Engine, Fault};

/// The result of a wait.
pub(super) enum Notification<'d, 'a> {
    /// It may pass.
    Passed { engine: &'d Arc<Engine>, decision: &'d Decision<'a>, waited: Span, unclaimed: Unclaimed },
    /// A rule refuses it.
    Denied { engine: &'d Arc<Engine>, decision: &'d Decision<'a> },
    /// Its turn comes too late.
    TooLate { waited: Span, wait: Span, bound: Bound },
    /// It cannot be decided.
    Fault(Fault),
}

/// The receiver of a result.
pub(super) trait Listener: Send {
    fn hear(self: Box<Self>, notification: Notification<'_, '_>);
}

/// A caller, and its `see` for the decision.
pub(super) struct Caller<T, F> {
    pub(super) see: F,
    pub(super) answer: oneshot::Sender<CallerResult<T>>,
}

/// The result for a caller. Unless the caller claims it, its charges are refunded.
pub(super) struct CallerResult<T> {
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
        let result = match notification {
            Notification::Passed { engine, decision, waited, unclaimed } => {
                CallerResult { answer: Ok(Paced { waited, seen: see(engine, decision) }), unclaimed }
            }
            Notification::Denied { engine, decision } => CallerResult::of(denied(engine, decision, see)),
            Notification::TooLate { waited, wait, bound } => {
                CallerResult::of(Unpaced::TooLate { waited, wait, bound })
            }
            Notification::Fault(fault) => CallerResult::of(Unpaced::Fault(fault)),
        };
        // If the caller is gone, dropping the result refunds the charges.
        let _ = answer.send(result);
    }
}

impl<T> CallerResult<T> {
    fn of(unpaced: Unpaced<T>) -> Self {
        Self { answer: Err(unpaced), unclaimed: Unclaimed::nothing() }
    }
}

/// The result for an attempt that a rule refuses.
pub(super) fn denied<T>(
    engine: &Arc<Engine>,
    decision: &Decision<'_>,
    see: impl FnOnce(&Arc<Engine>, &Decision<'_>) -> T,
) -> Unpaced<T> {
    let line = decision.denied_by();
    let refusal = Refusal {
        rule: line.map(|line| Arc::clone(&line.rule.name)),
        key: line.map(|line| engine.observer.shown_key(line.rule, line.key).into_owned()),
        retry: decision.retry,
    };
    Unpaced::Denied { refusal, seen: see(engine, decision) }
}
