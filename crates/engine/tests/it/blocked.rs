//! The blocklist and the allowlist: a blocked attempt takes nothing, and operators can see everything about
//! it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;

use crate::support::{self, Stand, decide, policies, rule, start};
use futures_lite::future::block_on;
use tollgate_core::key::{FieldKind, Kinds, ValueError};
use tollgate_core::versioned_map::Namespace;
use tollgate_core::{
    Attempt, Author, Decision, Listing, Mistake, Origin, Policies, Roster, Rule, Span, Stance, Target,
    Timestamp, Verdict, When,
};
use tollgate_engine::{Engine, Fault, ListFault, Wish};

fn wish(engine: &Engine, target: &str, stance: Stance, lasts: Option<u64>) -> Wish {
    Wish {
        target: engine.lists.target(target).unwrap(),
        stance,
        lasts: lasts.map(Span::from_secs),
        reason: "spam".into(),
        show_reason: false,
        author: Author::Key("ops".into()),
    }
}

fn block(engine: &Engine, target: &str, lasts: Option<u64>) {
    block_on(engine.lists.put(vec![wish(engine, target, Stance::Block, lasts)])).unwrap();
}

fn allow(engine: &Engine, target: &str) {
    block_on(engine.lists.put(vec![wish(engine, target, Stance::Allow, None)])).unwrap();
}

fn unlist(engine: &Engine, target: &str) -> bool {
    block_on(engine.lists.remove(&engine.lists.target(target).unwrap())).unwrap()
}

fn configured(target: &str, stance: Stance, until: Option<Timestamp>) -> Listing {
    Listing {
        target: Target::parse(target, &Kinds::default()).unwrap(),
        stance,
        since: Timestamp::ZERO,
        until,
        reason: "".into(),
        show_reason: false,
        author: Author::Configuration,
        times: 0,
    }
}

fn base() -> Policies {
    let rules = vec![
        rule::rejecting("user", &["user"], &["10/hour"]),
        rule::rejecting("ip", &["ip"], &["10/hour"]),
        Rule { secret: true, ..rule::rejecting("key", &["api_key"], &["10/hour"]) },
    ];
    policies(
        rules,
        &[("by_user", &["user"]), ("by_ip", &["ip"]), ("both", &["user", "ip"]), ("keyed", &["key"])],
    )
}

fn is_blocked(stand: &Stand, policy: &str, fields: &[(&str, &str)]) -> bool {
    decide(&stand.engine, &stand.pin(), policy, fields).unwrap().blocked().is_some()
}

/// How much of a rule remains at a key.
fn remaining(stand: &Stand, rule: &str, key: &str) -> u64 {
    let pinned = stand.pin();
    let plan = &pinned.policies.rule(rule).unwrap().plan;
    block_on(stand.engine.counters.look(plan, key)).unwrap().readings[0].remaining
}

#[test]
fn a_blocked_client_takes_nothing_and_learns_when_the_block_ends() {
    let stand = Stand::new(base());
    block(&stand.engine, "203.0.113.0/24", Some(3_600));
    let pinned = stand.pin();
    let fields = [("user", "bob"), ("ip", "203.0.113.7")];
    let decision = decide(&stand.engine, &pinned, "both", &fields).unwrap();
    assert_eq!((decision.verdict, decision.origin), (Verdict::Deny, Origin::Blocked));
    assert_eq!(decision.retry, When::After(Span::from_secs(3_600)));
    assert_eq!(decision.blocked().unwrap().target.to_string(), "203.0.113.0/24");
    assert!(
        decision.lines().next().is_none() && decision.denied_by().is_none() && decision.binding().is_none()
    );
    assert_eq!((remaining(&stand, "user", "bob"), remaining(&stand, "ip", "203.0.113.7")), (10, 10));
    let peeked =
        block_on(stand.engine.peek(&pinned, &Attempt { policy: "both", fields: &fields, cost: 1, id: None }));
    assert_eq!(peeked.unwrap().origin, Origin::Blocked);

    stand.clock.advance(Span::from_micros(3_600_000_000 - 1));
    assert!(is_blocked(&stand, "both", &fields));
    stand.clock.advance(Span::from_micros(1));
    assert!(!is_blocked(&stand, "both", &fields), "it ends at its moment, by the store's clock");
    assert_eq!(remaining(&stand, "user", "bob"), 9);
}

