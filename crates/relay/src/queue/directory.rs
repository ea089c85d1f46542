//! A queue in a directory of a file system. It touches only files that it wrote.
//!
//! A directory is ours if its `lock` file says so, or if it is empty. Files are opened without following links, and only
//! regular files are used. Names of texts are 32 hexadecimal digits; everything else is left alone.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use redb::{Builder, Database, DatabaseError};
use rustix::fs::OFlags;

use super::disk::{Disk, Draft, RawFile};
use super::wreck::{MAGIC, Wreck};

/// A directory of a file system.
#[derive(Debug)]
pub struct Directory {
    root: PathBuf,
    /// Locked for as long as the queue is open, so that no second process uses it.
    lock: File,
}

/// The content of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// No queue: a new one can begin here.
    Nothing,
    /// A queue.
    Queue,
    /// A queue that was used before, but whose database is missing or empty.
    QueueWithoutDatabase,
}

const DATABASE: &str = "queue.redb";
/// A new database that will replace a damaged one.
const REBUILT: &str = "rebuilt.redb";
const TEXTS: &str = "texts";
const DRAFTS: &str = "drafts";
const QUARANTINE: &str = "quarantine";
const LOCK: &str = "lock";
/// The content of a queue's lock file.
const MARK: &[u8] = b"This directory is a mail queue of tollgate.\n";
/// The directory that the root of a file system has beside the user's files.
const LOST_AND_FOUND: &str = "lost+found";

impl Directory {
    /// Opens a directory, or creates it. It refuses a directory that contains something other than a queue. It
    /// removes texts that were never kept.
    pub fn open(root: &Path) -> io::Result<Self> {
        create_directory(root, true)?;
        let (lock, was_ours) = lock(root)?;
        for part in [TEXTS, DRAFTS, QUARANTINE] {
            create_directory(&root.join(part), false)?;
        }
        let is_lost = was_ours && matches!(content(root), Ok(Content::QueueWithoutDatabase));
        // If texts of the lost queue are left, opening the queue reports them.
        if is_lost && texts_in(&root.join(TEXTS))?.is_empty() {
            tracing::error!(
                component = "relay",
                queue = %root.display(),
                "the queue's database is missing or empty: mail that waited in it is lost"
            );
        }
        if let Some(parent) = root.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            sync_directory(parent)?;
        }
        if !root.join(DATABASE).try_exists()? && root.join(REBUILT).try_exists()? {
            // A crash came between the two renames, on a file system without hard links.
            fs::rename(root.join(REBUILT), root.join(DATABASE))?;
        }
        sync_directory(root)?;
        warn_of_wide_permissions(root);
        for draft in texts_in(&root.join(DRAFTS))? {
            fs::remove_file(root.join(DRAFTS).join(draft))?;
        }
        Ok(Self { root: root.to_owned(), lock })
    }

    /// Finds out the content of a directory. It changes nothing, and fails where [`Directory::open`] or the
    /// queue would refuse it.
    pub fn inspect(root: &Path) -> io::Result<Content> {
        let lock = match open_regular(OpenOptions::new().read(true), &root.join(LOCK)) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                refuse_occupied(root)?;
                return Ok(Content::Nothing);
            }
            Err(error) => return Err(error),
        };
        if is_marked(&lock, root)? { content(root) } else { Ok(Content::Nothing) }
    }

    /// Whether a process of this machine still uses a queue that was deleted or moved from this directory. Sees only the
    /// processes that the system shows to the caller.
    pub fn is_used_elsewhere(root: &Path) -> bool {
        let Ok(lock) = std::path::absolute(root.join(LOCK)) else { return false };
        let gone = format!("{} (deleted)", lock.display());
        let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
        let mut open = entries(Path::new("/proc")).flat_map(|process| entries(&process.path().join("fd")));
        open.any(|file| fs::read_link(file.path()).is_ok_and(|target| target.as_os_str() == &*gone))
    }

    /// Fails if the files of the open queue are no longer in its directory: what is written to them is lost when the
    /// process ends.
    fn check_in_place(&self) -> io::Result<()> {
        let own = self.lock.metadata()?;
        let found = fs::symlink_metadata(self.root.join(LOCK)).ok();
        let is_own = found.is_some_and(|found| (found.dev(), found.ino()) == (own.dev(), own.ino()));
        if is_own && fs::symlink_metadata(self.root.join(DATABASE)).is_ok_and(|data| data.is_file()) {
            return Ok(());
        }
        let what = format!("the queue in {} was deleted or moved while it was open", self.root.display());
        Err(io::Error::new(io::ErrorKind::NotFound, what))
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
        options.read(true).write(true).create(true).truncate(false);
        let opened = open_regular(&mut options, &path).and_then(|file| {
            refuse_foreign(&file, &path)?;
            Ok(file)
        });
        let database = builder.create_file(opened.map_err(redb::StorageError::from)?)?;
        sync_directory(&self.root).map_err(redb::StorageError::from)?;
        Ok(database)
    }

    fn database_len(&self) -> io::Result<u64> {
        fs::symlink_metadata(self.root.join(DATABASE)).map(|data| data.len())
    }

    fn raw(&self) -> io::Result<Option<Box<dyn RawFile>>> {
        match open_regular(OpenOptions::new().read(true), &self.root.join(DATABASE)) {
            Ok(file) if file.metadata()?.len() == 0 => Ok(None),
            Ok(file) => Ok(Some(Box::new(file))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn rebuilt(&self, builder: &Builder) -> Result<Database, DatabaseError> {
        let path = self.root.join(REBUILT);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        let file = open_regular(&mut options, &path).map_err(redb::StorageError::from)?;
        builder.create_file(file)
    }

    fn replace(&self) -> io::Result<PathBuf> {
        let mut number = 1_u64;
        let aside = loop {
            let aside = self.root.join(format!("damaged-{number}"));
            match DirBuilder::new().mode(0o700).create(&aside) {
                Ok(()) => break aside,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(error),
            }
        };
        let (database, kept) = (self.root.join(DATABASE), aside.join(DATABASE));
        // The damaged database gets a second name first, so that a crash leaves one database in place. Not
        // every file system has hard links.
        if fs::hard_link(&database, &kept).is_err() {
            fs::rename(&database, &kept)?;
        }
        sync_directory(&aside)?;
        sync_directory(&self.root)?;
        fs::rename(self.root.join(REBUILT), &database)?;
        sync_directory(&self.root)?;
        Ok(aside)
    }

    fn create(&self, draft: &str) -> io::Result<Box<dyn Draft>> {
        let mut options = OpenOptions::new();
        let file = open_regular(options.write(true).create_new(true), &self.draft(draft))?;
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
        Ok(Box::new(open_regular(OpenOptions::new().read(true), &self.text(name))?))
    }

    fn remove(&self, name: &str) {
        let _ = fs::remove_file(self.text(name));
    }

    fn quarantine(&self, name: &str) -> io::Result<()> {
        fs::rename(self.text(name), self.root.join(QUARANTINE).join(name))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        texts_in(&self.root.join(TEXTS))
    }

    fn free(&self) -> io::Result<u64> {
        self.check_in_place()?;
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

/// Creates a directory that only its owner can use, unless it exists. The path to a queue may contain a link;
/// its parts may not be links.
fn create_directory(path: &Path, may_be_link: bool) -> io::Result<()> {
    let found = if may_be_link { fs::metadata(path) } else { fs::symlink_metadata(path) };
    match found {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(refused(path, "is not a directory")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().mode(0o700).recursive(true).create(path)
        }
        Err(error) => Err(error),
    }
}

/// Locks a directory that is ours, or that is empty and becomes ours. Also returns whether it was ours.
fn lock(root: &Path) -> io::Result<(File, bool)> {
    let path = root.join(LOCK);
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let file = match open_regular(&mut options, &path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            refuse_occupied(root)?;
            open_regular(options.create(true), &path)?
        }
        Err(error) => return Err(error),
    };
    if file.try_lock().is_err() {
        let what = format!("{} is in use by another process", root.display());
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, what));
    }
    let was_ours = is_marked(&file, root)?;
    if !was_ours {
        file.write_all_at(MARK, 0)?;
        file.sync_all()?;
    }
    Ok((file, was_ours))
}

/// Whether a lock file marks its directory as ours. If it does not, the directory can become ours, or is
/// refused.
fn is_marked(lock: &File, root: &Path) -> io::Result<bool> {
    let mut said = Vec::new();
    lock.take(1 << 10).read_to_end(&mut said)?;
    if said == MARK {
        return Ok(true);
    }
    // A crash during the first start may have cut the mark.
    if !MARK.starts_with(&said) {
        return Err(refused(&root.join(LOCK), "was not written by tollgate"));
    }
    refuse_occupied(root)?;
    Ok(false)
}

/// The content of a directory that is ours.
fn content(root: &Path) -> io::Result<Content> {
    let path = root.join(DATABASE);
    match open_regular(OpenOptions::new().read(true), &path) {
        Ok(file) if file.metadata()?.len() == 0 => Ok(Content::QueueWithoutDatabase),
        Ok(file) => refuse_foreign(&file, &path).map(|()| Content::Queue),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Content::QueueWithoutDatabase),
        Err(error) => Err(error),
    }
}

