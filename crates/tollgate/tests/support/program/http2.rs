//! A minimal HTTP/2 client that can send any frame.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::PATIENCE;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;
pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// A connection that speaks HTTP/2.
pub struct Http2 {
    stream: TcpStream,
    last: u32,
    /// The flow-control windows of the server, in total and for each stream.
    window: i64,
    stream_window: i64,
    streams: BTreeMap<u32, i64>,
    /// The received bodies, of all streams together.
    pub bodies: Vec<u8>,
}

/// A frame.
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

/// An encoded frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Headers without compression.
pub fn fields(method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let first = [(":method", method), (":path", path), (":scheme", "http"), (":authority", "localhost")];
    let mut block = Vec::new();
    for (name, value) in first.iter().chain(more) {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).ok().filter(|length| *length < 127).unwrap());
            block.extend(text.as_bytes());
        }
    }
    block
}

impl Http2 {
    pub fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let mut connection = Self {
            stream,
            last: 0,
            window: 65_535,
            stream_window: 65_535,
            streams: BTreeMap::new(),
            bodies: Vec::new(),
        };
        connection.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        // The server may send as much as it wants.
        connection.send(&frame(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff])).unwrap();
        connection.send(&frame(WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes())).unwrap();
        connection
    }

    /// A second handle on the same connection.
    pub fn other_end(&self) -> TcpStream {
        self.stream.try_clone().unwrap()
    }

    pub fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends the head of a request with a body, on a stream of its own.
    pub fn begin(&mut self, method: &str, path: &str, more: &[(&str, &str)]) -> u32 {
        self.head(method, path, more, END_HEADERS)
    }

    /// Sends the head of a request with these flags.
    pub fn head(&mut self, method: &str, path: &str, more: &[(&str, &str)], flags: u8) -> u32 {
        self.last = if self.last == 0 { 1 } else { self.last + 2 };
        // A closed connection is noticed at the next read.
        let _ = self.send(&frame(HEADERS, flags, self.last, &fields(method, path, more)));
        self.streams.insert(self.last, self.stream_window);
        self.last
    }

    /// Sends a request without a body, and waits for the end of the response. `None` if the server has closed
    /// the connection.
    pub fn get(&mut self, path: &str) -> Option<()> {
        let stream = self.head("GET", path, &[], END_HEADERS | END_STREAM);
        loop {
            let frame = self.next()?;
            if frame.stream == stream && frame.flags & END_STREAM != 0 && frame.kind <= HEADERS {
                return Some(());
            }
        }
    }

    /// The next frame; `None` if the server has closed the connection.
    pub fn next(&mut self) -> Option<Frame> {
        self.try_next().expect("the server says something, or ends the connection")
    }

    fn try_next(&mut self) -> std::io::Result<Option<Frame>> {
        let mut header = [0; 9];
        match self.stream.read_exact(&mut header) {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Err(error);
            }
            Err(_) => return Ok(None),
        }
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
        let mut payload = vec![0; length as usize];
        if self.stream.read_exact(&mut payload).is_err() {
            return Ok(None);
        }
        let stream = u32::from_be_bytes([header[5] & 0x7f, header[6], header[7], header[8]]);
        let frame = Frame { kind: header[3], flags: header[4], stream, payload };
        self.note(&frame);
        Ok(Some(frame))
    }

    fn note(&mut self, frame: &Frame) {
        let number = |bytes: &[u8]| i64::from(u32::from_be_bytes(bytes.try_into().unwrap()) & 0x7fff_ffff);
        match frame.kind {
            WINDOW_UPDATE if frame.stream == 0 => self.window += number(&frame.payload),
            WINDOW_UPDATE => {
                let more = number(&frame.payload);
                self.streams.entry(frame.stream).and_modify(|window| *window += more);
            }
            RST_STREAM => drop(self.streams.remove(&frame.stream)),
            SETTINGS if frame.flags & ACK == 0 => {
                for setting in frame.payload.chunks(6).filter(|setting| setting[..2] == [0, 4]) {
                    let more = number(&setting[2..]) - self.stream_window;
                    self.stream_window += more;
                    self.streams.values_mut().for_each(|window| *window += more);
                }
                // A closed connection is noticed at the next read.
                let _ = self.send(&self::frame(SETTINGS, ACK, 0, b""));
            }
            DATA => self.bodies.extend(&frame.payload),
            _ => {}
        }
    }

    /// Whether all streams were reset by the server.
    pub fn is_reset(&self) -> bool {
        self.streams.is_empty()
    }

    /// Sends endless bodies on all streams, each of at most this many bytes and as fast as the server accepts
    /// them, until something has happened or nothing more arrives.
    pub fn pour(&mut self, most: i64, happened: impl Fn(&Self) -> bool) {
        let mut sent: BTreeMap<u32, i64> = BTreeMap::new();
        while !happened(self) {
            let (window, streams) = (self.window, &self.streams);
            let next = streams.iter().find_map(|(stream, open)| {
                let left = most - sent.get(stream).copied().unwrap_or(0);
                let length = window.min(*open).min(left).min(16_384);
                (length > 0).then_some((*stream, length))
            });
            if let Some((stream, length)) = next {
                let piece = vec![b' '; usize::try_from(length).unwrap()];
                if self.send(&frame(DATA, 0, stream, &piece)).is_err() {
                    return;
                }
                *sent.entry(stream).or_default() += length;
                self.window -= length;
                self.streams.entry(stream).and_modify(|window| *window -= length);
            } else if !matches!(self.try_next(), Ok(Some(_))) {
                return;
            }
        }
    }
}
