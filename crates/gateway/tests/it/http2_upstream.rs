//! Upstreams that speak HTTP/2, as gRPC services do.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{
    self,
    rules::{rule, together},
};
use crate::support::{Stage, http2, settings, until};
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Channel, Empty, Full};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tollgate_gateway::Settings;
use tollgate_gateway::settings::{GuardSettings, Protocol, Success};

type Boxed = http_body_util::combinators::BoxBody<Bytes, hyper::Error>;

/// A server that speaks HTTP/2 only.
struct Server {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve<F>(answer: impl Fn(Request<Incoming>) -> F + Clone + Send + 'static) -> Server
where
    F: Future<Output = Response<Boxed>> + Send + 'static,
{
    serve_at("127.0.0.1:0".parse().unwrap(), answer).await
}

async fn serve_at<F>(
    address: SocketAddr,
    answer: impl Fn(Request<Incoming>) -> F + Clone + Send + 'static,
) -> Server
where
    F: Future<Output = Response<Boxed>> + Send + 'static,
{
    let listener = TcpListener::bind(address).await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    let task = tokio::spawn(async move {
        let mut open = tokio::task::JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            counted.fetch_add(1, Ordering::SeqCst);
            let answer = answer.clone();
            let service = service_fn(move |request| {
                let answered = answer(request);
                async move { Ok::<_, Infallible>(answered.await) }
            });
            open.spawn(Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service));
        }
    });
    Server { address, connections, task }
}

fn whole(text: impl Into<Bytes>) -> Boxed {
    Full::new(text.into()).map_err(|never| match never {}).boxed()
}

/// Echoes the head of a request.
async fn tell(request: Request<Incoming>) -> Response<Boxed> {
    let (parts, body) = request.into_parts();
    let mut lines: Vec<String> =
        parts.headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    lines.sort();
    let body = body.collect().await.unwrap().to_bytes();
    let text =
        format!("{} {}\n{}\n{}", parts.method, parts.uri, lines.join("\n"), String::from_utf8_lossy(&body));
    Response::builder().header("x-own", "yes").body(whole(text)).unwrap()
}

fn over_http2(address: SocketAddr) -> Settings {
    let mut settings = settings(address);
    settings.upstreams[0].protocol = Protocol::Http2;
    settings
}

