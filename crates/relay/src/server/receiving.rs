//! Receives a message: reads its text from the connection and passes it to its acceptance.

use tokio::time::Instant;

use super::admission;
use super::connection::Connection;
use super::wire::Over;
use crate::acceptance::{Acceptance, NotAccepted, Submission, Via};
use crate::lanes::Priority;
use crate::message::Accepted;
use crate::session::data::DataReceiver;
use crate::session::reply::Reply;
use crate::session::{Session, Step, TextFault};

/// If a text is refused, the server reads at most this many bytes beyond the largest allowed text, and then
/// closes the connection.
const MOST_EXCESS: u64 = 16 << 20;

/// A message that is being received.
struct Arrival {
    /// `None` once the message is refused.
    acceptance: Option<Acceptance>,
    refused: Option<NotAccepted>,
    receiver: DataReceiver,
}

/// Asks whether the message is allowed, and receives it. Returns the next step of the session.
pub(super) async fn admit(connection: &mut Connection<'_>) -> Result<Step, Over> {
    let submission = submission(connection).ok_or(Over::Gone)?;
    let size = connection.session.transaction().and_then(|transaction| transaction.size());
    let acceptance = match Acceptance::begin(&connection.shared.doors, submission, size).await {
        Ok(acceptance) => acceptance,
        Err(refusal) => {
            let reply = admission::message_refused(&connection.session, &refusal);
            return Ok(connection.session.refused(reply));
        }
    };
    let receiver = DataReceiver::new(connection.session.terms().max_size);
    let arrival = Arrival { acceptance: Some(acceptance), refused: None, receiver };
    let reply = connection.session.admitted();
    connection.wire.reply(&reply).await?;
    arrival.receive(connection).await
}

impl Arrival {
    async fn receive(mut self, connection: &mut Connection<'_>) -> Result<Step, Over> {
        let timeouts = connection.settings.timeouts;
        let most = connection.session.terms().max_size.saturating_add(MOST_EXCESS);
        let whole = Instant::now() + timeouts.message;
        loop {
            // It is freed before the next piece is waited for.
            let mut text = Vec::new();
            let progress = self.receiver.push(connection.lines().unread(), &mut text);
            connection.lines().consume(progress.consumed);
            self.take(&text).await;
            drop(text);
            if progress.ended {
                break;
            }
            if self.receiver.size() > most {
                return Ok(Step::Close(connection.session.too_large()));
            }
            connection.wire.read_text(whole.min(Instant::now() + timeouts.piece)).await?;
        }
        let reply = self.conclude(&connection.session).await;
        Ok(connection.session.received(reply))
    }

    /// Handles a piece of text. Once the text is refused, the rest of it is read and discarded.
    async fn take(&mut self, text: &[u8]) {
        if let Some(fault) = self.receiver.fault() {
            if let Some(acceptance) = self.acceptance.take() {
                self.refused = Some(acceptance.refuse(TextFault::Data(fault)).await);
            }
            return;
        }
        if let Some(acceptance) = &mut self.acceptance
            && let Err(refusal) = acceptance.write(text).await
        {
            self.refused = Some(refusal);
            if let Some(acceptance) = self.acceptance.take() {
                acceptance.abandon().await;
            }
        }
    }

    /// Ends the text. Returns the reply to it.
    async fn conclude(self, session: &Session) -> Reply {
        let finished = match (self.refused, self.acceptance) {
            (Some(refusal), _) => Err(refusal),
            (None, Some(acceptance)) => acceptance.finish().await,
            (None, None) => return Reply::new(451, "4.3.0", "Message not stored; try again later"),
        };
        match finished {
            Ok(Accepted::Now(id) | Accepted::Before(id)) => {
                Reply::new(250, "2.0.0", format!("Ok: queued as {:032x}", id.0))
            }
            Err(refusal) => admission::message_refused(session, &refusal),
        }
    }
}

/// The message that the session announced; `None` if there is none.
fn submission(connection: &Connection<'_>) -> Option<Submission> {
    let session = &connection.session;
    let (identity, transaction) = (session.identity()?.clone(), session.transaction()?);
    let utf8 = transaction.utf8();
    let secure = if session.is_secure() { "S" } else { "" };
    let login = if identity.user.is_some() { "A" } else { "" };
    let greeting = session.greeting();
    // RFC 3848 and RFC 6531 register these words.
    let protocol = match (greeting.is_some_and(|greeting| greeting.extended), utf8) {
        (false, _) => "SMTP".to_owned(),
        (true, false) => format!("ESMTP{secure}{login}"),
        (true, true) => format!("UTF8SMTP{secure}{login}"),
    };
    Some(Submission {
        identity,
        client: connection.client,
        sender: transaction.sender().cloned(),
        recipients: transaction.recipients().to_vec(),
        account: None,
        priority: Priority::Normal,
        utf8,
        report: transaction.report().clone(),
        idempotency: None,
        via: Via { client_name: greeting.map(|greeting| greeting.name.clone()), protocol },
        correlation: None,
    })
}
