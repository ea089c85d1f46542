//! Forward-auth: which headers it trusts, and which keys it counts.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crate::asking::{PATH, ask, ask_nginx, door, policies, settings, trusting, used};
use crate::door::{Door, StoreKind};
use axum::body::Body;
use axum::http::{HeaderValue, Method, Request};
use proptest::prelude::*;
use serde_json::json;
use sha2::{Digest, Sha256};
use tollgate_doors::{AccessKey, Role};

#[tokio::test]
async fn the_client_is_named_by_a_trusted_proxy_and_is_otherwise_the_proxy() {
    let (trusting, wary) = (trusting(), door());
    let spoofed = [("x-forwarded-for", "198.51.100.1, 203.0.113.7")];
    for door in [&trusting, &wary] {
        assert_eq!(ask(door, "ip", &spoofed).await.status, 200);
    }
    assert_eq!(
        [used(&trusting, "ip", "203.0.113.7").await, used(&trusting, "ip", "198.51.100.1").await],
        [1, 0]
    );
    assert_eq!(used(&trusting, "ip", "192.0.2.1").await, 0);
    assert_eq!([used(&wary, "ip", "203.0.113.7").await, used(&wary, "ip", "192.0.2.1").await], [0, 1]);
    for spoof in ["198.51.100.2", "198.51.100.3"] {
        ask(&trusting, "ip", &[("x-forwarded-for", &format!("{spoof}, 203.0.113.7"))]).await;
    }
    assert_eq!(
        ask(&trusting, "ip", &spoofed).await.status,
        429,
        "another forged hop does not change the client"
    );
    assert_eq!(ask(&trusting, "ip", &[("x-forwarded-for", "203.0.113.8")]).await.status, 200);
}

#[tokio::test]
async fn a_blocked_client_is_refused_by_a_policy_without_addresses() {
    let door = trusting();
    door.post("/api/v1/bans", json!({ "target": "203.0.113.0/24", "for": "1h" })).await;
    let blocked = [("x-forwarded-for", "203.0.113.7"), ("x-forwarded-uri", "/?q=1")];
    let reply = ask(&door, "search", &blocked).await;
    assert_eq!((reply.status, reply.json()["type"].clone()), (403, json!("/problems/banned")));
    assert_eq!(reply.header("retry-after"), Some("3600"));
    assert_eq!(
        (reply.header("retry-after-ms"), reply.header("x-should-retry")),
        (Some("3600000"), Some("false"))
    );
    assert!(reply.headers_like("x-ratelimit").is_empty());
    assert_eq!(used(&door, "search", "1").await, 0);
    let other = [("x-forwarded-for", "198.51.100.7"), ("x-forwarded-uri", "/?q=1")];
    assert_eq!(ask(&door, "search", &other).await.status, 200);
}

#[tokio::test]
async fn each_dialect_reads_only_its_own_headers() {
    let door = door();
    let both = [
        ("x-forwarded-method", "PUT"),
        ("x-forwarded-uri", "/plain//./a?q=1"),
        ("x-original-method", "POST"),
        ("x-original-uri", "/nginx%2D1?q=2"),
        ("x-forwarded-host", "Shop.Example.com:8443"),
    ];
    for policy in ["page", "search"] {
        assert_eq!(ask(&door, policy, &both).await.status, 200);
    }
    assert_eq!(used(&door, "page", "PUT,shop.example.com,/plain/a").await, 1);
    assert_eq!([used(&door, "search", "1").await, used(&door, "search", "2").await], [1, 0]);
    for policy in ["page", "search"] {
        assert_eq!(ask_nginx(&door, policy, &both).await.status, 200);
    }
    assert_eq!(used(&door, "page", "POST,shop.example.com,/nginx-1").await, 1);
    assert_eq!([used(&door, "search", "1").await, used(&door, "search", "2").await], [1, 1]);
}

#[tokio::test]
async fn a_method_in_small_letters_does_not_pass_for_another_one() {
    let door = door();
    for method in ["post", "Post", "gET"] {
        assert_eq!(ask(&door, "page", &[("x-forwarded-method", method)]).await.status, 400, "{method}");
    }
}

