//! Denials as problem documents (RFC 9457), with the reasons.
//!
//! An attack causes many refusals, so writing one must be cheap: it is written once, directly from the
//! decision.

use std::borrow::Cow;

use http::StatusCode;
use tollgate_core::{Decision, Limit, Line, Origin, Reading, Rule, Span, Verdict, When};
use tollgate_engine::Engine;

use super::headers::whole_secs;
use crate::json::Json;
use crate::words::{self, Moment};

/// A denial and the members of its problem document.
pub struct Refusal<'d, 'a> {
    decision: &'d Decision<'a>,
    kind: &'static Kind,
    /// The rule that denied, and its key as it may be shown.
    pub(super) named: Option<(Line<'d>, Cow<'d, str>)>,
    /// That rule's binding limit as text and as a value, and its reading.
    binding: Option<(&'d str, &'d Limit, Reading)>,
    wait: Option<Span>,
    /// The rule that determines the wait, if it is another one, and its key as it may be shown.
    retry_by: Option<(Line<'d>, Cow<'d, str>)>,
    /// The name of the member with the decision's token or link, and its value.
    pub(super) token: Option<(&'static str, String)>,
}

/// The constant parts of one kind of refusal.
struct Kind {
    status: StatusCode,
    /// The start of the problem, up to the quote before its detail.
    opening: &'static str,
    /// The text between the correlation id and the verdict, with the quotes of both.
    error: &'static str,
}

const EXCEEDED: Kind = Kind {
    status: StatusCode::TOO_MANY_REQUESTS,
    opening: r#"{"type":"/problems/rate-limit-exceeded","title":"Rate limit exceeded","status":429,"detail":""#,
    error: r#"","error":"rate limit exceeded","allowed":false,"verdict":""#,
};

const OUTAGE: Kind = Kind {
    status: StatusCode::SERVICE_UNAVAILABLE,
    opening: r#"{"type":"/problems/store-unavailable","title":"Store unavailable","status":503,"detail":""#,
    error: r#"","error":"store unavailable","allowed":false,"verdict":""#,
};

const BANNED: Kind = Kind {
    status: StatusCode::FORBIDDEN,
    opening: r#"{"type":"/problems/banned","title":"Banned","status":403,"detail":""#,
    error: r#"","error":"banned","allowed":false,"verdict":""#,
};

impl<'d, 'a> Refusal<'d, 'a> {
    /// The usual size of a refusal, in bytes.
    pub const USUAL_BYTES: usize = 640;

    /// Collects what to write about a decision that does not allow.
    pub fn new(engine: &Engine, decision: &'d Decision<'a>) -> Self {
        let named = decision.denied_by().map(|line| (line, engine.observer.shown_key(line.rule, line.key)));
        let kind = match decision.origin {
            Origin::Outage(_) => &OUTAGE,
            Origin::Blocked => &BANNED,
            Origin::Store | Origin::Local(_) | Origin::Fixed => &EXCEEDED,
        };
        let binding = named.as_ref().and_then(|(line, _)| line.binding_written());
        let retry_by = decision.retry_by().map(|line| (line, engine.observer.shown_key(line.rule, line.key)));
        let token = engine.observer.denial_token(decision);
        Self { decision, kind, named, binding, wait: decision.wait(), retry_by, token }
    }

    /// The status: 429, 503 if an outage denies, or 403 if the blocklist does.
    pub fn status(&self) -> StatusCode {
        self.kind.status
    }

    /// How long to wait before the next attempt.
    pub fn wait(&self) -> Option<Span> {
        self.wait
    }

