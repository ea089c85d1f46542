//! Keys: different fields give different keys, other spellings of the same value give the same key, and a
//! written key is found again.

use crate::support::{policy, rule};
use proptest::prelude::*;
use tollgate_core::key::{FieldKind, ValueError};
use tollgate_core::{Attempt, Mistake, Policy, Rule, Ticket};

const NAMES: [&str; 4] = ["one", "two", "three", "four"];
const IP: FieldKind = FieldKind::Ip { v4: 32, v6: 64 };

/// The key of a policy's only rule for these fields; `None` if it does not apply.
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

/// Values of characters that could confuse a joined key.
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

/// Addresses that senders might send, valid or not.
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

/// A local part and a domain, in lower case and in NFC.
fn mailbox() -> impl Strategy<Value = (String, String)> {
    let piece =
        prop::sample::select(vec!["a", "b", ".", " ", "\"", "\\", "@", ",", "ü", "é", "漢", "+", "<", "σ"]);
    let local = prop::collection::vec(piece, 0..4).prop_map(|pieces| pieces.concat());
    (
        local,
        prop::sample::select(vec!["example.com", "b.example", "münchen.de", "[192.0.2.1]"])
            .prop_map(Into::into),
    )
}

/// One of the spellings of a mailbox: quoted if necessary, otherwise as chosen, like escapes and case.
fn quoted(local: &str, domain: &str, choices: &[u8]) -> String {
    let mut choice = choices.iter().copied().cycle();
    let mut chosen = move || choice.next().is_some_and(|choice| choice % 2 == 1);
    let special = |c: char| matches!(c, ' ' | '"' | '\\' | '@' | ',' | '<');
    let quotes = local.is_empty() || local.contains(special) || local.split('.').any(str::is_empty);
    let (quotes, brackets) = (quotes || chosen(), chosen());
    let mut spelt = String::from(if brackets { "<" } else { "" });
    spelt.push_str(if quotes { "\"" } else { "" });
    for c in local.chars() {
        if quotes && (matches!(c, '"' | '\\') || c.is_ascii() && chosen()) {
            spelt.push('\\');
        }
        match c {
            'ü' if chosen() => spelt.push_str("u\u{308}"),
            'é' if chosen() => spelt.push_str("E\u{301}"),
            c if chosen() => spelt.extend(c.to_uppercase()),
            c => spelt.push(c),
        }
    }
    spelt.push_str(if quotes { "\"@" } else { "@" });
    spelt.push_str(&if chosen() { domain.to_uppercase() } else { domain.into() });
    spelt.push_str(if !domain.ends_with(']') && chosen() { "." } else { "" });
    spelt.push_str(if brackets { ">" } else { "" });
    spelt
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
        // An empty value is a mistake.
        if let Ok(Some(written)) = written(&policy(vec![rule.clone()]), &fields) {
            prop_assert_eq!(rule.key_of(&written).map(String::from), Some(written));
        }
    }

    #[test]
    fn all_spellings_of_a_mailbox_give_one_key_and_other_mailboxes_another(
        (local, domain) in mailbox(),
        (other_local, other_domain) in mailbox(),
        choices in prop::collection::vec(any::<u8>(), 8),
    ) {
        let plain = key_of_one(FieldKind::Address, &quoted(&local, &domain, &[0]));
        let spelt = quoted(&local, &domain, &choices);
        prop_assert_eq!(&key_of_one(FieldKind::Address, &spelt), &plain, "{}", spelt);
        let other = key_of_one(FieldKind::Address, &quoted(&other_local, &other_domain, &choices));
        prop_assert_eq!((local, domain) == (other_local, other_domain), plain == other);
    }

    #[test]
    fn whatever_is_sent_is_a_mistake_or_has_a_normal_form_that_is_its_own(value in "\\PC{0,12}(@\\PC{0,12})?") {
        for kind in [FieldKind::Address, FieldKind::Domain] {
            let rule = rule_of(&[kind]);
            if let Ok(Some(written)) = written(&policy(vec![rule.clone()]), &[(NAMES[0], &value)]) {
                prop_assert_eq!(rule.key_of(&written).map(String::from), Some(written));
            }
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
        (FieldKind::Domain, "example。com", "example.com"),
        (FieldKind::Domain, "example.com。", "example.com"),
        (FieldKind::Domain, "example.com．", "example.com"),
        (FieldKind::Domain, "MÜNCHEN.de", "xn--mnchen-3ya.de"),
        (FieldKind::Domain, "XN--MNCHEN-3YA.DE", "xn--mnchen-3ya.de"),
        (FieldKind::Domain, "mu\u{308}nchen.de.", "xn--mnchen-3ya.de"),
        (FieldKind::Domain, "_dmarc.Example.com", "_dmarc.example.com"),
        (FieldKind::Domain, "[192.0.2.1]", "[192.0.2.1]"),
        (FieldKind::Domain, "[IPv6:2001:DB8:0::1]", "[ipv6:2001:db8::1]"),
        (FieldKind::Address, "Alice@Example.COM", "alice@example.com"),
        (FieldKind::Address, "<alice@example.com>", "alice@example.com"),
        (FieldKind::Address, "<alice@example.com.>", "alice@example.com"),
        (FieldKind::Address, "ALICE@münchen.DE.", "alice@xn--mnchen-3ya.de"),
        (FieldKind::Address, "Ünal@münchen.de。", "ünal@xn--mnchen-3ya.de"),
        (FieldKind::Address, "\"odd@local\"@example.com", "\"odd@local\"@example.com"),
        (FieldKind::Address, "Postmaster", "postmaster"),
        (FieldKind::Address, "<POSTMASTER>", "postmaster"),
        (FieldKind::Address, "\"Alice\"@example.com", "alice@example.com"),
        (FieldKind::Address, "<\"al\\ice\"@example.com>", "alice@example.com"),
        (FieldKind::Address, "\"\\a\\l.i\\ce\"@example.com", "al.ice@example.com"),
        (FieldKind::Address, "\"a\\ b\"@example.com", "\"a b\"@example.com"),
        (FieldKind::Address, "\"a\\\"\\\\\\b\"@example.com", "\"a\\\"\\\\b\"@example.com"),
        (FieldKind::Address, "\"\"@example.com", "\"\"@example.com"),
        (FieldKind::Address, "\"a..b\"@example.com", "\"a..b\"@example.com"),
        (FieldKind::Address, "u\u{308}nal@example.com", "ünal@example.com"),
        (FieldKind::Address, "\"U\u{308}nal\"@mu\u{308}nchen.de", "ünal@xn--mnchen-3ya.de"),
        (FieldKind::Address, "ΣΑΣ@example.com", "σασ@example.com"),
        (FieldKind::Address, "σας@example.com", "σασ@example.com"),
        (FieldKind::Address, "H\u{331}@example.com", "ẖ@example.com"),
        (FieldKind::Address, "a@[192.0.2.1]", "a@[192.0.2.1]"),
        (FieldKind::Address, "a@[ipv6:2001:0db8::0001]", "a@[ipv6:2001:db8::1]"),
        (FieldKind::Address, "a@[IPv6:::ffff:192.0.2.1]", "a@[192.0.2.1]"),
        (FieldKind::Address, "SRS0=x/y+z@Mx_1.Example.com.", "srs0=x/y+z@mx_1.example.com"),
    ];
    for (kind, value, expected) in table {
        assert_eq!(key_of_one(*kind, value).as_deref(), Some(*expected), "{value}");
    }
}

