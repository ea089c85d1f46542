//! Relays on two nodes that share a Redis or a PostgreSQL: one count when mail is accepted, one when it is sent, and no
//! restart resets them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use crate::mail::{Client, home};
use crate::program::{Home, Server, pause, wait_until};
use tollgate_testbed::{Postgres, Server as Redis, Sink};

/// Two nodes with limits on senders and on recipient domains, and on the account that both use.
fn nodes(store: &str, sink: &Sink) -> [Home; 2] {
    let file = format!(
        "store: {{ {store}, command_timeout: 10s, connect_timeout: 10s }}
rules:
  sender: {{ by: sender, limits: 10/hour sliding }}
  recipient_domain: {{ by: recipient_domain, limits: 5/hour sliding, on_exceed: defer }}
  account: {{ by: [tenant, account], limits: 7/hour sliding, on_exceed: defer }}
policies: {{ mail.accept: [sender], mail.deliver: [recipient_domain, account] }}"
    );
    let relay = "  accept: mail.accept\n  deliver: mail.deliver";
    [home(sink.port(), &file, relay), home(sink.port(), &file, relay)]
}

/// Sends as many messages through each node, in turn. Returns how many were accepted.
fn send(nodes: [&Server; 2], each: usize, sender: &str, recipient: &str) -> usize {
    let mut clients = nodes.map(|node| Client::greeted(node.relays[0]).unwrap());
    let mut accepted = 0;
    for _ in 0..each {
        for client in &mut clients {
            let reply = client.send_as(sender, "hi", &[recipient]).unwrap();
            let refused = format!("451 4.7.1 Rate limit exceeded: sender {sender}, 10/hour sliding;");
            assert!(reply.starts_with("250 ") || reply.starts_with(&refused), "{reply}");
            accepted += usize::from(reply.starts_with("250 "));
        }
    }
    accepted
}

/// Longer than a lane needs to try again.
fn nothing_more_arrives(sink: &Sink, count: usize) {
    pause(Duration::from_secs(1));
    assert_eq!(sink.count(), count);
}

fn two_nodes_share_every_count(store: &str, restart: impl FnOnce()) {
    let sink = Sink::start();
    let homes = nodes(store, &sink);
    let (one, two) = (homes[0].start(), homes[1].start());
    assert_eq!(send([&one, &two], 8, "app@here.test", "someone@there.test"), 10);
    wait_until("the recipient domain is used up", || sink.count() == 5);
    nothing_more_arrives(&sink, 5);
    let log = one.stop() + &two.stop();
    assert!(!log.contains("possible duplicate"), "{log}");
    restart();

    let (one, two) = (homes[0].start(), homes[1].start());
    for node in [&one, &two] {
        assert_eq!(node.remaining("sender", "app@here.test"), 0, "no count is reset");
        assert_eq!(node.remaining("recipient_domain", "there.test"), 0, "no count is reset");
        assert_eq!(node.remaining("account", "default,main"), 2, "no count is reset");
    }
    assert_eq!(send([&one, &two], 1, "app@here.test", "someone@there.test"), 0);
    assert_eq!(send([&one, &two], 2, "other@here.test", "someone@elsewhere.test"), 4);
    wait_until("the account is used up", || sink.count() == 7);
    nothing_more_arrives(&sink, 7);
    one.stop();
    two.stop();
}

#[test]
fn two_nodes_share_every_count_on_postgresql() {
    let mut postgres = Postgres::start();
    let store = format!("postgres: '{}'", postgres.url());
    two_nodes_share_every_count(&store, || {
        postgres.stop();
        postgres.restart();
    });
}

#[test]
fn two_nodes_share_every_count_on_redis() {
    let mut redis = Redis::redis().append_only().start();
    let store = format!("redis: '{}'", redis.url());
    two_nodes_share_every_count(&store, || {
        redis.stop();
        redis.start();
    });
}
