//! How the file is opened: found, begun, or set aside.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::backends::FileBackend;
use redb::{Builder, Database, DatabaseError, StorageBackend};
use tollgate_core::Clock;

use super::disk::Disk;
use super::tables::{self, PlanBook, Unreadable};
use crate::memory::MemoryStore;

/// What was found when the file was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// How many keys were read.
    pub keys: usize,
    /// The damaged file that was set aside, if there was one.
    pub set_aside: Option<SetAside>,
}

/// A damaged file that was set aside as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAside {
    /// Where it is now.
    pub to: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

/// Why the file could not be opened. The operator's fault, or the machine's; the file is as it was.
#[derive(Debug)]
pub enum OpenError {
    /// Another process has it open.
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The system refused.
    Io {
        /// What was to be done.
        doing: &'static str,
        /// To which file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
}

/// How an open file becomes a disk. Tests put disks in that fail.
pub(super) type Mount = Arc<dyn Fn(File) -> Result<Box<dyn StorageBackend>, DatabaseError> + Send + Sync>;

/// Everything that an open file amounts to.
pub(super) struct Opened {
    pub(super) database: Database,
    pub(super) memory: MemoryStore,
    pub(super) book: PlanBook,
    pub(super) report: OpenReport,
    pub(super) path: PathBuf,
}

/// Why a file that is there was not opened.
enum Refused {
    Damaged(String),
    Failed(OpenError),
}

/// How much of the file is kept in memory. All states are there anyway.
const CACHE_BYTES: usize = 32 << 20;

pub(super) fn plain_mount() -> Mount {
    Arc::new(|file| Ok(Box::new(FileBackend::new(file)?)))
}

/// Opens the file at a path, beginning one if there is none, and setting a damaged one aside.
pub(super) fn open(
    path: &Path,
    clock: &Arc<dyn Clock>,
    max_keys: usize,
    mount: &Mount,
) -> Result<Opened, OpenError> {
    // A link is followed once, so that what is set aside is the file and not the link.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut set_aside = None;
    match fs::metadata(&path) {
        Ok(found) if found.len() > 0 || !found.is_file() => match read(&path, clock, max_keys, mount) {
            Ok((database, memory, book)) => {
                let report = OpenReport { keys: memory.len(), set_aside };
                return Ok(Opened { database, memory, book, report, path });
            }
            Err(Refused::Failed(error)) => return Err(error),
            Err(Refused::Damaged(reason)) => set_aside = Some(put_aside(&path, reason)?),
        },
        Ok(_) => fs::remove_file(&path).map_err(told("replace the empty file", &path))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(told("look at", &path)(error)),
    }
    begin(&path, mount)?;
    match read(&path, clock, max_keys, mount) {
        Ok((database, memory, book)) => {
            let report = OpenReport { keys: memory.len(), set_aside };
            Ok(Opened { database, memory, book, report, path })
        }
        Err(Refused::Failed(error)) => Err(error),
        Err(Refused::Damaged(reason)) => Err(told("read back the new", &path)(io::Error::other(reason))),
    }
}

/// Opens a file that was open before in this process.
pub(super) fn reopen(path: &Path, mount: &Mount) -> Result<Database, redb::Error> {
    let file = File::options().read(true).write(true).open(path).map_err(redb::Error::Io)?;
    Ok(builder().create_with_backend(Disk::direct(mount(file)?))?)
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

/// Reads a file that is there. Nothing is written to it before all of it is found sound.
fn read(
    path: &Path,
    clock: &Arc<dyn Clock>,
    max_keys: usize,
    mount: &Mount,
) -> Result<(Database, MemoryStore, PlanBook), Refused> {
    let failed = |error| Refused::Failed(told("open", path)(error));
    let file = File::options().read(true).write(true).open(path).map_err(failed)?;
    let disk = mount(file).map_err(|error| refused(path, Unreadable::from(error)))?;
    let disk = Disk::drafted(disk).map_err(failed)?;
    let reading = catch_unwind(AssertUnwindSafe(|| {
        let mut database = builder().create_with_backend(disk.clone())?;
        // Opening checks little of a file that was closed as it should be.
        if !database.check_integrity()? {
            return Err(Unreadable::Damaged("its checksums are wrong".to_owned()));
        }
        let (memory, book) = tables::load(&database, Arc::clone(clock), max_keys)?;
        Ok((database, memory, book))
    }));
    let read = reading.unwrap_or_else(|_| Err(Unreadable::Damaged("the database failed on it".to_owned())));
    let read = read.map_err(|error| refused(path, error))?;
    disk.settle().map_err(|error| Refused::Failed(told("write to", path)(error)))?;
    Ok(read)
}

/// Tells a damaged file from one that the system does not give us.
fn refused(path: &Path, error: Unreadable) -> Refused {
    match error {
        Unreadable::Database(redb::Error::DatabaseAlreadyOpen) => {
            Refused::Failed(OpenError::InUse { path: path.to_owned() })
        }
        Unreadable::Database(redb::Error::Io(error)) => match error.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput => {
                Refused::Damaged(error.to_string())
            }
            _ => Refused::Failed(told("read", path)(error)),
        },
        Unreadable::Database(error) => Refused::Damaged(error.to_string()),
        Unreadable::Damaged(reason) => Refused::Damaged(reason),
    }
}

/// Begins a file: under another name until it is whole, so that a crash leaves none or a sound one.
fn begin(path: &Path, mount: &Mount) -> Result<(), OpenError> {
    let draft = beside(path, "new");
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(&draft).map_err(told("create", &draft))?;
    // What a crash left behind there is begun again, but not what somebody else is beginning now.
    if let Err(TryLockError::WouldBlock) = file.try_lock() {
        return Err(OpenError::InUse { path: path.to_owned() });
    }
    file.set_len(0).map_err(told("create", &draft))?;
    #[cfg(unix)]
    {
        let owner_only = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        file.set_permissions(owner_only).map_err(told("create", &draft))?;
    }
    let failed = |error: redb::Error| {
        let error = match error {
            redb::Error::Io(error) => error,
            other => io::Error::other(other.to_string()),
        };
        told("create", &draft)(error)
    };
    let disk = mount(file).map_err(|error| failed(error.into()))?;
    let database = builder().create_with_backend(Disk::direct(disk)).map_err(|error| failed(error.into()))?;
    tables::found(&database).map_err(failed)?;
    drop(database);
    move_unless_there(&draft, path).map_err(told("create", path))?;
    sync_directory(path).map_err(told("create", path))
}

/// Gives a damaged file a name of its own. It is never written to again, and never written over.
fn put_aside(path: &Path, reason: String) -> Result<SetAside, OpenError> {
    let mut number = 1_u64;
    loop {
        let to = beside(path, &format!("damaged-{number}"));
        match move_unless_there(path, &to) {
            Ok(()) => {
                sync_directory(path).map_err(told("set aside", path))?;
                return Ok(SetAside { to, reason });
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(told("set aside", path)(error)),
        }
    }
}

/// Renames a file, but never over another.
fn move_unless_there(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Ok(()) => fs::remove_file(from),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        // Not every file system knows links.
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

fn told(doing: &'static str, path: &Path) -> impl Fn(io::Error) -> OpenError {
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
            Self::InUse { .. } => None,
            Self::Io { error, .. } => Some(error),
        }
    }
}