/// Texts that are neither a mail address nor the null sender.
const NO_ADDRESSES: &[&str] = &[
    "alice",
    "alice@",
    "@example.com",
    "alice@example.com@example.com",
    " alice@example.com",
    "alice@example.com ",
    "alice @example.com",
    "alice@ example.com",
    "alice\t@example.com",
    "alice\0@example.com",
    "alice@example.com\0",
    "alice@example.com\r\n",
    "alice\r\n@example.com",
    "alice\u{a0}@example.com",
    "ali\u{200b}ce@example.com",
    "ali\u{200d}ce@example.com",
    "ali\u{202e}ce@example.com",
    "ali\u{85}ce@example.com",
    "alice;@example.com",
    "alice\u{37e}@example.com",
    ".alice@example.com",
    "alice.@example.com",
    "al..ice@example.com",
    "alice@example.com..",
    "alice@.example.com",
    "alice@example..com",
    "alice@-example.com",
    "alice@example-.com",
    "alice@exa mple.com",
    "alice@example.com,example.org",
    "alice@xn--example-.com",
    "alice@xn--a.com",
    "alice@192.0.2.1",
    "alice@[192.0.2.01]",
    "alice@[192.0.2.1",
    "alice@192.0.2.1]",
    "alice@[2001:db8::1]",
    "alice@[IPv6:192.0.2.1]",
    "alice@[IPv6:]",
    "alice@[x:y]",
    "<alice@example.com",
    "alice@example.com>",
    "<<alice@example.com>>",
    "<alice@example.com>.",
    "<alice@example.com> ",
    "Alice <alice@example.com>",
    "alice(comment)@example.com",
    "@relay.example,@other.example:alice@example.com",
    "\"alice\"",
    "\"alice@example.com",
    "\"alice\"x@example.com",
    "x\"alice\"@example.com",
    "\"ali\tce\"@example.com",
    "\"ali\0ce\"@example.com",
    "\"ali\\\0ce\"@example.com",
    "\"ali\\üce\"@example.com",
    "\"alice\\\"@example.com",
    "alice\\@example.com",
    "<",
    ">",
    "@",
    "<@>",
    "<\"\">",
];

