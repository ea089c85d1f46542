//! The tables of the queue's database, and the changes of one transaction.

use redb::{ReadableTable, Table, TableDefinition, WriteTransaction};
use tollgate_core::{Span, Timestamp};

use super::codec::{Row, Used, checksum};
use super::item::{Event, EventKind, Item, ItemKey, Kept, OpenAttempt, Place};
use crate::lanes::Priority;
use crate::message::{Accepted, Envelope, Idempotency, IntakeError, MessageId};

type Bytes = &'static [u8];
type Key = (u128, u32);

/// The database's own data.
pub(super) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
/// [`Kept`] by message.
pub(super) const MESSAGES: TableDefinition<'_, u128, Bytes> = TableDefinition::new("messages");
/// Small texts by message.
pub(super) const TEXTS: TableDefinition<'_, u128, Bytes> = TableDefinition::new("texts");
/// [`Item`] by message and number.
pub(super) const ITEMS: TableDefinition<'_, Key, Bytes> = TableDefinition::new("items");
/// [`OpenAttempt`] by item.
pub(super) const ATTEMPTS: TableDefinition<'_, Key, Bytes> = TableDefinition::new("attempts");
/// [`Event`] by message and number.
pub(super) const EVENTS: TableDefinition<'_, Key, Bytes> = TableDefinition::new("events");
/// [`Used`] by scope and idempotency key.
pub(super) const USED: TableDefinition<'_, (&str, &str), Bytes> = TableDefinition::new("used");
/// The expiry of idempotency keys.
pub(super) const USED_UNTIL: TableDefinition<'_, (u64, &str, &str), ()> = TableDefinition::new("used_until");
/// Finished messages by the time at which they finished.
pub(super) const FINISHED: TableDefinition<'_, (u64, u128), ()> = TableDefinition::new("finished");
/// Messages whose senders asked for a report of a delay, by their time of acceptance.
pub(super) const DELAYS: TableDefinition<'_, (u64, u128), ()> = TableDefinition::new("delays");
/// Messages by the value of their `Message-ID`, without its `<>`.
pub(super) const MESSAGE_IDS: TableDefinition<'_, (&str, u128), ()> = TableDefinition::new("message_ids");
/// Damaged rows as they were found, by table and key.
pub(super) const QUARANTINE: TableDefinition<'_, (&str, u128, u32), Bytes> =
    TableDefinition::new("quarantine");

/// The row of [`META`] that counts commits.
pub(super) const COMMITS: &str = "commits";
/// The version of this layout.
pub(super) const FORMAT: u64 = 2;
/// An idempotency key is remembered for this long.
const REMEMBERED: Span = Span::from_secs(24 * 3_600);
/// The most events that a message keeps: the first one, and the latest.
const MOST_EVENTS: u32 = 64;
/// The longest stored text of an event or a reply.
const MOST_TEXT: usize = 1_000;
/// There may be this many items for each message that may wait. An item has the recipients of a message in one
/// domain, so a message to a thousand domains takes the room of many.
pub(super) const ITEMS_PER_MESSAGE: u64 = 4;
/// The most rows that one transaction tidies up.
const MOST_TIDIED: usize = 64;

/// A waiting item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The key of the item.
    pub key: ItemKey,
    /// The tenant that the mail belongs to.
    pub tenant: String,
    /// The account that the sender named.
    pub account: Option<String>,
    /// The recipient domain.
    pub domain: String,
    /// Its priority among the items of its tenant.
    pub priority: Priority,
    /// The number of waiting recipients.
    pub recipients: u32,
    /// When its next attempt is due.
    pub due: Timestamp,
    /// The message that it reports on, if it is a new delivery report.
    pub reports_on: Option<Box<MessageId>>,
}

/// A text that is ready to be committed.
pub(super) enum Stored {
    /// It goes into the database.
    Held(Vec<u8>),
    /// It is in a file already, which is durable.
    File { size: u64, checksum: u64 },
}

