//! The order in which jobs start.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;
use tollgate_core::StoreError;

use super::{Job, LeftOut, Locking};

/// The most keys that one transaction locks.
const MOST_KEYS: usize = 64;
/// The most attempts that settle together.
const MOST_JOBS: usize = 256;
/// The most that wait.
const MOST_WAITING: usize = 10_000;
/// How far from its front the queue is searched for jobs that can run. A long queue must not slow down starts.
const MOST_SEARCHED: usize = 1_024;
/// How many transactions with unrelated jobs run at once. With more, each would have fewer jobs.
const MOST_MIXED: usize = 2;
/// How long a lock counts as contended after another node had it.
const CONTENDED_FOR: Duration = Duration::from_secs(1);
/// For how many locks this is remembered.
const MOST_CONTENDED: usize = 4_096;

/// Jobs that wait, and what runs.
pub(super) struct Queue {
    /// The most transactions at once.
    most_running: usize,
    waiting: VecDeque<Job>,
    /// The locks of what runs.
    busy: HashSet<i64>,
    /// How many transactions run that wait for locks, and how many that do not.
    running: [usize; 2],
    /// Locks that other nodes have had lately, and until when to expect that. A job that needs one waits for it
    /// right away, and is not left out first.
    contended: HashMap<i64, Instant>,
    /// Whether a task is about to start what can run.
    is_starting: bool,
    /// Whether a task looks after those that have waited for too long.
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

    /// Adds a job, and answers whether it can perhaps start.
    ///
    /// # Errors
    ///
    /// If too many wait.
    pub(super) fn add(&mut self, job: Job) -> Result<bool, StoreError> {
        if self.waiting.len() >= MOST_WAITING {
            return Err(StoreError::Busy);
        }
        let locking = self.locking(&job, Instant::now());
        self.waiting.push_back(job);
        Ok(self.has_room(locking))
    }

    /// How the transaction of a job treats locks that others have.
    fn locking(&self, job: &Job, now: Instant) -> Locking {
        let is_contended = |lock| self.contended.get(lock).is_some_and(|until| now < *until);
        if job.work.is_shareable() && !job.was_left_out && !job.locks.iter().any(is_contended) {
            Locking::OnlyFree
        } else {
            Locking::Wait
        }
    }

    /// Whether one more transaction of a kind may run. Those that wait for locks leave room for the others.
    fn has_room(&self, locking: Locking) -> bool {
        let [waiting, mixed] = self.running;
        let kept = MOST_MIXED.min(self.most_running.saturating_sub(1));
        waiting + mixed < self.most_running
            && match locking {
                Locking::OnlyFree => mixed < MOST_MIXED,
                Locking::Wait => waiting < self.most_running - kept,
            }
    }

    /// The jobs that run next: the first that no running transaction keeps waiting, and those behind it that may
    /// join it. No job overtakes another at the same counter.
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

    /// Takes note of the end of a transaction. The jobs that it left out come first again, and wait for their
    /// locks this time.
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

    /// Whether no task is about to start what can run. From now on one is.
    pub(super) fn begin_start(&mut self) -> bool {
        !std::mem::replace(&mut self.is_starting, true)
    }

    /// From now on, adding a job needs another start.
    pub(super) fn end_start(&mut self) {
        self.is_starting = false;
    }

    /// Whether jobs wait and no task refuses them at their deadlines. From now on one does.
    pub(super) fn begin_watch(&mut self) -> bool {
        !self.waiting.is_empty() && !std::mem::replace(&mut self.is_watched, true)
    }

    /// Refuses jobs that have waited for too long, and returns when to look again, if jobs still wait. A job that
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

    /// A job at keys, with its end of the answer.
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

    /// How many jobs start together, again and again, while nothing ends.
    fn starts(queue: &mut Queue) -> Vec<usize> {
        std::iter::from_fn(|| queue.next(Instant::now())).map(|batch| batch.jobs.len()).collect()
    }

    /// Another node has had the locks of these keys lately.
    fn contend(queue: &mut Queue, keys: &[&str]) {
        let (job, _) = job(Work::Take, keys, Instant::now());
        queue
            .contended
            .extend(job.locks.iter().map(|lock| (*lock, Instant::now() + Duration::from_secs(60))));
    }

    /// A transaction ends, and left out so many of its first jobs.
    fn end(queue: &mut Queue, batch: JobBatch, left_out: usize) {
        let mut jobs = batch.jobs;
        jobs.drain(left_out..);
        // Of each job, another node had the first lock.
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
