//! A Bloom filter for addresses: it rejects most addresses that are in no network with one or two reads,
//! however many networks there are.
//!
//! Every network is marked by its first bits, at the longest of a few lengths that it has. An address can be
//! in a network only if its own first bits are marked at one of these lengths.

use alloc::vec;
use alloc::vec::Vec;

/// The marks of networks.
#[derive(Clone, Debug, Default)]
pub(super) struct BloomFilter {
    marks: Vec<u64>,
    /// The lengths at which networks are marked.
    lengths: Vec<u8>,
}

/// Bits per network: few enough to stay in the cache, enough for few false positives.
const ROOM: usize = 16;

impl BloomFilter {
    /// A filter for networks, each given by its length and the hash of its first bits.
    pub(super) fn new(nets: impl ExactSizeIterator<Item = (u8, u64)>) -> Self {
        let mut filter =
            Self { marks: vec![0; (nets.len() * ROOM / 64).next_power_of_two()], lengths: Vec::new() };
        for (length, spread) in nets {
            let (word, bits) = filter.place(spread);
            filter.marks[word] |= bits;
            if !filter.lengths.contains(&length) {
                filter.lengths.push(length);
            }
        }
        filter
    }

    /// Whether an address may be in one of the networks; `spread` hashes its first bits for a length. An
    /// empty filter passes every address.
    #[inline]
    pub(super) fn passes(&self, spread: impl Fn(u8) -> u64) -> bool {
        let marked = |length: &u8| {
            let (word, bits) = self.place(spread(*length));
            self.marks[word] & bits == bits
        };
        self.marks.is_empty() || self.lengths.iter().any(marked)
    }

    /// Two bits of one word: one read checks both, and few addresses have both by chance.
    #[inline]
    fn place(&self, spread: u64) -> (usize, u64) {
        let word = (spread >> 12) as usize & (self.marks.len() - 1);
        (word, 1 << (spread & 63) | 1 << (spread >> 6 & 63))
    }
}
