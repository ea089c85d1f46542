//! Opens a queue: finds damage, checks the format, and handles attempts that a crash left open.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use redb::{Database, Durability, ReadableTable, TableHandle};
use tokio::sync::mpsc;
use tollgate_core::Timestamp;

use super::codec::Row;
use super::disk::Disk;
use super::item::{Event, EventKind, Item, ItemKey, Kept, OpenAttempt, Place};
use super::overlay::Overlay;
use super::salvage::{SetAside, salvage};
use super::settle::Reporting;
use super::tables::{FORMAT, META, Tables, Waiting, file_name, number_commit, waiting};
use super::wreck::{MAGIC, Wreck};
use super::writer::builder;
use crate::message::MessageId;

/// The state of a queue when it was opened.
#[derive(Debug)]
pub struct Opened {
    /// All waiting items.
    pub waiting: Vec<Waiting>,
    /// Receives the items that arrive later.
    pub arrived: mpsc::UnboundedReceiver<Waiting>,
    /// The number of waiting messages.
    pub messages: u64,
    /// Items whose attempt was open when the last process ended: their recipients may get a second copy.
    pub possible_duplicates: Vec<ItemKey>,
    /// Damaged rows, which were moved to the quarantine.
    pub damaged: Vec<Damage>,
    /// The damaged database that was set aside, if any. The queue was made anew from its readable rows.
    pub set_aside: Option<SetAside>,
}

/// A damaged entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The table that it was in.
    pub table: &'static str,
    /// The message that it belongs to.
    pub message: MessageId,
    /// The number of the item, if it is one.
    pub item: u32,
}

/// The reason why a queue cannot be opened. Nothing was changed.
#[derive(Debug)]
pub enum OpenError {
    /// It was written by another version.
    Format {
        /// The version of its format.
        found: u64,
    },
    /// It is a database of another program.
    Foreign,
    /// The database failed.
    Database(redb::Error),
    /// The error of the system.
    Io(io::Error),
}

#[derive(Default)]
pub(super) struct Found {
    pub(super) live: u64,
    pub(super) waiting: Vec<Waiting>,
    pub(super) possible_duplicates: Vec<ItemKey>,
    pub(super) damaged: Vec<Damage>,
    pub(super) set_aside: Option<SetAside>,
    /// The number of texts that were moved away because no row names them.
    pub(super) unclaimed: u64,
    /// Live messages whose text is a file, and finished ones whose text may be left.
    files: HashSet<String>,
    finished_files: HashSet<String>,
}

/// A fault that opening a database found.
enum Trouble {
    /// It is damaged.
    Damage(String),
    /// Another fault, for example of the disk.
    Failed(OpenError),
}

/// Opens the database and repairs it. A damaged one is made anew from its readable rows.
pub(super) fn recover(
    disk: &dyn Disk,
    now: Timestamp,
    hostname: &str,
) -> Result<(Database, Found), OpenError> {
    let damage = match examine(disk).and_then(|()| put_in_order(disk, now, hostname)) {
        Ok(opened) => return Ok(opened),
        Err(Trouble::Failed(error)) => return Err(error),
        Err(Trouble::Damage(reason)) => reason,
    };
    let set_aside = salvage(disk, damage, now)?;
    match put_in_order(disk, now, hostname) {
        Ok((database, found)) => Ok((database, Found { set_aside: Some(set_aside), ..found })),
        Err(Trouble::Failed(error)) => Err(error),
        // This database is new, so the error is not damage of an old one.
        Err(Trouble::Damage(reason)) => Err(OpenError::Io(io::Error::other(reason))),
    }
}

/// Compares the whole database with its checksums. redb reads little of a file that was closed in order and
/// trusts the rest: it panics, or returns wrong data, when it reads a damaged page.
fn examine(disk: &dyn Disk) -> Result<(), Trouble> {
    let failed = |error: io::Error| Trouble::Failed(OpenError::Io(error));
    let Some(file) = disk.raw().map_err(failed)? else { return Ok(()) };
    let mut beginning = [0; MAGIC.len()];
    let read = file.read_from(0, &mut beginning).map_err(failed)?;
    if beginning[..read] != *MAGIC {
        // Either the file was never a queue, or its first page is damaged.
        let states = Wreck::new(&*file).and_then(|wreck| wreck.states()).map_err(failed)?;
        let damage = Trouble::Damage("its header is damaged".to_owned());
        return if states.is_empty() { Ok(()) } else { Err(damage) };
    }
    let overlay = Overlay::over(file).map_err(failed)?;
    guarded(|| {
        let mut database = builder().create_with_backend(overlay).map_err(redb::Error::from)?;
        match database.check_integrity().map_err(redb::Error::from)? {
            true => Ok(()),
            false => Err(Trouble::Damage("its checksums are wrong".to_owned())),
        }
    })
}

