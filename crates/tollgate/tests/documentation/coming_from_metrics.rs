//! The pages for those who come from another program: every metric that they name has data. A server with the
//! configuration of each page gets traffic. A real Prometheus scrapes it and evaluates `names.rules.yaml`, and is then
//! asked for the metric here and, where it is recorded, for the metric there.

use crate::pages;
use std::any::Any;

use crate::coming_from::scenes::{allows, ask, changed, home, in_memory, on_redis, policy_request};
use crate::coming_from::{Made, RECORDED, compared, quoted, rows};
use crate::mail::{self, Client};
use crate::program::{Home, Server, Signal, wait_until};
use crate::prometheus::Prometheus;
use crate::server::root;
use crate::upstream::Upstream;
use serde_json::json;
use tollgate_testbed::{Proxy, Server as Redis, Sink};

/// A server that had traffic, and what it uses while it is scraped.
struct Busy {
    server: Server,
    _home: Home,
    _others: Box<dyn Any>,
}

fn busy(home: Home, server: Server, others: impl Any) -> Busy {
    Busy { server, _home: home, _others: Box::new(others) }
}

/// Makes traffic for a server with a page's configuration.
type Traffic = fn(&Made) -> Busy;

/// The traffic of each page.
const TRAFFIC: [(&str, Traffic); 8] = [
    ("ad-marketplace", ad_marketplace),
    ("api-gateway", api_gateway),
    ("elemta", elemta),
    ("envoy-ratelimit", envoy_ratelimit),
    ("genro-mail-proxy", genro_mail_proxy),
    ("nginx", nginx),
    ("postfix-policy", postfix_policy),
    ("sendry", sendry),
];

/// Attempts that are denied, and a login that is locked.
fn ad_marketplace(made: &Made) -> Busy {
    let made = changed(made, &[("4 +2s then 6 +5s captcha then 11 lock", "3 lock")]);
    let home = in_memory(&made);
    let server = home.start();
    let user = json!({ "user": "ada" });
    while allows(&server, "api-write", &user, 1) {}
    for _ in 0..3 {
        let begun = server.post("/api/v1/guards/login/begin", &json!({ "fields": { "user": "eve" } })).ok();
        let finish = json!({ "ticket": begun["ticket"], "outcome": "failure" });
        server.post("/api/v1/guards/finish", &finish).ok();
    }
    busy(home, server, ())
}

/// The imported gateway in front of a service.
fn api_gateway(made: &Made) -> Busy {
    let upstream = Upstream::start();
    let address = upstream.address.to_string();
    let changes =
        [("10/s burst 50", "1/hour"), ("127.0.0.1:9000", &address), ("path: /*", "path: /api/orders")];
    let made = changed(made, &changes);
    let home = in_memory(&made);
    let server = home.start();
    let get = || server.gateway().ask("GET", "/api/orders", &[], None).status;
    assert_eq!([get(), get()], [200, 429]);
    busy(home, server, upstream)
}

/// A relay on Redis that refuses a connection.
fn elemta(made: &Made) -> Busy {
    let redis = Redis::redis().start();
    let mut made = changed(made, &[("100/min sliding", "1/min sliding")]);
    made.config += "relay:\n  networks: [127.0.0.0/8]\n  connect: smtp.connect\n  \
                    accounts: { default/next-hop: { host: mail.example.com } }\n";
    let home = home(&made, &[("TOLLGATE__STORE", &on_redis(redis.port()))]);
    let server = home.start();
    let greetings = [0, 1].map(|_| Client::connect(server.relays[0]).1);
    assert!(greetings[0].starts_with("220 ") && greetings[1].starts_with("421 "), "{greetings:?}");
    busy(home, server, redis)
}

/// Denied and observed attempts, a configuration that is not accepted, and a store that is down.
fn envoy_ratelimit(made: &Made) -> Busy {
    let redis = Redis::redis().start();
    let proxy = Proxy::to(redis.port());
    let home = home(made, &[("TOLLGATE__STORE", &on_redis(proxy.port()))]);
    let server = home.start();
    let to = json!({ "to_number": "1" });
    assert!(
        allows(&server, "messaging.to_number", &to, 100) && !allows(&server, "messaging.to_number", &to, 1)
    );
    assert!(allows(&server, "messaging.path", &json!({ "path": "/a" }), 4));
    home.configure("nonsense: true\n");
    server.signal(Signal::HUP);
    proxy.cut();
    wait_until("the node decides alone", || {
        ask(&server, "messaging.to_number", &json!({ "to_number": "2" }), 1).json()["origin"] != "store"
    });
    busy(home, server, (proxy, redis))
}

