//! The schemas of decisions. These types only produce the OpenAPI document; `answer.rs` writes the JSON
//! itself. Every test of a door checks its replies against these schemas.

#![expect(dead_code, reason = "only the schemas of these types are used")]

use schemars::JsonSchema;

use crate::http::problem::ProblemBody;

/// An allowed attempt.
#[derive(JsonSchema)]
pub(crate) struct Allowed {
    /// 200; only among several decisions.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    /// Always true.
    allowed: bool,
    /// Always `allow`.
    verdict: String,
    /// The policy that decided.
    policy: String,
    /// `store`; without it `local` by the counters of this node, or `outage` by none; `fixed` if nothing had
    /// to be counted.
    origin: String,
    /// Why it was decided without the store: `timeout`, `unreachable`, `open`, `full`, `forbidden`
    /// or `damaged`.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Whether the id already had a hold, so that nothing was taken.
    repeated: bool,
    /// The id of the holds, generated if none was sent; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// The readings of every rule that applied.
    rules: Vec<RuleShown>,
    /// The receipt for a refund; absent if nothing was charged.
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<String>,
    /// When it was taken, by the store's clock (RFC 3339); only for `acquire`, if something was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<String>,
    /// Milliseconds that it waited; only for `acquire`.
    #[serde(skip_serializing_if = "Option::is_none")]
    waited_ms: Option<u64>,
}

/// An attempt that is not allowed now: a problem document with the reasons.
#[derive(JsonSchema)]
pub(crate) struct Refused {
    /// `/problems/rate-limit-exceeded`, `/problems/store-unavailable` if an outage denies, or
    /// `/problems/banned` for a client on the blocklist.
    r#type: String,
    /// `Rate limit exceeded`, `Store unavailable` or `Banned`.
    title: String,
    /// 429; 503 if an outage denies; 403 for a client on the blocklist.
    status: u16,
    /// The exceeded limit, its key, and when to retry.
    detail: String,
    /// The id of the request: the caller's, or a generated one.
    #[serde(rename = "correlationId")]
    correlation_id: String,
    /// `rate limit exceeded`, `store unavailable` or `banned`.
    error: String,
    /// Always false.
    allowed: bool,
    /// `deny`, `wait` or `defer`.
    verdict: String,
    /// The policy that decided.
    policy: String,
    /// `store`; without it `local` by the counters of this node, or `outage` by none; `blocked` by the
    /// blocklist.
    origin: String,
    /// Why it was decided without the store: `timeout`, `unreachable`, `open`, `full`, `forbidden` or
    /// `damaged`. For a blocked client, the reason if it is public.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The first exceeded rule, or the rule that denies in an outage.
    #[serde(skip_serializing_if = "Option::is_none")]
    denied_by: Option<String>,
    /// Its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    denied_key: Option<String>,
    /// Whole seconds to wait, rounded up; absent when waiting does not help.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
    /// The same as `retry_after`.
    #[serde(rename = "retryAfter", skip_serializing_if = "Option::is_none")]
    retry_after_again: Option<u64>,
    /// Milliseconds to wait, rounded up.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    /// Until when it is deferred (RFC 3339); only if the verdict is `defer`.
    #[serde(skip_serializing_if = "Option::is_none")]
    defer_until: Option<String>,
    /// The code of the rule that denied; absent if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    /// The number of its binding limit, as configured; absent if nothing was counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
    /// The token of the decision, if `denials.token` is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<String>,
    /// A link to the decision, if `denials.link` is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    decision_url: Option<String>,
    /// The readings of every rule that applied.
    rules: Vec<RuleShown>,
}

/// Several decisions, in the order of the attempts.
#[derive(JsonSchema)]
#[schemars(rename = "Decisions")]
pub(crate) struct Batch<'d> {
    decisions: Vec<OneOf<'d>>,
}

#[derive(JsonSchema)]
#[schemars(rename = "OneOfSeveral", untagged)]
enum OneOf<'d> {
    Allowed(Allowed),
    Refused(Box<Refused>),
    Problem(ProblemBody<'d>),
}

/// The readings of one rule. The members of its own are those of the limit with the least left, or of the
/// exceeded limit with the longest wait.
#[derive(JsonSchema)]
struct RuleShown {
    /// The rule.
    rule: String,
    /// The key; a pseudonym if keys are secret.
    key: String,
    /// The limit, as configured.
    limit: Option<String>,
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
    limits: Vec<LimitShown>,
}

/// The reading of one limit.
#[derive(JsonSchema)]
struct LimitShown {
    /// The limit, as configured.
    limit: String,
    /// The most that can be charged at once.
    capacity: u64,
    /// What can still be charged now.
    remaining: u64,
    /// Milliseconds until it is unused again; null if only a release or a reset does that.
    reset_after_ms: Option<u64>,
    /// Milliseconds until the attempt conforms; null if it does, or if waiting does not help.
    retry_after_ms: Option<u64>,
}
