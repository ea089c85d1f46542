//! A message on its way from the door that accepts it to the queue.

use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;

use tollgate_core::Timestamp;

use crate::lanes::Priority;

/// The id of a message. Ids sort by the time at which they were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub u128);

impl MessageId {
    /// The time at which the id was made.
    pub fn made_at(self) -> Timestamp {
        Timestamp::from_micros(u64::try_from(self.0 >> 64).unwrap_or(u64::MAX))
    }
}

/// The data of a message, except its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The message's id.
    pub id: MessageId,
    /// The tenant that the mail belongs to.
    pub tenant: String,
    /// The account to send it through, if the sender named one.
    pub account: Option<String>,
    /// Its priority among the messages of its tenant.
    pub priority: Priority,
    /// The sender's address; `None` is the null sender, `<>`.
    pub sender: Option<String>,
    /// The recipients; at least one.
    pub recipients: Vec<Recipient>,
    /// The time of acceptance.
    pub accepted: Timestamp,
    /// The extensions that its text and addresses need at the next hop.
    pub needs: Needs,
    /// The sender's wishes for delivery reports (RFC 3461).
    pub report: ReportWish,
    /// The value of its `Message-ID` field, cut if it is long.
    pub message_id: Option<String>,
    /// The client that submitted the message.
    pub origin: Origin,
    /// The idempotency key, so that a repeated submission is accepted once.
    pub idempotency: Option<Idempotency>,
}

/// The client that submitted a message. Empty for the relay's own messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The client's address.
    pub client: Option<IpAddr>,
    /// The user who logged in.
    pub user: Option<String>,
    /// The name of the access key.
    pub api_key: Option<String>,
}

/// One recipient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipient {
    /// The address, as it goes to the next hop.
    pub address: String,
    /// The address's domain: lower case, IDNA applied, no trailing dot.
    pub domain: String,
    /// The events that the sender wants a report of (RFC 3461).
    pub notify: Notify,
    /// The address that the report names instead of this one.
    pub original: Option<String>,
}

/// The extensions that a next hop must have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// 8BITMIME.
    pub eight_bit: bool,
    /// SMTPUTF8.
    pub utf8: bool,
}

/// The sender's wishes for reports about the whole message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportWish {
    /// Whether a report returns the whole message and not only its headers.
    pub full: bool,
    /// The sender's own id of the message, which reports quote.
    pub envelope_id: Option<String>,
}

/// The events of a recipient that are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notify {
    /// The next hop accepted the message and does not send reports itself.
    pub success: bool,
    /// The recipient failed for good.
    pub failure: bool,
    /// The delivery takes long.
    pub delay: bool,
}

impl Default for Notify {
    fn default() -> Self {
        Self { success: false, failure: true, delay: false }
    }
}

/// The idempotency key of a submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idempotency {
    /// The access key's name. Idempotency keys of different access keys are independent.
    pub scope: String,
    pub key: String,
    /// A hash of the submission, to recognise another submission under the same key.
    pub digest: [u8; 32],
    /// Whether the queue knew the key when the submission began, so that it was not charged. The acceptance
    /// sets it.
    pub repeated: bool,
}

/// Stores messages.
pub trait Intake: Send + Sync {
    /// Reserves room for a text of about this size.
    fn begin(&self, size: Option<u64>) -> Later<'_, Result<Box<dyn Incoming>, IntakeError>>;

    /// Whether a submission under this key was accepted and is still remembered.
    fn remembers<'a>(&'a self, scope: &'a str, key: &'a str) -> Later<'a, Result<bool, IntakeError>>;
}

/// A text that is being received. If it is dropped before it is committed, it leaves nothing behind.
pub trait Incoming: Send {
    /// Receives the next piece.
    fn write<'a>(&'a mut self, piece: &'a [u8]) -> Later<'a, Result<(), IntakeError>>;

    /// Puts the message into the queue. When this returns, the message survives a crash.
    fn commit(self: Box<Self>, envelope: Envelope) -> Later<'static, Result<Accepted, IntakeError>>;
}

/// The result of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// The message is in the queue.
    Now(MessageId),
    /// The same submission was accepted before, under this id. Nothing was added.
    Before(MessageId),
}

/// The reason why a message was not stored. Nothing was added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IntakeError {
    /// The queue or its disk is full.
    Full,
    /// The disk failed.
    Failed {
        /// The error of the system.
        reason: String,
    },
    /// Another message was submitted under the same idempotency key.
    Conflict,
}

/// A boxed future.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

impl fmt::Display for IntakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("the queue is full"),
            Self::Failed { reason } => write!(f, "the queue's disk failed: {reason}"),
            Self::Conflict => f.write_str("another message was submitted under the same idempotency key"),
        }
    }
}

impl std::error::Error for IntakeError {}
