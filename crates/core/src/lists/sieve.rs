//! A sieve for addresses: most of those that no network is around are told from the others by a look or
//! two, however many networks there are.
//!
//! Every network is marked by its first bits, as many as the longest of a few lengths that it has. An
//! address may be in one only if its own first bits, at one of these lengths, are marked too.

use alloc::vec;
use alloc::vec::Vec;

/// Marks for networks.
#[derive(Clone, Debug, Default)]
pub(super) struct Sieve {
    marks: Vec<u64>,
    /// The lengths at which some network is marked.
    lengths: Vec<u8>,
}

/// How many bits there are for each network: few enough to be near, enough that few are taken.
const ROOM: usize = 16;

impl Sieve {
    /// A sieve for networks that were cut to one of these lengths each, and spread.
    pub(super) fn new(nets: impl ExactSizeIterator<Item = (u8, u64)>) -> Self {
        let mut sieve =
            Self { marks: vec![0; (nets.len() * ROOM / 64).next_power_of_two()], lengths: Vec::new() };
        for (length, spread) in nets {
            let (word, bits) = sieve.place(spread);
            sieve.marks[word] |= bits;
            if !sieve.lengths.contains(&length) {
                sieve.lengths.push(length);
            }
        }
        sieve
    }

    /// Whether an address, which is spread once for each length, may be in one of the networks. Without
    /// marks anything may be.
    #[inline]
    pub(super) fn passes(&self, spread: impl Fn(u8) -> u64) -> bool {
        let marked = |length: &u8| {
            let (word, bits) = self.place(spread(*length));
            self.marks[word] & bits == bits
        };
        self.marks.is_empty() || self.lengths.iter().any(marked)
    }

    /// Two bits of one word: one look tells of both, and few have both by chance.
    #[inline]
    fn place(&self, spread: u64) -> (usize, u64) {
        let word = (spread >> 12) as usize & (self.marks.len() - 1);
        (word, 1 << (spread & 63) | 1 << (spread >> 6 & 63))
    }
}
