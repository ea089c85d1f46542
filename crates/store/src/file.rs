//! Counters in memory that are saved to a file.
//!
//! Decisions are made in memory, exactly as [`MemoryStore`] makes them. A writer thread saves the changes, at
//! intervals or before a call returns, and the store reads them back at the start. This module does not log;
//! it reports events to the caller that opened the store.

mod board;
mod codec;
mod disk;
mod identify;
mod inspect;
mod open;
mod seal;
mod tables;
mod writer;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use tollgate_core::store::{
    Answer, Counter, Forget, HoldsOrder, HoldsReport, Records, Refunded, SaveMark, Store, StoreError,
};
use tollgate_core::versioned_map::{Changes, Edit, Namespace};
use tollgate_core::{Charges, Clock, Outcome, Span, Timestamp};

use crate::memory::{MemoryStore, Trace};
use board::Board;
use open::Mount;
use tables::Whole;
use writer::Writer;

pub use board::FlushStats;
pub use inspect::{Condition, Inspection, inspect};
pub use open::{OpenError, OpenReport, SetAside};

/// A store in memory that is saved to a file.
pub struct FileStore {
    memory: Arc<MemoryStore>,
    board: Arc<Board>,
    sync: Syncing,
    writer: Option<JoinHandle<()>>,
}

/// How a store is saved.
pub struct FileOptions {
    /// The longest time that a change stays unsaved.
    pub flush_interval: Span,
    /// Whether calls wait until their change is saved.
    pub sync: Syncing,
    /// About how many keys are kept.
    pub max_keys: usize,
    /// Called when saving starts to fail, and when it works again.
    pub on_event: Listener,
}

/// Receives events. The writer thread calls it and waits for its return.
pub type Listener = Box<dyn Fn(FileEvent) + Send + Sync>;

/// When a change is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syncing {
    /// At every interval: a crash loses the changes since the last one.
    Interval,
    /// Before the call returns: a crash loses nothing that was returned. Concurrent changes share a write.
    Always,
}

/// An event of saving.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileEvent {
    /// The file can no longer be written. Nothing is lost unless the process ends: saving is retried at every
    /// interval.
    Failed {
        /// Why.
        reason: String,
    },
    /// Everything is saved again.
    Recovered,
}

impl FileStore {
    /// Opens the file at a path, and creates one if there is none. A damaged state file is set aside, never
    /// written again, and replaced by a new one; the report says so. A file that is not a state file is
    /// refused and left unchanged.
    pub fn open(
        path: impl AsRef<Path>,
        clock: Arc<dyn Clock>,
        options: FileOptions,
    ) -> Result<(Self, OpenReport), OpenError> {
        Self::open_on(path.as_ref(), clock, options, open::plain_mount())
    }

    fn open_on(
        path: &Path,
        clock: Arc<dyn Clock>,
        options: FileOptions,
        mount: Mount,
    ) -> Result<(Self, OpenReport), OpenError> {
        let mut opened = open::open(path, &clock, options.max_keys, &mount)?;
        let whole = if options.sync == Syncing::Always { Whole::Yes } else { Whole::No };
        let marked = opened.file.database.begin_write().map_err(redb::Error::from).and_then(|transaction| {
            tables::upgrade(&transaction)?;
            tables::mark(&transaction, whole, opened.memory.horizon())?;
            opened.file.commit(transaction)
        });
        marked.map_err(|error| OpenError::Io {
            doing: "write to",
            path: opened.path.clone(),
            error: std::io::Error::other(error),
        })?;
        let memory = Arc::new(opened.memory);
        let board = Arc::new(Board::default());
        let writer = Writer {
            memory: Arc::clone(&memory),
            board: Arc::clone(&board),
            path: opened.path.clone(),
            mount,
            open: Some(opened.file),
            flush_interval: options.flush_interval,
            on_event: options.on_event,
            horizon: None,
        };
        let thread = std::thread::Builder::new().name("tollgate-file".to_owned());
        let writer = thread.spawn(|| writer.run()).map_err(|error| OpenError::Io {
            doing: "start the thread that saves",
            path: opened.path,
            error,
        })?;
        Ok((Self { memory, board, sync: options.sync, writer: Some(writer) }, opened.report))
    }

    /// Saves all changes and removes idle keys. Returns when the file has them.
    pub fn flush(&self) -> Result<(), StoreError> {
        self.board.flush()
    }

    /// Statistics of saving.
    pub fn flush_stats(&self) -> FlushStats {
        self.board.stats()
    }