/// The eleventh message of a minute waits.
fn genro_mail_proxy(made: &Made) -> Busy {
    let sink = Sink::start();
    let next = format!("host: 127.0.0.1, port: {}, tls: none, limits", sink.port());
    let account = "host: smtp.example.com, port: 587, tls: starttls, user: sender@example.com, password_env: PRIMARY_SMTP_PASSWORD, limits";
    let home = in_memory(&changed(made, &[(account, &next)]));
    let server = home.start();
    for number in 0..11 {
        mail::submit(server.relays[0], &format!("message {number}"), &["someone@there.example"]);
    }
    wait_until("ten messages arrive", || sink.count() == 10);
    busy(home, server, sink)
}

fn nginx(made: &Made) -> Busy {
    let home = in_memory(made);
    let server = home.start();
    assert!(allows(&server, "api.v1.auth", &json!({ "ip": "192.0.2.7" }), 1));
    busy(home, server, ())
}

fn postfix_policy(made: &Made) -> Busy {
    let home = in_memory(&changed(made, &[("100/hour", "1/hour")]));
    let server = home.start();
    assert_eq!(policy_request(&server, 1, "x="), "action=DUNNO\n\n");
    assert!(policy_request(&server, 2, "x=").contains("1/hour"));
    busy(home, server, ())
}

fn sendry(made: &Made) -> Busy {
    let home = in_memory(made);
    let server = home.start();
    let key = json!({ "api_key": "key-123" });
    assert!(allows(&server, "mail.accept", &key, 1_000) && !allows(&server, "mail.accept", &key, 1));
    busy(home, server, ())
}

/// A query for the series of a page under one of these names that are not zero.
fn query(names: &[String], labels: &str, page: &str) -> String {
    let labels = labels
        .split(',')
        .filter(|label| !label.is_empty())
        .map(|label| if label.contains('=') { format!(", {label}") } else { format!(", {label}!=\"\"") });
    let labels: String = labels.collect();
    format!("{{__name__=~\"{}\", page=\"{page}\"{labels}}} > 0", names.join("|"))
}

/// The name and the labels of a metric in a cell.
fn parts(metric: &str) -> (&str, &str) {
    metric.split_once('{').map_or((metric, ""), |(name, labels)| (name, labels.trim_end_matches('}')))
}

#[test]
fn every_metric_of_the_pages_has_data() {
    let pages = compared();
    let name = |page: &pages::Page| page.path.file_stem().unwrap().to_str().unwrap().to_owned();
    let running: Vec<(String, Busy)> = pages
        .iter()
        .map(|page| {
            let name = name(page);
            let (_, traffic) =
                TRAFFIC.iter().find(|(known, _)| *known == name).expect("the page has traffic");
            (name, traffic(&Made::of(page)))
        })
        .collect();
    let targets: Vec<String> = running
        .iter()
        .map(|(page, busy)| format!("{{ targets: ['{}'], labels: {{ page: {page} }} }}", busy.server.address))
        .collect();
    let scrape =
        format!("scrape_configs: [{{ job_name: tollgate, static_configs: [{}] }}]\n", targets.join(", "));
    let prometheus = Prometheus::start(&scrape, Some(&root().join("monitoring/names.rules.yaml")));
    let mut found = 0;
    for page in &pages {
        let from = name(page);
        for row in rows(page).into_iter().filter(|row| row.kind == "metric") {
            for metric in quoted(&row.here) {
                let (metric, labels) = parts(metric);
                // A histogram has data in its buckets.
                let names = ["", "_bucket"].map(|end| format!("{metric}{end}"));
                prometheus.wait_for_data(&query(&names, labels, &from));
                found += 1;
            }
            for metric in quoted(&row.there).into_iter().filter(|_| RECORDED.contains(&&*from)) {
                // Micrometer writes dots, which Prometheus shows as underscores, and counters get an ending.
                let (metric, labels) = parts(metric);
                let names = ["", "_total"].map(|end| format!("{}{end}", metric.replace('.', "_")));
                prometheus.wait_for_data(&query(&names, labels, &from));
                found += 1;
            }
        }
    }
    assert!(found > 30, "only {found} metrics were found");
}
