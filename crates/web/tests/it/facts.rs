//! The fields that rules read from a request.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::net::IpAddr;
use std::sync::Arc;

use crate::support::{policy, rule};
use http::header::{COOKIE, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use proptest::prelude::*;
use tollgate_core::Policy;
use tollgate_core::key::MOST_FIELD_BYTES;
use tollgate_web::facts::{Aliases, BadAlias, BadFact, Facts, Reach, Source};
use tollgate_web::identity::{ApiKey, ApiKeys, X_API_KEY};
use tollgate_web::{Credentials, Identity, Problem};

/// A request with many fields.
struct Request {
    client: IpAddr,
    headers: HeaderMap,
    query: Option<String>,
    identity: Identity,
}

impl Request {
    fn new() -> Self {
        let client = "192.0.2.7".parse().unwrap();
        Self { client, headers: HeaderMap::new(), query: None, identity: Identity::default() }
    }

    fn header(mut self, name: &'static str, value: &[u8]) -> Self {
        self.headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap());
        self
    }

    fn query(self, query: &str) -> Self {
        Self { query: Some(query.to_owned()), ..self }
    }

    /// The values of these fields, as `name=value`.
    fn ask_as(&self, by: &[&str], aliases: &Aliases) -> Result<Vec<String>, BadFact> {
        self.ask_of(&policy(by), aliases)
    }

    fn ask_of(&self, policy: &Policy, aliases: &Aliases) -> Result<Vec<String>, BadFact> {
        let facts = Facts {
            route: "orders",
            client: self.client,
            address: None,
            method: &Method::PATCH,
            path: "/orders/7",
            query: self.query.as_deref(),
            host: "shop.example",
            headers: &self.headers,
            identity: &self.identity,
            body: None,
        };
        let asked = facts.ask(policy, aliases)?;
        Ok(asked.pairs().iter().map(|(name, value)| format!("{name}={value}")).collect())
    }

    fn ask(&self, field: &str) -> Result<Option<String>, BadFact> {
        let mut said = self.ask_as(&[field], &Aliases::default())?;
        Ok(said.pop().map(|said| said.strip_prefix(&format!("{field}=")).unwrap().to_owned()))
    }

    fn says(&self, field: &str) -> String {
        self.ask(field).unwrap().unwrap_or_else(|| panic!("nothing is said of {field}"))
    }
}

fn twice(source: &str) -> Result<Option<String>, BadFact> {
    Err(BadFact::Twice { source: source.to_owned() })
}

#[test]
fn names_say_where_values_come_from() {
    let mut request = Request::new()
        .header("x-tenant", b"acme")
        .header("cookie", b"theme=dark; session=s-1")
        .query("page=2&user=u%2B1");
    request.identity = Identity {
        subject: Some("alice".into()),
        api_key: Some("ci".into()),
        consumer: Some("partner".into()),
        claims: None,
    };
    for (field, value) in [
        ("route", "orders"),
        ("ip", "192.0.2.7"),
        ("method", "PATCH"),
        ("path", "/orders/7"),
        ("host", "shop.example"),
        ("header.x-tenant", "acme"),
        ("header.X-Tenant", "acme"),
        ("cookie.session", "s-1"),
        ("query.user", "u+1"),
        ("subject", "alice"),
        ("api_key", "ci"),
        ("consumer", "partner"),
    ] {
        assert_eq!(request.says(field), value, "{field}");
    }
}

#[test]
fn fields_come_in_the_order_of_the_policy_and_missing_ones_are_left_out() {
    let request = Request::new().header("x-b", b"2").header("x-empty", b"");
    let by = [
        "header.x-b",
        "header.x-a",
        "ip",
        "query.q",
        "cookie.c",
        "subject",
        "consumer",
        "header.x-empty",
        "route",
    ];
    let said = request.ask_as(&by, &Aliases::default()).unwrap();
    assert_eq!(said, ["header.x-b=2", "ip=192.0.2.7", "route=orders"]);
}

