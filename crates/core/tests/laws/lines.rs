//! What a decision tells of its rules: which one is named, which limit binds, and whether holds are the only
//! reason of a denial. Each is compared with a plain search over the readings.

use crate::support::{at, policy, rule};
use proptest::prelude::*;
use tollgate_core::{
    Attempt, Charges, Decision, Deferral, Limit, OnExceed, Origin, Policy, Reading, Rule, Span, State,
    Ticket, Verdict, When,
};

const NAMES: [&str; 3] = ["first", "second", "third"];
/// A window, holds, and a bound on a number of the attempt, which uses up nothing.
const LIMITS: [&str; 3] = ["9/s", "9 at once", "9 recipients per attempt"];

fn span(micros: u64) -> Span {
    Span::from_micros(micros)
}

fn any_when() -> impl Strategy<Value = When> {
    prop_oneof![
        4 => Just(When::Now),
        3 => (1..6_u64).prop_map(|micros| When::After(span(micros))),
        1 => Just(When::OnRelease),
        1 => Just(When::Never),
    ]
}

fn any_on_exceed() -> impl Strategy<Value = OnExceed> {
    prop_oneof![
        2 => Just(OnExceed::Reject),
        1 => Just(OnExceed::Defer(Deferral::default())),
        4 => (0..6_u64).prop_map(|micros| OnExceed::Wait(span(micros))),
        2 => Just(OnExceed::Observe),
    ]
}

/// How a rule reacts, and for each of its three limits what is left and when the attempt would pass.
type Drawn = (OnExceed, [(u64, When); 3]);

fn any_rules() -> impl Strategy<Value = Vec<Drawn>> {
    let reading = (0..4_u64, any_when());
    prop::collection::vec((any_on_exceed(), prop::array::uniform3(reading)), 1..=3)
}

fn policy_of(drawn: &[Drawn]) -> Policy {
    let rules = drawn.iter().zip(NAMES);
    policy(
        rules
            .map(|((on_exceed, _), name)| Rule { on_exceed: *on_exceed, ..rule(name, &[], &LIMITS) })
            .collect(),
    )
}

/// The decision for these readings.
fn decide<'a>(policy: &'a Policy, drawn: &[Drawn]) -> Decision<'a> {
    let attempt = Attempt { policy: "policy", fields: &[], cost: 1, id: Some("job") };
    let charges = policy.charges(&attempt, Ticket(1)).expect("no field is needed");
    let mut states = vec![State::Fresh; 3 * drawn.len()];
    let mut outcome = charges.survey(&mut states, at(0)).expect("no calendar is needed");
    outcome.allowed = true;
    for (index, (on_exceed, readings)) in drawn.iter().enumerate() {
        for (place, (remaining, when)) in readings.iter().enumerate() {
            let reading = &mut outcome.readings[3 * index + place];
            (reading.remaining, reading.when) = (*remaining, *when);
            outcome.allowed &= *when == When::Now || *on_exceed == OnExceed::Observe;
        }
    }
    Decision::new(policy, charges, outcome, Origin::Store)
}

/// The longest wait of a rule.
fn longest(readings: &[(u64, When); 3]) -> When {
    readings.iter().map(|(_, when)| *when).max().expect("there are three")
}

/// Whether the rule waits for this limit: within its bound, or until a hold is released.
fn waits_for(on_exceed: OnExceed, limit: usize, when: When) -> bool {
    let OnExceed::Wait(most) = on_exceed else { return false };
    match when {
        When::Now => true,
        When::After(wait) => limit == 1 || wait <= most,
        When::OnRelease => limit == 1,
        When::Never => false,
    }
}

/// What is left, as the binding limit is chosen: limits that use nothing up come last.
fn left(limit: &Limit, reading: &Reading) -> (bool, u64) {
    (!limit.consumes(), reading.remaining)
}

