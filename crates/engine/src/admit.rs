//! The single entry point of every door: it turns an attempt and its terms into an admission.
//!
//! It includes waiting, holds, counting by outcome and refunds. The admission is ready when [`Pinned::admit`] returns
//! if the counters are in this process, no rows are counted and the attempt need not wait. It then allocates only for
//! a hold, or if a refund may follow. Otherwise, and for a login, it is a future that owns everything it needs. A
//! caller that drops the future gives up its place in the queue.

mod login;

use std::cell::LazyCell;
use std::future::Future;
use std::ops::Deref;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use arc_swap::Guard;
use tollgate_core::{Attempt, Decision, Policy, Span};

use crate::engine::{Engine, Fault, Manner};
use crate::leases::{Lease, Leases};
use crate::lists::BlockedAttempt;
use crate::live_config::Snapshot;
use crate::owned_attempt::OwnedAttempt;
use crate::pacer::{Ask, Bound, First, Pacer, Turn};
use crate::taken::Taken;
pub use login::Login;

/// The parts that a door needs to admit attempts.
#[derive(Clone)]
pub struct Admissions {
    /// Decides.
    pub engine: Arc<Engine>,
    /// Lets attempts wait if their rules or their callers allow it. Without a pacer only logins wait.
    pub pacer: Option<Pacer>,
    /// Keeps the holds of attempts alive while the connection or task in this process lasts.
    pub leases: Arc<Leases>,
}

/// The policies in force, pinned for one attempt, a batch, or all checks of one request.
pub struct Pinned<'e> {
    admissions: &'e Admissions,
    snapshot: Guard<Arc<Snapshot>>,
}

/// The conditions under which an attempt is admitted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terms<'t> {
    /// Whether the attempt takes units or only peeks.
    pub look: Look,
    /// Whether the attempt may wait.
    pub wait: Wait,
    /// The side that releases the attempt's holds.
    pub holds: Holds,
    /// Whether the taken units are refunded if the caller never reports how the attempt ended.
    pub unsettled: Unsettled,
    /// The guard, if the attempt is a login. A login always takes, waits only for the delays of the guard's ladders, and
    /// stays a failure without a report of its end: `look`, `wait` and `unsettled` are ignored.
    pub login: Option<Login<'t>>,
    /// The id by which the caller knows the attempt, if it sent one.
    pub correlation: Option<&'t str>,
}

/// Whether an attempt takes units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Look {
    /// The attempt takes everything it asks for, or nothing.
    #[default]
    Take,
    /// The attempt takes nothing.
    Peek,
}

impl Look {
    #[inline]
    fn manner(self) -> Manner {
        match self {
            Self::Take => Manner::Take,
            Self::Peek => Manner::Peek,
        }
    }
}

/// Whether an attempt may wait until it conforms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// The attempt may not wait.
    #[default]
    No,
    /// The attempt may wait for as long as the exceeded rules allow.
    AsRulesSay,
    /// The attempt may wait for at most `span`, and for no longer than the exceeded rules allow. If the store
    /// does not answer at once, the attempt queues before it is decided.
    AtMost {
        /// The longest that its caller waits.
        span: Span,
        /// Attempts of higher priority go first.
        priority: i8,
    },
}

/// The side that releases the holds of an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Holds {
    /// The caller, by the id that it sent.
    #[default]
    ByCaller,
    /// [`Taken`] releases them when it is dropped. They have an id of their own.
    ByTaken,
}

/// Whether the taken units are refunded if [`Taken`] is dropped unsettled. With [`Holds::ByTaken`] the holds
/// end either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unsettled {
    /// The units stay counted.
    #[default]
    Keep,
    /// The units are refunded.
    Refund,
}

/// An admission, ready or to come. Either way it can be awaited.
pub enum Admit<T> {
    /// The admission; `None` after it was awaited.
    Ready(Option<Admitted<T>>),
    /// The admission is not ready yet. If the caller drops it, the attempt leaves the queue. If a call to a shared
    /// store is in flight, the engine later undoes entries of `sliding` limits, holds and failures of ladders by
    /// their ticket; other counts stay. If the lock of a login is being recorded, the login stays a failure.
    Later(Pin<Box<dyn Future<Output = Admitted<T>> + Send>>),
}

/// The result of an attempt.
pub type Admitted<T> = Result<Admission<T>, NotAdmitted>;

/// A decision, which may be a refusal, and what the attempt took.
#[derive(Debug)]
pub struct Admission<T> {
    /// The time that the attempt waited.
    pub waited: Span,
    /// The value that the door's `see` returned for the decision.
    pub seen: T,
    /// The units and holds that the attempt took.
    pub taken: Taken,
}

