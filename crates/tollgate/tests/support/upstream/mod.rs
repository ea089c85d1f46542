//! An upstream that records its requests and responds as a test says.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "every test crate uses its own part of this"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// A running upstream. Its threads end with the test's process.
pub struct Upstream {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<Asked>>>,
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: String,
    pub target: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

type Answer = dyn Fn(&Asked) -> u16 + Send + Sync;

impl Upstream {
    /// Responds to everything with 200.
    pub fn start() -> Self {
        Self::answering(|_| 200)
    }

    /// Responds with the status that `answer` returns.
    pub fn answering(answer: impl Fn(&Asked) -> u16 + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let (kept, answer): (_, Arc<Answer>) = (Arc::clone(&seen), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (kept, answer) = (Arc::clone(&kept), Arc::clone(&answer));
                thread::spawn(move || serve(stream.unwrap(), &kept, &*answer));
            }
        });
        Self { address, seen }
    }

    /// How many requests arrived.
    pub fn count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    /// All requests that arrived, in their order.
    pub fn all(&self) -> Vec<Asked> {
        self.seen.lock().unwrap().clone()
    }

    /// The latest request.
    pub fn last(&self) -> Asked {
        self.seen.lock().unwrap().last().cloned().expect("a request arrived")
    }
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

fn serve(stream: TcpStream, seen: &Mutex<Vec<Asked>>, answer: &Answer) {
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream);
    while let Some(asked) = read(&mut reader) {
        let status = answer(&asked);
        seen.lock().unwrap().push(asked);
        let head =
            format!("HTTP/1.1 {status} Whatever\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\n");
        let body = if status == 204 || status == 304 { "" } else { "ok" };
        let head = if body.is_empty() { head.replace("content-length: 2\r\n", "") } else { head };
        if reader.get_mut().write_all(format!("{head}{body}").as_bytes()).is_err() {
            return;
        }
    }
}

/// The next request with its whole body. `None` if the connection ends before that.
fn read(reader: &mut BufReader<TcpStream>) -> Option<Asked> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut asked = Asked { method, target, headers, body: Vec::new() };
    asked.body = match asked.header("content-length") {
        Some(length) => bytes(reader, length.parse().unwrap())?,
        None if asked.header("transfer-encoding").is_some() => chunks(reader)?,
        None => Vec::new(),
    };
    Some(asked)
}

fn bytes(reader: &mut BufReader<TcpStream>, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; length];
    reader.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

fn chunks(reader: &mut BufReader<TcpStream>) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut size = String::new();
        reader.read_line(&mut size).ok().filter(|read| *read > 0)?;
        let chunk = bytes(reader, usize::from_str_radix(size.trim_end(), 16).unwrap())?;
        bytes(reader, 2)?;
        if chunk.is_empty() {
            return Some(body);
        }
        body.extend(chunk);
    }
}
