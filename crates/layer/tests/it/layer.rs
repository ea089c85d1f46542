//! The layer around real services: what passes, what is refused, and what is counted.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt;
use tollgate_core::key::Kinds;
use tollgate_core::{Author, Policies, Policy, Roster, Rule, Stance, Timestamp};
use tollgate_engine::{Engine, Parts, Wish};
use tollgate_store::{ManualClock, MemoryStore};
use tollgate_tower::TollgateLayer;
use tollgate_web::{Aliases, Identity};
use tower::{Layer, Service, ServiceExt};

/// An engine with one policy `p` over these rules.
async fn engine(rules: Vec<Rule>) -> Arc<Engine> {
    engine_with(Kinds::default(), rules).await
}

/// As [`engine`], with these kinds of fields and derivations.
async fn engine_with(kinds: Kinds, rules: Vec<Rule>) -> Arc<Engine> {
    let rules: Vec<Arc<Rule>> = rules.into_iter().map(Arc::new).collect();
    let policies = Policies::new(true, rules.clone(), vec![Policy::new("p".into(), rules, false)])
        .with_roster(Arc::new(Roster::new(kinds, Vec::new())));
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000)));
    let store = Arc::new(MemoryStore::new(clock, 1000));
    let parts = Parts { store: store.clone(), records: store, fallback: None };
    Arc::new(Engine::start(policies, parts).await.unwrap())
}

fn rule(by: &[&str], limit: &str) -> Rule {
    Rule::new("r", by, vec![limit.parse().unwrap()]).unwrap()
}

fn asked_by(peer: &str) -> Request<Body> {
    let peer: IpAddr = peer.parse().unwrap();
    Request::get("/").extension(peer).body(Body::empty()).unwrap()
}

fn by_peer(layer: TollgateLayer) -> TollgateLayer {
    layer.peer(|extensions| extensions.get::<IpAddr>().copied())
}

fn said(headers: &HeaderMap, name: &str) -> String {
    headers.get(name).map_or_else(String::new, |value| value.to_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_blocked_client_does_not_reach_the_service_if_its_address_is_known() {
    let engine = engine(vec![rule(&["route"], "1000/min")]).await;
    let wish = Wish {
        target: engine.lists.target("0.0.0.0/0").unwrap(),
        stance: Stance::Block,
        lasts: None,
        reason: "".into(),
        show_reason: false,
        author: Author::Key("ops".into()),
    };
    engine.lists.put(vec![wish]).await.unwrap();
    let app = |layer: TollgateLayer| Router::new().route("/", get(|| async { "hello" })).layer(layer);
    let known = app(by_peer(TollgateLayer::new(Arc::clone(&engine), "p")));
    let answer = known.oneshot(asked_by("192.0.2.1")).await.unwrap();
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
    assert_eq!(said(answer.headers(), "x-ratelimit-limit"), "");
    let unknown = app(TollgateLayer::new(engine, "p"));
    assert_eq!(
        unknown.oneshot(asked_by("192.0.2.1")).await.unwrap().status(),
        StatusCode::OK,
        "the layer does not know the client"
    );
}

#[tokio::test]
async fn requests_pass_up_to_the_limit_and_then_the_service_sees_none() {
    let seen = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&seen);
    let handler = get(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        async { "hello" }
    });
    let layer = by_peer(TollgateLayer::new(engine(vec![rule(&["ip"], "2/min")]).await, "p"));
    let app = Router::new().route("/", handler).layer(layer);
    for left in ["1", "0"] {
        let answer = app.clone().oneshot(asked_by("192.0.2.1")).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(said(answer.headers(), "x-ratelimit-remaining"), left);
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "hello");
    }
    let refused = app.clone().oneshot(asked_by("192.0.2.1")).await.unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(said(refused.headers(), "retry-after"), "60");
    assert_eq!(said(refused.headers(), "retry-after-ms"), "60000");
    assert_eq!(said(refused.headers(), "content-type"), "application/problem+json");
    assert_eq!(app.oneshot(asked_by("192.0.2.2")).await.unwrap().status(), StatusCode::OK, "another client");
    assert_eq!(seen.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn fields_are_derived_and_the_id_of_a_refusal_leads_to_its_decision() {
    let kinds = Kinds::default().derive("domain", "sender").unwrap();
    let engine = engine_with(kinds, vec![rule(&["domain"], "1/min")]).await;
    let aliases = Aliases::new([("sender", "header.x-sender")]).unwrap();
    let layer = TollgateLayer::new(Arc::clone(&engine), "p").fields(aliases);
    let app = Router::new().route("/", get(|| async { "hello" })).layer(layer);
    let ask = |sender: &str, id: &str| {
        let request = Request::get("/").header("x-sender", sender).header("x-correlation-id", id);
        app.clone().oneshot(request.body(Body::empty()).unwrap())
    };
    assert_eq!(ask("a@example.com", "one").await.unwrap().status(), StatusCode::OK);
    assert_eq!(ask("a b@example.com", "two").await.unwrap().status(), StatusCode::BAD_REQUEST);
    let refused = ask("\"b\"@Example.com", "three").await.unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(said(refused.headers(), "x-correlation-id"), "three");
    let found = engine.observer.journal.latest_of(9, |entry| entry.correlation.as_deref() == Some("three"));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].key.as_deref(), Some("example.com"));
}

