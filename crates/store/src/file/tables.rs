//! The tables of the file, and how they are read and written as a whole.
//!
//! | table | key | value |
//! | --- | --- | --- |
//! | `meta` | `mark`, `format`, `commits`, `seeds`, `secret`, `whole`, `horizon`, `horizon/` and a rule | bytes |
//! | `plans` | number | rule, and its limits as they are written, one a line |
//! | `states` | a key's hash, shard first | number of its plan and its states |
//! | `given` | when it was taken, its ticket, and a number for its rule | nothing |
//! | `entries` | namespace and name | when the entry ends, and its bytes |
//!
//! Format 2 had all records in the table `records`, by name. The store moves them when it opens the file.

use std::sync::Arc;

use hashbrown::HashMap;
use redb::{
    Database, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition, TableError, WriteTransaction,
};
use tollgate_core::grammar::GrammarError;
use tollgate_core::limit::State;
use tollgate_core::versioned_map::{Namespace, Value, moved};
use tollgate_core::{Clock, Plan, Ticket, Timestamp};

use super::codec::{self, Garbled};
use super::seal::MARK;
use crate::memory::{KeyHash, Mark, MemoryStore, Saving, random_bytes, random_seeds};

pub(super) const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");
pub(super) const PLANS: TableDefinition<u32, (&str, &str)> = TableDefinition::new("plans");
pub(super) const STATES: TableDefinition<&[u8; 16], &[u8]> = TableDefinition::new("states");
pub(super) const REFUNDED: TableDefinition<(u64, u64, u64), ()> = TableDefinition::new("given");
pub(super) const ENTRIES: TableDefinition<(&str, &str), EntryRow> = TableDefinition::new("entries");
/// The records of format 2.
const OLD_RECORDS: TableDefinition<&str, &[u8]> = TableDefinition::new("records");

/// When an entry expires, in microseconds, and its bytes.
type EntryRow = (Option<u64>, &'static [u8]);

const FORMAT: u32 = 3;
const OLD_FORMAT: u32 = 2;

/// Why a file cannot be read.
#[derive(Debug)]
pub(super) enum Unreadable {
    /// Its content is not valid.
    Damaged(String),
    /// It is a sound database of another program.
    Foreign,
    /// The database failed.
    Database(redb::Error),
}

/// The plans in the file: their numbers, and how many rows use each.
#[derive(Debug, Default)]
pub(super) struct PlanNumbers {
    /// By their text: plans with the same text are one in the file.
    numbers: HashMap<Written, u32>,
    uses: HashMap<u32, u64>,
    next: u32,
}

/// A plan as text: its rule, and its limits, one a line.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Written {
    rule: String,
    limits: String,
}

impl Written {
    fn of(plan: &Plan) -> Self {
        let limits: Vec<String> = plan.limits().iter().map(ToString::to_string).collect();
        Self { rule: plan.rule().to_string(), limits: limits.join("\n") }
    }

    fn read(&self) -> Result<Plan, Unreadable> {
        let garbled = |error: String| Unreadable::Damaged(format!("a plan is garbled: {error}"));
        let limits: Result<Vec<_>, _> = self.limits.lines().map(str::parse).collect();
        let limits = limits.map_err(|error: GrammarError| garbled(error.to_string()))?;
        Plan::new(self.rule.as_str().into(), limits).map_err(|error| garbled(error.to_string()))
    }
}

impl<E: Into<redb::Error>> From<E> for Unreadable {
    fn from(error: E) -> Self {
        Self::Database(error.into())
    }
}

fn damaged(what: &str) -> Unreadable {
    Unreadable::Damaged(what.to_owned())
}

fn garbled(_: Garbled) -> Unreadable {
    damaged("a row is garbled")
}