proptest! {
    #[test]
    fn a_line_tells_what_its_readings_tell(drawn in any_rules()) {
        let policy = policy_of(&drawn);
        let decision = decide(&policy, &drawn);
        prop_assert_eq!(decision.lines().count(), drawn.len());
        for (line, (_, readings)) in decision.lines().zip(&drawn) {
            prop_assert_eq!(line.exceeded(), readings.iter().any(|(_, when)| *when != When::Now));
            let (limit, reading) = line.binding().expect("there are limits");
            let (text, written, again) = line.binding_written().expect("there are limits");
            prop_assert_eq!((text.to_owned(), written, again), (limit.to_string(), limit, reading));
            if line.exceeded() {
                prop_assert_eq!(reading.when, longest(readings));
            } else {
                let least = line.limits.iter().zip(line.readings).map(|(limit, reading)| left(limit, reading));
                prop_assert_eq!(Some(left(limit, &reading)), least.min());
            }
            let spans = readings.iter().enumerate().filter(|(limit, _)| *limit != 1);
            let spans = spans.filter_map(|(_, (_, when))| match when {
                When::After(wait) => Some(*wait),
                _ => None,
            });
            prop_assert_eq!(line.surely(), spans.max().unwrap_or(Span::ZERO));
        }
    }

    #[test]
    fn the_first_exceeded_rule_is_named_and_the_tightest_limit_binds(drawn in any_rules()) {
        let policy = policy_of(&drawn);
        let decision = decide(&policy, &drawn);
        let over = |(_, (on_exceed, readings)): &(usize, &Drawn)| {
            *on_exceed != OnExceed::Observe && longest(readings) != When::Now
        };
        let named = drawn.iter().enumerate().find(over);
        let name = |index: usize| NAMES[index].to_owned();
        prop_assert_eq!(
            decision.named_rule().map(|rule| rule.name.to_string()),
            named.map(|(index, _)| name(index))
        );
        let binding = decision.binding_of_rule().map(|(rule, limit, reading)| (rule.name.to_string(), limit, reading));
        let (limit, reading) = match (decision.binding(), &binding) {
            (Some((limit, reading)), Some((_, same, again))) => {
                prop_assert!(std::ptr::eq(limit, *same) && reading == *again);
                (limit, reading)
            }
            (None, None) => {
                prop_assert!(drawn.iter().all(|(on_exceed, _)| *on_exceed == OnExceed::Observe));
                return Ok(());
            }
            _ => return Err(TestCaseError::fail("one of them has no binding limit")),
        };
        if let Some((index, (_, readings))) = named {
            prop_assert_eq!((binding.map(|(rule, ..)| rule), reading.when), (Some(name(index)), longest(readings)));
            return Ok(());
        }
        // Of several with as little left, the first.
        let enforced = decision.lines().filter(|line| !line.rule.observes());
        let all: Vec<(String, (bool, u64))> = enforced
            .flat_map(|line| {
                let rule = line.rule.name.to_string();
                line.limits.iter().zip(line.readings).map(move |(limit, reading)| (rule.clone(), left(limit, reading)))
            })
            .collect();
        let least = all.iter().map(|(_, left)| *left).min();
        prop_assert_eq!(Some(left(limit, &reading)), least);
        let first = all.iter().find(|(_, left)| Some(*left) == least).map(|(rule, _)| rule.clone());
        prop_assert_eq!(binding.map(|(rule, ..)| rule), first);
    }

    #[test]
    fn a_denial_becomes_a_wait_if_a_released_hold_could_end_it(drawn in any_rules()) {
        let policy = policy_of(&drawn);
        let mut decision = decide(&policy, &drawn);
        let before = decision.verdict;
        decision.let_wait();
        let over: Vec<&Drawn> = drawn
            .iter()
            .filter(|(on_exceed, readings)| *on_exceed != OnExceed::Observe && longest(readings) != When::Now)
            .collect();
        let waits = |(on_exceed, readings): &&Drawn| {
            readings.iter().enumerate().all(|(limit, (_, when))| waits_for(*on_exceed, limit, *when))
        };
        if before == Verdict::Deny && over.iter().all(waits) {
            let Verdict::Wait(wait) = decision.verdict else {
                return Err(TestCaseError::fail("it has to wait"));
            };
            let known = if let When::After(wait) = decision.retry { wait } else { Span::ZERO };
            prop_assert_eq!(wait, known);
        } else {
            prop_assert_eq!(decision.verdict, before);
        }
    }
}

