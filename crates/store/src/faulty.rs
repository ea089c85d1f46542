//! A store for tests that passes calls on to another one, and fails, delays or loses them on demand.

use std::pin::Pin;
use std::sync::Arc;

use tollgate_core::store::{
    Answer, Counter, Forget, HoldsOrder, HoldsReport, Impairment, Refunded, SaveMark,
};
use tollgate_core::versioned_map::{Changes, Edit, Namespace};
use tollgate_core::{Charges, Outcome, Records, Store, StoreError, Ticket, Timestamp};

/// A store whose calls go through [`Faults`].
pub struct FaultyStore<F>(pub F);

/// What goes wrong, and the store behind it.
pub trait Faults: Send + Sync {
    /// The store that calls are passed on to.
    fn store(&self) -> &dyn Store;

    /// What happens to a call.
    fn meet(&self, call: Call<'_>) -> Meeting<'_>;

    /// Whether the store says that it answers at once.
    fn answers_at_once(&self) -> bool {
        false
    }

    /// The mark of everything that was taken so far.
    fn mark(&self) -> SaveMark {
        self.store().mark()
    }
}

/// Faults of a store that has records too.
pub trait RecordFaults: Faults {
    /// The records that calls are passed on to.
    fn records(&self) -> &dyn Records;
}

/// A call to the store or its records.
#[derive(Clone, Copy, Debug)]
pub enum Call<'c> {
    Now,
    Take,
    Peek,
    Refund,
    Holds(HoldsOrder<'c>),
    Forget,
    Retract(Ticket),
    Durable(SaveMark),
    Probe,
    Change(Namespace),
    Changes(Namespace),
    Secret,
}

/// Something to wait for.
pub type Wait<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// What happens to a call.
pub enum Meeting<'a> {
    /// It is passed on.
    Pass,
    /// It fails, and is not passed on.
    Fail(StoreError),
    /// It is passed on, and its answer is lost.
    Lose(StoreError),
    /// It is passed on after the first wait, and answered after the second.
    Around(Wait<'a>, Wait<'a>),
    /// What happens to it turns out later.
    Later(Pin<Box<dyn Future<Output = Meeting<'a>> + Send + 'a>>),
}

impl<'a> Meeting<'a> {
    /// It fails, because no server answers.
    pub fn unreachable() -> Self {
        Self::Fail(StoreError::Unavailable { reason: "no server is there".into() })
    }

    /// Does to a call what happens to it.
    pub fn pass<T: Send + Unpin + 'a>(
        self,
        ask: impl FnOnce() -> Answer<'a, T> + Send + 'a,
    ) -> Answer<'a, T> {
        match self {
            Self::Pass => ask(),
            Self::Fail(error) => Answer::ready(Err(error)),
            Self::Lose(error) => match ask() {
                Answer::Ready(Some(Err(refused))) => Answer::ready(Err(refused)),
                Answer::Ready(_) => Answer::ready(Err(error)),
                Answer::Later(answer) => Answer::Later(Box::pin(async move { answer.await.and(Err(error)) })),
            },
            Self::Around(before, after) => Answer::Later(Box::pin(async move {
                before.await;
                let answer = ask().await;
                after.await;
                answer
            })),
            Self::Later(meeting) => Answer::Later(Box::pin(async move { meeting.await.pass(ask).await })),
        }
    }

    /// It is passed on after a wait.
    pub fn after(wait: impl Future<Output = ()> + Send + 'a) -> Self {
        Self::Around(Box::pin(wait), Box::pin(std::future::ready(())))
    }

    /// It is passed on, and answered after a wait.
    pub fn answered_after(wait: impl Future<Output = ()> + Send + 'a) -> Self {
        Self::Around(Box::pin(std::future::ready(())), Box::pin(wait))
    }
}

impl Meeting<'static> {
    /// The same, for as long as a call lasts.
    fn shortened<'a>(self) -> Meeting<'a> {
        match self {
            Self::Pass => Meeting::Pass,
            Self::Fail(error) => Meeting::Fail(error),
            Self::Lose(error) => Meeting::Lose(error),
            Self::Around(before, after) => Meeting::Around(before, after),
            Self::Later(meeting) => Meeting::Later(Box::pin(async move { meeting.await.shortened() })),
        }
    }
}

/// Faults that are a function of the call.
pub struct Hook<F> {
    store: Arc<dyn Store>,
    meet: F,
}

