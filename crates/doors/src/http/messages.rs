//! Messages of the mail relay: `/api/v1/messages`, and `/messages` as genro-mail-proxy has it.

mod shape;

use std::collections::HashMap;
use std::sync::Arc;

use axum::http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollgate_relay::Relay;
use tollgate_relay::accounts::Pausable;
use tollgate_relay::lanes::{LaneKey, LaneView};
use tollgate_relay::message::MessageId;
use tollgate_relay::queue::{QueueError, Shown, Wanted};

use super::App;
use super::audit::Change;
use super::auth::Role;
use super::body::{self, Text};
use super::endpoint::{Answered, Ask, Endpoint, Operation};
use super::page::{self, Page};
use super::path;
use super::problem::Problem;
use super::shown::json;
use shape::{LaneShown, MessageShown, MessageStatus, RowShown};

const ALL: &str = "/api/v1/messages";
const ONE: &str = "/api/v1/messages/{id}";
const RETRY: &str = "/api/v1/messages/{id}/retry";
const CANCEL: &str = "/api/v1/messages/{id}/cancel";
const LEGACY: &str = "/messages";
const LANES: &str = "/api/v1/lanes";
const PAUSE: &str = "/api/v1/lanes/pause";
const RESUME: &str = "/api/v1/lanes/resume";

/// How many messages are read from the queue in one go, and how often one request does that, to find messages in the
/// state that is asked for.
const READ_TOGETHER: usize = 100;
const MOST_READS: usize = 200;

#[derive(Serialize, JsonSchema)]
struct MessagePage {
    /// Messages in the order in which they were accepted.
    messages: Vec<RowShown>,
    /// The value of `after` for the next page; null on the last one. A page with a next one
    /// has fewer messages than asked for only if very many do not fit the filter.
    next: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Lanes")]
struct LanesShown {
    /// Lanes with mail, by tenant, account and recipient domain.
    lanes: Vec<LaneShown>,
    /// How many there are in all.
    total: usize,
}

/// Which mail is paused or resumed: all, that of a tenant, or that of a tenant to one domain.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "PauseRequest")]
struct PauseBody<'b> {
    /// The tenant whose mail is paused or resumed; by default all tenants.
    #[serde(borrow, default)]
    tenant: Option<Text<'b>>,
    /// The recipient domain; by default all. Needs `tenant`.
    #[serde(borrow, default)]
    domain: Option<Text<'b>>,
}

/// What a pause or its end changed.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PauseChanged")]
pub(super) struct PauseChanged {
    /// Whether it is paused now.
    pub(super) paused: bool,
    /// Whether that is new.
    pub(super) changed: bool,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "MessageRetried")]
struct Retried {
    /// How many parts of the message, one for each recipient domain, are tried now.
    retried: usize,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "MessageCancelled")]
struct Cancelled {
    /// Whether recipients were still waiting.
    cancelled: bool,
}

pub(crate) fn endpoints() -> Vec<Endpoint> {
    let (check, read, admin) = (Some(Role::Check), Some(Role::Read), Some(Role::Admin));
    let list = Operation::new(ALL, "List messages, oldest first").query(LIST_QUERY).answers::<MessagePage>();
    let look =
        Operation::new(ONE, "Show a message with its recipients and its timeline; a key with the role `check` sees those that it submitted").answers::<MessageShown>();
    let retry = Operation::new(RETRY, "Try a message now").answers::<Retried>();
    let cancel = Operation::new(CANCEL, "Cancel a message for all recipients that are still waiting")
        .answers::<Cancelled>();
    let legacy = Operation::new(LEGACY, "List messages as genro-mail-proxy does")
        .query(LEGACY_QUERY)
        .answers::<MessagePage>();
    let lanes = Operation::new(LANES, "List the lanes of the queue, and what each waits for")
        .query(LANES_QUERY)
        .answers::<LanesShown>();
    let pause = Operation::new(PAUSE, "Pause sending on all nodes; deliveries in flight continue")
        .takes::<PauseBody<'_>>()
        .answers::<PauseChanged>();
    let resume = Operation::new(RESUME, "Resume sending, on all nodes")
        .takes::<PauseBody<'_>>()
        .answers::<PauseChanged>();
    vec![
        Endpoint::new(Method::POST, PAUSE, admin, pause_mail).serves_tenants().does(pause),
        Endpoint::new(Method::POST, RESUME, admin, resume_mail).serves_tenants().does(resume),
        Endpoint::new(Method::GET, ALL, read, show_page).serves_tenants().does(list),
        Endpoint::new(Method::GET, ONE, check, show_one).serves_tenants().does(look),
        Endpoint::new(Method::POST, RETRY, admin, retry_one).serves_tenants().does(retry),
        Endpoint::new(Method::POST, CANCEL, admin, cancel_one).serves_tenants().does(cancel),
        Endpoint::new(Method::GET, LEGACY, read, show_page).serves_tenants().does(legacy),
        Endpoint::new(Method::GET, LANES, read, show_lanes).serves_tenants().does(lanes),
    ]
}

