//! Opens the file, creates it, or sets it aside.

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::backends::FileBackend;
use redb::{Builder, Database, DatabaseError, StorageBackend, WriteTransaction};
use tollgate_core::Clock;

use super::disk::Disk;
use super::identify::{self, Access};
use super::seal;
use super::tables::{self, PlanNumbers, Unreadable};
use crate::memory::MemoryStore;

/// What was found when the file was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// How many keys were read.
    pub keys: usize,
    /// The damaged file that was set aside, if there was one.
    pub set_aside: Option<SetAside>,
    /// Whether the file existed but was empty. The store never leaves an empty file behind.
    pub was_empty: bool,
    /// How many durable commits were lost because the newest one was damaged.
    pub lost_commits: u64,
    /// The file's permissions, if others than the owner have any.
    pub wide_permissions: Option<u32>,
}

/// A damaged file that was set aside unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAside {
    /// Its new path.
    pub to: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

/// Why the file could not be opened. The operator's fault or the machine's; the file is unchanged.
#[derive(Debug)]
pub enum OpenError {
    /// Another process has it open.
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The file was not written by this store and must not be changed.
    Foreign {
        /// Its path.
        path: PathBuf,
        /// What kind of file it is, with its article.
        what: &'static str,
    },
    /// A system call failed.
    Io {
        /// The operation.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

/// Makes a storage backend from an open file. Tests use failing ones.
pub(super) type Mount = Arc<dyn Fn(File) -> Result<Box<dyn StorageBackend>, DatabaseError> + Send + Sync>;

/// The parts of an open file.
pub(super) struct Opened {
    pub(super) file: OpenFile,
    pub(super) memory: MemoryStore,
    pub(super) report: OpenReport,
    pub(super) path: PathBuf,
}

/// An open, sound file.
pub(super) struct OpenFile {
    pub(super) database: Database,
    pub(super) plan_numbers: PlanNumbers,
    disk: Disk,
    /// The number of the newest commit.
    commits: u64,
}

impl OpenFile {
    /// Makes a transaction durable, and seals the file with its number.
    pub(super) fn commit(&mut self, transaction: WriteTransaction) -> Result<(), redb::Error> {
        tables::number(&transaction, self.commits + 1)?;
        transaction.commit()?;
        self.commits += 1;
        seal::write(&self.disk, self.commits);
        Ok(())
    }
}

/// Why an existing file was not opened.
enum Refused {
    Damaged(String),
    Failed(OpenError),
}

/// The database's cache. All states are in memory anyway.
const CACHE_BYTES: usize = 32 << 20;

/// The description of a database with other tables.
pub(super) const OTHER_DATABASE: &str = "a database of another program";

pub(super) fn plain_mount() -> Mount {
    Arc::new(|file| Ok(Box::new(FileBackend::new(file)?)))
}

/// Opens the file at a path. Creates one if there is none, and sets a damaged one aside.
pub(super) fn open(
    path: &Path,
    clock: &Arc<dyn Clock>,
    max_keys: usize,
    mount: &Mount,
) -> Result<Opened, OpenError> {
    let path = identify::resolve(path);
    let mut report = OpenReport::default();
    if let Some(file) = identify::open(&path, Access::Write)? {
        report.wide_permissions = identify::wide_permissions(&file);
        if file.metadata().map_err(failed_to("look at", &path))?.len() == 0 {
            report.was_empty = true;
            remove_empty(&file, &path)?;
        } else {
            let kept = file.try_clone().map_err(failed_to("open", &path))?;
            match read(file, &path, clock, max_keys, mount) {
                Ok((file, memory, lost_commits)) => {
                    report = OpenReport { keys: memory.len(), lost_commits, ..report };
                    return Ok(Opened { file, memory, report, path });
                }
                Err(Refused::Failed(error)) => return Err(error),
                Err(Refused::Damaged(reason)) => report.set_aside = Some(put_aside(&kept, &path, reason)?),
            }
        }
    }
    begin(&path, mount)?;
    let file = identify::open(&path, Access::Write)?;
    let file = file.ok_or_else(|| failed_to("read back the new", &path)(io::ErrorKind::NotFound.into()))?;
    match read(file, &path, clock, max_keys, mount) {
        Ok((file, memory, _)) => Ok(Opened { file, memory, report, path }),
        Err(Refused::Failed(error)) => Err(error),
        Err(Refused::Damaged(reason)) => Err(failed_to("read back the new", &path)(io::Error::other(reason))),
    }
}

/// Opens a file that this process had open before.
pub(super) fn reopen(path: &Path, mount: &Mount) -> Result<OpenFile, Unreadable> {
    let refused = |error: OpenError| Unreadable::Damaged(error.to_string());
    let file = identify::open(path, Access::Write).map_err(refused)?;
    let file = file.ok_or_else(|| redb::Error::Io(io::ErrorKind::NotFound.into()))?;
    let disk = Disk::direct(mount(file)?);
    let database = builder().create_with_backend(disk.clone())?;
    let (plan_numbers, commits) = (PlanNumbers::recount(&database)?, tables::commits(&database)?);
    let commits = commits.max(seal::read(&disk).unwrap_or(0));
    Ok(OpenFile { database, plan_numbers, disk, commits })
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

/// Reads an existing file, and returns how many commits it has lost. Nothing is written to it before all of
/// it is found sound.
fn read(
    file: File,
    path: &Path,
    clock: &Arc<dyn Clock>,
    max_keys: usize,
    mount: &Mount,
) -> Result<(OpenFile, MemoryStore, u64), Refused> {
    let failed = |error| Refused::Failed(failed_to("open", path)(error));
    if !identify::is_ours(&file).map_err(failed)? {
        return Err(Refused::Failed(not_ours(path)));
    }
    let disk = mount(file).map_err(|error| refused(path, Unreadable::from(error)))?;
    let disk = Disk::drafted(disk).map_err(failed)?;
    let read = sound(&disk, |database, lost| {
        let (memory, plan_numbers) = tables::load(database, Arc::clone(clock), max_keys, lost)?;
        Ok((memory, plan_numbers))
    });
    let (database, commits, lost, (memory, plan_numbers)) = read.map_err(|error| refused(path, error))?;
    disk.settle().map_err(|error| Refused::Failed(failed_to("write to", path)(error)))?;
    Ok((OpenFile { database, plan_numbers, disk, commits }, memory, lost))
}

/// Opens a database and reads it, if all of it is sound. Also returns the number of its newest commit, and
/// how many commits were lost.
pub(super) fn sound<T>(
    disk: &Disk,
    load: impl FnOnce(&Database, u64) -> Result<T, Unreadable>,
) -> Result<(Database, u64, u64, T), Unreadable> {
    let sealed = seal::read(disk).unwrap_or(0);
    let reading = catch_unwind(AssertUnwindSafe(|| {
        let mut database = builder().create_with_backend(disk.clone())?;
        // Opening checks little of a file that was closed properly.
        if !database.check_integrity()? {
            return Err(Unreadable::Damaged("its checksums are wrong".to_owned()));
        }
        let commits = tables::commits(&database)?;
        let lost = sealed.saturating_sub(commits);
        let loaded = load(&database, lost)?;
        Ok((database, commits.max(sealed), lost, loaded))
    }));
    reading.unwrap_or_else(|_| Err(Unreadable::Damaged("the database failed on it".to_owned())))
}

/// The error for a file that is not a state file.
pub(super) fn not_ours(path: &Path) -> OpenError {
    OpenError::Foreign { path: path.to_owned(), what: "not a state file" }
}

/// Distinguishes a damaged file from a system error.
fn refused(path: &Path, error: Unreadable) -> Refused {
    match error {
        Unreadable::Database(redb::Error::DatabaseAlreadyOpen) => {
            Refused::Failed(OpenError::InUse { path: path.to_owned() })
        }
        Unreadable::Database(redb::Error::Io(error)) => match error.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput => {
                Refused::Damaged(error.to_string())
            }
            _ => Refused::Failed(failed_to("read", path)(error)),
        },
        Unreadable::Foreign => {
            Refused::Failed(OpenError::Foreign { path: path.to_owned(), what: OTHER_DATABASE })
        }
        Unreadable::Database(error) => Refused::Damaged(error.to_string()),
        Unreadable::Damaged(reason) => Refused::Damaged(reason),
    }
}

/// Creates a file, under another name until it is complete, so that a crash leaves none or a sound one.
fn begin(path: &Path, mount: &Mount) -> Result<(), OpenError> {
    let draft = beside(path, "new");
    let file = identify::open(&draft, Access::Create)?;
    let file = file.ok_or_else(|| failed_to("create", &draft)(io::ErrorKind::NotFound.into()))?;
    // Overwrites what a crash left there, but not what another process is creating now.
    if let Err(TryLockError::WouldBlock) = file.try_lock() {
        return Err(OpenError::InUse { path: path.to_owned() });
    }
    if !identify::is_draft(&file).map_err(failed_to("create", &draft))? {
        return Err(not_ours(&draft));
    }
    file.set_len(0).map_err(failed_to("create", &draft))?;
    let owner_only = fs::Permissions::from_mode(0o600);
    file.set_permissions(owner_only).map_err(failed_to("create", &draft))?;
    let failed = |error: redb::Error| {
        let error = match error {
            redb::Error::Io(error) => error,
            other => io::Error::other(other.to_string()),
        };
        failed_to("create", &draft)(error)
    };
    let disk = mount(file).map_err(|error| failed(error.into()))?;
    let disk = Disk::direct(disk);
    let database = builder().create_with_backend(disk.clone()).map_err(|error| failed(error.into()))?;
    tables::found(&database).map_err(failed)?;
    seal::write(&disk, 0);
    drop(database);
    move_unless_there(&draft, path).map_err(failed_to("create", path))?;
    sync_directory(path).map_err(failed_to("create", path))
}

/// Removes an empty file, so that a new one can replace it.
fn remove_empty(file: &File, path: &Path) -> Result<(), OpenError> {
    still_there(file, path)
        .and_then(|()| fs::remove_file(path))
        .map_err(failed_to("replace the empty file", path))
}

/// Renames a damaged file. It is never written or overwritten again.
fn put_aside(file: &File, path: &Path, reason: String) -> Result<SetAside, OpenError> {
    still_there(file, path).map_err(failed_to("set aside", path))?;
    let mut number = 1_u64;
    loop {
        let to = beside(path, &format!("damaged-{number}"));
        match move_unless_there(path, &to) {
            Ok(()) => {
                sync_directory(path).map_err(failed_to("set aside", path))?;
                return Ok(SetAside { to, reason });
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(failed_to("set aside", path)(error)),
        }
    }
}

/// Fails if another file has replaced the inspected one.
fn still_there(file: &File, path: &Path) -> io::Result<()> {
    if identify::is_at(file, path)? {
        return Ok(());
    }
    Err(io::Error::other("another file was put in its place meanwhile"))
}

/// Renames a file, but never over another.
fn move_unless_there(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Ok(()) => fs::remove_file(from),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        // Not every file system supports hard links.
        Err(_) if !to.try_exists()? => fs::rename(from, to),
        Err(_) => Err(io::ErrorKind::AlreadyExists.into()),
    }
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}

fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

fn failed_to(doing: &'static str, path: &Path) -> impl Fn(io::Error) -> OpenError {
    let path = path.to_owned();
    move |error| OpenError::Io { doing, path: path.clone(), error }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse { path } => write!(
                f,
                "{} is in use by another process: stop that one, or give this one a file of its own",
                path.display()
            ),
            Self::Foreign { path, what } => write!(
                f,
                "{} is {what}, so tollgate does not touch it: name another file in `store`, or move this one away",
                path.display()
            ),
            Self::Io { doing, path, error } => {
                write!(f, "cannot {doing} {}: {error}", path.display())?;
                match error.kind() {
                    io::ErrorKind::PermissionDenied => {
                        f.write_str("; the file and its directory must be readable and writable")
                    }
                    io::ErrorKind::NotFound => f.write_str("; its directory must exist"),
                    _ => Ok(()),
                }
            }
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::InUse { .. } | Self::Foreign { .. } => None,
            Self::Io { error, .. } => Some(error),
        }
    }
}

#[cfg(test)]
mod tests;