const NO_DOMAINS: &[&str] = &[
    "..",
    "example.com..",
    ".example.com",
    "example .com",
    " example.com",
    "example.com\0",
    "example.com\r\n",
    "exa\tmple.com",
    "example.com:25",
    "a@example.com",
    "*.example.com",
    "-a.example",
    "xn--example-.com",
    "xn--a.com",
    "exa\u{2260}mple.com＠",
    "[192.0.2.1]x",
    "[]",
];

#[test]
fn an_invalid_address_or_domain_is_a_mistake_and_gives_no_key() {
    let too_long = format!("alice@{}.com", "a".repeat(64));
    let far_too_long = format!("alice@{}com", "abcdefg.".repeat(32));
    let addresses = NO_ADDRESSES.iter().copied().chain([&*too_long, &far_too_long]);
    let all = addresses.map(|value| (FieldKind::Address, value));
    for (kind, value) in all.chain(NO_DOMAINS.iter().map(|value| (FieldKind::Domain, *value))) {
        let rule = rule_of(&[kind]);
        let mistake = written(&policy(vec![rule.clone()]), &[(NAMES[0], value)]);
        let Err(Mistake::BadValue { error, .. }) = mistake else { panic!("{value:?} gives {mistake:?}") };
        let fits = match kind {
            FieldKind::Address => matches!(error, ValueError::NotAnAddress { .. }),
            _ => matches!(error, ValueError::NotADomain { .. }),
        };
        assert!(fits, "{value:?} gives {error:?}");
        assert_eq!(rule.key_of(value), None, "{value:?}");
    }
}

#[test]
fn an_invalid_address_is_explained_with_an_example() {
    let policy = policy(vec![rule("sender", &[("sender", FieldKind::Address)], &["1/hour"])]);
    let mistake = written(&policy, &[("sender", "alice")]).unwrap_err();
    assert_eq!(
        mistake.to_string(),
        "the value of `sender` is not a mail address: there is no `@` in it; write it as in `user@example.com`"
    );
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
            written(&crate::support::policy(vec![rule.clone()]), &[(NAMES[0], nothing)]),
            Err(empty),
            "{kind:?}"
        );
        assert_eq!(rule.key_of(nothing), None, "no operator can name it either");
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
    domain.overrides.insert("example.com".into(), crate::support::plan("rule", &["7/hour"]));
    let policy = policy(vec![domain]);
    for (value, max) in [("EXAMPLE.com.", 7), ("example.org", 1)] {
        let fields = [(NAMES[0], value)];
        let attempt = Attempt { policy: "policy", fields: &fields, cost: 1, id: None };
        let charges = policy.charges(&attempt, Ticket(1)).unwrap();
        assert_eq!(charges.iter().next().unwrap().plan.limits()[0].number(), max);
    }
}
