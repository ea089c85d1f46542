//! A client that speaks HTTP/1.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Method;
use tollgate_web::{Correlation, Problem};

use super::decode::Decoder;
use super::request::{RequestHead, Version};
use super::response::ResponseHead;
use super::side::Side;
use super::write::{self, Answer, Manner, WithBody};
use crate::alarm::{Alarm, TICK};
use crate::connection::Visit;
use crate::exchange::Client;
use crate::flow::{Fault, Piece, Sink, Source};
use crate::proxy;
use crate::worker::Worker;

/// How long a client may be silent to which nothing more is said, before its connection is closed.
const LINGER: Duration = Duration::from_secs(1);
/// How long it may go on sending, and how much. Many clients send all of a body before they read the answer
/// that refuses it, and report a broken connection if they cannot.
const LONGEST_LINGER: Duration = Duration::from_secs(5);
const MOST_LINGERED: u64 = 32 << 20;
/// How much of a body is read that nobody wants, so that the connection can be used again.
const MOST_SKIPPED: u64 = 64 * 1024;

/// A client that speaks HTTP/1.
pub(crate) struct H1Client {
    pub(crate) side: Side,
    pub(crate) manner: Manner,
    worker: Rc<Worker>,
    /// When to look again whether it is gone, if it has sent too much ahead for that to be noticed.
    look: Option<Alarm>,
}

impl H1Client {
    pub(crate) fn new(side: Side, worker: Rc<Worker>) -> Self {
        Self { side, manner: Manner { version: Version::Http11, close: true }, worker, look: None }
    }

    /// Gets ready for a request.
    pub(crate) fn open(&mut self, request: &RequestHead) {
        self.side.incoming = request.body;
        self.manner = Manner { version: request.version, close: request.close };
    }

    /// Sends an answer of our own. Answers whether that was possible.
    pub(crate) async fn answer(&mut self, visit: &Visit, answer: &Answer, request: &RequestHead) -> bool {
        self.manner.close |= self.worker.is_ending();
        // What is not asked for in full is not worth waiting for.
        self.manner.close |= matches!(self.side.incoming, Decoder::Length(left) if left > MOST_SKIPPED);
        self.manner.close |= request.expects && !self.side.incoming.is_over();
        self.manner.close |= matches!(self.side.incoming, Decoder::Broken(_));
        let with_body = if request.method == Method::HEAD { WithBody::No } else { WithBody::Yes };
        write::answer(&mut self.side.outbox.small, answer, &visit.worker.date(), with_body, self.manner);
        self.flush(visit).await
    }

    /// Tells a client why its request is not taken, and that nothing more will be.
    pub(crate) async fn refuse(&mut self, visit: &Visit, problem: &Problem) {
        proxy::note_refused(visit, problem.status.as_u16());
        let answer = Answer::from(problem.answer(&Correlation::default()));
        self.say_last(visit, &answer).await;
    }

    /// Says this to a client that is not listened to, and lets it go.
    pub(crate) async fn say_last(&mut self, visit: &Visit, answer: &Answer) {
        self.manner = Manner { version: Version::Http11, close: true };
        write::answer(&mut self.side.outbox.small, answer, &visit.worker.date(), WithBody::Yes, self.manner);
        if self.flush(visit).await {
            self.linger(&visit.alarm).await;
        }
    }

    /// Sends everything, unless the client does not take it.
    async fn flush(&mut self, visit: &Visit) -> bool {
        if self.side.drain_at_once() {
            return true;
        }
        let patience = visit.worker.local().plan.settings.bounds.stall_timeout;
        let sent = visit.alarm.within(patience, poll_fn(|cx| self.side.poll_drain(cx))).await;
        matches!(sent, Ok(Ok(())))
    }

    /// Reads what is left of a body that nobody wants. Answers whether the connection can be used
    /// again.
    pub(crate) async fn skip_body(&mut self, visit: &Visit, request: &RequestHead) -> bool {
        if self.side.incoming.is_over() {
            return true;
        }
        // Nobody knows whether such a client still sends it.
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
        visit.alarm.within(LINGER, skipped).await.unwrap_or(false)
    }

    /// Ends the connection such that the client can read what it was sent: if we were to close it while
    /// something comes in, the system would throw our last words away.
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
            // The client may be waiting for leave to send it.
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
        let (encoder, close) = write::response(&mut self.side.outbox.small, head, added, self.manner);
        self.side.outgoing = encoder;
        self.manner.close = close;
    }

    fn go_on(&mut self) {
        self.side.outbox.small.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.side.poll_gone(cx).is_ready() {
            return Poll::Ready(());
        }
        if !self.side.is_full() {
            return Poll::Pending;
        }
        // There is something to read, which nobody wants yet, so nothing tells when the end comes behind it.
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
