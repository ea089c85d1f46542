//! Denials as problem documents (RFC 9457), with the reasons.
//!
//! A refusal is written far more often than an attack is worth, so it is written by hand, straight from
//! the decision, and once.

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
    /// The rule that is named, and its key as people may see it.
    pub(super) named: Option<(Line<'d>, Cow<'d, str>)>,
    /// Its limit that binds, as it is written and as it is, and what it shows.
    binding: Option<(&'d str, &'d Limit, Reading)>,
    wait: Option<Span>,
    /// The rule that determines the time, if it is another one, and its key as people may see it.
    retry_by: Option<(Line<'d>, Cow<'d, str>)>,
}

/// What every refusal of one kind says.
struct Kind {
    status: StatusCode,
    /// The beginning of the problem, up to the quote before its detail.
    opening: &'static str,
    /// What stands between the request's id and the verdict, with the quotes of both.
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
    /// About how long a refusal is, in bytes.
    pub const USUAL_BYTES: usize = 640;

    /// What there is to say about a decision, which is not to allow.
    pub fn new(engine: &Engine, decision: &'d Decision<'a>) -> Self {
        let named = decision.denied_by().map(|line| (line, engine.shown_key(line.rule, line.key)));
        let kind = match decision.origin {
            Origin::Outage(_) => &OUTAGE,
            Origin::Barred => &BANNED,
            Origin::Store | Origin::Local(_) | Origin::Fixed => &EXCEEDED,
        };
        let binding = named.as_ref().and_then(|(line, _)| line.binding_written());
        let retry_by = decision.retry_by().map(|line| (line, engine.shown_key(line.rule, line.key)));
        Self { decision, kind, named, binding, wait: decision.wait(), retry_by }
    }

    /// The status it is answered with: 429, 503 if an outage denies, or 403 if it is barred.
    pub fn status(&self) -> StatusCode {
        self.kind.status
    }

    /// How long to wait before asking again.
    pub fn wait(&self) -> Option<Span> {
        self.wait
    }

    /// The name of the policy that decided.
    pub(super) fn policy(&self) -> &str {
        &self.decision.policy().name
    }

    /// The code of the rule that is named, if it has one.
    pub(super) fn code(&self) -> Option<&str> {
        self.named.as_ref().and_then(|(line, _)| line.rule.code.as_deref())
    }

    /// The rule that is named, its limit that binds, and what that shows.
    pub(super) fn binding_of_rule(&self) -> Option<(&'d Rule, &'d Limit, Reading)> {
        let (_, limit, reading) = self.binding?;
        self.named.as_ref().map(|(line, _)| (line.rule, limit, reading))
    }

    /// The limit that binds, as it is written and as it is, and what it shows.
    pub(super) fn binding(&self) -> Option<(&str, &Limit, Reading)> {
        self.binding
    }

    /// Writes it as a problem of the request with this id, all but what every rule shows and the brace
    /// at the end: whoever has more to say goes on.
    pub fn write(&self, id: &str, json: &mut Json) {
        json.piece(self.kind.opening);
        self.add_default_detail(json);
        self.write_reasons(id, json);
    }

    /// Writes who exceeded what, and when to come back, inside of quotes that stand already.
    pub(super) fn add_default_detail(&self, json: &mut Json) {
        if self.decision.barred().is_some() {
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

    /// Writes that somebody is on the blocklist: why if that may be told, and when to come back.
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

    /// Writes what stands behind the detail, and the quote that ends it.
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
    }

    /// Writes how an application knows the rule that is named, and the number it met.
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

/// Writes a rule and its key, inside of quotes that stand already.
fn add_place(line: &Line<'_>, key: &str, json: &mut Json) {
    json.add(&line.rule.name);
    if !line.rule.by.is_empty() {
        json.piece(" ");
        json.add(key);
    }
}

/// Why somebody is on the blocklist, where that may be told.
fn public_reason<'d>(decision: &'d Decision<'_>) -> Option<&'d str> {
    decision.barred().filter(|listing| listing.told).map(|listing| &*listing.reason)
}

/// Writes how a decision was reached, as members of an answer.
pub fn write_origin(decision: &Decision<'_>, json: &mut Json) {
    // Most are reached by the store, and of those there is nothing more to say.
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
