//! Limits on requests in flight: a request keeps its slot until it ends, however it ends, and no longer.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::num::NonZeroUsize;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::support::rules::{alone, rule, together};
use crate::support::upstream::Line;
use crate::support::{self, distant::distant};
use crate::support::{Client, Stage, Upstream, http2, settings, until};
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use tokio::sync::Semaphore;
use tollgate_core::store::{Counter, HoldsOrder};
use tollgate_core::{Guard, OnExceed, Policies, Rule, Span};
use tollgate_gateway::Settings;
use tollgate_gateway::settings::{GuardSettings, Success};
use tollgate_store::ManualClock;
use tollgate_web::Aliases;

/// An upstream whose slow responses continue when the test says so.
struct Slow {
    upstream: Upstream,
    go_on: Arc<Semaphore>,
}

impl Slow {
    async fn start() -> Self {
        let go_on = Arc::new(Semaphore::new(0));
        let leave = Arc::clone(&go_on);
        let upstream = Upstream::start(move |line| serve(line, Arc::clone(&leave))).await;
        Self { upstream, go_on }
    }

    /// Lets one slow response continue.
    fn go_on(&self) {
        self.go_on.add_permits(1);
    }

    /// Waits until this many requests have arrived.
    async fn has_seen(&self, requests: usize) {
        until("they have come", || self.upstream.requests().len() == requests).await;
    }
}

/// Answers by path: at once, slowly after part of the body, slowly and then never, or not at all.
async fn serve(mut line: Line, leave: Arc<Semaphore>) {
    const HALF: &str = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello";
    while let Some(seen) = line.request().await {
        match seen.line().split(' ').nth(1).unwrap() {
            "/slow" => {
                line.send(HALF).await;
                leave.acquire().await.unwrap().forget();
                line.send("world").await;
            }
            "/dies" => {
                line.send(HALF).await;
                leave.acquire().await.unwrap().forget();
                return;
            }
            "/silent" => {
                leave.acquire().await.unwrap().forget();
                return;
            }
            "/chat" => {
                line.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nhi")
                    .await;
                while line.client.more().await > 0 {}
                return;
            }
            "/login" => {
                leave.acquire().await.unwrap().forget();
                line.send("HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno").await;
            }
            "/bare" => line.send("HTTP/1.1 204 No Content\r\n\r\n").await,
            "/chunked" => {
                let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
                line.send(format!("{head}1\r\nx\r\n0\r\nt: 1\r\n\r\n")).await;
            }
            "/broken" => line.send("nonsense\r\n\r\n").await,
            _ => line.send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx").await,
        }
    }
}

/// Every request passes the policy `busy`.
fn busy(upstream: &Upstream) -> Settings {
    let mut settings = settings(upstream.address);
    settings.routes[0].policy = Some("busy".into());
    settings
}

fn at_once(limit: &str) -> Policies {
    alone(vec![rule("busy", &[], &[limit])])
}

async fn stage(slow: &Slow, limit: &str) -> Stage {
    Stage::with_policies(busy(&slow.upstream), at_once(limit)).await
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

/// Starts a request and reads half of its response.
async fn begin(stage: &Stage, path: &str) -> Client {
    let mut client = stage.client().await;
    client.send(get(path)).await;
    assert_eq!(client.head().await.status, 200);
    client.until(b"hello").await;
    client
}

/// How many slots of a rule without a key are taken.
fn held_by(stage: &Stage, rule: &str) -> usize {
    let pinned = stage.engine.pin();
    let counter = Counter { plan: pinned.policies.rule(rule).unwrap().plan_at(rule), key: rule };
    let listed = pin!(stage.engine.counters.holds(&counter, HoldsOrder::List));
    match listed.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(report) => report.unwrap().holds.len(),
        Poll::Pending => unreachable!("the store is in this process"),
    }
}

fn held(stage: &Stage) -> usize {
    held_by(stage, "busy")
}

async fn all_is_free(stage: &Stage) {
    until("its place is free", || held(stage) == 0).await;
    assert_eq!(stage.parts.admissions.leases.meters().lost(), 0);
}

#[tokio::test]
async fn a_third_request_is_refused_while_two_are_under_way() {
    let slow = Slow::start().await;
    for limit in ["2 at once", "2 at once for 30s"] {
        let stage = stage(&slow, limit).await;
        let (mut one, mut two) = (begin(&stage, "/slow").await, begin(&stage, "/slow").await);
        let mut third = stage.client().await;
        for _ in 0..3 {
            let reply = third.ask(get("/")).await;
            assert_eq!((reply.status, reply.header("x-ratelimit-type")), (429, Some("busy")));
        }
        slow.go_on();
        slow.go_on();
        assert_eq!((one.until(b"world").await, two.until(b"world").await), (vec![], vec![]));
        assert_eq!(third.ask(get("/")).await.status, 200, "both have ended");
        all_is_free(&stage).await;
    }
}

