//! nginx, Caddy and HAProxy ask forward-auth, set up with `examples/forward-auth/nginx.conf`,
//! `examples/forward-auth/Caddyfile`, `examples/forward-auth/haproxy.cfg` and `examples/forward-auth/tollgate.lua`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crate::door::{Reply, START, StoreKind};
use crate::proxied::{Limiter, Proxy, Site, Without, door};
use axum::body::Bytes;
use axum::http::Request;
use http_body_util::Full;
use tollgate_doors::{AccessKey, Role};
use tollgate_testbed::{Kind, Nonsense, Port};

const ALL: [Proxy; 3] = [Proxy::Nginx, Proxy::Caddy, Proxy::Haproxy];

async fn open(proxy: Proxy) -> Site {
    Site::open(proxy, door(StoreKind::Memory), Without::Refuse).await
}

/// How often rules counted a page.
async fn counted(site: &Site, page: &str) -> u64 {
    let path = format!("/api/v1/counters/page/{}", page.replace('/', "%2F"));
    let boss = [("authorization", "Bearer a-token-of-a-reader")];
    let reply = site.door().send(axum::http::Method::GET, &path, &boss, Vec::new()).await;
    reply.json()["limits"][0]["used"].as_u64().unwrap_or_else(|| panic!("{reply:?}"))
}

