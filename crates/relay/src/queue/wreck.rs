//! Reads rows from the file of a damaged database, without redb.
//!
//! redb does not read a damaged file: it refuses it, or panics. Its format is simple enough to follow without
//! it: pages of a B-tree, from the roots that the two commit slots name, or found by examining every page.
//! Nothing that is read here is trusted: each page is visited once, and rows have checksums of their own.

use std::collections::{BTreeMap, HashSet};
use std::io;

use redb::backends::InMemoryBackend;
use redb::{ReadableDatabase, StorageBackend};

use super::disk::RawFile;
use super::tables::{COMMITS, META};
use super::writer::builder;

/// The first bytes of a database.
pub(super) const MAGIC: &[u8] = b"redb\x1a\x0a\xa9\x0d\x0a";
const LEAF: u8 = 1;
const BRANCH: u8 = 2;
/// The offsets at which the two commit slots name the roots of their trees.
const ROOTS: [u64; 2] = [64 + 8, 64 + 128 + 8];
/// The largest page that is read. Rows are bounded far below this.
const MOST_PAGE: u64 = 64 << 20;
/// The number of states of the database to read: the last committed one, and the one before, whose pages are
/// overwritten only by the commit after the next.
const MOST_STATES: usize = 2;

/// The widths of the keys and values of a table; `None` if they vary.
#[derive(Clone, Copy, Debug)]
pub(super) struct Widths {
    pub(super) key: Option<usize>,
    pub(super) value: Option<usize>,
}

/// Keys and values of any width.
const VARIABLE: Widths = Widths { key: None, value: None };

/// A damaged file.
pub(super) struct Wreck<'f> {
    file: &'f dyn RawFile,
    layout: Layout,
}

/// The tables after one commit.
#[derive(Debug)]
pub(super) struct State {
    /// The number of the commit.
    commit: u64,
    tables: BTreeMap<String, TableRoot>,
}

#[derive(Clone, Copy, Debug)]
struct TableRoot {
    page: Option<u64>,
    rows: u64,
}

/// The layout of pages in the file.
#[derive(Clone, Copy, Debug)]
struct Layout {
    page: u64,
    region_header: u64,
    region: u64,
}

impl<'f> Wreck<'f> {
    pub(super) fn new(file: &'f dyn RawFile) -> io::Result<Self> {
        Ok(Self { file, layout: Layout::usual()? })
    }

    /// The readable states of the database, the newest first.
    pub(super) fn states(&self) -> io::Result<Vec<State>> {
        let mut states = Vec::new();
        for at in ROOTS {
            if let Some(root) = number(&self.read(at, 8)?, 0) {
                states.extend(self.state(root)?);
            }
        }
        if states.is_empty() {
            states = self.search()?;
        }
        states.sort_by_key(|state| std::cmp::Reverse(state.commit));
        states.truncate(MOST_STATES);
        Ok(states)
    }

    /// Examines every page for one that names the tables of a queue.
    fn search(&self) -> io::Result<Vec<State>> {
        let mut states: Vec<State> = Vec::new();
        for index in 0..(self.file.len()? / self.layout.page).min(1 << 20) {
            // Only pages of the first region and of the smallest size are examined: the list of tables is one
            // of them.
            let beginning = self.read(self.layout.page_at(index).0, 1)?;
            if beginning.first() != Some(&LEAF) {
                continue;
            }
            states.extend(self.state(index)?);
            states.sort_by_key(|state| std::cmp::Reverse(state.commit));
            states.truncate(MOST_STATES);
        }
        Ok(states)
    }

    /// The state whose list of tables has this root, if it is a state of a queue.
    fn state(&self, root: u64) -> io::Result<Option<State>> {
        let mut tables = BTreeMap::new();
        self.walk(root, VARIABLE, &mut |name, definition| {
            if let (Ok(name), Some(root)) = (std::str::from_utf8(name), TableRoot::parse(definition)) {
                tables.insert(name.to_owned(), root);
            }
            Ok::<_, io::Error>(())
        })?;
        use redb::TableHandle;
        if !["messages", "items", "texts"].iter().all(|name| tables.contains_key(*name)) {
            return Ok(None);
        }
        let mut state = State { commit: 0, tables };
        let mut commit = 0;
        self.rows(&state, META.name(), Widths { key: None, value: Some(8) }, &mut |name, value| {
            if name == COMMITS.as_bytes() {
                commit = number(value, 0).unwrap_or(0);
            }
            Ok::<_, io::Error>(())
        })?;
        state.commit = commit;
        Ok(Some(state))
    }

    /// Hands over every readable row of a table. Rows and keys may be damaged.
    pub(super) fn rows<E: From<io::Error>>(
        &self,
        state: &State,
        table: &str,
        widths: Widths,
        see: &mut impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        match state.tables.get(table).and_then(|table| table.page) {
            Some(root) => self.walk(root, widths, see),
            None => Ok(()),
        }
    }

