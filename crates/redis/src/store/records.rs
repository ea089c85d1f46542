//! Records: what was configured at run time, one hash for all of it.

use std::collections::BTreeMap;

use tokio::time::Instant;
use tollgate_core::StoreError;
use tollgate_core::ledger::{Changes, Edit};
use tollgate_core::store::{Answer, Records};

use super::{RedisStore, head, nonsense};
use crate::resp::{MOST_BYTES, PAGE, Reply};

/// What the fields of records begin with, to set them apart from the version and the secret.
const RECORD: &str = "record:";

/// The longest record, in bytes: it fits into a reply, with room to spare.
const MOST_RECORD: usize = MOST_BYTES / 2;
/// More records than there can be.
const MOST_RECORDS: u64 = 1 << 24;

/// What must be there for a record to be written.
enum Expected<'v> {
    Anything,
    This(Option<&'v [u8]>),
}

impl RedisStore {
    /// Writes a record, or removes it, if what is there is as expected; answers whether it was.
    async fn write_record(
        &self,
        name: &str,
        expected: Expected<'_>,
        value: Option<&[u8]>,
    ) -> Result<bool, StoreError> {
        if value.is_some_and(|value| value.len() > MOST_RECORD) {
            let reason = format!("a record is longer than {MOST_RECORD} bytes");
            return Err(StoreError::OutOfMemory { reason });
        }
        let field = format!("{RECORD}{name}");
        let expected = match expected {
            Expected::Anything => b"*".to_vec(),
            Expected::This(None) => b"-".to_vec(),
            Expected::This(Some(value)) => [b"=", value].concat(),
        };
        let words: Vec<&[u8]> = [field.as_bytes(), &expected].into_iter().chain(value).collect();
        let key = [self.names.records()];
        let reply = self.run(&self.scripts.record, [&key, &[]], &words, self.patience()).await?;
        match reply.number() {
            Some(1) => Ok(true),
            Some(0) => Ok(false),
            _ => Err(nonsense()),
        }
    }

    async fn read_records(&self) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        // A record that is changed meanwhile may be read twice; the version tells that it was changed.
        let mut records = BTreeMap::new();
        for (name, value) in self.read_hash(&self.names.records()).await? {
            if let Some(name) = name.strip_prefix(RECORD) {
                records.insert(name.to_owned(), value);
            }
        }
        Ok(records.into_iter().collect())
    }

    /// Every field of a hash whose name is a text, in pages that fit into a reply.
    pub(super) async fn read_hash(&self, key: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let (mut fields, mut cursor) = (Vec::new(), String::from("0"));
        let (keys, most) = ([key.to_owned()], PAGE.to_string());
        loop {
            let words: [&[u8]; 3] = [cursor.as_bytes(), b"200", most.as_bytes()];
            let reply = self.run(&self.scripts.page, [&keys, &[]], &words, self.patience()).await?;
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

    /// Reads the version, and looks whether keys are still hashed as they are by others: who deleted
    /// everything deleted the secret too, and the first to notice puts it back.
    ///
    /// The version counts changes, and below that the records, so that it is another one, and a lower
    /// one, when records are deleted by hand.
    async fn read_version(&self) -> Result<u64, StoreError> {
        let key = [self.names.records()];
        let reply = self.run(&self.scripts.version, [&key, &[]], &[], self.patience()).await?;
        let head = head(&reply)?;
        let [records, secret @ ..] = head.rest else { return Err(nonsense()) };
        let records = records.number().and_then(|records| u64::try_from(records).ok());
        let (changes, records) = u64::try_from(head.status).ok().zip(records).ok_or_else(nonsense)?;
        let version = changes.saturating_mul(MOST_RECORDS) + records.min(MOST_RECORDS - 1);
        let secret = secret.first().unwrap_or(&Reply::Nil);
        if let Some(known) = self.names.key_hash.stored()
            && secret.bytes() != Some(&known[..])
        {
            // Whoever cannot read it goes on with what is known.
            let _ = self.read_secret(self.patience()).await;
        }
        Ok(version)
    }

    /// The secret that is there, or one that is there from now on. Secret keys are hashed with it, unless
    /// another is configured.
    pub(super) async fn read_secret(&self, deadline: Instant) -> Result<[u8; 32], StoreError> {
        let key = self.names.records();
        let own = self.names.key_hash.stored().unwrap_or_else(|| {
            let mut fresh = [0; 32];
            getrandom::fill(&mut fresh).expect("the system gives random numbers");
            fresh
        });
        let words: [&[u8]; 4] = [b"HSETNX", key.as_bytes(), b"secret", &own];
        self.command_until(&key, &words, deadline).await?;
        let words: [&[u8]; 3] = [b"HGET", key.as_bytes(), b"secret"];
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

impl Records for RedisStore {
    fn put<'a>(&'a self, name: &'a str, value: &'a [u8]) -> Answer<'a, ()> {
        let written = self.write_record(name, Expected::Anything, Some(value));
        Answer::Later(Box::pin(async { written.await.map(|_| ()) }))
    }

    fn delete<'a>(&'a self, name: &'a str) -> Answer<'a, ()> {
        let removed = self.write_record(name, Expected::Anything, None);
        Answer::Later(Box::pin(async { removed.await.map(|_| ()) }))
    }

    fn swap<'a>(&'a self, name: &'a str, from: Option<&'a [u8]>, to: Option<&'a [u8]>) -> Answer<'a, bool> {
        Answer::Later(Box::pin(self.write_record(name, Expected::This(from), to)))
    }

    fn all(&self) -> Answer<'_, Vec<(String, Vec<u8>)>> {
        Answer::Later(Box::pin(self.read_records()))
    }

    fn version(&self) -> Answer<'_, u64> {
        Answer::Later(Box::pin(self.read_version()))
    }

    fn enter<'a>(&'a self, edits: &'a [Edit]) -> Answer<'a, ()> {
        Answer::Later(Box::pin(self.enter_all(edits)))
    }

    fn changes(&self, since: Option<u64>) -> Answer<'_, Changes> {
        Answer::Later(Box::pin(self.read_changes(since)))
    }

    fn secret(&self) -> Answer<'_, [u8; 32]> {
        Answer::Later(Box::pin(self.read_secret(self.patience())))
    }
}
