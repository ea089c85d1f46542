//! A database's file with all writes kept in memory. Opening a database writes to it: marks and repairs. A
//! damaged file must stay exactly as it is, so a database is first examined through this overlay.

use std::collections::BTreeMap;
use std::io;

use parking_lot::RwLock;
use redb::StorageBackend;

use super::disk::RawFile;

/// The number of bytes that are copied when a part of them is written.
const PAGE: u64 = 4_096;

/// A file, and the writes to it.
#[derive(Debug)]
pub(super) struct Overlay {
    file: Box<dyn RawFile>,
    written: RwLock<Changes>,
}

#[derive(Debug)]
struct Changes {
    len: u64,
    /// The file's own bytes are valid below this offset.
    below: u64,
    /// Changed pages in their current state, by number.
    pages: BTreeMap<u64, Vec<u8>>,
}

impl Overlay {
    pub(super) fn over(file: Box<dyn RawFile>) -> io::Result<Self> {
        let len = file.len()?;
        Ok(Self { file, written: RwLock::new(Changes { len, below: len, pages: BTreeMap::new() }) })
    }

    /// Reads the valid bytes of the file. The rest is zero.
    fn read_below(&self, below: u64, offset: u64, out: &mut [u8]) -> io::Result<()> {
        out.fill(0);
        let valid = usize::try_from(below.saturating_sub(offset)).unwrap_or(usize::MAX).min(out.len());
        let mut filled = 0;
        while filled < valid {
            match self.file.read_from(offset + filled as u64, &mut out[filled..valid])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => filled += read,
            }
        }
        Ok(())
    }
}

impl StorageBackend for Overlay {
    fn len(&self) -> io::Result<u64> {
        Ok(self.written.read().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let written = self.written.read();
        let end = offset.saturating_add(out.len() as u64);
        if end > written.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.read_below(written.below, offset, out)?;
        for (number, page) in written.pages.range(offset / PAGE..end.div_ceil(PAGE)) {
            let start = number * PAGE;
            let (from, to) = (offset.max(start), end.min(start + PAGE));
            let within = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
            out[within(from - offset)..within(to - offset)]
                .copy_from_slice(&page[within(from - start)..within(to - start)]);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let written = &mut *self.written.write();
        if len < written.len {
            drop(written.pages.split_off(&len.div_ceil(PAGE)));
            if let Some(last) = written.pages.get_mut(&(len / PAGE)) {
                last[usize::try_from(len % PAGE).unwrap_or(0)..].fill(0);
            }
        }
        (written.len, written.below) = (len, written.below.min(len));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let written = &mut *self.written.write();
        if offset.saturating_add(data.len() as u64) > written.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let number = at / PAGE;
            if let std::collections::btree_map::Entry::Vacant(vacant) = written.pages.entry(number) {
                let mut page = vec![0; PAGE as usize];
                self.read_below(written.below, number * PAGE, &mut page)?;
                vacant.insert(page);
            }
            let within = (at % PAGE) as usize;
            let count = rest.len().min(PAGE as usize - within);
            if let Some(page) = written.pages.get_mut(&number) {
                page[within..within + count].copy_from_slice(&rest[..count]);
            }
            (at, rest) = (at + count as u64, &rest[count..]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

    use proptest::prelude::*;

    use super::*;

    impl RawFile for Vec<u8> {
        fn len(&self) -> io::Result<u64> {
            Ok(self.as_slice().len() as u64)
        }

        fn read_from(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
            let rest = self.get(offset as usize..).unwrap_or_default();
            let count = rest.len().min(out.len());
            out[..count].copy_from_slice(&rest[..count]);
            Ok(count)
        }
    }

    proptest! {
        #[test]
        fn an_overlay_reads_as_if_it_were_written(
            start in prop::collection::vec(any::<u8>(), 0..20_000),
            acts in prop::collection::vec((0..30_000_u64, prop::option::of(prop::collection::vec(any::<u8>(), 1..6_000))), 0..12),
        ) {
            let overlay = Overlay::over(Box::new(start.clone())).unwrap();
            let mut plain = start;
            for (at, act) in acts {
                match act {
                    None => {
                        plain.resize(at as usize, 0);
                        overlay.set_len(at).unwrap();
                    }
                    Some(data) => {
                        let end = at as usize + data.len();
                        prop_assert_eq!(overlay.write(at, &data).is_ok(), end <= plain.len());
                        if end <= plain.len() {
                            plain[at as usize..end].copy_from_slice(&data);
                        }
                    }
                }
                let mut read = vec![0; StorageBackend::len(&overlay).unwrap() as usize];
                overlay.read(0, &mut read).unwrap();
                prop_assert_eq!(&read, &plain);
                let middle = plain.len() / 3;
                let mut part = vec![0; plain.len() / 2];
                overlay.read(middle as u64, &mut part).unwrap();
                prop_assert_eq!(&part, &plain[middle..middle + part.len()]);
            }
        }
    }
}
