//! The bytes that wait to be written to a connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::AsyncWrite;

use crate::stream::Stream;

/// Up to this size copying is cheaper than a separate slice in a vectored write.
const MOST_COPIED: usize = 4 * 1024;
/// Above this size the outbox accepts more only after a write.
const MOST_KEPT: usize = 16 * 1024;

/// The bytes that wait to be written: small pieces in one buffer, then at most one large piece.
#[derive(Default)]
pub(crate) struct Outbox {
    pub(crate) small: BytesMut,
    large: Bytes,
    /// The bytes after the large piece.
    after: &'static [u8],
}

impl Outbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.small.is_empty() && self.large.is_empty() && self.after.is_empty()
    }

    /// Whether the outbox accepts more.
    pub(crate) fn has_room(&self) -> bool {
        self.large.is_empty() && self.after.is_empty() && self.small.len() < MOST_KEPT
    }

    /// Adds bytes, and `after` behind them. Only allowed while there is room.
    pub(crate) fn put(&mut self, bytes: Bytes, after: &'static [u8]) {
        debug_assert!(self.large.is_empty() && self.after.is_empty(), "there is at most one large piece");
        if bytes.len() <= MOST_COPIED {
            self.small.extend_from_slice(&bytes);
            self.small.extend_from_slice(after);
        } else {
            self.large = bytes;
            self.after = after;
        }
    }

    /// Writes as much as the socket accepts at once. Returns whether that was everything.
    pub(crate) fn write_at_once(&mut self, stream: &Stream) -> bool {
        if self.large.is_empty() && self.after.is_empty() {
            let written = stream.write_at_once(&self.small);
            self.advance(written);
        }
        self.is_empty()
    }

    /// Writes until nothing is left.
    pub(crate) fn poll_write(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.is_empty() {
            let mut stream = Pin::new(&mut *stream);
            let written = if self.large.is_empty() && self.after.is_empty() {
                ready!(stream.as_mut().poll_write(cx, &self.small))?
            } else {
                let parts = [
                    io::IoSlice::new(&self.small),
                    io::IoSlice::new(&self.large),
                    io::IoSlice::new(self.after),
                ];
                ready!(stream.as_mut().poll_write_vectored(cx, &parts))?
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(written);
        }
        Poll::Ready(Ok(()))
    }

    fn advance(&mut self, written: usize) {
        let small = written.min(self.small.len());
        let large = (written - small).min(self.large.len());
        let after = written - small - large;
        if small == self.small.len() {
            // Cleared rather than advanced, so that its memory is reused from the beginning.
            self.small.clear();
        } else {
            self.small.advance(small);
        }
        self.large.advance(large);
        if self.large.is_empty() {
            self.large = Bytes::new();
        }
        self.after = &self.after[after..];
    }

    /// Frees a large buffer that is empty. It is only needed during a request.
    pub(crate) fn shrink(&mut self) {
        if self.is_empty() && self.small.capacity() > MOST_COPIED {
            self.small = BytesMut::new();
        }
    }
}
