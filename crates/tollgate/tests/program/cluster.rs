//! Policies whose rules are in different slots of a Cluster are weaker than all or nothing. The program says
//! so when a configuration is checked, at the start, and at a reload. No Cluster is needed for that.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::program::{Home, text};
use serde_json::{Value, json};

/// No server listens on this port.
const STORE: &str = "{ redis: 'redis+cluster://127.0.0.1:1', connect_timeout: 100ms }";

const WARNING: &str = "the rules of these policies are in different slots of the Cluster, which is weaker than all or nothing: give each policy a `hash_tag`";

fn config(store: &str, policies: &str) -> String {
    format!(
        "store: {store}
log: {{ format: json }}
rules: {{ a: {{ limits: 5/s }}, b: {{ limits: 5/s }}, c: {{ limits: 5/s, enabled: false }} }}
policies: {{ {policies} }}
"
    )
}

const PIECES: &str = "apart: [a, b], alone: [a], off: [a, c]";
const WHOLE: &str = "apart: { rules: [a, b], hash_tag: t }, alone: { rules: [a], hash_tag: t }";

fn checked(store: &str, policies: &str) -> (String, Value) {
    let home = Home::with(&config(store, policies));
    let run = |arguments: &[&str]| {
        let output = home
            .program()
            .args(["check-config", "--config", "tollgate.yaml"])
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).to_owned()
    };
    (run(&[]), serde_json::from_str(&run(&["--json"])).unwrap())
}

#[test]
fn a_checked_configuration_names_the_policies_whose_rules_lie_apart() {
    let (words, report) = checked(STORE, PIECES);
    let expected = "
warning: policy apart: the rules a, b are in different slots of the Cluster, which is weaker than all or nothing: no limit is exceeded, but concurrent attempts may deny each other
  remedy: write `apart: { rules: [a, b], hash_tag: apart }`; policies that share a rule have the same tag
";
    assert!(words.ends_with(expected), "{words}");
    let apart: Vec<_> =
        report["policies"].as_array().unwrap().iter().map(|policy| &policy["rules_apart"]).collect();
    assert_eq!(apart, [true, false, false]);
    assert_eq!(report["warnings"][0]["policy"], "apart");
    assert_eq!(report["warnings"].as_array().unwrap().len(), 1);
}

#[test]
fn a_common_tag_or_another_store_keeps_rules_together() {
    for (store, policies) in [(STORE, WHOLE), ("redis://127.0.0.1:1", PIECES), ("memory", PIECES)] {
        let (words, report) = checked(store, policies);
        assert!(!words.contains("are in different slots"), "{words}");
        assert_eq!(report["warnings"], json!([]));
    }
}

#[test]
fn the_remedy_is_one() {
    let (_, report) = checked(STORE, "apart: [a, b]");
    let remedy = report["warnings"][0]["remedy"].as_str().unwrap();
    let policy = remedy.split('`').nth(1).unwrap();
    assert_eq!(checked(STORE, policy).1["warnings"], json!([]));
}

#[test]
fn a_server_warns_at_its_start_and_when_it_reloads() {
    let home = Home::with(&config(STORE, "alone: [a]"));
    let server = home.start();
    assert!(!server.log().contains("are in different slots"), "{}", server.log());
    home.configure(&config(STORE, PIECES));
    server.wait_for_log(WARNING);
    server.stop();
    let server = home.start();
    server.wait_for_log(WARNING);
    let log = server.stop();
    let lines: Vec<Value> = log
        .lines()
        .filter(|line| line.contains("are in different slots"))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 1, "{log}");
    assert_eq!((&lines[0]["level"], &lines[0]["policies"]), (&json!("warn"), &json!("apart")));
}

#[test]
fn a_tag_that_needs_a_restart_does_not_count_before_it() {
    let home = Home::with(&config(STORE, "alone: [a]"));
    let server = home.start();
    home.configure(&config(STORE, WHOLE));
    server.wait_for_log(WARNING);
    server.stop();
    let server = home.start();
    let log = server.stop();
    assert!(!log.contains("are in different slots"), "{log}");
}
