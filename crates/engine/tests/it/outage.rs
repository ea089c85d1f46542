//! Decisions while the shared store cannot be used, and what happens when it recovers.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use crate::support::{
    self,
    cluster::{Centre, Mode, Node},
};
use crate::support::{decide, policies, rule};
use futures_lite::future::{block_on, poll_once};
use tollgate_core::store::{Counter, Forget, HoldsOrder, Refunded};
use tollgate_core::{Attempt, Origin, Policies, Reason, Rule, Span, StoreError, Verdict, When};
use tollgate_engine::Health;
use tollgate_engine::breaker::Breaker;
use tollgate_engine::engine::{RefundFault, RefundPart};

const IP: [(&str, &str); 1] = [("ip", "192.0.2.1")];

fn one(limits: &[&str], on_outage: &str) -> Policies {
    policies(vec![rule::without_store("ip", limits, on_outage)], &[("api", &["ip"])])
}

fn ask(node: &Node, cost: u64, id: Option<&str>) -> (Verdict, Origin, When) {
    let pinned = node.engine.pin();
    let attempt = Attempt { policy: "api", fields: &IP, cost, id };
    let decision = block_on(node.engine.decide(&pinned, &attempt)).unwrap();
    (decision.verdict, decision.origin, decision.retry)
}

/// This many attempts, with any result.
fn repeat(times: usize, node: &Node) {
    for _ in 0..times {
        node.decide("api", &IP);
    }
}

#[test]
fn each_reason_is_told_and_counted() {
    let table = [
        (Mode::LosesQuestions, Reason::Timeout),
        (Mode::LosesAnswers, Reason::Timeout),
        (Mode::Unreachable, Reason::Unreachable),
        (Mode::Full, Reason::Full),
        (Mode::Damaged, Reason::Damaged),
        (Mode::Busy, Reason::Busy),
    ];
    for (mode, reason) in table {
        let node = Centre::new().node(one(&["10/hour"], "local 50%"));
        node.link.set(mode);
        assert_eq!(node.decide("api", &IP), (true, Origin::Local(reason)), "{mode:?}");
        assert_eq!(node.degraded("api", reason), 1, "{mode:?}");
        let total: u64 =
            node.engine.counters.store_meters().unwrap().degraded().iter().map(|(_, _, count)| count).sum();
        assert_eq!(total, 1, "{mode:?}");
    }
}

#[test]
fn a_busy_key_does_not_open_the_breaker() {
    let node = Centre::new().node(one(&["10/hour"], "local 50%"));
    node.link.set(Mode::Busy);
    repeat(100, &node);
    node.link.set(Mode::Up);
    assert_eq!(node.decide("api", &IP), (true, Origin::Store), "the store is asked again at once");
    assert_eq!(node.link.retracted.lock().len(), 0, "nothing was done, so nothing is undone");
}

#[test]
fn each_node_admits_its_share_and_no_more_across_flaps() {
    let node = Centre::new().node(one(&["10/hour sliding"], "local 50%"));
    let mut admitted = 0;
    for _ in 0..4 {
        node.link.set(Mode::Unreachable);
        for _ in 0..3 {
            let (allowed, origin) = node.decide("api", &IP);
            admitted += u32::from(allowed && matches!(origin, Origin::Local(_)));
        }
        node.link.set(Mode::Up);
        node.tend_later();
        assert_eq!(node.engine.counters.health(), Health::Up);
        // Otherwise the breaker would take longer to close each time.
        node.advance(Breaker::FLAP_WITHIN);
    }
    assert_eq!(admitted, 5, "half of ten, though the store came back three times");
}

#[test]
fn the_store_is_not_asked_while_the_breaker_is_open() {
    let node = Centre::new().node(one(&["1000/hour"], "local 50%"));
    node.link.set(Mode::LosesQuestions);
    let before = node.calls();
    for number in 1..=20 {
        let reason = if number <= 3 { Reason::Timeout } else { Reason::Open };
        assert_eq!(node.decide("api", &IP), (true, Origin::Local(reason)), "attempt {number}");
    }
    assert_eq!(node.calls() - before, 3);
    assert_eq!(node.engine.counters.health(), Health::Degraded(Reason::Timeout));
    assert_eq!((node.degraded("api", Reason::Timeout), node.degraded("api", Reason::Open)), (3, 17));
}

