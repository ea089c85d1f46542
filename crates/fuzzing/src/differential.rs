//! What hyper reads of the same bytes.

use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

/// What hyper makes of bytes that begin with a message.
#[derive(Debug)]
pub(crate) enum HyperRead {
    /// It refuses the head. No service or client reads any of the message then.
    RefusedHead(hyper::Error),
    /// It accepts the head, but not the body: the body is malformed, or it would have to go on after the last byte.
    BrokenBody(Box<HyperMessage>, String),
    /// It reads the whole message.
    Whole(Box<HyperMessage>),
}

/// A message as hyper reads it.
#[derive(Clone, Debug, Default)]
pub(crate) struct HyperMessage {
    /// The method and the target of a request; the status of a response.
    pub(crate) first: (String, String),
    /// The host of a request: of its target, or else of its `Host`.
    pub(crate) host: Option<Vec<u8>>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: HeaderMap,
    /// The status and the headers of the interim responses before it.
    pub(crate) interim: Vec<(StatusCode, HeaderMap)>,
    /// The bytes after it.
    pub(crate) left: Vec<u8>,
}

/// The first request in these bytes.
pub(crate) fn request(bytes: &[u8]) -> HyperRead {
    let seen = Arc::new(Mutex::new(None));
    let keep = Arc::clone(&seen);
    let service = service_fn(move |request: Request<Incoming>| {
        let keep = Arc::clone(&keep);
        async move {
            let (head, body) = request.into_parts();
            let target = head.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
            let authority = head.uri.authority().map(|authority| authority.as_str().as_bytes());
            let host = authority.or_else(|| head.headers.get("host").map(|host| host.as_bytes()));
            let message = HyperMessage {
                first: (head.method.to_string(), target),
                host: host.map(<[u8]>::to_vec),
                headers: head.headers,
                ..HyperMessage::default()
            };
            *keep.lock().expect("one thread") = Some(message.with_body(body).await);
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    run(async {
        let (mut peer, own) = tokio::io::duplex(bytes.len() + 64 * 1024);
        let _ = peer.write_all(bytes).await;
        let _ = peer.shutdown().await;
        // The connection ends after the first request, so that the bytes after it are left.
        let server = hyper::server::conn::http1::Builder::new()
            .keep_alive(false)
            .serve_connection(TokioIo::new(own), service);
        let ended = server.without_shutdown().await;
        let read = seen.lock().expect("one thread").take();
        match (read, ended) {
            (Some(HyperRead::Whole(message)), Ok(parts)) => {
                message.with_left(&parts.read_buf, parts.io).await
            }
            (Some(HyperRead::Whole(message)), Err(error)) => {
                HyperRead::BrokenBody(message, error.to_string())
            }
            (Some(read), _) => read,
            (None, Err(error)) => HyperRead::RefusedHead(error),
            (None, Ok(_)) => panic!("hyper saw no request, and no error either"),
        }
    })
}

/// The first final response in these bytes to a request of this method. 101 counts as final.
pub(crate) fn response(bytes: &[u8], method: &http::Method) -> HyperRead {
    run(async {
        let (mut peer, own) = tokio::io::duplex(bytes.len() + 64 * 1024);
        let (mut sender, mut connection) =
            hyper::client::conn::http1::handshake::<_, Empty<Bytes>>(TokioIo::new(own))
                .await
                .expect("a handshake sends nothing");
        let request = Request::builder().method(method).uri("/").header("host", "a").body(Empty::new());
        let mut request = request.expect("a correct request");
        let interim = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&interim);
        hyper::ext::on_informational(&mut request, move |response| {
            keep.lock().expect("one thread").push((response.status(), response.headers().clone()));
        });
        let asking = async {
            let response = sender.send_request(request).await?;
            let (head, body) = response.into_parts();
            let first = (head.status.as_u16().to_string(), String::new());
            let message = HyperMessage { first, headers: head.headers, ..HyperMessage::default() };
            Ok(message.with_body(body).await)
        };
        let answering = async {
            // hyper reads nothing before it has sent the request.
            let mut request = [0; 1024];
            let _ = peer.read(&mut request).await;
            let _ = peer.write_all(bytes).await;
            let _ = peer.shutdown().await;
            peer
        };
        // Bytes after the response are an error of the connection, but the response is correct.
        let ending = async {
            let _ = poll_fn(|context| connection.poll_without_shutdown(context)).await;
        };
        let (read, _peer, ()) = tokio::join!(asking, answering, ending);
        match read {
            Err(error) => HyperRead::RefusedHead(error),
            Ok(HyperRead::Whole(mut message)) => {
                message.interim = std::mem::take(&mut interim.lock().expect("one thread"));
                let parts = connection.into_parts();
                message.with_left(&parts.read_buf, parts.io).await
            }
            Ok(read) => read,
        }
    })
}

impl HyperMessage {
    async fn with_body(mut self, body: Incoming) -> HyperRead {
        match body.collect().await {
            Ok(collected) => {
                self.trailers = collected.trailers().cloned().unwrap_or_default();
                self.body = collected.to_bytes();
                HyperRead::Whole(Box::new(self))
            }
            Err(error) => HyperRead::BrokenBody(Box::new(self), format!("{error:?}")),
        }
    }

    /// Adds what hyper has read too much, and what it has not read.
    async fn with_left(mut self: Box<Self>, read: &[u8], io: TokioIo<DuplexStream>) -> HyperRead {
        self.left = read.to_vec();
        io.into_inner().read_to_end(&mut self.left).await.expect("reading from memory works");
        HyperRead::Whole(self)
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}
