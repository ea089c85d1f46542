//! `examples/mail-levels.yaml` before a relay: five levels when a message is accepted, over SMTP and the API, and the
//! recipient domain when it is sent; the requests of a mail server's manual as it prints them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::mail::{Client, example_with_relay, printed};
use crate::program::{Home, Server, Signal, wait_until};
use serde_json::{Value, json};
use tollgate_testbed::Sink;

const ADMIN: &str = "admin-token-0123456789";
const KEY: &str = "key-123-token-0123456789";

/// The levels, with two API keys, and proxies on loopback that name the addresses of clients.
fn home(sink: &Sink) -> Home {
    let home = example_with_relay("mail-levels.yaml", sink.port(), &["accept", "deliver"]);
    let config = std::fs::read_to_string(home.path("tollgate.yaml")).unwrap();
    let keys = "keys:\n  - { name: ops, role: admin, token_env: ADMIN }\n  \
                - { name: key-123, role: check, token_env: KEY, tenant: default }\n";
    let proxies = "  networks: [127.0.0.0/8, 192.168.0.0/16]\n  trusted_proxies: [127.0.0.0/8]";
    home.configure(&(config.replace("  networks: [127.0.0.0/8]", proxies) + keys));
    home.variable("ADMIN", ADMIN).variable("KEY", KEY)
}

/// Uses up so much of all levels that these fields reach.
fn use_up(server: &Server, policy: &str, fields: Value, cost: u64) {
    let body = json!({ "policy": policy, "fields": fields, "cost": cost });
    let reply = server.ask_as(ADMIN, "POST", "/api/v1/check", Some(&body));
    assert_eq!(reply.status, 200, "{}", reply.text());
}

/// Submits a message over the API with the second key.
fn submit(server: &Server, from: &str) -> (u16, Value) {
    let body = json!({ "from": from, "to": "bob@there.test", "text": "hello" });
    let reply = server.ask_as(KEY, "POST", "/api/v1/messages", Some(&body));
    (reply.status, reply.json())
}

/// The counts of a level, by a request of the manual.
fn shown(home: &Home, server: &Server, level: &str, key: &str) -> Value {
    let command = format!(
        "curl -s http://localhost:8080/api/v1/ratelimits/{level}/{key} \\\n  -H \"Authorization: Bearer $TOKEN\""
    );
    serde_json::from_str(&printed(home, server, ADMIN, &command)).unwrap()
}

/// How many messages a level has counted in this hour.
fn count(home: &Home, server: &Server, level: &str, key: &str) -> u64 {
    let shown = shown(home, server, level, key);
    shown["hourly_count"].as_u64().unwrap_or_else(|| panic!("{shown}"))
}

/// Sends one message that must pass, and one that this level must refuse.
fn passes_once(client: &mut Client, sender: &str, refusal: &str) {
    let mut send = || client.send_as(sender, "hi", &["bob@there.test"]).unwrap();
    let passed = send();
    assert!(passed.starts_with("250 2.0.0"), "{passed}");
    let refused = send();
    assert!(
        refused.starts_with(&format!("451 4.7.1 Rate limit exceeded: {refusal}; try again in ")),
        "{refused}"
    );
}

