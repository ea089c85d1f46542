//! Rows that count beside reservations: whatever order attempts reserve, count, insert and confirm in, there
//! are never more rows than the limit allows.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support::{at, policy, rule};
use proptest::prelude::*;
use tollgate_core::key::FieldKind;
use tollgate_core::rows::Exceeded;
use tollgate_core::{
    Attempt, Decision, OnExceed, OnOutage, Origin, Outcome, Policy, RowCount, Rule, Span, State, Ticket,
    Verdict, When,
};

fn rows() -> RowCount {
    let query = "SELECT count(*) FROM deals WHERE advertiser = $1";
    RowCount {
        database: "shop".into(),
        query: query.into(),
        timeout: Span::from_millis(250),
        cache: Span::ZERO,
    }
}

fn deals(max: u64) -> Rule {
    Rule::counting_rows("deals", &["advertiser"], (max, Span::from_secs(30)), rows()).unwrap()
}

/// An attempt with the fields that the policy knows.
fn attempt<'a>(policy: &Policy, id: &'a str) -> Attempt<'a> {
    const FIELDS: &[(&str, &str)] = &[("advertiser", "acme"), ("user", "ada")];
    let known = policy.fields().count();
    Attempt { policy: "policy", fields: FIELDS.get(..known).unwrap_or(FIELDS), cost: 1, id: Some(id) }
}

/// An attempt that has taken what it asks for, or was denied.
fn reserve<'a>(policy: &'a Policy, states: &mut [State], id: &'a str, ticket: u64) -> Decision<'a> {
    let charges = policy.charges(&attempt(policy, id), Ticket(ticket)).unwrap();
    let outcome = charges.settle(states, at(0)).unwrap();
    Decision::new(policy, charges, outcome, Origin::Store)
}

/// Gives back what an attempt took that rows have denied.
fn counted(decision: &mut Decision<'_>, states: &mut [State], rows: u64) {
    let asked = decision.rows_to_count();
    let charge = asked.first().expect("an allowed attempt counts rows").charge;
    let denied = decision.add_rows(charge, rows);
    let exceeded = decision.weigh_rows();
    assert_eq!(denied, exceeded == Exceeded::Enforced);
    if denied {
        decision.charges.refund(states, at(0), at(0));
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Reserve(usize),
    Count(usize),
    Insert(usize),
    Confirm(usize),
    Delete,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..8_usize).prop_map(Step::Reserve),
        (0..8_usize).prop_map(Step::Count),
        (0..8_usize).prop_map(Step::Insert),
        (0..8_usize).prop_map(Step::Confirm),
        Just(Step::Delete),
    ];
    prop::collection::vec(step, 0..80)
}

proptest! {
    #[test]
    fn there_are_never_more_rows_than_the_limit_allows(max in 1..5_u64, steps in steps()) {
        let policy = policy(vec![deals(max)]);
        let ids: Vec<String> = (0..8).map(|id| format!("d{id}")).collect();
        let mut states = vec![State::Fresh];
        let mut reserved: Vec<Option<Decision<'_>>> = (0..8).map(|_| None).collect();
        let (mut admitted, mut inserted) = ([false; 8], [false; 8]);
        let (mut rows, mut ticket) = (0, 0);
        for step in steps {
            match step {
                Step::Reserve(one) if reserved[one].is_none() && !admitted[one] && !inserted[one] => {
                    ticket += 1;
                    let decision = reserve(&policy, &mut states, &ids[one], ticket);
                    reserved[one] = Some(decision).filter(Decision::allowed);
                }
                Step::Count(one) => if let Some(mut decision) = reserved[one].take() {
                    counted(&mut decision, &mut states, rows);
                    admitted[one] = decision.allowed();
                },
                Step::Insert(one) if admitted[one] => {
                    rows += 1;
                    (admitted[one], inserted[one]) = (false, true);
                }
                Step::Confirm(one) if inserted[one] => {
                    states[0].change_holds(|holds| holds.release(&ids[one]));
                    inserted[one] = false;
                }
                Step::Delete => rows = u64::saturating_sub(rows, 1),
                _ => {}
            }
            let coming = admitted.iter().filter(|admitted| **admitted).count() as u64;
            prop_assert!(rows + coming <= max, "{rows} rows, and {coming} to come");
        }
    }
}

