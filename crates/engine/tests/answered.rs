//! Rules that count only some answers: what is given back once an answer is known, and what is not.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use futures_lite::future::block_on;
use support::{Stand, decide, policies, rule};
use tollgate_core::store::Refunded;
use tollgate_core::{Attempt, Decision, OnExceed, Policies, Rule, Span};
use tollgate_engine::engine::RefundPart;
use tollgate_engine::{Engine, Pending};

const ADA: [(&str, &str); 3] = [("all", "x"), ("guesses", "ada"), ("work", "ada")];

fn login() -> Policies {
    let rules = vec![
        rule::rejecting("all", &["all"], &["50/hour"]),
        rule::counting("guesses", &["5/hour"], "[401, 403]"),
        rule::counting("work", &["20/hour"], "not 5xx"),
    ];
    policies(rules, &[("login", &["all", "guesses", "work"])])
}

/// What is left at each limit.
fn left(engine: &Engine, policy: &str, fields: &[(&str, &str)]) -> Vec<u64> {
    let pinned = engine.pin();
    let look = Attempt { policy, fields, cost: 0, id: None };
    let decision = block_on(engine.peek(&pinned, &look)).unwrap();
    decision.outcome.readings.iter().map(|reading| reading.remaining).collect()
}

fn pending(engine: &Engine, policy: &str, fields: &[(&str, &str)]) -> Pending {
    let pinned = engine.pin();
    let decision = decide(engine, &pinned, policy, fields).unwrap();
    assert!(decision.allowed());
    engine.pending(&decision).unwrap()
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
        let pending = pending(&stand.engine, "login", &ADA);
        assert_eq!(left(&stand.engine, "login", &ADA), [49, 4, 19], "all are charged at first");
        fn is_sent<T: Send>(value: T) -> T {
            value
        }
        block_on(is_sent(stand.engine.answered(is_sent(pending), status))).unwrap();
        assert_eq!(left(&stand.engine, "login", &ADA), expected, "{status}");
    }
}

#[test]
fn a_store_that_answers_at_once_is_told_without_waiting() {
    for status in [200, 401, 503] {
        let (one, other) = (Stand::new(login()), Stand::new(login()));
        block_on(one.engine.answered(pending(&one.engine, "login", &ADA), status)).unwrap();
        let rest = other.engine.answered_at_once(pending(&other.engine, "login", &ADA), status);
        assert!(rest.is_none(), "{status}");
        let [one, other] = [one, other].map(|stand| left(&stand.engine, "login", &ADA));
        assert_eq!(one, other, "{status}");
    }
}

#[test]
fn parallel_guesses_do_not_slip_through_and_what_is_never_answered_stays_counted() {
    let stand = Stand::new(login());
    let held: Vec<Pending> = (0..5).map(|_| pending(&stand.engine, "login", &ADA)).collect();
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
    let pinned = stand.pin();
    let ask = |fields, cost, id| {
        let attempt = Attempt { policy: "login", fields, cost, id };
        block_on(stand.engine.decide(&pinned, &attempt)).unwrap()
    };
    let is_pending = |decision: Decision<'_>| stand.engine.pending(&decision).is_some();
    assert!(!is_pending(ask(&two, 0, None)), "it only looked");
    assert!(!is_pending(ask(&two[1..], 1, None)), "the rule that counts answers did not apply");
    assert!(is_pending(ask(&two, 1, Some("job"))));
    assert!(!is_pending(ask(&two, 1, Some("job"))), "the id was held already");
    assert!(!is_pending(ask(&two, 1, None)), "it was denied");
    assert!(!is_pending(decide(&stand.engine, &pinned, "api", &[("all", "x")]).unwrap()));
}

#[test]
fn what_comes_back_is_what_a_receipt_would_give_back() {
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
            let pending = pending(&answered.engine, "api", &fields);
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
            block_on(answered.engine.answered(pending, 500)).unwrap();
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
    let decision = decide(&stand.engine, &pinned, "login", &ADA).unwrap();
    let (pending, receipt) =
        (stand.engine.pending(&decision).unwrap(), stand.engine.receipt(&decision).unwrap());
    decide(&stand.engine, &pinned, "login", &ADA).unwrap();
    block_on(stand.engine.answered(pending, 200)).unwrap();
    assert_eq!(left(&stand.engine, "login", &ADA), [48, 4, 18], "the guess that was none");
    assert_eq!(block_on(stand.engine.refund(&pinned, &receipt, RefundPart::All)), Ok(Refunded::Done));
    assert_eq!(left(&stand.engine, "login", &ADA), [49, 4, 19], "the other two, and the guess not again");
    assert_eq!(block_on(stand.engine.refund(&pinned, &receipt, RefundPart::All)), Ok(Refunded::Already));
}

#[test]
fn an_overridden_key_counts_as_its_rule_does() {
    let stand = Stand::new(login());
    block_on(stand.engine.set_override("guesses", "ada", vec!["2/day".parse().unwrap()])).unwrap();
    let pending = pending(&stand.engine, "login", &ADA);
    assert_eq!(left(&stand.engine, "login", &ADA), [49, 1, 19]);
    block_on(stand.engine.answered(pending, 200)).unwrap();
    assert_eq!(left(&stand.engine, "login", &ADA), [49, 2, 19]);
}

#[test]
fn limits_that_changed_meanwhile_keep_their_counts_and_a_rule_that_is_gone_is_left_alone() {
    let with = |limits: &[&str]| {
        policies(vec![rule::counting("guesses", limits, "401")], &[("login", &["guesses"])])
    };
    let fields = [("guesses", "ada")];
    let stand = Stand::new(with(&["5/hour"]));
    let first = pending(&stand.engine, "login", &fields);
    stand.engine.reload(with(&["9/hour", "7/day"]));
    let second = pending(&stand.engine, "login", &fields);
    block_on(stand.engine.answered(first, 200)).unwrap();
    assert_eq!(left(&stand.engine, "login", &fields), [8, 7], "the day began with the second");
    stand.engine.reload(policies(vec![rule::rejecting("other", &[], &["1/hour"])], &[("other", &["other"])]));
    assert!(stand.engine.answered_at_once(second, 200).is_none());
    stand.engine.reload(with(&["9/hour", "7/day"]));
    assert_eq!(left(&stand.engine, "login", &fields), [8, 7]);
}

#[test]
fn an_observed_rule_counts_answers_too() {
    let seen = Rule { on_exceed: OnExceed::Observe, ..rule::counting("seen", &["2/hour"], "401") };
    let rules = vec![seen, rule::rejecting("all", &["all"], &["50/hour"])];
    let stand = Stand::new(policies(rules, &[("login", &["all", "seen"])]));
    let fields = [("all", "x"), ("seen", "ada")];
    for _ in 0..5 {
        let pending = pending(&stand.engine, "login", &fields);
        block_on(stand.engine.answered(pending, 200)).unwrap();
    }
    assert_eq!(left(&stand.engine, "login", &fields), [45, 2]);
    let _counted = [(); 2].map(|()| pending(&stand.engine, "login", &fields));
    let pinned = stand.pin();
    let passed = decide(&stand.engine, &pinned, "login", &fields).unwrap();
    assert!(passed.allowed());
    assert!(stand.engine.pending(&passed).is_none(), "what was only seen to be too much took nothing");
}
