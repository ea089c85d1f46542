//! Writes decisions as responses of the API.
//!
//! This is the busiest part of the door, so it writes JSON directly from the decision. [`promise`] has the
//! schema of that JSON.

pub(crate) mod promise;

use std::borrow::Cow;

use tollgate_core::{Decision, Limit, Line, Timestamp};
use tollgate_engine::Engine;
use tollgate_web::answer::{Refusal, write_origin};
use tollgate_web::json::Json;

use super::shown;

/// The usual size of a response, in bytes.
pub(crate) const USUAL_BYTES: usize = 640;

/// Whether a decision is the whole response, or one of several.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Alone,
    AmongSeveral,
}

/// A decision and its context.
pub(crate) struct Answer<'d, 'a> {
    pub(crate) engine: &'d Engine,
    /// The name of the policy in the request.
    pub(crate) policy: &'d str,
    pub(crate) decision: &'d Decision<'a>,
}

impl Answer<'_, '_> {
    /// The id of the attempt's holds, if the attempt has any: the caller's id, or a generated one.
    pub(crate) fn hold_id<'i>(&self, asked: Option<&'i str>) -> Option<Cow<'i, str>> {
        let Decision { charges, outcome, .. } = self.decision;
        let taken = |index: usize| outcome.repeated || outcome.taken & (1 << index) != 0;
        let mut charges_held = charges.iter().enumerate().filter(|(index, _)| taken(*index));
        let held = charges_held.any(|(_, charge)| charge.plan.limits().iter().any(Limit::holds));
        held.then(|| asked.map_or_else(|| charges.ticket.to_string().into(), Cow::Borrowed))
    }

    /// Writes an allowed decision, with the id of its holds if it has any. The caller adds the closing brace.
    pub(crate) fn write_allowed(&self, id: Option<&str>, standing: Standing, json: &mut Json) {
        json.piece(match standing {
            Standing::Alone => r#"{"allowed":true,"verdict":"allow","policy":"#,
            Standing::AmongSeveral => r#"{"status":200,"allowed":true,"verdict":"allow","policy":"#,
        });
        json.text(self.policy);
        write_origin(self.decision, json);
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
    }

    /// Writes a refused decision as a problem document; `id` is the correlation id of the request. The caller
    /// adds the closing brace.
    pub(crate) fn write_refused(&self, refusal: &Refusal<'_, '_>, id: &str, json: &mut Json) {
        refusal.write(id, json);
        self.write_rules(json);
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

/// Writes the object of a rule. The caller has written the opening brace and the name of the first member.
fn write_rule(engine: &Engine, line: &Line<'_>, now: Timestamp, json: &mut Json) {
    let exceeded = line.exceeded();
    let (text, reading) = line.binding_written().map(|(text, _, reading)| (text, reading)).unzip();
    let reset = reading.and_then(|reading| reading.reset).map(|reset| reset.since(now));
    json.text(&line.rule.name);
    json.piece(r#","key":"#);
    json.text(&engine.observer.shown_key(line.rule, line.key));
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
