//! Guards: begins and finishes logins, lists locks, shows the state of a user, and unlocks.

mod shapes;

use std::sync::Arc;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, Method};
use axum::response::Response;
use smallvec::SmallVec;
use tollgate_core::store::Refunded;
use tollgate_core::{Attempt, Clears, Decision, Guard, Origin, Policies, Span, Timestamp, Verdict};
use tollgate_engine::admit::Login;
use tollgate_engine::guard::{Advice, Ending, FinishFault, LadderState, Lock};
use tollgate_engine::{Admission, Engine, Terms};
use tollgate_web::Correlation;
use tollgate_web::answer::Refusal;

use super::App;
use super::answer::{Answer, USUAL_BYTES, written};
use super::audit::Change;
use super::auth::Role;
use super::body::{self, Fields};
use super::endpoint::{Answered, Ask, Endpoint, Operation};
use super::page::{Page, QUERY};
use super::path;
use super::problem::{CORRELATION_ID, PROBLEM_JSON, Problem, ProblemBody};
use super::shown::{self, Moment, json};
use shapes::{
    AdviceShown, BegunShown, FinishBody, FinishedShown, GuardBody, GuardShown, GuardsShown, LockShown,
    LocksShown, OutcomeWord, RefusedShown, StandingShown, StandingsShown, UnlockedKey, UnlockedShown,
};

const ALL: &str = "/api/v1/guards";
const BEGIN: &str = "/api/v1/guards/{guard}/begin";
const FINISH: &str = "/api/v1/guards/finish";
const LOCKS: &str = "/api/v1/guards/{guard}/locks";
const INSPECT: &str = "/api/v1/guards/{guard}/inspect";
const UNLOCK: &str = "/api/v1/guards/{guard}/unlock";

pub(crate) fn endpoints() -> Vec<Endpoint> {
    let begin = Operation::new(BEGIN, "Begin a login at a guard")
        .takes::<GuardBody<'_>>()
        .answers::<BegunShown<'_>>()
        .also::<RefusedShown<'_, '_>>(403, PROBLEM_JSON)
        .also::<ProblemBody<'_>>(403, PROBLEM_JSON)
        .also::<RefusedShown<'_, '_>>(429, PROBLEM_JSON)
        .also::<RefusedShown<'_, '_>>(503, PROBLEM_JSON)
        .also::<ProblemBody<'_>>(503, PROBLEM_JSON);
    let finish = Operation::new(FINISH, "Report the result of a login, once")
        .takes::<FinishBody<'_>>()
        .answers::<FinishedShown>();
    let list = Operation::new(ALL, "List the guards").answers::<GuardsShown<'_>>();
    let locks = Operation::new(LOCKS, "List the locks of a guard").query(QUERY).answers::<LocksShown>();
    let inspect = Operation::new(INSPECT, "Show the failures and locks of a user at a guard")
        .takes::<GuardBody<'_>>()
        .answers::<StandingsShown>();
    let unlock = Operation::new(UNLOCK, "Forget the failures of a user at a guard")
        .takes::<GuardBody<'_>>()
        .answers::<UnlockedShown>();
    let (check, read, admin) = (Some(Role::Check), Some(Role::Read), Some(Role::Admin));
    vec![
        Endpoint::new(Method::POST, FINISH, check, finish_attempt).does(finish),
        Endpoint::new(Method::POST, BEGIN, check, begin_attempt).does(begin),
        Endpoint::new(Method::GET, ALL, read, list_guards).does(list),
        Endpoint::new(Method::GET, LOCKS, read, list_locks).does(locks),
        Endpoint::new(Method::POST, INSPECT, read, inspect_fields).does(inspect),
        Endpoint::new(Method::POST, UNLOCK, admin, unlock_fields).does(unlock),
    ]
}

