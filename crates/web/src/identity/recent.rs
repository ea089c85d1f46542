//! Tokens that were verified a moment ago.
//!
//! Verifying a signature takes tens of microseconds, hashing a token less than one. So what was
//! verified is kept under the SHA-256 of the whole token until it is needed for another one: a table of
//! fixed size, where each token has one place. Only tokens that were good are kept, so nobody can fill
//! it with others; and whether one is still good is looked at each time.

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
    /// A place for so many tokens.
    pub(super) fn with_places(places: usize) -> Self {
        Self((0..places).map(|_| ArcSwapOption::empty()).collect())
    }

    /// What was verified of the token with this hash, if it is still here.
    pub(super) fn find(&self, hash: &[u8; 32]) -> Option<Arc<Verified>> {
        let entry = self.place(hash).load();
        entry.as_ref().filter(|entry| entry.hash == *hash).map(|entry| Arc::clone(&entry.verified))
    }

    /// Keeps what was verified of a token, instead of another one.
    pub(super) fn keep(&self, hash: [u8; 32], verified: Arc<Verified>) {
        self.place(&hash).store(Some(Arc::new(Entry { hash, verified })));
    }

    fn place(&self, hash: &[u8; 32]) -> &ArcSwapOption<Entry> {
        let [a, b, c, d, ..] = *hash;
        &self.0[u32::from_le_bytes([a, b, c, d]) as usize % self.0.len()]
    }
}
