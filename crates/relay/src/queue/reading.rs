//! Reads the queue: one message, a page of messages, an item, a text. Readers do not wait for the writer.

use std::io::{self, Read};

use redb::ReadTransaction;
use tollgate_core::Timestamp;

use super::codec::Row;
use super::item::{Event, EventKind, Item, ItemKey, Kept, Place};
use super::tables::{EVENTS, ITEMS, MESSAGE_IDS, MESSAGES, TEXTS, bare_message_id, file_name};
use super::{Queue, QueueError};
use crate::message::MessageId;

/// The most messages that one call examines to find the wanted ones.
const MOST_LOOKED_AT: usize = 20_000;

/// A message with its items and its timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The message.
    pub kept: Kept,
    pub items: Vec<(ItemKey, Item)>,
    /// The events of its timeline.
    pub events: Vec<Event>,
}

/// A message's text.
pub struct Text {
    pub bytes: Box<dyn Read + Send>,
    /// The number of bytes.
    pub size: u64,
    /// Their checksum.
    pub checksum: u64,
}

/// The messages that a reader wants: those that meet every condition that is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Messages of this tenant.
    pub tenant: Option<String>,
    /// Messages to this address, or to this domain as `@example.com`. Case makes no difference.
    pub recipient: Option<String>,
    /// Messages with this `Message-ID`, with or without `<>`.
    pub message_id: Option<String>,
    /// Messages that are finished, or that still wait.
    pub finished: Option<bool>,
    /// Messages from this address, or from this domain as `@example.com`. Case makes no difference.
    pub sender: Option<String>,
    /// Messages that were accepted at this moment or before.
    pub until: Option<Timestamp>,
    /// Messages that were accepted at this moment or later.
    pub since: Option<Timestamp>,
    /// The order of the messages.
    pub order: Order,
}

/// The order of a list of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// As they were accepted.
    #[default]
    Oldest,
    /// The latest first.
    Newest,
}

/// Some of the messages that are wanted, in the order of their ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessagePage {
    pub messages: Vec<Shown>,
    /// The `after` of the next page, if there may be more. A page can be short or even empty and have more
    /// after it, because a call examines a bounded number of messages.
    pub next: Option<MessageId>,
}

impl Queue {
    /// A message with its items and its timeline.
    pub fn show(&self, id: MessageId) -> Result<Option<Shown>, QueueError> {
        let read = self.read()?;
        let Some(kept) = read.open_table(MESSAGES)?.get(id.0)?.and_then(|row| Kept::decode(row.value()))
        else {
            return Ok(None);
        };
        Ok(Some(shown(&read, kept)?))
    }

    /// Messages in the order of their ids, after one of them, at most `most`.
    pub fn list(&self, after: Option<MessageId>, most: usize) -> Result<Vec<Shown>, QueueError> {
        let read = self.read()?;
        let from = after.map_or(0, |id| id.0.saturating_add(1));
        let mut list = Vec::new();
        for row in read.open_table(MESSAGES)?.range(from..)?.take(most) {
            if let Some(kept) = Kept::decode(row?.1.value()) {
                list.push(shown(&read, kept)?);
            }
        }
        Ok(list)
    }

    /// The wanted messages in the wanted order, after one of them, at most `most`. It examines a bounded number of
    /// messages, and returns where the next page begins.
    pub fn find(
        &self,
        wanted: &Wanted,
        after: Option<MessageId>,
        most: usize,
    ) -> Result<MessagePage, QueueError> {
        let read = self.read()?;
        let (from, to) = match (wanted.order, after) {
            (_, None) => (0, u128::MAX),
            (Order::Oldest, Some(id)) => (id.0.saturating_add(1), u128::MAX),
            (Order::Newest, Some(MessageId(0))) => return Ok(MessagePage::default()),
            (Order::Newest, Some(id)) => (0, id.0 - 1),
        };
        let mut page = MessagePage::default();
        let messages = read.open_table(MESSAGES)?;
        let mut look = |id: u128, kept: Option<Kept>, looked_at: usize| -> Result<bool, QueueError> {
            if let Some(kept) = kept.filter(|kept| wanted.fits(kept)) {
                page.messages.push(shown(&read, kept)?);
            }
            let is_enough = page.messages.len() >= most || looked_at >= MOST_LOOKED_AT;
            page.next = is_enough.then_some(MessageId(id));
            Ok(is_enough)
        };
        match &wanted.message_id {
            Some(message_id) => {
                let name = bare_message_id(message_id);
                let index = read.open_table(MESSAGE_IDS)?;
                let rows = index.range((name, from)..=(name, to))?;
                for (looked_at, row) in (1..).zip(wanted.order.of(rows)) {
                    let id = row?.0.value().1;
                    let kept = messages.get(id)?.and_then(|row| Kept::decode(row.value()));
                    if look(id, kept, looked_at)? {
                        break;
                    }
                }
            }
            None => {
                for (looked_at, row) in (1..).zip(wanted.order.of(messages.range(from..=to)?)) {
                    let (id, row) = row?;
                    if look(id.value(), Kept::decode(row.value()), looked_at)? {
                        break;
                    }
                }
            }
        }
        Ok(page)
    }

