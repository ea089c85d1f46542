//! One transaction from its locks to its commit, for one or several callers.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::time::{Instant, timeout_at};
use tollgate_core::{Clock, StoreError, Timestamp};

use crate::counter::{Counter, Loaded};
use crate::lanes::Job;
use crate::load::{LoadSql, Scene, Wants};
use crate::pool::{Haste, Line, Pool};
use crate::settings::Settings;
use crate::transaction::{Begin, roll_back};
use crate::work::{Reply, Table};
use crate::write::{Edits, WriteSql};

/// The database as transactions use it.
pub(crate) struct Database {
    pub(crate) pool: Pool,
    pub(crate) begin: Begin,
    load: LoadSql,
    write: WriteSql,
    /// Goes before the server's clock, where tests move time.
    clock: parking_lot::RwLock<Option<Arc<dyn Clock>>>,
}

/// What came of each job, and whether it is known.
type Replies = Vec<Result<Reply, StoreError>>;

impl Database {
    pub(crate) fn new(pool: Pool, settings: &Settings) -> Self {
        Self {
            pool,
            begin: Begin::new(settings),
            load: LoadSql::new(&settings.schema),
            write: WriteSql::new(&settings.schema),
            clock: parking_lot::RwLock::new(None),
        }
    }

    pub(crate) fn set_clock(&self, clock: Arc<dyn Clock>) {
        *self.clock.write() = Some(clock);
    }

    /// The time by the clock that goes before the server's.
    pub(crate) fn own_time(&self) -> Option<Timestamp> {
        self.clock.read().as_ref().map(|clock| clock.now())
    }

    /// Settles all jobs in one transaction, and answers each.
    pub(crate) async fn transact(&self, jobs: Vec<Job>) {
        let deadline = jobs.iter().map(|job| job.deadline).max().unwrap_or_else(Instant::now);
        let done = timeout_at(deadline, self.attempt(jobs)).await;
        // A time-out drops the jobs with the connection; their callers are told by `Waiting`.
        drop(done);
    }

    async fn attempt(&self, jobs: Vec<Job>) {
        let mut waiting = Waiting { jobs };
        let line = match self.pool.line(Haste::FailFast).await {
            Ok(line) => line,
            Err(error) => return waiting.fail(&error),
        };
        let mut wants = Wants::default();
        waiting.jobs.iter().for_each(|job| job.work.want(&mut wants));
        let scene = match self.load.load(&line.client, &self.begin, &wants, self.own_time()).await {
            Ok(scene) => scene,
            Err(error) => {
                waiting.fail(&error);
                return self.abandon(line).await;
            }
        };
        let (table, replies) = match settle(wants, scene, &waiting.jobs) {
            Ok(settled) => settled,
            Err(error) => {
                waiting.fail(&error);
                return self.abandon(line).await;
            }
        };
        let edits = Edits {
            counters: table.counters.values().filter_map(Counter::edit).collect(),
            spent: table.spent,
            forgotten: table.forgotten,
        };
        if edits.is_empty() {
            // Nobody need wait for the end of a transaction that writes nothing.
            waiting.answer(replies);
            return self.abandon(line).await;
        }
        match self.write.write(&line.client, &edits).await {
            Ok(()) => {
                self.pool.give_back(line);
                waiting.answer(replies);
            }
            Err(error) => {
                let broken = error.is_uncertain();
                waiting.fail(&error);
                if !broken {
                    self.abandon(line).await;
                }
            }
        }
    }

    /// Ends a transaction without its writes, and keeps the connection if it can be used again.
    pub(crate) async fn abandon(&self, line: Line) {
        if roll_back(&line.client).await {
            self.pool.give_back(line);
        }
    }
}

/// Callers that wait for a transaction. Those that get no answer before it is dropped are told that none
/// came in time.
struct Waiting {
    jobs: Vec<Job>,
}

impl Waiting {
    fn answer(&mut self, replies: Replies) {
        for (job, reply) in self.jobs.drain(..).zip(replies) {
            job.answer(reply);
        }
    }

    fn fail(&mut self, error: &StoreError) {
        for job in self.jobs.drain(..) {
            job.answer(Err(error.clone()));
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.fail(&StoreError::TimedOut);
    }
}

/// Settles jobs one after the other over what was loaded.
fn settle(wants: Wants, mut scene: Scene, jobs: &[Job]) -> Result<(Table, Replies), StoreError> {
    let mut counters = HashMap::with_capacity(wants.counters.len());
    for (id, want) in wants.counters {
        let loaded = scene.counters.remove(&id).unwrap_or(Loaded { all_holds: true, ..Loaded::default() });
        counters.insert(id, Counter::new(want.name, loaded)?);
    }
    let mut table = Table { now: scene.now, counters, spent: Vec::new(), forgotten: Vec::new() };
    let replies = jobs.iter().map(|job| job.work.settle(&mut table, &scene)).collect();
    Ok((table, replies))
}
