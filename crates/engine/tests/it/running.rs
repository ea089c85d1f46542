//! Changes while the engine runs: policies, overrides and refunds.

use crate::support::{Stand, decide, policies, rule, start};
use futures_lite::future::block_on;
use tollgate_core::store::{Counter, Forget, Refunded};
use tollgate_core::{Span, Verdict};
use tollgate_engine::Fault;
use tollgate_engine::engine::{RefundFault, RefundPart};

#[test]
fn a_reload_changes_limits_and_keeps_counters() {
    let stand = Stand::new(policies(vec![rule::rejecting("ip", &["ip"], &["3/hour"])], &[("api", &["ip"])]));
    let fields = [("ip", "192.0.2.1")];
    for _ in 0..3 {
        assert!(decide(&stand.engine, &stand.pin(), "api", &fields).unwrap().allowed());
    }
    assert!(!decide(&stand.engine, &stand.pin(), "api", &fields).unwrap().allowed());
    stand.engine.reload(policies(
        vec![rule::rejecting("ip", &["ip"], &["5/hour"])],
        &[("api", &["ip"]), ("new", &["ip"])],
    ));
    let pinned = stand.pin();
    let decision = decide(&stand.engine, &pinned, "new", &fields).unwrap();
    assert!(decision.allowed());
    assert_eq!(decision.outcome.readings[0].remaining, 1, "three taken before and one now, of five");
}

#[test]
fn policies_pinned_before_a_reload_still_decide() {
    let stand = Stand::new(policies(vec![rule::rejecting("ip", &["ip"], &["3/hour"])], &[("api", &["ip"])]));
    let pinned = stand.pin();
    stand.engine.reload(policies(vec![rule::rejecting("other", &[], &["1/hour"])], &[("other", &["other"])]));
    assert!(decide(&stand.engine, &pinned, "api", &[("ip", "192.0.2.1")]).unwrap().allowed());
    let now = stand.pin();
    assert!(matches!(decide(&stand.engine, &now, "api", &[]), Err(Fault::Mistake(_))));
}

#[test]
fn an_override_that_no_attempt_could_meet_any_more_is_left_out() {
    let by = |field| policies(vec![rule::rejecting("a", &[field], &["2/hour"])], &[("api", &["a"])]);
    let stand = Stand::new(by("user"));
    let limits = vec!["5 size per attempt".parse().unwrap()];
    block_on(stand.engine.config.set_override("a", "x", limits)).unwrap();
    stand.engine.reload(by("size"));
    let pinned = stand.pin();
    let decision = decide(&stand.engine, &pinned, "api", &[("size", "x")]).unwrap();
    assert_eq!(decision.binding().unwrap().0.number(), 2);
    stand.engine.reload(by("user"));
    let pinned = stand.pin();
    let decision = decide(&stand.engine, &pinned, "api", &[("user", "x"), ("size", "6")]).unwrap();
    assert!(!decision.allowed(), "it is not forgotten");
}

#[test]
fn an_override_holds_at_once_survives_a_restart_and_a_reload_and_goes_when_removed() {
    let base = || policies(vec![rule::rejecting("ip", &["ip"], &["1/hour"])], &[("api", &["ip"])]);
    let stand = Stand::new(base());
    let fields = [("ip", "192.0.2.1")];
    let limits = vec!["3/hour".parse().unwrap()];
    block_on(stand.engine.config.set_override("ip", "192.0.2.1", limits)).unwrap();
    assert!(stand.engine.config.is_overridden("ip", "192.0.2.1"));
    let allowed = |engine| decide(engine, &engine.pin(), "api", &fields).unwrap().allowed();
    assert!(allowed(&stand.engine) && allowed(&stand.engine));

    let restarted = start(base(), &stand.store);
    assert!(allowed(&restarted), "the third");
    assert!(!allowed(&restarted));
    restarted.reload(base());
    let pinned = restarted.pin();
    assert_eq!(decide(&restarted, &pinned, "api", &fields).unwrap().binding().unwrap().0.number(), 3);

    assert!(block_on(restarted.config.remove_override("ip", "192.0.2.1")).unwrap().is_some());
    let pinned = restarted.pin();
    assert_eq!(decide(&restarted, &pinned, "api", &fields).unwrap().binding().unwrap().0.number(), 1);
    assert!(
        block_on(restarted.config.remove_override("ip", "192.0.2.1")).unwrap().is_none(),
        "nothing is left to remove"
    );
    assert!(!start(base(), &stand.store).config.is_overridden("ip", "192.0.2.1"));
}

