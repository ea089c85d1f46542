//! Named values with a version, which a store keeps beside its counters: one map for each namespace.
//!
//! Each change of an entry gets a number, the version. A reader that knows a version asks for the changes
//! since. The map remembers only the names of the latest changes, so a reader that has missed more reads
//! everything. A value may expire by the store's clock; the map then removes it, which is a change like any
//! other.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::store::StoreError;
use crate::time::{Span, Timestamp};

/// How many of the latest changes a map remembers.
pub const MOST_CHANGES: usize = 10_000;

/// The namespaces of maps. Each has its own names, version and bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Namespace {
    /// The run-time configuration: limits of single keys, policies, and the policies assigned to names.
    Config,
    /// Entries of the blocklist and the allowlist.
    Lists,
    /// Pauses of policies and keys.
    Pauses,
    /// Locks of guards.
    Locks,
    /// Accounts that the mail relay sends through.
    Accounts,
    /// Reports of the nodes that share a store. Each expires soon.
    Nodes,
}

/// A change of one entry. A store makes it only if the entry is as expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The name of the entry.
    pub name: String,
    /// The condition.
    pub expect: Expect,
    /// The new value; `None` removes the entry.
    pub to: Option<Value>,
}

/// The condition of an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// No condition.
    Any,
    /// The entry does not exist.
    Absent,
    /// The entry has exactly these bytes.
    Is(Vec<u8>),
}

/// The value of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// When the store removes the entry, by its own clock; `None` keeps it.
    pub until: Option<Timestamp>,
}

/// The changes of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// The store's time.
    pub now: Timestamp,
    /// The version after these changes. It only grows, unless the store has lost entries.
    pub version: u64,
    /// How many entries the namespace has.
    pub size: usize,
    /// Whether these are all entries, or only those that have changed.
    pub scope: Scope,
    /// Names with their bytes, or `None` for an entry that was removed.
    pub entries: Vec<(String, Option<Vec<u8>>)>,
    /// Whether the store's secret was deleted. The node put back the one it knew.
    pub secret_was_missing: bool,
}

/// The extent of [`Changes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every entry: a name that is not among them does not exist.
    All,
    /// The entries that have changed.
    Changes,
}

/// The entries of one namespace.
#[derive(Debug)]
pub struct VersionedMap {
    space: Namespace,
    entries: BTreeMap<String, Value>,
    /// The entries that expire.
    ends: BTreeSet<(Timestamp, String)>,
    /// When each entry that expires was set.
    set_at: BTreeMap<String, Timestamp>,
    /// The latest time that it was asked at.
    latest_time: Timestamp,
    version: u64,
    /// The names of the entries that changed last, oldest first.
    latest: VecDeque<String>,
}

impl Namespace {
    /// Every namespace.
    pub const ALL: [Self; 6] =
        [Self::Config, Self::Lists, Self::Pauses, Self::Locks, Self::Accounts, Self::Nodes];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Lists => "lists",
            Self::Pauses => "pauses",
            Self::Locks => "locks",
            Self::Accounts => "accounts",
            Self::Nodes => "nodes",
        }
    }

    /// After how long without a change a store may forget the whole namespace; `None` if never.
    pub const fn idle_after(self) -> Option<Span> {
        match self {
            Self::Config | Self::Lists | Self::Pauses | Self::Locks | Self::Accounts => None,
            Self::Nodes => Some(Span::from_secs(3_600)),
        }
    }

    /// How many entries it may have.
    pub const fn most_entries(self) -> usize {
        match self {
            Self::Config => 120_000,
            Self::Lists => 200_000,
            Self::Pauses => 4_000,
            Self::Locks => 10_000,
            Self::Accounts => 10_000,
            Self::Nodes => 200,
        }
    }

    /// The error of a change that would exceed the bound.
    pub fn full(self) -> StoreError {
        let (name, most) = (self.name(), self.most_entries());
        StoreError::OutOfMemory {
            reason: format!("`{name}` may have {most} entries and has no room for more"),
        }
    }
}

impl Edit {
    /// Writes a value without an expiry, whatever exists.
    pub fn put(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        let to = Some(Value { bytes: bytes.into(), until: None });
        Self { name: name.into(), expect: Expect::Any, to }
    }

    /// Removes an entry, if it exists.
    pub fn remove(name: impl Into<String>) -> Self {
        Self { name: name.into(), expect: Expect::Any, to: None }
    }

    /// The same edit with an expiry.
    pub fn until(mut self, until: Option<Timestamp>) -> Self {
        if let Some(value) = &mut self.to {
            value.until = until;
        }
        self
    }

    /// The same edit with a condition.
    pub fn expecting(mut self, expect: Expect) -> Self {
        self.expect = expect;
        self
    }
}

impl Expect {
    /// The condition that an entry has these bytes, or does not exist.
    pub fn exactly(bytes: Option<Vec<u8>>) -> Self {
        bytes.map_or(Self::Absent, Self::Is)
    }

    fn holds(&self, value: Option<&Value>) -> bool {
        match self {
            Self::Any => true,
            Self::Absent => value.is_none(),
            Self::Is(bytes) => value.is_some_and(|value| value.bytes == *bytes),
        }
    }
}

impl VersionedMap {
    /// An empty map.
    pub fn new(space: Namespace) -> Self {
        Self {
            space,
            entries: BTreeMap::new(),
            ends: BTreeSet::new(),
            set_at: BTreeMap::new(),
            latest_time: Timestamp::from_micros(0),
            version: 0,
            latest: VecDeque::new(),
        }
    }

