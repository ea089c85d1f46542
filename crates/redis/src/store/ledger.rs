//! The ledger: one hash for its entries and for the latest changes of them, so that a node that follows
//! reads what it missed and no more. All of it is read a part at a time, so that nobody waits for that.

use tollgate_core::ledger::{Changes, Edit, Entry, MOST_CHANGES, Scope};
use tollgate_core::{MAX_EXACT, StoreError, Timestamp};

use super::{RedisStore, head, nonsense};
use crate::resp::{PAGE, Reply};

/// How many changes one script makes or tells.
const AT_ONCE: usize = 1_000;
/// What the fields of entries begin with, to set them apart from the changes and the version.
const ENTRY: &str = "entry:";

/// What the script tells of changes.
struct Told {
    now: Timestamp,
    version: u64,
    size: usize,
    /// Up to which version it tells; `None` if everything has to be read.
    upto: Option<u64>,
    entries: Vec<(String, Option<Vec<u8>>)>,
}

impl RedisStore {
    pub(super) async fn enter_all(&self, edits: &[Edit]) -> Result<(), StoreError> {
        let key = [self.names.ledger()];
        let kept = MOST_CHANGES.to_string();
        for edits in edits.chunks(AT_ONCE) {
            let ends = self.patience();
            let deadline = self.timing(&key[0], ends).deadline.to_string();
            let mut words: Vec<&[u8]> = vec![kept.as_bytes(), deadline.as_bytes()];
            for Edit { name, to } in edits {
                let (what, value): (&[u8], &[u8]) = match to {
                    Entry::Written(value) => (b"write", value),
                    Entry::Removed => (b"remove", b""),
                    Entry::RemovedIf(value) => (b"end", value),
                };
                words.extend([what, name.as_bytes(), value]);
            }
            let reply = self.run(&self.scripts.enter, [&key, &[]], &words, ends).await?;
            if head(&reply)?.status < 0 {
                return Err(StoreError::TimedOut);
            }
        }
        Ok(())
    }

    pub(super) async fn read_changes(&self, since: Option<u64>) -> Result<Changes, StoreError> {
        let mut entries = Vec::new();
        let mut known = since;
        loop {
            let told = self.ask_changes(known).await?;
            let now = Some(self.clock.as_ref().map_or(told.now, |clock| clock.now()));
            let Some(upto) = told.upto else {
                let entries = self.read_ledger().await?;
                return Ok(Changes { now, version: told.version, size: None, scope: Scope::All, entries });
            };
            entries.extend(told.entries);
            if upto == told.version {
                let size = Some(told.size);
                return Ok(Changes { now, version: upto, size, scope: Scope::Changes, entries });
            }
            known = Some(upto);
        }
    }

    async fn ask_changes(&self, since: Option<u64>) -> Result<Told, StoreError> {
        let key = [self.names.ledger()];
        let since = since.map_or_else(|| "-1".to_owned(), |since| since.to_string());
        let (kept, most, page) = (MOST_CHANGES.to_string(), AT_ONCE.to_string(), PAGE.to_string());
        let words: [&[u8]; 4] = [kept.as_bytes(), since.as_bytes(), most.as_bytes(), page.as_bytes()];
        let reply = self.run(&self.scripts.changes, [&key, &[]], &words, self.patience()).await?;
        told(&reply).ok_or_else(nonsense)
    }

    /// Every entry there is. What changes meanwhile is told by whoever asks for changes since before.
    async fn read_ledger(&self) -> Result<Vec<(String, Option<Vec<u8>>)>, StoreError> {
        let fields = self.read_hash(&self.names.ledger()).await?;
        let entry =
            |(name, value): (String, Vec<u8>)| Some((name.strip_prefix(ENTRY)?.to_owned(), Some(value)));
        Ok(fields.into_iter().filter_map(entry).collect())
    }
}

/// Takes what the script told apart.
fn told(reply: &Reply) -> Option<Told> {
    let [now, version, size, upto, entries @ ..] = reply.list()? else { return None };
    let number = |reply: &Reply| u64::try_from(reply.number()?).ok().filter(|number| *number <= MAX_EXACT);
    let entry = |pair: &[Reply]| {
        let [name, value] = pair else { return None };
        Some((name.text()?.to_owned(), value.bytes().map(<[u8]>::to_vec)))
    };
    Some(Told {
        now: Timestamp::from_micros(number(now)?),
        version: number(version)?,
        size: usize::try_from(size.number()?.max(0)).ok()?,
        upto: number(upto),
        entries: entries.chunks(2).map(entry).collect::<Option<_>>()?,
    })
}
