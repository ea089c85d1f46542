//! What connections to other programs have in common: the secrets of their settings, the hashes of secret keys,
//! and TLS for clients and listeners. Absent on purpose: connections and protocols.

mod key_hash;
mod tls;

use std::fmt;

pub use key_hash::KeyHash;
pub use tls::{Identity, Tls, Trust, accept_any_server, listener};

/// A password or another secret. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(pub String);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
