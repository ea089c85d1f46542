//! Inspects a state file without opening it as a store: it changes nothing and keeps no lock.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use redb::StorageBackend;

use super::disk::Disk;
use super::identify::{self, Access};
use super::open::{self, OpenError};
use super::tables::{self, Unreadable};

/// The state file at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// The size of the file.
    pub bytes: u64,
    /// Its permissions, if others than the owner have any.
    pub wide_permissions: Option<u32>,
    /// Its condition.
    pub condition: Condition,
}

/// The condition of a state file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It has no content. The store never leaves such a file behind.
    Empty,
    /// A process has it open. Its content changes all the time, so it is not read.
    InUse,
    /// The store would set it aside.
    Damaged {
        /// What is wrong with it.
        reason: String,
    },
    /// The store would use it.
    Sound {
        /// The number of keys.
        keys: u64,
        /// How many durable commits were lost because the newest one is damaged.
        lost_commits: u64,
    },
}

/// Inspects the file at a path; `None` if there is none. It is an error if the file is not a state file.
pub fn inspect(path: &Path) -> Result<Option<Inspection>, OpenError> {
    let path = identify::resolve(path);
    let failed = |error| OpenError::Io { doing: "read", path: path.clone(), error };
    let Some(file) = identify::open(&path, Access::Read)? else { return Ok(None) };
    let bytes = file.metadata().map_err(failed)?.len();
    let wide_permissions = identify::wide_permissions(&file);
    let found = |condition| Ok(Some(Inspection { bytes, wide_permissions, condition }));
    if bytes == 0 {
        return found(Condition::Empty);
    }
    if !identify::is_ours(&file).map_err(failed)? {
        return Err(open::not_ours(&path));
    }
    if is_in_use(&file) {
        return found(Condition::InUse);
    }
    let disk = Disk::drafted(Box::new(Unwritten(file.try_clone().map_err(failed)?))).map_err(failed)?;
    let condition = match open::sound(&disk, |database, _| tables::count(database)) {
        Ok((_, _, lost_commits, keys)) => Condition::Sound { keys, lost_commits },
        // No lock is kept, so a server may have started to write meanwhile.
        Err(_) if is_in_use(&file) => Condition::InUse,
        Err(Unreadable::Foreign) => return Err(OpenError::Foreign { path, what: open::OTHER_DATABASE }),
        Err(Unreadable::Damaged(reason)) => Condition::Damaged { reason },
        Err(Unreadable::Database(error)) => Condition::Damaged { reason: error.to_string() },
    };
    found(condition)
}

/// Whether a process has the file open as a store. The lock that this takes is shared and released at once.
fn is_in_use(file: &File) -> bool {
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => true,
        // Without support for locks this cannot be known.
        Err(TryLockError::Error(_)) => false,
        Ok(()) => {
            let _ = file.unlock();
            false
        }
    }
}

/// A read-only file: the buffer above it keeps all writes.
#[derive(Debug)]
struct Unwritten(File);

impl StorageBackend for Unwritten {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(out, offset)
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn write(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}