#[test]
fn a_full_or_damaged_store_degrades_one_decision_and_keeps_the_breaker_closed() {
    let node = Centre::new().node(one(&["1000/hour sliding"], "local 50%"));
    for mode in [Mode::Full, Mode::Damaged] {
        node.link.set(mode);
        repeat(10, &node);
        assert_eq!(node.engine.counters.health(), Health::Up);
        node.link.set(Mode::Up);
        assert_eq!(node.decide("api", &IP), (true, Origin::Store));
    }
    node.tend_later();
    assert!(node.link.retracted.lock().is_empty(), "what the store says it did not do is not undone");
}

#[test]
fn a_success_between_failures_keeps_the_breaker_closed() {
    let node = Centre::new().node(one(&["1000/hour"], "local 50%"));
    for _ in 0..10 {
        node.link.set(Mode::LosesQuestions);
        repeat(2, &node);
        node.link.set(Mode::Up);
        assert_eq!(node.decide("api", &IP), (true, Origin::Store));
    }
}

#[test]
fn in_a_mixed_policy_deny_wins_allow_is_skipped_and_the_rest_is_all_or_nothing() {
    let rules = vec![
        rule::without_store("free", &["1/hour"], "allow"),
        rule::without_store("narrow", &["2/hour"], "local 50%"),
        rule::without_store("wide", &["20/hour"], "local 50%"),
        rule::without_store("login", &["20/hour"], "deny"),
    ];
    let node = Centre::new().node(policies(rules, &[("api", &["free", "narrow", "wide", "login"])]));
    node.link.set(Mode::Unreachable);
    let fields = [("free", "x"), ("narrow", "x"), ("wide", "x"), ("login", "x")];
    let (all, without_login, only_free) = (&fields[..], &fields[..3], &fields[..1]);

    let pinned = node.engine.pin();
    let denied = decide(&node.engine, &pinned, "api", all).unwrap();
    assert_eq!((denied.verdict, denied.origin), (Verdict::Deny, Origin::Outage(Reason::Unreachable)));
    assert_eq!((&*denied.denied_by().unwrap().rule.name, denied.outcome.now), ("login", support::START));
    assert_eq!(denied.retry, When::After(Span::from_secs(1)));

    let local = Origin::Local(Reason::Open);
    assert_eq!(node.decide("api", without_login), (true, local), "the denied one took nothing");
    assert_eq!(node.decide("api", without_login), (false, local), "narrow has a share of one");
    let looked = decide(&node.engine, &pinned, "api", &fields[2..3]).unwrap();
    assert_eq!(looked.outcome.readings[0].remaining, 8, "one before and one now, of ten");
    for _ in 0..5 {
        assert_eq!(node.decide("api", only_free), (true, Origin::Outage(Reason::Open)));
    }
    assert_eq!(node.degraded("api", Reason::Open) + node.degraded("api", Reason::Unreachable), 9);
}

#[test]
fn a_cost_beyond_the_share_is_an_outage_and_one_beyond_the_limit_never_passes() {
    let node = Centre::new().node(one(&["10/hour"], "local 50%"));
    node.link.set(Mode::Unreachable);
    assert_eq!(ask(&node, 6, None).1, Origin::Outage(Reason::Unreachable));
    assert_eq!(ask(&node, 11, None), (Verdict::Deny, Origin::Local(Reason::Open), When::Never));
    assert_eq!(ask(&node, 5, None).0, Verdict::Allow);
}

#[test]
fn an_observed_rule_denies_no_request() {
    let shadow =
        Rule { on_outage: "deny".parse().unwrap(), ..rule::observed("shadow", &["ip"], &["1 in total"]) };
    let node = Centre::new().node(policies(vec![shadow], &[("api", &["shadow"])]));
    node.link.set(Mode::Unreachable);
    for _ in 0..3 {
        assert!(node.decide("api", &IP).0);
    }
}

