//! The jobs of this process, in the order in which they run. Two jobs at the same counter never run side by side,
//! so that a node never waits for a lock that it holds itself. Jobs that wait settle together in one transaction, so
//! that many decisions cost one commit.

mod queue;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};
use tollgate_core::StoreError;

use crate::database::Database;
use crate::work::{Caller, Work};
use queue::{JobBatch, Queue};

/// Work that waits or runs.
pub(crate) struct Job {
    pub(crate) work: Work,
    locks: Vec<i64>,
    pub(crate) deadline: Instant,
    /// Whether a transaction has left this job out. The next transaction waits for the job's locks.
    was_left_out: bool,
}

/// Jobs that a transaction left out, and the locks that other nodes had.
#[derive(Default)]
pub(crate) struct LeftOut {
    pub(crate) jobs: Vec<Job>,
    pub(crate) taken: HashSet<i64>,
}

/// The behaviour of a transaction if other nodes hold some of its locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Locking {
    /// It leaves out the jobs that need such a lock. So unrelated jobs can share a transaction, and no job
    /// waits for the lock of an unrelated one.
    OnlyFree,
    /// It waits for the locks.
    Wait,
}

/// The shortest time between two searches for jobs whose deadline is over.
const EXPIRY_PAUSE: Duration = Duration::from_millis(5);

/// The queue of a store, and the transactions that it starts.
pub(crate) struct Lanes {
    database: Arc<Database>,
    handle: Handle,
    queue: Mutex<Queue>,
}

impl Lanes {
    /// Makes a queue that runs at most this many transactions at once.
    pub(crate) fn new(database: Arc<Database>, handle: Handle, most_running: usize) -> Self {
        Self { database, handle, queue: Mutex::new(Queue::new(most_running)) }
    }

    /// Runs work, alone or in one transaction with other jobs. The work is done even if the caller stops
    /// waiting.
    pub(crate) async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(Caller<T>) -> Work,
        deadline: Instant,
    ) -> Result<T, StoreError> {
        let (caller, answered) = Caller::new();
        let can_start = self.queue.lock().add(Job::new(work(caller), deadline))?;
        if can_start {
            self.start();
        }
        self.watch();
        let gone = StoreError::Unavailable { reason: "the store was stopped".into() };
        answered.await.unwrap_or(Err(gone))
    }

    /// Starts as many transactions as may run. It first lets other tasks run: callers that were answered together
    /// ask again together, and the first of them would get a transaction of its own.
    fn start(self: &Arc<Self>) {
        if !self.queue.lock().begin_start() {
            return;
        }
        let lanes = Arc::clone(self);
        self.handle.spawn(async move {
            yield_now().await;
            lanes.queue.lock().end_start();
            loop {
                let next = lanes.queue.lock().next(Instant::now());
                let Some(JobBatch { jobs, locks, locking }) = next else { return };
                let running =
                    Running { lanes: Arc::clone(&lanes), locks, locking, left_out: LeftOut::default() };
                lanes.handle.spawn(running.run(jobs));
            }
        });
    }

    /// Answers each job that still waits at its deadline with an error. Nothing was done for it.
    fn watch(self: &Arc<Self>) {
        if !self.queue.lock().begin_watch() {
            return;
        }
        let lanes = Arc::clone(self);
        self.handle.spawn(async move {
            loop {
                let next = lanes.queue.lock().expire(Instant::now());
                let Some(next) = next else { return };
                sleep_until(next.max(Instant::now() + EXPIRY_PAUSE)).await;
            }
        });
    }
}

impl Job {
    fn new(work: Work, deadline: Instant) -> Self {
        let mut locks: Vec<i64> = work.names().map(|name| name.lock).collect();
        locks.sort_unstable();
        locks.dedup();
        Self { work, locks, deadline, was_left_out: false }
    }

    /// Whether the job needs one of these locks.
    pub(crate) fn needs(&self, locks: &HashSet<i64>) -> bool {
        self.locks.iter().any(|lock| locks.contains(lock))
    }
}

/// A running transaction. Dropping it frees its counters, so the next transaction can start however this one
/// ended.
struct Running {
    lanes: Arc<Lanes>,
    locks: HashSet<i64>,
    locking: Locking,
    left_out: LeftOut,
}

impl Running {
    async fn run(mut self, jobs: Vec<Job>) {
        self.left_out = self.lanes.database.transact(jobs, self.locking).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let left_out = std::mem::take(&mut self.left_out);
        self.lanes.queue.lock().end(self.locking, &self.locks, left_out, Instant::now());
        self.lanes.start();
        self.lanes.watch();
    }
}