#[test]
fn conflicting_values_of_one_field_are_refused() {
    let twice_over =
        |first: &[u8], second: &[u8]| Request::new().header("x-tenant", first).header("x-tenant", second);
    assert_eq!(twice_over(b"a", b"b").ask("header.x-tenant"), twice("header.x-tenant"));
    assert_eq!(twice_over(b"a", b" a ").says("header.x-tenant"), "a", "the same thing twice is one thing");
    assert_eq!(twice_over(b"a", b"").ask("header.x-tenant"), twice("header.x-tenant"));

    let disguised = |value: &[u8]| Request::new().header("x-tenant", b"a").header("x_tenant", value);
    assert_eq!(
        disguised(b"b").ask("header.x-tenant"),
        twice("header.x-tenant"),
        "some services read `-` there"
    );
    assert_eq!(disguised(b"a").says("header.x-tenant"), "a");
    let alone = Request::new().header("x_tenant", b"a");
    assert_eq!(alone.ask("header.x-tenant"), twice("header.x-tenant"), "to some it is there, to others not");

    let cookies =
        |first: &[u8], second: &[u8]| Request::new().header("cookie", first).header("cookie", second);
    assert_eq!(cookies(b"id=1", b"id=2").ask("cookie.id"), twice("cookie.id"));
    assert_eq!(cookies(b"id=1; id=2", b"x=y").ask("cookie.id"), twice("cookie.id"));
    assert_eq!(cookies(b"a=b; id=1", b"id=\"1\"").says("cookie.id"), "1");
    assert_eq!(cookies(b"id=abc", b"id=%61bc").says("cookie.id"), "abc", "some services decode values");
    assert_eq!(cookies(b"id=1", b"%69d=2").ask("cookie.id"), twice("cookie.id"), "and names");
    assert_eq!(cookies(b"user_id=1", b"user.id=2").ask("cookie.user_id"), twice("cookie.user_id"));

    assert_eq!(Request::new().query("u=1&u=2").ask("query.u"), twice("query.u"));
    assert_eq!(Request::new().query("u=1&%75=2").ask("query.u"), twice("query.u"), "in any spelling");
    assert_eq!(Request::new().query("u=1&u").ask("query.u"), twice("query.u"));
    assert_eq!(Request::new().query("u=%31&u=1").says("query.u"), "1");
    assert_eq!(Problem::from(Request::new().query("u=1&u=2").ask("query.u").unwrap_err()).status, 400);
    for query in ["u=1&+u=2", "u=1&u%00=2", "u=1&u[]=2", "u[0]=1&u[1]=2"] {
        assert_eq!(Request::new().query(query).ask("query.u"), twice("query.u"), "{query}");
    }
    let parted = Err(BadFact::Parted { source: "query.u".into() });
    assert_eq!(Request::new().query("x=1;u=2&u=1").ask("query.u"), parted);
    assert_eq!(Request::new().query("u=1&c[]=2;x").says("query.u"), "1");
    assert_eq!(Request::new().query("c[]=2&c[a]=3").says("query.c[]"), "2");
}

#[test]
fn queries_are_decoded_as_forms_mean_them() {
    let says = |query: &str| Request::new().query(query).ask("query.q");
    for (query, value) in [
        ("q=a", Some("a")),
        ("x=1&q=a+b%20c", Some("a b c")),
        ("q=%e2%82%ac", Some("€")),
        ("q=100%", Some("100%")),
        ("q=%zz%4", Some("%zz%4")),
        ("q=a=b", Some("a=b")),
        ("%71=a", Some("a")),
        ("q", None),
        ("q=", None),
        ("qq=a&=b&Q=c", None),
        ("", None),
    ] {
        assert_eq!(says(query).unwrap().as_deref(), value, "{query}");
    }
    assert_eq!(says("q=%ff"), Err(BadFact::NotUtf8 { source: "query.q".into() }));
}

#[test]
fn cookies_are_found_in_every_line() {
    let request = Request::new()
        .header("cookie", b"a=1;b=2")
        .header("cookie", b"; junk; =x; spaced = 3 ; c=\"4\"; d=\"; A=5");
    for (name, value) in [("a", "1"), ("b", "2"), ("spaced", "3"), ("c", "4"), ("d", "\""), ("A", "5")] {
        assert_eq!(request.says(&format!("cookie.{name}")), value, "{name}");
    }
    assert_eq!(request.ask("cookie.junk"), Ok(None));
    assert_eq!(request.headers.get_all(COOKIE).iter().count(), 2);
}

#[test]
fn values_are_bounded_and_text() {
    let long = |bytes: usize| Request::new().header("x-long", &vec![b'a'; bytes]);
    assert_eq!(long(MOST_FIELD_BYTES).says("header.x-long").len(), MOST_FIELD_BYTES);
    let bytes = MOST_FIELD_BYTES + 1;
    let bad = long(bytes).ask("header.x-long").unwrap_err();
    assert_eq!(bad, BadFact::TooLong { source: "header.x-long".into(), bytes });
    assert_eq!(Problem::from(bad).status, StatusCode::BAD_REQUEST);

    assert_eq!(Request::new().header("x-name", "é".as_bytes()).says("header.x-name"), "é");
    let bad = Request::new().header("x-name", b"\xff").ask("header.x-name").unwrap_err();
    assert_eq!(bad, BadFact::NotUtf8 { source: "header.x-name".into() });
}

#[test]
fn aliases_stand_for_sources() {
    let aliases =
        Aliases::new([("tenant", "header.x-tenant"), ("client_ip", "ip"), ("user", "subject")]).unwrap();
    let request = Request::new().header("x-tenant", b"acme");
    let said = request.ask_as(&["tenant", "client_ip", "user"], &aliases).unwrap();
    assert_eq!(said, ["tenant=acme", "client_ip=192.0.2.7"]);
    assert_eq!(aliases.source("tenant"), Some(Source::Header("x-tenant")));
    assert_eq!(aliases.check(&policy(&["tenant", "ip", "claim.plan"]), Reach::Head), Ok(()));
}

