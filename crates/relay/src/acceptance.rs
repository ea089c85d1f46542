//! Accepts a message, whatever door it comes through.
//!
//! A door describes the message ([`Submission`]), writes the text piece by piece, and finishes. This module
//! does the rest, in one place: it checks the sender's rights, room in the queue, the accept policy, header
//! fields and loops; it commits the message, refunds one that is not accepted, and writes the log line. Doors
//! turn [`NotAccepted`] into their own replies.

mod policy;
mod refusal;
mod room;
mod submission;
mod text;
mod trace;
mod ways;

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::time::timeout;
use tollgate_core::{Clock, Timestamp};
use tollgate_engine::{Admissions, PacedLog, Taken};

pub(crate) use policy::{Question, ask};
pub use refusal::{Limited, NotAccepted, RefusalReason};
pub use submission::{AcceptTerms, Submission, Via};

use crate::accounts::AccountRegistry;
use crate::message::{Accepted, Envelope, Incoming, Intake, MessageId, Needs, Origin};
use crate::meters::RelayMeters;
use crate::session::address::Address;
use crate::session::headers::HeaderRewriter;
use crate::session::{Identity, TextFault, shown_domain};
use refusal::not_stored;
use room::{Memory, Room};
use text::TextChecker;
use ways::Ways;

/// The text is passed to the queue in pieces of about this size.
const PIECE: usize = 64 * 1024;
/// A door waits at most this long for the refund before it refuses a message.
const REFUND_PATIENCE: Duration = Duration::from_secs(1);

/// The parts that all doors accept mail with.
pub struct Acceptances {
    /// The engine and the leases.
    pub admissions: Admissions,
    /// The queue for accepted messages.
    pub intake: Arc<dyn Intake>,
    /// The wall clock: for dates and ids.
    pub clock: Arc<dyn Clock>,
    /// Counts accepted and refused messages.
    pub(crate) meters: RelayMeters,
    terms: ArcSwap<AcceptTerms>,
    refusals: PacedLog,
    memory: Arc<Memory>,
    /// Finds out whether an account can send a message; `None` if that is not checked.
    ways: Option<Ways>,
}

/// A message that is being received. If it is dropped before it is finished, it leaves nothing behind and is
/// refunded.
pub struct Acceptance {
    doors: Arc<Acceptances>,
    submission: Submission,
    id: MessageId,
    correlation: Arc<str>,
    /// `None` once the text cannot be stored.
    incoming: Option<Box<dyn Incoming>>,
    /// The charges of the message.
    taken: Taken,
    checker: TextChecker,
    header: HeaderRewriter,
    /// The rewritten text, up to the next piece for the queue.
    out: Vec<u8>,
    size: u64,
    /// The number of bytes received.
    come: u64,
    room: Room,
}

impl Acceptances {
    pub fn new(
        terms: AcceptTerms,
        admissions: Admissions,
        intake: Arc<dyn Intake>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let terms = ArcSwap::from_pointee(terms);
        let (meters, refusals) = (RelayMeters::default(), PacedLog::default());
        Self { admissions, intake, clock, meters, terms, refusals, memory: Arc::default(), ways: None }
    }

    /// The same, refusing what could not be sent: mail without an account, unless it may go directly to the recipients'
    /// hosts.
    #[must_use]
    pub fn sending_through(self, accounts: Arc<AccountRegistry>, directly: bool) -> Self {
        Self { ways: Some(Ways { accounts, directly }), ..self }
    }

    /// Counts into these meters.
    #[must_use]
    pub fn metered(self, meters: RelayMeters) -> Self {
        Self { meters, ..self }
    }

    /// The terms in force.
    pub fn terms(&self) -> Arc<AcceptTerms> {
        self.terms.load_full()
    }

    /// Applies new terms to later messages.
    pub fn reload(&self, terms: AcceptTerms) {
        self.terms.store(Arc::new(terms));
    }

    /// The most recipients that this sender's policy allows for a message, if it sets a bound. It does not call
    /// the store.
    pub fn most_recipients(
        &self,
        identity: &Identity,
        client: IpAddr,
        sender: Option<&Address>,
    ) -> Option<usize> {
        let terms = self.terms();
        policy::most_recipients(&self.admissions.engine, terms.policy.as_deref()?, identity, client, sender)
    }

    fn refuse(&self, refusal: NotAccepted, submission: &Submission) -> NotAccepted {
        self.meters.rejected(refusal.reason.level());
        if let Some(held_back) = self.refusals.admit(self.clock.now()) {
            tracing::info!(
                component = "relay",
                correlation = &*refusal.correlation,
                tenant = &*submission.identity.tenant,
                user = submission.identity.user.as_deref(),
                api_key = submission.identity.api_key.as_deref(),
                client = %submission.client,
                sender = submission.sender.as_ref().map_or("", |sender| &sender.text),
                recipients = submission.recipients.len(),
                reason = %refusal.reason,
                held_back,
                "message refused"
            );
        }
        refusal
    }
}

