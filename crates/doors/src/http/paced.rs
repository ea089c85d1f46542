//! Pacing: waiting calls, and pauses that an upstream asked for.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use axum::http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use tollgate_core::{Span, Timestamp, grammar};
use tollgate_engine::pacer::PauseFault;

use super::App;
use super::audit::Change;
use super::auth::Role;
use super::body::{self, Fields, RetryAfter};
use super::endpoint::{Answered, Ask, Endpoint, Operation, to_its_end};
use super::path;
use super::problem::Problem;
use super::shown::json;

/// The longest pause: a mistake must end by itself.
const LONGEST_PAUSE: Span = Span::from_secs(7 * 86_400);
/// The longest pause that a key without the role `admin` may report.
const LONGEST_REPORT: Span = Span::from_secs(3_600);
/// How often such reports are recorded. Clients report each refusal of an upstream, and must not push all other changes
/// out of the record.
pub(crate) const RECORD_REPORTS_EVERY: Span = Span::from_secs(10);

const ONE: &str = "/api/v1/paced/{policy}";
const REPORT: &str = "/api/v1/paced/{policy}/retry-after";

/// A pause that an upstream asked for.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "RetryAfterReport")]
struct ReportBody<'b> {
    /// How long to pause: seconds, a duration as in `7s`, or the value of its Retry-After
    /// header. At most an hour with the role `check`, and seven days with the role `admin`.
    #[serde(borrow)]
    retry_after: RetryAfter<'b>,
    /// The fields of the calls to pause; the whole policy if they are absent, which needs the role `admin`.
    #[serde(borrow, default)]
    fields: Fields<'b>,
}

/// A pause in force.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Paused")]
struct PausedShown<'p> {
    /// The policy.
    policy: &'p str,
    /// How many keys are paused; 0 for the whole policy.
    keys: usize,
    /// Milliseconds until it ends.
    retry_after_ms: u64,
}

/// Waiting calls and pauses.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Paced")]
struct PacedShown<'p> {
    /// The policy.
    policy: &'p str,
    /// How many calls wait for their turn on this node.
    waiting: u64,
    /// The pauses.
    pauses: Vec<PauseShown>,
}

/// A pause.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Pause")]
struct PauseShown {
    /// The rule; null for the policy as a whole.
    rule: Option<String>,
    /// Its key; a pseudonym if keys are secret.
    key: Option<String>,
    /// Milliseconds until it ends.
    retry_after_ms: u64,
}

#[derive(Serialize, JsonSchema)]
struct Resumed {
    /// How many pauses were ended.
    resumed: usize,
}

pub(crate) fn endpoints() -> Vec<Endpoint> {
    let show = Operation::new(ONE, "Show waiting calls and pauses").answers::<PacedShown<'_>>();
    let report = Operation::new(REPORT, "Pause calls to an upstream")
        .takes::<ReportBody<'_>>()
        .answers::<PausedShown<'_>>();
    let resume = Operation::new(REPORT, "Let everything of a policy go on").answers::<Resumed>();
    vec![
        Endpoint::new(Method::GET, ONE, Some(Role::Read), show_paced).does(show),
        Endpoint::new(Method::POST, REPORT, Some(Role::Check), take_report).does(report),
        Endpoint::new(Method::DELETE, REPORT, Some(Role::Admin), end_pauses).does(resume),
    ]
}

/// Completes the change, which other nodes follow, even if the caller disconnects.
async fn take_report(app: Arc<App>, ask: Ask) -> Answered {
    to_its_end(Box::pin(pause(app, ask))).await
}

