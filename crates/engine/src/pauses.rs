//! Pauses that an upstream asked for: on this node at once, and on every node that shares the store within a
//! second.
//!
//! Each pause is a record of its own, with its scope and its end by the store's clock. So two nodes never
//! write the same record, and the store removes a pause that is over. The key of a secret rule is sealed in
//! the record.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tollgate_core::versioned_map::{Changes, Edit, Namespace, Scope};
use tollgate_core::{Receipt, ReceiptLine, Span, StoreError, Timestamp};

use crate::counters::Counters;
use crate::followed::{Entries, Followed, RecordStore, Replica};
use crate::pacer::PauseFault;
use crate::receipt::{Home, Kind, Seal, Seals};
use crate::ticket;

/// All pauses.
pub(crate) struct Pauses {
    known: Mutex<KnownPauses>,
    version: AtomicU64,
    /// The end of the last pause, in microseconds after `start`.
    last_end: AtomicU64,
    start: Instant,
    records: Arc<RecordStore>,
    counters: Arc<Counters>,
    seals: Arc<Seals>,
}

/// The pauses by the names of their records.
#[derive(Default)]
struct KnownPauses {
    followed: Followed,
    recorded: BTreeMap<String, Pause>,
    /// Pauses that only this node knows: not recorded yet, or the record failed.
    here: BTreeMap<String, Pause>,
}

/// A pause in effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pause {
    pub(crate) scope: Stopped,
    pub(crate) until: Instant,
}

/// The scope of a pause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// All attempts of a policy.
    Policy(String),
    /// All attempts that a rule counts at a key.
    Key { rule: String, key: String },
}

/// The most pauses in effect at once. Every caller that may check may report pauses, so their number is
/// bounded.
const MOST_PAUSES: usize = Namespace::Pauses.most_entries();

impl Pauses {
    pub(crate) fn new(records: Arc<RecordStore>, counters: Arc<Counters>, seals: Arc<Seals>) -> Self {
        Self {
            known: Mutex::default(),
            version: AtomicU64::new(0),
            last_end: AtomicU64::new(0),
            start: Instant::now(),
            records,
            counters,
            seals,
        }
    }

    /// Whether no pause is in effect.
    pub(crate) fn are_over(&self, now: Instant) -> bool {
        let last_end = Duration::from_micros(self.last_end.load(Ordering::Acquire));
        now.saturating_duration_since(self.start) >= last_end
    }

    /// Changes whenever a pause is set or ended.
    pub(crate) fn generation(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Calls `see` with each pause. Returns the version that it has seen.
    pub(crate) fn each(&self, mut see: impl FnMut(&Pause)) -> u64 {
        let pauses = self.known.lock();
        pauses.recorded.values().chain(pauses.here.values()).for_each(&mut see);
        self.generation()
    }

    /// Begins a pause on this node. Returns the name of its record; `None` if a pause of the scope lasts as
    /// long already.
    fn begin(&self, scope: Stopped, until: Instant, now: Instant) -> Result<Option<String>, PauseFault> {
        let mut pauses = self.known.lock();
        let mut lasting = 0;
        for known in pauses.recorded.values().chain(pauses.here.values()) {
            if known.scope == scope && known.until >= until {
                return Ok(None);
            }
            lasting += usize::from(known.until > now);
        }
        if lasting >= MOST_PAUSES {
            return Err(PauseFault::TooMany { most: MOST_PAUSES });
        }
        let name = ticket::next().to_string();
        pauses.here.insert(name.clone(), Pause { scope, until });
        self.changed(&pauses);
        Ok(Some(name))
    }

    /// The records of the same scope that a pause outlasts.
    fn outlasted(&self, name: &str) -> Vec<String> {
        let pauses = self.known.lock();
        let Some(pause) = pauses.here.get(name) else { return Vec::new() };
        let shorter = |known: &Pause| known.scope == pause.scope && known.until <= pause.until;
        pauses.recorded.iter().filter(|(_, known)| shorter(known)).map(|(name, _)| name.clone()).collect()
    }

    /// Ends every pause of these scopes on this node. Returns their records.
    fn end(&self, scopes: &[Stopped]) -> Vec<String> {
        let mut pauses = self.known.lock();
        let ends = |pause: &Pause| scopes.contains(&pause.scope);
        let recorded = pauses.recorded.iter().filter(|(_, pause)| ends(pause));
        let names: Vec<String> = recorded.map(|(name, _)| name.clone()).collect();
        pauses.recorded.retain(|_, pause| !ends(pause));
        pauses.here.retain(|_, pause| !ends(pause));
        self.changed(&pauses);
        names
    }

    fn changed(&self, pauses: &KnownPauses) {
        let ends = pauses.recorded.values().chain(pauses.here.values()).map(|pause| pause.until);
        let last = ends.max().map_or(Duration::ZERO, |end| end.saturating_duration_since(self.start));
        self.last_end.store(Span::from(last).as_micros(), Ordering::Release);
        self.version.fetch_add(1, Ordering::AcqRel);
    }
}

impl Stopped {
    /// The recorded form of a pause: its end, its kind and name, and the key as the rest.
    fn record_value(&self, until: Timestamp) -> Vec<u8> {
        let until = until.as_micros();
        match self {
            Self::Policy(policy) => format!("{until}\npolicy\n{policy}"),
            Self::Key { rule, key } => format!("{until}\nkey\n{rule}\n{key}"),
        }
        .into_bytes()
    }

