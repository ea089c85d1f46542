//! One transaction from its locks to its commit, for one or several callers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tollgate_core::{Clock, StoreError, Timestamp};

use crate::connection::Connection;
use crate::counter::{Counter, HoldsKnown, Loaded};
use crate::lanes::{Job, LeftOut, Locking};
use crate::load::{LoadSql, Scene, Wants};
use crate::pool::{Haste, Pool};
use crate::settings::Settings;
use crate::transaction::{Begin, roll_back};
use crate::work::{Failing, Reply, Table, Work};
use crate::write::{Edits, WriteSql};

/// The database as transactions use it.
pub(crate) struct Database {
    pub(crate) pool: Arc<Pool>,
    pub(crate) begin: Begin,
    load: LoadSql,
    write: WriteSql,
    /// Replaces the server's clock in tests that move time.
    clock: parking_lot::RwLock<Option<Arc<dyn Clock>>>,
    /// When the server had no room for a write, and what it said.
    full: parking_lot::Mutex<Option<(Instant, String)>>,
}

/// For this long after the server had no room, the store counts as full.
const FULL_FOR: Duration = Duration::from_secs(30);

/// The result of each job, and whether it is known.
type Replies = Vec<Result<Reply, StoreError>>;

impl Database {
    pub(crate) fn new(pool: Pool, settings: &Settings) -> Self {
        Self {
            pool: Arc::new(pool),
            begin: Begin::new(settings),
            load: LoadSql::new(&settings.schema),
            write: WriteSql::new(&settings.schema),
            clock: parking_lot::RwLock::new(None),
            full: parking_lot::Mutex::new(None),
        }
    }

    pub(crate) fn set_clock(&self, clock: Arc<dyn Clock>) {
        *self.clock.write() = Some(clock);
    }

    /// The time of the clock that replaces the server's in tests.
    pub(crate) fn own_time(&self) -> Option<Timestamp> {
        self.clock.read().as_ref().map(|clock| clock.now())
    }

    /// Settles jobs in one transaction, and answers each of them by its deadline. The transaction continues while
    /// at least one of them waits. Returns the jobs that it left out.
    pub(crate) async fn transact(&self, jobs: Vec<Job>, locking: Locking) -> LeftOut {
        let callers = jobs.iter().map(|job| Some((job.deadline, job.work.caller()))).collect();
        let waiting = Waiting { callers: parking_lot::Mutex::new(callers) };
        let mut left_out = LeftOut::default();
        {
            let mut attempt = std::pin::pin!(self.attempt(jobs, locking, &waiting, &mut left_out));
            while let Some(next) = waiting.next_deadline() {
                tokio::select! {
                    () = &mut attempt => break,
                    () = sleep_until(next) => {
                        // After a time-out, the next job must not get another connection that may be as silent.
                        self.pool.distrust();
                        waiting.expire(Instant::now());
                    }
                }
            }
            // Once every caller has its answer, dropping the attempt closes its connection.
        }
        left_out
    }

    async fn attempt(&self, jobs: Vec<Job>, locking: Locking, waiting: &Waiting, left_out: &mut LeftOut) {
        let line = match self.pool.line(Haste::FailFast).await {
            Ok(line) => line,
            Err(error) => return waiting.fail(&error),
        };
        let mut wants = Wants::default();
        jobs.iter().for_each(|job| job.work.want(&mut wants));
        let latest = jobs.iter().map(|job| job.deadline).max();
        let remaining = latest.map(|latest| latest.saturating_duration_since(Instant::now()));
        let remaining = remaining.unwrap_or_default();
        let opening = self.load.opening(&self.begin, &wants, locking, remaining, self.own_time());
        let scene = match self.load.load(&line.client, &opening, &wants).await {
            Ok(scene) => scene,
            Err(error) => {
                waiting.fail(&error);
                return self.end(line, &error).await;
            }
        };
        let is_left_out: Vec<bool> = jobs.iter().map(|job| job.needs(&scene.taken)).collect();
        waiting.leave_out(&is_left_out);
        let (left, settled) = jobs.into_iter().partition::<Vec<Job>, _>(|job| job.needs(&scene.taken));
        *left_out = LeftOut { jobs: left, taken: scene.taken.clone() };
        let works: Vec<Work> = settled.into_iter().map(|job| job.work).collect();
        let (table, replies) = settle(wants, scene, &works);
        let edits = Edits {
            counters: table.counters.values().filter_map(Counter::edit).collect(),
            spent: table.spent,
        };
        if edits.is_empty() {
            // If the transaction writes nothing, callers do not wait for its end.
            waiting.answer(replies);
            return self.abandon(line).await;
        }
        let written = self.write.write(&line.client, &edits).await;
        self.note_room(&written);
        match written {
            Ok(()) => {
                self.pool.give_back(line);
                waiting.answer(replies);
            }
            Err(error) => {
                waiting.fail(&error);
                self.end(line, &error).await;
            }
        }
    }

