//! Reloading: changed rules are in force within a second and counters stay, or nothing changes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use crate::program::{Home, Server, Signal, now, pause, wait_until};
use serde_json::{Value, json};

fn config(limit: &str, more: &str) -> String {
    format!(
        "store: memory
log: {{ format: json }}
rules: {{ one: {{ by: user, limits: {limit} }}{more} }}
policies: {{ p: [one] }}
"
    )
}

const BROKEN: &str = "rules: { one: { by: user, limits: 5/fortnight } }\npolicies: { p: [one, two] }\n";

fn take(server: &Server) -> u16 {
    server.check(&json!({ "policy": "p", "fields": { "user": "ada" } })).status
}

fn limit(server: &Server) -> Value {
    server.get("/api/v1/counters/one/ada").ok()["limits"][0]["limit"].clone()
}

/// A server that has counted two of three.
fn started(home: &Home) -> Server {
    let server = home.start();
    assert_eq!([take(&server), take(&server)], [200, 200]);
    server
}

/// Checks that the limit is this one within a second, and that the counts are kept.
fn follows(server: &Server, expected: &str, remaining: u64) {
    let begun = now();
    wait_until(expected, || limit(server) == expected);
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!(server.remaining("one", "ada"), remaining);
}

fn reloads(server: &Server) -> usize {
    server.log().matches("reloaded").count()
}

#[test]
fn a_file_that_is_written_in_place_is_followed() {
    let home = Home::with(&config("3/day", ""));
    let server = started(&home);
    home.configure(&config("10/day", ""));
    follows(&server, "10/day", 8);
    home.configure(&config("2/day", ""));
    follows(&server, "2/day", 0);
    assert_eq!(take(&server), 429);
}

#[test]
fn a_file_that_is_replaced_is_followed_again_and_again() {
    let home = Home::with(&config("3/day", ""));
    let server = started(&home);
    for number in [10_u64, 20, 30] {
        std::fs::write(home.path("draft"), config(&format!("{number}/day"), "")).unwrap();
        std::fs::rename(home.path("draft"), home.path("tollgate.yaml")).unwrap();
        follows(&server, &format!("{number}/day"), number - 2);
    }
}

#[test]
fn a_file_behind_a_link_is_followed_when_a_link_on_the_way_is_replaced() {
    let home = Home::empty();
    for (version, limit) in [("v1", "3/day"), ("v2", "10/day")] {
        std::fs::create_dir(home.path(version)).unwrap();
        std::fs::write(home.path(version).join("tollgate.yaml"), config(limit, "")).unwrap();
    }
    let link = std::os::unix::fs::symlink::<&str, std::path::PathBuf>;
    link("v1", home.path("current")).unwrap();
    link("current/tollgate.yaml", home.path("tollgate.yaml")).unwrap();
    let server = started(&home);
    link("v2", home.path("next")).unwrap();
    std::fs::rename(home.path("next"), home.path("current")).unwrap();
    follows(&server, "10/day", 8);
}

#[test]
fn a_directory_that_is_replaced_is_followed_again_and_again() {
    let home = Home::empty().variable("TOLLGATE_CONFIG", "etc/conf/tollgate.yaml");
    let put = |directory: &str, limit: &str| {
        std::fs::create_dir_all(home.path(directory)).unwrap();
        std::fs::write(home.path(directory).join("tollgate.yaml"), config(limit, "")).unwrap();
    };
    put("etc/conf", "3/day");
    let server = started(&home);
    for number in [10_u64, 20, 30] {
        put("etc/next", &format!("{number}/day"));
        std::fs::rename(home.path("etc/conf"), home.path(&format!("etc/before-{number}"))).unwrap();
        std::fs::rename(home.path("etc/next"), home.path("etc/conf")).unwrap();
        follows(&server, &format!("{number}/day"), number - 2);
    }
    // The directory above, and then the file in the new directory.
    put("other/conf", "40/day");
    std::fs::rename(home.path("etc"), home.path("gone")).unwrap();
    std::fs::rename(home.path("other"), home.path("etc")).unwrap();
    follows(&server, "40/day", 38);
    put("etc/conf", "50/day");
    follows(&server, "50/day", 48);
    std::fs::remove_dir_all(home.path("etc")).unwrap();
    put("etc/conf", "60/day");
    follows(&server, "60/day", 58);
}

