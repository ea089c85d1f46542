//! API keys, known only by their hashes.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, HeaderName};
use sha2::{Digest, Sha256};

use super::{BadCredential, Identity, only};

/// The default header of an API key.
pub const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// A known key.
#[derive(Clone)]
pub struct ApiKey {
    /// Its name: rules count by it, and logs show it.
    pub name: Arc<str>,
    /// The consumer that owns it, if one owns several keys.
    pub consumer: Option<Arc<str>>,
    /// The SHA-256 of the key.
    pub hash: [u8; 32],
}

/// The known keys.
pub struct ApiKeys {
    header: HeaderName,
    /// Lookup time reveals nothing about a key, since a client cannot craft a hash that is nearly right.
    by_hash: HashMap<[u8; 32], Holder>,
}

struct Holder {
    name: Arc<str>,
    consumer: Option<Arc<str>>,
}

/// Two entries have the same key. The fault of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadKeys {
    /// The entries.
    pub names: [Arc<str>; 2],
}

impl ApiKeys {
    /// Accepts these keys in this header.
    pub fn new(header: HeaderName, keys: Vec<ApiKey>) -> Result<Self, BadKeys> {
        let mut by_hash: HashMap<[u8; 32], Holder> = HashMap::with_capacity(keys.len());
        for ApiKey { name, consumer, hash } in keys {
            if let Some(earlier) = by_hash.get(&hash) {
                return Err(BadKeys { names: [Arc::clone(&earlier.name), name] });
            }
            by_hash.insert(hash, Holder { name, consumer });
        }
        Ok(Self { header, by_hash })
    }

    /// Records the owner of the request's key.
    pub(super) fn recognise(
        &self,
        headers: &HeaderMap,
        identity: &mut Identity,
    ) -> Result<(), BadCredential> {
        let Some(key) = only(headers, &self.header)?.filter(|key| !key.is_empty()) else { return Ok(()) };
        let hash: [u8; 32] = Sha256::digest(key).into();
        let holder = self.by_hash.get(&hash).ok_or(BadCredential::UnknownKey)?;
        identity.api_key = Some(Arc::clone(&holder.name));
        if let Some(consumer) = &holder.consumer {
            identity.consumer = Some(Arc::clone(consumer));
        }
        Ok(())
    }
}

/// Prints names but no hashes: a short key can be found from its hash.
impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.by_hash.values().map(|holder| &holder.name);
        f.debug_struct("ApiKeys")
            .field("header", &self.header)
            .field("names", &names.collect::<Vec<_>>())
            .finish()
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, consumer, hash: _ } = self;
        f.debug_struct("ApiKey").field("name", name).field("consumer", consumer).finish_non_exhaustive()
    }
}

impl fmt::Display for BadKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [one, other] = &self.names;
        write!(f, "`{one}` and `{other}` have the same key; each needs its own")
    }
}

impl std::error::Error for BadKeys {}
