//! Denials without a call to the shared store: exactly what the store would deny, with exactly its times.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::HashMap;

use crate::support::cluster::{Centre, Mode, Node};
use crate::support::{policies, rule};
use futures_lite::future::{block_on, poll_once};
use proptest::prelude::*;
use tollgate_core::store::{Counter, Forget, HoldsOrder};
use tollgate_core::{Attempt, Decision, Policies, Rule, Span, Timestamp, When};
use tollgate_engine::engine::RefundPart;

const KEY: &str = "192.0.2.1";
const FIELDS: [(&str, &str); 1] = [("ip", KEY)];

fn one(limits: &[&str]) -> Policies {
    policies(vec![rule::rejecting("ip", &["ip"], limits)], &[("api", &["ip"])])
}

fn node(limits: &[&str]) -> Node {
    Centre::new().node(one(limits))
}

fn ask<T>(node: &Node, cost: u64, id: Option<&str>, then: impl FnOnce(&Decision<'_>) -> T) -> T {
    let pinned = node.engine.pin();
    let attempt = Attempt { policy: "api", fields: &FIELDS, cost, id };
    let decision = block_on(node.engine.decide(&pinned, &attempt)).unwrap();
    then(&decision)
}

/// Whether an attempt was allowed, when it would be, and whether the store was called.
fn asked(node: &Node, cost: u64) -> (bool, When, bool) {
    let before = node.calls();
    let (allowed, retry) = ask(node, cost, None, |decision| (decision.allowed(), decision.retry));
    (allowed, retry, node.calls() > before)
}

fn secs(secs: u64) -> When {
    When::After(Span::from_secs(secs))
}

#[test]
fn repeated_denials_are_answered_locally_for_a_second_with_exact_times() {
    let node = node(&["1/10s"]);
    assert_eq!(asked(&node, 1), (true, When::Now, true));
    assert_eq!(asked(&node, 1), (false, secs(10), true));
    assert_eq!(asked(&node, 1), (false, secs(10), false));
    node.advance(Span::from_micros(999_999));
    assert_eq!(asked(&node, 1), (false, When::After(Span::from_micros(9_000_001)), false));
    node.advance(Span::from_micros(1));
    assert_eq!(asked(&node, 1), (false, secs(9), true), "a second is over");
    assert_eq!(node.engine.counters.store_meters().unwrap().denied_locally(), 2);
}

#[test]
fn a_retry_time_shorter_than_a_second_ends_it() {
    let node = node(&["4/s burst 1"]);
    assert!(asked(&node, 1).0);
    assert_eq!(asked(&node, 1), (false, When::After(Span::from_millis(250)), true));
    node.advance(Span::from_micros(249_999));
    assert_eq!(asked(&node, 1), (false, When::After(Span::from_micros(1)), false));
    node.advance(Span::from_micros(1));
    assert_eq!(asked(&node, 1), (true, When::Now, true));
}

#[test]
fn a_lesser_cost_asks_and_a_greater_one_where_its_time_is_not_known() {
    let window = node(&["5/10s"]);
    assert!(asked(&window, 4).0);
    assert_eq!(asked(&window, 3), (false, secs(10), true));
    assert_eq!(asked(&window, 2), (false, secs(10), true), "less may fit");
    assert_eq!(asked(&window, 3), (false, secs(10), false), "and is remembered in its place");
    assert_eq!(asked(&window, 5), (false, secs(10), false));
    assert_eq!(asked(&window, 6), (false, When::Never, false));
    for limits in [["5/10s burst 5"], ["5/10s sliding"], ["5/10s sliding by 1s"]] {
        let node = node(&limits);
        assert!(asked(&node, 4).0);
        assert!(!asked(&node, 2).0);
        assert!(!asked(&node, 2).2, "{limits:?}");
        assert!(asked(&node, 3).2, "{limits:?}: when there is room for three only the store knows");
    }
    let total = node(&["5 in total"]);
    assert!(asked(&total, 4).0);
    assert_eq!(
        [asked(&total, 2), asked(&total, 3)],
        [(false, When::Never, true), (false, When::Never, false)]
    );
}

#[test]
fn the_failures_of_a_ladder_stay_while_its_pause_passes() {
    let node = node(&["1/10s", "ladder 1 +500ms forget 1m"]);
    assert!(asked(&node, 1).0);
    assert!(!asked(&node, 1).0);
    node.advance(Span::from_millis(600));
    let before = node.calls();
    let (failures, refused) = ask(&node, 1, None, |decision| {
        let line = decision.lines().next().unwrap();
        let climb = line.climbs().next().unwrap();
        (climb.failures(), climb.refused())
    });
    assert_eq!(node.calls(), before, "it was answered here");
    assert_eq!((failures, refused), (1, false), "the window still refuses, the ladder no longer");
}

#[test]
fn a_refund_reset_or_change_on_this_node_ends_a_local_denial_at_once() {
    let node = node(&["1/hour"]);
    let pinned = node.engine.pin();
    let plan = &pinned.policies.rule("ip").unwrap().plan;
    let receipt = ask(&node, 1, None, |decision| node.engine.receipt(decision).unwrap());
    assert!(!asked(&node, 1).0);
    block_on(node.engine.refund(&pinned, &receipt, RefundPart::All)).unwrap();
    assert_eq!(asked(&node, 1), (true, When::Now, true), "given back");
    for what in [Forget::Key(Counter { plan, key: KEY }), Forget::Rule("ip"), Forget::All] {
        assert!(!asked(&node, 1).0);
        block_on(node.engine.counters.forget(what)).unwrap();
        assert_eq!(asked(&node, 1), (true, When::Now, true), "{what:?}");
    }
    assert!(!asked(&node, 1).0);
    block_on(node.engine.config.set_override("ip", KEY, vec!["2/hour".parse().unwrap()])).unwrap();
    assert_eq!(asked(&node, 1), (true, When::Now, true), "overridden");
    assert!(!asked(&node, 1).0);
    node.engine.reload(one(&["1/hour"]));
    assert!(asked(&node, 1).2, "reloaded");
}

#[test]
fn a_released_hold_and_an_id_that_is_held_end_it_at_once() {
    let node = node(&["2 at once for 1h"]);
    let pinned = node.engine.pin();
    let plan = &pinned.policies.rule("ip").unwrap().plan;
    let counter = Counter { plan, key: KEY };
    let allowed = |cost, id| ask(&node, cost, Some(id), |decision| decision.allowed());
    assert!(allowed(1, "a"));
    assert!(!allowed(2, "b"), "one is left");
    assert!(allowed(1, "b"));
    assert!(allowed(2, "b"), "it is held by now");
    assert!(!allowed(1, "c"));
    block_on(node.engine.counters.holds(&counter, HoldsOrder::Release("a"))).unwrap();
    assert!(allowed(1, "c"));
    assert!(!allowed(1, "d"));
    block_on(node.engine.counters.replace_holds(&counter, &["z"])).unwrap();
    assert!(allowed(1, "d"));
}

#[test]
fn an_id_that_is_held_by_now_passes_a_rule_that_denied_it() {
    let rules = vec![
        rule::rejecting("pace", &["ip"], &["1/hour"]),
        rule::rejecting("jobs", &["ip"], &["5 at once for 1h"]),
    ];
    let node = Centre::new().node(policies(rules, &[("api", &["pace", "jobs"]), ("hold", &["jobs"])]));
    let allowed = |policy, id| {
        let pinned = node.engine.pin();
        let attempt = Attempt { policy, fields: &FIELDS, cost: 1, id: Some(id) };
        block_on(node.engine.decide(&pinned, &attempt)).unwrap().allowed()
    };
    assert!(allowed("api", "a") && !allowed("api", "b") && allowed("hold", "b"));
    assert!(allowed("api", "b"), "everything it would hold is held");
}

#[test]
fn a_refund_on_another_node_is_seen_within_a_second() {
    let centre = Centre::new();
    let [first, second] = [(); 2].map(|()| centre.node(one(&["1/hour"])));
    let receipt = ask(&first, 1, None, |decision| first.engine.receipt(decision).unwrap());
    assert!(!asked(&second, 1).0);
    block_on(first.engine.refund(&first.engine.pin(), &receipt, RefundPart::All)).unwrap();
    second.advance(Span::from_secs(1));
    assert!(asked(&second, 1).0);
}

#[test]
fn charges_of_other_clients_on_a_shared_rule_show_within_a_second() {
    let rules = vec![rule::rejecting("ip", &["ip"], &["1/10s"]), rule::rejecting("site", &[], &["3/min"])];
    let node = Centre::new().node(policies(rules, &[("api", &["ip", "site"])]));
    let left = |node: &Node| ask(node, 1, None, |decision| decision.outcome.readings[1].remaining);
    assert!(asked(&node, 1).0);
    assert_eq!(asked(&node, 1), (false, secs(10), true));
    for client in ["192.0.2.2", "192.0.2.3"] {
        assert!(node.decide("api", &[("ip", client)]).0);
    }
    assert_eq!(asked(&node, 1), (false, secs(10), false), "the rule that denied it is as it was");
    assert_eq!(left(&node), 2, "the other rule has the reading of a moment ago");
    node.advance(Span::from_secs(1));
    assert_eq!(asked(&node, 1), (false, secs(59), true), "by now both rules deny it");
    assert_eq!(left(&node), 0);
}

#[test]
fn it_holds_from_before_the_store_was_asked_and_its_times_run_from_after() {
    let node = node(&["1/10s"]);
    assert!(asked(&node, 1).0);
    node.link.set(Mode::Hangs);
    let pinned = node.engine.pin();
    let attempt = Attempt { policy: "api", fields: &FIELDS, cost: 1, id: None };
    let mut deciding = Box::pin(node.engine.decide(&pinned, &attempt));
    assert!(block_on(poll_once(&mut deciding)).is_none());
    node.advance(Span::from_millis(300));
    node.link.set(Mode::Up);
    assert_eq!(block_on(deciding).unwrap().retry, When::After(Span::from_millis(9_700)));
    node.advance(Span::from_millis(600));
    assert_eq!(asked(&node, 1), (false, When::After(Span::from_millis(9_100)), false));
    node.advance(Span::from_millis(100));
    assert_eq!(asked(&node, 1), (false, secs(9), true));
}

/// An attempt by one of two clients.
#[derive(Clone, Copy, Debug)]
struct Asked {
    client: &'static str,
    cost: u64,
    id: Option<&'static str>,
    /// The field that a rule counts.
    parts: &'static str,
}

#[derive(Clone, Debug)]
enum Event {
    Attempt(Asked),
    Wait(u64),
    Give,
    Release(&'static str),
    Reset,
    Override(&'static str),
}

fn event() -> impl Strategy<Value = Event> {
    let id = prop::sample::select(vec!["a", "b", "c"]);
    let limit = prop::sample::select(vec!["3/2s", "5/2s", "2/2s"]);
    let client = prop_oneof![4 => Just(KEY), 1 => Just("192.0.2.2")];
    let parts = prop::sample::select(vec!["0", "1", "2", "3", "4", "9"]);
    let asked = (client, 0..5_u64, prop::option::of(id.clone()), parts);
    let asked = asked.prop_map(|(client, cost, id, parts)| Asked { client, cost, id, parts });
    prop_oneof![
        12 => asked.prop_map(Event::Attempt),
        5 => prop_oneof![0..3_u64, 0..400_000_u64, 0..2_000_000_u64].prop_map(Event::Wait),
        1 => Just(Event::Give),
        1 => id.prop_map(Event::Release),
        1 => Just(Event::Reset),
        1 => limit.prop_map(Event::Override),
    ]
}

fn limits() -> impl Strategy<Value = Vec<&'static str>> {
    let one = prop::sample::select(vec![
        "3/2s",
        "4/3s burst 3",
        "3/1s sliding",
        "3/2s sliding by 300ms",
        "4/min calendar",
        "3 at once for 2s",
        "2 at once",
        "9 in total",
        "ladder 2 +300ms captcha then 3 +1s forget 2s",
    ]);
    prop::collection::vec(one, 1..3).prop_filter("each kind and period once", |limits| {
        limits.len() == 1 || (limits[0] != limits[1] && !limits.iter().all(|limit| limit.contains("at once")))
    })
}

/// The rules of a policy: by client; one for all clients; and one by client that counts a field.
fn rules() -> impl Strategy<Value = Policies> {
    let several = (limits(), prop::option::of(limits()), prop::option::of(limits()));
    several.prop_map(|(ip, site, parts)| {
        let mut rules = vec![rule::rejecting("ip", &["ip"], &ip)];
        rules.extend(site.map(|limits| rule::rejecting("site", &[], &limits)));
        rules.extend(parts.map(|limits| Rule {
            count: Some("parts".into()),
            ..rule::rejecting("parts", &["ip"], &limits)
        }));
        let names: Vec<String> = rules.iter().map(|rule| rule.name.to_string()).collect();
        policies(rules, &[("api", &names.iter().map(String::as_str).collect::<Vec<_>>())])
    })
}

/// The cost of the latest denial by the store, for attempts that are alike but for their cost.
type DeniedCosts = HashMap<(&'static str, Option<&'static str>, Option<&'static str>), u64>;

/// Decides, and compares the result with what the store itself says at that moment. Returns the store's retry
/// time.
fn compare(node: &Node, costs: &mut DeniedCosts, asked: Asked) -> (When, bool, Option<String>) {
    let pinned = node.engine.pin();
    let mut fields = vec![("ip", asked.client), ("parts", asked.parts)];
    fields.truncate(if pinned.policies.rule("parts").is_some() { 2 } else { 1 });
    let attempt = Attempt { policy: "api", fields: &fields, cost: asked.cost, id: asked.id };
    let truth = block_on(node.engine.peek(&pinned, &attempt)).unwrap();
    let before = node.calls();
    let decision = block_on(node.engine.decide(&pinned, &attempt)).unwrap();
    assert_eq!(decision.allowed(), truth.allowed());
    assert_eq!(decision.outcome.now, truth.outcome.now);
    let alike = (asked.client, asked.id, fields.get(1).map(|(_, parts)| *parts));
    if !decision.allowed() && node.calls() > before {
        assert_eq!(decision.outcome.readings, truth.outcome.readings);
        costs.insert(alike, asked.cost);
    }
    let same_cost = costs.get(&alike) == Some(&asked.cost);
    let mut same_waits = true;
    for (line, true_line) in decision.lines().zip(truth.lines()).filter(|_| !decision.allowed()) {
        for (reading, truth) in line.readings.iter().zip(true_line.readings) {
            same_waits &= reading.when == truth.when;
            if !(line.exceeded() && same_cost) {
                // Other attempts may have taken from a rule that did not deny the cached one.
                assert!(reading.when <= truth.when, "{reading:?} is {truth:?}");
                continue;
            }
            assert_eq!((reading.when, reading.capacity), (truth.when, truth.capacity), "{line:?}");
            assert!(reading.remaining <= truth.remaining, "{reading:?} is {truth:?}");
            let over = |at: Option<Timestamp>| at.is_none_or(|at| at <= decision.outcome.now);
            let both_over = over(reading.reset) && over(truth.reset);
            assert!(reading.reset == truth.reset || both_over, "{reading:?} is {truth:?}");
        }
    }
    assert!(same_waits || decision.lines().count() > 1, "a rule alone denied it, with its own wait");
    if same_waits {
        assert_eq!((decision.retry, decision.verdict), (truth.retry, truth.verdict));
    }
    for reading in &decision.outcome.readings {
        assert!(reading.remaining <= reading.capacity);
    }
    (truth.retry, decision.allowed(), node.engine.receipt(&decision))
}

proptest! {
    #[test]
    fn local_denials_never_contradict_the_store_and_have_exact_times(
        policies in rules(), events in prop::collection::vec(event(), 1..80),
    ) {
        let node = Centre::new().node(policies);
        let (mut receipts, mut costs) = (Vec::new(), DeniedCosts::new());
        for event in events {
            let pinned = node.engine.pin();
            let counter = Counter { plan: pinned.policies.rule("ip").unwrap().plan_at(KEY), key: KEY };
            match event {
                Event::Attempt(asked) => receipts.extend(compare(&node, &mut costs, asked).2),
                Event::Wait(micros) => node.advance(Span::from_micros(micros)),
                Event::Give => {
                    if let Some(receipt) = receipts.pop() {
                        block_on(node.engine.refund(&pinned, &receipt, RefundPart::All)).unwrap();
                    }
                }
                Event::Release(id) => drop(block_on(node.engine.counters.holds(&counter, HoldsOrder::Release(id))).unwrap()),
                Event::Reset => block_on(node.engine.counters.forget(Forget::Key(counter))).unwrap(),
                Event::Override(limit) => {
                    block_on(node.engine.config.set_override("ip", KEY, vec![limit.parse().unwrap()])).unwrap();
                }
            }
        }
        let last = Asked { client: KEY, cost: 2, id: Some("last"), parts: "2" };
        let (retry, allowed, _) = compare(&node, &mut costs, last);
        if let (When::After(span), false) = (retry, allowed) {
            node.advance(Span::from_micros(span.as_micros() - 1));
            prop_assert!(!compare(&node, &mut costs, last).1, "a microsecond too early");
            node.advance(Span::from_micros(1));
            prop_assert!(compare(&node, &mut costs, last).1, "waited out");
        }
    }
}
