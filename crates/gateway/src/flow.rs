//! Moves a body from one side to the other, at the pace of the slower side.

use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;

/// A piece of a body.
pub(crate) enum Piece {
    Data(Bytes),
    /// The trailers, which are the last piece.
    Trailers(HeaderMap),
}

/// Why one side cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The peer or the network closed the connection.
    Gone,
    /// The peer sent malformed HTTP; the text says how.
    Malformed(&'static str),
    /// The peer sent more than it may.
    TooLong,
}

/// The side that a body comes from.
pub(crate) trait Source {
    /// The next piece; `None` after the last.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Piece>, Fault>>;
}

/// The side that a body goes to.
pub(crate) trait Sink {
    /// Ready when the sink accepts a piece.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>>;

    /// Accepts a piece. Trailers are the last one.
    fn put(&mut self, piece: Piece);

    /// Ends the body.
    fn end(&mut self);

    /// Ready when everything has been written.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>>;
}

/// The progress of one body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    state: State,
    /// The number of bytes read from the source.
    pub(crate) moved: u64,
    /// The most bytes that the source may send.
    pub(crate) most: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Moving,
    Flushing,
    Done,
    /// Abandoned: the rest of the body is not needed.
    Abandoned,
}

/// The side that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    Source(Fault),
    Sink(Fault),
}

/// The side that a flow waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    Source,
    Sink,
    /// The flow is complete.
    Neither,
}

impl Flow {
    /// A body of at most `most` bytes.
    pub(crate) fn new(most: u64) -> Self {
        Self { state: State::Moving, moved: 0, most }
    }

    /// A message without a body.
    pub(crate) fn none() -> Self {
        Self { state: State::Done, moved: 0, most: 0 }
    }

    /// Whether the whole body has been written.
    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Whether the body is complete or abandoned.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, State::Done | State::Abandoned)
    }

    pub(crate) fn abandon(&mut self) {
        if !self.is_done() {
            self.state = State::Abandoned;
        }
    }

    /// Moves as many pieces as possible. Returns the side that it waits for.
    pub(crate) fn drive(
        &mut self,
        source: &mut impl Source,
        sink: &mut impl Sink,
        cx: &mut Context<'_>,
    ) -> Result<Waits, Broken> {
        while self.state == State::Moving {
            match sink.poll_room(cx) {
                Poll::Ready(room) => room.map_err(Broken::Sink)?,
                Poll::Pending => return Ok(Waits::Sink),
            }
            let piece = match source.poll_piece(cx) {
                Poll::Ready(Ok(piece)) => piece,
                Poll::Ready(Err(fault)) => {
                    // Send what arrived before the fault.
                    let _ = sink.poll_flush(cx);
                    return Err(Broken::Source(fault));
                }
                Poll::Pending => {
                    // Send the pieces at hand while the next one has not arrived.
                    let flushed = sink.poll_flush(cx).map_err(Broken::Sink)?;
                    return Ok(if flushed.is_pending() { Waits::Sink } else { Waits::Source });
                }
            };
            self.pass(piece, sink)?;
        }
        if self.state == State::Flushing {
            if sink.poll_flush(cx).map_err(Broken::Sink)?.is_pending() {
                return Ok(Waits::Sink);
            }
            self.state = State::Done;
        }
        Ok(Waits::Neither)
    }

    fn pass(&mut self, piece: Option<Piece>, sink: &mut impl Sink) -> Result<(), Broken> {
        match piece {
            Some(Piece::Data(bytes)) => {
                self.moved += bytes.len() as u64;
                if self.moved > self.most {
                    return Err(Broken::Source(Fault::TooLong));
                }
                sink.put(Piece::Data(bytes));
            }
            Some(trailers) => {
                sink.put(trailers);
                self.state = State::Flushing;
            }
            None => {
                sink.end();
                self.state = State::Flushing;
            }
        }
        Ok(())
    }
}
