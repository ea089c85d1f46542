//! API keys: looked up by their hashes, shown by their names.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use http::header::{HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest, Sha256};
use tollgate_web::identity::{ApiKey, ApiKeys, BadCredential, X_API_KEY};
use tollgate_web::{Credentials, Problem};

fn key(name: &str, consumer: Option<&str>, secret: &str) -> ApiKey {
    ApiKey { name: name.into(), consumer: consumer.map(Into::into), hash: Sha256::digest(secret).into() }
}

fn credentials() -> Credentials {
    let keys = vec![key("ci", Some("builds"), "open sesame"), key("shop", None, "let me in")];
    Credentials::new(Some(ApiKeys::new(X_API_KEY, keys).unwrap()), None)
}

fn sending(values: &[&'static str]) -> HeaderMap {
    values.iter().map(|value| (X_API_KEY, HeaderValue::from_static(value))).collect()
}

#[test]
fn a_key_is_known_by_its_hash() {
    let identity = credentials().recognise(&sending(&["open sesame"])).unwrap();
    assert_eq!(identity.api_key.as_deref(), Some("ci"));
    assert_eq!(identity.consumer.as_deref(), Some("builds"));
    let identity = credentials().recognise(&sending(&["let me in"])).unwrap();
    assert_eq!((identity.api_key.as_deref(), identity.consumer), (Some("shop"), None));
}

#[test]
fn a_request_without_an_api_key_is_anonymous() {
    for headers in [sending(&[]), sending(&[""])] {
        let identity = credentials().recognise(&headers).unwrap();
        assert!(identity.api_key.is_none() && identity.consumer.is_none() && identity.subject.is_none());
    }
}

#[test]
fn a_wrong_api_key_is_refused() {
    let refused = |values: &[&'static str]| credentials().recognise(&sending(values)).unwrap_err();
    assert_eq!(refused(&["open"]), BadCredential::UnknownKey);
    assert_eq!(refused(&["ci"]), BadCredential::UnknownKey);
    assert_eq!(refused(&["open sesame", "open sesame"]), BadCredential::Twice);
    assert_eq!(Problem::from(refused(&["open"])).status, 401);
}

#[test]
fn the_header_may_be_another() {
    let header = HeaderName::from_static("x-token");
    let keys = ApiKeys::new(header.clone(), vec![key("ci", None, "open sesame")]).unwrap();
    let credentials = Credentials::new(Some(keys), None);
    let mut headers = sending(&["nonsense"]);
    headers.insert(header, HeaderValue::from_static("open sesame"));
    assert_eq!(credentials.recognise(&headers).unwrap().api_key.as_deref(), Some("ci"));
}

#[test]
fn two_entries_cannot_share_a_key() {
    let keys = vec![key("one", None, "same"), key("other", None, "same")];
    let bad = ApiKeys::new(X_API_KEY, keys).unwrap_err();
    assert_eq!(bad.to_string(), "`one` and `other` have the same key; each needs its own");
}

#[test]
fn neither_keys_nor_hashes_are_shown() {
    let key = key("ci", None, "open sesame");
    let shown = format!("{key:?} {:?}", ApiKeys::new(X_API_KEY, vec![key.clone()]).unwrap());
    assert!(shown.contains("ci"));
    let hash = format!("{:?}", key.hash);
    assert!(!shown.contains(&hash[1..20]), "{shown}");
}
