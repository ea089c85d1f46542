//! Who waits for whom in this process. Work on the same counters never runs side by side: it waits here,
//! and takes and peeks that waited for each other settle together in one transaction. So a hot key costs
//! one commit for many decisions, and a node never waits for a lock that it holds itself.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};
use tollgate_core::StoreError;

use crate::database::Database;
use crate::work::{Reply, Work};

/// Work that waits or runs.
pub(crate) struct Job {
    pub(crate) work: Work,
    locks: Vec<i64>,
    pub(crate) deadline: Instant,
    answer: oneshot::Sender<Result<Reply, StoreError>>,
}

/// The most keys that one transaction locks.
const MOST_KEYS: usize = 64;
/// The most attempts that settle together.
const MOST_JOBS: usize = 256;
/// The most that wait.
const MOST_WAITING: usize = 10_000;

/// The queue of a store.
pub(crate) struct Lanes {
    database: Arc<Database>,
    handle: Handle,
    /// The most transactions at once.
    most_running: usize,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Job>,
    busy: HashSet<i64>,
    running: usize,
    /// Whether a task looks after those that have waited for too long.
    timed: bool,
}

impl Job {
    pub(crate) fn answer(self, result: Result<Reply, StoreError>) {
        // A caller that is gone needs no answer.
        let _ = self.answer.send(result);
    }
}

impl Lanes {
    pub(crate) fn new(database: Arc<Database>, handle: Handle, most_running: usize) -> Self {
        Self { database, handle, most_running, queue: Mutex::default() }
    }

    /// Does some work, alone or together with others. It is done even if the caller goes away.
    pub(crate) async fn run(self: &Arc<Self>, work: Work, deadline: Instant) -> Result<Reply, StoreError> {
        let (answer, answered) = oneshot::channel();
        let mut locks: Vec<i64> = work.names().map(|name| name.lock).collect();
        locks.sort_unstable();
        locks.dedup();
        let full = {
            let mut queue = self.queue.lock();
            let full = queue.waiting.len() >= MOST_WAITING;
            if !full {
                queue.waiting.push_back(Job { work, locks, deadline, answer });
            }
            full
        };
        if full {
            return Err(StoreError::Busy);
        }
        self.start();
        self.watch();
        let gone = StoreError::Unavailable { reason: "the store was stopped".into() };
        answered.await.unwrap_or(Err(gone))
    }

    /// Starts as many transactions as there may be.
    fn start(self: &Arc<Self>) {
        loop {
            let Some((jobs, locks)) = self.queue.lock().next(self.most_running) else { return };
            let running = Running { lanes: Arc::clone(self), locks };
            self.handle.spawn(async move { running.lanes.database.transact(jobs).await });
        }
    }

    /// Sees to it that nobody waits for longer than its deadline. Nothing was done for who did.
    fn watch(self: &Arc<Self>) {
        {
            let mut queue = self.queue.lock();
            if queue.waiting.is_empty() || std::mem::replace(&mut queue.timed, true) {
                return;
            }
        }
        let lanes = Arc::clone(self);
        self.handle.spawn(async move {
            loop {
                let next = lanes.queue.lock().expire(Instant::now());
                let Some(next) = next else { return };
                sleep_until(next).await;
            }
        });
    }
}

/// A transaction that runs. Its counters are free for the next one however it ends.
struct Running {
    lanes: Arc<Lanes>,
    locks: HashSet<i64>,
}

impl Drop for Running {
    fn drop(&mut self) {
        {
            let mut queue = self.lanes.queue.lock();
            queue.running -= 1;
            for lock in &self.locks {
                queue.busy.remove(lock);
            }
        }
        self.lanes.start();
    }
}

impl Queue {
    /// What runs next: the first that no running transaction keeps waiting, and those behind it that share
    /// a counter with it. Nobody overtakes another that waits for the same counter.
    fn next(&mut self, most_running: usize) -> Option<(Vec<Job>, HashSet<i64>)> {
        if self.running >= most_running || self.waiting.is_empty() {
            return None;
        }
        let (mut jobs, mut locks) = (Vec::<Job>::new(), HashSet::new());
        let mut reserved: HashSet<i64> = HashSet::new();
        let mut rest = VecDeque::with_capacity(self.waiting.len());
        for job in self.waiting.drain(..) {
            let is_kept = job.locks.iter().any(|lock| self.busy.contains(lock) || reserved.contains(lock));
            let joins = || match jobs.first() {
                None => true,
                Some(first) => {
                    let more = job.locks.iter().filter(|lock| !locks.contains(*lock)).count();
                    first.work.is_shareable()
                        && job.work.is_shareable()
                        && more < job.locks.len()
                        && locks.len() + more <= MOST_KEYS
                        && jobs.len() < MOST_JOBS
                }
            };
            if !is_kept && joins() {
                locks.extend(job.locks.iter().copied());
                jobs.push(job);
            } else {
                reserved.extend(job.locks.iter().copied());
                rest.push_back(job);
            }
        }
        self.waiting = rest;
        if jobs.is_empty() {
            return None;
        }
        self.busy.extend(locks.iter().copied());
        self.running += 1;
        Some((jobs, locks))
    }

    /// Refuses those who have waited for too long; when to look again, if anybody waits.
    fn expire(&mut self, now: Instant) -> Option<Instant> {
        let (late, waiting): (VecDeque<Job>, VecDeque<Job>) =
            self.waiting.drain(..).partition(|job| job.deadline <= now);
        self.waiting = waiting;
        late.into_iter().for_each(|job| job.answer(Err(StoreError::Busy)));
        let next = self.waiting.iter().map(|job| job.deadline).min();
        self.timed = next.is_some();
        next
    }
}
