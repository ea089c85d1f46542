//! `POST /api/v1/check`: decides attempts.
//!
//! This is the busiest endpoint: the body is read in place, the response is written once, and nothing is
//! looked up twice.

use futures_util::future::join_all;
use std::sync::Arc;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{self, HeaderValue, Method};
use axum::response::Response;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::value::RawValue;
use smallvec::SmallVec;
use tollgate_core::{Attempt, Decision};
use tollgate_engine::admit::{Admitted, Look};
use tollgate_engine::{Admit, Engine, Pinned, Terms};
use tollgate_web::answer::{Refusal, headers};

use super::App;
use super::answer::shapes::{Allowed, Batch, Refused, close};
use super::answer::{Answer, USUAL_BYTES, written};
use super::auth::Role;
use super::body::{self, AtMost, Fields, Object, Text, Whole};
use super::endpoint::{Answered, Ask, Endpoint, Operation};
use super::problem::{CORRELATION_ID, Correlation, PROBLEM_JSON, Problem, ProblemBody};
use super::shown::json_bytes;

/// The most attempts of one request.
const MOST_ATTEMPTS: usize = 100;

/// One attempt, or several in `attempts`, which are read as `A`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, bound(deserialize = "A: Deserialize<'de>"))]
#[schemars(rename = "CheckRequest")]
struct CheckBody<'b, A> {
    /// The name of the policy.
    #[serde(borrow, default)]
    policy: Option<Text<'b>>,
    #[serde(borrow, default)]
    fields: Fields<'b>,
    /// How much to charge; 1 by default. 0 takes nothing and shows the readings.
    #[serde(default)]
    cost: Option<Whole>,
    /// The id of holds at `at once` limits; if it is absent, the server generates one and returns it.
    #[serde(borrow, default)]
    id: Option<Text<'b>>,
    /// Whether to return the decision without taking anything.
    #[serde(default)]
    dry_run: bool,
    /// Up to 100 attempts, decided one after the other; no other member is allowed with them.
    #[serde(default)]
    attempts: Option<AtMost<MOST_ATTEMPTS, A>>,
}

/// One attempt.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Attempt")]
pub(crate) struct AttemptBody<'b> {
    /// The name of the policy.
    #[serde(borrow)]
    pub(crate) policy: Text<'b>,
    #[serde(borrow, default)]
    pub(crate) fields: Fields<'b>,
    /// How much to charge; 1 by default. 0 takes nothing and shows the readings.
    #[serde(default)]
    pub(crate) cost: Option<Whole>,
    /// The id of holds at `at once` limits; if it is absent, the server generates one and returns it.
    #[serde(borrow, default)]
    pub(crate) id: Option<Text<'b>>,
    /// Whether to return the decision without taking anything.
    #[serde(default)]
    pub(crate) dry_run: bool,
}

/// The attempts of a body: one, or several that were read as `A`.
enum Asked<'b, A> {
    One(AttemptBody<'b>),
    Several(Vec<A>),
}

impl<'b, A: Deserialize<'b>> Asked<'b, A> {
    fn read(bytes: &'b [u8]) -> Result<Self, Problem> {
        let CheckBody { policy, fields, cost, id, dry_run, attempts } = body::read(bytes)?;
        match (policy, attempts) {
            (Some(policy), None) => Ok(Self::One(AttemptBody { policy, fields, cost, id, dry_run })),
            (None, Some(attempts)) if fields.0.is_empty() && cost.is_none() && id.is_none() && !dry_run => {
                Ok(Self::Several(attempts.0))
            }
            (_, Some(_)) => Err(Problem::bad_request("no other member is allowed with `attempts`")),
            (None, None) => {
                Err(Problem::bad_request("`policy` is missing: which policy does the attempt pass?"))
            }
        }
    }
}

pub(crate) fn endpoints() -> Vec<Endpoint> {
    let operation = Operation::new("/api/v1/check", "Decide one attempt, or up to 100")
        .query(&[("ratelimit", "`ietf` adds the RateLimit and RateLimit-Policy headers")])
        .takes::<CheckBody<'_, Object<AttemptBody<'_>>>>()
        .answers::<Allowed<'_, '_>>()
        .answers::<Batch>()
        .also::<Refused<'_, '_>>(403, PROBLEM_JSON)
        .also::<ProblemBody<'_>>(403, PROBLEM_JSON)
        .also::<Refused<'_, '_>>(429, PROBLEM_JSON)
        .also::<Refused<'_, '_>>(503, PROBLEM_JSON)
        .also::<ProblemBody<'_>>(503, PROBLEM_JSON);
    vec![
        Endpoint::new(Method::POST, "/api/v1/check", Some(Role::Check), check)
            .serves_tenants()
            .does(operation),
    ]
}

