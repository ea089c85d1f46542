//! A blocklist of 100,000 entries: how long a look takes, and what it adds to a decision.

use std::hint::black_box;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Instant;

use tollgate_core::key::Kinds;
use tollgate_core::lists::Change;
use tollgate_core::{Author, Listing, Lists, Policies, Policy, Rule, Span, Stance, Target, Timestamp};
use tollgate_engine::{Engine, Parts, Wish};

use crate::contenders::{Nothing, RATE, decide, ready, store};
use crate::draws::Random;
use crate::rounds::{line, measure};

const ENTRIES: usize = 100_000;
const DRAWS: usize = 500_000;

pub fn run() {
    let kinds = Kinds::default();
    let empty = Lists::new([], [], &kinds);
    let asked = [v4_addresses(), v6_addresses(), users()];
    let entries = [v4_nets(), v6_nets(), listed_users()];
    for ((what, field), (asked, entries)) in
        [("IPv4", "ip"), ("IPv6", "ip"), ("a value", "user")].into_iter().zip(asked.iter().zip(&entries))
    {
        let start = Instant::now();
        let lists = Lists::new([], entries.iter().map(|target| Arc::new(listing(target, &kinds))), &kinds);
        let built = start.elapsed();
        let times = measure(
            9,
            &mut [&mut || look(&empty, field, asked), &mut || look(&lists, field, asked)],
        );
        line(&format!("a look at 100,000 entries, {what}"), &format!("{:.0} ns", times.nanos(1)), &format!("at none {:.0} ns", times.nanos(0)), times.ratio(1, 0), "< 1 µs");
        let change = Arc::new(listing(&entries[0], &kinds));
        let changes = measure(5, &mut [&mut || {
            let mut changed = lists.clone();
            for _ in 0..2_000 {
                changed = changed.with([Change::Put(Arc::clone(&change))]);
            }
            black_box(&changed);
            2_000
        }]);
        line(&format!("one change of 100,000 entries, {what}"), &format!("{:.1} µs", changes.nanos(0) / 1e3), &format!("building them all {:.0} ms", built.as_secs_f64() * 1e3), changes.nanos(0) / built.as_nanos() as f64, "");
    }
    decisions(&asked, &entries);
}

/// Decides with empty lists, and with 100,000 entries of which none matches the client.
fn decisions(asked: &[Vec<String>; 3], entries: &[Vec<String>; 3]) {
    let empty = engine();
    for ((what, policy, field), (asked, entries)) in
        [("IPv4", "client", "ip"), ("IPv6", "client", "ip"), ("a value", "user", "user")].into_iter().zip(asked.iter().zip(entries))
    {
        let listed = engine();
        let wishes = entries.iter().map(|target| Wish {
            target: listed.lists.target(target).unwrap(),
            stance: Stance::Block,
            lasts: Some(Span::from_secs(86_400)),
            reason: "".into(),
            show_reason: false,
            author: Author::Key("bench".into()),
        });
        ready(listed.lists.put(wishes.collect())).unwrap();
        let ask = |engine: &Engine| {
            let pinned = engine.pin();
            asked.iter().map(|value| black_box(decide(engine, &pinned, policy, &[(field, value)]))).count()
        };
        (ask(&empty), ask(&listed));
        let times = measure(9, &mut [&mut || ask(&empty), &mut || ask(&listed)]);
        let added = times.nanos(1) - times.nanos(0);
        line(&format!("added to a decision by 100,000 entries, {what}"), &format!("{added:.0} ns"), &format!("`Engine::decide` without any {:.0} ns", times.nanos(0)), times.ratio(1, 0), "< 200 ns");
    }
}

fn look(lists: &Lists, field: &str, asked: &[String]) -> usize {
    let now = || Timestamp::from_micros(1);
    asked.iter().map(|value| black_box(lists.block(&[(field, value)], now).is_some())).count()
}

fn listing(target: &str, kinds: &Kinds) -> Listing {
    Listing {
        target: Target::parse(target, kinds).unwrap(),
        stance: Stance::Block,
        since: Timestamp::ZERO,
        until: None,
        reason: "".into(),
        show_reason: false,
        author: Author::Configuration,
        times: 0,
    }
}

fn v4_addresses() -> Vec<String> {
    let mut random = Random(1);
    (0..DRAWS).map(|_| Ipv4Addr::from_bits(random.next() as u32).to_string()).collect()
}

/// Addresses as they are in use: all below a few large blocks.
fn v6(random: &mut Random) -> u128 {
    let block = [0x2001_0db8_u128, 0x2400_cb00, 0x2600_1f18, 0x2a00_1450][random.below(4)];
    block << 96 | u128::from(random.next() >> 16) << 48 | u128::from(random.next() >> 16)
}

fn v6_addresses() -> Vec<String> {
    let mut random = Random(2);
    (0..DRAWS).map(|_| Ipv6Addr::from_bits(v6(&mut random)).to_string()).collect()
}

fn users() -> Vec<String> {
    let mut random = Random(3);
    (0..DRAWS).map(|_| format!("user-{}", random.below(1_000_000))).collect()
}

/// Single addresses, and networks that lie around others now and then.
fn v4_nets() -> Vec<String> {
    let mut random = Random(4);
    let mut net = |_| {
        let length = [32, 32, 32, 32, 32, 32, 32, 28, 28, 24][random.below(10)];
        let bits = (random.next() as u32) >> (32 - length) << (32 - length);
        format!("{}/{length}", Ipv4Addr::from_bits(bits))
    };
    (0..ENTRIES).map(&mut net).collect()
}

fn v6_nets() -> Vec<String> {
    let mut random = Random(5);
    let mut net = |_| {
        let length = [128, 128, 64, 64, 64, 64, 56, 56, 56, 48][random.below(10)];
        let bits = v6(&mut random) >> (128 - length) << (128 - length);
        format!("{}/{length}", Ipv6Addr::from_bits(bits))
    };
    (0..ENTRIES).map(&mut net).collect()
}

fn listed_users() -> Vec<String> {
    (0..ENTRIES).map(|number| format!("user=listed-{number}")).collect()
}

/// An engine with a policy by address and one by user.
fn engine() -> Engine {
    let rule = |name: &str, field: &str| {
        let limit = format!("{RATE}/s burst {RATE}").parse().unwrap();
        Arc::new(Rule::new(name, &[field], vec![limit]).unwrap())
    };
    let rules = vec![rule("client", "ip"), rule("user", "user")];
    let policies = rules.iter().map(|rule| Policy::new(Arc::clone(&rule.name), vec![Arc::clone(rule)], false)).collect();
    let parts = Parts { store: Arc::new(store()), records: Arc::new(Nothing), fallback: None };
    ready(Engine::start(Policies::new(true, rules, policies), parts)).unwrap()
}
