//! Metrics: their number does not depend on the keys, and each counts what it says.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::program::{Home, Reply, Server, text, wait_until};
use serde_json::{Value, json};
use tollgate_testbed::Server as Redis;

const CONFIG: &str = "
store: { file: ./state.redb, flush_interval: 100ms }
rules:
  all: { limits: 1000000/day }
  user: { by: user, limits: 3/day }
  slow: { by: user, limits: 1/day, on_exceed: defer }
  paced: { by: user, limits: 1/s burst 1, on_exceed: wait 5s }
  seen: { by: user, limits: 1/day, on_exceed: observe }
policies:
  p: [all, user]
  later: [slow]
  soon: [paced]
  shadow: [seen]
";

/// The page in the requested format.
fn page(server: &Server, accept: &str) -> Reply {
    let page = server.connect().ask("GET", "/metrics", &[("accept", accept)], None);
    assert_eq!(page.status, 200);
    page
}

/// Every series with its value.
fn scrape(server: &Server) -> BTreeMap<String, f64> {
    let page = page(server, "application/openmetrics-text");
    assert!(page.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    assert!(page.text().ends_with("# EOF\n"));
    let samples = page.text().lines().filter(|line| !line.starts_with('#'));
    samples
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap();
            (series.to_owned(), value.parse().unwrap())
        })
        .collect()
}

fn attempt(policy: &str, user: &str) -> Value {
    json!({ "policy": policy, "fields": { "user": user } })
}

fn use_everything(server: &Server) {
    for policy in ["p", "later", "soon", "shadow"] {
        for _ in 0..5 {
            server.check(&attempt(policy, "ada"));
        }
    }
    server.check(&json!({ "policy": "nothing" }));
    server.get("/nowhere");
}

#[test]
fn ten_thousand_keys_add_no_series() {
    let home = Home::with(CONFIG);
    let server = home.start();
    use_everything(&server);
    scrape(&server);
    let before = scrape(&server);
    let mut connection = server.connect();
    for hundred in 0..100 {
        let users: Vec<Value> =
            (0..100).map(|user| attempt("p", &format!("user-{}", hundred * 100 + user))).collect();
        let body = json!({ "attempts": users });
        connection.ask("POST", "/api/v1/check", &[], Some(&body)).ok();
    }
    for user in 0..100 {
        server.check(&attempt("p", &format!("single-{user}"))).ok();
        server.get(&format!("/api/v1/no/such/path/{user}"));
    }
    let after = scrape(&server);
    assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
    let allowed = "tollgate_decisions_total{policy=\"p\",rule=\"\",outcome=\"allow\"}";
    assert_eq!(after[allowed] - before[allowed], 10_100.0);
    assert!(after["tollgate_store_keys"] > 10_000.0);
}

#[test]
fn every_counter_moves_by_what_happened() {
    let home = Home::with(CONFIG);
    let server = home.start();
    // Unused metrics are not shown.
    let before = scrape(&server);
    use_everything(&server);
    let after = scrape(&server);
    let grown = |series: &str| {
        let now = after.get(series).unwrap_or_else(|| panic!("{series} is missing: {after:#?}"));
        now - before.get(series).copied().unwrap_or(0.0)
    };
    let decided = |policy: &str, rule: &str, outcome: &str| {
        grown(&format!(
            "tollgate_decisions_total{{policy=\"{policy}\",rule=\"{rule}\",outcome=\"{outcome}\"}}"
        ))
    };
    assert_eq!((decided("p", "", "allow"), decided("p", "user", "deny")), (3.0, 2.0));
    assert_eq!((decided("later", "", "allow"), decided("later", "slow", "defer")), (1.0, 4.0));
    assert_eq!((decided("shadow", "", "allow"), decided("shadow", "seen", "observe")), (5.0, 4.0));
    let waited = decided("soon", "paced", "wait");
    assert_eq!(waited + decided("soon", "", "allow"), 5.0);
    assert!(waited >= 1.0);
    let asked = |method: &str, route: &str, status: u16| {
        let labels = format!("method=\"{method}\",route=\"{route}\",status=\"{status}\"");
        grown(&format!("tollgate_http_requests_total{{{labels}}}"))
    };
    let check = [200, 429, 400].map(|status| asked("POST", "/api/v1/check", status));
    assert_eq!(check.iter().sum::<f64>(), 21.0, "{check:?}");
    assert_eq!(check[2], 1.0);
    assert_eq!(asked("", "unmatched", 404), 1.0);
    let timed = "tollgate_http_request_duration_seconds_count{method=\"POST\",route=\"/api/v1/check\"}";
    assert_eq!(grown(timed), 21.0);
    let usage = after["tollgate_usage_ratio{rule=\"all\"}"];
    assert_eq!(usage, 3e-6);
    assert!(after.keys().any(|series| series.starts_with("tollgate_build_info{version=")));
}

#[test]
fn saving_and_the_time_of_decisions_are_counted() {
    let home = Home::with(CONFIG);
    let server = home.start();
    let before = scrape(&server);
    for user in 0..200 {
        server.check(&attempt("p", &format!("user-{user}"))).ok();
    }
    let after = scrape(&server);
    let timed = "tollgate_decision_duration_seconds_count";
    assert!(after[timed] > before[timed], "one decision in 64 is timed");
    assert!(after["tollgate_store_keys"] >= 200.0);
    wait_until("everything to be saved", || {
        let now = scrape(&server);
        now["tollgate_store_flushed_keys_total"] >= 201.0
            && now["tollgate_store_flushes_total"] > before["tollgate_store_flushes_total"]
            && now["tollgate_store_last_flush_seconds"] > 0.0
    });
    assert_eq!(scrape(&server)["tollgate_store_flush_errors_total"], 0.0);
}