#[tokio::test]
async fn a_client_with_one_request_at_a_time_is_never_refused() {
    let slow = Slow::start().await;
    let mut settings = busy(&slow.upstream);
    settings.workers = NonZeroUsize::new(2).unwrap();
    let stage = Stage::with_policies(settings, at_once("1 at once for 30s")).await;
    let mut client = stage.client().await;
    for number in 0..100 {
        assert_eq!(client.ask(get("/")).await.status, 200, "the {number}th over one connection");
    }
    for number in 0..100 {
        assert_eq!(stage.fetch("/").await.status, 200, "the {number}th over its own connection");
    }
    let mut send = http2::connect(stage.address).await;
    for number in 0..100 {
        let request = Request::get("http://a/").body(Empty::<Bytes>::new()).unwrap();
        let response = send.send_request(request).await.unwrap();
        assert_eq!(response.status(), 200, "the {number}th over HTTP/2");
        response.into_body().collect().await.unwrap();
    }
    all_is_free(&stage).await;
    assert_eq!(stage.parts.admissions.leases.meters().live(), 0);
}

#[tokio::test]
async fn a_response_ends_once_a_store_elsewhere_has_freed_its_place() {
    let slow = Slow::start().await;
    let clock = Arc::new(ManualClock::at(support::START));
    let store = Arc::new(distant(&clock));
    let stage = Stage::over(busy(&slow.upstream), at_once("1 at once for 30s"), store, clock).await;
    let leases = Arc::clone(&stage.parts.admissions.leases);
    let running = tokio::spawn(async move { leases.run().await });
    let mut send = http2::connect(stage.address).await;
    for (path, status) in [("/", 200), ("/chunked", 200), ("/bare", 204), ("/broken", 502)].repeat(5) {
        let mut client = stage.client().await;
        assert_eq!((client.ask(get(path)).await.status, held(&stage)), (status, 0), "{path}");
        let request = Request::get(format!("http://a{path}")).body(Empty::<Bytes>::new()).unwrap();
        let response = send.send_request(request).await.unwrap();
        assert_eq!(response.status(), status, "{path} over HTTP/2");
        response.into_body().collect().await.unwrap();
        assert_eq!(held(&stage), 0, "{path} over HTTP/2");
    }
    running.abort();
}

#[tokio::test]
async fn a_client_that_goes_away_gives_its_place_up() {
    let slow = Slow::start().await;
    let stage = stage(&slow, "1 at once").await;
    let mut silent = stage.client().await;
    silent.send(get("/silent")).await;
    slow.has_seen(1).await;
    assert_eq!(held(&stage), 1);
    drop(silent);
    all_is_free(&stage).await;
    let half = begin(&stage, "/slow").await;
    assert_eq!(held(&stage), 1);
    drop(half);
    all_is_free(&stage).await;
    let mut upload = stage.client().await;
    upload.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe").await;
    until("it is under way", || held(&stage) == 1).await;
    drop(upload);
    all_is_free(&stage).await;
    assert_eq!(stage.fetch("/").await.status, 200);
}

#[tokio::test]
async fn a_stream_that_is_reset_gives_its_place_up() {
    let slow = Slow::start().await;
    let stage = stage(&slow, "1 at once").await;
    let mut send = http2::connect(stage.address).await;
    let request = |path: &str| Request::get(format!("http://a{path}")).body(Empty::<Bytes>::new()).unwrap();
    let response = send.send_request(request("/slow")).await.unwrap();
    assert_eq!(held(&stage), 1);
    drop(response);
    all_is_free(&stage).await;
    let mut pending = Box::pin(send.send_request(request("/silent")));
    tokio::select! {
        _ = &mut pending => panic!("nothing is answered"),
        () = slow.has_seen(2) => {}
    }
    assert_eq!(held(&stage), 1);
    drop(pending);
    all_is_free(&stage).await;
}

#[tokio::test]
async fn an_upstream_that_dies_frees_the_place() {
    let slow = Slow::start().await;
    let stage = stage(&slow, "1 at once").await;
    let mut half = begin(&stage, "/dies").await;
    assert_eq!(held(&stage), 1);
    slow.go_on();
    assert!(half.is_closed().await, "the rest never comes");
    all_is_free(&stage).await;
    let mut silent = stage.client().await;
    silent.send(get("/silent")).await;
    slow.has_seen(2).await;
    slow.go_on();
    assert_eq!(silent.reply().await.status, 502);
    assert_eq!(held(&stage), 0);
    let mut lost = busy(&slow.upstream);
    lost.upstreams[0].addresses = vec!["127.0.0.1:1".parse::<std::net::SocketAddr>().unwrap().into()];
    stage.gateway.replace(lost).unwrap();
    assert_eq!(stage.fetch("/").await.status, 502, "it cannot be reached");
    assert_eq!(held(&stage), 0);
}

