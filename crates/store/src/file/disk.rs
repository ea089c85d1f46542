//! The file as the database sees it.
//!
//! Opening a database may write to it: marks, repairs. Until everything in it has been read and found sound,
//! those writes are kept in memory. So a damaged file can be set aside exactly as it was found.

use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::RwLock;
use redb::{BackendError, StorageBackend};

/// A file, with or without buffered writes.
#[derive(Clone, Debug)]
pub(super) struct Disk(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    below: Box<dyn StorageBackend>,
    draft: RwLock<Option<Draft>>,
}

/// Buffered writes.
#[derive(Debug)]
struct Draft {
    len: u64,
    /// How much of the file is still valid.
    below: u64,
    /// The changed pages in their current state.
    pages: BTreeMap<u64, Box<[u8]>>,
    /// Every operation in its order, to be repeated on the file.
    log: Vec<Step>,
}

#[derive(Debug)]
enum Step {
    Write(u64, Box<[u8]>),
    Resize(u64),
    Sync,
}

const PAGE: u64 = 4_096;

impl Disk {
    /// A disk whose file is not written before [`Disk::settle`].
    pub(super) fn drafted(below: Box<dyn StorageBackend>) -> io::Result<Self> {
        let len = below.len()?;
        let draft = Draft { len, below: len, pages: BTreeMap::new(), log: Vec::new() };
        Ok(Self(Arc::new(Inner { below, draft: RwLock::new(Some(draft)) })))
    }

    /// A disk whose file is written directly.
    pub(super) fn direct(below: Box<dyn StorageBackend>) -> Self {
        Self(Arc::new(Inner { below, draft: RwLock::new(None) }))
    }

    /// Writes the buffered operations in their order, and everything later directly.
    pub(super) fn settle(&self) -> io::Result<()> {
        let mut draft = self.0.draft.write();
        for step in draft.iter().flat_map(|draft| &draft.log) {
            match step {
                Step::Write(offset, data) => self.0.below.write(*offset, data)?,
                Step::Resize(len) => self.0.below.set_len(*len)?,
                Step::Sync => self.0.below.sync_data()?,
            }
        }
        *draft = None;
        Ok(())
    }
}

impl Draft {
    fn read(&self, below: &dyn StorageBackend, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let end = offset + out.len() as u64;
        if end > self.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let known = self.below.clamp(offset, end) - offset;
        let (old, new) = out.split_at_mut(known as usize);
        if !old.is_empty() {
            below.read(offset, old)?;
        }
        new.fill(0);
        for (number, page) in self.pages.range(offset / PAGE..end.div_ceil(PAGE)) {
            let start = number * PAGE;
            let (from, to) = (offset.max(start), end.min(start + PAGE));
            out[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&page[(from - start) as usize..(to - start) as usize]);
        }
        Ok(())
    }

    fn write(&mut self, below: &dyn StorageBackend, offset: u64, data: &[u8]) -> io::Result<()> {
        let end = offset + data.len() as u64;
        if end > self.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        for number in offset / PAGE..end.div_ceil(PAGE) {
            let start = number * PAGE;
            if !self.pages.contains_key(&number) {
                let mut page = vec![0; PAGE as usize].into_boxed_slice();
                let there = (self.len - start).min(PAGE) as usize;
                self.read(below, start, &mut page[..there])?;
                self.pages.insert(number, page);
            }
            let page = self.pages.get_mut(&number).expect("it was put in just now");
            let (from, to) = (offset.max(start), end.min(start + PAGE));
            page[(from - start) as usize..(to - start) as usize]
                .copy_from_slice(&data[(from - offset) as usize..(to - offset) as usize]);
        }
        self.log.push(Step::Write(offset, data.into()));
        Ok(())
    }

