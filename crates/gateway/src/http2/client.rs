//! One request of a client that speaks HTTP/2, and its response.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::header::{CONTENT_LENGTH, DATE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use tollgate_web::answer::headers::is_ours;

use crate::exchange::Client;
use crate::flow::{Fault, Piece, Sink, Source};
use crate::h1::lines::{Kind, kind_of};
use crate::h1::response::{Body, ResponseHead};
use crate::h1::write::Answer;

/// One request, and where its response goes.
pub(super) struct H2Client {
    body: RecvStream,
    respond: SendResponse<Bytes>,
    /// Once the response has begun, unless it has no body.
    send: Option<SendStream<Bytes>>,
    method: Method,
    /// What the client has not made room for yet.
    waiting: Bytes,
    /// Whether something broke, which is told at the next occasion.
    broken: bool,
}

impl H2Client {
    pub(super) fn new(body: RecvStream, respond: SendResponse<Bytes>, method: Method) -> Self {
        Self { body, respond, send: None, method, waiting: Bytes::new(), broken: false }
    }

    /// Sends an answer of our own.
    pub(super) fn answer(&mut self, answer: &Answer, date: &Bytes) {
        if self.method == Method::HEAD {
            let bare = Answer { body: Bytes::new(), ..answer.clone() };
            send(&mut self.respond, &bare, date);
        } else {
            send(&mut self.respond, answer, date);
        }
    }

    /// Tells the client that the rest never comes.
    pub(super) fn cut(&mut self) {
        match &mut self.send {
            Some(send) => send.send_reset(Reason::INTERNAL_ERROR),
            None => self.respond.send_reset(Reason::INTERNAL_ERROR),
        }
    }

    fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        if self.broken {
            return Poll::Ready(Err(Fault::Gone));
        }
        let Some(send) = &mut self.send else { return Poll::Ready(Ok(())) };
        while !self.waiting.is_empty() {
            send.reserve_capacity(self.waiting.len());
            match ready!(send.poll_capacity(cx)) {
                Some(Ok(room)) => {
                    let piece = self.waiting.split_to(room.min(self.waiting.len()));
                    send.send_data(piece, false).map_err(|_| Fault::Gone)?;
                }
                Some(Err(_)) | None => return Poll::Ready(Err(Fault::Gone)),
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// Sends a whole answer. If the client is gone, nobody needs to know.
pub(super) fn send(respond: &mut SendResponse<Bytes>, answer: &Answer, date: &Bytes) {
    let mut response = http::Response::new(());
    *response.status_mut() = answer.status;
    let headers = response.headers_mut();
    add_lines(&answer.lines, headers);
    headers.insert(CONTENT_LENGTH, answer.body.len().into());
    if let Ok(date) = HeaderValue::from_maybe_shared(date.clone()) {
        headers.insert(DATE, date);
    }
    if let Ok(mut send) = respond.send_response(response, answer.body.is_empty())
        && !answer.body.is_empty()
    {
        let _ = send.send_data(answer.body.clone(), true);
    }
}

/// Adds header lines to a map.
fn add_lines(lines: &[u8], headers: &mut HeaderMap) {
    for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        let name = HeaderName::from_bytes(&line[..colon]);
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
}

impl Source for H2Client {
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Piece>, Fault>> {
        loop {
            match ready!(self.body.poll_data(cx)) {
                Some(Ok(bytes)) => {
                    // It is asked for only when there is room for it on the other side.
                    self.body.flow_control().release_capacity(bytes.len()).map_err(|_| Fault::Gone)?;
                    if !bytes.is_empty() {
                        return Poll::Ready(Ok(Some(Piece::Data(bytes))));
                    }
                }
                Some(Err(_)) => return Poll::Ready(Err(Fault::Gone)),
                None => break,
            }
        }
        let trailers = ready!(self.body.poll_trailers(cx)).map_err(|_| Fault::Gone)?;
        Poll::Ready(Ok(trailers.map(fit_to_trail).filter(|map| !map.is_empty()).map(Piece::Trailers)))
    }
}

/// Trailers without those that say how to read a message.
fn fit_to_trail(trailers: HeaderMap) -> HeaderMap {
    let pairs = trailers.iter().filter(|(name, _)| kind_of(name.as_str().as_bytes()) == Kind::Plain);
    let mut fit = HeaderMap::new();
    for (name, value) in pairs {
        fit.append(name.clone(), value.clone());
    }
    fit
}

impl Sink for H2Client {
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        self.poll_sent(cx)
    }

    fn put(&mut self, piece: Piece) {
        let Some(send) = &mut self.send else { return };
        match piece {
            Piece::Data(bytes) => self.waiting = bytes,
            Piece::Trailers(trailers) => {
                self.broken |= send.send_trailers(trailers).is_err();
                self.send = None;
            }
        }
    }

    fn end(&mut self) {
        if let Some(mut send) = self.send.take() {
            self.broken |= send.send_data(Bytes::new(), true).is_err();
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        self.poll_sent(cx)
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
                Kind::ContentLength => head.body == Body::None && head.status != 204,
                _ => added.is_empty() || !is_ours(line.name),
            };
            if let (true, Ok(name), Ok(value)) =
                (passes, HeaderName::from_bytes(line.name), HeaderValue::from_bytes(line.value))
            {
                headers.append(name, value);
            }
        }
        add_lines(added, headers);
        if let Body::Length(length) = head.body {
            headers.insert(CONTENT_LENGTH, length.into());
        }
        let bare = matches!(head.body, Body::None | Body::Length(0));
        match self.respond.send_response(response, bare) {
            Ok(send) => self.send = (!bare).then_some(send),
            Err(_) => self.broken = true,
        }
    }

    fn go_on(&mut self) {
        let mut response = http::Response::new(());
        *response.status_mut() = StatusCode::CONTINUE;
        self.broken |= self.respond.send_informational(response).is_err();
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.send {
            Some(send) => send.poll_reset(cx).map(|_| ()),
            None => self.respond.poll_reset(cx).map(|_| ()),
        }
    }
}
