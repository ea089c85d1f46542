//! The disk as the queue sees it: one database, and a file for each large text.
//!
//! The interface is narrow on purpose. A test puts a disk in its place that forgets what was not synced.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use redb::{Builder, Database, DatabaseError};

pub use super::directory::{Content, Directory};

/// A disk that keeps a queue.
pub trait Disk: Send + Sync + fmt::Debug + 'static {
    /// Opens the database, or creates it.
    fn database(&self, builder: &Builder) -> Result<Database, DatabaseError>;

    /// How long the database's file is.
    fn database_len(&self) -> io::Result<u64>;

    /// The database's file, to look at it without redb; `None` if there is none or it is empty.
    fn raw(&self) -> io::Result<Option<Box<dyn RawFile>>>;

    /// Begins a database that is to replace a damaged one. One that was begun before is given up.
    fn rebuilt(&self, builder: &Builder) -> Result<Database, DatabaseError>;

    /// Puts the database that was rebuilt, which must be closed, in the place of the damaged one. The damaged one is
    /// kept. Returns where it is. After a crash there is one or the other.
    fn replace(&self) -> io::Result<PathBuf>;

    /// Creates a draft: a text that is gone after a crash unless it is kept.
    fn create(&self, draft: &str) -> io::Result<Box<dyn Draft>>;

    /// Keeps a synced draft under a name, durably.
    fn keep(&self, draft: &str, name: &str) -> io::Result<()>;

    /// Removes a draft. It may be gone already.
    fn discard(&self, draft: &str);

    /// Opens a text that was kept.
    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>>;

    /// Removes a text that was kept. It may be gone already.
    fn remove(&self, name: &str);

    /// Moves a text that was kept to where texts go that no message names.
    fn quarantine(&self, name: &str) -> io::Result<()>;

    /// The names of all texts that were kept.
    fn names(&self) -> io::Result<Vec<String>>;

    /// How many bytes are free. Fails if the files are no longer where they belong.
    fn free(&self) -> io::Result<u64>;
}

/// A file that is only read.
pub trait RawFile: Send + Sync + fmt::Debug {
    /// How long it is.
    fn len(&self) -> io::Result<u64>;

    /// Whether it has nothing in it.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Reads from a place. Returns how many bytes it read: none at the end.
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
