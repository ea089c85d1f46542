//! A message between the door that accepts it and the queue that keeps it.

use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;

use tollgate_core::Timestamp;

use crate::lanes::Priority;

/// Names a message. Ids sort by the time at which they were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub u128);

impl MessageId {
    /// When it was made.
    pub fn made_at(self) -> Timestamp {
        Timestamp::from_micros(u64::try_from(self.0 >> 64).unwrap_or(u64::MAX))
    }
}

/// Everything about a message but its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The message's id.
    pub id: MessageId,
    /// Whose mail it is.
    pub tenant: String,
    /// The account to send it through, if the sender named one.
    pub account: Option<String>,
    /// Its priority among the messages of its tenant.
    pub priority: Priority,
    /// The sender's address; `None` is the null sender, `<>`.
    pub sender: Option<String>,
    /// Who gets it; at least one.
    pub recipients: Vec<Recipient>,
    /// When it was accepted.
    pub accepted: Timestamp,
    /// Whether its text or its addresses need an extension at the next hop.
    pub needs: Needs,
    /// What a delivery report quotes and how much it returns (RFC 3461).
    pub report: ReportWish,
    /// The value of its `Message-ID` field, cut if it is long.
    pub message_id: Option<String>,
    /// Where it came from.
    pub origin: Origin,
    /// Makes sure that the same submission is accepted once.
    pub idempotency: Option<Idempotency>,
}

/// Where a message came from. Empty for a message of the relay's own.
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
    /// When its sender wants a report (RFC 3461).
    pub notify: Notify,
    /// The address that the report names instead.
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

/// What reports about the whole message look like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportWish {
    /// Whether a report returns the whole message and not only its headers.
    pub full: bool,
    /// The sender's own name for the message.
    pub envelope_id: Option<String>,
}

/// When a recipient's fate is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notify {
    /// When the next hop takes the message and promises no reports.
    pub success: bool,
    /// When the recipient gets no message for good.
    pub failure: bool,
    /// When it takes long.
    pub delay: bool,
}

impl Default for Notify {
    fn default() -> Self {
        Self { success: false, failure: true, delay: false }
    }
}

/// A submission's own name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idempotency {
    /// Whose name it is: the access key's.
    pub scope: String,
    /// The name.
    pub key: String,
    /// A hash of everything that was submitted under it.
    pub digest: [u8; 32],
    /// Whether the queue knew the name when the submission began, so that it was not charged. Set by the acceptance.
    pub repeated: bool,
}

/// A place that keeps messages.
pub trait Intake: Send + Sync {
    /// Makes room for a text of about this size.
    fn begin(&self, size: Option<u64>) -> Later<'_, Result<Box<dyn Incoming>, IntakeError>>;

    /// Whether a submission of this name was accepted and is remembered.
    fn remembers<'a>(&'a self, scope: &'a str, key: &'a str) -> Later<'a, Result<bool, IntakeError>>;
}

/// A text on its way in. Dropped before it is committed, it leaves nothing behind.
pub trait Incoming: Send {
    /// Takes the next piece.
    fn write<'a>(&'a mut self, piece: &'a [u8]) -> Later<'a, Result<(), IntakeError>>;

    /// Puts the message into the queue. Once this answers, the message survives a crash.
    fn commit(self: Box<Self>, envelope: Envelope) -> Later<'static, Result<Accepted, IntakeError>>;
}

/// What came of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// The message is in the queue.
    Now(MessageId),
    /// The same submission was accepted before, under this id. Nothing was added.
    Before(MessageId),
}

/// Why a message was not kept. Nothing was added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IntakeError {
    /// The queue or its disk is full.
    Full,
    /// The disk failed.
    Failed {
        /// What the system said.
        reason: String,
    },
    /// Another message was submitted under the same name.
    Conflict,
}

/// A future that can be kept anywhere.
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