#[tokio::test]
async fn a_path_that_no_rule_asks_for_is_the_services_own_business() {
    let door = door();
    for uri in ["/a%2Fb", "*", "/a%zz?q=%"] {
        assert_eq!(
            ask(&door, &format!("orders?route={}", uri.len()), &[("x-forwarded-uri", uri)]).await.status,
            200
        );
        assert_eq!(ask(&door, "page", &[("x-forwarded-uri", uri)]).await.status, 400, "{uri}");
    }
    let raw = |policy: &str| {
        Request::get(format!("{PATH}{policy}"))
            .header("x-forwarded-method", "GET")
            .header("x-forwarded-uri", HeaderValue::from_bytes(b"/\xff?q=\xff").unwrap())
            .body(Body::empty())
            .unwrap()
    };
    let mut statuses = Vec::new();
    for policy in ["ip", "page", "search"] {
        statuses.push(door.answer(raw(policy)).await.status);
    }
    assert_eq!(statuses, [200, 400, 400]);
}

#[tokio::test]
async fn clients_are_known_by_their_keys_and_the_proxy_by_its_own_token() {
    let key = |name: &str| AccessKey {
        name: name.into(),
        role: Role::Check,
        hash: Sha256::digest(name).into(),
        tenant: None,
    };
    let door = Door::with(policies(), vec![key("proxy-token")], StoreKind::Memory);
    door.forward_auth.replace(settings());
    let token = ("x-tollgate-token", "proxy-token");
    for wrong in [
        &[][..],
        &[("authorization", "Bearer proxy-token")],
        &[("x-api-token", "proxy-token")],
        &[("x-api-key", "proxy-token")],
        &[("x-tollgate-token", "guessed")],
        &[("x-tollgate-token", "")],
        &[token, ("x-tollgate-token", "guessed")],
    ] {
        for refused in [ask(&door, "consumer", wrong).await, ask_nginx(&door, "consumer", wrong).await] {
            assert_eq!(refused.status, 500, "{wrong:?}: {refused:?}");
            assert_eq!(
                refused.detail(),
                "the proxy must send the token of a key without a tenant as `X-Tollgate-Token`"
            );
            assert_eq!(refused.header("www-authenticate"), None, "no client can mend it");
        }
    }
    let reader =
        |headers: &[(&'static str, &'static str)]| headers.iter().copied().chain([token]).collect::<Vec<_>>();
    for _ in 0..2 {
        assert_eq!(ask(&door, "consumer", &reader(&[("x-api-key", "ada-key")])).await.status, 200);
    }
    let denied = ask(&door, "consumer", &reader(&[("x-api-key", "ada-key")])).await;
    assert_eq!((denied.status, &denied.json()["denied_key"]), (429, &json!("ADA")));
    assert_eq!(ask(&door, "consumer", &reader(&[("x-api-key", "bob-key")])).await.status, 200);
    assert_eq!(ask(&door, "consumer", &reader(&[("x-api-key", "proxy-token")])).await.status, 401);
    // Rules do not see the token.
    assert_eq!(ask(&door, "secret", &[token]).await.header("x-ratelimit-limit"), None);
}

#[tokio::test]
async fn an_unknown_api_key_is_ignored_where_no_rule_needs_one() {
    let door = trusting();
    let foreign = [("x-api-key", "the service's own")];
    assert_eq!(ask(&door, "ip", &foreign).await.status, 200);
    assert_eq!(ask(&door, "consumer", &foreign).await.status, 401);
}

#[tokio::test]
async fn a_proxy_that_asks_wrongly_is_told_in_every_dialect() {
    let door = door();
    let twice = [("x-forwarded-uri", "/a"), ("x-forwarded-uri", "/b")];
    for (question, headers, detail) in [
        ("order", &[][..], "there is no policy `order`; did you mean `orders`?"),
        ("orders?rout=shop", &[], "`rout` is not a query parameter here; known are: route, dialect"),
        ("orders?route=a&route=b", &[], "`route` is there twice"),
        ("orders?route=%ff", &[], "the query is not UTF-8 once it is decoded"),
        ("orders?dialect=caddy", &[], "`dialect` is `plain` or `nginx`"),
        (
            "orders",
            &twice,
            "`x-forwarded-uri` is there twice: the proxy must replace the client's own header",
        ),
        ("strange", &[], "no part of a request is called `colour`"),
        (
            "jobs",
            &[],
            "rule `jobs` has an `at once` limit, and forward-auth does not see when a request ends",
        ),
    ] {
        let reply = ask(&door, question, headers).await;
        assert_eq!((reply.status, &*reply.detail()), (500, detail), "{question}");
        assert_eq!(reply.json()["type"], "/problems/misconfigured");
    }
    assert_eq!(ask_nginx(&door, "order", &[]).await.status, 500);
    for (dialect, missing) in [
        ("plain", ["x-forwarded-method", "x-forwarded-uri"]),
        ("nginx", ["x-original-method", "x-original-uri"]),
    ] {
        let path = format!("{PATH}orders?dialect={dialect}");
        let one = door.send(Method::GET, &path, &[(missing[0], "GET")], Vec::new()).await;
        let other = door.send(Method::GET, &path, &[(missing[1], "/")], Vec::new()).await;
        for (reply, name) in [(one, missing[1]), (other, missing[0])] {
            let detail = format!("`{name}` is missing: the proxy must describe its client's request");
            assert_eq!((reply.status, reply.detail()), (500, detail));
        }
    }
}