const LIST_QUERY: &[(&str, &str)] = &[
    ("tenant", "only messages of this tenant"),
    ("status", "only `queued`, `deferred`, `retrying`, `sent`, `bounced` or `cancelled` messages"),
    ("recipient", "only messages to this address, or to this domain as `@example.com`"),
    ("message_id", "only messages with this `Message-ID`"),
    page::QUERY[0],
    ("after", "the id of the last message of the page before: `next` in its answer"),
];
const LEGACY_QUERY: &[(&str, &str)] =
    &[("tenant_id", "only messages of this tenant"), page::QUERY[0], page::QUERY[1]];
const LANES_QUERY: &[(&str, &str)] = &[("tenant", "only lanes of this tenant"), page::QUERY[0]];

/// The messages that are asked for.
struct MessageFilter {
    wanted: Wanted,
    status: Option<MessageStatus>,
}

impl MessageFilter {
    fn of(ask: &Ask) -> Result<Self, Problem> {
        let tenant = match ask.query("tenant_id") {
            Some(_) => ask.tenant_filter("tenant_id")?,
            None => ask.tenant_filter("tenant")?,
        };
        let text = |name: &str| ask.query(name).map(path::decode_query).transpose();
        let status = text("status")?.map(|name| {
            let unknown =
                || Problem::bad_request(format!("`status` is one of {}", MessageStatus::NAMES.join(", ")));
            MessageStatus::of_name(&name).ok_or_else(unknown)
        });
        let status = status.transpose()?;
        let finished = status.map(MessageStatus::is_final);
        let (recipient, message_id) = (text("recipient")?, text("message_id")?);
        Ok(Self { wanted: Wanted { tenant, recipient, message_id, finished }, status })
    }
}

async fn show_page(app: Arc<App>, ask: Ask) -> Answered {
    let relay = Arc::clone(app.relay()?);
    let (mut page, filter) = (Page::of(&ask)?, MessageFilter::of(&ask)?);
    // The other proxy has no pages.
    if ask.uri.path() == LEGACY {
        page.limit = page::limit(&ask, page::MOST)?;
    }
    let after = page.after.as_deref().map(message_id).transpose()?;
    let limit = page.limit;
    let found = blocking(move || find(&relay, &filter, after, limit)).await??;
    let (messages, next) = found;
    Ok(json(&MessagePage { messages, next: next.map(shape::id) }))
}

async fn show_one(app: Arc<App>, ask: Ask) -> Answered {
    let relay = Arc::clone(app.relay()?);
    let shown = known(&relay, &ask).await?;
    let lanes = LaneIndex::of_message(&relay, &shown);
    Ok(json(&MessageShown::of(&shown, &lanes)))
}

async fn retry_one(app: Arc<App>, ask: Ask) -> Answered {
    let relay = Arc::clone(app.relay()?);
    let id = known(&relay, &ask).await?.kept.envelope.id;
    let retried = relay.sender().retry(id).await.map_err(failed)?;
    Change { action: "message.retry", what: &shape::id(id), ..Change::default() }.record(&ask);
    Ok(json(&Retried { retried }))
}

async fn cancel_one(app: Arc<App>, ask: Ask) -> Answered {
    let relay = Arc::clone(app.relay()?);
    let shown = known(&relay, &ask).await?;
    let id = shown.kept.envelope.id;
    let waited = shown.items.iter().any(|(_, item)| !item.waiting().is_empty());
    let cancelled = relay.sender().cancel(id).await.map_err(failed)? && waited;
    if cancelled {
        Change { action: "message.cancel", what: &shape::id(id), ..Change::default() }.record(&ask);
    }
    Ok(json(&Cancelled { cancelled }))
}

async fn show_lanes(app: Arc<App>, ask: Ask) -> Answered {
    let limit = page::limit(&ask, 100)?;
    let tenant = ask.tenant_filter("tenant")?;
    let mut lanes = app.relay()?.sender().lanes();
    lanes.retain(|lane| tenant.as_ref().is_none_or(|tenant| **tenant == *lane.key.tenant));
    lanes.sort_unstable_by(|one, two| one.key.cmp(&two.key));
    let total = lanes.len();
    Ok(json(&LanesShown { lanes: lanes.iter().take(limit).map(LaneShown::of).collect(), total }))
}

async fn pause_mail(app: Arc<App>, ask: Ask) -> Answered {
    let what = pausable(&ask)?;
    let changed = app.relay()?.account_registry().pause(&what).await?;
    tell_pause(&ask, "mail.pause", &what, changed);
    Ok(json(&PauseChanged { paused: true, changed }))
}