async fn check(app: Arc<App>, ask: Ask) -> Answered {
    // Boxed, so that the future of a single attempt stays small.
    match Asked::<Object<AttemptBody<'_>>>::read(&ask.body) {
        Ok(Asked::One(attempt)) => decide(&app, &ask, &attempt, IdShown::WhereHeld).await,
        Ok(Asked::Several(attempts)) => {
            Ok(Box::pin(decide_all(&app, &ask, attempts.iter().map(|attempt| Ok(&attempt.0)))).await)
        }
        Err(problem) => Box::pin(check_one_by_one(&app, &ask, problem)).await,
    }
}

/// Reads several attempts one by one, so that an error in one does not affect the others.
async fn check_one_by_one(app: &App, ask: &Ask, problem: Problem) -> Answered {
    let Ok(Asked::Several(raw)) = Asked::<&RawValue>::read(&ask.body) else { return Err(problem) };
    let attempts: Vec<Result<AttemptBody<'_>, Problem>> =
        raw.iter().map(|raw| body::read(raw.get().as_bytes())).collect();
    Ok(decide_all(app, ask, attempts.iter().map(Result::as_ref)).await)
}

/// When a response shows the attempt's id.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdShown {
    Always,
    /// Only if the attempt has a hold under it, or under a generated one.
    WhereHeld,
}

/// Decides one attempt and returns the response.
pub(crate) async fn decide(app: &App, ask: &Ask, attempt: &AttemptBody<'_>, shown: IdShown) -> Answered {
    let pinned = app.admissions.pin();
    let context = ResponseContext::new(&pinned, ask, attempt.policy.as_str(), shown);
    let see = move |engine: &Engine, decision: &Decision<'_>| context.answer(engine, decision);
    let admission = attempt.admit(&pinned, ask, ask.correlation.text(), see)?;
    drop(pinned);
    Ok(admission.await?.seen.map(Body::from))
}

impl AttemptBody<'_> {
    /// Admits the attempt, if the caller's key may count where it counts. `correlation` is the caller's id, if it sent
    /// one.
    fn admit<T: Send + 'static>(
        &self,
        pinned: &Pinned<'_>,
        ask: &Ask,
        correlation: Option<&str>,
        see: impl FnOnce(&Engine, &Decision<'_>) -> T + Send + 'static,
    ) -> Result<Admit<T>, Problem> {
        let fields: SmallVec<[(&str, &str); 6]> =
            self.fields.0.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let attempt = Attempt {
            policy: self.policy.as_str(),
            fields: &fields,
            cost: self.cost.map_or(1, |cost| cost.0),
            id: self.id.as_ref().map(Text::as_str),
        };
        ask.check_attempt(&pinned.policies, &attempt)?;
        let look = if self.dry_run { Look::Peek } else { Look::Take };
        Ok(pinned.admit(&attempt, Terms { look, correlation, ..Terms::default() }, see))
    }
}

/// What the response needs beside the decision, which another task may make.
pub(crate) struct ResponseContext {
    /// The requested policy, if limits are switched off and no policy decides.
    policy: Option<Box<str>>,
    shown: IdShown,
    correlation: Correlation,
    /// Whether the caller wants the IETF fields too.
    ietf: bool,
}

impl ResponseContext {
    pub(crate) fn new(pinned: &Pinned<'_>, ask: &Ask, policy: &str, shown: IdShown) -> Self {
        let policy = (!pinned.policies.enabled).then(|| policy.into());
        Self { policy, shown, correlation: ask.correlation.clone(), ietf: ask.wants_ietf() }
    }

    /// The response to one attempt.
    fn answer(&self, engine: &Engine, decision: &Decision<'_>) -> http::Response<Vec<u8>> {
        match decision.allowed() {
            true => self.allow(engine, decision, |allowed| written(&allowed, usual_bytes(decision))),
            false => self.refuse(engine, decision),
        }
    }