const WITH_GATEWAY: &str = "
store: memory
rules:
  tenth: { limits: 10/day }
  ip: { by: ip, limits: 3/day }
  paced: { by: user, limits: 1/s burst 1, on_exceed: wait 5s }
policies: { p: [ip], t: [tenth], soon: [paced] }
gateway:
  listen: 127.0.0.1:0
  upstreams: { none: 127.0.0.1:9 }
  routes: { all: { upstream: none, policy: p } }
";

/// A server with every metric in use.
fn used() -> Server {
    let home = Home::with(WITH_GATEWAY);
    let server = home.start();
    server.check(&json!({ "policy": "t" })).ok();
    server.post("/api/v1/acquire", &attempt("soon", "ada")).ok();
    for _ in 0..5 {
        server.gateway().ask("GET", "/", &[], None);
    }
    server
}

#[test]
fn every_histogram_has_all_it_counted_in_its_last_bucket() {
    let server = used();
    wait_until("requests at the gateway to be counted", || {
        scrape(&server).contains_key("tollgate_gateway_request_duration_seconds_count{route=\"all\"}")
    });
    for accept in ["text/plain", "application/openmetrics-text"] {
        let page = page(&server, accept);
        let mut histograms = 0;
        for line in page.text().lines().filter(|line| !line.starts_with('#')) {
            let (series, count) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let Some(name) = name.strip_suffix("_count") else { continue };
            let labels = labels.strip_suffix('}').unwrap();
            let comma = if labels.is_empty() { "" } else { "," };
            let endings = [format!("{labels}{comma}le=\"+Inf\""), format!("le=\"+Inf\"{comma}{labels}")];
            let last = endings.map(|labels| format!("{name}_bucket{{{labels}}} {count}"));
            assert!(
                page.text().lines().any(|line| last.iter().any(|last| line == last)),
                "{last:?} is missing from {}",
                page.text()
            );
            histograms += 1;
        }
        assert!(histograms >= 4, "{histograms} histograms in {}", page.text());
    }
}

#[test]
fn the_text_format_passes_the_check_of_prometheus() {
    let server = used();
    for accept in ["text/plain;version=0.0.4", "*/*"] {
        check_page(&page(&server, accept));
    }
}

/// Has Prometheus' own tool check a page.
fn check_page(page: &Reply) {
    assert_eq!(page.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is there: `./test` installs it");
    promtool.stdin.take().unwrap().write_all(&page.body).unwrap();
    let checked = promtool.wait_with_output().unwrap();
    let said = [checked.stdout, checked.stderr].concat();
    assert!(checked.status.success() && said.is_empty(), "{}", text(&said));
}

#[test]
fn metrics_of_a_shared_store_guards_and_lists_pass_the_check_of_prometheus() {
    let redis = Redis::redis().start();
    let home = Home::with(&format!(
        "store: {}
rules: {{ user: {{ by: user, limits: 1/day }}, login: {{ by: user, limits: ladder 1 lock 15m, secret: false }} }}
policies: {{ p: [user], login: [login] }}
guards: {{ login: {{ policy: login }} }}
blocklist: [user=mallory]
",
        redis.url()
    ));
    let server = home.start();
    let login = json!({ "fields": { "user": "ada" } });
    let begun = server.post("/api/v1/guards/login/begin", &login).ok();
    let ended = json!({ "ticket": begun["ticket"], "outcome": "failure" });
    server.post("/api/v1/guards/finish", &ended).ok();
    assert_eq!(server.post("/api/v1/guards/login/begin", &login).status, 429);
    assert_eq!(server.check(&attempt("p", "mallory")).status, 403);
    server.check(&attempt("p", "ada")).ok();
    redis.pause();
    wait_until("the store is down", || server.check(&attempt("p", "ada")).json()["origin"] != "store");
    let page = page(&server, "text/plain;version=0.0.4");
    redis.resume();
    for name in ["tollgate_degraded_", "tollgate_guard", "tollgate_records_missing_total"] {
        assert!(page.text().contains(name), "{name} is missing from {}", page.text());
    }
    check_page(&page);
}

#[test]
fn a_ratio_is_shown_as_people_write_it() {
    let server = used();
    let line = "tollgate_usage_ratio{rule=\"tenth\"} 0.1";
    let page = page(&server, "text/plain");
    assert!(page.text().lines().any(|shown| shown == line), "{}", page.text());
}

#[test]
fn the_process_tells_of_itself() {
    let server = used();
    let shown = scrape(&server);
    let value = |name: &str| *shown.get(name).unwrap_or_else(|| panic!("{name} is missing: {shown:#?}"));
    assert!(value("process_cpu_seconds_total") >= 0.0);
    let memory = server.memory() as f64;
    let resident = value("process_resident_memory_bytes");
    assert!((memory / 2.0..memory * 2.0).contains(&resident), "{resident} of {memory}");
    assert!(value("process_virtual_memory_bytes") > resident);
    let open = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count() as f64;
    assert!((value("process_open_fds") - open).abs() < 10.0, "{open} are open");
    assert!(value("process_max_fds") > value("process_open_fds"));
    let started = std::fs::metadata(format!("/proc/{}", server.pid())).unwrap().modified().unwrap();
    let started = started.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    assert!((value("process_start_time_seconds") - started).abs() < 10.0, "it started at {started}");
}
