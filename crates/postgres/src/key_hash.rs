//! What keys that must not be read are hashed with: the secret that is configured, else the store's own.

use parking_lot::RwLock;
use ring::hmac::{self, HMAC_SHA256};

use crate::settings::Password;

/// Hashes keys that must not be read.
pub(crate) struct KeyHash {
    /// What to hash with, if that is configured.
    configured: Option<hmac::Key>,
    /// The secret of the store, once it is known.
    stored: RwLock<Option<Stored>>,
}

/// The secret of the store, made ready.
struct Stored {
    secret: [u8; 32],
    key: hmac::Key,
}

/// Whatever else the store's secret is used for is never begun like this.
const PURPOSE: &[u8] = b"tollgate key\0";

impl KeyHash {
    /// With this secret, or else with that of the store, which is to be learned.
    pub(crate) fn new(configured: Option<&Password>) -> Self {
        let configured = configured.map(|secret| hmac::Key::new(HMAC_SHA256, secret.0.as_bytes()));
        Self { configured, stored: RwLock::new(None) }
    }

    /// Takes note of the store's secret.
    pub(crate) fn learn(&self, secret: [u8; 32]) {
        if self.stored() != Some(secret) {
            *self.stored.write() = Some(Stored { secret, key: hmac::Key::new(HMAC_SHA256, &secret) });
        }
    }

    /// Whether keys can be hashed.
    pub(crate) fn is_ready(&self) -> bool {
        self.configured.is_some() || self.stored.read().is_some()
    }

    /// The store's secret, once it is known.
    pub(crate) fn stored(&self) -> Option<[u8; 32]> {
        self.stored.read().as_ref().map(|stored| stored.secret)
    }

    /// What stands for a key of a rule: equal keys of two rules do not look alike. `None` as long as it
    /// is not known what to hash with.
    pub(crate) fn digest(&self, rule: &str, key: &str) -> Option<[u8; 32]> {
        match &self.configured {
            Some(secret) => Some(sign(secret, rule, key)),
            None => self.stored.read().as_ref().map(|stored| sign(&stored.key, rule, key)),
        }
    }
}

fn sign(secret: &hmac::Key, rule: &str, key: &str) -> [u8; 32] {
    let mut context = hmac::Context::with_key(secret);
    // No rule has a zero in its name, so that rule and key cannot be told apart in two ways.
    for part in [PURPOSE, rule.as_bytes(), b"\0", key.as_bytes()] {
        context.update(part);
    }
    context.sign().as_ref().try_into().expect("SHA-256 gives 32 bytes")
}
