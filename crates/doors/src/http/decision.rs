//! One decision, by its token: what every rule read then, and what it reads now.

use std::sync::Arc;

use axum::http::Method;
use schemars::JsonSchema;
use serde::Serialize;
use tollgate_core::{Policies, Reading, Rule, Timestamp, When};
use tollgate_engine::decision_token::DecodedLine;

use super::App;
use super::auth::Role;
use super::counters::{CountShown, counts};
use super::endpoint::{Answered, Ask, Endpoint, Operation};
use super::path;
use super::problem::Problem;
use super::shown::{self, Moment, json};
use super::tenancy;

const ONE: &str = "/api/v1/decisions/{token}";

/// A decision.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DecisionDetail")]
struct DecisionShown<'d> {
    /// When it was made (RFC 3339).
    #[schemars(with = "String")]
    at: Moment,
    /// The policy that decided.
    policy: &'d str,
    /// `allow`, `wait`, `defer` or `deny`.
    verdict: &'static str,
    /// How it was decided: `store`, `local`, `outage`, `fixed`, or `blocked` for the blocklist.
    origin: &'static str,
    /// Why the decision was made without the store; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// The rule that decided; null if the attempt was allowed or blocked.
    rule: Option<&'d str>,
    /// The target of the blocklist entry that blocked it; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    blocked: Option<&'d str>,
    /// The correlation id.
    id: &'d str,
    /// The cost.
    cost: u64,
    /// Milliseconds until a retry, as the caller was told; null if it was allowed, or if waiting does not
    /// help.
    retry_after_ms: Option<u64>,
    /// Every rule that applied, the one that decided first. A key with a tenant sees only the rules whose key has
    /// that tenant.
    rules: Vec<RuleThenAndNow<'d>>,
    /// Whether the token had room for all of them.
    complete: bool,
}

/// A rule's part in the decision.
#[derive(Serialize, JsonSchema)]
struct RuleThenAndNow<'d> {
    /// The rule.
    rule: &'d str,
    /// The key; a pseudonym if keys are secret.
    key: String,
    /// Whether the rule only observed.
    observed: bool,
    /// Whether some limit of the rule was exceeded.
    exceeded: bool,
    /// The reading of each limit at the decision.
    then: Vec<ThenShown<'d>>,
    /// The reading of each limit now; null if the rule is gone or disabled, or the store does not answer.
    now: Option<Vec<CountShown<'d>>>,
}

/// The reading of one limit at the decision.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LimitThen")]
struct ThenShown<'d> {
    /// The limit, as text.
    limit: &'d str,
    /// The most that could be charged at once.
    capacity: u64,
    /// What could still be charged.
    remaining: u64,
    /// What was charged.
    used: u64,
    /// Milliseconds from the decision until it was unused again; null if only a release or a reset does that.
    reset_after_ms: Option<u64>,
    /// Milliseconds from the decision until the attempt conformed; null if it did, or if waiting did not help.
    retry_after_ms: Option<u64>,
}

pub(crate) fn endpoints() -> Vec<Endpoint> {
    let show_one = Operation::new(ONE, "Show a decision by its token: every rule then and now")
        .answers::<DecisionShown<'_>>();
    vec![Endpoint::new(Method::GET, ONE, Some(Role::Read), show).serves_tenants().does(show_one)]
}

async fn show(app: Arc<App>, ask: Ask) -> Answered {
    let token = path::decode(path::rest(&ask.uri).0)?;
    let opened = app.engine.observer.open_decision(&token).map_err(|_| {
        Problem::bad_request(
            "this is not the token of a decision of this store: it is incomplete or changed, or from another \
             store, or from another version of tollgate",
        )
    })?;
    let pinned = app.engine.pin();
    let lines = reached(&ask, &pinned.policies, &opened.lines)?;
    let mut rules = Vec::with_capacity(lines.len());
    for line in lines {
        let rule = pinned.policies.rule(&line.rule);
        let key = app.engine.observer.shown_key_of(line, rule.map(|rule| &**rule));
        let now = now(&app, rule, line).await;
        rules.push(RuleThenAndNow::of(line, key.into_owned(), opened.at, now));
    }
    Ok(json(&DecisionShown {
        at: Moment(opened.at),
        policy: &opened.policy,
        verdict: shown::verdict(opened.verdict),
        origin: shown::origin(opened.origin),
        reason: shown::reason(opened.origin),
        rule: opened.rule.as_deref(),
        blocked: opened.blocked.as_deref().filter(|_| !ask.has_tenant()),
        id: &opened.correlation,
        cost: opened.cost,
        retry_after_ms: shown::retry_after_ms(opened.retry),
        rules,
        complete: opened.complete,
    }))
}

/// The lines of a decision that the caller's key reaches.
fn reached<'d>(
    ask: &Ask,
    policies: &Policies,
    lines: &'d [DecodedLine],
) -> Result<Vec<&'d DecodedLine>, Problem> {
    let Some(own) = ask.tenant() else { return Ok(lines.iter().collect()) };
    let reaches = |line: &&DecodedLine| {
        policies.rule(&line.rule).is_some_and(|rule| tenancy::carries(rule, &line.key, own))
    };
    let reached: Vec<_> = lines.iter().filter(reaches).collect();
    if reached.is_empty() { Err(tenancy::needs_no_tenant(own)) } else { Ok(reached) }
}

impl<'d> RuleThenAndNow<'d> {
    fn of(line: &'d DecodedLine, key: String, at: Timestamp, now: Option<Vec<CountShown<'d>>>) -> Self {
        let then = line.limits.iter().map(|(limit, reading)| ThenShown::of(limit, *reading, at));
        Self {
            rule: &line.rule,
            key,
            observed: line.observed,
            exceeded: line.limits.iter().any(|(_, reading)| reading.when > When::Now),
            then: then.collect(),
            now,
        }
    }
}

/// The readings of a rule at a key now.
async fn now<'p>(app: &App, rule: Option<&'p Arc<Rule>>, line: &DecodedLine) -> Option<Vec<CountShown<'p>>> {
    let rule = rule.filter(|rule| rule.enabled)?;
    let outcome = app.engine.rows.look(rule, &line.key).await.ok()?;
    Some(counts(rule.plan_at(&line.key), &outcome))
}

impl<'d> ThenShown<'d> {
    fn of(limit: &'d str, reading: Reading, at: Timestamp) -> Self {
        Self {
            limit,
            capacity: reading.capacity,
            remaining: reading.remaining,
            used: reading.capacity.saturating_sub(reading.remaining),
            reset_after_ms: shown::reset_after_ms(reading, at),
            retry_after_ms: shown::retry_after_ms(reading.when),
        }
    }
}
