//! A client's connection: one request after the other.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Method;
use tollgate_web::{Correlation, Problem};

use crate::alarm::Alarm;
use crate::exchange::Client;
use crate::flow::{Fault, Piece, Sink, Source};
use crate::forward::Origin;
use crate::h1::decode::Decoder;
use crate::h1::request::{self, Most, Refused, RequestHead, Version};
use crate::h1::response::ResponseHead;
use crate::h1::side::Side;
use crate::h1::write::{self, Answer, Manner, WithBody};
use crate::http2;
use crate::proxy::{self, Passed};
use crate::stream::Stream;
use crate::worker::Worker;

/// A client's connection, and whose it is.
pub(crate) struct Visit {
    pub(crate) worker: Rc<Worker>,
    pub(crate) alarm: Alarm,
    pub(crate) origin: Rc<Origin>,
}

/// After so long without a request a connection keeps no memory for one.
const DOZE: Duration = Duration::from_secs(1);
/// How long we listen to a client that we have nothing more to say to, so that it can read our last
/// words; and how much it may send meanwhile.
const LINGER: Duration = Duration::from_secs(1);
const MOST_LINGERED: u64 = 256 * 1024;
/// How much of a body is read that nobody wants, so that the connection can be used again.
const MOST_SKIPPED: u64 = 64 * 1024;

/// What HTTP/2 begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Serves a connection without TLS. If HTTP/2 is spoken, its first bytes say so.
pub(crate) async fn serve(visit: Visit, stream: Stream, http2: bool) {
    let side = Side::new(stream);
    if let Some(side) = converse(&visit, side, http2).await {
        let (stream, read) = side.into_stream();
        Box::pin(http2::serve(visit, stream, read)).await;
    }
}

/// Serves a connection with TLS, which has told what is spoken.
pub(crate) async fn serve_secure(visit: Visit, stream: Stream, http2: bool) {
    if http2 {
        Box::pin(http2::serve(visit, stream, bytes::BytesMut::new())).await;
    } else {
        converse(&visit, Side::new(stream), false).await;
    }
}

/// Tells a client that its connection may not stay, without listening to it.
pub(crate) async fn turn_away(visit: Visit, stream: Stream, answer: &Answer) {
    let mut client = H1Client::new(Side::new(stream), Rc::clone(&visit.worker));
    let date = visit.worker.date();
    write::answer(&mut client.side.outbox.small, answer, &date, WithBody::Yes, client.manner);
    if client.flush(&visit).await {
        client.linger(&visit.alarm).await;
    }
}

/// What comes next over a connection.
#[expect(clippy::large_enum_variant, reason = "it is moved once, and boxing it would cost more")]
enum Next {
    Request(RequestHead),
    Refused(Refused),
    /// The head did not come in time.
    Late,
    /// Nothing comes any more.
    End,
    /// HTTP/2 is spoken.
    Http2,
}

/// One request after the other. Answers the connection if HTTP/2 is spoken over it.
async fn converse(visit: &Visit, side: Side, mut http2: bool) -> Option<Side> {
    let mut client = H1Client::new(side, Rc::clone(&visit.worker));
    let mut idle = None;
    loop {
        let request = match next(visit, &mut client.side, idle, http2).await {
            Next::Request(request) => request,
            Next::End => return None,
            Next::Http2 => return Some(client.side),
            Next::Late => {
                let problem = Problem::too_late("the head of the request did not come in time");
                client.refuse(visit, &problem).await;
                return None;
            }
            Next::Refused(refused) => {
                client.refuse(visit, &problem_of(refused)).await;
                return None;
            }
        };
        http2 = false;
        client.open(&request);
        match proxy::pass(visit, &mut client, &request).await {
            Passed::Whole => {}
            Passed::Answer(answer) => {
                if !client.answer(visit, &answer, &request).await {
                    return None;
                }
            }
            Passed::Refused(answer) => {
                client.manner.close = true;
                if !client.answer(visit, &answer, &request).await {
                    return None;
                }
            }
            Passed::Cut => return None,
            Passed::Tunnel(tunnel) => {
                tunnel.run(visit, &mut client.side).await;
                return None;
            }
        }
        if client.manner.close || !client.skip_body(visit, &request).await {
            client.linger(&visit.alarm).await;
            return None;
        }
        client.side.rest();
        idle = Some(visit.worker.local().plan.settings.bounds.idle_timeout);
    }
}

/// Waits for the next request. A connection that was used before may be idle for a while first.
async fn next(visit: &Visit, side: &mut Side, idle: Option<Duration>, http2: bool) -> Next {
    let (most, head_timeout) = {
        let local = visit.worker.local();
        let bounds = &local.plan.settings.bounds;
        (Most { bytes: bounds.head_bytes, lines: bounds.head_lines }, bounds.head_timeout)
    };
    let mut scanned = 0;
    let mut phase = match idle {
        Some(_) if side.inbox.is_empty() => Phase::Idle,
        _ => Phase::Head,
    };
    visit.alarm.set(if phase == Phase::Idle { DOZE } else { head_timeout });
    poll_fn(|cx| {
        loop {
            if http2 && !side.inbox.is_empty() {
                match begins_http2(&side.inbox) {
                    Some(true) => return Poll::Ready(Next::Http2),
                    Some(false) => {}
                    None => match side.poll_fill(cx) {
                        Poll::Ready(Ok(1..)) => continue,
                        Poll::Ready(_) => return Poll::Ready(Next::End),
                        Poll::Pending => return visit.alarm.poll(cx).map(|()| Next::Late),
                    },
                }
            }
            match request::take(&mut side.inbox, &mut scanned, most) {
                Ok(Some(request)) => return Poll::Ready(Next::Request(request)),
                Err(refused) => return Poll::Ready(Next::Refused(refused)),
                Ok(None) => {}
            }
            match side.poll_fill(cx) {
                Poll::Ready(Ok(1..)) if phase != Phase::Head => {
                    phase = Phase::Head;
                    visit.alarm.set(head_timeout);
                }
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(_) => return Poll::Ready(Next::End),
                Poll::Pending => match poll_idle(visit, side, &mut phase, idle, cx) {
                    Poll::Ready(Some(next)) => return Poll::Ready(next),
                    Poll::Ready(None) => {}
                    Poll::Pending => return Poll::Pending,
                },
            }
        }
    })
    .await
}

