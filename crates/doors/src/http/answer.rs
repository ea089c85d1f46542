//! Decisions as they are answered.
//!
//! The busiest part of the door, so the JSON is written by hand, straight from the decision.
//! [`promise`] says what its shape is.

pub(crate) mod promise;

use std::borrow::Cow;
use std::fmt::Write;

use axum::http::{HeaderValue, StatusCode};
use tollgate_core::{Decision, Limit, Line, Origin, Reason, Timestamp, Verdict, When};
use tollgate_engine::Engine;

use super::headers::whole_secs;
use super::json::Json;
use super::problem::id_text;
use super::shown::{self, Moment};

/// About how long an answer is, in bytes.
pub(crate) const USUAL_BYTES: usize = 640;

/// Whether a decision is the whole answer, or one of several.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Alone,
    AmongSeveral,
}

/// A decision, and what is said beside it.
pub(crate) struct Answer<'d, 'a> {
    pub(crate) engine: &'d Engine,
    /// The policy, as it was asked for.
    pub(crate) policy: &'d str,
    pub(crate) decision: &'d Decision<'a>,
}

impl Answer<'_, '_> {
    /// The id under which something is held now: that of the attempt, or the one that was made up.
    pub(crate) fn hold_id<'i>(&self, asked: Option<&'i str>) -> Option<Cow<'i, str>> {
        let Decision { charges, outcome, .. } = self.decision;
        let taken = |index: usize| outcome.repeated || outcome.taken & (1 << index) != 0;
        let mut charges_held = charges.iter().enumerate().filter(|(index, _)| taken(*index));
        let held = charges_held.any(|(_, charge)| charge.plan.limits().iter().any(Limit::holds));
        held.then(|| asked.map_or_else(|| charges.ticket.to_string().into(), Cow::Borrowed))
    }

    /// Writes that the attempt may pass, under this id if it is to be told.
    pub(crate) fn write_allowed(&self, id: Option<&str>, standing: Standing, json: &mut Json) {
        json.piece(match standing {
            Standing::Alone => r#"{"allowed":true,"verdict":"allow","policy":"#,
            Standing::AmongSeveral => r#"{"status":200,"allowed":true,"verdict":"allow","policy":"#,
        });
        json.text(self.policy);
        self.write_origin(json);
        json.piece(r#","repeated":"#);
        json.truth(self.decision.outcome.repeated);
        if let Some(id) = id {
            json.piece(r#","id":"#);
            json.text(id);
        }
        self.write_rules(json);
        if self.decision.outcome.taken != 0 {
            json.piece(r#","receipt":""#);
            self.engine.write_receipt(self.decision, json.bytes());
            json.piece("\"");
        }
        json.piece("}");
    }

    /// Writes that the attempt may not pass, as a problem of the request with this id.
    pub(crate) fn write_refused(&self, id: &HeaderValue, json: &mut Json) {
        let line = self.decision.denied_by();
        let key = line.map(|line| self.engine.shown_key(line.rule, line.key));
        let wait = self.decision.wait();
        let kind = Kind::of(self.decision);
        json.piece(kind.opening);
        json.text(&detail(line.zip(key.as_ref()), wait.map(whole_secs), self.decision));
        json.piece(r#","correlationId":"#);
        json.text(id_text(id));
        json.piece(kind.error);
        json.text(shown::verdict(self.decision.verdict));
        json.piece(r#","policy":"#);
        json.text(self.policy);
        self.write_origin(json);
        if let (Some(line), Some(key)) = (line, key) {
            json.piece(r#","denied_by":"#);
            json.text(&line.rule.name);
            json.piece(r#","denied_key":"#);
            json.text(&key);
        }
        if let Some(wait) = wait {
            json.piece(r#","retry_after":"#);
            json.number(whole_secs(wait));
            json.piece(r#","retryAfter":"#);
            json.number(whole_secs(wait));
            json.piece(r#","retry_after_ms":"#);
            json.number(wait.as_millis_ceil().max(1));
        }
        if let Verdict::Defer(at) = self.decision.verdict {
            json.piece(r#","defer_until":"#);
            json.text(&Moment(at).to_string());
        }
        self.write_rules(json);
        json.piece("}");
    }

    fn write_origin(&self, json: &mut Json) {
        json.piece(r#","origin":"#);
        json.text(shown::origin(self.decision.origin));
        if let Some(reason) = shown::reason(self.decision.origin).or_else(|| public_reason(self.decision)) {
            json.piece(r#","reason":"#);
            json.text(reason);
        }
    }

    fn write_rules(&self, json: &mut Json) {
        json.piece(r#","rules":["#);
        for (index, line) in self.decision.lines().enumerate() {
            json.piece(if index == 0 { r#"{"rule":"# } else { r#",{"rule":"# });
            write_rule(self.engine, &line, self.decision.outcome.now, json);
        }
        json.piece("]");
    }
}

/// Writes a rule's part, behind the name of its first member.
fn write_rule(engine: &Engine, line: &Line<'_>, now: Timestamp, json: &mut Json) {
    let exceeded = line.exceeded();
    let (text, reading) = line.binding_written().unzip();
    let reset = reading.and_then(|reading| reading.reset).map(|reset| reset.since(now));
    json.text(&line.rule.name);
    json.piece(r#","key":"#);
    json.text(&engine.shown_key(line.rule, line.key));
    json.piece(r#","limit":"#);
    match text {
        Some(text) => json.text(text),
        None => json.piece("null"),
    }
    json.piece(r#","capacity":"#);
    json.maybe(reading.map(|reading| reading.capacity));
    json.piece(r#","remaining":"#);
    json.maybe(reading.map(|reading| reading.remaining));
    json.piece(r#","reset_after":"#);
    json.maybe(reset.map(|reset| reset.as_secs_ceil()));
    json.piece(r#","reset_after_ms":"#);
    json.maybe(reset.map(|reset| reset.as_millis_ceil()));
    json.piece(r#","exceeded":"#);
    json.truth(exceeded);
    json.piece(r#","observed":"#);
    json.truth(line.rule.observes());
    json.piece(r#","limits":["#);
    for (index, ((_, limit), reading)) in line.plan.written().zip(line.readings).enumerate() {
        json.piece(if index == 0 { r#"{"limit":"# } else { r#",{"limit":"# });
        json.text(limit);
        json.piece(r#","capacity":"#);
        json.number(reading.capacity);
        json.piece(r#","remaining":"#);
        json.number(reading.remaining);
        json.piece(r#","reset_after_ms":"#);
        json.maybe(shown::reset_after_ms(*reading, now));
        json.piece(r#","retry_after_ms":"#);
        json.maybe(shown::retry_after_ms(reading.when));
        json.piece("}");
    }
    json.piece("]}");
}

/// What every refusal of one kind says.
struct Kind {
    /// The beginning of the problem, up to its detail.
    opening: &'static str,
    /// What stands between the request's id and the verdict.
    error: &'static str,
    status: StatusCode,
}

const EXCEEDED: Kind = Kind {
    opening: r#"{"type":"/problems/rate-limit-exceeded","title":"Rate limit exceeded","status":429,"detail":"#,
    error: r#","error":"rate limit exceeded","allowed":false,"verdict":"#,
    status: StatusCode::TOO_MANY_REQUESTS,
};

const OUTAGE: Kind = Kind {
    opening: r#"{"type":"/problems/store-unavailable","title":"Store unavailable","status":503,"detail":"#,
    error: r#","error":"store unavailable","allowed":false,"verdict":"#,
    status: StatusCode::SERVICE_UNAVAILABLE,
};

const BANNED: Kind = Kind {
    opening: r#"{"type":"/problems/banned","title":"Banned","status":403,"detail":"#,
    error: r#","error":"banned","allowed":false,"verdict":"#,
    status: StatusCode::FORBIDDEN,
};

impl Kind {
    fn of(decision: &Decision<'_>) -> &'static Self {
        match decision.origin {
            Origin::Outage(_) => &OUTAGE,
            Origin::Barred => &BANNED,
            Origin::Store | Origin::Local(_) | Origin::Fixed => &EXCEEDED,
        }
    }
}

/// Why somebody is on the blocklist, where that may be told.
fn public_reason<'d>(decision: &'d Decision<'_>) -> Option<&'d str> {
    decision.barred().filter(|listing| listing.told).map(|listing| &*listing.reason)
}

/// The status that a refusal is answered with.
pub(crate) fn refused_with(decision: &Decision<'_>) -> StatusCode {
    Kind::of(decision).status
}

/// Who exceeded what, and when to come back.
fn detail(named: Option<(Line<'_>, &Cow<'_, str>)>, wait: Option<u64>, decision: &Decision<'_>) -> String {
    if decision.barred().is_some() {
        let mut text = "banned".to_owned();
        public_reason(decision).iter().for_each(|reason| text.extend([": ", reason]));
        wait.iter().for_each(|secs| text.push_str(&format!("; retry after {secs} s")));
        return text;
    }
    let Some((line, key)) = named else { return "rate limit exceeded".to_owned() };
    let mut text = line.rule.name.to_string();
    if !line.rule.by.is_empty() {
        text.push(' ');
        text.push_str(key);
    }
    if let Origin::Outage(reason) = decision.origin {
        text.push_str(" cannot be counted: ");
        text.push_str(in_words(reason));
    }
    if let Some((limit, _)) = line.binding_written() {
        text.push_str(" exceeded ");
        text.push_str(limit);
    }
    match (wait, decision.retry) {
        (Some(secs), _) => write!(text, "; retry after {secs} s").expect("writing to a string cannot fail"),
        (None, When::OnRelease) => text.push_str("; retry when a hold has ended"),
        (None, _) => text.push_str("; it can never pass"),
    }
    text
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