    /// A random secret stored in the file, for signing receipts.
    pub fn secret(&self) -> [u8; 32] {
        self.memory.secret()
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    /// Returns a value at once, or when the changes are in the file.
    fn answer<'a, T: Send + Unpin + 'a>(&'a self, value: T, trace: Trace) -> Answer<'a, T> {
        if self.sync == Syncing::Interval || trace == Trace::None {
            return Answer::ready(Ok(value));
        }
        self.answer_saved(value)
    }

    fn answer_saved<'a, T: Send + Unpin + 'a>(&'a self, value: T) -> Answer<'a, T> {
        let saved = self.board.request();
        Answer::Later(Box::pin(async move { saved.await.map(|()| value) }))
    }
}

impl Store for FileStore {
    fn now(&self) -> Answer<'_, Timestamp> {
        Answer::ready(Ok(self.memory.now()))
    }

    fn answers_at_once(&self) -> bool {
        self.sync == Syncing::Interval
    }

    fn mark(&self) -> SaveMark {
        self.board.mark()
    }

    fn durable(&self, mark: SaveMark) -> Answer<'_, ()> {
        match self.sync {
            // A take is answered when it is saved.
            Syncing::Always => Answer::ready(Ok(())),
            // Requests a flush unless one has begun since the take.
            Syncing::Interval => Answer::Later(Box::pin(self.board.request_since(mark))),
        }
    }

    fn take<'a>(&'a self, charges: &'a Charges<'_>, outcome: &'a mut Outcome) -> Answer<'a, ()> {
        if let Err(error) = self.memory.take_now(charges, outcome) {
            return Answer::ready(Err(error));
        }
        self.answer((), if outcome.taken == 0 { Trace::None } else { Trace::Left })
    }

    fn peek<'a>(&'a self, charges: &'a Charges<'_>, outcome: &'a mut Outcome) -> Answer<'a, ()> {
        Answer::ready(self.memory.peek_now(charges, outcome))
    }

    fn refund<'a>(&'a self, charges: &'a Charges<'_>, taken_at: Timestamp) -> Answer<'a, Refunded> {
        match self.memory.refund_now(charges, taken_at) {
            Ok(refunded) => {
                self.answer(refunded, if refunded == Refunded::Done { Trace::Left } else { Trace::None })
            }
            Err(error) => Answer::ready(Err(error)),
        }
    }

    fn holds<'a>(&'a self, counter: &'a Counter<'a>, order: HoldsOrder<'a>) -> Answer<'a, HoldsReport> {
        match self.memory.holds_now(counter, order) {
            Ok((report, trace)) => self.answer(report, trace),
            Err(error) => Answer::ready(Err(error)),
        }
    }

    fn forget<'a>(&'a self, what: Forget<'a>) -> Answer<'a, ()> {
        self.memory.forget_now(what);
        self.answer((), Trace::Left)
    }

    fn retract<'a>(&'a self, charges: &'a Charges<'_>) -> Answer<'a, ()> {
        match self.memory.retract_now(charges) {
            Ok(()) => self.answer((), Trace::Left),
            Err(error) => Answer::ready(Err(error)),
        }
    }
}

impl Records for FileStore {
    fn change<'a>(&'a self, space: Namespace, edits: &'a [Edit]) -> Answer<'a, Vec<bool>> {
        match self.memory.record_maps().change(space, edits, self.memory.now()) {
            Ok(held) => self.answer_saved(held),
            Err(error) => Answer::ready(Err(error)),
        }
    }

    fn changes(&self, space: Namespace, since: Option<u64>) -> Answer<'_, Changes> {
        let maps = self.memory.record_maps();
        let changes = maps.changes(space, since, self.memory.now());
        // A reader must not act on a change that a crash could undo.
        if maps.is_saved(space, changes.version) {
            return Answer::ready(Ok(changes));
        }
        self.answer_saved(changes)
    }

    fn secret(&self) -> Answer<'_, [u8; 32]> {
        Answer::ready(Ok(Self::secret(self)))
    }
}

/// Saves the last changes and ends the thread.
impl Drop for FileStore {
    fn drop(&mut self) {
        self.board.stop();
        if let Some(writer) = self.writer.take() {
            // If the writer panicked, there is nothing left to report.
            let _ = writer.join();
        }
    }
}

impl fmt::Debug for FileOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileOptions")
            .field("flush_interval", &self.flush_interval)
            .field("sync", &self.sync)
            .field("max_keys", &self.max_keys)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
