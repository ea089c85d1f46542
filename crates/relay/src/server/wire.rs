//! The bytes of one connection: reads with bounds and time-outs, and collects replies to send them together.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsAcceptor;

use crate::session::lines::Lines;
use crate::session::reply::Reply;

/// A connection, with TLS or without.
pub trait Io: AsyncRead + AsyncWrite + Unpin + Send + Sync {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send + Sync> Io for T {}

/// One connection.
pub(super) struct Wire {
    /// `None` after a failed handshake.
    stream: Option<Box<dyn Io>>,
    pub(super) lines: Lines,
    /// Replies that were not sent yet.
    out: Vec<u8>,
    patience: Duration,
}

/// The reason why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// The client closed the connection, or it broke.
    Gone,
    /// The client took too long.
    Late,
}

/// The number of bytes to read at once: of commands, and of a text.
const COMMANDS: usize = 4 * 1024;
const TEXT: usize = 64 * 1024;
/// Replies are sent once there are this many bytes of them.
const MOST_OUT: usize = 16 * 1024;
/// After its last reply, the server reads for this long and up to this many bytes. A system that closes a
/// connection with unread input resets it, and the client may lose the reply.
const LINGER_TIME: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 256 * 1024;
/// A time that no wait reaches.
const FAR: Duration = Duration::from_secs(86_400);

impl Wire {
    pub(super) fn new(stream: Box<dyn Io>, patience: Duration) -> Self {
        Self { stream: Some(stream), lines: Lines::default(), out: Vec::new(), patience }
    }

    fn stream(&mut self) -> Result<&mut Box<dyn Io>, Over> {
        self.stream.as_mut().ok_or(Over::Gone)
    }

    /// Adds a reply to those that wait to be sent.
    pub(super) async fn reply(&mut self, reply: &Reply) -> Result<(), Over> {
        reply.write(&mut self.out);
        if self.out.len() > MOST_OUT { self.flush().await } else { Ok(()) }
    }

    /// Sends all replies. A client that does not read them in time is late.
    pub(super) async fn flush(&mut self) -> Result<(), Over> {
        if self.out.is_empty() {
            return Ok(());
        }
        let out = std::mem::take(&mut self.out);
        let patience = self.patience;
        let stream = self.stream()?;
        let sent = async {
            stream.write_all(&out).await?;
            stream.flush().await
        };
        timeout(patience, sent).await.map_err(|_| Over::Late)?.map_err(|_| Over::Gone)?;
        self.out = out;
        self.out.clear();
        Ok(())
    }

    /// Reads more commands. Cancelling it loses nothing.
    pub(super) async fn read_commands(&mut self, deadline: Instant) -> Result<(), Over> {
        self.lines.shrink(COMMANDS);
        self.read(COMMANDS, deadline).await
    }

    /// Reads more of a text. A client that sends nothing keeps a small buffer; a large one is for what is there already.
    pub(super) async fn read_text(&mut self, deadline: Instant) -> Result<(), Over> {
        self.flush().await?;
        self.lines.shrink(COMMANDS);
        let before = self.lines.unread().len();
        self.read(COMMANDS, deadline).await?;
        if self.lines.unread().len() - before < COMMANDS {
            return Ok(());
        }
        let read = self.read(TEXT - COMMANDS, deadline);
        tokio::select! {
            biased;
            read = read => read,
            () = std::future::ready(()) => Ok(()),
        }
    }

    /// Returns when the client has disconnected. Bytes that it sends meanwhile are kept, up to a bound.
    pub(super) async fn hung_up(&mut self) {
        while self.lines.unread().len() < COMMANDS {
            let never = Instant::now() + FAR;
            if self.read(COMMANDS, never).await.is_err() {
                return;
            }
        }
        std::future::pending().await
    }

    async fn read(&mut self, size: usize, deadline: Instant) -> Result<(), Over> {
        let Self { stream: Some(stream), lines, .. } = self else { return Err(Over::Gone) };
        let buffer = lines.buffer();
        buffer.reserve(size);
        let mut room = stream.take(size as u64);
        let read = timeout_at(deadline, room.read_buf(buffer)).await;
        match read.map_err(|_| Over::Late)? {
            Ok(0) | Err(_) => Err(Over::Gone),
            Ok(_) => Ok(()),
        }
    }

    /// Begins TLS. Discards all input that was read before.
    pub(super) async fn secure(
        &mut self,
        config: &Arc<ServerConfig>,
        patience: Duration,
    ) -> Result<(), Over> {
        self.flush().await?;
        self.lines.clear();
        let stream = self.stream.take().ok_or(Over::Gone)?;
        let accepting = TlsAcceptor::from(Arc::clone(config)).accept(stream);
        let stream = timeout(patience, accepting).await.map_err(|_| Over::Gone)?.map_err(|_| Over::Gone)?;
        self.stream = Some(Box::new(stream));
        Ok(())
    }

    /// Sends the remaining replies, and closes the connection in order.
    pub(super) async fn close(mut self) {
        if self.flush().await.is_err() {
            return;
        }
        let Some(stream) = &mut self.stream else { return };
        let lingering = async {
            stream.shutdown().await?;
            let mut scrap = [0; 4 * 1024];
            let mut discarded = 0;
            while discarded < LINGER_BYTES {
                match stream.read(&mut scrap).await? {
                    0 => break,
                    count => discarded += count,
                }
            }
            io::Result::Ok(())
        };
        let _ = timeout(LINGER_TIME, lingering).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_client_that_stops_in_the_middle_of_a_text_keeps_a_small_buffer() {
        let (mut ours, theirs) = tokio::io::duplex(1 << 20);
        let mut wire = Wire::new(Box::new(theirs), Duration::from_secs(1));
        ours.write_all(&[b'x'; 2 * TEXT]).await.unwrap();
        let deadline = Instant::now() + FAR;
        let mut come = 0;
        while come < 2 * TEXT {
            wire.read_text(deadline).await.unwrap();
            let piece = wire.lines.unread().len();
            assert!(piece <= TEXT);
            come += piece;
            wire.lines.consume(piece);
        }
        assert!(come > TEXT / 2, "what is there is read in large pieces");
        let waiting = timeout(Duration::from_millis(1), wire.read_text(deadline)).await;
        assert!(waiting.is_err(), "nothing more comes");
        assert!(wire.lines.buffer().capacity() <= 2 * COMMANDS, "{}", wire.lines.buffer().capacity());
    }
}