pub(super) struct Tables<'t> {
    pub(super) messages: Table<'t, u128, Bytes>,
    pub(super) texts: Table<'t, u128, Bytes>,
    pub(super) items: Table<'t, Key, Bytes>,
    pub(super) attempts: Table<'t, Key, Bytes>,
    pub(super) events: Table<'t, Key, Bytes>,
    used: Table<'t, (&'static str, &'static str), Bytes>,
    used_until: Table<'t, (u64, &'static str, &'static str), ()>,
    pub(super) finished: Table<'t, (u64, u128), ()>,
    pub(super) delays: Table<'t, (u64, u128), ()>,
    message_ids: Table<'t, (&'static str, u128), ()>,
    quarantine: Table<'t, (&'static str, u128, u32), Bytes>,
    /// The number of waiting messages, including the changes of this transaction.
    pub(super) live: u64,
    /// The number of waiting items, including the changes of this transaction.
    pub(super) open_items: u64,
    /// Files to remove once the transaction is durable.
    pub(super) remove: Vec<String>,
    /// New waiting items, to announce once the transaction is durable.
    pub(super) arrived: Vec<Waiting>,
    /// Messages that this transaction accepts.
    pub(super) accepted: Vec<Submitted>,
}

/// A message that a transaction accepts.
#[derive(Clone)]
pub(super) struct Submitted {
    pub(super) id: MessageId,
    pub(super) idempotency: Option<Idempotency>,
}

impl<'t> Tables<'t> {
    pub(super) fn open(
        transaction: &'t WriteTransaction,
        live: u64,
        open_items: u64,
    ) -> Result<Self, redb::Error> {
        Ok(Self {
            messages: transaction.open_table(MESSAGES)?,
            texts: transaction.open_table(TEXTS)?,
            items: transaction.open_table(ITEMS)?,
            attempts: transaction.open_table(ATTEMPTS)?,
            events: transaction.open_table(EVENTS)?,
            used: transaction.open_table(USED)?,
            used_until: transaction.open_table(USED_UNTIL)?,
            finished: transaction.open_table(FINISHED)?,
            delays: transaction.open_table(DELAYS)?,
            message_ids: transaction.open_table(MESSAGE_IDS)?,
            quarantine: transaction.open_table(QUARANTINE)?,
            live,
            open_items,
            remove: Vec::new(),
            arrived: Vec::new(),
            accepted: Vec::new(),
        })
    }

    /// Adds a message with its items, unless one of the checks fails.
    pub(super) fn accept(
        &mut self,
        envelope: Envelope,
        text: Stored,
        most: u64,
    ) -> Result<Result<Accepted, IntakeError>, redb::Error> {
        if let Some(idempotency) = &envelope.idempotency
            && let Some(known) = self.known(idempotency, envelope.accepted)?
        {
            return Ok(known);
        }
        if envelope.idempotency.as_ref().is_some_and(|idempotency| idempotency.repeated) {
            // The message was not charged, so it must not be added.
            let reason =
                "the first submission was forgotten while it was repeated: submit it again".to_owned();
            return Ok(Err(IntakeError::Failed { reason }));
        }
        if is_full(self.live, self.open_items, most) {
            return Ok(Err(IntakeError::Full));
        }
        if envelope.recipients.is_empty() || self.messages.get(envelope.id.0)?.is_some() {
            let reason =
                format!("message {:032x} has no recipients or is in the queue already", envelope.id.0);
            return Ok(Err(IntakeError::Failed { reason }));
        }
        if let Some(idempotency) = &envelope.idempotency {
            self.remember(idempotency, envelope.id, envelope.accepted + REMEMBERED)?;
        }
        let id = envelope.id;
        self.accepted.push(Submitted { id, idempotency: envelope.idempotency.clone() });
        self.add(envelope, text)?;
        Ok(Ok(Accepted::Now(id)))
    }

