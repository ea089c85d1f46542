//! `POST /api/v1/acquire`: waits until an attempt is allowed.
//!
//! A caller that disconnects gives up its place, because its waiting future is dropped with the connection.

use std::sync::Arc;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, Method, Response, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use tollgate_core::{Attempt, Decision, Span, When, grammar};
use tollgate_engine::admit::Wait;
use tollgate_engine::pacer::Bound;
use tollgate_engine::{Admission, Engine, Fault, NotAdmitted, Terms};
use tollgate_web::answer::headers;

use super::App;
use super::answer::shapes::{Allowed, Refused};
use super::answer::{USUAL_BYTES, written};
use super::auth::Role;
use super::body::{self, Fields, Priority, Text, Whole};
use super::check::{IdShown, ResponseContext};
use super::endpoint::{Answered, Ask, Endpoint, Operation};
use super::problem::{CORRELATION_ID, PROBLEM_JSON, Problem, ProblemBody};
use super::shown::{Moment, json};
use super::waiting::{LONGEST_WAIT, MOST_WAITING, PATH, Patience};

/// An attempt that may wait.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AcquireRequest")]
struct AcquireBody<'b> {
    /// The name of the policy.
    #[serde(borrow)]
    policy: Text<'b>,
    #[serde(borrow, default)]
    fields: Fields<'b>,
    /// How much to charge; 1 by default.
    #[serde(default)]
    cost: Option<Whole>,
    /// The id of holds at `at once` limits; if it is absent, the server generates one and returns it.
    #[serde(borrow, default)]
    id: Option<Text<'b>>,
    /// The longest wait, as in `5s`, and at most `1m`. By default as long as the rules allow, up to a minute.
    #[serde(borrow, default)]
    max_wait: Option<Text<'b>>,
    /// From -100 to 100, 0 by default; a higher priority goes first.
    #[serde(default)]
    priority: Option<Priority>,
}

/// An attempt whose turn comes too late, or that finds the queue full.
#[derive(Serialize, JsonSchema)]
struct Unserved<'u> {
    /// `/problems/wait-too-long` or `/problems/queue-full`.
    #[serde(rename = "type")]
    kind: &'u str,
    /// `Wait too long` or `Queue full`.
    title: &'u str,
    /// Always 429.
    status: u16,
    /// How long the attempt would have to wait, and which bound that exceeds.
    detail: String,
    /// The id of the request: the caller's, or a generated one.
    #[serde(rename = "correlationId")]
    correlation_id: &'u str,
    /// `wait too long` or `queue full`.
    error: &'u str,
    /// Always false.
    allowed: bool,
    /// Always `wait`.
    verdict: &'u str,
    /// The policy.
    policy: &'u str,
    /// The rule that does not allow so long a wait; absent if the caller does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    denied_by: Option<&'u str>,
    /// Whole seconds until its turn, estimated from the queue, rounded up.
    retry_after: u64,
    /// The same as `retry_after`.
    #[serde(rename = "retryAfter")]
    retry_after_again: u64,
    /// Milliseconds until its turn, rounded up.
    retry_after_ms: u64,
    /// Milliseconds for which it waited.
    waited_ms: u64,
}

pub(crate) fn endpoints() -> Vec<Endpoint> {
    let operation = Operation::new(PATH, "Wait until an attempt may pass, then charge it")
        .query(&[("ratelimit", "`ietf` adds the RateLimit and RateLimit-Policy headers")])
        .takes::<AcquireBody<'_>>()
        .answers::<Allowed<'_, '_>>()
        .also::<Refused<'_, '_>>(403, PROBLEM_JSON)
        .also::<ProblemBody<'_>>(403, PROBLEM_JSON)
        .also::<Refused<'_, '_>>(429, PROBLEM_JSON)
        .also::<Unserved<'_>>(429, PROBLEM_JSON)
        .also::<Refused<'_, '_>>(503, PROBLEM_JSON)
        .also::<ProblemBody<'_>>(503, PROBLEM_JSON);
    vec![Endpoint::new(Method::POST, PATH, Some(Role::Check), acquire).serves_tenants().does(operation)]
}

