//! Rules that count only some outcomes: what is refunded once the outcome is known, and what is not.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crate::support::{Stand, admissions, decide, policies, rule, taken};
use futures_lite::future::block_on;
use tollgate_core::store::Refunded;
use tollgate_core::{Attempt, OnExceed, OutcomeClass, Policies, Rule, Span};
use tollgate_engine::admit::Unsettled;
use tollgate_engine::engine::RefundPart;
use tollgate_engine::{Engine, Taken, Terms};

const ADA: [(&str, &str); 3] = [("all", "x"), ("guesses", "ada"), ("work", "ada")];

fn login() -> Policies {
    let rules = vec![
        rule::rejecting("all", &["all"], &["50/hour"]),
        rule::counting("guesses", &["5/hour"], "[401, 403]"),
        rule::counting("work", &["20/hour"], "not 5xx"),
    ];
    policies(rules, &[("login", &["all", "guesses", "work"])])
}

/// What remains at each limit.
fn left(engine: &Engine, policy: &str, fields: &[(&str, &str)]) -> Vec<u64> {
    let pinned = engine.pin();
    let look = Attempt { policy, fields, cost: 0, id: None };
    let decision = block_on(engine.peek(&pinned, &look)).unwrap();
    decision.outcome.readings.iter().map(|reading| reading.remaining).collect()
}

#[test]
fn a_charge_is_given_back_where_its_rule_does_not_count_the_status() {
    let table = [
        (200, [49, 5, 19]),
        (401, [49, 4, 19]),
        (403, [49, 4, 19]),
        (404, [49, 5, 19]),
        (503, [49, 5, 20]),
        (999, [49, 4, 19]),
    ];
    for (status, expected) in table {
        let stand = Stand::new(login());
        let mut took = taken(&stand.engine, "login", &ADA);
        assert_eq!(left(&stand.engine, "login", &ADA), [49, 4, 19], "all are charged at first");
        fn is_sent<T: Send>(value: T) -> T {
            value
        }
        block_on(is_sent(is_sent(&mut took).settle(OutcomeClass(status)))).unwrap();
        assert_eq!(left(&stand.engine, "login", &ADA), expected, "{status}");
    }
}

#[test]
fn a_store_of_this_process_is_refunded_without_waiting() {
    for status in [200, 401, 503] {
        let (one, other) = (Stand::new(login()), Stand::new(login()));
        block_on(taken(&one.engine, "login", &ADA).settle(OutcomeClass(status))).unwrap();
        let refunding = taken(&other.engine, "login", &ADA).settle(OutcomeClass(status));
        assert!(refunding.is_made(), "{status}");
        let [one, other] = [one, other].map(|stand| left(&stand.engine, "login", &ADA));
        assert_eq!(one, other, "{status}");
    }
}

#[test]
fn parallel_guesses_do_not_slip_through_and_unanswered_ones_stay_counted() {
    let stand = Stand::new(login());
    let held: Vec<Taken> = (0..5).map(|_| taken(&stand.engine, "login", &ADA)).collect();
    assert!(!decide(&stand.engine, &stand.pin(), "login", &ADA).unwrap().allowed(), "five are in flight");
    drop(held);
    assert!(!decide(&stand.engine, &stand.pin(), "login", &ADA).unwrap().allowed(), "they hung up");
    stand.clock.advance(Span::from_secs(3_600));
    assert!(decide(&stand.engine, &stand.pin(), "login", &ADA).unwrap().allowed());
}

