//! The reasons why a message is not accepted.

use std::fmt;
use std::sync::Arc;

use crate::message::IntakeError;
use crate::session::TextFault;
use crate::session::headers::HeaderFault;

/// A message that is not accepted. Nothing was added, and nothing stays charged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAccepted {
    /// The id in the client's reply, in the log and in the journal.
    pub correlation: Arc<str>,
    pub reason: RefusalReason,
}

/// The reason why a message, or a connection, is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// A limit is exceeded.
    Limited(Limited),
    /// An entry of the blocklist blocks the client.
    Blocked {
        /// Whether the entry ends by itself.
        passing: bool,
    },
    /// The store cannot decide.
    Outage,
    /// The configured policy and the policies in force do not fit.
    Misconfigured,
    /// The client may not send as this domain.
    SenderNotAllowed {
        /// The sender's domain.
        domain: String,
    },
    /// No account can send the message, and none could after a wait.
    NoAccount {
        /// The tenant that the mail belongs to.
        tenant: String,
        /// The account that the client named; `None` if the tenant has no account at all.
        account: Option<String>,
    },
    /// There are no recipients.
    NoRecipients,
    /// There are more recipients than the relay takes in one message.
    TooManyRecipients {
        /// The most that it takes.
        most: usize,
    },
    /// The text is too large, malformed or in a loop.
    Text(TextFault),
    /// Too many messages are on their way in: together they would take too much memory.
    NoMemory,
    /// The queue or its disk is full.
    Full,
    /// The queue failed.
    Failed,
    /// Another message was submitted under the same idempotency key.
    Conflict,
}

impl RefusalReason {
    /// The label of the refusal in metrics: the rule, or one of a few words.
    pub fn level(&self) -> &str {
        match self {
            Self::Limited(limited) => &limited.rule,
            Self::Blocked { .. } => "(blocklist)",
            Self::Outage => "(store)",
            Self::Misconfigured => "(configuration)",
            Self::SenderNotAllowed { .. } | Self::Text(TextFault::Header(HeaderFault::ForeignAuthor)) => {
                "(sender)"
            }
            Self::NoAccount { .. } => "(account)",
            Self::NoRecipients | Self::TooManyRecipients { .. } => "(recipients)",
            Self::Text(_) => "(text)",
            Self::NoMemory => "(memory)",
            Self::Full | Self::Failed => "(queue)",
            Self::Conflict => "(idempotency)",
        }
    }
}

/// A limit that is exceeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limited {
    pub rule: Arc<str>,
    /// The key as it may be shown; `None` if the rule has no key.
    pub key: Option<String>,
    /// The limit in the words of the configuration.
    pub limit: String,
    /// After how many seconds the client may try again, if that is known.
    pub retry_secs: Option<u64>,
    /// Whether the message has more recipients than the limit ever allows. No waiting helps; splitting does.
    pub never_fits: bool,
}

/// Converts an error of the queue.
pub(super) fn not_stored(error: IntakeError) -> RefusalReason {
    match error {
        IntakeError::Full => RefusalReason::Full,
        IntakeError::Conflict => RefusalReason::Conflict,
        IntakeError::Failed { .. } => {
            tracing::error!(component = "relay", %error, "a message was not stored");
            RefusalReason::Failed
        }
    }
}

impl fmt::Display for RefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limited(limited) => limited.fmt(f),
            Self::Blocked { .. } => f.write_str("blocked"),
            Self::Outage => f.write_str("the store failed, so limits cannot be checked"),
            Self::Misconfigured => f.write_str("the policy of the relay cannot be used"),
            Self::SenderNotAllowed { domain } => write!(f, "the client may not send as {domain}"),
            Self::NoAccount { tenant, account: Some(account) } => {
                write!(f, "tenant {tenant} has no account {account}")
            }
            Self::NoAccount { tenant, account: None } => {
                write!(f, "tenant {tenant} has no account to send through")
            }
            Self::NoRecipients => f.write_str("no recipients"),
            Self::TooManyRecipients { most } => write!(f, "more than {most} recipients"),
            Self::Text(fault) => fault.fmt(f),
            Self::NoMemory => f.write_str("too many messages come at once"),
            Self::Full => f.write_str("the queue is full"),
            Self::Failed => f.write_str("the queue failed"),
            Self::Conflict => f.write_str("another message was submitted under the same idempotency key"),
        }
    }
}

impl fmt::Display for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, key, limit, .. } = self;
        match key {
            Some(key) => write!(f, "{rule} {key}, {limit}"),
            None => write!(f, "{rule}, {limit}"),
        }
    }
}

impl fmt::Display for NotAccepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the message was not accepted: {} ({})", self.reason, self.correlation)
    }
}

impl std::error::Error for NotAccepted {}
