//! The monitoring files are true: the alerts are valid and fire when they should, the names of other systems return
//! data, and all of them use only existing metrics and labels.
#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use crate::server::{Server, root};
use serde_json::{Value, json};

fn file(name: &str) -> PathBuf {
    root().join("monitoring").join(name)
}

fn promtool(arguments: &[&str]) {
    let output = Command::new("promtool").args(arguments).current_dir(root().join("monitoring")).output();
    let output = output.expect("promtool is there: `./test` installs it");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&said));
}

#[test]
fn the_alerts_are_valid() {
    promtool(&["check", "rules", "tollgate-alerts.yaml"]);
}

/// Every query, alert and sample that the five systems document, in the order of their documents, with the names that
/// Prometheus gives to Micrometer's counters.
const DOCUMENTED: [&str; 15] = [
    "rate(sendry_ratelimit_denied_total[5m])",
    "sendry_ratelimit_usage_ratio{level=\"global\"}",
    "gmp_rate_limited_total{account_id=\"primary-smtp\"}",
    "gmp_deferred_total{account_id=\"primary-smtp\"}",
    "rate(gmp_rate_limited_total[1m])",
    "rate(gmp_rate_limited_total[5m]) / rate(gmp_sent_total[5m]) * 100",
    "rate(ratelimit_requests_total[5m])",
    "rate(ratelimit_auth_failures_total[1m]) * 60 > 50",
    "rate(ratelimit_auth_lockouts_total[1m]) * 60 > 10",
    "rate(ratelimit_requests_limited_total[5m]) / rate(ratelimit_requests_total[5m]) > 0.05",
    "rate(gateway_request_total{status=\"429\"}[5m])",
    "rate(gateway_request_total{status=\"429\", route_path=\"/api/orders\"}[5m]) / rate(gateway_request_total{route_path=\"/api/orders\"}[5m])",
    "rate(smtp_rate_limit_rejections_total[1m])",
    "histogram_quantile(0.99, rate(valkey_check_duration_seconds_bucket[5m]))",
    "up{job=\"valkey\"}",
];

#[test]
fn the_documented_queries_of_other_systems_return_data() {
    promtool(&["check", "rules", "names.rules.yaml"]);
    promtool(&["test", "rules", "names.test.yaml"]);
    let tests = std::fs::read_to_string(file("names.test.yaml")).unwrap();
    let tests = tests.split_whitespace().collect::<Vec<_>>().join(" ");
    for query in DOCUMENTED {
        let tested = tests.split("- expr: ").any(|test| {
            let (expr, rest) = test.split_once(" eval_time: ").unwrap_or_default();
            expr.trim_start_matches(">- ") == query && rest.contains("value: ")
        });
        assert!(tested, "no test shows data for {query}");
    }
}

#[test]
fn each_alert_fires_when_it_should_and_only_then() {
    promtool(&["test", "rules", "tollgate-alerts.test.yaml"]);
    let alerts = std::fs::read_to_string(file("tollgate-alerts.yaml")).unwrap();
    let tests = std::fs::read_to_string(file("tollgate-alerts.test.yaml")).unwrap();
    let names = alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let mut found = 0;
    for name in names {
        let fires =
            tests.contains(&format!("alertname: {name}\n        exp_alerts:\n          - exp_labels"));
        let rests = tests.contains(&format!("alertname: {name}, exp_alerts: []"));
        assert!(fires && rests, "{name} is shown to fire: {fires}, and not to: {rests}");
        found += 1;
    }
    assert!(found >= 3, "{found} alerts");
}

/// The metrics in a text, each with its labels.
fn named(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut metrics: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for rest in text.split("tollgate_").skip(1) {
        let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(rest.len());
        let (name, rest) = rest.split_at(end);
        let labels = metrics.entry(format!("tollgate_{name}")).or_default();
        if let Some(chosen) = rest.strip_prefix('{').and_then(|rest| rest.split('}').next()) {
            let choices = chosen.split(',').map(|choice| choice.split(['=', '!']).next().unwrap().trim());
            labels.extend(choices.map(ToOwned::to_owned));
        }
    }
    metrics
}

/// The reference's text about each metric.
fn reference() -> BTreeMap<String, String> {
    let page = std::fs::read_to_string(root().join("docs/reference/metrics.md")).unwrap();
    let entry = |start: &str| {
        let names = start.split('`').filter(|piece| piece.starts_with("tollgate_")).map(ToOwned::to_owned);
        names.map(|name| (name, start.to_owned())).collect::<Vec<_>>()
    };
    let lines = page.replace("\n  ", " ");
    lines.lines().filter(|line| line.starts_with("| `") || line.starts_with("- `")).flat_map(entry).collect()
}