    /// Removes a message whose client was told that it is not accepted.
    pub(super) fn withdraw(
        &mut self,
        id: MessageId,
        idempotency: Option<&Idempotency>,
    ) -> Result<(), redb::Error> {
        self.forget(id.0)?;
        self.remove.push(file_name(id));
        if let Some(idempotency) = idempotency {
            // The key's entry in the table of expiries stays. When it expires, it matches nothing.
            self.used.remove((&*idempotency.scope, &*idempotency.key))?;
        }
        Ok(())
    }

    /// Counts the waiting messages, which are all that are not finished, and their items.
    pub(super) fn recount(&mut self) -> Result<(), redb::Error> {
        let messages = redb::ReadableTableMetadata::len(&self.messages)?;
        self.live = messages.saturating_sub(redb::ReadableTableMetadata::len(&self.finished)?);
        self.open_items = 0;
        for row in self.messages.iter()? {
            let open = Kept::decode(row?.1.value()).map_or(0, |kept| kept.open_items);
            self.open_items += u64::from(open);
        }
        Ok(())
    }

    /// Adds a message without further checks.
    pub(super) fn add(&mut self, envelope: Envelope, text: Stored) -> Result<(), redb::Error> {
        let (id, at) = (envelope.id, envelope.accepted);
        let (place, size, checksum) = match text {
            Stored::Held(text) => {
                self.texts.insert(id.0, text.as_slice())?;
                (Place::Table, text.len() as u64, checksum(&text))
            }
            Stored::File { size, checksum } => (Place::File, size, checksum),
        };
        let items = Item::of(&envelope);
        for (number, item) in (0..).zip(&items) {
            self.items.insert((id.0, number), item.encode().as_slice())?;
            self.arrived.push(waiting(ItemKey { message: id, number }, &envelope, item));
        }
        if let Some(message_id) = &envelope.message_id {
            self.message_ids.insert((bare_message_id(message_id), id.0), ())?;
        }
        self.expect_delay(&envelope)?;
        let recipients = u32::try_from(envelope.recipients.len()).unwrap_or(u32::MAX);
        let open_items = u32::try_from(items.len()).unwrap_or(u32::MAX);
        let kept = Kept { envelope, place, size, checksum, open_items, finished: None };
        self.messages.insert(id.0, kept.encode().as_slice())?;
        self.live += 1;
        self.open_items += u64::from(open_items);
        self.tell(id, Event { recipients, ..Event::new(at, EventKind::Accepted) })
    }

    /// Adds a message that was taken over to the tables that are used to find messages.
    pub(super) fn index(&mut self, kept: &Kept) -> Result<(), redb::Error> {
        let id = kept.envelope.id.0;
        if let Some(message_id) = &kept.envelope.message_id {
            self.message_ids.insert((bare_message_id(message_id), id), ())?;
        }
        if let Some(at) = kept.finished {
            self.finished.insert((at.as_micros(), id), ())?;
        }
        Ok(())
    }

    /// The result for an idempotency key; `None` if the key is not remembered.
    fn known(
        &self,
        idempotency: &Idempotency,
        now: Timestamp,
    ) -> Result<Option<Result<Accepted, IntakeError>>, redb::Error> {
        let row = self.used.get((&*idempotency.scope, &*idempotency.key))?;
        let used = row.and_then(|row| Used::decode(row.value())).filter(|used| used.until > now);
        Ok(used.map(|used| {
            if used.digest == idempotency.digest {
                Ok(Accepted::Before(used.message))
            } else {
                Err(IntakeError::Conflict)
            }
        }))
    }

    fn remember(
        &mut self,
        idempotency: &Idempotency,
        message: MessageId,
        until: Timestamp,
    ) -> Result<(), redb::Error> {
        let (scope, key) = (&*idempotency.scope, &*idempotency.key);
        let used = Used { digest: idempotency.digest, message, until };
        self.used.insert((scope, key), used.encode().as_slice())?;
        self.used_until.insert((until.as_micros(), scope, key), ())?;
        Ok(())
    }