/// Writes the initial content of a file.
pub(super) fn found(database: &Database) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut meta = transaction.open_table(META)?;
        meta.insert("mark", MARK.as_slice())?;
        meta.insert("format", FORMAT.to_le_bytes().as_slice())?;
        meta.insert("seeds", random_seeds().map(u64::to_le_bytes).concat().as_slice())?;
        meta.insert("secret", random_bytes().as_slice())?;
        meta.insert("whole", [1].as_slice())?;
        meta.insert("horizon", 0_u64.to_le_bytes().as_slice())?;
        transaction.open_table(PLANS)?;
        transaction.open_table(STATES)?;
        transaction.open_table(REFUNDED)?;
        transaction.open_table(ENTRIES)?;
    }
    transaction.commit()?;
    Ok(())
}

/// Whether every returned change is in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whole {
    /// It is: the file was closed, or no call returns before its change is saved.
    Yes,
    /// Only once the file is closed.
    No,
}

/// Writes whether the file is complete, and the time until which nothing can be refunded.
pub(super) fn mark(
    transaction: &WriteTransaction,
    whole: Whole,
    horizon: Timestamp,
) -> Result<(), redb::Error> {
    let mut meta = transaction.open_table(META)?;
    meta.insert("whole", [u8::from(whole == Whole::Yes)].as_slice())?;
    meta.insert("horizon", horizon.as_micros().to_le_bytes().as_slice())?;
    Ok(())
}

/// Numbers the commit of a transaction.
pub(super) fn number(transaction: &WriteTransaction, commit: u64) -> Result<(), redb::Error> {
    transaction.open_table(META)?.insert("commits", commit.to_le_bytes().as_slice())?;
    Ok(())
}

/// The number of the newest commit in the tables.
pub(super) fn commits(database: &Database) -> Result<u64, Unreadable> {
    let transaction = database.begin_read()?;
    let meta = match transaction.open_table(META) {
        Ok(meta) => meta,
        Err(
            TableError::TableDoesNotExist(_)
            | TableError::TableTypeMismatch { .. }
            | TableError::TableIsMultimap(_),
        ) => return Err(Unreadable::Foreign),
        Err(error) => return Err(error.into()),
    };
    if meta.get("format")?.is_none() {
        return Err(Unreadable::Foreign);
    }
    match meta.get("commits")? {
        Some(number) => Ok(u64::from_le_bytes(number.value().try_into().map_err(|_| garbled(Garbled))?)),
        None => Ok(0),
    }
}

/// Reads everything into a store in memory, from a file that has lost this many commits.
pub(super) fn load(
    database: &Database,
    clock: Arc<dyn Clock>,
    max_keys: usize,
    lost_commits: u64,
) -> Result<(MemoryStore, PlanNumbers), Unreadable> {
    let transaction = database.begin_read()?;
    let meta = transaction.open_table(META)?;
    check_format(&meta)?;
    let seeds: [u8; 16] = fixed(&meta, "seeds")?;
    let mut horizon = Timestamp::from_micros(u64::from_le_bytes(fixed(&meta, "horizon")?));
    if fixed(&meta, "whole")? != [1] || lost_commits > 0 {
        // The process ended without saving, so the last takes are lost, and nothing tells which. Nothing
        // taken until now can be refunded; otherwise a refund would reduce other counts.
        horizon = horizon.max(clock.now());
    }
    let mut memory =
        MemoryStore::with(clock, max_keys, halves_of(&seeds), fixed(&meta, "secret")?, Saving::On);
    let mut marks = Vec::new();
    for row in transaction.open_table(REFUNDED)?.iter()? {
        let (taken_at, ticket, rule) = row?.0.value();
        marks.push(Mark { taken_at: Timestamp::from_micros(taken_at), ticket: Ticket(ticket), rule });
    }
    memory.restore_spent(horizon, marks);
    for row in meta.range("horizon/".."horizon0")? {
        let (name, forgotten) = row?;
        let forgotten = forgotten.value().try_into().map_err(|_| damaged("a moment is garbled"))?;
        let rule = &name.value()["horizon/".len()..];
        memory.restore_forgotten(rule, Timestamp::from_micros(u64::from_le_bytes(forgotten)));
    }
    load_records(&transaction, &memory)?;
    let plan_numbers = load_states(&transaction, |key, plan, states| memory.restore(key, plan, states))?;
    memory.trim();
    Ok((memory, plan_numbers))
}

