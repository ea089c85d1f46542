//! Decides which jobs start, and which of them share a transaction.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;
use tollgate_core::StoreError;

use super::{Job, LeftOut, Locking};

/// The most keys that one transaction locks.
const MOST_KEYS: usize = 64;
/// The most attempts that settle together.
const MOST_JOBS: usize = 256;
/// The most jobs that wait.
const MOST_WAITING: usize = 10_000;
/// Only this many jobs at the front are searched for one that can start, so that a long queue does not slow
/// down starts.
const MOST_SEARCHED: usize = 1_024;
/// The most transactions at once that combine unrelated jobs. With more, each would have fewer jobs.
const MOST_MIXED: usize = 2;
/// For this long after another node held a lock, the lock counts as contended.
const CONTENDED_FOR: Duration = Duration::from_secs(1);
/// The most contended locks that are remembered.
const MOST_CONTENDED: usize = 4_096;

/// The waiting jobs, and the locks of the running transactions.
pub(super) struct Queue {
    /// The most transactions at once.
    most_running: usize,
    waiting: VecDeque<Job>,
    /// The locks of the running transactions.
    busy: HashSet<i64>,
    /// The number of running transactions that wait for locks, and of those that do not.
    running: [usize; 2],
    /// The contended locks: other nodes held them lately. Each has the time until which it counts as contended.
    /// A job that needs one waits for it at once, and is not left out first.
    contended: HashMap<i64, Instant>,
    /// Whether a task is about to start jobs.
    is_starting: bool,
    /// Whether a task watches the deadlines of the waiting jobs.
    is_watched: bool,
}

/// Jobs that share a transaction.
pub(super) struct JobBatch {
    pub(super) jobs: Vec<Job>,
    pub(super) locks: HashSet<i64>,
    pub(super) locking: Locking,
}

impl JobBatch {
    /// Whether a job may join. If the transaction waits for locks, the job must share a counter with it, and would
    /// have to wait for its end anyway.
    fn admits(&self, job: &Job, locking: Locking) -> bool {
        let more = job.locks.iter().filter(|lock| !self.locks.contains(*lock)).count();
        let is_related = more < job.locks.len();
        locking == self.locking
            && self.jobs.iter().chain([job]).all(|job| job.work.is_shareable())
            && (is_related || locking == Locking::OnlyFree)
            && self.locks.len() + more <= MOST_KEYS
            && self.jobs.len() < MOST_JOBS
    }

    fn push(&mut self, job: Job) {
        self.locks.extend(job.locks.iter().copied());
        self.jobs.push(job);
    }
}

impl Queue {
    pub(super) fn new(most_running: usize) -> Self {
        Self {
            most_running,
            waiting: VecDeque::new(),
            busy: HashSet::new(),
            running: [0; 2],
            contended: HashMap::new(),
            is_starting: false,
            is_watched: false,
        }
    }

    /// Adds a job. Returns whether it may be able to start.
    ///
    /// # Errors
    ///
    /// If too many jobs wait.
    pub(super) fn add(&mut self, job: Job) -> Result<bool, StoreError> {
        if self.waiting.len() >= MOST_WAITING {
            return Err(StoreError::Busy);
        }
        let locking = self.locking(&job, Instant::now());
        self.waiting.push_back(job);
        Ok(self.has_room(locking))
    }

    /// Whether the job's transaction waits for locks that other nodes hold.
    fn locking(&self, job: &Job, now: Instant) -> Locking {
        let is_contended = |lock| self.contended.get(lock).is_some_and(|until| now < *until);
        if job.work.is_shareable() && !job.was_left_out && !job.locks.iter().any(is_contended) {
            Locking::OnlyFree
        } else {
            Locking::Wait
        }
    }

    /// Whether one more transaction with this locking may run. Those that wait for locks leave room for the
    /// others.
    fn has_room(&self, locking: Locking) -> bool {
        let [waiting, mixed] = self.running;
        let kept = MOST_MIXED.min(self.most_running.saturating_sub(1));
        waiting + mixed < self.most_running
            && match locking {
                Locking::OnlyFree => mixed < MOST_MIXED,
                Locking::Wait => waiting < self.most_running - kept,
            }
    }