/// Why there is no decision. Nothing was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAdmitted {
    /// The attempt would have to wait longer than its bound, or has already waited that long.
    TooLate {
        /// The time that it waited.
        waited: Span,
        /// A lower bound of the further wait, computed from the queue before the attempt.
        wait: Span,
        /// The bound that the wait exceeds.
        bound: Bound,
    },
    /// Too many attempts are waiting already.
    Full {
        /// The number of waiting attempts: for the same keys, or in total.
        waiting: usize,
    },
    /// The process, or the runtime that lets attempts wait, is shutting down.
    Ended,
    /// The attempt cannot be decided at all.
    Fault(Fault),
}

impl Admissions {
    /// Pins the policies in force.
    #[inline]
    pub fn pin(&self) -> Pinned<'_> {
        Pinned { admissions: self, snapshot: self.engine.pin() }
    }

    /// Pins the same policies again, for another check of the same request.
    pub fn pin_again(&self, snapshot: &Arc<Snapshot>) -> Pinned<'_> {
        Pinned { admissions: self, snapshot: Guard::from_inner(Arc::clone(snapshot)) }
    }

    /// Rejects every waiting attempt, and every later one that would have to wait. Call it at shutdown, so that
    /// waiting callers get an answer before their connections are closed.
    pub fn end_waits(&self) {
        if let Some(pacer) = &self.pacer {
            pacer.end();
        }
        self.engine.guards.end_delays();
    }
}

impl<'e> Pinned<'e> {
    /// The policies, for [`Admissions::pin_again`].
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot)
    }

    /// Checks the blocklist for a request without a policy, or by fields that no rule uses.
    /// [`BlockedAttempt::note`] records a blocked request and returns its entry.
    pub fn blocks(&self, fields: &[(&str, &str)]) -> Option<BlockedAttempt<'e>> {
        self.admissions.engine.blocks(&self.snapshot, fields)
    }

    /// Admits an attempt. `see` turns the decision into the door's own result. It runs in this call if the
    /// decision is ready, and otherwise later, perhaps in another task.
    pub fn admit<T, F>(&self, attempt: &Attempt<'_>, terms: Terms<'_>, see: F) -> Admit<T>
    where
        T: Send + 'static,
        F: FnOnce(&Engine, &Decision<'_>) -> T + Send + 'static,
    {
        let Admissions { engine, pacer, leases } = self.admissions;
        // Looked up once, if at all. Deciding reports an unknown policy.
        let policy = LazyCell::new(|| self.snapshot.policies.named(attempt.policy));
        let holds = terms.holds == Holds::ByTaken && policy.is_some_and(Policy::holds);
        let id = holds.then(|| leases.fresh_id());
        let attempt = Attempt { id: id.as_deref().or(attempt.id), ..*attempt };
        let may_wait = match terms.wait {
            // The pacer takes units, so a peek cannot use it.
            _ if terms.look == Look::Peek => false,
            Wait::No => false,
            Wait::AsRulesSay => policy.is_some_and(Policy::lets_wait),
            Wait::AtMost { .. } => true,
        };
        let pacer = pacer.as_ref().filter(|_| may_wait && self.snapshot.policies.enabled);
        let see =
            Seeing { see, leases: id.is_some().then(|| Arc::clone(leases)), unsettled: terms.unsettled };
        if let Some(login) = terms.login {
            let kept = OwnedAttempt::new(&attempt).known_by(terms.correlation);
            let login = login::Beginning::new(engine, &self.snapshot, kept, login);
            return Admit::Later(Box::pin(login.admit(see)));
        }
        if !engine.decides_at_once(&self.snapshot, attempt.policy) {
            let (engine, pacer) = (Arc::clone(engine), pacer.cloned());
            let snapshot = Arc::clone(&self.snapshot);
            let kept = OwnedAttempt::new(&attempt).known_by(terms.correlation);
            let (look, wait) = (terms.look, terms.wait);
            return Admit::Later(Box::pin(async move {
                let arrival = {
                    let fields = kept.fields();
                    let (attempt, correlation) = (kept.attempt(&fields), kept.correlation.as_deref());
                    let mut decision = Decision::for_caller(correlation);
                    match pacer {
                        None => {
                            let deciding =
                                engine.decide_as(look.manner(), &snapshot, &attempt, &mut decision);
                            let decided = deciding.await;
                            Arrival::Admitted(see.admit(&engine, decided, &decision))
                        }
                        Some(pacer) => {
                            let ask = ask(&attempt, wait, correlation);
                            pacer
                                .admit(&snapshot, &ask, &mut decision, |by, decision| see.see(by, decision))
                                .await
                        }
                    }
                };
                drop((snapshot, kept));
                match arrival {
                    Arrival::Admitted(admitted) => admitted,
                    Arrival::Queued(turn) => turn.admission().await,
                }
            }));
        }
        let mut decision = Decision::for_caller(terms.correlation);
        let Some(pacer) = pacer else {
            let deciding = engine.decide_as(terms.look.manner(), &self.snapshot, &attempt, &mut decision);
            let decided = at_first_poll(deciding).unwrap_or_else(|| Err(Fault::late()));
            return Admit::Ready(Some(see.admit(engine, decided, &decision)));
        };
        let ask = ask(&attempt, terms.wait, terms.correlation);
        let see = |by: &Arc<Engine>, decision: &Decision<'_>| see.see(by, decision);
        match at_first_poll(pacer.admit(&self.snapshot, &ask, &mut decision, see)) {
            Some(Arrival::Admitted(admitted)) => Admit::Ready(Some(admitted)),
            Some(Arrival::Queued(turn)) => Admit::Later(Box::pin(turn.admission())),
            None => Admit::Ready(Some(Err(NotAdmitted::Fault(Fault::late())))),
        }
    }
}

