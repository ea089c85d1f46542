//! The disk as the queue sees it: one database, and a file for each large text.
//!
//! The interface is narrow on purpose. A test puts a disk in its place that forgets what was not synced.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use redb::{Builder, Database, DatabaseError};

/// A disk that keeps a queue.
pub trait Disk: Send + Sync + fmt::Debug + 'static {
    /// Opens the database, or creates it.
    fn database(&self, builder: &Builder) -> Result<Database, DatabaseError>;

    /// How long the database's file is.
    fn database_len(&self) -> io::Result<u64>;

    /// Moves a damaged database and all texts out of the way. Answers where they are.
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

/// A directory of a file system.
#[derive(Debug)]
pub struct Directory {
    root: PathBuf,
    /// Locked for as long as the queue is open, so that no second process uses it.
    _lock: File,
}

const DATABASE: &str = "queue.redb";
const TEXTS: &str = "texts";
const DRAFTS: &str = "drafts";

impl Directory {
    /// Opens a directory, or creates it. Texts that were never kept are removed.
    pub fn open(root: &Path) -> io::Result<Self> {
        for part in [root, &root.join(TEXTS), &root.join(DRAFTS)] {
            fs::create_dir_all(part)?;
        }
        if let Some(parent) = root.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            sync_directory(parent)?;
        }
        sync_directory(root)?;
        let mut options = OpenOptions::new();
        let lock = options.create(true).append(true).mode(0o600).open(root.join("lock"))?;
        if lock.try_lock().is_err() {
            let what = format!("{} is in use by another process", root.display());
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, what));
        }
        for entry in fs::read_dir(root.join(DRAFTS))? {
            fs::remove_file(entry?.path())?;
        }
        Ok(Self { root: root.to_owned(), _lock: lock })
    }

    fn text(&self, name: &str) -> PathBuf {
        self.root.join(TEXTS).join(name)
    }

    fn draft(&self, name: &str) -> PathBuf {
        self.root.join(DRAFTS).join(name)
    }
}

impl Disk for Directory {
    fn database(&self, builder: &Builder) -> Result<Database, DatabaseError> {
        let path = self.root.join(DATABASE);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&path).map_err(redb::StorageError::from)?;
        let database = builder.create_file(file)?;
        sync_directory(&self.root).map_err(redb::StorageError::from)?;
        Ok(database)
    }

    fn database_len(&self) -> io::Result<u64> {
        fs::metadata(self.root.join(DATABASE)).map(|data| data.len())
    }

    fn set_aside(&self) -> io::Result<PathBuf> {
        let mut number = 1_u64;
        let aside = loop {
            let aside = self.root.join(format!("damaged-{number}"));
            match fs::create_dir(&aside) {
                Ok(()) => break aside,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(error),
            }
        };
        fs::rename(self.root.join(DATABASE), aside.join(DATABASE))?;
        fs::rename(self.root.join(TEXTS), aside.join(TEXTS))?;
        fs::create_dir(self.root.join(TEXTS))?;
        sync_directory(&self.root)?;
        Ok(aside)
    }

    fn create(&self, draft: &str) -> io::Result<Box<dyn Draft>> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(self.draft(draft))?;
        Ok(Box::new(DraftFile(file)))
    }

    fn keep(&self, draft: &str, name: &str) -> io::Result<()> {
        fs::rename(self.draft(draft), self.text(name))?;
        sync_directory(&self.root.join(TEXTS))
    }

    fn discard(&self, draft: &str) {
        let _ = fs::remove_file(self.draft(draft));
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(File::open(self.text(name))?))
    }

    fn remove(&self, name: &str) {
        let _ = fs::remove_file(self.text(name));
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(self.root.join(TEXTS))?;
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn free(&self) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(&self.root)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

struct DraftFile(File);

impl Draft for DraftFile {
    fn append(&mut self, piece: &[u8]) -> io::Result<()> {
        self.0.write_all(piece)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }
}

fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
