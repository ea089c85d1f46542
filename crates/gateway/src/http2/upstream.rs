//! Upstreams that speak HTTP/2.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{Reason, RecvStream};
use http::header::CONTENT_LENGTH;
use http::{Method, StatusCode};

use super::shared_connection::{Care, SharedConnection};
use super::stream::{self, Sending};
use crate::exchange::{Failure, Server};
use crate::flow::{Fault, Piece, Sink, Source};
use crate::h1::lines::Lines;
use crate::h1::request::content_length;
use crate::h1::response::{Body, ResponseHead, is_status};

/// A request to an upstream, and its response.
pub(crate) struct H2Upstream {
    /// `None` once it has arrived or failed.
    response: Option<ResponseFuture>,
    sending: Sending,
    body: Option<RecvStream>,
    care: Rc<Care>,
}

impl H2Upstream {
    /// Sends the head of a request.
    pub(crate) fn new(
        connection: &mut SharedConnection,
        request: http::Request<()>,
        body: HasBody,
    ) -> Result<Self, Failure> {
        let (send, care) = connection.parts();
        let sent = send.send_request(request, body == HasBody::No);
        let (response, stream) = sent.map_err(|_| Failure::UpstreamGone { heard: false })?;
        let sending = Sending::new((body == HasBody::Yes).then_some(stream));
        Ok(Self { response: Some(response), sending, body: None, care })
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<http::Response<RecvStream>, h2::Error>> {
        let Some(response) = &mut self.response else { return Poll::Pending };
        let answered = ready!(Pin::new(response).poll(cx));
        self.response = None;
        Poll::Ready(answered)
    }

    /// The status of the response, if one arrives.
    #[cfg(test)]
    pub(super) fn poll_status(&mut self, cx: &mut Context<'_>) -> Poll<Option<u16>> {
        self.poll_head(cx).map(|answered| Some(answered.ok()?.status().as_u16()))
    }
}

/// An abandoned request is reset, but not before the upstream had time to read it.
impl Drop for H2Upstream {
    fn drop(&mut self) {
        let cut = self.sending.is_open() || self.body.as_ref().is_some_and(|body| !body.is_end_stream());
        match self.response.take() {
            Some(response) => self.care.forsake(response, std::mem::take(&mut self.sending)),
            None if cut => self.care.burden(),
            None => self.care.relieve(),
        }
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
    const SENDS_CONTINUE: bool = false;

    fn poll_response(
        &mut self,
        method: &Method,
        head: &mut ResponseHead,
        heard: &mut bool,
        cx: &mut Context<'_>,
    ) -> Result<Poll<()>, Failure> {
        let (parts, body) = match self.poll_head(cx) {
            Poll::Pending => return Ok(Poll::Pending),
            Poll::Ready(Ok(response)) => response.into_parts(),
            Poll::Ready(Err(error)) => return Err(failure(&error, *heard)),
        };
        *heard = true;
        if !is_status(&parts.status.as_u16()) {
            return Err(Failure::UpstreamMalformed("the status of the response is none"));
        }
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
            length,
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

/// Why a request got no response.
fn failure(error: &h2::Error, heard: bool) -> Failure {
    match error.reason() {
        Some(Reason::REFUSED_STREAM) if error.is_remote() => Failure::UpstreamRefused,
        Some(_) if error.is_reset() => Failure::UpstreamGone { heard: true },
        _ => Failure::UpstreamGone { heard },
    }
}
