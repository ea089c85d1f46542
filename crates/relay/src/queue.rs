//! The durable queue: a message that it acknowledged survives a crash.
//!
//! Envelopes, items, attempts and small texts are rows of one database; large texts are files beside it. One
//! thread writes, and commits all waiting writes in one transaction. A text in a file is synced to disk
//! before the row that refers to it is committed.

mod codec;
mod delays;
mod directory;
pub mod disk;
mod fullness;
mod intake;
mod item;
mod overlay;
mod reading;
mod recovery;
mod salvage;
mod settle;
mod tables;
mod wreck;
mod writer;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use parking_lot::Mutex;
use redb::{ReadTransaction, ReadableDatabase};
use tokio::sync::{mpsc, oneshot};
use tollgate_core::{Clock, Span};

use codec::{Row, Used};
use disk::Disk;
use fullness::Fullness;
pub use item::{
    AttemptResult, Event, EventKind, Final, Item, ItemKey, ItemRecipient, Kept, OpenAttempt, Place,
    RecipientState,
};
pub use reading::{MessagePage, Order, Shown, Text, Wanted};
pub use recovery::{Damage, OpenError, Opened};
pub use salvage::SetAside;
use settle::Reporting;
pub use tables::Waiting;
use tables::{Tables, USED};
use writer::{Doubtful, QueueState, Write, Writer};

use crate::message::MessageId;

/// The most writes that wait for the disk.
const MOST_WRITES: usize = 4_096;

#[derive(Clone, Debug)]
pub struct QueueOptions {
    /// The name of this relay in delivery reports.
    pub hostname: String,
    /// The most waiting messages. There may be four times as many items; an item has the recipients of a
    /// message in one domain.
    pub max_messages: u64,
    /// The queue refuses mail if fewer bytes of the disk are free.
    pub min_free: u64,
    /// A message that waits for this long gets a delay report, if its sender asked for one.
    pub delay_report: Span,
    /// A finished message is kept for this long.
    pub history: Span,
    /// The most finished messages that are kept.
    pub history_messages: u64,
}

/// A durable queue.
#[derive(Clone)]
pub struct Queue {
    shared: Arc<QueueState>,
    writes: mpsc::Sender<Write>,
    /// Ends the writer when the last queue is dropped.
    _thread: Arc<WriterThread>,
}

/// Joins the writer thread, so that nothing is written after the queue was dropped.
struct WriterThread(Mutex<Option<thread::JoinHandle<()>>>);

/// The reason why a call to the queue failed. The write may or may not be on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueError {
    /// The error of the system.
    pub reason: String,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self {
            hostname: "localhost".to_owned(),
            max_messages: 1_000_000,
            min_free: 1 << 30,
            delay_report: Span::from_secs(4 * 3_600),
            history: Span::from_secs(86_400),
            history_messages: 10_000,
        }
    }
}

impl Queue {
    /// Opens a queue, and reports its state. The report has the waiting items, and a channel for those that
    /// arrive later.
    pub fn open(
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        options: QueueOptions,
    ) -> Result<(Self, Opened), OpenError> {
        let (arrivals, arrived) = mpsc::unbounded_channel();
        let (database, found) = recovery::recover(&*disk, clock.now(), &options.hostname)?;
        let live = found.live;
        let shared = Arc::new(QueueState {
            disk,
            clock,
            options,
            database: parking_lot::RwLock::new(Some(database)),
            live: live.into(),
            open_items: (found.waiting.len() as u64).into(),
            fullness: Fullness::default(),
        });
        let (writes, receiver) = mpsc::channel(MOST_WRITES);
        let writer =
            Writer { shared: Arc::clone(&shared), writes: receiver, arrivals, doubtful: Doubtful::default() };
        let thread = thread::Builder::new().name("relay-queue".to_owned()).spawn(|| writer.run());
        let thread = thread.map_err(OpenError::Io)?;
        let queue = Self { shared, writes, _thread: Arc::new(WriterThread(Mutex::new(Some(thread)))) };
        let opened = Opened {
            waiting: found.waiting,
            arrived,
            messages: live,
            possible_duplicates: found.possible_duplicates,
            damaged: found.damaged,
            set_aside: found.set_aside,
        };
        Ok((queue, opened))
    }

    /// The number of waiting messages.
    pub fn len(&self) -> u64 {
        self.shared.live.load(Ordering::Relaxed)
    }

    /// Whether the queue accepts no more messages, regardless of the room on the disk.
    fn is_full(&self) -> bool {
        let open_items = self.shared.open_items.load(Ordering::Relaxed);
        tables::is_full(self.len(), open_items, self.shared.options.max_messages)
    }

