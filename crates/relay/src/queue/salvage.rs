//! Makes a damaged queue anew from its readable rows. The damaged database is kept unchanged.
//!
//! A row with a right checksum is taken over, from the newest state of the database that has it. A row with a
//! wrong checksum is taken over unchanged if there is no better one: opening the queue moves it to the
//! quarantine. Recipients whose state is lost wait again and are marked: they may get a second copy, which is
//! better than none.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;

use redb::{Durability, ReadableTable, ReadableTableMetadata, TableHandle};
use tollgate_core::Timestamp;

use super::codec::{Row, Used, checksum};
use super::disk::Disk;
use super::item::{Event, EventKind, Item, ItemKey, Kept, OpenAttempt, Place};
use super::recovery::OpenError;
use super::tables::{
    ATTEMPTS, DELAYS, EVENTS, FORMAT, ITEMS, MESSAGES, META, TEXTS, Tables, USED, number_commit,
};
use super::wreck::{State, Widths, Wreck};
use super::writer::builder;
use crate::message::MessageId;

/// A damaged database that was set aside, and the loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAside {
    /// Its present path.
    pub to: PathBuf,
    /// The damage.
    pub reason: String,
    /// The number of its messages, including finished ones, that cannot be found; `None` if the database does
    /// not tell how many it had.
    pub lost: Option<u64>,
}

const MESSAGE: Widths = Widths { key: Some(16), value: None };
const PART: Widths = Widths { key: Some(20), value: None };
const DELAY: Widths = Widths { key: Some(24), value: Some(0) };
const NAMED: Widths = Widths { key: None, value: None };

/// Whether a row must be sound to be taken over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Sound,
    Any,
}

/// Makes the queue anew, and puts it in the place of the damaged one.
pub(super) fn salvage(disk: &dyn Disk, reason: String, now: Timestamp) -> Result<SetAside, OpenError> {
    let file = disk.raw()?.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    let wreck = Wreck::new(&*file)?;
    let states = wreck.states()?;
    let database = disk.rebuilt(&builder()).map_err(redb::Error::from)?;
    let mut transaction = database.begin_write().map_err(redb::Error::from)?;
    transaction.set_durability(Durability::Immediate).map_err(redb::Error::from)?;
    transaction.set_quick_repair(true);
    {
        let mut meta = transaction.open_table(META).map_err(redb::Error::from)?;
        meta.insert("format", FORMAT).map_err(redb::Error::from)?;
    }
    number_commit(&transaction)?;
    let mut tables = Tables::open(&transaction, 0, 0)?;
    for (age, state) in states.iter().enumerate() {
        take_messages(&wreck, state, &mut tables, Condition::Sound)?;
        take_parts(&wreck, state, &mut tables)?;
        if age == 0 {
            // Attempts and delays of an older state are settled since.
            take_expected(&wreck, state, &mut tables)?;
        }
    }
    for state in &states {
        take_messages(&wreck, state, &mut tables, Condition::Any)?;
    }
    let had = states.first().map(|state| state.rows_of(MESSAGES.name()));
    if had.is_some_and(|had| tables.messages.len().is_ok_and(|found| found < had)) {
        search_messages(&wreck, &mut tables)?;
    }
    search_texts(&wreck, &mut tables)?;
    let found = tables.messages.len().map_err(redb::Error::from)?;
    let lost = had.map(|had| had.saturating_sub(found));
    complete(&mut tables, now)?;
    drop(tables);
    transaction.commit().map_err(redb::Error::from)?;
    drop(database);
    Ok(SetAside { to: disk.replace()?, reason, lost })
}

/// Takes over messages and items that the new queue does not have yet.
fn take_messages(
    wreck: &Wreck<'_>,
    state: &State,
    tables: &mut Tables<'_>,
    condition: Condition,
) -> Result<(), OpenError> {
    wreck.rows(state, MESSAGES.name(), MESSAGE, &mut |key, row| {
        let Some(id) = message_of(key) else { return Ok(()) };
        let kept = Kept::decode(row).filter(|kept| kept.envelope.id.0 == id);
        if (kept.is_some() || condition == Condition::Any) && tables.messages.get(id)?.is_none() {
            tables.messages.insert(id, row)?;
            if let Some(kept) = kept {
                tables.index(&kept)?;
            }
        }
        Ok::<_, Failed>(())
    })?;
    wreck.rows(state, ITEMS.name(), PART, &mut |key, row| {
        let Some(key) = part_of(key) else { return Ok(()) };
        let wanted = Item::decode(row).is_some() || condition == Condition::Any;
        if wanted && tables.items.get(key)?.is_none() {
            tables.items.insert(key, row)?;
        }
        Ok::<_, Failed>(())
    })?;
    Ok(())
}