/// An attempt that is decided, or queued.
pub(crate) enum Arrival<T> {
    Admitted(Admitted<T>),
    Queued(Turn<T>),
}

/// The attempt in the form that a pacer accepts.
fn ask<'a>(attempt: &Attempt<'a>, wait: Wait, correlation: Option<&'a str>) -> Ask<'a> {
    let (max_wait, priority, first) = match wait {
        Wait::No | Wait::AsRulesSay => (None, 0, First::Decide),
        Wait::AtMost { span, priority } => (Some(span), priority, First::Queue),
    };
    Ask { attempt: *attempt, max_wait, priority, correlation, first }
}

/// The door's `see`, and the terms that apply to the decision.
struct Seeing<F> {
    see: F,
    /// Keeps the attempt's holds for as long as [`Taken`] lives, if [`Holds::ByTaken`].
    leases: Option<Arc<Leases>>,
    unsettled: Unsettled,
}

impl<F> Seeing<F> {
    /// The admission of an attempt that was decided without waiting.
    #[inline]
    fn admit<T>(
        self,
        engine: &Arc<Engine>,
        decided: Result<(), Fault>,
        decision: &Decision<'_>,
    ) -> Admitted<T>
    where
        F: FnOnce(&Engine, &Decision<'_>) -> T,
    {
        decided?;
        let (seen, taken) = self.see(engine, decision);
        Ok(Admission { waited: Span::ZERO, seen, taken })
    }

    fn see<T>(self, engine: &Arc<Engine>, decision: &Decision<'_>) -> (T, Taken)
    where
        F: FnOnce(&Engine, &Decision<'_>) -> T,
    {
        let lease = self.lease(decision);
        let owes = self.unsettled == Unsettled::Refund || decision.policy().counts_outcomes();
        let taken = if owes || lease.is_some() {
            Taken::new(&engine.counters, decision, lease, self.unsettled)
        } else {
            Taken::default()
        };
        ((self.see)(engine, decision), taken)
    }

    /// Keeps the holds of the attempt alive, if [`Taken`] releases them.
    fn lease(&self, decision: &Decision<'_>) -> Option<Lease> {
        let (leases, id) = (self.leases.as_ref()?, decision.charges.id?);
        Some(leases.keep(decision, id))
    }
}

/// Polls a future once. Returns its value, or `None` if it is not ready.
pub(crate) fn at_first_poll<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

impl<T> Future for Admit<T> {
    type Output = Admitted<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Ready(admitted) => Poll::Ready(admitted.take().expect("an admission is awaited once")),
            Self::Later(future) => future.as_mut().poll(context),
        }
    }
}

impl<T> Unpin for Admit<T> {}

impl Deref for Pinned<'_> {
    type Target = Snapshot;

    fn deref(&self) -> &Snapshot {
        &self.snapshot
    }
}

impl From<Fault> for NotAdmitted {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl std::fmt::Display for NotAdmitted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLate { wait, bound, .. } => {
                write!(f, "the wait would be {wait}, longer than {bound} allows")
            }
            Self::Full { waiting } => write!(f, "{waiting} attempts are waiting already"),
            Self::Ended => f.write_str("the process is shutting down"),
            Self::Fault(fault) => fault.fmt(f),
        }
    }
}

impl std::error::Error for NotAdmitted {}
