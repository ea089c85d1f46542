//! The records of a replay: stored in memory, with a secret that is the same in every run.
//!
//! The secret forms the pseudonyms of secret keys. A replay issues no receipts and no tokens, so the secret protects
//! nothing else.

use std::sync::Arc;

use tollgate_core::Records;
use tollgate_core::store::Answer;
use tollgate_core::versioned_map::{Changes, Edit, Namespace};
use tollgate_store::MemoryStore;

pub(super) struct ReplayRecords(pub(super) Arc<MemoryStore>);

/// Constant, so that two reports of one log have the same pseudonyms.
const SECRET: [u8; 32] = *b"tollgate replay: same pseudonyms";

impl Records for ReplayRecords {
    fn change<'a>(&'a self, space: Namespace, edits: &'a [Edit]) -> Answer<'a, Vec<bool>> {
        self.0.change(space, edits)
    }

    fn changes(&self, space: Namespace, since: Option<u64>) -> Answer<'_, Changes> {
        self.0.changes(space, since)
    }

    fn secret(&self) -> Answer<'_, [u8; 32]> {
        Answer::ready(Ok(SECRET))
    }
}
