//! What the configuration says of the lists: who is on them from the start, and which fields an
//! attempt may bring for their sake.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Listing, Target};
use crate::key::{FieldKind, Kinds};

/// What is configured of the lists. The default is nobody, and fields as their names have them.
#[derive(Clone, Debug, Default)]
pub struct Roster {
    kinds: Kinds,
    listings: Vec<Arc<Listing>>,
    /// The fields that configured entries are about.
    listed: Vec<Arc<str>>,
}

impl Roster {
    /// These entries, one at most for a target, where fields hold this.
    pub fn new(kinds: Kinds, listings: Vec<Listing>) -> Self {
        let mut listed = Vec::new();
        for listing in &listings {
            if let Target::Values(values) = &listing.target {
                listed.extend(values.iter().map(|(field, _)| Arc::clone(&field.name)));
            }
        }
        listed.sort();
        listed.dedup();
        Self { kinds, listings: listings.into_iter().map(Arc::new).collect(), listed }
    }

    /// What fields hold.
    pub fn kinds(&self) -> &Kinds {
        &self.kinds
    }

    /// The entries.
    pub fn listings(&self) -> &[Arc<Listing>] {
        &self.listings
    }

    /// What a field holds that an attempt may bring whether or not its policy knows it: one that holds
    /// addresses, one that the configuration tells the kind of or derives another from, and one that a
    /// configured entry is about.
    /// None of these come and go while nobody changes the configuration.
    pub fn knows(&self, name: &str) -> Option<FieldKind> {
        let known = self.kinds.tells(name)
            || self.kinds.is_source(name)
            || self.listed.iter().any(|listed| **listed == *name);
        let kind = self.kinds.of(name);
        (known || matches!(kind, FieldKind::Ip { .. })).then_some(kind)
    }
}
