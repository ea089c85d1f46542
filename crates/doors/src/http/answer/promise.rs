//! Decisions as the API promises them: these types make the schemas, and nothing else is made of
//! them. What is written stands beside, and every test of a door holds it against these.

#![expect(dead_code, reason = "only the schemas of these types are used")]

use schemars::JsonSchema;

use crate::http::problem::ProblemBody;

/// An attempt that may pass.
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
    /// `store`; without it `local` by the counters of this node, or `outage` by none; `fixed` when
    /// there was nothing to ask.
    origin: String,
    /// Why it was decided without the store: `timeout`, `unreachable`, `open`, `full`, `forbidden`
    /// or `damaged`.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Whether the id was held already, so that nothing was taken.
    repeated: bool,
    /// The id under which something is held, made up if none was sent; absent where nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// What every rule that applied shows.
    rules: Vec<RuleShown>,
    /// The receipt for a refund; absent if nothing was charged.
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<String>,
    /// When it was taken, by the store's clock (RFC 3339); only of `acquire`, when something was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<String>,
    /// Milliseconds for which it waited; only of `acquire`.
    #[serde(skip_serializing_if = "Option::is_none")]
    waited_ms: Option<u64>,
}

/// An attempt that may not pass now: a problem document with the reasons.
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
    /// The id of the request, as the caller sent it or as it was made up.
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
    /// `store`; without it `local` by the counters of this node, or `outage` by none; `barred` by the
    /// blocklist.
    origin: String,
    /// Why it was decided without the store: `timeout`, `unreachable`, `open`, `full`, `forbidden`
    /// or `damaged`. Of
    /// who is barred, the reason if it is public.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The first rule that was exceeded, or that denies in an outage.
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
    /// To when it is deferred (RFC 3339); only if the verdict is `defer`.
    #[serde(skip_serializing_if = "Option::is_none")]
    defer_until: Option<String>,
    /// The code of the rule that is named; absent if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    /// The number of its limit that binds, as it is written; absent if nothing was counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
    /// What every rule that applied shows.
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

/// One rule's part: of its limits, the one with the least left, or if one is exceeded the one with
/// the longest wait.
#[derive(JsonSchema)]
struct RuleShown {
    /// The rule.
    rule: String,
    /// The key it counted under; a made-up name where keys are secret.
    key: String,
    /// The limit, as it is written.
    limit: Option<String>,
    /// The most that can be charged at once.
    capacity: Option<u64>,
    /// What can still be charged now.
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
    limits: Vec<LimitShown>,
}

/// What one limit shows.
#[derive(JsonSchema)]
struct LimitShown {
    /// The limit, as it is written.
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
