//! What operators can find out: which keys an observed rule would have denied, which keys are near their limits,
//! and what a decision read.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crate::support::{self, Stand, decide, policies, rule};
use futures_lite::future::block_on;
use tollgate_core::{Attempt, Decision, Rule, Span, Verdict, When};
use tollgate_engine::decision_token::{DenialForm, DenialSettings, MOST_TOKEN};
use tollgate_engine::receipt::Forged;

fn ask<'a>(
    stand: &Stand,
    pinned: &'a tollgate_engine::Snapshot,
    ip: &'a [(&'a str, &'a str)],
) -> Decision<'a> {
    decide(&stand.engine, pinned, "api", ip).unwrap()
}

#[test]
fn an_observed_rule_names_the_keys_that_it_would_have_denied() {
    let strict = rule::observed("strict", &["ip"], &["2/hour"]);
    let loose = rule::rejecting("loose", &["ip"], &["5/hour"]);
    let stand = Stand::new(policies(vec![strict, loose], &[("api", &["strict", "loose"])]));
    for _ in 0..7 {
        ask(&stand, &stand.pin(), &[("ip", "192.0.2.1")]);
    }
    for _ in 0..2 {
        ask(&stand, &stand.pin(), &[("ip", "192.0.2.2")]);
    }
    let observer = &stand.engine.observer;
    let named: Vec<_> =
        observer.observed.top(9).into_iter().map(|one| (one.rule, one.key, one.count)).collect();
    assert_eq!(named, [("strict".to_owned(), "192.0.2.1".to_owned(), 5)]);
    let denied: Vec<_> = observer.offenders.top(9).into_iter().map(|one| (one.rule, one.count)).collect();
    assert_eq!(denied, [("loose".to_owned(), 2)], "an observed rule denies nothing");
    let journal =
        observer.journal.latest_of(99, |entry| entry.observed.iter().any(|rule| **rule == *"strict"));
    assert_eq!(journal.len(), 5);
    assert_eq!(journal.iter().filter(|entry| entry.verdict == Verdict::Allow).count(), 3);
}

#[test]
fn attempts_that_an_observed_rule_would_have_denied_are_not_displaced_by_a_flood_of_others() {
    let strict = rule::observed("strict", &["ip"], &["1/hour"]);
    let stand = Stand::new(policies(vec![strict], &[("api", &["strict"])]));
    let flood = |n: usize| {
        let ip = format!("198.51.{}.{}", n / 250, n % 250);
        ask(&stand, &stand.pin(), &[("ip", &ip)]);
    };
    (0..5_000).for_each(flood);
    ask(&stand, &stand.pin(), &[("ip", "192.0.2.1")]);
    ask(&stand, &stand.pin(), &[("ip", "192.0.2.1")]);
    let found = stand.engine.observer.journal.latest_of(9, |entry| !entry.observed.is_empty());
    assert_eq!(found.len(), 1, "the budget of allowed attempts is used up");
}

#[test]
fn keys_are_ranked_by_the_used_share_of_their_tightest_limit_until_it_is_reset() {
    let both = rule::rejecting("ip", &["ip"], &["10/min", "100/day"]);
    let bound = rule::rejecting("size", &["ip"], &["9 size per attempt"]);
    let seen = rule::observed("seen", &["ip"], &["1/hour"]);
    let stand = Stand::new(policies(vec![both, bound, seen], &[("api", &["ip", "size", "seen"])]));
    let fields = |ip: &'static str| [("ip", ip), ("size", "8")];
    for (ip, times) in [("192.0.2.1", 8), ("192.0.2.2", 9), ("192.0.2.3", 12), ("192.0.2.4", 7)] {
        for _ in 0..times {
            ask(&stand, &stand.pin(), &fields(ip));
        }
    }
    let top = |most: usize| {
        let now = stand.engine.counters.now();
        stand.engine.observer.nearest.top(most, block_on(now).unwrap())
    };
    let near: Vec<_> =
        top(9).into_iter().map(|near| (near.key, near.limit, near.used, near.capacity)).collect();
    let shown = |key: &str, used| (key.to_owned(), "10/min".to_owned(), used, 10);
    assert_eq!(near, [shown("192.0.2.3", 10), shown("192.0.2.2", 9)], "eight of ten leave a fifth");
    assert_eq!(top(1).len(), 1);
    stand.engine.observer.nearest.forget(Some("ip"), Some("192.0.2.3"));
    assert_eq!(top(9).len(), 1);
    stand.clock.advance(Span::from_secs(60));
    assert!(top(9).is_empty(), "the windows are over");
}

