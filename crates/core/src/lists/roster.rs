//! The configured part of the lists: their entries, and the fields that an attempt may have for them.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Listing, Target};
use crate::key::{FieldKind, Kinds};

/// The configured lists. By default they are empty, and fields have the kinds of their names.
#[derive(Clone, Debug, Default)]
pub struct Roster {
    kinds: Kinds,
    listings: Vec<Arc<Listing>>,
    /// The fields of configured entries.
    listed: Vec<Arc<str>>,
}

impl Roster {
    /// A roster of these entries, at most one for a target, with these kinds of fields.
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

    /// The kinds of fields.
    pub fn kinds(&self) -> &Kinds {
        &self.kinds
    }

    /// The entries.
    pub fn listings(&self) -> &[Arc<Listing>] {
        &self.listings
    }

    /// The kind of a field that any attempt may have, even if its policy does not use it: a field with
    /// addresses, a field whose kind or derivation is configured, or a field of a configured entry. These
    /// change only with the configuration.
    pub fn knows(&self, name: &str) -> Option<FieldKind> {
        let known = self.kinds.tells(name)
            || self.kinds.is_source(name)
            || self.listed.iter().any(|listed| **listed == *name);
        let kind = self.kinds.of(name);
        (known || matches!(kind, FieldKind::Ip { .. })).then_some(kind)
    }
}
