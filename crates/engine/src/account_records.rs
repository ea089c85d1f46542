//! The account records of the mail relay, by name. The engine does not interpret them. Watchers are notified
//! when records change, on this node or on another one.

use parking_lot::Mutex;
use tokio::sync::watch;
use tollgate_core::StoreError;
use tollgate_core::versioned_map::{Changes, Edit, Expect, Namespace};

use crate::engine::Engine;
use crate::followed::{Entries, Extent};
use crate::named_records::NamedRecords;

/// All records of accounts.
pub(crate) struct AccountRecords {
    records: Mutex<NamedRecords>,
    /// Counts the changes.
    changed: watch::Sender<u64>,
}

impl Default for AccountRecords {
    fn default() -> Self {
        Self { records: Mutex::default(), changed: watch::Sender::new(0) }
    }
}

impl AccountRecords {
    pub(crate) fn known_version(&self) -> Option<u64> {
        self.records.lock().followed.version()
    }

    /// Applies changes and notifies the watchers.
    pub(crate) fn follow(&self, known: Option<u64>, changes: &Changes) -> Entries {
        let entries = {
            let mut records = self.records.lock();
            let before = records.followed.version();
            let entries = records.follow(known, changes);
            if records.followed.version() == before && changes.entries.is_empty() {
                return entries;
            }
            entries
        };
        self.changed.send_modify(|times| *times += 1);
        entries
    }
}

impl Engine {
    /// All records of accounts, by name.
    pub fn account_records(&self) -> Vec<(String, Vec<u8>)> {
        self.accounts.records.lock().all()
    }

    /// The record of an account.
    pub fn account_record(&self, name: &str) -> Option<Vec<u8>> {
        self.accounts.records.lock().at(name).map(<[u8]>::to_vec)
    }

    /// Returns a receiver that is notified when account records change.
    pub fn watch_account_records(&self) -> watch::Receiver<u64> {
        self.accounts.changed.subscribe()
    }

    /// Reads what other nodes have changed in the account records.
    pub async fn refresh_account_records(&self) -> Result<(), StoreError> {
        self.ask(self.follow(Namespace::Accounts, Extent::News)).await
    }

    /// Writes or removes the record of an account, if it still is as expected. Returns whether it was; if
    /// not, the engine knows the current record afterwards.
    pub async fn swap_account_record(
        &self,
        name: &str,
        expected: Option<Vec<u8>>,
        to: Option<Vec<u8>>,
    ) -> Result<bool, StoreError> {
        let edit = to.map_or_else(|| Edit::remove(name), |to| Edit::put(name, to));
        let edit = edit.expecting(Expect::exactly(expected));
        Ok(self.change_records(Namespace::Accounts, &[edit]).await? == [true])
    }
}