#[test]
fn aliases_that_cannot_be_say_why() {
    let why = |alias: &str, source: &str| Aliases::new([(alias, source)]).unwrap_err().to_string();
    assert_eq!(
        why("tenant", "headers.x-tenant"),
        "`tenant` stands for `headers.x-tenant`, which is not part of a request; there are route, ip, method, path, \
         host, header.NAME, cookie.NAME, query.NAME, subject, claim.NAME, api_key and consumer"
    );
    assert_eq!(why("ip", "header.x-real-ip"), "`ip` is a built-in name and cannot be redefined");
    let again = Aliases::new([("a", "ip"), ("a", "route")]).unwrap_err();
    assert_eq!(again, BadAlias::Twice { alias: "a".into() });
}

#[test]
fn a_field_without_a_source_is_refused_with_the_known_sources() {
    let aliases = Aliases::new([("tenant", "header.x-tenant")]).unwrap();
    let unknown = aliases.check(&policy(&["ip", "tenent"]), Reach::Head).unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "policy `api` counts by `tenent`, which is not part of a request (did you mean `tenant`?); there are route, \
         ip, method, path, host, header.NAME, cookie.NAME, query.NAME, subject, claim.NAME, api_key and consumer, \
         and whatever `fields` names"
    );
    // An error that shows only at a request is not the caller's fault.
    let bad = Request::new().ask_as(&["tenent"], &aliases).unwrap_err();
    assert_eq!(Problem::from(bad).status, StatusCode::INTERNAL_SERVER_ERROR);
}

#[test]
fn a_number_that_requests_do_not_have_is_left_out() {
    let bounded = Arc::new(rule("ip", &["ip"], &["5/min", "100 recipients per attempt"]));
    let policy = Policy::new("api".into(), vec![bounded], false);
    let said = Request::new().ask_of(&policy, &Aliases::default()).unwrap();
    assert_eq!(said, ["ip=192.0.2.7"]);
    assert!(Aliases::default().check(&policy, Reach::Head).is_err(), "who writes the file is told");
}

#[test]
fn sources_are_printed_as_they_are_read() {
    let names =
        "route ip method path host header.x-a cookie.b query.c[] subject claim.https://a/b api_key consumer";
    for name in names.split(' ') {
        assert_eq!(Source::parse(name).unwrap().to_string(), name);
    }
    for name in
        ["", "IP", "header", "header.", "header.a b", "cookie.a;b", "query.", "claim.", "body.x", "user"]
    {
        assert_eq!(Source::parse(name), None, "{name}");
    }
}

#[test]
fn sources_under_the_clients_control_are_known() {
    let by_client = |name: &str| Source::parse(name).unwrap().by_client();
    for name in ["header.x", "cookie.x", "query.x", "path", "host", "method"] {
        assert!(by_client(name), "{name}");
    }
    for name in ["route", "ip", "subject", "claim.x", "api_key", "consumer"] {
        assert!(!by_client(name), "{name}");
    }
}

#[test]
fn the_key_itself_is_never_a_value() {
    let hash = sha2_of(b"s3cret-key-of-ci");
    let key = ApiKey { name: "ci".into(), consumer: Some("builds".into()), hash };
    let credentials = Credentials::new(Some(ApiKeys::new(X_API_KEY, vec![key]).unwrap()), None);
    let mut request = Request::new().header("x-api-key", b"s3cret-key-of-ci");
    request.identity = credentials.recognise(&request.headers).unwrap();
    assert_eq!(request.says("api_key"), "ci");
    assert_eq!(request.says("consumer"), "builds");
}

fn sha2_of(bytes: &[u8]) -> [u8; 32] {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).into()
}

proptest! {
    #[test]
    fn any_address_is_written_as_it_is_read(bits: u128, v4: bool) {
        let client: IpAddr = if v4 { IpAddr::V4(((bits >> 96) as u32).into()) } else { IpAddr::V6(bits.into()) };
        let request = Request { client, ..Request::new() };
        prop_assert_eq!(request.says("ip"), client.to_canonical().to_string());
    }

    #[test]
    fn whatever_is_sent_is_one_value_or_refused(
        first in prop::collection::vec(prop_oneof![0x20..=0x7e_u8, 0x80..=0xff_u8], 0..20),
        second in prop::collection::vec(prop_oneof![0x20..=0x7e_u8, 0x80..=0xff_u8], 0..20),
        query in "[ -~]{0,40}",
    ) {
        let request = Request::new().header("x-a", &first).header("x-a", &second).query(&query);
        let differ = first.trim_ascii() != second.trim_ascii();
        prop_assert_eq!(request.ask("header.x-a") == twice("header.x-a"), differ);
        for field in ["query.a", "query.%61", "cookie.a"] {
            if let Ok(Some(value)) = request.ask(field) {
                prop_assert!(!value.is_empty() && value.len() <= MOST_FIELD_BYTES);
            }
        }
    }
}