#[test]
fn a_mounted_config_map_is_followed_again_and_again() {
    // As the kubelet does it: the file is a link through `..data`, which is replaced by a rename.
    let home = Home::empty().variable("TOLLGATE_CONFIG", "conf/tollgate.yaml");
    let link = |to: &str, at: &str| std::os::unix::fs::symlink(to, home.path(at)).unwrap();
    let put = |version: &str, limit: &str| {
        std::fs::create_dir_all(home.path("conf").join(version)).unwrap();
        let file = home.path("conf").join(version).join("tollgate.yaml");
        std::fs::write(file, config(limit, "")).unwrap();
    };
    put("..1", "3/day");
    link("..1", "conf/..data");
    link("..data/tollgate.yaml", "conf/tollgate.yaml");
    let server = started(&home);
    let mut before = "..1".to_owned();
    for number in [10_u64, 20, 30, 40] {
        let version = format!("..{number}");
        put(&version, &format!("{number}/day"));
        link(&version, "conf/..data_tmp");
        std::fs::rename(home.path("conf/..data_tmp"), home.path("conf/..data")).unwrap();
        std::fs::remove_dir_all(home.path("conf").join(&before)).unwrap();
        follows(&server, &format!("{number}/day"), number - 2);
        before = version;
    }
}

/// How many reloads there were, by their result.
fn counted(server: &Server) -> [u64; 2] {
    let metrics = server.get("/metrics");
    ["ok", "failed"].map(|result| {
        let series = format!("tollgate_config_reloads_total{{result=\"{result}\"}} ");
        let value = metrics.text().lines().find_map(|line| line.strip_prefix(&series));
        value.unwrap_or_else(|| panic!("{}", metrics.text())).parse().unwrap()
    })
}

#[test]
fn reloads_are_counted_by_their_result() {
    let home = Home::with(&config("3/day", ""));
    let server = started(&home);
    assert_eq!(counted(&server), [0, 0]);
    server.post("/api/v1/reload", &json!({})).ok();
    assert_eq!(counted(&server), [1, 0]);
    home.configure(BROKEN);
    wait_until("the file is noticed", || counted(&server) == [1, 1]);
    assert_eq!(server.post("/api/v1/reload", &json!({})).status, 422);
    assert_eq!(counted(&server), [1, 2]);
    server.signal(Signal::HUP);
    wait_until("the signal is handled", || counted(&server) == [1, 3]);
    home.configure(&config("10/day", ""));
    wait_until("the mended file is noticed", || counted(&server) == [2, 3]);
}

#[test]
fn a_burst_of_hangups_causes_few_reloads_and_ends_with_the_newest_file() {
    let home = Home::with(&config("3/day", ""));
    let server = started(&home);
    let begun = now();
    for number in 1..=100 {
        if number % 10 == 0 {
            std::fs::write(home.path("draft"), config(&format!("{number}/day"), "")).unwrap();
            std::fs::rename(home.path("draft"), home.path("tollgate.yaml")).unwrap();
        }
        server.signal(Signal::HUP);
        pause(Duration::from_millis(1));
    }
    wait_until("the last state of the file", || limit(&server) == "100/day");
    wait_until("quiet", || {
        let before = counted(&server);
        pause(Duration::from_millis(300));
        counted(&server) == before
    });
    // Each reload collects the changes of a tenth of a second.
    let most = u64::try_from(begun.elapsed().as_millis()).unwrap() / 100 + 1;
    let [done, failed] = counted(&server);
    assert!(done <= most && failed == 0, "{done} reloads, {failed} failed; at most {most} fit");
    assert_eq!(limit(&server), "100/day");
}

