//! Upstreams that behave as a test says, and record the requests they get.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::client::Client;

/// A server on a free port of loopback.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    connections: AtomicUsize,
    requests: Mutex<Vec<Seen>>,
}

/// A request as it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The head, without its empty line.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: String,
    /// The number of the connection.
    pub(crate) connection: usize,
}

/// The upstream's end of a connection.
pub(crate) struct Line {
    pub(crate) client: Client,
    number: usize,
    state: Arc<State>,
}

impl Upstream {
    /// Answers every request with these bytes.
    pub(crate) async fn answering(answer: impl Into<Vec<u8>>) -> Self {
        let answer: Arc<[u8]> = answer.into().into();
        Self::start(move |mut line| {
            let answer = Arc::clone(&answer);
            async move {
                while line.request().await.is_some() {
                    line.client.send(&answer).await;
                }
            }
        })
        .await
    }

    /// Answers every request with 200 and this body.
    pub(crate) async fn saying(body: &str) -> Self {
        Self::answering(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())).await
    }

    /// Calls `serve` with every connection.
    pub(crate) async fn start<F: Future<Output = ()> + Send + 'static>(
        serve: impl Fn(Line) -> F + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::over(listener, serve)
    }

    /// As [`Upstream::start`], on an existing listener.
    pub(crate) fn over<F: Future<Output = ()> + Send + 'static>(
        listener: TcpListener,
        serve: impl Fn(Line) -> F + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let number = shared.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(Line::new(stream, number, Arc::clone(&shared))));
            }
        });
        Self { address, state, task }
    }

    /// The number of connections made to it.
    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// The requests it got.
    pub(crate) fn requests(&self) -> Vec<Seen> {
        self.state.requests.lock().clone()
    }

    /// The only request it got.
    pub(crate) fn request(&self) -> Seen {
        let requests = self.requests();
        assert_eq!(requests.len(), 1, "{requests:#?}");
        requests[0].clone()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Line {
    fn new(stream: TcpStream, number: usize, state: Arc<State>) -> Self {
        stream.set_nodelay(true).unwrap();
        Self { client: Client::over(stream), number, state }
    }

    /// Reads and records a request. `None` if the connection ends first.
    pub(crate) async fn request(&mut self) -> Option<Seen> {
        let mut seen = self.head().await?;
        let length = seen.header("content-length").map(|length| length.parse().unwrap());
        if seen.header("transfer-encoding").is_some() {
            assert_eq!(length, None, "two lengths: {}", seen.head);
            (seen.body, seen.trailers) = self.chunks().await;
        } else if let Some(length) = length {
            while self.client.read.len() < length {
                if self.client.more().await == 0 {
                    return None;
                }
            }
            seen.body = self.client.read.drain(..length).collect();
        }
        self.state.requests.lock().push(seen.clone());
        Some(seen)
    }

    /// Reads the head of a request.
    pub(crate) async fn head(&mut self) -> Option<Seen> {
        while !self.client.read.windows(4).any(|window| window == b"\r\n\r\n") {
            if self.client.more().await == 0 {
                return None;
            }
        }
        let head = String::from_utf8(self.client.until(b"\r\n\r\n").await).unwrap();
        Some(Seen { head, body: Vec::new(), trailers: String::new(), connection: self.number })
    }

    async fn chunks(&mut self) -> (Vec<u8>, String) {
        let mut body = Vec::new();
        loop {
            let size = String::from_utf8(self.client.until(b"\r\n").await).unwrap();
            let size = usize::from_str_radix(&size, 16).unwrap();
            if size == 0 {
                break;
            }
            while self.client.read.len() < size + 2 {
                assert!(self.client.more().await > 0);
            }
            body.extend(self.client.read.drain(..size));
            self.client.read.drain(..2);
        }
        let mut trailers = String::new();
        loop {
            let line = String::from_utf8(self.client.until(b"\r\n").await).unwrap();
            if line.is_empty() {
                return (body, trailers);
            }
            trailers.push_str(&line);
            trailers.push('\n');
        }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.client.send(bytes).await;
    }
}

impl Seen {
    /// The first line.
    pub(crate) fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

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
}