#[tokio::test]
async fn an_override_that_takes_holds_is_refused_at_its_key_alone() {
    let door = trusting();
    let holding = json!({ "limits": ["1 at once"] });
    assert_eq!(door.put("/api/v1/counters/ip/203.0.113.7", holding).await.status, 200);
    for _ in 0..2 {
        let reply = ask(&door, "ip", &[("x-forwarded-for", "203.0.113.7")]).await;
        let detail = "rule `ip` has an `at once` limit, and forward-auth does not see when a request ends";
        assert_eq!((reply.status, &*reply.detail()), (500, detail), "no hold is taken that nothing releases");
    }
    assert_eq!(ask(&door, "ip", &[("x-forwarded-for", "203.0.113.8")]).await.status, 200);
}

#[tokio::test]
async fn names_are_decoded_and_settings_replaced_while_the_door_is_open() {
    let door = door();
    assert_eq!(ask(&door, "%6frders?route=a%20b", &[]).await.status, 200);
    assert_eq!(used(&door, "orders", "a b,192.0.2.1").await, 1);
    assert_eq!(ask(&door, "tenant", &[("x-tenant", "acme")]).await.status, 500);
    door.forward_auth.replace(settings());
    assert_eq!(ask(&door, "tenant", &[("x-tenant", "acme")]).await.status, 200);
    assert_eq!(used(&door, "tenant", "acme").await, 1);
}

/// Any header value that a client can send through a proxy.
fn values() -> impl Strategy<Value = HeaderValue> {
    let likely = prop::sample::select(vec![
        "",
        "GET",
        "/",
        "/a/../b?q=1",
        "/?q=%zz",
        "a.example.com:80",
        "198.51.100.1, x",
        "ada-key",
        "Bearer a.b.c",
        "q=1; q",
    ]);
    let likely = likely.prop_map(|text| text.as_bytes().to_vec());
    let any = prop::collection::vec(prop_oneof![0x20_u8..0x7f, 0x80_u8..], 0..24);
    let long = (600_usize..700).prop_map(|length| vec![b'l'; length]);
    prop_oneof![4 => likely, 4 => any, 1 => long].prop_map(|bytes| HeaderValue::from_bytes(&bytes).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn nothing_that_a_client_sends_looks_like_a_fault_of_the_proxy(
        policy in prop::sample::select(vec!["orders", "ip", "page", "search", "tenant", "consumer"]),
        (method, uri, host) in (values(), values(), values()),
        others in prop::collection::vec((prop::sample::select(vec![
            "x-forwarded-for", "x-tenant", "x-api-key", "cookie", "authorization", "x-correlation-id", "forwarded",
        ]), values()), 0..6),
    ) {
        thread_local! { static DOOR: Door = trusting(); }
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let ask = |dialect: &str, prefix: &str| {
            let mut request = Request::get(format!("{PATH}{policy}?route=r&dialect={dialect}"))
                .header(format!("{prefix}-method"), &method)
                .header(format!("{prefix}-uri"), &uri)
                .header("x-forwarded-host", &host);
            for (name, value) in &others {
                request = request.header(*name, value);
            }
            DOOR.with(|door| runtime.block_on(door.answer(request.body(Body::empty()).unwrap())))
        };
        let plain = ask("plain", "x-forwarded");
        prop_assert!(matches!(plain.status, 200 | 400 | 401 | 429), "{plain:?}");
        let nginx = ask("nginx", "x-original");
        prop_assert!(matches!(nginx.status, 200 | 403), "{nginx:?}");
        prop_assert_eq!(nginx.status == 403, nginx.headers.contains_key("x-tollgate-status"));
    }
}