impl Acceptance {
    /// Decides whether a message of about this size, if known, is admitted, and takes its charge.
    pub async fn begin(
        doors: &Arc<Acceptances>,
        submission: Submission,
        size: Option<u64>,
    ) -> Result<Self, NotAccepted> {
        let mut submission = submission;
        let terms = doors.terms();
        let id = fresh_id(doors.clock.now());
        let correlation = match &submission.correlation {
            Some(given) => Arc::from(&**given),
            None => Arc::from(format!("{:032x}", id.0)),
        };
        let begun = admit(doors, &terms, &mut submission, &correlation, size).await;
        let (incoming, taken) = begun.map_err(|reason| {
            doors.refuse(NotAccepted { correlation: Arc::clone(&correlation), reason }, &submission)
        })?;
        let authors = match terms.check_from {
            true => Arc::clone(&submission.identity.senders),
            false => Arc::default(),
        };
        let additions = trace::additions(&terms.hostname, &submission, id, doors.clock.now());
        Ok(Self {
            doors: Arc::clone(doors),
            submission,
            id,
            correlation,
            incoming: Some(incoming),
            taken,
            checker: TextChecker::new(terms.max_size),
            header: HeaderRewriter::new(additions).written_by(authors),
            out: Vec::new(),
            size: 0,
            come: 0,
            room: Room::new(&doors.memory),
        })
    }

    /// The id that the message will have.
    pub fn id(&self) -> MessageId {
        self.id
    }

    /// Sets the hash of the submission under its idempotency key, for a door that knows it only when the text
    /// is complete.
    pub fn set_digest(&mut self, digest: [u8; 32]) {
        if let Some(idempotency) = &mut self.submission.idempotency {
            idempotency.digest = digest;
        }
    }

    /// Receives the next piece of the text. After an error the text is discarded: call [`Acceptance::abandon`].
    pub async fn write(&mut self, piece: &[u8]) -> Result<(), NotAccepted> {
        let written = self.take(piece).await;
        written.map_err(|reason| self.give_up(reason))
    }

    /// Puts the message into the queue. When this returns, the message and its charge survive a crash.
    pub async fn finish(mut self) -> Result<Accepted, NotAccepted> {
        match self.conclude().await {
            Ok(Accepted::Now(id)) => {
                self.taken.keep();
                self.doors.meters.accepted();
                self.log(id);
                Ok(Accepted::Now(id))
            }
            // The earlier submission was charged when it was accepted.
            Ok(Accepted::Before(id)) => {
                self.refund().await;
                Ok(Accepted::Before(id))
            }
            Err(reason) => {
                let refusal = self.give_up(reason);
                self.refund().await;
                Err(refusal)
            }
        }
    }

    /// Refuses the message for a fault that the door found in the text.
    pub async fn refuse(mut self, fault: TextFault) -> NotAccepted {
        let refusal = self.give_up(RefusalReason::Text(fault));
        self.refund().await;
        refusal
    }

    /// Gives up the message. Returns when its charge is refunded, unless the store is slow.
    pub async fn abandon(mut self) {
        self.incoming = None;
        self.refund().await;
    }

    /// Refunds the message's charge. If the store does not take the refund now, the engine tries again later.
    async fn refund(&mut self) {
        let _ = timeout(REFUND_PATIENCE, self.taken.refund()).await;
    }

    /// Discards the text, and refuses the message for this reason.
    fn give_up(&mut self, reason: RefusalReason) -> NotAccepted {
        self.incoming = None;
        let refusal = NotAccepted { correlation: Arc::clone(&self.correlation), reason };
        self.doors.refuse(refusal, &self.submission)
    }

    async fn take(&mut self, piece: &[u8]) -> Result<(), RefusalReason> {
        self.come += piece.len() as u64;
        self.room.grow_to(self.come).map_err(|_| RefusalReason::NoMemory)?;
        self.checker.push(piece).map_err(|fault| RefusalReason::Text(TextFault::Data(fault)))?;
        let pushed = self.header.push(piece, &mut self.out);
        pushed.map_err(|fault| RefusalReason::Text(TextFault::Header(fault)))?;
        if self.out.len() >= PIECE { self.store().await } else { Ok(()) }
    }

    /// Passes the collected text to the queue.
    async fn store(&mut self) -> Result<(), RefusalReason> {
        let incoming = self.incoming.as_mut().ok_or(RefusalReason::Failed)?;
        incoming.write(&self.out).await.map_err(not_stored)?;
        self.size += self.out.len() as u64;
        self.out.clear();
        Ok(())
    }

