//! Messages and lanes as JSON.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;
use tollgate_core::Timestamp;
use tollgate_relay::lanes::{Cause, LaneView, Wait, WaitCause};
use tollgate_relay::message::{Envelope, MessageId};
use tollgate_relay::queue::{Event, EventKind, Final, Item, ItemKey, RecipientState, Shown};

use crate::http::shown::Moment;

/// How many recipients a list shows of each message.
const MOST_RECIPIENTS: usize = 20;

/// The state of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageStatus {
    Queued,
    Deferred,
    Retrying,
    Sent,
    Bounced,
    Cancelled,
}

impl MessageStatus {
    pub(super) const NAMES: [&'static str; 6] =
        ["queued", "deferred", "retrying", "sent", "bounced", "cancelled"];
    /// The name of all states in which recipients wait.
    pub(super) const WAITING: &'static str = "waiting";
    const ALL: [Self; 6] =
        [Self::Queued, Self::Deferred, Self::Retrying, Self::Sent, Self::Bounced, Self::Cancelled];

    pub(super) fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }

    /// Whether no recipient waits any more.
    pub(super) fn is_final(self) -> bool {
        matches!(self, Self::Sent | Self::Bounced | Self::Cancelled)
    }

    fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// A message in a list.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Message")]
pub(super) struct RowShown {
    id: String,
    tenant: String,
    /// The same as `tenant`.
    tenant_id: String,
    /// The account that its sender named; null if any of the tenant's may be used.
    account: Option<String>,
    /// `queued`, `deferred` by a limit, `retrying` after a failure, `sent`, `bounced` (at least one recipient gets it
    /// not) or `cancelled`.
    status: &'static str,
    /// The sender's address; empty for the null sender.
    from: String,
    /// The first 20 recipients.
    to: Vec<String>,
    /// How many recipients there are.
    recipients: usize,
    /// The value of its `Message-ID` field.
    message_id: Option<String>,
    /// Its size in bytes.
    size: u64,
    /// How many transactions were tried.
    attempts: u32,
    /// When it was accepted (RFC 3339).
    #[schemars(with = "String")]
    accepted_at: Moment,
    /// When its last recipient was settled; null as long as some wait.
    #[schemars(with = "Option<String>")]
    finished_at: Option<Moment>,
    /// When it is sent, in seconds since 1970, if a limit defers it; otherwise null.
    deferred_ts: Option<u64>,
    /// The same moment (RFC 3339).
    #[schemars(with = "Option<String>")]
    deferred_until: Option<Moment>,
    /// The rule and the key that defer it.
    deferred_by: Option<String>,
    /// What it waits for; null if no recipient waits. Of several parts, that which is tried first.
    waits_for: Option<WaitShown>,
    /// Whether recipients may get it twice, because a crash hid the result of an attempt.
    possible_duplicate: bool,
    #[serde(skip)]
    #[schemars(skip)]
    known: MessageStatus,
    #[serde(skip)]
    #[schemars(skip)]
    message: MessageId,
}

/// What a message, or a part of it, waits for.
#[derive(Clone, Serialize, JsonSchema)]
#[schemars(rename = "MessageWait")]
pub(super) struct WaitShown {
    /// `limit`, `retry` (its next attempt), `throttle` (its server asked to slow down), `pause` (by an operator), `account`
    /// (none can be used), `connection`, `outage` (of the relay's store or disk), `turn`, or `sending`.
    cause: &'static str,
    /// Until when (RFC 3339); null if that is not known.
    #[schemars(with = "Option<String>")]
    until: Option<Moment>,
    /// The rule and the key, what a server said, or who paused it.
    reason: Option<String>,
    /// The account that it waits for.
    account: Option<String>,
}

/// A message with all that happened to it.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "MessageDetail")]
pub(super) struct MessageShown {
    #[serde(flatten)]
    row: RowShown,
    /// The address of the client that submitted it.
    client: Option<String>,
    /// The user who submitted it over SMTP.
    user: Option<String>,
    /// The name of the access key that it was submitted with.
    api_key: Option<String>,
    /// Its parts: one for each recipient domain.
    parts: Vec<PartShown>,
    /// What happened, oldest first; only the latest events of a very long history.
    timeline: Vec<EventShown>,
}

/// The recipients of a message at one domain.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "MessagePart")]
struct PartShown {
    domain: String,
    attempts: u32,
    /// When the next attempt is due (RFC 3339); null if nothing waits.
    #[schemars(with = "Option<String>")]
    due_at: Option<Moment>,
    /// What it waits for; null if nothing waits.
    waits_for: Option<WaitShown>,
    recipients: Vec<RecipientShown>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "MessageRecipient")]
