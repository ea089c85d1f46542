//! The entries of the journal within their bounds, and the share of each key.
//!
//! The weight of a share is its number of bytes, so that long texts do not displace short ones. Shares are compared by
//! the power of two of their weights: of shares of about the same weight, the one with the oldest entry loses it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hashbrown::HashMap;

use super::{Class, Entry, KeyMark};

/// The entries, by the order in which they came.
pub(super) struct Pages {
    entries: BTreeMap<u64, PageEntry>,
    next: u64,
    most: usize,
    allowed: Shares,
    refused: Shares,
}

struct PageEntry {
    entry: Entry,
    class: Class,
    mark: KeyMark,
    bytes: usize,
}

/// The shares of one class.
#[derive(Default)]
struct Shares {
    entries: usize,
    bytes: usize,
    by_mark: HashMap<KeyMark, Share>,
    /// The heaviest share is last; of equals, the one with the oldest entry.
    order: BTreeSet<(u32, Reverse<u64>, KeyMark)>,
}

/// The entries of one mark, oldest first.
#[derive(Default)]
struct Share {
    numbers: VecDeque<u64>,
    bytes: usize,
}

/// The most bytes of an entry on average. Usual entries take far less.
const MOST_BYTES_EACH: usize = 4 << 10;
/// The part of the room that allowed attempts keep while there are denials: one in this many.
const ALLOWED_PART: usize = 4;
/// The bytes that an entry takes in addition to its texts.
const OWN_BYTES: usize = 512;

impl Pages {
    pub(super) fn new(most: usize) -> Self {
        Self {
            entries: BTreeMap::new(),
            next: 0,
            most,
            allowed: Shares::default(),
            refused: Shares::default(),
        }
    }

    /// Sets how many entries there may be.
    pub(super) fn keep(&mut self, most: usize) {
        self.most = most;
        self.shrink();
    }

    pub(super) fn write(&mut self, class: Class, mark: KeyMark, entry: Entry) {
        let (number, bytes) = (self.next, entry.bytes() + OWN_BYTES);
        self.next += 1;
        self.shares(class).add(mark, number, bytes);
        self.entries.insert(number, PageEntry { entry, class, mark, bytes });
        self.shrink();
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn oldest(&self) -> Option<&Entry> {
        self.entries.first_key_value().map(|(_, kept)| &kept.entry)
    }

    pub(super) fn newest_first(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values().rev().map(|kept| &kept.entry)
    }

    /// The bytes of all entries.
    pub(super) fn bytes(&self) -> usize {
        self.allowed.bytes + self.refused.bytes
    }

    /// The most bytes of all entries.
    pub(super) fn most_bytes(&self) -> usize {
        self.most * MOST_BYTES_EACH
    }

    fn shares(&mut self, class: Class) -> &mut Shares {
        match class {
            Class::Allowed => &mut self.allowed,
            Class::Refused => &mut self.refused,
        }
    }

    /// Removes entries until the rest is within the bounds.
    fn shrink(&mut self) {
        while self.len() > self.most || self.bytes() > self.most_bytes() {
            let allowed_has_most = self.allowed.entries * ALLOWED_PART > self.most
                || self.allowed.bytes * ALLOWED_PART > self.most_bytes();
            let class = if allowed_has_most { Class::Allowed } else { Class::Refused };
            let number =
                self.shares(class).oldest_of_heaviest().or_else(|| self.allowed.oldest_of_heaviest());
            let Some(kept) = number.and_then(|number| self.entries.remove(&number)) else { break };
            self.shares(kept.class).remove_oldest(kept.mark, kept.bytes);
        }
    }
}

impl Shares {
    fn add(&mut self, mark: KeyMark, number: u64, bytes: usize) {
        let share = self.by_mark.entry(mark).or_default();
        if let Some(place) = share.place(mark) {
            self.order.remove(&place);
        }
        share.numbers.push_back(number);
        share.bytes += bytes;
        self.order.extend(share.place(mark));
        self.entries += 1;
        self.bytes += bytes;
    }

    fn oldest_of_heaviest(&self) -> Option<u64> {
        self.order.last().map(|(_, Reverse(oldest), _)| *oldest)
    }

    fn remove_oldest(&mut self, mark: KeyMark, bytes: usize) {
        let Some(share) = self.by_mark.get_mut(&mark) else { return };
        if let Some(place) = share.place(mark) {
            self.order.remove(&place);
        }
        share.numbers.pop_front();
        share.bytes -= bytes;
        self.entries -= 1;
        self.bytes -= bytes;
        match share.place(mark) {
            Some(place) => {
                self.order.insert(place);
            }
            None => {
                self.by_mark.remove(&mark);
            }
        }
    }
}

impl Share {
    /// Its place in the order; `None` if it is empty.
    fn place(&self, mark: KeyMark) -> Option<(u32, Reverse<u64>, KeyMark)> {
        self.numbers.front().map(|oldest| (self.bytes.ilog2(), Reverse(*oldest), mark))
    }
}
