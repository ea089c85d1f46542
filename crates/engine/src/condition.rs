//! The condition of a shared store that answers: what it cannot be relied on for, and whether its records are
//! there and readable. Every change is logged.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tollgate_core::store::{Impairment, ImpairmentKind};
use tollgate_core::{Reason, Span, StoreError, Timestamp};

/// The condition of a store that answers.
#[derive(Default)]
pub(crate) struct Condition {
    impairments: Mutex<Vec<Impairment>>,
    /// Whether a call was refused for a reason that a probe would find.
    suspected: AtomicBool,
    probed_at: Mutex<Timestamp>,
    damaged: Mutex<Vec<&'static str>>,
    /// The number of times that records were found missing, and that they were found damaged.
    pub(crate) records_missing: Counter,
    pub(crate) records_damaged: Counter,
}

/// The interval at which an impaired store is probed.
const PROBE_EVERY: Span = Span::from_secs(1);

impl Condition {
    /// Records an error that concerns one call, so that the next probe comes soon.
    pub(crate) fn note<T>(&self, answer: &Result<T, StoreError>) {
        let concerns_call = matches!(
            answer,
            Err(StoreError::OutOfMemory { .. }
                | StoreError::Forbidden { .. }
                | StoreError::PartUnavailable { .. })
        );
        if concerns_call {
            self.suspected.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the store should be probed now, though it answers. After `true`, returns `false` for a while.
    pub(crate) fn wants_probe(&self, now: Timestamp) -> bool {
        if self.impairments.lock().iter().all(|one| one.kind == ImpairmentKind::Evicting) {
            return self.suspected.swap(false, Ordering::Relaxed);
        }
        let mut probed_at = self.probed_at.lock();
        let due = *probed_at + PROBE_EVERY <= now;
        if due {
            *probed_at = now;
        }
        due
    }

    /// Stores what a probe found. It replaces what the previous probe found.
    pub(crate) fn learn(&self, found: Vec<Impairment>) {
        let mut known = self.impairments.lock();
        found.iter().filter(|new| !known.contains(new)).for_each(tell_begin);
        for old in known.iter() {
            if !found.iter().any(|new| new.kind == old.kind) {
                tell_end(old.kind);
            }
        }
        *known = found;
    }

    /// Why some decisions are made without the store though it answers, and the details.
    pub(crate) fn impaired(&self) -> Option<(Reason, String)> {
        let impairments = self.impairments.lock();
        impairments.iter().find_map(|one| Some((one.kind.reason()?, one.detail.clone())))
    }

    /// Records the result of reading one kind of records.
    pub(crate) fn note_records<T>(&self, which: &'static str, answer: &Result<T, StoreError>) {
        let mut damaged = self.damaged.lock();
        match answer {
            Err(error @ StoreError::Damaged { .. }) => {
                if !damaged.contains(&which) {
                    damaged.push(which);
                    self.records_damaged.inc();
                    tracing::error!(
                        component = "store",
                        records = which,
                        %error,
                        "records of the store cannot be read: the last ones that were read stay in force"
                    );
                }
            }
            Ok(_) => damaged.retain(|known| *known != which),
            Err(_) => {}
        }
    }

    /// Checks the version of records, which only grows unless the records were deleted.
    pub(crate) fn note_version(&self, which: &'static str, known: Option<u64>, found: u64) {
        if known.is_some_and(|known| found < known) {
            self.note_missing(which);
        }
    }

    /// Records that records are gone without a change that removed them.
    pub(crate) fn note_missing(&self, which: &'static str) {
        self.records_missing.inc();
        tracing::error!(
            component = "store",
            records = which,
            "records are missing from the store: set them again, or restore a backup of the server"
        );
    }

    /// Counts records that exist and cannot be read.
    pub(crate) fn note_unreadable(&self, count: usize) {
        self.records_damaged.inc_by(count as u64);
    }
}

/// Logs the start of an impairment.
fn tell_begin(Impairment { kind, detail }: &Impairment) {
    let reason = kind.reason().map(Reason::name);
    match kind {
        ImpairmentKind::Full => tracing::warn!(
            component = "store",
            reason,
            detail,
            "the store is full: attempts that would write are decided by `on_outage`"
        ),
        ImpairmentKind::Forbidden => tracing::warn!(
            component = "store",
            reason,
            detail,
            "the store forbids commands: attempts that need them are decided by `on_outage`"
        ),
        ImpairmentKind::PartUnavailable => tracing::warn!(
            component = "store",
            reason,
            detail,
            "a part of the store is down: attempts with keys there are decided by `on_outage`"
        ),
        ImpairmentKind::Evicting => {
            tracing::warn!(component = "store", detail, "the store drops counters when its memory is full");
        }
    }
}

/// Logs the end of an impairment.
fn tell_end(kind: ImpairmentKind) {
    match kind {
        ImpairmentKind::Full => tracing::info!(component = "store", "the store is no longer full"),
        ImpairmentKind::Forbidden => {
            tracing::info!(component = "store", "the store permits all commands again");
        }
        ImpairmentKind::PartUnavailable => {
            tracing::info!(component = "store", "all parts of the store are up again");
        }
        ImpairmentKind::Evicting => tracing::info!(component = "store", "the store no longer drops counters"),
    }
}