async fn acquire(app: Arc<App>, ask: Ask) -> Answered {
    let wanted: AcquireBody<'_> = body::read(&ask.body)?;
    let max_wait = longest(wanted.max_wait.as_ref())?;
    let policy = wanted.policy.as_str();
    let fields: SmallVec<[(&str, &str); 6]> =
        wanted.fields.0.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let id = wanted.id.as_ref().map(Text::as_str);
    let cost = wanted.cost.map_or(1, |cost| cost.0);
    let attempt = Attempt { policy, fields: &fields, cost, id };
    let pinned = app.admissions.pin();
    ask.check_attempt(&pinned.policies, &attempt)?;
    let Ok(_place) = app.places.try_acquire() else {
        app.pacer.count_rejected(policy).map_err(Fault::Mistake)?;
        let full = NotAdmitted::Full { waiting: MOST_WAITING };
        let still = app.pacer.stands_still_for(policy, &fields);
        return Ok(Unserved::of(&full, policy, still).answer(&app, &ask));
    };
    if let Some(patience) = ask.extensions.get::<Patience>() {
        patience.begin();
    }
    let priority = wanted.priority.map_or(0, |priority| priority.0);
    let context = ResponseContext::new(&pinned, &ask, policy, IdShown::WhereHeld);
    let wait = Wait::AtMost { span: max_wait, priority };
    let terms = Terms { wait, correlation: ask.correlation.text(), ..Terms::default() };
    let admit = pinned.admit(&attempt, terms, move |engine, decision| see(&context, engine, decision));
    drop(pinned);
    match admit.await {
        Ok(Admission { waited, seen: Seen::Allowed(answer), .. }) => Ok(answer.map(|mut allowed| {
            allowed.waited_ms = Some(waited.as_millis_ceil());
            written(&allowed, USUAL_BYTES).into()
        })),
        Ok(Admission { seen: Seen::Refused(answer), .. }) => Ok(answer.map(Body::from)),
        Err(not_admitted @ (NotAdmitted::TooLate { .. } | NotAdmitted::Full { .. })) => {
            let still = app.pacer.stands_still_for(policy, &fields);
            Ok(Unserved::of(&not_admitted, policy, still).answer(&app, &ask))
        }
        Err(not_admitted) => Err(not_admitted.into()),
    }
}

/// The longest wait.
fn longest(said: Option<&Text<'_>>) -> Result<Span, Problem> {
    let most = Span::from(LONGEST_WAIT);
    let Some(said) = said else { return Ok(most) };
    // The grammar has no duration of zero, but a caller may not want to wait.
    let parsed = match said.as_str() {
        "0" | "0s" => Ok(Span::ZERO),
        text => grammar::parse_span(text),
    };
    let span = parsed.map_err(|error| Problem::bad_request(format!("`max_wait`: {error}")))?;
    if span > most {
        let detail = format!("`max_wait` is `{span}`; the maximum is `{most}`: sleep, and ask again");
        return Err(Problem::bad_request(detail));
    }
    Ok(span)
}

/// The response to a decision. That to an allowed attempt lacks the wait, which is known only after the
/// decision.
enum Seen {
    Allowed(Response<Box<Allowed<'static, 'static>>>),
    Refused(Response<Vec<u8>>),
}

fn see(context: &ResponseContext, engine: &Engine, decision: &Decision<'_>) -> Seen {
    if !decision.allowed() {
        return Seen::Refused(context.refuse(engine, decision));
    }
    Seen::Allowed(context.allow(engine, decision, |mut allowed| {
        allowed.at = (decision.outcome.taken != 0).then_some(Moment(decision.outcome.now));
        Box::new(allowed.close())
    }))
}

impl<'u> Unserved<'u> {
    fn of(not_admitted: &'u NotAdmitted, policy: &'u str, still: Span) -> Self {
        let (denied_by, wait, waited) = match not_admitted {
            NotAdmitted::TooLate { waited, wait, bound: Bound::Rule(rule) } => {
                (Some(&**rule), *wait, *waited)
            }
            NotAdmitted::TooLate { waited, wait, bound: Bound::Caller } => (None, *wait, *waited),
            // The queue is full. Nothing tells when a place becomes free, except that none does during a
            // pause.
            _ => (None, still.max(Span::from_secs(1)), Span::ZERO),
        };
        let (kind, title, error) = match not_admitted {
            NotAdmitted::Full { .. } => ("/problems/queue-full", "Queue full", "queue full"),
            _ => ("/problems/wait-too-long", "Wait too long", "wait too long"),
        };
        let seconds = wait.as_secs_ceil().max(1);
        Self {
            kind,
            title,
            status: StatusCode::TOO_MANY_REQUESTS.as_u16(),
            detail: format!("{not_admitted}; retry after {seconds} s"),
            correlation_id: "",
            error,
            allowed: false,
            verdict: "wait",
            policy,
            denied_by,
            retry_after: seconds,
            retry_after_again: seconds,
            retry_after_ms: wait.as_millis_ceil().max(1),
            waited_ms: waited.as_millis_ceil(),
        }
    }

    fn answer(self, app: &App, ask: &Ask) -> Response<Body> {
        let id = ask.correlation.id();
        let body = Unserved { correlation_id: id.as_str(), ..self };
        let mut response = json(&body);
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        let head = response.headers_mut();
        head.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        head.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        let wait = When::After(Span::from_millis(body.retry_after_ms));
        headers::retry(wait, app.engine.observer.retry_within(), head);
        head.insert(CORRELATION_ID, id.into());
        response
    }
}