impl<F: Fn(Call<'_>) -> Meeting<'static> + Send + Sync> FaultyStore<Hook<F>> {
    /// A store over another one, to which this happens.
    pub fn over(store: Arc<dyn Store>, meet: F) -> Self {
        Self(Hook { store, meet })
    }
}

impl<F: Fn(Call<'_>) -> Meeting<'static> + Send + Sync> Faults for Hook<F> {
    fn store(&self) -> &dyn Store {
        &*self.store
    }

    fn meet(&self, call: Call<'_>) -> Meeting<'_> {
        (self.meet)(call).shortened()
    }
}

/// As [`Hook`], over a store that has records too.
pub struct RecordHook<S, F> {
    inner: Arc<S>,
    meet: F,
}

impl<S, F> FaultyStore<RecordHook<S, F>>
where
    S: Store + Records,
    F: Fn(Call<'_>) -> Meeting<'static> + Send + Sync,
{
    /// A store over another one and its records, to which this happens.
    pub fn with_records(inner: Arc<S>, meet: F) -> Self {
        Self(RecordHook { inner, meet })
    }
}

impl<S: Store + Records, F: Fn(Call<'_>) -> Meeting<'static> + Send + Sync> Faults for RecordHook<S, F> {
    fn store(&self) -> &dyn Store {
        &*self.inner
    }

    fn meet(&self, call: Call<'_>) -> Meeting<'_> {
        (self.meet)(call).shortened()
    }
}

impl<S: Store + Records, F: Fn(Call<'_>) -> Meeting<'static> + Send + Sync> RecordFaults
    for RecordHook<S, F>
{
    fn records(&self) -> &dyn Records {
        &*self.inner
    }
}

impl<F: RecordFaults> RecordFaults for Arc<F> {
    fn records(&self) -> &dyn Records {
        (**self).records()
    }
}

impl<F: Faults> Faults for Arc<F> {
    fn store(&self) -> &dyn Store {
        (**self).store()
    }

    fn meet(&self, call: Call<'_>) -> Meeting<'_> {
        (**self).meet(call)
    }

    fn answers_at_once(&self) -> bool {
        (**self).answers_at_once()
    }

    fn mark(&self) -> SaveMark {
        (**self).mark()
    }
}

impl<F: Faults> FaultyStore<F> {
    fn pass<'a, T: Send + Unpin + 'a>(
        &'a self,
        call: Call<'_>,
        ask: impl FnOnce(&'a dyn Store) -> Answer<'a, T> + Send + 'a,
    ) -> Answer<'a, T> {
        self.0.meet(call).pass(move || ask(self.0.store()))
    }
}

impl<F: Faults> Store for FaultyStore<F> {
    fn now(&self) -> Answer<'_, Timestamp> {
        self.pass(Call::Now, |store| store.now())
    }

    fn take<'a>(&'a self, charges: &'a Charges<'_>, outcome: &'a mut Outcome) -> Answer<'a, ()> {
        self.pass(Call::Take, move |store| store.take(charges, outcome))
    }

    fn peek<'a>(&'a self, charges: &'a Charges<'_>, outcome: &'a mut Outcome) -> Answer<'a, ()> {
        self.pass(Call::Peek, move |store| store.peek(charges, outcome))
    }

    fn refund<'a>(&'a self, charges: &'a Charges<'_>, taken_at: Timestamp) -> Answer<'a, Refunded> {
        self.pass(Call::Refund, move |store| store.refund(charges, taken_at))
    }

    fn holds<'a>(&'a self, counter: &'a Counter<'a>, order: HoldsOrder<'a>) -> Answer<'a, HoldsReport> {
        self.pass(Call::Holds(order), move |store| store.holds(counter, order))
    }

    fn forget<'a>(&'a self, what: Forget<'a>) -> Answer<'a, ()> {
        self.pass(Call::Forget, move |store| store.forget(what))
    }

    fn retract<'a>(&'a self, charges: &'a Charges<'_>) -> Answer<'a, ()> {
        self.pass(Call::Retract(charges.ticket), move |store| store.retract(charges))
    }

    fn mark(&self) -> SaveMark {
        self.0.mark()
    }

    fn durable(&self, mark: SaveMark) -> Answer<'_, ()> {
        self.pass(Call::Durable(mark), move |store| store.durable(mark))
    }

    fn answers_at_once(&self) -> bool {
        self.0.answers_at_once()
    }

    fn probe(&self) -> Answer<'_, Vec<Impairment>> {
        self.pass(Call::Probe, |store| store.probe())
    }
}

impl<F: RecordFaults> Records for FaultyStore<F> {
    fn change<'a>(&'a self, space: Namespace, edits: &'a [Edit]) -> Answer<'a, Vec<bool>> {
        self.0.meet(Call::Change(space)).pass(move || self.0.records().change(space, edits))
    }

    fn changes(&self, space: Namespace, since: Option<u64>) -> Answer<'_, Changes> {
        self.0.meet(Call::Changes(space)).pass(move || self.0.records().changes(space, since))
    }

    fn secret(&self) -> Answer<'_, [u8; 32]> {
        self.0.meet(Call::Secret).pass(|| self.0.records().secret())
    }
}
