//! The entries by target, as operators see them and as they are recorded. Deciding does not read this.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use tollgate_core::key::Kinds;
use tollgate_core::lists::Change;
use tollgate_core::versioned_map::{Changes, Scope};
use tollgate_core::{Listing, Lists, Policies, Roster, Stance, Target};

use super::record;
use crate::followed::{Entries, Followed};

/// All entries, configured and set at run time.
#[derive(Default)]
pub(super) struct KnownEntries {
    roster: Arc<Roster>,
    pub(super) kinds: Kinds,
    configured: BTreeMap<Box<str>, Arc<Listing>>,
    /// The entries set at run time. Unreadable ones are here too: they count.
    set: BTreeMap<Box<str>, KeptEntry>,
    pub(super) followed: Followed,
    /// The number of unreadable entries that were found since the last call of [`Self::take_unreadable`].
    unreadable: usize,
    counts: ListCounts,
}

/// One recorded entry.
struct KeptEntry {
    listing: Option<Arc<Listing>>,
    /// The recorded bytes, if they differ from what this version would write.
    raw: Option<Box<[u8]>>,
}

/// The number of entries that block, and of those that allow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListCounts {
    pub(crate) block: usize,
    pub(crate) allow: usize,
}

impl ListCounts {
    fn of(&mut self, listing: &Listing) -> &mut usize {
        match listing.stance {
            Stance::Block => &mut self.block,
            Stance::Allow => &mut self.allow,
        }
    }
}

impl KeptEntry {
    /// The recorded value.
    fn value(&self) -> Vec<u8> {
        match (&self.raw, &self.listing) {
            (Some(raw), _) => raw.to_vec(),
            (None, Some(listing)) => record::written(listing),
            (None, None) => Vec::new(),
        }
    }
}

impl KnownEntries {
    /// Takes over the configured entries, and builds the lists.
    pub(super) fn configure(&mut self, policies: &Policies) -> Lists {
        self.roster = Arc::clone(policies.roster());
        let kinds = policies.kinds();
        let listed = self.roster.listings().iter();
        for listing in self.configured.values() {
            *self.counts.of(listing) -= 1;
        }
        self.configured = listed.map(|listing| (name_of(listing), Arc::clone(listing))).collect();
        for listing in self.configured.values() {
            *self.counts.of(listing) += 1;
        }
        if kinds != self.kinds {
            self.kinds = kinds;
            // The kinds of fields have changed, and values are compared by kind.
            for (name, kept) in self.clear() {
                self.put_recorded(&name, &kept.value());
            }
        }
        self.lists()
    }

    /// Takes out all entries set at run time.
    fn clear(&mut self) -> BTreeMap<Box<str>, KeptEntry> {
        let set = std::mem::take(&mut self.set);
        for listing in set.values().filter_map(|kept| kept.listing.as_ref()) {
            *self.counts.of(listing) -= 1;
        }
        set
    }

    /// All entries, in the form that decisions look up.
    fn lists(&self) -> Lists {
        let set = self.set.values().filter_map(|kept| kept.listing.clone());
        Lists::new(self.configured.values().cloned(), set, &self.kinds)
    }

    /// The number of entries, including those that have ended and are not removed yet.
    pub(super) fn counts(&self) -> ListCounts {
        self.counts
    }

    /// Whether every attempt may have this field.
    pub(super) fn accepts(&self, field: &str) -> bool {
        self.roster.knows(field).is_some()
    }

    /// These fields, and those that some of them are derived from.
    pub(super) fn with_sources(&self, mut fields: Vec<Arc<str>>) -> Vec<Arc<str>> {
        for derivation in self.roster.kinds().derived() {
            if fields.contains(&derivation.field) && !fields.contains(&derivation.source) {
                fields.push(Arc::clone(&derivation.source));
            }
        }
        fields
    }

    /// The number of entries that were set at run time.
    pub(super) fn size(&self) -> usize {
        self.set.len()
    }

    /// The entry set for a target.
    pub(super) fn find(&self, target: &Target) -> Option<&Arc<Listing>> {
        self.set.get(target.to_string().as_str())?.listing.as_ref()
    }

    /// The number of these entries that would be new.
    pub(super) fn new_among(&self, listings: &[Arc<Listing>]) -> usize {
        listings.iter().filter(|listing| !self.set.contains_key(&name_of(listing))).count()
    }

