//! Keys: different fields give different keys, the same thing spelt otherwise gives the same key,
//! and a key as it was written is found again.

mod support;

use proptest::prelude::*;
use support::{policy, rule};
use tollgate_core::key::{FieldKind, ValueError};
use tollgate_core::{Attempt, Mistake, Policy, Rule, Ticket};

const NAMES: [&str; 4] = ["one", "two", "three", "four"];
const IP: FieldKind = FieldKind::Ip { v4: 32, v6: 64 };

/// The key under which a policy's only rule counts these fields; `None` if it does not apply.
fn key(policy: &Policy, fields: &[(&str, &str)]) -> Option<String> {
    written(policy, fields).unwrap_or_else(|mistake| panic!("{mistake}"))
}

fn written(policy: &Policy, fields: &[(&str, &str)]) -> Result<Option<String>, Mistake> {
    let attempt = Attempt { policy: "policy", fields, cost: 1, id: None };
    let charges = policy.charges(&attempt, Ticket(1))?;
    Ok(charges.iter().next().map(|charge| charges.key(charge).to_string()))
}

fn rule_of(kinds: &[FieldKind]) -> Rule {
    let by: Vec<_> = NAMES.iter().copied().zip(kinds.iter().copied()).collect();
    rule("rule", &by, &["1/hour"])
}

fn key_of_one(kind: FieldKind, value: &str) -> Option<String> {
    key(&policy(vec![rule_of(&[kind])]), &[(NAMES[0], value)])
}

/// Values made of what could confuse a joined key.
fn value() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![",", "\\", "\\,", ",,", ":", "a", "b", "é", "漢", " ", "\0", "%"]);
    prop_oneof![
        3 => prop::collection::vec(piece, 1..6).prop_map(|pieces| pieces.concat()),
        1 => "\\PC{1,12}",
    ]
}

fn tuples() -> impl Strategy<Value = (Vec<String>, Vec<String>)> {
    (1..=4_usize)
        .prop_flat_map(|count| (prop::collection::vec(value(), count), prop::collection::vec(value(), count)))
}

/// What senders might send, well formed or not.
fn address() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "a",
        "B",
        "@",
        ".",
        "<",
        ">",
        "example",
        "COM",
        "ü",
        "ß",
        "İ",
        "Σ",
        "K",
        "。",
        "．",
        "＞",
        "＜",
        "＠",
        "，",
        ",",
        "xn--",
        "mnchen-3ya",
        "\u{ad}",
        "-",
        "漢",
        "/",
        "\\",
        "%",
        "\u{200d}",
    ]);
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn different_fields_give_different_keys((left, right) in tuples()) {
        let policy = policy(vec![rule_of(&vec![FieldKind::Text; left.len()])]);
        let [left_key, right_key] = [&left, &right].map(|values| {
            let fields: Vec<_> = NAMES.into_iter().zip(values.iter().map(String::as_str)).collect();
            key(&policy, &fields)
        });
        prop_assert_eq!(left == right, left_key == right_key);
    }

    #[test]
    fn a_key_as_it_was_written_is_found_again((values, _) in tuples()) {
        let rule = rule_of(&vec![FieldKind::Text; values.len()]);
        let fields: Vec<_> = NAMES.into_iter().zip(values.iter().map(String::as_str)).collect();
        let written = key(&policy(vec![rule.clone()]), &fields).expect("texts are always present");
        prop_assert_eq!(rule.key_of(&written).map(String::from), Some(written));
    }

    #[test]
    fn a_normalised_key_is_its_own_normal_form(
        kinds in prop::collection::vec(prop::sample::select(vec![FieldKind::Address, FieldKind::Domain]), 1..4),
        values in prop::collection::vec(address(), 3),
    ) {
        let rule = rule_of(&kinds);
        let fields: Vec<_> = NAMES.into_iter().zip(values.iter().map(String::as_str)).take(kinds.len()).collect();
        // What nothing is left of is a mistake.
        if let Ok(Some(written)) = written(&policy(vec![rule.clone()]), &fields) {
            prop_assert_eq!(rule.key_of(&written).map(String::from), Some(written));
        }
    }

    #[test]
    fn a_network_is_its_own_normal_form(bits in any::<u128>(), short in any::<u32>(), v4 in 0..=32_u8, v6 in 0..=128_u8) {
        let rule = rule_of(&[FieldKind::Ip { v4, v6 }]);
        let addresses = [std::net::Ipv4Addr::from_bits(short).to_string(), std::net::Ipv6Addr::from_bits(bits).to_string()];
        for address in addresses {
            let written = key(&policy(vec![rule.clone()]), &[(NAMES[0], &address)]).expect("addresses are present");
            prop_assert_eq!(rule.key_of(&written).map(String::from), Some(written));
        }
    }
}

