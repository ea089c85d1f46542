//! Rules ban keys that they keep denying: after a number of denials, for a span that grows each time.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::support::cluster::{Centre, Mode, Node};
use crate::support::{Stand, decide, policies, rule};
use futures_lite::future::block_on;
use tollgate_core::{Author, Origin, Policies, Rule, Span, Stance, Verdict, When};
use tollgate_engine::{Engine, Wish};

fn banning(by: &[&str], ban: &str) -> Policies {
    let rule = Rule { ban: Some(ban.parse().unwrap()), ..rule::rejecting("login", by, &["1/day"]) };
    policies(vec![rule], &[("login", &["login"])])
}

const IP: [(&str, &str); 1] = [("ip", "203.0.113.7")];

/// Makes this many attempts and tends the engine. Returns how many were denied by their limit and how many
/// were blocked.
fn knock(engine: &Engine, fields: &[(&str, &str)], times: usize) -> (usize, usize) {
    let (mut denied, mut blocked) = (0, 0);
    for _ in 0..times {
        let pinned = engine.pin();
        let decision = decide(engine, &pinned, "login", fields).unwrap();
        blocked += usize::from(decision.blocked().is_some());
        denied += usize::from(decision.origin == Origin::Store && !decision.allowed());
    }
    block_on(engine.tend());
    (denied, blocked)
}

fn banned_for(engine: &Engine) -> Option<Span> {
    engine.lists.page(None, 1, |_| true).first().map(|listing| listing.until.unwrap().since(listing.since))
}

#[test]
fn the_denial_that_is_one_too_many_bans_and_not_the_one_before() {
    let stand = Stand::new(banning(&["ip"], "after 5 denials in 10m ban 1h"));
    assert_eq!(knock(&stand.engine, &IP, 1), (0, 0), "the first is allowed");
    assert_eq!(knock(&stand.engine, &IP, 4), (4, 0));
    assert_eq!(banned_for(&stand.engine), None);
    assert_eq!(knock(&stand.engine, &IP, 1), (1, 0));
    assert_eq!(banned_for(&stand.engine), Some(Span::from_secs(3_600)));
    assert_eq!(knock(&stand.engine, &IP, 3), (0, 3));
    assert_eq!(knock(&stand.engine, &[("ip", "203.0.113.8")], 3), (2, 0), "another client is not");

    let entry =
        stand.engine.observer.journal.latest(100).into_iter().find(|entry| entry.banned.is_some()).unwrap();
    assert_eq!((entry.policy.as_str(), entry.rule.as_deref()), ("login", Some("login")));
    assert_eq!(
        (entry.key.as_deref(), entry.origin, entry.verdict),
        (Some("203.0.113.7"), Origin::Blocked, Verdict::Deny)
    );
    assert_eq!(
        (entry.banned, entry.retry),
        (Some(Span::from_secs(3_600)), When::After(Span::from_secs(3_600)))
    );
    assert_eq!(stand.engine.lists.meters.bans(), [("login".into(), 1)]);
    let listing = &stand.engine.lists.page(None, 1, |_| true)[0];
    assert_eq!((listing.author.clone(), listing.show_reason), (Author::Rule("login".into()), false));
    assert_eq!(&*listing.reason, "5 denials in 10m by rule login");
}

#[test]
fn one_denial_may_be_enough() {
    let stand = Stand::new(banning(&["ip"], "after 1 denial in 1s ban 1m"));
    assert_eq!(knock(&stand.engine, &IP, 2), (1, 0));
    assert_eq!(banned_for(&stand.engine), Some(Span::from_secs(60)));
}

#[test]
fn denials_too_far_apart_cause_no_ban() {
    let stand = Stand::new(banning(&["ip"], "after 3 denials in 1m ban 1h"));
    knock(&stand.engine, &IP, 1);
    for _ in 0..20 {
        assert_eq!(knock(&stand.engine, &IP, 1), (1, 0));
        // Two in a minute, and the oldest slot of a second.
        stand.clock.advance(Span::from_secs(31));
    }
    assert_eq!(banned_for(&stand.engine), None);
}