#[tokio::test]
async fn a_tunnel_holds_its_place_until_it_ends() {
    let slow = Slow::start().await;
    let stage = stage(&slow, "1 at once for 30s").await;
    let ask = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n";
    let mut client = stage.client().await;
    client.send(ask).await;
    assert_eq!(client.head().await.status, 101);
    client.until(b"hi").await;
    for _ in 0..10 {
        stage.clock.advance(Span::from_secs(15));
        stage.parts.admissions.leases.tend().await;
    }
    assert_eq!((held(&stage), stage.fetch("/").await.status), (1, 429), "it still lasts");
    drop(client);
    all_is_free(&stage).await;
    assert_eq!(stage.fetch("/").await.status, 200);
}

#[tokio::test]
async fn a_request_that_waited_for_a_place_then_holds_it() {
    let slow = Slow::start().await;
    let wait = OnExceed::Wait(Span::from_secs(60));
    let patient = Rule { on_exceed: wait, ..rule("busy", &[], &["1 at once for 1s"]) };
    // The clock stands still, so no hold expires however long the test takes.
    let stage = Stage::with_policies(busy(&slow.upstream), alone(vec![patient])).await;
    let mut first = begin(&stage, "/slow").await;
    let mut second = stage.client().await;
    second.send(get("/slow")).await;
    until("it waits", || stage.parts.admissions.pacer.as_ref().unwrap().waiting() == 1).await;
    slow.go_on();
    first.until(b"world").await;
    assert_eq!(second.head().await.status, 200);
    second.until(b"hello").await;
    assert_eq!(stage.parts.admissions.leases.meters().live(), 1);
    slow.go_on();
    second.until(b"world").await;
    until("its place is free", || held(&stage) == 0).await;
    assert_eq!(stage.parts.admissions.leases.meters().live(), 0);
}

#[tokio::test]
async fn a_login_holds_its_place_by_route_and_by_guard_until_it_is_answered() {
    let slow = Slow::start().await;
    let mut settings = busy(&slow.upstream);
    let fields = Aliases::default().with([("user", "form.user")]).unwrap();
    let max_delay = Duration::from_secs(5);
    let success = Success::new("303".parse().unwrap(), vec!["/login".parse().unwrap()]);
    settings.routes[0].guard =
        Some(GuardSettings { fields, max_delay, ..GuardSettings::new("login", success) });
    let logins = together(
        "login",
        vec![rule("failures", &["user"], &["ladder 9 lock 1h"]), rule("logins", &[], &["1 at once"])],
    );
    let policies = at_once("2 at once").beside(&logins.with_guards(vec![Guard::new("login", "login")]));
    let stage = Stage::with_policies(settings, policies).await;
    let login = "POST /login HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 8\r\n\r\nuser=ada";
    for round in 1..4 {
        let mut client = stage.client().await;
        client.send(login).await;
        slow.has_seen(round).await;
        assert_eq!((held(&stage), held_by(&stage, "logins")), (1, 1));
        assert_eq!(stage.ask(login).await.status, 429, "another one is under way");
        slow.go_on();
        assert_eq!(client.reply().await.status, 401);
        assert_eq!((held(&stage), held_by(&stage, "logins")), (0, 0), "though it failed");
    }
}

#[tokio::test]
async fn other_limits_do_not_change_what_a_request_holds() {
    let slow = Slow::start().await;
    let stage = stage(&slow, "1 at once").await;
    let mut client = begin(&stage, "/slow").await;
    let mut without = busy(&slow.upstream);
    without.routes[0].policy = None;
    stage.gateway.replace(without).unwrap();
    stage.engine.reload(Policies::new(true, Vec::new(), Vec::new()));
    assert_eq!(stage.fetch("/").await.status, 200);
    slow.go_on();
    client.until(b"world").await;
    stage.engine.reload(at_once("1 at once"));
    assert_eq!(held(&stage), 0, "it was released though its rule was gone");
}

#[tokio::test]
async fn a_gateway_that_ends_holds_nothing() {
    let slow = Slow::start().await;
    let stage = stage(&slow, "1 at once").await;
    let _client = begin(&stage, "/slow").await;
    assert_eq!(held(&stage), 1);
    stage.gateway.end(Duration::ZERO).await;
    assert_eq!(held(&stage), 0);
}

#[tokio::test]
async fn requests_that_hold_nothing_are_not_looked_after() {
    let slow = Slow::start().await;
    let stage = stage(&slow, "100/hour").await;
    let _client = begin(&stage, "/slow").await;
    assert_eq!(stage.parts.admissions.leases.meters().live(), 0);
}

#[tokio::test]
async fn connections_that_come_one_after_the_other_are_never_refused() {
    let upstream = Upstream::saying("x").await;
    let mut settings = settings(upstream.address);
    settings.connections = Some("busy".into());
    let stage = Stage::with_policies(settings, at_once("50 at once for 30s")).await;
    for number in 0..600 {
        assert_eq!(stage.fetch("/").await.status, 200, "the {number}th");
    }
    all_is_free(&stage).await;
}