    /// Remembers an idempotency key that was taken over, unless it is known already.
    pub(super) fn remember_again(&mut self, scope: &str, key: &str, used: &Used) -> Result<(), redb::Error> {
        if self.used.get((scope, key))?.is_none() {
            self.used.insert((scope, key), used.encode().as_slice())?;
            self.used_until.insert((used.until.as_micros(), scope, key), ())?;
        }
        Ok(())
    }

    /// Reads a message; `None` if it does not exist or is damaged.
    pub(super) fn message(&self, id: MessageId) -> Result<Option<Kept>, redb::Error> {
        Ok(self.messages.get(id.0)?.and_then(|row| Kept::decode(row.value())))
    }

    /// Reads an item; `None` if it does not exist or is damaged.
    pub(super) fn item(&self, key: ItemKey) -> Result<Option<Item>, redb::Error> {
        Ok(self.items.get((key.message.0, key.number))?.and_then(|row| Item::decode(row.value())))
    }

    /// The undamaged items of a message.
    pub(super) fn items_of(&self, id: MessageId) -> Result<Vec<(ItemKey, Item)>, redb::Error> {
        let mut items = Vec::new();
        for row in self.items.range((id.0, 0)..=(id.0, u32::MAX))? {
            let (key, row) = row?;
            let number = key.value().1;
            items.extend(Item::decode(row.value()).map(|item| (ItemKey { message: id, number }, item)));
        }
        Ok(items)
    }

    pub(super) fn put_item(&mut self, key: ItemKey, item: &Item) -> Result<(), redb::Error> {
        self.items.insert((key.message.0, key.number), item.encode().as_slice())?;
        Ok(())
    }

    pub(super) fn put_message(&mut self, kept: &Kept) -> Result<(), redb::Error> {
        self.messages.insert(kept.envelope.id.0, kept.encode().as_slice())?;
        Ok(())
    }

    pub(super) fn open_attempt(&mut self, key: ItemKey, attempt: &OpenAttempt) -> Result<(), redb::Error> {
        self.attempts.insert((key.message.0, key.number), attempt.encode().as_slice())?;
        Ok(())
    }

    pub(super) fn cancel_attempt(&mut self, key: ItemKey) -> Result<(), redb::Error> {
        self.attempts.remove((key.message.0, key.number))?;
        Ok(())
    }

    /// Appends an event to a message's timeline.
    pub(super) fn tell(&mut self, id: MessageId, event: Event) -> Result<(), redb::Error> {
        let recipients = self.message(id)?.map_or(0, |kept| kept.envelope.recipients.len());
        self.tell_all(id, vec![event], recipients)
    }

    /// Appends events to the timeline of a message with so many recipients. There is room for the outcome of each of
    /// them. Beyond the bound, the oldest but the first one is dropped.
    pub(super) fn tell_all(
        &mut self,
        id: MessageId,
        events: Vec<Event>,
        recipients: usize,
    ) -> Result<(), redb::Error> {
        let most = MOST_EVENTS.saturating_add(u32::try_from(recipients).unwrap_or(u32::MAX));
        let last = self.events.range((id.0, 0)..=(id.0, u32::MAX))?.next_back().transpose()?;
        let mut number = last.map_or(0, |(key, _)| key.value().1.saturating_add(1));
        for mut event in events {
            bound(&mut event.text);
            if number >= most {
                self.events.remove((id.0, number - most + 1))?;
            }
            self.events.insert((id.0, number), event.encode().as_slice())?;
            number = number.saturating_add(1);
        }
        Ok(())
    }

    /// Moves a damaged row to the quarantine.
    pub(super) fn quarantine(&mut self, table: &str, id: u128, number: u32) -> Result<(), redb::Error> {
        let row = match table {
            "messages" => self.messages.remove(id)?,
            "items" => self.items.remove((id, number))?,
            _ => self.attempts.remove((id, number))?,
        };
        if let Some(row) = row {
            self.quarantine.insert((table, id, number), row.value())?;
        }
        if table == "messages" {
            // The text is removed with its message. Nothing reads the timeline any more.
            if let Some(text) = self.texts.remove(id)? {
                self.quarantine.insert(("texts", id, 0), text.value())?;
            }
            self.events.retain_in((id, 0)..=(id, u32::MAX), |_, _| false)?;
        }
        Ok(())
    }

