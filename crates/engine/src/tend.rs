//! Periodic work besides deciding: following the records, and counting denials for bans. For a shared store
//! also: probing it during an outage and after failures, undoing takes without a reply, and retrying failed
//! refunds and ends of guarded attempts.

use parking_lot::Mutex;
use tollgate_core::versioned_map::Namespace;
use tollgate_core::{Span, StoreError, Timestamp};

use crate::engine::Engine;
use crate::followed::{Extent, Replica};
use crate::shared_store::SharedStore;

/// When the periodic work is due.
pub(crate) struct Schedule {
    due: Mutex<Due>,
    /// The interval at which every server of the store is probed.
    probe_every: Span,
}

#[derive(Debug)]
struct Due {
    records_at: Timestamp,
    probe_at: Timestamp,
}

/// The interval at which the node reads changes of other nodes.
const RECORDS_EVERY: Span = Span::from_millis(500);

impl Schedule {
    pub(crate) fn new(now: Timestamp, probe_every: Span) -> Self {
        let due = Due { records_at: now + RECORDS_EVERY, probe_at: now + probe_every };
        Self { due: Mutex::new(due), probe_every }
    }

    /// Whether a probe is due. After `true`, returns `false` for a while.
    fn probe_due(&self, now: Timestamp) -> bool {
        let due = &mut *self.due.lock();
        let is_due = due.probe_at <= now;
        if is_due {
            due.probe_at = now + self.probe_every;
        }
        is_due
    }

    /// Whether reading the records is due. After `true`, returns `false` for a while.
    fn records_due(&self, now: Timestamp) -> bool {
        let due = &mut *self.due.lock();
        let is_due = due.records_at <= now;
        if is_due {
            due.records_at = now + RECORDS_EVERY;
        }
        is_due
    }
}

impl Engine {
    /// Does the periodic work that is due. The process calls this about four times a second for as long as
    /// the engine decides.
    pub async fn tend(&self) {
        self.config.end_overrides();
        if let Some(shared) = &self.counters.shared {
            if shared.gate.pass().is_none() {
                self.probe(shared).await;
            }
            if shared.gate.pass().is_none() {
                return self.bans.forget();
            }
            self.look_after(shared).await;
            self.retry(shared).await;
        } else {
            // Finds entries that have ended, and changes whose caller did not wait.
            let _ = self.follow_all().await;
        }
        self.bans.count().await;
        self.guards.end_overdue().await;
        self.nodes.report_if_due().await;
    }

    /// Reads what has changed in every namespace that this node follows.
    pub(crate) async fn follow_all(&self) -> Result<(), StoreError> {
        for replica in self.replicas() {
            self.records.follow(replica, Extent::Changes).await?;
        }
        Ok(())
    }

    /// This node's copies of the namespaces that it follows. The run-time configuration comes first: with it
    /// comes the secret that opens sealed records.
    fn replicas(&self) -> [&dyn Replica; 5] {
        [&*self.config, &*self.lists, &self.pauses, &self.guards.locks, &self.accounts.replica]
    }

    /// Probes a store that is down. The breaker closes once enough probes have succeeded and all missed
    /// changes are read.
    async fn probe(&self, shared: &SharedStore) {
        let Some(probing) = shared.gate.probe() else { return };
        let is_last = probing.is_last();
        let read = async {
            shared.condition.learn(self.counters.store.probe().await?);
            if is_last {
                self.follow_after_outage().await?;
                shared.schedule.probe_due(shared.gate.now());
            }
            Ok(())
        };
        match read.await {
            Ok(()) => probing.succeeded(),
            Err(error) => probing.failed(error),
        }
    }

    /// Reads what other nodes have changed, which also detects an outage while no attempts come. Probes all
    /// servers at intervals, and at once after a failure, so that few attempts have to find out. Probes an
    /// impaired store every second.
    async fn look_after(&self, shared: &SharedStore) {
        let now = shared.gate.now();
        let impaired = shared.condition.wants_probe(now);
        // The call itself records a failure.
        if (shared.schedule.probe_due(now) || impaired || shared.gate.is_strained())
            && let Ok(impairments) = self.counters.ask(self.counters.store.probe()).await
        {
            shared.condition.learn(impairments);
        }
        if !shared.schedule.records_due(shared.gate.now()) {
            return;
        }
        for replica in self.replicas() {
            // The call itself records its result.
            let _ = self.records.refresh(replica).await;
        }
    }

    /// Reads the missed changes. A failover may have replaced known changes without changing the version, so
    /// everything is read. Only the lists, which may be long, are not: they are read again if their number of
    /// entries differs.
    async fn follow_after_outage(&self) -> Result<(), StoreError> {
        for replica in self.replicas() {
            let extent = if replica.space() == Namespace::Lists { Extent::Changes } else { Extent::Whole };
            self.records.follow(replica, extent).await?;
        }
        Ok(())
    }
}
