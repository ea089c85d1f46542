//! TLS at the next hop: verified for accounts, unverified for direct delivery, because MX hosts have no certificates that
//! could be verified.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_platform_verifier::BuilderVerifierExt;

/// Verifies certificates with these authorities, as PEM, or with those of the system. An error says in words what is
/// wrong with them.
pub fn authorities(pem: Option<&[u8]>) -> Result<Arc<ClientConfig>, String> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let Some(pem) = pem else {
        let builder = builder.with_platform_verifier().map_err(|error| error.to_string())?;
        return Ok(Arc::new(builder.with_no_client_auth()));
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| format!("the authorities cannot be read: {error}"))?;
        roots.add(certificate).map_err(|error| format!("an authority cannot be used: {error}"))?;
    }
    if roots.is_empty() {
        return Err("there is no certificate among the authorities".to_owned());
    }
    Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}

/// The same configuration, but for verification.
pub(super) fn unverified(verified: &ClientConfig) -> Arc<ClientConfig> {
    let mut config = verified.clone();
    let provider = Arc::clone(verified.crypto_provider());
    config.dangerous().set_certificate_verifier(Arc::new(AcceptAnyCertificate(provider)));
    Arc::new(config)
}

/// Takes every certificate. That the server has its key is still checked.
#[derive(Debug)]
struct AcceptAnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
