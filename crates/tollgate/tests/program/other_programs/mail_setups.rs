//! The setups of a mail server's manual before a relay: transactional mail, newsletters, shared hosting, recipient
//! domains, one window switched off by zero, and a machine for development.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::mail::{Client, example_with_relay, flood, home as relay_home};
use crate::program::{Home, Server, wait_until};
use serde_json::{Value, json};
use tollgate_testbed::Sink;

fn use_up(server: &Server, policy: &str, fields: Value, cost: u64) {
    let reply = server.check(&json!({ "policy": policy, "fields": fields, "cost": cost }));
    assert_eq!(reply.status, 200, "{}", reply.text());
}

fn send(server: &Server, sender: &str) -> String {
    let mut client = Client::greeted(server.relays[0]).expect("a server");
    client.send_as(sender, "hi", &["bob@there.test"]).unwrap()
}

/// A server for an example, whose levels are used up to one message below these limits. One message passes at each, and
/// the next one is refused with the limit.
fn levels_hold(home: &Home, levels: &[(&str, &str, &str, u64)]) {
    let server = home.start();
    for (level, key, limit, number) in levels {
        let fields = if key.is_empty() { json!({}) } else { json!({ (*level): key }) };
        let sender = match *level {
            "sender" => (*key).to_owned(),
            "domain" => format!("someone@{key}"),
            _ => "someone@elsewhere.test".to_owned(),
        };
        let counted =
            server.get(&format!("/api/v1/counters/{level}/{}", if key.is_empty() { level } else { key }));
        let used = counted.ok()["hourly_count"].as_u64().unwrap();
        use_up(&server, "mail.accept", fields, number - used - 1);
        let passed = send(&server, &sender);
        assert!(passed.starts_with("250 2.0.0"), "{level} {key}: {passed}");
        let refused = send(&server, &sender);
        let expected = format!("{} {key}", level).trim_end().to_owned();
        assert!(
            refused
                .starts_with(&format!("451 4.7.1 Rate limit exceeded: {expected}, {limit}; try again in ")),
            "{refused}"
        );
    }
    server.stop();
}

#[test]
fn transactional_mail_has_wide_limits() {
    let sink = Sink::start();
    let home = example_with_relay("mail-transactional.yaml", sink.port(), &["accept"]);
    levels_hold(
        &home,
        &[
            ("sender", "receipts@shop.test", "1000/hour", 1_000),
            ("domain", "busy.test", "10000/hour", 10_000),
            ("global", "", "100000/hour", 100_000),
        ],
    );
}

#[test]
fn a_newsletter_uses_the_hour_of_its_domain() {
    let sink = Sink::start();
    let home = example_with_relay("mail-marketing.yaml", sink.port(), &["accept"]);
    // The domain has the same limit as its sender, and comes first.
    levels_hold(&home, &[("domain", "news.test", "5000/hour", 5_000), ("global", "", "50000/hour", 50_000)]);
}

#[test]
fn a_customer_of_shared_hosting_is_stopped_early() {
    let sink = Sink::start();
    let home = example_with_relay("mail-shared-hosting.yaml", sink.port(), &["accept"]);
    let server = home.start();
    let mut client = Client::greeted(server.relays[0]).unwrap();
    for sender in 0..5 {
        let replies: Vec<String> = (0..21)
            .map(|_| client.send_as(&format!("{sender}@shop.test"), "hi", &["bob@there.test"]).unwrap())
            .collect();
        assert_eq!(replies.iter().filter(|reply| reply.starts_with("250")).count(), 20, "{replies:?}");
        // The hundredth message of the domain is the last one of its fifth sender.
        let exceeded = if sender < 4 { "sender" } else { "domain shop.test, 100/hour" };
        assert!(replies[20].starts_with("451 4.7.1") && replies[20].contains(exceeded), "{}", replies[20]);
    }
    assert!(client.send_as("a@other.test", "hi", &["bob@there.test"]).unwrap().starts_with("250"));
    wait_until("all arrive", || sink.count() == 101);
    server.stop();
    levels_hold(&home, &[("global", "", "10000/hour", 10_000)]);
}

#[test]
fn mail_to_large_providers_is_paced() {
    let sink = Sink::start();
    let home = example_with_relay("mail-recipient-domains.yaml", sink.port(), &["deliver"]);
    let server = home.start();
    let domains = ["gmail.com", "mail.ru", "yandex.ru", "yahoo.com", "outlook.com", "hotmail.com"];
    let limits = domains.map(|domain| (domain, 1_000)).into_iter().chain([("small.test", 5_000)]);
    for (domain, limit) in limits {
        let fields = json!({ "recipient_domain": domain, "recipients": limit - 1 });
        use_up(&server, "mail.deliver", fields, 1);
    }
    let mut client = Client::greeted(server.relays[0]).unwrap();
    let all = || domains.iter().chain(&["small.test"]);
    for name in ["first", "second"] {
        for domain in all() {
            let reply = client.send(name, &[&format!("{name}@{domain}")]).unwrap();
            assert!(reply.starts_with("250"), "{reply}\n{}", server.log());
        }
    }
    wait_until("the first of each domain arrive", || sink.count() == 7);
    let list = || server.get("/api/v1/messages?status=deferred").ok()["messages"].as_array().unwrap().clone();
    wait_until("the others are deferred", || list().len() == 7);
    let mut by: Vec<String> =
        list().iter().map(|one| one["deferred_by"].as_str().unwrap().to_owned()).collect();
    let mut expected: Vec<String> = all().map(|domain| format!("recipient_domain {domain}")).collect();
    by.sort();
    expected.sort();
    assert_eq!(by, expected);
    assert_eq!(sink.count(), 7, "nothing else is sent");
    assert!(!server.log().contains("bounced"), "nothing is rejected");
    server.stop();
}

#[test]
fn zero_switches_one_window_off() {
    let sink = Sink::start();
    let file = "rules: { global: { limits: [0/hour, 5/day] } }\npolicies: { mail.accept: [global] }";
    let home = relay_home(sink.port(), file, "  accept: mail.accept");
    let server = home.start();
    let replies: Vec<String> = (0..6).map(|_| send(&server, "a@here.test")).collect();
    assert!(replies[..5].iter().all(|reply| reply.starts_with("250")), "{replies:?}");
    assert!(replies[5].contains("global, 5/day; try again in 86"), "{}", replies[5]);
    server.stop();
}

#[test]
fn nothing_is_limited_in_development() {
    let sink = Sink::start();
    let home = example_with_relay("development.yaml", sink.port(), &["accept"]);
    let server = home.start();
    // The limits of the file are one message for each sender, and a hundred in all.
    flood(server.relays[0], 150, "someone@there.test");
    wait_until("all arrive", || sink.count() == 150);
    assert_eq!(server.get("/api/v1/ratelimits").ok()["enabled"], false);
    server.stop();
}
