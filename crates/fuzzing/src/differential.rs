//! What hyper reads of the same bytes.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A message as hyper reads it.
#[derive(Clone, Debug)]
pub(crate) struct HyperMessage {
    pub(crate) first: (String, String),
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// The first request in these bytes; `None` if hyper refuses it.
pub(crate) fn request(bytes: &[u8]) -> Option<HyperMessage> {
    let seen = Arc::new(Mutex::new(None));
    let keep = Arc::clone(&seen);
    let service = service_fn(move |request: Request<Incoming>| {
        let keep = Arc::clone(&keep);
        async move {
            let (head, body) = request.into_parts();
            let target = head.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
            if let Ok(body) = body.collect().await {
                let first = (head.method.to_string(), target);
                let message = HyperMessage { first, headers: head.headers, body: body.to_bytes() };
                keep.lock().expect("one thread").get_or_insert(message);
            }
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    run(async {
        let (mut peer, own) = tokio::io::duplex(bytes.len() + 64 * 1024);
        let _ = peer.write_all(bytes).await;
        let _ = peer.shutdown().await;
        let server = hyper::server::conn::http1::Builder::new()
            .keep_alive(false)
            .serve_connection(TokioIo::new(own), service);
        let _ = server.await;
    });
    Arc::into_inner(seen).and_then(|seen| seen.into_inner().expect("one thread"))
}

/// The first response in these bytes to a request of this method; `None` if hyper refuses it.
pub(crate) fn response(bytes: &[u8], method: &http::Method) -> Option<HyperMessage> {
    run(async {
        let (mut peer, own) = tokio::io::duplex(bytes.len() + 64 * 1024);
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake::<_, Empty<Bytes>>(TokioIo::new(own)).await.ok()?;
        let request =
            Request::builder().method(method).uri("/").header("host", "a").body(Empty::new()).ok()?;
        let asking = async {
            let response = sender.send_request(request).await.ok()?;
            let (head, body) = response.into_parts();
            let body = body.collect().await.ok()?.to_bytes();
            let first = (head.status.as_u16().to_string(), String::new());
            Some(HyperMessage { first, headers: head.headers, body })
        };
        let answering = async {
            // hyper reads nothing before it has sent the request.
            let mut request = [0; 1024];
            let _ = peer.read(&mut request).await;
            let _ = peer.write_all(bytes).await;
            let _ = peer.shutdown().await;
            peer
        };
        let connection = async {
            let _ = connection.await;
        };
        let (message, _peer, ()) = tokio::join!(asking, answering, connection);
        message
    })
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}
