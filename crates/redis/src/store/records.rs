//! Records: what was configured at run time, one hash for all of it.

use tokio::time::Instant;
use tollgate_core::StoreError;
use tollgate_core::ledger::{Edit, News};
use tollgate_core::store::{Answer, Records};

use super::{RedisStore, nonsense};
use crate::resp::Reply;

/// What the fields of records begin with, to set them apart from the version and the secret.
const RECORD: &str = "record:";

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
        let key = self.names.records();
        let reply = self.command(&key, &[b"HGETALL", key.as_bytes()]).await?;
        let pairs = reply.list().unwrap_or_default().chunks(2);
        let record = |pair: &[Reply]| {
            let [name, value] = pair else { return None };
            Some((name.text()?.strip_prefix(RECORD)?.to_owned(), value.bytes()?.to_vec()))
        };
        let mut records: Vec<_> = pairs.filter_map(record).collect();
        records.sort();
        Ok(records)
    }

    /// Reads the version, and looks whether keys are still hashed as they are by others: who deleted
    /// everything deleted the secret too, and the first to notice puts it back.
    async fn read_version(&self) -> Result<u64, StoreError> {
        let key = self.names.records();
        let reply = self.command(&key, &[b"HMGET", key.as_bytes(), b"version", b"secret"]).await?;
        let [version, secret] = reply.list().unwrap_or_default() else { return Err(nonsense()) };
        let version = version.text().and_then(|version| version.parse().ok()).unwrap_or(0);
        if let Some(known) = self.names.hiding.stored()
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
        let own = self.names.hiding.stored().unwrap_or_else(|| {
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
        self.names.hiding.learn(secret);
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

    fn news(&self, since: Option<u64>) -> Answer<'_, News> {
        Answer::Later(Box::pin(self.read_news(since)))
    }

    fn secret(&self) -> Answer<'_, [u8; 32]> {
        Answer::Later(Box::pin(self.read_secret(self.patience())))
    }
}
