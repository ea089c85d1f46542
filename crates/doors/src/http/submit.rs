//! Submitting mail: `POST /api/v1/messages`, as JSON or as a complete message. It passes the same policy, and goes into
//! the same queue, as mail over SMTP.

mod compose;
mod envelope;
mod refusal;
mod values;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, HeaderValue, Method, Request, StatusCode};
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use sha2::{Digest, Sha256};
use tollgate_core::Span;
use tollgate_relay::acceptance::{Acceptance, Acceptances, Submission, Via};
use tollgate_relay::accounts::check_name;
use tollgate_relay::lanes::Priority;
use tollgate_relay::message::{Accepted, Idempotency, ReportWish};
use tollgate_relay::session::Identity;

use super::App;
use super::auth::{Caller, Role};
use super::body::{self, Text};
use super::endpoint::{Answered, Ask, Endpoint, Operation, to_its_end};
use super::incoming::{self, MOST_BODY_BYTES_PER_CONNECTION, Peer, SHORT_BODY_BYTES};
use super::path;
use super::problem::Problem;
use super::shown::json;
use compose::SubmitBody;
use envelope::Envelope;

const PATH: &str = "/api/v1/messages";
const RFC822: &str = "message/rfc822";
/// A submission as JSON is in memory as it came, decoded, and composed, so this many times. A short message as
/// `message/rfc822` is so at most.
const COPIES: usize = 4;
/// The longest submission as JSON. Longer messages come as `message/rfc822`.
const MOST_JSON: usize = MOST_BODY_BYTES_PER_CONNECTION / COPIES;
/// The memory that a message takes while it is streamed into the queue.
const STREAMING: usize = 512 << 10;
/// The longest idempotency key.
const MOST_KEY: usize = 255;
/// The tenant of callers who name none and have none.
const DEFAULT_TENANT: &str = "default";

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// A message that was accepted.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "MessageAccepted")]
struct AcceptedShown {
    /// The message's id.
    id: String,
    /// Always `queued`.
    status: &'static str,
}

/// Whether a request brings a message. Its body may be long: the server of the router bounds its progress, not only its
/// whole time.
pub fn is_upload<B>(request: &Request<B>) -> bool {
    request.method() == Method::POST && request.uri().path() == PATH
}

pub(crate) fn endpoints() -> Vec<Endpoint> {
    let submit = Operation::new(PATH, "Submit a message")
        .takes::<SubmitBody<'_>>()
        .takes_also(RFC822)
        .query(QUERY)
        .also::<AcceptedShown>(202, "application/json")
        .also::<refusal::Limited<'_>>(429, "application/problem+json");
    vec![Endpoint::streaming(Method::POST, PATH, Role::Check, submit_one).serves_tenants().does(submit)]
}

const QUERY: &[(&str, &str)] = &[
    ("tenant", "the tenant to send for; a key with a tenant sends for that one only"),
    ("account", "the account to send through; by default the tenant's accounts are tried by priority"),
    ("from", "with `message/rfc822`: the envelope sender; by default the address in `From`"),
    (
        "to",
        "with `message/rfc822`: the recipients, separated by commas; by default those in `To`, `Cc` and `Bcc`",
    ),
];

async fn submit_one(app: Arc<App>, ask: Ask, body: Body) -> Answered {
    let relay = app.relay()?;
    let doors = Arc::clone(relay.acceptances());
    let identity = identity(&ask, ask.query("tenant").map(path::decode_query).transpose()?)?;
    let idempotency = idempotency(&ask)?;
    let retry_within = app.engine.observer.retry_within();
    match media(&ask) {
        Media::Json => submit_json(doors, ask, body, identity, (idempotency, retry_within)).await,
        Media::Rfc822 => submit_text(doors, ask, body, identity, (idempotency, retry_within)).await,
        Media::Other => Err(Problem::unsupported_media("send `application/json` or `message/rfc822`")),
    }
}

async fn submit_json(
    doors: Arc<Acceptances>,
    mut ask: Ask,
    body: Body,
    identity: Identity,
    (idempotency, retry_within): (Option<Idempotency>, Span),
) -> Answered {
    let most = usize::try_from(doors.terms().max_size).unwrap_or(usize::MAX).min(MOST_JSON);
    let bytes = ask.read(body, most).await?;
    ask.take_copies(bytes.len(), COPIES)?;
    let body: SubmitBody<'_> = body::read(&bytes)?;
    let identity = match body.tenant.as_ref().map(Text::as_str) {
        Some(tenant) if *identity.tenant != *tenant => self::identity(&ask, Some(tenant.to_owned()))?,
        _ => identity,
    };
    let envelope = body.envelope()?;
    let digest = digest(&ask, &identity, &bytes);
    let idempotency = idempotency.map(|own| Idempotency { digest, ..own });
    let account = body.account.as_ref().map(|account| account.as_str().to_owned());
    let submission = submission(&ask, identity, envelope, idempotency, account, body.priority()?)?;
    let hostname = doors.terms().hostname.clone();
    let now = doors.clock.now();
    let begun = Acceptance::begin(&doors, submission, Some(bytes.len() as u64)).await;
    let mut acceptance = match begun {
        Ok(acceptance) => acceptance,
        Err(refused) => return refusal::answer(&refused, retry_within),
    };
    let message_id = format!("{:032x}@{hostname}", acceptance.id().0);
    let text = match body.compose(&message_id, now) {
        Ok(text) => text,
        Err(problem) => {
            acceptance.abandon().await;
            return Err(problem);
        }
    };
    if let Err(refused) = acceptance.write(&text).await {
        acceptance.abandon().await;
        return refusal::answer(&refused, retry_within);
    }
    finish(acceptance, retry_within).await
}