    fn read(value: &[u8], seal: &Seal) -> Option<(Timestamp, Self)> {
        let mut parts = std::str::from_utf8(value).ok()?.splitn(3, '\n');
        let until = Timestamp::from_micros(parts.next()?.parse().ok()?);
        let scope = match (parts.next()?, parts.next()?) {
            ("policy", policy) => Self::Policy(policy.to_owned()),
            ("key", rest) => {
                let (rule, key) = rest.split_once('\n')?;
                Self::Key { rule: rule.to_owned(), key: key.to_owned() }
            }
            ("sealed", text) => Self::opened(text, seal)?,
            _ => return None,
        };
        Some((until, scope))
    }

    /// As [`Stopped::record_value`], with a sealed key.
    fn sealed(rule: &str, key: &str, until: Timestamp, seal: &Seal) -> Vec<u8> {
        let taken = vec![ReceiptLine { rule: rule.to_owned(), key: key.to_owned(), cost: 0 }];
        let sealed = seal.seal(Kind::Pause, &Receipt { ticket: ticket::next(), at: until, taken });
        format!("{}\nsealed\n{sealed}", until.as_micros()).into_bytes()
    }

    fn opened(text: &str, seal: &Seal) -> Option<Self> {
        let Ok((Kind::Pause, receipt)) = seal.open(text) else { return None };
        let ReceiptLine { rule, key, .. } = receipt.taken.into_iter().next()?;
        Some(Self::Key { rule, key })
    }
}

impl Pauses {
    /// Pauses a scope. It is paused on this node from now on, even if the record fails.
    pub(crate) async fn pause(&self, scope: Stopped, span: Span) -> Result<(), PauseFault> {
        let span = span.min(Span::MAX);
        let now = Instant::now();
        let Some(name) = self.begin(scope.clone(), now + span.into(), now)? else { return Ok(()) };
        self.record_pause(&name, &scope, span).await.map_err(PauseFault::Store)
    }

    async fn record_pause(&self, name: &str, scope: &Stopped, span: Span) -> Result<(), StoreError> {
        // The span counts from the store's time, so the delay of the call does not shorten it.
        let until = self.counters.now().await? + span;
        let mut edits = vec![Edit::put(name, self.pause_record(scope, until)?).until(Some(until))];
        edits.extend(self.outlasted(name).into_iter().map(Edit::remove));
        self.records.change(self, &edits).await.map(drop)
    }

    /// The record of a pause.
    fn pause_record(&self, scope: &Stopped, until: Timestamp) -> Result<Vec<u8>, StoreError> {
        let pinned = self.counters.pin();
        match scope {
            Stopped::Key { rule, key } if pinned.policies.rule(rule).is_some_and(|rule| rule.secret) => {
                let sealed = self.seals.with(Home::Store, |seal| Stopped::sealed(rule, key, until, seal));
                let reason = || "what secret keys are sealed with is not known yet".to_owned();
                sealed.ok_or_else(|| StoreError::Unavailable { reason: reason() })
            }
            _ => Ok(scope.record_value(until)),
        }
    }

    /// Ends every pause of these scopes.
    pub(crate) async fn resume(&self, scopes: &[Stopped]) -> Result<(), StoreError> {
        let edits: Vec<Edit> = self.end(scopes).into_iter().map(Edit::remove).collect();
        if edits.is_empty() {
            return Ok(());
        }
        self.records.change(self, &edits).await.map(drop)
    }
}

impl Replica for Pauses {
    fn space(&self) -> Namespace {
        Namespace::Pauses
    }

    fn version(&self) -> Option<u64> {
        self.known.lock().followed.version()
    }

    fn has_entries(&self) -> bool {
        self.known.lock().followed.has_entries()
    }

    fn apply(&self, known: Option<u64>, changes: &Changes) -> Entries {
        let read = |value: &[u8]| self.seals.with(Home::Store, |seal| Stopped::read(value, seal)).flatten();
        // The delay of the store's reply lengthens a pause, and never shortens it.
        let now = Instant::now();
        let mut pauses = self.known.lock();
        if !pauses.followed.accept(known, changes) {
            return Entries::Complete;
        }
        let whole = changes.scope == Scope::All;
        let changed = !changes.entries.is_empty() || (whole && !pauses.recorded.is_empty());
        if whole {
            pauses.recorded.clear();
        }
        for (name, value) in &changes.entries {
            match value.as_deref().and_then(read) {
                Some((until, scope)) => {
                    let until = now + until.since(changes.now).min(Span::MAX).into();
                    pauses.here.remove(name);
                    pauses.recorded.insert(name.clone(), Pause { scope, until });
                }
                None => {
                    pauses.recorded.remove(name);
                    if value.is_some() {
                        let record = &**name;
                        tracing::warn!(
                            component = "engine",
                            record,
                            "the record of a pause cannot be read and is ignored"
                        );
                    }
                }
            }
        }
        let lasting = pauses.recorded.len();
        let entries = pauses.followed.check_size(changes, lasting);
        if changed {
            pauses.here.retain(|_, pause| pause.until > now);
            self.changed(&pauses);
        }
        entries
    }
}