    /// The response to an allowed attempt, with what `finish` makes of its body.
    pub(crate) fn allow<B>(
        &self,
        engine: &Engine,
        decision: &Decision<'_>,
        finish: impl FnOnce(Allowed<'_, '_>) -> B,
    ) -> http::Response<B> {
        let answer = Answer { engine, policy: self.policy_of(decision), decision };
        let asked = decision.charges.id;
        let id = answer.hold_id(asked);
        let id = id.or(asked.filter(|_| self.shown == IdShown::Always).map(Into::into));
        let mut response = http::Response::new(finish(answer.allowed(id)));
        let head = response.headers_mut();
        head.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers::rate_limit(decision, head);
        if self.ietf {
            headers::ietf(decision, head);
        }
        response
    }

    /// The response to a refused attempt.
    pub(crate) fn refuse(&self, engine: &Engine, decision: &Decision<'_>) -> http::Response<Vec<u8>> {
        let answer = Answer { engine, policy: self.policy_of(decision), decision };
        let id = self.correlation.id_of(decision);
        let refusal = Refusal::new(engine, decision);
        let body = written(&answer.refused(&refusal, id.as_str()), usual_bytes(decision));
        let mut response = http::Response::new(body);
        *response.status_mut() = refusal.status();
        let head = response.headers_mut();
        head.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        head.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        head.insert(CORRELATION_ID, id.into());
        headers::rate_limit(decision, head);
        refusal.write_retry(head);
        if self.ietf {
            headers::ietf(decision, head);
        }
        response
    }

    fn policy_of<'d>(&'d self, decision: &'d Decision<'_>) -> &'d str {
        self.policy.as_deref().unwrap_or(&decision.policy().name)
    }

    /// The result of one of several attempts, in the request with this id.
    fn among_several(&self, id: &str, engine: &Engine, decision: &Decision<'_>) -> Box<RawValue> {
        let answer = Answer { engine, policy: self.policy_of(decision), decision };
        if decision.allowed() {
            let mut allowed = answer.allowed(answer.hold_id(decision.charges.id));
            allowed.status = Some(200);
            close(&allowed)
        } else {
            close(&answer.refused(&Refusal::new(engine, decision), id))
        }
    }
}

/// The usual size of the response to a decision.
fn usual_bytes(decision: &Decision<'_>) -> usize {
    USUAL_BYTES * decision.charges.len().max(1)
}

/// Decides attempts in their order by the same policies. An error in one does not affect the others. A shared
/// store gets all of them before its first reply, so that together they cost a few round trips.
async fn decide_all<'r, 'b: 'r>(
    app: &App,
    ask: &Ask,
    attempts: impl ExactSizeIterator<Item = Result<&'r AttemptBody<'b>, &'r Problem>>,
) -> Response {
    let id: Arc<str> = ask.correlation.id().as_str().into();
    let pinned = app.admissions.pin();
    let (mut decisions, mut later) = (Vec::with_capacity(attempts.len()), Vec::new());
    for (index, attempt) in attempts.enumerate() {
        let admit = attempt.map_err(|problem| close(&problem.body(&id))).and_then(|attempt| {
            let context = ResponseContext::new(&pinned, ask, attempt.policy.as_str(), IdShown::WhereHeld);
            let known = Arc::clone(&id);
            let see = move |engine: &Engine, decision: &Decision<'_>| {
                context.among_several(&known, engine, decision)
            };
            attempt.admit(&pinned, ask, Some(&id), see).map_err(|problem| close(&problem.body(&id)))
        });
        decisions.push(match admit {
            Ok(Admit::Ready(Some(admitted))) => Some(close_one(admitted, &id)),
            Ok(admit) => {
                later.push(async move { (index, admit.await) });
                None
            }
            Err(refused) => Some(refused),
        });
    }
    for (index, admitted) in join_all(later).await {
        decisions[index] = Some(close_one(admitted, &id));
    }
    let bytes = USUAL_BYTES * decisions.len();
    json_bytes(written(&Batch { decisions }, bytes))
}

/// The result of one of several attempts, in the request with this id.
fn close_one(admitted: Admitted<Box<RawValue>>, id: &str) -> Box<RawValue> {
    match admitted {
        Ok(admission) => admission.seen,
        Err(fault) => close(&Problem::from(fault).body(id)),
    }
}