/// Takes over the data of messages: texts, timelines, and idempotency keys.
fn take_parts(wreck: &Wreck<'_>, state: &State, tables: &mut Tables<'_>) -> Result<(), OpenError> {
    wreck.rows(state, TEXTS.name(), MESSAGE, &mut |key, text| {
        let Some(id) = message_of(key) else { return Ok(()) };
        let kept = tables.message(MessageId(id))?.filter(|kept| kept.finished.is_none());
        let fits = kept.is_some_and(|kept| kept.checksum == checksum(text));
        if fits && tables.texts.get(id)?.is_none() {
            tables.texts.insert(id, text)?;
        }
        Ok::<_, Failed>(())
    })?;
    wreck.rows(state, EVENTS.name(), PART, &mut |key, row| {
        let Some(key) = part_of(key).filter(|_| Event::decode(row).is_some()) else { return Ok(()) };
        if tables.events.get(key)?.is_none() && tables.messages.get(key.0)?.is_some() {
            tables.events.insert(key, row)?;
        }
        Ok::<_, Failed>(())
    })?;
    wreck.rows(state, USED.name(), NAMED, &mut |key, row| {
        if let (Some((scope, name)), Some(used)) = (names_of(key), Used::decode(row)) {
            tables.remember_again(scope, name, &used)?;
        }
        Ok::<_, Failed>(())
    })?;
    Ok(())
}

/// Takes over planned work: open attempts and delay reports.
fn take_expected(wreck: &Wreck<'_>, state: &State, tables: &mut Tables<'_>) -> Result<(), OpenError> {
    wreck.rows(state, ATTEMPTS.name(), PART, &mut |key, row| {
        if let Some(key) = part_of(key).filter(|_| OpenAttempt::decode(row).is_some()) {
            tables.attempts.insert(key, row)?;
        }
        Ok::<_, Failed>(())
    })?;
    wreck.rows(state, DELAYS.name(), DELAY, &mut |key, _| {
        let (at, id) = key.split_at_checked(8).unwrap_or_default();
        if let (Ok(at), Some(id)) = (at.try_into(), message_of(id))
            && tables.messages.get(id)?.is_some()
        {
            tables.delays.insert((u64::from_le_bytes(at), id), ())?;
        }
        Ok::<_, Failed>(())
    })?;
    Ok(())
}

/// Searches pages that no tree names, because the page that named them is damaged, for messages. Most rows
/// there are old, so a message counts only if its items are known: an item is up to date, and the envelope
/// never changes.
fn search_messages(wreck: &Wreck<'_>, tables: &mut Tables<'_>) -> Result<(), OpenError> {
    wreck.all_rows(MESSAGE, &mut |key, row| {
        let Some(id) = message_of(key) else { return Ok(()) };
        let Some(kept) = Kept::decode(row).filter(|kept| kept.envelope.id.0 == id) else { return Ok(()) };
        let is_missing = tables.message(MessageId(id))?.is_none();
        if is_missing && !tables.items_of(MessageId(id))?.is_empty() {
            tables.messages.insert(id, row)?;
            tables.index(&kept)?;
        }
        Ok::<_, Failed>(())
    })?;
    Ok(())
}

