//! Records: for each namespace a hash of its entries and latest changes, and a sorted set of the entries that
//! expire. A node that follows a namespace reads only what it missed. A whole namespace is read in pages, so
//! that no other client waits long.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use tokio::time::Instant;
use tollgate_core::store::{Answer, MOST_TOGETHER, Records};
use tollgate_core::versioned_map::{Changes, Edit, Expect, MOST_CHANGES, Namespace, Scope, moved};
use tollgate_core::{MAX_EXACT, StoreError, Timestamp};

use super::{RedisStore, head, nonsense};
use crate::resp::{MOST_BYTES, PAGE, Reply};

/// The prefix of entries' fields, which separates them from changes and the version.
const ENTRY: &str = "entry:";
/// The longest value, in bytes: it fits into a reply.
const MOST_VALUE: usize = MOST_BYTES / 2;

/// One reply about changes.
struct ChangesReply {
    now: Timestamp,
    version: u64,
    size: usize,
    /// The version up to which the reply has all changes; `None` if everything must be read.
    upto: Option<u64>,
    entries: Vec<(String, Option<Vec<u8>>)>,
}

impl RedisStore {
    async fn change_all(&self, space: Namespace, edits: &[Edit]) -> Result<Vec<bool>, StoreError> {
        let too_long = |edit: &Edit| edit.to.as_ref().is_some_and(|value| value.bytes.len() > MOST_VALUE);
        if edits.iter().any(too_long) {
            let reason = format!("a value is longer than {MOST_VALUE} bytes");
            return Err(StoreError::OutOfMemory { reason });
        }
        let mut held = Vec::with_capacity(edits.len());
        for edits in edits.chunks(MOST_TOGETHER) {
            held.extend(self.change_some(space, edits).await?);
        }
        Ok(held)
    }

    async fn change_some(&self, space: Namespace, edits: &[Edit]) -> Result<Vec<bool>, StoreError> {
        let keys = self.names.map(space);
        let ends = self.background_deadline();
        let timing = self.timing(&keys[0], ends);
        let most = space.most_entries() as u64;
        let idle = space.idle_after().map_or(0, |idle| idle.as_millis_ceil());
        let numbers = [timing.time, MOST_CHANGES as u64, timing.deadline, most, idle];
        let mut words: Vec<Vec<u8>> = numbers.map(|number| number.to_string().into_bytes()).into();
        for Edit { name, expect, to } in edits {
            let expected = match expect {
                Expect::Any => b"*".to_vec(),
                Expect::Absent => b"-".to_vec(),
                Expect::Is(bytes) => [b"=", &bytes[..]].concat(),
            };
            let (until, bytes) = match to {
                None => ("-".to_owned(), Vec::new()),
                Some(value) => (value.until.map_or(0, Timestamp::as_micros).to_string(), value.bytes.clone()),
            };
            words.extend([name.clone().into_bytes(), expected, until.into_bytes(), bytes]);
        }
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let reply = self.run(&self.scripts.change, [&keys, &[]], &words, ends).await?;
        let head = head(&reply)?;
        match head.status {
            -1 => Err(StoreError::TimedOut),
            -2 => Err(space.full()),
            _ if head.rest.len() != edits.len() => Err(nonsense()),
            _ => Ok(head.rest.iter().map(|held| held.number() == Some(1)).collect()),
        }
    }

    async fn read_changes(&self, space: Namespace, since: Option<u64>) -> Result<Changes, StoreError> {
        if since.is_none() {
            self.move_old_records().await?;
        }
        let secret_was_missing = space == Namespace::Config && self.keep_secret().await?;
        let mut entries = Vec::new();
        let mut known = since;
        loop {
            let ChangesReply { now, version, size, upto, entries: read } =
                self.ask_changes(space, known).await?;
            let now = self.clock.as_ref().map_or(now, |clock| clock.now());
            let Some(upto) = upto else {
                // A change during this read is in the changes since `version`.
                let entries = self.read_entries(space).await?;
                let scope = Scope::All;
                return Ok(Changes { now, version, size, scope, entries, secret_was_missing });
            };
            entries.extend(read);
            if upto == version {
                let scope = Scope::Changes;
                return Ok(Changes { now, version, size, scope, entries, secret_was_missing });
            }
            known = Some(upto);
        }
    }

    async fn ask_changes(&self, space: Namespace, since: Option<u64>) -> Result<ChangesReply, StoreError> {
        let keys = self.names.map(space);
        let ends = self.background_deadline();
        let since = since.map_or_else(|| "-1".to_owned(), |since| since.to_string());
        let (time, kept) = (self.timing(&keys[0], ends).time.to_string(), MOST_CHANGES.to_string());
        let (most, page) = (MOST_TOGETHER.to_string(), PAGE.to_string());
        let words = [&time, &kept, &since, &most, &page].map(|word| word.as_bytes());
        let reply = self.run(&self.scripts.changes, [&keys, &[]], &words, ends).await?;
        split_changes(&reply).ok_or_else(nonsense)
    }

    async fn read_entries(&self, space: Namespace) -> Result<Vec<(String, Option<Vec<u8>>)>, StoreError> {
        let [hash, _] = self.names.map(space);
        // A field that changes meanwhile may be read twice.
        let fields: BTreeMap<String, Vec<u8>> = self.read_hash(&hash).await?.into_iter().collect();
        let entry =
            |(name, value): (String, Vec<u8>)| Some((name.strip_prefix(ENTRY)?.to_owned(), Some(value)));
        Ok(fields.into_iter().filter_map(entry).collect())
    }