    /// Fails if messages cannot be kept: the directory is gone, or the disk cannot be asked.
    pub fn check_disk(&self) -> io::Result<()> {
        self.shared.disk.free().map(drop)
    }

    /// Whether no message waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Records that an attempt begins. After this returns, recovery reports the item as a possible duplicate
    /// if the process crashes.
    pub async fn begin_attempt(&self, key: ItemKey, attempt: OpenAttempt) -> Result<(), QueueError> {
        self.write(move |tables, _| tables.open_attempt(key, &attempt)).await
    }

    /// Removes the record of [`Queue::begin_attempt`], because the server never learned of the attempt.
    pub async fn cancel_attempt(&self, key: ItemKey) -> Result<(), QueueError> {
        self.write(move |tables, _| tables.cancel_attempt(key)).await
    }

    /// Records the result of an attempt, or of a decision not to try. Returns the item if some of its
    /// recipients still wait.
    pub async fn finish_attempt(
        &self,
        key: ItemKey,
        result: AttemptResult,
    ) -> Result<Option<Waiting>, QueueError> {
        self.write(move |tables, shared| tables.finish(key, result, &shared.reporting())).await
    }

    /// Adds an event to a message's timeline.
    pub async fn tell(&self, message: MessageId, event: Event) -> Result<(), QueueError> {
        self.write(move |tables, _| tables.tell(message, event)).await
    }

    /// Cancels all waiting recipients of a message. Returns whether the message was still waiting.
    pub async fn cancel(&self, message: MessageId) -> Result<bool, QueueError> {
        let now = self.shared.clock.now();
        self.write(move |tables, shared| tables.cancel(message, now, &shared.reporting())).await
    }

    /// Makes the waiting items of a message due now, and returns them.
    pub async fn retry(&self, message: MessageId) -> Result<Vec<Waiting>, QueueError> {
        let now = self.shared.clock.now();
        self.write(move |tables, _| tables.retry(message, now)).await
    }

    /// Removes a finished message with its history. Returns whether there was one.
    pub async fn delete(&self, message: MessageId) -> Result<bool, QueueError> {
        self.write(move |tables, _| tables.delete(message)).await
    }

    /// Runs `act` in the next transaction. Its changes are durable when this returns.
    async fn write<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Tables<'_>, &QueueState) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T, QueueError> {
        let (answer, answered) = oneshot::channel();
        let shared = Arc::clone(&self.shared);
        let write: Write = Box::new(move |tables| {
            let value = act(tables, &shared)?;
            Ok(Box::new(move |done: Result<(), String>| drop(answer.send(done.map(|()| value)))))
        });
        let stopped = || QueueError { reason: "the queue is stopped or its disk failed".to_owned() };
        self.writes.send(write).await.map_err(|_| stopped())?;
        answered.await.map_err(|_| stopped())?.map_err(|reason| QueueError { reason })
    }

    /// Whether the queue remembers a submission under this idempotency key.
    fn is_used(&self, scope: &str, key: &str) -> Result<bool, QueueError> {
        let read = self.read()?;
        let row = read.open_table(USED)?.get((scope, key))?;
        let used = row.and_then(|row| Used::decode(row.value()));
        Ok(used.is_some_and(|used| used.until > self.shared.clock.now()))
    }

    /// Begins a read transaction. It must outlive the rows that are read: redb's rows do not keep it open, and
    /// the writer may free their pages once it is closed.
    fn read(&self) -> Result<ReadTransaction, QueueError> {
        if let Some(database) = &*self.shared.database.read() {
            return Ok(database.begin_read()?);
        }
        // Only the writer reopens a failed database, and only when it gets a write. So send it an empty one.
        let nothing: Write = Box::new(|_| Ok(Box::new(|_| {})));
        let _ = self.writes.try_send(nothing);
        Err(QueueError { reason: "the queue's disk failed".to_owned() })
    }
}

impl QueueState {
    fn reporting(&self) -> Reporting<'_> {
        Reporting { disk: &*self.disk, hostname: &self.options.hostname }
    }
}

impl Drop for WriterThread {
    fn drop(&mut self) {
        // The sender is dropped before this: the thread writes what waits, and ends.
        if let Some(thread) = self.0.lock().take() {
            let _ = thread.join();
        }
    }
}

impl<E: Into<redb::Error>> From<E> for QueueError {
    fn from(error: E) -> Self {
        Self { reason: error.into().to_string() }
    }
}

impl fmt::Display for QueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the queue failed: {}", self.reason)
    }
}

impl std::error::Error for QueueError {}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("messages", &self.len()).finish_non_exhaustive()
    }
}
