//! The lists find what a simple search through all entries finds, whatever was set and removed before.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use proptest::prelude::*;
use tollgate_core::key::{FieldKind, Kinds};
use tollgate_core::lists::Change;
use tollgate_core::{Author, Listing, Lists, Net, Span, Stance, Target, Timestamp};

const NOW: u64 = 1_800_000_000_000_000;

fn at(secs: u64) -> Timestamp {
    Timestamp::from_micros(NOW) + Span::from_secs(secs)
}

fn kinds() -> Kinds {
    Kinds::new([("peer".into(), FieldKind::Ip { v4: 24, v6: 48 })])
}

fn listing(target: &str, stance: Stance, until: Option<u64>) -> Listing {
    Listing {
        target: Target::parse(target, &kinds()).unwrap_or_else(|error| panic!("{error}")),
        stance,
        since: at(0),
        until: until.map(at),
        reason: "".into(),
        show_reason: false,
        author: Author::Configuration,
        times: 0,
    }
}

fn block(target: &str) -> Listing {
    listing(target, Stance::Block, None)
}

fn allow(target: &str) -> Listing {
    listing(target, Stance::Allow, None)
}

fn lists(configured: Vec<Listing>, set: Vec<Listing>) -> Lists {
    let arcs = |listings: Vec<Listing>| listings.into_iter().map(Arc::new).collect::<Vec<_>>();
    Lists::new(arcs(configured), arcs(set), &kinds())
}

fn blocked<'l>(lists: &'l Lists, fields: &[(&str, &str)], secs: u64) -> Option<&'l Listing> {
    lists.block(fields, || at(secs)).map(|listing| &**listing)
}

#[test]
fn of_several_entries_that_bar_the_one_that_lasts_longest_is_told() {
    let until = |target: &str, secs| listing(target, Stance::Block, Some(secs));
    let lists = lists(
        vec![block("10.9.0.1"), block("user=eve")],
        vec![
            until("10.0.0.1", 60),
            until("10.0.0.0/24", 600),
            allow("10.0.0.0/16"),
            until("10.0.0.0/8", 6_000),
            until("10.9.0.1", 60),
            until("user=bob", 60),
            until("user=eve", 60),
        ],
    );
    let ends = |fields: &[(&str, &str)], secs| {
        let found = blocked(&lists, fields, secs);
        found.map(|listing| listing.until.map(|until| until.since(at(0)).as_secs_ceil()))
    };
    assert_eq!(ends(&[("ip", "10.0.0.1")], 0), Some(Some(600)), "the network lasts longer than the address");
    assert_eq!(ends(&[("ip", "10.0.0.1")], 600), None, "and then a larger one allows it");
    assert_eq!(ends(&[("ip", "10.9.0.1")], 0), Some(None), "what is configured holds for good");
    assert_eq!(ends(&[("user", "bob"), ("ip", "10.0.0.2")], 0), Some(Some(600)));
    assert_eq!(ends(&[("ip", "10.0.0.2"), ("user", "eve")], 0), Some(None));
}

#[test]
fn the_smallest_network_around_an_address_counts() {
    let lists = lists(
        vec![],
        vec![
            block("0.0.0.0/0"),
            allow("10.0.0.0/8"),
            block("10.1.0.0/16"),
            allow("10.1.2.3"),
            block("2001:db8::/32"),
            allow("2001:db8:1::/64"),
        ],
    );
    let table = [
        ("192.0.2.1", true),
        ("10.9.9.9", false),
        ("10.1.2.4", true),
        ("10.1.2.3", false),
        ("::ffff:10.1.2.4", true),
        ("255.255.255.255", true),
        ("2001:db8:2::1", true),
        ("2001:db8:1::1", false),
        ("2001:db9::1", false),
    ];
    for (address, expected) in table {
        for field in ["ip", "client_ip", "peer"] {
            assert_eq!(blocked(&lists, &[(field, address)], 0).is_some(), expected, "{field} {address}");
        }
        assert_eq!(blocked(&lists, &[("user", address)], 0), None, "no field that holds addresses");
    }
}

