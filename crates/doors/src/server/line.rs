//! A connection that is watched while a request on it waits, so that a disconnect is noticed even if the
//! client sent something after its request. The server reads at most one request ahead, so it would not see
//! the end before it has answered.
//!
//! It is also closed with care. If the kernel closes a connection with unread or still arriving bytes, it
//! resets it, and the client may lose the response. So this reads on for a while after the last response.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use arrayvec::ArrayVec;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{Sleep, sleep};

/// A connection as the server reads and writes it.
pub(crate) struct Line {
    heard: Arc<Heard>,
    write: OwnedWriteHalf,
    closing: Option<Closing>,
}

/// A connection after the last response.
struct Closing {
    deadline: Pin<Box<Sleep>>,
    /// How many bytes were discarded.
    discarded: usize,
}

/// The reading half of a connection.
pub(crate) struct Heard {
    half: OwnedReadHalf,
    /// Bytes that were read while watching, and come before those read next.
    ahead: Mutex<Vec<u8>>,
    /// Whether the client may still be sending.
    mid_request: AtomicBool,
    /// Whether this is HTTP/2, which itself tells the client that it reads no further.
    http2: AtomicBool,
}

/// The most bytes of a response that are copied into one piece. For a small response that costs less than giving
/// the kernel its head and body as two pieces.
const MOST_JOINED: usize = 4 * 1024;

/// How many bytes are read ahead. A client that sends more after its request is not watched.
const MOST_AHEAD: usize = 64 * 1024;

/// How long, and how many bytes, are read after the last response.
const LINGER_TIME: Duration = Duration::from_secs(5);
const LINGER_BYTES: usize = 128 << 20;
/// How many of these are read before other connections get a turn.
const LINGER_TURN: usize = 256 * 1024;

impl Line {
    pub(crate) fn new(stream: TcpStream) -> Self {
        let (half, write) = stream.into_split();
        let heard = Heard {
            half,
            ahead: Mutex::default(),
            mid_request: AtomicBool::new(false),
            http2: AtomicBool::new(false),
        };
        Self { heard: Arc::new(heard), write, closing: None }
    }

    /// Its reading half.
    pub(crate) fn heard(&self) -> Arc<Heard> {
        Arc::clone(&self.heard)
    }

    /// Reads and discards bytes until the client closes its side, the time is up, or the bound is reached.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let closing = self
            .closing
            .get_or_insert_with(|| Closing { deadline: Box::pin(sleep(LINGER_TIME)), discarded: 0 });
        let mut scrap = [0; 8 * 1024];
        let turn = closing.discarded + LINGER_TURN;
        while closing.discarded < LINGER_BYTES {
            if closing.discarded >= turn {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let mut buffer = ReadBuf::new(&mut scrap);
            match self.heard.read(&mut buffer) {
                Ok(()) if buffer.filled().is_empty() => return Poll::Ready(()),
                Ok(()) => closing.discarded += buffer.filled().len(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match self.heard.stream().poll_read_ready(cx) {
                        Poll::Ready(Ok(())) => {}
                        Poll::Ready(Err(_)) => return Poll::Ready(()),
                        Poll::Pending => return closing.deadline.as_mut().poll(cx),
                    }
                }
                Err(_) => return Poll::Ready(()),
            }
        }
        Poll::Ready(())
    }
}

impl Heard {
    fn stream(&self) -> &TcpStream {
        self.half.as_ref()
    }

    /// Records that this is HTTP/2.
    pub(crate) fn is_http2(&self) {
        self.http2.store(true, Ordering::Relaxed);
    }

    /// Records that the last request was read completely and answered.
    pub(crate) fn settled(&self) {
        self.mid_request.store(false, Ordering::Relaxed);
    }

    /// Whether the client may still send bytes that will not be read as a request.
    fn expects_more(&self) -> bool {
        self.mid_request.load(Ordering::Relaxed) && !self.http2.load(Ordering::Relaxed)
    }

