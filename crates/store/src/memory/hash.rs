//! Hashes keys to 128 bits, by which the table and the file know them.
//!
//! rapidhash is fast, and its seeds are random, so a client that cannot see the hashes is not expected to find
//! two keys with the same one. That is not proved: rapidhash is no cryptographic hash. A reader who has its seeds may
//! also be able to compute a key from its hash. A secret key is therefore hashed with HMAC-SHA-256, under the
//! secret of the store.
//!
//! The file holds the seeds, the secret and the hashes together. The HMAC has no known inverse, so a reader of
//! the whole file can only guess keys and compare. That does not find a random API key. It does find a key that
//! is easy to guess, such as a mail address: only the permissions of the file protect those. A reader of the
//! hashes without the secret cannot even compare.

use rapidhash::v3::{RapidSecrets, rapidhash_v3_inline, rapidhash_v3_nano_inline};
use ring::hmac::{self, HMAC_SHA256};
use tollgate_core::Plan;

use super::table::KeyHash;

/// The secrets of the hashes.
pub(crate) struct Secrets {
    seeds: [RapidSecrets; 2],
    hmac: hmac::Key,
}

/// Separates this use of the store's secret from all others.
const PURPOSE: &[u8] = b"tollgate key\0";

impl Secrets {
    pub(crate) fn new(seeds: [u64; 2], secret: &[u8; 32]) -> Self {
        Self { seeds: seeds.map(RapidSecrets::seed), hmac: hmac::Key::new(HMAC_SHA256, secret) }
    }

    /// The hash of a key of a plan's rule. Equal keys of different rules have different hashes.
    #[inline(always)]
    pub(crate) fn hash(&self, plan: &Plan, key: &[u8]) -> KeyHash {
        if plan.is_secret() {
            return self.hash_secret(plan, key);
        }
        let KeyHash(one, other) = self.text(key);
        KeyHash(one ^ plan.salt(), other ^ plan.salt())
    }

    /// The first half of the key's HMAC.
    #[inline(never)]
    fn hash_secret(&self, plan: &Plan, key: &[u8]) -> KeyHash {
        let mut context = hmac::Context::with_key(&self.hmac);
        // No rule has a zero byte in its name, so rule and key are unambiguous.
        for part in [PURPOSE, plan.rule().as_bytes(), b"\0", key] {
            context.update(part);
        }
        let tag = context.sign();
        let (words, _) = tag.as_ref().as_chunks();
        KeyHash(u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1]))
    }

    /// Both functions return the same for short keys. The first is inlined for the common lengths; the second
    /// is small, for all others.
    #[inline(always)]
    fn text(&self, key: &[u8]) -> KeyHash {
        let [one, other] = &self.seeds;
        let hash = |secrets| match key.len() {
            8..=16 => rapidhash_v3_inline::<true, true, false>(key, secrets),
            _ => rapidhash_v3_nano_inline::<true, false>(key, secrets),
        };
        KeyHash(hash(one), hash(other))
    }
}

#[cfg(test)]
mod tests {
    use super::super::random_seeds;
    use super::*;

    const SECRET: [u8; 32] = [5; 32];

    fn plan(rule: &str) -> Plan {
        Plan::new(rule.into(), vec!["5/min".parse().expect("a limit")]).expect("a plan")
    }

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
            assert_eq!(Secrets::new([7, 8], &SECRET).text(&key), KeyHash(nano(7, &key), nano(8, &key)));
        }
    }

    #[test]
    fn a_secret_key_is_hashed_with_the_hmac_of_its_rule_and_not_with_the_seeds() {
        let secret = |rule| plan(rule).with_secret_keys();
        let hash = Secrets::new([7, 8], &SECRET).hash(&secret("account"), b"ada");
        let tag = hmac::sign(&hmac::Key::new(HMAC_SHA256, &SECRET), b"tollgate key\0account\0ada");
        assert_eq!([hash.0, hash.1].map(u64::to_le_bytes).concat(), tag.as_ref()[..16]);
        assert_eq!(Secrets::new([1, 2], &SECRET).hash(&secret("account"), b"ada"), hash, "other seeds");
        let others = [
            Secrets::new([7, 8], &[6; 32]).hash(&secret("account"), b"ada"),
            Secrets::new([7, 8], &SECRET).hash(&secret("user"), b"ada"),
            Secrets::new([7, 8], &SECRET).hash(&secret("account"), b"bob"),
            Secrets::new([7, 8], &SECRET).hash(&plan("account"), b"ada"),
        ];
        assert!(others.iter().all(|other| *other != hash), "{others:?}");
    }
}
