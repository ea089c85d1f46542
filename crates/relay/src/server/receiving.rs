//! A message on its way in: admitted, received, and put into the queue.

use std::time::Duration;

use jiff::fmt::rfc2822;
use tokio::time::{Instant, timeout};
use tollgate_core::Timestamp;
use tollgate_engine::Taken;

use super::admission;
use super::connection::Connection;
use super::wire::Over;
use crate::message::{Accepted, Envelope, Incoming, IntakeError, MessageId, Needs};
use crate::session::data::DataReceiver;
use crate::session::headers::{Additions, HeaderFault, HeaderRewriter};
use crate::session::reply::Reply;
use crate::session::{Step, TextFault};

/// How much is collected before it goes to the queue.
const PIECE: usize = 64 * 1024;
/// How much of a text that is refused is read beyond the largest that is not, before the client is given up.
const MOST_EXCESS: u64 = 16 << 20;

/// How long the reply to a refused message waits for its refund.
const REFUND_PATIENCE: Duration = Duration::from_secs(1);

/// A message that may come.
struct Arrival {
    id: MessageId,
    /// `None` once it cannot be kept.
    incoming: Option<Box<dyn Incoming>>,
    /// What it took of its limits. Dropped, it is refunded.
    taken: Taken,
    receiver: DataReceiver,
    header: HeaderRewriter,
    fault: Option<TextFault>,
    failure: Option<IntakeError>,
    /// The text, as it goes to the queue.
    out: Vec<u8>,
    size: u64,
}

/// Asks whether the message may come, and receives it. Answers how the session goes on.
pub(super) async fn admit(connection: &mut Connection<'_>) -> Result<Step, Over> {
    let (Some(identity), Some(transaction)) =
        (connection.session.identity(), connection.session.transaction())
    else {
        return Err(Over::Gone);
    };
    // Room is asked for first: what cannot be stored takes nothing.
    let incoming = match connection.shared.intake.begin(transaction.size()).await {
        Ok(incoming) => incoming,
        Err(error) => return Ok(connection.session.admitted(Err(not_stored(&error)))),
    };
    let (shared, settings, client) = (connection.shared, connection.settings, connection.client);
    let taken = match admission::accept(&shared.admissions, settings, client, identity, transaction).await {
        Ok(taken) => taken,
        Err(reply) => return Ok(connection.session.admitted(Err(reply))),
    };
    let id = fresh_id(shared.clock.now());
    let arrival = Arrival {
        id,
        incoming: Some(incoming),
        taken,
        receiver: DataReceiver::new(settings.max_size),
        header: HeaderRewriter::new(additions(connection, id)),
        fault: None,
        failure: None,
        out: Vec::new(),
        size: 0,
    };
    let Step::Receive(reply) = connection.session.admitted(Ok(())) else { return Err(Over::Gone) };
    connection.wire.reply(&reply).await?;
    arrival.receive(connection).await
}

impl Arrival {
    async fn receive(mut self, connection: &mut Connection<'_>) -> Result<Step, Over> {
        let timeouts = connection.settings.timeouts;
        let whole = Instant::now() + timeouts.message;
        let mut text = Vec::new();
        loop {
            text.clear();
            let progress = self.receiver.push(connection.lines().unread(), &mut text);
            connection.lines().consume(progress.consumed);
            self.take(&text).await;
            if progress.ended {
                break;
            }
            if self.receiver.size() > connection.settings.max_size + MOST_EXCESS {
                return Ok(Step::Close(connection.session.too_large()));
            }
            connection.wire.read_text(whole.min(Instant::now() + timeouts.piece)).await?;
        }
        let reply = self.conclude(connection).await;
        // Made before the client hears of it, unless the store is slow. What was kept is not refunded.
        let _ = timeout(REFUND_PATIENCE, self.taken.refund()).await;
        Ok(connection.session.received(reply))
    }

    /// Takes a piece of text.
    async fn take(&mut self, text: &[u8]) {
        self.fault = self.fault.or(self.receiver.fault().map(TextFault::Data));
        if self.fault.is_none() {
            let pushed = self.header.push(text, &mut self.out);
            self.blame(pushed);
        }
        if self.fault.is_some() {
            // Nothing of it stays.
            self.incoming = None;
        }
        if self.out.len() >= PIECE {
            self.store().await;
        }
    }

    fn blame(&mut self, done: Result<(), HeaderFault>) {
        if let Err(fault) = done {
            self.fault.get_or_insert(TextFault::Header(fault));
        }
    }

    /// Passes to the queue what was collected.
    async fn store(&mut self) {
        if let Some(incoming) = &mut self.incoming
            && let Err(error) = incoming.write(&self.out).await
        {
            self.incoming = None;
            self.failure = Some(error);
        }
        self.size += self.out.len() as u64;
        self.out.clear();
    }

