//! Nested networks as flat ranges: every address is in one range, and a range knows the smallest network
//! around it. A lookup is one search in a sorted list.

use alloc::vec;
use alloc::vec::Vec;

use super::bloom_filter::BloomFilter;

/// The bits of an address.
pub(super) trait Bits: Copy + Ord {
    /// The last address of the network of this length that starts here.
    fn last(self, length: u8) -> Self;

    /// The address after this one; `None` after the last.
    fn next(self) -> Option<Self>;

    /// The first bits, which are the position in the index.
    fn head(self) -> usize;

    /// The longest length up to this one at which the filter marks networks.
    fn marked_at(length: u8) -> u8;

    /// A hash of the first bits.
    fn spread(self, length: u8) -> u64;
}

/// Ranges of addresses.
#[derive(Clone, Debug)]
pub(super) struct Ranges<B> {
    /// The first address of each range.
    starts: Vec<B>,
    /// The number of the smallest network around each range.
    owners: Vec<u32>,
    /// For each value of the first bits, the first range that starts with it or later. Short lists have no
    /// index.
    index: Vec<u32>,
    /// Rejects most addresses without a search. Short lists have no filter.
    filter: BloomFilter,
}

/// No network.
pub(super) const NONE: u32 = u32::MAX;

/// The number of first bits in the index.
const HEAD_BITS: u32 = 16;
/// The length from which a list has an index.
const INDEXED: usize = 1_024;

impl<B: Bits> Ranges<B> {
    /// Makes ranges from networks. They must be sorted by their first address, the larger first if it is
    /// equal, and unique. `inside` gets the number of each network and that of the next larger one around it,
    /// or [`NONE`].
    pub(super) fn new(nets: impl Iterator<Item = (B, u8, u32)>, mut inside: impl FnMut(u32, u32)) -> Self {
        let mut ranges = Self::default();
        let mut marks: Vec<(u8, u64)> = Vec::new();
        let mut open: Vec<(B, u32)> = Vec::new();
        let owner = |open: &[(B, u32)]| open.last().map_or(NONE, |(_, number)| *number);
        for (first, length, number) in nets {
            while let Some((last, _)) = open.last().copied().filter(|(last, _)| *last < first) {
                open.pop();
                ranges.begin(last.next(), owner(&open));
            }
            inside(number, owner(&open));
            let marked_at = B::marked_at(length);
            marks.push((marked_at, first.spread(marked_at)));
            ranges.begin(Some(first), number);
            open.push((first.last(length), number));
        }
        while let Some((last, _)) = open.pop() {
            ranges.begin(last.next(), owner(&open));
        }
        if ranges.starts.len() >= INDEXED {
            ranges.index = ranges.index();
            ranges.filter = BloomFilter::new(marks.into_iter());
        }
        ranges
    }

    /// Starts a range, unless there are no addresses left.
    fn begin(&mut self, at: Option<B>, owner: u32) {
        let Some(at) = at else { return };
        if self.starts.last() == Some(&at) {
            self.starts.pop();
            self.owners.pop();
        }
        self.starts.push(at);
        self.owners.push(owner);
    }

    fn index(&self) -> Vec<u32> {
        let mut index = vec![0; (1 << HEAD_BITS) + 1];
        for start in &self.starts {
            index[start.head() + 1] += 1;
        }
        let mut sum = 0;
        for count in &mut index {
            sum += *count;
            *count = sum;
        }
        index
    }

    /// The number of the smallest network around an address, or [`NONE`].
    #[inline]
    pub(super) fn find(&self, address: B) -> u32 {
        if !self.filter.passes(|length| address.spread(length)) {
            return NONE;
        }
        let (from, to) = match self.index.get(address.head()..address.head() + 2) {
            Some(bounds) => (bounds[0] as usize, bounds[1] as usize),
            None => (0, self.starts.len()),
        };
        let after = from + self.starts[from..to].partition_point(|start| *start <= address);
        after.checked_sub(1).map_or(NONE, |at| self.owners[at])
    }
}

impl<B> Default for Ranges<B> {
    fn default() -> Self {
        Self { starts: Vec::new(), owners: Vec::new(), index: Vec::new(), filter: BloomFilter::default() }
    }
}

impl Bits for u32 {
    fn last(self, length: u8) -> Self {
        self | Self::MAX.checked_shr(u32::from(length)).unwrap_or(0)
    }

    fn next(self) -> Option<Self> {
        self.checked_add(1)
    }

    fn head(self) -> usize {
        (self >> (Self::BITS - HEAD_BITS)) as usize
    }

    fn marked_at(length: u8) -> u8 {
        length & !7
    }

    #[inline]
    fn spread(self, length: u8) -> u64 {
        mix(u64::from(self.checked_shr(Self::BITS - u32::from(length)).unwrap_or(0)), length)
    }
}

/// Hashes the first bits of a network of this length.
#[inline]
fn mix(bits: u64, length: u8) -> u64 {
    let product = u128::from(bits ^ u64::from(length) << 56) * 0x9e37_79b9_7f4a_7c15;
    (product >> 64) as u64 ^ product as u64
}

impl Bits for u128 {
    fn last(self, length: u8) -> Self {
        self | Self::MAX.checked_shr(u32::from(length)).unwrap_or(0)
    }

    fn next(self) -> Option<Self> {
        self.checked_add(1)
    }

    fn head(self) -> usize {
        (self >> (Self::BITS - HEAD_BITS)) as usize
    }

    fn marked_at(length: u8) -> u8 {
        // Longer prefixes rarely distinguish addresses of one network.
        match length {
            64.. => 64,
            56.. => 56,
            _ => length & !15,
        }
    }

    #[inline]
    fn spread(self, length: u8) -> u64 {
        mix(self.checked_shr(Self::BITS - u32::from(length)).unwrap_or(0) as u64, length)
    }
}
