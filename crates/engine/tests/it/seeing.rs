//! What operators can see of decisions: counts, the journal, the worst offenders, usage.

use std::sync::Arc;

use crate::support::{Stand, decide, policies, rule};
use futures_lite::future::block_on;
use tollgate_core::{Deferral, OnExceed, Span, Verdict, When};

fn count(stand: &Stand, policy: &str, rule: &str, outcome: &str) -> u64 {
    let counts = stand.engine.observer.meters.counts();
    let found = counts
        .into_iter()
        .find(|(labels, _)| labels.each_ref().map(|label| &**label) == [policy, rule, outcome]);
    found.map_or(0, |(_, count)| count)
}

#[test]
fn every_decision_is_counted_under_the_rule_that_is_named() {
    let shadow = rule::observed("shadow", &["ip"], &["1/hour"]);
    let deferring = rule::with("slow", &["ip"], &["2/hour"], OnExceed::Defer(Default::default()));
    let stand = Stand::new(policies(vec![shadow, deferring], &[("api", &["shadow", "slow"])]));
    for _ in 0..5 {
        decide(&stand.engine, &stand.pin(), "api", &[("ip", "192.0.2.1")]).unwrap();
    }
    assert_eq!(count(&stand, "api", "", "allow"), 2);
    assert_eq!(count(&stand, "api", "slow", "defer"), 3);
    assert_eq!(
        count(&stand, "api", "shadow", "observe"),
        4,
        "exceeded from the second on, and never in the way"
    );
    assert_eq!(count(&stand, "api", "shadow", "deny"), 0);
}

#[test]
fn the_number_of_counters_does_not_depend_on_the_keys() {
    let stand = Stand::new(policies(vec![rule::rejecting("ip", &["ip"], &["1/hour"])], &[("api", &["ip"])]));
    decide(&stand.engine, &stand.pin(), "api", &[("ip", "192.0.2.1")]).unwrap();
    let before = stand.engine.observer.meters.counts().len();
    for n in 0..1_000 {
        let ip = format!("198.51.{}.{}", n / 250, n % 250);
        decide(&stand.engine, &stand.pin(), "api", &[("ip", &ip)]).unwrap();
        decide(&stand.engine, &stand.pin(), "api", &[("ip", &ip)]).unwrap();
    }
    assert_eq!(stand.engine.observer.meters.counts().len(), before);
}

#[test]
fn counts_survive_a_reload() {
    let set = || policies(vec![rule::rejecting("ip", &["ip"], &["9/hour"])], &[("api", &["ip"])]);
    let stand = Stand::new(set());
    decide(&stand.engine, &stand.pin(), "api", &[("ip", "192.0.2.1")]).unwrap();
    stand.engine.reload(set());
    decide(&stand.engine, &stand.pin(), "api", &[("ip", "192.0.2.1")]).unwrap();
    assert_eq!(count(&stand, "api", "", "allow"), 2);
}

#[test]
fn the_journal_tells_the_time_that_the_caller_was_told() {
    let jitter = Span::from_secs(3_600);
    let spread = OnExceed::Defer(Deferral { aligned: false, jitter });
    let stand =
        Stand::new(policies(vec![rule::with("slow", &["ip"], &["1/hour"], spread)], &[("api", &["slow"])]));
    let mut waits = Vec::new();
    for _ in 0..10 {
        let pinned = stand.pin();
        let decision = decide(&stand.engine, &pinned, "api", &[("ip", "192.0.2.1")]).unwrap();
        if let Verdict::Defer(at) = decision.verdict {
            waits.insert(0, When::After(at.since(decision.outcome.now)));
        }
    }
    let journal = stand.engine.observer.journal.latest(9);
    assert_eq!(journal.iter().map(|entry| entry.retry).collect::<Vec<_>>(), waits);
    assert!(waits.iter().any(|wait| *wait != waits[0]), "they are spread");
}

#[test]
fn the_journal_and_the_offenders_name_denied_keys_but_no_secret() {
    let mut secret = rule::rejecting("token", &["api_key"], &["1/hour"]);
    secret.secret = true;
    let rules = vec![rule::rejecting("ip", &["ip"], &["1/hour"]), secret];
    let stand = Stand::new(policies(rules, &[("api", &["ip"]), ("keys", &["token"])]));
    for _ in 0..3 {
        decide(&stand.engine, &stand.pin(), "api", &[("ip", "192.0.2.1")]).unwrap();
        decide(&stand.engine, &stand.pin(), "keys", &[("api_key", "hush-hush")]).unwrap();
        stand.clock.advance(Span::from_secs(1));
    }
    let journal = stand.engine.observer.journal.latest(10);
    let refused =
        journal.iter().find(|entry| entry.verdict == Verdict::Deny && entry.policy == "api").unwrap();
    assert_eq!((refused.rule.as_deref(), refused.key.as_deref()), (Some("ip"), Some("192.0.2.1")));
    let offenders = stand.engine.observer.offenders.top(10);
    assert!(offenders.iter().any(|offender| offender.key == "192.0.2.1" && offender.count == 2));
    let everything = format!("{journal:?} {offenders:?}");
    let pinned = stand.pin();
    stand.clock.advance(Span::from_secs(3_600));
    let allowed = decide(&stand.engine, &pinned, "keys", &[("api_key", "hush-hush")]).unwrap();
    let receipt =
        data_encoding::BASE64URL_NOPAD.decode(stand.engine.receipt(&allowed).unwrap().as_bytes()).unwrap();
    assert!(!receipt.windows(9).any(|window| window == b"hush-hush"));
    assert!(!everything.contains("hush-hush"), "{everything}");
}

#[test]
fn usage_is_that_of_the_fullest_limit_of_rules_without_a_key() {
    let rules = vec![
        rule::rejecting("global", &[], &["4/hour", "100/day"]),
        rule::rejecting("ip", &["ip"], &["9/hour"]),
    ];
    let stand = Stand::new(policies(rules, &[("api", &["global", "ip"])]));
    for _ in 0..3 {
        decide(&stand.engine, &stand.pin(), "api", &[("ip", "192.0.2.1")]).unwrap();
    }
    assert_eq!(block_on(stand.engine.counters.usage(&stand.pin())).unwrap(), [(Arc::from("global"), 0.75)]);
}

#[test]
fn while_limits_are_switched_off_everything_passes_and_nothing_is_counted() {
    let mut off = policies(vec![rule::rejecting("ip", &["ip"], &["1/hour"])], &[("api", &["ip"])]);
    off.enabled = false;
    let stand = Stand::new(off);
    for _ in 0..3 {
        assert!(decide(&stand.engine, &stand.pin(), "api", &[("ip", "192.0.2.1")]).unwrap().allowed());
    }
    assert!(
        decide(&stand.engine, &stand.pin(), "no such policy", &[]).is_err(),
        "a mistake is no matter of limits"
    );
    assert!(stand.store.is_empty());
    assert_eq!(count(&stand, "api", "", "allow"), 0);
}
