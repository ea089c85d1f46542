//! A stream that closes a connection with a flood of HTTP/2 frames or a head that never ends. HTTP/1 passes
//! unchanged: the server bounds it itself.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};
use tollgate_web::FrameWatch;

pub(crate) struct WatchedFrames<S> {
    stream: S,
    watch: FrameWatch,
    opened: Instant,
    head_timeout: Duration,
    /// Runs while the head with this number has not ended.
    unfinished: Option<(u64, Pin<Box<Sleep>>)>,
}

impl<S> WatchedFrames<S> {
    /// Reading from this stream fails if a head takes longer than `head_timeout`, or after too many frames
    /// without a request.
    pub(crate) fn new(stream: S, head_timeout: Duration) -> Self {
        let watch = FrameWatch::new(Duration::ZERO);
        Self { stream, watch, opened: Instant::now(), head_timeout, unfinished: None }
    }

    /// Called when nothing more has arrived for now.
    fn poll_unfinished(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(number) = self.watch.unfinished() else {
            self.unfinished = None;
            return Poll::Pending;
        };
        let patience = self.head_timeout;
        let (_, timer) = match &mut self.unfinished {
            Some(running) if running.0 == number => running,
            other => other.insert((number, Box::pin(sleep(patience)))),
        };
        timer.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    fn note_sent(&mut self, sent: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = sent {
            self.watch.sent(bytes);
        }
        sent
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedFrames<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        match Pin::new(&mut self.stream).poll_read(cx, buffer) {
            Poll::Ready(Ok(())) => {
                let this = &mut *self;
                let now = || this.opened.elapsed();
                let noted = this.watch.received(&buffer.filled()[before..], now);
                Poll::Ready(noted.map_err(|flood| io::Error::new(io::ErrorKind::ConnectionAborted, flood)))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => self.poll_unfinished(cx),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedFrames<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.note_sent(sent)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.note_sent(sent)
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
