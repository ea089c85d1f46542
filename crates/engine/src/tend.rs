//! What is to be done beside deciding: counting denials for bans, and removing what has ended. While the
//! store is shared also probing it when it is gone, asking again when it failed somebody, following what
//! other nodes set, undoing takes that nobody got, and giving back what it did not take back before.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tollgate_core::{Span, StoreError, Timestamp};

use crate::engine::Engine;
use crate::pauses::Pause;
use crate::receipt::Seal;
use crate::shared_store::SharedStore;

/// When what is done at intervals was done last, and what it found.
pub(crate) struct Schedule {
    due: Mutex<Due>,
    /// How often every server of the store is asked whether it is there.
    probe_every: Span,
}

#[derive(Debug)]
struct Due {
    records_at: Timestamp,
    probe_at: Timestamp,
    /// The version of the records that are in force; `None` if they were never read.
    version: Option<u64>,
}

/// What is kept beside the counters.
pub(crate) struct Kept {
    pub(crate) version: u64,
    pub(crate) records: Vec<(String, Vec<u8>)>,
    pub(crate) pauses: BTreeMap<String, Pause>,
    pub(crate) secret: [u8; 32],
    /// How often something was set on this node before they were read.
    pub(crate) edits: u64,
}

/// How often to ask whether other nodes have set anything.
const RECORDS_EVERY: Span = Span::from_millis(500);
/// What records are called in the log, beside those of the lists.
const RECORDS: &str = "overrides, policies and routes";

impl Schedule {
    pub(crate) fn new(now: Timestamp, probe_every: Span) -> Self {
        let due = Due { records_at: now + RECORDS_EVERY, probe_at: now + probe_every, version: None };
        Self { due: Mutex::new(due), probe_every }
    }

    /// Whether it is time to ask after every server; if so, it is not for a while.
    fn probe_due(&self, now: Timestamp) -> bool {
        let due = &mut *self.due.lock();
        let is_due = due.probe_at <= now;
        if is_due {
            due.probe_at = now + self.probe_every;
        }
        is_due
    }

    /// Whether it is time to look at the records; if so, it is not for a while.
    fn records_due(&self, now: Timestamp) -> bool {
        let due = &mut *self.due.lock();
        let is_due = due.records_at <= now;
        if is_due {
            due.records_at = now + RECORDS_EVERY;
        }
        is_due
    }

    pub(crate) fn has_read(&self, version: u64) {
        self.due.lock().version = Some(version);
    }

    fn version(&self) -> Option<u64> {
        self.due.lock().version
    }
}

impl Engine {
    /// Does what is due beside deciding. To be called four times a second or so, for as long as the
    /// engine decides.
    pub async fn tend(&self) {
        if let Some(shared) = &self.shared {
            if shared.gate.pass().is_none() {
                self.probe(shared).await;
            }
            if shared.gate.pass().is_none() {
                return self.forget_denials();
            }
            self.follow(shared).await;
            self.retry(shared).await;
        }
        self.count_denials().await;
        self.end_overdue().await;
        self.sweep_lists().await;
    }

    /// Asks a store that is gone whether it is back. It is once it has answered often enough, and all that
    /// was missed is known.
    async fn probe(&self, shared: &SharedStore) {
        let Some(probing) = shared.gate.probe() else { return };
        let is_last = probing.is_last();
        let read = async {
            shared.condition.learn(self.store.probe().await?);
            if is_last {
                self.read_lists().await?;
                self.put_in_force(self.read_kept().await?);
                shared.schedule.probe_due(shared.gate.now());
            }
            Ok(())
        };
        match read.await {
            Ok(()) => probing.succeeded(),
            Err(error) => probing.failed(error),
        }
    }

    /// Follows what other nodes set: that also shows a store that is gone while nobody decides. All its
    /// servers are asked now and then, and one that has just failed at once, so that few attempts have
    /// to find out. One that is impaired is asked every second.
    async fn follow(&self, shared: &SharedStore) {
        let now = shared.gate.now();
        let impaired = shared.condition.wants_probe(now);
        // A failure is noted on the way.
        if (shared.schedule.probe_due(now) || impaired || shared.gate.is_strained())
            && let Ok(impairments) = self.ask(self.store.probe()).await
        {
            shared.condition.learn(impairments);
        }
        if !shared.schedule.records_due(shared.gate.now()) {
            return;
        }
        // What comes of these is noted on the way.
        let _ = self.ask(self.read_lists()).await;
        let _ = self.catch_up().await;
    }

    /// Learns what other nodes have set until now.
    pub(crate) async fn catch_up(&self) -> Result<(), StoreError> {
        let Some(shared) = &self.shared else { return Ok(()) };
        let version = self.ask(self.records.version()).await;
        shared.condition.note_records(RECORDS, &version);
        if shared.schedule.version() != Some(version?) {
            let kept = self.ask(self.read_kept()).await;
            shared.condition.note_records(RECORDS, &kept);
            self.put_in_force(kept?);
        }
        Ok(())
    }

    /// Reads what is kept beside the counters. The version first: what changes while the rest is read
    /// is then read again.
    pub(crate) async fn read_kept(&self) -> Result<Kept, StoreError> {
        let edits = self.configured.lock().edits;
        let version = self.records.version().await?;
        let records = self.records.all().await?;
        let secret = self.records.secret().await?;
        let pauses = self.read_pauses(&records, &Seal::new(secret)).await?;
        Ok(Kept { version, records, pauses, secret, edits })
    }

    pub(crate) fn put_in_force(&self, kept: Kept) {
        if let Some(shared) = &self.shared {
            shared.condition.note_version(RECORDS, shared.schedule.version(), kept.version);
        }
        self.seals.share(kept.secret);
        // What was set here in between may be missing from what was read; then it is read again.
        if self.follow_books(&kept.records, kept.edits) {
            self.pauses.follow(kept.pauses);
            if let Some(shared) = &self.shared {
                shared.schedule.has_read(kept.version);
            }
        }
    }
}