    /// One item with its envelope; `None` if it does not exist or is damaged.
    pub fn item(&self, key: ItemKey) -> Result<Option<(Kept, Item)>, QueueError> {
        let read = self.read()?;
        let kept = read.open_table(MESSAGES)?.get(key.message.0)?.and_then(|row| Kept::decode(row.value()));
        let item = read.open_table(ITEMS)?.get((key.message.0, key.number))?;
        Ok(kept.zip(item.and_then(|row| Item::decode(row.value()))))
    }

    /// A message's text.
    pub fn text(&self, kept: &Kept) -> Result<Text, QueueError> {
        let gone = || QueueError { reason: "the text is missing".to_owned() };
        let bytes: Box<dyn Read + Send> = match kept.place {
            Place::Table => {
                let read = self.read()?;
                let row = read.open_table(TEXTS)?.get(kept.envelope.id.0)?.ok_or_else(gone)?;
                Box::new(io::Cursor::new(row.value().to_vec()))
            }
            Place::File => self.shared.disk.open(&file_name(kept.envelope.id)).map_err(|_| gone())?,
            Place::Gone => return Err(gone()),
        };
        Ok(Text { bytes, size: kept.size, checksum: kept.checksum })
    }
}

impl Order {
    /// Rows in this order.
    fn of<'r, I: DoubleEndedIterator + 'r>(self, rows: I) -> Box<dyn Iterator<Item = I::Item> + 'r> {
        match self {
            Self::Oldest => Box::new(rows),
            Self::Newest => Box::new(rows.rev()),
        }
    }
}

impl Wanted {
    fn fits(&self, kept: &Kept) -> bool {
        let envelope = &kept.envelope;
        let from = |wanted: &String| {
            let sender = envelope.sender.as_deref().unwrap_or_default();
            match wanted.strip_prefix('@') {
                Some(domain) => sender.rsplit('@').next().is_some_and(|own| own.eq_ignore_ascii_case(domain)),
                None => sender.eq_ignore_ascii_case(wanted),
            }
        };
        let to = |wanted: &String| {
            envelope.recipients.iter().any(|recipient| match wanted.strip_prefix('@') {
                Some(domain) => recipient.domain.eq_ignore_ascii_case(domain),
                None => recipient.address.eq_ignore_ascii_case(wanted),
            })
        };
        self.tenant.as_ref().is_none_or(|tenant| *tenant == envelope.tenant)
            && self.recipient.as_ref().is_none_or(to)
            && self.sender.as_ref().is_none_or(from)
            && self.until.is_none_or(|until| envelope.accepted <= until)
            && self.since.is_none_or(|since| envelope.accepted >= since)
            && self.finished.is_none_or(|finished| finished == kept.finished.is_some())
    }
}

impl Shown {
    /// The deferral that keeps the message from being sent now: its end, and its rule and reason. If several
    /// recipient domains are deferred, the one that ends last.
    pub fn deferral(&self, now: Timestamp) -> Option<&Event> {
        let waits = |event: &&Event| {
            let mut items = self.items.iter().filter(|(_, item)| !item.waiting().is_empty());
            items.any(|(_, item)| item.domain == event.domain)
        };
        let is_latest = |event: &&Event| {
            let same = |other: &&Event| other.domain == event.domain || other.domain.is_empty();
            self.events.iter().rev().find(same).is_some_and(|latest| std::ptr::eq(latest, *event))
        };
        let deferred = self.events.iter().filter(|event| event.kind == EventKind::Deferred);
        let active = deferred.filter(|event| event.until.is_some_and(|until| until > now));
        active.filter(waits).filter(is_latest).max_by_key(|event| event.until)
    }
}

fn shown(read: &ReadTransaction, kept: Kept) -> Result<Shown, QueueError> {
    let id = kept.envelope.id;
    let range = (id.0, 0)..=(id.0, u32::MAX);
    let (mut items, mut events) = (Vec::new(), Vec::new());
    for row in read.open_table(ITEMS)?.range(range.clone())? {
        let (key, row) = row?;
        let key = ItemKey { message: id, number: key.value().1 };
        items.extend(Item::decode(row.value()).map(|item| (key, item)));
    }
    for row in read.open_table(EVENTS)?.range(range)? {
        events.extend(Event::decode(row?.1.value()));
    }
    Ok(Shown { kept, items, events })
}
