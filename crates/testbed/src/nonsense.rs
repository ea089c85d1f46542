//! Servers that do not speak the protocol, or abuse it.

use std::io::{self, BufReader, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crate::reply::Reply;

/// What it responds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Garbage bytes.
    Garbage,
    /// A bulk of 99,999,999,999 bytes, which it keeps sending.
    EndlessBulk,
    /// Arrays in arrays, a million deep.
    DeepArrays,
    /// A line that never ends.
    EndlessLine,
    /// Valid responses of the wrong kinds, one after the other.
    WrongKinds,
    /// Nothing; requests are read.
    Silence,
    /// Nothing; it disconnects after the first request.
    HangUp,
}

/// A server that responds with nonsense. Dropping it stops it.
#[derive(Debug)]
pub struct Nonsense {
    address: SocketAddr,
    closing: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
    accepting: Option<JoinHandle<()>>,
}

impl Nonsense {
    /// Starts it.
    ///
    /// # Panics
    ///
    /// If it cannot listen.
    #[must_use]
    pub fn start(kind: Kind) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let address = listener.local_addr().expect("it listens");
        let closing = Arc::new(AtomicBool::new(false));
        let streams = Arc::new(Mutex::new(Vec::new()));
        let (seen, kept) = (Arc::clone(&closing), Arc::clone(&streams));
        let accepting = Some(thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if seen.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(copy) = stream.try_clone() else { continue };
                kept.lock().unwrap_or_else(PoisonError::into_inner).push(copy);
                // It ends when the client disconnects, which is not an error.
                thread::spawn(move || {
                    let _ = kind.answer(&stream);
                    let _ = stream.shutdown(Shutdown::Both);
                });
            }
        }));
        Self { address, closing, streams, accepting }
    }

    /// The port it listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Its URL for the configuration.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }
}

impl Drop for Nonsense {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::SeqCst);
        // The thread waits for a connection, and then sees that it must stop.
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        for stream in self.streams.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Kind {
    fn answer(self, stream: &TcpStream) -> io::Result<()> {
        let (mut requests, mut to) = (BufReader::new(stream), stream);
        let wrong: [&[u8]; 6] = [
            b":1\r\n",
            b"*0\r\n",
            b"$3\r\n\xff\0\n\r\n",
            b"+QUEUED\r\n",
            b"*2\r\n*1\r\n$-1\r\n:-1\r\n",
            b"*-1\r\n",
        ];
        for number in 0.. {
            Reply::read(&mut requests)?;
            match self {
                Self::Garbage => {
                    to.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n\0\x80\xffnot for you\r\n")?
                }
                Self::EndlessBulk => {
                    to.write_all(b"$99999999999\r\n")?;
                    endlessly(to, b"x")?;
                }
                Self::DeepArrays => to.write_all(&b"*1\r\n".repeat(1_000_000))?,
                Self::EndlessLine => {
                    to.write_all(b"+")?;
                    endlessly(to, b"x")?;
                }
                Self::WrongKinds => to.write_all(wrong[number % wrong.len()])?,
                Self::Silence => {}
                Self::HangUp => return Ok(()),
            }
        }
        Ok(())
    }
}

fn endlessly(mut to: &TcpStream, bytes: &[u8]) -> io::Result<()> {
    let many = bytes.repeat(16 * 1024);
    loop {
        to.write_all(&many)?;
    }
}