async fn begin_attempt(app: Arc<App>, ask: Ask) -> Answered {
    let body: GuardBody<'_> = body::read(&ask.body)?;
    let pinned = app.admissions.pin();
    let guard = named(&pinned.policies, &ask)?;
    let fields = pairs(&body.fields);
    let missing = pinned.policies.missing_fields(guard, &fields);
    if !missing.is_empty() {
        let (name, missing) = (&guard.name, missing.join("`, `"));
        return Err(Problem::bad_request(format!("guard `{name}` also needs: `{missing}`")));
    }
    let attempt = Attempt { policy: &guard.policy, fields: &fields, cost: 1, id: None };
    // The caller waits, as the answer tells it to.
    let login = Some(Login { guard, max_delay: Span::ZERO });
    let terms = Terms { login, correlation: ask.correlation.text(), ..Terms::default() };
    let (guarded, correlation) = (guard.clone(), ask.correlation.clone());
    let admit = pinned.admit(&attempt, terms, move |engine, decision| {
        if decision.allowed() {
            SeenLogin::Begun(BegunLogin::of(guarded, decision))
        } else {
            SeenLogin::Refused(refused(engine, &guarded, decision, &correlation))
        }
    });
    drop(pinned);
    let Admission { seen, taken, .. } = admit.await?;
    Ok(match seen {
        SeenLogin::Begun(begun) => begun.answer(taken.ticket()),
        SeenLogin::Refused(refused) => refused,
    })
}

/// What the guard decided.
enum SeenLogin {
    Begun(BegunLogin),
    Refused(Response),
}

/// A login that may be made.
struct BegunLogin {
    guard: Guard,
    origin: Origin,
    advice: AdviceShown,
    if_failed: AdviceShown,
}

impl BegunLogin {
    fn of(guard: Guard, decision: &Decision<'_>) -> Self {
        let now = decision.outcome.now;
        Self {
            guard,
            origin: decision.origin,
            advice: advised(&Advice::of(decision), now),
            if_failed: advised(&Advice::if_failed(decision), now),
        }
    }

