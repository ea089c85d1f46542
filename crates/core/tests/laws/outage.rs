//! What rules do during an outage: shares, the replacement set of policies, and the grammar.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use crate::support::{at, plan, rule};
use proptest::prelude::*;
use tollgate_core::grammar::parse_on_outage;
use tollgate_core::key::FieldKind;
use tollgate_core::{
    Attempt, Decision, OnExceed, OnOutage, Origin, Plan, Policies, Policy, Reason, Rule, Share, State,
    Ticket, Verdict, When,
};

fn shared(text: &str, share: Share) -> Option<String> {
    plan("rule", &[text]).share(share).map(|plan| plan.to_string())
}

#[test]
fn every_count_and_burst_is_cut_and_nothing_else() {
    let table = [
        ("1000/hour", Some("500/hour")),
        ("7/day calendar in Europe/Berlin", Some("3/day calendar in Europe/Berlin")),
        ("100/hour sliding", Some("50/hour sliding")),
        ("1000000/day sliding by 5m", Some("500000/day sliding by 5m")),
        ("10/s burst 50", Some("5/s burst 25")),
        ("1/s burst 1", Some("1/s burst 1")),
        ("50 at once for 30s", Some("25 at once for 30s")),
        ("100 recipients per attempt", Some("100 recipients per attempt")),
        ("10 at once", None),
        ("ladder 4 +2s then 11 lock 15m", None),
        ("10 in total", None),
    ];
    for (whole, half) in table {
        assert_eq!(shared(whole, Share::HALF).as_deref(), half, "{whole}");
        let choice = OnOutage::of(&plan("rule", &[whole]));
        assert_eq!(choice == OnOutage::Deny, half.is_none(), "{whole}: {choice}");
    }
    let mixed = plan("rule", &["1000/hour", "10 in total"]);
    assert_eq!(
        (mixed.share(Share::HALF), mixed.has_share()),
        (None, false),
        "one that cannot be cut is enough"
    );
}

#[test]
fn a_bucket_whose_share_cannot_be_exact_has_a_smaller_burst() {
    let third = Share::one_of(3).unwrap();
    let share = shared("4000000/day burst 4000000", third);
    assert_eq!(share.as_deref(), Some("1333333/day burst 104249"), "a prime rate leaves no more room");
}

#[test]
fn a_syntax_error_is_reported_at_its_column() {
    let table = [
        ("local", 5),
        ("local 0%", 6),
        ("local 101%", 6),
        ("local 2/3", 6),
        ("local 1/0", 6),
        ("local 1/1000001", 6),
        ("local 50", 6),
        ("local 12.5%", 8),
        ("maybe", 0),
        ("", 0),
        ("deny all", 5),
    ];
    for (text, column) in table {
        let error = parse_on_outage(text).unwrap_err();
        assert_eq!(error.at, column, "{error}");
    }
}

proptest! {
    #[test]
    fn a_share_is_exact_at_least_one_and_never_more_than_its_part(
        number in 1..=tollgate_core::MAX_EXACT, percent in 1..=100_u64, nodes in 1..=Share::MOST_NODES,
    ) {
        let of_hundred = Share::percent(percent).unwrap().of(number);
        prop_assert_eq!(u128::from(of_hundred), (u128::from(number) * u128::from(percent) / 100).max(1));
        let of_nodes = Share::one_of(nodes).unwrap().of(number);
        prop_assert_eq!(of_nodes, (number / nodes).max(1));
    }

    #[test]
    fn printing_and_parsing_returns_the_same_outage_action(percent in 1..=100_u64, nodes in 1..=Share::MOST_NODES) {
        let shares = [Share::percent(percent), Share::one_of(nodes)];
        let all = shares.into_iter().flatten().map(OnOutage::Local).chain([OnOutage::Allow, OnOutage::Deny]);
        for choice in all {
            prop_assert_eq!(parse_on_outage(&choice.to_string()), Ok(choice));
        }
    }
}

fn with(name: &str, limits: &[&str], on_outage: OnOutage) -> Rule {
    Rule { on_outage, ..rule(name, &[(name, FieldKind::Text)], limits) }
}

fn both(rules: Vec<Rule>) -> (Policies, Policies) {
    let rules: Vec<Arc<Rule>> = rules.into_iter().map(Arc::new).collect();
    let policy = Policy::new("policy".into(), rules.clone(), false);
    let whole = Policies::new(true, rules, vec![policy]);
    let cut = whole.in_outage();
    (whole, cut)
}

/// The decision of the replacement set, with fresh counters.
fn decide<'a>(
    whole: &Policies,
    cut: &'a Policies,
    fields: &'a [(&'a str, &'a str)],
    cost: u64,
) -> Decision<'a> {
    let policy = cut.find("policy").unwrap();
    let mut decision = Decision::blank();
    decision.open(policy, Ticket(1), cost, None);
    let attempt = Attempt { policy: "policy", fields, cost, id: None };
    policy.charge(&attempt, &mut decision.charges).unwrap();
    if let Some(index) = decision.denied_in_outage() {
        decision.refuse(index, Reason::Timeout, at(0));
        return decision;
    }
    let count = decision.charges.iter().map(|charge| charge.plan.limits().len()).sum();
    decision.outcome = decision.charges.settle(&mut vec![State::Fresh; count], at(0)).unwrap();
    match decision.beyond_share(whole.find("policy").unwrap()) {
        Some(index) => decision.refuse(index, Reason::Timeout, at(0)),
        None => decision.conclude(Origin::Local(Reason::Timeout)),
    }
    decision
}

