//! Messages of the mail relay: `/api/v1/messages`, and `/messages` as genro-mail-proxy has it.

mod acting;
mod pauses;
mod shape;

use std::io::Read;
use std::sync::Arc;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, Method};
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollgate_core::grammar::parse_span;
use tollgate_relay::Relay;
use tollgate_relay::accounts::Pausable;
use tollgate_relay::message::MessageId;
use tollgate_relay::queue::{Order, QueueError, Shown, Wanted};

use super::App;
use super::audit::Change;
use super::auth::Role;
use super::body::{self, Text};
use super::endpoint::{Answered, Ask, Endpoint, Operation};
use super::page::{self, Page};
use super::path;
use super::problem::Problem;
use super::shown::json;
pub(super) use pauses::MailPauseShown;
use pauses::PausesShown;
use shape::{LaneShown, MessageShown, MessageStatus, RowShown};

const ALL: &str = "/api/v1/messages";
const ONE: &str = "/api/v1/messages/{id}";
const TEXT: &str = "/api/v1/messages/{id}/text";
const PAUSES: &str = "/api/v1/pauses";
const LEGACY: &str = "/messages";
const LANES: &str = "/api/v1/lanes";
const PAUSE: &str = "/api/v1/lanes/pause";
const RESUME: &str = "/api/v1/lanes/resume";

const RFC822: &str = "message/rfc822";
/// The longest text that is shown.
const MOST_TEXT: u64 = 64 << 20;

/// How many messages are read from the queue in one go, and how often one request does that, to find messages in the
/// state that is asked for.
const READ_TOGETHER: usize = 100;
const MOST_READS: usize = 200;

#[derive(Serialize, JsonSchema)]
struct MessagePage {
    /// The latest message first, unless `order` says otherwise. `/messages` has the oldest first.
    messages: Vec<RowShown>,
    /// The value of `after` for the next page; null on the last one. A page with a next one
    /// has fewer messages than asked for only if very many do not fit the filter.
    next: Option<String>,
    /// Whether there are more messages than these: ask again, with `next` as `after`.
    more: bool,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Lanes")]
struct LanesShown {
    /// Lanes with mail, by tenant, account and recipient domain.
    lanes: Vec<LaneShown>,
    /// How many there are in all.
    total: usize,
    /// What operators paused, also where no mail waits.
    pauses: Vec<MailPauseShown>,
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

pub(crate) fn endpoints() -> Vec<Endpoint> {
    let (check, read, admin) = (Some(Role::Check), Some(Role::Read), Some(Role::Admin));
    let list = Operation::new(ALL, "List messages, newest first").query(LIST_QUERY).answers::<MessagePage>();
    let look =
        Operation::new(ONE, "Show a message with its recipients and its timeline; a key with the role `check` sees those that it submitted").answers::<MessageShown>();
    let text =
        Operation::new(TEXT, "Show the text of a message that still waits").also::<String>(200, RFC822);
    let pauses = Operation::new(PAUSES, "List what operators paused, also where no mail waits")
        .query(&[("tenant", "only pauses of this tenant and of all mail")])
        .answers::<PausesShown>();
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
    let mut all = acting::endpoints();
    all.extend([
        Endpoint::new(Method::GET, TEXT, admin, show_text).serves_tenants().does(text),
        Endpoint::new(Method::GET, PAUSES, read, pauses::show_pauses).serves_tenants().does(pauses),
        Endpoint::new(Method::POST, PAUSE, admin, pause_mail).serves_tenants().does(pause),
        Endpoint::new(Method::POST, RESUME, admin, resume_mail).serves_tenants().does(resume),
        Endpoint::new(Method::GET, ALL, read, show_page).serves_tenants().does(list),
        Endpoint::new(Method::GET, ONE, check, show_one).serves_tenants().does(look),
        Endpoint::new(Method::GET, LEGACY, read, show_page).serves_tenants().does(legacy),
        Endpoint::new(Method::GET, LANES, read, show_lanes).serves_tenants().does(lanes),
    ]);
    all
}

/// The query parameters that select messages.
const FILTERS: [(&str, &str); 8] = [
    ("tenant", "only messages of this tenant"),
    (
        "status",
        "only `queued`, `deferred`, `retrying`, `sent`, `bounced` or `cancelled` messages, or those `waiting`",
    ),
    ("sender", "only messages from this address, or from this domain as `@example.com`"),
    ("recipient", "only messages to this address, or to this domain as `@example.com`"),
    ("account", "only messages that name this account, or wait for it"),
    ("message_id", "only messages with this `Message-ID`"),
    ("older_than", "only messages that were accepted so long ago, as `30m` or `2d`"),
    ("newer_than", "only messages that were accepted later than so long ago"),
];
const LIST_QUERY: &[(&str, &str)] = &[
    FILTERS[0],
    FILTERS[1],
    FILTERS[2],
    FILTERS[3],
    FILTERS[4],
    FILTERS[5],
    FILTERS[6],
    FILTERS[7],
    ("order", "`newest` (the default) or `oldest` first"),
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
    account: Option<String>,
}

impl MessageFilter {
    fn of(app: &App, ask: &Ask) -> Result<Self, Problem> {
        let tenant = match ask.query("tenant_id") {
            Some(_) => ask.tenant_filter("tenant_id")?,
            None => ask.tenant_filter("tenant")?,
        };
        let text = |name: &str| ask.query(name).map(path::decode_query).transpose();
        let status = text("status")?;
        let is_waiting = status.as_deref() == Some(MessageStatus::WAITING);
        let status = status.filter(|_| !is_waiting).map(|name| {
            let names = MessageStatus::NAMES.join(", ");
            let unknown =
                || Problem::bad_request(format!("`status` is one of {names}, {}", MessageStatus::WAITING));
            MessageStatus::of_name(&name).ok_or_else(unknown)
        });
        let status = status.transpose()?;
        let finished = if is_waiting { Some(false) } else { status.map(MessageStatus::is_final) };
        let now = app.relay()?.acceptances().clock.now();
        let ago = |name: &str| {
            let span = text(name)?.map(|text| {
                let wrong = || Problem::bad_request(format!("`{name}` is a time, as `30m` or `2d`"));
                parse_span(&text).map_err(|_| wrong())
            });
            Ok::<_, Problem>(span.transpose()?.map(|span| now - span))
        };
        let order = match ask.query("order") {
            None if ask.uri.path() == LEGACY => Order::Oldest,
            None | Some("newest") => Order::Newest,
            Some("oldest") => Order::Oldest,
            Some(_) => return Err(Problem::bad_request("`order` is `newest` or `oldest`")),
        };
        let (recipient, message_id, sender) = (text("recipient")?, text("message_id")?, text("sender")?);
        let (until, since) = (ago("older_than")?, ago("newer_than")?);
        let wanted = Wanted { tenant, recipient, message_id, finished, sender, until, since, order };
        Ok(Self { wanted, status, account: text("account")? })
    }

