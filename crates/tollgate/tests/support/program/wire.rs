//! A minimal HTTP/1.1 client that can also misbehave.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use super::PATIENCE;

/// A connection that is kept.
pub struct Connection {
    stream: BufReader<TcpStream>,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Connection {
    pub fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self { stream: BufReader::new(stream) }
    }

    /// Sends a request and waits for the response.
    pub fn ask(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&Value>) -> Reply {
        self.send(&request(method, path, headers, body));
        self.reply().expect("the server answers")
    }

    /// Sends any bytes.
    pub fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).expect("the server reads");
    }

    pub fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Goes on sending pieces of a body, one after each pause, until the server closes the connection.
    /// Returns how many bytes it took.
    pub fn pour(&mut self, piece: &[u8], every: Duration) -> usize {
        let mut sent = 0;
        while self.try_send(piece).is_ok() {
            sent += piece.len();
            assert!(sent < 1 << 30, "the server takes everything");
            if !every.is_zero() {
                super::pause(every);
            }
        }
        sent
    }

    /// A second handle on the same connection.
    pub fn other_end(&self) -> TcpStream {
        self.stream.get_ref().try_clone().unwrap()
    }

    /// The next response, or `None` if the server has closed the connection.
    pub fn reply(&mut self) -> Option<Reply> {
        let mut line = String::new();
        if self.stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let status = line.split(' ').nth(1)?.parse().ok()?;
        let mut headers = Vec::new();
        loop {
            line.clear();
            self.stream.read_line(&mut line).ok()?;
            let Some((name, value)) = line.split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut reply = Reply { status, headers, body: Vec::new() };
        let length = reply.header("content-length").map_or(0, |length| length.parse().unwrap());
        reply.body.resize(length, 0);
        self.stream.read_exact(&mut reply.body).ok()?;
        Some(reply)
    }

    /// Everything until the server closes the connection, which it must.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
            Err(error) => panic!("the server keeps the connection: {error}"),
        }
        rest
    }
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("answers are text")
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The body of a response that must be 200.
    pub fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text());
        self.json()
    }
}

/// An encoded request.
pub fn request(method: &str, path: &str, headers: &[(&str, &str)], body: Option<&Value>) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n");
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    match body {
        Some(body) => {
            let body = body.to_string();
            text +=
                &format!("content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        }
        None => text += "\r\n",
    }
    text.into_bytes()
}