/// The number of keys in a file, if every one can be read.
pub(super) fn count(database: &Database) -> Result<u64, Unreadable> {
    let transaction = database.begin_read()?;
    let meta = transaction.open_table(META)?;
    check_format(&meta)?;
    let (_, _, _): ([u8; 16], [u8; 8], [u8; 32]) =
        (fixed(&meta, "seeds")?, fixed(&meta, "horizon")?, fixed(&meta, "secret")?);
    let mut keys = 0;
    load_states(&transaction, |_, _, _| keys += 1)?;
    Ok(keys)
}

fn check_format(meta: &impl ReadableTable<&'static str, &'static [u8]>) -> Result<(), Unreadable> {
    match u32::from_le_bytes(fixed(meta, "format")?) {
        FORMAT | OLD_FORMAT => Ok(()),
        found => Err(Unreadable::Damaged(format!("its format is {found}, and {FORMAT} is what can be read"))),
    }
}

/// Reads the records of every namespace.
fn load_records(transaction: &ReadTransaction, memory: &MemoryStore) -> Result<(), Unreadable> {
    match transaction.open_table(OLD_RECORDS) {
        Err(TableError::TableDoesNotExist(_)) => {}
        Err(error) => return Err(error.into()),
        Ok(old) => {
            for row in old.iter()? {
                let (name, bytes) = row?;
                let (space, name, value) = moved(name.value(), bytes.value());
                memory.record_maps().restore(space, &name, value);
            }
            return Ok(());
        }
    }
    for row in transaction.open_table(ENTRIES)?.iter()? {
        let (key, value) = row?;
        let ((space, name), (until, bytes)) = (key.value(), value.value());
        let space = Namespace::ALL.into_iter().find(|own| own.name() == space);
        let space = space.ok_or_else(|| damaged("a record is in no namespace"))?;
        let value = Value { bytes: bytes.to_vec(), until: until.map(Timestamp::from_micros) };
        memory.record_maps().restore(space, name, value);
    }
    Ok(())
}

/// Converts a file of the old format.
pub(super) fn upgrade(transaction: &WriteTransaction) -> Result<(), redb::Error> {
    let old = {
        let old = transaction.open_table(OLD_RECORDS)?;
        let rows = old.iter()?.map(|row| row.map(|(name, value)| moved(name.value(), value.value())));
        rows.collect::<Result<Vec<_>, _>>()?
    };
    let mut entries = transaction.open_table(ENTRIES)?;
    for (space, name, value) in &old {
        let until = value.until.map(Timestamp::as_micros);
        entries.insert((space.name(), name.as_str()), (until, value.bytes.as_slice()))?;
    }
    transaction.delete_table(OLD_RECORDS)?;
    transaction.open_table(META)?.insert("format", FORMAT.to_le_bytes().as_slice())?;
    Ok(())
}

/// Reads the states of all keys.
fn load_states(
    transaction: &ReadTransaction,
    mut restore: impl FnMut(KeyHash, &Arc<Plan>, &[State]),
) -> Result<PlanNumbers, Unreadable> {
    let (mut plan_numbers, plans) = PlanNumbers::read(transaction)?;
    let mut states = Vec::new();
    let mut last: Option<KeyHash> = None;
    for row in transaction.open_table(STATES)?.iter()? {
        let (key, row) = row?;
        let (key, row) = (hash_of(key.value()), row.value());
        let number = codec::plan_of(row).map_err(garbled)?;
        let plan = plans.get(&number).ok_or_else(|| damaged("a row names a plan that is not there"))?;
        codec::decode(row, plan, &mut states).map_err(garbled)?;
        if last.replace(key) == Some(key) {
            return Err(damaged("a key is there twice"));
        }
        *plan_numbers.uses.entry(number).or_default() += 1;
        restore(key, plan, &states);
    }
    Ok(plan_numbers)
}