#[test]
fn nothing_is_pending_where_nothing_was_taken_or_everything_counts_at_once() {
    let held = rule::rejecting("jobs", &["jobs"], &["5 at once"]);
    let rules = vec![
        rule::counting("guesses", &["1/hour"], "401"),
        rule::rejecting("all", &["all"], &["50/hour"]),
        held,
    ];
    let two = [("guesses", "ada"), ("jobs", "ada")];
    let stand = Stand::new(policies(rules, &[("login", &["guesses", "jobs"]), ("api", &["all"])]));
    let refunds = |policy, fields: &[(&str, &str)], cost, id| {
        let before = left(&stand.engine, policy, fields);
        let attempt = Attempt { policy, fields, cost, id };
        let admit = admissions(&stand.engine).pin().admit(&attempt, Terms::default(), |_, _| ());
        let mut taken = block_on(admit).unwrap().taken;
        let after = left(&stand.engine, policy, fields);
        assert!(taken.settle(OutcomeClass(200)).is_made());
        (before, after, left(&stand.engine, policy, fields))
    };
    let of = |numbers: &[u64]| numbers.to_vec();
    assert_eq!(refunds("login", &two, 0, None), (of(&[1, 5]), of(&[1, 5]), of(&[1, 5])), "it only looked");
    assert_eq!(
        refunds("login", &two[1..], 1, None),
        (of(&[5]), of(&[4]), of(&[4])),
        "the rule that counts answers did not apply"
    );
    assert_eq!(refunds("login", &two, 1, Some("job")), (of(&[1, 4]), of(&[0, 3]), of(&[1, 3])));
    assert_eq!(
        refunds("login", &two, 1, Some("job")),
        (of(&[1, 3]), of(&[1, 3]), of(&[1, 3])),
        "the id was held already"
    );
    assert_eq!(refunds("api", &[("all", "x")], 1, None), (of(&[50]), of(&[49]), of(&[49])), "it counts all");
}

#[test]
fn an_unsettled_charge_is_kept_or_refunded_as_its_terms_say() {
    for (unsettled, left_after) in [(Unsettled::Keep, [49, 4, 19]), (Unsettled::Refund, [50, 5, 20])] {
        let stand = Stand::new(login());
        let attempt = Attempt { policy: "login", fields: &ADA, cost: 1, id: None };
        let terms = Terms { unsettled, ..Terms::default() };
        let admit = admissions(&stand.engine).pin().admit(&attempt, terms, |_, _| ());
        let taken = block_on(admit).unwrap().taken;
        assert_eq!(left(&stand.engine, "login", &ADA), [49, 4, 19]);
        drop(taken);
        assert_eq!(left(&stand.engine, "login", &ADA), left_after, "{unsettled:?}");
        let mut taken =
            block_on(admissions(&stand.engine).pin().admit(&attempt, terms, |_, _| ())).unwrap().taken;
        taken.keep();
        drop(taken);
        assert_eq!(
            left(&stand.engine, "login", &ADA),
            left_after.map(|left| left - 1),
            "what is kept is kept"
        );
    }
}

#[test]
fn an_answer_refunds_as_much_as_a_receipt() {
    let kinds = [
        "10/hour",
        "10/hour calendar",
        "10/hour sliding",
        "10/hour sliding by 5m",
        "10/hour burst 10",
        "10 in total",
    ];
    for kind in kinds {
        for wait in [0, 1, 400, 1_799, 3_599, 3_601, 86_400] {
            let one = || {
                let rules = vec![rule::counting("work", &[kind, "99/week calendar"], "not 5xx")];
                Stand::new(policies(rules, &[("api", &["work"])]))
            };
            let fields = [("work", "ada")];
            let (answered, given) = (one(), one());
            let mut took = taken(&answered.engine, "api", &fields);
            let receipt = {
                let pinned = given.pin();
                let decision = decide(&given.engine, &pinned, "api", &fields).unwrap();
                given.engine.receipt(&decision).unwrap()
            };
            for stand in [&answered, &given] {
                decide(&stand.engine, &stand.pin(), "api", &fields).unwrap();
                stand.clock.advance(Span::from_secs(wait));
                decide(&stand.engine, &stand.pin(), "api", &fields).unwrap();
            }
            block_on(took.settle(OutcomeClass(500))).unwrap();
            block_on(given.engine.refund(&given.pin(), &receipt, RefundPart::All)).unwrap();
            let [answered, given] = [answered, given].map(|stand| left(&stand.engine, "api", &fields));
            assert_eq!(answered, given, "{kind} after {wait} s");
        }
    }
}

