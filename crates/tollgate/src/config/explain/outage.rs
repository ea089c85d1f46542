//! Explains what a rule does without its store, as text.

use tollgate_core::{OnOutage, Plan, Rule};

use super::limit;

/// What a rule does while a shared store is down.
pub fn on_outage(rule: &Rule) -> String {
    let skipped = || "the rule is skipped".to_owned();
    let share = match rule.on_outage {
        OnOutage::Allow => return skipped(),
        OnOutage::Deny if rule.observes() => return skipped(),
        OnOutage::Deny => return "the attempt is denied".to_owned(),
        OnOutage::Local(share) => share,
    };
    let words = rule.plan.share(share).map_or_else(skipped, |plan| on_each_node(&plan));
    let whole = rule.overrides.values().any(|plan| !plan.has_share());
    match (whole, rule.observes()) {
        (false, _) => words,
        (true, true) => format!("{words}; keys whose own limits have no share are skipped"),
        (true, false) => format!("{words}; keys whose own limits have no share are denied"),
    }
}

fn on_each_node(plan: &Plan) -> String {
    let bounds: Vec<String> = plan.limits().iter().map(limit).collect();
    if bounds.is_empty() { "unlimited".to_owned() } else { format!("on each node {}", bounds.join("; and ")) }
}

#[cfg(test)]
mod tests {
    //! Every choice, case by case.

    use std::sync::Arc;

    use tollgate_core::OnExceed;

    use super::*;

    fn rule(limits: &[&str], on_outage: &str) -> Rule {
        Rule {
            name: "rule".into(),
            code: None,
            by: Box::default(),
            plan: plan(limits),
            overrides: Default::default(),
            on_exceed: OnExceed::Reject,
            on_outage: on_outage.parse().unwrap(),
            ban: None,
            count: None,
            count_when: None,
            rows: None,
            enabled: true,
            secret: false,
        }
    }

    fn plan(limits: &[&str]) -> Arc<Plan> {
        let limits = limits.iter().map(|limit| limit.parse().unwrap()).collect();
        Arc::new(Plan::new("rule".into(), limits).unwrap())
    }

    #[test]
    fn every_choice_says_what_happens_without_the_store() {
        let table = [
            (rule(&["50/hour sliding"], "local 50%"), "on each node never more than 25 in any hour"),
            (
                rule(&["10/s burst 50", "1000/day sliding"], "local 1/4"),
                "on each node a burst of 12, then 2 a second: at most 132 in any minute; and never more than 250 in any day",
            ),
            (rule(&[], "local 50%"), "unlimited"),
            (rule(&["10 in total"], "deny"), "the attempt is denied"),
            (rule(&["10/hour"], "allow"), "the rule is skipped"),
            (Rule { on_exceed: OnExceed::Observe, ..rule(&["10/hour"], "deny") }, "the rule is skipped"),
        ];
        for (rule, words) in table {
            assert_eq!(on_outage(&rule), words);
        }
        let mut overridden = rule(&["50/hour sliding"], "local 50%");
        overridden.overrides.insert("key".into(), plan(&["3 at once"]));
        let words =
            "on each node never more than 25 in any hour; keys whose own limits have no share are denied";
        assert_eq!(on_outage(&overridden), words);
    }
}