fn put_in_order(disk: &dyn Disk, now: Timestamp, hostname: &str) -> Result<(Database, Found), Trouble> {
    guarded(|| {
        let database = disk.database(&builder()).map_err(redb::Error::from)?;
        let found = read(&database, disk, now, hostname)?;
        Ok((database, found))
    })
}

/// Runs a call of redb, and converts a panic inside it to damage.
fn guarded<T>(act: impl FnOnce() -> Result<T, Trouble>) -> Result<T, Trouble> {
    let damage = |_| Err(Trouble::Damage("the database failed on it".to_owned()));
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(damage)
}

fn read(database: &Database, disk: &dyn Disk, now: Timestamp, hostname: &str) -> Result<Found, OpenError> {
    let mut transaction = database.begin_write().map_err(redb::Error::from)?;
    transaction.set_durability(Durability::Immediate).map_err(redb::Error::from)?;
    transaction.set_quick_repair(true);
    let is_new = check_format(&transaction)?;
    number_commit(&transaction)?;
    let mut found = Found::default();
    let mut tables = Tables::open(&transaction, 0, 0)?;
    read_messages(&mut tables, disk, &mut found)?;
    reopen_attempts(&mut tables, now, &mut found)?;
    read_items(&mut tables, now, &Reporting { disk, hostname }, &mut found)?;
    let (live, remove) = (tables.live, std::mem::take(&mut tables.remove));
    let arrived = std::mem::take(&mut tables.arrived);
    drop(tables);
    transaction.commit().map_err(redb::Error::from)?;
    found.live = live;
    found.waiting.extend(arrived);
    found.finished_files.extend(remove);
    sort_texts(disk, is_new, &mut found)?;
    Ok(found)
}

/// Removes the texts of finished messages, and moves texts that no row names to the quarantine. These were
/// written shortly before a crash and never acknowledged, or the database lost their rows: a text may be all
/// that is left of a message.
fn sort_texts(disk: &dyn Disk, is_new: bool, found: &mut Found) -> io::Result<()> {
    for name in disk.names()? {
        if found.finished_files.contains(&name) {
            disk.remove(&name);
        } else if !found.files.contains(&name) {
            disk.quarantine(&name)?;
            found.unclaimed += 1;
        }
    }
    let texts = found.unclaimed;
    if is_new && texts > 0 {
        tracing::error!(
            component = "relay",
            texts,
            "the queue's database was missing or empty: mail that waited in it is not sent; its texts are in quarantine"
        );
    } else if texts > 0 {
        tracing::warn!(component = "relay", texts, "texts that belong to no message were put in quarantine");
    }
    Ok(())
}

/// Checks the version of the format. Returns whether the database is new.
fn check_format(transaction: &redb::WriteTransaction) -> Result<bool, OpenError> {
    let tables: Vec<_> = transaction.list_tables().map_err(redb::Error::from)?.collect();
    if !tables.is_empty() && !tables.iter().any(|table| table.name() == META.name()) {
        return Err(OpenError::Foreign);
    }
    let mut meta = transaction.open_table(META).map_err(redb::Error::from)?;
    let found = meta.get("format").map_err(redb::Error::from)?.map(|row| row.value());
    match found {
        Some(FORMAT) => Ok(false),
        Some(found) => Err(OpenError::Format { found }),
        None => {
            meta.insert("format", FORMAT).map_err(redb::Error::from)?;
            Ok(true)
        }
    }
}

/// Examines every message. A damaged one, or one without its text, goes to the quarantine.
fn read_messages(tables: &mut Tables<'_>, disk: &dyn Disk, found: &mut Found) -> Result<(), OpenError> {
    let names: HashSet<String> = disk.names()?.into_iter().collect();
    let mut damaged = Vec::new();
    for row in tables.messages.iter().map_err(redb::Error::from)? {
        let (id, row) = row.map_err(redb::Error::from)?;
        let id = id.value();
        let Some(kept) = Kept::decode(row.value()) else {
            damaged.push(id);
            continue;
        };
        let name = file_name(MessageId(id));
        if kept.finished.is_some() {
            found.finished_files.insert(name);
            continue;
        }
        let there = match kept.place {
            Place::Table => tables.texts.get(id).map_err(redb::Error::from)?.is_some(),
            Place::File => names.contains(&name),
            Place::Gone => false,
        };
        if !there {
            damaged.push(id);
            continue;
        }
        if kept.place == Place::File {
            found.files.insert(name);
        }
        tables.live += 1;
    }
    for id in damaged {
        tables.quarantine("messages", id, 0)?;
        found.damaged.push(Damage { table: "messages", message: MessageId(id), item: 0 });
    }
    Ok(())
}

