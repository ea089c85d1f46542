//! A client that sends what it is told and shows what it is answered.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use rustls::{ClientConnection, StreamOwned};

use super::tls;

/// How long an answer may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Client {
    stream: Stream,
    unread: Vec<u8>,
    /// The id of the latest refusal.
    pub(crate) id: Option<String>,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
    /// While TLS begins.
    None,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream: Stream::Plain(stream), unread: Vec::new(), id: None }
    }

    /// Goes on with TLS.
    pub(crate) fn secure(&mut self) {
        assert!(self.unread.is_empty());
        let Stream::Plain(stream) = std::mem::replace(&mut self.stream, Stream::None) else {
            panic!("TLS is in use already")
        };
        self.stream = Stream::Tls(Box::new(tls::secured(stream)));
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        match &mut self.stream {
            Stream::Plain(stream) => stream.write_all(bytes.as_ref()).unwrap(),
            Stream::Tls(stream) => {
                stream.write_all(bytes.as_ref()).unwrap();
                stream.flush().unwrap();
            }
            Stream::None => unreachable!(),
        }
    }

    /// The next line; `None` if the server has closed.
    pub(crate) fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.unread.windows(2).position(|two| two == b"\r\n") {
                let line = String::from_utf8(self.unread.drain(..end + 2).collect()).unwrap();
                return Some(self.without_id(line.trim_end()));
            }
            let mut piece = [0; 4096];
            let read = match &mut self.stream {
                Stream::Plain(stream) => stream.read(&mut piece),
                Stream::Tls(stream) => stream.read(&mut piece),
                Stream::None => unreachable!(),
            };
            match read {
                Ok(0) => return None,
                Ok(count) => self.unread.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no answer: {error}"),
            }
        }
    }

    /// A line without the id at the end of a refusal, which is kept.
    fn without_id(&mut self, line: &str) -> String {
        let is_id = |id: &str| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let id = line.strip_suffix(')').and_then(|line| line.rsplit_once(" ("));
        let Some((text, id)) = id.filter(|(_, id)| is_id(id)) else { return line.to_owned() };
        self.id = Some(id.to_owned());
        text.to_owned()
    }

    /// The last line of the next reply.
    pub(crate) fn reply(&mut self) -> String {
        loop {
            let line = self.line().expect("the server closed the connection");
            if line.as_bytes().get(3) != Some(&b'-') {
                return line;
            }
        }
    }

    #[track_caller]
    pub(crate) fn expect(&mut self, reply: &str) {
        assert_eq!(self.reply(), reply);
    }

    /// Sends a line, and answers the last line of its reply.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.send(format!("{line}\r\n"));
        self.reply()
    }

    /// Announces a message as far as DATA, and answers the reply to that.
    pub(crate) fn announce(&mut self, sender: &str, recipients: &[&str]) -> String {
        self.ask(&format!("MAIL FROM:<{sender}>"));
        for recipient in recipients {
            self.ask(&format!("RCPT TO:<{recipient}>"));
        }
        self.ask("DATA")
    }

    /// Sends a small message, and answers the reply to it, or the one that refused it.
    pub(crate) fn message(&mut self, sender: &str, recipients: &[&str]) -> String {
        let reply = self.announce(sender, recipients);
        if reply.starts_with("354") { self.ask("Subject: test\r\n\r\ntext\r\n.") } else { reply }
    }

    /// Whether the server has closed the connection.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.line().is_none()
    }

    /// Breaks off without a word.
    pub(crate) fn abort(self) {
        if let Stream::Plain(stream) = self.stream {
            stream.shutdown(Shutdown::Both).unwrap();
        }
    }
}