struct RecipientShown {
    address: String,
    /// `waiting`, `sent`, `failed` or `cancelled`.
    status: &'static str,
    /// When it was settled (RFC 3339).
    #[schemars(with = "Option<String>")]
    at: Option<Moment>,
    /// The enhanced status code.
    code: Option<String>,
    /// The remote server's reply, or the relay's reason.
    reply: Option<String>,
    /// The remote server.
    remote: Option<String>,
}

/// One entry of a timeline.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "MessageEvent")]
struct EventShown {
    /// When it happened (RFC 3339).
    #[schemars(with = "String")]
    at: Moment,
    /// `accepted`, `deferred`, `failed`, `unknown`, `sent`, `bounced`, `reported`, `retried` or `cancelled`.
    event: &'static str,
    /// The recipient domain; null if it is about the whole message.
    domain: Option<String>,
    account: Option<String>,
    remote: Option<String>,
    /// The remote reply; or, of a deferral, the rule and the key.
    text: Option<String>,
    /// Until when it waits (RFC 3339).
    #[schemars(with = "Option<String>")]
    until: Option<Moment>,
    /// How many recipients it is about.
    recipients: u32,
    /// The recipient whose outcome it is; null if it is about several.
    recipient: Option<String>,
}

/// A lane: the mail of a tenant to one recipient domain.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Lane")]
pub(super) struct LaneShown {
    tenant: String,
    /// The account that senders named; null for mail that may use any.
    account: Option<String>,
    domain: String,
    /// How many messages wait.
    waiting: usize,
    /// How many are being sent.
    in_flight: u32,
    /// When the first of them is due, if none is now (RFC 3339).
    #[schemars(with = "Option<String>")]
    next_due: Option<Moment>,
    /// Until when the lane sleeps (RFC 3339); null if it does not.
    #[schemars(with = "Option<String>")]
    sleeps_until: Option<Moment>,
    /// Whether an operator paused it.
    held: bool,
    /// Why it sleeps: `limit`, `throttled`, `paused` (no account can be used), `busy` or `outage`.
    cause: Option<&'static str>,
    /// The rule and the key, or what the server said.
    reason: Option<String>,
    /// When the oldest message was accepted, among those that come next (RFC 3339); null if none waits.
    #[schemars(with = "Option<String>")]
    oldest: Option<Moment>,
    /// Why an attempt last failed for now; null if none did since the lane was empty.
    last_error: Option<String>,
}

/// A limit that defers a message.
struct Deferral {
    until: Timestamp,
    by: String,
}

