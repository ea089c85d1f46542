//! Engines that share a store over links that fail on demand.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Waker};

use parking_lot::Mutex;
use tollgate_core::store::Answer;
use tollgate_core::versioned_map::{Changes, Edit, Namespace};
use tollgate_core::{StoreError, Ticket};
use tollgate_engine::breaker::Breaker;
use tollgate_engine::{Fallback, Health};
use tollgate_store::faulty::{Call, Faults, FaultyStore, Meeting};

use super::*;

/// What a link does with a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Passes it on.
    #[default]
    Up,
    /// Passes it on, and loses the reply.
    LosesAnswers,
    /// Loses it.
    LosesQuestions,
    /// Reports at once that no server is there.
    Unreachable,
    /// Reports that the store is full.
    Full,
    /// Reports that a key cannot be read.
    Damaged,
    /// Reports that other callers keep the key busy.
    Busy,
    /// Passes it on, and withholds records that were read until the mode changes.
    ReadsSlowly,
    /// Passes it on, unless it changes records: then it never replies.
    WritesNoRecords,
    /// Neither passes it on nor replies, until the mode changes.
    Hangs,
    /// The same, but a call ends with [`TIMEOUT`].
    Stopped,
}

/// How long a call waits for a store that is stopped.
pub(crate) const TIMEOUT: Span = Span::from_millis(50);

/// The store that all nodes share.
pub(crate) struct Centre {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) memory: MemoryStore,
}

/// One node's connection to the store.
pub(crate) struct Link {
    pub(crate) centre: Arc<Centre>,
    mode: Mutex<Mode>,
    wakers: Mutex<Vec<Waker>>,
    /// How often the store was called for anything but a probe, and for a probe.
    pub(crate) calls: AtomicUsize,
    pub(crate) probes: AtomicUsize,
    /// How many refunds the store was asked for.
    pub(crate) refunds: AtomicUsize,
    pub(crate) retracted: Mutex<Vec<Ticket>>,
    /// An entry of the lists that is gone, without the version telling.
    pub(crate) lost: Mutex<Option<String>>,
    /// A record that is replaced without a new version.
    pub(crate) replaced: Mutex<Option<(String, Vec<u8>)>>,
}

/// One engine, its link, and its own counters.
pub(crate) struct Node {
    pub(crate) engine: Arc<Engine>,
    pub(crate) link: Arc<Link>,
    pub(crate) local: Arc<MemoryStore>,
    pub(crate) clock: Arc<ManualClock>,
}

impl Centre {
    pub(crate) fn new() -> Arc<Self> {
        let clock = Arc::new(ManualClock::at(START));
        let memory = MemoryStore::new(Arc::clone(&clock) as Arc<dyn Clock>, 100_000);
        Arc::new(Self { clock, memory })
    }

    /// A node of these policies.
    pub(crate) fn node(self: &Arc<Self>, policies: Policies) -> Node {
        self.node_behind(policies, Mode::Up)
    }

    /// A node that starts while its link is in this mode.
    pub(crate) fn node_behind(self: &Arc<Self>, policies: Policies, mode: Mode) -> Node {
        let link = Arc::new(Link {
            centre: Arc::clone(self),
            mode: Mutex::new(mode),
            wakers: Mutex::default(),
            calls: AtomicUsize::new(0),
            probes: AtomicUsize::new(0),
            refunds: AtomicUsize::new(0),
            retracted: Mutex::default(),
            lost: Mutex::default(),
            replaced: Mutex::default(),
        });
        let clock = Arc::clone(&self.clock);
        let local = Arc::new(MemoryStore::new(Arc::clone(&clock) as Arc<dyn Clock>, 100_000));
        let parts = Parts {
            store: Arc::new(FaultyStore(Arc::clone(&link))),
            records: Arc::clone(&link) as Arc<dyn Records>,
            fallback: Some(Fallback {
                store: Arc::clone(&local) as Arc<dyn Store>,
                clock: Arc::clone(&clock) as Arc<dyn Clock>,
                probe_every: Span::from_secs(10),
            }),
        };
        let engine = Arc::new(block_on(Engine::start(policies, parts)).unwrap());
        Node { engine, link, local, clock }
    }
}

impl Link {
    pub(crate) fn set(&self, mode: Mode) {
        *self.mode.lock() = mode;
        self.wakers.lock().drain(..).for_each(Waker::wake);
    }

    pub(crate) fn mode(&self) -> Mode {
        *self.mode.lock()
    }