#[test]
fn a_receipt_gives_back_at_every_level_once() {
    let levels = vec![
        rule::rejecting("global", &[], &["10/hour"]),
        rule::rejecting("ip", &["ip"], &["1/hour", "5/day calendar"]),
    ];
    let stand = Stand::new(policies(levels, &[("api", &["global", "ip"])]));
    let fields = [("ip", "192.0.2.1")];
    let pinned = stand.pin();
    let first = decide(&stand.engine, &pinned, "api", &fields).unwrap();
    let receipt = stand.engine.receipt(&first).unwrap();
    assert!(!decide(&stand.engine, &pinned, "api", &fields).unwrap().allowed());
    assert_eq!(block_on(stand.engine.refund(&pinned, &receipt, RefundPart::All)), Ok(Refunded::Done));
    let again = decide(&stand.engine, &pinned, "api", &fields).unwrap();
    assert!(again.allowed());
    let remaining: Vec<u64> = again.outcome.readings.iter().map(|reading| reading.remaining).collect();
    assert_eq!(remaining, [9, 0, 4], "as if the first had never been");
    assert_eq!(block_on(stand.engine.refund(&pinned, &receipt, RefundPart::All)), Ok(Refunded::Already));
    assert_eq!(block_on(stand.engine.refund(&pinned, "made up", RefundPart::All)), Err(RefundFault::Forged));
}

#[test]
fn calendar_limits_turn_their_page_with_the_stores_clock() {
    let stand = Stand::new(policies(
        vec![rule::rejecting("day", &[], &["1/day calendar in Asia/Tokyo"])],
        &[("api", &["day"])],
    ));
    let pinned = stand.pin();
    assert!(decide(&stand.engine, &pinned, "api", &[]).unwrap().allowed());
    let denied = decide(&stand.engine, &pinned, "api", &[]).unwrap();
    let tollgate_core::When::After(wait) = denied.retry else { panic!("a time is known") };
    // It is half past five in the morning of Monday there.
    assert_eq!(wait, Span::from_secs(18 * 3_600 + 30 * 60));
    for _ in 0..400 {
        stand.clock.advance(Span::from_secs(86_400));
        assert!(decide(&stand.engine, &pinned, "api", &[]).unwrap().allowed());
        assert_eq!(decide(&stand.engine, &pinned, "api", &[]).unwrap().verdict, Verdict::Deny);
    }
}

#[test]
fn forgetting_starts_keys_rules_or_everything_afresh() {
    let rules = vec![rule::rejecting("a", &["ip"], &["1/hour"]), rule::rejecting("b", &["ip"], &["1/hour"])];
    let stand = Stand::new(policies(rules, &[("a", &["a"]), ("b", &["b"])]));
    let pinned = stand.pin();
    let take = |policy, ip| decide(&stand.engine, &pinned, policy, &[("ip", ip)]).unwrap().allowed();
    for (policy, ip) in [("a", "192.0.2.1"), ("a", "192.0.2.2"), ("b", "192.0.2.1")] {
        assert!(take(policy, ip) && !take(policy, ip));
    }
    let plan = &pinned.policies.rule("a").unwrap().plan;
    block_on(stand.engine.counters.forget(Forget::Key(Counter { plan, key: "192.0.2.1" }))).unwrap();
    assert!(take("a", "192.0.2.1") && !take("a", "192.0.2.2"));
    block_on(stand.engine.counters.forget(Forget::Rule("a"))).unwrap();
    assert!(take("a", "192.0.2.1") && take("a", "192.0.2.2") && !take("b", "192.0.2.1"));
    block_on(stand.engine.counters.forget(Forget::All)).unwrap();
    assert!(take("b", "192.0.2.1"));
}
