//! Connects the calls that want their changes saved with the writer thread.
//!
//! Savings are numbered. A call that changed something waits for a saving that begins after the change, since that
//! cannot miss it. It requests one if none has begun.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use tollgate_core::store::SaveMark;
use tollgate_core::{Span, StoreError};

/// Statistics of saving.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlushStats {
    /// How many savings have begun.
    pub begun: u64,
    /// The last saving that succeeded: everything that changed before it began is in the file.
    pub durable: u64,
    /// How many succeeded.
    pub flushes: u64,
    /// How many keys they wrote or removed.
    pub keys_written: u64,
    /// How long the last one took.
    pub last_duration: Span,
    /// How many failed. The next saving writes what they would have written.
    pub errors: u64,
    /// Why the last failed one failed.
    pub last_error: Option<String>,
}

#[derive(Default)]
pub(super) struct Board {
    state: Mutex<State>,
    /// Notified when there is work.
    work: Condvar,
    /// Notified when a saving is done.
    done: Condvar,
}

#[derive(Default)]
struct State {
    /// The last saving that a call waits for.
    wanted: u64,
    finished: u64,
    sweep_wanted: bool,
    stopping: bool,
    stats: FlushStats,
    waiting: BTreeMap<u64, Waker>,
    next_waiter: u64,
}

/// The writer's next job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// Save what has changed.
    Save,
    /// Remove idle keys, then save.
    SweepAndSave,
    /// Save for the last time.
    Finish,
}

/// Waits for one saving.
pub(super) struct Saved {
    board: Arc<Board>,
    number: u64,
    waiter: u64,
}

impl Board {
    /// Requests a saving of all changes so far.
    pub(super) fn request(self: &Arc<Self>) -> Saved {
        let state = &mut *self.state.lock();
        state.next_waiter += 1;
        Saved { board: Arc::clone(self), number: self.want(state), waiter: state.next_waiter }
    }

    /// Marks all changes so far.
    pub(super) fn mark(&self) -> SaveMark {
        SaveMark(self.state.lock().stats.begun)
    }

    /// Waits for a saving that began after a mark. Requests one if none has, or if it failed.
    pub(super) fn request_since(self: &Arc<Self>, SaveMark(mark): SaveMark) -> Saved {
        let state = &mut *self.state.lock();
        state.next_waiter += 1;
        let FlushStats { begun, durable, .. } = state.stats;
        let number = if durable > mark {
            durable
        } else if begun > mark && begun > state.finished {
            begun
        } else {
            self.want(state)
        };
        Saved { board: Arc::clone(self), number, waiter: state.next_waiter }
    }

    /// Saves all changes so far, and blocks until that is done.
    pub(super) fn flush(&self) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        state.sweep_wanted = true;
        let number = self.want(&mut state);
        loop {
            if let Some(result) = state.result(number) {
                return result;
            }
            self.done.wait(&mut state);
        }
    }

    fn want(&self, state: &mut State) -> u64 {
        state.wanted = state.stats.begun + 1;
        self.work.notify_one();
        state.wanted
    }

    pub(super) fn stop(&self) {
        self.state.lock().stopping = true;
        self.work.notify_one();
    }

    pub(super) fn stats(&self) -> FlushStats {
        self.state.lock().stats.clone()
    }

    /// Waits for work, at the latest until `sweep_at`, and begins it.
    pub(super) fn next(&self, sweep_at: Instant) -> Job {
        let mut state = self.state.lock();
        let mut late = false;
        while state.wanted <= state.stats.begun && !state.stopping && !late {
            late = self.work.wait_until(&mut state, sweep_at).timed_out();
        }
        state.stats.begun += 1;
        let sweep = std::mem::take(&mut state.sweep_wanted) || late;
        match (state.stopping, sweep) {
            (true, _) => Job::Finish,
            (false, true) => Job::SweepAndSave,
            (false, false) => Job::Save,
        }
    }

    /// Publishes the result of the current saving. Returns whether saving started to fail or to work again.
    pub(super) fn finish(&self, saved: Result<u64, String>, took: Span) -> bool {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let stats = &mut state.stats;
        let healthy = state.finished == stats.durable;
        state.finished = stats.begun;
        stats.last_duration = took;
        match saved {
            Ok(keys) => {
                stats.durable = stats.begun;
                stats.flushes += 1;
                stats.keys_written += keys;
            }
            Err(reason) => {
                stats.errors += 1;
                stats.last_error = Some(reason);
            }
        }
        let changes = healthy != (state.finished == stats.durable);
        let waiting = std::mem::take(&mut state.waiting);
        drop(guard);
        self.done.notify_all();
        waiting.into_values().for_each(Waker::wake);
        changes
    }
}

impl State {
    /// The result of a saving, if it is done. A later success makes up for a failure.
    fn result(&self, number: u64) -> Option<Result<(), StoreError>> {
        if self.stats.durable >= number {
            return Some(Ok(()));
        }
        let reason = || self.stats.last_error.clone().unwrap_or_default();
        (self.finished >= number).then(|| {
            Err(StoreError::Unavailable { reason: format!("the file cannot be written: {}", reason()) })
        })
    }
}

impl Future for Saved {
    type Output = Result<(), StoreError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let state = &mut *self.board.state.lock();
        match state.result(self.number) {
            Some(result) => Poll::Ready(result),
            None => {
                state.waiting.insert(self.waiter, context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Saved {
    fn drop(&mut self) {
        self.board.state.lock().waiting.remove(&self.waiter);
    }
}
