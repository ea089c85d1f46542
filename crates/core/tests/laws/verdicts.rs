//! Verdicts: what a policy concludes from every mix of exceeded rules.

use crate::support::{START, at, policy, rule};
use proptest::prelude::*;
use tollgate_core::{
    Attempt, Charges, Decision, Deferral, OnExceed, Origin, Outcome, Policy, ReceiptLine, Rule, Span, State,
    Ticket, Timestamp, Verdict, When,
};

const NAMES: [&str; 4] = ["first", "second", "third", "fourth"];
const PERIODS: [&str; 4] = ["9/s", "9/min", "9/week", "9/month calendar"];

fn span(micros: u64) -> Span {
    Span::from_micros(micros)
}

fn any_when() -> impl Strategy<Value = When> {
    prop_oneof![
        3 => Just(When::Now),
        3 => (1..200_u64).prop_map(|micros| When::After(span(micros))),
        1 => Just(When::OnRelease),
        1 => Just(When::Never),
    ]
}

fn any_on_exceed() -> impl Strategy<Value = OnExceed> {
    let deferral = (any::<bool>(), 0..50_u64)
        .prop_map(|(aligned, jitter)| OnExceed::Defer(Deferral { aligned, jitter: span(jitter) }));
    prop_oneof![
        1 => Just(OnExceed::Reject),
        3 => deferral,
        3 => (0..250_u64).prop_map(|micros| OnExceed::Wait(span(micros))),
        1 => Just(OnExceed::Observe),
    ]
}

fn policy_of(exceed: &[OnExceed]) -> Policy {
    let rules = exceed.iter().enumerate().map(|(index, on_exceed)| Rule {
        on_exceed: *on_exceed,
        ..rule(NAMES[index], &[], &[PERIODS[index]])
    });
    policy(rules.collect())
}

/// An outcome in which each rule has the given reading.
fn outcome_of<'a>(policy: &'a Policy, whens: &[When], ticket: Ticket) -> (Charges<'a>, Outcome) {
    let attempt = Attempt { policy: "policy", fields: &[], cost: 1, id: None };
    let mut charges = policy.charges(&attempt, ticket).expect("no field is needed");
    charges.calendar = charges.periods().map(|period| crate::support::page(period, at(0))).collect();
    let limits: usize = charges.iter().map(|charge| charge.plan.limits().len()).sum();
    let mut states = vec![State::Fresh; limits];
    let mut outcome = charges.survey(&mut states, at(0)).expect("the pages cover now");
    outcome.allowed = true;
    for (index, when) in whens.iter().enumerate() {
        outcome.readings[index].when = *when;
        outcome.allowed &= *when == When::Now || policy.rules[index].on_exceed == OnExceed::Observe;
    }
    (charges, outcome)
}

fn decide<'a>(policy: &'a Policy, whens: &[When], ticket: Ticket) -> Decision<'a> {
    let (charges, outcome) = outcome_of(policy, whens, ticket);
    Decision::new(policy, charges, outcome, Origin::Store)
}

/// Whether this rule alone denies.
fn denies(on_exceed: OnExceed, when: When) -> bool {
    match (on_exceed, when) {
        (OnExceed::Reject, _) | (_, When::Never | When::OnRelease) => true,
        (OnExceed::Wait(most), When::After(wait)) => wait > most,
        _ => false,
    }
}

