//! Counts rows in databases of the application, for limits on the number of rows.
//!
//! A count is one read-only transaction whose only parameters are bound values, so that no value can become
//! a part of the query. It locks nothing that an application would notice, sets no session state, and uses
//! no prepared statement, so that a pooler may stand between. Every wait ends with the count's time-out.

pub mod inspect;
mod lines;
mod query;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};
use tollgate_core::RowsError;
use tollgate_core::rows::{Counting, RowCount, RowSource};

use crate::reply_bound::ReplyBound;
use crate::settings::Settings;
use lines::Lines;

/// The application's databases, by name.
pub struct Databases {
    named: RwLock<BTreeMap<String, Arc<Lines>>>,
    handle: Handle,
}

impl Databases {
    /// The most connections to one database, unless configured.
    pub const CONNECTIONS: usize = 4;

    /// Makes the databases. It connects to one when a count needs it. Call it in a tokio runtime: the
    /// connections run on that runtime.
    ///
    /// # Errors
    ///
    /// If the certificates of one cannot be used, in words.
    pub fn new(settings: &BTreeMap<String, Settings>) -> Result<Self, String> {
        let databases = Self { named: RwLock::default(), handle: Handle::current() };
        databases.replace(settings)?;
        Ok(databases)
    }

    /// Replaces the databases. An unchanged database keeps its connections.
    ///
    /// # Errors
    ///
    /// If the certificates of one cannot be used, in words. Nothing is changed then.
    pub fn replace(&self, settings: &BTreeMap<String, Settings>) -> Result<(), String> {
        let mut named = BTreeMap::new();
        for (name, settings) in settings {
            let known = self.named.read().get(name).filter(|lines| *lines.settings() == *settings).cloned();
            let lines = match known {
                Some(lines) => lines,
                None => Arc::new(
                    Lines::new(settings.clone(), self.handle.clone())
                        .map_err(|error| format!("{name}: {error}"))?,
                ),
            };
            named.insert(name.clone(), lines);
        }
        *self.named.write() = named;
        Ok(())
    }
}

impl RowSource for Databases {
    fn count<'a>(&'a self, rows: &'a RowCount, values: &'a [String]) -> Counting<'a> {
        let lines = self.named.read().get(&*rows.database).cloned();
        Box::pin(async move {
            let Some(lines) = lines else {
                let reason = format!("there is no database `{}`", rows.database);
                return Err(RowsError::Unreachable { reason });
            };
            let deadline = Instant::now() + Duration::from_micros(rows.timeout.as_micros());
            let counting = count(&lines, &rows.query, values, deadline);
            match timeout_at(deadline, counting).await {
                Ok(counted) => counted,
                Err(_) => {
                    // The server's own time-out is earlier than this one, so the server is unreachable.
                    lines.close_idle();
                    Err(RowsError::TimedOut)
                }
            }
        })
    }
}

/// Runs one count. Dropping the future closes its connection, which also stops the query on the server.
async fn count(
    lines: &Arc<Lines>,
    query: &str,
    values: &[String],
    deadline: Instant,
) -> Result<u64, RowsError> {
    let line = lines.line().await?;
    let values: Vec<Option<&str>> = values.iter().map(|value| Some(&**value)).collect();
    let (counted, usable) = query::count(line.client(), query, &values, deadline).await;
    if line.has_exceeded() {
        let answer = format!("more than {} bytes", ReplyBound::COUNT.reply);
        return Err(RowsError::NotACount { answer });
    }
    if usable {
        line.give_back();
    }
    counted
}

impl std::fmt::Debug for Databases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.named.read().keys()).finish()
    }
}
