//! Decisions as bodies of responses.
//!
//! This is the busiest part of the door, so the JSON of an allowed attempt is written directly from the
//! decision.

pub(crate) mod shapes;

use std::borrow::Cow;

use serde::Serialize;
use tollgate_core::{Decision, Limit};
use tollgate_engine::Engine;
use tollgate_web::answer::Refusal;

use super::shown;
use shapes::{Allowed, Part, ReceiptShown, Refused, Rules};

/// The usual size of a response, in bytes.
pub(crate) const USUAL_BYTES: usize = 640;

/// A decision and its context.
#[derive(Clone, Copy)]
pub(crate) struct Answer<'d, 'a> {
    pub(crate) engine: &'d Engine,
    /// The name of the policy in the request.
    pub(crate) policy: &'d str,
    pub(crate) decision: &'d Decision<'a>,
}

impl<'d, 'a> Answer<'d, 'a> {
    /// The id of the attempt's holds, if the attempt has any: the caller's id, or a generated one.
    pub(crate) fn hold_id<'i>(&self, asked: Option<&'i str>) -> Option<Cow<'i, str>> {
        let Decision { charges, outcome, .. } = self.decision;
        let taken = |index: usize| outcome.repeated || outcome.taken & (1 << index) != 0;
        let mut charges_held = charges.iter().enumerate().filter(|(index, _)| taken(*index));
        let held = charges_held.any(|(_, charge)| charge.plan.limits().iter().any(Limit::holds));
        held.then(|| asked.map_or_else(|| charges.ticket.to_string().into(), Cow::Borrowed))
    }

    /// The body of an allowed decision, with the id of its holds if it has any.
    pub(crate) fn allowed(self, id: Option<Cow<'d, str>>) -> Allowed<'d, 'a> {
        let Self { policy, decision, .. } = self;
        Allowed {
            status: None,
            allowed: true,
            verdict: "allow",
            policy: policy.into(),
            origin: shown::origin(decision.origin),
            reason: shown::reason(decision.origin),
            repeated: decision.outcome.repeated,
            id,
            rules: Part::Open(Rules(self)),
            receipt: (decision.outcome.taken != 0).then_some(Part::Open(ReceiptShown(self))),
            at: None,
            waited_ms: None,
        }
    }

    /// The body of a refused decision. `id` is the correlation id of the request.
    pub(crate) fn refused(self, refusal: &'d Refusal<'_>, id: &'d str) -> Refused<'d, 'a> {
        Refused { refusal: refusal.body(id), rules: Rules(self) }
    }
}

/// The JSON of a body, which has about this many bytes.
pub(crate) fn written(body: &impl Serialize, bytes: usize) -> Vec<u8> {
    let mut json = Vec::with_capacity(bytes);
    tollgate_web::json::write(body, &mut json);
    json
}
