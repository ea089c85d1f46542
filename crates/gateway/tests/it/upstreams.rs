//! Upstreams that are slow, unreachable, or recover.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::num::NonZeroU32;
use std::time::Duration;

use crate::support::{Stage, Upstream, settings};
use tokio::net::TcpListener;
use tollgate_gateway::settings::{Address, Health};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// Answers one request on each connection, and then closes it.
async fn forgetful() -> Upstream {
    Upstream::start(|mut line| async move {
        line.request().await;
        line.send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx").await;
    })
    .await
}

#[tokio::test]
async fn a_connection_that_the_upstream_closed_is_not_used_again() {
    let upstream = forgetful().await;
    let stage = Stage::new(settings(upstream.address)).await;
    let mut client = stage.client().await;
    for _ in 0..5 {
        assert_eq!(client.ask(GET).await.status, 200);
        // Time for the end of the connection to arrive.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(upstream.connections(), 5);
    assert_eq!(upstream.requests().len(), 5);
}

/// Reads a second request on each connection, and closes it without a response.
async fn rude() -> Upstream {
    Upstream::start(|mut line| async move {
        line.request().await;
        line.send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx").await;
        line.head().await;
    })
    .await
}

#[tokio::test]
async fn a_request_that_changes_nothing_is_sent_again_over_a_new_connection() {
    let upstream = rude().await;
    let stage = Stage::new(settings(upstream.address)).await;
    let mut client = stage.client().await;
    for request in [
        GET,
        "HEAD /a HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n",
        "OPTIONS /a HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
    ] {
        assert_eq!(client.ask(GET).await.status, 200);
        client.send(request).await;
        assert_eq!(client.head().await.status, 200, "{request}");
        client.read.clear();
    }
}

#[tokio::test]
async fn a_request_that_the_upstream_may_have_processed_is_sent_once() {
    let upstream = rude().await;
    let stage = Stage::new(settings(upstream.address)).await;
    for request in [
        "POST /a HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx",
        // The body never arrives.
        "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n",
        "PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
        "PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx",
        "DELETE /a HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx",
    ] {
        let mut client = stage.client().await;
        assert_eq!(client.ask(GET).await.status, 200);
        let before = upstream.connections();
        assert_eq!(client.ask(request).await.status, 502, "{request}");
        assert_eq!(upstream.connections(), before, "{request}");
    }
}

#[tokio::test]
async fn without_retry_nothing_is_sent_twice() {
    let upstream = rude().await;
    let mut once = settings(upstream.address);
    once.upstreams[0].retry = false;
    let stage = Stage::new(once).await;
    let mut client = stage.client().await;
    assert_eq!(client.ask(GET).await.status, 200);
    assert_eq!(client.ask(GET).await.status, 502);
    assert_eq!(upstream.connections(), 1);
}

#[tokio::test]
async fn a_new_connection_that_is_closed_at_once_is_the_upstreams_fault() {
    let upstream = Upstream::start(|line| async move { drop(line) }).await;
    let stage = Stage::new(settings(upstream.address)).await;
    let reply = stage.fetch("/").await;
    assert_eq!((reply.status, reply.header("content-type")), (502, Some("application/problem+json")));
    assert!(reply.text().contains("the service closed the connection"), "{}", reply.text());
    assert_eq!(upstream.connections(), 1);
    let name = "tollgate_gateway_upstream_errors_total{upstream=\"app\",kind=\"closed\"}";
    assert_eq!(stage.metric(name), 1.0);
}

#[tokio::test]
async fn an_upstream_that_does_not_answer_in_time_is_a_504() {
    let upstream = Upstream::start(|mut line| async move {
        line.request().await;
        std::future::pending::<()>().await;
    })
    .await;
    let mut impatient = settings(upstream.address);
    impatient.upstreams[0].response_timeout = Duration::from_millis(100);
    let stage = Stage::new(impatient).await;
    let reply = stage.fetch("/").await;
    assert_eq!(reply.status, 504);
    let name = "tollgate_gateway_upstream_errors_total{upstream=\"app\",kind=\"timeout\"}";
    assert_eq!(stage.metric(name), 1.0);
}

#[tokio::test]
async fn a_route_may_be_less_patient_than_its_upstream() {
    let upstream = Upstream::start(|mut line| async move {
        line.request().await;
        std::future::pending::<()>().await;
    })
    .await;
    let mut impatient = settings(upstream.address);
    impatient.routes[0].response_timeout = Some(Duration::from_millis(100));
    assert_eq!(Stage::new(impatient).await.fetch("/").await.status, 504);
}

#[tokio::test]
async fn an_upstream_that_stalls_or_dies_in_a_response_cuts_the_clients_connection() {
    for (stalls, kind) in [(true, "stalled"), (false, "closed")] {
        for head in ["Content-Length: 10", "Transfer-Encoding: chunked"] {
            let upstream = Upstream::start(move |mut line| async move {
                line.request().await;
                line.send(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n5\r\nabcde")).await;
                if stalls {
                    std::future::pending::<()>().await;
                }
            })
            .await;
            let mut impatient = settings(upstream.address);
            impatient.upstreams[0].stall_timeout = Duration::from_millis(100);
            let stage = Stage::new(impatient).await;
            let mut client = stage.client().await;
            client.send(GET).await;
            assert_eq!(client.head().await.status, 200);
            let rest = client.rest().await;
            assert!(!rest.ends_with(b"0\r\n\r\n"), "the client can see that it is incomplete: {rest:?}");
            assert!(rest.len() < 10 + 6, "{rest:?}");
            let name = format!("tollgate_gateway_upstream_errors_total{{upstream=\"app\",kind=\"{kind}\"}}");
            assert_eq!(stage.metric(&name), 1.0, "{head}");
        }
    }
}

/// An address without a listener.
async fn without_listener() -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    Address::from(listener.local_addr().unwrap())
}

#[tokio::test]
async fn an_upstream_that_is_not_there_is_a_502() {
    let upstream = Upstream::saying("x").await;
    let mut absent = settings(upstream.address);
    absent.upstreams[0].addresses = vec![without_listener().await];
    let stage = Stage::new(absent).await;
    let reply = stage.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc").await;
    assert_eq!(reply.status, 502);
    let name = "tollgate_gateway_upstream_errors_total{upstream=\"app\",kind=\"connect\"}";
    assert_eq!(stage.metric(name), 1.0);
    let mut unknown = settings(upstream.address);
    unknown.upstreams[0].addresses = vec!["no-such-host.invalid:80".parse().unwrap()];
    assert_eq!(Stage::new(unknown).await.fetch("/").await.status, 502);
}

#[tokio::test]
async fn requests_go_round_among_the_addresses() {
    let (one, two) = (Upstream::saying("1").await, Upstream::saying("2").await);
    let mut both = settings(one.address);
    both.upstreams[0].addresses.push(Address::from(two.address));
    let stage = Stage::new(both).await;
    let mut client = stage.client().await;
    let mut answers = String::new();
    for _ in 0..6 {
        answers += client.ask(GET).await.text();
    }
    assert_eq!(answers, "121212");
}

#[tokio::test]
async fn an_address_that_fails_is_passed_over_at_once_and_left_out_after_a_few_times() {
    let good = Upstream::saying("x").await;
    let mut both = settings(good.address);
    both.upstreams[0].addresses.insert(0, without_listener().await);
    both.upstreams[0].health =
        Health { fails: NonZeroU32::new(2).unwrap(), out_for: Duration::from_secs(3600) };
    let stage = Stage::new(both).await;
    let mut client = stage.client().await;
    for _ in 0..12 {
        let reply = client.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx").await;
        assert_eq!(reply.status, 200, "nothing was sent to the first, so it can go to the second");
    }
    let name = "tollgate_gateway_upstream_errors_total{upstream=\"app\",kind=\"connect\"}";
    assert_eq!(stage.metric(name), 2.0, "after two failures it is not tried any more");
}

#[tokio::test]
async fn without_retry_the_failure_is_told() {
    let good = Upstream::saying("x").await;
    let mut both = settings(good.address);
    both.upstreams[0].addresses.insert(0, without_listener().await);
    both.upstreams[0].retry = false;
    let stage = Stage::new(both).await;
    let mut client = stage.client().await;
    assert_eq!(client.ask(GET).await.status, 502);
    assert_eq!(client.ask(GET).await.status, 200);
}

#[tokio::test]
async fn an_address_that_was_left_out_is_tried_again_and_comes_back() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let good = Upstream::saying("good").await;
    let mut both = settings(good.address);
    both.upstreams[0].addresses.insert(0, Address::from(address));
    both.upstreams[0].health =
        Health { fails: NonZeroU32::new(1).unwrap(), out_for: Duration::from_millis(200) };
    let stage = Stage::new(both).await;
    assert_eq!(stage.fetch("/").await.text(), "good");
    let back = Upstream::over(TcpListener::bind(address).await.unwrap(), |mut line| async move {
        while line.request().await.is_some() {
            line.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nback").await;
        }
    });
    let mut client = stage.client().await;
    let mut answers = Vec::new();
    while answers.len() < 1000 && !answers.ends_with(&["back".to_owned(), "good".into(), "back".into()]) {
        answers.push(client.ask(GET).await.text().to_owned());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(answers.len() < 1000, "it never came back");
    assert!(!back.requests().is_empty());
}

#[tokio::test]
async fn if_all_addresses_are_out_one_is_asked_all_the_same() {
    let upstream = Upstream::saying("x").await;
    let mut absent = settings(upstream.address);
    absent.upstreams[0].addresses = vec![without_listener().await];
    absent.upstreams[0].health =
        Health { fails: NonZeroU32::new(1).unwrap(), out_for: Duration::from_secs(3600) };
    let stage = Stage::new(absent).await;
    for _ in 0..3 {
        assert_eq!(stage.fetch("/").await.status, 502);
    }
    let name = "tollgate_gateway_upstream_errors_total{upstream=\"app\",kind=\"connect\"}";
    assert_eq!(stage.metric(name), 3.0);
}

#[tokio::test]
async fn idle_connections_are_closed_after_a_while_and_bounded_in_number() {
    let upstream = Upstream::saying("x").await;
    let mut few = settings(upstream.address);
    few.upstreams[0].idle_timeout = Duration::from_millis(100);
    let stage = Stage::new(few).await;
    assert_eq!(stage.fetch("/").await.status, 200);
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(stage.fetch("/").await.status, 200);
    assert_eq!(upstream.connections(), 2, "the first was closed");

    let upstream = Upstream::saying("x").await;
    let mut none = settings(upstream.address);
    none.upstreams[0].most_idle = 0;
    let stage = Stage::new(none).await;
    for _ in 0..3 {
        assert_eq!(stage.fetch("/").await.status, 200);
    }
    assert_eq!(upstream.connections(), 3);
}
