//! Moves a body from one side to the other, no faster than the slower of them.

use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;

/// A piece of a body.
pub(crate) enum Piece {
    Data(Bytes),
    /// What comes after the last data, and is the last piece.
    Trailers(HeaderMap),
}

/// Why a side cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It closed the connection, or the network did.
    Gone,
    /// It sent what is not HTTP; this says what is wrong with it.
    Malformed(&'static str),
    /// It sent more than it may.
    TooLong,
}

/// Where a body comes from.
pub(crate) trait Source {
    /// The next piece; `None` after the last.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Piece>, Fault>>;
}

/// Where a body goes.
pub(crate) trait Sink {
    /// Ready when a piece can be put in.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>>;

    /// Takes a piece. Trailers are the last one.
    fn put(&mut self, piece: Piece);

    /// Nothing comes any more.
    fn end(&mut self);

    /// Ready when everything has left.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>>;
}

/// How far a body has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    state: State,
    /// How many bytes the source gave.
    pub(crate) moved: u64,
    /// How many it may give.
    pub(crate) most: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Moving,
    Flushing,
    Done,
    /// Given up: it does not matter any more.
    Abandoned,
}

/// Which side is to blame for what went wrong, or for the time that passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    Source(Fault),
    Sink(Fault),
}

/// Whom a flow waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    Source,
    Sink,
    Nobody,
}

impl Flow {
    /// A body of at most so many bytes.
    pub(crate) fn new(most: u64) -> Self {
        Self { state: State::Moving, moved: 0, most }
    }

    /// No body at all.
    pub(crate) fn none() -> Self {
        Self { state: State::Done, moved: 0, most: 0 }
    }

    /// Whether all of it has left.
    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Whether there is nothing more to do, for better or worse.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, State::Done | State::Abandoned)
    }

    pub(crate) fn abandon(&mut self) {
        if !self.is_done() {
            self.state = State::Abandoned;
        }
    }

    /// Moves as much as can be moved. Answers whom it waits for.
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
                    // What came before should not be lost with what never comes.
                    let _ = sink.poll_flush(cx);
                    return Err(Broken::Source(fault));
                }
                Poll::Pending => {
                    // What there is should not wait for what is not.
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
        Ok(Waits::Nobody)
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
