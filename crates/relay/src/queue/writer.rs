//! The only thread that writes. It commits all waiting writes together.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use redb::{Builder, Database, Durability};
use tokio::sync::mpsc;
use tollgate_core::Clock;

use super::disk::Disk;
use super::tables::{Submitted, Tables, Waiting, number_commit};
use super::{Fullness, QueueOptions};

/// Tells the caller of a write whether it is durable.
pub(super) type Completion = Box<dyn FnOnce(Result<(), String>) + Send>;

/// A change to make in the next transaction.
pub(super) type Write = Box<dyn FnOnce(&mut Tables<'_>) -> Result<Completion, redb::Error> + Send>;

/// The most writes in one transaction.
const MOST_TOGETHER: usize = 1_000;
/// The size of the database's cache in memory.
const CACHE_BYTES: usize = 32 << 20;

/// The state that the writer shares with callers.
pub(super) struct QueueState {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) options: QueueOptions,
    /// `None` after it failed, until it is opened again: redb stops working after the first error.
    pub(super) database: RwLock<Option<Database>>,
    /// The number of waiting messages, and of waiting items.
    pub(super) live: AtomicU64,
    pub(super) open_items: AtomicU64,
    pub(super) fullness: Fullness,
}

pub(super) struct Writer {
    pub(super) shared: Arc<QueueState>,
    pub(super) writes: mpsc::Receiver<Write>,
    pub(super) arrivals: mpsc::UnboundedSender<Waiting>,
    pub(super) doubtful: Doubtful,
}

pub(super) fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

impl Writer {
    /// Writes until the queue is dropped.
    pub(super) fn run(mut self) {
        while let Some(first) = self.writes.blocking_recv() {
            let mut batch = vec![first];
            while batch.len() < MOST_TOGETHER
                && let Ok(write) = self.writes.try_recv()
            {
                batch.push(write);
            }
            self.commit_all(batch);
        }
    }

    /// Commits a batch, and tells every caller whether it is durable.
    fn commit_all(&mut self, batch: Vec<Write>) {
        let mut attempt = Committing::default();
        let done = catch_unwind(AssertUnwindSafe(|| self.commit(batch, &mut attempt)));
        let done = match done {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("the database failed".to_owned()),
        };
        if let Err(reason) = &done {
            tracing::error!(component = "relay", reason, "the queue cannot be written");
            *self.shared.database.write() = None;
            self.doubtful.accepted.append(&mut attempt.accepted);
            self.doubtful.arrived.append(&mut attempt.arrived);
        }
        // Writes that were not tried are dropped, which gives their callers an error.
        for answer in attempt.answers {
            answer(done.clone());
        }
    }

    fn commit(&mut self, batch: Vec<Write>, attempt: &mut Committing) -> Result<(), redb::Error> {
        let shared = Arc::clone(&self.shared);
        let mut transaction = {
            let mut open = shared.database.write();
            if open.is_none() {
                *open = Some(shared.disk.database(&builder())?);
            }
            open.as_ref().expect("it was opened just now").begin_write()?
        };
        transaction.set_durability(Durability::Immediate)?;
        // This also commits in two phases: texts come from strangers, who can forge a checksum alone.
        transaction.set_quick_repair(true);
        number_commit(&transaction)?;
        let now = shared.clock.now();
        let (live, open_items) =
            (shared.live.load(Ordering::Relaxed), shared.open_items.load(Ordering::Relaxed));
        let mut tables = Tables::open(&transaction, live, open_items)?;
        self.doubtful.settle(&mut tables)?;
        for write in batch {
            attempt.answers.push(write(&mut tables)?);
        }
        tables.tidy(now, shared.options.history, shared.options.history_messages)?;
        let (live, open_items) = (tables.live, tables.open_items);
        let remove = std::mem::take(&mut tables.remove);
        attempt.accepted = std::mem::take(&mut tables.accepted);
        attempt.arrived = std::mem::take(&mut tables.arrived);
        drop(tables);
        shared.fullness.measure(&transaction, &*shared.disk, &*shared.clock)?;
        transaction.commit()?;
        self.doubtful = Doubtful::default();
        shared.live.store(live, Ordering::Relaxed);
        shared.open_items.store(open_items, Ordering::Relaxed);
        for name in remove {
            shared.disk.remove(&name);
        }
        for item in attempt.arrived.drain(..) {
            // Without a scheduler, items wait until the next start.
            let _ = self.arrivals.send(item);
        }
        Ok(())
    }
}

/// A batch during its commit.
#[derive(Default)]
struct Committing {
    answers: Vec<Completion>,
    accepted: Vec<Submitted>,
    arrived: Vec<Waiting>,
}

/// Transactions whose commit failed. Their rows may still have become durable.
#[derive(Default)]
pub(super) struct Doubtful {
    /// Messages whose clients were told that they are not accepted.
    accepted: Vec<Submitted>,
    /// Items that the scheduler does not know.
    arrived: Vec<Waiting>,
}

impl Doubtful {
    /// Removes refused messages that are in the queue nevertheless, because their clients send them again.
    /// Announces the other items that are there.
    fn settle(&self, tables: &mut Tables<'_>) -> Result<(), redb::Error> {
        if self.accepted.is_empty() && self.arrived.is_empty() {
            return Ok(());
        }
        for Submitted { id, idempotency } in &self.accepted {
            tables.withdraw(*id, idempotency.as_ref())?;
        }
        for waiting in &self.arrived {
            if tables.item(waiting.key)?.is_some() {
                tables.arrived.push(waiting.clone());
            }
        }
        tables.recount()
    }
}
