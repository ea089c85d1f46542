//! A connection to one server on which every wait has a time-out.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::dial::{Dialer, Line};
use crate::resp::{Reply, Scanner, write_command};
use crate::settings::Address;

/// The text for a server that takes too long.
pub(super) const NO_ANSWER: &str = "no answer";

/// A connection, until it fails. Later calls then fail at once, since a late reply would be taken for that of
/// the next command.
pub(super) struct Talk {
    line: Option<Line>,
    patience: Duration,
}

/// Why there is no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Silence(pub(super) String);

impl Talk {
    /// Opens a connection without logging in. The error says why that failed.
    pub(super) async fn open(
        dialer: &Dialer,
        address: &Address,
        within: Duration,
        patience: Duration,
    ) -> Result<Self, String> {
        match timeout(within, dialer.open(address)).await {
            Ok(line) => Ok(Self { line: Some(line?), patience }),
            Err(_) => Err(format!("no connection to {address} within {within:?}")),
        }
    }

    /// Sends a command and waits for its reply.
    pub(super) async fn ask(&mut self, words: &[&str]) -> Result<Reply, Silence> {
        self.send(&command(words)).await
    }

    /// Sends an encoded command and waits for its reply.
    pub(super) async fn send(&mut self, command: &[u8]) -> Result<Reply, Silence> {
        let replies = self.send_all(command, 1).await?;
        replies.into_iter().next().ok_or_else(|| Silence("no reply".into()))
    }

    /// Sends `count` encoded commands at once and waits for all replies.
    pub(super) async fn send_all(&mut self, commands: &[u8], count: usize) -> Result<Vec<Reply>, Silence> {
        let mut line = self.line.take().ok_or_else(|| Silence("the connection is gone".into()))?;
        let replies = match timeout(self.patience, exchange(&mut line, commands, count)).await {
            Ok(replies) => replies.map_err(Silence)?,
            Err(_) => return Err(Silence(format!("{NO_ANSWER} within {:?}", self.patience))),
        };
        self.line = Some(line);
        Ok(replies)
    }
}

/// Encodes a command.
pub(super) fn command(words: &[&str]) -> Vec<u8> {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    let mut out = Vec::new();
    write_command(&mut out, &words);
    out
}

async fn exchange(line: &mut Line, commands: &[u8], count: usize) -> Result<Vec<Reply>, String> {
    line.writer.write_all(commands).await.map_err(|error| error.to_string())?;
    line.writer.flush().await.map_err(|error| error.to_string())?;
    let (mut bytes, mut scanner, mut replies) = (Vec::new(), Scanner::default(), Vec::new());
    while replies.len() < count {
        match line.reader.read_buf(&mut bytes).await {
            Ok(0) => return Err("the server closed the connection".into()),
            Ok(_) => {}
            Err(error) => return Err(error.to_string()),
        }
        while let Some(end) = scanner.find_end(&bytes).map_err(|nonsense| nonsense.to_string())? {
            replies.push(Reply::parse(&bytes[..end]).map_err(|nonsense| nonsense.to_string())?);
            bytes.drain(..end);
        }
    }
    Ok(replies)
}
