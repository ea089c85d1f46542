//! Accepts and serves connections, with a bound on everything that a client could prolong.

mod frames;
mod line;
mod stalling;
mod uploading;

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, Request, Response, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tollgate_core::{Clock, Span};
use tollgate_engine::PacedLog;
use tower::ServiceExt;

use crate::http::{LONGEST_WAIT, Patience, Peer, TooLate, is_upload};
use frames::WatchedFrames;
use line::{Heard, Line};
use stalling::Impatient;
use uploading::answer_upload;

/// How many connections may be open at once; further ones wait to be accepted.
const MOST_CONNECTIONS: usize = 10_000;
/// How long a client may take to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may not read any of a response.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How many requests of one HTTP/2 connection may be in flight, and how many bytes of their bodies may be
/// unread.
const MOST_STREAMS: u32 = 100;
const WINDOW: u32 = 64 * 1024;
/// How long connections are still accepted after the shutdown began, while any is open. In this time every
/// response tells its client to close the connection.
const FAREWELL: Duration = Duration::from_secs(1);
/// How often the server then checks whether a connection is still open.
const FAREWELL_LOOK: Duration = Duration::from_millis(20);
/// How often it is logged that connections cannot be accepted.
const COMPLAIN_EVERY: Span = Span::from_secs(10);
/// How long a whole request may take, its body included, unless it waits for its turn. An upload may make no progress
/// for so long.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves the HTTP API on one listener.
pub struct HttpServer {
    /// How long to go on accepting after the shutdown began.
    farewell: watch::Sender<Option<Duration>>,
    accepting: JoinHandle<GracefulShutdown>,
}

/// What all connections share.
struct Shared {
    builder: Builder<TokioExecutor>,
    router: Router,
    clock: Arc<dyn Clock>,
    /// Whether the shutdown has begun.
    ending: AtomicBool,
}

impl HttpServer {
    /// Serves the router on a listener. The clock paces what is logged.
    pub fn start(listener: TcpListener, router: Router, clock: Arc<dyn Clock>) -> Self {
        let (farewell, farewells) = watch::channel(None);
        let shared = Shared { builder: builder(), router, clock, ending: AtomicBool::new(false) };
        Self { farewell, accepting: tokio::spawn(accept(listener, Arc::new(shared), farewells)) }
    }

    /// Tells clients with every response to close their connections, then accepts nothing more and waits for
    /// open requests, for at most `patience` in total.
    pub async fn end(self, patience: Duration) {
        let begun = Instant::now();
        // Sending fails only if accepting has already ended.
        let _ = self.farewell.send(Some(FAREWELL.min(patience)));
        if let Ok(connections) = self.accepting.await {
            let left = patience.saturating_sub(begun.elapsed());
            let drained = timeout(left, connections.shutdown()).await;
            if drained.is_err() {
                tracing::warn!(component = "server", "some requests were still open and are cut");
            }
        }
    }
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(64 * 1024);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MOST_STREAMS)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .keep_alive_interval(HEAD_TIMEOUT);
    builder
}

/// Accepts connections until the shutdown, and returns those that are open.
async fn accept(
    listener: TcpListener,
    shared: Arc<Shared>,
    farewells: watch::Receiver<Option<Duration>>,
) -> GracefulShutdown {
    let connections = GracefulShutdown::new();
    tokio::select! {
        () = accept_all(&listener, &shared, &connections) => {}
        () = say_farewell(&shared, &connections, farewells) => {}
    }
    connections
}

