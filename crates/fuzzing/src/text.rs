//! Texts that clients, operators and servers write.

use std::sync::LazyLock;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method};
use tollgate::config::{Format, load_str};
use tollgate_core::grammar;
use tollgate_core::key::{FieldKind, MOST_FIELD_BYTES};
use tollgate_core::{Net, Rule, Ticket, Timestamp};
use tollgate_engine::receipt::{Kind, Seal};
use tollgate_web::facts::{Body, BodyKind};
use tollgate_web::path;

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

/// A configuration is read or refused with problems.
pub fn configuration(bytes: &[u8]) {
    let Some((choice, text)) = bytes.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    // Files elsewhere are not opened here: a slash stands behind a digit, as in `100/hour`.
    let opens = |(before, byte): (u8, u8)| byte == b'/' && !before.is_ascii_digit();
    if text.starts_with('/') || text.bytes().zip(text.bytes().skip(1)).any(opens) {
        return;
    }
    let format = if choice % 2 == 0 { Format::Yaml } else { Format::Toml };
    let _ = load_str(text, format, "fuzzed", std::iter::empty());
}

/// A reply ends at the same byte however it arrives.
pub fn redis_reply(bytes: &[u8]) {
    let whole = tollgate_redis::fuzzing::read_reply(bytes, usize::MAX);
    for pieces in [1, 7] {
        assert_eq!(tollgate_redis::fuzzing::read_reply(bytes, pieces), whole, "in pieces of {pieces}");
    }
    assert!(whole.is_none_or(|end| end <= bytes.len()));
}

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

/// A login has one account or is refused. The first byte chooses the kind of the body.
pub fn login_body(bytes: &[u8]) {
    use tollgate_web::facts::{Aliases, Facts};
    let Some((choice, body)) = bytes.split_first() else { return };
    let (kind, field) = match choice % 2 {
        0 => ("application/x-www-form-urlencoded", "form.user"),
        _ => ("application/json", "json.user"),
    };
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    let kind = BodyKind::of(&headers).expect("it is a plain content type");
    let body = Body::new(kind, Bytes::copy_from_slice(body));
    let config = format!("rules: {{ r: {{ by: {field}, limits: 1/day }} }}\npolicies: {{ p: [r] }}\n");
    let config = load_str(&config, Format::Yaml, "fuzzed", std::iter::empty()).expect("it is correct");
    let facts = Facts {
        route: "login",
        client: "192.0.2.7".parse().expect("an address"),
        address: None,
        method: &Method::POST,
        path: "/login",
        query: None,
        host: "shop.example",
        headers: &headers,
        identity: &tollgate_web::Identity::default(),
        body: Some(&body),
    };
    let policy = config.policies.find("p").expect("it is there");
    if let Ok(asked) = facts.ask(policy, &Aliases::default()) {
        for (_, value) in asked.pairs() {
            assert!(!value.is_empty() && !value.chars().any(char::is_control), "{value:?}");
        }
    }
}
