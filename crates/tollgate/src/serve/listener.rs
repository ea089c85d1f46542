//! Accepts connections and serves them, with a bound on everything a peer could stretch.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tollgate_core::{Clock, Span};
use tollgate_doors::{LONGEST_WAIT, Patience, Peer, TooLate};
use tollgate_engine::LogTrickle;
use tollgate_store::SystemClock;
use tower::ServiceExt;

use super::stalling::Impatient;

/// How many connections may be open at once; the next one waits to be accepted.
const MOST_CONNECTIONS: usize = 10_000;
/// How long a peer may take to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a peer may take nothing of what it is sent.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How often it is told that connections cannot be accepted.
const COMPLAIN_EVERY: Span = Span::from_secs(10);
/// How long a whole request may take, its body included, unless it waits for its turn.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) struct Server {
    stop: watch::Sender<bool>,
    accepting: JoinHandle<GracefulShutdown>,
}

impl Server {
    /// Serves the router on a listener.
    pub(crate) fn start(listener: TcpListener, router: Router) -> Self {
        let (stop, stopped) = watch::channel(false);
        Self { stop, accepting: tokio::spawn(accept(listener, router, stopped)) }
    }

    /// Accepts nothing more, and waits for open requests, but no longer than `patience`.
    pub(crate) async fn end(self, patience: Duration) {
        // Nobody listens any more only if accepting has ended already.
        let _ = self.stop.send(true);
        if let Ok(connections) = self.accepting.await {
            let drained = timeout(patience, connections.shutdown()).await;
            if drained.is_err() {
                tracing::warn!(component = "server", "some requests were still open and are cut");
            }
        }
    }
}

async fn accept(
    listener: TcpListener,
    router: Router,
    mut stopped: watch::Receiver<bool>,
) -> GracefulShutdown {
    let connections = GracefulShutdown::new();
    let (clock, complaints) = (SystemClock::new(), LogTrickle::every(COMPLAIN_EVERY));
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(64 * 1024);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(256).keep_alive_interval(HEAD_TIMEOUT);
    loop {
        let accepted = tokio::select! {
            accepted = accept_one(&listener, &room) => accepted,
            _ = stopped.changed() => return connections,
        };
        let (stream, peer, permit) = match accepted {
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
        let connection = serve_connection(&builder, stream, peer, router.clone(), Arc::clone(&asked));
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

/// The next connection, once there is room for it.
async fn accept_one(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> io::Result<(TcpStream, Peer, OwnedSemaphorePermit)> {
    let permit = Arc::clone(room).acquire_owned().await.expect("the semaphore is never closed");
    let (stream, address) = listener.accept().await?;
    Ok((stream, Peer(address.ip()), permit))
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
    builder: &Builder<TokioExecutor>,
    stream: TcpStream,
    peer: Peer,
    router: Router,
    asked: Arc<AtomicBool>,
) -> impl hyper_util::server::graceful::GracefulConnection<Error = Box<dyn std::error::Error + Send + Sync>>
+ Send
+ use<> {
    // An answer is one small packet: do not wait for more to send.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |mut request: Request<Incoming>| {
        asked.store(true, Ordering::Relaxed);
        request.extensions_mut().insert(peer);
        answer(router.clone(), request)
    });
    let stream = TokioIo::new(Impatient::new(stream, UNREAD_TIMEOUT));
    builder.clone().serve_connection(stream, service).into_owned()
}

async fn answer<B>(router: Router, mut request: Request<B>) -> Result<Response<Body>, Infallible>
where
    B: hyper::body::Body<Data = Bytes, Error: Into<axum::BoxError>> + Send + 'static,
{
    let late = TooLate::for_request(request.headers());
    let Some(patience) = Patience::of(&mut request) else {
        let answered = timeout(REQUEST_TIMEOUT, router.oneshot(request.map(Body::new))).await;
        return answered.unwrap_or_else(|_| Ok(late.answer()));
    };
    let mut answering = Box::pin(router.oneshot(request.map(Body::new)));
    if let Ok(answer) = timeout(REQUEST_TIMEOUT, &mut answering).await {
        return answer;
    }
    // Its peer has sent everything, and waits as long as it said. What is beyond that is a fault.
    let more = if patience.waits() { LONGEST_WAIT } else { Duration::ZERO };
    timeout(more, answering).await.unwrap_or_else(|_| Ok(late.answer()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_takes_too_long_is_told_so_as_a_problem() {
        let router = Router::new().fallback(std::future::pending::<()>);
        let request = Request::post("/api/v1/check").header("x-correlation-id", "req-7").body(Body::empty());
        let response = answer(router, request.unwrap()).await.unwrap();
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
        answer(router, request).await.unwrap().status().as_u16()
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
