//! The rows of a message: items, recipients, attempts, and the events of its timeline.

use std::collections::HashMap;

use tollgate_core::{Span, Timestamp};

use crate::message::{Envelope, MessageId};

/// Identifies an item: one message and one of its recipient domains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemKey {
    pub message: MessageId,
    /// The item's index among the items of the message.
    pub number: u32,
}

/// The recipients of one message in one domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The recipient domain.
    pub domain: String,
    /// The recipients of the domain.
    pub recipients: Vec<ItemRecipient>,
    /// The number of transactions that were tried.
    pub attempts: u32,
    /// The number of transactions that failed temporarily. The retry schedule uses it.
    pub failures: u32,
    /// When the next attempt is due.
    pub due: Timestamp,
    /// The lifetime that the item has used up: the time that it waited because of real failures. Waiting for a
    /// limit does not count.
    pub spent: Span,
    /// Whether an attempt ended without a known result, so that recipients may get a second copy.
    pub possible_duplicate: bool,
}

/// One recipient of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemRecipient {
    /// The recipient's index in the envelope.
    pub index: u32,
    /// The state of the recipient.
    pub state: RecipientState,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecipientState {
    /// The recipient waits for an attempt.
    Waiting,
    /// The next hop accepted the message.
    Sent(Final),
    /// The recipient failed for good.
    Failed(Final),
    /// An operator cancelled it.
    Cancelled(Timestamp),
}

/// The final outcome of a recipient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Final {
    /// The time of the outcome.
    pub at: Timestamp,
    /// The enhanced status code, such as `5.1.1`.
    pub status: String,
    /// The reply of the remote server, or the relay's own reason.
    pub reply: String,
    /// The remote server; `None` if the relay itself decided.
    pub remote: Option<String>,
    /// Whether the remote server sends reports itself: it offers DSN.
    pub reports: bool,
}

/// A transaction that has begun and has no known result yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenAttempt {
    /// When it began.
    pub at: Timestamp,
    /// The account that it goes through.
    pub account: Option<String>,
    /// The recipients of the transaction, by their indices in the envelope.
    pub recipients: Vec<u32>,
}

/// The changes of an item by a finished attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptResult {
    /// The recipients that are settled now.
    pub settled: Vec<(u32, RecipientState)>,
    /// The due time of the recipients that still wait.
    pub due: Timestamp,
    /// The lifetime that the wait until then uses up.
    pub spent: Span,
    /// Whether this was a transaction that counts as an attempt.
    pub counts: bool,
    /// Whether the remote server may have taken the message: its answer is unknown.
    pub uncertain: bool,
    /// When it ended.
    pub at: Timestamp,
    /// The events for the timeline: one for each recipient with an outcome of its own.
    pub events: Vec<Event>,
}

/// One event of a message's timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The time of the event.
    pub at: Timestamp,
    /// The kind of event.
    pub kind: EventKind,
    /// The recipient domain; empty if the event concerns the whole message.
    pub domain: String,
    /// The account that was used.
    pub account: Option<String>,
    /// The remote server.
    pub remote: Option<String>,
    /// The remote reply, or the rule and the reason of a deferral.
    pub text: String,
    /// The end of the wait.
    pub until: Option<Timestamp>,
    /// The number of recipients that it concerns.
    pub recipients: u32,
    /// The recipient, by its place in the envelope, if it is about one.
    pub recipient: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The relay accepted it.
    Accepted,
    /// A limit deferred it.
    Deferred,
    /// An attempt failed for now.
    Failed,
    /// An attempt ended without a known result.
    Unknown,
    /// The next hop took it.
    Sent,
    /// Recipients failed for good.
    Bounced,
    /// A delivery report was queued.
    Reported,
    /// An operator asked for an attempt now.
    Retried,
    /// An operator cancelled it.
    Cancelled,
}

/// The row of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub envelope: Envelope,
    /// The place of its text.
    pub place: Place,
    /// The length of its text.
    pub size: u64,
    /// A checksum of its text.
    pub checksum: u64,
    /// The number of its items that still wait.
    pub open_items: u32,
    /// The time at which its last item was settled.
    pub finished: Option<Timestamp>,
}

/// The place of a message's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A row of the database.
    Table,
    /// In a file named by the message's id.
    File,
    /// Removed, because the message is finished.
    Gone,
}

impl Item {
    /// Makes the items of a message: one for each recipient domain, in the order of their first recipients.
    pub(super) fn of(envelope: &Envelope) -> Vec<Self> {
        let mut items: Vec<Self> = Vec::new();
        let mut places = HashMap::new();
        for (index, recipient) in (0..).zip(&envelope.recipients) {
            let place = *places.entry(&*recipient.domain).or_insert_with(|| {
                items.push(Self {
                    domain: recipient.domain.clone(),
                    recipients: Vec::new(),
                    attempts: 0,
                    failures: 0,
                    due: envelope.accepted,
                    spent: Span::ZERO,
                    possible_duplicate: false,
                });
                items.len() - 1
            });
            items[place].recipients.push(ItemRecipient { index, state: RecipientState::Waiting });
        }
        items
    }

    /// The recipients that still wait, by their indices in the envelope.
    pub fn waiting(&self) -> Vec<u32> {
        let waiting = self.recipients.iter().filter(|one| one.state == RecipientState::Waiting);
        waiting.map(|one| one.index).collect()
    }
}

impl Event {
    /// An event about the whole message.
    pub fn new(at: Timestamp, kind: EventKind) -> Self {
        Self {
            at,
            kind,
            domain: String::new(),
            account: None,
            remote: None,
            text: String::new(),
            until: None,
            recipients: 0,
            recipient: None,
        }
    }
}
