//! A client that sends given bytes and reads responses strictly.

use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::PATIENCE;

/// A connection to a server.
pub(crate) struct Client<S = TcpStream> {
    pub(crate) stream: S,
    pub(crate) read: Vec<u8>,
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// The head, without its empty line.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// The lines after the last chunk.
    pub(crate) trailers: String,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).await.unwrap())
    }

    /// Connects from another loopback address.
    pub(crate) async fn connect_from(own: &str, address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(format!("{own}:0").parse().unwrap()).unwrap();
        Self::over(socket.connect(address).await.unwrap())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    pub(crate) fn over(stream: S) -> Self {
        Self { stream, read: Vec::new() }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// Sends a request and reads its response.
    pub(crate) async fn ask(&mut self, bytes: impl AsRef<[u8]>) -> Reply {
        self.send(bytes).await;
        self.reply().await
    }

    /// Reads a response to anything but `HEAD`.
    pub(crate) async fn reply(&mut self) -> Reply {
        let mut reply = self.head().await;
        if reply.status < 200 || matches!(reply.status, 204 | 304) {
            return reply;
        }
        if reply.header("transfer-encoding") == Some("chunked") {
            (reply.body, reply.trailers) = self.chunks().await;
        } else if let Some(length) = reply.header("content-length") {
            let length = length.parse().unwrap();
            self.fill(length).await;
            reply.body = self.read.drain(..length).collect();
        } else {
            reply.body = self.rest().await;
        }
        reply
    }

    /// Reads the head of a response.
    pub(crate) async fn head(&mut self) -> Reply {
        let head = self.until(b"\r\n\r\n").await;
        let head = String::from_utf8(head).unwrap();
        let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).expect(&head);
        Reply { status: status.parse().unwrap(), head, body: Vec::new(), trailers: String::new() }
    }

    async fn chunks(&mut self) -> (Vec<u8>, String) {
        let mut body = Vec::new();
        loop {
            let size = String::from_utf8(self.until(b"\r\n").await).unwrap();
            let size = usize::from_str_radix(&size, 16).expect(&size);
            if size == 0 {
                break;
            }
            self.fill(size + 2).await;
            body.extend(self.read.drain(..size));
            assert_eq!(self.read.drain(..2).collect::<Vec<_>>(), b"\r\n");
        }
        self.fill(2).await;
        if self.read.starts_with(b"\r\n") {
            self.read.drain(..2);
            return (body, String::new());
        }
        let trailers = self.until(b"\r\n\r\n").await;
        (body, String::from_utf8(trailers).unwrap())
    }

    /// Reads to the end of the connection.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        while self.more().await > 0 {}
        std::mem::take(&mut self.read)
    }

    /// Whether the connection ends without another byte.
    pub(crate) async fn is_closed(&mut self) -> bool {
        self.rest().await.is_empty()
    }

    /// Reads up to a mark, and skips the mark.
    pub(crate) async fn until(&mut self, mark: &[u8]) -> Vec<u8> {
        loop {
            if let Some(at) = self.read.windows(mark.len()).position(|window| window == mark) {
                let found = self.read.drain(..at).collect();
                self.read.drain(..mark.len());
                return found;
            }
            let read = self.more().await;
            assert!(read > 0, "the connection ended after {:?}", String::from_utf8_lossy(&self.read));
        }
    }

    async fn fill(&mut self, size: usize) {
        while self.read.len() < size {
            assert!(self.more().await > 0, "the connection ended {} bytes early", size - self.read.len());
        }
    }

    /// Reads some bytes; 0 means the end, even after an error.
    pub(crate) async fn more(&mut self) -> usize {
        let read = timeout(PATIENCE, self.stream.read_buf(&mut self.read)).await;
        read.expect("nothing came for too long").unwrap_or(0)
    }
}

impl Reply {
    /// The value of a header; the test fails if there are two.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.head.lines().skip(1).filter_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        });
        let value = values.next();
        assert_eq!(values.next(), None, "{name} is there twice: {}", self.head);
        value
    }

    pub(crate) fn text(&self) -> &str {
        str::from_utf8(&self.body).unwrap()
    }
}