#[test]
fn an_allow_entry_beats_every_block_of_other_fields() {
    let lists =
        lists(vec![], vec![block("user=bob"), allow("10.0.0.0/8"), block("192.0.2.0/24"), allow("user=ann")]);
    let is_blocked = |fields: &[(&str, &str)]| blocked(&lists, fields, 0).is_some();
    assert!(is_blocked(&[("user", "bob"), ("ip", "198.51.100.1")]));
    assert!(!is_blocked(&[("user", "bob"), ("ip", "10.0.0.1")]), "by the address");
    assert!(!is_blocked(&[("ip", "192.0.2.1"), ("user", "ann")]), "by the user");
    assert!(is_blocked(&[("ip", "192.0.2.1"), ("user", "bob")]));
    assert!(!is_blocked(&[("ip", "192.0.2.1"), ("peer", "10.0.0.1")]), "by another address");
}

#[test]
fn values_are_compared_as_keys_are_and_all_of_a_target_together() {
    let lists = lists(
        vec![],
        vec![
            block("sender=Bob@EXAMPLE.com."),
            block("user=a,ip=192.0.2.1"),
            block("user=b\\,c,peer=198.51.100.0/24"),
        ],
    );
    let is_blocked = |fields: &[(&str, &str)]| blocked(&lists, fields, 0).is_some();
    assert!(is_blocked(&[("sender", "<bob@example.COM>")]));
    assert!(!is_blocked(&[("sender", "bob@example.org")]));
    assert!(is_blocked(&[("ip", "::ffff:192.0.2.1"), ("user", "a")]));
    assert!(!is_blocked(&[("ip", "192.0.2.1")]) && !is_blocked(&[("user", "a")]));
    assert!(!is_blocked(&[("user", "a"), ("ip", "192.0.2.2")]));
    assert!(is_blocked(&[("user", "b,c"), ("peer", "198.51.100.77")]), "cut as its field's keys are");
    assert!(!is_blocked(&[("user", "b"), ("peer", "198.51.100.77")]));
    assert!(!is_blocked(&[("user", "a"), ("ip", "nonsense")]), "an invalid value matches no entry");
}

#[test]
fn an_ended_entry_uncovers_the_entry_below_it() {
    let lists = lists(
        vec![block("10.0.0.0/8"), block("user=bob")],
        vec![
            listing("10.0.0.0/8", Stance::Allow, Some(10)),
            listing("10.1.0.0/16", Stance::Block, Some(5)),
            listing("user=bob", Stance::Allow, Some(10)),
        ],
    );
    let both = |secs| {
        let one = |field| blocked(&lists, &[field], secs).is_some();
        (one(("ip", "10.1.1.1")), one(("ip", "10.2.2.2")), one(("user", "bob")))
    };
    assert_eq!(both(0), (true, false, false));
    assert_eq!(both(5), (false, false, false), "an entry ends at its last moment");
    assert_eq!(both(9), (false, false, false));
    assert_eq!(both(10), (true, true, true), "what is configured holds again");
}

#[test]
fn an_allowed_target_is_recognised_before_a_ban() {
    let lists = lists(vec![], vec![allow("10.0.0.0/8"), block("10.1.0.0/16"), allow("user=ann")]);
    let allows = |target: &str| lists.allows(&Target::parse(target, &kinds()).unwrap(), || at(0));
    assert!(allows("10.2.2.2") && allows("user=ann") && allows("user=bob,ip=10.2.2.2"));
    assert!(!allows("10.1.1.1") && !allows("user=bob") && !allows("192.0.2.1"));
}

#[test]
fn lists_say_which_fields_they_look_at() {
    let names = |lists: &Lists| lists.fields().iter().map(ToString::to_string).collect::<Vec<_>>();
    assert!(names(&lists(vec![], vec![])).is_empty());
    assert_eq!(names(&lists(vec![block("user=bob")], vec![])), ["user"]);
    let with = lists(vec![], vec![]).with([Change::Put(Arc::new(block("10.0.0.1")))]);
    assert_eq!(names(&with), ["client_ip", "ip", "peer"]);
}

