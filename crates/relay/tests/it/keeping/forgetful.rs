//! A disk in memory that forgets what was not synced.
//!
//! A crash keeps a random part of the writes since the last sync, in any order, as a drive with a cache may. Texts
//! that were not synced come back short, and names that were not made durable are gone.

use std::collections::BTreeMap;
use std::io::{self, Cursor, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redb::{Builder, Database, DatabaseError, StorageBackend};
use tollgate_relay::queue::disk::{Disk, Draft, RawFile};

use parking_lot::Mutex;

/// A disk. Clones are the same disk, until one crashes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Forgetful(Arc<State>);

#[derive(Debug, Default)]
struct State {
    platter: Mutex<Platter>,
    /// How many more operations succeed; at 0 the power is gone. Counts down only if it was set.
    fuse: AtomicU64,
    pub(crate) free: AtomicU64,
}

#[derive(Debug, Default)]
struct Platter {
    /// The database as it was at the last sync.
    synced: Vec<u8>,
    /// The database as it reads.
    current: Vec<u8>,
    /// What was done to it since the last sync.
    pending: Vec<Step>,
    drafts: BTreeMap<String, TextFile>,
    kept: BTreeMap<String, TextFile>,
    quarantined: BTreeMap<String, TextFile>,
    /// The database that is to replace a damaged one.
    rebuilt: Option<Forgetful>,
    off: bool,
}

/// What a file has in it.
#[derive(Debug)]
struct Bytes(Vec<u8>);

impl RawFile for Bytes {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read_from(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        let rest = self.0.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(out.len());
        out[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write(u64, Vec<u8>),
    Resize(u64),
}

#[derive(Clone, Debug, Default)]
struct TextFile {
    bytes: Vec<u8>,
    synced: usize,
}

const SECTOR: usize = 512;

impl Forgetful {
    pub(crate) fn new() -> Self {
        let disk = Self::default();
        disk.set_free(u64::MAX);
        disk
    }

    pub(crate) fn set_free(&self, bytes: u64) {
        self.0.free.store(bytes, Ordering::SeqCst);
    }

    /// Lets the power fail after so many operations.
    pub(crate) fn fail_after(&self, operations: u64) {
        self.0.fuse.store(operations, Ordering::SeqCst);
    }

    /// Lets operations succeed again, as after a full or a shaky disk.
    pub(crate) fn mend(&self) {
        self.0.fuse.store(0, Ordering::SeqCst);
        self.0.platter.lock().off = false;
    }

    /// Empties the database, and leaves the texts.
    pub(crate) fn lose_database(&self) {
        let mut platter = self.0.platter.lock();
        (platter.synced, platter.current, platter.pending) = (Vec::new(), Vec::new(), Vec::new());
    }

    /// The names of texts in quarantine.
    pub(crate) fn quarantined(&self) -> Vec<String> {
        self.0.platter.lock().quarantined.keys().cloned().collect()
    }

    /// Switches the disk off, and answers what a new start finds. `luck` decides which unsynced sectors survived.
    pub(crate) fn crash(&self, luck: &mut impl FnMut() -> bool) -> Self {
        let mut platter = self.0.platter.lock();
        platter.off = true;
        let mut bytes = platter.synced.clone();
        for step in &platter.pending {
            match step {
                Step::Resize(len) => {
                    if luck() {
                        bytes.resize(*len as usize, 0);
                    }
                }
                Step::Write(offset, data) => {
                    for (number, sector) in data.chunks(SECTOR).enumerate() {
                        let start = *offset as usize + number * SECTOR;
                        if luck() {
                            let end = start + sector.len();
                            bytes.resize(bytes.len().max(end), 0);
                            bytes[start..end].copy_from_slice(sector);
                        }
                    }
                }
            }
        }
        let mut kept = platter.kept.clone();
        for text in kept.values_mut() {
            text.bytes.truncate(text.synced);
        }
        let found = Platter { synced: bytes.clone(), current: bytes, kept, ..Platter::default() };
        let state = State { platter: Mutex::new(found), ..State::default() };
        state.free.store(u64::MAX, Ordering::SeqCst);
        Self(Arc::new(state))
    }

    /// Breaks one byte of the database, as a bad sector does.
    pub(crate) fn spoil(&self, needle: &[u8]) {
        let mut platter = self.0.platter.lock();
        let positions: Vec<usize> = (0..platter.current.len().saturating_sub(needle.len()))
            .filter(|at| platter.current[*at..].starts_with(needle))
            .collect();
        assert!(!positions.is_empty(), "the database holds the needle");
        for at in positions {
            platter.current[at] ^= 0x20;
            platter.synced[at] ^= 0x20;
        }
    }

    /// The names of texts that were kept.
    pub(crate) fn kept(&self) -> Vec<String> {
        self.0.platter.lock().kept.keys().cloned().collect()
    }

    /// How many drafts there are.
    pub(crate) fn drafts(&self) -> usize {
        self.0.platter.lock().drafts.len()
    }

    fn tick(&self) -> io::Result<()> {
        let fuse = &self.0.fuse;
        let left = fuse.load(Ordering::SeqCst);
        if left == 1 {
            self.0.platter.lock().off = true;
        }
        if left > 0 {
            fuse.store(left - 1, Ordering::SeqCst);
        }
        if self.0.platter.lock().off { Err(io::Error::other("the power is gone")) } else { Ok(()) }
    }
}

impl StorageBackend for Forgetful {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.platter.lock().current.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let platter = self.0.platter.lock();
        let start = offset as usize;
        let bytes = platter.current.get(start..start + out.len());
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.tick()?;
        let mut platter = self.0.platter.lock();
        platter.current.resize(len as usize, 0);
        platter.pending.push(Step::Resize(len));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.tick()?;
        let mut platter = self.0.platter.lock();
        platter.synced = platter.current.clone();
        platter.pending.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.tick()?;
        let mut platter = self.0.platter.lock();
        let (start, end) = (offset as usize, offset as usize + data.len());
        if end > platter.current.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        platter.current[start..end].copy_from_slice(data);
        platter.pending.push(Step::Write(offset, data.to_vec()));
        Ok(())
    }
}

impl Disk for Forgetful {
    fn database(&self, builder: &Builder) -> Result<Database, DatabaseError> {
        builder.create_with_backend(self.clone())
    }

    fn database_len(&self) -> io::Result<u64> {
        StorageBackend::len(self)
    }

    fn raw(&self) -> io::Result<Option<Box<dyn RawFile>>> {
        let bytes = self.0.platter.lock().current.clone();
        Ok((!bytes.is_empty()).then(|| Box::new(Bytes(bytes)) as Box<dyn RawFile>))
    }

    fn rebuilt(&self, builder: &Builder) -> Result<Database, DatabaseError> {
        let draft = Self::new();
        self.0.platter.lock().rebuilt = Some(draft.clone());
        builder.create_with_backend(draft)
    }

    fn replace(&self) -> io::Result<PathBuf> {
        let mut platter = self.0.platter.lock();
        let rebuilt = platter.rebuilt.take().ok_or(io::ErrorKind::NotFound)?;
        let bytes = rebuilt.0.platter.lock().synced.clone();
        (platter.synced, platter.current, platter.pending) = (bytes.clone(), bytes, Vec::new());
        Ok("aside".into())
    }

    fn create(&self, draft: &str) -> io::Result<Box<dyn Draft>> {
        self.tick()?;
        self.0.platter.lock().drafts.insert(draft.to_owned(), TextFile::default());
        Ok(Box::new(OpenDraft { disk: self.clone(), name: draft.to_owned() }))
    }

    fn keep(&self, draft: &str, name: &str) -> io::Result<()> {
        self.tick()?;
        let mut platter = self.0.platter.lock();
        let text = platter.drafts.remove(draft).ok_or(io::ErrorKind::NotFound)?;
        platter.kept.insert(name.to_owned(), text);
        Ok(())
    }

    fn discard(&self, draft: &str) {
        self.0.platter.lock().drafts.remove(draft);
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        let platter = self.0.platter.lock();
        let text = platter.kept.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(Cursor::new(text.bytes.clone())))
    }

    fn remove(&self, name: &str) {
        if self.tick().is_ok() {
            self.0.platter.lock().kept.remove(name);
        }
    }

    fn quarantine(&self, name: &str) -> io::Result<()> {
        self.tick()?;
        let mut platter = self.0.platter.lock();
        let text = platter.kept.remove(name).ok_or(io::ErrorKind::NotFound)?;
        platter.quarantined.insert(name.to_owned(), text);
        Ok(())
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.kept())
    }

    fn free(&self) -> io::Result<u64> {
        Ok(self.0.free.load(Ordering::SeqCst))
    }
}

struct OpenDraft {
    disk: Forgetful,
    name: String,
}

impl Draft for OpenDraft {
    fn append(&mut self, piece: &[u8]) -> io::Result<()> {
        self.disk.tick()?;
        let mut platter = self.disk.0.platter.lock();
        let text = platter.drafts.get_mut(&self.name).ok_or(io::ErrorKind::NotFound)?;
        text.bytes.extend_from_slice(piece);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.tick()?;
        let mut platter = self.disk.0.platter.lock();
        let text = platter.drafts.get_mut(&self.name).ok_or(io::ErrorKind::NotFound)?;
        text.synced = text.bytes.len();
        Ok(())
    }
}
