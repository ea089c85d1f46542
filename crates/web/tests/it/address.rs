//! P27: only trusted proxies may state the address of a client.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::header::{FORWARDED, HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;
use tollgate_web::TrustedProxies;
use tollgate_web::address::X_FORWARDED_FOR;

const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn trusting(header: HeaderName) -> TrustedProxies {
    TrustedProxies::new(vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()], header)
}

fn headers(name: &HeaderName, lines: &[&str]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines {
        headers.append(name, HeaderValue::from_bytes(line.as_bytes()).unwrap());
    }
    headers
}

fn client(header: HeaderName, peer: &str, lines: &[&str]) -> String {
    let headers = headers(&header, lines);
    trusting(header).client(ip(peer), &headers).to_string()
}

#[test]
fn no_proxy_is_trusted_by_default() {
    let headers = headers(&X_FORWARDED_FOR, &["192.0.2.1"]);
    assert_eq!(TrustedProxies::none().client(ip("10.0.0.1"), &headers), ip("10.0.0.1"));
    assert!(!TrustedProxies::none().trusts(ip("127.0.0.1")));
}

#[test]
fn the_first_hop_from_the_right_that_is_not_trusted_is_the_client() {
    let client = |lines: &[&str]| client(X_FORWARDED_FOR, "10.0.0.1", lines);
    assert_eq!(client(&["192.0.2.1"]), "192.0.2.1");
    assert_eq!(client(&["6.6.6.6, 192.0.2.1"]), "192.0.2.1");
    assert_eq!(client(&["6.6.6.6,192.0.2.1 , 10.9.9.9"]), "192.0.2.1");
    assert_eq!(client(&["6.6.6.6, 192.0.2.1", "10.1.1.1, 10.2.2.2"]), "192.0.2.1", "lines are one list");
    assert_eq!(client(&["6.6.6.6", "192.0.2.1"]), "192.0.2.1");
    assert_eq!(client(&["192.0.2.1:8080"]), "192.0.2.1");
    assert_eq!(client(&["2001:db8::1"]), "2001:db8::1");
    assert_eq!(client(&["[2001:db8::1]:443, fd00::2"]), "2001:db8::1");
    assert_eq!(client(&["[2001:db8::1]"]), "2001:db8::1");
}

#[test]
fn if_every_hop_is_trusted_the_furthest_is_the_client() {
    assert_eq!(client(X_FORWARDED_FOR, "10.0.0.1", &["10.3.3.3, 10.2.2.2"]), "10.3.3.3");
    assert_eq!(client(X_FORWARDED_FOR, "10.0.0.1", &[]), "10.0.0.1");
    assert_eq!(client(X_FORWARDED_FOR, "10.0.0.1", &["", " , "]), "10.0.0.1");
}

#[test]
fn a_hop_that_cannot_be_read_ends_the_walk() {
    for hop in
        ["unknown", "_hidden", "192.0.2", "192.0.2.1.", ":::1", "fe80::1%eth0", "[fe80::1%1]:80", "\"", "a b"]
    {
        let line = format!("6.6.6.6, {hop}, 10.2.2.2");
        assert_eq!(client(X_FORWARDED_FOR, "10.0.0.1", &[&line]), "10.2.2.2", "{hop}");
        assert_eq!(client(X_FORWARDED_FOR, "10.0.0.1", &[hop]), "10.0.0.1", "{hop}");
    }
}

