//! Who waits for whom in this process. Work on the same counters never runs side by side: it waits here,
//! and takes and peeks that waited for each other settle together in one transaction. So a hot key costs
//! one commit for many decisions, and a node never waits for a lock that it holds itself.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};
use tollgate_core::StoreError;

use crate::database::Database;
use crate::work::{Caller, Work};

/// Work that waits or runs.
pub(crate) struct Job {
    pub(crate) work: Work,
    locks: Vec<i64>,
    pub(crate) deadline: Instant,
}

/// The most keys that one transaction locks.
const MOST_KEYS: usize = 64;
/// The most attempts that settle together.
const MOST_JOBS: usize = 256;
/// The most that wait.
const MOST_WAITING: usize = 10_000;
/// How far from its front the queue is searched for what can run. A start must not cost more the more wait.
const MOST_SEARCHED: usize = 1_024;
/// How much time passes at least between two searches for jobs that have waited for too long.
const EXPIRY_PAUSE: Duration = Duration::from_millis(5);

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

impl Lanes {
    pub(crate) fn new(database: Arc<Database>, handle: Handle, most_running: usize) -> Self {
        Self { database, handle, most_running, queue: Mutex::default() }
    }

    /// Does some work, alone or together with others. It is done even if the caller goes away.
    pub(crate) async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(Caller<T>) -> Work,
        deadline: Instant,
    ) -> Result<T, StoreError> {
        let (caller, answered) = Caller::new();
        let work = work(caller);
        let mut locks: Vec<i64> = work.names().map(|name| name.lock).collect();
        locks.sort_unstable();
        locks.dedup();
        let full = {
            let mut queue = self.queue.lock();
            let full = queue.waiting.len() >= MOST_WAITING;
            if !full {
                queue.waiting.push_back(Job { work, locks, deadline });
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
                sleep_until(next.max(Instant::now() + EXPIRY_PAUSE)).await;
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
        let mut rest = Vec::new();
        let searched = self.waiting.len().min(MOST_SEARCHED);
        for job in self.waiting.drain(..searched) {
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
                rest.push(job);
            }
        }
        rest.into_iter().rev().for_each(|job| self.waiting.push_front(job));
        if jobs.is_empty() {
            return None;
        }
        self.busy.extend(locks.iter().copied());
        self.running += 1;
        Some((jobs, locks))
    }

    /// Refuses those who have waited for too long; when to look again, if anybody waits. Who waited for a
    /// counter is told that it is busy; who waited for the server only, that it is too slow.
    fn expire(&mut self, now: Instant) -> Option<Instant> {
        let mut wanted: HashSet<i64> = self.busy.clone();
        for job in std::mem::take(&mut self.waiting) {
            let busy = job.locks.iter().any(|lock| wanted.contains(lock));
            wanted.extend(job.locks.iter().copied());
            match job.deadline <= now {
                true if busy => job.work.caller().fail(StoreError::Busy),
                true => job.work.caller().fail(StoreError::TimedOut),
                false => self.waiting.push_back(job),
            }
        }
        let next = self.waiting.iter().map(|job| job.deadline).min();
        self.timed = next.is_some();
        next
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;
    use tollgate_core::{Charges, Outcome, Plan, Ticket};

    use super::*;
    use crate::name::Names;
    use crate::settings::Settings;
    use crate::work::Attempt;

    type Answer = oneshot::Receiver<Result<Outcome, StoreError>>;
    type Kind = fn(Attempt, Caller<Outcome>) -> Work;
    type Asked<'k> = (Kind, &'k [&'k str]);

    /// A job at keys, with its end of the answer.
    fn job(kind: Kind, keys: &[&str], deadline: Instant) -> (Job, Answer) {
        let names = Names::new(&Settings::parse("postgres://a@localhost/b").unwrap());
        let plan = Arc::new(Plan::new("rule".into(), vec!["10/min".parse().unwrap()]).unwrap());
        let mut charges = Charges::new(Ticket(1), 1, None);
        keys.iter().for_each(|key| charges.push(&plan, key, true));
        let (caller, answered) = Caller::new();
        let work = kind(Attempt::new(&charges, &names).unwrap(), caller);
        let locks = work.names().map(|name| name.lock).collect();
        (Job { work, locks, deadline }, answered)
    }

    fn queue(jobs: &[Asked<'_>]) -> (Queue, Vec<Answer>) {
        let later = Instant::now() + Duration::from_secs(60);
        let (waiting, answers) = jobs.iter().map(|(kind, keys)| job(*kind, keys, later)).unzip();
        (Queue { waiting, ..Queue::default() }, answers)
    }

    /// How many jobs start together, again and again, while nothing ends.
    fn starts(queue: &mut Queue) -> Vec<usize> {
        std::iter::from_fn(|| queue.next(8)).map(|(jobs, _)| jobs.len()).collect()
    }

    #[test]
    fn attempts_at_one_key_start_together_and_others_beside_them() {
        let take: Kind = Work::Take;
        let (mut queue, _answers) = queue(&[
            (take, &["a"]),
            (take, &["b"]),
            (Work::Peek, &["a", "c"]),
            (take, &["c"]),
            (take, &["d"]),
        ]);
        assert_eq!(starts(&mut queue), [3, 1, 1], "a with c, b, d");
        assert_eq!((queue.running, queue.busy.len()), (3, 4));
    }

    #[test]
    fn nothing_overtakes_what_waits_for_the_same_key() {
        let take: Kind = Work::Take;
        let retract: Kind = |attempt, _| Work::Retract(attempt, Caller::new().0);
        let (mut queue, _answers) =
            queue(&[(take, &["a"]), (retract, &["a", "b"]), (take, &["b"]), (take, &["c"])]);
        assert_eq!(starts(&mut queue), [1, 1], "a and c: b is wanted by what waits for a");
        queue.busy.clear();
        assert_eq!(starts(&mut queue), [1], "what is not shared goes alone");
        queue.busy.clear();
        assert_eq!(starts(&mut queue), [1]);
        assert!(queue.waiting.is_empty());
    }

    #[test]
    fn a_transaction_has_no_more_jobs_and_keys_than_it_may() {
        let take: Kind = Work::Take;
        let many = vec![(take, &["hot"][..]); MOST_JOBS + 44];
        let (mut all, _answers) = queue(&many);
        assert_eq!(starts(&mut all), [MOST_JOBS], "the others wait for the key");
        let names: Vec<String> = (0..100).map(|key| format!("k{key}")).collect();
        let pairs: Vec<[&str; 2]> = names.iter().map(|name| ["hot", name.as_str()]).collect();
        let wide: Vec<Asked<'_>> = pairs.iter().map(|keys| (take, &keys[..])).collect();
        let (mut all, _answers) = queue(&wide);
        let (jobs, locks) = all.next(8).unwrap();
        assert_eq!((jobs.len(), locks.len()), (MOST_KEYS - 1, MOST_KEYS));
        assert!(all.next(8).is_none());
        let (mut full, _answers) = queue(&[(take, &["a"]), (take, &["b"])]);
        assert!(full.next(1).is_some() && full.next(1).is_none(), "no more transactions than connections");
    }

    #[test]
    fn however_many_wait_a_start_looks_at_the_first_and_keeps_the_order() {
        let take: Kind = Work::Take;
        let names: Vec<String> = (0..MOST_SEARCHED + 10).map(|key| format!("k{key}")).collect();
        let keys: Vec<[&str; 1]> = names.iter().map(|name| [name.as_str()]).collect();
        let asked: Vec<Asked<'_>> = keys.iter().map(|keys| (take, &keys[..])).collect();
        let (mut all, _answers) = queue(&asked);
        let order: Vec<i64> = all.waiting.iter().map(|job| job.locks[0]).collect();
        all.busy.extend(&order[..MOST_SEARCHED]);
        assert!(all.next(8).is_none(), "what can run is further back than anybody looks");
        assert!(all.waiting.iter().map(|job| job.locks[0]).eq(order.iter().copied()));
        all.busy.remove(&order[3]);
        let (jobs, _) = all.next(8).unwrap();
        assert_eq!(jobs[0].locks[0], order[3]);
        all.busy.remove(&order[0]);
        assert_eq!(all.next(8).unwrap().0[0].locks[0], order[0]);
        assert_eq!(all.next(8).unwrap().0[0].locks[0], order[MOST_SEARCHED]);
    }

    #[test]
    fn who_waits_too_long_for_a_key_is_told_busy_and_for_the_server_that_it_is_slow() {
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let (early, mut answers) = (["a", "b", "b", "c"], Vec::new());
        let mut all = Queue::default();
        for (key, deadline) in early.into_iter().zip([now, now, now, later]) {
            let (job, answer) = job(Work::Take, &[key], deadline);
            all.busy.extend(job.locks.iter().copied().filter(|_| key == "a"));
            all.waiting.push_back(job);
            answers.push(answer);
        }
        assert_eq!(all.expire(now), Some(later));
        let mut told = answers.iter_mut().map(|answer| answer.try_recv().ok().and_then(Result::err));
        assert_eq!(told.next().unwrap(), Some(StoreError::Busy), "a transaction has its key");
        assert_eq!(told.next().unwrap(), Some(StoreError::TimedOut), "its key is free");
        assert_eq!(told.next().unwrap(), Some(StoreError::Busy), "somebody before it wants its key");
        assert_eq!(told.next().unwrap(), None, "it has time");
        assert_eq!(all.waiting.len(), 1);
    }
}
