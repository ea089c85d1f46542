//! Each fault of the proxy has its effect, and ends when it is healed.
#![expect(clippy::unwrap_used, reason = "a test fails where something is missing")]

use std::time::{Duration, Instant};

use tollgate_testbed::{PATIENCE, Proxy, Server, Wire, wait_until};

const SHORT: Duration = Duration::from_millis(200);

fn rig() -> (Server, Proxy) {
    let server = Server::redis().start();
    let proxy = Proxy::to(server.port());
    (server, proxy)
}

fn wire(proxy: &Proxy, patience: Duration) -> Wire {
    Wire::tcp(proxy.port(), patience).unwrap()
}

#[expect(clippy::disallowed_methods, reason = "the delay is one of real time")]
fn now() -> Instant {
    Instant::now()
}

#[test]
fn a_proxy_carries_both_ways_and_counts() {
    let (server, proxy) = rig();
    let mut first = wire(&proxy, PATIENCE);
    let value = "x".repeat(1_000_000);
    assert_eq!(first.command(&["SET", "a", &value]).unwrap().text(), "OK");
    assert_eq!(server.command(&["GET", "a"]).text(), value);
    assert_eq!((proxy.connections(), proxy.open_connections()), (1, 1));
    assert!(proxy.bytes_sent() > 1_000_000);
    assert_eq!(proxy.bytes_received(), "+OK\r\n".len() as u64);
    let mut second = wire(&proxy, PATIENCE);
    assert_eq!(second.command(&["GET", "a"]).unwrap().text(), value);
    assert_eq!(proxy.connections(), 2);
    drop((first, second));
    wait_until("the connections are closed", || proxy.open_connections() == 0);
}

#[test]
fn a_delay_is_there_each_way_and_pipelined_commands_share_it() {
    let (_server, proxy) = rig();
    let mut wire = wire(&proxy, PATIENCE);
    proxy.delay(Duration::from_millis(100));
    let start = now();
    for _ in 0..10 {
        wire.send(&["PING"]).unwrap();
    }
    for _ in 0..10 {
        assert_eq!(wire.receive().unwrap().text(), "PONG");
    }
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(200), "{took:?}");
    assert!(took < Duration::from_millis(1900), "each waited for the one before: {took:?}");
}

#[test]
fn a_cut_ends_connections_and_refuses_new_ones_until_healed() {
    let (_server, proxy) = rig();
    let mut before = wire(&proxy, PATIENCE);
    assert_eq!(before.command(&["PING"]).unwrap().text(), "PONG");
    proxy.cut();
    assert!(before.command(&["PING"]).is_err());
    assert!(Wire::tcp(proxy.port(), PATIENCE).is_err());
    proxy.heal();
    assert_eq!(wire(&proxy, PATIENCE).command(&["PING"]).unwrap().text(), "PONG");
    assert!(before.command(&["PING"]).is_err());
}

#[test]
fn swallowed_replies_are_of_commands_that_ran() {
    let (server, proxy) = rig();
    let mut before = wire(&proxy, SHORT);
    proxy.swallow_replies();
    assert!(before.command(&["INCR", "a"]).is_err());
    assert_eq!(server.command(&["GET", "a"]).text(), "1");
    proxy.heal();
    assert_eq!(before.receive().unwrap().number(), 1);
}

#[test]
fn a_blackhole_takes_connections_and_lets_nothing_through() {
    let (server, proxy) = rig();
    proxy.blackhole();
    let mut wire = wire(&proxy, SHORT);
    assert!(wire.command(&["INCR", "a"]).is_err());
    assert!(server.command(&["EXISTS", "a"]).number() == 0);
    assert_eq!((proxy.bytes_sent(), proxy.bytes_received()), (0, 0));
    proxy.heal();
    wait_until("the command arrives", || server.command(&["EXISTS", "a"]).number() == 1);
    assert_eq!(wire.receive().unwrap().number(), 1);
}

#[test]
fn an_answer_is_cut_in_its_middle_once() {
    let (server, proxy) = rig();
    let _ = server.command(&["SET", "a", "0123456789"]).ok();
    proxy.cut_after(7);
    assert!(wire(&proxy, PATIENCE).command(&["GET", "a"]).is_err());
    assert_eq!(proxy.bytes_received(), 7);
    assert_eq!(wire(&proxy, PATIENCE).command(&["GET", "a"]).unwrap().text(), "0123456789");
}

#[test]
fn a_dropped_proxy_leaves_its_port() {
    let (_server, proxy) = rig();
    let port = proxy.port();
    let mut before = wire(&proxy, PATIENCE);
    proxy.blackhole();
    drop(proxy);
    assert!(before.command(&["PING"]).is_err());
    assert!(Wire::tcp(port, PATIENCE).is_err());
}
