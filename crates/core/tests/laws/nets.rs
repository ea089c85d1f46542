//! Networks and targets parse as they are printed, and errors come with a remedy.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use tollgate_core::key::{FieldKind, Kinds};
use tollgate_core::{Net, Target};

fn target(text: &str) -> Result<Target, String> {
    Target::parse(text, &Kinds::default()).map_err(|error| error.to_string())
}

#[test]
fn networks_are_printed_in_one_way() {
    let table = [
        ("203.0.113.7", "203.0.113.7"),
        ("203.0.113.7/32", "203.0.113.7"),
        ("203.0.113.0/24", "203.0.113.0/24"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("2001:DB8:0:0::/32", "2001:db8::/32"),
        ("::1/128", "::1"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("::ffff:203.0.113.0/120", "203.0.113.0/24"),
        ("::/0", "::/0"),
    ];
    for (written, printed) in table {
        assert_eq!(Net::parse(written).unwrap().to_string(), printed, "{written}");
    }
}

#[test]
fn an_invalid_network_is_refused_with_a_correction() {
    let table = [
        (
            "203.0.113.7/24",
            "character 13: bits are set beyond /24: write `203.0.113.0/24` for the network, or `203.0.113.7`",
        ),
        ("2001:db8::1/32", "write `2001:db8::/32` for the network, or `2001:db8::1`"),
        ("203.0.113.0/33", "the prefix of an IPv4 network is 0 to 32 bits"),
        ("203.0.113.0/-1", "0 to 32 bits"),
        ("203.0.113.0/+8", "0 to 32 bits"),
        ("203.0.113.0/", "0 to 32 bits"),
        ("2001:db8::/129", "the prefix of an IPv6 network is 0 to 128 bits"),
        ("203.0.113.0/255.255.255.0", "not the mask: `203.0.113.0/24`"),
        ("203.0.113/24", "character 1: an IPv4 address has four numbers"),
        ("203.0.113.256", "0 to 255"),
        ("203.0.113.07", "without zeros before"),
        ("203.0.113.7:80", "without its port"),
        ("[::1]:80", "without its port"),
        ("fe80::1%eth0", "without its zone"),
        ("203.0.113.7 /24", "there is a space in it"),
        ("2001:db8:::/32", "this is not an address"),
        ("example.com", "this is not an address"),
    ];
    for (text, expected) in table {
        let problem = Net::parse(text).unwrap_err().to_string();
        assert!(problem.contains(expected), "{text}: {problem}");
        assert_eq!(target(text).unwrap_err(), problem, "as a target too");
    }
}

#[test]
fn targets_are_printed_in_one_way() {
    let table = [
        ("203.0.113.0/24", "203.0.113.0/24"),
        ("ip=203.0.113.0/24", "203.0.113.0/24"),
        ("ip=::ffff:203.0.113.7", "203.0.113.7"),
        ("user=bob", "user=bob"),
        ("user=a=b", "user=a=b"),
        ("user=a\\,b\\\\c", "user=a\\,b\\\\c"),
        ("user=bob,ip=2001:db8::1", "ip=2001:db8::/64,user=bob"),
        ("sender=<Bob@Example.COM>", "sender=bob@example.com"),
        ("domain=BÜCHER.example.", "domain=xn--bcher-kva.example"),
    ];
    for (written, printed) in table {
        assert_eq!(target(written).unwrap().to_string(), printed, "{written}");
    }
}

#[test]
fn an_invalid_target_is_refused_with_a_correction() {
    let table = [
        ("", "neither an address nor a field"),
        ("bob", "as in `user=bob`"),
        ("=bob", "cannot name a field"),
        ("us er=bob", "`us er` cannot name a field"),
        ("user=", "the value of `user` is empty"),
        ("user=a,b", "character 8: a field is followed by `=`"),
        ("user=a\\", "cannot end in a single backslash; write `\\\\`"),
        ("user=a,user=b", "the field `user` is written twice"),
        ("a=1,b=2,c=3,d=4,e=5", "1 to 4 fields"),
        ("ip=203.0.113.7/24", "character 16: bits are set beyond /24: write `203.0.113.0/24`"),
        ("ip=bob", "character 4: this is not an address"),
        ("user=bob,ip=203.0.113.0/24", "the value of `ip` is not an IPv4 or IPv6 address"),
        ("sender=<>", "is an empty address"),
    ];
    for (text, expected) in table {
        let problem = target(text).unwrap_err();
        assert!(problem.contains(expected), "{text}: {problem}");
    }
    let long = target(&format!("user={}", "x".repeat(1_025))).unwrap_err();
    assert!(long.contains("1025 bytes long"), "{}", &long[long.len() - 100..]);
}

#[test]
fn a_key_of_a_rule_becomes_the_target_that_it_counts() {
    let (text, ip) = (FieldKind::Text, FieldKind::of_name("ip"));
    let of = |by: &[(&str, FieldKind)], key: &str| {
        Target::of_key(&crate::support::rule("r", by, &["1/s"]), key).map(|target| target.to_string())
    };
    assert_eq!(of(&[("ip", ip)], "203.0.113.7").unwrap(), "203.0.113.7");
    assert_eq!(of(&[("ip", ip)], "2001:db8::/64").unwrap(), "2001:db8::/64");
    assert_eq!(
        of(&[("user", text), ("ip", ip)], "a\\,b,2001:db8::/64").unwrap(),
        "ip=2001:db8::/64,user=a\\,b"
    );
    assert_eq!(of(&[("user", text)], "a,b").unwrap(), "user=a\\,b");
    assert_eq!(of(&[], "r"), None);
}

proptest! {
    #[test]
    fn a_network_is_read_as_it_is_printed_and_holds_exactly_its_addresses(
        bits: u128, flip in 0_u32..128, length in 0_u8..=128, v4: bool,
    ) {
        let address = |bits: u128| match v4 {
            true => IpAddr::V4(Ipv4Addr::from_bits(bits as u32)),
            false => IpAddr::V6(Ipv6Addr::from_bits(bits | 1 << 127)),
        };
        let (length, whole) = if v4 { (length % 33, 32) } else { (length, 128) };
        let net = Net::around(address(bits), length).unwrap();
        prop_assert_eq!(Net::parse(&net.to_string()), Ok(net));
        prop_assert!(net.contains(address(bits)) && net.contains(net.first()));
        let flip = flip % whole;
        let outside = net.contains(address(bits ^ 1 << flip));
        prop_assert_eq!(outside, flip < whole - u32::from(length) || (!v4 && flip == 127));
    }

    #[test]
    fn parsing_a_target_never_panics_and_printing_returns_the_same_target(text in "[a-z0-9.:/=,\\\\%\\[\\] é-]{0,40}") {
        if let Ok(read) = target(&text) {
            prop_assert_eq!(target(&read.to_string()), Ok(read));
        }
    }
}