async fn resume_mail(app: Arc<App>, ask: Ask) -> Answered {
    let what = pausable(&ask)?;
    let changed = app.relay()?.account_registry().resume(&what).await?;
    tell_pause(&ask, "mail.resume", &what, changed);
    Ok(json(&PauseChanged { paused: false, changed }))
}

/// What a body asks to pause, if the caller may.
fn pausable(ask: &Ask) -> Result<Pausable, Problem> {
    let body: PauseBody<'_> = body::read(&ask.body)?;
    let (tenant, domain) = (body.tenant.as_ref().map(Text::as_str), body.domain.as_ref().map(Text::as_str));
    match tenant {
        Some(tenant) => ask.check_tenant(tenant)?,
        None if ask.has_tenant() => {
            return Err(Problem::forbidden("the key belongs to a tenant: name it as `tenant`".to_owned()));
        }
        None => {}
    }
    Ok(Pausable::mail(tenant, domain)?)
}

fn tell_pause(ask: &Ask, action: &'static str, what: &Pausable, changed: bool) {
    if changed {
        Change { action, what: &what.to_string(), ..Change::default() }.record(ask);
    }
}

/// The message that the path names, if the caller may look at it.
async fn known(relay: &Arc<Relay>, ask: &Ask) -> Result<Shown, Problem> {
    let id = path::decode(path::rest(&ask.uri).0)?;
    let unknown =
        || Problem::not_found("there is no such message; finished messages are forgotten after a while");
    let id = message_id(&id)?;
    let queue = relay.queue().clone();
    let shown = blocking(move || queue.show(id)).await?.map_err(failed)?.ok_or_else(unknown)?;
    // A message of another tenant does not exist for a key that has one, nor one of others for a key that only submits.
    let envelope = &shown.kept.envelope;
    ask.check_tenant(&envelope.tenant).map_err(|_| unknown())?;
    match ask.key() {
        Some(key) if key.role() == Role::Check && envelope.origin.api_key.as_deref() != Some(key.name()) => {
            Err(unknown())
        }
        _ => Ok(shown),
    }
}

/// The messages that a filter wants, and where the next page begins.
fn find(
    relay: &Relay,
    filter: &MessageFilter,
    mut after: Option<MessageId>,
    limit: usize,
) -> Result<(Vec<RowShown>, Option<MessageId>), Problem> {
    let lanes = LaneIndex::of(relay);
    let (mut found, mut last) = (Vec::new(), None);
    for _ in 0..MOST_READS {
        let page = relay.queue().find(&filter.wanted, after, READ_TOGETHER).map_err(failed)?;
        for shown in &page.messages {
            let row = RowShown::of(shown, &lanes);
            if filter.status.is_some_and(|status| status != row.status()) {
                continue;
            }
            // There is another page, because there is another message.
            if found.len() == limit {
                return Ok((found, last));
            }
            found.push(row);
            last = Some(shown.kept.envelope.id);
        }
        // If it is cut, the queue has looked at as many messages as it does in one call.
        let is_cut = page.messages.len() < READ_TOGETHER;
        after = page.next;
        if is_cut || after.is_none() {
            break;
        }
    }
    Ok((found, after))
}

/// Lanes by what they are for.
pub(super) struct LaneIndex(HashMap<LaneKey, LaneView>);

impl LaneIndex {
    /// All lanes.
    fn of(relay: &Relay) -> Self {
        Self(relay.sender().lanes().into_iter().map(|lane| (lane.key.clone(), lane)).collect())
    }

    /// The lanes of one message. There may be a hundred thousand others.
    fn of_message(relay: &Relay, shown: &Shown) -> Self {
        let lanes = shown.items.iter().filter_map(|(item, _)| relay.sender().lane_of(*item));
        Self(lanes.map(|lane| (lane.key.clone(), lane)).collect())
    }

    /// The lane of a message at a recipient domain.
    fn find(&self, tenant: &str, account: Option<&str>, domain: &str) -> Option<&LaneView> {
        let key = LaneKey { tenant: tenant.into(), account: account.map(Into::into), domain: domain.into() };
        self.0.get(&key)
    }
}

fn message_id(text: &str) -> Result<MessageId, Problem> {
    let id = (text.len() == 32).then(|| u128::from_str_radix(text, 16).ok()).flatten();
    id.map(MessageId).ok_or_else(|| Problem::bad_request("the id of a message has 32 hexadecimal digits"))
}

fn failed(error: QueueError) -> Problem {
    Problem::unavailable(error.to_string())
}

/// Runs a blocking disk read on the blocking thread pool.
async fn blocking<T: Send + 'static>(read: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
    tokio::task::spawn_blocking(read)
        .await
        .map_err(|_| Problem::unavailable("reading the queue failed".to_owned()))
}
