//! The attempts that wait in the engine's pacer, each with its line of the log.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use hashbrown::HashMap;
use tollgate_core::{Span, Timestamp};
use tollgate_engine::Admit;
use tollgate_engine::admit::Admitted;

use crate::lane::Moment;
use crate::order::Entry;

/// The waiting attempts. The pacer bounds their number.
pub(crate) struct WaitRoom<T> {
    waiting: HashMap<u64, (Deferred, Admit<T>)>,
    woken: Arc<Woken>,
}

/// The numbers of the attempts that the pacer woke.
#[derive(Default)]
struct Woken(Mutex<VecDeque<u64>>);

/// Records the number of an attempt when the pacer wakes it.
struct WakeUp {
    number: u64,
    woken: Arc<Woken>,
}

/// An attempt that waits.
pub(crate) struct Deferred {
    pub(crate) policy: Box<str>,
    pub(crate) route: Option<Box<str>>,
    at: Timestamp,
    number: u64,
    duration: Span,
    status: u16,
    agent: u64,
    values: Vec<Option<Box<str>>>,
}

impl<T> Default for WaitRoom<T> {
    fn default() -> Self {
        Self { waiting: HashMap::new(), woken: Arc::default() }
    }
}

impl<T> WaitRoom<T> {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds an attempt. It counts as woken, because the pacer gets its waker only at the first poll.
    pub(crate) fn join(&mut self, attempt: Deferred, admit: Admit<T>) {
        let number = attempt.number;
        self.waiting.insert(number, (attempt, admit));
        self.woken.lock().push_back(number);
    }

    /// Takes an attempt whose wait is over.
    pub(crate) fn take_decided(&mut self) -> Option<(Deferred, Admitted<T>)> {
        loop {
            let number = self.woken.lock().pop_front()?;
            let Some((_, admit)) = self.waiting.get_mut(&number) else { continue };
            let waker = Waker::from(Arc::new(WakeUp { number, woken: Arc::clone(&self.woken) }));
            if let Poll::Ready(admitted) = Pin::new(admit).poll(&mut Context::from_waker(&waker)) {
                let (attempt, _) = self.waiting.remove(&number)?;
                return Some((attempt, admitted));
            }
        }
    }
}

impl Woken {
    fn lock(&self) -> MutexGuard<'_, VecDeque<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for WakeUp {
    fn wake(self: Arc<Self>) {
        self.woken.lock().push_back(self.number);
    }
}

impl Deferred {
    pub(crate) fn new(policy: &str, route: Option<&str>, moment: &Moment<'_>) -> Self {
        let Entry { at, duration, status, agent, .. } = *moment.entry;
        Self {
            policy: policy.into(),
            route: route.map(Into::into),
            at,
            number: moment.number,
            duration,
            status,
            agent,
            values: moment.values.iter().map(|value| value.map(Into::into)).collect(),
        }
    }

    /// Calls `see` with the attempt in its original form.
    pub(crate) fn with<T>(&self, see: impl FnOnce(&Moment<'_>) -> T) -> T {
        let values: Vec<Option<&str>> = self.values.iter().map(Option::as_deref).collect();
        let entry = Entry::bare(self.at, self.duration, self.status, self.agent);
        see(&Moment { number: self.number, entry: &entry, values: &values })
    }
}