#[test]
fn one_thing_spelt_in_different_ways_has_one_key() {
    let table: &[(FieldKind, &str, &str)] = &[
        (FieldKind::Text, "As It Is.", "As It Is."),
        (IP, "192.0.2.7", "192.0.2.7"),
        (IP, "::ffff:192.0.2.7", "192.0.2.7"),
        (IP, "::FFFF:c000:207", "192.0.2.7"),
        (IP, "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        (IP, "2001:0DB8:0001:0002::", "2001:db8:1:2::/64"),
        (FieldKind::Ip { v4: 24, v6: 48 }, "192.0.2.7", "192.0.2.0/24"),
        (FieldKind::Ip { v4: 24, v6: 48 }, "::ffff:192.0.2.9", "192.0.2.0/24"),
        (FieldKind::Ip { v4: 24, v6: 48 }, "2001:db8:1:2::3", "2001:db8:1::/48"),
        (FieldKind::Ip { v4: 0, v6: 0 }, "192.0.2.7", "0.0.0.0/0"),
        (FieldKind::Ip { v4: 0, v6: 0 }, "2001:db8::1", "::/0"),
        (FieldKind::Ip { v4: 32, v6: 128 }, "2001:db8:0::1", "2001:db8::1"),
        (FieldKind::Domain, "Example.COM", "example.com"),
        (FieldKind::Domain, "example.com.", "example.com"),
        (FieldKind::Domain, "example.com..", "example.com"),
        (FieldKind::Domain, "example。com", "example.com"),
        (FieldKind::Domain, "example.com。", "example.com"),
        (FieldKind::Domain, "example.com．", "example.com"),
        (FieldKind::Domain, "MÜNCHEN.de", "xn--mnchen-3ya.de"),
        (FieldKind::Domain, "XN--MNCHEN-3YA.DE", "xn--mnchen-3ya.de"),
        (FieldKind::Address, "Alice@Example.COM", "alice@example.com"),
        (FieldKind::Address, "<alice@example.com>", "alice@example.com"),
        (FieldKind::Address, "<<alice@example.com>>", "alice@example.com"),
        (FieldKind::Address, "<alice@example.com.>", "alice@example.com"),
        (FieldKind::Address, "<alice@example.com>.", "alice@example.com"),
        (FieldKind::Address, "ALICE@münchen.DE.", "alice@xn--mnchen-3ya.de"),
        (FieldKind::Address, "Ünal@münchen.de。", "ünal@xn--mnchen-3ya.de"),
        (FieldKind::Address, "\"odd@local\"@example.com", "\"odd@local\"@example.com"),
        (FieldKind::Address, "Postmaster", "postmaster"),
    ];
    for (kind, value, expected) in table {
        assert_eq!(key_of_one(*kind, value).as_deref(), Some(*expected), "{value}");
    }
}

#[test]
fn the_null_sender_skips_the_rule_and_no_other() {
    for sender in ["<>", ""] {
        assert_eq!(key_of_one(FieldKind::Address, sender), None, "{sender:?}");
    }
    let both = policy(vec![
        rule("sender", &[("sender", FieldKind::Address)], &["1/hour"]),
        rule("pair", &[("ip", IP), ("sender", FieldKind::Address)], &["1/hour"]),
        rule("ip", &[("ip", IP)], &["1/hour"]),
    ]);
    assert_eq!(key(&both, &[("ip", "192.0.2.7"), ("sender", "<>")]).as_deref(), Some("192.0.2.7"));
}

#[test]
fn a_missing_field_skips_the_rule_and_an_empty_one_is_a_mistake() {
    let rule = rule_of(&[FieldKind::Text, FieldKind::Text]);
    let mut policy = policy(vec![rule]);
    policy.allow_unmatched = true;
    assert_eq!(key(&policy, &[(NAMES[0], "a")]), None);
    let empty = Mistake::BadValue { field: NAMES[1].into(), error: ValueError::Empty };
    assert_eq!(written(&policy, &[(NAMES[0], "a"), (NAMES[1], "")]), Err(empty.clone()));
    assert_eq!(empty.to_string(), "the value of `two` is empty; leave the field out if there is none");
    for (kind, nothing) in [
        (FieldKind::Text, ""),
        (IP, ""),
        (FieldKind::Domain, ""),
        (FieldKind::Domain, "."),
        (FieldKind::Domain, "。"),
    ] {
        let rule = rule_of(&[kind]);
        let empty = Mistake::BadValue { field: NAMES[0].into(), error: ValueError::Empty };
        assert_eq!(
            written(&support::policy(vec![rule.clone()]), &[(NAMES[0], nothing)]),
            Err(empty),
            "{kind:?}"
        );
        assert_eq!(rule.key_of(nothing), None, "nobody can name it either");
    }
}

#[test]
fn a_rule_without_fields_has_one_key_that_is_its_name() {
    let global = rule("global", &[], &["1/hour"]);
    assert_eq!(key(&policy(vec![global.clone()]), &[]).as_deref(), Some("global"));
    assert_eq!(global.key_of("global").as_deref(), Some("global"));
    assert_eq!(global.key_of("other"), None);
}

#[test]
fn a_text_that_no_key_of_the_rule_has_is_not_found() {
    let pair = rule_of(&[FieldKind::Text, IP]);
    for text in ["a", "a,b", "a,192.0.2.7,b", "a\\", "a,192.0.2.7\\", "", "a\\,192.0.2.7"] {
        assert_eq!(pair.key_of(text), None, "{text}");
    }
    assert_eq!(pair.key_of("a\\,b,::ffff:192.0.2.7").as_deref(), Some("a\\,b,192.0.2.7"));
}

#[test]
fn an_override_is_found_by_the_normal_form() {
    let mut domain = rule_of(&[FieldKind::Domain]);
    domain.overrides.insert("example.com".into(), support::plan("rule", &["7/hour"]));
    let policy = policy(vec![domain]);
    for (value, max) in [("EXAMPLE.com.", 7), ("example.org", 1)] {
        let fields = [(NAMES[0], value)];
        let attempt = Attempt { policy: "policy", fields: &fields, cost: 1, id: None };
        let charges = policy.charges(&attempt, Ticket(1)).unwrap();
        assert_eq!(charges.iter().next().unwrap().plan.limits()[0].number(), max);
    }
}
