//! The disk as the queue sees it: one database, and a file for each large text.
//!
//! The interface is narrow on purpose. A test puts a disk in its place that forgets what was not synced.

use std::fmt;
use std::io::{self, Read};
use std::path::PathBuf;

use redb::{Builder, Database, DatabaseError};

pub use super::directory::{Content, Directory};

/// A disk that keeps a queue.
pub trait Disk: Send + Sync + fmt::Debug + 'static {
    /// Opens the database, or creates it.
    fn database(&self, builder: &Builder) -> Result<Database, DatabaseError>;

    /// How long the database's file is.
    fn database_len(&self) -> io::Result<u64>;

    /// Moves a damaged database and all texts out of the way. Returns where they are.
    fn set_aside(&self) -> io::Result<PathBuf>;

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

    /// How many bytes are free.
    fn free(&self) -> io::Result<u64>;
}

/// A text that is being written.
pub trait Draft: Send {
    /// Appends a piece.
    fn append(&mut self, piece: &[u8]) -> io::Result<()>;

    /// Makes everything that was appended durable.
    fn sync(&mut self) -> io::Result<()>;
}
