//! A small client for tests: one connection, one command at a time.

use std::io::{self, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::reply::Reply;

/// A connection to a server, by TCP or by a socket.
pub struct Wire {
    stream: BufReader<Box<dyn Stream>>,
}

trait Stream: Read + Write + Send {}
impl Stream for TcpStream {}
impl Stream for UnixStream {}

impl Wire {
    /// Connects to a loopback port. Every wait has this time-out.
    ///
    /// # Errors
    ///
    /// If no server listens there.
    pub fn tcp(port: u16, patience: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, port).into(), patience)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Self { stream: BufReader::new(Box::new(stream)) })
    }

    /// Connects to a socket. Every wait has this time-out.
    ///
    /// # Errors
    ///
    /// If no server listens there.
    pub fn unix(path: &Path, patience: Duration) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Self { stream: BufReader::new(Box::new(stream)) })
    }

    /// Sends a command and reads its response.
    ///
    /// # Errors
    ///
    /// If the connection ends, or the response does not arrive in time or is invalid.
    pub fn command<P: AsRef<[u8]>>(&mut self, parts: &[P]) -> io::Result<Reply> {
        self.send(parts)?;
        self.receive()
    }

    /// Sends a command without reading a response.
    ///
    /// # Errors
    ///
    /// If the connection has ended.
    pub fn send<P: AsRef<[u8]>>(&mut self, parts: &[P]) -> io::Result<()> {
        let mut request = format!("*{}\r\n", parts.len()).into_bytes();
        for part in parts {
            let part = part.as_ref();
            request.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
            request.extend_from_slice(part);
            request.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&request)
    }

    /// Reads a response.
    ///
    /// # Errors
    ///
    /// If the connection ends, or the response does not arrive in time or is invalid.
    pub fn receive(&mut self) -> io::Result<Reply> {
        Reply::read(&mut self.stream)
    }
}
