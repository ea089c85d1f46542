//! The pages for those who come from another program: every failure that they speak of is provoked with the page's
//! configuration, and every log line that they name is logged meanwhile.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use crate::coming_from::scenes::{
    allows, ask, changed, dead_node, home, in_memory, outage, policy_request, restart, two_nodes, wrong_clock,
};
use crate::coming_from::{Made, compared, quoted, rows};
use crate::mail::{self, Client};
use crate::nodes;
use crate::program::{self, Signal, wait_until};
use serde_json::json;
use tollgate_testbed::{Postfix, Server as Redis, Sink};

/// Provokes something, and returns what the servers logged.
type Scene = fn(&Made) -> String;

/// A page, how a row begins, and its scene.
const SCENES: [(&str, &str, Scene); 29] = [
    ("sendry", "a crash loses", |made| {
        let count = |server: &program::Server| {
            assert!(allows(server, "mail.accept", &json!({ "sender": "a@example.org" }), 1));
        };
        let counter = ("sender", "a@example.org");
        let always = home(made, &[("TOLLGATE__STORE", "{ file: ./counts.redb, sync: always }")]);
        restart(&always, Signal::KILL, counter, count);
        // As it is imported, an orderly end writes what the next flush would have.
        restart(&home(made, &[]), Signal::TERM, counter, count)
    }),
    ("sendry", "mail over the API", |made| {
        let server = in_memory(made).start();
        let key = json!({ "api_key": "key-123" });
        assert!(allows(&server, "mail.accept", &key, 1_000));
        assert_eq!(ask(&server, "mail.accept", &key, 1).json()["denied_by"], "api_key");
        server.stop()
    }),
    ("sendry", "a message to several domains", |made| {
        let server = in_memory(made).start();
        let to = |domain: &str| json!({ "recipient_domain": domain });
        assert!(allows(&server, "mail.deliver", &to("gmail.com"), 1_000));
        assert!(allows(&server, "mail.deliver", &to("mail.ru"), 1));
        assert_eq!(ask(&server, "mail.deliver", &to("gmail.com"), 1).json()["verdict"], "defer");
        assert_eq!(server.remaining("recipient_domain", "mail.ru"), 999);
        server.stop()
    }),
    ("genro-mail-proxy", "mail over a limit waits", mail_over_a_limit),
    ("genro-mail-proxy", "instances share", |made| {
        let fields = json!({ "tenant": "acme", "account": "primary-smtp" });
        two_nodes(made, "mail.send", &fields, ("account", "acme,primary-smtp"))
    }),
    ("genro-mail-proxy", "a cancelled send", |made| {
        let server = in_memory(made).start();
        let fields = json!({ "tenant": "acme", "account": "primary-smtp" });
        let receipt = ask(&server, "mail.send", &fields, 1).ok()["receipt"].clone();
        assert_eq!(server.remaining("account", "acme,primary-smtp"), 9);
        server.post("/api/v1/refund", &json!({ "receipt": receipt })).ok();
        assert_eq!(server.remaining("account", "acme,primary-smtp"), 10);
        server.stop()
    }),
    ("ad-marketplace", "Redis is down", |made| {
        outage(made, None, "api-write", &json!({ "user": "ada" }), Some(2))
    }),
    ("ad-marketplace", "the leftmost", |made| {
        let server = in_memory(made).start();
        for address in ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"] {
            let headers =
                [("x-forwarded-method", "GET"), ("x-forwarded-uri", "/"), ("x-forwarded-for", address)];
            server.connect().ask("GET", "/api/v1/forward-auth/auth?route=login", &headers, None);
        }
        assert_eq!((server.remaining("auth", "127.0.0.1"), server.remaining("auth", "192.0.2.1")), (0, 3));
        server.stop()
    }),
    ("ad-marketplace", "counting and inserting race", |made| {
        let server = in_memory(made).start();
        let take = |deal: usize| {
            let body = json!({ "policy": "active-deals", "fields": { "advertiser": "ads" }, "id": format!("d{deal}") });
            server.post("/api/v1/holds", &body).status == 200
        };
        let taken = std::thread::scope(|threads| {
            let all: Vec<_> = (0..30).map(|deal| threads.spawn(move || take(deal))).collect();
            all.into_iter().map(|thread| thread.join().unwrap()).filter(|taken| *taken).count()
        });
        assert_eq!(taken, 10);
        server.stop()
    }),
    ("ad-marketplace", "`locked`", |made| {
        // The same ladder without the delays, which last in real time.
        let made = changed(made, &[("4 +2s then 6 +5s captcha then 11 lock", "3 lock")]);
        let server = in_memory(&made).start();
        let user = json!({ "fields": { "user": "eve" } });
        for _ in 0..3 {
            let begun = server.post("/api/v1/guards/login/begin", &user).ok();
            let finish = json!({ "ticket": begun["ticket"], "outcome": "failure" });
            server.post("/api/v1/guards/finish", &finish).ok();
        }
        server.wait_for_log("locked");
        server.stop()
    }),
    ("api-gateway", "Redis refuses", |made| outage(made, None, "route", &orders(), Some(25))),
    ("api-gateway", "N nodes", |made| outage(made, Some("local 1/3"), "route", &orders(), Some(16))),
    ("api-gateway", "route and consumer", |made| {
        let both = "policies:\n  both: [route, consumer]\n";
        let consumer = format!("  consumer: {{ by: consumer, limits: 1/hour }}\n\n{both}");
        let made = changed(made, &[("\npolicies:\n", &consumer), ("10/s burst 50", "50/hour")]);
        let server = in_memory(&made).start();
        let fields = json!({ "route": "orders", "ip": "192.168.1.100", "consumer": "c" });
        assert!(allows(&server, "both", &fields, 1) && !allows(&server, "both", &fields, 1));
        assert_eq!(server.remaining("route", "orders,192.168.1.100"), 49);
        server.stop()
    }),
    ("api-gateway", "caller clocks", |made| {
        wrong_clock(&changed(made, &[("10/s burst 50", "50/hour burst 50")]), "route", &orders(), 50)
    }),
    ("elemta", "Valkey is down", |made| outage(made, None, "smtp.connect", &client(), Some(100))),
    ("elemta", "a node fails", |made| {
        dead_node(
            &changed(made, &[("at once for 1m", "at once for 2s")]),
            &client(),
            ("per_ip", "172.20.0.1"),
        )
    }),
    ("elemta", "a partition", |made| outage(made, Some("local 1/3"), "smtp.connect", &client(), Some(33))),
    ("elemta", "a refused connection", |made| {
        let mut made = changed(made, &[("100/min sliding", "1/min sliding")]);
        made.config += "relay:\n  networks: [127.0.0.0/8]\n  connect: smtp.connect\n  \
                        accounts: { default/next-hop: { host: mail.example.com } }\n";
        let server = in_memory(&made).start();
        assert!(Client::connect(server.relays[0]).1.starts_with("220 "));
        let refused = Client::connect(server.relays[0]).1;
        assert!(refused.starts_with("421 4.7.0 Too many connections"), "{refused}");
        server.stop()
    }),
    ("elemta", "a refused address", |made| {
        let server = in_memory(made).start();
        let taken = (0..60).filter(|_| allows(&server, "smtp.connect", &client(), 1)).count();
        let left = (server.remaining("rate", "172.20.0.1"), server.remaining("overall", "overall"));
        assert_eq!((taken, left), (50, (50, 950)));
        server.stop()
    }),
    ("nginx", "the zone is full", |made| {
        let server = home(made, &[("TOLLGATE__STORE", "{ memory: { max_keys: 1000 } }")]).start();
        let client = json!({ "ip": "192.0.2.7" });
        assert!(allows(&server, "api.v1.auth", &client, 4) && !allows(&server, "api.v1.auth", &client, 1));
        for flood in 0..3_000 {
            ask(&server, "api.v1", &json!({ "ip": format!("10.0.{}.{}", flood / 250, flood % 250) }), 1);
        }
        assert!(server.remaining("auth", "192.0.2.7") < 4, "the denied key was not forgotten");
        server.stop()
    }),
    ("nginx", "a restart forgets", |made| {
        restart(&home(made, &[]), Signal::TERM, ("auth", "192.0.2.7"), |server| {
            assert!(allows(server, "api.v1.auth", &json!({ "ip": "192.0.2.7" }), 3));
        })
    }),
    ("nginx", "each server counts", |made| {
        two_nodes(made, "api.v1.auth", &json!({ "ip": "192.0.2.7" }), ("auth", "192.0.2.7"))
    }),
    ("envoy-ratelimit", "Redis is down", |made| {
        outage(made, None, "messaging.to_number", &json!({ "to_number": "1" }), Some(50))
    }),
    ("envoy-ratelimit", "a denied request", |made| {
        let server = in_memory(made).start();
        let to = json!({ "to_number": "1" });
        assert!(
            allows(&server, "messaging.to_number", &to, 99)
                && !allows(&server, "messaging.to_number", &to, 5)
        );
        assert_eq!(server.remaining("messaging.to_number", "1"), 1);
        server.stop()
    }),
    ("postfix-policy", "a restart of postfwd", |made| {
        restart(&home(made, &[]), Signal::TERM, ("sender", "app@here.test"), |server| {
            assert_eq!(policy_request(server, 1, "x="), "action=DUNNO\n\n");
        })
    }),
    ("postfix-policy", "Postfix repeats", |made| {
        let server = in_memory(made).start();
        for _ in 0..2 {
            assert_eq!(policy_request(&server, 1, "x="), "action=DUNNO\n\n");
        }
        assert_eq!(server.remaining("sender", "app@here.test"), 99);
        server.stop()
    }),
    ("postfix-policy", "`permit_mynetworks`", |made| {
        let server = in_memory(made).start();
        let sink = Sink::start();
        let check = format!("check_policy_service inet:{}", server.policy_door.unwrap());
        let list =
            format!("smtpd_recipient_restrictions = permit_mynetworks, reject_unauth_destination, {check}");
        let postfix = Postfix::start_with(sink.port(), &list);
        mail::submit(([127, 0, 0, 1], postfix.port()).into(), "trapped", &["someone@there.example"]);
        assert_eq!(server.remaining("sender", "app@here.test"), 100);
        server.stop()
    }),
    ("postfix-policy", "the daemon is down", |made| {
        let mut redis = Redis::redis().start();
        let store = format!("{{ redis: 'redis://localhost:{}', {} }}", redis.port(), nodes::STEADY);
        let server = home(made, &[("TOLLGATE__STORE", &store)]).start();
        redis.stop();
        let login = "policy_context=submission\nsasl_username=anna";
        let mut number = 0;
        wait_until("the rule of logins denies", || {
            number += 1;
            policy_request(&server, number, login)
                .starts_with("action=DEFER_IF_PERMIT 4.3.0 Temporary failure")
        });
        assert_eq!(policy_request(&server, 0, "x="), "action=DUNNO\n\n", "other rules count by themselves");
        server.end_by(Signal::TERM).log
    }),
    ("postfix-policy", "`rule=0,", |made| {
        let server = in_memory(&changed(made, &[("100/hour", "1/hour")])).start();
        assert_eq!(policy_request(&server, 1, "x="), "action=DUNNO\n\n");
        assert!(policy_request(&server, 2, "queue_id=4F2A1C0B77").contains("1/hour"));
        server.wait_for_log("4F2A1C0B77");
        server.stop()
    }),
];