/// All entries, searched one by one.
#[derive(Clone, Debug, Default)]
struct Naive {
    configured: BTreeMap<String, Listing>,
    set: BTreeMap<String, Listing>,
}

impl Naive {
    /// The entries that have not expired.
    fn live(&self, now: Timestamp) -> impl Iterator<Item = &Listing> {
        let set = self.set.values().filter(move |listing| listing.is_live(now));
        let configured = self.configured.iter().filter(move |(target, listing)| {
            listing.is_live(now) && !self.set.get(*target).is_some_and(|set| set.is_live(now))
        });
        set.chain(configured.map(|(_, listing)| listing))
    }

    /// The entries that match these fields.
    fn found(&self, address: IpAddr, user: &str, now: Timestamp) -> Vec<Listing> {
        let mut smallest: Option<(u8, &Listing)> = None;
        let mut found = Vec::new();
        for listing in self.live(now) {
            match &listing.target {
                Target::Net(net) => {
                    if net.contains(address) && smallest.is_none_or(|(length, _)| length < net.length()) {
                        smallest = Some((net.length(), listing));
                    }
                }
                Target::Values(values) => {
                    let own = |name: &str| match name {
                        "user" => user.to_owned(),
                        _ => address.to_string(),
                    };
                    if values.iter().all(|(field, value)| own(&field.name) == **value) {
                        found.push(listing.clone());
                    }
                }
            }
        }
        found.extend(smallest.map(|(_, listing)| listing.clone()));
        found
    }

    /// When the last entry that blocks an address expires: of those around it up to the first that allows it.
    /// A configured entry is below the one set at run time.
    fn last_end(&self, address: IpAddr, user: &str, now: Timestamp) -> Option<Timestamp> {
        let set = self.set.values().map(|listing| (listing, 0));
        let all = set.chain(self.configured.values().map(|listing| (listing, 1)));
        let mut nets = Vec::new();
        let mut ends = Vec::new();
        for (listing, layer) in all.filter(|(listing, _)| listing.is_live(now)) {
            if let Target::Net(net) = &listing.target
                && net.contains(address)
            {
                nets.push((u8::MAX - net.length(), layer, listing));
            }
        }
        nets.sort_by_key(|(length, layer, _)| (*length, *layer));
        let blocks = nets.iter().take_while(|(.., listing)| listing.stance == Stance::Block);
        ends.extend(blocks.map(|(.., listing)| listing.until));
        let found = self.found(address, user, now);
        for listing in found.iter().filter(|listing| matches!(listing.target, Target::Values(_))) {
            ends.push(listing.until);
            let under = self.configured.get(&listing.target.to_string());
            let under = under.filter(|under| under.is_live(now) && under.stance == Stance::Block);
            ends.extend(under.map(|under| under.until));
        }
        if ends.contains(&None) { None } else { ends.into_iter().max().flatten() }
    }
}

/// A network or an address among few, so that they are nested.
fn any_net() -> impl Strategy<Value = Net> {
    let v4 = (any::<u8>(), 20_u8..=32)
        .prop_map(|(low, length)| Net::around(IpAddr::V4(Ipv4Addr::new(10, 0, 0, low)), length).unwrap());
    let v6 = (any::<u8>(), 116_u8..=128).prop_map(|(low, length)| {
        let address = Ipv6Addr::from_bits(0x2001_0db8_u128 << 96 | u128::from(low));
        Net::around(IpAddr::V6(address), length).unwrap()
    });
    let edges =
        prop_oneof![Just("0.0.0.0/0"), Just("255.255.255.255"), Just("::/0"), Just("0.0.0.0"), Just("::")];
    prop_oneof![6 => v4, 3 => v6, 1 => edges.prop_map(|net| Net::parse(net).unwrap())]
}

fn any_target() -> impl Strategy<Value = String> {
    let values = prop_oneof![
        "user=[a-d]",
        (any::<u8>(), "[a-d]").prop_map(|(low, user)| format!("ip=10.0.0.{low},user={user}")),
    ];
    prop_oneof![4 => any_net().prop_map(|net| net.to_string()), 1 => values]
}