fn fixed<const N: usize>(
    meta: &impl ReadableTable<&'static str, &'static [u8]>,
    name: &str,
) -> Result<[u8; N], Unreadable> {
    let value = meta.get(name)?.ok_or_else(|| damaged("something every file has is missing"))?;
    value.value().try_into().map_err(|_| damaged("something every file has is garbled"))
}

fn hash_of(bytes: &[u8; 16]) -> KeyHash {
    let [one, other] = halves_of(bytes);
    KeyHash(one, other)
}

/// The two numbers that sixteen bytes hold.
fn halves_of(bytes: &[u8; 16]) -> [u64; 2] {
    let (low, high) = bytes.split_at(8);
    [low, high].map(|half| u64::from_le_bytes(half.try_into().expect("half of sixteen bytes")))
}

/// A key's hash in the file. The byte with its shard comes first, so that rows that are written together are
/// adjacent.
pub(super) fn bytes_of(key: KeyHash) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&key.0.to_le_bytes());
    bytes[8..].copy_from_slice(&key.1.to_le_bytes());
    bytes
}

impl PlanNumbers {
    /// Reads the plans and their numbers.
    fn read(transaction: &ReadTransaction) -> Result<(Self, HashMap<u32, Arc<Plan>>), Unreadable> {
        let mut plan_numbers = Self::default();
        let mut plans = HashMap::new();
        for row in transaction.open_table(PLANS)?.iter()? {
            let (number, plan) = row?;
            let (number, (rule, limits)) = (number.value(), plan.value());
            let written = Written { rule: rule.to_owned(), limits: limits.to_owned() };
            plans.insert(number, Arc::new(written.read()?));
            plan_numbers.numbers.insert(written, number);
            plan_numbers.uses.insert(number, 0);
            plan_numbers.next = plan_numbers.next.max(number.wrapping_add(1));
        }
        Ok((plan_numbers, plans))
    }

    /// Reads the plans of an existing file and counts their uses.
    pub(super) fn recount(database: &Database) -> Result<Self, Unreadable> {
        let transaction = database.begin_read()?;
        let (mut plan_numbers, _) = Self::read(&transaction)?;
        for row in transaction.open_table(STATES)?.iter()? {
            let number = codec::plan_of(row?.1.value()).map_err(garbled)?;
            *plan_numbers.uses.entry(number).or_default() += 1;
        }
        Ok(plan_numbers)
    }

    /// The number of a plan. A new plan is written first.
    pub(super) fn number(
        &mut self,
        plan: &Arc<Plan>,
        transaction: &WriteTransaction,
    ) -> Result<u32, redb::Error> {
        let written = Written::of(plan);
        if let Some(number) = self.numbers.get(&written) {
            return Ok(*number);
        }
        let mut number = self.next;
        while self.uses.contains_key(&number) {
            number = number.wrapping_add(1);
        }
        self.next = number.wrapping_add(1);
        transaction.open_table(PLANS)?.insert(number, (&*written.rule, &*written.limits))?;
        self.numbers.insert(written, number);
        self.uses.insert(number, 0);
        Ok(number)
    }

    /// Counts one more row of this plan.
    pub(super) fn enter(&mut self, number: u32) {
        *self.uses.entry(number).or_default() += 1;
    }

    /// Counts one row less of its plan.
    pub(super) fn leave(&mut self, row: &[u8]) {
        if let Ok(number) = codec::plan_of(row)
            && let Some(uses) = self.uses.get_mut(&number)
        {
            *uses = uses.saturating_sub(1);
        }
    }

    /// Removes the plans that no row uses.
    pub(super) fn drop_unused(&mut self, transaction: &WriteTransaction) -> Result<(), redb::Error> {
        let unused: Vec<u32> =
            self.uses.iter().filter(|(_, uses)| **uses == 0).map(|(number, _)| *number).collect();
        if unused.is_empty() {
            return Ok(());
        }
        let mut plans = transaction.open_table(PLANS)?;
        for number in unused {
            plans.remove(number)?;
            self.uses.remove(&number);
            self.numbers.retain(|_, known| *known != number);
        }
        Ok(())
    }
}
