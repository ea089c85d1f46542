//! The bodies of decisions.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use tollgate_core::{Line, Plan, Reading, Timestamp};
use tollgate_engine::Engine;
use tollgate_web::answer::RefusalBody;

use super::Answer;
use crate::http::problem::ProblemBody;
use crate::http::shown::{self, Moment};

/// An allowed attempt.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Allowed<'d, 'a> {
    /// 200; only among several decisions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u16>,
    /// Always true.
    pub(super) allowed: bool,
    /// Always `allow`.
    pub(super) verdict: &'static str,
    /// The policy that decided.
    pub(super) policy: Cow<'d, str>,
    /// `store`; without it `local` by the counters of this node, or `outage` by none; `fixed` if nothing had
    /// to be counted.
    pub(super) origin: &'static str,
    /// Why it was decided without the store: `timeout`, `unreachable`, `open`, `full`, `forbidden`,
    /// `damaged`, `busy` or `uncounted`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<&'static str>,
    /// Whether the id already had a hold, so that nothing was taken.
    pub(super) repeated: bool,
    /// The id of the holds, generated if none was sent; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<Cow<'d, str>>,
    /// The readings of every rule that applied.
    #[schemars(with = "Vec<RuleShown<'d>>")]
    pub(super) rules: Part<Rules<'d, 'a>>,
    /// The receipt for a refund; absent if nothing was charged.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub(super) receipt: Option<Part<ReceiptShown<'d, 'a>>>,
    /// When it was taken, by the store's clock (RFC 3339); only for `acquire`, if something was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub(crate) at: Option<Moment>,
    /// Milliseconds that it waited; only for `acquire`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waited_ms: Option<u64>,
}

/// An attempt that is not allowed now: a problem document with the reasons.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Refused<'d, 'a> {
    #[serde(flatten)]
    pub(super) refusal: RefusalBody<'d>,
    /// The readings of every rule that applied.
    #[schemars(with = "Vec<RuleShown<'d>>")]
    pub(super) rules: Rules<'d, 'a>,
}

/// Several decisions, in the order of the attempts.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Decisions")]
pub(crate) struct Batch {
    #[schemars(with = "Vec<OneOf<'static, 'static>>")]
    pub(crate) decisions: Vec<Option<Box<RawValue>>>,
}

#[derive(JsonSchema)]
#[schemars(rename = "OneOfSeveral", untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum OneOf<'d, 'a> {
    Allowed(Allowed<'d, 'a>),
    Refused(Box<Refused<'d, 'a>>),
    Problem(ProblemBody<'d>),
}

/// A part of a body: still to be written, or JSON already. The decision can only be read while it is made.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Part<T> {
    Open(T),
    Closed(Box<RawValue>),
}

impl<T: Serialize> Part<T> {
    fn close<U>(self) -> Part<U> {
        Part::Closed(match self {
            Self::Open(open) => close(&open),
            Self::Closed(closed) => closed,
        })
    }
}

/// The JSON of a body, for a response that is written later.
pub(crate) fn close(body: &impl Serialize) -> Box<RawValue> {
    to_raw_value(body).expect("texts and numbers can be written as JSON")
}

impl Allowed<'_, '_> {
    /// The same body without the decision.
    pub(crate) fn close(self) -> Allowed<'static, 'static> {
        let Self { status, allowed, verdict, origin, reason, repeated, at, waited_ms, .. } = self;
        let policy = self.policy.into_owned().into();
        let id = self.id.map(|id| id.into_owned().into());
        let (rules, receipt) = (self.rules.close(), self.receipt.map(Part::close));
        Allowed {
            status,
            allowed,
            verdict,
            policy,
            origin,
            reason,
            repeated,
            id,
            rules,
            receipt,
            at,
            waited_ms,
        }
    }
}

/// The readings of every rule that applied.
pub(crate) struct Rules<'d, 'a>(pub(super) Answer<'d, 'a>);

impl Serialize for Rules<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Answer { engine, decision, .. } = self.0;
        let now = decision.outcome.now;
        serializer.collect_seq(decision.lines().map(|line| RuleShown::new(engine, &line, now)))
    }
}

/// The receipt of a decision. It is sealed while it is written.
pub(crate) struct ReceiptShown<'d, 'a>(pub(super) Answer<'d, 'a>);

impl Serialize for ReceiptShown<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Answer { engine, decision, .. } = self.0;
        engine.receipt(decision).serialize(serializer)
    }
}

/// The readings of one rule. The members of its own are those of the limit with the least left, or of the
/// exceeded limit with the longest wait.
#[derive(Serialize, JsonSchema)]
struct RuleShown<'d> {
    /// The rule.
    rule: &'d str,
    /// The key; a pseudonym if keys are secret.
    key: Cow<'d, str>,
    /// The limit, as configured.
    limit: Option<&'d str>,
    /// The most that can be charged at once.
    capacity: Option<u64>,
    /// What can still be charged now.
    remaining: Option<u64>,
    /// Whole seconds, rounded up, until it is unused again; null if only a release or a reset does that.
    reset_after: Option<u64>,
    /// Milliseconds until it is unused again.
    reset_after_ms: Option<u64>,
    /// Whether some limit of the rule is exceeded.
    exceeded: bool,
    /// Whether the rule only counts and reports.
    observed: bool,
    /// Every limit of the rule.
    #[schemars(with = "Vec<LimitShown<'d>>")]
    limits: Limits<'d>,
}

impl<'d> RuleShown<'d> {
    fn new(engine: &Engine, line: &Line<'d>, now: Timestamp) -> Self {
        let (limit, reading) = line.binding_written().map(|(text, _, reading)| (text, reading)).unzip();
        let reset = reading.and_then(|reading| reading.reset).map(|reset| reset.since(now));
        Self {
            rule: &line.rule.name,
            key: engine.observer.shown_key(line.rule, line.key),
            limit,
            capacity: reading.map(|reading| reading.capacity),
            remaining: reading.map(|reading| reading.remaining),
            reset_after: reset.map(|reset| reset.as_secs_ceil()),
            reset_after_ms: reset.map(|reset| reset.as_millis_ceil()),
            exceeded: line.exceeded(),
            observed: line.rule.observes(),
            limits: Limits { plan: line.plan, readings: line.readings, now },
        }
    }
}

/// The readings of every limit of a rule.
struct Limits<'d> {
    plan: &'d Plan,
    readings: &'d [Reading],
    now: Timestamp,
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

/// The reading of one limit.
#[derive(Serialize, JsonSchema)]
struct LimitShown<'d> {
    /// The limit, as configured.
    limit: &'d str,
    /// The most that can be charged at once.
    capacity: u64,
    /// What can still be charged now.
    remaining: u64,
    /// Milliseconds until it is unused again; null if only a release or a reset does that.
    reset_after_ms: Option<u64>,
    /// Milliseconds until the attempt conforms; null if it does, or if waiting does not help.
    retry_after_ms: Option<u64>,
}