proptest! {
    #[test]
    fn reject_beats_defer_and_defer_beats_wait(
        rules in prop::collection::vec((any_on_exceed(), any_when()), 1..=4), ticket in any::<u64>(),
    ) {
        let (exceed, whens): (Vec<_>, Vec<_>) = rules.iter().copied().unzip();
        let policy = policy_of(&exceed);
        let decision = decide(&policy, &whens, Ticket(ticket));
        let over: Vec<(usize, OnExceed, When)> = (0..rules.len())
            .map(|index| (index, exceed[index], whens[index]))
            .filter(|(_, on_exceed, when)| *when != When::Now && *on_exceed != OnExceed::Observe)
            .collect();

        let named = decision.denied_by().map(|line| line.rule.name.to_string());
        prop_assert_eq!(named.as_deref(), over.first().map(|(index, ..)| NAMES[*index]));
        let retry = over.iter().map(|(_, _, when)| *when).max().unwrap_or(When::Now);
        prop_assert_eq!(decision.retry, retry);
        prop_assert_eq!(decision.allowed(), over.is_empty());

        match decision.verdict {
            Verdict::Allow => prop_assert!(over.is_empty()),
            Verdict::Deny => prop_assert!(over.iter().any(|(_, how, when)| denies(*how, *when))),
            Verdict::Defer(_) | Verdict::Wait(_) => {
                prop_assert!(!over.iter().any(|(_, how, when)| denies(*how, *when)));
                let defers = over.iter().any(|(_, how, _)| matches!(how, OnExceed::Defer(_)));
                prop_assert_eq!(matches!(decision.verdict, Verdict::Defer(_)), defers);
            }
        }
        if let Verdict::Wait(wait) = decision.verdict {
            prop_assert_eq!(retry, When::After(wait));
        }
        if let (Verdict::Defer(until), When::After(wait)) = (decision.verdict, retry) {
            prop_assert!(until >= at(0) + wait, "no caller is asked back too early");
        }
    }

    #[test]
    fn an_aligned_deferral_is_the_first_boundary_not_before_the_exact_moment(
        seconds in 1..2_000_000_u64, off in 0..1_000_000_u64, index in 0..3_usize,
    ) {
        let period = [1, 60, 604_800][index] * 1_000_000_u64;
        let aligned = OnExceed::Defer(Deferral { aligned: true, jitter: Span::ZERO });
        let mut exceed = vec![OnExceed::Reject; index];
        exceed.push(aligned);
        let mut whens = vec![When::Now; index];
        let wait = seconds * 1_000_000 - off;
        whens.push(When::After(span(wait)));
        let policy = policy_of(&exceed);
        let Verdict::Defer(until) = decide(&policy, &whens, Ticket(1)).verdict else {
            return Err(TestCaseError::fail("not deferred"));
        };
        let exact = START + wait;
        prop_assert!((exact..exact + period).contains(&until.as_micros()));
        // Seconds and minutes start with the epoch; weeks on the Monday after it.
        let first = if index == 2 { 4 * 86_400_000_000 } else { 0 };
        prop_assert_eq!((until.as_micros() - first) % period, 0);
    }

    #[test]
    fn jitter_spreads_by_ticket_and_stays_below_its_bound(ticket in any::<u64>(), jitter in 1..1_000_u64) {
        let policy = policy_of(&[OnExceed::Defer(Deferral { aligned: false, jitter: span(jitter) })]);
        let decision = decide(&policy, &[When::After(span(5))], Ticket(ticket));
        prop_assert_eq!(decision.verdict, Verdict::Defer(at(5 + ticket % jitter)));
        prop_assert_eq!(decision.wait(), Some(span(5 + ticket % jitter)), "until then, and not only 5");
    }
}

#[test]
fn a_wait_is_told_up_to_its_bound_and_denied_beyond_it() {
    let policy = policy_of(&[OnExceed::Wait(span(100))]);
    let verdict = |micros| decide(&policy, &[When::After(span(micros))], Ticket(1)).verdict;
    assert_eq!(verdict(100), Verdict::Wait(span(100)));
    assert_eq!(verdict(101), Verdict::Deny);
}

#[test]
fn an_attempt_that_can_never_pass_is_denied_even_by_rules_that_defer_or_wait() {
    for on_exceed in [OnExceed::Defer(Deferral::default()), OnExceed::Wait(Span::MAX)] {
        let policy = policy_of(&[on_exceed, on_exceed]);
        for when in [When::Never, When::OnRelease] {
            let decision = decide(&policy, &[When::After(span(1)), when], Ticket(1));
            assert_eq!(decision.verdict, Verdict::Deny);
            assert_eq!(decision.retry, when);
            assert_eq!(&*decision.denied_by().unwrap().rule.name, "first");
        }
    }
}

#[test]
fn a_month_has_no_boundary_to_align_to_but_its_own_end() {
    let aligned = OnExceed::Defer(Deferral { aligned: true, jitter: Span::ZERO });
    let policy = policy_of(&[OnExceed::Reject, OnExceed::Reject, OnExceed::Reject, aligned]);
    let whens = [When::Now, When::Now, When::Now, When::After(span(123))];
    assert_eq!(decide(&policy, &whens, Ticket(1)).verdict, Verdict::Defer(at(123)));
}

