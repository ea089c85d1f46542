//! Mail through the real program: configurations of relays, a small client, and `smtp-source`.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "every test crate uses its own part of this"
)]

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use crate::program::{Home, PATIENCE, Server};

/// A relay for loopback that hands everything on to one port, with more settings of the file and of `relay`.
pub fn relaying_to(port: u16, file: &str, relay: &str) -> String {
    format!(
        "log: {{ format: json }}\n{file}\nrelay:\n  hostname: relay.test\n  listen: [{{ smtp: '127.0.0.1:0' }}]\n  \
         networks: [127.0.0.0/8]\n  queue: {{ dir: ./queue, min_free: 0 }}\n  \
         accounts: {{ default/main: {{ host: 127.0.0.1, port: {port}, tls: none }} }}\n{relay}\n"
    )
}

/// A home for such a relay.
pub fn home(port: u16, file: &str, relay: &str) -> Home {
    Home::with(&relaying_to(port, file, relay))
}

/// The configuration of an example with a relay before its policies, which hands everything on to one port.
pub fn example_with_relay(name: &str, port: u16, policies: &[&str]) -> Home {
    let path = format!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/{}"), name);
    let example = std::fs::read_to_string(path).unwrap();
    let policies: String = policies.iter().map(|of| format!("  {of}: mail.{of}\n")).collect();
    Home::with(&(example + &relaying_to(port, "", &policies)))
}

/// Runs a command line of a manual in a shell, with its address replaced by the server's.
pub fn printed(home: &Home, server: &Server, token: &str, command: &str) -> String {
    let address = server.url();
    let command =
        command.replace("http://localhost:8000", &address).replace("http://localhost:8080", &address);
    let output = Command::new("sh")
        .current_dir(home.directory())
        .args(["-c", &command])
        .env("TOKEN", token)
        .output()
        .expect("sh is there");
    assert!(output.status.success(), "{command}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A client that says what it is told.
pub struct Client {
    reader: BufReader<TcpStream>,
}

impl Client {
    /// Connects, and returns the greeting too.
    pub fn connect(address: SocketAddr) -> (Self, String) {
        let mut client = Self::try_connect(address).unwrap();
        let greeting = client.reply().expect("a greeting");
        (client, greeting)
    }

    fn try_connect(address: SocketAddr) -> Option<Self> {
        let stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Some(Self { reader: BufReader::new(stream) })
    }

    /// A client that has said EHLO; `None` if the server is gone.
    pub fn greeted(address: SocketAddr) -> Option<Self> {
        let mut client = Self::try_connect(address)?;
        client.reply()?;
        client.ask("EHLO client.test")?;
        Some(client)
    }

    /// A client whose address a trusted proxy names.
    pub fn from_ip(address: SocketAddr, ip: &str) -> Self {
        let mut client = Self::try_connect(address).unwrap();
        let header = format!("PROXY TCP4 {ip} 127.0.0.1 4000 25\r\n");
        client.reader.get_mut().write_all(header.as_bytes()).unwrap();
        assert!(client.reply().expect("a greeting").starts_with("220 "));
        client.ask("EHLO client.test").unwrap();
        client
    }

    /// Sends a line, and returns the last line of its reply; `None` if the server is gone.
    pub fn ask(&mut self, line: &str) -> Option<String> {
        self.reader.get_mut().write_all(format!("{line}\r\n").as_bytes()).ok()?;
        self.reply()
    }

    /// Sends bytes without waiting for an answer.
    pub fn write(&mut self, bytes: &str) {
        self.reader.get_mut().write_all(bytes.as_bytes()).unwrap();
    }

    fn reply(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if line.as_bytes().get(3) != Some(&b'-') {
                return Some(line.trim_end().to_owned());
            }
        }
    }

    /// Sends a message with this subject. Returns the reply to it, or the reply that refused it.
    pub fn send(&mut self, subject: &str, recipients: &[&str]) -> Option<String> {
        self.send_as("app@here.test", subject, recipients)
    }

    /// As [`Client::send`], from this sender.
    pub fn send_as(&mut self, sender: &str, subject: &str, recipients: &[&str]) -> Option<String> {
        self.ask(&format!("MAIL FROM:<{sender}>"))?;
        for recipient in recipients {
            self.ask(&format!("RCPT TO:<{recipient}>"))?;
        }
        let reply = self.ask("DATA")?;
        if reply.starts_with("354") {
            self.ask(&format!("Subject: {subject}\r\n\r\ntext\r\n."))
        } else {
            Some(reply)
        }
    }
}

/// Sends one message that must be accepted.
pub fn submit(address: SocketAddr, subject: &str, recipients: &[&str]) {
    let reply = Client::greeted(address).expect("a server").send(subject, recipients).expect("a reply");
    assert!(reply.starts_with("250 "), "{reply}");
}

/// Sends many messages with `smtp-source`, which fails if one is refused.
pub fn flood(address: SocketAddr, messages: usize, recipient: &str) {
    let mut source = Command::new("/usr/sbin/smtp-source");
    source.args([
        "-s",
        "10",
        "-m",
        &messages.to_string(),
        "-f",
        "app@here.test",
        "-t",
        recipient,
        "-l",
        "1000",
    ]);
    let output = source.arg(address.to_string()).output().expect("smtp-source is installed: run `./test`");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
