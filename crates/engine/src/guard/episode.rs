//! Whether somebody has been told: once for each step that a ladder climbs to, however many attempts fail
//! there and on whatever node they end.
//!
//! That a step was told of is a hold of the store, under the number of its failures. Whoever tells takes it,
//! which only one can, and failures that come later renew it. An attempt that climbs to the step from below
//! begins another episode, and releases what was left of the one before.

use std::sync::Arc;

use tollgate_core::limit::Step;
use tollgate_core::store::{Counter, HoldsOrder};
use tollgate_core::{Climb, Line, Plan, Span};

use super::mark::tells;
use crate::engine::Engine;
use crate::receipt::Home;
use crate::ticket;

/// What stands for a rule's name. No rule has a slash in its own.
const RULE: &str = "guard/told";

impl Engine {
    /// Begins an episode, if an attempt that was let through climbs to a step that somebody is told of.
    pub(super) async fn begin_episode(&self, home: Home, guard: &str, line: &Line<'_>, climb: &Climb<'_>) {
        let Some(reached) = climb.reached().filter(|step| climb.arrives() && tells(line, step)) else {
            return;
        };
        let above = climb.steps().iter().filter(|step| step.from >= reached.from && tells(line, step));
        let names: Vec<String> = above.map(|step| step.from.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (plan, key) = self.told_at(guard, line, climb.forget());
        let counter = Counter { plan: &plan, key: &key };
        // What stays because the store is gone runs out by itself.
        let _ = self.order_at(home, &counter, HoldsOrder::ReleaseMany(&names)).await;
    }

    /// Takes note that somebody is told of the step that was reached, and of those below it; answers
    /// whether nobody was before. While that is not known, better twice than never.
    pub(super) async fn is_news(
        &self,
        home: Home,
        guard: &str,
        line: &Line<'_>,
        climb: &Climb<'_>,
        reached: &Step,
    ) -> bool {
        let steps = climb.steps_reached().filter(|step| tells(line, step));
        let names: Vec<String> = steps.map(|step| step.from.to_string()).collect();
        let claims: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
        let (plan, key) = self.told_at(guard, line, climb.forget());
        let own = ticket::next();
        let counter = Counter { plan: &plan, key: &key };
        let Ok(report) = self.order_at(home, &counter, HoldsOrder::Claim(&claims, own)).await else {
            return true;
        };
        let name = reached.from.to_string();
        let held = report.holds.iter().find(|(id, _)| *id == name);
        held.is_none_or(|(_, hold)| hold.ticket == own)
    }

    /// Where it is noted what somebody was told of.
    fn told_at(&self, guard: &str, line: &Line<'_>, forget: Span) -> (Arc<Plan>, String) {
        let most = tollgate_core::limit::Ladder::MOST_STEPS;
        let limit = format!("{most} at once for {forget}").parse().expect("it is a limit");
        let plan = Plan::new(RULE.into(), vec![limit]).expect("one limit does not clash");
        (Arc::new(plan), format!("{guard}/{}/{}", line.rule.name, self.seals.veil(line.key)))
    }
}