async fn pause(app: Arc<App>, ask: Ask) -> Answered {
    let policy = policy(&ask)?;
    let ReportBody { retry_after, fields } = body::read(&ask.body)?;
    let span = match meant(&retry_after)? {
        Until::After(span) => span,
        Until::At(moment) => moment.since(app.engine.counters.now().await?),
    };
    if span > LONGEST_PAUSE {
        let detail = format!("`retry_after` is `{span}`; at most `{LONGEST_PAUSE}` can be");
        return Err(Problem::bad_request(detail));
    }
    let fields: SmallVec<[(&str, &str); 6]> =
        fields.0.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let is_report = ask.key().is_some_and(|caller| caller.role() < Role::Admin);
    if is_report && (fields.is_empty() || span > LONGEST_REPORT) {
        return Err(Problem::forbidden(format!(
            "the role `check` may pause only the keys of `fields`, for at most `{LONGEST_REPORT}`: to pause a whole \
             policy, or for longer, needs the role `admin`"
        )));
    }
    let keys = app.pacer.pause_like(&policy, &fields, span).await?;
    record(&app, &ask, &policy, &paused_in_words(keys, span), is_report);
    Ok(json(&PausedShown { policy: &policy, keys, retry_after_ms: span.as_millis_ceil() }))
}

/// Writes a pause to the log and the changes. It does not name keys, which may be secret.
fn record(app: &App, ask: &Ask, policy: &str, paused: &str, is_report: bool) {
    let unrecorded = match is_report {
        true => app.reported_pauses.admit(app.clock.now()),
        false => Some(0),
    };
    let after = match unrecorded {
        None => return,
        Some(0) => paused.to_owned(),
        Some(more) => format!("{paused}; {more} more were reported before"),
    };
    Change { action: "pause.set", what: policy, before: None, after: Some(after) }.record(ask);
}

fn paused_in_words(keys: usize, span: Span) -> String {
    match keys {
        0 => format!("the whole policy for {span}"),
        1 => format!("1 key for {span}"),
        keys => format!("{keys} keys for {span}"),
    }
}

async fn show_paced(app: Arc<App>, ask: Ask) -> Answered {
    let policy = policy(&ask)?;
    let paused = app.pacer.paused(&policy).map_err(PauseFault::Mistake)?;
    let pauses = paused.into_iter().map(|paused| {
        let (rule, key) = paused.place.unzip();
        PauseShown { rule, key, retry_after_ms: paused.left.as_millis_ceil() }
    });
    let waiting = app.pacer.meters().waiting().into_iter().find(|(name, _)| **name == *policy);
    let waiting = waiting.map_or(0, |(_, waiting)| u64::try_from(waiting).unwrap_or(0));
    Ok(json(&PacedShown { policy: &policy, waiting, pauses: pauses.collect() }))
}

async fn end_pauses(app: Arc<App>, ask: Ask) -> Answered {
    let policy = policy(&ask)?;
    let resumed = app.pacer.resume_policy(&policy).await?;
    Change { action: "pause.end", what: &policy, ..Change::default() }.record(&ask);
    Ok(json(&Resumed { resumed }))
}

/// The policy in the path.
fn policy(ask: &Ask) -> Result<String, Problem> {
    path::decode(path::rest(&ask.uri).0)
}

/// How long a pause lasts.
enum Until {
    After(Span),
    At(Timestamp),
}

fn meant(said: &RetryAfter<'_>) -> Result<Until, Problem> {
    let text = match said {
        RetryAfter::Seconds(seconds) => return Ok(Until::After(seconds_of(*seconds))),
        RetryAfter::Text(text) => text.trim(),
    };
    // Some headers have fractions, against the standard.
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if let Some(seconds) = text.parse::<f64>().ok().filter(|_| is_number) {
        return Ok(Until::After(seconds_of(seconds)));
    }
    if let Ok(date) = httpdate::parse_http_date(text) {
        // Only dates before 1970 fail here; they count as 1970.
        let since = date.duration_since(UNIX_EPOCH).unwrap_or_default();
        return Ok(Until::At(Timestamp::from_micros(Span::from(since).as_micros())));
    }
    let span = grammar::parse_span(text);
    span.map(Until::After).map_err(|error| Problem::bad_request(format!("`retry_after`: {error}")))
}

/// A number of seconds, rounded up. A number that is too large becomes the largest span.
fn seconds_of(seconds: f64) -> Span {
    Span::from_micros((seconds * 1e6).ceil() as u64)
}
