//! Bad input: every error has its own message, nothing is charged, nothing panics.

use crate::door::Door;
use axum::body::Body;
use axum::http::{Method, Request, Uri};
use proptest::prelude::*;
use serde_json::json;

/// Bodies for `/api/v1/check`, and their error messages.
const BAD_CHECKS: &[(&str, &str)] = &[
    ("", "the body is empty: expected an object"),
    (" \n", "the body is empty: expected an object"),
    (r#"{"policy":"mail.acc"#, "the body is not JSON: EOF while parsing a string at line 1 column 19"),
    ("{\n  \"policy\": mail\n}", "the body is not JSON: expected value at line 2 column 13"),
    (r#"{policy:"mail.accept"}"#, "the body is not JSON: key must be a string at line 1 column 2"),
    (r#"{"policy":"mail.accept",}"#, "the body is not JSON: trailing comma at line 1 column 25"),
    (r#"{"policy":"\ud800"}"#, "the body is not JSON: unexpected end of hex escape at line 1 column 18"),
    (r#"{"policy":"mail.accept"} x"#, "the body is not JSON: trailing characters at line 1 column 26"),
    ("[\"mail.accept\"]", "expected an object, not a list"),
    ("7", "expected an object, not the number 7"),
    ("null", "expected an object, not null"),
    ("{}", "`policy` is missing: which policy does the attempt pass?"),
    (r#"{"policy":7}"#, "expected a string, not the number 7, at `policy`"),
    (r#"{"policy":{}}"#, "expected a string, not an object, at `policy`"),
    (r#"{"policy":"mail.acept"}"#, "there is no policy `mail.acept`; did you mean `mail.accept`?"),
    (r#"{"policy":"mail.accept","feilds":{}}"#, "`feilds` is not known here; did you mean `fields`?"),
    (
        r#"{"policy":"mail.accept","x":{}}"#,
        "`x` is not known here; known are: `policy`, `fields`, `cost`, `id`, `dry_run`, `attempts`",
    ),
    (r#"{"policy":"mail.accept","policy":"x"}"#, "duplicate field `policy` at line 1 column 32"),
    (
        r#"{"policy":"mail.accept","fields":["ip"]}"#,
        "expected an object with the fields of the attempt, not a list, at `fields`",
    ),
    (
        r#"{"policy":"mail.accept","fields":{"sendr":"a"}}"#,
        "no rule of policy `mail.accept` uses the field `sendr`; did you mean `sender`?",
    ),
    (
        r#"{"policy":"mail.accept","fields":{"ip":"10.0.0"}}"#,
        "the value of `ip` is not an IPv4 or IPv6 address",
    ),
    (
        r#"{"policy":"trial","fields":{"account":""}}"#,
        "the value of `account` is empty; leave the field out if there is none",
    ),
    (
        r#"{"policy":"mail.accept","fields":{"ip":["10.0.0.1"]}}"#,
        "expected a string, a whole number of at least 0, or a boolean, not a list, at `fields.ip`",
    ),
    (
        r#"{"policy":"mail.accept","fields":{"recipients":-1}}"#,
        "expected a string, a whole number of at least 0, or a boolean, not the number -1, at `fields.recipients`",
    ),
    (
        r#"{"policy":"mail.accept","fields":{"recipients":1.5}}"#,
        "expected a string, a whole number of at least 0, or a boolean, not the number 1.5, at `fields.recipients`",
    ),
    (
        r#"{"policy":"mail.accept","fields":{"recipients":"few","sender":"a@b"}}"#,
        "the value of `recipients` is not a whole number",
    ),
    (r#"{"policy":"mail.accept","fields":{"sender":"a","sender":"b"}}"#, "the field `sender` was sent twice"),
    (
        r#"{"policy":"mail.accept","fields":{"sender":"a\u0000@example.com"}}"#,
        "the value of `sender` is not a mail address: a character before the `@` must be quoted, or is not allowed; write it as in `user@example.com`",
    ),
    (
        r#"{"policy":"mail.accept","fields":{"sender":"a@example.com","domain":"example.com "}}"#,
        "the value of `domain` is not a domain: it contains a character that no domain has; write it as in `example.com`",
    ),
    (
        r#"{"policy":"mail.accept","cost":-1}"#,
        "expected a whole number of at least 0, not the number -1, at `cost`",
    ),
    (
        r#"{"policy":"mail.accept","cost":1.5}"#,
        "expected a whole number of at least 0, not the number 1.5, at `cost`",
    ),
    (
        r#"{"policy":"mail.accept","cost":"2"}"#,
        r#"expected a whole number of at least 0, not the text "2", at `cost`"#,
    ),
    (
        r#"{"policy":"mail.accept","cost":9223372036854775808}"#,
        "the cost 9223372036854775808 is too large; at most 9007199254740991 is allowed",
    ),
    (r#"{"policy":"mail.accept","dry_run":1}"#, "expected a boolean, not the number 1, at `dry_run`"),
    (
        r#"{"policy":"jobs"}"#,
        "no rule of policy `jobs` applies: its rules need some of the fields account; set `allow_unmatched` to let such attempts pass",
    ),
    (r#"{"policy":"mail.accept","attempts":[]}"#, "no other member is allowed with `attempts`"),
    (r#"{"cost":1,"attempts":[]}"#, "no other member is allowed with `attempts`"),
    (r#"{"attempts":{}}"#, "expected a list of at most 100, not an object, at `attempts`"),
];

#[tokio::test]
async fn every_mistake_is_told_from_every_other() {
    let door = Door::open();
    for (body, detail) in BAD_CHECKS {
        let reply = door.send(Method::POST, "/api/v1/check", &[], body.as_bytes().to_vec()).await;
        assert_eq!((reply.status, &*reply.detail()), (400, *detail), "{body}");
        let expected = json!({
            "type": "/problems/bad-request", "title": "Bad request", "status": 400,
            "detail": detail, "correlationId": "…",
        });
        assert_eq!(reply.settled(), expected);
    }
    let reply = door.send(Method::POST, "/api/v1/check", &[], b"{\"policy\":\"\xff\"}".to_vec()).await;
    assert_eq!((reply.status, &*reply.detail()), (400, "the body is not UTF-8 text after 11 bytes"));
    let counts = door.get("/api/v1/counters/global/global").await.json();
    assert_eq!(counts["hourly_count"], 0, "nothing was charged");
}

#[tokio::test]
async fn input_that_is_too_long_or_too_much_is_refused() {
    let door = Door::open();
    let long = door.check("mail.accept", json!({ "sender": "a".repeat(1_000_000) })).await;
    assert_eq!(long.status, 400);
    assert_eq!(long.detail(), "the value of `sender` is 1000000 bytes long; at most 1024 are allowed");
    let whole = door.check("mail.accept", json!({ "sender": "a".repeat(1 << 20) })).await;
    assert_eq!((whole.status, &*whole.detail()), (413, "the body is longer than 1048576 bytes"));
    let told =
        Request::post("/api/v1/check").header("content-length", "1048577").body(Body::empty()).unwrap();
    assert_eq!(door.answer(told).await.status, 413, "a long body need not come to be refused");
    let fields =
        |count: usize| (0..count).map(|n| (format!("f{n}"), json!(n))).collect::<serde_json::Map<_, _>>();
    let many = door.check("mail.accept", fields(33).into()).await;
    assert!(many.detail().starts_with("more than 32 fields, at `fields`"), "{}", many.detail());
    assert!(door.check("mail.accept", fields(32).into()).await.detail().contains("uses the field `f"));
    let body = json!({ "policy": "jobs", "fields": { "account": "a" }, "id": "i".repeat(257) });
    let reply = door.post("/api/v1/check", body).await;
    assert_eq!(reply.detail(), "the id is 257 bytes long; at most 256 are allowed");
    let name = "x".repeat(100_000);
    let reply = door.post("/api/v1/check", json!({ name: 1 })).await;
    assert!(reply.status == 400 && reply.text.len() < 2_000, "what was sent is not shown back at length");
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let reply = door.send(Method::POST, "/api/v1/check", &[], format!("{{\"fields\":{deep}}}").into()).await;
    assert_eq!(reply.status, 400);
    let attempts = format!("{{\"attempts\":[{deep}]}}");
    let reply = door.send(Method::POST, "/api/v1/check", &[], attempts.into()).await;
    assert_eq!(reply.json()["decisions"][0]["status"], 400);
}

#[tokio::test]
async fn numbers_and_booleans_stand_for_their_text() {
    let door = Door::open();
    for (value, key) in [
        (json!(7), "7"),
        (json!(u64::MAX), "18446744073709551615"),
        (json!(true), "true"),
        (json!(false), "false"),
    ] {
        assert_eq!(door.check("trial", json!({ "account": value })).await.json()["rules"][0]["key"], key);
    }
    let body = r#"{"policy":"tri\u0061l","fields":{"acc\u006funt":"\u00e9\"\\"},"id":null,"cost":null}"#;
    let reply = door.send(Method::POST, "/api/v1/check", &[], body.as_bytes().to_vec()).await;
    assert_eq!((reply.status, &reply.json()["rules"][0]["key"]), (200, &json!("é\"\\")));
}

#[tokio::test]
async fn paths_and_methods_that_do_not_exist_are_problems_too() {
    let door = Door::open();
    for path in
        ["/index", "/api/v1", "/api/v1/chek", "/api/v1/holds/jobs", "/api/v1/counters/", "/api/v1/check/"]
    {
        let reply = door.get(path).await;
        assert_eq!(reply.status, 404, "{path}");
        assert!(reply.detail().contains("/api/v1/openapi.json"));
    }
    let reply = door.post("/api/v1/holds/jobs/a/1", json!({})).await;
    assert_eq!(reply.status, 404, "only `/renew` can be posted there");
    for (method, path) in
        [(Method::GET, "/api/v1/check"), (Method::PATCH, "/api/v1/counters/a/b"), (Method::POST, "/livez")]
    {
        let reply = door.send(method, path, &[], Vec::new()).await;
        assert_eq!((reply.status, &reply.json()["title"]), (405, &json!("Method not allowed")), "{path}");
        assert!(reply.header("allow").is_some(), "{path}: {reply:?}");
    }
}

#[tokio::test]
async fn bad_places_and_bad_limits_are_told_apart() {
    let door = Door::open();
    let get = [
        ("/api/v1/counters/sendr/a", 404, "there is no rule `sendr`; did you mean `sender`?"),
        (
            "/api/v1/counters/ip/nonsense",
            400,
            "this is not a key of rule `ip`: the `ip` is not an IPv4 or IPv6 address",
        ),
        ("/api/v1/counters/orders/alone", 400, "this is not a key of rule `orders`, whose keys are route,ip"),
        (
            "/api/v1/counters/global/other",
            400,
            "this is not a key of rule `global`, whose keys are its own name, `global`",
        ),
        ("/api/v1/counters/sender/%FF", 400, "the path is not UTF-8 once it is decoded"),
        ("/api/v1/holds/sender/a@b", 404, "rule `sender` has no limit `at once` at this key"),
        ("/api/v1/decisions?limit=0", 400, "`limit` is a number from 1 to 1000"),
        ("/api/v1/decisions?verdict=denied", 400, "`verdict` is `allow`, `wait`, `defer` or `deny`"),
        ("/api/v1/top?limit=many", 400, "`limit` is a number from 1 to 1000"),
        ("/api/v1/top?nodes=one", 400, "`nodes` is `all`, or absent for this node alone"),
        ("/api/v1/top?limit=1&limit=2", 400, "`limit` is in the query twice"),
        ("/api/v1/bans?author=%FF", 400, "the query is not UTF-8 once it is decoded"),
        ("/api/v1/policies?after=%FF", 400, "the query is not UTF-8 once it is decoded"),
        ("/api/v1/top?lmit=5", 400, "`lmit` is not a query parameter here; known are: limit, nodes"),
    ];
    for (path, status, detail) in get {
        let reply = door.get(path).await;
        assert_eq!((reply.status, &*reply.detail()), (status, detail), "{path}");
    }
    let empty = "limits are missing: give `{\"limits\":[\"2000/hour\"]}`, or `unlimited`, or messages_per_hour, messages_per_day, recipients_per_message";
    let put = [
        (json!({}), empty),
        (json!({ "limits": [] }), empty),
        (
            json!({ "limits": ["2000/hou"] }),
            "`2000/hou`, character 6: a period is `s`, `min`, `hour`, `day`, `week`, `month` or a duration such as `15m`",
        ),
        (
            json!({ "limits": ["1/hour", "2/hour"] }),
            "`2/hour` is of the same kind and period as another limit here: keep one of them",
        ),
        (json!({ "limits": ["1/day calendar in Mars/Base"] }), "there is no time zone `Mars/Base`"),
        (
            json!({ "limits": ["1/hour"], "messages_per_day": 1 }),
            "no other member but `for` is allowed with `limits`",
        ),
        (
            json!({ "messages_per_hour": -1 }),
            "expected a whole number of at least 0, not the number -1, at `messages_per_hour`",
        ),
        (
            json!({ "messages_per_hour": 1_u64 << 53 }),
            "`9007199254740992/hour`, character 1: the largest number that is exact everywhere is 9007199254740991",
        ),
    ];
    for (body, detail) in put {
        let reply = door.put("/api/v1/counters/sender/a@b", body.clone()).await;
        assert_eq!((reply.status, &*reply.detail()), (400, detail), "{body}");
    }
    assert!(door.recorded().is_empty(), "nothing was set");
}

#[tokio::test]
async fn a_field_of_the_key_cannot_be_bounded_per_attempt() {
    let door = Door::open();
    for (field, rule) in [("sender", "sender"), ("ip", "ip")] {
        let limits = json!({ "limits": ["9/hour", format!("5 {field} per attempt")] });
        let reply = door.put("/api/v1/counters/sender/a@b", limits).await;
        let detail = format!(
            "`5 {field} per attempt` bounds `{field}`, which is part of the key of rule `{rule}` in policy `mail.accept`: a number that is bounded needs a field of its own"
        );
        assert_eq!((reply.status, reply.detail()), (400, detail));
    }
    assert_eq!(door.check("mail.accept", json!({ "sender": "a@b", "ip": "10.0.0.1" })).await.status, 200);
    let limits = json!({ "limits": ["5 account per attempt"] });
    let reply = door.put("/api/v1/counters/sender/a@b", limits).await;
    assert_eq!(reply.status, 200, "a key of another policy is just a name");
}

/// Almost valid bodies, so that random changes reach deep.
fn bodies() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::sample::select(vec![
        r#"{"policy":"mail.accept","fields":{"sender":"a@example.com","recipients":3},"cost":1,"id":"x"}"#,
        r#"{"attempts":[{"policy":"jobs","fields":{"account":"a"},"id":"1"},{"policy":"trial"}]}"#,
        r#"{"receipt":"AQIDBA"}"#,
        r#"{"ids":["a","b"]}"#,
        r#"{"limits":["10/hour","5 at once for 30s"]}"#,
        r#"{"messages_per_hour":1,"messages_per_day":null}"#,
    ]);
    let changed = (words, any::<prop::sample::Index>(), any::<u8>(), any::<bool>()).prop_map(
        |(text, at, byte, cut)| {
            let mut bytes = text.as_bytes().to_vec();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if cut {
                bytes.truncate(at);
            }
            bytes
        },
    );
    prop_oneof![changed, prop::collection::vec(any::<u8>(), 0..64)]
}

fn paths() -> impl Strategy<Value = String> {
    let head = prop::sample::select(vec![
        "/api/v1/check",
        "/api/v1/refund",
        "/api/v1/holds",
        "/api/v1/holds/jobs",
        "/api/v1/holds/slots/a/1/renew",
        "/api/v1/counters",
        "/api/v1/counters/domain",
        "/api/v1/counters/orders",
        "/api/v1/counters/global/global",
        "/api/v1/counters/ip/10.0.0.1/override",
        "/api/v1/decisions",
        "/api/v1/top",
        "/metrics",
        "/readyz",
        "",
    ]);
    (head, "[/a-z0-9.,@%:?=&\\[\\]-]{0,24}").prop_map(|(head, tail)| format!("{head}{tail}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn no_request_makes_the_door_panic(
        method in prop::sample::select(vec![Method::GET, Method::POST, Method::PUT, Method::DELETE]),
        path in paths(), body in bodies(), id in prop::collection::vec(any::<u8>(), 0..16), wide in any::<bool>(),
    ) {
        let Ok(uri) = path.parse::<Uri>() else { return Ok(()) };
        let mut request = Request::builder().method(method).uri(uri);
        if let Ok(id) = axum::http::HeaderValue::from_bytes(&id) {
            request = request.header("x-correlation-id", id.clone()).header("x-ratelimit-format", id);
        }
        if wide {
            request = request.header("x-ratelimit-format", "ietf");
        }
        thread_local! { static DOOR: Door = Door::open(); }
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        DOOR.with(|door| {
            let reply = runtime.block_on(door.answer(request.body(Body::from(body)).unwrap()));
            prop_assert!(matches!(reply.status, 200 | 400 | 404 | 405 | 422 | 429), "{:?}", reply);
            if reply.status >= 400 {
                prop_assert!(reply.json()["correlationId"].is_string());
            }
            Ok(())
        })?;
    }
}
