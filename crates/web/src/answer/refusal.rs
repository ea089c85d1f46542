//! Denials as problem documents (RFC 9457), with the reasons.
//!
//! An attack causes many refusals, so writing one must be cheap: its members borrow from the decision.

use std::borrow::Cow;

use http::StatusCode;
use serde::Serialize;
use tollgate_core::{Decision, Limit, Line, Listing, Origin, Reading, Reason, Rule, Span, Verdict, When};
use tollgate_engine::Engine;

use super::detail::Detail;
use super::header_sink::HeaderSink;
use super::headers::{self, whole_millis, whole_secs};
use crate::words::{self, Moment};

/// A denial and the members of its problem document.
pub struct Refusal<'d> {
    kind: &'static Kind,
    verdict: Verdict,
    policy: &'d str,
    pub(super) origin: Origin,
    pub(super) retry: When,
    pub(super) blocked: Option<&'d Listing>,
    /// The rule that denied, and its key as it may be shown.
    pub(super) named: Option<(Line<'d>, Cow<'d, str>)>,
    /// That rule's binding limit as text and as a value, and its reading.
    binding: Option<(&'d str, &'d Limit, Reading)>,
    wait: Option<Span>,
    /// The longest wait after which a client program should retry by itself.
    retry_within: Span,
    /// The rule that determines the wait, if it is another one, and its key as it may be shown.
    pub(super) retry_by: Option<(Line<'d>, Cow<'d, str>)>,
    /// The name of the member with the decision's token or link, and its value.
    pub(super) token: Option<(&'static str, String)>,
}

/// An attempt that is not allowed now: a problem document with the reasons.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RefusalBody<'r> {
    /// `/problems/rate-limit-exceeded`, `/problems/store-unavailable` if an outage denies, `/problems/rows-uncounted` if
    /// the rows of the application cannot be counted, or `/problems/banned` for a client on the blocklist.
    pub(super) r#type: &'r str,
    /// `Rate limit exceeded`, `Store unavailable`, `Rows uncounted` or `Banned`.
    pub(super) title: &'r str,
    /// 429; 503 if an outage denies; 403 for a client on the blocklist.
    status: u16,
    /// The exceeded limit, its key, and when to retry.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub(super) detail: Detail<'r>,
    /// The id of the request: the caller's, or a generated one.
    #[serde(rename = "correlationId")]
    correlation_id: &'r str,
    /// `rate limit exceeded`, `store unavailable`, `rows uncounted` or `banned`.
    error: &'r str,
    /// Always false.
    allowed: bool,
    /// `deny`, `wait` or `defer`.
    verdict: &'r str,
    /// The policy that decided.
    policy: &'r str,
    /// `store`; without it `local` by the counters of this node, or `outage` by none; `blocked` by the
    /// blocklist.
    origin: &'r str,
    /// Why it was decided without the store: `timeout`, `unreachable`, `open`, `full`, `forbidden`,
    /// `damaged`, `busy` or `uncounted`. For a blocked client, the reason if it is public.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'r str>,
    /// The first exceeded rule, or the rule that denies in an outage.
    #[serde(skip_serializing_if = "Option::is_none")]
    denied_by: Option<&'r str>,
    /// Its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    denied_key: Option<&'r str>,
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
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    defer_until: Option<Moment>,
    /// The code of the rule that denied; absent if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'r str>,
    /// The number of its binding limit, as configured; absent if nothing was counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
    /// The token of the decision, unless `denials.token` is false.
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<&'r str>,
    /// A link to the decision, if `denials.link` is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    decision_url: Option<&'r str>,
}

/// The constant members of one kind of refusal.
struct Kind {
    status: StatusCode,
    r#type: &'static str,
    title: &'static str,
    error: &'static str,
}

const EXCEEDED: Kind = Kind {
    status: StatusCode::TOO_MANY_REQUESTS,
    r#type: "/problems/rate-limit-exceeded",
    title: "Rate limit exceeded",
    error: "rate limit exceeded",
};

const OUTAGE: Kind = Kind {
    status: StatusCode::SERVICE_UNAVAILABLE,
    r#type: "/problems/store-unavailable",
    title: "Store unavailable",
    error: "store unavailable",
};

const UNCOUNTED: Kind = Kind {
    status: StatusCode::SERVICE_UNAVAILABLE,
    r#type: "/problems/rows-uncounted",
    title: "Rows uncounted",
    error: "rows uncounted",
};

