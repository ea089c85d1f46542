//! What a relay of the real program tells senders and clients when something is in the way: delays, a full disk,
//! and a wrong password.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::mail::{Client, home, relaying_to, submit};
use crate::program::{Home, wait_until};
use serde_json::json;
use tollgate_testbed::Sink;

const BY_DOMAIN: &str = "
rules:
  recipient_domain: { by: recipient_domain, limits: unlimited, on_exceed: defer, overrides: { slow.test: 1/day sliding } }
policies: { mail.deliver: [recipient_domain] }";

#[test]
fn a_sender_that_asks_is_told_of_a_delay_once() {
    let sink = Sink::start();
    let home = home(sink.port(), BY_DOMAIN, "  deliver: mail.deliver").with_moved_clock();
    let server = home.start();
    submit(server.relays[0], "first", &["a@slow.test"]);
    wait_until("the limit is used up", || sink.count() == 1);
    let mut client = Client::greeted(server.relays[0]).unwrap();
    assert!(client.ask("MAIL FROM:<app@here.test> ENVID=QQ314").unwrap().starts_with("250"));
    assert!(client.ask("RCPT TO:<b@slow.test> NOTIFY=FAILURE,DELAY").unwrap().starts_with("250"));
    assert!(client.ask("DATA").unwrap().starts_with("354"));
    assert!(client.ask("Subject: second\r\n\r\ntext\r\n.").unwrap().starts_with("250"));
    submit(server.relays[0], "silent", &["c@slow.test"]);
    let deferred =
        || server.get("/api/v1/messages?status=deferred").ok()["messages"].as_array().unwrap().len();
    wait_until("both wait for the limit", || deferred() == 2);
    home.shift_clock(4 * 3_600 + 60);
    wait_until("the report arrives", || sink.count() == 2);
    let report = sink.messages().into_iter().find(|sunk| sunk.sender.starts_with("<>")).unwrap();
    assert!(report.recipients[0].starts_with("<app@here.test>"), "{report:?}");
    for part in ["Original-Envelope-Id: QQ314", "Final-Recipient: rfc822; b@slow.test", "Action: delayed"] {
        assert!(report.text.contains(part), "{part}: {}", report.text);
    }
    assert!(report.text.contains("recipient_domain slow.test"), "{}", report.text);
    wait_until("both wait again", || deferred() == 2);
    assert_eq!(sink.count(), 2);
    server.stop();
}

#[test]
fn a_full_disk_refuses_mail_for_now_and_charges_nothing() {
    let sink = Sink::start();
    let file = "rules: { sender: { by: sender, limits: 10/hour } }\npolicies: { mail.accept: [sender] }";
    let full = home(sink.port(), file, "  accept: mail.accept");
    let config = std::fs::read_to_string(full.path("tollgate.yaml")).unwrap();
    full.configure(&config.replace("min_free: 0", "min_free: 900TiB"));
    let server = full.start();
    let refused = Client::greeted(server.relays[0]).unwrap().send("hi", &["b@there.test"]).unwrap();
    assert!(refused.starts_with("452 4.3.1 "), "{refused}");
    let body = json!({ "from": "app@here.test", "to": "b@there.test", "text": "hi" });
    let reply = server.post("/api/v1/messages", &body);
    assert_eq!(reply.status, 503, "{}", reply.text());
    assert_eq!(server.remaining("sender", "app@here.test"), 10);
    let page = server.get("/metrics");
    assert!(page.text().contains("tollgate_relay_rejected_total{level=\"(queue)\"} 2\n"), "{}", page.text());
    server.stop();
    full.configure(&config);
    let server = full.start();
    submit(server.relays[0], "hi", &["b@there.test"]);
    wait_until("it arrives", || sink.count() == 1);
    server.stop();
}

#[test]
fn an_account_with_a_wrong_password_is_paused_and_loses_no_mail() {
    let (sink, keys) = (Sink::start(), rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap());
    // The next hop is a relay too: it asks for TLS and a login.
    let users = "  tls: { certificate: cert.pem, key: key.pem }\n  \
                 users: [{ name: app, tenant: default, password_env: APP_PASSWORD }]";
    let behind = home(sink.port(), "", users).variable("APP_PASSWORD", "correct-horse-battery");
    let config = relaying_to(0, "", "  tls_ca: cert.pem\n  secret_env: RELAY_SECRET");
    let config: String = config
        .lines()
        .filter(|line| !line.contains("accounts:"))
        .fold(String::new(), |text, line| text + line + "\n");
    let before = Home::with(&config).variable("RELAY_SECRET", "a-secret-that-all-nodes-know");
    for home in [&behind, &before] {
        std::fs::write(home.path("cert.pem"), keys.cert.pem()).unwrap();
        std::fs::write(home.path("key.pem"), keys.signing_key.serialize_pem()).unwrap();
    }
    let (next_hop, server) = (behind.start(), before.start());
    let account = |password: &str| {
        let body = json!({
            "id": "main", "tenant_id": "default", "host": "localhost", "port": next_hop.relays[0].port(),
            "user": "app", "password": password, "use_tls": true,
        });
        let reply = server.post("/account", &body);
        assert_eq!(reply.status, 200, "{}", reply.text());
    };
    account("wrong-horse-battery");
    submit(server.relays[0], "hi", &["b@there.test"]);
    server.wait_for_log("login failed: account paused");
    let lanes = || server.get("/api/v1/lanes").ok()["lanes"][0]["cause"].clone();
    wait_until("its lane waits for the account", || lanes() == "paused");
    assert_eq!(sink.count(), 0);
    account("correct-horse-battery");
    wait_until("the message arrives", || sink.count() == 1);
    let log = server.stop() + &next_hop.stop();
    assert!(!log.contains("horse"), "a password is in the log: {log}");
}