    fn answer(self, ticket: Option<&str>) -> Response {
        let mut response = json(&BegunShown {
            allowed: true,
            verdict: shown::verdict(Verdict::Allow),
            guard: &self.guard.name,
            policy: &self.guard.policy,
            origin: shown::origin(self.origin),
            reason: shown::reason(self.origin),
            advice: self.advice,
            ticket,
            if_failed: self.if_failed,
        });
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

fn refused(engine: &Engine, guard: &Guard, decision: &Decision<'_>, correlation: &Correlation) -> Response {
    let id = correlation.id_of(decision);
    let refusal = Refusal::new(engine, decision);
    let answer = Answer { engine, policy: &guard.policy, decision };
    let body = RefusedShown {
        refused: answer.refused(&refusal, id.as_str()),
        guard: &guard.name,
        advice: advised(&Advice::of(decision), decision.outcome.now),
        ticket: None,
    };
    let mut response = Response::new(Body::from(written(&body, 2 * USUAL_BYTES)));
    *response.status_mut() = refusal.status();
    let head = response.headers_mut();
    head.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
    head.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    head.insert(CORRELATION_ID, id.into());
    refusal.write_retry(head);
    response
}

async fn finish_attempt(app: Arc<App>, ask: Ask) -> Answered {
    let FinishBody { ticket, outcome } = body::read(&ask.body)?;
    let ending = match outcome {
        OutcomeWord::Success => Ending::Success,
        OutcomeWord::Failure => Ending::Failure,
        OutcomeWord::Abandoned => Ending::Abandoned,
    };
    let pinned = app.engine.pin();
    let finished = app.engine.guards.finish(&pinned, ticket.as_str(), ending).await;
    let finished = finished.map_err(|fault| match fault {
        FinishFault::Forged | FinishFault::Receipt => Problem::bad_request(fault.to_string()),
        FinishFault::Store(error) => error.into(),
    })?;
    let when = match finished.refunded {
        Refunded::Done => "now",
        Refunded::Already => "already",
        Refunded::TooOld => "too_old",
    };
    Ok(json(&FinishedShown { guard: finished.guard, finished: when }))
}

async fn list_guards(app: Arc<App>, _: Ask) -> Answered {
    let pinned = app.engine.pin();
    let guards = pinned.policies.guards().iter().map(|guard| {
        let [begun, refused, failures, lockouts] = app.engine.guards.meters().of(&guard.name);
        GuardShown {
            name: &guard.name,
            policy: &guard.policy,
            fields: pinned.policies.missing_fields(guard, &[]),
            clears: match &guard.clears {
                Clears::Narrowest => vec!["narrowest"],
                Clears::All => vec!["all"],
                Clears::Nothing => vec!["nothing"],
                Clears::Rules(rules) => rules.iter().map(|rule| &**rule).collect(),
            },
            begun,
            refused,
            failures,
            lockouts,
        }
    });
    Ok(json(&GuardsShown { guards: guards.collect() }))
}

async fn list_locks(app: Arc<App>, ask: Ask) -> Answered {
    let page = Page::of(&ask)?;
    let pinned = app.engine.pin();
    let guard = named(&pinned.policies, &ask)?;
    let (locks, next) = app.engine.guards.locks(&pinned, guard, page.after.as_deref(), page.limit).await?;
    let locks = locks.into_iter().map(|Lock { rule, key, fields, failures, since, until, .. }| LockShown {
        rule: rule.to_string(),
        key,
        fields: fields
            .map(|fields| fields.into_iter().map(|(name, value)| (name.to_string(), value)).collect()),
        failures,
        since: Moment(since),
        locked_until: Moment(until),
    });
    Ok(json(&LocksShown { locks: locks.collect(), next }))
}

async fn inspect_fields(app: Arc<App>, ask: Ask) -> Answered {
    let body: GuardBody<'_> = body::read(&ask.body)?;
    let pinned = app.engine.pin();
    let guard = named(&pinned.policies, &ask)?;
    let standings =
        app.engine.guards.standings(&pinned, guard, &pairs(&body.fields)).await.map_err(Problem::about)?;
    let shown = standings.into_iter().map(|standing| {
        let LadderState { rule, key, enforced, failures, captcha, locked_until, next_at, delay, .. } =
            standing;
        let advice = AdviceShown {
            delay_ms: delay.as_millis_ceil(),
            not_before: next_at.map(Moment),
            captcha,
            locked_until: locked_until.map(Moment),
        };
        let forgotten_at = standing.forgotten_at.map(Moment);
        StandingShown { rule: rule.to_string(), key, observed: !enforced, failures, advice, forgotten_at }
    });
    Ok(json(&StandingsShown { ladders: shown.collect() }))
}

async fn unlock_fields(app: Arc<App>, ask: Ask) -> Answered {
    let body: GuardBody<'_> = body::read(&ask.body)?;
    let pinned = app.engine.pin();
    let guard = named(&pinned.policies, &ask)?;
    let fields = pairs(&body.fields);
    if fields.is_empty() {
        return Err(Problem::bad_request("`fields` is missing: name the user to unlock"));
    }
    let unlocked = app.engine.guards.unlock(&pinned, guard, &fields).await?;
    let unlocked: Vec<UnlockedKey> =
        unlocked.into_iter().map(|(rule, key)| UnlockedKey { rule: rule.to_string(), key }).collect();
    for UnlockedKey { rule, key } in &unlocked {
        let what = format!("{}/{rule}/{key}", guard.name);
        Change { action: "guard.unlock", what: &what, ..Change::default() }.record(&ask);
    }
    Ok(json(&UnlockedShown { unlocked }))
}

/// The guard in the path.
fn named<'p>(policies: &'p Policies, ask: &Ask) -> Result<&'p Guard, Problem> {
    let name = path::decode(path::rest(&ask.uri).0)?;
    policies.find_guard(&name).map_err(|mistake| Problem::not_found(mistake.to_string()))
}

fn pairs<'f>(fields: &'f Fields<'_>) -> SmallVec<[(&'f str, &'f str); 6]> {
    fields.0.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

fn advised(advice: &Advice, now: Timestamp) -> AdviceShown {
    AdviceShown {
        delay_ms: advice.delay.as_millis_ceil(),
        not_before: (advice.delay.as_micros() > 0).then(|| Moment(now + advice.delay)),
        captcha: advice.captcha,
        locked_until: advice.locked_until.map(Moment),
    }
}