    /// The name of the policy that decided.
    pub(super) fn policy(&self) -> &str {
        &self.decision.policy().name
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
    pub(super) fn binding(&self) -> Option<(&str, &Limit, Reading)> {
        self.binding
    }

    /// Writes the problem of the request with this id, without the readings of the rules and without the
    /// closing brace, so that the caller can add members.
    pub fn write(&self, id: &str, json: &mut Json) {
        json.piece(self.kind.opening);
        self.add_default_detail(json);
        self.write_reasons(id, json);
    }

    /// Writes the default detail: which key exceeded which limit, and when to retry. The caller has written
    /// the opening quote.
    pub(super) fn add_default_detail(&self, json: &mut Json) {
        if self.decision.blocked().is_some() {
            return self.add_ban(json);
        }
        let Some((line, key)) = &self.named else { return json.add("rate limit exceeded") };
        add_place(line, key, json);
        if let Origin::Outage(reason) = self.decision.origin {
            json.piece(" cannot be counted: ");
            json.piece(words::excuse(reason));
        }
        if let Some((limit, ..)) = self.binding {
            json.piece(" exceeded ");
            json.add(limit);
        }
        match (self.wait, self.decision.retry) {
            (Some(wait), _) => {
                json.piece("; retry after ");
                json.number(whole_secs(wait));
                json.piece(" s");
            }
            (None, When::OnRelease) => json.piece("; retry when a hold has ended"),
            (None, _) => json.piece("; it can never pass"),
        }
        if let Some((line, key)) = &self.retry_by {
            json.piece(", because of ");
            add_place(line, key, json);
            if let Some((limit, ..)) = line.binding_written() {
                json.piece(" (");
                json.add(limit);
                json.piece(")");
            }
        }
    }

    /// Writes that the client is blocked, the reason if it is public, and when to retry.
    fn add_ban(&self, json: &mut Json) {
        json.piece("banned");
        if let Some(reason) = public_reason(self.decision) {
            json.piece(": ");
            json.add(reason);
        }
        if let Some(wait) = self.wait {
            json.piece("; retry after ");
            json.number(whole_secs(wait));
            json.piece(" s");
        }
    }

    /// Writes everything after the detail, including the closing quote of the detail.
    pub(super) fn write_reasons(&self, id: &str, json: &mut Json) {
        json.piece(r#"","correlationId":""#);
        json.add(id);
        json.piece(self.kind.error);
        json.piece(words::verdict(self.decision.verdict));
        json.piece(r#"","policy":""#);
        json.add(self.policy());
        json.quote();
        write_origin(self.decision, json);
        if let Some((line, key)) = &self.named {
            json.piece(r#","denied_by":""#);
            json.add(&line.rule.name);
            json.piece(r#"","denied_key":""#);
            json.add(key);
            json.quote();
        }
        if let Some(wait) = self.wait {
            let mut digits = itoa::Buffer::new();
            let secs = digits.format(whole_secs(wait)).as_bytes();
            json.piece(r#","retry_after":"#);
            json.bytes().extend_from_slice(secs);
            json.piece(r#","retryAfter":"#);
            json.bytes().extend_from_slice(secs);
            json.piece(r#","retry_after_ms":"#);
            json.number(wait.as_millis_ceil().max(1));
        }
        if let Verdict::Defer(at) = self.decision.verdict {
            json.piece(r#","defer_until":"#);
            json.text(&Moment(at).to_string());
        }
        self.write_code(json);
        if let Some((member, value)) = &self.token {
            json.piece(",");
            json.text(member);
            json.piece(":");
            json.text(value);
        }
    }

    /// Writes the code of the rule that denied, and its limit.
    fn write_code(&self, json: &mut Json) {
        if let Some(code) = self.named.as_ref().and_then(|(line, _)| line.rule.code.as_ref()) {
            json.piece(r#","code":"#);
            json.text(code);
        }
        if let Some((_, limit, _)) = self.binding {
            json.piece(r#","limit":"#);
            json.number(limit.number());
        }
    }
}

/// Writes a rule and its key inside open quotes.
fn add_place(line: &Line<'_>, key: &str, json: &mut Json) {
    json.add(&line.rule.name);
    if !line.rule.by.is_empty() {
        json.piece(" ");
        json.add(key);
    }
}

/// The reason for a blocklist entry, if it is public.
fn public_reason<'d>(decision: &'d Decision<'_>) -> Option<&'d str> {
    decision.blocked().filter(|listing| listing.show_reason).map(|listing| &*listing.reason)
}

/// Writes how a decision was reached, as members of a JSON object.
pub fn write_origin(decision: &Decision<'_>, json: &mut Json) {
    // The usual case needs no reason.
    if decision.origin == Origin::Store {
        return json.piece(r#","origin":"store""#);
    }
    json.piece(r#","origin":""#);
    json.piece(words::origin(decision.origin));
    json.quote();
    if let Some(reason) = words::reason(decision.origin).or_else(|| public_reason(decision)) {
        json.piece(r#","reason":"#);
        json.text(reason);
    }
}
