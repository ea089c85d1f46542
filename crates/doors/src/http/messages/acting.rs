//! What operators do with messages: retry, release, cancel and delete, one of them or all that fit a filter.

use std::sync::Arc;

use axum::http::Method;
use schemars::JsonSchema;
use serde::Serialize;
use tollgate_relay::Relay;
use tollgate_relay::message::MessageId;

use super::shape::{self, WaitShown};
use super::{MessageFilter, blocking, failed, find, known};
use crate::http::App;
use crate::http::audit::Change;
use crate::http::auth::Role;
use crate::http::endpoint::{Answered, Ask, Endpoint, Operation};
use crate::http::problem::Problem;
use crate::http::shown::json;

const RETRY: &str = "/api/v1/messages/{id}/retry";
const RELEASE: &str = "/api/v1/messages/{id}/release";
const CANCEL: &str = "/api/v1/messages/{id}/cancel";
const DELETE: &str = "/api/v1/messages/{id}/delete";
const MANY: &str = "/api/v1/messages/bulk";
/// How many messages one request changes at most.
const MOST_CHANGED: usize = 10_000;

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "MessageRetried")]
struct Retried {
    /// How many parts of the message, one for each recipient domain, were made due.
    retried: usize,
    /// What parts still wait for: a limit, a pause, or a rest that their server asked for. Empty if all are tried now.
    waits_for: Vec<WaitShown>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "MessageCancelled")]
struct Cancelled {
    /// Whether recipients were still waiting.
    cancelled: bool,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "MessageDeleted")]
struct DeletedShown {
    /// Whether the message is gone. One that is being sent is not.
    deleted: bool,
}

/// What a request for many messages found and did.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "MessagesChanged")]
struct Changed {
    /// How many messages fit the filter, up to 10,000.
    matched: usize,
    /// How many were changed. 0 without `confirm`.
    changed: usize,
    /// Whether more messages than `matched` may fit. Repeat the request for them.
    more: bool,
}

/// What is done with a message.
#[derive(Clone, Copy)]
enum Act {
    Retry,
    Release,
    Cancel,
    Delete,
}

impl Act {
    fn of_name(name: &str) -> Option<Self> {
        match name {
            "retry" => Some(Self::Retry),
            "release" => Some(Self::Release),
            "cancel" => Some(Self::Cancel),
            "delete" => Some(Self::Delete),
            _ => None,
        }
    }

    fn audited(self) -> &'static str {
        match self {
            Self::Retry => "message.retry",
            Self::Release => "message.release",
            Self::Cancel => "message.cancel",
            Self::Delete => "message.delete",
        }
    }

    /// Returns whether it changed something.
    async fn run(self, relay: &Relay, id: MessageId) -> Result<bool, Problem> {
        let sender = relay.sender();
        match self {
            Self::Retry => sender.retry(id).await.map(|parts| parts > 0),
            Self::Release => sender.end_rests(id).await.map(|parts| parts > 0),
            Self::Cancel => sender.cancel(id).await,
            Self::Delete => sender.delete(id).await,
        }
        .map_err(failed)
    }
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    let admin = Some(Role::Admin);
    let retry =
        Operation::new(RETRY, "Try a message now; limits, pauses and rests still hold").answers::<Retried>();
    let release = Operation::new(
        RELEASE,
        "Try a message now, and end the rests that its servers asked for, also for other messages of the same lanes",
    )
    .answers::<Retried>();
    let cancel = Operation::new(CANCEL, "Cancel a message for all recipients that are still waiting")
        .answers::<Cancelled>();
    let delete = Operation::new(
        DELETE,
        "Delete a message and its history; what waits of it is cancelled without a report",
    )
    .answers::<DeletedShown>();
    let many = Operation::new(MANY, "Retry, release, cancel or delete all messages that fit a filter")
        .query(MANY_QUERY)
        .answers::<Changed>();
    vec![
        Endpoint::new(Method::POST, MANY, admin, change_many).serves_tenants().does(many),
        Endpoint::new(Method::POST, RETRY, admin, retry_one).serves_tenants().does(retry),
        Endpoint::new(Method::POST, RELEASE, admin, release_one).serves_tenants().does(release),
        Endpoint::new(Method::POST, CANCEL, admin, cancel_one).serves_tenants().does(cancel),
        Endpoint::new(Method::POST, DELETE, admin, delete_one).serves_tenants().does(delete),
    ]
}

