//! The audit log: one line for each change, with its author, its object, and the values before and after. The
//! latest changes of this node are also kept in memory, within bounds.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::http::Method;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Serialize;
use tollgate_core::Timestamp;

use super::App;
use super::auth::Role;
use super::endpoint::{Answered, Ask, Endpoint, Operation};
use super::page;
use super::shown::{Moment, json};

/// A change.
#[derive(Default)]
pub(crate) struct Change<'c> {
    /// The kind of change, as in `route.assign`.
    pub(crate) action: &'static str,
    /// The changed object. Keys of secret rules are already pseudonyms.
    pub(crate) what: &'c str,
    pub(crate) before: Option<String>,
    pub(crate) after: Option<String>,
}

impl Change<'_> {
    /// Writes the change to the log, and adds it to the latest changes.
    pub(crate) fn record(self, ask: &Ask) {
        let Self { action, what, before, after } = self;
        let actor = ask.caller();
        tracing::info!(component = "audit", actor, action, what, before, after, "changed over the API");
        let app = ask.app();
        let (actor, what) = (actor.to_owned(), what.to_owned());
        app.changes.keep(Kept { at: app.clock.now(), actor, action, what, before, after });
    }
}

/// The latest changes, newest last.
#[derive(Default)]
pub(crate) struct Changes(Mutex<Latest>);

#[derive(Default)]
struct Latest {
    changes: VecDeque<Kept>,
    bytes: usize,
}

#[derive(Clone)]
struct Kept {
    at: Timestamp,
    actor: String,
    action: &'static str,
    what: String,
    before: Option<String>,
    after: Option<String>,
}

const MOST: usize = 1_000;
/// The most bytes that the texts of all kept changes take together.
const MOST_BYTES: usize = 1 << 20;
const QUERY: &[(&str, &str)] = &[page::QUERY[0]];

impl Kept {
    fn bytes(&self) -> usize {
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        self.actor.len() + self.what.len() + length(&self.before) + length(&self.after)
    }
}

impl Changes {
    fn keep(&self, change: Kept) {
        let latest = &mut *self.0.lock();
        latest.bytes += change.bytes();
        latest.changes.push_back(change);
        while latest.changes.len() > MOST || latest.bytes > MOST_BYTES {
            let Some(oldest) = latest.changes.pop_front() else { break };
            latest.bytes -= oldest.bytes();
        }
    }
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Changes")]
struct ChangesShown {
    /// The latest changes that were made over the API of this node since its start, newest first.
    changes: Vec<ChangeShown>,
}

/// A change at run time.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Change")]
struct ChangeShown {
    /// When it was made (RFC 3339).
    #[schemars(with = "String")]
    at: Moment,
    /// The name of the access key; `anonymous` on a server without keys.
    actor: String,
    /// The kind of change, as in `override.set`.
    action: &'static str,
    /// The changed object.
    what: String,
    /// The value before; null if there was none.
    before: Option<String>,
    /// The value after; null if there is none.
    after: Option<String>,
}

pub(crate) fn endpoints() -> Vec<Endpoint> {
    let list = Operation::new("/api/v1/changes", "Show the latest changes that were made over the API")
        .query(QUERY)
        .answers::<ChangesShown>();
    vec![Endpoint::new(Method::GET, "/api/v1/changes", Some(Role::Read), show).does(list)]
}

async fn show(app: Arc<App>, ask: Ask) -> Answered {
    let most = page::limit(&ask, 100)?;
    let shown = |Kept { at, actor, action, what, before, after }: Kept| ChangeShown {
        at: Moment(at),
        actor,
        action,
        what,
        before,
        after,
    };
    let changes = app.changes.0.lock().changes.iter().rev().take(most).cloned().map(shown).collect();
    Ok(json(&ChangesShown { changes }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_changes_are_kept_in_so_many_bytes() {
        let changes = Changes::default();
        for number in 0..2_000 {
            let what = format!("{number}-{}", "x".repeat(if number < 1_990 { 10 } else { 200_000 }));
            let (actor, action) = ("boss".to_owned(), "ban.set");
            changes.keep(Kept { at: Timestamp::ZERO, actor, action, what, before: None, after: None });
            let latest = changes.0.lock();
            assert!(latest.changes.len() <= MOST && latest.bytes <= MOST_BYTES);
        }
        let latest = changes.0.lock();
        assert!(latest.changes.back().unwrap().what.starts_with("1999-"));
        assert_eq!(latest.bytes, latest.changes.iter().map(Kept::bytes).sum::<usize>());
    }
}