#[test]
fn each_level_refuses_over_smtp_with_its_name_and_the_first_exceeded_is_named() {
    let sink = Sink::start();
    let home = home(&sink);
    let server = home.start();
    let smtp = server.relays[0];

    use_up(&server, "mail.accept", json!({ "ip": "192.168.1.1" }), 499);
    passes_once(&mut Client::from_ip(smtp, "192.168.1.1"), "a@one.test", "ip 192.168.1.1, 500/hour");
    use_up(&server, "mail.accept", json!({ "sender": "user@two.test" }), 99);
    let mut client = Client::from_ip(smtp, "192.168.1.2");
    passes_once(&mut client, "User@Two.test", "sender user@two.test, 100/hour");
    use_up(&server, "mail.accept", json!({ "domain": "three.test" }), 999);
    passes_once(&mut client, "a@three.test", "domain three.test, 1000/hour");
    // Domain and sender are exceeded: the domain comes first.
    use_up(&server, "mail.accept", json!({ "domain": "two.test" }), 900);
    let refused = client.send_as("user@two.test", "hi", &["bob@there.test"]).unwrap();
    assert!(refused.contains("domain two.test, 1000/hour"), "{refused}");

    // A refused message takes nothing anywhere: three passed.
    assert_eq!(count(&home, &server, "ip", "192.168.1.1"), 500);
    assert_eq!(count(&home, &server, "ip", "192.168.1.2"), 2);
    let before = 499 + 99 + 999 + 900;
    assert_eq!(count(&home, &server, "global", "global"), before + 3);
    use_up(&server, "mail.accept", json!({}), 50_000 - before - 4);
    passes_once(&mut client, "a@four.test", "global, 50000/hour");
    wait_until("what passed arrives", || sink.count() == 4);
    let log = server.stop();
    let line = log.lines().find(|line| line.contains("\"key\":\"user@two.test\"")).unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    let expected = json!(["warn", "ratelimit", "rate limit exceeded", "sender"]);
    assert_eq!(json!([line["level"], line["component"], line["msg"], line["denied_by"]]), expected);
    assert!(line["retry_after"].is_string(), "{line}");
}

#[test]
fn the_api_passes_the_same_levels_and_its_keys_have_their_own() {
    let sink = Sink::start();
    let home = home(&sink);
    let server = home.start();
    let (status, accepted) = submit(&server, "user@example.org");
    assert_eq!((status, &accepted["status"]), (202, &json!("queued")), "{accepted}");
    for (level, key) in [("domain", "example.org"), ("sender", "user@example.org"), ("api_key", "key-123")] {
        assert_eq!(count(&home, &server, level, key), 1, "{level}");
    }
    let mut client = Client::from_ip(server.relays[0], "192.168.1.1");
    assert!(client.send_as("user@example.org", "hi", &["bob@there.test"]).unwrap().starts_with("250"));
    assert_eq!(count(&home, &server, "sender", "user@example.org"), 2, "both doors count at one level");
    assert_eq!(count(&home, &server, "api_key", "key-123"), 1, "SMTP has no API key");

    use_up(&server, "mail.accept", json!({ "sender": "user@example.org" }), 98);
    let (status, refused) = submit(&server, "user@example.org");
    assert_eq!(status, 429, "{refused}");
    let members = ["error", "denied_by", "denied_key"].map(|member| refused[member].clone());
    assert_eq!(json!(members), json!(["rate limit exceeded", "sender", "user@example.org"]));
    assert!((3_590..=3_600).contains(&refused["retry_after"].as_u64().unwrap()), "{refused}");
    use_up(&server, "mail.accept", json!({ "api_key": "key-123" }), 999);
    let (status, refused) = submit(&server, "other@example.org");
    assert_eq!((status, &refused["denied_by"]), (429, &json!("api_key")), "{refused}");
    assert!(!refused["denied_key"].to_string().contains("key-123"), "the rule is secret: {refused}");

    // What was accepted and refused, by level.
    let page = server.ask_as(ADMIN, "GET", "/metrics", None);
    for line in [
        "tollgate_relay_accepted_total 2",
        "tollgate_relay_rejected_total{level=\"sender\"} 1",
        "tollgate_relay_rejected_total{level=\"api_key\"} 1",
        "tollgate_decisions_total{policy=\"mail.accept\",rule=\"sender\",outcome=\"deny\"} 1",
    ] {
        assert!(page.text().lines().any(|shown| shown == line), "{line} is not in {}", page.text());
    }
    assert!(page.text().contains("tollgate_usage_ratio{rule=\"global\"} 0.0"), "{}", page.text());
    server.stop();
}

