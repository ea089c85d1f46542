//! The byte stream of a connection, with or without TLS.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

/// The byte stream of a connection.
pub(crate) enum Stream {
    Plain(TcpStream),
    /// Boxed, so that plain connections, which are many, stay small.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// Reads into the free part of a buffer; 0 means the end of the stream.
    pub(crate) fn poll_read_into(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(stream) => tokio_util::io::poll_read_buf(Pin::new(stream), cx, buffer),
            Self::Tls(stream) => tokio_util::io::poll_read_buf(Pin::new(stream), cx, buffer),
        }
    }

    /// Writes as much as the socket accepts at once. With TLS it writes nothing, since TLS may have to wait.
    pub(crate) fn write_at_once(&self, bytes: &[u8]) -> usize {
        match self {
            // An error shows again at the next write.
            Self::Plain(stream) => stream.try_write(bytes).unwrap_or(0),
            Self::Tls(_) => 0,
        }
    }

    /// Ready if there may be bytes to read. With TLS only reading can tell.
    pub(crate) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Plain(stream) => stream.poll_read_ready(cx).map(|_| ()),
            Self::Tls(_) => Poll::Ready(()),
        }
    }

    /// Whether the peer has closed the connection, even if earlier bytes are still unread.
    pub(crate) fn is_hung_up(&self) -> bool {
        let stream = match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
        };
        let ready = pin!(stream.ready(Interest::READABLE));
        match ready.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(ready)) => ready.is_read_closed(),
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(_) => Poll::Ready(Ok(())),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