    fn resize(&mut self, len: u64) {
        self.below = self.below.min(len);
        self.pages.retain(|number, page| {
            let there = len.saturating_sub(number * PAGE).min(PAGE) as usize;
            page[there..].fill(0);
            there > 0
        });
        self.len = len;
        self.log.push(Step::Resize(len));
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        match &*self.0.draft.read() {
            Some(draft) => Ok(draft.len),
            None => self.0.below.len(),
        }
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match &*self.0.draft.read() {
            Some(draft) => draft.read(&*self.0.below, offset, out),
            None => self.0.below.read(offset, out),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        match &mut *self.0.draft.write() {
            Some(draft) => draft.resize(len),
            None => self.0.below.set_len(len)?,
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        match &mut *self.0.draft.write() {
            Some(draft) => draft.log.push(Step::Sync),
            None => self.0.below.sync_data()?,
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        match &mut *self.0.draft.write() {
            Some(draft) => draft.write(&*self.0.below, offset, data),
            None => self.0.below.write(offset, data),
        }
    }

    fn close(&self) -> io::Result<()> {
        self.0.below.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.below.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.below.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.below.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.below.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.below.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.below.query_lock_range(start, end)
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use proptest::prelude::*;
    use redb::backends::InMemoryBackend;

    use super::*;

    #[derive(Clone, Debug)]
    enum Act {
        Write(u64, Vec<u8>),
        /// Writes up to the very end.
        WriteLast(Vec<u8>),
        Resize(u64),
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            3 => (0..20_000_u64, prop::collection::vec(any::<u8>(), 1..6_000))
                .prop_map(|(offset, data)| Act::Write(offset, data)),
            1 => prop::collection::vec(any::<u8>(), 1..6_000).prop_map(Act::WriteLast),
            1 => (0..30_000_u64).prop_map(Act::Resize),
        ]
    }

    fn whole(disk: &dyn StorageBackend) -> Vec<u8> {
        let mut bytes = vec![0; disk.len().unwrap() as usize];
        disk.read(0, &mut bytes).unwrap();
        bytes
    }

    /// A file that records which calls about locks reach it, and answers as the test says.
    #[derive(Debug, Default)]
    struct Locks {
        calls: Arc<Mutex<Vec<&'static str>>>,
        answer: bool,
    }

    impl Locks {
        fn note(&self, call: &'static str) {
            self.calls.lock().push(call);
        }
    }

    impl StorageBackend for Locks {
        fn len(&self) -> io::Result<u64> {
            Ok(0)
        }

        fn read(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
            Ok(())
        }

        fn set_len(&self, _: u64) -> io::Result<()> {
            Ok(())
        }

        fn sync_data(&self) -> io::Result<()> {
            Ok(())
        }

        fn write(&self, _: u64, _: &[u8]) -> io::Result<()> {
            Ok(())
        }

        fn close(&self) -> io::Result<()> {
            self.note("close");
            Ok(())
        }

        fn try_lock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<bool, BackendError> {
            self.note("try_lock");
            Ok(self.answer)
        }

        fn try_lock_shared_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<bool, BackendError> {
            self.note("try_lock_shared");
            Ok(self.answer)
        }

        fn lock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<(), BackendError> {
            self.note("lock");
            Ok(())
        }

        fn lock_shared_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<(), BackendError> {
            self.note("lock_shared");
            Ok(())
        }

        fn unlock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<(), BackendError> {
            self.note("unlock");
            Ok(())
        }

        fn query_lock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<bool, BackendError> {
            self.note("query_lock");
            Ok(self.answer)
        }
    }

    #[test]
    fn a_disk_locks_and_closes_its_file_with_or_without_a_draft() {
        let (from, to) = (Bound::Unbounded, Bound::Unbounded);
        for answer in [true, false] {
            for is_drafted in [true, false] {
                let calls = Arc::default();
                let file = Box::new(Locks { calls: Arc::clone(&calls), answer });
                let disk = if is_drafted { Disk::drafted(file).unwrap() } else { Disk::direct(file) };
                assert_eq!(disk.try_lock_range(from, to).unwrap(), answer);
                assert_eq!(disk.try_lock_shared_range(from, to).unwrap(), answer);
                assert_eq!(disk.query_lock_range(from, to).unwrap(), answer);
                disk.lock_range(from, to).unwrap();
                disk.lock_shared_range(from, to).unwrap();
                disk.unlock_range(from, to).unwrap();
                disk.close().unwrap();
                let expected =
                    ["try_lock", "try_lock_shared", "query_lock", "lock", "lock_shared", "unlock", "close"];
                assert_eq!(*calls.lock(), expected);
            }
        }
    }

    proptest! {
        #[test]
        fn a_draft_reads_as_if_written_and_leaves_the_file_alone(
            start in prop::collection::vec(any::<u8>(), 0..20_000),
            acts in prop::collection::vec(act(), 0..12),
            part in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
        ) {
            let file = || {
                let file = InMemoryBackend::new();
                file.set_len(start.len() as u64).unwrap();
                StorageBackend::write(&file, 0, &start).unwrap();
                file
            };
            let plain = file();
            // A disk without buffered writes shows what is in the file.
            let below = Disk::drafted(Box::new(file())).unwrap();
            below.settle().unwrap();
            let disk = Disk::drafted(Box::new(below.clone())).unwrap();
            for act in acts {
                let write = |offset, data: Vec<u8>| (plain_write(&plain, offset, &data), disk.write(offset, &data));
                match act {
                    Act::Write(offset, data) => {
                        let (wrote, drafted) = write(offset, data);
                        prop_assert_eq!(wrote.is_ok(), drafted.is_ok());
                    }
                    Act::WriteLast(data) => {
                        let end = plain.len().unwrap();
                        let (wrote, drafted) = write(end.saturating_sub(data.len() as u64), data);
                        prop_assert_eq!(wrote.is_ok(), drafted.is_ok());
                    }
                    Act::Resize(len) => {
                        plain.set_len(len).unwrap();
                        disk.set_len(len).unwrap();
                    }
                }
                let bytes = whole(&plain);
                prop_assert_eq!(whole(&disk), bytes.clone());
                let (one, other) = (part.0.index(bytes.len() + 1), part.1.index(bytes.len() + 1));
                let (from, to) = (one.min(other), one.max(other));
                let mut read = vec![0; to - from];
                disk.read(from as u64, &mut read).unwrap();
                prop_assert_eq!(&read, &bytes[from..to], "a part of it");
            }
            prop_assert_eq!(whole(&below), start.clone(), "nothing was written yet");
            disk.settle().unwrap();
            prop_assert_eq!(whole(&below), whole(&plain));
        }
    }

    fn plain_write(file: &InMemoryBackend, offset: u64, data: &[u8]) -> io::Result<()> {
        StorageBackend::write(file, offset, data)
    }
}
