//! One HTTP/1 side of an exchange: the connection, the decoder of its incoming message and the encoder of its
//! outgoing one. Clients and upstreams use the same type.

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

/// The buffer for a typical head.
const ROOM: usize = 4 * 1024;
/// The buffer for a body that arrives faster than it is forwarded.
const MOST_ROOM: usize = 64 * 1024;
/// How many bytes of later requests are buffered.
const MOST_AHEAD: usize = 16 * 1024;
/// How many bytes are discarded before other tasks get a turn.
const MOST_IN_A_TURN: u64 = 256 * 1024;

/// An HTTP/1 connection.
pub(crate) struct Side {
    stream: Stream,
    /// Bytes that were read but not yet used.
    pub(crate) inbox: BytesMut,
    pub(crate) outbox: Outbox,
    pub(crate) incoming: Decoder,
    pub(crate) outgoing: Encoder,
    /// The buffer size of the next read.
    room: usize,
    /// Whether the peer has closed its sending half.
    ended: bool,
    /// The number of discarded bytes.
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

    /// Reads more bytes; 0 means the end of the stream.
    pub(crate) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.ended {
            return Poll::Ready(Ok(0));
        }
        // An idle connection has no buffer until bytes arrive.
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

    /// Writes as much as the socket accepts at once. Returns whether everything was written and no further
    /// request waits in the inbox: a client that pipelines takes turns with others.
    pub(crate) fn drain_at_once(&mut self) -> bool {
        self.inbox.is_empty() && self.outbox.write_at_once(&self.stream)
    }

    /// Writes everything in the outbox.
    pub(crate) fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.outbox.is_empty() {
            ready!(self.outbox.poll_write(&mut self.stream, cx))?;
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// Shuts down the sending half of the connection.
    pub(crate) fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    /// Ready if the peer is gone. Bytes that it sends ahead are buffered up to a bound. If the buffer [is
    /// full](Self::is_full), the connection is not read.
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

    /// Whether the peer has sent so much ahead that nothing more is read until some of it is used.
    pub(crate) fn is_full(&self) -> bool {
        self.inbox.len() >= MOST_AHEAD
    }

    /// Whether the peer has closed the connection, even behind unread bytes.
    pub(crate) fn is_hung_up(&self) -> bool {
        self.ended || self.stream.is_hung_up()
    }

    /// Ready when the peer has closed the connection or has sent more than `most` bytes. The bytes are
    /// discarded.
    pub(crate) fn poll_silence(&mut self, most: u64, cx: &mut Context<'_>) -> Poll<()> {
        let turn = self.skipped + MOST_IN_A_TURN;
        loop {
            self.skipped += self.inbox.len() as u64;
            self.inbox.clear();
            if self.skipped > most {
                return Poll::Ready(());
            }
            if self.skipped > turn {
                // Give other tasks a turn.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            match ready!(self.poll_fill(cx)) {
                Ok(0) | Err(_) => return Poll::Ready(()),
                Ok(_) => {}
            }
        }
    }

    /// The number of discarded bytes.
    pub(crate) fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Whether the connection can be reused: nothing unexpected arrived, and the peer has not closed it.
    pub(crate) fn is_quiet(&mut self) -> bool {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        self.inbox.is_empty() && !self.ended && self.poll_gone(&mut cx).is_pending() && self.inbox.is_empty()
    }

    /// Whether no message is in progress.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.incoming.is_over() && self.inbox.is_empty() && self.outbox.is_empty()
    }

    /// Frees memory that is only needed during a request.
    pub(crate) fn rest(&mut self) {
        self.room = ROOM;
        self.outbox.shrink();
        if self.inbox.is_empty() && self.inbox.capacity() > 2 * ROOM {
            self.inbox = BytesMut::new();
        }
    }

    /// Frees all buffers of a connection that has been idle for a while.
    pub(crate) fn doze(&mut self) {
        if self.inbox.is_empty() {
            self.inbox = BytesMut::new();
        }
        if self.outbox.is_empty() {
            self.outbox = Outbox::default();
        }
    }

    /// Returns the connection and the bytes that were already read from it.
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
    const SENDS_CONTINUE: bool = true;

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