    /// Forgets expired idempotency keys, and finished messages that are old or too many.
    pub(super) fn tidy(&mut self, now: Timestamp, history: Span, most: u64) -> Result<(), redb::Error> {
        for _ in 0..MOST_TIDIED {
            let Some((key, _)) = self.used_until.first()? else { break };
            let (until, scope, name) = key.value();
            if until > now.as_micros() {
                break;
            }
            let (scope, name) = (scope.to_owned(), name.to_owned());
            drop(key);
            self.used_until.remove((until, &*scope, &*name))?;
            // The key may have been used again since.
            let row = self.used.get((&*scope, &*name))?.and_then(|row| Used::decode(row.value()));
            if row.is_none_or(|used| used.until <= now) {
                self.used.remove((&*scope, &*name))?;
            }
        }
        for _ in 0..MOST_TIDIED {
            let Some((key, _)) = self.finished.first()? else { break };
            let (at, id) = key.value();
            drop(key);
            let old = Timestamp::from_micros(at) + history <= now;
            if !old && redb::ReadableTableMetadata::len(&self.finished)? <= most {
                break;
            }
            self.finished.remove((at, id))?;
            self.forget(id)?;
        }
        Ok(())
    }

    /// Removes every row of a message, except quarantined ones.
    pub(super) fn forget(&mut self, id: u128) -> Result<(), redb::Error> {
        let kept = self.messages.remove(id)?.and_then(|row| Kept::decode(row.value()));
        if let Some(kept) = kept {
            self.expect_no_delay(&kept.envelope)?;
            if let Some(message_id) = kept.envelope.message_id {
                self.message_ids.remove((bare_message_id(&message_id), id))?;
            }
        }
        self.texts.remove(id)?;
        self.items.retain_in((id, 0)..=(id, u32::MAX), |_, _| false)?;
        self.attempts.retain_in((id, 0)..=(id, u32::MAX), |_, _| false)?;
        self.events.retain_in((id, 0)..=(id, u32::MAX), |_, _| false)?;
        Ok(())
    }
}

/// Numbers a transaction, so that the newest state of a damaged database can be found.
pub(super) fn number_commit(transaction: &WriteTransaction) -> Result<(), redb::Error> {
    let mut meta = transaction.open_table(META)?;
    let last = meta.get(COMMITS)?.map_or(0, |row| row.value());
    meta.insert(COMMITS, last.saturating_add(1))?;
    Ok(())
}

/// Whether a queue for `most` messages accepts no more: it has that many, or too many items. A message is
/// accepted as a whole, so the last one may exceed the bound of items.
pub(super) fn is_full(live: u64, open_items: u64, most: u64) -> bool {
    live >= most || open_items >= most.saturating_mul(ITEMS_PER_MESSAGE)
}

/// Cuts a text from outside to the length that is stored.
pub(super) fn bound(text: &mut String) {
    if text.len() > MOST_TEXT {
        text.truncate(text.floor_char_boundary(MOST_TEXT));
    }
}

/// The name of the file of a large text.
pub(super) fn file_name(id: MessageId) -> String {
    format!("{:032x}", id.0)
}

/// A `Message-ID` without its `<>`.
pub(super) fn bare_message_id(text: &str) -> &str {
    let text = text.trim();
    text.strip_prefix('<').and_then(|text| text.strip_suffix('>')).unwrap_or(text)
}

/// An item in the form that the scheduler uses.
pub(super) fn waiting(key: ItemKey, envelope: &Envelope, item: &Item) -> Waiting {
    Waiting {
        key,
        tenant: envelope.tenant.clone(),
        account: envelope.account.clone(),
        priority: envelope.priority,
        domain: item.domain.clone(),
        recipients: u32::try_from(item.waiting().len()).unwrap_or(u32::MAX),
        due: item.due,
        reports_on: None,
    }
}