#[tokio::test]
async fn a_client_of_http_1_is_passed_on_in_http_2() {
    let server = serve(tell).await;
    let stage = Stage::new(over_http2(server.address)).await;
    let mut client = stage.client().await;
    for _ in 0..3 {
        let reply = client
            .ask("POST /a/../b?c HTTP/1.1\r\nHost: Example.com\r\nConnection: x-gone\r\nX-Gone: 1\r\nX-Kept: 1\r\nContent-Length: 5\r\n\r\nhello")
            .await;
        assert_eq!((reply.status, reply.header("x-own")), (200, Some("yes")));
        assert_eq!(
            reply.text(),
            "POST http://Example.com/b?c\ncontent-length: 5\nx-forwarded-for: 127.0.0.1\nx-forwarded-host: Example.com\n\
             x-forwarded-proto: http\nx-kept: 1\nhello"
        );
    }
    let reply = client
        .ask("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
        .await;
    assert!(reply.text().ends_with("\nabc"), "{}", reply.text());
    client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(client.head().await.status, 200);
    assert_eq!(server.connections.load(Ordering::SeqCst), 1, "all share a connection");
}

#[tokio::test]
async fn a_call_of_grpc_streams_both_ways_and_ends_in_trailers() {
    let server = serve(|request: Request<Incoming>| async move {
        assert_eq!(request.headers()["te"], "trailers");
        let (mut pieces, body) = Channel::<Bytes, hyper::Error>::new(1);
        tokio::spawn(async move {
            let mut incoming = request.into_body();
            while let Some(Ok(frame)) = incoming.frame().await {
                if let Ok(data) = frame.into_data() {
                    pieces.send_data(data).await.unwrap();
                }
            }
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", "0".parse().unwrap());
            pieces.send(Frame::trailers(trailers)).await.unwrap();
        });
        Response::builder().header("content-type", "application/grpc").body(body.boxed()).unwrap()
    })
    .await;
    let stage = Stage::new(over_http2(server.address)).await;
    let mut send = http2::connect(stage.address).await;
    let (mut pieces, body) = Channel::<Bytes>::new(1);
    let request =
        Request::post("http://example.com/service/Method").header("te", "trailers").body(body).unwrap();
    let response = send.send_request(request).await.unwrap();
    assert_eq!(response.headers()["content-type"], "application/grpc");
    let mut response = response.into_body();
    for word in ["one", "two"] {
        pieces.send_data(word.into()).await.unwrap();
        assert_eq!(response.frame().await.unwrap().unwrap().into_data().unwrap(), word);
    }
    drop(pieces);
    assert_eq!(response.frame().await.unwrap().unwrap().into_trailers().unwrap()["grpc-status"], "0");
    assert!(response.is_end_stream());
}

#[tokio::test]
async fn large_bodies_pass_both_ways() {
    let server = serve(|request: Request<Incoming>| async move {
        let body = request.into_body().collect().await.unwrap().to_bytes();
        Response::new(whole(body))
    })
    .await;
    let stage = Stage::new(over_http2(server.address)).await;
    let body: Vec<u8> = (0..2_000_003_usize).map(|at| (at * 7 + at / 251) as u8).collect();
    let mut send = http2::connect(stage.address).await;
    let request = Request::post("http://example.com/").body(Full::new(Bytes::from(body.clone()))).unwrap();
    let back = send.send_request(request).await.unwrap().into_body().collect().await.unwrap().to_bytes();
    assert!(back == body, "{} bytes came back", back.len());
}

#[tokio::test]
async fn many_requests_share_one_connection() {
    let server = serve(tell).await;
    let stage = Stage::new(over_http2(server.address)).await;
    assert_eq!(stage.fetch("/").await.status, 200);
    let send = http2::connect(stage.address).await;
    let asks = (0..100).map(|_| {
        let mut send = send.clone();
        tokio::spawn(async move {
            send.ready().await.unwrap();
            let request = Request::get("http://example.com/").body(Empty::<Bytes>::new()).unwrap();
            let response = send.send_request(request).await.unwrap();
            assert_eq!(response.status(), 200);
            response.into_body().collect().await.unwrap();
        })
    });
    for ask in asks.collect::<Vec<_>>() {
        ask.await.unwrap();
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_upstream_that_was_restarted_is_found_again() {
    let server = serve(tell).await;
    let address = server.address;
    let stage = Stage::new(over_http2(address)).await;
    assert_eq!(stage.fetch("/").await.status, 200);
    drop(server);
    until("it is gone", || std::net::TcpListener::bind(address).is_ok()).await;
    assert_eq!(stage.fetch("/").await.status, 502);
    let name = "tollgate_gateway_upstream_errors_total{upstream=\"app\",kind=\"connect\"}";
    assert!(stage.metric(name) >= 1.0);
    let _server = serve_at(address, tell).await;
    assert_eq!(stage.fetch("/").await.status, 200);
}

#[tokio::test]
async fn disconnected_clients_do_not_break_requests_of_others() {
    let seen = Arc::new(AtomicUsize::new(0));
    let (open, gate) = tokio::sync::watch::channel(false);
    let counted = Arc::clone(&seen);
    let server = serve(move |request: Request<Incoming>| {
        let mut gate = gate.clone();
        counted.fetch_add(1, Ordering::SeqCst);
        async move {
            if request.uri().path() == "/slow" {
                gate.wait_for(|open| *open).await.unwrap();
            }
            Response::new(whole("here"))
        }
    })
    .await;
    let stage = Stage::new(over_http2(server.address)).await;
    // So that all of them share a connection.
    assert_eq!(stage.fetch("/").await.status, 200);
    const SLOW: &str = "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut patient = Vec::new();
    for _ in 0..3 {
        let mut client = stage.client().await;
        client.send(SLOW).await;
        patient.push(client);
    }
    until("those who wait are under way", || seen.load(Ordering::SeqCst) == 4).await;
    let gone = "tollgate_gateway_requests_total{route=\"all\",status=\"499\"}";
    for round in 1..=35 {
        let mut client = stage.client().await;
        client.send(SLOW).await;
        until("it is under way", || seen.load(Ordering::SeqCst) == 4 + round).await;
        drop(client);
        until("it is given up", || stage.metric(gone) == round as f64).await;
    }
    assert_eq!(stage.fetch("/").await.status, 200);
    open.send_replace(true);
    for mut client in patient {
        assert_eq!(client.reply().await.text(), "here");
    }
    let connections = server.connections.load(Ordering::SeqCst);
    assert_eq!(connections, 9, "each gets four that are given up, and no more");
}

/// Answers the first request of each connection, and passes the second to `second`.
async fn rude(second: fn(&mut h2::server::SendResponse<Bytes>)) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&seen);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let mut connection = h2::server::handshake(stream).await.unwrap();
            let mut first = true;
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                if std::mem::take(&mut first) {
                    respond.send_response(Response::new(()), true).unwrap();
                } else {
                    second(&mut respond);
                    connection.graceful_shutdown();
                }
            }
        }
    });
    (address, seen)
}