#[test]
fn a_ban_for_good_has_no_time_to_wait_for() {
    let stand = Stand::new(base());
    block(&stand.engine, "user=bob", None);
    let pinned = stand.pin();
    let decision = decide(&stand.engine, &pinned, "by_user", &[("user", "bob")]).unwrap();
    assert_eq!((decision.retry, decision.wait()), (When::Never, None));
}

#[test]
fn a_decision_that_is_made_again_forgets_that_it_was_blocked() {
    let stand = Stand::new(base());
    block(&stand.engine, "user=bob", None);
    let pinned = stand.pin();
    let (bob, ann) = ([("user", "bob")], [("user", "ann")]);
    let mut decision = Decision::blank();
    for (fields, allowed) in [(&bob, false), (&ann, true), (&bob, false), (&ann, true)] {
        let attempt = Attempt { policy: "by_user", fields, cost: 1, id: None };
        block_on(stand.engine.decide_into(&pinned, &attempt, &mut decision)).unwrap();
        assert_eq!((decision.allowed(), decision.blocked().is_none()), (allowed, allowed), "{fields:?}");
    }
}

#[test]
fn blocked_attempts_are_metered_journaled_and_noted() {
    let stand = Stand::new(base());
    block(&stand.engine, "203.0.113.0/24", Some(60));
    for _ in 0..3 {
        assert!(is_blocked(&stand, "by_ip", &[("ip", "203.0.113.7")]));
    }
    let counts = stand.engine.observer.meters.counts();
    let blocked = counts
        .iter()
        .find(|([policy, rule, outcome], _)| (&**policy, &**rule, &**outcome) == ("by_ip", "", "blocked"));
    assert_eq!(blocked.unwrap().1, 3);
    assert!(!counts.iter().any(|([_, _, outcome], count)| &**outcome != "blocked" && *count > 0));
    let entry = &stand.engine.observer.journal.latest(1)[0];
    assert_eq!((entry.verdict, entry.origin), (Verdict::Deny, Origin::Blocked));
    assert_eq!((entry.rule.as_deref(), entry.key.as_deref()), (None, Some("203.0.113.0/24")));
    assert_eq!(entry.retry, When::After(Span::from_secs(60)));
    assert_eq!(entry.listing.as_ref().map(|listing| listing.target.to_string()), entry.key);
    assert!(entry.is_about("203.0.113.7"), "{:?}", entry.keys);
    assert_eq!(entry.correlation.as_ref().map(String::len), Some(16));
    let worst = &stand.engine.observer.offenders.top(1)[0];
    assert_eq!((&*worst.rule, &*worst.key, worst.count), ("blocklist", "203.0.113.0/24", 3));
}

#[test]
fn an_attempt_may_bring_an_address_that_no_rule_of_its_policy_knows() {
    let stand = Stand::new(base());
    let allowed = |fields: &[(&str, &str)]| {
        let pinned = stand.pin();
        decide(&stand.engine, &pinned, "by_user", fields).map(|decision| decision.allowed())
    };
    assert_eq!(allowed(&[("user", "bob"), ("ip", "203.0.113.7")]), Ok(true));
    assert_eq!(allowed(&[("client_ip", "2001:db8::1"), ("user", "bob")]), Ok(true));
    block(&stand.engine, "203.0.113.7", None);
    assert_eq!(allowed(&[("user", "bob"), ("ip", "203.0.113.7")]), Ok(false));
    assert_eq!(allowed(&[("ip", "::ffff:203.0.113.7")]), Ok(false), "blocked before it is looked for rules");
    unlist(&stand.engine, "203.0.113.7");
    for listed in [true, false] {
        if listed {
            block(&stand.engine, "198.51.100.1", None);
        } else {
            unlist(&stand.engine, "198.51.100.1");
        }
        let mistake = |fields: &[(&str, &str)]| match allowed(fields) {
            Err(Fault::Mistake(mistake)) => mistake,
            other => panic!("{other:?}"),
        };
        let bad = mistake(&[("user", "bob"), ("ip", "nonsense")]);
        assert_eq!(bad, Mistake::BadValue { field: "ip".into(), error: ValueError::NotAnIp });
        let twice = mistake(&[("user", "bob"), ("ip", "192.0.2.1"), ("ip", "192.0.2.2")]);
        assert_eq!(twice, Mistake::RepeatedField { field: "ip".into() });
        let unknown = mistake(&[("user", "bob"), ("tenant", "x")]);
        assert!(matches!(unknown, Mistake::UnknownField { field, .. } if field == "tenant"));
        assert!(matches!(mistake(&[("ip", "192.0.2.1")]), Mistake::NoRuleApplies { .. }));
    }
}