    fn fits(&self, row: &RowShown) -> bool {
        self.status.is_none_or(|status| status == row.status())
            && self.account.as_ref().is_none_or(|account| row.is_through(account))
    }
}

async fn show_page(app: Arc<App>, ask: Ask) -> Answered {
    let relay = Arc::clone(app.relay()?);
    let (mut page, filter) = (Page::of(&ask)?, MessageFilter::of(&app, &ask)?);
    // The other proxy has no pages.
    if ask.uri.path() == LEGACY {
        page.limit = page::limit(&ask, page::MOST)?;
    }
    let after = page.after.as_deref().map(message_id).transpose()?;
    let limit = page.limit;
    let found = blocking(move || find(&relay, &filter, after, limit)).await??;
    let (messages, next) = found;
    Ok(json(&MessagePage { messages, more: next.is_some(), next: next.map(shape::id) }))
}

async fn show_one(app: Arc<App>, ask: Ask) -> Answered {
    let relay = Arc::clone(app.relay()?);
    let shown = known(&relay, &ask).await?;
    Ok(json(&MessageShown::of(&shown, &|item| relay.sender().wait_of(item))))
}

/// The text of a message. It is read with the room of a body, because a slow reader keeps it in memory.
async fn show_text(app: Arc<App>, ask: Ask) -> Answered {
    let relay = Arc::clone(app.relay()?);
    let shown = known(&relay, &ask).await?;
    if shown.kept.finished.is_some() {
        return Err(Problem::not_found("the text is deleted when no recipient waits any more"));
    }
    if shown.kept.size > MOST_TEXT {
        return Err(Problem::too_large(MOST_TEXT as usize));
    }
    let id = shown.kept.envelope.id;
    let text = blocking(move || {
        let text = relay.queue().text(&shown.kept).map_err(failed)?;
        let mut bytes = Vec::new();
        let read = text.bytes.take(MOST_TEXT).read_to_end(&mut bytes);
        read.map(|_| bytes).map_err(|error| Problem::unavailable(format!("the text cannot be read: {error}")))
    });
    let bytes = text.await??;
    Change { action: "message.text", what: &shape::id(id), ..Change::default() }.record(&ask);
    let mut response = Response::new(Body::from(bytes));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(RFC822));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

async fn show_lanes(app: Arc<App>, ask: Ask) -> Answered {
    let limit = page::limit(&ask, 100)?;
    let tenant = ask.tenant_filter("tenant")?;
    let mut lanes = app.relay()?.sender().lanes();
    lanes.retain(|lane| tenant.as_ref().is_none_or(|tenant| **tenant == *lane.key.tenant));
    lanes.sort_unstable_by(|one, two| one.key.cmp(&two.key));
    let total = lanes.len();
    let pauses = MailPauseShown::all(Some(app.relay()?), tenant.as_deref());
    Ok(json(&LanesShown { lanes: lanes.iter().take(limit).map(LaneShown::of).collect(), total, pauses }))
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
    let waits = |item| relay.sender().wait_of(item);
    let (mut found, mut last) = (Vec::new(), None);
    for _ in 0..MOST_READS {
        let page = relay.queue().find(&filter.wanted, after, READ_TOGETHER).map_err(failed)?;
        for shown in &page.messages {
            let row = RowShown::of(shown, &waits);
            if !filter.fits(&row) {
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