impl RowShown {
    pub(super) fn of(shown: &Shown, waits: Waits<'_>) -> Self {
        let (envelope, items) = (&shown.kept.envelope, &shown.items);
        let deferral = items
            .iter()
            .filter_map(|(key, item)| deferral(shown, item, waits(*key)))
            .min_by_key(|one| one.until);
        let known = status(shown, deferral.is_some());
        let waiting = items.iter().filter(|(_, item)| !item.waiting().is_empty());
        let waiting = waiting.filter_map(|(key, item)| Some((item, waits(*key)?)));
        // What is tried now comes before what has a moment, and that before what waits for an operator.
        let first = waiting.min_by_key(|(_, wait)| (wait.cause == WaitCause::Pause, wait.until));
        let first = first.map(|(item, wait)| WaitShown::of(shown, item, wait));
        Self {
            id: id(envelope.id),
            tenant: envelope.tenant.clone(),
            tenant_id: envelope.tenant.clone(),
            account: envelope.account.clone(),
            status: known.name(),
            from: envelope.sender.clone().unwrap_or_default(),
            to: envelope.recipients.iter().take(MOST_RECIPIENTS).map(|one| one.address.clone()).collect(),
            recipients: envelope.recipients.len(),
            message_id: envelope.message_id.clone(),
            size: shown.kept.size,
            attempts: items.iter().map(|(_, item)| item.attempts).sum(),
            accepted_at: Moment(envelope.accepted),
            finished_at: shown.kept.finished.map(Moment),
            deferred_ts: deferral.as_ref().map(|one| one.until.as_micros().div_ceil(1_000_000)),
            deferred_until: deferral.as_ref().map(|one| Moment(one.until)),
            deferred_by: deferral.map(|one| one.by),
            waits_for: first,
            possible_duplicate: items.iter().any(|(_, item)| item.possible_duplicate),
            known,
            message: envelope.id,
        }
    }

    /// Whether it is sent through this account: its sender named it, or it waits for it.
    pub(super) fn is_through(&self, account: &str) -> bool {
        self.account.as_deref() == Some(account)
            || self.waits_for.as_ref().is_some_and(|wait| wait.is_for(account))
    }

    pub(super) fn message(&self) -> MessageId {
        self.message
    }

    pub(super) fn status(&self) -> MessageStatus {
        self.known
    }
}

/// Says what an item waits for.
pub(super) type Waits<'w> = &'w dyn Fn(ItemKey) -> Option<Wait>;

impl WaitShown {
    pub(super) fn of(shown: &Shown, item: &Item, wait: Wait) -> Self {
        // Why it has to be tried again is in its history.
        let failed = || {
            let mut events = shown.events.iter().rev().filter(|event| event.domain == item.domain);
            let last = events.find(|event| matches!(event.kind, EventKind::Failed | EventKind::Unknown))?;
            Some(last.text.clone())
        };
        let reason = if wait.cause == WaitCause::Retry { failed() } else { wait.reason };
        let account = wait.account.map(|account| account.to_string());
        Self { cause: wait.cause.name(), until: wait.until.map(Moment), reason, account }
    }

    /// Whether it waits for an account of this name.
    pub(super) fn is_for(&self, account: &str) -> bool {
        self.account.as_deref() == Some(account)
    }
}

/// Why a part waits for a limit, if it does: as its lane knows, or as was noted last.
fn deferral(shown: &Shown, item: &Item, wait: Option<Wait>) -> Option<Deferral> {
    if item.waiting().is_empty() {
        return None;
    }
    if let Some(wait) = wait {
        let sleep = wait.sleep.filter(|sleep| sleep.cause == Cause::Limit)?;
        return Some(Deferral { until: sleep.until, by: sleep.reason });
    }
    let last = shown.events.iter().rev().find(|event| event.domain == item.domain)?;
    let until = last.until.filter(|_| last.kind == EventKind::Deferred)?;
    Some(Deferral { until, by: last.text.clone() })
}

fn status(shown: &Shown, deferred: bool) -> MessageStatus {
    let states = || shown.items.iter().flat_map(|(_, item)| &item.recipients).map(|one| &one.state);
    let waits = states().any(|state| *state == RecipientState::Waiting);
    if waits {
        let tried = shown.items.iter().any(|(_, item)| !item.waiting().is_empty() && item.failures > 0);
        return match (deferred, tried) {
            (true, _) => MessageStatus::Deferred,
            (false, true) => MessageStatus::Retrying,
            (false, false) => MessageStatus::Queued,
        };
    }
    if states().any(|state| matches!(state, RecipientState::Failed(_))) {
        MessageStatus::Bounced
    } else if states().any(|state| matches!(state, RecipientState::Sent(_))) {
        MessageStatus::Sent
    } else {
        MessageStatus::Cancelled
    }
}

