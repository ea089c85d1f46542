//! The fields that guards read from the bodies of requests.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crate::support::policy;
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use proptest::prelude::*;
use tollgate_web::facts::{Aliases, BadFact, Body, BodyKind, Facts, Reach, Unreadable};
use tollgate_web::{Identity, Problem};

/// The value of a field in a request with this body.
fn ask(field: &str, body: Option<&Body>) -> Result<Option<String>, BadFact> {
    ask_with(field, body, None)
}

/// As `ask`, for a request with a query too.
fn ask_with(field: &str, body: Option<&Body>, query: Option<&str>) -> Result<Option<String>, BadFact> {
    let (headers, identity) = (HeaderMap::new(), Identity::default());
    let facts = Facts {
        route: "login",
        client: "192.0.2.7".parse().unwrap(),
        address: None,
        method: &Method::POST,
        path: "/login",
        query,
        host: "shop.example",
        headers: &headers,
        identity: &identity,
        body,
    };
    let (policy, aliases) = (policy(&[field]), Aliases::default());
    let asked = facts.ask(&policy, &aliases)?;
    let value = asked.pairs().first().map(|(_, value)| (*value).to_owned());
    Ok(value)
}

fn form(text: &str) -> Body {
    Body::new(BodyKind::Form, Bytes::copy_from_slice(text.as_bytes()))
}

fn json(text: &str) -> Body {
    Body::new(BodyKind::Json, Bytes::copy_from_slice(text.as_bytes()))
}

fn says(field: &str, body: &Body) -> Option<String> {
    ask(field, Some(body)).unwrap()
}

#[test]
fn a_member_of_a_form_is_read_decoded() {
    let body = form("user=ada%40example.com&password=a+b&%75nit=7&empty=");
    assert_eq!(says("form.user", &body).as_deref(), Some("ada@example.com"));
    assert_eq!(says("form.password", &body).as_deref(), Some("a b"));
    assert_eq!(says("form.unit", &body).as_deref(), Some("7"));
    assert_eq!(says("form.empty", &body), None);
    assert_eq!(says("form.other", &body), None);
    assert_eq!(says("json.user", &body), None, "it is no JSON");
}

#[test]
fn a_member_of_json_is_read_where_the_path_leads() {
    let body = json(
        r#"{"user":"\u0061da","login":{"id":7,"new":true,"half":0.5,"list":["x"]},"none":null,"many":9007199254740993}"#,
    );
    assert_eq!(says("json.user", &body).as_deref(), Some("ada"));
    assert_eq!(says("json.login.id", &body).as_deref(), Some("7"));
    // Languages print these differently, or round them.
    for nothing in ["json.login.new", "json.login.half", "json.many"] {
        assert_eq!(says(nothing, &body), None, "{nothing}");
    }
    for nothing in ["json.login", "json.login.list", "json.none", "json.user.name", "json.other"] {
        assert_eq!(says(nothing, &body), None, "{nothing}");
    }
    assert_eq!(says("json.user", &json("[1, 2]")), None);
    assert_eq!(says("form.user", &body), None, "it is no form");
}