/// Searches the same pages for the texts of messages. A text never changes, and its message has its checksum.
fn search_texts(wreck: &Wreck<'_>, tables: &mut Tables<'_>) -> Result<(), OpenError> {
    let mut missing = HashMap::new();
    for row in tables.messages.iter().map_err(redb::Error::from)? {
        let Some(kept) = Kept::decode(row.map_err(redb::Error::from)?.1.value()) else { continue };
        let id = kept.envelope.id.0;
        let waits = kept.finished.is_none() && kept.place == Place::Table;
        if waits && tables.texts.get(id).map_err(redb::Error::from)?.is_none() {
            missing.insert(id, kept.checksum);
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    wreck.all_rows(MESSAGE, &mut |key, text| {
        let Some(id) = message_of(key) else { return Ok(()) };
        if missing.get(&id).is_some_and(|sum| *sum == checksum(text)) {
            tables.texts.insert(id, text)?;
            missing.remove(&id);
        }
        Ok::<_, Failed>(())
    })?;
    Ok(())
}

/// Completes the messages: recipients whose state is lost wait again, and a message without waiting items is
/// finished.
fn complete(tables: &mut Tables<'_>, now: Timestamp) -> Result<(), OpenError> {
    let mut open = Vec::new();
    for row in tables.messages.iter().map_err(redb::Error::from)? {
        let kept = Kept::decode(row.map_err(redb::Error::from)?.1.value());
        open.extend(kept.filter(|kept| kept.finished.is_none()).map(|kept| kept.envelope.id));
    }
    for id in open {
        let Some(mut kept) = tables.message(id)? else { continue };
        kept.open_items = 0;
        for (number, fresh) in (0..).zip(Item::of(&kept.envelope)) {
            let key = ItemKey { message: id, number };
            if tables.items.get((id.0, number)).map_err(redb::Error::from)?.is_none() {
                wait_again(tables, key, fresh, now)?;
            }
            // Opening the queue makes a damaged item anew.
            kept.open_items += u32::from(tables.item(key)?.is_none_or(|item| !item.waiting().is_empty()));
        }
        if kept.open_items == 0 {
            // Its last item was settled, and its sender told, in one transaction. Only the message's row is
            // older than that.
            (kept.place, kept.finished) = (Place::Gone, Some(now));
            tables.texts.remove(id.0).map_err(redb::Error::from)?;
            tables.index(&kept)?;
        }
        tables.put_message(&kept)?;
    }
    Ok(())
}

/// Makes an item anew whose row is lost.
fn wait_again(tables: &mut Tables<'_>, key: ItemKey, fresh: Item, now: Timestamp) -> Result<(), redb::Error> {
    let event = Event {
        domain: fresh.domain.clone(),
        text: "the state of these recipients was lost; they are tried again, and may get a second copy"
            .to_owned(),
        recipients: u32::try_from(fresh.recipients.len()).unwrap_or(u32::MAX),
        ..Event::new(now, EventKind::Unknown)
    };
    tables.put_item(key, &Item { due: now, possible_duplicate: true, ..fresh })?;
    tables.tell(key.message, event)
}

fn message_of(key: &[u8]) -> Option<u128> {
    key.try_into().ok().map(u128::from_le_bytes)
}

fn part_of(key: &[u8]) -> Option<(u128, u32)> {
    let (id, number) = key.split_at_checked(16)?;
    Some((message_of(id)?, u32::from_le_bytes(number.try_into().ok()?)))
}

/// Two names: the length of the first one, then both.
fn names_of(key: &[u8]) -> Option<(&str, &str)> {
    const SHORT: u8 = 254;
    let (first, rest) = key.split_first()?;
    let (len, rest) = match *first {
        len if len < SHORT => (usize::from(len), rest),
        SHORT => {
            let (len, rest) = rest.split_first_chunk()?;
            (usize::from(u16::from_le_bytes(*len)), rest)
        }
        _ => {
            let (len, rest) = rest.split_first_chunk()?;
            (usize::try_from(u32::from_le_bytes(*len)).ok()?, rest)
        }
    };
    let (scope, name) = rest.split_at_checked(len)?;
    Some((std::str::from_utf8(scope).ok()?, std::str::from_utf8(name).ok()?))
}

/// The reason why a row was not taken over.
enum Failed {
    Database(redb::Error),
    Io(io::Error),
}

impl<E: Into<redb::Error>> From<E> for Failed {
    fn from(error: E) -> Self {
        match error.into() {
            redb::Error::Io(error) => Self::Io(error),
            error => Self::Database(error),
        }
    }
}

impl From<Failed> for OpenError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Database(error) => Self::Database(error),
            Failed::Io(error) => Self::Io(error),
        }
    }
}
