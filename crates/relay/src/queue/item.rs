//! What the queue keeps of a message: items, recipients, attempts, and the events of its life.

use std::collections::HashMap;

use tollgate_core::{Span, Timestamp};

use crate::message::{Envelope, MessageId};

/// Names an item: one message at one recipient domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemKey {
    /// The message.
    pub message: MessageId,
    /// The item's place among the items of the message.
    pub number: u32,
}

/// One message at one recipient domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The recipient domain.
    pub domain: String,
    /// The recipients of the domain.
    pub recipients: Vec<ItemRecipient>,
    /// How many transactions were tried.
    pub attempts: u32,
    /// How many of them failed for now. The retry schedule goes by this.
    pub failures: u32,
    /// When the next attempt is due.
    pub due: Timestamp,
    /// How much of its lifetime the item has used: the time that it waited because of real failures. Waiting
    /// for a limit does not count.
    pub spent: Span,
    /// Whether an attempt ended without a known result, so that recipients may get a second copy.
    pub possible_duplicate: bool,
}

/// One recipient of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemRecipient {
    /// The recipient's place in the envelope.
    pub index: u32,
    /// What became of it.
    pub state: RecipientState,
}

/// What became of a recipient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecipientState {
    /// It waits for an attempt.
    Waiting,
    /// The next hop took the message.
    Sent(Final),
    /// It gets no message for good.
    Failed(Final),
    /// An operator cancelled it.
    Cancelled(Timestamp),
}

/// The final outcome of a recipient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Final {
    /// When it was decided.
    pub at: Timestamp,
    /// The enhanced status code, such as `5.1.1`.
    pub status: String,
    /// The reply of the remote server, or the relay's own reason.
    pub reply: String,
    /// The remote server; `None` if the relay itself decided.
    pub remote: Option<String>,
    /// Whether the remote server took over the duty to report: it offers DSN.
    pub reports: bool,
}

/// A transaction that was begun and whose result is not known yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenAttempt {
    /// When it began.
    pub at: Timestamp,
    /// The account that it goes through.
    pub account: Option<String>,
    /// The recipients that are part of it, by their places in the envelope.
    pub recipients: Vec<u32>,
}

/// What a finished attempt changes about its item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptResult {
    /// The recipients that are settled now.
    pub settled: Vec<(u32, RecipientState)>,
    /// When those that still wait are due.
    pub due: Timestamp,
    /// How much lifetime waiting until then uses up.
    pub spent: Span,
    /// Whether this was a transaction that counts as an attempt.
    pub counts: bool,
    /// Whether the remote server may have taken the message: its answer is unknown.
    pub uncertain: bool,
    /// What the timeline shows.
    pub event: Event,
}

/// One entry of a message's timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When it happened.
    pub at: Timestamp,
    /// What happened.
    pub kind: EventKind,
    /// At which recipient domain; empty if it concerns the whole message.
    pub domain: String,
    /// The account that was used.
    pub account: Option<String>,
    /// The remote server.
    pub remote: Option<String>,
    /// The remote reply, or the rule and the reason of a deferral.
    pub text: String,
    /// Until when it waits.
    pub until: Option<Timestamp>,
    /// How many recipients are concerned.
    pub recipients: u32,
}

/// What happened to a message.
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

/// A message as the queue keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its envelope.
    pub envelope: Envelope,
    /// Where its text is.
    pub place: Place,
    /// How long its text is.
    pub size: u64,
    /// A checksum of its text.
    pub checksum: u64,
    /// How many of its items still wait.
    pub open_items: u32,
    /// When the last item was settled.
    pub finished: Option<Timestamp>,
}

/// Where a message's text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the database.
    Table,
    /// In a file named by the message's id.
    File,
    /// Removed, because the message is finished.
    Gone,
}

impl Item {
    /// The items of a message: one for each recipient domain, in the order of their first recipients.
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

    /// The recipients that still wait, by their places in the envelope.
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
        }
    }
}
