//! Decisions as they are answered.

use std::borrow::Cow;
use std::fmt::{self, Display};

use axum::http::{HeaderValue, StatusCode};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use tollgate_core::{Decision, Line, Origin, Plan, Reading, Reason, Timestamp, Verdict, When};
use tollgate_engine::Engine;

use super::headers::{wait, whole_secs};
use super::problem::{ProblemBody, id_text};
use super::shown::{self, Moment, Shown};

/// An attempt that may pass.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Allowed")]
pub(crate) struct Allowed<'d, 'a> {
    /// 200; only among several decisions.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    /// Always true.
    allowed: bool,
    /// Always `allow`.
    verdict: &'static str,
    /// The policy that decided.
    policy: &'d str,
    /// `store`; without it `local` by the counters of this node, or `outage` by none; `fixed` when
    /// there was nothing to ask.
    origin: &'static str,
    /// Why it was decided without the store: `timeout`, `unreachable`, `open`, `full` or `damaged`.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// Whether the id was held already, so that nothing was taken.
    repeated: bool,
    /// The id of the hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'d str>,
    /// What every rule that applied shows.
    #[schemars(with = "Vec<RuleShown<'d>>")]
    rules: Rules<'d, 'a>,
    /// What the attempt can be given back with; absent when nothing was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<String>,
}

/// An attempt that may not pass now: a problem, with the reasons beside it.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Refused")]
pub(crate) struct Refused<'d, 'a> {
    /// `/problems/rate-limit-exceeded`, or `/problems/store-unavailable` if an outage denies.
    r#type: &'static str,
    /// `Rate limit exceeded`, or `Store unavailable`.
    title: &'static str,
    /// 429, or 503 if an outage denies.
    status: u16,
    /// Who exceeded what, and when to come back.
    #[schemars(with = "String")]
    detail: Shown<Detail<'d>>,
    /// The id of the request, as the caller sent it or as it was made up.
    #[serde(rename = "correlationId")]
    correlation_id: &'d str,
    /// `rate limit exceeded`, or `store unavailable`.
    error: &'static str,
    /// Always false.
    allowed: bool,
    /// `deny`, `wait` or `defer`.
    verdict: &'static str,
    /// The policy that decided.
    policy: &'d str,
    /// `store`; without it `local` by the counters of this node, or `outage` by none.
    origin: &'static str,
    /// Why it was decided without the store: `timeout`, `unreachable`, `open`, `full` or `damaged`.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// The first rule that was exceeded, or that denies in an outage.
    #[serde(skip_serializing_if = "Option::is_none")]
    denied_by: Option<&'d str>,
    /// Its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    denied_key: Option<Cow<'d, str>>,
    /// Whole seconds to wait, rounded up; absent when waiting does not help.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
    /// The same as `retry_after`.
    #[serde(rename = "retryAfter", skip_serializing_if = "Option::is_none")]
    retry_after_again: Option<u64>,
    /// Milliseconds to wait, rounded up.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    /// To when it is deferred (RFC 3339); only if the verdict is `defer`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    defer_until: Option<Moment>,
    /// What every rule that applied shows.
    #[schemars(with = "Vec<RuleShown<'d>>")]
    rules: Rules<'d, 'a>,
}

/// Several decisions, in the order of the attempts.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "decisions are written one by one; this only says what comes of it")]
#[schemars(rename = "Decisions")]
pub(crate) struct Batch<'d> {
    decisions: Vec<OneOf<'d>>,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "decisions are written one by one; this only says what comes of it")]
#[schemars(rename = "OneOfSeveral", untagged)]
enum OneOf<'d> {
    Allowed(Allowed<'d, 'd>),
    Refused(Box<Refused<'d, 'd>>),
    Problem(ProblemBody<'d>),
}

/// One rule's part: of its limits, the one with the least left, or if one is exceeded the one with
/// the longest wait.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RuleShown")]
struct RuleShown<'d> {
    /// The rule.
    rule: &'d str,
    /// The key it counted under; a made-up name where keys are secret.
    key: Cow<'d, str>,
    /// The limit, as it is written.
    limit: Option<&'d str>,
    /// The most that can ever be taken at once.
    capacity: Option<u64>,
    /// What can still be taken now.
    remaining: Option<u64>,
    /// Whole seconds, rounded up, until it is whole again; null if not by itself.
    reset_after: Option<u64>,
    /// Milliseconds until it is whole again.
    reset_after_ms: Option<u64>,
    /// Whether some limit of the rule is exceeded.
    exceeded: bool,
    /// Whether the rule only counts and reports.
    observed: bool,
    /// Every limit of the rule.
    #[schemars(with = "Vec<LimitShown<'d>>")]
    limits: Limits<'d>,
}

/// What one limit shows.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LimitShown")]
struct LimitShown<'d> {
    /// The limit, as it is written.
    limit: &'d str,
    /// The most that can ever be taken at once.
    capacity: u64,
    /// What can still be taken now.
    remaining: u64,
    /// Milliseconds until it is whole again; null if not by itself.
    reset_after_ms: Option<u64>,
    /// Milliseconds until the attempt conforms; null if it does, or if waiting does not help.
    retry_after_ms: Option<u64>,
}

/// The rules of a decision, written one by one as they are read off it.
struct Rules<'d, 'a> {
    engine: &'d Engine,
    decision: &'d Decision<'a>,
}

struct Limits<'d> {
    plan: &'d Plan,
    readings: &'d [Reading],
    now: Timestamp,
}

/// Who exceeded what, and when to come back.
struct Detail<'d> {
    line: Option<Line<'d>>,
    key: Option<Cow<'d, str>>,
    wait: Option<u64>,
    retry: When,
    origin: Origin,
}

