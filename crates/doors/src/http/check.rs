//! `POST /api/v1/check`: may this attempt pass?
//!
//! The busiest endpoint: the body is read in place, the answer is written once, and nothing is
//! looked up twice.

use std::sync::Arc;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, Method};
use axum::response::Response;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::value::RawValue;
use smallvec::SmallVec;
use tollgate_core::{Attempt, Decision};

use super::App;
use super::answer::{Allowed, Batch, Refused, refused_with};
use super::auth::Role;
use super::body::{self, AtMost, Fields, Text, Whole};
use super::endpoint::{Answered, Ask, Endpoint, Operation};
use super::headers;
use super::problem::{PROBLEM_JSON, Problem, ProblemBody};
use super::shown::json_bytes;

/// The most attempts that one request may bring.
const MOST_ATTEMPTS: usize = 100;

/// Attempts that were not read yet: each answers for itself.
type Attempts<'b> = AtMost<MOST_ATTEMPTS, &'b RawValue>;

/// One attempt, or several in `attempts`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CheckRequest")]
struct CheckBody<'b> {
    /// Which policy the attempt passes.
    #[serde(borrow, default)]
    policy: Option<Text<'b>>,
    #[serde(borrow, default)]
    fields: Fields<'b>,
    /// How much it takes; 1 unless said otherwise, and 0 only looks.
    #[serde(default)]
    cost: Option<Whole>,
    /// Under which id it holds what is limited at once.
    #[serde(borrow, default)]
    id: Option<Text<'b>>,
    /// Whether to say only what would be decided, and take nothing.
    #[serde(default)]
    dry_run: bool,
    /// Up to 100 attempts, decided one after the other; then nothing else may stand beside them.
    #[serde(borrow, default)]
    #[schemars(with = "Option<AtMost<MOST_ATTEMPTS, AttemptBody<'b>>>")]
    attempts: Option<Attempts<'b>>,
}

/// One attempt.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Attempt")]
pub(crate) struct AttemptBody<'b> {
    /// Which policy it passes.
    #[serde(borrow)]
    pub(crate) policy: Text<'b>,
    #[serde(borrow, default)]
    pub(crate) fields: Fields<'b>,
    /// How much it takes; 1 unless said otherwise, and 0 only looks.
    #[serde(default)]
    pub(crate) cost: Option<Whole>,
    /// Under which id it holds what is limited at once.
    #[serde(borrow, default)]
    pub(crate) id: Option<Text<'b>>,
    /// Whether to say only what would be decided, and take nothing.
    #[serde(default)]
    pub(crate) dry_run: bool,
}

pub(crate) fn endpoints() -> Vec<Endpoint> {
    let operation = Operation::new("/api/v1/check", "Decide one attempt, or up to 100")
        .query(&[("ratelimit", "`ietf` adds the RateLimit and RateLimit-Policy headers")])
        .takes::<CheckBody<'_>>()
        .answers::<Allowed<'_, '_>>()
        .answers::<Batch<'_>>()
        .also::<Refused<'_, '_>>(429, PROBLEM_JSON)
        .also::<Refused<'_, '_>>(503, PROBLEM_JSON)
        .also::<ProblemBody<'_>>(503, PROBLEM_JSON);
    vec![Endpoint::new(Method::POST, "/api/v1/check", Some(Role::Check), check).does(operation)]
}

async fn check(app: Arc<App>, ask: Ask) -> Answered {
    let CheckBody { policy, fields, cost, id, dry_run, attempts } = body::read(&ask.body)?;
    match (policy, attempts) {
        (Some(policy), None) => {
            let attempt = AttemptBody { policy, fields, cost, id, dry_run };
            decide(&app, &attempt, |decision| answer(&app, &ask, &attempt, decision, IdShown::No)).await
        }
        (None, Some(attempts)) if fields.0.is_empty() && cost.is_none() && id.is_none() && !dry_run => {
            // Boxed, so that the future of one attempt does not have to hold room for it.
            Box::pin(batch(&app, &ask, &attempts)).await
        }
        (_, Some(_)) => Err(Problem::bad_request("beside `attempts` there may be nothing else")),
        (None, None) => Err(Problem::bad_request("missing field `policy`")),
    }
}

