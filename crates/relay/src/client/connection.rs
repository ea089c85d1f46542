//! A connection: sends bytes and reads replies, each within a time-out.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::timeout;

use super::redaction::Redaction;
use super::reply::{Gathering, NoReply, Reply};
use super::{Destination, Permit};
use crate::replies::{RefusedReply, ReplyRules, ReplyStage, Verdict};

/// The time-out of QUIT.
const GOODBYE: Duration = Duration::from_secs(2);

/// A stream with or without TLS.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection that is ready for a transaction.
pub struct Connection {
    pub(super) stream: Box<dyn Stream>,
    pub(super) buffer: Vec<u8>,
    pub(super) extensions: Extensions,
    pub(super) destination: Destination,
    /// The number of transactions that it has carried.
    pub(super) used: u32,
    /// Whether it may carry another transaction.
    pub(super) reusable: bool,
    /// Its permit among the connections of its destination.
    pub(super) permit: Option<Permit>,
    /// The operator's rules for refusals.
    pub(super) rules: ReplyRules,
    /// The secrets to remove from the server's replies.
    pub(super) secrets: Redaction,
}

/// The extensions that the server offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extensions {
    /// PIPELINING.
    pub pipelining: bool,
    /// 8BITMIME.
    pub eight_bit: bool,
    /// SMTPUTF8.
    pub utf8: bool,
    /// DSN.
    pub dsn: bool,
    /// STARTTLS.
    pub starttls: bool,
    /// SIZE, with the largest message; 0 if there is no bound.
    pub size: Option<u64>,
    /// AUTH PLAIN.
    pub plain: bool,
    /// AUTH LOGIN.
    pub login: bool,
    /// RCPTMAX of LIMITS (RFC 9422).
    pub most_recipients: Option<u32>,
}

/// The reason why there is no reply.
#[derive(Debug)]
pub(super) enum Silence {
    /// The connection broke.
    Broken(io::Error),
    /// The server closed it.
    Closed,
    /// The server took too long.
    TimedOut,
    /// The server sent bytes that are not a reply.
    Nonsense(NoReply),
    /// The server sent something without a command, so its replies can no longer be assigned to commands.
    OutOfTurn,
}

impl Connection {
    pub(super) fn new(stream: Box<dyn Stream>, destination: Destination, rules: ReplyRules) -> Self {
        Self {
            rules,
            secrets: Redaction::of(destination.login.as_ref()),
            stream,
            buffer: Vec::new(),
            extensions: Extensions::default(),
            destination,
            used: 0,
            reusable: true,
            permit: None,
        }
    }

    /// The consequence of a refusal.
    pub(super) fn judge(&self, stage: ReplyStage, reply: &Reply) -> Verdict {
        let (peer, text) = (self.destination.peer(), reply.to_string());
        self.rules.judge(RefusedReply { stage, peer, code: reply.code, text: &text })
    }

    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// Whether it has carried more than one transaction.
    pub fn is_reused(&self) -> bool {
        self.used > 1
    }

    /// Gives up a transaction whose server waits for a text: the connection is closed instead.
    pub(crate) fn abandon(&mut self) {
        self.reusable = false;
    }

    /// Whether it cannot carry another transaction.
    pub fn is_broken(&self) -> bool {
        !self.reusable
    }

    /// Reads one reply. The time-out is for the whole reply, so a server that sends byte by byte gets no more
    /// time.
    pub(super) async fn reply(&mut self, time: Duration) -> Result<Reply, Silence> {
        timeout(time, self.reply_in_time()).await.unwrap_or(Err(Silence::TimedOut))
    }

    async fn reply_in_time(&mut self) -> Result<Reply, Silence> {
        let mut gathering = Gathering::default();
        loop {
            if let Some(mut reply) = gathering.feed(&mut self.buffer).map_err(Silence::Nonsense)? {
                // A server may repeat what it was sent. From here on replies are logged and shown.
                reply.lines.iter_mut().for_each(|line| self.secrets.redact(line));
                return Ok(reply);
            }
            let read = self.stream.read_buf(&mut self.buffer).await.map_err(Silence::Broken)?;
            if read == 0 {
                return Err(Silence::Closed);
            }
        }
    }

    /// Sends bytes.
    pub(super) async fn send(&mut self, bytes: &[u8], time: Duration) -> Result<(), Silence> {
        let sending = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        match timeout(time, sending).await {
            Ok(sent) => sent.map_err(Silence::Broken),
            Err(_) => Err(Silence::TimedOut),
        }
    }

    /// Finds out whether the server sent something without a command, or closed the connection. It does not
    /// wait.
    pub(super) fn interruption(&mut self) -> Option<Silence> {
        if !self.buffer.is_empty() {
            return Some(Silence::OutOfTurn);
        }
        let mut bytes = [0; 512];
        let mut read = ReadBuf::new(&mut bytes);
        let mut context = Context::from_waker(Waker::noop());
        match Pin::new(&mut *self.stream).poll_read(&mut context, &mut read) {
            Poll::Pending => None,
            Poll::Ready(Err(error)) => Some(Silence::Broken(error)),
            Poll::Ready(Ok(())) if read.filled().is_empty() => Some(Silence::Closed),
            Poll::Ready(Ok(())) => {
                self.buffer.extend_from_slice(read.filled());
                Some(Silence::OutOfTurn)
            }
        }
    }

    /// Sends a command and reads its reply. Bytes that came before the command are not its reply.
    pub(super) async fn command(&mut self, line: &str, time: Duration) -> Result<Reply, Silence> {
        if let Some(silence) = self.interruption() {
            return Err(silence);
        }
        self.send(format!("{line}\r\n").as_bytes(), time).await?;
        self.reply(time).await
    }

    /// Sends QUIT, and waits only briefly for the reply.
    pub async fn quit(mut self) {
        let _ = timeout(GOODBYE, self.command("QUIT", GOODBYE)).await;
    }
}

impl Extensions {
    /// Reads the reply to EHLO.
    pub(super) fn of(reply: &Reply) -> Self {
        let mut extensions = Self::default();
        for line in reply.lines.iter().skip(1) {
            let line = line.to_ascii_uppercase();
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("PIPELINING") => extensions.pipelining = true,
                Some("8BITMIME") => extensions.eight_bit = true,
                Some("SMTPUTF8") => extensions.utf8 = true,
                Some("DSN") => extensions.dsn = true,
                Some("STARTTLS") => extensions.starttls = true,
                Some("SIZE") => {
                    extensions.size = Some(words.next().and_then(|word| word.parse().ok()).unwrap_or(0));
                }
                Some("AUTH") => {
                    for word in words {
                        extensions.plain |= word == "PLAIN";
                        extensions.login |= word == "LOGIN";
                    }
                }
                Some("LIMITS") => {
                    let most = words.find_map(|word| word.strip_prefix("RCPTMAX="));
                    extensions.most_recipients = most.and_then(|most| most.parse().ok());
                }
                _ => {}
            }
        }
        extensions
    }
}

impl std::fmt::Display for Silence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Broken(error) => write!(f, "the connection broke: {error}"),
            Self::Closed => f.write_str("the server closed the connection"),
            Self::TimedOut => f.write_str("the server took too long"),
            Self::Nonsense(NoReply::TooLong) => f.write_str("the server's reply is too long"),
            Self::Nonsense(NoReply::Malformed) => f.write_str("the server's reply is malformed"),
            Self::OutOfTurn => f.write_str("the server sent a reply before it was asked"),
        }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("host", &self.destination.host).finish_non_exhaustive()
    }
}
