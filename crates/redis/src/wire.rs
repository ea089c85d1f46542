//! One connection: commands of many callers are sent together, and replies arrive in their order.
//!
//! A supervisor keeps the connection up. While it is down, calls fail immediately, and so do calls that were in
//! flight. Nothing is ever sent twice. That is why this is not a library's connection: an attempt counts at most
//! once only if no layer sends a call again by itself.

use std::collections::VecDeque;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::dial::{Dialer, Direct, MOST_SAID, NoLine};
use crate::pool::Way;
use crate::redial;
use crate::resp::{Reply, Scanner, write_command};

/// A connection that is kept up.
pub(crate) struct Wire {
    shared: Mutex<Shared>,
    /// Notified when there is something to send.
    to_send: Notify,
    /// Notified when the connection must be closed.
    to_drop: Notify,
}

struct Shared {
    /// Why the connection is down, while it is.
    down: Option<Failure>,
    /// Sends without waking the writer task.
    direct: Option<Direct>,
    /// Whether the writer task is sending.
    sending: bool,
    /// Whether other calls were in flight at the last call.
    crowded: bool,
    out: Vec<u8>,
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    since: Instant,
    answer: oneshot::Sender<Result<Reply, Failure>>,
}

/// Why there is no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The command was not sent, so it did not run.
    NotSent(Arc<str>),
    /// The server refuses connections, so the command did not run. This is its message.
    Refused(Arc<str>),
    /// One server of several did not answer, while others do. The command may have run.
    Part(Arc<str>),
    /// The connection failed before the reply. The command may have run.
    Lost(Arc<str>),
    /// No reply arrived in time. The command may have run, or may still run.
    TimedOut,
}

/// The most commands in flight on one connection.
const MOST_WAITING: usize = 16_384;
/// The connection is closed if the oldest command has waited for this long.
const PATIENCE: Duration = Duration::from_secs(1);

impl Failure {
    /// The reason as text.
    pub(crate) fn words(&self) -> Arc<str> {
        match self {
            Self::NotSent(reason) | Self::Refused(reason) | Self::Part(reason) | Self::Lost(reason) => {
                Arc::clone(reason)
            }
            Self::TimedOut => "it did not answer in time".into(),
        }
    }
}

impl Shared {
    /// Sends the whole buffer, if the socket accepts it at once. A single caller gets its reply sooner this
    /// way; many are faster in one write.
    fn send_now(&mut self) -> bool {
        let written = self.direct.as_mut().and_then(|direct| direct.write(&self.out).ok()).unwrap_or(0);
        // The writer task sends the rest, and reports an error.
        self.out.drain(..written);
        self.out.is_empty()
    }
}

impl Wire {
    /// A connection that is not up yet.
    pub(crate) fn new() -> Arc<Self> {
        let shared = Shared {
            down: Some(Failure::NotSent("not connected yet".into())),
            direct: None,
            sending: false,
            crowded: false,
            out: Vec::new(),
            waiting: VecDeque::new(),
        };
        Arc::new(Self { shared: Mutex::new(shared), to_send: Notify::new(), to_drop: Notify::new() })
    }

    /// Whether commands can be sent; the error says why not.
    pub(crate) fn ready(&self) -> Result<(), Failure> {
        self.shared.lock().down.clone().map_or(Ok(()), Err)
    }

    /// Sends a command. The receiver gets the reply.
    pub(crate) fn send(
        &self,
        way: Way,
        command: &[u8],
    ) -> Result<oneshot::Receiver<Result<Reply, Failure>>, Failure> {
        let (answer, receiver) = oneshot::channel();
        let mut shared = self.shared.lock();
        if let Some(failure) = &shared.down {
            return Err(failure.clone());
        }
        if shared.waiting.len() >= MOST_WAITING {
            return Err(Failure::NotSent("too many commands are waiting for it".into()));
        }
        let first = shared.out.is_empty() && !shared.sending;
        if way == Way::Asking {
            // The reply to `ASKING` is ignored.
            write_command(&mut shared.out, &[b"ASKING"]);
            shared.waiting.push_back(Waiting { since: Instant::now(), answer: oneshot::channel().0 });
        }
        shared.out.extend_from_slice(command);
        // After concurrent calls, more are likely.
        let alone = first && shared.waiting.is_empty() && !shared.crowded;
        shared.crowded = !shared.waiting.is_empty();
        shared.waiting.push_back(Waiting { since: Instant::now(), answer });
        if alone && shared.send_now() {
            return Ok(receiver);
        }
        drop(shared);
        if first {
            self.to_send.notify_one();
        }
        Ok(receiver)
    }

    /// Closes the connection; the supervisor opens another.
    pub(crate) fn hang_up(&self) {
        self.to_drop.notify_one();
    }

