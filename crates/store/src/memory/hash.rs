//! From keys to 128 bits that nobody outside can make collide.

use rapidhash::v3::{RapidSecrets, rapidhash_v3_inline, rapidhash_v3_nano_inline};
use tollgate_core::Plan;

use super::table::KeyHash;

/// Two secrets for two hashes.
pub(crate) struct Secrets([RapidSecrets; 2]);

impl Secrets {
    pub(crate) fn new(seeds: [u64; 2]) -> Self {
        Self(seeds.map(RapidSecrets::seed))
    }

    /// What a key of a plan's rule is known by. A rule's salt sets its keys apart from equal ones of
    /// other rules.
    #[inline(always)]
    pub(crate) fn hash(&self, plan: &Plan, key: &str) -> KeyHash {
        let [one, other] = &self.0;
        [text(one, key.as_bytes()) ^ plan.salt(), text(other, key.as_bytes()) ^ plan.salt()]
    }
}

/// Both functions say the same of short keys, but only the first is spelled out on the spot for them,
/// and only the second is small for all others.
#[inline(always)]
fn text(secrets: &RapidSecrets, key: &[u8]) -> u64 {
    match key.len() {
        ..=16 => rapidhash_v3_inline::<true, true, false>(key, secrets),
        _ => rapidhash_v3_nano_inline::<true, false>(key, secrets),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_hashed_as_the_nano_variant_hashes_it_whatever_its_length() {
        let secrets = RapidSecrets::seed(7);
        for length in 0..100 {
            let key = vec![b'k'; length];
            assert_eq!(text(&secrets, &key), rapidhash_v3_nano_inline::<true, false>(&key, &secrets));
        }
    }
}
