//! One side of an exchange in HTTP/1: a connection, how the message that comes in ends, and how the
//! one that goes out does. Clients and upstreams are alike in this.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use http::Method;
use tokio::io::AsyncWrite;

use super::decode::{Decoded, Decoder};
use super::encode::Encoder;
use super::outbox::Outbox;
use super::response::{self, Body, ResponseHead};
use crate::exchange::{Failure, Server};
use crate::flow::{Fault, Piece, Sink, Source};
use crate::stream::Stream;

/// Room for a head as most are.
const ROOM: usize = 4 * 1024;
/// Room for a body that comes faster than it is passed on.
const MOST_ROOM: usize = 64 * 1024;
/// How much of what was not asked for yet is kept.
const MOST_AHEAD: usize = 16 * 1024;
/// How much is thrown away before others have their turn.
const MOST_IN_A_TURN: u64 = 256 * 1024;

/// A connection in HTTP/1.
pub(crate) struct Side {
    stream: Stream,
    /// What was read and not used yet.
    pub(crate) inbox: BytesMut,
    pub(crate) outbox: Outbox,
    pub(crate) incoming: Decoder,
    pub(crate) outgoing: Encoder,
    /// How much room the next reading gets.
    room: usize,
    /// Whether the end of what comes in was seen.
    ended: bool,
    /// How much was thrown away.
    skipped: u64,
}

impl Side {
    pub(crate) fn new(stream: Stream) -> Self {
        Self {
            stream,
            inbox: BytesMut::new(),
            outbox: Outbox::default(),
            incoming: Decoder::Empty,
            outgoing: Encoder::Empty,
            room: ROOM,
            ended: false,
            skipped: 0,
        }
    }

    /// Reads more; 0 is the end.
    pub(crate) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.ended {
            return Poll::Ready(Ok(0));
        }
        // No room is made for those who have nothing to say.
        if self.inbox.capacity() == 0 {
            ready!(self.stream.poll_readable(cx));
        }
        if self.inbox.capacity() - self.inbox.len() < self.room / 4 {
            self.inbox.reserve(self.room);
        }
        let free = self.inbox.capacity() - self.inbox.len();
        let read = ready!(self.stream.poll_read_into(cx, &mut self.inbox))?;
        self.ended = read == 0;
        if read == free && self.room < MOST_ROOM {
            self.room *= 2;
        }
        Poll::Ready(Ok(read))
    }

    /// Writes what goes at once. Answers whether that was everything, and nothing more is to be done:
    /// those who have asked for more already take turns with others.
    pub(crate) fn drain_at_once(&mut self) -> bool {
        self.inbox.is_empty() && self.outbox.write_at_once(&self.stream)
    }

    /// Writes everything.
    pub(crate) fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.outbox.is_empty() {
            ready!(self.outbox.poll_write(&mut self.stream, cx))?;
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// Says that nothing more will be written.
    pub(crate) fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    /// Whether the peer is gone. What it sends ahead is kept for later, up to a bound: one that
    /// [is full](Self::is_full) is not looked at.
    pub(crate) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.is_full() {
                return Poll::Pending;
            }
            ready!(self.stream.poll_readable(cx));
            match ready!(self.poll_fill(cx)) {
                Ok(0) | Err(_) => return Poll::Ready(()),
                Ok(_) => {}
            }
        }
    }

    /// Whether so much was sent ahead that nothing more is read until it is used.
    pub(crate) fn is_full(&self) -> bool {
        self.inbox.len() >= MOST_AHEAD
    }

    /// Whether the peer has closed the connection, behind whatever was not read yet.
    pub(crate) fn is_hung_up(&self) -> bool {
        self.ended || self.stream.is_hung_up()
    }

    /// Ready when the peer has closed the connection, or has sent more than this meanwhile, which is
    /// thrown away.
    pub(crate) fn poll_silence(&mut self, most: u64, cx: &mut Context<'_>) -> Poll<()> {
        let turn = self.skipped + MOST_IN_A_TURN;
        loop {
            self.skipped += self.inbox.len() as u64;
            self.inbox.clear();
            if self.skipped > most {
                return Poll::Ready(());
            }
            if self.skipped > turn {
                // Others have their turn.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            match ready!(self.poll_fill(cx)) {
                Ok(0) | Err(_) => return Poll::Ready(()),
                Ok(_) => {}
            }
        }
    }

    /// How much was thrown away.
    pub(crate) fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Whether nothing was sent that was not asked for, and nothing is known of an end: a connection
    /// that can be used again.
    pub(crate) fn is_quiet(&mut self) -> bool {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        self.inbox.is_empty() && !self.ended && self.poll_gone(&mut cx).is_pending() && self.inbox.is_empty()
    }

    /// Whether nothing is under way.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.incoming.is_over() && self.inbox.is_empty() && self.outbox.is_empty()
    }

    /// Gives back memory that is only needed while something is under way.
    pub(crate) fn rest(&mut self) {
        self.room = ROOM;
        self.outbox.shrink();
        if self.inbox.is_empty() && self.inbox.capacity() > 2 * ROOM {
            self.inbox = BytesMut::new();
        }
    }

    /// Gives back all memory, for a peer that has not said anything for a while.
    pub(crate) fn doze(&mut self) {
        if self.inbox.is_empty() {
            self.inbox = BytesMut::new();
        }
        if self.outbox.is_empty() {
            self.outbox = Outbox::default();
        }
    }

    /// Takes the connection out, with what was read of it already.
    pub(crate) fn into_stream(self) -> (Stream, BytesMut) {
        (self.stream, self.inbox)
    }
}