#[tokio::test]
async fn only_a_request_that_the_upstream_did_not_process_is_retried() {
    let refuse: fn(&mut h2::server::SendResponse<Bytes>) =
        |respond| respond.send_reset(h2::Reason::REFUSED_STREAM);
    let fail: fn(&mut h2::server::SendResponse<Bytes>) =
        |respond| respond.send_reset(h2::Reason::INTERNAL_ERROR);
    for (second, retry, status, requests) in
        [(refuse, true, 200, 3), (refuse, false, 502, 2), (fail, true, 502, 2)]
    {
        let (address, seen) = rude(second).await;
        let mut settings = over_http2(address);
        settings.upstreams[0].retry = retry;
        let stage = Stage::new(settings).await;
        assert_eq!(stage.fetch("/").await.status, 200);
        assert_eq!(stage.ask("DELETE / HTTP/1.1\r\nHost: a\r\n\r\n").await.status, status);
        assert_eq!(seen.load(Ordering::SeqCst), requests);
    }
}

#[tokio::test]
async fn upstream_failures_are_reported_as_with_http_1() {
    let silent = serve(|_| std::future::pending()).await;
    let mut impatient = over_http2(silent.address);
    impatient.upstreams[0].response_timeout = Duration::from_millis(100);
    assert_eq!(Stage::new(impatient).await.fetch("/").await.status, 504);

    let broken = serve(|_| async {
        let (mut pieces, body) = Channel::<Bytes, hyper::Error>::new(1);
        tokio::spawn(async move {
            pieces.send_data("half".into()).await.unwrap();
            // The rest never comes.
            std::future::pending::<()>().await;
        });
        Response::new(body.boxed())
    })
    .await;
    let mut impatient = over_http2(broken.address);
    impatient.upstreams[0].stall_timeout = Duration::from_millis(100);
    let stage = Stage::new(impatient).await;
    let mut client = stage.client().await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(client.head().await.status, 200);
    assert!(!client.rest().await.ends_with(b"0\r\n\r\n"), "the client can see that it is incomplete");

    let odd = serve(|_| async { Response::builder().status(600).body(whole("x")).unwrap() }).await;
    assert_eq!(Stage::new(over_http2(odd.address)).await.fetch("/").await.status, 502);

    let plain = support::Upstream::saying("x").await;
    let reply = Stage::new(over_http2(plain.address)).await.fetch("/").await;
    assert!(matches!(reply.status, 502 | 504), "{reply:?}");
}

#[tokio::test]
async fn a_login_brings_its_body_and_the_hint_that_a_captcha_is_wanted() {
    let server = serve(|request| async move {
        let hint = request.headers().get("x-captcha-required").cloned();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let mut answer = Response::new(whole(body));
        *answer.status_mut() = http::StatusCode::UNAUTHORIZED;
        if let Some(hint) = hint {
            answer.headers_mut().insert("x-heard", hint);
        }
        answer
    })
    .await;
    let mut settings = over_http2(server.address);
    let fields = tollgate_web::Aliases::default().with([("user", "json.user")]).unwrap();
    let success = Success::new("303".parse().unwrap(), vec!["/".parse().unwrap()]);
    let guard = GuardSettings { fields, ..GuardSettings::new("login", success) };
    settings.routes[0].guard = Some(guard);
    let rules = vec![rule("login", &["user"], &["ladder 1 captcha then 3 lock 15m"])];
    let policies = together("login", rules).with_guards(vec![tollgate_core::Guard::new("login", "login")]);
    let stage = Stage::with_policies(settings, policies).await;
    let body = r#"{"user":"ada"}"#;
    let guess = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nX-Captcha-Required: no\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    for heard in [None, Some("true"), Some("true")] {
        let reply = stage.ask(&guess).await;
        assert_eq!((reply.status, reply.text(), reply.header("x-heard")), (401, body, heard));
    }
    assert_eq!(stage.ask(&guess).await.status, 429);
}