impl MessageShown {
    pub(super) fn of(shown: &Shown, waits: Waits<'_>) -> Self {
        let origin = &shown.kept.envelope.origin;
        Self {
            row: RowShown::of(shown, waits),
            client: origin.client.map(|client| client.to_string()),
            user: origin.user.clone(),
            api_key: origin.api_key.clone(),
            parts: shown.items.iter().map(|(key, item)| PartShown::of(shown, item, waits(*key))).collect(),
            timeline: shown.events.iter().map(|event| EventShown::of(event, &shown.kept.envelope)).collect(),
        }
    }
}

impl PartShown {
    fn of(shown: &Shown, item: &Item, wait: Option<Wait>) -> Self {
        let envelope = &shown.kept.envelope;
        let waiting: BTreeSet<u32> = item.waiting().into_iter().collect();
        let recipients = item.recipients.iter().filter_map(|one| {
            let recipient = envelope.recipients.get(usize::try_from(one.index).ok()?)?;
            Some(RecipientShown::of(&recipient.address, &one.state))
        });
        Self {
            domain: item.domain.clone(),
            attempts: item.attempts,
            due_at: (!waiting.is_empty()).then_some(Moment(item.due)),
            waits_for: wait.filter(|_| !waiting.is_empty()).map(|wait| WaitShown::of(shown, item, wait)),
            recipients: recipients.collect(),
        }
    }
}

impl RecipientShown {
    fn of(address: &str, state: &RecipientState) -> Self {
        let last = |status, word: &Final| Self {
            address: address.to_owned(),
            status,
            at: Some(Moment(word.at)),
            code: Some(word.status.clone()),
            reply: Some(word.reply.clone()),
            remote: word.remote.clone(),
        };
        let plain = |status, at: Option<Timestamp>| Self {
            address: address.to_owned(),
            status,
            at: at.map(Moment),
            code: None,
            reply: None,
            remote: None,
        };
        match state {
            RecipientState::Waiting => plain("waiting", None),
            RecipientState::Sent(word) => last("sent", word),
            RecipientState::Failed(word) => last("failed", word),
            RecipientState::Cancelled(at) => plain("cancelled", Some(*at)),
        }
    }
}

impl EventShown {
    fn of(event: &Event, envelope: &Envelope) -> Self {
        let recipient =
            event.recipient.and_then(|index| envelope.recipients.get(usize::try_from(index).ok()?));
        let some = |text: &String| (!text.is_empty()).then(|| text.clone());
        Self {
            at: Moment(event.at),
            event: match event.kind {
                EventKind::Accepted => "accepted",
                EventKind::Deferred => "deferred",
                EventKind::Failed => "failed",
                EventKind::Unknown => "unknown",
                EventKind::Sent => "sent",
                EventKind::Bounced => "bounced",
                EventKind::Reported => "reported",
                EventKind::Retried => "retried",
                EventKind::Cancelled => "cancelled",
            },
            domain: some(&event.domain),
            account: event.account.clone(),
            remote: event.remote.clone(),
            text: some(&event.text),
            until: event.until.map(Moment),
            recipients: event.recipients,
            recipient: recipient.map(|one| one.address.clone()),
        }
    }
}

impl LaneShown {
    pub(super) fn of(lane: &LaneView) -> Self {
        let sleep = lane.sleep.as_ref();
        Self {
            tenant: lane.key.tenant.to_string(),
            account: lane.key.account.as_ref().map(ToString::to_string),
            domain: lane.key.domain.to_string(),
            waiting: lane.waiting,
            in_flight: lane.in_flight,
            held: lane.held,
            next_due: lane.next_due.map(Moment),
            sleeps_until: sleep.map(|sleep| Moment(sleep.until)),
            cause: sleep.map(|sleep| sleep.cause.name()),
            reason: sleep.map(|sleep| sleep.reason.clone()),
            oldest: lane.oldest.map(Moment),
            last_error: lane.last_error.as_deref().map(Into::into),
        }
    }
}

/// The id of a message as text.
pub(super) fn id(id: MessageId) -> String {
    format!("{:032x}", id.0)
}
