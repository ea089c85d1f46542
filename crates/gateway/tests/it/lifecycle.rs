//! Starting, reconfiguring and stopping a gateway without a failed request.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{self, Client, PATIENCE, Stage, Upstream, route, settings, until};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tollgate_gateway::NeedsRestart;
use tollgate_web::TrustedProxies;

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// An upstream that answers when the test says so.
async fn held() -> (Upstream, Arc<Notify>) {
    let go = Arc::new(Notify::new());
    let told = Arc::clone(&go);
    let upstream = Upstream::start(move |mut line| {
        let told = Arc::clone(&told);
        async move {
            while line.request().await.is_some() {
                told.notified().await;
                line.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nheld").await;
            }
        }
    })
    .await;
    (upstream, go)
}

#[tokio::test]
async fn an_end_waits_for_requests_that_are_under_way() {
    let (upstream, go) = held().await;
    let stage = Stage::new(settings(upstream.address)).await;
    let mut busy = stage.client().await;
    let mut idle = stage.client().await;
    busy.send(GET).await;
    until("the request is under way", || upstream.requests().len() == 1).await;
    let address = stage.address;
    let ending = tokio::spawn(async move { stage.gateway.end(Duration::from_secs(3600)).await });
    assert!(idle.is_closed().await, "an idle connection is closed at once");
    assert!(TcpStream::connect(address).await.is_err(), "no new connection is accepted");
    go.notify_one();
    let reply = busy.reply().await;
    assert_eq!((reply.text(), reply.header("connection")), ("held", Some("close")));
    assert!(busy.is_closed().await);
    tokio::time::timeout(PATIENCE, ending).await.unwrap().unwrap();
}

#[tokio::test]
async fn an_end_is_not_put_off_for_ever() {
    let (upstream, _go) = held().await;
    let stage = Stage::new(settings(upstream.address)).await;
    let mut busy = stage.client().await;
    busy.send(GET).await;
    until("the request is under way", || upstream.requests().len() == 1).await;
    let ending = stage.gateway.end(Duration::from_millis(100));
    tokio::time::timeout(PATIENCE, ending).await.unwrap();
    assert!(busy.is_closed().await);
}

#[tokio::test]
async fn a_gateway_that_is_dropped_lets_go_of_its_address() {
    let upstream = Upstream::saying("x").await;
    let stage = Stage::new(settings(upstream.address)).await;
    assert_eq!(stage.fetch("/").await.status, 200);
    let address = stage.address;
    drop(stage);
    let gone = async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.unwrap();
}

#[tokio::test]
async fn new_settings_hold_for_the_next_request_and_not_for_the_one_under_way() {
    let (old, go) = held().await;
    let new = Upstream::saying("new").await;
    let stage = Stage::new(settings(old.address)).await;
    let mut busy = stage.client().await;
    busy.send(GET).await;
    until("the request is under way", || old.requests().len() == 1).await;
    let mut changed = settings(new.address);
    changed.routes.push(route("more", "/more"));
    assert_eq!(stage.gateway.replace(changed).unwrap(), []);
    assert_eq!(stage.fetch("/").await.text(), "new");
    assert_eq!(stage.fetch("/more").await.text(), "new");
    go.notify_one();
    assert_eq!(busy.reply().await.text(), "held");
    assert_eq!(busy.ask(GET).await.text(), "new", "the same connection");
}

#[tokio::test]
async fn trusted_proxies_change_for_open_connections_too() {
    let upstream = Upstream::saying("x").await;
    let mut trusting = settings(upstream.address);
    trusting.trusted_proxies =
        TrustedProxies::new(vec!["127.0.0.1/32".parse().unwrap()], tollgate_web::address::X_FORWARDED_FOR);
    let stage = Stage::new(trusting.clone()).await;
    let mut client = stage.client().await;
    let mut send = support::http2::connect(stage.address).await;
    for (settings, told) in [
        (trusting.clone(), "192.0.2.7, 127.0.0.1"),
        (settings(upstream.address), "127.0.0.1"),
        (trusting, "192.0.2.7, 127.0.0.1"),
    ] {
        stage.gateway.replace(settings).unwrap();
        client.ask("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.7\r\n\r\n").await;
        let request = http::Request::get("http://a/").header("x-forwarded-for", "192.0.2.7");
        let request = request.body(http_body_util::Empty::<hyper::body::Bytes>::new()).unwrap();
        send.ready().await.unwrap();
        assert_eq!(send.send_request(request).await.unwrap().status(), 200);
        for seen in upstream.requests().iter().rev().take(2) {
            assert_eq!(seen.header("x-forwarded-for"), Some(told));
        }
    }
}

#[tokio::test]
async fn connections_to_upstreams_that_stay_the_same_stay_open() {
    let upstream = Upstream::saying("x").await;
    let stage = Stage::new(settings(upstream.address)).await;
    assert_eq!(stage.fetch("/").await.status, 200);
    let mut changed = settings(upstream.address);
    changed.routes.push(route("more", "/more"));
    stage.gateway.replace(changed).unwrap();
    assert_eq!(stage.fetch("/more").await.status, 200);
    assert_eq!(upstream.connections(), 1);
}

#[tokio::test]
async fn settings_that_need_a_restart_are_reported_and_left_unchanged() {
    let upstream = Upstream::saying("x").await;
    let stage = Stage::new(settings(upstream.address)).await;
    let mut changed = settings(upstream.address);
    changed.workers = 2.try_into().unwrap();
    changed.listeners.push(support::listener());
    let waits = stage.gateway.replace(changed).unwrap();
    assert_eq!(waits, [NeedsRestart::Listeners, NeedsRestart::Workers]);
    assert_eq!(stage.fetch("/").await.status, 200);
    assert_eq!(stage.gateway.replace(settings(upstream.address)).unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_is_lost_while_settings_change_again_and_again() {
    let (one, two) = (Upstream::saying("x").await, Upstream::saying("x").await);
    let mut first = settings(one.address);
    first.workers = 2.try_into().unwrap();
    let stage = Arc::new(Stage::new(first.clone()).await);
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let address = stage.address;
            tokio::spawn(async move {
                let mut client = Client::connect(address).await;
                for _ in 0..200 {
                    let reply = client.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi").await;
                    assert_eq!((reply.status, reply.text()), (200, "x"));
                }
            })
        })
        .collect();
    for round in 0..50 {
        let mut changed = first.clone();
        changed.upstreams[0].addresses = vec![if round % 2 == 0 { two.address } else { one.address }.into()];
        stage.gateway.replace(changed).unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(one.requests().len() + two.requests().len(), 8 * 200);
    let name = "tollgate_gateway_requests_total{route=\"all\",status=\"200\"}";
    until("what several workers counted is added up", || stage.metric(name) == 1600.0).await;
}