#[test]
fn a_field_that_the_configuration_tells_of_may_come_with_every_attempt() {
    let kinds =
        Kinds::new([("tenant".into(), FieldKind::Text), ("peer".into(), FieldKind::Ip { v4: 32, v6: 64 })]);
    let listed = configured("device=d1", Stance::Block, None);
    let roster = Roster::new(kinds, vec![listed]);
    let stand = Stand::new(base().with_roster(Arc::new(roster)));
    let fields = [("user", "bob"), ("tenant", "t1"), ("peer", "203.0.113.7"), ("device", "d2")];
    assert!(!is_blocked(&stand, "by_user", &fields));
    assert!(is_blocked(&stand, "by_user", &[("device", "d1")]));
    for target in ["tenant=t1", "203.0.113.7"] {
        block(&stand.engine, target, None);
        assert!(is_blocked(&stand, "by_user", &fields), "{target}");
        assert!(unlist(&stand.engine, target));
    }
    assert!(!is_blocked(&stand, "by_user", &fields));
}

#[test]
fn a_runtime_entry_beats_a_configured_one_until_it_is_removed_or_ends() {
    let until = Some(support::START + Span::from_secs(100));
    let roster = Roster::new(
        Kinds::default(),
        vec![configured("10.0.0.0/8", Stance::Block, None), configured("user=bob", Stance::Block, until)],
    );
    let stand = Stand::new(base().with_roster(Arc::new(roster)));
    let ip = [("ip", "10.1.2.3")];
    assert!(is_blocked(&stand, "by_ip", &ip) && is_blocked(&stand, "by_user", &[("user", "bob")]));
    allow(&stand.engine, "10.0.0.0/8");
    assert!(!is_blocked(&stand, "by_ip", &ip));
    assert!(unlist(&stand.engine, "10.0.0.0/8"));
    assert!(is_blocked(&stand, "by_ip", &ip), "the configuration holds again");
    assert!(!unlist(&stand.engine, "10.0.0.0/8"), "what is configured cannot be removed");
    assert!(is_blocked(&stand, "by_ip", &ip));
    block_on(stand.engine.lists.put(vec![wish(&stand.engine, "10.0.0.0/8", Stance::Allow, Some(50))]))
        .unwrap();
    assert!(!is_blocked(&stand, "by_ip", &ip));
    stand.clock.advance(Span::from_secs(50));
    assert!(is_blocked(&stand, "by_ip", &ip), "also before anybody has swept");
    stand.clock.advance(Span::from_secs(50));
    assert!(!is_blocked(&stand, "by_user", &[("user", "bob")]), "what is configured may end too");
    stand.engine.reload(base());
    assert!(!is_blocked(&stand, "by_ip", &ip), "a reload without lists has none");
}

#[test]
fn runtime_entries_survive_a_restart_and_a_reload() {
    let stand = Stand::new(base());
    block(&stand.engine, "203.0.113.0/24", Some(100));
    allow(&stand.engine, "user=bob");
    stand.engine.reload(base());
    let restarted = start(base(), &stand.store);
    for engine in [&stand.engine, &restarted] {
        let listed: Vec<String> =
            engine.lists.page(None, 10, |_| true).iter().map(|listing| listing.target.to_string()).collect();
        assert_eq!(listed, ["203.0.113.0/24", "user=bob"]);
        let blocked =
            decide(engine, &engine.pin(), "by_ip", &[("ip", "203.0.113.7")]).unwrap().blocked().cloned();
        let blocked = blocked.unwrap();
        assert_eq!((&*blocked.reason, &blocked.author), ("spam", &Author::Key("ops".into())));
        assert_eq!(blocked.until, Some(support::START + Span::from_secs(100)));
    }
}

