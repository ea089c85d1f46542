//! The writer thread, so that decisions do not wait for the disk unless that is configured.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use redb::{Table, WriteTransaction};
use tollgate_core::versioned_map::{Namespace, Scope, Value};
use tollgate_core::{Plan, Span, Timestamp};

use super::board::{Board, Job};
use super::codec;
use super::open::{self, Mount, OpenFile};
use super::tables::{self, ENTRIES, META, PlanNumbers, REFUNDED, STATES, Unreadable, Whole};
use super::{FileEvent, Listener};
use crate::memory::{Change, KeyHash, Mark, MemoryStore, Unsaved};

pub(super) struct Writer {
    pub(super) memory: Arc<MemoryStore>,
    pub(super) board: Arc<Board>,
    pub(super) path: PathBuf,
    pub(super) mount: Mount,
    /// `None` after a failure, until it is reopened: the database gives up at the first error.
    pub(super) open: Option<OpenFile>,
    pub(super) flush_interval: Span,
    pub(super) on_event: Listener,
    /// The horizon in the file.
    pub(super) horizon: Option<Timestamp>,
}

/// The changes that were taken from the store for saving, and go back if that fails.
#[derive(Default)]
struct Drained {
    keys: Vec<KeyHash>,
    /// The namespaces of changed records with their versions. They are marked as saved after the commit.
    records: Vec<(Namespace, u64)>,
    marks: Vec<Mark>,
}

impl Writer {
    /// Saves changes on request and at every interval, until it is stopped.
    pub(super) fn run(mut self) {
        let mut sweep_at = self.next_sweep();
        loop {
            let job = self.board.next(sweep_at);
            if job == Job::SweepAndSave {
                self.memory.sweep();
                sweep_at = self.next_sweep();
            }
            let start = self.memory.now();
            let saved = self.save(job == Job::Finish);
            let failed = saved.as_ref().err().cloned();
            let changes = self.board.finish(saved, self.memory.now().since(start));
            match failed {
                Some(reason) if changes => (self.on_event)(FileEvent::Failed { reason }),
                None if changes => (self.on_event)(FileEvent::Recovered),
                _ => {}
            }
            if job == Job::Finish {
                return;
            }
        }
    }

    #[expect(clippy::disallowed_methods, reason = "the pace of saving is real time, whatever the store's is")]
    fn next_sweep(&self) -> Instant {
        Instant::now() + Duration::from(self.flush_interval)
    }

    /// Saves changes in one transaction. Returns the number of keys. If it fails, nothing is lost: everything
    /// is marked as changed again.
    fn save(&mut self, last: bool) -> Result<u64, String> {
        let mut drained = Drained::default();
        let saved = catch_unwind(AssertUnwindSafe(|| self.commit(&mut drained, last)));
        let reason = match saved {
            Ok(Ok(())) => {
                for (space, version) in drained.records {
                    self.memory.record_maps().note_saved(space, version);
                }
                return Ok(drained.keys.len() as u64);
            }
            Ok(Err(Unreadable::Database(error))) => error.to_string(),
            Ok(Err(Unreadable::Damaged(reason))) => reason,
            Ok(Err(Unreadable::Foreign)) => "another database was put in its place".to_owned(),
            Err(_) => "the database failed".to_owned(),
        };
        self.open = None;
        self.horizon = None;
        self.memory.not_saved(drained.keys);
        self.memory.spent_not_saved(drained.marks);
        Err(reason)
    }

    fn commit(&mut self, drained: &mut Drained, last: bool) -> Result<(), Unreadable> {
        if self.open.is_none() {
            self.open = Some(open::reopen(&self.path, &self.mount)?);
        }
        let file = self.open.as_mut().expect("it was opened just now");
        let transaction = file.database.begin_write()?;
        let plan_numbers = &mut file.plan_numbers;
        save_states(&self.memory, &transaction, plan_numbers, drained)?;
        save_records(&self.memory, &transaction, drained)?;
        // Refund marks are saved last. A mark without its refund costs the client a little; a refund without
        // its mark could be repeated.
        let horizon = save_refunded(&self.memory, &transaction, self.horizon, drained)?;
        let forgotten = save_forgotten(&self.memory, &transaction)?;
        if last {
            tables::mark(&transaction, Whole::Yes, horizon)?;
        }
        plan_numbers.drop_unused(&transaction)?;
        let idle = drained.keys.is_empty() && drained.records.is_empty() && drained.marks.is_empty();
        if idle && !last && forgotten == 0 && self.horizon == Some(horizon) {
            transaction.abort()?;
        } else {
            file.commit(transaction)?;
        }
        self.horizon = Some(horizon);
        Ok(())
    }
}