#[test]
fn an_engine_starts_during_an_outage_and_catches_up_after_it() {
    let centre = Centre::new();
    let first = centre.node(one(&["10/hour"], "local 50%"));
    block_on(first.engine.config.set_override("ip", "192.0.2.1", vec!["2/hour".parse().unwrap()])).unwrap();
    let receipt = {
        let pinned = first.engine.pin();
        let decision = decide(&first.engine, &pinned, "api", &IP).unwrap();
        first.engine.receipt(&decision).unwrap()
    };

    let second = centre.node_behind(one(&["10/hour"], "local 50%"), Mode::LosesQuestions);
    assert_eq!(second.engine.counters.health(), Health::Degraded(Reason::Timeout));
    assert_eq!(second.decide("api", &IP), (true, Origin::Local(Reason::Open)));
    assert!(!second.engine.config.is_overridden("ip", "192.0.2.1"));
    let forged = block_on(second.engine.refund(&second.engine.pin(), &receipt, RefundPart::All));
    assert_eq!(forged, Err(RefundFault::Forged), "its secret is not known yet");

    second.link.set(Mode::ReadsSlowly);
    for _ in 1..Breaker::PROBES {
        second.advance(Span::from_secs(1));
        second.tend();
    }
    second.advance(Span::from_secs(1));
    {
        let mut tending = Box::pin(second.engine.tend());
        assert!(block_on(poll_once(&mut tending)).is_none());
        let early = second.decide("api", &IP);
        assert_eq!(early, (true, Origin::Local(Reason::Open)), "what it missed is not known yet");
    }
    second.link.set(Mode::Up);
    let before = second.calls();
    second.tend_later();
    assert_eq!(second.engine.counters.health(), Health::Up);
    assert_eq!(
        second.calls() - before,
        12,
        "six to read it all, five that say it is the latest, and a report"
    );
    assert!(second.engine.config.is_overridden("ip", "192.0.2.1"));
    assert_eq!(
        block_on(second.engine.refund(&second.engine.pin(), &receipt, RefundPart::All)),
        Ok(Refunded::Done)
    );
    assert_eq!(second.decide("api", &IP), (true, Origin::Store));
}

#[test]
fn an_override_set_on_one_node_holds_on_another_within_a_second() {
    let centre = Centre::new();
    let [first, second] = [(); 2].map(|()| centre.node(one(&["10/hour"], "local 50%")));
    for limits in [vec!["1/hour".parse().unwrap()], vec!["3/hour".parse().unwrap()]] {
        let number = |node: &Node| {
            let pinned = node.engine.pin();
            pinned.policies.rule("ip").unwrap().plan_at("192.0.2.1").limits()[0].number()
        };
        block_on(first.engine.config.set_override("ip", "192.0.2.1", limits.clone())).unwrap();
        assert_eq!(number(&first), limits[0].number());
        for _ in 0..3 {
            second.advance(Span::from_millis(250));
            second.tend();
        }
        assert_eq!(number(&second), limits[0].number());
    }
    let before = second.calls();
    for _ in 0..8 {
        second.advance(Span::from_millis(250));
        second.tend();
    }
    assert_eq!(second.calls() - before, 20, "a look at each of five namespaces each half second");
}

#[test]
fn after_an_outage_the_run_time_configuration_is_read_again_though_its_version_is_the_same() {
    let node = Centre::new().node(one(&["10/hour"], "local 50%"));
    let number = || node.engine.pin().policies.rule("ip").unwrap().plan_at("192.0.2.1").limits()[0].number();
    block_on(node.engine.config.set_override("ip", "192.0.2.1", vec!["2/hour".parse().unwrap()])).unwrap();
    // As after a failover to a lagging replica, when another node has made a change since.
    *node.link.replaced.lock() = Some(("override/ip/192.0.2.1".to_owned(), b"5/hour".to_vec()));
    node.tend_later();
    assert_eq!(number(), 2);
    node.link.set(Mode::Unreachable);
    node.tend_later();
    node.link.set(Mode::Up);
    node.tend_later();
    assert_eq!((node.engine.counters.health(), number()), (Health::Up, 5));
}

#[test]
fn a_receipt_goes_back_to_where_it_was_taken() {
    let node = Centre::new().node(one(&["2/hour"], "local 50%"));
    node.link.set(Mode::Unreachable);
    let pinned = node.engine.pin();
    let local = decide(&node.engine, &pinned, "api", &IP).unwrap();
    let receipt = node.engine.receipt(&local).unwrap();
    assert!(!node.decide("api", &IP).0);
    assert_eq!(block_on(node.engine.refund(&pinned, &receipt, RefundPart::All)), Ok(Refunded::Done));
    assert_eq!(block_on(node.engine.refund(&pinned, &receipt, RefundPart::All)), Ok(Refunded::Already));
    assert!(node.decide("api", &IP).0, "the share is free again");

    let elsewhere = Centre::new().node(one(&["2/hour"], "local 50%"));
    let foreign = block_on(elsewhere.engine.refund(&elsewhere.engine.pin(), &receipt, RefundPart::All));
    assert_eq!(foreign, Err(RefundFault::Forged), "another process knows nothing of it");
    node.link.set(Mode::Up);
    node.tend_later();
    let taken = decide(&node.engine, &pinned, "api", &IP).unwrap();
    assert_eq!(
        (taken.origin, taken.outcome.readings[0].remaining),
        (Origin::Store, 1),
        "nothing was given to the store"
    );
    let receipt = node.engine.receipt(&taken).unwrap();
    node.advance(Breaker::FLAP_WITHIN);
    node.link.set(Mode::Unreachable);
    let gone = block_on(node.engine.refund(&pinned, &receipt, RefundPart::All));
    assert!(matches!(gone, Err(RefundFault::Store(StoreError::Unavailable { .. }))), "{gone:?}");
    node.link.set(Mode::Up);
    node.tend_later();
    assert_eq!(block_on(node.engine.refund(&pinned, &receipt, RefundPart::All)), Ok(Refunded::Done));
}