    /// Reads the available bytes. If they do not fill the buffer, there are no more for now: on Linux the
    /// socket is not read again before it is readable, as for any other stream.
    fn read(&self, buffer: &mut ReadBuf<'_>) -> io::Result<()> {
        let room = buffer.remaining();
        let mut came = false;
        let read = self.stream().try_io(Interest::READABLE, || {
            let length = self.half.try_read_buf(buffer)?;
            came = true;
            let drained = cfg!(target_os = "linux") && (1..room).contains(&length);
            if drained { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        });
        if came { Ok(()) } else { read }
    }

    /// Completes once the client has disconnected.
    pub(crate) async fn hung_up(&self) {
        loop {
            if self.half.readable().await.is_err() {
                return;
            }
            let mut ahead = self.ahead.lock();
            let mut piece = [0; 1024];
            match self.half.try_read(&mut piece) {
                Ok(0) => return,
                Ok(length) => ahead.extend_from_slice(&piece[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
            if ahead.len() >= MOST_AHEAD {
                break;
            }
        }
        std::future::pending().await
    }
}

impl AsyncRead for Line {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let heard = &*self.heard;
        let before = buffer.filled().len();
        loop {
            {
                let mut ahead = heard.ahead.lock();
                if !ahead.is_empty() {
                    let length = ahead.len().min(buffer.remaining());
                    buffer.put_slice(&ahead[..length]);
                    ahead.drain(..length);
                    return Poll::Ready(Ok(()));
                }
                match heard.read(buffer) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    read => {
                        if buffer.filled().len() > before {
                            heard.mid_request.store(true, Ordering::Relaxed);
                        }
                        return Poll::Ready(read);
                    }
                }
            }
            ready!(heard.stream().poll_read_ready(cx))?;
        }
    }
}

impl AsyncWrite for Line {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.write).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut joined = ArrayVec::<u8, MOST_JOINED>::new();
        if parts.iter().all(|part| joined.try_extend_from_slice(part).is_ok()) {
            return Pin::new(&mut self.write).poll_write(cx, &joined);
        }
        Pin::new(&mut self.write).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.write.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.closing.is_none() {
            ready!(Pin::new(&mut self.write).poll_shutdown(cx))?;
            if !self.heard.expects_more() {
                return Poll::Ready(Ok(()));
            }
        }
        self.poll_linger(cx).map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;

    async fn connected() -> (TcpStream, Line) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (peer, Line::new(listener.accept().await.unwrap().0))
    }

    #[tokio::test]
    async fn bytes_read_ahead_by_the_disconnect_watch_are_returned_in_order() {
        let (mut peer, mut line) = connected().await;
        let heard = line.heard();
        let watch = tokio::spawn(async move { heard.hung_up().await });
        let sent: Vec<u8> = (0..200_000_u32).map(|number| number as u8).collect();
        let expected = sent.clone();
        let sending = tokio::spawn(async move {
            peer.write_all(&sent).await.unwrap();
            peer
        });
        let mut read = vec![0; expected.len()];
        line.read_exact(&mut read).await.unwrap();
        assert!(read == expected);
        drop(sending.await.unwrap());
        assert_eq!(line.read(&mut read).await.unwrap(), 0);
        // The watch ends too, unless so much was read ahead that nothing watches the connection.
        let _ = timeout(Duration::from_millis(1), watch).await;
    }

    #[tokio::test]
    async fn a_disconnect_is_noticed_behind_unread_bytes() {
        let (mut peer, mut line) = connected().await;
        peer.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        drop(peer);
        line.heard().hung_up().await;
        let mut rest = String::new();
        line.read_to_string(&mut rest).await.unwrap();
        assert_eq!(rest, "GET / HTTP/1.1\r\n");
    }

    #[tokio::test]
    async fn pieces_of_a_response_arrive_in_their_order_joined_or_not() {
        let (mut peer, mut line) = connected().await;
        let [one, other] = [vec![1; MOST_JOINED - 1], vec![2; 2]];
        for pieces in [[&one[..], &other[..1]], [&one, &other], [&other, &one]] {
            let expected = pieces.concat();
            let mut sent = 0;
            while sent < expected.len() {
                let rest = match sent.checked_sub(pieces[0].len()) {
                    None => [&pieces[0][sent..], pieces[1]],
                    Some(more) => [&pieces[1][more..], &[]],
                };
                sent += line.write_vectored(&rest.map(io::IoSlice::new)).await.unwrap();
            }
            let mut arrived = vec![0; expected.len()];
            peer.read_exact(&mut arrived).await.unwrap();
            assert!(arrived == expected);
        }
    }

    #[tokio::test]
    async fn no_more_is_read_ahead_than_there_is_room_for() {
        let (mut peer, line) = connected().await;
        let sending = tokio::spawn(async move { peer.write_all(&vec![7; 8 << 20]).await });
        let heard = line.heard();
        let watch = tokio::spawn(async move { heard.hung_up().await });
        while line.heard.ahead.lock().len() < MOST_AHEAD {
            tokio::task::yield_now().await;
        }
        assert!(!watch.is_finished() && line.heard.ahead.lock().len() < MOST_AHEAD + 1024);
        watch.abort();
        drop(line);
        let _ = sending.await.unwrap();
    }
}
