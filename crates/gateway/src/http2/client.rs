//! One request of an HTTP/2 client, and its response.

use std::task::{Context, Poll};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::header::{CONTENT_LENGTH, DATE};
use http::{HeaderName, HeaderValue, Method, StatusCode};

use super::stream::{self, Sending};
use crate::captcha;
use crate::exchange::Client;
use crate::flow::{Fault, Piece, Sink, Source};
use crate::forward::add_lines;
use crate::h1::lines::Kind;
use crate::h1::response::{Body, ResponseHead};
use crate::h1::write::Answer;

/// One request, and the stream for its response.
pub(super) struct H2Client {
    body: RecvStream,
    respond: SendResponse<Bytes>,
    /// The response, once it has started.
    sending: Sending,
    method: Method,
}

impl H2Client {
    pub(super) fn new(body: RecvStream, respond: SendResponse<Bytes>, method: Method) -> Self {
        Self { body, respond, sending: Sending::default(), method }
    }

    /// Sends the gateway's own response.
    pub(super) fn answer(&mut self, answer: &Answer, date: Bytes) {
        if self.method == Method::HEAD {
            let bare = Answer { status: answer.status, lines: answer.lines.clone(), body: Vec::new() };
            send(&mut self.respond, &bare, date);
        } else {
            send(&mut self.respond, answer, date);
        }
    }

    /// Resets the stream, because the rest of the response will never come.
    pub(super) fn cut(&mut self) {
        if !self.sending.reset(Reason::INTERNAL_ERROR) {
            self.respond.send_reset(Reason::INTERNAL_ERROR);
        }
    }
}

/// Sends a complete response. An error means that the client is gone, and is ignored.
pub(super) fn send(respond: &mut SendResponse<Bytes>, answer: &Answer, date: Bytes) {
    let mut response = http::Response::new(());
    *response.status_mut() = answer.status;
    let headers = response.headers_mut();
    let body = &*answer.body;
    add_lines(&answer.lines, headers);
    headers.insert(CONTENT_LENGTH, body.len().into());
    if let Ok(date) = HeaderValue::from_maybe_shared(date) {
        headers.insert(DATE, date);
    }
    if let Ok(mut send) = respond.send_response(response, body.is_empty())
        && !body.is_empty()
    {
        let _ = send.send_data(Bytes::copy_from_slice(body), true);
    }
}

impl Source for H2Client {
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Piece>, Fault>> {
        stream::poll_piece(&mut self.body, cx)
    }
}

impl Sink for H2Client {
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

impl Client for H2Client {
    fn begin(&mut self, head: &ResponseHead, added: &[u8]) {
        let mut response = http::Response::new(());
        *response.status_mut() = StatusCode::from_u16(head.status).unwrap_or(StatusCode::BAD_GATEWAY);
        let headers = response.headers_mut();
        for line in head.lines.iter() {
            let passes = match line.kind {
                Kind::Connection | Kind::TransferEncoding | Kind::Upgrade | Kind::Hop => false,
                Kind::ContentLength => false,
                _ => !captcha::replace(added, line.name),
            };
            if let (true, Ok(name), Ok(value)) =
                (passes, HeaderName::from_bytes(line.name), HeaderValue::from_bytes(line.value))
            {
                headers.append(name, value);
            }
        }
        add_lines(added, headers);
        if let Some(length) = head.declared_length() {
            headers.insert(CONTENT_LENGTH, length.into());
        }
        let bare = matches!(head.body, Body::None | Body::Length(0));
        match self.respond.send_response(response, bare) {
            Ok(stream) => self.sending = Sending::new((!bare).then_some(stream)),
            Err(_) => self.sending.note(true),
        }
    }

    fn send_continue(&mut self) {
        let mut response = http::Response::new(());
        *response.status_mut() = StatusCode::CONTINUE;
        let sent = self.respond.send_informational(response);
        self.sending.note(sent.is_err());
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let reset = self.sending.poll_reset(cx);
        reset.unwrap_or_else(|| self.respond.poll_reset(cx).map(|_| ()))
    }
}
