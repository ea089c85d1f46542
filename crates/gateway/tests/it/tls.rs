//! TLS on both sides.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Client, Stage, Upstream, http2, settings, until};
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tollgate_gateway::settings::{Address, TlsSettings, UpstreamTls};
use tollgate_gateway::{BadSettings, NeedsRestart};

/// A certificate for `localhost`, and its key.
fn identity() -> (String, String) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    (cert.pem(), signing_key.serialize_pem())
}

/// Trusts this certificate and offers these protocols.
fn connector(certificate: &str, protocols: &[&str]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}

async fn dial(
    stage: &Stage,
    certificate: &str,
    protocols: &[&str],
) -> tokio_rustls::client::TlsStream<TcpStream> {
    let stream = TcpStream::connect(stage.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    connector(certificate, protocols).connect(name, stream).await.unwrap()
}

async fn secured(upstream: &Upstream) -> (Stage, String) {
    let (certificate, key) = identity();
    let mut secure = settings(upstream.address);
    secure.listeners[0].tls = Some(TlsSettings { certificates: certificate.clone().into(), key: key.into() });
    secure.bounds.head_timeout = Duration::from_millis(500);
    (Stage::new(secure).await, certificate)
}

#[tokio::test]
async fn new_connections_get_a_renewed_certificate() {
    let upstream = Upstream::saying("hello").await;
    let (stage, old) = secured(&upstream).await;
    let mut client = Client::over(dial(&stage, &old, &[]).await);
    assert_eq!(client.ask("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.text(), "hello");
    let (new, key) = identity();
    let mut renewed = stage.gateway.settings();
    renewed.listeners[0].tls = Some(TlsSettings { certificates: new.clone().into(), key: key.into() });
    assert_eq!(stage.gateway.replace(renewed).unwrap(), []);
    let mut next = Client::over(dial(&stage, &new, &[]).await);
    for client in [&mut client, &mut next] {
        assert_eq!(client.ask("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.text(), "hello");
    }
    let stream = TcpStream::connect(stage.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    assert!(connector(&old, &[]).connect(name, stream).await.is_err(), "the old one is gone");
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_leaves_the_old_one() {
    let upstream = Upstream::saying("hello").await;
    let (stage, old) = secured(&upstream).await;
    let mut broken = stage.gateway.settings();
    broken.listeners[0].tls.as_mut().unwrap().certificates = identity().0.into();
    assert!(matches!(stage.gateway.replace(broken), Err(BadSettings::BadListener { .. })));
    let mut client = Client::over(dial(&stage, &old, &[]).await);
    assert_eq!(client.ask("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.text(), "hello");
}

#[tokio::test]
async fn tls_that_comes_or_goes_needs_a_restart() {
    let upstream = Upstream::saying("hello").await;
    let (stage, certificate) = secured(&upstream).await;
    let mut plain = stage.gateway.settings();
    plain.listeners[0].tls = None;
    assert_eq!(stage.gateway.replace(plain).unwrap(), [NeedsRestart::Listeners]);
    let mut client = Client::over(dial(&stage, &certificate, &[]).await);
    assert_eq!(client.ask("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.text(), "hello");
}

#[tokio::test]
async fn clients_agree_on_http_1_or_2_with_tls() {
    let upstream = Upstream::saying("hello").await;
    let (stage, certificate) = secured(&upstream).await;
    for protocols in [&[][..], &["http/1.1"]] {
        let mut client = Client::over(dial(&stage, &certificate, protocols).await);
        for _ in 0..3 {
            let reply = client.ask("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
            assert_eq!(reply.text(), "hello");
        }
    }
    assert_eq!(upstream.requests()[0].header("x-forwarded-proto"), Some("https"));
    let stream = dial(&stage, &certificate, &["h2", "http/1.1"]).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let mut send = http2::over(stream).await;
    let request = Request::get("https://localhost/").body(Empty::<Bytes>::new()).unwrap();
    let response = send.send_request(request).await.unwrap();
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello");
}

#[tokio::test]
async fn large_responses_pass_through_tls() {
    let body = "0123456789".repeat(100_000);
    let upstream = Upstream::saying(&body).await;
    let (stage, certificate) = secured(&upstream).await;
    let mut client = Client::over(dial(&stage, &certificate, &[]).await);
    let reply = client.ask("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert!(reply.text() == body);
}

#[tokio::test]
async fn a_connection_without_a_tls_handshake_is_closed() {
    let upstream = Upstream::saying("x").await;
    let (stage, _) = secured(&upstream).await;
    let mut silent = stage.client().await;
    let mut plain = stage.client().await;
    plain.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    plain.rest().await;
    silent.rest().await;
    until("they are let go", || stage.metric("tollgate_gateway_connections") == 0.0).await;
}

#[test]
fn a_key_that_does_not_fit_is_told_at_the_start() {
    let (certificate, _) = identity();
    let (_, other) = identity();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let upstream = Upstream::saying("x").await;
        let stage = Stage::new(settings(upstream.address)).await;
        let parts = stage.parts.clone();
        for (certificates, key, words) in [
            (
                certificate.as_str(),
                other.as_str(),
                "the key is not the one that the certificate was made for",
            ),
            (certificate.as_str(), "", "the key cannot be read"),
            ("", other.as_str(), "there is no certificate"),
        ] {
            let mut bad = settings(upstream.address);
            bad.listeners[0].tls = Some(TlsSettings { certificates: certificates.into(), key: key.into() });
            let error = tollgate_gateway::Gateway::start(bad, parts.clone()).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    });
}

/// An upstream with TLS that answers each request with `hello`.
async fn secure_upstream(certificate: &str, key: &str) -> Address {
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut read = vec![0; 4096];
                while stream.read(&mut read).await.is_ok_and(|size| size > 0) {
                    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
                    stream.write_all(answer.as_bytes()).await.unwrap();
                }
            });
        }
    });
    format!("localhost:{port}").parse().unwrap()
}

#[tokio::test]
async fn upstreams_have_to_prove_their_names() {
    let (certificate, key) = identity();
    let address = secure_upstream(&certificate, &key).await;
    let other = Upstream::saying("x").await;
    let with = |tls: UpstreamTls| {
        let mut settings = settings(other.address);
        settings.upstreams[0].addresses = vec![address.clone()];
        settings.upstreams[0].tls = Some(tls);
        settings
    };
    let trusting =
        UpstreamTls { authorities: Some(certificate.clone().into()), server_name: None, identity: None };
    let stage = Stage::new(with(trusting.clone())).await;
    let mut client = stage.client().await;
    for _ in 0..3 {
        assert_eq!(client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.text(), "hello");
    }
    let misnamed = UpstreamTls { server_name: Some("other.example".into()), ..trusting };
    let untrusting =
        UpstreamTls { authorities: Some(identity().0.into()), server_name: None, identity: None };
    for bad in [misnamed, untrusting, UpstreamTls::default()] {
        let stage = Stage::new(with(bad)).await;
        assert_eq!(stage.fetch("/").await.status, 502);
        let name = "tollgate_gateway_upstream_errors_total{upstream=\"app\",kind=\"tls\"}";
        assert_eq!(stage.metric(name), 1.0);
    }
}
