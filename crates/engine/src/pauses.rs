//! What stands still for a while because somebody upstream said so: here at once, and on every node
//! that shares the store within a second.
//!
//! Each pause is a record of its own, which says what stands still and until when by the store's
//! clock. So two nodes never write the same record, and any node may remove one that is over. The key of a
//! secret rule is sealed in it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tollgate_core::{Receipt, ReceiptLine, Span, StoreError, Timestamp};

use crate::engine::Engine;
use crate::pacer::PauseFault;
use crate::receipt::{Home, Kind, Seal};
use crate::ticket;

/// All pauses.
pub(crate) struct Pauses {
    book: Mutex<Book>,
    version: AtomicU64,
    /// When the last of them ends, in microseconds after `start`.
    last_end: AtomicU64,
    start: Instant,
}

/// The pauses by the names of their records.
#[derive(Default)]
struct Book {
    recorded: BTreeMap<String, Pause>,
    /// Those that this node alone knows: not recorded yet, or in vain.
    here: BTreeMap<String, Pause>,
}

/// Something that stands still.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pause {
    pub(crate) scope: Stopped,
    pub(crate) until: Instant,
}

/// What stands still.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// Whatever passes a policy.
    Policy(String),
    /// Whatever a rule counts at a key.
    Key { rule: String, key: String },
}

const PREFIX: &str = "pause/";
/// How many records that are over are removed at a time.
const REMOVED: usize = 16;
/// How many pauses may last at once: whoever reports them may be anybody who may ask.
const MOST_PAUSES: usize = 4_000;

impl Default for Pauses {
    fn default() -> Self {
        let start = Instant::now();
        Self { book: Mutex::default(), version: AtomicU64::new(0), last_end: AtomicU64::new(0), start }
    }
}

impl Pauses {
    /// Whether nothing stands still.
    pub(crate) fn are_over(&self, now: Instant) -> bool {
        let last_end = Duration::from_micros(self.last_end.load(Ordering::Acquire));
        now.saturating_duration_since(self.start) >= last_end
    }

    /// Changes whenever a pause is set or ended.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Calls `see` with each pause. Answers the version that it has seen.
    pub(crate) fn each(&self, mut see: impl FnMut(&Pause)) -> u64 {
        let book = self.book.lock();
        book.recorded.values().chain(book.here.values()).for_each(&mut see);
        self.version()
    }

    /// Begins a pause on this node. Answers the name of its record, unless one lasts as long already.
    fn begin(&self, scope: Stopped, until: Instant, now: Instant) -> Result<Option<String>, PauseFault> {
        let mut book = self.book.lock();
        let mut lasting = 0;
        for known in book.recorded.values().chain(book.here.values()) {
            if known.scope == scope && known.until >= until {
                return Ok(None);
            }
            lasting += usize::from(known.until > now);
        }
        if lasting >= MOST_PAUSES {
            return Err(PauseFault::TooMany { most: MOST_PAUSES });
        }
        let name = format!("{PREFIX}{}", ticket::next());
        book.here.insert(name.clone(), Pause { scope, until });
        self.changed(&book);
        Ok(Some(name))
    }

    /// Takes note that a pause is recorded. Answers the records that say nothing any more: those that
    /// it outlasts, and those that are over.
    fn recorded(&self, name: &str, now: Instant) -> Vec<String> {
        let mut book = self.book.lock();
        let Some(pause) = book.here.remove(name) else { return Vec::new() };
        let idle =
            |known: &Pause| known.until <= now || (known.scope == pause.scope && known.until <= pause.until);
        let idle = book.recorded.iter().filter(|(_, known)| idle(known)).map(|(name, _)| name.clone());
        let idle: Vec<String> = idle.take(REMOVED).collect();
        idle.iter().for_each(|name| drop(book.recorded.remove(name)));
        book.recorded.insert(name.to_owned(), pause);
        book.here.retain(|_, pause| pause.until > now);
        idle
    }

