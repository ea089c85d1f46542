//! Serves one connection, from its first byte to its last.

use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::settings::Settings;
use super::wire::{Io, Over, Wire};
use super::{Kind, Shared, admission, login, proxy_header, receiving};
use crate::session::lines::Lines;
use crate::session::reply::Reply;
use crate::session::{Login, LoginOutcome, Session, Step};

/// A connection that the server handles.
pub(super) struct Connection<'c> {
    pub(super) shared: &'c Arc<Shared>,
    pub(super) settings: &'c Settings,
    pub(super) wire: Wire,
    pub(super) session: Session,
    /// The client's address.
    pub(super) client: IpAddr,
    /// The name and password of the last login, if they were wrong.
    refused: Option<Login>,
    ending: watch::Receiver<bool>,
}

/// The continuation of a session.
enum Flow {
    Continue,
    Close,
}

/// Serves a connection. Its holds are released however it ends, also if the task is dropped.
pub(super) async fn serve(
    shared: &Arc<Shared>,
    settings: &Settings,
    mut stream: Box<dyn Io>,
    peer: IpAddr,
    kind: Kind,
) {
    let patience = settings.timeouts.handshake;
    let announced = if settings.trusts(peer) {
        match timeout(patience, proxy_header::read(&mut stream)).await {
            Ok(Ok(announced)) => announced,
            Ok(Err(error)) => {
                if let Some(held_back) = shared.complaints.admit(shared.doors.clock.now()) {
                    tracing::warn!(component = "relay", %peer, %error, held_back, "connection closed");
                }
                return;
            }
            Err(_) => return,
        }
    } else {
        Some(peer)
    };
    let client = announced.unwrap_or(peer);
    let admitted = admission::connect(shared, settings, client).await;
    let mut wire = Wire::new(stream, settings.timeouts.command);
    if kind == Kind::Smtps {
        let Some(tls) = &settings.tls else { return };
        if wire.secure(tls, patience).await.is_err() {
            return;
        }
    }
    let held = match admitted {
        Ok(held) => held,
        Err(reply) => {
            let _ = wire.reply(&reply).await;
            return wire.close().await;
        }
    };
    // A proxy that names no client does not give it the rights of the proxy's own network.
    let network = announced.and_then(|client| settings.network_identity(client));
    let session = Session::new(Arc::new(settings.terms(&shared.doors.terms())), network, kind == Kind::Smtps);
    let ending = shared.ending.subscribe();
    let connection = Connection { shared, settings, wire, session, client, refused: None, ending };
    connection.run().await;
    drop(held);
}

/// Tells a client the reason why the server does not serve it. With implicit TLS, it closes the connection
/// without a reply, because a handshake is costly.
pub(super) async fn turn_away(stream: Box<dyn Io>, kind: Kind, reply: &Reply) {
    if kind == Kind::Smtp {
        let mut wire = Wire::new(stream, std::time::Duration::from_secs(1));
        let _ = wire.reply(reply).await;
        wire.close().await;
    }
}

impl Connection<'_> {
    async fn run(mut self) {
        let last = match self.talk().await {
            Ok(()) => None,
            Err(Over::Gone) => return,
            Err(Over::Late) => Some(Reply::new(421, "4.4.2", "Timeout")),
        };
        if let Some(reply) = last {
            let _ = self.wire.reply(&reply).await;
        }
        self.wire.close().await;
    }

    async fn talk(&mut self) -> Result<(), Over> {
        let greeting = self.session.greet();
        self.wire.reply(&greeting).await?;
        loop {
            let deadline = Instant::now() + self.settings.timeouts.command;
            let step = loop {
                if let Some(line) = self.wire.lines.next_line() {
                    break self.session.line(line);
                }
                if self.wire.lines.is_endless() {
                    break Step::Close(Reply::new(421, "4.7.0", "Line too long"));
                }
                self.wire.flush().await?;
                // Messages in progress are received; after them nothing new begins.
                tokio::select! {
                    read = self.wire.read_commands(deadline) => read?,
                    _ = self.ending.wait_for(|ending| *ending) => {
                        break Step::Close(Reply::new(421, "4.3.2", "Server is shutting down"));
                    }
                }
            };
            if let Flow::Close = self.take(step).await? {
                return Ok(());
            }
        }
    }

    /// Performs a step, and the steps that follow without another line.
    async fn take(&mut self, mut step: Step) -> Result<Flow, Over> {
        loop {
            step = match step {
                Step::Reply(reply) => {
                    self.wire.reply(&reply).await?;
                    return Ok(Flow::Continue);
                }
                Step::Close(reply) => {
                    self.wire.reply(&reply).await?;
                    return Ok(Flow::Close);
                }
                Step::StartTls(reply) => {
                    self.wire.reply(&reply).await?;
                    let tls = self.settings.tls.as_ref().ok_or(Over::Gone)?;
                    self.wire.secure(tls, self.settings.timeouts.handshake).await?;
                    self.session.secured();
                    return Ok(Flow::Continue);
                }
                Step::LogIn(login) => {
                    self.wire.flush().await?;
                    let outcome = self.log_in(login).await;
                    self.session.logged_in(outcome)
                }
                Step::Sender => {
                    let most = self.most_recipients();
                    self.session.sender_known(most)
                }
                Step::Admit if !self.wire.lines.unread().is_empty() => self.session.out_of_step(),
                // Boxed, because few of many open connections receive a message at the same time.
                Step::Admit => Box::pin(receiving::admit(self)).await?,
            };
        }
    }

    /// Finds out who logs in. Some client libraries try the same password with each mechanism: that is one failure, and
    /// trying it again tells a guesser nothing.
    async fn log_in(&mut self, login: Login) -> LoginOutcome {
        if self.refused.as_ref() == Some(&login) {
            return LoginOutcome::Wrong;
        }
        let Self { shared, settings, wire, client, .. } = self;
        let outcome = login::log_in(shared, settings, *client, login.clone(), wire).await;
        self.refused = (outcome == LoginOutcome::Wrong).then_some(login);
        outcome
    }

    fn most_recipients(&self) -> Option<usize> {
        let (identity, transaction) = (self.session.identity()?, self.session.transaction()?);
        self.shared.doors.most_recipients(identity, self.client, transaction.sender())
    }

    /// The input that was not read yet.
    pub(super) fn lines(&mut self) -> &mut Lines {
        &mut self.wire.lines
    }
}
