//! Hashes secret keys, with the configured secret or else the store's own.

use parking_lot::RwLock;
use ring::hmac::{self, HMAC_SHA256};

use crate::Password;

/// Hashes the keys of secret rules.
pub struct KeyHash {
    /// The configured secret, if there is one.
    configured: Option<hmac::Key>,
    /// The store's secret, once it is known.
    stored: RwLock<Option<Stored>>,
}

/// The store's secret, ready for use.
struct Stored {
    secret: [u8; 32],
    key: hmac::Key,
}

/// Separates this use of the store's secret from all others.
const PURPOSE: &[u8] = b"tollgate key\0";

impl KeyHash {
    /// Uses the configured secret, or else the store's, which must be learned.
    pub fn new(configured: Option<&Password>) -> Self {
        let configured = configured.map(|secret| hmac::Key::new(HMAC_SHA256, secret.0.as_bytes()));
        Self { configured, stored: RwLock::new(None) }
    }

    /// Stores the store's secret.
    pub fn learn(&self, secret: [u8; 32]) {
        if self.stored() != Some(secret) {
            *self.stored.write() = Some(Stored { secret, key: hmac::Key::new(HMAC_SHA256, &secret) });
        }
    }

    /// Whether keys can be hashed.
    pub fn is_ready(&self) -> bool {
        self.configured.is_some() || self.stored.read().is_some()
    }

    /// The store's secret, once it is known.
    pub fn stored(&self) -> Option<[u8; 32]> {
        self.stored.read().as_ref().map(|stored| stored.secret)
    }

    /// The hash of a rule's key. Equal keys of two rules have different hashes. `None` while no secret is
    /// known.
    pub fn digest(&self, rule: &str, key: &str) -> Option<[u8; 32]> {
        match &self.configured {
            Some(secret) => Some(sign(secret, rule, key)),
            None => self.stored.read().as_ref().map(|stored| sign(&stored.key, rule, key)),
        }
    }
}

fn sign(secret: &hmac::Key, rule: &str, key: &str) -> [u8; 32] {
    let mut context = hmac::Context::with_key(secret);
    // No rule has a zero byte in its name, so rule and key are unambiguous.
    for part in [PURPOSE, rule.as_bytes(), b"\0", key.as_bytes()] {
        context.update(part);
    }
    context.sign().as_ref().try_into().expect("SHA-256 gives 32 bytes")
}
