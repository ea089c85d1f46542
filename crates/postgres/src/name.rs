//! The three names of a counter in the database: an id of 16 bytes, which is a hash of rule and key; a readable
//! text; and the number of its advisory lock.

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use tollgate_core::{Plan, StoreError};

use crate::settings::Settings;
use tollgate_remote::KeyHash;

/// The hash of a counter's rule and key.
pub(crate) type CounterId = [u8; 16];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) id: CounterId,
    pub(crate) lock: i64,
    pub(crate) rule: String,
    /// The escaped key; a hash if the key is too long or secret.
    pub(crate) key: String,
}

pub(crate) struct Names {
    /// Makes the locks of two schemas in one database differ.
    salt: i64,
    /// The secret for hashing keys that must not be readable.
    pub(crate) key_hash: KeyHash,
}

/// The longest key that is kept readable, in bytes.
const MOST_READABLE: usize = 128;

impl Names {
    pub(crate) fn new(settings: &Settings) -> Self {
        let digest = Sha256::digest(settings.schema.as_bytes());
        Self { salt: number(&digest), key_hash: KeyHash::new(settings.key_secret.as_ref()) }
    }

    /// The names of the counter of a rule at a key.
    pub(crate) fn counter(&self, plan: &Plan, key: &str) -> Result<Name, StoreError> {
        let key = if plan.is_secret() {
            let digest = self.key_hash.digest(plan.rule(), key);
            hashed(&digest.ok_or_else(|| StoreError::Unavailable {
                reason: "what secret keys are hashed with is not known yet".into(),
            })?)
        } else {
            let readable = escape(key);
            if readable.len() > MOST_READABLE { hashed(&Sha256::digest(key.as_bytes())) } else { readable }
        };
        let rule = escape(plan.rule());
        let mut hash = Sha256::new();
        // Escaped texts contain no zero byte, so the zero byte between rule and key keeps every pair apart.
        hash.update(rule.as_bytes());
        hash.update([0]);
        hash.update(key.as_bytes());
        let digest = hash.finalize();
        let id: CounterId = digest[..16].try_into().expect("SHA-256 gives 32 bytes");
        Ok(Name { id, lock: self.lock(&id), rule, key })
    }

    /// The advisory lock of a counter.
    pub(crate) fn lock(&self, id: &CounterId) -> i64 {
        number(id) ^ self.salt
    }
}

fn number(bytes: &[u8]) -> i64 {
    i64::from_be_bytes(bytes[..8].try_into().expect("a hash is longer"))
}

fn hashed(digest: &[u8]) -> String {
    format!("#{}", HEXLOWER.encode(&digest[..16]))
}

/// Escapes control characters, `%` and `#`: each of their bytes becomes `%` and two digits.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || c == '%' || c == '#' {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                out.push('%');
                out.push_str(&HEXLOWER.encode(&[byte]));
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// Undoes [`escape`]; `None` if the text is not an escaped one.
pub(crate) fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first == b'%' {
            let digits = after.get(..2)?;
            bytes.extend(HEXLOWER.decode(digits).ok()?);
            rest = &after[2..];
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_and_read_again() {
        for text in ["", "a", "a b", "50%", "#1", "a\0b", "ä\u{85}€\n", "%25"] {
            let escaped = escape(text);
            assert!(!escaped.contains(['\0', '\n', '#']), "{escaped}");
            assert_eq!(unescape(&escaped).as_deref(), Some(text));
        }
        assert_eq!(unescape("%x"), None);
    }

    #[test]
    fn two_counters_never_share_a_name() {
        let names = Names::new(&Settings::parse("postgres://a@localhost/b").unwrap());
        let plan = |rule: &str| Plan::new(rule.into(), vec!["10/min".parse().unwrap()]).unwrap();
        let long = "a".repeat(200);
        let mut seen = Vec::new();
        for rule in ["ip", "ip:a"] {
            for key in ["a", "", "a%", "a%25", "#a", "\0a", ":a", &long] {
                seen.push(names.counter(&plan(rule), key).unwrap().id);
            }
        }
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count);
        let hidden = names.counter(&plan("ip").with_secret_keys(), "sk");
        assert!(matches!(hidden, Err(StoreError::Unavailable { .. })), "the secret is not known yet");
    }
}