const BANNED: Kind =
    Kind { status: StatusCode::FORBIDDEN, r#type: "/problems/banned", title: "Banned", error: "banned" };

impl<'d> Refusal<'d> {
    /// The usual size of a refusal, in bytes.
    pub const USUAL_BYTES: usize = 640;

    /// Collects what to write about a decision that does not allow.
    pub fn new(engine: &Engine, decision: &'d Decision<'_>) -> Self {
        let named = decision.denied_by().map(|line| (line, engine.observer.shown_key(line.rule, line.key)));
        let kind = match decision.origin {
            Origin::Outage(Reason::Uncounted) => &UNCOUNTED,
            Origin::Outage(_) => &OUTAGE,
            Origin::Blocked => &BANNED,
            Origin::Store | Origin::Local(_) | Origin::Fixed => &EXCEEDED,
        };
        let binding = named.as_ref().and_then(|(line, _)| line.binding_written());
        let retry_by = decision.retry_by().map(|line| (line, engine.observer.shown_key(line.rule, line.key)));
        Self {
            kind,
            verdict: decision.verdict,
            policy: &decision.policy().name,
            origin: decision.origin,
            retry: decision.retry,
            blocked: decision.blocked().map(|listing| &**listing),
            named,
            binding,
            wait: decision.wait(),
            retry_within: engine.observer.retry_within(),
            retry_by,
            token: engine.observer.denial_token(decision),
        }
    }

    /// The status: 429, 503 if an outage denies, or 403 if the blocklist does.
    pub fn status(&self) -> StatusCode {
        self.kind.status
    }

    /// The wait before the next attempt.
    pub fn wait(&self) -> Option<Span> {
        self.wait
    }

    /// Writes the headers that say when to retry.
    pub fn write_retry(&self, headers: &mut impl HeaderSink) {
        headers::retry(self.wait.map_or(self.retry, When::After), self.retry_within, headers);
    }

    /// The name of the policy that decided.
    pub(super) fn policy(&self) -> &str {
        self.policy
    }

    /// The code of the rule that denied, if it has one.
    pub(super) fn code(&self) -> Option<&str> {
        self.named.as_ref().and_then(|(line, _)| line.rule.code.as_deref())
    }

    /// The rule that denied, its binding limit, and the reading of that.
    pub(super) fn binding_of_rule(&self) -> Option<(&'d Rule, &'d Limit, Reading)> {
        let (_, limit, reading) = self.binding?;
        self.named.as_ref().map(|(line, _)| (line.rule, limit, reading))
    }

    /// The binding limit as text and as a value, and its reading.
    pub(super) fn binding(&self) -> Option<(&'d str, &'d Limit, Reading)> {
        self.binding
    }

    /// The reason for the blocklist entry, if it is public.
    pub(super) fn public_reason(&self) -> Option<&'d str> {
        self.blocked.filter(|listing| listing.show_reason).map(|listing| &*listing.reason)
    }

    /// The body of the response to the request with this id.
    pub fn body<'r>(&'r self, id: &'r str) -> RefusalBody<'r> {
        let retry_after = self.wait.map(whole_secs);
        let token = |member| self.token.as_ref().filter(|(name, _)| *name == member);
        RefusalBody {
            r#type: self.kind.r#type,
            title: self.kind.title,
            status: self.kind.status.as_u16(),
            detail: Detail::Default(self),
            correlation_id: id,
            error: self.kind.error,
            allowed: false,
            verdict: words::verdict(self.verdict),
            policy: self.policy,
            origin: words::origin(self.origin),
            reason: words::reason(self.origin).or_else(|| self.public_reason()),
            denied_by: self.named.as_ref().map(|(line, _)| &*line.rule.name),
            denied_key: self.named.as_ref().map(|(_, key)| &**key),
            retry_after,
            retry_after_again: retry_after,
            retry_after_ms: self.wait.map(whole_millis),
            defer_until: match self.verdict {
                Verdict::Defer(at) => Some(Moment(at)),
                Verdict::Allow | Verdict::Wait(_) | Verdict::Deny => None,
            },
            code: self.code(),
            limit: self.binding.map(|(_, limit, _)| limit.number()),
            decision: token("decision").map(|(_, token)| &**token),
            decision_url: token("decision_url").map(|(_, link)| &**link),
        }
    }
}