/// Refuses a directory that holds more than a lock file.
fn refuse_occupied(root: &Path) -> io::Result<()> {
    for entry in fs::read_dir(root)? {
        let name = entry?.file_name();
        if name != LOCK && name != LOST_AND_FOUND {
            return Err(refused(
                root,
                "is not empty, and not a mail queue of tollgate: name another directory",
            ));
        }
    }
    Ok(())
}

/// Refuses a file that is neither a database, nor empty, nor the remains of a crash during its creation: redb
/// writes the first bytes last. A queue whose first page is damaged is not a foreign file.
fn refuse_foreign(file: &File, path: &Path) -> io::Result<()> {
    let mut beginning = [0; MAGIC.len()];
    let read = FileExt::read_at(file, &mut beginning, 0)?;
    let beginning = &beginning[..read];
    if MAGIC.starts_with(beginning)
        || beginning.iter().all(|byte| *byte == 0)
        || !Wreck::new(file)?.states()?.is_empty()
    {
        return Ok(());
    }
    Err(refused(path, "is not the database of a queue: move it away, or name another directory"))
}

fn refused(path: &Path, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, format!("{} {why}", path.display()))
}

/// Opens a regular file without following a link or waiting for a peer. Everything else is refused and left alone.
fn open_regular(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let irregular = || refused(path, "is not a regular file");
    // Opening a device may already have an effect, so the kind of file is checked before, and again after.
    if fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(irregular());
    }
    let flags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);
    let file = options.mode(0o600).custom_flags(flags.bits().cast_signed()).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(irregular()) }
}

/// The names of the texts in a directory.
fn texts_in(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().into_string().unwrap_or_default();
        let is_text = name.len() == 32 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if is_text && entry.file_type()?.is_file() {
            names.push(name);
        }
    }
    Ok(names)
}

fn warn_of_wide_permissions(root: &Path) {
    let Ok(found) = fs::metadata(root) else { return };
    let mode = found.mode() & 0o777;
    if mode & 0o077 != 0 {
        tracing::warn!(
            component = "relay",
            directory = %root.display(),
            mode = format!("{mode:o}"),
            "other users can reach the mail queue; remedy: chmod 700"
        );
    }
}

fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