    /// Every field of a hash with a UTF-8 name, in pages that fit into a reply.
    async fn read_hash(&self, key: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let (mut fields, mut cursor) = (Vec::new(), String::from("0"));
        let (keys, most) = ([key.to_owned()], PAGE.to_string());
        loop {
            let words: [&[u8]; 3] = [cursor.as_bytes(), b"200", most.as_bytes()];
            let reply =
                self.run(&self.scripts.page, [&keys, &[]], &words, self.background_deadline()).await?;
            let [next, found @ ..] = reply.list().unwrap_or_default() else { return Err(nonsense()) };
            for pair in found.chunks(2) {
                let [name, value] = pair else { return Err(nonsense()) };
                let Some(field) = name.text() else { continue };
                let value = match value.bytes() {
                    Some(value) => value.to_vec(),
                    None => {
                        let reply = self.command(key, &[b"HGET", key.as_bytes(), field.as_bytes()]).await?;
                        let Some(value) = reply.bytes() else { continue };
                        value.to_vec()
                    }
                };
                fields.push((field.to_owned(), value));
            }
            cursor = next.text().ok_or_else(nonsense)?.to_owned();
            if cursor == "0" {
                return Ok(fields);
            }
        }
    }

    /// Migrates the two hashes of the first layout to the namespaces. Several nodes may do it at once and
    /// write the same.
    async fn move_old_records(&self) -> Result<(), StoreError> {
        if self.old_moved.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (records, ledger) = (self.names.records(), self.names.old_ledger());
        for (key, field, start) in [(&records, "record:", ""), (&ledger, ENTRY, "ban/")] {
            let fields = self.read_hash(key).await?;
            let mut edits: BTreeMap<Namespace, Vec<Edit>> = BTreeMap::new();
            for (name, bytes) in &fields {
                let Some(name) = name.strip_prefix(field) else { continue };
                let (space, name, value) = moved(&format!("{start}{name}"), bytes);
                let edit = Edit { name, expect: Expect::Absent, to: Some(value) };
                edits.entry(space).or_default().push(edit);
            }
            for (space, edits) in edits {
                self.change_all(space, &edits).await?;
            }
            let old: Vec<&[u8]> =
                fields.iter().filter(|(name, _)| name != SECRET).map(|(name, _)| name.as_bytes()).collect();
            for old in old.chunks(MOST_TOGETHER) {
                let words: Vec<&[u8]> = [b"HDEL", key.as_bytes()].into_iter().chain(old.to_vec()).collect();
                self.command(key, &words).await?;
            }
        }
        self.old_moved.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Restores the secret if another client has deleted it: secret keys are hashed with it. Returns whether
    /// it was missing.
    async fn keep_secret(&self) -> Result<bool, StoreError> {
        let Some(known) = self.names.key_hash.stored() else { return Ok(false) };
        let key = self.names.records();
        let reply = self.command(&key, &[b"HGET", key.as_bytes(), SECRET.as_bytes()]).await?;
        if reply.bytes() != Some(&known[..]) {
            // A node that cannot read it keeps using the one it knows.
            let _ = self.read_secret(self.background_deadline()).await;
        }
        Ok(reply.bytes().is_none())
    }

    /// Reads the secret, or creates one. It hashes secret keys, unless another one is configured.
    pub(super) async fn read_secret(&self, deadline: Instant) -> Result<[u8; 32], StoreError> {
        let key = self.names.records();
        let own = self.names.key_hash.stored().unwrap_or_else(|| {
            let mut fresh = [0; 32];
            getrandom::fill(&mut fresh).expect("the system gives random numbers");
            fresh
        });
        let words: [&[u8]; 4] = [b"HSETNX", key.as_bytes(), SECRET.as_bytes(), &own];
        self.command_until(&key, &words, deadline).await?;
        let words: [&[u8]; 3] = [b"HGET", key.as_bytes(), SECRET.as_bytes()];
        let reply = self.command_until(&key, &words, deadline).await?;
        let secret = reply.bytes().and_then(|bytes| bytes.try_into().ok());
        let secret = secret.ok_or_else(|| StoreError::Damaged {
            key,
            reason: "the secret in it is not 32 bytes long".into(),
        })?;
        self.names.key_hash.learn(secret);
        Ok(secret)
    }
}

/// The field of the secret.
const SECRET: &str = "secret";

/// Splits a reply about changes.
fn split_changes(reply: &Reply) -> Option<ChangesReply> {
    let [now, version, size, upto, entries @ ..] = reply.list()? else { return None };
    let number = |reply: &Reply| u64::try_from(reply.number()?).ok().filter(|number| *number <= MAX_EXACT);
    let entry = |pair: &[Reply]| {
        let [name, value] = pair else { return None };
        Some((name.text()?.to_owned(), value.bytes().map(<[u8]>::to_vec)))
    };
    Some(ChangesReply {
        now: Timestamp::from_micros(number(now)?),
        version: number(version)?,
        size: usize::try_from(size.number()?.max(0)).ok()?,
        upto: number(upto),
        entries: entries.chunks(2).map(entry).collect::<Option<_>>()?,
    })
}

impl Records for RedisStore {
    fn change<'a>(&'a self, space: Namespace, edits: &'a [Edit]) -> Answer<'a, Vec<bool>> {
        Answer::Later(Box::pin(self.change_all(space, edits)))
    }

    fn changes(&self, space: Namespace, since: Option<u64>) -> Answer<'_, Changes> {
        Answer::Later(Box::pin(self.read_changes(space, since)))
    }

    fn secret(&self) -> Answer<'_, [u8; 32]> {
        Answer::Later(Box::pin(self.read_secret(self.background_deadline())))
    }
}