#[test]
fn charges_whose_reply_was_lost_are_undone_after_recovery() {
    let limits = ["4/hour sliding", "3 at once for 10m"];
    let node = Centre::new().node(one(&limits, "local 50%"));
    node.link.set(Mode::LosesAnswers);
    for id in ["a", "b", "c"] {
        ask(&node, 1, Some(id));
    }
    assert_eq!(node.engine.counters.health(), Health::Degraded(Reason::Timeout));
    let pinned = node.engine.pin();
    let plan = Arc::clone(&pinned.policies.rule("ip").unwrap().plan);
    node.link.set(Mode::Up);
    node.tend_later();
    assert_eq!(node.engine.counters.health(), Health::Up);
    node.tend();
    assert_eq!(node.link.retracted.lock().len(), 3);
    let outcome = block_on(node.engine.counters.look(&plan, "192.0.2.1")).unwrap();
    let remaining: Vec<u64> = outcome.readings.iter().map(|reading| reading.remaining).collect();
    assert_eq!(remaining, [4, 3], "as if they had never been");
}

#[test]
fn a_failure_whose_reply_was_lost_is_undone_after_recovery() {
    let ladder = rule::rejecting("ip", &["ip"], &["ladder 4 +2s then 11 lock 15m"]);
    let node = Centre::new().node(policies(vec![ladder], &[("api", &["ip"])]));
    assert_eq!(ask(&node, 1, None).1, Origin::Store);
    node.link.set(Mode::LosesAnswers);
    for _ in 0..2 {
        let (verdict, origin, _) = ask(&node, 1, None);
        assert_eq!((verdict, origin), (Verdict::Deny, Origin::Outage(Reason::Timeout)));
    }
    let pinned = node.engine.pin();
    let plan = Arc::clone(&pinned.policies.rule("ip").unwrap().plan);
    node.link.set(Mode::Up);
    node.tend_later();
    node.tend();
    let reading = block_on(node.engine.counters.look(&plan, "192.0.2.1")).unwrap().readings[0];
    assert_eq!(reading.capacity - reading.remaining, 1, "only the one that was answered");
}

#[test]
fn a_take_whose_caller_has_gone_is_undone_too() {
    let node = Centre::new().node(one(&["3 at once for 10m"], "local 50%"));
    node.link.set(Mode::Hangs);
    {
        let pinned = node.engine.pin();
        let attempt = Attempt { policy: "api", fields: &IP, cost: 1, id: Some("a") };
        let mut deciding = Box::pin(node.engine.decide(&pinned, &attempt));
        assert!(block_on(poll_once(&mut deciding)).is_none());
    }
    node.link.set(Mode::Up);
    node.tend();
    assert!(node.link.retracted.lock().is_empty(), "the take may still be on its way");
    node.tend_later();
    assert_eq!(node.link.retracted.lock().len(), 1);
    assert_eq!(ask(&node, 1, Some("b")).1, Origin::Store);
    node.tend_later();
    assert_eq!(node.link.retracted.lock().len(), 1, "what was answered is not undone");
}

