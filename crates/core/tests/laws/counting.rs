//! Costs: a rule counts the attempt's own cost, or a number in a field of the attempt.

use crate::support::{any_limit, at, plan, policy, rule};
use proptest::prelude::*;
use tollgate_core::key::FieldKind;
use tollgate_core::{Attempt, Charges, Fate, MAX_EXACT, Mistake, Policy, Rule, State, Ticket};

/// Messages by sender, recipients in total.
fn mail() -> Policy {
    let recipients = Rule { count: Some("recipients".into()), ..rule("recipients", &[], &["10/hour"]) };
    policy(vec![rule("sender", &[("sender", FieldKind::Text)], &["5/hour"]), recipients])
}

fn attempt<'a>(fields: &'a [(&'a str, &'a str)], cost: u64) -> Attempt<'a> {
    Attempt { policy: "policy", fields, cost, id: None }
}

fn costs(policy: &Policy, fields: &[(&str, &str)], cost: u64) -> Result<Vec<u64>, Mistake> {
    let attempt = attempt(fields, cost);
    let charges = policy.charges(&attempt, Ticket(1))?;
    Ok(charges.iter().map(|charge| charge.cost).collect())
}

#[test]
fn one_attempt_costs_a_message_at_one_rule_and_its_recipients_at_another() {
    let policy = mail();
    assert_eq!(costs(&policy, &[("sender", "a"), ("recipients", "7")], 1), Ok(vec![1, 7]));
    assert_eq!(costs(&policy, &[("sender", "a"), ("recipients", "7")], 2), Ok(vec![2, 7]));
    assert_eq!(costs(&policy, &[("sender", "a"), ("recipients", "7")], 0), Ok(vec![0, 0]), "it only looks");
}

#[test]
fn an_attempt_without_the_number_that_a_rule_counts_is_a_mistake() {
    let policy = mail();
    let error = costs(&policy, &[("sender", "a")], 1).unwrap_err();
    assert_eq!(
        error.to_string(),
        "rule `recipients` counts `recipients`: send that field, with a whole number"
    );
    assert!(costs(&policy, &[("sender", "a")], 0).is_ok(), "a look needs no number");
    let many = (MAX_EXACT + 1).to_string();
    let error = costs(&policy, &[("recipients", &many)], 1).unwrap_err();
    assert_eq!(error, Mistake::CostTooBig { cost: MAX_EXACT + 1 });
    assert!(matches!(costs(&policy, &[("recipients", "many")], 1), Err(Mistake::BadValue { .. })));
}

#[test]
fn a_refused_count_leaves_every_rule_untouched_and_an_allowed_one_takes_its_own_cost() {
    let policy = mail();
    let mut states = vec![State::Fresh; 2];
    let mut settle = |recipients: &str| {
        let fields = [("sender", "a"), ("recipients", recipients)];
        let attempt = attempt(&fields, 1);
        let charges = policy.charges(&attempt, Ticket(1)).unwrap();
        let outcome = charges.settle(&mut states, at(0)).unwrap();
        (outcome.allowed, outcome.taken, outcome.readings.iter().map(|reading| reading.remaining).collect())
    };
    assert_eq!(settle("7"), (true, 0b11, vec![4, 3]));
    assert_eq!(settle("4"), (false, 0, vec![4, 3]));
    assert_eq!(settle("0"), (true, 0b01, vec![3, 3]), "nothing is taken where nothing is counted");
    assert_eq!(settle("3"), (true, 0b11, vec![2, 0]));
}

/// Takes `cost` and refunds `part` of it at once.
fn take_and_refund(text: &str, cost: u64, part: u64) -> Vec<State> {
    let plan = plan("rule", &[text]);
    let mut states = vec![State::Fresh];
    let mut charges = Charges::new(Ticket(1), cost, None);
    charges.push(&plan, "key", true);
    charges.calendar = charges.periods().map(|period| crate::support::page(period, at(0))).collect();
    assert!(charges.settle(&mut states, at(0)).expect("the pages cover now").allowed);
    let mut back = Charges::new(Ticket(1), cost, None);
    back.push_taken(&plan, "key", cost, Fate::Part(part));
    back.calendar = charges.calendar.clone();
    back.refund(&mut states, at(0), at(0));
    states
}

fn remaining(text: &str, states: &[State]) -> u64 {
    let plan = plan("rule", &[text]);
    let mut charges = Charges::new(Ticket(2), 0, None);
    charges.push(&plan, "key", true);
    charges.calendar = charges.periods().map(|period| crate::support::page(period, at(0))).collect();
    charges.survey(&mut states.to_vec(), at(0)).expect("the pages cover now").readings[0].remaining
}

proptest! {
    #[test]
    fn an_immediate_partial_refund_equals_a_smaller_take(
        text in any_limit(), cost in 0..6_u64, part in 0..8_u64,
    ) {
        let cost = 1 + cost % plan("rule", &[&text]).limits()[0].capacity();
        let left = remaining(&text, &take_and_refund(&text, cost, part));
        let kept = cost - part.min(cost);
        let expected = if kept == 0 {
            remaining(&text, &[State::Fresh])
        } else {
            remaining(&text, &take_and_refund(&text, kept, 0))
        };
        prop_assert_eq!(left, expected);
    }

    /// A partial refund credits at most the difference to a smaller take, however much the bucket has
    /// refilled since.
    #[test]
    fn a_bucket_is_never_fuller_than_if_less_had_been_taken(
        rate in 1..20_u64, burst in 1..20_u64, before in 0..20_u64, cost in 0..20_u64, part in 0..20_u64, wait in 0..4_000_000_u64,
    ) {
        // Both fit into a full bucket.
        let cost = 1 + cost % burst;
        let before = before % (burst - cost + 1);
        let text = format!("{rate}/s burst {burst}");
        let plan = plan("rule", &[&text]);
        let then = at(wait);
        let run = |takes: &[u64], back: Option<(u64, u64)>| {
            let mut states = vec![State::Fresh];
            for (ticket, cost) in takes.iter().enumerate() {
                let mut charges = Charges::new(Ticket(ticket as u64), *cost, None);
                charges.push(&plan, "key", true);
                charges.settle(&mut states, at(0)).unwrap();
            }
            if let Some((cost, part)) = back {
                let mut charges = Charges::new(Ticket(1), cost, None);
                charges.push_taken(&plan, "key", cost, Fate::Part(part));
                charges.refund(&mut states, at(0), then);
            }
            let mut charges = Charges::new(Ticket(9), 0, None);
            charges.push(&plan, "key", true);
            charges.survey(&mut states, then).unwrap().readings[0].remaining
        };
        let refunded = run(&[before, cost], Some((cost, part)));
        let smaller = run(&[before, cost - part.min(cost)], None);
        prop_assert!(refunded <= smaller, "{refunded} > {smaller}");
        prop_assert!(refunded >= run(&[before, cost], None));
        if before == 0 {
            prop_assert_eq!(refunded, smaller, "into a full bucket it is exact");
        }
    }
}