#[test]
fn a_ban_bars_the_whole_key_of_its_rule_and_nothing_else() {
    let stand = Stand::new(banning(&["user", "ip"], "after 2 denials in 10m ban 1h"));
    let own = [("user", "bob"), ("ip", "2001:db8::1")];
    knock(&stand.engine, &own, 3);
    let listed = stand.engine.lists.page(None, 9, |_| true);
    assert_eq!(
        listed.iter().map(|one| one.target.to_string()).collect::<Vec<_>>(),
        ["ip=2001:db8::/64,user=bob"]
    );
    let blocked = |fields: &[(&str, &str)]| knock(&stand.engine, fields, 1).1 == 1;
    assert!(
        blocked(&own) && blocked(&[("user", "bob"), ("ip", "2001:db8::2")]),
        "IPv6 by /64, as the key is"
    );
    assert!(!blocked(&[("user", "ann"), ("ip", "2001:db8::1")]));
    assert!(!blocked(&[("user", "bob"), ("ip", "2001:db8:1::1")]));

    let stand = Stand::new(banning(&["ip"], "after 2 denials in 10m ban 1h"));
    knock(&stand.engine, &[("ip", "2001:db8::1")], 3);
    assert_eq!(stand.engine.lists.page(None, 9, |_| true)[0].target.to_string(), "2001:db8::/64");
}

#[test]
fn bans_grow_with_repetition_and_are_forgotten_after_ten_times_as_long() {
    let stand = Stand::new(banning(&["ip"], "after 2 denials in 10m ban 1h up to 3h"));
    let hour = 3_600;
    let ban = |expected: u64| {
        knock(&stand.engine, &IP, 3);
        assert_eq!(banned_for(&stand.engine), Some(Span::from_secs(expected * hour)));
        stand.clock.advance(Span::from_secs(expected * hour));
        block_on(stand.engine.tend());
        assert_eq!(banned_for(&stand.engine), None);
    };
    ban(1);
    ban(2);
    ban(3);
    ban(3);
    stand.clock.advance(Span::from_secs(30 * hour - 1));
    ban(3);
    stand.clock.advance(Span::from_secs(30 * hour));
    ban(1);

    let stand = Stand::new(banning(&["ip"], "after 2 denials in 10m ban 1h"));
    for _ in 0..3 {
        knock(&stand.engine, &IP, 3);
        assert_eq!(
            banned_for(&stand.engine),
            Some(Span::from_secs(hour)),
            "without `up to` it does not grow"
        );
        stand.clock.advance(Span::from_secs(hour));
    }
}

#[test]
fn knocking_while_banned_lengthens_nothing() {
    let stand = Stand::new(banning(&["ip"], "after 2 denials in 10m ban 1h up to 1d"));
    knock(&stand.engine, &IP, 3);
    for _ in 0..59 {
        stand.clock.advance(Span::from_secs(60));
        assert_eq!(knock(&stand.engine, &IP, 10), (0, 10));
    }
    assert_eq!(banned_for(&stand.engine), Some(Span::from_secs(3_600)));
    stand.clock.advance(Span::from_secs(60));
    assert_eq!(knock(&stand.engine, &IP, 1), (1, 0), "denied by the limit, and counted from the start");
    assert_eq!(banned_for(&stand.engine), None);
}

#[test]
fn an_allowed_client_is_never_banned() {
    let stand = Stand::new(banning(&["ip"], "after 2 denials in 10m ban 1h"));
    let wish = Wish {
        target: stand.engine.lists.target("203.0.113.0/24").unwrap(),
        stance: Stance::Allow,
        lasts: None,
        reason: "".into(),
        show_reason: false,
        author: Author::Key("ops".into()),
    };
    block_on(stand.engine.lists.put(vec![wish])).unwrap();
    assert_eq!(knock(&stand.engine, &IP, 10), (9, 0));
    assert_eq!(
        knock(&stand.engine, &IP, 10),
        (10, 0),
        "a ban of the one address would go before the network"
    );
    assert_eq!(stand.engine.lists.page(None, 9, |_| true).len(), 1);
}

#[test]
fn only_the_rules_that_were_exceeded_count_a_denial() {
    let ban = Some("after 1 denial in 1m ban 1h".parse().unwrap());
    let rules = vec![
        rule::rejecting("all", &[], &["1/day"]),
        Rule { ban, ..rule::rejecting("ip", &["ip"], &["100/day"]) },
        Rule { ban, ..rule::rejecting("user", &["user"], &["1/day"]) },
        Rule { ban, secret: true, ..rule::rejecting("key", &["key"], &["1/day"]) },
    ];
    let stand = Stand::new(policies(rules, &[("login", &["all", "ip", "user", "key"])]));
    knock(&stand.engine, &[("ip", "203.0.113.7"), ("user", "bob"), ("key", "k")], 2);
    let listed = stand.engine.lists.page(None, 9, |_| true);
    assert_eq!(listed.iter().map(|one| one.target.to_string()).collect::<Vec<_>>(), ["user=bob"]);
}