#[test]
fn any_rule_that_denies_wins_and_those_that_allow_are_skipped() {
    let half = OnOutage::Local(Share::HALF);
    let (whole, cut) = both(vec![
        with("open", &["1/hour"], OnOutage::Allow),
        with("counted", &["4/hour"], half),
        with("shut", &["4/hour"], OnOutage::Deny),
    ]);
    let decision = decide(&whole, &cut, &[("open", "x"), ("counted", "x")], 2);
    assert!(decision.allowed());
    let lines: Vec<_> = decision.lines().map(|line| (&*line.rule.name, line.readings[0].capacity)).collect();
    assert_eq!(lines, [("counted", 2)]);
    let decision = decide(&whole, &cut, &[("open", "x"), ("counted", "x"), ("shut", "x")], 1);
    assert_eq!((decision.verdict, decision.origin), (Verdict::Deny, Origin::Outage(Reason::Timeout)));
    let line = decision.denied_by().unwrap();
    assert_eq!((&*line.rule.name, line.readings.len(), decision.binding()), ("shut", 0, None));
    assert_eq!(decision.receipt(), None);
}

#[test]
fn an_override_that_cannot_be_cut_denies_at_its_key_alone() {
    let mut rule = with("account", &["10/hour"], OnOutage::Local(Share::HALF));
    rule.overrides.insert("special".into(), plan("account", &["3 in total"]));
    rule.overrides.insert("free".into(), plan("account", &[]));
    rule.overrides.insert("big".into(), plan("account", &["100/hour"]));
    let (whole, cut) = both(vec![rule]);
    let capacity = |key: &'static str| {
        let fields = [("account", key)];
        let decision = decide(&whole, &cut, &fields, 1);
        decision.allowed().then(|| decision.binding().map(|(_, reading)| reading.capacity))
    };
    assert_eq!(capacity("usual"), Some(Some(5)));
    assert_eq!(capacity("big"), Some(Some(50)));
    assert_eq!(capacity("free"), Some(None));
    assert_eq!(capacity("special"), None);
}

#[test]
fn rules_that_only_observe_never_deny() {
    let observe = |rule: Rule| Rule { on_exceed: OnExceed::Observe, ..rule };
    let mut cannot = observe(with("cannot", &["4/hour"], OnOutage::Local(Share::HALF)));
    cannot.overrides.insert("x".into(), plan("cannot", &["1 in total"]));
    let (whole, cut) = both(vec![observe(with("shut", &["4/hour"], OnOutage::Deny)), cannot]);
    let decision = decide(&whole, &cut, &[("shut", "x"), ("cannot", "x")], 9);
    assert!(decision.allowed());
    assert_eq!(decision.charges.len(), 0, "nothing is counted for ever in a process");
}

#[test]
fn a_cost_that_only_exceeds_the_local_share_is_an_outage_and_not_never() {
    let rules = || {
        let bounded = rule("bounded", &[], &["5 recipients per attempt"]);
        vec![with("counted", &["10/hour", "100/day"], OnOutage::Local(Share::HALF)), bounded]
    };
    let (whole, cut) = both(rules());
    for (cost, recipients, origin, retry) in [
        (5, "1", Origin::Local(Reason::Timeout), When::Now),
        (6, "1", Origin::Outage(Reason::Timeout), When::After(tollgate_core::Span::from_secs(1))),
        (10, "1", Origin::Outage(Reason::Timeout), When::After(tollgate_core::Span::from_secs(1))),
        (11, "1", Origin::Local(Reason::Timeout), When::Never),
        (6, "9", Origin::Local(Reason::Timeout), When::Never),
    ] {
        let fields = [("counted", "x"), ("recipients", recipients)];
        let decision = decide(&whole, &cut, &fields, cost);
        assert_eq!((decision.origin, decision.retry), (origin, retry), "cost {cost} to {recipients}");
        assert_eq!(decision.allowed(), retry == When::Now);
    }
}

#[test]
fn a_share_of_a_secret_rule_is_as_secret() {
    let hidden = Plan::clone(&plan("rule", &["10/hour"])).with_secret_keys();
    assert!(hidden.share(Share::HALF).unwrap().is_secret());
    assert!(!plan("rule", &["10/hour"]).share(Share::HALF).unwrap().is_secret());
}

#[test]
fn an_unlimited_plan_has_every_share() {
    let none = Plan::new("rule".into(), Vec::new()).unwrap();
    assert_eq!(none.share(Share::HALF), Some(none.clone()));
}
