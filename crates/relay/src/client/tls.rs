//! TLS at the next hop: verified for accounts, unverified for direct delivery, because MX hosts have no certificates that
//! could be verified.

use std::sync::Arc;

use rustls::ClientConfig;
use tollgate_remote::{Trust, accept_any_server};

/// Verifies certificates with these authorities, as PEM, or with those of the system. An error says in words what is
/// wrong with them.
pub fn authorities(pem: Option<&[u8]>) -> Result<Arc<ClientConfig>, String> {
    pem.map_or(Trust::System, Trust::Authorities).configuration().map(Arc::new)
}

/// The same configuration, but for verification.
pub(super) fn unverified(verified: &ClientConfig) -> Arc<ClientConfig> {
    Arc::new(accept_any_server(verified))
}
