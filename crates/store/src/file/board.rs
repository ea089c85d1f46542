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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::task::Wake;
    use std::time::Duration;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicU64);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn board() -> Arc<Board> {
        Arc::new(Board::default())
    }

    #[expect(clippy::disallowed_methods, reason = "the board waits in real time")]
    fn in_an_hour() -> Instant {
        Instant::now() + Duration::from_secs(3_600)
    }

    /// Begins a saving that was requested.
    fn begin(board: &Board) -> Job {
        let state = board.state.lock();
        assert!(state.wanted > state.stats.begun, "nothing was requested");
        drop(state);
        board.next(in_an_hour())
    }

    fn succeed(board: &Board) -> bool {
        board.finish(Ok(1), Span::ZERO)
    }

    fn fail(board: &Board) -> bool {
        board.finish(Err("full".to_owned()), Span::ZERO)
    }

    fn poll(saved: &mut Saved) -> Poll<Result<(), StoreError>> {
        Pin::new(saved).poll(&mut Context::from_waker(Waker::noop()))
    }

    fn is_requested(board: &Board) -> bool {
        let state = board.state.lock();
        state.wanted > state.stats.begun
    }

    #[test]
    fn a_change_during_a_saving_waits_for_the_next_one() {
        let board = board();
        let mut early = board.request();
        assert_eq!(begin(&board), Job::Save);
        let mut late = board.request();
        assert!(poll(&mut early).is_pending() && poll(&mut late).is_pending());
        succeed(&board);
        assert_eq!(poll(&mut early), Poll::Ready(Ok(())));
        assert!(poll(&mut late).is_pending());
        assert_eq!(begin(&board), Job::Save);
        succeed(&board);
        assert_eq!(poll(&mut late), Poll::Ready(Ok(())));
        assert!(!is_requested(&board));
    }

    #[test]
    fn every_waiting_caller_is_woken_and_one_that_gave_up_is_not() {
        let board = board();
        let callers: [Arc<Woken>; 4] = Default::default();
        let mark = board.mark();
        let mut waiting: Vec<Saved> =
            [board.request(), board.request(), board.request_since(mark), board.request_since(mark)].into();
        for (saved, woken) in waiting.iter_mut().zip(&callers) {
            let waker = Waker::from(Arc::clone(woken));
            assert!(Pin::new(saved).poll(&mut Context::from_waker(&waker)).is_pending());
        }
        drop(waiting.remove(0));
        begin(&board);
        succeed(&board);
        assert_eq!(callers.each_ref().map(|woken| woken.0.load(Ordering::SeqCst)), [0, 1, 1, 1]);
    }

    #[test]
    fn a_mark_needs_one_saving_that_began_after_it() {
        let board = board();
        let before = board.mark();
        board.request();
        begin(&board);
        let during = board.mark();
        let mut running = board.request_since(before);
        assert!(!is_requested(&board), "the running one will do");
        let mut later = board.request_since(during);
        assert!(is_requested(&board), "the running one may miss it");
        assert!(poll(&mut running).is_pending() && poll(&mut later).is_pending());
        succeed(&board);
        assert_eq!(poll(&mut running), Poll::Ready(Ok(())));
        assert!(poll(&mut later).is_pending());
        begin(&board);
        succeed(&board);
        assert_eq!(poll(&mut later), Poll::Ready(Ok(())));
        for mark in [before, during] {
            assert_eq!(poll(&mut board.request_since(mark)), Poll::Ready(Ok(())));
            assert!(!is_requested(&board), "it is saved already");
        }
        let mut unsaved = board.request_since(board.mark());
        assert!(is_requested(&board) && poll(&mut unsaved).is_pending());
    }

    #[test]
    fn a_mark_whose_saving_failed_needs_another_one() {
        let board = board();
        let mark = board.mark();
        let mut first = board.request();
        begin(&board);
        fail(&board);
        let reason = "the file cannot be written: full".to_owned();
        assert_eq!(poll(&mut first), Poll::Ready(Err(StoreError::Unavailable { reason })));
        let mut again = board.request_since(mark);
        assert!(is_requested(&board) && poll(&mut again).is_pending());
        begin(&board);
        succeed(&board);
        assert_eq!(poll(&mut again), Poll::Ready(Ok(())));
        assert_eq!(poll(&mut first), Poll::Ready(Ok(())), "a later saving has its change too");
    }

    #[test]
    fn idle_keys_are_removed_at_every_interval_and_at_a_flush() {
        let board = board();
        let now = in_an_hour() - Duration::from_secs(3_600);
        assert_eq!(board.next(now), Job::SweepAndSave, "the interval is over");
        succeed(&board);
        std::thread::scope(|scope| {
            let flush = scope.spawn(|| board.flush());
            while !is_requested(&board) {
                std::thread::yield_now();
            }
            board.request();
            assert_eq!(begin(&board), Job::SweepAndSave);
            succeed(&board);
            assert_eq!(flush.join().unwrap(), Ok(()));
        });
        board.request();
        assert_eq!(begin(&board), Job::Save, "once for each flush");
        succeed(&board);
        board.stop();
        assert_eq!(board.next(in_an_hour()), Job::Finish);
    }

    #[test]
    fn the_listener_hears_only_when_saving_starts_to_fail_or_to_work_again() {
        let board = board();
        let results = [true, true, false, false, false, true, true, false].map(|works| {
            board.request();
            begin(&board);
            if works { succeed(&board) } else { fail(&board) }
        });
        assert_eq!(results, [false, false, true, false, false, true, false, true]);
    }

    #[test]
    fn statistics_count_savings_keys_and_errors() {
        let board = board();
        for keys in [3, 4] {
            board.request();
            begin(&board);
            board.finish(Ok(keys), Span::from_micros(keys));
        }
        for reason in ["one", "two"] {
            board.request();
            begin(&board);
            board.finish(Err(reason.to_owned()), Span::from_secs(1));
        }
        let expected = FlushStats {
            begun: 4,
            durable: 2,
            flushes: 2,
            keys_written: 7,
            last_duration: Span::from_secs(1),
            errors: 2,
            last_error: Some("two".to_owned()),
        };
        assert_eq!(board.stats(), expected);
    }
}
