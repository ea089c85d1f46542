//! TLS: the certificates of listeners, and the verification of upstreams.

use std::sync::Arc;

use rustls::{ClientConfig, ServerConfig};
use tollgate_remote::{Trust, listener};

use crate::settings::{Protocol, TlsSettings, UpstreamTls};

/// The TLS configuration of a listener. The error text says what is wrong.
pub(crate) fn server(tls: &TlsSettings, http2: bool) -> Result<Arc<ServerConfig>, String> {
    let mut config = listener(&tls.certificates, &tls.key)?;
    if http2 {
        config.alpn_protocols.push(b"h2".to_vec());
    }
    config.alpn_protocols.push(b"http/1.1".to_vec());
    Ok(Arc::new(config))
}

/// The TLS configuration for an upstream. The error text says what is wrong.
pub(crate) fn client(tls: &UpstreamTls, protocol: Protocol) -> Result<Arc<ClientConfig>, String> {
    let trust = tls.authorities.as_deref().map_or(Trust::System, Trust::Authorities);
    let mut config = trust.configuration_as(tls.identity.as_ref())?;
    config.alpn_protocols = match protocol {
        Protocol::Http1 => vec![b"http/1.1".to_vec()],
        Protocol::Http2 => vec![b"h2".to_vec()],
    };
    Ok(Arc::new(config))
}