#[tokio::test]
async fn a_method_in_small_letters_does_not_pass_for_another_one() {
    let layer = by_peer(TollgateLayer::new(engine(vec![rule(&["ip", "method"], "1/min")]).await, "p"));
    let app = Router::new().route("/", axum::routing::any(|| async { "hello" })).layer(layer);
    for (method, status) in [("POST", 200), ("post", 400), ("Post", 400), ("POST", 429)] {
        let mut request = asked_by("192.0.2.1");
        *request.method_mut() = method.parse().unwrap();
        assert_eq!(app.clone().oneshot(request).await.unwrap().status(), status, "{method}");
    }
}

#[tokio::test]
async fn a_bare_service_of_another_kind_works_as_well() {
    let service = tower::service_fn(|_: Request<String>| async {
        Ok::<_, Infallible>(Response::new(http_body_util::Full::new(bytes::Bytes::from_static(b"x"))))
    });
    let mut limited = TollgateLayer::new(engine(vec![rule(&["route"], "1/min")]).await, "p").layer(service);
    for status in [200, 429] {
        let request = Request::get("http://example.com/").body(String::new()).unwrap();
        assert_eq!(limited.ready().await.unwrap().call(request).await.unwrap().status(), status);
    }
}

#[tokio::test]
async fn answers_that_do_not_count_are_given_back() {
    let mut rule = rule(&["ip"], "2/min");
    rule.count_when = Some("[401, 403]".parse::<tollgate_web::Statuses>().unwrap().classes());
    let layer = by_peer(TollgateLayer::new(engine(vec![rule]).await, "p"));
    let app = Router::new()
        .route("/", get(|| async { StatusCode::OK }))
        .route("/wrong", get(|| async { StatusCode::UNAUTHORIZED }))
        .layer(layer);
    let ask = |path: &'static str| {
        let mut request = asked_by("192.0.2.1");
        *request.uri_mut() = path.parse().unwrap();
        app.clone().oneshot(request)
    };
    for _ in 0..10 {
        assert_eq!(ask("/").await.unwrap().status(), 200);
    }
    assert_eq!(ask("/wrong").await.unwrap().status(), 401);
    assert_eq!(ask("/wrong").await.unwrap().status(), 401);
    assert_eq!(ask("/wrong").await.unwrap().status(), 429);
    assert_eq!(ask("/").await.unwrap().status(), 429, "every request is refused until the window ends");
}

#[tokio::test]
async fn the_identity_set_by_an_earlier_layer_is_limited() {
    let app = Router::new()
        .route("/", get(|| async {}))
        .layer(TollgateLayer::new(engine(vec![rule(&["subject"], "1/min")]).await, "p"));
    let ask = |subject: Option<&str>| {
        let identity = Identity { subject: subject.map(Into::into), ..Identity::default() };
        app.clone().oneshot(Request::get("/").extension(identity).body(Body::empty()).unwrap())
    };
    assert_eq!(ask(Some("ada")).await.unwrap().status(), 200);
    assert_eq!(ask(Some("ada")).await.unwrap().status(), 429);
    assert_eq!(ask(Some("bob")).await.unwrap().status(), 200);
    assert_eq!(ask(None).await.unwrap().status(), 401, "an anonymous client does not pass uncounted");
}