fn any_listing() -> impl Strategy<Value = Listing> {
    let stance = prop_oneof![Just(Stance::Block), Just(Stance::Allow)];
    (any_target(), stance, prop::option::of(1_u64..100))
        .prop_map(|(target, stance, until)| listing(&target, stance, until))
}

/// An entry, and whether it is removed.
type Step = (Listing, bool);

fn apply(lists: &Lists, naive: &mut Naive, steps: Vec<Step>) -> Lists {
    let mut changes = Vec::new();
    for (listing, removes) in steps {
        let target = listing.target.to_string();
        if !removes {
            naive.set.insert(target, listing.clone());
            changes.push(Change::Put(Arc::new(listing)));
        } else if let Some(known) = naive.set.remove(&target) {
            changes.push(Change::Remove(Arc::new(known)));
        }
    }
    lists.with(changes)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn the_lists_find_what_looking_at_every_entry_finds(
        configured in prop::collection::vec(any_listing(), 0..60),
        batches in prop::collection::vec(prop::collection::vec((any_listing(), prop::bool::weighted(0.3)), 1..300), 0..6),
        asked in prop::collection::vec((any_net(), "[a-d]", 0_u64..110), 100),
    ) {
        let mut naive = Naive::default();
        for listing in configured {
            naive.configured.insert(listing.target.to_string(), listing);
        }
        let mut lists = lists(naive.configured.values().cloned().collect(), vec![]);
        for batch in batches {
            lists = apply(&lists, &mut naive, batch);
            for (net, user, secs) in &asked {
                let address = net.first();
                let text = address.to_string();
                let found = naive.found(address, user, at(*secs));
                let allowed = found.iter().any(|listing| listing.stance == Stance::Allow);
                let bars = blocked(&lists, &[("ip", &text), ("user", user)], *secs);
                prop_assert_eq!(bars.is_some(), !allowed && !found.is_empty(), "{} {} {}", text, user, secs);
                if let Some(bars) = bars {
                    let last = naive.last_end(address, user, at(*secs));
                    prop_assert_eq!(bars.until, last, "{} {} {}", text, user, secs);
                }
            }
        }
        prop_assert_eq!(lists.is_empty(), naive.set.is_empty() && naive.configured.is_empty());
    }

    /// Lists long enough for the index, searched at the edges of networks.
    #[test]
    fn long_lists_find_what_looking_at_every_entry_finds(
        nets in prop::collection::vec((any::<u32>(), 8_u8..=32, any::<u128>(), 16_u8..=128), 700), only: prop::sample::Index,
    ) {
        let mut naive = Naive::default();
        for (v4, length4, v6, length6) in nets {
            let v4 = Net::around(IpAddr::V4(Ipv4Addr::from_bits(v4)), length4).unwrap();
            let v6 = Net::around(IpAddr::V6(Ipv6Addr::from_bits(v6)), length6).unwrap();
            for (net, stance) in [(v4, Stance::Block), (v6, Stance::Block)] {
                naive.set.insert(net.to_string(), listing(&net.to_string(), stance, None));
            }
        }
        let all: Vec<Listing> = naive.set.values().cloned().collect();
        let lists = lists(vec![], all.clone());
        for index in 0..50 {
            let Target::Net(net) = all[(only.index(all.len()) + index * 13) % all.len()].target else { unreachable!() };
            for (step, up) in [(0, true), (1, false), (1 << 8, true), (1 << 70, true)] {
                let address = match net.first() {
                    IpAddr::V4(first) => IpAddr::V4(Ipv4Addr::from_bits(moved(first.to_bits().into(), step, up) as u32)),
                    IpAddr::V6(first) => IpAddr::V6(Ipv6Addr::from_bits(moved(first.to_bits(), step, up))),
                };
                let found = naive.found(address.to_canonical(), "", at(0));
                let bars = blocked(&lists, &[("ip", &address.to_string())], 0);
                prop_assert_eq!(bars, found.first(), "{}", address);
            }
        }
    }
}

fn moved(bits: u128, step: u128, up: bool) -> u128 {
    if up { bits.wrapping_add(step) } else { bits.wrapping_sub(step) }
}