const MANY_QUERY: &[(&str, &str)] = &[
    ("action", "`retry`, `release`, `cancel` or `delete`"),
    (
        "confirm",
        "how many messages fit, as `matched` says without this; if the number differs, nothing is changed",
    ),
    super::FILTERS[0],
    super::FILTERS[1],
    super::FILTERS[2],
    super::FILTERS[3],
    super::FILTERS[4],
    super::FILTERS[5],
    super::FILTERS[6],
    super::FILTERS[7],
];

async fn retry_one(app: Arc<App>, ask: Ask) -> Answered {
    try_now(&app, &ask, Act::Retry).await
}

async fn release_one(app: Arc<App>, ask: Ask) -> Answered {
    try_now(&app, &ask, Act::Release).await
}

/// Tries a message, and tells what its parts still wait for.
async fn try_now(app: &Arc<App>, ask: &Ask, act: Act) -> Answered {
    let relay = Arc::clone(app.relay()?);
    let id = known(&relay, ask).await?.kept.envelope.id;
    let sender = relay.sender();
    let retried = match act {
        Act::Release => sender.end_rests(id).await,
        _ => sender.retry(id).await,
    };
    let retried = retried.map_err(failed)?;
    Change { action: act.audited(), what: &shape::id(id), ..Change::default() }.record(ask);
    let shown = known(&relay, ask).await?;
    let keeping = shown.items.iter().filter_map(|(key, item)| {
        let wait = sender.wait_of(*key).filter(|wait| wait.keeps())?;
        Some(WaitShown::of(&shown, item, wait))
    });
    Ok(json(&Retried { retried, waits_for: keeping.collect() }))
}

async fn cancel_one(app: Arc<App>, ask: Ask) -> Answered {
    let relay = Arc::clone(app.relay()?);
    let shown = known(&relay, &ask).await?;
    let id = shown.kept.envelope.id;
    let waited = shown.items.iter().any(|(_, item)| !item.waiting().is_empty());
    let cancelled = Act::Cancel.run(&relay, id).await? && waited;
    if cancelled {
        Change { action: Act::Cancel.audited(), what: &shape::id(id), ..Change::default() }.record(&ask);
    }
    Ok(json(&Cancelled { cancelled }))
}

async fn delete_one(app: Arc<App>, ask: Ask) -> Answered {
    let relay = Arc::clone(app.relay()?);
    let id = known(&relay, &ask).await?.kept.envelope.id;
    let deleted = Act::Delete.run(&relay, id).await?;
    if deleted {
        Change { action: Act::Delete.audited(), what: &shape::id(id), ..Change::default() }.record(&ask);
    }
    Ok(json(&DeletedShown { deleted }))
}

async fn change_many(app: Arc<App>, ask: Ask) -> Answered {
    let relay = Arc::clone(app.relay()?);
    let act = ask.query("action").and_then(Act::of_name);
    let act =
        act.ok_or_else(|| Problem::bad_request("`action` is `retry`, `release`, `cancel` or `delete`"))?;
    let confirmed = ask.query("confirm").map(|text| text.parse::<usize>()).transpose();
    let confirmed = confirmed.map_err(|_| Problem::bad_request("`confirm` is a number of messages"))?;
    let filter = MessageFilter::of(&app, &ask)?;
    let reader = Arc::clone(&relay);
    let (found, next) = blocking(move || find(&reader, &filter, None, MOST_CHANGED)).await??;
    let matched = found.len();
    let more = next.is_some();
    let Some(confirmed) = confirmed else { return Ok(json(&Changed { matched, changed: 0, more })) };
    if confirmed != matched {
        return Err(Problem::conflict(format!(
            "{matched} messages fit the filter now, and {confirmed} were confirmed: nothing was changed"
        )));
    }
    let mut changed = 0;
    for row in found {
        changed += usize::from(act.run(&relay, row.message()).await?);
    }
    if changed > 0 {
        let what = format!("{changed} messages");
        Change { action: act.audited(), what: &what, ..Change::default() }.record(&ask);
    }
    Ok(json(&Changed { matched, changed, more }))
}
