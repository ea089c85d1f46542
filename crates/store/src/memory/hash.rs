//! Hashes keys to 128 bits. A client without the secrets cannot construct a collision.

use rapidhash::v3::{RapidSecrets, rapidhash_v3_inline, rapidhash_v3_nano_inline};
use tollgate_core::Plan;

use super::table::KeyHash;

/// The secrets of two hashes.
pub(crate) struct Secrets([RapidSecrets; 2]);

impl Secrets {
    pub(crate) fn new(seeds: [u64; 2]) -> Self {
        Self(seeds.map(RapidSecrets::seed))
    }

    /// The hash of a key of a plan's rule. The rule's salt separates equal keys of different rules.
    #[inline(always)]
    pub(crate) fn hash(&self, plan: &Plan, key: &[u8]) -> KeyHash {
        self.text(key).map(|hash| hash ^ plan.salt())
    }

    /// Both functions return the same for short keys. The first is inlined for the common lengths; the second
    /// is small, for all others.
    #[inline(always)]
    fn text(&self, key: &[u8]) -> KeyHash {
        let [one, other] = &self.0;
        match key.len() {
            8..=16 => [one, other].map(|secrets| rapidhash_v3_inline::<true, true, false>(key, secrets)),
            _ => [one, other].map(|secrets| rapidhash_v3_nano_inline::<true, false>(key, secrets)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::random_seeds;
    use super::*;

    #[test]
    fn no_two_stores_hash_a_key_alike() {
        let seeds = [1, 2].map(|_| random_seeds());
        assert!(seeds[0] != seeds[1] && seeds[0][0] != seeds[0][1]);
    }

    #[test]
    fn a_key_is_hashed_as_the_nano_variant_hashes_it_whatever_its_length() {
        let nano = |seed, key: &[u8]| rapidhash_v3_nano_inline::<true, false>(key, &RapidSecrets::seed(seed));
        for length in 0..100 {
            let key = vec![b'k'; length];
            assert_eq!(Secrets::new([7, 8]).text(&key), [nano(7, &key), nano(8, &key)]);
        }
    }
}