#[test]
fn a_hangup_and_a_request_reload_too() {
    let home = Home::with(&config("3/day", "")).variable("TOLLGATE__RULES__ONE__ENABLED", "true");
    let server = started(&home);
    server.signal(Signal::HUP);
    server.wait_for_log("reloaded");
    assert_eq!(server.remaining("one", "ada"), 1);
    assert_eq!(
        server.post("/api/v1/reload", &json!({})).ok(),
        json!({ "reloaded": true, "needs_restart": [] })
    );
    home.configure(&config("10/day", ""));
    server.post("/api/v1/reload", &json!({})).ok();
    follows(&server, "10/day", 8);
}

#[test]
fn a_broken_file_changes_nothing_and_is_reported() {
    let home = Home::with(&config("3/day", ""));
    let server = started(&home);
    home.configure(BROKEN);
    server.wait_for_log("the old one stays in force");
    let log = server.log();
    let line: Value = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .find(|line: &Value| line["level"] == "error")
        .unwrap();
    let error = line["error"].as_str().unwrap();
    assert!(error.contains("tollgate.yaml:1:") && error.contains("5/fortnight"), "{error}");
    let refused = server.post("/api/v1/reload", &json!({}));
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    let detail = refused.json()["detail"].to_string();
    assert!(detail.contains("fortnight") && detail.contains("two"), "every problem is told: {detail}");
    server.signal(Signal::HUP);
    wait_until("the hangup", || server.log().matches("the old one stays in force").count() >= 2);
    assert_eq!(limit(&server), "3/day");
    assert_eq!([take(&server), take(&server)], [200, 429], "all or nothing");
    home.configure(&config("10/day", ""));
    follows(&server, "10/day", 7);
}

#[test]
fn a_file_that_ends_before_its_policies_changes_nothing() {
    let home = Home::with(&config("3/day", ""));
    let server = started(&home);
    let whole = config("10/day", "");
    home.configure(&whole[..whole.find("policies:").unwrap()]);
    server.wait_for_log("the old one stays in force");
    assert_eq!(limit(&server), "3/day");
    let refused = server.post("/api/v1/reload", &json!({}));
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert!(refused.text().contains("there are no policies left"), "{}", refused.text());
    home.configure("enabled: false");
    server.wait_for_log("reloaded");
    assert_eq!([take(&server), take(&server), take(&server)], [200; 3], "that is no accident");
}

#[test]
fn a_file_that_is_touched_emptied_or_gone_for_a_moment_is_no_news() {
    let home = Home::with(&config("3/day", ""));
    let server = started(&home);
    home.configure(&config("3/day", ""));
    home.configure("");
    pause(Duration::from_millis(300));
    std::fs::remove_file(home.path("tollgate.yaml")).unwrap();
    pause(Duration::from_millis(300));
    assert_eq!(limit(&server), "3/day");
    home.configure(&config("3/day", ""));
    pause(Duration::from_millis(300));
    assert_eq!((reloads(&server), server.log().contains("stays in force")), (0, false), "{}", server.log());
    home.configure(&config("4/day", ""));
    follows(&server, "4/day", 2);
    wait_until("the line about it", || reloads(&server) > 0);
    assert_eq!(reloads(&server), 1);
}

#[test]
fn a_reload_keeps_overrides_set_at_run_time() {
    let home = Home::with(&config("3/day", ""));
    let server = started(&home);
    server.ask("PUT", "/api/v1/counters/one/bob", Some(&json!({ "limits": ["7/day"] }))).ok();
    home.configure(&config("10/day", ""));
    follows(&server, "10/day", 8);
    assert_eq!(server.remaining("one", "bob"), 7);
    home.configure(&config("10/day", ", two: { limits: 5/day }").replace("[one]", "[one, two]"));
    wait_until("the second rule", || server.get("/api/v1/counters/two/two").status == 200);
    take(&server);
    assert_eq!(server.remaining("two", "two"), 4);
}

#[test]
fn a_setting_that_needs_a_restart_is_named() {
    let home = Home::with(&config("3/day", ""));
    let server = started(&home);
    home.configure(&config("10/day", "").replace("store: memory", "store: { file: ./state.redb }"));
    follows(&server, "10/day", 8);
    let log = server.stop();
    let line = log.lines().find(|line| line.contains("needs a restart")).unwrap_or_else(|| panic!("{log}"));
    assert_eq!(serde_json::from_str::<Value>(line).unwrap()["setting"], "store");
}