fn save_states(
    memory: &MemoryStore,
    transaction: &WriteTransaction,
    plan_numbers: &mut PlanNumbers,
    drained: &mut Drained,
) -> Result<(), redb::Error> {
    let mut table = transaction.open_table(STATES)?;
    // By address, since comparing whole plans for every key would cost more than the rest.
    let mut numbers: HashMap<usize, (Arc<Plan>, u32)> = HashMap::new();
    memory.drain(|changes| {
        drained.keys.extend(changes.iter().map(|change| change.key));
        for change in changes {
            let number = match &change.now {
                None => None,
                Some((plan, _)) => {
                    let address = Arc::as_ptr(plan) as usize;
                    if !numbers.contains_key(&address) {
                        let number = plan_numbers.number(plan, transaction)?;
                        numbers.insert(address, (Arc::clone(plan), number));
                    }
                    numbers.get(&address).map(|(_, number)| *number)
                }
            };
            save_row(&mut table, plan_numbers, number, &change)?;
        }
        Ok(())
    })
}

fn save_row(
    table: &mut Table<'_, &[u8; 16], &[u8]>,
    plan_numbers: &mut PlanNumbers,
    number: Option<u32>,
    change: &Change,
) -> Result<(), redb::Error> {
    let key = tables::bytes_of(change.key);
    let old = match (number, &change.now) {
        (Some(number), Some((_, states))) => {
            let mut row = Vec::with_capacity(32);
            codec::encode(number, states, &mut row);
            plan_numbers.enter(number);
            table.insert(&key, row.as_slice())?
        }
        _ => table.remove(&key)?,
    };
    if let Some(old) = old {
        plan_numbers.leave(old.value());
    }
    Ok(())
}

fn save_records(
    memory: &MemoryStore,
    transaction: &WriteTransaction,
    drained: &mut Drained,
) -> Result<(), redb::Error> {
    for space in Namespace::ALL {
        let Some(Unsaved { version, scope, entries }) = memory.record_maps().unsaved(space) else { continue };
        let mut table = transaction.open_table(ENTRIES)?;
        if scope == Scope::All {
            table.retain(|(own, _), _| own != space.name())?;
        }
        for (name, value) in &entries {
            let key = (space.name(), name.as_str());
            match value {
                Some(Value { bytes, until }) => {
                    table.insert(key, (until.map(Timestamp::as_micros), bytes.as_slice()))?;
                }
                None => drop(table.remove(key)?),
            }
        }
        drained.records.push((space, version));
    }
    Ok(())
}

fn save_refunded(
    memory: &MemoryStore,
    transaction: &WriteTransaction,
    saved_horizon: Option<Timestamp>,
    drained: &mut Drained,
) -> Result<Timestamp, redb::Error> {
    let (marks, horizon) = memory.drain_spent();
    drained.marks = marks;
    let mut table = transaction.open_table(REFUNDED)?;
    for Mark { taken_at, ticket, rule } in &drained.marks {
        table.insert((taken_at.as_micros(), ticket.0, *rule), ())?;
    }
    if saved_horizon != Some(horizon) {
        table.retain_in(..=(horizon.as_micros(), u64::MAX, u64::MAX), |_, ()| false)?;
        transaction.open_table(META)?.insert("horizon", horizon.as_micros().to_le_bytes().as_slice())?;
    }
    Ok(horizon)
}

/// Saves until when single rules were forgotten. Returns their number.
fn save_forgotten(memory: &MemoryStore, transaction: &WriteTransaction) -> Result<usize, redb::Error> {
    let forgotten = memory.drain_forgotten();
    for (rule, at) in &forgotten {
        let name = format!("horizon/{rule}");
        transaction.open_table(META)?.insert(name.as_str(), at.as_micros().to_le_bytes().as_slice())?;
    }
    Ok(forgotten.len())
}