fn orders() -> serde_json::Value {
    json!({ "route": "orders", "ip": "192.168.1.100" })
}

fn client() -> serde_json::Value {
    json!({ "ip": "172.20.0.1" })
}

/// The account's server is a sink. The eleventh message of a minute waits until the first is a minute old.
fn mail_over_a_limit(made: &Made) -> String {
    let sink = Sink::start();
    let next = format!("host: 127.0.0.1, port: {}, tls: none, limits", sink.port());
    let account = "host: smtp.example.com, port: 587, tls: starttls, user: sender@example.com, password_env: PRIMARY_SMTP_PASSWORD, limits";
    // The queue is in this directory.
    let home = in_memory(&changed(made, &[(account, &next)]));
    let server = home.start();
    for number in 0..11 {
        mail::submit(server.relays[0], &format!("message {number}"), &["someone@there.example"]);
    }
    wait_until("ten messages arrive", || sink.count() == 10);
    server.wait_for_log("message deferred by a limit");
    wait_until("the eleventh shows when it is sent", || {
        let listed = server.get("/messages?tenant_id=acme").ok();
        let messages = listed["messages"].as_array().unwrap();
        messages.iter().filter(|message| !message["deferred_ts"].is_null()).count() == 1
    });
    server.stop()
}

#[test]
fn every_failure_is_what_its_row_says() {
    let mut used = 0;
    let mut wrong = Vec::new();
    for page in compared() {
        let name = page.path.file_stem().unwrap().to_str().unwrap().to_owned();
        let made = Made::of(&page);
        let rows = rows(&page);
        let mut log = String::new();
        for (_, start, scene) in SCENES.iter().filter(|(page, ..)| *page == name) {
            let told = rows.iter().filter(|row| row.there.starts_with(start) || row.here.starts_with(start));
            assert_eq!(told.count(), 1, "{name}: rows that begin with `{start}`");
            println!("{name}: {start}");
            log += &scene(&made);
            used += 1;
        }
        for row in rows {
            let place = format!("{}:{}: {}", page.name(), row.line, row.there);
            let has_scene =
                SCENES.iter().any(|(page, start, _)| *page == name && row.there.starts_with(start));
            if row.kind == "failure" && !has_scene {
                wrong.push(format!("{place}: no scene provokes it"));
            }
            if row.kind == "log line"
                && let Some(line) = quoted(&row.here).iter().find(|line| !log.contains(**line))
            {
                wrong.push(format!("{place}: nothing logged `{line}`"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(used, SCENES.len());
}