fn assert_limited(reply: &Reply) {
    assert_eq!(reply.status, 429, "{reply:?}");
    assert_eq!(reply.header("retry-after"), Some("3600"));
    assert_eq!(
        (reply.header("retry-after-ms"), reply.header("x-should-retry")),
        (Some("3600000"), Some("false"))
    );
    assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    let body = reply.json();
    assert_eq!((&body["status"], &body["retryAfter"]), (&429.into(), &3600.into()), "{body}");
    assert_eq!(body["denied_by"], "orders");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_sees_its_remainder_and_is_denied_at_zero() {
    for proxy in ALL {
        let site = open(proxy).await;
        let reset = (START + 3600).to_string();
        for remaining in ["2", "1", "0"] {
            let passed = site.get(2, "/a?b=c", &[]).await;
            assert_eq!((passed.status, &*passed.text), (200, "the shop"), "{proxy:?}: {}", site.log());
            let shown = ["limit", "burst", "remaining", "reset", "type"]
                .map(|name| passed.header(&format!("x-ratelimit-{name}")));
            assert_eq!(shown, [Some("3"), None, Some(remaining), Some(&*reset), Some("route")], "{proxy:?}");
        }
        let denied = site.get(2, "/a?b=c", &[]).await;
        assert_limited(&denied);
        let shown =
            ["limit", "remaining", "reset", "type"].map(|name| denied.header(&format!("x-ratelimit-{name}")));
        assert_eq!(shown, [Some("3"), Some("0"), Some(&*reset), Some("route")], "{proxy:?}");
        assert_eq!(site.served(), 3, "{proxy:?}: what is denied does not reach the shop");
        assert_eq!(site.get(3, "/a", &[]).await.status, 200, "{proxy:?}: another client");
        site.door().advance(3600);
        assert_eq!(site.get(2, "/a", &[]).await.status, 200, "{proxy:?}: waited out");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_examples_need_a_token_only_where_tollgate_has_keys() {
    for proxy in ALL {
        let limiter = door(StoreKind::Memory);
        let Limiter::Door(door) = &limiter else { unreachable!("it is one") };
        door.keys.replace(Vec::new());
        let site = Site::open(proxy, limiter, Without::Refuse).await;
        assert_eq!(site.get(2, "/", &[]).await.status, 200, "{proxy:?}: {}", site.log());
        let key = AccessKey { name: "new".into(), role: Role::Admin, hash: [7; 32], tenant: None };
        site.door().keys.replace(vec![key]);
        let reply = site.get(2, "/", &[("x-tollgate-token", "guessed")]).await;
        assert_eq!((reply.status, site.served()), (500, 1), "{proxy:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn client_headers_cannot_impersonate_the_proxy() {
    for proxy in ALL {
        let site = open(proxy).await;
        for number in 0..5 {
            let address = format!("198.51.100.{number}");
            let spoofs = [
                ("x-forwarded-for", &*address),
                ("x-real-ip", &*address),
                ("forwarded", &*format!("for={address}")),
                ("x-forwarded-method", "PUT"),
                ("x-original-method", "PUT"),
                ("x-forwarded-uri", "/spoofed"),
                ("x-original-uri", "/spoofed"),
                ("x-forwarded-host", "spoofed.example.com"),
                ("x-tollgate-token", "guessed"),
                ("x-tollgate-answered", "no"),
                ("x-ratelimit-limit", "1000000"),
            ];
            let reply = site.get(2, "/real/./page?x", &spoofs).await;
            assert_eq!(reply.status, if number < 3 { 200 } else { 429 }, "{proxy:?}: {}", site.log());
            assert_eq!(reply.header("x-ratelimit-limit"), Some("3"), "{proxy:?}");
        }
        assert_eq!(counted(&site, "GET,shop.example.com,/real/page").await, 3, "{proxy:?}");
        assert_eq!(site.served(), 3, "{proxy:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_allowed_request_reaches_the_service_unchanged() {
    for proxy in ALL {
        let site = open(proxy).await;
        let body = Bytes::from(vec![b'x'; 200_000]);
        let request = Request::post("/upload%2Fs?a=%20&b")
            .header("host", "shop.example.com")
            .header("content-type", "text/x-plain")
            .header("x-own", "1")
            .header("x-own", "2");
        let request = request.body(Full::new(body.clone())).unwrap();
        let refused = site.send(2, request.clone()).await;
        assert_eq!((refused.status, site.served()), (400, 0), "{proxy:?}: rules ask for paths");
        assert_eq!(refused.detail(), "a slash or backslash in the path is encoded", "{proxy:?}");
        let (mut parts, body_again) = request.into_parts();
        parts.uri = "/upload/s?a=%20&b".parse().unwrap();
        assert_eq!(site.send(2, Request::from_parts(parts, body_again)).await.status, 200, "{proxy:?}");
        let seen = site.seen.lock()[0].clone();
        assert_eq!((&*seen.target, seen.body.len()), ("/upload/s?a=%20&b", body.len()), "{proxy:?}");
        assert_eq!(seen.headers["content-type"], "text/x-plain");
        assert_eq!(seen.headers.get_all("x-own").iter().collect::<Vec<_>>(), ["1", "2"], "{proxy:?}");
        assert_eq!(
            seen.headers.get("x-tollgate-token"),
            None,
            "{proxy:?}: the service must not see the token"
        );
        assert_eq!(counted(&site, "POST,shop.example.com,/upload/s").await, 1, "{proxy:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_of_tollgate_and_of_the_shop_reach_the_client_unchanged() {
    for proxy in ALL {
        let site = open(proxy).await;
        let closed = site.get(2, "/closed", &[]).await;
        assert_eq!((closed.status, &*closed.text), (403, "the shop"), "{proxy:?}");
        let unknown = site.get(2, "/", &[("x-api-key", "nobodys")]).await;
        assert_eq!((unknown.status, &*unknown.detail()), (401, "the API key is not known"), "{proxy:?}");
        assert_eq!(unknown.header("www-authenticate"), None, "{proxy:?}: no token would be accepted");
        assert_eq!(site.get(2, "/", &[("x-api-key", "ada-key")]).await.status, 200, "{proxy:?}");
        assert_eq!(site.served(), 2, "{proxy:?}");

        let lost = Site::open(proxy, door(StoreKind::Lost), Without::Pass).await;
        let denied = lost.get(2, "/", &[]).await;
        assert_eq!((denied.status, denied.header("retry-after")), (503, Some("1")), "{proxy:?}");
        assert_eq!(denied.json()["error"], "store unavailable", "{proxy:?}");
        assert_eq!(lost.served(), 0, "{proxy:?}: an answer is an answer");
    }
}

/// Checks what proxies do without a response: no server, one that disconnects, and one that is silent. With
/// the example they refuse requests; with one change they let them pass.
async fn assert_fails_closed_and_open(proxy: Proxy, refused: [u16; 3]) {
    let limiters: [fn() -> Limiter; 3] = [
        || Limiter::Absent(Port::claim()),
        || Limiter::HangingUp(Nonsense::start(Kind::HangUp)),
        || Limiter::Silent(std::net::TcpListener::bind("127.0.0.1:0").unwrap()),
    ];
    for (number, (limiter, status)) in limiters.into_iter().zip(refused).enumerate() {
        let site = Site::open(proxy, limiter(), Without::Refuse).await;
        let reply = site.get(2, "/", &[]).await;
        assert_eq!((reply.status, site.served()), (status, 0), "{proxy:?} {number}: {}", site.log());
        let site = Site::open(proxy, limiter(), Without::Pass).await;
        let reply = site.get(2, "/", &[]).await;
        assert_eq!((reply.status, &*reply.text), (200, "the shop"), "{proxy:?} {number}: {}", site.log());
        assert_eq!(reply.header("x-ratelimit-limit"), None, "{proxy:?} {number}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nginx_fails_closed_or_open_when_tollgate_does_not_answer() {
    assert_fails_closed_and_open(Proxy::Nginx, [500, 500, 500]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn caddy_fails_closed_or_open_when_tollgate_does_not_answer() {
    assert_fails_closed_and_open(Proxy::Caddy, [502, 502, 504]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn haproxy_fails_closed_or_open_when_tollgate_does_not_answer() {
    assert_fails_closed_and_open(Proxy::Haproxy, [503, 503, 503]).await;
}

/// Heads around the sizes that the proxies and tollgate accept: how many headers, and how long each is. The
/// result for too long ones varies from run to run, so many sizes are tried.
fn heads() -> impl Iterator<Item = (usize, usize)> {
    let long = (14_000..16_600).step_by(40).map(|bytes| (1, bytes));
    let many = (60..105).map(|count| (count, 10));
    let both = [20, 40, 60, 65, 200].map(|count| (count, 1000));
    long.chain(many).chain(both).chain([(900, 1000); 20])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_cannot_cause_an_error_that_makes_a_fail_open_proxy_let_it_pass() {
    for proxy in ALL {
        let mut site = Site::open(proxy, door(StoreKind::Memory), Without::Pass).await;
        for _ in 0..3 {
            assert_eq!(site.get(2, "/", &[]).await.status, 200, "{proxy:?}");
        }
        let long = "l".repeat(3000);
        for (target, headers) in [
            ("/", [("x-correlation-id", "")]),
            ("/a%2Fb", [("x-correlation-id", &*long)]),
            ("/%00", [("x-api-key", &*long)]),
            ("/a?b%", [("authorization", "Bearer a.b.c")]),
            ("/", [("x-forwarded-host", &*long)]),
        ] {
            let reply = site.get(2, target, &headers).await;
            assert!(matches!(reply.status, 400 | 401 | 429), "{proxy:?} {target}: {reply:?}");
        }
        for (count, bytes) in heads() {
            let headers: Vec<_> =
                (0..count).map(|number| (format!("x-{number}"), "l".repeat(bytes))).collect();
            let headers: Vec<_> =
                headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            // Whether or not this one is refused, the next is denied.
            let _ = site.try_get(2, "/", &headers).await;
            let next = site.get(2, "/", &[]).await;
            assert_eq!((next.status, site.served()), (429, 3), "{proxy:?} after {count} of {bytes}");
        }
        assert_eq!(site.served(), 3, "{proxy:?}");
        site.close_tollgate().await;
        assert_eq!(site.get(2, "/", &[]).await.status, 200, "{proxy:?}: now there is none");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_short_form_of_caddy_limits_too() {
    let site = open(Proxy::Caddy).await;
    let ask = async |client: u8| {
        let request = Request::get("/").header("host", "blog.example.com").body(Full::default()).unwrap();
        site.send(client, request).await
    };
    for _ in 0..3 {
        let passed = ask(2).await;
        assert_eq!((passed.status, passed.header("x-ratelimit-limit")), (200, None), "{}", site.log());
    }
    let denied = ask(2).await;
    assert_limited(&denied);
    assert_eq!(denied.header("x-ratelimit-remaining"), Some("0"));
    assert_eq!((ask(3).await.status, site.served()), (200, 4));
    assert_eq!(site.get(2, "/", &[]).await.status, 200, "the shop is another route");
}