#[test]
fn the_printed_requests_show_and_change_what_holds_for_mail() {
    let sink = Sink::start();
    let home = home(&sink);
    let server = home.start();
    let shown =
        |command: &str| -> Value { serde_json::from_str(&printed(&home, &server, ADMIN, command)).unwrap() };
    let config =
        shown("curl -s http://localhost:8080/api/v1/ratelimits \\\n  -H \"Authorization: Bearer $TOKEN\"");
    let expected = json!({
        "enabled": true,
        "global": { "messages_per_hour": 50000, "messages_per_day": 500000 },
        "default_domain": { "messages_per_hour": 1000, "messages_per_day": 10000 },
        "example.com": { "messages_per_hour": 5000, "messages_per_day": 50000, "recipients_per_message": 100 },
    });
    let found = json!({
        "enabled": config["enabled"],
        "global": config["global"],
        "default_domain": config["default_domain"],
        "example.com": config["domains"]["example.com"],
    });
    assert_eq!(found, expected, "{config}");

    let mut client = Client::from_ip(server.relays[0], "192.168.1.1");
    for _ in 0..3 {
        let reply = client.send_as("user@example.com", "hi", &["a@gmail.com", "b@gmail.com"]).unwrap();
        assert!(reply.starts_with("250"), "{reply}");
    }
    wait_until("all are sent", || sink.count() == 3);
    let keys = [
        ("global", "global"),
        ("domain", "example.com"),
        ("sender", "user@example.com"),
        ("ip", "192.168.1.1"),
    ];
    for (level, key) in keys {
        assert_eq!(count(&home, &server, level, key), 3, "{level}");
    }
    assert_eq!(count(&home, &server, "recipient_domain", "gmail.com"), 6, "one for each recipient");
    let domain = self::shown(&home, &server, "domain", "example.com");
    let members = ["level", "key", "hourly_count", "daily_count", "hourly_limit", "daily_limit"];
    assert_eq!(
        json!(members.map(|member| domain[member].clone())),
        json!(["domain", "example.com", 3, 3, 5000, 50000]),
        "{domain}"
    );
    assert_eq!(domain["hour_start"], domain["day_start"], "both begin with the first message: {domain}");
    assert!(domain["hour_start"].as_str().unwrap().ends_with('Z'), "{domain}");

    let set = shown(
        "curl -s -X PUT http://localhost:8080/api/v1/ratelimits/example.com \\\n  \
         -H \"Authorization: Bearer $TOKEN\" \\\n  -H \"Content-Type: application/json\" \\\n  -d '{\n    \
         \"messages_per_hour\": 2000,\n    \"messages_per_day\": 20000,\n    \"recipients_per_message\": 50\n  }'",
    );
    assert_eq!((&set["hourly_limit"], &set["daily_limit"]), (&json!(2000), &json!(20000)), "{set}");
    // It holds at once, over SMTP: recipients beyond the fiftieth are refused, and those before them are kept.
    assert!(client.ask("MAIL FROM:<user@example.com>").unwrap().starts_with("250"));
    for number in 0..50 {
        assert!(client.ask(&format!("RCPT TO:<{number}@there.test>")).unwrap().starts_with("250"));
    }
    let refused = client.ask("RCPT TO:<50@there.test>").unwrap();
    assert!(refused.starts_with("452 4.5.3 Too many recipients: at most 50"), "{refused}");
    assert!(client.ask("DATA").unwrap().starts_with("354"));
    assert!(client.ask("Subject: many\r\n\r\ntext\r\n.").unwrap().starts_with("250"));
    use_up(&server, "mail.accept", json!({ "domain": "example.com" }), 1_996);
    let refused = client.send_as("other@example.com", "hi", &["a@there.test"]).unwrap();
    assert!(refused.contains("domain example.com, 2000/hour"), "{refused}");
    server.stop();
}