    /// Keeps the connection up for as long as it is polled.
    pub(crate) async fn supervise(self: Arc<Self>, dialer: Arc<Dialer>) {
        loop {
            dialer.redial.turn().await;
            let failure = match dialer.dial().await {
                Ok(line) => {
                    self.come_up(line.direct);
                    let noted = async {
                        tokio::time::sleep(redial::LASTS).await;
                        dialer.redial.lasted();
                        pending().await
                    };
                    let reason = tokio::select! {
                        reason = self.carry(line.reader, line.writer) => reason,
                        never = noted => never,
                    };
                    Failure::NotSent(reason.into())
                }
                Err(NoLine::Unreachable(reason)) => Failure::NotSent(reason.into()),
                Err(NoLine::Refused(reason)) => Failure::Refused(reason.into()),
            };
            dialer.redial.failed();
            self.go_down(failure);
        }
    }

    fn come_up(&self, direct: Option<Direct>) {
        // Consumes an order to close the previous connection.
        let _ = pin!(self.to_drop.notified()).enable();
        let mut shared = self.shared.lock();
        (shared.down, shared.direct, shared.sending) = (None, direct, false);
        shared.out.clear();
    }

    fn go_down(&self, failure: Failure) {
        let mut shared = self.shared.lock();
        let reason = failure.words();
        (shared.down, shared.direct) = (Some(failure), None);
        shared.out.clear();
        for waiting in shared.waiting.drain(..) {
            let _ = waiting.answer.send(Err(Failure::Lost(Arc::clone(&reason))));
        }
    }

    /// Sends and receives until an error, which it returns.
    async fn carry(&self, reader: impl AsyncRead + Unpin, writer: impl AsyncWrite + Unpin) -> String {
        tokio::select! {
            reason = self.receive(reader) => reason,
            reason = self.transmit(writer) => reason,
            reason = self.watch() => reason,
            () = self.to_drop.notified() => "the connection was given up".into(),
        }
    }

    async fn transmit(&self, mut writer: impl AsyncWrite + Unpin) -> String {
        let mut batch = Vec::new();
        loop {
            {
                let shared = &mut *self.shared.lock();
                std::mem::swap(&mut batch, &mut shared.out);
                shared.sending = !batch.is_empty();
            }
            if batch.is_empty() {
                self.to_send.notified().await;
                // Other ready callers run first, so that one write carries all commands.
                tokio::task::yield_now().await;
                continue;
            }
            if let Err(error) = writer.write_all(&batch).await {
                return format!("sending failed: {error}");
            }
            if let Err(error) = writer.flush().await {
                return format!("sending failed: {error}");
            }
            batch.clear();
            batch.shrink_to(1 << 20);
        }
    }

    async fn receive(&self, mut reader: impl AsyncRead + Unpin) -> String {
        let mut bytes = Vec::with_capacity(16 << 10);
        let mut scanner = Scanner::default();
        loop {
            match reader.read_buf(&mut bytes).await {
                Ok(0) => return "the server closed the connection".into(),
                Ok(_) => {}
                Err(error) => return format!("receiving failed: {error}"),
            }
            let mut start = 0;
            loop {
                match scanner.find_end(&bytes[start..]) {
                    Ok(None) => break,
                    Ok(Some(end)) => {
                        let reply = match Reply::parse(&bytes[start..start + end]) {
                            Ok(reply) => reply,
                            Err(nonsense) => return nonsense.to_string(),
                        };
                        start += end;
                        if let Err(unasked) = self.answer(reply) {
                            return unasked_for(&unasked);
                        }
                    }
                    Err(nonsense) => return nonsense.to_string(),
                }
            }
            bytes.drain(..start);
            if bytes.is_empty() {
                bytes.shrink_to(1 << 20);
            }
        }
    }

    /// Hands a reply to its caller. Returns it if no caller waits.
    fn answer(&self, reply: Reply) -> Result<(), Reply> {
        let Some(waiting) = self.shared.lock().waiting.pop_front() else { return Err(reply) };
        // The caller may be gone.
        let _ = waiting.answer.send(Ok(reply));
        Ok(())
    }

    /// Ends when no reply arrives: a host that vanished closes nothing.
    async fn watch(&self) -> String {
        loop {
            tokio::time::sleep(PATIENCE / 4).await;
            let oldest = self.shared.lock().waiting.front().map(|waiting| waiting.since);
            if oldest.is_some_and(|since| since.elapsed() > PATIENCE) {
                return "the server does not answer".into();
            }
        }
    }
}

/// The message of an unexpected reply: a server that closes a connection may say why.
fn unasked_for(reply: &Reply) -> String {
    match reply {
        Reply::Error(error) => {
            let error: String = error.chars().take(MOST_SAID).collect();
            format!("the server closes the connection: {error}")
        }
        _ => "the server sends replies without a command".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_connection_is_not_dropped_for_faults_of_the_last_one() {
        let wire = Wire::new();
        wire.hang_up();
        wire.come_up(None);
        assert!(!pin!(wire.to_drop.notified()).enable(), "the new one is dropped");
        wire.hang_up();
        assert!(pin!(wire.to_drop.notified()).enable(), "it can still be given up");
    }
}