    /// The jobs that start next: the first job that no running transaction blocks, and later jobs that may join
    /// it. No job overtakes another at the same counter.
    pub(super) fn next(&mut self, now: Instant) -> Option<JobBatch> {
        if ![Locking::OnlyFree, Locking::Wait].into_iter().any(|locking| self.has_room(locking)) {
            return None;
        }
        let mut batch: Option<JobBatch> = None;
        let mut reserved: HashSet<i64> = HashSet::new();
        let mut rest = Vec::new();
        for _ in 0..self.waiting.len().min(MOST_SEARCHED) {
            let Some(job) = self.waiting.pop_front() else { break };
            let locking = self.locking(&job, now);
            let joins = match &batch {
                None => self.has_room(locking),
                Some(batch) => batch.admits(&job, locking),
            };
            if joins && !job.needs(&self.busy) && !job.needs(&reserved) {
                let new = || JobBatch { jobs: Vec::new(), locks: HashSet::new(), locking };
                batch.get_or_insert_with(new).push(job);
            } else {
                reserved.extend(job.locks.iter().copied());
                rest.push(job);
            }
        }
        rest.into_iter().rev().for_each(|job| self.waiting.push_front(job));
        let batch = batch?;
        self.busy.extend(batch.locks.iter().copied());
        *self.running_of(batch.locking) += 1;
        Some(batch)
    }

    fn running_of(&mut self, locking: Locking) -> &mut usize {
        match locking {
            Locking::Wait => &mut self.running[0],
            Locking::OnlyFree => &mut self.running[1],
        }
    }

    /// Records the end of a transaction. The jobs that it left out come first again, and this time wait for
    /// their locks.
    pub(super) fn end(&mut self, locking: Locking, locks: &HashSet<i64>, left_out: LeftOut, now: Instant) {
        *self.running_of(locking) -= 1;
        for lock in locks {
            self.busy.remove(lock);
        }
        for mut job in left_out.jobs.into_iter().rev() {
            job.was_left_out = true;
            self.waiting.push_front(job);
        }
        if self.contended.len() >= MOST_CONTENDED {
            self.contended.retain(|_, until| now < *until);
        }
        let room = MOST_CONTENDED.saturating_sub(self.contended.len());
        self.contended.extend(left_out.taken.into_iter().take(room).map(|lock| (lock, now + CONTENDED_FOR)));
    }

    /// Marks a start as pending. Returns false if one is pending already.
    pub(super) fn begin_start(&mut self) -> bool {
        !std::mem::replace(&mut self.is_starting, true)
    }

    /// Ends the pending start. The next added job needs another one.
    pub(super) fn end_start(&mut self) {
        self.is_starting = false;
    }

    /// Marks a watching task as running, if jobs wait and none runs. Returns whether the caller must start it.
    pub(super) fn begin_watch(&mut self) -> bool {
        !self.waiting.is_empty() && !std::mem::replace(&mut self.is_watched, true)
    }

