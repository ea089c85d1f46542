//! Counts distinct values in bounded memory: exactly while they are few, and within about half a per cent beyond.

use hashbrown::HashSet;

/// A count of distinct values, given by their hashes.
#[derive(Clone, Debug)]
pub struct Distinct {
    seen: SeenValues,
}

#[derive(Clone, Debug)]
enum SeenValues {
    /// The values themselves, while they are few.
    Few(HashSet<u64>),
    /// HyperLogLog: for each register, chosen by the first bits of a hash, the longest run of zeros in the
    /// other bits.
    Many(Box<[u8]>),
}

/// The most values that are counted exactly.
const FEW: usize = 65_536;
const INDEX_BITS: u32 = 16;

impl Default for Distinct {
    fn default() -> Self {
        Self { seen: SeenValues::Few(HashSet::new()) }
    }
}

impl Distinct {
    /// Counts a value.
    #[inline]
    pub fn note(&mut self, hash: u64) {
        let hash = mixed(hash);
        match &mut self.seen {
            SeenValues::Many(registers) => register(registers, hash),
            SeenValues::Few(values) => {
                values.insert(hash);
                if values.len() > FEW {
                    self.seen = estimated(values);
                }
            }
        }
    }

    /// Whether the count is exact.
    pub fn is_exact(&self) -> bool {
        matches!(self.seen, SeenValues::Few(_))
    }

    /// The number of distinct values.
    pub fn count(&self) -> u64 {
        let registers = match &self.seen {
            SeenValues::Few(values) => return values.len() as u64,
            SeenValues::Many(registers) => registers,
        };
        let many = registers.len() as f64;
        let sum: f64 = registers.iter().map(|run| 0.5_f64.powi(i32::from(*run))).sum();
        let estimate = 0.7213 / (1.0 + 1.079 / many) * many * many / sum;
        let zeros = registers.iter().filter(|run| **run == 0).count();
        let linear = many * (many / (zeros.max(1) as f64)).ln();
        // Linear counting is better as long as many registers are empty.
        (if estimate <= 2.5 * many && zeros > 0 { linear } else { estimate }) as u64
    }
}

#[cold]
fn estimated(values: &HashSet<u64>) -> SeenValues {
    let mut registers = vec![0; 1 << INDEX_BITS];
    values.iter().for_each(|hash| register(&mut registers, *hash));
    SeenValues::Many(registers.into())
}

#[inline]
fn register(registers: &mut [u8], hash: u64) {
    let index = (hash >> (64 - INDEX_BITS)) as usize;
    let run = ((hash << INDEX_BITS) | 1 << (INDEX_BITS - 1)).leading_zeros() as u8 + 1;
    if registers[index] < run {
        registers[index] = run;
    }
}

/// Spreads the bits, since hashes of short keys may not be random in every bit.
#[inline]
fn mixed(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_values_are_counted_exactly_and_many_nearly() {
        let mut distinct = Distinct::default();
        for round in 0..2 {
            for value in 0..1_000_u64 {
                distinct.note(value);
            }
            assert_eq!((distinct.count(), distinct.is_exact()), (1_000, true), "round {round}");
        }
        for value in 0..1_000_000_u64 {
            distinct.note(value);
        }
        assert!(!distinct.is_exact());
        let count = distinct.count() as f64;
        assert!((count - 1e6).abs() < 2e4, "{count}");
    }
}