/// Accepts one connection after the other, and never ends.
async fn accept_all(listener: &TcpListener, shared: &Arc<Shared>, connections: &GracefulShutdown) {
    let complaints = PacedLog::every(COMPLAIN_EVERY);
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let (stream, peer, permit) = match accept_one(listener, &room).await {
            Ok(accepted) => accepted,
            Err(error) => {
                if let Some(held_back) = complaints.admit(shared.clock.now()) {
                    tracing::warn!(component = "server", %error, held_back, "a connection could not be accepted");
                }
                // Most likely the process has no file descriptors left; some may be free soon.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let asked = Arc::new(AtomicBool::new(false));
        let connection = serve_connection(shared, stream, peer, Arc::clone(&asked));
        let connection = connections.watch(connection);
        tokio::spawn(async move {
            // A client that disconnects or sends garbage is not worth logging.
            tokio::select! {
                _ = connection => {}
                () = no_question(&asked) => {}
            }
            drop(permit);
        });
    }
}

/// Completes when nothing more is to be accepted: after the shutdown began, once all connections are closed
/// or the time is up.
async fn say_farewell(
    shared: &Shared,
    connections: &GracefulShutdown,
    mut farewells: watch::Receiver<Option<Duration>>,
) {
    let farewell = match farewells.wait_for(Option::is_some).await {
        Ok(farewell) => farewell.unwrap_or_default(),
        // The sender is gone: the server has already ended.
        Err(_) => return,
    };
    shared.ending.store(true, Ordering::Relaxed);
    let all_closed = async {
        while connections.count() > 0 {
            tokio::time::sleep(FAREWELL_LOOK).await;
        }
    };
    // Either way accepting is over.
    let _ = timeout(farewell, all_closed).await;
}

/// The next connection, once there is room for it.
async fn accept_one(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> io::Result<(TcpStream, Peer, OwnedSemaphorePermit)> {
    let permit = Arc::clone(room).acquire_owned().await.expect("the semaphore is never closed");
    let (stream, address) = listener.accept().await?;
    Ok((stream, Peer::new(address.ip()), permit))
}

/// Completes if a client has sent no request for too long. The time-out of the head does not run before the
/// version of HTTP is known.
async fn no_question(asked: &AtomicBool) {
    tokio::time::sleep(HEAD_TIMEOUT).await;
    if asked.load(Ordering::Relaxed) {
        std::future::pending().await
    }
}

fn serve_connection(
    shared: &Arc<Shared>,
    stream: TcpStream,
    peer: Peer,
    asked: Arc<AtomicBool>,
) -> impl hyper_util::server::graceful::GracefulConnection<Error = Box<dyn std::error::Error + Send + Sync>>
+ Send
+ use<> {
    // A response is one small packet: send it at once.
    let _ = stream.set_nodelay(true);
    let line = Line::new(stream);
    let heard = line.heard();
    let served = Arc::clone(shared);
    let service = service_fn(move |mut request: Request<Incoming>| {
        asked.store(true, Ordering::Relaxed);
        request.extensions_mut().insert(peer.clone());
        let (served, heard) = (Arc::clone(&served), Arc::clone(&heard));
        async move {
            // HTTP/2 reads everything as it arrives.
            if request.version() >= Version::HTTP_2 {
                heard.is_http2();
                return answer(served.router.clone(), request, None).await;
            }
            let mut response = answer(served.router.clone(), request, Some(&heard)).await?;
            // The rest of the client's bytes is left unread only if the response closes the connection.
            if !response.headers().contains_key(CONNECTION) {
                heard.settled();
                if served.ending.load(Ordering::Relaxed) {
                    close_after(&mut response);
                }
            }
            Ok(response)
        }
    });
    let stream = WatchedFrames::new(Impatient::new(line, UNREAD_TIMEOUT), HEAD_TIMEOUT);
    shared.builder.serve_connection(TokioIo::new(stream), service).into_owned()
}

fn close_after(response: &mut Response<Body>) {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
}

/// Answers a request. A waiting one is abandoned when its client disconnects, if `heard` can tell.
async fn answer<B>(
    router: Router,
    mut request: Request<B>,
    heard: Option<&Heard>,
) -> Result<Response<Body>, Infallible>
where
    B: hyper::body::Body<Data = Bytes, Error: Into<axum::BoxError>> + Send + Unpin + 'static,
{
    let late = TooLate::for_request(request.headers());
    if is_upload(&request) {
        return answer_upload(router, request).await.unwrap_or_else(|| Ok(too_late(&late)));
    }
    let Some(patience) = Patience::of(&mut request) else {
        let answered = timeout(REQUEST_TIMEOUT, router.oneshot(request.map(Body::new))).await;
        return answered.unwrap_or_else(|_| Ok(too_late(&late)));
    };
    let given_up = given_up(patience.clone(), heard);
    let answering = router.oneshot(request.map(Body::new));
    let mut answering = Box::pin(async {
        tokio::select! {
            biased;
            answer = answering => answer,
            () = given_up => {
                // What the client sent after its request is discarded too.
                Ok(too_late(&late))
            }
        }
    });
    if let Ok(answer) = timeout(REQUEST_TIMEOUT, &mut answering).await {
        return answer;
    }
    // The client has sent everything and waits as long as it asked for. A longer wait is a fault.
    let more = if patience.waits() { LONGEST_WAIT } else { Duration::ZERO };
    timeout(more, answering).await.unwrap_or_else(|_| Ok(too_late(&late)))
}

/// The response to a request that may not have been read completely.
fn too_late(late: &TooLate) -> Response<Body> {
    let mut response = late.answer();
    close_after(&mut response);
    response
}

/// Completes once a request waits and its client has disconnected.
async fn given_up(patience: Patience, heard: Option<&Heard>) {
    let Some(heard) = heard else { return std::future::pending().await };
    patience.begun().await;
    heard.hung_up().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_slow_request_gets_a_408_problem_document() {
        let router = Router::new().fallback(std::future::pending::<()>);
        let request = Request::post("/api/v1/check").header("x-correlation-id", "req-7").body(Body::empty());
        let response = answer(router, request.unwrap(), None).await.unwrap();
        assert_eq!(response.status(), 408);
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        assert_eq!(response.headers()["x-correlation-id"], "req-7");
        let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let expected = serde_json::json!({
            "type": "/problems/too-late", "title": "Request timeout", "status": 408,
            "detail": "the whole request did not come, or was not answered, in time", "correlationId": "req-7",
        });
        assert_eq!(body, expected);
    }

    /// The status of a request that takes this long. `says` may record that it waits for its turn.
    async fn status_after(seconds: u64, path: &str, says: fn(&Patience)) -> u16 {
        let work = move |request: Request<Body>| async move {
            request.extensions().get::<Patience>().map(says);
            tokio::time::sleep(Duration::from_secs(seconds)).await;
        };
        let router = Router::new().fallback(work);
        let request = Request::post(path).body(Body::empty()).unwrap();
        answer(router, request, None).await.unwrap().status().as_u16()
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_request_has_a_longer_time_out() {
        let acquire = "/api/v1/acquire";
        assert_eq!(status_after(31, "/api/v1/check", Patience::begin).await, 408);
        assert_eq!(status_after(31, acquire, |_| {}).await, 408, "its body does not come");
        assert_eq!(status_after(61, acquire, Patience::begin).await, 200);
        assert_eq!(status_after(91, acquire, Patience::begin).await, 408);
    }
}