    /// Fails jobs whose deadline is over, and returns the next time to check if jobs still wait. A job that
    /// waited for a counter fails as busy; a job that waited only for the server fails as timed out.
    pub(super) fn expire(&mut self, now: Instant) -> Option<Instant> {
        let mut wanted: HashSet<i64> = self.busy.clone();
        for job in std::mem::take(&mut self.waiting) {
            let busy = job.needs(&wanted);
            wanted.extend(job.locks.iter().copied());
            match job.deadline <= now {
                true if busy => job.work.caller().fail(StoreError::Busy),
                true => job.work.caller().fail(StoreError::TimedOut),
                false => self.waiting.push_back(job),
            }
        }
        let next = self.waiting.iter().map(|job| job.deadline).min();
        self.is_watched = next.is_some();
        next
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::oneshot;
    use tollgate_core::{Charges, Outcome, Plan, Ticket};

    use super::*;
    use crate::name::Names;
    use crate::settings::Settings;
    use crate::work::{Attempt, Caller, Work};

    type Answer = oneshot::Receiver<Result<Outcome, StoreError>>;
    type Kind = fn(Attempt, Caller<Outcome>) -> Work;
    type Asked<'k> = (Kind, &'k [&'k str]);

    /// A job at these keys, and the receiver of its answer.
    fn job(kind: Kind, keys: &[&str], deadline: Instant) -> (Job, Answer) {
        let names = Names::new(&Settings::parse("postgres://a@localhost/b").unwrap());
        let plan = Arc::new(Plan::new("rule".into(), vec!["10/min".parse().unwrap()]).unwrap());
        let mut charges = Charges::new(Ticket(1), 1, None);
        keys.iter().for_each(|key| charges.push(&plan, key, true));
        let (caller, answered) = Caller::new();
        (Job::new(kind(Attempt::new(&charges, &names).unwrap(), caller), deadline), answered)
    }

    fn queue(jobs: &[Asked<'_>]) -> (Queue, Vec<Answer>) {
        let later = Instant::now() + Duration::from_secs(60);
        let (waiting, answers) = jobs.iter().map(|(kind, keys)| job(*kind, keys, later)).unzip();
        (Queue { waiting, ..Queue::new(8) }, answers)
    }

    /// The sizes of the batches that start while no transaction ends.
    fn starts(queue: &mut Queue) -> Vec<usize> {
        std::iter::from_fn(|| queue.next(Instant::now())).map(|batch| batch.jobs.len()).collect()
    }

    /// Marks the locks of these keys as contended.
    fn contend(queue: &mut Queue, keys: &[&str]) {
        let (job, _) = job(Work::Take, keys, Instant::now());
        queue
            .contended
            .extend(job.locks.iter().map(|lock| (*lock, Instant::now() + Duration::from_secs(60))));
    }

    /// Ends a transaction that left out this many of its jobs, the first ones.
    fn end(queue: &mut Queue, batch: JobBatch, left_out: usize) {
        let mut jobs = batch.jobs;
        jobs.drain(left_out..);
        // Another node held the first lock of each job.
        let taken = jobs.iter().map(|job| job.locks[0]).collect();
        queue.end(batch.locking, &batch.locks, LeftOut { jobs, taken }, Instant::now());
    }

    #[test]
    fn waiting_jobs_start_together_and_contended_ones_separately() {
        let take: Kind = Work::Take;
        let jobs =
            [(take, &["a"][..]), (take, &["b"]), (Work::Peek, &["a", "c"]), (take, &["c"]), (take, &["d"])];
        let (mut free, _answers) = queue(&jobs);
        assert_eq!(starts(&mut free), [5]);
        assert_eq!((free.running, free.busy.len()), ([0, 1], 4));
        let (mut taken, _answers) = queue(&jobs);
        contend(&mut taken, &["a", "c", "d"]);
        assert_eq!(starts(&mut taken), [3, 1, 1], "a with c, b, d");
        assert_eq!((taken.running, taken.busy.len()), ([2, 1], 4));
    }

    #[test]
    fn a_skipped_job_starts_again_first_and_waits_for_its_lock() {
        let take: Kind = Work::Take;
        let (mut all, _answers) = queue(&[(take, &["a"]), (take, &["b"])]);
        let batch = all.next(Instant::now()).unwrap();
        assert_eq!((batch.jobs.len(), batch.locking), (2, Locking::OnlyFree));
        let (later, _answer) = job(take, &["a"], Instant::now() + Duration::from_secs(60));
        assert!(all.add(later).unwrap(), "one more may run; not with the same key");
        assert!(all.next(Instant::now()).is_none());
        end(&mut all, batch, 1);
        let batch = all.next(Instant::now()).unwrap();
        assert_eq!((batch.jobs.len(), batch.locking), (2, Locking::Wait), "with the later one of its key");
        assert!(all.contended.len() == 1 && all.waiting.is_empty());
        let (third, _answer) = job(take, &["a"], Instant::now() + Duration::from_secs(60));
        end(&mut all, batch, 0);
        assert!(all.add(third).unwrap());
        let batch = all.next(Instant::now() + CONTENDED_FOR).unwrap();
        assert_eq!(batch.locking, Locking::OnlyFree, "a lock is not contended for ever");
    }

    #[test]
    fn a_job_is_left_out_once_even_if_too_many_locks_are_contended_to_be_remembered() {
        let take: Kind = Work::Take;
        let (mut all, _answers) = queue(&[(take, &["a", "b"])]);
        let batch = all.next(Instant::now()).unwrap();
        let later = Instant::now() + Duration::from_secs(60);
        all.contended = (0..).take(MOST_CONTENDED).map(|lock| (lock, later)).collect();
        end(&mut all, batch, 1);
        assert_eq!(all.contended.len(), MOST_CONTENDED);
        assert_eq!(all.next(Instant::now()).unwrap().locking, Locking::Wait);
    }

    #[test]
    fn only_the_lock_that_another_node_had_counts_as_contended() {
        let take: Kind = Work::Take;
        let (mut all, _answers) = queue(&[(take, &["a", "b"])]);
        let batch = all.next(Instant::now()).unwrap();
        let taken = batch.jobs[0].locks[0];
        end(&mut all, batch, 1);
        assert!(all.contended.keys().eq([&taken]));
    }

    #[test]
    fn no_job_overtakes_another_of_the_same_key() {
        let take: Kind = Work::Take;
        let retract: Kind = |attempt, _| Work::Retract(attempt, Caller::new().0);
        let (mut all, _answers) =
            queue(&[(take, &["a"]), (retract, &["a", "b"]), (take, &["b"]), (take, &["c"])]);
        assert_eq!(starts(&mut all), [2], "a and c: b is wanted by what waits for a");
        all.busy.clear();
        assert_eq!(starts(&mut all), [1], "what is not shared goes alone");
        all.busy.clear();
        assert_eq!(starts(&mut all), [1]);
        assert!(all.waiting.is_empty());
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
        let batch = all.next(Instant::now()).unwrap();
        assert_eq!((batch.jobs.len(), batch.locks.len()), (MOST_KEYS - 1, MOST_KEYS));
        assert!(all.next(Instant::now()).is_none());
    }

    #[test]
    fn no_more_transactions_run_than_connections_and_some_are_kept_for_free_locks() {
        let take: Kind = Work::Take;
        for (most, waiting, mixed) in [(1, 1, 0), (2, 1, 1), (3, 1, 2), (8, 6, 2)] {
            let names: Vec<String> = (0..600).map(|key| format!("k{key}")).collect();
            let keys: Vec<[&str; 1]> = names.iter().map(|name| [name.as_str()]).collect();
            let asked: Vec<Asked<'_>> = keys.iter().map(|keys| (take, &keys[..])).collect();
            let (mut all, _answers) = queue(&asked);
            all.most_running = most;
            names[..20].iter().for_each(|name| contend(&mut all, &[name]));
            let started = starts(&mut all);
            assert_eq!((started.len(), all.running), (waiting + mixed, [waiting, mixed]));
        }
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
        assert!(all.next(Instant::now()).is_none(), "what can run is further back than anybody looks");
        assert!(all.waiting.iter().map(|job| job.locks[0]).eq(order.iter().copied()));
        all.busy.remove(&order[3]);
        let started = all.next(Instant::now()).unwrap().jobs;
        assert_eq!((started.len(), started[0].locks[0]), (1, order[3]));
        let started = all.next(Instant::now()).unwrap().jobs;
        assert_eq!((started.len(), started[0].locks[0]), (1, order[MOST_SEARCHED]));
    }

    #[test]
    fn a_late_job_fails_as_busy_if_its_key_is_in_use_and_else_as_timed_out() {
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let (early, mut answers) = (["a", "b", "b", "c"], Vec::new());
        let mut all = Queue::new(8);
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
        assert_eq!(told.next().unwrap(), Some(StoreError::Busy), "a job before it wants its key");
        assert_eq!(told.next().unwrap(), None, "it has time");
        assert_eq!(all.waiting.len(), 1);
    }
}