#[test]
fn forwarded_is_read_as_rfc_7239_writes_it() {
    let client = |lines: &[&str]| client(FORWARDED, "10.0.0.1", lines);
    assert_eq!(client(&["for=192.0.2.60;proto=http;by=203.0.113.43"]), "192.0.2.60");
    assert_eq!(client(&["For=\"[2001:db8:cafe::17]:4711\""]), "2001:db8:cafe::17");
    assert_eq!(client(&["for=192.0.2.43, for=198.51.100.17"]), "198.51.100.17");
    assert_eq!(client(&["for=6.6.6.6", "proto=https; for=\"192.0.2.9:80\" , for=10.7.7.7"]), "192.0.2.9");
    assert_eq!(client(&["for=192.0.2.1;host=\"a,b;for=6.6.6.6\""]), "192.0.2.1", "quotes keep together");
    assert_eq!(client(&[r#"for=192.0.2.1;host="a\",for=6.6.6.6;x=\"b""#]), "192.0.2.1", "escapes too");
}

#[test]
fn an_element_of_forwarded_that_hides_its_hop_ends_the_walk() {
    for element in [
        "for=unknown",
        "for=_SEVKISEK",
        "proto=https",
        "for=",
        "for=\"192.0.2.1",
        "for=192.0.2.1;for=192.0.2.2",
    ] {
        let line = format!("for=6.6.6.6, {element}, for=10.2.2.2");
        assert_eq!(client(FORWARDED, "10.0.0.1", &[&line]), "10.2.2.2", "{element}");
    }
}

#[test]
fn an_open_quote_does_not_swallow_what_the_next_hop_wrote() {
    assert_eq!(client(FORWARDED, "10.0.0.1", &["for=\"evil, for=192.0.2.1"]), "192.0.2.1");
    assert_eq!(client(FORWARDED, "10.0.0.1", &["for=\"evil\\, for=\"192.0.2.1\""]), "192.0.2.1");
}

#[test]
fn a_header_of_one_address_is_read_and_the_others_are_not() {
    let mut all = headers(&X_REAL_IP, &["192.0.2.1"]);
    all.insert(X_FORWARDED_FOR, HeaderValue::from_static("6.6.6.6"));
    all.insert(FORWARDED, HeaderValue::from_static("for=6.6.6.6"));
    assert_eq!(trusting(X_REAL_IP).client(ip("10.0.0.1"), &all), ip("192.0.2.1"));
    assert_eq!(
        client(X_REAL_IP, "10.0.0.1", &["6.6.6.6", "192.0.2.1"]),
        "192.0.2.1",
        "the last line is the proxy's"
    );
}

#[test]
fn ipv4_inside_ipv6_is_ipv4_wherever_it_is_written() {
    assert_eq!(client(X_FORWARDED_FOR, "::ffff:10.0.0.1", &["::ffff:192.0.2.1"]), "192.0.2.1");
    assert_eq!(client(X_FORWARDED_FOR, "::ffff:192.0.2.7", &["6.6.6.6"]), "192.0.2.7");
    let mapped = TrustedProxies::new(vec!["::ffff:10.0.0.0/104".parse().unwrap()], X_FORWARDED_FOR);
    assert!(mapped.trusts(ip("10.2.3.4")) && !mapped.trusts(ip("11.2.3.4")));
    let all = TrustedProxies::new(vec!["::/0".parse().unwrap()], X_FORWARDED_FOR);
    assert!(all.trusts(ip("2001:db8::1")) && !all.trusts(ip("192.0.2.1")));
}

fn untrusted() -> impl Strategy<Value = IpAddr> {
    let v4 = any::<u32>().prop_map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits)));
    let v6 = any::<u128>().prop_map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits)));
    prop_oneof![v4, v6]
        .prop_map(|address| address.to_canonical())
        .prop_filter("trusted", |address| !trusting(X_FORWARDED_FOR).trusts(*address))
}

fn trusted() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<[u8; 3]>().prop_map(|[b, c, d]| IpAddr::V4(Ipv4Addr::new(10, b, c, d))),
        any::<u64>().prop_map(|low| IpAddr::V6(Ipv6Addr::from_bits(0xfd << 120 | u128::from(low)))),
    ]
}

/// Anything that a client may write into a header: addresses, elements, quotes, and any other bytes.
fn written() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"10.0.0.1".to_vec()),
        Just(b"6.6.6.6".to_vec()),
        Just(b"for=10.0.0.2".to_vec()),
        Just(b"for=\"[fd00::1]:80\"".to_vec()),
        prop::sample::select(b",;=\"\\ [].:%".to_vec()).prop_map(|byte| vec![byte]),
        prop::collection::vec(prop_oneof![Just(b'\t'), 0x20..=0x7e_u8, 0x80..=0xff_u8], 0..6),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

fn header() -> impl Strategy<Value = HeaderName> {
    prop::sample::select(vec![X_FORWARDED_FOR, FORWARDED, X_REAL_IP])
}

/// A hop as a proxy writes it.
fn hop(header: &HeaderName, address: IpAddr) -> String {
    match (*header == FORWARDED, address) {
        (true, IpAddr::V6(address)) => format!("for=\"[{address}]:4711\";proto=https"),
        (true, IpAddr::V4(address)) => format!("proto=https;for={address}"),
        (false, address) => address.to_string(),
    }
}

proptest! {
    #[test]
    fn whatever_an_untrusted_peer_writes_it_is_the_client(
        peer in untrusted(), header in header(), lines in prop::collection::vec(written(), 0..4),
    ) {
        let mut headers = HeaderMap::new();
        for line in &lines {
            for name in [&X_FORWARDED_FOR, &FORWARDED, &X_REAL_IP] {
                headers.append(name, HeaderValue::from_bytes(line).unwrap());
            }
        }
        prop_assert_eq!(trusting(header).client(peer, &headers), peer);
    }

    #[test]
    fn hops_left_of_the_first_untrusted_one_never_matter(
        header in header(),
        peer in trusted(),
        client in untrusted(),
        between in prop::collection::vec(trusted(), 0..4),
        left in prop::collection::vec(written(), 0..4),
        same_line: bool,
    ) {
        let honest: Vec<String> = [client].into_iter().chain(between).map(|address| hop(&header, address)).collect();
        let honest = honest.join(", ");
        let mut headers = HeaderMap::new();
        for line in &left {
            headers.append(&header, HeaderValue::from_bytes(line).unwrap());
        }
        if same_line && let Some(line) = left.last() {
            // A proxy may append to the line that it received.
            let line = [line, &b", "[..], honest.as_bytes()].concat();
            headers.append(&header, HeaderValue::from_bytes(&line).unwrap());
        } else {
            headers.append(&header, HeaderValue::try_from(honest).unwrap());
        }
        prop_assert_eq!(trusting(header).client(peer, &headers), client);
    }
}
