//! The demands of a decision at a guard on the caller.

use tollgate_core::{Climb, Decision, Line, Span, Timestamp};

/// The demands on the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Advice {
    /// The wait before the attempt; zero if it need not wait, or if the wait is unknown.
    pub delay: Span,
    /// Present a CAPTCHA.
    pub captcha: bool,
    /// When the lock ends, if the attempt is locked out.
    pub locked_until: Option<Timestamp>,
    /// Notify the user: the attempt just reached a step that asks for it.
    pub notify: bool,
}

impl Advice {
    /// The demands for this attempt: to wait if it was refused, or to present a CAPTCHA.
    pub fn of(decision: &Decision<'_>) -> Self {
        let mut advice = Self { delay: decision.wait().unwrap_or_default(), ..Self::default() };
        for line in decision.lines() {
            for climb in line.climbs() {
                advice.captcha |= climb.held().is_some_and(|step| step.captcha);
                if climb.refused() && !line.rule.observes() {
                    advice.locked_until = advice.locked_until.max(climb.locked_until());
                }
            }
        }
        advice
    }

    /// The demands for the next attempt if this one fails.
    pub fn if_failed(decision: &Decision<'_>) -> Self {
        let mut advice = Self::default();
        for line in decision.lines() {
            line.climbs().for_each(|climb| advice.add(decision, &line, &climb));
        }
        advice
    }

    /// Adds the demands of one ladder on the next attempt. A rule that only observes locks nothing.
    fn add(&mut self, decision: &Decision<'_>, line: &Line<'_>, climb: &Climb<'_>) {
        let Some(step) = climb.reached() else { return };
        self.captcha |= step.captcha;
        self.notify |= step.notify && climb.arrives();
        if !line.rule.observes() {
            self.delay = self.delay.max(climb.next_at().since(decision.outcome.now));
            self.locked_until = self.locked_until.max(climb.locked_until());
        }
    }
}