#[test]
fn the_table_of_near_keys_is_bounded_and_keeps_the_nearest() {
    let stand = Stand::new(policies(vec![rule::rejecting("ip", &["ip"], &["10/day"])], &[("api", &["ip"])]));
    let cost = |ip: &str, cost| {
        let fields = [("ip", ip)];
        let attempt = Attempt { policy: "api", fields: &fields, cost, id: None };
        block_on(stand.engine.decide(&stand.pin(), &attempt)).unwrap();
        stand.clock.advance(Span::from_millis(1));
    };
    cost("192.0.2.1", 10);
    for n in 0..3_000 {
        cost(&format!("198.51.{}.{}", n / 250, n % 250), 9);
    }
    let now = block_on(stand.engine.counters.now()).unwrap();
    let near = stand.engine.observer.nearest.top(usize::MAX, now);
    assert!(near.len() <= 1_024 && near.len() > 512, "{}", near.len());
    assert_eq!(near[0].key, "192.0.2.1");
}

#[test]
fn a_token_has_the_readings_of_every_rule_and_cannot_be_forged() {
    let hidden =
        Rule { secret: true, ..rule::rejecting("key", &["api_key"], &["9/hour"]) }.with_secret_keys();
    let ip = rule::rejecting("ip", &["ip"], &["1/hour", "5/day"]);
    let stand = Stand::new(policies(vec![ip, hidden], &[("api", &["key", "ip"])]));
    let fields = [("ip", "192.0.2.1"), ("api_key", "hush-hush")];
    assert!(ask(&stand, &stand.pin(), &fields).allowed());
    let pinned = stand.pin();
    let denied = ask(&stand, &pinned, &fields);
    let observer = &stand.engine.observer;
    assert_eq!(observer.denial_token(&denied), None, "denials have none unless that is configured");
    observer.set_denials(DenialSettings { form: DenialForm::Token, ..DenialSettings::default() });
    let (member, token) = observer.denial_token(&denied).unwrap();
    assert_eq!(member, "decision");
    assert!(token.len() <= MOST_TOKEN && !token.contains("hush"), "{token}");
    let told = observer.open_decision(&token).unwrap();
    assert_eq!((told.at, &*told.policy, told.verdict), (support::START, "api", Verdict::Deny));
    assert_eq!((told.rule.as_deref(), told.cost, told.complete), (Some("ip"), 1, true));
    assert_eq!(told.retry, When::After(Span::from_secs(3_600)));
    let [ip, key] = &told.lines[..] else { panic!("{told:?}") };
    assert_eq!((&*ip.rule, &*ip.key, ip.limits.len()), ("ip", "192.0.2.1", 2));
    assert_eq!((&*ip.limits[0].0, ip.limits[0].1.remaining, ip.limits[1].1.remaining), ("1/hour", 0, 4));
    assert_eq!((&*key.rule, key.limits[0].1.remaining), ("key", 8));
    assert!(observer.shown_key_of(key, None).starts_with('#'), "though its rule may be gone");
    assert_eq!(
        observer.journal.latest(1)[0].token.as_ref().map(|own| observer.open_decision(own).unwrap()),
        Some(told)
    );

    let receipt = stand.engine.receipt(&ask(&stand, &pinned, &[("ip", "192.0.2.9")])).unwrap();
    let other = Stand::new(policies(Vec::new(), &[]));
    assert_eq!(other.engine.observer.open_decision(&token), Err(Forged), "of another store");
    for text in [&*receipt, "", "x", &token[1..], &token[..token.len() - 1], &"A".repeat(5_000)] {
        assert_eq!(observer.open_decision(text), Err(Forged), "{text}");
    }
    let refund = stand.engine.refund(&pinned, &token, tollgate_engine::engine::RefundPart::All);
    assert!(block_on(refund).is_err(), "nor is a token a receipt");
    let form = DenialForm::Link { before: "https://ops/".to_owned(), after: "?x".to_owned() };
    observer.set_denials(DenialSettings { form, ..DenialSettings::default() });
    let (member, link) = observer.denial_token(&denied).unwrap();
    assert!(member == "decision_url" && link.starts_with("https://ops/") && link.ends_with("?x"), "{link}");
}

#[test]
fn a_token_stays_short_and_says_that_it_is_not_complete() {
    let rules = (0..8).map(|n| rule::rejecting(&format!("r{n}"), &["path"], &["1/hour"])).collect();
    let names: Vec<String> = (0..8).map(|n| format!("r{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let stand = Stand::new(policies(rules, &[("api", &names)]));
    let path = "/x".repeat(300);
    let fields = [("path", &*path)];
    ask(&stand, &stand.pin(), &fields);
    let pinned = stand.pin();
    let token = stand.engine.observer.decision_token(&ask(&stand, &pinned, &fields));
    assert!(token.len() <= MOST_TOKEN, "{}", token.len());
    let told = stand.engine.observer.open_decision(&token).unwrap();
    assert!(!told.complete && told.lines[0].rule == "r0", "the rule that denied comes first: {told:?}");
}
