//! One HTTP/2 stream: its incoming and its outgoing body. Clients and upstreams use the same type.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream};
use http::HeaderMap;

use crate::flow::{Fault, Piece};
use crate::h1::lines::{Kind, kind_of};

/// The next piece of an incoming body.
pub(super) fn poll_piece(body: &mut RecvStream, cx: &mut Context<'_>) -> Poll<Result<Option<Piece>, Fault>> {
    loop {
        match ready!(body.poll_data(cx)) {
            Some(Ok(bytes)) => {
                // This asks the peer for more. The caller polls only when the other side has room.
                body.flow_control().release_capacity(bytes.len()).map_err(|_| Fault::Gone)?;
                if !bytes.is_empty() {
                    return Poll::Ready(Ok(Some(Piece::Data(bytes))));
                }
            }
            Some(Err(_)) => return Poll::Ready(Err(Fault::Gone)),
            None => break,
        }
    }
    let trailers = ready!(body.poll_trailers(cx)).map_err(|_| Fault::Gone)?;
    Poll::Ready(Ok(trailers.map(fit_to_trail).filter(|map| !map.is_empty()).map(Piece::Trailers)))
}

/// Removes the trailers that say how to read a message.
fn fit_to_trail(trailers: HeaderMap) -> HeaderMap {
    let pairs = trailers.iter().filter(|(name, _)| kind_of(name.as_str().as_bytes()) == Kind::Plain);
    let mut fit = HeaderMap::new();
    for (name, value) in pairs {
        fit.append(name.clone(), value.clone());
    }
    fit
}

/// An outgoing body.
#[derive(Default)]
pub(super) struct Sending {
    /// `None` once it has ended.
    stream: Option<SendStream<Bytes>>,
    /// The bytes for which the peer's window has no room yet.
    waiting: Bytes,
    /// Whether sending failed. The next poll reports it.
    broken: bool,
}

impl Sending {
    pub(super) fn new(stream: Option<SendStream<Bytes>>) -> Self {
        Self { stream, ..Self::default() }
    }

    /// Whether the body has not ended.
    pub(super) fn is_open(&self) -> bool {
        self.stream.is_some()
    }

    /// Records whether sending failed.
    pub(super) fn note(&mut self, broken: bool) {
        self.broken |= broken;
    }

    pub(super) fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        if self.broken {
            return Poll::Ready(Err(Fault::Gone));
        }
        let Some(stream) = &mut self.stream else { return Poll::Ready(Ok(())) };
        while !self.waiting.is_empty() {
            stream.reserve_capacity(self.waiting.len());
            match ready!(stream.poll_capacity(cx)) {
                Some(Ok(room)) => {
                    let piece = self.waiting.split_to(room.min(self.waiting.len()));
                    stream.send_data(piece, false).map_err(|_| Fault::Gone)?;
                }
                Some(Err(_)) | None => return Poll::Ready(Err(Fault::Gone)),
            }
        }
        Poll::Ready(Ok(()))
    }

    pub(super) fn put(&mut self, piece: Piece) {
        let Some(stream) = &mut self.stream else { return };
        match piece {
            Piece::Data(bytes) => self.waiting = bytes,
            Piece::Trailers(trailers) => {
                self.broken |= stream.send_trailers(trailers).is_err();
                self.stream = None;
            }
        }
    }

    pub(super) fn end(&mut self) {
        if let Some(mut stream) = self.stream.take() {
            self.broken |= stream.send_data(Bytes::new(), true).is_err();
        }
    }

    /// Ready if the peer has reset the stream; `None` if the body has ended.
    pub(super) fn poll_reset(&mut self, cx: &mut Context<'_>) -> Option<Poll<()>> {
        self.stream.as_mut().map(|stream| stream.poll_reset(cx).map(|_| ()))
    }

    /// Resets the stream. Returns whether it was open.
    pub(super) fn reset(&mut self, reason: Reason) -> bool {
        self.stream.as_mut().map(|stream| stream.send_reset(reason)).is_some()
    }
}