#[test]
fn domains_have_limits_of_their_own() {
    let sink = Sink::start();
    let home = home(&sink);
    let server = home.start();
    let mut client = Client::from_ip(server.relays[0], "192.168.1.1");
    for (domain, limit) in [("example.com", 5_000), ("newsletter.example.com", 10_000), ("other.test", 1_000)]
    {
        use_up(&server, "mail.accept", json!({ "domain": domain }), limit - 1);
        let refusal = format!("domain {domain}, {limit}/hour");
        passes_once(&mut client, &format!("user@{domain}"), &refusal);
    }
    // One hundred recipients at example.com, as many as the relay takes elsewhere.
    for (sender, most) in [("user@example.com", 100), ("user@elsewhere.test", 101)] {
        assert!(client.ask(&format!("MAIL FROM:<{sender}>")).unwrap().starts_with("250"));
        let taken = (0..101)
            .filter(|number| client.ask(&format!("RCPT TO:<{number}@x.test>")).unwrap().starts_with("250"));
        assert_eq!(taken.count(), most, "{sender}");
        client.ask("RSET").unwrap();
    }
    server.stop();
}

#[test]
fn hour_and_day_begin_with_the_first_message_and_outlast_restarts() {
    let sink = Sink::start();
    let home = home(&sink).with_moved_clock();
    let server = home.start();
    use_up(&server, "mail.accept", json!({ "sender": "user@example.org" }), 99);
    let send = |server: &Server| {
        let mut client = Client::from_ip(server.relays[0], "192.168.1.1");
        client.send_as("user@example.org", "hi", &["bob@there.test"]).unwrap()
    };
    assert!(send(&server).starts_with("250"));
    assert!(send(&server).contains("sender user@example.org, 100/hour"));
    server.stop();
    let server = home.start();
    assert!(send(&server).contains("sender user@example.org, 100/hour"), "a restart resets nothing");
    server.end_by(Signal::KILL);
    let server = home.start();
    assert_eq!(count(&home, &server, "sender", "user@example.org"), 100, "nor does kill -9");
    home.shift_clock(3_590);
    wait_until("the hour is nearly over", || send(&server).contains("100/hour; try again in"));
    home.shift_clock(3_700);
    wait_until("the hour is over", || send(&server).starts_with("250"));
    let shown = shown(&home, &server, "sender", "user@example.org");
    assert_eq!((&shown["hourly_count"], &shown["daily_count"]), (&json!(1), &json!(101)), "{shown}");
    server.stop();
}

#[test]
fn an_exhausted_recipient_domain_defers_and_rejects_nothing() {
    let sink = Sink::start();
    let home = home(&sink);
    let server = home.start();
    for (domain, limit) in
        [("gmail.com", 1_000), ("mail.ru", 1_000), ("yandex.ru", 1_000), ("other.test", 5_000)]
    {
        let fields = json!({ "recipient_domain": domain, "recipients": limit - 1 });
        use_up(&server, "mail.deliver", fields, 1);
    }
    let mut client = Client::from_ip(server.relays[0], "192.168.1.1");
    let recipients =
        ["a@gmail.com", "b@gmail.com", "c@mail.ru", "d@yandex.ru", "e@other.test", "f@free.test"];
    assert!(client.send_as("user@example.org", "hi", &recipients).unwrap().starts_with("250"));
    // One at each domain, and the second recipient at gmail.com waits.
    wait_until("all but one recipient get a copy", || sink.count() == 5);
    let deferred = || {
        let list = server.ask_as(ADMIN, "GET", "/api/v1/messages?status=deferred", None).ok();
        list["messages"].as_array().unwrap().clone()
    };
    wait_until("the message is deferred", || !deferred().is_empty());
    let message = &deferred()[0];
    assert_eq!(message["deferred_by"], "recipient_domain gmail.com", "{message}");
    for (domain, count_of) in
        [("gmail.com", 1_000), ("mail.ru", 1_000), ("yandex.ru", 1_000), ("other.test", 5_000)]
    {
        assert_eq!(
            count(&home, &server, "recipient_domain", domain),
            count_of,
            "{domain}: each is charged once"
        );
    }
    assert_eq!(sink.count(), 5);
    server.stop();
}