#[test]
fn rows_and_reservations_are_read_together() {
    let policy = policy(vec![deals(10)]);
    let mut states = vec![State::Fresh];
    let mut first = reserve(&policy, &mut states, "d1", 1);
    counted(&mut first, &mut states, 8);
    let reading = first.outcome.readings[0];
    assert_eq!((first.verdict, reading.capacity, reading.remaining), (Verdict::Allow, 10, 1));
    let mut second = reserve(&policy, &mut states, "d2", 2);
    counted(&mut second, &mut states, 8);
    assert_eq!((second.verdict, second.outcome.readings[0].remaining), (Verdict::Allow, 0));
    // The third would fit beside the rows: only reservations are in its way, and these end.
    let mut third = reserve(&policy, &mut states, "d3", 3);
    counted(&mut third, &mut states, 8);
    assert_eq!((third.verdict, third.retry), (Verdict::Deny, When::After(Span::from_secs(30))));
    assert_eq!((third.outcome.readings[0].remaining, third.outcome.taken), (0, 0));
    assert!(!states[0].holds().unwrap().has(Some("d3")), "its reservation was given back");
    // Rows end by themselves, at an unknown time.
    let mut fourth = reserve(&policy, &mut states, "d4", 4);
    counted(&mut fourth, &mut states, 10);
    assert_eq!((fourth.verdict, fourth.retry), (Verdict::Deny, When::OnRelease));
    assert_eq!(fourth.denied_by().map(|line| line.rule.name.to_string()).as_deref(), Some("deals"));
}

#[test]
fn an_id_that_has_its_place_already_needs_no_other_one() {
    let policy = policy(vec![deals(10)]);
    let mut states = vec![State::Fresh];
    let mut first = reserve(&policy, &mut states, "d1", 1);
    counted(&mut first, &mut states, 9);
    assert!(first.allowed());
    let mut again = reserve(&policy, &mut states, "d1", 2);
    assert!(again.outcome.repeated);
    counted(&mut again, &mut states, 9);
    assert!(again.allowed());
    let mut late = reserve(&policy, &mut states, "d1", 3);
    counted(&mut late, &mut states, 10);
    assert!(!late.allowed(), "another row took the place");
    assert!(states[0].holds().unwrap().has(Some("d1")), "the first attempt keeps its reservation");
}

#[test]
fn rows_that_deny_give_every_charge_back_and_readings_say_so() {
    let writes = rule("writes", &[("user", FieldKind::Text)], &["5/hour", "10/s burst 20"]);
    let policy = policy(vec![writes, deals(10)]);
    let mut states = vec![State::Fresh; 3];
    let mut denied = reserve(&policy, &mut states, "d1", 1);
    assert_eq!(denied.outcome.taken, 0b11);
    counted_at(&mut denied, &mut states, 1, 10);
    let left: Vec<u64> = denied.outcome.readings.iter().map(|reading| reading.remaining).collect();
    assert_eq!((denied.verdict, left), (Verdict::Deny, vec![5, 20, 0]));
    let next = reserve(&policy, &mut states, "d2", 2);
    let left: Vec<u64> = next.outcome.readings.iter().map(|reading| reading.remaining).collect();
    assert_eq!(left, [4, 19, 9], "as if the first had never been");
}

fn counted_at(decision: &mut Decision<'_>, states: &mut [State], charge: usize, rows: u64) {
    assert_eq!(decision.rows_to_count()[0].charge, charge);
    assert!(decision.add_rows(charge, rows));
    assert_eq!(decision.weigh_rows(), Exceeded::Enforced);
    decision.charges.refund(states, at(0), at(0));
}

#[test]
fn an_observed_rule_is_given_back_alone() {
    let writes = rule("writes", &[("user", FieldKind::Text)], &["5/hour"]);
    let policy = policy(vec![writes, Rule { on_exceed: OnExceed::Observe, ..deals(10) }]);
    let mut states = vec![State::Fresh; 2];
    let mut decision = reserve(&policy, &mut states, "d1", 1);
    assert!(!decision.add_rows(1, 10), "it denies nothing");
    assert_eq!(decision.weigh_rows(), Exceeded::Observed(0b10));
    assert_eq!((decision.verdict, decision.outcome.taken), (Verdict::Allow, 0b01));
}

#[test]
fn looking_shows_rows_and_asks_for_nothing() {
    let policy = policy(vec![deals(10)]);
    let look = Attempt { cost: 0, id: None, ..attempt(&policy, "d1") };
    let charges = policy.charges(&look, Ticket(1)).unwrap();
    let outcome = charges.survey(&mut [State::Fresh], at(0)).unwrap();
    let mut decision = Decision::new(&policy, charges, outcome, Origin::Store);
    assert!(!decision.add_rows(0, 12));
    assert_eq!((decision.weigh_rows(), decision.allowed()), (Exceeded::Observed(0), true));
    assert_eq!(decision.outcome.readings[0].remaining, 0);
}

#[test]
fn a_denied_attempt_counts_no_rows_and_no_node_counts_alone() {
    let policy = policy(vec![deals(1)]);
    let mut states = vec![State::Fresh];
    assert!(reserve(&policy, &mut states, "d1", 1).allowed());
    let second = reserve(&policy, &mut states, "d2", 2);
    assert_eq!((second.allowed(), second.rows_to_count()), (false, Vec::new()));
    assert_eq!(second.outcome, Outcome { allowed: false, ..second.outcome.clone() });
    assert_eq!(deals(1).on_outage, OnOutage::Deny);
    let unfit = |text: &str| deals(1).unfit_for_rows(&[text.parse().unwrap()]).is_some();
    assert_eq!(["5 at once for 1m", "5 at once", "5/hour"].map(unfit), [false, true, true]);
}