    /// Makes edits in their order, and returns for each whether its condition held. Makes none of them if
    /// there is no room for all.
    pub fn change(&mut self, edits: &[Edit], now: Timestamp) -> Result<Vec<bool>, StoreError> {
        self.expire(now);
        let new = |edit: &&Edit| edit.to.is_some() && !self.entries.contains_key(&edit.name);
        let most = self.space.most_entries();
        if self.entries.len() + edits.len() > most
            && self.entries.len() + edits.iter().filter(new).count() > most
        {
            return Err(self.space.full());
        }
        Ok(edits.iter().map(|edit| self.edit(edit)).collect())
    }

    fn edit(&mut self, Edit { name, expect, to }: &Edit) -> bool {
        let before = self.entries.get(name);
        if !expect.holds(before) {
            return false;
        }
        if before.is_some() || to.is_some() {
            self.set(name, to.clone());
            if to.as_ref().is_some_and(|value| value.until.is_some()) {
                self.set_at.insert(name.clone(), self.latest_time);
            }
            self.note(name.clone());
        }
        true
    }

    /// Inserts a saved entry, without counting it as a change.
    pub fn restore(&mut self, name: &str, value: Value) {
        self.set(name, Some(value));
    }

    fn set(&mut self, name: &str, value: Option<Value>) {
        let until = value.as_ref().and_then(|value| value.until);
        let before = match value {
            Some(value) => self.entries.insert(name.into(), value),
            None => self.entries.remove(name),
        };
        if let Some(before) = before.and_then(|before| before.until) {
            self.ends.remove(&(before, name.into()));
            self.set_at.remove(name);
        }
        self.ends.extend(until.map(|until| (until, name.into())));
    }

    fn note(&mut self, name: String) {
        self.version += 1;
        self.latest.push_back(name);
        if self.latest.len() > MOST_CHANGES {
            self.latest.pop_front();
        }
    }

    /// Follows a clock that was set back: an entry that was set in what is the future now lasts as long as it was meant
    /// to, and not until that future has passed.
    fn follow_clock(&mut self, now: Timestamp) {
        let went_back = now < self.latest_time;
        self.latest_time = now;
        if !went_back {
            return;
        }
        let ahead: Vec<(String, Timestamp)> =
            self.set_at.iter().filter(|(_, at)| **at > now).map(|(name, at)| (name.clone(), *at)).collect();
        for (name, at) in ahead {
            let Some(value) = self.entries.get(&name).cloned() else { continue };
            let until = value.until.map(|until| now + until.since(at));
            self.set(&name, Some(Value { until, ..value }));
            self.set_at.insert(name.clone(), now);
            self.note(name);
        }
    }

    /// Removes the expired entries.
    fn expire(&mut self, now: Timestamp) {
        self.follow_clock(now);
        while let Some((_, name)) = self.ends.first().filter(|(end, _)| *end <= now) {
            let name = name.clone();
            self.set(&name, None);
            self.note(name);
        }
    }

    /// The version: the number of the last change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The changes since a version, or all entries.
    pub fn changes(&mut self, since: Option<u64>, now: Timestamp) -> Changes {
        self.expire(now);
        let (scope, entries) = self.entries_since(since);
        let bytes =
            |(name, value): (&String, Option<&Value>)| (name.clone(), value.map(|value| value.bytes.clone()));
        let entries = entries.into_iter().map(bytes).collect();
        let secret_was_missing = false;
        Changes { now, version: self.version, size: self.entries.len(), scope, entries, secret_was_missing }
    }

    /// The entries that have changed since a version, or all of them.
    pub fn entries_since(&self, since: Option<u64>) -> (Scope, Vec<(&String, Option<&Value>)>) {
        let missed = since.and_then(|since| self.version.checked_sub(since));
        let missed = missed.and_then(|missed| usize::try_from(missed).ok());
        match missed.and_then(|missed| self.latest.len().checked_sub(missed)) {
            Some(known) => {
                let names: BTreeSet<&String> = self.latest.range(known..).collect();
                let changed = names.into_iter().map(|name| (name, self.entries.get(name)));
                (Scope::Changes, changed.collect())
            }
            None => (Scope::All, self.entries.iter().map(|(name, value)| (name, Some(value))).collect()),
        }
    }
}

/// The new place of a record of the first layout: its namespace, its name there, and its value with its
/// expiry. That layout kept all records together by name, `pause/…`, `ban/lock/…`, `ban/…` or another, and
/// had expiries only inside the values.
pub fn moved(name: &str, bytes: &[u8]) -> (Namespace, String, Value) {
    let text = core::str::from_utf8(bytes).unwrap_or_default();
    let number = |text: &str| text.parse().ok().map(Timestamp::from_micros);
    let first_line = || number(text.lines().next().unwrap_or_default());
    let (space, name, until) = if let Some(name) = name.strip_prefix("pause/") {
        (Namespace::Pauses, name, first_line())
    } else if let Some(name) = name.strip_prefix("ban/lock/") {
        (Namespace::Locks, name, first_line())
    } else if let Some(name) = name.strip_prefix("ban/") {
        let at = |word: &str| text.lines().find_map(|line| number(line.strip_prefix(word)?));
        // As in `Listing::forgotten_at`.
        let times = if text.lines().any(|line| line.starts_with("times ")) { 10 } else { 0 };
        let lasts = |until: Timestamp| until.since(at("since ").unwrap_or(until)).as_micros();
        let memory = |until| Span::from_micros(lasts(until).saturating_mul(times));
        let until = at("until ").map(|until| until + memory(until));
        (Namespace::Lists, name, until)
    } else {
        (Namespace::Config, name, None)
    };
    (space, name.into(), Value { bytes: bytes.to_vec(), until })
}
