//! What is listed, by target: as it is shown to people, and as the ledger has it. Whoever decides does
//! not look in here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use tollgate_core::key::Kinds;
use tollgate_core::ledger::{Changes, Edit, Entry, Scope};
use tollgate_core::lists::Change;
use tollgate_core::{Listing, Lists, Policies, Roster, Stance, Target, Timestamp};

use super::locked::Locked;
use super::record;

/// All entries, configured and set at run time.
#[derive(Default)]
pub(super) struct Book {
    roster: Arc<Roster>,
    pub(super) kinds: Kinds,
    configured: BTreeMap<Box<str>, Arc<Listing>>,
    /// What was set at run time. What cannot be read is there too: it counts.
    set: BTreeMap<Box<str>, Kept>,
    /// When the entries that end can be forgotten.
    due: BTreeSet<(Timestamp, Box<str>)>,
    /// The version of the ledger that is known; `None` if it has to be read whole.
    version: Option<u64>,
    /// How many entries were found that cannot be read, since it was last asked.
    unreadable: usize,
    /// Changes that are on their way into the ledger, in its order, and what the last of them is called.
    entering: VecDeque<(u64, Vec<Edit>)>,
    entered: u64,
    /// How many more entries the ledger had than are known here, when all of it had been read.
    surplus: Option<i64>,
    counts: Counts,
    /// Who is locked, which the ledger tells too.
    pub(super) locked: Locked,
}

/// One entry of the ledger.
struct Kept {
    listing: Option<Arc<Listing>>,
    /// What is recorded, if it is not what would be written now.
    raw: Option<Box<[u8]>>,
}

/// How many entries bar, and how many allow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) block: usize,
    pub(crate) allow: usize,
}

impl Counts {
    fn of(&mut self, listing: &Listing) -> &mut usize {
        match listing.stance {
            Stance::Block => &mut self.block,
            Stance::Allow => &mut self.allow,
        }
    }
}

impl Kept {
    /// What is recorded.
    fn value(&self) -> Vec<u8> {
        match (&self.raw, &self.listing) {
            (Some(raw), _) => raw.to_vec(),
            (None, Some(listing)) => record::written(listing),
            (None, None) => Vec::new(),
        }
    }
}

