//! Upstreams that speak HTTP/2.

use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{Reason, RecvStream};
use http::header::CONTENT_LENGTH;
use http::{Method, StatusCode};

use super::prefixed::Prefixed;
use super::stream::{self, Sending};
use super::{CONNECTION_WINDOW, SEND_BUFFER, STREAM_WINDOW};
use crate::exchange::{Failure, Server};
use crate::flow::{Fault, Piece, Sink, Source};
use crate::h1::lines::Lines;
use crate::h1::request::content_length;
use crate::h1::response::{Body, ResponseHead};
use crate::stream::Stream;

/// A request to an upstream, and its response.
pub(crate) struct H2Upstream {
    response: ResponseFuture,
    sending: Sending,
    body: Option<RecvStream>,
}

/// The longest head of a response, in bytes.
const MOST_HEAD: u32 = 60 * 1024;

/// Begins to speak HTTP/2 over a connection, which goes on by itself.
pub(crate) async fn begin(stream: Stream) -> Result<SendRequest<Bytes>, h2::Error> {
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .initial_window_size(STREAM_WINDOW)
        .max_send_buffer_size(SEND_BUFFER)
        .max_header_list_size(MOST_HEAD);
    let (send, connection) = builder.handshake(Prefixed::new(stream, BytesMut::new())).await?;
    // It ends when nobody has a use for it, or when the upstream closes it, which its streams notice.
    tokio::task::spawn_local(connection);
    Ok(send)
}

impl H2Upstream {
    /// Sends the head of a request.
    pub(crate) fn new(
        send: &mut SendRequest<Bytes>,
        request: http::Request<()>,
        body: HasBody,
    ) -> Result<Self, Failure> {
        let sent = send.send_request(request, body == HasBody::No);
        let (response, stream) = sent.map_err(|_| Failure::UpstreamGone { heard: false })?;
        let sending = Sending::new((body == HasBody::Yes).then_some(stream));
        Ok(Self { response, sending, body: None })
    }
}

/// Whether a request has a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HasBody {
    Yes,
    No,
}

impl Source for H2Upstream {
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Piece>, Fault>> {
        match &mut self.body {
            Some(body) => stream::poll_piece(body, cx),
            None => Poll::Ready(Ok(None)),
        }
    }
}

impl Sink for H2Upstream {
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        self.sending.poll_sent(cx)
    }

    fn put(&mut self, piece: Piece) {
        self.sending.put(piece);
    }

    fn end(&mut self) {
        self.sending.end();
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        self.sending.poll_sent(cx)
    }
}

impl Server for H2Upstream {
    const GIVES_LEAVE: bool = false;

    fn poll_response(
        &mut self,
        method: &Method,
        head: &mut ResponseHead,
        heard: &mut bool,
        cx: &mut Context<'_>,
    ) -> Result<Poll<()>, Failure> {
        let (parts, body) = match std::pin::Pin::new(&mut self.response).poll(cx) {
            Poll::Pending => return Ok(Poll::Pending),
            Poll::Ready(Ok(response)) => response.into_parts(),
            Poll::Ready(Err(error)) => return Err(failure(&error, *heard)),
        };
        *heard = true;
        let length =
            parts.headers.get(CONTENT_LENGTH).and_then(|value| content_length(value.as_bytes()).ok());
        let bare = *method == Method::HEAD
            || matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        *head = ResponseHead {
            status: parts.status.as_u16(),
            reason: Bytes::from_static(parts.status.canonical_reason().unwrap_or_default().as_bytes()),
            lines: Lines::from_map(&parts.headers),
            body: match length {
                _ if bare => Body::None,
                Some(length) => Body::Length(length),
                None if body.is_end_stream() => Body::Length(0),
                None => Body::Chunked,
            },
            close: false,
        };
        self.body = Some(body);
        Ok(Poll::Ready(()))
    }

    fn expect_body(&mut self, body: Body) {
        if body == Body::None {
            self.body = None;
        }
    }
}

/// What became of a request that got no response.
fn failure(error: &h2::Error, heard: bool) -> Failure {
    match error.reason() {
        // Nobody has looked at it.
        Some(Reason::REFUSED_STREAM) => Failure::UpstreamGone { heard: false },
        Some(_) if error.is_reset() => Failure::UpstreamGone { heard: true },
        _ => Failure::UpstreamGone { heard },
    }
}