async fn submit_text(
    doors: Arc<Acceptances>,
    mut ask: Ask,
    mut body: Body,
    identity: Identity,
    (idempotency, retry_within): (Option<Idempotency>, Span),
) -> Answered {
    match incoming::declared_length(&ask.headers).map(usize::try_from) {
        // A short message has room, whatever the other messages and bodies take.
        Some(Ok(length)) if length <= SHORT_BODY_BYTES => ask.take_copies(length, COPIES)?,
        _ => ask.take_room(STREAMING)?,
    }
    let mut hasher = Sha256::new();
    hasher.update(digest(&ask, &identity, b""));
    let (head, envelope) = envelope::read_head(&ask, &mut body).await?;
    let account = ask.query("account").map(path::decode_query).transpose()?;
    let submission = submission(&ask, identity, envelope, idempotency, account, Priority::Normal)?;
    let begun = Acceptance::begin(&doors, submission, incoming::declared_length(&ask.headers)).await;
    let mut acceptance = match begun {
        Ok(acceptance) => acceptance,
        Err(refused) => return refusal::answer(&refused, retry_within),
    };
    let mut piece = Some(Bytes::from(head));
    while let Some(bytes) = piece {
        hasher.update(&bytes);
        if let Err(refused) = acceptance.write(&bytes).await {
            acceptance.abandon().await;
            return refusal::answer(&refused, retry_within);
        }
        piece = match incoming::next(&mut body).await {
            Ok(piece) => piece,
            Err(problem) => {
                acceptance.abandon().await;
                return Err(problem);
            }
        };
    }
    acceptance.set_digest(hasher.finalize().into());
    finish(acceptance, retry_within).await
}

/// Puts a message into the queue, even if the caller disconnects meanwhile.
async fn finish(acceptance: Acceptance, retry_within: Span) -> Answered {
    to_its_end(Box::pin(async move {
        match acceptance.finish().await {
            Ok(Accepted::Now(id)) => Ok(accepted(id.0)),
            Ok(Accepted::Before(id)) => {
                let mut response = accepted(id.0);
                response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
                Ok(response)
            }
            Err(refused) => refusal::answer(&refused, retry_within),
        }
    }))
    .await
}

fn accepted(id: u128) -> Response {
    let mut response = json(&AcceptedShown { id: format!("{id:032x}"), status: "queued" });
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

enum Media {
    Json,
    Rfc822,
    Other,
}

fn media(ask: &Ask) -> Media {
    let media = ask.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media = media.split(';').next().unwrap_or_default().trim();
    if media.eq_ignore_ascii_case(RFC822) {
        Media::Rfc822
    } else if media.is_empty() || media.eq_ignore_ascii_case("application/json") {
        Media::Json
    } else {
        Media::Other
    }
}

/// The identity of the submitter. A key sends for its own tenant; a key without a tenant must have the role
/// `admin`.
fn identity(ask: &Ask, tenant: Option<String>) -> Result<Identity, Problem> {
    let default = || tenant.clone().unwrap_or_else(|| DEFAULT_TENANT.to_owned()).into();
    let Some(key) = ask.key() else {
        return Ok(Identity { user: None, api_key: None, tenant: default(), senders: Arc::default() });
    };
    let api_key = Some(Arc::from(key.name()));
    match key.tenant() {
        Some(own) => {
            if let Some(tenant) = &tenant {
                ask.check_tenant(tenant)?;
            }
            let (tenant, senders) = (Arc::clone(&own.name), Arc::clone(&own.senders));
            Ok(Identity { user: None, api_key, tenant, senders })
        }
        None if Caller::role(key) == Role::Admin => {
            Ok(Identity { user: None, api_key, tenant: default(), senders: Arc::default() })
        }
        None => Err(Problem::forbidden(format!(
            "key `{}` may not send mail: give it a `tenant` in the configuration",
            key.name()
        ))),
    }
}

fn idempotency(ask: &Ask) -> Result<Option<Idempotency>, Problem> {
    let mut values = ask.headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let key = value.to_str().unwrap_or_default();
    if values.next().is_some() || key.is_empty() || key.len() > MOST_KEY {
        let detail = format!("`Idempotency-Key` is one value of 1 to {MOST_KEY} printable characters");
        return Err(Problem::bad_request(detail));
    }
    let scope = ask.key().map_or_else(String::new, |own| own.name().to_owned());
    Ok(Some(Idempotency { scope, key: key.to_owned(), digest: [0; 32], repeated: false }))
}

/// A hash of everything that makes a submission what it is.
fn digest(ask: &Ask, identity: &Identity, body: &[u8]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for part in [identity.tenant.as_bytes(), ask.uri.query().unwrap_or_default().as_bytes(), body] {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}

/// What the relay is asked to accept. The caller chose the names of tenant and account, so they are checked: each is a
/// part of a lane's key and of every row of the message.
fn submission(
    ask: &Ask,
    identity: Identity,
    envelope: Envelope,
    idempotency: Option<Idempotency>,
    account: Option<String>,
    priority: Priority,
) -> Result<Submission, Problem> {
    check_name("tenant", &identity.tenant)?;
    if let Some(account) = &account {
        check_name("account", account)?;
    }
    if envelope.recipients.is_empty() {
        return Err(Problem::bad_request("there are no recipients: name some in `to`, `cc` or `bcc`"));
    }
    let client = ask.extensions.get::<Peer>().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.address);
    Ok(Submission {
        identity,
        client,
        sender: envelope.sender,
        recipients: envelope.recipients,
        account,
        priority,
        utf8: true,
        report: ReportWish::default(),
        idempotency,
        via: Via { client_name: None, protocol: "HTTP".to_owned() },
        correlation: Some(ask.correlation.id().as_str().to_owned()),
    })
}
