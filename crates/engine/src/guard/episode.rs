//! Reports each step of a ladder once, however many attempts fail there and on whatever node they end.
//!
//! A reported step is a hold in the store, whose id is the number of its failures. The node that reports
//! takes the hold, which only one node can, and later failures renew it. An attempt that climbs to the step
//! from below begins another episode, and releases the holds of the former one.

use std::sync::Arc;

use tollgate_core::limit::Step;
use tollgate_core::store::{Counter, HoldsOrder};
use tollgate_core::{Climb, Line, Plan, Span};

use super::Guards;
use super::mark::tells;
use crate::receipt::Home;
use crate::ticket;

/// The rule's name of these counters. A real rule's name contains no slash.
const RULE: &str = "guard/told";

impl Guards {
    /// Begins an episode, if an allowed attempt climbs to a step that is reported.
    pub(super) async fn begin_episode(&self, home: Home, guard: &str, line: &Line<'_>, climb: &Climb<'_>) {
        let Some(reached) = climb.reached().filter(|step| climb.arrives() && tells(line, step)) else {
            return;
        };
        let above = climb.steps().iter().filter(|step| step.from >= reached.from && tells(line, step));
        let names: Vec<String> = above.map(|step| step.from.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (plan, key) = self.notice_counter(guard, line, climb.forget());
        let counter = Counter { plan: &plan, key: &key };
        // If the store is down, the remaining holds expire by themselves.
        let _ = self.counters.order_at(home, &counter, HoldsOrder::ReleaseMany(&names)).await;
    }

    /// Records that the reached step, and those below it, are reported. Returns whether this node is the
    /// first to report it. Returns true if the store fails: reporting twice is better than never.
    pub(super) async fn is_first_to_report(
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
        let (plan, key) = self.notice_counter(guard, line, climb.forget());
        let own = ticket::next();
        let counter = Counter { plan: &plan, key: &key };
        let Ok(report) = self.counters.order_at(home, &counter, HoldsOrder::Claim(&claims, own)).await else {
            return true;
        };
        let name = reached.from.to_string();
        let held = report.holds.iter().find(|(id, _)| *id == name);
        held.is_none_or(|(_, hold)| hold.ticket == own)
    }

    /// The counter whose holds record the reported steps.
    fn notice_counter(&self, guard: &str, line: &Line<'_>, forget: Span) -> (Arc<Plan>, String) {
        let most = tollgate_core::limit::Ladder::MOST_STEPS;
        let limit = format!("{most} at once for {forget}").parse().expect("it is a limit");
        let plan = Plan::new(RULE.into(), vec![limit]).expect("one limit does not clash");
        (Arc::new(plan), format!("{guard}/{}/{}", line.rule.name, self.seals.pseudonym(line.key)))
    }
}
