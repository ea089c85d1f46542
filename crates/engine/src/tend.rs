//! What is to be done beside deciding: following the records, and counting denials for bans. While the
//! store is shared also probing it when it is gone, asking again when it failed somebody, undoing takes
//! that nobody got, and giving back what it did not take back before.

use parking_lot::Mutex;
use tollgate_core::versioned_map::Namespace;
use tollgate_core::{Span, StoreError, Timestamp};

use crate::engine::Engine;
use crate::followed::Extent;
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
}

/// How often to ask whether other nodes have set anything.
const RECORDS_EVERY: Span = Span::from_millis(500);

impl Schedule {
    pub(crate) fn new(now: Timestamp, probe_every: Span) -> Self {
        let due = Due { records_at: now + RECORDS_EVERY, probe_at: now + probe_every };
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
            self.look_after(shared).await;
            self.retry(shared).await;
        } else {
            // Entries that have ended, and changes whose caller did not wait for them.
            let _ = self.follow_all().await;
        }
        self.count_denials().await;
        self.end_overdue().await;
    }

    /// Asks a store that is gone whether it is back. It is once it has answered often enough, and all that
    /// was missed is known.
    async fn probe(&self, shared: &SharedStore) {
        let Some(probing) = shared.gate.probe() else { return };
        let is_last = probing.is_last();
        let read = async {
            shared.condition.learn(self.store.probe().await?);
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

    /// Follows what other nodes set: that also shows a store that is gone while nobody decides. All its
    /// servers are asked now and then, and one that has just failed at once, so that few attempts have
    /// to find out. One that is impaired is asked every second.
    async fn look_after(&self, shared: &SharedStore) {
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
        for space in Namespace::ALL {
            // What comes of it is noted on the way.
            let _ = self.ask(self.follow(space, Extent::News)).await;
        }
    }

    /// Learns what was missed. A failover may have put other changes in the place of those that are known,
    /// without the version telling; so everything is read. Only the lists, which may be long, are not:
    /// they are read again if they have another number of entries.
    async fn follow_after_outage(&self) -> Result<(), StoreError> {
        for space in Namespace::ALL {
            let extent = if space == Namespace::Lists { Extent::News } else { Extent::Whole };
            self.follow(space, extent).await?;
        }
        Ok(())
    }
}
