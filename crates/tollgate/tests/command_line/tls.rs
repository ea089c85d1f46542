//! The program uses TLS, and trusts only the system's certificates.
#![expect(clippy::unwrap_used, reason = "a test fails where something is missing")]

use crate::responder::{Reply, Responder, run};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;

const ALLOWED: &str = r#"{"allowed":true,"verdict":"allow","rules":[]}"#;

/// A server, and the certificate of its authority.
fn server() -> (Responder, String) {
    let certified = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = CertificateDer::from(certified.cert.der().to_vec());
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    (Responder::encrypted(config, Reply::Json(200, ALLOWED)), certified.cert.pem())
}

#[test]
fn a_server_that_the_system_trusts_is_asked() {
    let (server, certificate) = server();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("authority.pem");
    std::fs::write(&file, certificate).unwrap();
    let trust = [("SSL_CERT_FILE", file.to_str().unwrap())];
    let check = run(&server.url(), &["check", "api"], &trust);
    assert_eq!((check.code, check.err.as_str()), (0, ""));
    let bench = run(&server.url(), &["bench", "--policy", "api", "--json", "--requests", "20"], &trust);
    assert_eq!((bench.code, bench.err.as_str()), (0, ""));
    assert_eq!(serde_json::from_str::<Value>(&bench.out).unwrap()["allowed"], 20);
}

#[test]
fn an_untrusted_server_never_receives_the_token() {
    let (server, _) = server();
    for command in [&["check", "api"][..], &["bench", "--policy", "api", "--requests", "1"]] {
        let run = run(&server.url(), command, &[("TOLLGATE_TOKEN", "secret-token")]);
        assert!(run.code == 2 && run.err.to_lowercase().contains("certificate"), "{run:?}");
    }
    assert!(server.asked().is_empty());
}
