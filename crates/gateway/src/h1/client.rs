//! A client that speaks HTTP/1.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use http::Method;
use tollgate_web::{Correlation, Problem};

use super::decode::Decoder;
use super::encode::Encoder;
use super::lines::{Kind, Line};
use super::request::{RequestHead, Version};
use super::response::{Body, ResponseHead};
use super::side::Side;
use super::write::{self, Answer, Manner, WithBody};
use crate::alarm::{Alarm, TICK};
use crate::captcha;
use crate::connection::Downstream;
use crate::exchange::Client;
use crate::flow::{Fault, Piece, Sink, Source};
use crate::proxy;
use crate::worker::Worker;

/// How long a client may be silent after the last response, before its connection is closed.
const LINGER: Duration = Duration::from_secs(1);
/// How long, and how many bytes, it may go on sending. Many clients send a whole body before they read the
/// response that refuses it, and report a broken connection if they cannot.
const LONGEST_LINGER: Duration = Duration::from_secs(5);
const MOST_LINGERED: u64 = 128 << 20;
/// How many unwanted bytes of a body are read so that the connection can be reused.
const MOST_SKIPPED: u64 = 64 * 1024;

/// A client that speaks HTTP/1.
pub(crate) struct H1Client {
    pub(crate) side: Side,
    pub(crate) manner: Manner,
    worker: Rc<Worker>,
    /// When to check again whether the client is gone. Set if the client has sent so much ahead that reading
    /// cannot show it.
    look: Option<Alarm>,
}

impl H1Client {
    pub(crate) fn new(side: Side, worker: Rc<Worker>) -> Self {
        Self { side, manner: Manner { version: Version::Http11, close: true }, worker, look: None }
    }

    /// Prepares for a request.
    pub(crate) fn open(&mut self, request: &RequestHead) {
        self.side.incoming = request.body;
        self.manner = Manner { version: request.version, close: request.close };
    }

    /// Sends the gateway's own response. Returns whether that succeeded.
    pub(crate) async fn answer(
        &mut self,
        downstream: &Downstream,
        answer: &Answer,
        request: &RequestHead,
    ) -> bool {
        self.manner.close |= self.worker.is_ending();
        // A long body that no upstream reads is not worth waiting for: close instead.
        self.manner.close |= matches!(self.side.incoming, Decoder::Length(left) if left > MOST_SKIPPED);
        self.manner.close |= request.expects && !self.side.incoming.is_over();
        self.manner.close |= matches!(self.side.incoming, Decoder::Broken(_));
        let with_body = if request.method == Method::HEAD { WithBody::No } else { WithBody::Yes };
        write::answer(&mut self.side.outbox.small, answer, &downstream.worker.date(), with_body, self.manner);
        self.flush(downstream).await
    }

    /// Tells a client why its request is refused, and closes the connection.
    pub(crate) async fn refuse(&mut self, downstream: &Downstream, problem: &Problem) {
        proxy::note_refused(downstream, problem.status.as_u16());
        let answer = Answer::from(problem.answer(&Correlation::default()));
        self.say_last(downstream, &answer).await;
    }

    /// Sends a last response and closes the connection.
    pub(crate) async fn say_last(&mut self, downstream: &Downstream, answer: &Answer) {
        self.manner = Manner { version: Version::Http11, close: true };
        write::answer(
            &mut self.side.outbox.small,
            answer,
            &downstream.worker.date(),
            WithBody::Yes,
            self.manner,
        );
        if self.flush(downstream).await {
            self.linger(&downstream.alarm).await;
        }
    }

    /// Sends everything in the outbox. Returns false if the client does not accept it in time.
    async fn flush(&mut self, downstream: &Downstream) -> bool {
        if self.side.drain_at_once() {
            return true;
        }
        let patience = downstream.worker.local().plan.settings.bounds.stall_timeout;
        let sent = downstream.alarm.within(patience, poll_fn(|cx| self.side.poll_drain(cx))).await;
        matches!(sent, Ok(Ok(())))
    }

