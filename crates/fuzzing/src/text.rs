//! Texts that clients, operators and servers write.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;

use http::header::{FORWARDED, HeaderMap, HeaderName, HeaderValue};
use tollgate_core::grammar;
use tollgate_core::key::{FieldKind, MOST_FIELD_BYTES};
use tollgate_core::{Net, Rule, Ticket, Timestamp};
use tollgate_engine::receipt::{Kind, Seal};
use tollgate_redis::fuzzing::{ReadReply, read_reply};
use tollgate_web::address::X_FORWARDED_FOR;
use tollgate_web::{TrustedProxies, path};

/// A normal form is its own normal form, and so is the key of a value.
pub fn normal_forms(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(normal) = path::normal(text) {
        assert_eq!(path::normal(&normal).as_deref(), Ok(&*normal), "{text:?}");
    }
    if let Ok(normal) = path::normal_host(text) {
        assert_eq!(path::normal_host(&normal).as_deref(), Ok(&*normal), "{text:?}");
    }
    if let Ok(net) = Net::parse(text) {
        assert_eq!(Net::parse(&net.to_string()).as_ref(), Ok(&net), "{text:?}");
    }
    client_address(text, X_FORWARDED_FOR, "");
    // A quotation mark that a trusted proxy left open would enclose the entry before it.
    if !text.contains('"') {
        client_address(text, FORWARDED, "for=");
    }
    for rule in RULES.iter() {
        let Some(key) = rule.key_of(text) else { continue };
        let shown = format!("{text:?} has the key {key:?} by {:?}", rule.by);
        for field in rule.by.iter().filter(|_| rule.by.len() == 1) {
            assert_eq!(field.kind.check(text), Ok(()), "{shown}");
        }
        // A value near the bound can have a longer key, which is not a value.
        if key.len() <= MOST_FIELD_BYTES {
            assert_eq!(rule.key_of(&key).as_ref(), Some(&key), "{shown}");
        }
    }
}

/// The client that trusted proxies name stays the same if an untrusted host writes an entry to its left. Its
/// address, named alone, names the same client.
fn client_address(text: &str, header: HeaderName, name: &str) {
    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let nets = ["127.0.0.0/8", "10.0.0.0/8"].map(|net| net.parse().expect("a network"));
    let proxies = TrustedProxies::new(nets.to_vec(), header.clone());
    let client = |value: &str| {
        let value = HeaderValue::from_str(value).ok()?;
        Some(proxies.client(PEER, &HeaderMap::from_iter([(header.clone(), value)])))
    };
    let Some(found) = client(text).filter(|found| !proxies.trusts(*found)) else { return };
    let forged = format!("{name}198.51.100.66, {text}");
    assert_eq!(client(&forged), Some(found), "{text:?} in {header}");
    let shown =
        if found.is_ipv6() && !name.is_empty() { format!("\"[{found}]\"") } else { found.to_string() };
    assert_eq!(client(&format!("{name}{shown}")), Some(found), "{text:?} in {header}");
}

/// Rules by each kind of field that has a normal form.
static RULES: LazyLock<[Rule; 6]> = LazyLock::new(|| {
    let rule = |by: &[&str]| Rule::new("rule", by, Vec::new()).expect("a correct rule");
    let mut nets = rule(&["ip"]);
    nets.by[0].kind = FieldKind::Ip { v4: 24, v6: 48 };
    let mut hosts = rule(&["ip"]);
    hosts.by[0].kind = FieldKind::Ip { v4: 32, v6: 128 };
    [rule(&["sender"]), rule(&["domain"]), rule(&["ip"]), nets, hosts, rule(&["sender", "ip"])]
});

/// A limit that is read and printed is the same limit.
pub fn limit_grammar(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(Some(limit)) = grammar::parse(text) {
        let printed = limit.to_string();
        assert_eq!(grammar::parse(&printed), Ok(Some(limit)), "{text:?} is printed as {printed:?}");
    }
    let _ = (grammar::parse_span(text), grammar::parse_on_outage(text), grammar::parse_explicit(text));
}

/// A reply has the same content and end however its bytes arrive, and a written reply is read back unchanged.
pub fn redis_reply(bytes: &[u8]) {
    let length = bytes.len();
    let whole = read_reply(bytes, [length]);
    for pieces in [1, 7] {
        let arrived = (pieces..length).step_by(pieces).chain([length]);
        assert_eq!(read_reply(bytes, arrived), whole, "in pieces of {pieces}");
    }
    for cut in 0..length.min(MOST_CUTS) {
        assert_eq!(read_reply(bytes, [cut, length]), whole, "cut at {cut}");
    }
    let Some(ReadReply { end, shown, written }) = whole else { return };
    assert!(end <= length);
    assert_eq!(read_reply(&bytes[..end], [end]).map(|again| again.shown).as_ref(), Some(&shown), "alone");
    // Bytes that are not UTF-8 become longer, and could exceed the bound of a line.
    if written.len() <= MOST_WRITTEN {
        let again = read_reply(&written, [written.len()]);
        let own = ReadReply { end: written.len(), shown, written };
        assert_eq!(again, Some(own), "written anew");
    }
}

/// At how many places a reply is cut in two.
const MOST_CUTS: usize = 200;
/// The longest reply that is read again. No line of it exceeds the bound.
const MOST_WRITTEN: usize = 60_000;

/// No text that the server did not seal is a receipt, and changing one byte of a receipt makes it none.
pub fn receipt(bytes: &[u8]) {
    let seal = Seal::new([7; 32]);
    if let Ok(text) = std::str::from_utf8(bytes) {
        assert!(seal.open(text).is_err(), "{text:?} was forged");
    }
    let Some((choice, key)) = bytes.split_first() else { return };
    let key = String::from_utf8_lossy(&key[..key.len().min(256)]).into_owned();
    let line = tollgate_core::ReceiptLine { rule: "rule".to_owned(), key, cost: 3 };
    let at = Timestamp::from_micros(1_800_000_000_000_000);
    let receipt = tollgate_core::Receipt { ticket: Ticket(9), at, taken: vec![line] };
    let sealed = seal.seal(Kind::Receipt, &receipt);
    let opened = seal.open(&sealed).map(|(_, receipt)| receipt);
    assert_eq!(opened.as_ref(), Ok(&receipt));
    let mut damaged = sealed.into_bytes();
    let at = usize::from(*choice) % damaged.len();
    damaged[at] = if damaged[at] == b'A' { b'B' } else { b'A' };
    let damaged = String::from_utf8(damaged).expect("it is ASCII");
    // The last character of base64 has bits that mean nothing.
    if let Ok((_, opened)) = seal.open(&damaged) {
        assert_eq!(opened, receipt, "a damaged receipt says something else");
    }
}
