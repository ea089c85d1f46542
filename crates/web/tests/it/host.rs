//! One normal form for each host.

use proptest::prelude::*;
use tollgate_web::path::{BadHost, normal_host as normal};

#[test]
fn ports_case_and_the_last_dot_do_not_matter() {
    for (authority, host) in [
        ("example.com", "example.com"),
        ("Example.COM:8080", "example.com"),
        ("example.com.", "example.com"),
        ("example.com.:443", "example.com"),
        ("example.com:", "example.com"),
        ("under_score.local", "under_score.local"),
        ("192.0.2.1:80", "192.0.2.1"),
        ("[2001:DB8::1]:443", "[2001:db8::1]"),
        ("[2001:db8:0:0::1]", "[2001:db8::1]"),
    ] {
        assert_eq!(normal(authority).as_deref(), Ok(host), "{authority}");
    }
}

#[test]
fn an_invalid_host_is_refused() {
    for authority in [
        "", ".", ":80", "a..b", ".a", "a..", "a b", "a/b", "a\\b", "user@a", "a:80:90", "a:http", "[::1",
        "[::1]x", "[a]", "::1", "a,b", "a%2eb", "ä.de", "a\0",
    ] {
        assert_eq!(normal(authority), Err(BadHost), "{authority:?}");
    }
    assert_eq!(normal(&"a".repeat(256)), Err(BadHost));
    assert!(!BadHost.to_string().is_empty());
}

proptest! {
    #[test]
    fn a_normal_form_is_its_own(authority in prop_oneof!["[A-Za-z0-9.:\\[\\]_-]{0,20}", "\\PC{0,10}"]) {
        if let Ok(once) = normal(&authority) {
            prop_assert!(!once.bytes().any(|byte| byte.is_ascii_uppercase()));
            prop_assert_eq!(normal(&once), Ok(once.as_ref().into()));
        }
    }
}