    /// The text has come. Answers the reply to it.
    async fn conclude(&mut self, connection: &Connection<'_>) -> Reply {
        if self.fault.is_none() {
            let finished = self.header.finish(&mut self.out);
            self.blame(finished);
        }
        if let Some(fault) = self.fault {
            return connection.session.text_refused(fault);
        }
        self.store().await;
        let envelope = self.envelope(connection);
        let committed = match (self.incoming.take(), self.failure.take(), envelope) {
            (Some(incoming), None, Some(envelope)) => incoming.commit(envelope).await,
            (_, Some(error), _) => Err(error),
            _ => Err(IntakeError::Failed { reason: "the message was lost on its way".to_owned() }),
        };
        match committed {
            Ok(Accepted::Now(id)) => {
                self.taken.keep();
                self.log(connection, id);
                Reply::new(250, "2.0.0", format!("Ok: queued as {:032x}", id.0))
            }
            // It was counted when it was accepted.
            Ok(Accepted::Before(id)) => Reply::new(250, "2.0.0", format!("Ok: queued as {:032x}", id.0)),
            Err(error) => not_stored(&error),
        }
    }

    fn envelope(&self, connection: &Connection<'_>) -> Option<Envelope> {
        let (identity, transaction) = (connection.session.identity()?, connection.session.transaction()?);
        let utf8 = transaction.has_utf8_address() || transaction.utf8() && self.header.is_eight_bit();
        Some(Envelope {
            id: self.id,
            tenant: identity.tenant.as_ref().to_owned(),
            account: None,
            sender: transaction.sender().map(|sender| sender.text.clone()),
            recipients: transaction.recipients().to_vec(),
            accepted: connection.shared.clock.now(),
            needs: Needs { eight_bit: self.receiver.is_eight_bit(), utf8 },
            report: transaction.report().clone(),
            idempotency: None,
        })
    }

    fn log(&self, connection: &Connection<'_>, id: MessageId) {
        let (Some(identity), Some(transaction)) =
            (connection.session.identity(), connection.session.transaction())
        else {
            return;
        };
        tracing::info!(
            component = "relay",
            message = %format_args!("{:032x}", id.0),
            tenant = &*identity.tenant,
            user = identity.user.as_deref(),
            client = %connection.client,
            sender = transaction.sender().map_or("", |sender| &sender.text),
            recipients = transaction.recipients().len(),
            size = self.size,
            "message accepted"
        );
    }
}

/// The reply to a message that cannot be stored.
fn not_stored(error: &IntakeError) -> Reply {
    match error {
        IntakeError::Full => Reply::new(452, "4.3.1", "Queue is full; try again later"),
        IntakeError::Failed { .. } | IntakeError::Conflict => {
            tracing::error!(component = "relay", %error, "a message was not stored");
            Reply::new(451, "4.3.0", "Message not stored; try again later")
        }
    }
}

/// An id that sorts by time, and that nobody else has.
fn fresh_id(now: Timestamp) -> MessageId {
    let random = getrandom::u64().expect("the system gives random numbers");
    MessageId(u128::from(now.as_micros()) << 64 | u128::from(random))
}

/// The header fields that a message gets.
fn additions(connection: &Connection<'_>, id: MessageId) -> Additions {
    let session = &connection.session;
    let hostname = &connection.settings.hostname;
    let date = date(connection.shared.clock.now());
    let (name, extended) = session.greeting().map_or(("unknown", false), |said| (&said.name, said.extended));
    let utf8 = session.transaction().is_some_and(|transaction| transaction.utf8());
    let secure = if session.is_secure() { "S" } else { "" };
    let login = if session.identity().is_some_and(|identity| identity.user.is_some()) { "A" } else { "" };
    // RFC 3848 and RFC 6531 register these words.
    let with = match (extended, utf8) {
        (false, _) => "SMTP".to_owned(),
        (true, false) => format!("ESMTP{secure}{login}"),
        (true, true) => format!("UTF8SMTP{secure}{login}"),
    };
    let address = match connection.client {
        std::net::IpAddr::V4(address) => format!("[{address}]"),
        std::net::IpAddr::V6(address) => format!("[IPv6:{address}]"),
    };
    let received = format!(
        "Received: from {name} ({address})\r\n\tby {hostname} with {with} id {:032x};\r\n\t{date}\r\n",
        id.0
    );
    Additions {
        received,
        date: format!("Date: {date}\r\n"),
        message_id: format!("Message-ID: <{:032x}@{hostname}>\r\n", id.0),
    }
}

/// A moment as mail writes it.
fn date(at: Timestamp) -> String {
    let micros = i64::try_from(at.as_micros()).unwrap_or(i64::MAX);
    let at = jiff::Timestamp::from_microsecond(micros).unwrap_or_default();
    let at = at.to_zoned(jiff::tz::TimeZone::UTC);
    rfc2822::to_string(&at).unwrap_or_default()
}