    async fn conclude(&mut self) -> Result<Accepted, RefusalReason> {
        let end = self.checker.finish().map_err(|fault| RefusalReason::Text(TextFault::Data(fault)))?;
        self.header
            .push(end, &mut self.out)
            .map_err(|fault| RefusalReason::Text(TextFault::Header(fault)))?;
        let finished = self.header.finish(&mut self.out);
        finished.map_err(|fault| RefusalReason::Text(TextFault::Header(fault)))?;
        self.store().await?;
        let incoming = self.incoming.take().ok_or(RefusalReason::Failed)?;
        let (committed, durable) = tokio::join!(incoming.commit(self.envelope()), self.taken.durable());
        if let (Ok(_), Err(error)) = (&committed, durable) {
            // The message is in the queue: refusing it now would make the client send it twice.
            tracing::error!(
                component = "relay",
                id = %format_args!("{:032x}", self.id.0),
                %error,
                "a message was accepted, but its count is not on disk: a crash would lose the count"
            );
        }
        committed.map_err(not_stored)
    }

    fn envelope(&self) -> Envelope {
        let Submission { identity, client, sender, recipients, account, priority, report, .. } =
            &self.submission;
        let has_utf8_address = sender.as_ref().is_some_and(Address::needs_utf8)
            || recipients.iter().any(|recipient| !recipient.address.is_ascii());
        let owned = |name: &Option<Arc<str>>| name.as_deref().map(str::to_owned);
        Envelope {
            id: self.id,
            tenant: identity.tenant.as_ref().to_owned(),
            account: account.clone(),
            priority: *priority,
            sender: sender.as_ref().map(|sender| sender.text.clone()),
            recipients: recipients.clone(),
            accepted: self.doors.clock.now(),
            needs: Needs {
                eight_bit: self.checker.is_eight_bit(),
                utf8: has_utf8_address || self.submission.utf8 && self.header.is_eight_bit(),
            },
            report: report.clone(),
            message_id: self.header.message_id().map(str::to_owned),
            origin: Origin {
                client: Some(*client),
                user: owned(&identity.user),
                api_key: owned(&identity.api_key),
            },
            idempotency: self.submission.idempotency.clone(),
        }
    }

    fn log(&self, id: MessageId) {
        let Submission { identity, client, sender, recipients, via, .. } = &self.submission;
        tracing::info!(
            component = "relay",
            id = %format_args!("{:032x}", id.0),
            correlation = &*self.correlation,
            tenant = &*identity.tenant,
            user = identity.user.as_deref(),
            api_key = identity.api_key.as_deref(),
            %client,
            protocol = &*via.protocol,
            sender = sender.as_ref().map_or("", |sender| &sender.text),
            recipients = recipients.len(),
            size = self.size,
            message_id = self.header.message_id(),
            "message accepted"
        );
    }
}

/// Checks a submission, reserves room for it, and takes its charge.
async fn admit(
    doors: &Acceptances,
    terms: &AcceptTerms,
    submission: &mut Submission,
    correlation: &str,
    size: Option<u64>,
) -> Result<(Box<dyn Incoming>, Taken), RefusalReason> {
    check(terms, submission, size)?;
    // Room is reserved first: a message that cannot be stored takes no charge.
    let incoming = doors.intake.begin(size).await.map_err(not_stored)?;
    if let Some(idempotency) = &mut submission.idempotency {
        // A repeated submission adds no message, so it is not charged, even if the limit is used up.
        let known = doors.intake.remembers(&idempotency.scope, &idempotency.key).await;
        idempotency.repeated = known.map_err(not_stored)?;
        if idempotency.repeated {
            return Ok((incoming, Taken::default()));
        }
    }
    if let Some(ways) = &doors.ways {
        ways.check(&submission.identity.tenant, submission.account.as_deref()).await?;
    }
    let taken = policy::take(&doors.admissions, terms.policy.as_deref(), submission, correlation).await?;
    Ok((incoming, taken))
}

/// Makes the checks of a submission that need no store.
fn check(terms: &AcceptTerms, submission: &mut Submission, size: Option<u64>) -> Result<(), RefusalReason> {
    let sender = submission.sender.as_ref();
    if !submission.identity.may_send_as(sender) {
        return Err(RefusalReason::SenderNotAllowed { domain: shown_domain(sender).to_owned() });
    }
    let mut seen = HashSet::new();
    submission.recipients.retain(|recipient| seen.insert(recipient.address.clone()));
    if submission.recipients.is_empty() {
        return Err(RefusalReason::NoRecipients);
    }
    if submission.recipients.len() > terms.max_recipients {
        return Err(RefusalReason::TooManyRecipients { most: terms.max_recipients });
    }
    if size.is_some_and(|size| size > terms.max_size) {
        return Err(RefusalReason::Text(TextFault::Data(crate::session::data::DataFault::TooLarge)));
    }
    Ok(())
}

/// A unique id that sorts by time.
pub(crate) fn fresh_id(now: Timestamp) -> MessageId {
    let random = getrandom::u64().expect("the system gives random numbers");
    MessageId(u128::from(now.as_micros()) << 64 | u128::from(random))
}