impl Source for Side {
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Piece>, Fault>> {
        loop {
            match self.incoming.decode(&mut self.inbox).map_err(Fault::Malformed)? {
                Decoded::Data(bytes) => return Poll::Ready(Ok(Some(Piece::Data(bytes)))),
                Decoded::Trailers(trailers) => return Poll::Ready(Ok(Some(Piece::Trailers(trailers)))),
                Decoded::End => return Poll::Ready(Ok(None)),
                Decoded::More => {
                    if ready!(self.poll_fill(cx)).map_err(|_| Fault::Gone)? == 0 {
                        self.incoming.end().map_err(|_| Fault::Gone)?;
                    }
                }
            }
        }
    }
}

impl Sink for Side {
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        if self.outbox.has_room() {
            return Poll::Ready(Ok(()));
        }
        self.outbox.poll_write(&mut self.stream, cx).map_err(|_| Fault::Gone)
    }

    fn put(&mut self, piece: Piece) {
        match piece {
            Piece::Data(bytes) => self.outgoing.encode(bytes, &mut self.outbox),
            Piece::Trailers(trailers) => self.outgoing.finish(Some(&trailers), &mut self.outbox),
        }
    }

    fn end(&mut self) {
        self.outgoing.finish(None, &mut self.outbox);
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        self.poll_drain(cx).map_err(|_| Fault::Gone)
    }
}

/// An upstream.
impl Server for Side {
    const GIVES_LEAVE: bool = true;

    fn poll_response(
        &mut self,
        method: &Method,
        head: &mut ResponseHead,
        heard: &mut bool,
        cx: &mut Context<'_>,
    ) -> Result<Poll<()>, Failure> {
        loop {
            if response::take(&mut self.inbox, method, head).map_err(Failure::UpstreamMalformed)? {
                return Ok(Poll::Ready(()));
            }
            match self.poll_fill(cx) {
                Poll::Pending => return Ok(Poll::Pending),
                Poll::Ready(Ok(1..)) => *heard = true,
                Poll::Ready(_) => return Err(Failure::UpstreamGone { heard: *heard }),
            }
        }
    }

    fn expect_body(&mut self, body: Body) {
        self.incoming = body.decoder();
    }
}