/// What every refusal of one kind says.
struct Kind {
    path: &'static str,
    title: &'static str,
    error: &'static str,
    status: StatusCode,
}

const EXCEEDED: Kind = Kind {
    path: "/problems/rate-limit-exceeded",
    title: "Rate limit exceeded",
    error: "rate limit exceeded",
    status: StatusCode::TOO_MANY_REQUESTS,
};

const OUTAGE: Kind = Kind {
    path: "/problems/store-unavailable",
    title: "Store unavailable",
    error: "store unavailable",
    status: StatusCode::SERVICE_UNAVAILABLE,
};

impl Kind {
    fn of(decision: &Decision<'_>) -> &'static Self {
        if let Origin::Outage(_) = decision.origin { &OUTAGE } else { &EXCEEDED }
    }
}

/// The status that a refusal is answered with.
pub(crate) fn refused_with(decision: &Decision<'_>) -> StatusCode {
    Kind::of(decision).status
}

impl<'d, 'a> Allowed<'d, 'a> {
    pub(crate) fn new(
        engine: &'d Engine,
        policy: &'d str,
        decision: &'d Decision<'a>,
        status: Option<u16>,
        id: Option<&'d str>,
        receipt: Option<String>,
    ) -> Self {
        Self {
            status,
            allowed: true,
            verdict: shown::verdict(decision.verdict),
            policy,
            origin: shown::origin(decision.origin),
            reason: shown::reason(decision.origin),
            repeated: decision.outcome.repeated,
            id,
            rules: Rules { engine, decision },
            receipt,
        }
    }
}

impl<'d, 'a> Refused<'d, 'a> {
    pub(crate) fn new(
        engine: &'d Engine,
        policy: &'d str,
        decision: &'d Decision<'a>,
        id: &'d HeaderValue,
    ) -> Self {
        let line = decision.denied_by();
        let key = line.map(|line| engine.shown_key(line.rule, line.key));
        let wait = wait(decision);
        let secs = wait.map(whole_secs);
        let kind = Kind::of(decision);
        let (retry, origin) = (decision.retry, decision.origin);
        let detail = Detail { line, key: key.clone(), wait: secs, retry, origin };
        let defer_until = match decision.verdict {
            Verdict::Defer(at) => Some(Moment(at)),
            _ => None,
        };
        Self {
            r#type: kind.path,
            title: kind.title,
            status: kind.status.as_u16(),
            detail: Shown(detail),
            correlation_id: id_text(id),
            error: kind.error,
            allowed: false,
            verdict: shown::verdict(decision.verdict),
            policy,
            origin: shown::origin(decision.origin),
            reason: shown::reason(decision.origin),
            denied_by: line.map(|line| &*line.rule.name),
            denied_key: key,
            retry_after: secs,
            retry_after_again: secs,
            retry_after_ms: wait.map(|wait| wait.as_millis_ceil().max(1)),
            defer_until,
            rules: Rules { engine, decision },
        }
    }
}

impl Serialize for Rules<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let now = self.decision.outcome.now;
        serializer.collect_seq(self.decision.lines().map(|line| RuleLine { engine: self.engine, line, now }))
    }
}

struct RuleLine<'d> {
    engine: &'d Engine,
    line: Line<'d>,
    now: Timestamp,
}

impl Serialize for RuleLine<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { engine, line, now } = self;
        let binding = line.binding();
        let reading = binding.map(|(_, reading)| reading);
        let reset = reading.and_then(|reading| reading.reset).map(|reset| reset.since(*now));
        let shown = RuleShown {
            rule: &line.rule.name,
            key: engine.shown_key(line.rule, line.key),
            limit: line.binding_text(),
            capacity: reading.map(|reading| reading.capacity),
            remaining: reading.map(|reading| reading.remaining),
            reset_after: reset.map(|reset| reset.as_secs_ceil()),
            reset_after_ms: reset.map(|reset| reset.as_millis_ceil()),
            exceeded: line.exceeded(),
            observed: line.rule.observes(),
            limits: Limits { plan: line.plan, readings: line.readings, now: *now },
        };
        shown.serialize(serializer)
    }
}

impl Serialize for Limits<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let limits = self.plan.written().zip(self.readings).map(|((_, limit), reading)| LimitShown {
            limit,
            capacity: reading.capacity,
            remaining: reading.remaining,
            reset_after_ms: shown::reset_after_ms(*reading, self.now),
            retry_after_ms: shown::retry_after_ms(reading.when),
        });
        serializer.collect_seq(limits)
    }
}

impl Display for Detail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(line), Some(key)) = (&self.line, &self.key) else {
            return f.write_str("rate limit exceeded");
        };
        f.write_str(&line.rule.name)?;
        if !line.rule.by.is_empty() {
            write!(f, " {key}")?;
        }
        if let Origin::Outage(reason) = self.origin {
            write!(f, " cannot be counted: {}", in_words(reason))?;
        }
        if let Some((limit, _)) = line.binding() {
            write!(f, " exceeded {limit}")?;
        }
        match (self.wait, self.retry) {
            (Some(secs), _) => write!(f, "; retry after {secs} s"),
            (None, When::OnRelease) => f.write_str("; retry when a hold has ended"),
            (None, _) => f.write_str("; it can never pass"),
        }
    }
}

fn in_words(reason: Reason) -> &'static str {
    match reason {
        Reason::Timeout => "the store did not answer in time",
        Reason::Unreachable => "the store cannot be reached",
        Reason::Open => "the store failed a moment ago",
        Reason::Full => "the store is full",
        Reason::Damaged => "what the store keeps there cannot be read",
    }
}