impl Book {
    /// Takes over what is configured, and makes lists of everything.
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
            // Values are compared by what their fields hold, and that has changed.
            for (name, kept) in self.clear() {
                self.put_recorded(&name, &kept.value());
            }
        }
        self.lists()
    }

    /// Takes out all that was set at run time.
    fn clear(&mut self) -> BTreeMap<Box<str>, Kept> {
        self.due.clear();
        let set = std::mem::take(&mut self.set);
        for listing in set.values().filter_map(|kept| kept.listing.as_ref()) {
            *self.counts.of(listing) -= 1;
        }
        set
    }

    /// Everything, in the form in which it is looked up.
    fn lists(&self) -> Lists {
        let set = self.set.values().filter_map(|kept| kept.listing.clone());
        Lists::new(self.configured.values().cloned(), set, &self.kinds)
    }

    /// How many entries there are, those that have ended and are not forgotten yet included.
    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether every attempt may bring a field.
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

    /// How many were set at run time, at most, once all that is on its way has arrived.
    pub(super) fn size(&self) -> usize {
        self.set.len() + self.entering.iter().map(|(_, edits)| edits.len()).sum::<usize>()
    }

    /// What was set for a target.
    pub(super) fn find(&self, target: &Target) -> Option<&Arc<Listing>> {
        self.set.get(target.to_string().as_str())?.listing.as_ref()
    }

    /// The version of the ledger that is known.
    pub(super) fn version(&self) -> Option<u64> {
        self.version
    }

    /// How many of these entries would be new.
    pub(super) fn new_among(&self, listings: &[Arc<Listing>]) -> usize {
        listings.iter().filter(|listing| !self.set.contains_key(&name_of(listing))).count()
    }

    /// Notes changes that go into the ledger behind all others, until [`Book::arrived`].
    pub(super) fn enter(&mut self, edits: &[Edit]) -> u64 {
        self.entered += 1;
        self.entering.push_back((self.entered, edits.to_vec()));
        self.entered
    }

    /// Makes the changes that have arrived in the ledger: these, and those before them.
    pub(super) fn arrived(&mut self, upto: u64) -> Vec<Change> {
        let mut changes = Vec::new();
        while let Some((_, edits)) = self.entering.pop_front_if(|(number, _)| *number <= upto) {
            changes.extend(self.edit(&edits));
        }
        changes
    }

    /// Makes changes as the ledger makes them, and says what has changed by that.
    fn edit(&mut self, edits: &[Edit]) -> Vec<Change> {
        let mut changes = Vec::new();
        for Edit { name, to } in edits {
            if Locked::has(name) {
                self.locked.edit(name, to);
                continue;
            }
            changes.extend(match to {
                Entry::Written(value) => self.put_recorded(name, value).map(Change::Put),
                Entry::Removed => self.remove(name),
                Entry::RemovedIf(value) => {
                    let same = self.set.get(name.as_str()).is_some_and(|kept| kept.value() == *value);
                    if same { self.remove(name) } else { None }
                }
            });
        }
        changes
    }

    /// Takes an entry out, and says what has changed by that.
    fn remove(&mut self, name: &str) -> Option<Change> {
        let kept = self.set.remove(name)?;
        self.leave(name, kept).map(Change::Remove)
    }

    /// Notes that an entry is gone.
    fn leave(&mut self, name: &str, kept: Kept) -> Option<Arc<Listing>> {
        let listing = kept.listing?;
        *self.counts.of(&listing) -= 1;
        if let Some(forgotten) = listing.forgotten_at() {
            self.due.remove(&(forgotten, name.into()));
        }
        Some(listing)
    }

    /// Names of entries that can be forgotten, and what is recorded under them.
    pub(super) fn forgotten(&self, now: Timestamp, most: usize) -> Vec<(String, Vec<u8>)> {
        let due = self.due.iter().take_while(|(at, _)| *at <= now).take(most);
        let listed = due.filter_map(|(_, name)| Some((name.to_string(), self.set.get(name)?.value())));
        listed.chain(self.locked.over(now)).take(most).collect()
    }

    /// Follows the ledger, whose news were asked for since a version, and answers the lists from now on;
    /// `None` if it is no news.
    pub(super) fn follow(&mut self, changes: Changes, since: Option<u64>, in_force: &Lists) -> Option<Lists> {
        let (known, told) = (self.version, changes.version);
        let lists = match changes.scope {
            // What was read while something newer came in is not taken.
            Scope::All if known != since => return None,
            Scope::Changes if known.is_none_or(|known| told < known || Some(known) < since) => return None,
            Scope::All => Some(self.read_whole(changes.entries)),
            Scope::Changes => self.change(changes.entries, in_force),
        };
        self.version = Some(told);
        if let Some(size) = changes.size {
            self.check_size(size);
        }
        lists
    }

    /// Knows these records, and no other.
    fn read_whole(&mut self, entries: Vec<(String, Option<Vec<u8>>)>) -> Lists {
        self.surplus = None;
        let old = self.clear();
        self.locked = Locked::default();
        let mut broken = Vec::new();
        for (name, value) in entries {
            if Locked::has(&name) {
                self.locked.put(&name, value);
                continue;
            }
            let listing = value.and_then(|value| self.put_recorded(&name, &value));
            // What could not be read before was told then.
            if listing.is_none() && !old.contains_key(name.as_str()) {
                broken.push(name);
            }
        }
        self.tell_unreadable(&broken);
        self.lists()
    }

    /// Makes recorded changes; `None` if there are none.
    fn change(&mut self, entries: Vec<(String, Option<Vec<u8>>)>, in_force: &Lists) -> Option<Lists> {
        let mut changes = Vec::new();
        let mut broken = Vec::new();
        for (name, value) in entries {
            if Locked::has(&name) {
                self.locked.put(&name, value);
                continue;
            }
            let before = self.remove(&name);
            let after = value.as_ref().and_then(|value| self.put_recorded(&name, value));
            if value.is_some() && after.is_none() {
                broken.push(name);
            }
            changes.extend(after.map(Change::Put).or(before));
        }
        self.tell_unreadable(&broken);
        (!changes.is_empty()).then(|| in_force.with(changes))
    }

    /// Tells the log of entries that cannot be read.
    fn tell_unreadable(&mut self, names: &[String]) {
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

    /// How many entries were found that cannot be read, since this was last asked.
    pub(super) fn take_unreadable(&mut self) -> usize {
        std::mem::take(&mut self.unreadable)
    }

    /// Puts in what is recorded. What cannot be read is only kept in mind.
    fn put_recorded(&mut self, name: &str, value: &[u8]) -> Option<Arc<Listing>> {
        let target = Target::parse(name, &self.kinds).ok();
        let listing = target.and_then(|target| record::read(target, value)).map(Arc::new);
        let same = listing.as_ref().is_some_and(|listing| record::written(listing) == value);
        let raw = (!same).then(|| value.into());
        self.place(name, Kept { listing: listing.clone(), raw });
        listing
    }

    fn place(&mut self, name: &str, kept: Kept) {
        if let Some(old) = self.set.remove(name) {
            self.leave(name, old);
        }
        if let Some(listing) = &kept.listing {
            *self.counts.of(listing) += 1;
            self.due.extend(listing.forgotten_at().map(|forgotten| (forgotten, name.into())));
        }
        self.set.insert(name.into(), kept);
    }

    /// Sees whether the ledger has as many entries as are known here. After a failover it may have lost
    /// some, without its version telling.
    fn check_size(&mut self, size: usize) {
        let known = self.set.len() + self.locked.len();
        let surplus = i64::try_from(size).unwrap_or(i64::MAX) - i64::try_from(known).unwrap_or(0);
        match self.surplus {
            None => self.surplus = Some(surplus),
            Some(before) if before != surplus => (self.version, self.surplus) = (None, None),
            Some(_) => {}
        }
    }

    /// Entries in the order of their targets, behind one of them, as long as `keep` wants them and there
    /// is room. All entries of one target come together.
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
