//! The disk as the queue sees it: one database, and a file for each large text.
//!
//! The interface is narrow on purpose, so that a test can replace it with a disk that forgets unsynced writes.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use redb::{Builder, Database, DatabaseError};

pub use super::directory::{Content, Directory};

/// A disk that stores a queue.
pub trait Disk: Send + Sync + fmt::Debug + 'static {
    /// Opens the database, or creates it.
    fn database(&self, builder: &Builder) -> Result<Database, DatabaseError>;

    /// The length of the database's file.
    fn database_len(&self) -> io::Result<u64>;

    /// The database's file, to read it without redb; `None` if there is none or it is empty.
    fn raw(&self) -> io::Result<Option<Box<dyn RawFile>>>;

    /// Creates a new database that will replace a damaged one. An earlier new one is removed.
    fn rebuilt(&self, builder: &Builder) -> Result<Database, DatabaseError>;

    /// Puts the new database, which must be closed, in the place of the damaged one. The damaged one is kept;
    /// returns its path. After a crash, one or the other is in place.
    fn replace(&self) -> io::Result<PathBuf>;

    /// Creates a draft: a text that is removed after a crash unless it was kept.
    fn create(&self, draft: &str) -> io::Result<Box<dyn Draft>>;

    /// Keeps a synced draft under a name, durably.
    fn keep(&self, draft: &str, name: &str) -> io::Result<()>;

    /// Removes a draft. It may be gone already.
    fn discard(&self, draft: &str);

    /// Opens a text that was kept.
    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>>;

    /// Removes a text that was kept. It may be gone already.
    fn remove(&self, name: &str);

    /// Moves a kept text that no message names to the quarantine.
    fn quarantine(&self, name: &str) -> io::Result<()>;

    /// The names of all texts that were kept.
    fn names(&self) -> io::Result<Vec<String>>;

    /// The number of free bytes. Fails if the files are no longer where they belong.
    fn free(&self) -> io::Result<u64>;
}

/// A file that is only read.
pub trait RawFile: Send + Sync + fmt::Debug {
    /// The length of the file.
    fn len(&self) -> io::Result<u64>;

    /// Whether it has nothing in it.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Reads from an offset. Returns the number of bytes read: zero at the end.
    fn read_from(&self, offset: u64, out: &mut [u8]) -> io::Result<usize>;
}

impl RawFile for File {
    fn len(&self) -> io::Result<u64> {
        self.metadata().map(|data| data.len())
    }

    fn read_from(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        FileExt::read_at(self, out, offset)
    }
}

/// A text that is being written.
pub trait Draft: Send {
    /// Appends a piece.
    fn append(&mut self, piece: &[u8]) -> io::Result<()>;

    /// Makes everything that was appended durable.
    fn sync(&mut self) -> io::Result<()>;
}