    /// Removes an entry. Returns the change.
    fn remove(&mut self, name: &str) -> Option<Change> {
        let listing = self.set.remove(name)?.listing?;
        *self.counts.of(&listing) -= 1;
        Some(Change::Remove(listing))
    }

    /// Follows the records. Returns the new lists; `None` if nothing changes.
    pub(super) fn follow(
        &mut self,
        known: Option<u64>,
        changes: &Changes,
        in_force: &Lists,
    ) -> (Option<Lists>, Entries) {
        if !self.followed.accept(known, changes) {
            return (None, Entries::Complete);
        }
        let lists = match changes.scope {
            Scope::All => Some(self.read_whole(&changes.entries)),
            Scope::Changes => self.change(&changes.entries, in_force),
        };
        (lists, self.followed.check_size(changes, self.set.len()))
    }

    /// Replaces all entries by these records.
    fn read_whole(&mut self, entries: &[(String, Option<Vec<u8>>)]) -> Lists {
        let old = self.clear();
        let mut broken = Vec::new();
        for (name, value) in entries {
            let listing = value.as_ref().and_then(|value| self.put_recorded(name, value));
            // An entry that was unreadable before was logged then.
            if listing.is_none() && !old.contains_key(name.as_str()) {
                broken.push(name);
            }
        }
        self.tell_unreadable(&broken);
        self.lists()
    }

    /// Applies recorded changes; `None` if there are none.
    fn change(&mut self, entries: &[(String, Option<Vec<u8>>)], in_force: &Lists) -> Option<Lists> {
        let mut changes = Vec::new();
        let mut broken = Vec::new();
        for (name, value) in entries {
            let before = self.remove(name);
            let after = value.as_ref().and_then(|value| self.put_recorded(name, value));
            if value.is_some() && after.is_none() {
                broken.push(name);
            }
            changes.extend(after.map(Change::Put).or(before));
        }
        self.tell_unreadable(&broken);
        (!changes.is_empty()).then(|| in_force.with(changes))
    }

    /// Logs entries that cannot be read.
    fn tell_unreadable(&mut self, names: &[&String]) {
        self.unreadable += names.len();
        if let Some(record) = names.first() {
            let records = names.len();
            tracing::error!(
                component = "lists",
                record,
                records,
                "entries of the lists cannot be read and are ignored"
            );
        }
    }

    /// The number of unreadable entries that were found since the last call.
    pub(super) fn take_unreadable(&mut self) -> usize {
        std::mem::take(&mut self.unreadable)
    }

    /// Adds a recorded entry. An unreadable one is only counted.
    fn put_recorded(&mut self, name: &str, value: &[u8]) -> Option<Arc<Listing>> {
        let target = Target::parse(name, &self.kinds).ok();
        let listing = target.and_then(|target| record::read(target, value)).map(Arc::new);
        let same = listing.as_ref().is_some_and(|listing| record::written(listing) == value);
        let raw = (!same).then(|| value.into());
        self.place(name, KeptEntry { listing: listing.clone(), raw });
        listing
    }

    fn place(&mut self, name: &str, kept: KeptEntry) {
        self.remove(name);
        if let Some(listing) = &kept.listing {
            *self.counts.of(listing) += 1;
        }
        self.set.insert(name.into(), kept);
    }

    /// The entries that `keep` selects, in the order of their targets, after the target `after`, up to
    /// `most`. All entries of one target come together.
    pub(super) fn page(
        &self,
        after: Option<&str>,
        most: usize,
        mut keep: impl FnMut(&Listing) -> bool,
    ) -> Vec<Arc<Listing>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let range = (from, Bound::<&str>::Unbounded);
        let set =
            self.set.range::<str, _>(range).filter_map(|(name, kept)| Some((name, kept.listing.as_ref()?)));
        let mut set = set.peekable();
        let mut configured = self.configured.range::<str, _>(range).peekable();
        let mut page: Vec<Arc<Listing>> = Vec::new();
        let mut last: Option<&Box<str>> = None;
        loop {
            let next = match (set.peek(), configured.peek()) {
                (Some((one, _)), Some((other, _))) if other < one => configured.next(),
                (Some(_), _) => set.next(),
                (None, _) => configured.next(),
            };
            let Some((name, listing)) = next else { return page };
            if page.len() >= most && last != Some(name) {
                return page;
            }
            if keep(listing) {
                page.push(Arc::clone(listing));
                last = Some(name);
            }
        }
    }
}

/// The name that an entry is recorded under.
pub(super) fn name_of(listing: &Listing) -> Box<str> {
    listing.target.to_string().into()
}
