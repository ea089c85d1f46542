//! TLS: clients that verify servers, and listeners with a certificate.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ConfigBuilder, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme,
};
use rustls_platform_verifier::BuilderVerifierExt;

/// TLS settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// The file with the trusted certificate authorities; the system's if absent.
    pub authorities: Option<PathBuf>,
    /// Whether any certificate is accepted without verification.
    pub unverified: bool,
    /// The certificate that the client shows if the server asks for one.
    pub identity: Option<Identity>,
}

/// A client's certificate and its key, as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    certificates: Vec<u8>,
    key: Vec<u8>,
}

impl Identity {
    /// The identity, if the key belongs to the certificate. The error text says what is wrong.
    pub fn new(certificates: Vec<u8>, key: Vec<u8>) -> Result<Self, String> {
        let identity = Self { certificates, key };
        Trust::AnyServer.configuration_as(Some(&identity))?;
        Ok(identity)
    }
}

/// The key is a secret.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Tls {
    /// The configuration of connections. The error text says what is wrong.
    pub fn configuration(&self) -> Result<Arc<ClientConfig>, String> {
        let identity = self.identity.as_ref();
        let config = match &self.authorities {
            _ if self.unverified => Trust::AnyServer.configuration_as(identity)?,
            Some(path) => {
                let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
                let pem = std::fs::read(path).map_err(|error| failed(&error))?;
                Trust::Authorities(&pem).configuration_as(identity).map_err(|error| failed(&error))?
            }
            None => Trust::System.configuration_as(identity)?,
        };
        Ok(Arc::new(config))
    }
}

/// Which servers a client accepts. Every client connection of the program begins with this.
#[derive(Clone, Copy, Debug)]
pub enum Trust<'t> {
    /// Those with a certificate that the system's authorities have signed, a company's own among them.
    System,
    /// Those with a certificate that one of these authorities has signed, as PEM.
    Authorities(&'t [u8]),
    /// Every server. It must still have the key of its certificate.
    AnyServer,
}

impl Trust<'_> {
    /// The configuration of connections of a client without a certificate. The error text says what is wrong.
    pub fn configuration(self) -> Result<ClientConfig, String> {
        self.configuration_as(None)
    }

    /// The configuration of connections of a client that shows this certificate. The error text says what is wrong.
    pub fn configuration_as(self, identity: Option<&Identity>) -> Result<ClientConfig, String> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let pem = match self {
            Self::System => {
                let builder = builder.with_platform_verifier().map_err(|error| error.to_string())?;
                return show(builder, identity);
            }
            Self::AnyServer => {
                let verifier = Arc::new(AnyServer(provider));
                return show(builder.dangerous().with_custom_certificate_verifier(verifier), identity);
            }
            Self::Authorities(pem) => pem,
        };
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate =
                certificate.map_err(|error| format!("the authorities cannot be read: {error}"))?;
            roots.add(certificate).map_err(|error| format!("an authority cannot be used: {error}"))?;
        }
        if roots.is_empty() {
            return Err("there is no certificate among the authorities".to_owned());
        }
        show(builder.with_root_certificates(roots), identity)
    }
}

/// Completes the configuration of a client with its certificate, if it has one.
fn show(
    builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    identity: Option<&Identity>,
) -> Result<ClientConfig, String> {
    let Some(identity) = identity else { return Ok(builder.with_no_client_auth()) };
    let (certificates, key) = read_pair(&identity.certificates, &identity.key)?;
    builder.with_client_auth_cert(certificates, key).map_err(misfit)
}

/// A certificate with those that lead to its authority, and its key.
fn read_pair(
    certificates: &[u8],
    key: &[u8],
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), String> {
    let certificates = CertificateDer::pem_slice_iter(certificates)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| format!("the certificates cannot be read: {error}"))?;
    if certificates.is_empty() {
        return Err("there is no certificate".to_owned());
    }
    let key =
        PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("the key cannot be read: {error}"))?;
    Ok((certificates, key))
}

/// Why a certificate and a key cannot be used together.
fn misfit(error: rustls::Error) -> String {
    match error {
        rustls::Error::InconsistentKeys(_) => {
            "the key is not the one that the certificate was made for".to_owned()
        }
        error => format!("the certificate and the key cannot be used: {error}"),
    }
}

/// The configuration of a listener with a certificate and its key, both as PEM. The error text says what is wrong.
pub fn listener(certificates: &[u8], key: &[u8]) -> Result<ServerConfig, String> {
    let (certificates, key) = read_pair(certificates, key)?;
    ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .map_err(misfit)
}

/// The same configuration, but for every server.
pub fn accept_any_server(verified: &ClientConfig) -> ClientConfig {
    let mut config = verified.clone();
    let provider = Arc::clone(verified.crypto_provider());
    config.dangerous().set_certificate_verifier(Arc::new(AnyServer(provider)));
    config
}

/// Accepts any certificate, because the settings say so.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
