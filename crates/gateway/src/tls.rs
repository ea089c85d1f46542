//! TLS: the certificates of listeners, and the verification of upstreams.

use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ServerConfig};
use tollgate_remote::Trust;

use crate::settings::{Protocol, TlsSettings, UpstreamTls};

/// The TLS configuration of a listener. The error text says what is wrong.
pub(crate) fn server(tls: &TlsSettings, http2: bool) -> Result<Arc<ServerConfig>, String> {
    let certificates = CertificateDer::pem_slice_iter(&tls.certificates)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| format!("the certificates cannot be read: {error}"))?;
    if certificates.is_empty() {
        return Err("there is no certificate".to_owned());
    }
    let key = PrivateKeyDer::from_pem_slice(&tls.key)
        .map_err(|error| format!("the key cannot be read: {error}"))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                "the key is not the one that the certificate was made for".to_owned()
            }
            error => format!("the certificate and the key cannot be used: {error}"),
        })?;
    if http2 {
        config.alpn_protocols.push(b"h2".to_vec());
    }
    config.alpn_protocols.push(b"http/1.1".to_vec());
    Ok(Arc::new(config))
}

/// The TLS configuration for an upstream. The error text says what is wrong.
pub(crate) fn client(tls: &UpstreamTls, protocol: Protocol) -> Result<Arc<ClientConfig>, String> {
    let trust = tls.authorities.as_deref().map_or(Trust::System, Trust::Authorities);
    let mut config = trust.configuration()?;
    config.alpn_protocols = match protocol {
        Protocol::Http1 => vec![b"http/1.1".to_vec()],
        Protocol::Http2 => vec![b"h2".to_vec()],
    };
    Ok(Arc::new(config))
}