/// The metric of the reference for a name in a query: histograms have several names.
fn known<'r>(reference: &'r BTreeMap<String, String>, name: &str) -> Option<&'r String> {
    let histogram = ["_bucket", "_count", "_sum"].iter().find_map(|end| name.strip_suffix(end));
    reference.get(name).or_else(|| reference.get(histogram?))
}

fn dashboard() -> Value {
    serde_json::from_str(&std::fs::read_to_string(file("grafana-tollgate.json")).unwrap()).unwrap()
}

/// Every query of the dashboard.
fn queries() -> Vec<String> {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let mut queries: Vec<String> = targets.map(|one| one["expr"].as_str().unwrap().to_owned()).collect();
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
    queries.extend(variables.filter_map(|one| one["definition"].as_str().map(ToOwned::to_owned)));
    assert!(queries.len() > 20, "only {} queries were found", queries.len());
    queries
}

#[test]
fn alerts_and_dashboard_speak_only_of_metrics_and_labels_that_the_reference_has() {
    let reference = reference();
    assert!(reference.len() > 25, "only {} metrics were found", reference.len());
    let alerts = ["tollgate-alerts.yaml", "tollgate-alerts.test.yaml", "names.rules.yaml", "names.test.yaml"];
    let alerts = alerts.map(|name| {
        let text = std::fs::read_to_string(file(name)).unwrap();
        // Prose and file names are not queries.
        let queries = text.lines().filter(|line| {
            !line.contains("tollgate-alerts") && !line.contains('`') && !line.trim().starts_with('#')
        });
        queries.collect::<Vec<_>>().join("\n")
    });
    let text = alerts.into_iter().chain(queries()).collect::<Vec<_>>().join("\n");
    // Labels that Prometheus adds to everything, and those of histograms.
    let everywhere = ["job", "instance", "le"];
    let named = named(&text);
    assert!(named.len() > 15, "only {named:?} are named");
    // Without guards in the reference, their metrics cannot be checked.
    let guards = reference.keys().any(|name| name.starts_with("tollgate_guard_"));
    for (name, labels) in named.into_iter().filter(|(name, _)| guards || !name.starts_with("tollgate_guard_"))
    {
        let told = known(&reference, &name).unwrap_or_else(|| panic!("{name} is not in the reference"));
        for label in labels.iter().filter(|label| !everywhere.contains(&label.as_str())) {
            assert!(told.contains(&format!("`{label}`")), "{name} has no label {label}: {told}");
        }
    }
}

#[test]
fn the_metrics_of_decisions_and_of_waiting_are_shown_by_a_server_under_the_names_that_are_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("{{ file: {} }}", directory.path().join("t.redb").display());
    let example = root().join("examples/outbound-telegram.yaml");
    let server = Server::start(Some(&example), &[("TOLLGATE__STORE", &store)]);
    let body = json!({ "policy": "telegram", "fields": { "chat": "a" } });
    assert_eq!(server.post("/api/v1/acquire", &body).0, 200);
    let page = server.metrics();
    let shown: BTreeSet<&str> = page
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split(['{', ' ']).next().unwrap())
        .collect();
    // These need a relay, a gateway, a shared store, guards, or rules without a key and bans.
    let elsewhere = ["relay", "gateway", "guard", "store_up", "store_call", "degraded", "bans"];
    let alerts = std::fs::read_to_string(file("tollgate-alerts.yaml")).unwrap();
    let alerts: String = alerts.lines().filter(|line| !line.contains('`')).collect::<Vec<_>>().join("\n");
    let mut found = 0;
    for name in named(&[vec![alerts], queries()].concat().join("\n")).into_keys() {
        if elsewhere.iter().any(|part| name.starts_with(&format!("tollgate_{part}"))) {
            continue;
        }
        assert!(shown.contains(name.as_str()), "{name} is not shown among {shown:?}");
        found += 1;
    }
    assert!(found >= 8, "only {found} were looked for");
}

#[test]
fn every_panel_of_the_dashboard_has_a_place_and_a_query_of_its_own() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len());
    let mut places = BTreeSet::new();
    for panel in panels {
        let place = &panel["gridPos"];
        assert!(places.insert((place["x"].as_u64(), place["y"].as_u64())), "two at {place}");
        assert!(place["x"].as_u64().unwrap() + place["w"].as_u64().unwrap() <= 24, "{place}");
        assert_eq!(panel["type"] == "row", panel["targets"].is_null(), "{}", panel["title"]);
    }
}
