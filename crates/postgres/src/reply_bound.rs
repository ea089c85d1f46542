//! Bounds the memory that a server can make this process use: the length of each message, and of each reply.
//!
//! `tokio-postgres` reads messages of any length and replies of any number of rows. So the bytes pass through
//! here first. This module reads the five bytes before each message (its type and length), and no content.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

/// The length of a message's header: its type, and its length without the type.
const HEADER_BYTES: usize = 5;
/// The type of the message that ends every reply.
const READY_FOR_QUERY: u8 = b'Z';

/// The longest message and the longest reply, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplyBound {
    pub(crate) message: usize,
    pub(crate) reply: usize,
}

impl ReplyBound {
    /// For the tables of the store. The longest honest message is a record. The longest honest reply is a
    /// whole namespace of records.
    pub(crate) const STORE: Self = Self { message: 16 << 20, reply: 256 << 20 };
    /// For counts of rows: one number each.
    pub(crate) const COUNT: Self = Self { message: 64 << 10, reply: 64 << 10 };
}

/// The server sent more than the bound allows. The connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplyTooLong {
    most: usize,
}

impl fmt::Display for ReplyTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server sent more than {} bytes in one reply", self.most)
    }
}

impl std::error::Error for ReplyTooLong {}

#[derive(Debug)]
struct ReplyWatch {
    bound: ReplyBound,
    header: [u8; HEADER_BYTES],
    /// The number of header bytes received.
    come: usize,
    /// The number of bytes of the message that have not arrived yet.
    missing: usize,
    /// The length of the reply so far.
    reply: usize,
}

impl ReplyWatch {
    fn new(bound: ReplyBound) -> Self {
        Self { bound, header: [0; HEADER_BYTES], come: 0, missing: 0, reply: 0 }
    }

    /// Counts bytes that the server sent, in their order of arrival.
    fn received(&mut self, mut bytes: &[u8]) -> Result<(), ReplyTooLong> {
        while !bytes.is_empty() {
            if self.missing > 0 {
                let length = bytes.len().min(self.missing);
                self.missing -= length;
                bytes = &bytes[length..];
                continue;
            }
            let length = bytes.len().min(HEADER_BYTES - self.come);
            self.header[self.come..self.come + length].copy_from_slice(&bytes[..length]);
            self.come += length;
            bytes = &bytes[length..];
            if self.come == HEADER_BYTES {
                self.come = 0;
                self.begin()?;
            }
        }
        Ok(())
    }

    /// Checks the header of a message.
    fn begin(&mut self) -> Result<(), ReplyTooLong> {
        let [kind, length @ ..] = self.header;
        // The length counts itself.
        let length = u32::from_be_bytes(length) as usize;
        if length > self.bound.message {
            return Err(ReplyTooLong { most: self.bound.message });
        }
        self.reply = if kind == READY_FOR_QUERY { 0 } else { self.reply + 1 + length };
        if self.reply > self.bound.reply {
            return Err(ReplyTooLong { most: self.bound.reply });
        }
        self.missing = length.saturating_sub(4);
        Ok(())
    }
}

/// A stream from a server. It fails if a message or a reply is too long.
pub(crate) struct Bounded<S> {
    stream: S,
    watch: ReplyWatch,
    /// Whether the stream failed because of that.
    exceeded: Arc<AtomicBool>,
}

impl<S> Bounded<S> {
    pub(crate) fn new(stream: S, bound: ReplyBound, exceeded: Arc<AtomicBool>) -> Self {
        Self { stream, watch: ReplyWatch::new(bound), exceeded }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        std::task::ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        Poll::Ready(self.watch.received(&buffer.filled()[before..]).map_err(|error| {
            self.exceeded.store(true, Ordering::Release);
            io::Error::new(io::ErrorKind::InvalidData, error)
        }))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: TlsStream + Unpin> TlsStream for Bounded<S> {
    fn channel_binding(&self) -> ChannelBinding {
        self.stream.channel_binding()
    }
}

/// Bounds the decrypted bytes of a TLS connection.
pub(crate) struct BoundedTls<T> {
    pub(crate) tls: T,
    pub(crate) bound: ReplyBound,
    pub(crate) exceeded: Arc<AtomicBool>,
}

impl<S, T> TlsConnect<S> for BoundedTls<T>
where
    T: TlsConnect<S>,
    T::Future: Send + 'static,
{
    type Stream = Bounded<T::Stream>;
    type Error = T::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Stream, Self::Error>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        let Self { tls, bound, exceeded } = self;
        let connecting = tls.connect(stream);
        Box::pin(async move { Ok(Bounded::new(connecting.await?, bound, exceeded)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, content: usize) -> Vec<u8> {
        let length = u32::try_from(content + 4).unwrap().to_be_bytes();
        [&[kind][..], &length, &vec![0; content]].concat()
    }

    #[test]
    fn messages_and_replies_end_at_their_bounds_however_they_are_cut() {
        let bound = ReplyBound { message: 100, reply: 300 };
        let reply = [message(b'D', 96), message(b'D', 96), message(b'D', 80)].concat();
        assert!(reply.len() <= 300);
        let whole = [&reply[..], &message(READY_FOR_QUERY, 1), &reply].concat();
        let row = message(b'D', 97);
        for size in [1, 3, 7, 1_000] {
            let feed = |bytes: &[u8]| {
                let mut watch = ReplyWatch::new(bound);
                bytes.chunks(size).try_for_each(|piece| watch.received(piece))
            };
            assert_eq!(feed(&whole), Ok(()), "two replies");
            assert_eq!(feed(&row[..HEADER_BYTES]), Err(ReplyTooLong { most: 100 }), "before its content");
            assert_eq!(feed(&[&reply[..], &message(b'D', 20)].concat()), Err(ReplyTooLong { most: 300 }));
            assert_eq!(feed(&message(b'D', 0).repeat(61)), Err(ReplyTooLong { most: 300 }), "empty rows");
        }
    }
}
