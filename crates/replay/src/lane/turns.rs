//! Attempts that wait. The engine's own pacer gives them their turns, on the clock of the lane.

use tollgate_core::{Attempt, OnExceed, Policy, Rule, Timestamp};
use tollgate_engine::pacer::Bound;
use tollgate_engine::{Admit, NotAdmitted};

use super::{Arrival, Hear, Lane, Moment, Named, Seen};
use crate::waiting::Deferred;

impl Lane {
    /// Adds an attempt that has to wait.
    pub(super) fn wait(
        &mut self,
        admit: Admit<Seen>,
        arrival: Arrival<'_>,
        moment: &Moment<'_>,
        hear: Hear<'_>,
    ) {
        self.waiting.join(Deferred::new(arrival.policy, arrival.route, moment), admit);
        self.report_decided(hear);
    }

    /// The time of the pacer's next turn; `None` if no attempt waits.
    pub(super) fn next_turn(&self, now: Timestamp) -> Option<Timestamp> {
        if self.waiting.is_empty() { None } else { self.turns.due().map(|due| due.max(now)) }
    }

    /// Decides the attempts whose turn has come.
    pub(super) fn give_turns(&mut self, hear: Hear<'_>) {
        self.turns.give();
        self.report_decided(hear);
    }

    fn report_decided(&mut self, hear: Hear<'_>) {
        while let Some((attempt, admitted)) = self.waiting.take_decided() {
            let arrival = Arrival { policy: &attempt.policy, route: attempt.route.as_deref() };
            attempt.with(|moment| self.conclude(admitted, arrival, moment, hear));
        }
    }

    /// The rule and the key of an attempt that is refused because it would wait too long: those of the rule
    /// that bounds the wait, or else of the first rule with waiting. `None` if the attempt was refused for
    /// another reason.
    pub(super) fn given_up(
        &self,
        reason: &NotAdmitted,
        arrival: Arrival<'_>,
        moment: &Moment<'_>,
    ) -> Option<Named> {
        let bound = match reason {
            NotAdmitted::TooLate { bound: Bound::Rule(rule), .. } => Some(rule),
            NotAdmitted::TooLate { .. } | NotAdmitted::Full { .. } => None,
            NotAdmitted::Ended | NotAdmitted::Fault(_) => return None,
        };
        let policy = self.policies.named(arrival.policy)?;
        let waits = |rule: &&Rule| match bound {
            Some(name) => rule.name == *name,
            None => matches!(rule.on_exceed, OnExceed::Wait(_)),
        };
        let rule = policy.rules.iter().map(|rule| &**rule).find(waits)?;
        let key = self.key_of(policy, rule, arrival, moment)?;
        Some(Named { rule: rule.name.clone(), key })
    }

    /// The key at which a rule counts an attempt, as operators may see it.
    fn key_of(
        &self,
        policy: &Policy,
        rule: &Rule,
        arrival: Arrival<'_>,
        moment: &Moment<'_>,
    ) -> Option<Box<str>> {
        let fields = self.fields_of(policy.number(), arrival.route, moment);
        let attempt = Attempt { policy: &policy.name, fields: &fields, cost: 1, id: None };
        let charges = policy.charges(&attempt, Default::default()).ok()?;
        let charge = charges.iter().find(|charge| *charge.plan.rule() == rule.name)?;
        Some(self.admissions.engine.observer.shown_key(rule, charges.key(charge)).into())
    }
}