    /// Visits the pages of a tree, each once.
    fn walk<E: From<io::Error>>(
        &self,
        root: u64,
        widths: Widths,
        see: &mut impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut visited, mut open) = (HashSet::from([root]), vec![root]);
        while let Some(page) = open.pop() {
            let (at, len) = self.layout.page_at(page);
            let bytes = self.read(at, len)?;
            match bytes.first() {
                Some(&BRANCH) => {
                    let children = children(&bytes);
                    open.extend(children.into_iter().rev().filter(|child| visited.insert(*child)));
                }
                Some(&LEAF) => {
                    for (key, value) in pairs(&bytes, widths) {
                        see(key, value)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Hands over every row of every leaf in the file, also of leaves that no tree names any more. Most of
    /// those are old.
    pub(super) fn all_rows<E: From<io::Error>>(
        &self,
        widths: Widths,
        see: &mut impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut at, len) = (self.layout.page, self.file.len()?);
        while at < len {
            let mut page = self.read(at, self.layout.page)?;
            if page.first() == Some(&LEAF)
                && let Some(end) = end_of(&page, widths)
            {
                if end > page.len() {
                    page = self.read(at, end as u64)?;
                }
                for (key, value) in pairs(&page, widths) {
                    see(key, value)?;
                }
            }
            at += self.layout.page;
        }
        Ok(())
    }

    /// Reads the part of a range that the file contains.
    fn read(&self, at: u64, len: u64) -> io::Result<Vec<u8>> {
        let there = self.file.len()?.saturating_sub(at).min(len).min(MOST_PAGE);
        let mut bytes = vec![0; usize::try_from(there).unwrap_or(0)];
        let mut filled = 0;
        while filled < bytes.len() {
            match self.file.read_from(at + filled as u64, &mut bytes[filled..])? {
                0 => break,
                read => filled += read,
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }
}

impl State {
    /// The number of rows that a table had.
    pub(super) fn rows_of(&self, table: &str) -> u64 {
        self.tables.get(table).map_or(0, |table| table.rows)
    }
}

impl TableRoot {
    /// Parses the definition of a table: its kind, its length, its root.
    fn parse(definition: &[u8]) -> Option<Self> {
        const NORMAL: u8 = 3;
        let (kind, has_root) = (*definition.first()?, *definition.get(9)?);
        let (rows, page) = (number(definition, 1)?, number(definition, 10)?);
        (kind == NORMAL && has_root <= 1).then_some(Self { page: (has_root == 1).then_some(page), rows })
    }
}

impl Layout {
    /// The layout that this version gives its databases. The damaged file may not have it.
    fn usual() -> io::Result<Self> {
        let backend = InMemoryBackend::new();
        let fresh = std::sync::Arc::new(backend);
        let database = builder().create_with_backend(SharedMemory(std::sync::Arc::clone(&fresh)));
        let database = database.map_err(io::Error::other)?;
        drop(database.begin_read().map_err(io::Error::other)?);
        let mut header = [0; 24];
        fresh.read(0, &mut header)?;
        let word = |at: usize| {
            let bytes = header.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).unwrap_or_default();
            u64::from(u32::from_le_bytes(bytes))
        };
        let (page, header_pages, data_pages) = (word(12), word(16), word(20));
        Ok(Self { page, region_header: header_pages * page, region: (header_pages + data_pages) * page })
    }

    /// The offset and the length of a page. A page number has the index, the region, and the size.
    fn page_at(&self, number: u64) -> (u64, u64) {
        const BITS: u64 = (1 << 20) - 1;
        let order = number >> 59;
        let (index, region) = (number & (BITS >> order), (number >> 20) & BITS);
        let len = self.page << order;
        (self.page + region * self.region + self.region_header + index * len, len)
    }
}

/// A backend that can be read while a database uses it.
#[derive(Debug)]
struct SharedMemory(std::sync::Arc<InMemoryBackend>);

impl StorageBackend for SharedMemory {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }
}

/// The numbers of the pages below a branch. A branch has a head, a checksum for each page, and then the
/// numbers.
fn children(page: &[u8]) -> Vec<u64> {
    let count = short(page, 2).map_or(0, |keys| keys + 1);
    (0..count).map_while(|child| number(page, 8 + 16 * count + 8 * child)).collect()
}

/// The end of the last value of a leaf, as its first page gives it.
fn end_of(page: &[u8], widths: Widths) -> Option<usize> {
    let count = short(page, 2)?;
    let ends = if widths.key.is_none() { 4 + 4 * count } else { 4 };
    long(page, ends + 4 * count.checked_sub(1)?)
}

/// The keys and values of a leaf. A leaf has their ends, if their widths vary, then all keys, then all values.
fn pairs(page: &[u8], widths: Widths) -> Vec<(&[u8], &[u8])> {
    let count = short(page, 2).unwrap_or(0);
    let ends = |width: Option<usize>| if width.is_none() { 4 * count } else { 0 };
    let (key_ends, value_ends) = (4, 4 + ends(widths.key));
    let keys = value_ends + ends(widths.value);
    let key_end = |pair: usize| match widths.key {
        Some(width) => Some(keys + width * (pair + 1)),
        None => long(page, key_ends + 4 * pair),
    };
    let values = count.checked_sub(1).and_then(key_end).unwrap_or(keys);
    let value_end = |pair: usize| match widths.value {
        Some(width) => Some(values + width * (pair + 1)),
        None => long(page, value_ends + 4 * pair),
    };
    let start = |pair: usize, first: usize, end: &dyn Fn(usize) -> Option<usize>| match pair.checked_sub(1) {
        Some(before) => end(before),
        None => Some(first),
    };
    let pair = |pair: usize| {
        let key = page.get(start(pair, keys, &key_end)?..key_end(pair)?)?;
        Some((key, page.get(start(pair, values, &value_end)?..value_end(pair)?)?))
    };
    (0..count).filter_map(pair).collect()
}

fn short(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..at.checked_add(2)?)?.try_into().ok()?;
    Some(usize::from(u16::from_le_bytes(bytes)))
}

fn long(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
    usize::try_from(u32::from_le_bytes(bytes)).ok()
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}