    /// Reads the unwanted rest of a body. Returns whether the connection can be reused.
    pub(crate) async fn skip_body(&mut self, downstream: &Downstream, request: &RequestHead) -> bool {
        if self.side.incoming.is_over() {
            return true;
        }
        // The client may or may not still send the body.
        if request.expects {
            return false;
        }
        let mut left = MOST_SKIPPED;
        let skipped = poll_fn(|cx| {
            loop {
                match self.side.poll_piece(cx) {
                    Poll::Ready(Ok(Some(Piece::Data(bytes)))) if bytes.len() as u64 <= left => {
                        left -= bytes.len() as u64;
                    }
                    Poll::Ready(Ok(Some(Piece::Trailers(_)) | None)) => return Poll::Ready(true),
                    Poll::Ready(_) => return Poll::Ready(false),
                    Poll::Pending => return Poll::Pending,
                }
            }
        });
        downstream.alarm.within(LINGER, skipped).await.unwrap_or(false)
    }

    /// Closes the connection in such a way that the client can read the last response. If the gateway closed
    /// it while bytes arrive, the kernel would discard what was sent.
    pub(crate) async fn linger(&mut self, alarm: &Alarm) {
        let last = alarm.after(LONGEST_LINGER);
        let mut heard = None;
        poll_fn(|cx| {
            let closed = self.side.poll_close(cx).is_ready();
            if closed && self.side.poll_silence(MOST_LINGERED, cx).is_ready() {
                return Poll::Ready(());
            }
            if heard.replace(self.side.skipped()) != Some(self.side.skipped()) {
                alarm.set_at(alarm.after(LINGER).min(last));
            }
            alarm.poll(cx)
        })
        .await;
    }
}

impl Source for H1Client {
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Piece>, Fault>> {
        let piece = self.side.poll_piece(cx);
        if piece.is_pending() && !self.side.outbox.is_empty() {
            // The client may be waiting for the `100 Continue` in the outbox.
            let _ = self.side.poll_drain(cx).map_err(|_| Fault::Gone)?;
        }
        piece
    }
}

impl Sink for H1Client {
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        self.side.poll_room(cx)
    }

    fn put(&mut self, piece: Piece) {
        self.side.put(piece);
    }

    fn end(&mut self) {
        self.side.end();
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        self.side.poll_flush(cx)
    }
}

impl Client for H1Client {
    fn begin(&mut self, head: &ResponseHead, added: &[u8]) {
        self.manner.close |= self.worker.is_ending();
        let (encoder, close) = write_head(&mut self.side.outbox.small, head, added, self.manner);
        self.side.outgoing = encoder;
        self.manner.close = close;
    }

    fn send_continue(&mut self) {
        self.side.outbox.small.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.side.poll_gone(cx).is_ready() {
            return Poll::Ready(());
        }
        if !self.side.is_full() {
            return Poll::Pending;
        }
        // Unread bytes hide the end of the stream, so no wake-up comes when the client closes.
        let look = self.look.get_or_insert_with(|| self.worker.alarms.alarm());
        loop {
            if self.side.is_hung_up() {
                return Poll::Ready(());
            }
            look.set(TICK);
            if look.poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

/// Writes the head of an upstream's response and the added lines. An added line replaces the upstream's lines
/// of the same name. Returns how the body is encoded, and whether the connection must close after it.
fn write_head(out: &mut BytesMut, head: &ResponseHead, added: &[u8], manner: Manner) -> (Encoder, bool) {
    write::status_line(out, head.status, &head.reason);
    head.lines.write(out, |Line { name, kind, .. }| match kind {
        Kind::Connection | Kind::TransferEncoding | Kind::ContentLength | Kind::Hop => false,
        Kind::Upgrade => head.status == 101,
        _ => !captcha::replace(added, name),
    });
    out.extend_from_slice(added);
    if let Some(length) = head.declared_length() {
        write::number_line(out, b"content-length", length);
    }
    let (encoder, close) = match (head.body, manner.version) {
        (Body::None, _) => (Encoder::Empty, manner.close),
        (Body::Length(_), _) => (Encoder::Plain, manner.close),
        (_, Version::Http10) => (Encoder::Plain, true),
        (_, _) => {
            out.extend_from_slice(b"transfer-encoding: chunked\r\n");
            (Encoder::Chunked, manner.close)
        }
    };
    match head.status {
        101 => out.extend_from_slice(b"connection: upgrade\r\n"),
        _ => out.extend_from_slice(write::connection_line(manner.version, close)),
    }
    out.extend_from_slice(b"\r\n");
    (encoder, close)
}
