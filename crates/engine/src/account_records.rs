//! The account records of the mail relay, by name. The engine does not interpret them.

use std::sync::Arc;

use tokio::sync::watch;
use tollgate_core::StoreError;
use tollgate_core::versioned_map::{Edit, Expect, Namespace};

use crate::followed::RecordStore;
use crate::named_records::NamedRecords;

/// All records of accounts.
pub struct AccountRecords {
    pub(crate) replica: NamedRecords,
    records: Arc<RecordStore>,
}

impl AccountRecords {
    pub(crate) fn new(records: Arc<RecordStore>) -> Self {
        Self { replica: NamedRecords::new(Namespace::Accounts), records }
    }

    /// All records, by name.
    pub fn all(&self) -> Vec<(String, Vec<u8>)> {
        self.replica.all()
    }

    /// The record of an account.
    pub fn at(&self, name: &str) -> Option<Vec<u8>> {
        self.replica.at(name)
    }

    /// Returns a receiver that is notified when records change, on this node or on another one.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.replica.watch()
    }

    /// Reads what other nodes have changed.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        self.records.refresh(&self.replica).await
    }

    /// Writes or removes the record of an account, if it still is as expected. Returns whether it was; if
    /// not, this node knows the current record afterwards.
    pub async fn swap(
        &self,
        name: &str,
        expected: Option<Vec<u8>>,
        to: Option<Vec<u8>>,
    ) -> Result<bool, StoreError> {
        let edit = to.map_or_else(|| Edit::remove(name), |to| Edit::put(name, to));
        let edit = edit.expecting(Expect::exactly(expected));
        Ok(self.records.change(&self.replica, &[edit]).await? == [true])
    }
}
