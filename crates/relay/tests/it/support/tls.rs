//! A certificate for `relay.test`, and clients that trust it.

use std::net::TcpStream;
use std::sync::{Arc, LazyLock};

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned};

static CERTIFIED: LazyLock<CertifiedKey<rcgen::KeyPair>> = LazyLock::new(|| {
    generate_simple_self_signed(vec!["relay.test".to_owned(), "localhost".to_owned()]).unwrap()
});

pub(crate) fn certificate() -> String {
    CERTIFIED.cert.pem()
}

pub(crate) fn server() -> Arc<ServerConfig> {
    let key = CERTIFIED.signing_key.serialize_pem();
    Arc::new(tollgate_remote::listener(certificate().as_bytes(), key.as_bytes()).unwrap())
}

/// Begins TLS as a client.
pub(crate) fn secured(stream: TcpStream) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CERTIFIED.cert.der().clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("relay.test").unwrap();
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), stream)
}