#[test]
fn an_entry_that_has_ended_is_removed_from_the_records() {
    let stand = Stand::new(base());
    let kept = || {
        let changes =
            block_on(tollgate_core::Records::changes(&*stand.store, Namespace::Lists, None)).unwrap();
        changes.entries.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    block(&stand.engine, "203.0.113.7", Some(10));
    block(&stand.engine, "203.0.113.8", Some(20));
    block(&stand.engine, "user=bob", None);
    block_on(stand.engine.tend());
    assert_eq!(kept().len(), 3);
    stand.clock.advance(Span::from_secs(10));
    block_on(stand.engine.tend());
    assert_eq!(kept(), ["203.0.113.8", "user=bob"]);
    assert_eq!(stand.engine.lists.meters.entries(), (2, 0));
    // An entry that is set again in time stays.
    block(&stand.engine, "203.0.113.8", Some(100));
    stand.clock.advance(Span::from_secs(20));
    block_on(stand.engine.tend());
    assert_eq!(kept(), ["203.0.113.8", "user=bob"]);
    assert!(is_blocked(&stand, "by_ip", &[("ip", "203.0.113.8")]));
}

#[test]
fn targets_of_unknown_or_secret_fields_are_refused() {
    let stand = Stand::new(base());
    let refused = |target: &str| {
        block_on(stand.engine.lists.put(vec![wish(&stand.engine, target, Stance::Block, None)])).unwrap_err()
    };
    assert_eq!(
        refused("usr=bob"),
        ListFault::UnknownField { field: "usr".into(), near: Some("user".into()) }
    );
    let secret = refused("api_key=k-123");
    assert_eq!(secret, ListFault::Secret { field: "api_key".into(), rule: "key".into() });
    assert!(!secret.to_string().contains("k-123"));
    assert!(stand.engine.lists.page(None, 10, |_| true).is_empty());
}

#[test]
fn lists_block_no_client_while_all_limits_are_switched_off() {
    let stand = Stand::new(base());
    block(&stand.engine, "user=bob", None);
    let off = Policies::new(false, base().rules().to_vec(), base().iter().cloned().collect());
    stand.engine.reload(off);
    assert!(decide(&stand.engine, &stand.pin(), "by_user", &[("user", "bob")]).unwrap().allowed());
    stand.engine.reload(base());
    assert!(is_blocked(&stand, "by_user", &[("user", "bob")]), "what was set is still there");
}

#[test]
fn an_unknown_policy_is_a_mistake_for_a_blocked_client_too() {
    let stand = Stand::new(base());
    block(&stand.engine, "user=bob", None);
    let pinned = stand.pin();
    let mistake = decide(&stand.engine, &pinned, "none", &[("user", "bob")]);
    assert!(matches!(mistake, Err(Fault::Mistake(Mistake::UnknownPolicy { .. }))));
}

#[test]
fn listings_come_in_pages_in_the_order_of_their_targets() {
    let roster = Roster::new(Kinds::default(), vec![configured("user=b", Stance::Block, None)]);
    let stand = Stand::new(base().with_roster(Arc::new(roster)));
    for target in ["user=c", "user=a", "user=b", "10.0.0.0/8"] {
        block(&stand.engine, target, None);
    }
    let page = |after: Option<&str>, most: usize| {
        let shown = |listing: &Arc<Listing>| format!("{} by {}", listing.target, listing.author);
        stand.engine.lists.page(after, most, |_| true).iter().map(shown).collect::<Vec<_>>()
    };
    assert_eq!(page(None, 2), ["10.0.0.0/8 by ops", "user=a by ops"]);
    assert_eq!(
        page(Some("user=a"), 1),
        ["user=b by ops", "user=b by configuration"],
        "one target on one page"
    );
    assert_eq!(page(Some("user=b"), 2), ["user=c by ops"]);
    let some = stand.engine.lists.page(None, 10, |listing| listing.author == Author::Configuration);
    assert_eq!(some.len(), 1);
}

#[test]
fn values_of_entries_follow_a_change_of_their_fields_kind() {
    let stand = Stand::new(base());
    block(&stand.engine, "user=Bob", None);
    assert!(!is_blocked(&stand, "by_user", &[("user", "bob")]));
    let kinds = Kinds::new([("user".into(), FieldKind::Domain)]);
    let rule = Rule {
        by: [tollgate_core::Field { name: "user".into(), kind: FieldKind::Domain }].into(),
        ..rule::rejecting("user", &["user"], &["10/hour"])
    };
    let changed =
        policies(vec![rule], &[("by_user", &["user"])]).with_roster(Arc::new(Roster::new(kinds, vec![])));
    stand.engine.reload(changed);
    assert!(
        is_blocked(&stand, "by_user", &[("user", "bob")])
            && is_blocked(&stand, "by_user", &[("user", "BOB.")])
    );
}
