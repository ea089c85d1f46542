//! Deletes counters.

use tollgate_core::store::{Counter, Forget};
use tollgate_core::{Plan, StoreError};

use super::{RedisStore, nonsense};
use crate::name::beside;
use crate::pool::{Invocation, Way};
use crate::resp::{Reply, write_command};
use crate::row;

/// A deletion is remembered for this long: as long as a refund is possible.
const MATTERS_MILLIS: u64 = 32 * 86_400_000;

impl RedisStore {
    pub(super) async fn forget_now(&self, what: Forget<'_>) -> Result<(), StoreError> {
        match what {
            Forget::Key(counter) => {
                self.forget_key(&counter).await?;
                self.note_forgotten(counter.plan.rule()).await
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

    /// Deletes a counter, even if it is stored under other limits.
    async fn forget_key(&self, counter: &Counter<'_>) -> Result<(), StoreError> {
        self.know_secret(std::iter::once(&**counter.plan)).await?;
        let name = self.names.counter(counter.plan, counter.key)?;
        // A damaged value may have any length.
        let kept = self.command(&name, &[b"GETRANGE", name.as_bytes(), b"0", b"8192"]).await;
        let mut doomed = vec![name.clone()];
        let mut doom =
            |plan: &Plan| doomed.extend(plan.limits().iter().filter_map(|limit| beside(&name, limit)));
        doom(counter.plan);
        if let Ok(kept) = kept
            && let Some(kept) = kept.bytes()
            && let Some(adoption) = row::adopt(counter.plan, kept, tollgate_core::Timestamp::ZERO)
        {
            doom(&adoption.old);
        }
        self.unlink(&doomed).await
    }

    /// Deletes all matching counters, a few at a time, on every server.
    async fn forget_pattern(&self, pattern: &str) -> Result<(), StoreError> {
        for server in self.fleet.servers() {
            let mut cursor = String::from("0");
            loop {
                let words: [&[u8]; 6] =
                    [b"SCAN", cursor.as_bytes(), b"MATCH", pattern.as_bytes(), b"COUNT", b"500"];
                let mut command = Vec::new();
                write_command(&mut command, &words);
                let reply = server
                    .run(Way::Direct, Invocation::Command(&command), self.background_deadline())
                    .await?;
                if let Reply::Error(error) = &reply {
                    return Err(self.refused(error, &[]));
                }
                let [next, found] = reply.list().unwrap_or_default() else { return Err(nonsense()) };
                let found = found.list().unwrap_or_default().iter().filter_map(Reply::text);
                self.unlink(&found.map(str::to_owned).collect::<Vec<_>>()).await?;
                cursor = next.text().unwrap_or("0").to_owned();
                if cursor == "0" {
                    break;
                }
            }
        }
        Ok(())
    }

    async fn unlink(&self, keys: &[String]) -> Result<(), StoreError> {
        for group in self.fleet.groups(keys) {
            let Some(first) = group.first() else { continue };
            let doomed = group.iter().map(|index| keys[*index].as_bytes());
            let words: Vec<&[u8]> = [&b"UNLINK"[..]].into_iter().chain(doomed).collect();
            self.command(&keys[*first], &words).await?;
        }
        Ok(())
    }

    /// Records that counters are gone, once they are. Earlier charges can then no longer be refunded;
    /// otherwise a refund would reduce later counts.
    async fn note_forgotten(&self, rule: &str) -> Result<(), StoreError> {
        let deadline = self.deadline();
        let (time, matters) = (self.timing("", deadline).time.to_string(), MATTERS_MILLIS.to_string());
        let words: [&[u8]; 3] = [rule.as_bytes(), time.as_bytes(), matters.as_bytes()];
        self.run(&self.scripts.forget, [&[self.names.forgotten()], &[]], &words, deadline).await.map(|_| ())
    }
}