#[test]
fn pending_retractions_are_kept_and_those_beyond_the_bound_dropped_and_counted() {
    let node = Centre::new().node(one(&["100/hour sliding"], "local 50%"));
    let dropped = || node.engine.counters.store_meters().unwrap().retractions_dropped();
    for number in 0..10_003_u64 {
        node.link.set(Mode::LosesAnswers);
        ask(&node, 1, None);
        // A success keeps the breaker closed, so that every attempt calls the store.
        node.link.set(Mode::Up);
        drop(block_on(node.engine.counters.look(&node.engine.pin().policies.rule("ip").unwrap().plan, "x")));
        assert_eq!(dropped(), (number + 1).saturating_sub(10_000));
    }
    node.link.set(Mode::LosesQuestions);
    node.tend_later();
    assert!(node.link.retracted.lock().is_empty());
    node.link.set(Mode::Up);
    node.tend_later();
    assert!(!node.link.retracted.lock().is_empty());
}

#[test]
fn one_probe_is_in_flight_and_recovery_waits_for_it_alone() {
    let node = Centre::new().node(one(&["1000/hour"], "local 50%"));
    node.link.set(Mode::Unreachable);
    node.decide("api", &IP);
    node.link.set(Mode::Hangs);
    node.advance(Span::from_secs(1));
    let at_start = node.link.probes.load(std::sync::atomic::Ordering::SeqCst);
    let probes = || node.link.probes.load(std::sync::atomic::Ordering::SeqCst) - at_start;
    let mut first = Box::pin(node.engine.tend());
    assert!(block_on(poll_once(&mut first)).is_none());
    for _ in 0..20 {
        node.advance(Span::from_secs(1));
        assert!(block_on(poll_once(Box::pin(node.engine.tend()))).is_some(), "it has nothing to wait for");
        assert_eq!(node.decide("api", &IP), (true, Origin::Local(Reason::Open)));
    }
    assert_eq!(probes(), 1);
    drop(first);
    node.link.set(Mode::Up);
    node.tend_later();
    assert_eq!(
        (probes(), node.engine.counters.health()),
        (1 + Breaker::PROBES as usize, Health::Up),
        "one that was given up is not waited for"
    );
}

#[test]
fn it_is_back_within_three_seconds_of_the_cause_and_probes_are_spread() {
    for mode in [Mode::Unreachable, Mode::LosesQuestions] {
        let node = Centre::new().node(one(&["1000/hour"], "local 50%"));
        node.link.set(mode);
        repeat(3, &node);
        for _ in 0..40 {
            node.advance(Span::from_millis(250));
            node.tend();
        }
        let probes = node.link.probes.load(std::sync::atomic::Ordering::SeqCst);
        assert!((8..=20).contains(&probes), "{probes} probes in ten seconds");
        node.link.set(Mode::Up);
        for _ in 0..7 {
            node.advance(Span::from_millis(250));
            node.tend();
        }
        assert_eq!(node.engine.counters.health(), Health::Up, "after 1.75 s");
    }
}

#[test]
fn a_store_that_failed_once_is_asked_until_it_is_known_how_it_does() {
    let node = Centre::new().node(one(&["1000/hour"], "local 50%"));
    node.link.set(Mode::LosesQuestions);
    repeat(1, &node);
    for _ in 0..2 {
        assert_eq!(node.engine.counters.health(), Health::Up);
        node.advance(Span::from_millis(200));
        node.tend();
    }
    assert_eq!(
        node.engine.counters.health(),
        Health::Degraded(Reason::Timeout),
        "with one attempt in half a second"
    );
}

#[test]
fn a_store_is_asked_for_its_health_though_it_answers() {
    let node = Centre::new().node(one(&["1000/hour"], "local 50%"));
    let at_start = node.link.probes.load(std::sync::atomic::Ordering::SeqCst);
    let probes = || node.link.probes.load(std::sync::atomic::Ordering::SeqCst) - at_start;
    for _ in 0..80 {
        node.advance(Span::from_millis(250));
        repeat(1, &node);
        node.tend();
    }
    assert_eq!(probes(), 2, "every ten seconds, in twenty");
}

#[test]
fn a_slow_read_does_not_undo_an_override_set_meanwhile() {
    let node = Centre::new().node(one(&["10/hour"], "local 50%"));
    let other = node.link.centre.node(one(&["10/hour"], "local 50%"));
    block_on(other.engine.config.set_override("ip", "192.0.2.9", vec!["1/hour".parse().unwrap()])).unwrap();
    node.advance(Span::from_secs(1));
    node.link.set(Mode::ReadsSlowly);
    let mut reading = Box::pin(node.engine.tend());
    assert!(block_on(poll_once(&mut reading)).is_none());
    let limits = vec!["2/hour".parse().unwrap()];
    let mut setting = Box::pin(node.engine.config.set_override("ip", "192.0.2.1", limits));
    assert!(block_on(poll_once(&mut setting)).is_none());
    node.link.set(Mode::Up);
    block_on(setting).unwrap();
    block_on(reading);
    assert!(node.engine.config.is_overridden("ip", "192.0.2.1"));
    node.tend_later();
    assert!(
        node.engine.config.is_overridden("ip", "192.0.2.1")
            && node.engine.config.is_overridden("ip", "192.0.2.9")
    );
}