/// What a connection does while no request comes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It was used a moment ago.
    Idle,
    /// It was not used for a while.
    Dozing,
    /// A head comes, or should.
    Head,
}

/// Nothing has come yet. Ready if that went on for too long: with nothing if it is to be tried again.
fn poll_idle(
    visit: &Visit,
    side: &mut Side,
    phase: &mut Phase,
    idle: Option<Duration>,
    cx: &mut Context<'_>,
) -> Poll<Option<Next>> {
    if visit.worker.is_ending() && side.inbox.is_empty() {
        return Poll::Ready(Some(Next::End));
    }
    if visit.alarm.poll(cx).is_pending() {
        return Poll::Pending;
    }
    match phase {
        Phase::Head if side.inbox.is_empty() => Poll::Ready(Some(Next::End)),
        Phase::Head => Poll::Ready(Some(Next::Late)),
        Phase::Dozing => Poll::Ready(Some(Next::End)),
        Phase::Idle => {
            *phase = Phase::Dozing;
            side.doze();
            visit.alarm.set(idle.unwrap_or_default().saturating_sub(DOZE));
            Poll::Ready(None)
        }
    }
}

/// Whether these are the first bytes of HTTP/2; `None` if they may be.
fn begins_http2(bytes: &[u8]) -> Option<bool> {
    if bytes.len() >= PREFACE.len() {
        return Some(bytes.starts_with(PREFACE));
    }
    if PREFACE.starts_with(bytes) { None } else { Some(false) }
}

fn problem_of(refused: Refused) -> Problem {
    match refused {
        Refused::Malformed(reason) => Problem::bad_request(reason),
        Refused::TooLarge => Problem::headers_too_large("the head of the request is too long"),
        Refused::NotForUs => Problem::method_not_allowed("this is not a forward proxy"),
    }
}

/// A client that speaks HTTP/1.
pub(crate) struct H1Client {
    pub(crate) side: Side,
    manner: Manner,
    worker: Rc<Worker>,
}

impl H1Client {
    fn new(side: Side, worker: Rc<Worker>) -> Self {
        Self { side, manner: Manner { version: Version::Http11, close: true }, worker }
    }

    /// Gets ready for a request.
    fn open(&mut self, request: &RequestHead) {
        self.side.incoming = request.body;
        self.manner = Manner { version: request.version, close: request.close };
    }

    /// Sends an answer of our own. Answers whether that was possible.
    async fn answer(&mut self, visit: &Visit, answer: &Answer, request: &RequestHead) -> bool {
        self.manner.close |= self.worker.is_ending();
        // What is not asked for in full is not worth waiting for.
        self.manner.close |= matches!(self.side.incoming, Decoder::Length(left) if left > MOST_SKIPPED);
        self.manner.close |= request.expects && !self.side.incoming.is_over();
        let with_body = if request.method == Method::HEAD { WithBody::No } else { WithBody::Yes };
        let date = visit.worker.date();
        write::answer(&mut self.side.outbox.small, answer, &date, with_body, self.manner);
        self.flush(visit).await
    }

    /// Tells a client why its request is not taken, and that nothing more will be.
    async fn refuse(&mut self, visit: &Visit, problem: &Problem) {
        proxy::note_refused(visit, problem.status.as_u16());
        self.manner = Manner { version: Version::Http11, close: true };
        let answer = Answer::from(problem.answer(&Correlation::default()));
        let date = visit.worker.date();
        write::answer(&mut self.side.outbox.small, &answer, &date, WithBody::Yes, self.manner);
        if self.flush(visit).await {
            self.linger(&visit.alarm).await;
        }
    }

    /// Sends everything, unless the client does not take it.
    async fn flush(&mut self, visit: &Visit) -> bool {
        let patience = visit.worker.local().plan.settings.bounds.stall_timeout;
        let sent = visit.alarm.within(patience, poll_fn(|cx| self.side.poll_drain(cx))).await;
        matches!(sent, Ok(Ok(())))
    }

    /// Reads what is left of a body that nobody wants. Answers whether the connection can be used
    /// again.
    async fn skip_body(&mut self, visit: &Visit, request: &RequestHead) -> bool {
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
    async fn linger(&mut self, alarm: &Alarm) {
        let ended = poll_fn(|cx| {
            if self.side.poll_close(cx).is_pending() {
                return Poll::Pending;
            }
            self.side.poll_silence(MOST_LINGERED, cx)
        });
        let _ = alarm.within(LINGER, ended).await;
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
        self.side.poll_gone(cx)
    }
}
