//! Accepts connections and serves them, with a bound on everything a peer could stretch.

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
use tollgate_doors::{LONGEST_WAIT, Patience, Peer, TooLate};
use tollgate_engine::PacedLog;
use tollgate_store::SystemClock;
use tower::ServiceExt;

use super::frames::WatchedFrames;
use super::line::{Heard, Line};
use super::stalling::Impatient;

/// How many connections may be open at once; the next one waits to be accepted.
const MOST_CONNECTIONS: usize = 10_000;
/// How long a peer may take to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a peer may take nothing of what it is sent.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How many requests of one HTTP/2 connection may be under way, and how many bytes of their bodies may lie
/// unread.
const MOST_STREAMS: u32 = 100;
const WINDOW: u32 = 64 * 1024;
/// For how long connections are still accepted once the server is told to end, while any is open. In this
/// time every answer tells its client to close the connection.
const FAREWELL: Duration = Duration::from_secs(1);
/// How often it is looked whether a connection is still open then.
const FAREWELL_LOOK: Duration = Duration::from_millis(20);
/// How often it is told that connections cannot be accepted.
const COMPLAIN_EVERY: Span = Span::from_secs(10);
/// How long a whole request may take, its body included, unless it waits for its turn.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) struct Server {
    /// For how long to go on accepting, once the server is told to end.
    farewell: watch::Sender<Option<Duration>>,
    accepting: JoinHandle<GracefulShutdown>,
}

/// What all connections share.
struct Shared {
    builder: Builder<TokioExecutor>,
    router: Router,
    /// Whether the server was told to end.
    ending: AtomicBool,
}

impl Server {
    /// Serves the router on a listener.
    pub(crate) fn start(listener: TcpListener, router: Router) -> Self {
        let (farewell, told) = watch::channel(None);
        let shared = Shared { builder: builder(), router, ending: AtomicBool::new(false) };
        Self { farewell, accepting: tokio::spawn(accept(listener, Arc::new(shared), told)) }
    }

    /// Tells clients with every answer to close their connections, then accepts nothing more and waits for
    /// open requests, but no longer than `patience` in all.
    pub(crate) async fn end(self, patience: Duration) {
        let begun = Instant::now();
        // Nobody listens any more only if accepting has ended already.
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

/// Accepts connections until the server has said farewell, and answers those that are open.
async fn accept(
    listener: TcpListener,
    shared: Arc<Shared>,
    told: watch::Receiver<Option<Duration>>,
) -> GracefulShutdown {
    let connections = GracefulShutdown::new();
    tokio::select! {
        () = accept_all(&listener, &shared, &connections) => {}
        () = say_farewell(&shared, &connections, told) => {}
    }
    connections
}

/// Accepts one connection after the other, and never ends.
async fn accept_all(listener: &TcpListener, shared: &Arc<Shared>, connections: &GracefulShutdown) {
    let (clock, complaints) = (SystemClock::new(), PacedLog::every(COMPLAIN_EVERY));
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let (stream, peer, permit) = match accept_one(listener, &room).await {
            Ok(accepted) => accepted,
            Err(error) => {
                if let Some(held_back) = complaints.admit(clock.now()) {
                    tracing::warn!(component = "server", %error, held_back, "a connection could not be accepted");
                }
                // Most likely there are no file descriptors left; some may be free in a moment.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let asked = Arc::new(AtomicBool::new(false));
        let connection = serve_connection(shared, stream, peer, Arc::clone(&asked));
        let connection = connections.watch(connection);
        tokio::spawn(async move {
            // A peer that breaks off or sends nonsense is no news.
            tokio::select! {
                _ = connection => {}
                () = no_question(&asked) => {}
            }
            drop(permit);
        });
    }
}

/// Ends when nothing more is to be accepted: once the server was told to end, and all connections are closed
/// or the time is up.
async fn say_farewell(
    shared: &Shared,
    connections: &GracefulShutdown,
    mut told: watch::Receiver<Option<Duration>>,
) {
    let farewell = match told.wait_for(Option::is_some).await {
        Ok(farewell) => farewell.unwrap_or_default(),
        // The sender is gone: the server has ended already.
        Err(_) => return,
    };
    shared.ending.store(true, Ordering::Relaxed);
    let all_closed = async {
        while connections.count() > 0 {
            tokio::time::sleep(FAREWELL_LOOK).await;
        }
    };
    // Both ways it is over.
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

/// Ends when a peer has not asked anything for too long since it came. The timeout of the head does
/// not run before it is known which HTTP the peer speaks.
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
    // An answer is one small packet: do not wait for more to send.
    let _ = stream.set_nodelay(true);
    let line = Line::new(stream);
    let heard = line.heard();
    let served = Arc::clone(shared);
    let service = service_fn(move |mut request: Request<Incoming>| {
        asked.store(true, Ordering::Relaxed);
        request.extensions_mut().insert(peer.clone());
        let (served, heard) = (Arc::clone(&served), Arc::clone(&heard));
        async move {
            // Over HTTP/2 everything is read as it comes.
            if request.version() >= Version::HTTP_2 {
                heard.is_http2();
                return answer(served.router.clone(), request, None).await;
            }
            let mut response = answer(served.router.clone(), request, Some(&heard)).await?;
            // What else the client sends is not read only if the answer ends the connection.
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

/// Answers a request. One that waits for its turn is given up when its peer hangs up, as far as that is
/// heard.
async fn answer<B>(
    router: Router,
    mut request: Request<B>,
    heard: Option<&Heard>,
) -> Result<Response<Body>, Infallible>
where
    B: hyper::body::Body<Data = Bytes, Error: Into<axum::BoxError>> + Send + 'static,
{
    let late = TooLate::for_request(request.headers());
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
                // What it sent after its request is not for anybody either.
                Ok(too_late(&late))
            }
        }
    });
    if let Ok(answer) = timeout(REQUEST_TIMEOUT, &mut answering).await {
        return answer;
    }
    // Its peer has sent everything, and waits as long as it said. What is beyond that is a fault.
    let more = if patience.waits() { LONGEST_WAIT } else { Duration::ZERO };
    timeout(more, answering).await.unwrap_or_else(|_| Ok(too_late(&late)))
}

/// The answer to a request that may not have been read to its end.
fn too_late(late: &TooLate) -> Response<Body> {
    let mut response = late.answer();
    close_after(&mut response);
    response
}

/// Ends once a request waits and its peer has hung up.
async fn given_up(patience: Patience, heard: Option<&Heard>) {
    let Some(heard) = heard else { return std::future::pending().await };
    patience.begun().await;
    heard.hung_up().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_takes_too_long_is_told_so_as_a_problem() {
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

    /// What becomes of a request that takes so long, and whether it says that it waits for its turn.
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
    async fn who_waits_for_its_turn_is_not_cut_but_not_let_wait_for_ever() {
        let acquire = "/api/v1/acquire";
        assert_eq!(status_after(31, "/api/v1/check", Patience::begin).await, 408);
        assert_eq!(status_after(31, acquire, |_| {}).await, 408, "its body does not come");
        assert_eq!(status_after(61, acquire, Patience::begin).await, 200);
        assert_eq!(status_after(91, acquire, Patience::begin).await, 408);
    }
}