#[test]
fn a_store_failure_is_noticed_without_decisions() {
    let node = Centre::new().node(one(&["1000/hour"], "local 50%"));
    node.link.set(Mode::Unreachable);
    node.advance(Span::from_millis(500));
    node.tend();
    assert_eq!(
        node.engine.counters.health(),
        Health::Degraded(Reason::Unreachable),
        "no decision was needed to notice it"
    );
}

#[test]
fn peeking_does_as_deciding_would_and_counts_nothing() {
    let node = Centre::new().node(one(&["2/hour"], "local 50%"));
    node.link.set(Mode::Unreachable);
    let pinned = node.engine.pin();
    let attempt = Attempt { policy: "api", fields: &IP, cost: 1, id: None };
    for _ in 0..3 {
        let peeked = block_on(node.engine.peek(&pinned, &attempt)).unwrap();
        assert!(peeked.allowed() && matches!(peeked.origin, Origin::Local(_)));
    }
    assert!(node.engine.counters.store_meters().unwrap().degraded().is_empty());
    let plan = &pinned.policies.rule("ip").unwrap().plan;
    let looked = block_on(node.engine.counters.look(plan, "192.0.2.1"));
    assert!(matches!(looked, Err(StoreError::Unavailable { .. })), "what all have used is not known here");
}

#[test]
fn a_hold_ends_wherever_it_was_taken() {
    let node = Centre::new().node(one(&["4 at once for 10m"], "local 50%"));
    let pinned = node.engine.pin();
    let plan = &pinned.policies.rule("ip").unwrap().plan;
    let counter = Counter { plan, key: "192.0.2.1" };
    let release = |id| {
        block_on(node.engine.counters.holds(&counter, HoldsOrder::Release(id))).map(|report| report.found)
    };
    ask(&node, 1, Some("there"));
    node.link.set(Mode::Unreachable);
    ask(&node, 1, Some("here"));
    ask(&node, 1, Some("later"));
    assert_eq!(release("here"), Ok(true));
    assert!(release("there").is_err(), "the store has it, and is not there");
    let listed = block_on(node.engine.counters.holds(&counter, HoldsOrder::List));
    assert!(listed.is_err());
    node.link.set(Mode::Up);
    node.tend_later();
    assert_eq!(release("later"), Ok(true), "taken in the outage and released after it");
    assert_eq!(release("later"), Ok(false));
    assert_eq!(release("there"), Ok(true));
}

#[test]
fn a_list_that_takes_too_long_says_nothing_about_the_store() {
    let node = Centre::new().node(one(&["4 at once for 10m"], "local 50%"));
    let pinned = node.engine.pin();
    let plan = &pinned.policies.rule("ip").unwrap().plan;
    let counter = Counter { plan, key: "192.0.2.1" };
    node.link.set(Mode::LosesQuestions);
    for _ in 0..10 {
        assert_eq!(
            block_on(node.engine.counters.holds(&counter, HoldsOrder::List)),
            Err(StoreError::TimedOut)
        );
        assert_eq!(block_on(node.engine.counters.replace_holds(&counter, &["a"])), Err(StoreError::TimedOut));
    }
    assert_eq!(node.engine.counters.health(), Health::Up);
    for _ in 0..3 {
        let released = block_on(node.engine.counters.holds(&counter, HoldsOrder::Release("a")));
        assert_eq!(released, Err(StoreError::TimedOut));
    }
    assert_ne!(node.engine.counters.health(), Health::Up, "one hold is nothing that takes long");
}

#[test]
fn a_reset_clears_the_local_counts_too() {
    let node = Centre::new().node(one(&["2/hour"], "local 50%"));
    node.link.set(Mode::Unreachable);
    assert!(node.decide("api", &IP).0 && !node.decide("api", &IP).0);
    node.link.set(Mode::Up);
    node.tend_later();
    block_on(node.engine.counters.forget(Forget::Rule("ip"))).unwrap();
    node.link.set(Mode::Unreachable);
    assert!(node.decide("api", &IP).0);
}