/// Marks items whose attempt was open: the next hop may have taken the message.
fn reopen_attempts(tables: &mut Tables<'_>, now: Timestamp, found: &mut Found) -> Result<(), OpenError> {
    let mut open = Vec::new();
    for row in tables.attempts.iter().map_err(redb::Error::from)? {
        let (key, row) = row.map_err(redb::Error::from)?;
        let (id, number) = key.value();
        open.push((ItemKey { message: MessageId(id), number }, OpenAttempt::decode(row.value())));
    }
    for (key, attempt) in open {
        tables.attempts.remove((key.message.0, key.number)).map_err(redb::Error::from)?;
        let Some(mut item) = tables.item(key)?.filter(|item| !item.waiting().is_empty()) else { continue };
        item.possible_duplicate = true;
        item.attempts += 1;
        item.failures += 1;
        item.due = item.due.min(now);
        tables.put_item(key, &item)?;
        let event = Event {
            domain: item.domain.clone(),
            account: attempt.as_ref().and_then(|attempt| attempt.account.clone()),
            text: "the relay stopped during this attempt".to_owned(),
            recipients: attempt.map_or(0, |attempt| u32::try_from(attempt.recipients.len()).unwrap_or(0)),
            ..Event::new(now, EventKind::Unknown)
        };
        tables.tell(key.message, event)?;
        found.possible_duplicates.push(key);
    }
    Ok(())
}

/// Examines every item, and collects those that wait.
fn read_items(
    tables: &mut Tables<'_>,
    now: Timestamp,
    reporting: &Reporting<'_>,
    found: &mut Found,
) -> Result<(), OpenError> {
    let mut damaged = Vec::new();
    let mut current: Option<(u128, Option<Kept>)> = None;
    for row in tables.items.iter().map_err(redb::Error::from)? {
        let (key, row) = row.map_err(redb::Error::from)?;
        let (id, number) = key.value();
        let key = ItemKey { message: MessageId(id), number };
        if current.as_ref().is_none_or(|(known, _)| *known != id) {
            current = Some((id, tables.message(key.message)?));
        }
        let kept = current.as_ref().and_then(|(_, kept)| kept.as_ref());
        let (Some(kept), Some(item)) = (kept, Item::decode(row.value())) else {
            damaged.push(key);
            continue;
        };
        if kept.finished.is_none() && !item.waiting().is_empty() {
            found.waiting.push(waiting(key, &kept.envelope, &item));
        }
    }
    for key in damaged {
        tables.quarantine("items", key.message.0, key.number)?;
        found.damaged.push(Damage { table: "items", message: key.message, item: key.number });
        if let Some(kept) = tables.message(key.message)?.filter(|kept| kept.finished.is_none()) {
            rebuild(tables, key, kept, now, reporting, found)?;
        }
    }
    Ok(())
}

/// Makes a damaged item anew from the envelope. It is not known which of its recipients got the message, so all
/// of them wait, and may get a second copy.
fn rebuild(
    tables: &mut Tables<'_>,
    key: ItemKey,
    mut kept: Kept,
    now: Timestamp,
    reporting: &Reporting<'_>,
    found: &mut Found,
) -> Result<(), OpenError> {
    let Some(mut item) = Item::of(&kept.envelope).into_iter().nth(key.number as usize) else {
        // The envelope has no item of this number.
        return Ok(tables.close_item(&mut kept, now, reporting)?);
    };
    (item.due, item.possible_duplicate) = (now, true);
    tables.put_item(key, &item)?;
    let event = Event {
        domain: item.domain.clone(),
        text: "the state of these recipients was damaged; they are tried again, and may get a second copy"
            .to_owned(),
        recipients: u32::try_from(item.recipients.len()).unwrap_or(u32::MAX),
        ..Event::new(now, EventKind::Unknown)
    };
    tables.tell(key.message, event)?;
    found.possible_duplicates.push(key);
    found.waiting.push(waiting(key, &kept.envelope, &item));
    Ok(())
}

impl From<OpenError> for Trouble {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Database(error) => error.into(),
            error => Self::Failed(error),
        }
    }
}

impl From<redb::Error> for Trouble {
    fn from(error: redb::Error) -> Self {
        let kind = match &error {
            redb::Error::Corrupted(_) => return Self::Damage(error.to_string()),
            redb::Error::Io(error) => error.kind(),
            _ => return Self::Failed(OpenError::Database(error)),
        };
        match kind {
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput => {
                Self::Damage(error.to_string())
            }
            _ => Self::Failed(OpenError::Database(error)),
        }
    }
}

impl From<redb::Error> for OpenError {
    fn from(error: redb::Error) -> Self {
        Self::Database(error)
    }
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Format { found } => write!(
                f,
                "the queue has format {found}, and this version writes format {FORMAT}: use the version that wrote \
                 it, or another directory"
            ),
            Self::Foreign => f.write_str(
                "the queue's database is one of another program: move it away, or name another directory",
            ),
            Self::Database(error) => write!(f, "cannot open the queue: {error}"),
            Self::Io(error) => write!(f, "cannot open the queue: {error}"),
        }
    }
}

impl std::error::Error for OpenError {}
