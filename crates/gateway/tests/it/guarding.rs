//! Routes with a guard: delayed logins, logins whose client goes away, and what upstreams and clients see of
//! a guard over HTTP/1 and HTTP/2.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use crate::support::rules::{rule, together};
use crate::support::upstream::Line;
use crate::support::{Stage, Upstream, http2, route, settings, until};
use http::{Request, StatusCode};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http2::SendRequest;
use tollgate_core::{Attempt, Guard, Policies, Span};
use tollgate_engine::Terms;
use tollgate_engine::admit::Login;
use tollgate_engine::guard::Ending;
use tollgate_gateway::Settings;
use tollgate_gateway::settings::{GuardSettings, Success};
use tollgate_web::Aliases;

const GUESS: &str = "user=ada&password=guess";

/// One rule by account with this ladder.
fn ladder(text: &str) -> Policies {
    together("login", vec![rule("login", &["user"], &[text])]).with_guards(vec![Guard::new("login", "login")])
}

/// A guarded route and one without a guard.
fn guarded(upstream: &Upstream, max_delay: Duration) -> Settings {
    let mut settings = settings(upstream.address);
    let fields = Aliases::default().with([("user", "form.user")]).unwrap();
    let mut login = route("login", "/login");
    let success = Success::new("303".parse().unwrap(), vec!["/login".parse().unwrap()]);
    login.guard = Some(GuardSettings { fields, max_delay, ..GuardSettings::new("login", success) });
    settings.routes.push(login);
    settings
}

/// An upstream that rejects every password.
async fn rejecting_every_password() -> Upstream {
    Upstream::answering("HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno").await
}

fn guess() -> String {
    login(GUESS)
}