    /// What happens to a call, as the mode has it.
    fn fault(&self) -> Meeting<'_> {
        match self.mode() {
            Mode::Up | Mode::ReadsSlowly | Mode::WritesNoRecords => Meeting::Pass,
            Mode::LosesAnswers => Meeting::Lose(StoreError::TimedOut),
            Mode::LosesQuestions => Meeting::Fail(StoreError::TimedOut),
            Mode::Unreachable => Meeting::unreachable(),
            Mode::Busy => Meeting::Fail(StoreError::Busy),
            Mode::Full => Meeting::Fail(StoreError::Full { max_keys: 1 }),
            Mode::Damaged => Meeting::Fail(StoreError::Damaged { key: "k".into(), reason: "bent".into() }),
            Mode::Hangs => Meeting::Later(Box::pin(std::future::poll_fn(move |context| {
                if self.mode() == Mode::Hangs {
                    self.wakers.lock().push(context.waker().clone());
                    return Poll::Pending;
                }
                Poll::Ready(self.fault())
            }))),
            Mode::Stopped => {
                let gives_up = self.centre.clock.now() + TIMEOUT;
                Meeting::Later(Box::pin(std::future::poll_fn(move |context| {
                    if self.mode() != Mode::Stopped {
                        return Poll::Ready(self.fault());
                    }
                    if self.centre.clock.now() >= gives_up {
                        return Poll::Ready(Meeting::Fail(StoreError::TimedOut));
                    }
                    self.wakers.lock().push(context.waker().clone());
                    Poll::Pending
                })))
            }
        }
    }

    fn call<'a, T: Send + Unpin + 'a>(
        &'a self,
        ask: impl FnOnce() -> Answer<'a, T> + Send + 'a,
    ) -> Answer<'a, T> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.fault().pass(ask)
    }
}

impl Faults for Link {
    fn store(&self) -> &dyn Store {
        &self.centre.memory
    }

    fn meet(&self, call: Call<'_>) -> Meeting<'_> {
        match call {
            Call::Probe => self.probes.fetch_add(1, Ordering::SeqCst),
            _ => self.calls.fetch_add(1, Ordering::SeqCst),
        };
        if let Call::Refund = call {
            self.refunds.fetch_add(1, Ordering::SeqCst);
        }
        let fault = self.fault();
        if let (Call::Retract(ticket), Meeting::Pass | Meeting::Lose(_)) = (call, &fault) {
            self.retracted.lock().push(ticket);
        }
        fault
    }
}

impl Records for Link {
    fn change<'a>(&'a self, space: Namespace, edits: &'a [Edit]) -> Answer<'a, Vec<bool>> {
        if self.mode() == Mode::WritesNoRecords {
            return Answer::Later(Box::pin(std::future::pending()));
        }
        self.call(move || self.centre.memory.change(space, edits))
    }

    fn changes(&self, space: Namespace, since: Option<u64>) -> Answer<'_, Changes> {
        let read = move || -> Result<Changes, StoreError> {
            let mut changes = block_on(self.centre.memory.changes(space, since))?;
            if let Some(lost) = &*self.lost.lock()
                && space == Namespace::Lists
            {
                changes.entries.retain(|(name, _)| name != lost);
                changes.size -= 1;
            }
            if let Some((name, value)) = &*self.replaced.lock() {
                let same = changes.entries.iter_mut().filter(|(own, _)| own == name);
                same.for_each(|(_, own)| *own = Some(value.clone()));
            }
            Ok(changes)
        };
        if self.mode() != Mode::ReadsSlowly {
            return self.call(move || Answer::ready(read()));
        }
        let mut read = Some(read());
        Answer::Later(Box::pin(std::future::poll_fn(move |context| match self.mode() {
            Mode::ReadsSlowly => {
                self.wakers.lock().push(context.waker().clone());
                Poll::Pending
            }
            _ => Poll::Ready(read.take().expect("polled no more once it is ready")),
        })))
    }

    fn secret(&self) -> Answer<'_, [u8; 32]> {
        self.call(|| Answer::ready(Ok(self.centre.memory.secret())))
    }
}

impl Node {
    pub(crate) fn advance(&self, span: Span) {
        self.clock.advance(span);
    }

    /// The result of an attempt: whether it was allowed, and how that was decided.
    pub(crate) fn decide(&self, policy: &str, fields: &[(&str, &str)]) -> (bool, Origin) {
        let pinned = self.engine.pin();
        let decision = decide(&self.engine, &pinned, policy, fields).unwrap();
        (decision.allowed(), decision.origin)
    }

    pub(crate) fn tend(&self) {
        block_on(self.engine.tend());
    }

    /// Waits until the next probe is due, and runs it and those that confirm it.
    pub(crate) fn tend_later(&self) {
        self.advance(Span::from_secs(1));
        self.tend();
        for _ in 1..Breaker::PROBES {
            if self.engine.counters.health() != Health::Up {
                self.advance(Span::from_millis(250));
                self.tend();
            }
        }
    }

    /// The number of decisions made without the store for a reason.
    pub(crate) fn degraded(&self, policy: &str, reason: Reason) -> u64 {
        let all = self.engine.counters.store_meters().unwrap().degraded();
        let own = all.into_iter().filter(|(name, why, _)| **name == *policy && *why == reason);
        own.map(|(_, _, count)| count).sum()
    }

    pub(crate) fn calls(&self) -> usize {
        self.link.calls.load(Ordering::SeqCst)
    }
}