#[tokio::test]
async fn a_key_that_no_rule_asks_for_is_the_services_own_business() {
    use tollgate_web::identity::{ApiKeys, X_API_KEY};
    for (field, status) in [("route", 200), ("consumer", 401)] {
        let keys = ApiKeys::new(X_API_KEY, Vec::new()).unwrap();
        let layer = TollgateLayer::new(engine(vec![rule(&[field], "1/min")]).await, "p")
            .credentials(tollgate_web::Credentials::new(Some(keys), None));
        let app = Router::new().route("/", get(|| async {})).layer(layer);
        let request = Request::get("/").header("x-api-key", "its own").body(Body::empty()).unwrap();
        assert_eq!(app.oneshot(request).await.unwrap().status(), status, "{field}");
    }
}

#[tokio::test]
async fn grpc_is_refused_in_its_own_words() {
    let app = Router::new()
        .route("/", get(|| async {}))
        .layer(TollgateLayer::new(engine(vec![rule(&["route"], "1/min")]).await, "p"));
    let ask = || {
        let request =
            Request::get("/").header("content-type", "application/grpc").body(Body::empty()).unwrap();
        app.clone().oneshot(request)
    };
    assert_eq!(said(ask().await.unwrap().headers(), "grpc-status"), "");
    let refused = ask().await.unwrap();
    assert_eq!((refused.status().as_u16(), said(refused.headers(), "grpc-status")), (200, "8".to_owned()));
    assert_eq!(said(refused.headers(), "retry-after"), "60");
}

#[tokio::test]
async fn a_misconfigured_layer_answers_500_and_lets_no_request_through() {
    let engine = engine(vec![rule(&["ip"], "1/min")]).await;
    for layer in [TollgateLayer::new(Arc::clone(&engine), "p"), TollgateLayer::new(engine, "q")] {
        let app = Router::new().route("/", get(|| async {})).layer(layer);
        let answer = app.oneshot(Request::get("/").body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }
}

#[tokio::test]
async fn only_a_trusted_proxy_names_the_client() {
    let proxies = tollgate_web::TrustedProxies::new(
        vec!["10.0.0.0/8".parse().unwrap()],
        http::HeaderName::from_static("x-forwarded-for"),
    );
    let layer =
        by_peer(TollgateLayer::new(engine(vec![rule(&["ip"], "1/min")]).await, "p").trusted_proxies(proxies));
    let app = Router::new().route("/", get(|| async {})).layer(layer);
    let ask = |peer: &str, told: &str| {
        let mut request = asked_by(peer);
        request.headers_mut().insert("x-forwarded-for", told.parse().unwrap());
        app.clone().oneshot(request)
    };
    assert_eq!(ask("10.0.0.1", "192.0.2.1").await.unwrap().status(), 200);
    assert_eq!(ask("10.0.0.1", "192.0.2.2").await.unwrap().status(), 200);
    assert_eq!(ask("10.0.0.1", "192.0.2.1").await.unwrap().status(), 429);
    assert_eq!(ask("192.0.2.9", "192.0.2.3").await.unwrap().status(), 200);
    assert_eq!(ask("192.0.2.9", "192.0.2.4").await.unwrap().status(), 429, "it is the peer that counts");
}

#[tokio::test]
async fn the_example_limits_a_real_connection() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let layer = TollgateLayer::new(engine(vec![rule(&["ip"], "1/min")]).await, "p").peer(|extensions| {
        extensions.get::<axum::extract::ConnectInfo<SocketAddr>>().map(|info| info.0.ip())
    });
    let app = Router::new().route("/", get(|| async { "hello" })).layer(layer);
    let server = axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>());
    tokio::spawn(server.into_future());
    for expected in ["HTTP/1.1 200", "HTTP/1.1 429"] {
        let answer = tokio::task::spawn_blocking(move || {
            use std::io::{Read, Write};
            let mut stream = std::net::TcpStream::connect(address).unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        });
        let answer = answer.await.unwrap();
        assert!(answer.starts_with(expected), "{answer}");
    }
}