fn login(body: &str) -> String {
    format!(
        "POST /login HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn guess_over_http2() -> Request<Full<Bytes>> {
    let request = Request::post("http://a/login").header("content-type", "application/x-www-form-urlencoded");
    request.body(Full::from(GUESS)).unwrap()
}

/// How many failures of the account are counted; the ladder allows `top`.
async fn failures(stage: &Stage, top: u64) -> u64 {
    let pinned = stage.engine.pin();
    let plan = &pinned.policies.rule("login").unwrap().plan;
    let reading = stage.engine.counters.look(plan, "ada").await.unwrap().readings[0];
    assert_eq!(reading.capacity, top);
    reading.capacity - reading.remaining
}

fn delayed(stage: &Stage) -> f64 {
    stage.metric("tollgate_guard_delayed")
}

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn a_client_that_goes_away_while_it_is_held_back_leaves_nothing_behind() {
    let upstream = rejecting_every_password().await;
    let stage = Stage::with_policies(guarded(&upstream, HOUR), ladder("ladder 1 +30m")).await;
    assert_eq!(stage.ask(guess()).await.status, 401);
    let mut waiting = stage.client().await;
    waiting.send(guess()).await;
    let mut other: SendRequest<Full<Bytes>> = http2::connect(stage.address).await;
    let asked = tokio::spawn(other.send_request(guess_over_http2()));
    until("both are held back", || delayed(&stage) == 2.0).await;
    drop(waiting);
    until("one is gone", || delayed(&stage) == 1.0).await;
    asked.abort();
    until("both are gone", || delayed(&stage) == 0.0).await;
    let gone = "tollgate_gateway_requests_total{route=\"login\",status=\"499\"}";
    until("they are counted", || stage.metric(gone) == 2.0).await;
    assert_eq!((upstream.requests().len(), failures(&stage, 1).await), (1, 1));
}

#[tokio::test]
async fn a_worker_that_holds_many_back_serves_others_at_once() {
    let upstream = rejecting_every_password().await;
    let stage = Stage::with_policies(guarded(&upstream, HOUR), ladder("ladder 1 +30m")).await;
    assert_eq!(stage.ask(guess()).await.status, 401);
    let mut waiting = Vec::new();
    for _ in 0..100 {
        let mut client = stage.client().await;
        client.send(guess()).await;
        waiting.push(client);
    }
    until("all are held back", || delayed(&stage) == 100.0).await;
    assert_eq!(stage.fetch("/").await.status, 401);
    assert_eq!(stage.ask(login("user=bob&password=guess")).await.status, 401, "and another account");
    assert_eq!(delayed(&stage), 100.0, "other requests do not wait for them");
    assert_eq!(upstream.requests().len(), 3);
}

#[tokio::test]
async fn one_connection_has_only_so_much_of_logins_under_way() {
    let upstream = rejecting_every_password().await;
    let stage = Stage::with_policies(guarded(&upstream, HOUR), ladder("ladder 1 +30m")).await;
    let mut send: SendRequest<Full<Bytes>> = http2::connect(stage.address).await;
    let large = |user: &str| {
        let mut request = guess_over_http2();
        *request.body_mut() = Full::from(format!("user={user}&note={}", "x".repeat(60_000)));
        request
    };
    assert_eq!(send.send_request(large("ada")).await.unwrap().status(), StatusCode::UNAUTHORIZED);
    let mut waiting = Vec::new();
    for number in 1..=4_u32 {
        waiting.push(tokio::spawn(send.send_request(large("ada"))));
        until("it is held back", || delayed(&stage) == f64::from(number)).await;
    }
    let full = send.send_request(large("bob")).await.unwrap();
    assert_eq!(full.status(), StatusCode::SERVICE_UNAVAILABLE);
    let mut other: SendRequest<Full<Bytes>> = http2::connect(stage.address).await;
    let elsewhere = other.send_request(large("bob")).await.unwrap();
    assert_eq!(elsewhere.status(), StatusCode::UNAUTHORIZED, "others have their own");
    waiting.pop().unwrap().abort();
    until("one is gone", || delayed(&stage) == 3.0).await;
    let room = send.send_request(large("carol")).await.unwrap();
    assert_eq!(room.status(), StatusCode::UNAUTHORIZED, "there is room again");
}

#[tokio::test]
async fn a_client_that_hangs_up_before_the_answer_has_failed() {
    // This upstream never answers a login.
    let upstream =
        Upstream::start(|mut line: Line| async move { while line.request().await.is_some() {} }).await;
    let stage = Stage::with_policies(guarded(&upstream, Duration::ZERO), ladder("ladder 2 lock 15m")).await;
    for number in 1..=2 {
        let mut client = stage.client().await;
        client.send(guess()).await;
        until("it arrived", || upstream.requests().len() == number).await;
        drop(client);
        let gone = "tollgate_gateway_requests_total{route=\"login\",status=\"499\"}";
        until("its end is seen", || stage.metric(gone) == number as f64).await;
    }
    assert_eq!(failures(&stage, 2).await, 2);
    let refused = stage.ask(guess()).await;
    assert_eq!((refused.status, upstream.requests().len()), (429, 2));
}

#[tokio::test]
async fn an_upstream_that_dies_or_is_late_may_have_checked_the_password() {
    let dying = Upstream::start(|mut line: Line| async move {
        line.request().await;
    })
    .await;
    let silent =
        Upstream::start(|mut line: Line| async move { while line.request().await.is_some() {} }).await;
    // A service may answer a wrong password with a head that is too long to forward.
    let endless = format!("HTTP/1.1 401 No\r\nX-Echo: {}\r\nContent-Length: 0\r\n\r\n", "x".repeat(70_000));
    let verbose = Upstream::answering(endless).await;
    for (upstream, status) in [(&dying, 502), (&silent, 504), (&verbose, 502)] {
        let mut settings = guarded(upstream, Duration::ZERO);
        settings.upstreams[0].response_timeout = Duration::from_millis(200);
        let stage = Stage::with_policies(settings.clone(), ladder("ladder 2 lock 15m")).await;
        for _ in 0..2 {
            assert_eq!(stage.ask(guess()).await.status, status);
        }
        assert_eq!((failures(&stage, 2).await, stage.ask(guess()).await.status), (2, 429));
        // Unless the settings make such a response neutral.
        settings.routes.last_mut().unwrap().guard.as_mut().unwrap().neutral = Some("5xx".parse().unwrap());
        let stage = Stage::with_policies(settings, ladder("ladder 2 lock 15m")).await;
        for _ in 0..3 {
            assert_eq!(stage.ask(guess()).await.status, status);
        }
        assert_eq!(failures(&stage, 2).await, 0);
    }
}

#[tokio::test]
async fn a_body_that_breaks_off_or_never_comes_begins_no_login() {
    let upstream = rejecting_every_password().await;
    let mut impatient = guarded(&upstream, Duration::ZERO);
    impatient.bounds.stall_timeout = Duration::from_millis(200);
    let stage = Stage::with_policies(impatient, ladder("ladder 1 lock 15m")).await;
    let guess = guess();
    let part = &guess[..guess.len() - 5];
    let mut client = stage.client().await;
    client.send(part).await;
    assert_eq!(client.reply().await.status, 408);
    assert_eq!(failures(&stage, 1).await, 0);
    let stage = Stage::with_policies(guarded(&upstream, Duration::ZERO), ladder("ladder 1 lock 15m")).await;
    let mut client = stage.client().await;
    client.send(part).await;
    drop(client);
    let gone = "tollgate_gateway_requests_total{route=\"login\",status=\"499\"}";
    until("its end is seen", || stage.metric(gone) == 1.0).await;
    let chunked = "POST /login HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-www-form-urlencoded\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
    assert_eq!(stage.ask(chunked).await.status, 400);
    assert_eq!((upstream.requests().len(), failures(&stage, 1).await), (0, 0));
}

#[tokio::test]
async fn a_chunked_body_goes_on_whole_with_its_trailers() {
    let upstream = rejecting_every_password().await;
    let stage = Stage::with_policies(guarded(&upstream, Duration::ZERO), ladder("ladder 9 lock 15m")).await;
    let chunked = "POST /login HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-www-form-urlencoded\r\nTransfer-Encoding: chunked\r\n\r\n8\r\nuser=ada\r\nf\r\n&password=guess\r\n0\r\nX-Sum: 7\r\n\r\n";
    assert_eq!(stage.ask(chunked).await.status, 401);
    let seen = upstream.request();
    assert_eq!((seen.body, seen.trailers), (GUESS.as_bytes().to_vec(), "x-sum: 7\n".to_owned()));
    assert_eq!(failures(&stage, 9).await, 1);
}

#[tokio::test]
async fn the_hint_reaches_clients_and_upstreams_that_speak_http2() {
    let upstream = rejecting_every_password().await;
    let policies = ladder("ladder 1 captcha then 3 lock 15m captcha");
    let stage = Stage::with_policies(guarded(&upstream, Duration::ZERO), policies).await;
    let mut send: SendRequest<Full<Bytes>> = http2::connect(stage.address).await;
    let mut statuses = Vec::new();
    for _ in 0..4 {
        let mut request = guess_over_http2();
        request.headers_mut().insert("x-captcha-required", "false".parse().unwrap());
        let reply = send.send_request(request).await.unwrap();
        assert_eq!(reply.headers()["x-captcha-required"], "true");
        statuses.push(reply.status());
    }
    let [no, too_many] = [StatusCode::UNAUTHORIZED, StatusCode::TOO_MANY_REQUESTS];
    assert_eq!(statuses, [no, no, no, too_many]);
    let seen = upstream.requests();
    let hints: Vec<_> = seen.iter().map(|seen| seen.header("x-captcha-required")).collect();
    assert_eq!(hints, [None, Some("true"), Some("true")]);
}

#[tokio::test]
async fn a_lock_that_another_door_made_holds_here() {
    let upstream = rejecting_every_password().await;
    let stage = Stage::with_policies(guarded(&upstream, Duration::ZERO), ladder("ladder 2 lock 15m")).await;
    let pinned = stage.parts.admissions.pin();
    let guard = pinned.policies.guard("login").unwrap();
    for _ in 0..2 {
        let attempt = Attempt { policy: &guard.policy, fields: &[("user", "ada")], cost: 1, id: None };
        let terms = Terms { login: Some(Login { guard, max_delay: Span::ZERO }), ..Terms::default() };
        let mut begun = pinned.admit(&attempt, terms, |_, _| ()).await.unwrap();
        begun.taken.end_login(Ending::Failure).await.unwrap();
    }
    assert_eq!((stage.ask(guess()).await.status, upstream.requests().len()), (429, 0));
    stage.clock.advance(Span::from_secs(900));
    assert_eq!(stage.ask(guess()).await.status, 401);
}

#[tokio::test]
async fn upstream_headers_about_limits_and_captchas_stay_unless_the_gateway_sets_them() {
    let upstream = Upstream::answering(
        "HTTP/1.1 401 No\r\nX-RateLimit-Limit: 7\r\nX-Captcha-Required: maybe\r\nContent-Length: 0\r\n\r\n",
    )
    .await;
    let policies = ladder("ladder 2 captcha then 9 lock 15m");
    let stage = Stage::with_policies(guarded(&upstream, Duration::ZERO), policies).await;
    for hint in ["maybe", "true"] {
        let reply = stage.ask(guess()).await;
        assert_eq!(reply.header("x-captcha-required"), Some(hint));
        assert_eq!(reply.header("x-ratelimit-limit"), Some("7"), "the route has no limits of its own");
    }
}

#[tokio::test]
async fn an_unknown_guard_lets_no_request_through() {
    let upstream = rejecting_every_password().await;
    let policies = together("login", vec![rule("login", &["user"], &["ladder 1 lock 15m"])]);
    let stage = Stage::with_policies(guarded(&upstream, Duration::ZERO), policies).await;
    let reply = stage.ask(guess()).await;
    assert_eq!((reply.status, upstream.requests().len()), (500, 0));
    assert!(reply.text().contains("there is no guard `login`"), "{}", reply.text());
}