    /// Remembers whether the server had room for the last write.
    fn note_room(&self, written: &Result<(), StoreError>) {
        match written {
            Ok(()) => *self.full.lock() = None,
            Err(StoreError::OutOfMemory { reason }) => {
                *self.full.lock() = Some((Instant::now(), reason.clone()));
            }
            Err(_) => {}
        }
    }

    /// The server's message when it had no room; `None` if it has had room since, or if the message is old.
    pub(crate) fn full(&self) -> Option<String> {
        let full = self.full.lock();
        full.as_ref().filter(|(at, _)| at.elapsed() < FULL_FOR).map(|(_, reason)| reason.clone())
    }

    /// Ends a transaction that failed. If the server as a whole cannot be used, this and all unused
    /// connections are closed: another server may have to be asked.
    pub(crate) async fn end(&self, line: Connection, error: &StoreError) {
        if error.is_outage() || error.is_uncertain() {
            drop(line);
            self.pool.distrust();
        } else {
            self.abandon(line).await;
        }
    }

    /// Ends a transaction without its writes, and keeps the connection if it can be used again.
    pub(crate) async fn abandon(&self, line: Connection) {
        if roll_back(&line.client).await {
            self.pool.give_back(line);
        }
    }
}

/// Callers that wait for a transaction, in the order of their work. Dropping it gives a time-out to every caller
/// that has no answer yet.
struct Waiting {
    callers: parking_lot::Mutex<Vec<Option<Expecting>>>,
}

/// The deadline of a caller, and the caller.
type Expecting = (Instant, Box<dyn Failing>);

impl Waiting {
    fn answer(&self, replies: Replies) {
        for (caller, reply) in self.callers.lock().iter_mut().zip(replies) {
            match (caller.take(), reply) {
                (Some(_), Ok(reply)) => reply(),
                (Some((_, caller)), Err(error)) => caller.fail(error),
                (None, _) => {}
            }
        }
    }

    fn fail(&self, error: &StoreError) {
        let count = self.callers.lock().len();
        self.answer((0..count).map(|_| Err(error.clone())).collect());
    }

    /// Drops the callers of jobs that are left out. They wait for another transaction.
    fn leave_out(&self, is_left_out: &[bool]) {
        let mut places = is_left_out.iter();
        self.callers.lock().retain(|_| places.next() != Some(&true));
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.callers.lock().iter().flatten().map(|(deadline, _)| *deadline).min()
    }

    /// Gives a time-out to each caller whose deadline is over. Its work may still be done.
    fn expire(&self, now: Instant) {
        for caller in self.callers.lock().iter_mut() {
            if let Some((_, caller)) = caller.take_if(|(deadline, _)| *deadline <= now) {
                caller.fail(StoreError::TimedOut);
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.fail(&StoreError::TimedOut);
    }
}

/// Settles jobs one after the other over the loaded counters. A damaged counter is left out.
fn settle(wants: Wants, mut scene: Scene, works: &[Work]) -> (Table, Replies) {
    let mut counters = HashMap::with_capacity(wants.counters.len());
    for (id, want) in wants.counters {
        if scene.damaged.contains(&id) {
            continue;
        }
        let none = || Loaded { holds_known: HoldsKnown::All, ..Loaded::default() };
        let loaded = scene.counters.remove(&id).unwrap_or_else(none);
        if let Ok(counter) = Counter::new(want.name.clone(), loaded, |limit| want.keeps(limit)) {
            counters.insert(id, counter);
        }
    }
    let mut table = Table { now: scene.now, counters, spent: Vec::new() };
    let replies = works.iter().map(|work| work.settle(&mut table, &scene)).collect();
    (table, replies)
}
