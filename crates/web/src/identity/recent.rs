//! Recently verified tokens.
//!
//! Verifying a signature takes tens of microseconds, hashing a token less than one. So the result is kept
//! under the SHA-256 of the whole token in a table of fixed size, until another token takes its slot. Only
//! valid tokens are kept, so a client cannot fill the table with others. Expiry is checked at each use.

use std::sync::Arc;

use arc_swap::ArcSwapOption;

use super::tokens::Verified;

/// The table.
pub(super) struct Recent(Box<[ArcSwapOption<Entry>]>);

struct Entry {
    hash: [u8; 32],
    verified: Arc<Verified>,
}

impl Recent {
    /// A table with this many slots.
    pub(super) fn with_places(places: usize) -> Self {
        Self((0..places).map(|_| ArcSwapOption::empty()).collect())
    }

    /// The result for the token with this hash, if it is still in the table.
    pub(super) fn find(&self, hash: &[u8; 32]) -> Option<Arc<Verified>> {
        let entry = self.place(hash).load();
        entry.as_ref().filter(|entry| entry.hash == *hash).map(|entry| Arc::clone(&entry.verified))
    }

    /// Keeps the result for a token; it replaces the slot's earlier one.
    pub(super) fn keep(&self, hash: [u8; 32], verified: Arc<Verified>) {
        self.place(&hash).store(Some(Arc::new(Entry { hash, verified })));
    }

    fn place(&self, hash: &[u8; 32]) -> &ArcSwapOption<Entry> {
        let [a, b, c, d, ..] = *hash;
        &self.0[u32::from_le_bytes([a, b, c, d]) as usize % self.0.len()]
    }
}