#[test]
fn an_allowed_attempt_has_a_receipt_for_what_was_taken_and_a_denied_one_has_none() {
    let policy = policy(vec![
        rule("global", &[], &["2/hour"]),
        Rule { on_exceed: OnExceed::Observe, ..rule("seen", &[], &["1/hour"]) },
    ]);
    let attempt = Attempt { policy: "policy", fields: &[], cost: 1, id: None };
    let mut states = vec![State::Fresh; 2];
    let mut decide = |now: Timestamp| {
        let charges = policy.charges(&attempt, Ticket(7)).unwrap();
        let outcome = charges.settle(&mut states, now).unwrap();
        Decision::new(&policy, charges, outcome, Origin::Store)
    };
    let own = |rule: &str| ReceiptLine { rule: rule.into(), key: rule.into(), cost: 1 };
    let receipt = decide(at(0)).receipt().unwrap();
    assert_eq!(receipt.taken, [own("global"), own("seen")]);
    assert_eq!((receipt.ticket, receipt.at), (Ticket(7), at(0)));
    assert_eq!(decide(at(1)).receipt().unwrap().taken, [own("global")]);
    let denied = decide(at(2));
    assert_eq!(denied.receipt(), None);
    let (limit, reading) = denied.binding().unwrap();
    assert_eq!((limit.to_string().as_str(), reading.remaining), ("2/hour", 0));
}

#[test]
fn a_decision_that_is_made_anew_keeps_nothing_of_the_last() {
    let busy = policy(vec![rule("global", &[], &["2/hour"])]);
    let idle = Policy::new("idle".into(), Vec::new(), true);
    let attempt = Attempt { policy: "policy", fields: &[], cost: 3, id: Some("job") };
    let mut decision = Decision::blank();
    decision.open(&busy, Ticket(1), 3, Some("job"));
    busy.charge(&attempt, &mut decision.charges).unwrap();
    decision.outcome = decision.charges.settle(&mut [State::Fresh], at(0)).unwrap();
    decision.conclude(Origin::Store);
    assert!(!decision.allowed() && decision.denied_by().is_some());
    decision.outcome.taken = 1;
    decision.open(&idle, Ticket(2), 1, None);
    decision.allow_unmetered();
    assert!(decision.allowed() && decision.denied_by().is_none() && decision.lines().next().is_none());
    assert_eq!((decision.charges.ticket, decision.charges.cost, decision.charges.id), (Ticket(2), 1, None));
    assert_eq!((decision.outcome.taken, decision.outcome.readings.len()), (0, 0));
}

#[test]
fn a_policy_lets_wait_if_one_of_its_rules_does() {
    let (reject, wait, observe) = (OnExceed::Reject, OnExceed::Wait(span(9)), OnExceed::Observe);
    assert!(policy_of(&[reject, wait]).lets_wait());
    assert!(!policy_of(&[reject, observe, OnExceed::Defer(Deferral::default())]).lets_wait());
}

#[test]
fn of_two_deferrals_of_the_same_length_the_first_one_says_how() {
    let [exact, aligned] =
        [false, true].map(|aligned| OnExceed::Defer(Deferral { aligned, jitter: span(0) }));
    let after = When::After(span(5));
    let moment = |order: [OnExceed; 2]| {
        let policy = policy_of(&order);
        decide(&policy, &[after, after], Ticket(1)).verdict
    };
    assert_eq!(moment([exact, aligned]), Verdict::Defer(at(5)));
    assert_ne!(moment([aligned, exact]), Verdict::Defer(at(5)), "aligned to the next boundary");
}

#[test]
fn the_rule_that_determines_the_time_is_known_if_another_one_is_named() {
    let after = |micros| When::After(span(micros));
    let policy = policy_of(&[OnExceed::Reject, OnExceed::Reject, OnExceed::Observe]);
    for (whens, named, slowest) in [
        ([after(5), after(9), after(99)], 0, Some(1)),
        ([after(9), after(5), When::Now], 0, None),
        ([after(5), after(5), When::Now], 0, None),
        ([When::Now, after(5), When::Now], 1, None),
        ([after(5), When::Never, When::Now], 0, Some(1)),
    ] {
        let decision = decide(&policy, &whens, Ticket(1));
        assert_eq!(&*decision.denied_by().unwrap().rule.name, NAMES[named], "{whens:?}");
        let slower = decision.retry_by().map(|line| line.rule.name.to_string());
        assert_eq!(slower.as_deref(), slowest.map(|index: usize| NAMES[index]), "{whens:?}");
    }
}
