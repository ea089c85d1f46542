//! Forgetting counters.

use tollgate_core::store::{Forget, Spot};
use tollgate_core::{Plan, StoreError};

use super::RedisStore;
use crate::name::beside;
use crate::resp::Reply;
use crate::row;

/// How long it matters that something was forgotten: as long as anything can be given back.
const MATTERS_MILLIS: u64 = 32 * 86_400_000;

impl RedisStore {
    pub(super) async fn forget_now(&self, what: Forget<'_>) -> Result<(), StoreError> {
        match what {
            Forget::Key(spot) => {
                self.forget_key(&spot).await?;
                self.note_forgotten(spot.plan.rule()).await
            }
            Forget::Rule(rule) => {
                self.forget_pattern(&self.names.pattern(Some(rule))).await?;
                self.note_forgotten(rule).await
            }
            Forget::All => {
                self.forget_pattern(&self.names.pattern(None)).await?;
                self.note_forgotten("*").await
            }
        }
    }

    /// Deletes a counter, also where it is kept under other limits than those that hold now.
    async fn forget_key(&self, spot: &Spot<'_>) -> Result<(), StoreError> {
        let counter = self.names.counter(spot.plan, spot.key);
        let kept = self.command(&[b"GET", counter.as_bytes()]).await;
        let mut doomed = vec![counter.clone()];
        let mut doom =
            |plan: &Plan| doomed.extend(plan.limits().iter().filter_map(|limit| beside(&counter, limit)));
        doom(spot.plan);
        if let Ok(kept) = kept
            && let Some(kept) = kept.bytes()
            && let Some(adoption) = row::adopt(spot.plan, kept, tollgate_core::Timestamp::ZERO)
        {
            doom(&adoption.old);
        }
        self.unlink(&doomed).await
    }

    /// Deletes all counters that match, a few at a time.
    async fn forget_pattern(&self, pattern: &str) -> Result<(), StoreError> {
        let mut cursor = String::from("0");
        loop {
            let words: [&[u8]; 6] =
                [b"SCAN", cursor.as_bytes(), b"MATCH", pattern.as_bytes(), b"COUNT", b"1000"];
            let reply = self.command(&words).await?;
            let [next, found] = reply.list().unwrap_or_default() else {
                return Err(StoreError::Unavailable { reason: "the server's reply makes no sense".into() });
            };
            let found: Vec<String> = found
                .list()
                .unwrap_or_default()
                .iter()
                .filter_map(|key| key.text().map(str::to_owned))
                .collect();
            self.unlink(&found).await?;
            cursor = next.text().unwrap_or("0").to_owned();
            if cursor == "0" {
                return Ok(());
            }
        }
    }

    async fn unlink(&self, keys: &[String]) -> Result<(), StoreError> {
        if keys.is_empty() {
            return Ok(());
        }
        let words: Vec<&[u8]> =
            [&b"UNLINK"[..]].into_iter().chain(keys.iter().map(String::as_bytes)).collect();
        self.command(&words).await.map(|_: Reply| ())
    }

    /// Notes that counters are gone, once they are: what was taken before can no longer be given
    /// back, or it would come out of what is taken from now on.
    async fn note_forgotten(&self, rule: &str) -> Result<(), StoreError> {
        let deadline = self.deadline();
        let (time, matters) = (self.timing(deadline).time.to_string(), MATTERS_MILLIS.to_string());
        let words: [&[u8]; 3] = [rule.as_bytes(), time.as_bytes(), matters.as_bytes()];
        self.run(&self.scripts.forget, [&[self.names.forgotten()], &[]], &words, deadline).await.map(|_| ())
    }
}
