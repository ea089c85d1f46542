//! Guarding logins: attempts whose outcome is known only later, over policies with ladders.
//!
//! An attempt is charged when it begins, as if it had failed, so that guesses made side by side cannot
//! slip through. When it ends, a success gives it back and clears the ladders that the guard names, a
//! failure leaves it, and an attempt that was abandoned is given back. One that never ends stays a
//! failure. Nothing is remembered here between the two: the ticket says it all.

use std::sync::Arc;

use smallvec::SmallVec;
use tollgate_core::store::Given;
use tollgate_core::{Attempt, Climb, Decision, Fate, Limit, Line, Plan, Rule, Span, Timestamp};

use crate::engine::{Engine, Fault, GiveFault, Snapshot};

/// Which policy an attempt passes, and what its success clears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The policy.
    pub policy: Arc<str>,
    /// Where a success clears failures. Elsewhere it takes back its own alone.
    pub clears: Clears,
}

/// Where a success clears failures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Clears {
    /// On the ladders whose keys are made of the most fields: on that of an account at an address, where
    /// there is one. Whoever knows one password must not clear what an address did to others.
    #[default]
    Narrowest,
    /// On the ladders of these rules.
    Rules(Vec<Arc<str>>),
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It succeeded.
    Success,
    /// It failed.
    Failure,
    /// Nobody found out: the caller gave up, or something else broke.
    Abandoned,
}

/// An attempt that has begun, or was refused.
#[derive(Clone, Debug)]
pub struct Begun<'a> {
    /// What was decided, and why.
    pub decision: Decision<'a>,
    /// What ends it; `None` if it was refused, or nothing was taken.
    pub ticket: Option<String>,
}

/// What an attempt has to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Advice {
    /// Not to come before this long; nothing if it may come at once, or if no time can be told.
    pub delay: Span,
    /// To come with a CAPTCHA.
    pub captcha: bool,
    /// When the lock ends, if one keeps it out.
    pub locked_until: Option<Timestamp>,
    /// Whoever is concerned should be notified: a step that asks for it was reached just now.
    pub notify: bool,
}

impl Guard {
    /// A guard over this policy that clears where the keys are narrowest.
    pub fn new(policy: impl Into<Arc<str>>) -> Self {
        Self { policy: policy.into(), clears: Clears::Narrowest }
    }

    /// Begins an attempt: it is decided, and charged as if it had failed.
    pub async fn begin<'a>(
        &'a self,
        engine: &Engine,
        pinned: &'a Snapshot,
        fields: &'a [(&'a str, &'a str)],
    ) -> Result<Begun<'a>, Fault> {
        let attempt = Attempt { policy: &self.policy, fields, cost: 1, id: None };
        let decision = engine.decide(pinned, &attempt).await?;
        let ticket = engine.receipt(&decision);
        Ok(Begun { decision, ticket })
    }

    /// Ends an attempt: once for each ticket.
    pub async fn finish(
        &self,
        engine: &Engine,
        pinned: &Snapshot,
        ticket: &str,
        ending: Ending,
    ) -> Result<Given, GiveFault> {
        engine.give_each(pinned, ticket, |taken| self.fates(taken, ending)).await
    }

    /// What becomes of each charge.
    fn fates(&self, taken: &[(&Rule, &Arc<Plan>)], ending: Ending) -> SmallVec<[Fate; 6]> {
        let climbs = |plan: &Plan| plan.limits().iter().any(|limit| matches!(limit, Limit::Ladder(_)));
        let ladders = taken.iter().filter(|(_, plan)| climbs(plan));
        let most = ladders.map(|(rule, _)| rule.by.len()).max().unwrap_or(0);
        let clears = |rule: &Rule, plan: &Plan| match &self.clears {
            Clears::Narrowest => climbs(plan) && rule.by.len() == most,
            Clears::Rules(names) => names.contains(&rule.name),
        };
        let fate = |(rule, plan): &(&Rule, &Arc<Plan>)| match ending {
            Ending::Success if clears(rule, plan) => Fate::Clear,
            Ending::Success | Ending::Abandoned => Fate::Back,
            Ending::Failure => Fate::Keep,
        };
        taken.iter().map(fate).collect()
    }
}

impl Begun<'_> {
    /// Whether the attempt may be made.
    pub fn allowed(&self) -> bool {
        self.decision.allowed()
    }

    /// What this attempt has to do: wait if it was refused, or bring a CAPTCHA.
    pub fn advice(&self) -> Advice {
        let mut advice = Advice { delay: self.decision.wait().unwrap_or_default(), ..Advice::default() };
        for line in self.decision.lines() {
            for climb in line.climbs() {
                advice.captcha |= climb.held().is_some_and(|step| step.captcha);
                if climb.refused() && !line.rule.observes() {
                    advice.locked_until = advice.locked_until.max(climb.locked_until());
                }
            }
        }
        advice
    }

    /// What the next attempt has to do if this one fails.
    pub fn if_failed(&self) -> Advice {
        let mut advice = self.decision.lines().fold(Advice::default(), |advice, line| {
            line.climbs().fold(advice, |advice, climb| self.after(&line, &climb, advice))
        });
        advice.delay = advice.delay.max(if self.allowed() { Span::ZERO } else { self.advice().delay });
        advice
    }

    /// Adds what one ladder asks of the next attempt. A rule that only observes keeps nobody out.
    fn after(&self, line: &Line<'_>, climb: &Climb<'_>, mut advice: Advice) -> Advice {
        let Some(step) = climb.reached() else { return advice };
        advice.captcha |= step.captcha;
        advice.notify |= step.notify && climb.arrives();
        if !line.rule.observes() {
            advice.delay = advice.delay.max(climb.next_at().since(self.decision.outcome.now));
            advice.locked_until = advice.locked_until.max(climb.locked_until());
        }
        advice
    }
}