#[test]
fn a_receipt_gives_back_the_rest_and_nothing_twice() {
    let stand = Stand::new(login());
    let pinned = stand.pin();
    let attempt = Attempt { policy: "login", fields: &ADA, cost: 1, id: None };
    let admissions = admissions(&stand.engine);
    let admit = admissions.pin().admit(&attempt, Terms::default(), Engine::receipt);
    let admission = block_on(admit).unwrap();
    let (mut taken, receipt) = (admission.taken, admission.seen.unwrap());
    decide(&stand.engine, &pinned, "login", &ADA).unwrap();
    block_on(taken.settle(OutcomeClass(200))).unwrap();
    assert_eq!(left(&stand.engine, "login", &ADA), [48, 4, 18], "the guess that was none");
    assert_eq!(block_on(stand.engine.refund(&pinned, &receipt, RefundPart::All)), Ok(Refunded::Done));
    assert_eq!(left(&stand.engine, "login", &ADA), [49, 4, 19], "the other two, and the guess not again");
    assert_eq!(block_on(stand.engine.refund(&pinned, &receipt, RefundPart::All)), Ok(Refunded::Already));
}

#[test]
fn an_overridden_key_counts_as_its_rule_does() {
    let stand = Stand::new(login());
    block_on(stand.engine.config.set_override("guesses", "ada", vec!["2/day".parse().unwrap()])).unwrap();
    let mut took = taken(&stand.engine, "login", &ADA);
    assert_eq!(left(&stand.engine, "login", &ADA), [49, 1, 19]);
    block_on(took.settle(OutcomeClass(200))).unwrap();
    assert_eq!(left(&stand.engine, "login", &ADA), [49, 2, 19]);
}

#[test]
fn limits_that_changed_meanwhile_keep_their_counts_and_a_rule_that_is_gone_is_left_alone() {
    let with = |limits: &[&str]| {
        policies(vec![rule::counting("guesses", limits, "401")], &[("login", &["guesses"])])
    };
    let fields = [("guesses", "ada")];
    let stand = Stand::new(with(&["5/hour"]));
    let mut first = taken(&stand.engine, "login", &fields);
    stand.engine.reload(with(&["9/hour", "7/day"]));
    let mut second = taken(&stand.engine, "login", &fields);
    block_on(first.settle(OutcomeClass(200))).unwrap();
    assert_eq!(left(&stand.engine, "login", &fields), [8, 7], "the day began with the second");
    stand.engine.reload(policies(vec![rule::rejecting("other", &[], &["1/hour"])], &[("other", &["other"])]));
    assert!(second.settle(OutcomeClass(200)).is_made());
    stand.engine.reload(with(&["9/hour", "7/day"]));
    assert_eq!(left(&stand.engine, "login", &fields), [8, 7]);
}

#[test]
fn an_observed_rule_counts_outcomes_too() {
    let seen = Rule { on_exceed: OnExceed::Observe, ..rule::counting("seen", &["2/hour"], "401") };
    let rules = vec![seen, rule::rejecting("all", &["all"], &["50/hour"])];
    let stand = Stand::new(policies(rules, &[("login", &["all", "seen"])]));
    let fields = [("all", "x"), ("seen", "ada")];
    for _ in 0..5 {
        let mut took = taken(&stand.engine, "login", &fields);
        block_on(took.settle(OutcomeClass(200))).unwrap();
    }
    assert_eq!(left(&stand.engine, "login", &fields), [45, 2]);
    let _counted = [(); 2].map(|()| taken(&stand.engine, "login", &fields));
    let mut passed = taken(&stand.engine, "login", &fields);
    assert!(passed.settle(OutcomeClass(200)).is_made());
    assert_eq!(
        left(&stand.engine, "login", &fields),
        [42, 0],
        "what was only seen to be too much took nothing"
    );
}
