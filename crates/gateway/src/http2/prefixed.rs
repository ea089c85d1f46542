//! A connection from which some bytes were already read, and whose frames are watched.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tollgate_web::FrameWatch;

use crate::alarm::Alarms;
use crate::stream::Stream;

/// Reads the bytes in `read` first, then the stream.
pub(crate) struct Prefixed {
    read: BytesMut,
    stream: Stream,
    frames: Rc<Frames>,
}

/// Watches the frames of a client, and reads the clock by which a flood is measured.
pub(super) struct Frames {
    watch: RefCell<FrameWatch>,
    alarms: Rc<Alarms>,
}

impl Frames {
    pub(super) fn new(alarms: &Rc<Alarms>) -> Rc<Self> {
        let watch = RefCell::new(FrameWatch::new(alarms.time()));
        Rc::new(Self { watch, alarms: Rc::clone(alarms) })
    }

    /// The number of the head that has started but not ended.
    pub(super) fn unfinished(&self) -> Option<u64> {
        self.watch.borrow().unfinished()
    }

    fn received(&self, bytes: &[u8]) -> io::Result<()> {
        let watched = self.watch.borrow_mut().received(bytes, || self.alarms.time());
        watched.map_err(|flood| io::Error::new(io::ErrorKind::InvalidData, flood))
    }

    fn sent(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &written {
            self.watch.borrow_mut().sent(*bytes);
        }
        written
    }
}

impl Prefixed {
    pub(super) fn new(stream: Stream, read: BytesMut, frames: Rc<Frames>) -> Self {
        Self { read, stream, frames }
    }
}

impl AsyncRead for Prefixed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read.is_empty() {
            let before = buffer.filled().len();
            ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
            return Poll::Ready(self.frames.received(&buffer.filled()[before..]));
        }
        let size = self.read.len().min(buffer.remaining());
        self.frames.received(&self.read[..size])?;
        buffer.put_slice(&self.read[..size]);
        self.read.advance(size);
        if self.read.is_empty() {
            self.read = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Prefixed {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.frames.sent(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.frames.sent(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