/// Whether an answer says the id it was asked with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdShown {
    Yes,
    No,
}

/// Decides one attempt, and makes something of the decision while its policies are held still.
pub(crate) async fn decide<T>(
    app: &App,
    attempt: &AttemptBody<'_>,
    then: impl FnOnce(&Decision<'_>) -> T,
) -> Result<T, Problem> {
    let fields: SmallVec<[(&str, &str); 6]> =
        attempt.fields.0.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let pinned = app.engine.pin();
    let wanted = Attempt {
        policy: attempt.policy.as_str(),
        fields: &fields,
        cost: attempt.cost.map_or(1, |cost| cost.0),
        id: attempt.id.as_ref().map(Text::as_str),
    };
    let mut decision = Decision::blank();
    if attempt.dry_run {
        decision = Box::pin(app.engine.peek(&pinned, &wanted)).await?;
    } else {
        app.engine.decide_into(&pinned, &wanted, &mut decision).await?;
    }
    Ok(then(&decision))
}

/// The whole answer to one attempt.
pub(crate) fn answer(
    app: &App,
    ask: &Ask,
    attempt: &AttemptBody<'_>,
    decision: &Decision<'_>,
    shown: IdShown,
) -> Response {
    let mut bytes = Vec::with_capacity(640);
    let mut response;
    if decision.allowed() {
        write_allowed(app, attempt, decision, shown, None, &mut bytes);
        response = json_bytes(bytes);
        headers::rate_limit(decision, response.headers_mut());
    } else {
        let id = ask.correlation.id();
        write_refused(app, attempt, decision, &id, &mut bytes);
        response = Response::new(Body::from(bytes));
        *response.status_mut() = refused_with(decision);
        let head = response.headers_mut();
        head.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        head.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        head.insert(headers::CORRELATION_ID, id);
        headers::rate_limit(decision, head);
        headers::retry_after(headers::wait(decision), head);
    }
    if headers::wants_ietf(ask) {
        headers::ietf(decision, response.headers_mut());
    }
    response
}

fn write_allowed(
    app: &App,
    attempt: &AttemptBody<'_>,
    decision: &Decision<'_>,
    shown: IdShown,
    status: Option<u16>,
    bytes: &mut Vec<u8>,
) {
    let id = attempt.id.as_ref().map(Text::as_str).filter(|_| shown == IdShown::Yes);
    let receipt = if attempt.dry_run { None } else { app.engine.receipt(decision) };
    let body = Allowed::new(&app.engine, attempt.policy.as_str(), decision, status, id, receipt);
    serde_json::to_writer(bytes, &body).expect("answers are plain text and numbers");
}

fn write_refused(
    app: &App,
    attempt: &AttemptBody<'_>,
    decision: &Decision<'_>,
    id: &HeaderValue,
    bytes: &mut Vec<u8>,
) {
    let body = Refused::new(&app.engine, attempt.policy.as_str(), decision, id);
    serde_json::to_writer(bytes, &body).expect("answers are plain text and numbers");
}

/// Decides attempts one after the other; what is wrong with one does not touch the others.
async fn batch(app: &App, ask: &Ask, attempts: &Attempts<'_>) -> Answered {
    let id = ask.correlation.id();
    let mut bytes = Vec::with_capacity(640 * attempts.0.len());
    bytes.extend_from_slice(br#"{"decisions":["#);
    for (index, raw) in attempts.0.iter().enumerate() {
        if index > 0 {
            bytes.push(b',');
        }
        if let Err(problem) = decide_in_batch(app, raw.get(), &id, &mut bytes).await {
            serde_json::to_writer(&mut bytes, &problem.body(&id)).expect("problems are plain text");
        }
    }
    bytes.extend_from_slice(b"]}");
    Ok(json_bytes(bytes))
}

async fn decide_in_batch(app: &App, raw: &str, id: &HeaderValue, bytes: &mut Vec<u8>) -> Result<(), Problem> {
    let attempt: AttemptBody<'_> = body::read(raw.as_bytes())?;
    let write = |decision: &Decision<'_>| {
        if decision.allowed() {
            write_allowed(app, &attempt, decision, IdShown::No, Some(200), bytes);
        } else {
            write_refused(app, &attempt, decision, id, bytes);
        }
    };
    decide(app, &attempt, write).await
}
