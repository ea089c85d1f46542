//! The guides to metrics are true: a real Prometheus scrapes a real server as they say, and their queries return data.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::BTreeSet;

use crate::pages::Page;
use crate::program::{self, Home};
use crate::prometheus::Prometheus;
use crate::server::root;
use serde_json::{Value, json};

const TOKEN: &str = "a-token-of-a-reader";
const ADMIN: &str = "a-token-of-the-admin";

/// A server with the keys of the page, whose shared limit is nearly used up, and that has denied attempts.
fn busy(page: &Page) -> (Home, program::Server) {
    let shown = page
        .blocks()
        .into_iter()
        .find(|block| block.is_config() && block.text.contains("keys: [{ name: prometheus"));
    let config =
        shown.unwrap().text.replace("keys: [", "keys: [{ name: ops, role: admin, token_env: ADMIN }, ");
    let home = Home::with(&format!(
        "{config}rules: {{ client: {{ by: ip, limits: 5/hour }}, all: {{ limits: 10/hour }} }}\n\
         policies: {{ api: [client, all] }}\n"
    ));
    let home = home.variable("TOLLGATE_READ_TOKEN", TOKEN).variable("ADMIN", ADMIN);
    let server = home.start();
    for (ip, cost, status) in [("192.0.2.7", 5, 200), ("192.0.2.7", 1, 429), ("192.0.2.8", 4, 200)] {
        let body = json!({ "policy": "api", "fields": { "ip": ip }, "cost": cost });
        assert_eq!(server.ask_as(ADMIN, "POST", "/api/v1/check", Some(&body)).status, status);
    }
    (home, server)
}

#[test]
fn the_queries_of_the_guides_return_data() {
    let running = Page::at("docs/guides/running.md");
    let (home, server) = busy(&running);
    let fragment =
        running.blocks().into_iter().find(|block| block.language == "yaml" && block.fragment).unwrap();
    std::fs::write(home.path("token"), TOKEN).unwrap();
    let (file, target) = ("/etc/prometheus/tollgate-token", "tollgate.internal:8080");
    assert!(fragment.text.contains(file) && fragment.text.contains(target), "{}", fragment.text);
    let scrape = fragment.text.replace(file, home.path("token").to_str().unwrap());
    let prometheus = Prometheus::start(&scrape.replace(target, &server.address.to_string()), None);
    prometheus.wait_for_data("up{job=\"tollgate\"} == 1");
    let mut found = 0;
    for page in [running, Page::at("docs/guides/monitoring.md")] {
        let blocks = page.blocks().into_iter().filter(|block| block.language == "promql");
        let lines: Vec<String> =
            blocks.flat_map(|block| block.text.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
        for query in lines.iter().filter(|line| !line.starts_with('#')) {
            prometheus.query(query);
            // A threshold leaves out what is below it: this server saves its counters.
            let measured =
                if query.contains("flush_errors") { query.split(" > ").next().unwrap() } else { query };
            prometheus.wait_for_data(measured);
            found += 1;
        }
    }
    assert_eq!(found, 5);
    server.stop();
}

fn yaml(path: &str) -> Value {
    serde_saphyr::from_str(&std::fs::read_to_string(root().join(path)).unwrap()).unwrap()
}

/// The rules of all groups in a file for Prometheus.
fn rules(path: &str) -> Vec<Value> {
    let file = yaml(path);
    let groups = file["groups"].as_array().unwrap().iter();
    groups.flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

#[test]
fn the_tables_of_the_guide_have_every_alert_and_every_recorded_name() {
    let page = Page::at("docs/guides/monitoring.md");
    let rows: Vec<Vec<&str>> = page
        .text
        .lines()
        .filter(|line| line.starts_with("| "))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let written: BTreeSet<(String, String)> = rows
        .iter()
        .filter(|row| row[0].starts_with("Tollgate"))
        .map(|row| (row[0].to_owned(), row[2].to_owned()))
        .collect();
    let real: BTreeSet<(String, String)> = rules("monitoring/tollgate-alerts.yaml")
        .iter()
        .map(|rule| (&rule["alert"], &rule["labels"]["severity"]))
        .map(|(name, severity)| (name.as_str().unwrap().to_owned(), severity.as_str().unwrap().to_owned()))
        .collect();
    assert_eq!(written, real);
    // The buckets stand for the histogram, and `up` has its job.
    let named: BTreeSet<&str> = rows
        .iter()
        .filter(|row| row[0].starts_with('`'))
        .flat_map(|row| row[0].split('`').skip(1).step_by(2))
        .map(|name| name.split('{').next().unwrap())
        .collect();
    let recorded = rules("monitoring/names.rules.yaml");
    let recorded: BTreeSet<&str> = recorded
        .iter()
        .map(|rule| rule["record"].as_str().unwrap())
        .filter(|name| !name.ends_with("_seconds_count") && !name.ends_with("_seconds_sum"))
        .collect();
    assert_eq!(named, recorded);
}