#[test]
fn a_look_and_a_wait_are_no_denials() {
    let ban = Some("after 1 denial in 1m ban 1h".parse().unwrap());
    let waits = tollgate_core::OnExceed::Wait(Span::from_secs(86_400));
    let rules = vec![Rule { ban, on_exceed: waits, ..rule::rejecting("login", &["ip"], &["1/day"]) }];
    let stand = Stand::new(policies(rules, &[("login", &["login"])]));
    let pinned = stand.pin();
    for _ in 0..5 {
        decide(&stand.engine, &pinned, "login", &IP).unwrap();
    }
    let attempt = tollgate_core::Attempt { policy: "login", fields: &IP, cost: 5, id: None };
    assert_eq!(block_on(stand.engine.peek(&pinned, &attempt)).unwrap().verdict, Verdict::Deny);
    block_on(stand.engine.tend());
    assert!(stand.engine.lists.page(None, 9, |_| true).is_empty());
}

#[test]
fn denials_beyond_the_noted_number_are_counted_as_missed() {
    let stand = Stand::new(banning(&["user"], "after 1 denial in 1m ban 1h"));
    let users: Vec<String> = (0..20_000).map(|number| format!("user-{number}")).collect();
    for user in &users {
        let pinned = stand.pin();
        for _ in 0..2 {
            decide(&stand.engine, &pinned, "login", &[("user", user)]).unwrap();
        }
    }
    let missed = stand.engine.lists.meters.missed();
    assert!((3_000..8_000).contains(&missed), "{missed}");
    for _ in 0..40 {
        block_on(stand.engine.tend());
    }
    assert_eq!(stand.engine.lists.meters.entries().0 as u64, 20_000 - missed);
}

/// Two nodes of one store.
fn nodes(policies: &Policies) -> [Node; 2] {
    let centre = Centre::new();
    [(); 2].map(|()| centre.node(policies.clone()))
}

#[test]
fn nodes_count_together_denials_from_memory_too_and_all_hold_the_ban_within_a_second() {
    let [one, other] = nodes(&banning(&["ip"], "after 9 denials in 10m ban 1h"));
    let ask = |node: &Node| node.decide("login", &IP);
    assert_eq!(ask(&one), (true, Origin::Store));
    for _ in 0..4 {
        for node in [&one, &other] {
            assert_eq!(ask(node), (false, Origin::Store));
        }
    }
    let remembered = one.engine.counters.store_meters().unwrap().denied_locally();
    assert!(remembered >= 3, "only {remembered} were denied from memory");
    one.tend();
    other.tend();
    assert!(one.engine.lists.page(None, 1, |_| true).is_empty(), "eight are not enough");
    assert_eq!(ask(&other), (false, Origin::Store));
    other.tend();
    assert_eq!(ask(&other), (false, Origin::Blocked));
    for _ in 0..3 {
        one.advance(Span::from_millis(250));
        one.tend();
    }
    assert_eq!(ask(&one), (false, Origin::Blocked));
}

#[test]
fn nodes_that_ban_at_the_same_time_ban_once() {
    let [one, other] = nodes(&banning(&["ip"], "after 2 denials in 10m ban 1h up to 1d"));
    for _ in 0..3 {
        one.decide("login", &IP);
        other.decide("login", &IP);
    }
    one.tend();
    other.tend();
    one.advance(Span::from_secs(1));
    one.tend();
    other.tend();
    for node in [&one, &other] {
        assert_eq!(banned_for(&node.engine), Some(Span::from_secs(3_600)));
    }
}

#[test]
fn denials_during_an_outage_cause_no_ban_then_or_later() {
    let [node, _] = nodes(&banning(&["ip"], "after 5 denials in 10m ban 1h"));
    node.decide("login", &IP);
    for _ in 0..4 {
        assert_eq!(node.decide("login", &IP), (false, Origin::Store));
    }
    node.link.set(Mode::Unreachable);
    node.advance(Span::from_secs(2));
    for _ in 0..50 {
        node.decide("login", &IP);
    }
    assert!(matches!(node.decide("login", &IP).1, Origin::Local(_)));
    node.tend();
    node.link.set(Mode::Up);
    for _ in 0..5 {
        node.tend_later();
    }
    assert!(node.engine.lists.page(None, 1, |_| true).is_empty());
    for _ in 0..4 {
        assert_eq!(node.decide("login", &IP), (false, Origin::Store));
    }
    node.tend();
    assert!(node.engine.lists.page(None, 1, |_| true).is_empty(), "those before the outage are forgotten");
}