    /// Ends every pause of these scopes on this node. Answers their records.
    fn end(&self, scopes: &[Stopped]) -> Vec<String> {
        let mut book = self.book.lock();
        let ends = |pause: &Pause| scopes.contains(&pause.scope);
        let recorded = book.recorded.iter().filter(|(_, pause)| ends(pause));
        let names: Vec<String> = recorded.map(|(name, _)| name.clone()).collect();
        book.recorded.retain(|_, pause| !ends(pause));
        book.here.retain(|_, pause| !ends(pause));
        self.changed(&book);
        names
    }

    /// Follows what is recorded.
    pub(crate) fn follow(&self, recorded: BTreeMap<String, Pause>) {
        let mut book = self.book.lock();
        if !(recorded.is_empty() && book.recorded.is_empty()) {
            book.recorded = recorded;
            self.changed(&book);
        }
    }

    fn changed(&self, book: &Book) {
        let ends = book.recorded.values().chain(book.here.values()).map(|pause| pause.until);
        let last = ends.max().map_or(Duration::ZERO, |end| end.saturating_duration_since(self.start));
        self.last_end.store(Span::from(last).as_micros(), Ordering::Release);
        self.version.fetch_add(1, Ordering::AcqRel);
    }
}

impl Stopped {
    /// A pause as it is recorded: its end, what kind it is and of what, and the key to the end.
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

    /// As [`Stopped::record_value`], where nobody is to read the key.
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

impl Engine {
    /// Lets something stand still. It does on this node from now on, whatever comes of telling others.
    pub(crate) async fn pause(&self, scope: Stopped, span: Span) -> Result<(), PauseFault> {
        let span = span.min(Span::MAX);
        let now = Instant::now();
        let Some(name) = self.pauses.begin(scope.clone(), now + span.into(), now)? else { return Ok(()) };
        self.record_pause(&name, &scope, span, now).await.map_err(PauseFault::Store)
    }

    async fn record_pause(
        &self,
        name: &str,
        scope: &Stopped,
        span: Span,
        now: Instant,
    ) -> Result<(), StoreError> {
        // Of the span, nothing is lost on the way to the store.
        let until = self.store_now().await? + span;
        self.ask(self.records.put(name, &self.pause_record(scope, until)?)).await?;
        let idle = self.pauses.recorded(name, now);
        self.configured.lock().edits += 1;
        self.remove_records(&idle).await
    }

    /// What is recorded of a pause.
    fn pause_record(&self, scope: &Stopped, until: Timestamp) -> Result<Vec<u8>, StoreError> {
        let pinned = self.pin();
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
        let names = self.pauses.end(scopes);
        self.configured.lock().edits += 1;
        self.remove_records(&names).await
    }

    async fn remove_records(&self, names: &[String]) -> Result<(), StoreError> {
        for name in names {
            self.ask(self.records.delete(name)).await?;
        }
        Ok(())
    }

    /// Reads the pauses among all records. A store that can be asked at all tells its time.
    pub(crate) async fn read_pauses(
        &self,
        records: &[(String, Vec<u8>)],
        seal: &Seal,
    ) -> Result<BTreeMap<String, Pause>, StoreError> {
        let pauses = recorded(records, seal);
        if pauses.is_empty() {
            return Ok(BTreeMap::new());
        }
        // The way back from the store lengthens a pause, and does not cut it short.
        let there = self.store.now().await?;
        let here = Instant::now();
        let pauses = pauses.into_iter().map(|(name, until, scope)| {
            let until = here + until.since(there).min(Span::MAX).into();
            (name, Pause { scope, until })
        });
        Ok(pauses.collect())
    }

    /// The store's time.
    pub async fn store_now(&self) -> Result<Timestamp, StoreError> {
        self.ask(self.store.now()).await
    }
}

/// The pauses among all records: name, end by the store's clock, and what stands still.
fn recorded(records: &[(String, Vec<u8>)], seal: &Seal) -> Vec<(String, Timestamp, Stopped)> {
    let pauses = records.iter().filter(|(name, _)| name.starts_with(PREFIX));
    let pauses = pauses.filter_map(|(name, value)| {
        let (until, scope) = Stopped::read(value, seal)?;
        Some((name.clone(), until, scope))
    });
    pauses.collect()
}
