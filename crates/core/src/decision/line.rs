//! The lines of a decision: one for each rule that charged the attempt.

use alloc::sync::Arc;

use crate::charge::Outcome;
use crate::limit::Limit;
use crate::plan::Plan;
use crate::reading::{Reading, When};
use crate::rule::{OnExceed, Rule};
use crate::time::Span;

/// One rule's part in a decision.
#[derive(Clone, Copy, Debug)]
pub struct Line<'d> {
    /// The rule.
    pub rule: &'d Rule,
    /// The key.
    pub key: &'d str,
    /// The limits at this key, as a plan.
    pub plan: &'d Arc<Plan>,
    /// Its limits.
    pub limits: &'d [Limit],
    /// The reading of each limit; none if no counter was read.
    pub readings: &'d [Reading],
    /// Whether the attempt was charged here.
    pub taken: bool,
    /// The cost.
    pub cost: u64,
}

impl<'d> Line<'d> {
    /// The line of a rule at a key that was only read.
    pub fn looked_up(rule: &'d Rule, key: &'d str, plan: &'d Arc<Plan>, outcome: &'d Outcome) -> Self {
        let readings = &outcome.readings;
        Self { rule, key, plan, limits: plan.limits(), readings, taken: false, cost: 0 }
    }

    /// Whether any limit here is exceeded.
    pub fn exceeded(&self) -> bool {
        self.readings.iter().any(|reading| reading.when > When::Now)
    }

    /// The binding limit here: the exceeded one with the longest wait, or else the one with the least left.
    pub fn binding(&self) -> Option<(&'d Limit, Reading)> {
        if self.exceeded() { longest(self.limits, self.readings) } else { least(self.limits, self.readings) }
    }

    /// As [`Line::binding`], with the text of the limit.
    pub fn binding_written(&self) -> Option<(&'d str, &'d Limit, Reading)> {
        let (binding, reading) = self.binding()?;
        let mut written = self.plan.written();
        written.find(|(limit, _)| core::ptr::eq(*limit, binding)).map(|(_, text)| (text, binding, reading))
    }

    /// Whether the rule waits, and only holds would take too long, which may be released at any moment.
    pub(super) fn may_be_released(&self) -> bool {
        let OnExceed::Wait(most) = self.rule.on_exceed else { return false };
        // Without readings there is nothing to wait for.
        self.exceeded()
            && self.limits.iter().zip(self.readings).all(|(limit, reading)| match reading.when {
                When::Now => true,
                When::After(span) => limit.holds() || span <= most,
                When::OnRelease => limit.holds(),
                When::Never => false,
            })
    }

    /// The least wait here, whatever is released: the longest wait of all limits other than holds.
    pub fn surely(&self) -> Span {
        let pairs = self.limits.iter().zip(self.readings).filter(|(limit, _)| !limit.holds());
        let spans = pairs.filter_map(|(_, reading)| match reading.when {
            When::After(span) => Some(span),
            When::Now | When::OnRelease | When::Never => None,
        });
        spans.max().unwrap_or_default()
    }
}

/// The limit with the longest wait.
pub(super) fn longest<'l>(limits: &'l [Limit], readings: &[Reading]) -> Option<(&'l Limit, Reading)> {
    let pairs = limits.iter().zip(readings);
    pairs.max_by_key(|(_, reading)| reading.when).map(|(limit, reading)| (limit, *reading))
}

/// The limit with the least left.
fn least<'l>(limits: &'l [Limit], readings: &[Reading]) -> Option<(&'l Limit, Reading)> {
    let pairs = limits.iter().zip(readings);
    let least = pairs.min_by_key(|(limit, reading)| (!limit.consumes(), reading.remaining));
    least.map(|(limit, reading)| (limit, *reading))
}