#[test]
fn a_body_that_two_parsers_could_read_differently_is_refused() {
    let twice = |field: &str| Err(BadFact::Twice { source: field.to_owned() });
    for body in [
        "user=ada&user=bob",
        "user=ada&user=ada",
        "user=ada&USER=bob",
        "user=ada&u%73er=bob",
        "user=ada&user",
        "USER=ada",
    ] {
        assert_eq!(ask("form.user", Some(&form(body))), twice("form.user"), "{body}");
    }
    for body in [
        r#"{"user":"ada","user":"bob"}"#,
        r#"{"user":"ada","user":"ada"}"#,
        r#"{"user":"ada","User":"bob"}"#,
        r#"{"user":"ada","u\u017fer":"bob"}"#,
        r#"{"user":"ada","user":null}"#,
        r#"{"user":{},"user":"ada"}"#,
        r#"{"user":"ada","\u0075ser":"bob"}"#,
        r#"{"user":"decoy","user\u0000":"vic"}"#,
        r#"{"user":"decoy"," user ":"vic"}"#,
        r#"{"USER":"ada"}"#,
    ] {
        assert_eq!(ask("json.user", Some(&json(body))), twice("json.user"), "{body}");
    }
    let nested = json(r#"{"a":{"user":"ada"},"A":{"user":"bob"}}"#);
    assert_eq!(ask("json.a.user", Some(&nested)), twice("json.a.user"));
}

#[test]
fn a_name_that_some_parser_takes_for_this_one_is_refused() {
    let twice = Err(BadFact::Twice { source: "form.user_name".to_owned() });
    for name in [
        "+user_name",
        "%20%09user_name",
        "user_name+",
        "%EF%BB%BFuser_name",
        "user_name%00",
        "user_name%00x",
        "user_name[]",
        "user_name%5B0%5D",
        "+USER_NAME[a][b]%00",
        "user.name",
        "user+name",
        "user[name",
        "[user_name]",
    ] {
        for body in [
            format!("user_name=decoy&{name}=vic"),
            format!("x=1&{name}=vic&user_name=decoy"),
            format!("x=1&{name}=vic"),
        ] {
            assert_eq!(ask("form.user_name", Some(&form(&body))), twice, "{body}");
        }
    }
    for name in ["username", "user_names", "xuser_name", "user-name", "names[user_name]", "password"] {
        let body = form(&format!("user_name=ada&{name}=other"));
        assert_eq!(says("form.user_name", &body).as_deref(), Some("ada"), "{name}");
    }
    let nested = form("user[name]=ada&user[password]=x");
    assert_eq!(says("form.user[name]", &nested).as_deref(), Some("ada"), "it is looked for in brackets");
    for other in ["user=y", "user[name][]=y", "user%5Bname=y", "user.name=y", "user[]=y", "user[ name ]=y"] {
        let body = form(&format!("user[name]=ada&user[password]=x&{other}"));
        let twice = Err(BadFact::Twice { source: "form.user[name]".to_owned() });
        assert_eq!(ask("form.user[name]", Some(&body)), twice, "{other}");
    }
}

#[test]
fn an_account_lies_in_the_query_or_in_the_body_and_not_in_both() {
    let unclear = |asked: Result<Option<String>, BadFact>| matches!(asked, Err(BadFact::Unclear { .. }));
    let (by_form, by_json) = (form("user=ada&x=1"), json(r#"{"user":"ada","login":{"name":"eve"}}"#));
    for query in ["user=ada", "user=vic", "x&us%65r=vic", "user[]=vic", "USER=vic", "x=1;user=vic", "user"] {
        assert!(unclear(ask_with("form.user", Some(&by_form), Some(query))), "{query}");
        assert!(unclear(ask_with("json.user", Some(&by_json), Some(query))), "{query}");
    }
    for query in ["login[name]=vic", "login=vic", "login.name=vic", "Login[Name][]=vic"] {
        assert!(unclear(ask_with("json.login.name", Some(&by_json), Some(query))), "{query}");
    }
    for query in ["", "next=/user", "username=vic", "login[password]=x", "lang=de&theme[user]=dark"] {
        let found = ask_with("form.user", Some(&by_form), Some(query)).unwrap();
        assert_eq!(found.as_deref(), Some("ada"), "{query}");
        let found = ask_with("json.login.name", Some(&by_json), Some(query)).unwrap();
        assert_eq!(found.as_deref(), Some("eve"), "{query}");
    }
    let by_query = |body: &Body| ask_with("query.user", Some(body), Some("user=ada"));
    for body in [form("user=vic"), form("a=1&user[]=vic"), form("a;user=vic"), json(r#"{"a&user=vic&":1}"#)] {
        assert!(unclear(by_query(&body)), "{body:?}");
    }
    for body in [json(r#"{"user":"vic"}"#), json(r#"{"User":{}}"#)] {
        assert_eq!(by_query(&body), Err(BadFact::Twice { source: "query.user".into() }));
    }
    for body in [form(""), form("password=x"), json(r#"{"password":"x"}"#)] {
        assert_eq!(by_query(&body).unwrap().as_deref(), Some("ada"));
    }
    let twice = Err(BadFact::Twice { source: "query.user".into() });
    for query in ["user=ada&user=ada", "user=ada&user[]=vic", "User=ada"] {
        assert_eq!(ask_with("query.user", Some(&form("")), Some(query)), twice, "{query}");
    }
}

#[test]
fn a_body_that_is_read_as_another_kind_says_nothing_else() {
    for body in [r#"{"user":"vic","x":"&user=ada&"}"#, " \n[1,2]&user=ada", "\u{feff}{&user=ada"] {
        assert!(matches!(ask("form.user", Some(&form(body))), Err(BadFact::Unclear { .. })), "{body}");
    }
    let body = json(r#"{"user":"ada","x":"&user=vic&"}"#);
    assert!(matches!(ask("json.user", Some(&body)), Err(BadFact::Unclear { .. })));
    let body = json(r#"{"user":"ada","user.x":"a=b","password":"a&b=c;d%"}"#);
    assert_eq!(says("json.user", &body).as_deref(), Some("ada"));
}

#[test]
fn a_value_that_can_be_decoded_in_two_ways_is_refused() {
    for body in ["user=ad%a", "user=ada%", "user=%zzada", "user=ada%00", "user=ada%0d%0A", "user=%c2%85ada"] {
        assert!(matches!(ask("form.user", Some(&form(body))), Err(BadFact::Unclear { .. })), "{body}");
    }
    let body = json(r#"{"user":"ada\u0000x"}"#);
    assert!(matches!(ask("json.user", Some(&body)), Err(BadFact::Unclear { .. })));
    let other = ask("form.user", Some(&form("user=ada&_charset_=utf-16")));
    assert_eq!(other, Err(BadFact::NotUtf8 { source: "form.user".into() }));
    assert_eq!(says("form.user", &form("user=ada&_charset_=UTF-8&p=%zz")).as_deref(), Some("ada"));
}

#[test]
fn where_some_readers_part_and_others_do_not_nothing_is_guessed() {
    let parted = |body: &str| ask("form.user", Some(&form(body)));
    for body in [
        "x=1;user=vic&user=decoy",
        "user=decoy;user=vic",
        "user=vic;1",
        "a;user=vic",
        "user;a=1",
        "a=1;us%65r=v",
    ] {
        assert_eq!(parted(body), Err(BadFact::Parted { source: "form.user".into() }), "{body}");
        let problem = Problem::from(parted(body).unwrap_err());
        assert_eq!(problem.status, StatusCode::BAD_REQUEST);
    }
    assert_eq!(says("form.user", &form("user=a%3Bb&x=1;y=2")).as_deref(), Some("a;b"));
}

#[test]
fn a_body_that_contradicts_its_type_is_the_callers_fault() {
    for body in ["", "{", "user=ada", r#"{"user":"ada"} {}"#, "{\"user\":\"\\ud800\"}", &"[".repeat(300)] {
        let bad = ask("json.user", Some(&json(body))).unwrap_err();
        assert_eq!(Problem::from(bad).status, StatusCode::BAD_REQUEST, "{body}");
    }
    let latin = Body::new(BodyKind::Form, Bytes::from_static(b"user=ad\xe4"));
    assert_eq!(ask("form.user", Some(&latin)), Err(BadFact::NotUtf8 { source: "form.user".into() }));
    let escaped = ask("form.user", Some(&form("user=ad%e4"))).unwrap_err();
    assert_eq!(escaped, BadFact::NotUtf8 { source: "form.user".into() });
    let long = form(&format!("user={}", "a".repeat(5_000)));
    assert!(matches!(ask("form.user", Some(&long)), Err(BadFact::TooLong { .. })));
}

#[test]
fn only_bodies_that_every_reader_reads_alike_are_looked_into() {
    let kind = |text: &str| {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_str(text).unwrap());
        BodyKind::of(&headers)
    };
    for text in ["application/x-www-form-urlencoded", "Application/X-WWW-Form-Urlencoded; charset=UTF-8"] {
        assert_eq!(kind(text), Ok(BodyKind::Form), "{text}");
    }
    for text in ["application/json", "application/json;charset=\"utf-8\"", "application/vnd.api+JSON"] {
        assert_eq!(kind(text), Ok(BodyKind::Json), "{text}");
    }
    for text in [
        "multipart/form-data; boundary=x",
        "text/plain",
        "application/x-www-form-urlencoded, application/json",
        "application/x-www-form-urlencoded x",
        "application/x-www-form-urlencoded+json",
        "multipart/x+json",
        "application/a b+json",
        "application/+json",
        "",
    ] {
        assert_eq!(kind(text), Err(Unreadable::Media), "{text}");
    }
    for text in [
        "application/json; charset=utf-16",
        "application/x-www-form-urlencoded; charset*=utf-16",
        "application/x-www-form-urlencoded; charset*=UTF-8''utf-16",
        "application/x-www-form-urlencoded; charset=us-ascii",
        "application/x-www-form-urlencoded; charset=utf-8; charset=utf-16",
        "application/x-www-form-urlencoded; charset=utf-8; charset=utf-8",
        "application/x-www-form-urlencoded; charset =utf-8",
        "application/x-www-form-urlencoded; charset=\"utf-8",
        "application/x-www-form-urlencoded; boundary=x",
    ] {
        assert_eq!(kind(text), Err(Unreadable::ContentType), "{text}");
    }
    assert_eq!(BodyKind::of(&HeaderMap::new()), Err(Unreadable::Media));
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    assert_eq!(BodyKind::of(&headers), Err(Unreadable::Media));
    headers.remove(CONTENT_ENCODING);
    headers.append(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
    assert_eq!(BodyKind::of(&headers), Err(Unreadable::ContentType), "parsers choose one of the two");
}

#[test]
fn fields_of_a_body_are_unknown_where_bodies_are_not_read() {
    let bad = ask("form.user", None).unwrap_err();
    assert_eq!(Problem::from(bad).status, StatusCode::INTERNAL_SERVER_ERROR);
    let (aliases, by_form) = (Aliases::default(), policy(&["form.user"]));
    assert_eq!(aliases.check(&by_form, Reach::Body), Ok(()));
    let unknown = aliases.check(&by_form, Reach::Head).unwrap_err();
    assert_eq!(unknown.field, "form.user");
    assert!(Aliases::new([("user", "form.user")]).is_err(), "such an alias would hold for every rule");
}

#[test]
fn names_of_a_guards_own_come_before_others() {
    let shared = Aliases::new([("user", "subject"), ("tenant", "header.x-tenant")]).unwrap();
    let own = shared.with([("user", "json.user")]).unwrap();
    assert_eq!(own.source("user").unwrap().to_string(), "json.user");
    assert_eq!(own.source("tenant").unwrap().to_string(), "header.x-tenant");
    let wrong = shared.with([("user", "body.user")]).unwrap_err().to_string();
    assert!(wrong.ends_with("api_key and consumer, form.NAME and json.NAME"), "{wrong}");
    assert!(shared.with([("ip", "form.ip")]).is_err(), "a client must not choose its own address");
}

#[test]
fn a_body_is_never_shown() {
    assert!(!format!("{:?}", form("user=ada&password=secret")).contains("secret"));
}

proptest! {
    #[test]
    fn whatever_is_sent_never_breaks_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for kind in [BodyKind::Form, BodyKind::Json] {
            let body = Body::new(kind, Bytes::copy_from_slice(&bytes));
            let _ = ask("form.user", Some(&body));
            let _ = ask("json.a.b", Some(&body));
        }
    }

    #[test]
    fn a_value_is_read_as_it_was_written(value in "\\PC{1,40}") {
        let written = serde_json::json!({ "user": value }).to_string();
        prop_assert_eq!(says("json.user", &json(&written)), Some(value.clone()));
        let escaped: String = value.bytes().map(|byte| format!("%{byte:02x}")).collect();
        prop_assert_eq!(says("form.user", &form(&format!("a=1&user={escaped}&b"))), Some(value));
    }
}