#[test]
fn of_two_deferrals_the_longer_one_says_how() {
    let [short, long] =
        [10, 1_000].map(|jitter| OnExceed::Defer(Deferral { aligned: false, jitter: span(jitter) }));
    let at_most = |wait| [(0, When::After(span(wait))), (9, When::Now), (9, When::Now)];
    for drawn in [[(short, at_most(5)), (long, at_most(50))], [(long, at_most(50)), (short, at_most(5))]] {
        let policy = policy_of(&drawn);
        let attempt = Ticket(777);
        let mut decision = decide(&policy, &drawn);
        decision.charges.ticket = attempt;
        decision.conclude(Origin::Store);
        assert_eq!(
            decision.verdict,
            Verdict::Defer(at(50 + 777)),
            "spread over a millisecond, not 10 microseconds"
        );
    }
}

#[test]
fn charges_are_empty_until_one_is_added() {
    let own = rule("first", &[], &["9/s"]);
    let mut charges = Charges::new(Ticket(1), 1, None);
    assert!(charges.is_empty() && charges.iter().next().is_none());
    charges.push(own.plan_at("first"), "first", true);
    assert!(!charges.is_empty() && charges.iter().count() == 1);
}

#[test]
fn an_allowed_attempt_is_bound_by_the_least_that_is_left() {
    let left = |window, holds, bound| [(window, When::Now), (holds, When::Now), (bound, When::Now)];
    for (rules, rule, limit, remaining) in [
        (vec![left(5, 6, 0)], "first", LIMITS[0], 5),
        (vec![left(6, 5, 0)], "first", LIMITS[1], 5),
        (vec![left(6, 5, 0), left(4, 9, 1)], "second", LIMITS[0], 4),
        (vec![left(6, 4, 0), left(4, 9, 1)], "first", LIMITS[1], 4),
    ] {
        let drawn: Vec<Drawn> = rules.into_iter().map(|readings| (OnExceed::Reject, readings)).collect();
        let policy = policy_of(&drawn);
        let decision = decide(&policy, &drawn);
        let (named, binding, reading) = decision.binding_of_rule().expect("there are limits");
        let told = (&*named.name, binding.to_string(), reading.remaining);
        assert_eq!(told, (rule, limit.parse::<Limit>().expect("a limit").to_string(), remaining));
    }
}

#[test]
fn a_denial_by_holds_alone_becomes_a_wait_and_no_other_denial_does() {
    let (now, held, later) = (When::Now, When::OnRelease, When::After(span(9)));
    let waits = OnExceed::Wait(span(5));
    // How the rule reacts, the waits for its window and its holds, and the verdict for a caller that waits.
    for (on_exceed, window, holds, verdict) in [
        (waits, now, held, Verdict::Wait(Span::ZERO)),
        (waits, now, later, Verdict::Wait(span(9))),
        (waits, later, held, Verdict::Deny),
        (waits, later, now, Verdict::Deny),
        (waits, When::After(span(5)), now, Verdict::Wait(span(5))),
        (waits, now, When::Never, Verdict::Deny),
        (waits, now, now, Verdict::Allow),
        (OnExceed::Reject, now, held, Verdict::Deny),
        (OnExceed::Defer(Deferral::default()), now, held, Verdict::Deny),
    ] {
        let drawn = [(on_exceed, [(0, window), (0, holds), (9, now)])];
        let policy = policy_of(&drawn);
        let mut decision = decide(&policy, &drawn);
        decision.let_wait();
        assert_eq!(decision.verdict, verdict, "{on_exceed:?}, {window:?} and {holds:?}");
    }
    // A second rule that rejects keeps the denial; one that only observes does not.
    let holds_it = [(0, now), (0, held), (9, now)];
    for (other, verdict) in [
        (OnExceed::Reject, Verdict::Deny),
        (OnExceed::Observe, Verdict::Wait(Span::ZERO)),
        (waits, Verdict::Wait(Span::ZERO)),
    ] {
        for order in [[waits, other], [other, waits]] {
            let drawn = order.map(|on_exceed| (on_exceed, holds_it));
            let policy = policy_of(&drawn);
            let mut decision = decide(&policy, &drawn);
            decision.let_wait();
            assert_eq!(decision.verdict, verdict, "{order:?}");
        }
    }
}
