//! What the program does while Redis works only partly, or reports why it does not: all other attempts are
//! decided by the store, and the log and `/readyz` name the cause.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use crate::nodes::{
    HASTY, PATIENT, STEADY, attempt, comes_back, home, metric, origin, readiness, store_lines,
};
use crate::program::{self, Server, now, pause, wait_until};
use serde_json::{Value, json};
use tollgate_testbed::{ClusterOptions, Flavour, Proxy, Server as Redis, Wire};

const RULES: [(&str, &str); 2] =
    [("window", "by: user, limits: 1000/day"), ("sliding", "by: user, limits: 1000/day sliding")];

/// The body of `/readyz`.
fn ready(server: &Server) -> Value {
    server.get("/readyz").ok()
}

/// Waits until `/readyz` names a cause with these words.
fn wait_for_cause(server: &Server, reason: &str, words: &str) {
    wait_until(words, || {
        let ready = ready(server);
        ready["reason"] == reason && ready["cause"].as_str().is_some_and(|cause| cause.contains(words))
    });
}

fn decide(server: &Server, policy: &str, user: &str) -> (String, Option<String>) {
    origin(&server.check(&attempt(policy, user)))
}

fn order(redis: &Redis, words: &[&str]) {
    let _ = redis.command(words).ok();
}

#[test]
fn a_full_server_is_called_full_and_can_still_be_looked_at_and_reset() {
    let redis = Redis::redis().max_memory("0", "noeviction").start();
    let home = home(&redis.url(), PATIENT, &RULES);
    let server = home.start();
    for (policy, _) in RULES {
        assert_eq!(decide(&server, policy, "ada"), ("store".into(), None));
    }
    order(&redis, &["CONFIG", "SET", "maxmemory", "1"]);
    for _ in 0..5 {
        for (policy, _) in RULES {
            assert_eq!(decide(&server, policy, "bob"), ("local".into(), Some("full".into())));
        }
    }
    wait_for_cause(&server, "full", "maxmemory");
    for (policy, _) in RULES {
        assert_eq!(server.remaining(policy, "ada"), 999, "{policy}: it can be looked at");
        let reset = server.ask("DELETE", &format!("/api/v1/counters/{policy}/ada"), None);
        assert_eq!(reset.status, 200, "{}", reset.text());
        assert_eq!(server.remaining(policy, "ada"), 1000, "{policy}: it was reset");
    }
    order(&redis, &["CONFIG", "SET", "maxmemory", "0"]);
    wait_until("it is ready", || readiness(&server) == "ready");
    assert_eq!(decide(&server, "window", "bob"), ("store".into(), None));
    let lines = store_lines(&server.log());
    let levels: Vec<&str> = lines.iter().map(|(level, _)| level.as_str()).collect();
    assert_eq!(levels, ["warn", "info"], "{lines:?}");
}

#[test]
fn a_forbidden_command_stops_only_what_needs_it_and_charges_nothing() {
    let redis = Redis::redis().users("user default off\nuser limiter on >secret ~* &* +@all").start();
    let home = home(&redis.url_as("limiter", "secret"), PATIENT, &RULES);
    let server = home.start();
    for command in ["rpush", "pexpire"] {
        let user = format!("ada-{command}");
        order(&redis, &["ACL", "SETUSER", "limiter", &format!("-{command}")]);
        for _ in 0..5 {
            assert_eq!(decide(&server, "sliding", &user), ("local".into(), Some("forbidden".into())));
            assert_eq!(decide(&server, "window", &user), ("store".into(), None));
        }
        wait_for_cause(&server, "forbidden", &format!("+{command}"));
        assert_eq!(server.remaining("sliding", &user), 1000, "what was refused was charged");
        assert_eq!(server.remaining("window", &user), 995);
        order(&redis, &["ACL", "SETUSER", "limiter", &format!("+{command}")]);
        wait_until("it is ready", || readiness(&server) == "ready");
        assert_eq!(decide(&server, "sliding", &user), ("store".into(), None));
    }
    // The probe finds it although no attempt does.
    order(&redis, &["ACL", "SETUSER", "limiter", "-hdel"]);
    server.stop();
    let server = home.start();
    wait_for_cause(&server, "forbidden", "+hdel");
    server.wait_for_log("ACL SETUSER limiter +hdel");
}

#[test]
fn errors_of_the_redis_server_are_logged_and_shown() {
    let redis = Redis::redis().start();
    let home = home(&redis.url(), HASTY, &RULES);
    let server = home.start();
    comes_back(&server, "window");
    let mut wire = redis.wire();
    let mut ask = |words: &[&str]| assert!(!wire.command(words).unwrap().is_error());
    ask(&["CONFIG", "SET", "maxclients", "1"]);
    ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    wait_for_cause(&server, "unreachable", "max number of clients reached");
    server.wait_for_log("max number of clients reached");
    ask(&["CONFIG", "SET", "requirepass", "other"]);
    ask(&["CONFIG", "SET", "maxclients", "100"]);
    wait_for_cause(&server, "unreachable", "NOAUTH");
    server.wait_for_log("NOAUTH");
    ask(&["CONFIG", "SET", "requirepass", ""]);
    comes_back(&server, "window");
    wait_until("it is ready", || readiness(&server) == "ready");
    assert_eq!(ready(&server).get("cause"), None);
}

#[test]
fn a_wrong_password_is_named_at_the_start_and_never_repeated() {
    let redis = Redis::redis().password("right").start();
    let url = format!("redis://:hunter2@127.0.0.1:{}", redis.port());
    let home = home(&url, HASTY, &RULES);
    let server = home.start();
    wait_for_cause(&server, "unreachable", "WRONGPASS");
    server.wait_for_log("WRONGPASS");
    assert!(!server.log().contains("hunter2") && !ready(&server).to_string().contains("hunter2"));
}

#[test]
fn a_server_that_loads_its_data_says_so() {
    let mut redis = Redis::redis().append_only().args(["--key-load-delay", "5000"]).start();
    order(&redis, &["CONFIG", "SET", "loading-process-events-interval-bytes", "1024"]);
    order(&redis, &["DEBUG", "POPULATE", "400", "other", "400"]);
    order(&redis, &["BGREWRITEAOF"]);
    wait_until("the log is rewritten", || {
        redis.command(&["INFO", "persistence"]).text().contains("aof_rewrite_in_progress:0")
    });
    let home = home(&redis.url(), HASTY, &RULES);
    let server = home.start();
    comes_back(&server, "window");
    let mut wire: Wire = redis.wire();
    wire.send(&["DEBUG", "LOADAOF"]).unwrap();
    wait_for_cause(&server, "unreachable", "LOADING");
    server.wait_for_log("LOADING");
    drop(wire);
    redis.kill9();
}

#[test]
fn eviction_is_warned_of_at_the_start() {
    let redis = Redis::redis().max_memory("100mb", "allkeys-lru").start();
    let home = home(&redis.url(), PATIENT, &RULES);
    let server = home.start();
    server.wait_for_log("allkeys-lru evicts counters");
    assert_eq!(readiness(&server), "ready", "it is a warning and no outage");
}

#[test]
fn a_store_that_answers_in_time_by_chance_does_not_flap() {
    let redis = Redis::redis().start();
    let proxy = Proxy::to(redis.port());
    let home = home(&proxy.url(), "command_timeout: 50ms, connect_timeout: 1s", &RULES);
    let server = home.start();
    comes_back(&server, "window");
    let (start, mut connection, mut step) = (now(), server.connect(), 0_u64);
    while start.elapsed() < Duration::from_secs(15) {
        // Delays from 0 to 100 ms for a round trip, in random order.
        step = step.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        proxy.delay(Duration::from_millis((step >> 33) % 50));
        let _ = connection.ask("POST", "/api/v1/check", &[], Some(&attempt("window", "ada")));
        pause(Duration::from_millis(5));
    }
    let (lines, lasted) = (store_lines(&server.log()), start.elapsed());
    println!("{} turns in {lasted:?}", lines.len());
    assert!(!lines.is_empty(), "the delays did nothing");
    assert!(lines.len() as u64 <= 3 + lasted.as_secs() / 5, "{} turns: {lines:?}", lines.len());
}

#[test]
fn deleting_all_counters_by_hand_deletes_no_record() {
    let redis = Redis::redis().start();
    let home = home(&redis.url(), PATIENT, &RULES);
    let server = home.start();
    let set = server.ask("PUT", "/api/v1/counters/window/ada", Some(&json!({ "limits": "7/day" })));
    assert_eq!(set.status, 200, "{}", set.text());
    assert_eq!(decide(&server, "window", "ada").0, "store");
    let keys: Vec<String> =
        redis.command(&["KEYS", "tollgate:*"]).parts().iter().map(|key| key.text()).collect();
    assert!(!keys.is_empty());
    let mut words = vec!["DEL"];
    words.extend(keys.iter().map(String::as_str));
    order(&redis, &words);
    server.stop();
    let server = home.start();
    assert_eq!(server.remaining("window", "ada"), 7, "its own limit is still there");
    let output = home.run(&server, &["reset", "--all", "--yes"]);
    assert!(output.status.success(), "{}", program::text(&output.stderr));
    assert_eq!(server.remaining("window", "ada"), 7, "and after `reset --all`");
    assert_eq!(metric(&server, "tollgate_records_missing_total"), 0.0);
}

#[test]
fn records_that_are_deleted_or_damaged_are_told() {
    let redis = Redis::redis().start();
    let home = home(&redis.url(), PATIENT, &RULES);
    let server = home.start();
    for user in ["ada", "bob"] {
        let path = format!("/api/v1/counters/window/{user}");
        assert_eq!(server.ask("PUT", &path, Some(&json!({ "limits": "7/day" }))).status, 200);
    }
    // Until it has read what it wrote, it does not know what could be missing.
    let looks = || {
        let stats = redis.command(&["INFO", "commandstats"]).text();
        let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_hlen:calls="));
        calls.map_or(0, |calls| calls.split(',').next().unwrap().parse::<u64>().unwrap())
    };
    let before = looks();
    wait_until("it looks at its records", || looks() >= before + 6);
    let missing = || metric(&server, "tollgate_records_missing_total");
    let records = redis.command(&["HKEYS", "tollgate/{config}"]);
    let record = records.parts().iter().map(|name| name.text()).find(|name| name.contains("bob")).unwrap();
    order(&redis, &["HDEL", "tollgate/{config}", &record]);
    wait_until("one that is gone is told", || missing() == 1.0);
    wait_until("what is left is in force", || server.remaining("window", "bob") == 1000);
    assert_eq!(server.remaining("window", "ada"), 7);
    order(&redis, &["DEL", "tollgate/{config}"]);
    wait_until("all that are gone are told", || missing() == 2.0);
    order(&redis, &["DEL", "tollgate/records"]);
    wait_until("a secret that is gone is told", || missing() == 3.0);
    assert_eq!(redis.command(&["HEXISTS", "tollgate/records", "secret"]).text(), "1", "it was put back");
    order(&redis, &["SET", "tollgate/{config}", "not ours"]);
    wait_until("damage is told", || metric(&server, "tollgate_records_damaged_total") == 1.0);
    let lines = store_lines(&server.log());
    let errors = |words: &str| {
        lines.iter().filter(|(level, message)| level == "error" && message.contains(words)).count()
    };
    assert_eq!((errors("are missing"), errors("cannot be read")), (3, 1), "{lines:?}");
}

#[test]
fn where_there_were_no_records_only_the_secret_is_missing() {
    let redis = Redis::redis().start();
    let home = home(&redis.url(), PATIENT, &RULES);
    let server = home.start();
    comes_back(&server, "window");
    let looks = || {
        let stats = redis.command(&["INFO", "commandstats"]).text();
        let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_hlen:calls="));
        calls.map_or(0, |calls| calls.split(',').next().unwrap().parse::<u64>().unwrap())
    };
    let path = "/api/v1/counters/window/ada";
    assert_eq!(server.ask("PUT", path, Some(&json!({ "limits": "7/day" }))).status, 200);
    assert_eq!(server.ask("DELETE", &format!("{path}/override"), None).status, 200);
    let before = looks();
    wait_until("it looks at its records", || looks() >= before + 6);
    order(&redis, &["FLUSHALL"]);
    wait_until("the secret is told", || metric(&server, "tollgate_records_missing_total") >= 1.0);
    let before = looks();
    wait_until("it looks at its records again", || looks() >= before + 6);
    let lines = store_lines(&server.log());
    let missing = lines.iter().filter(|(_, message)| message.contains("are missing"));
    assert_eq!(missing.count(), 1, "{lines:?}");
}

#[test]
fn a_batch_of_a_hundred_costs_a_few_round_trips_and_keeps_its_order() {
    let redis = Redis::redis().start();
    let proxy = Proxy::to(redis.port());
    let rules = [("window", "by: user, limits: 60/day"), ("sliding", "by: user, limits: 60/day sliding")];
    let home = home(&proxy.url(), STEADY, &rules);
    let server = home.start();
    for (policy, _) in rules {
        comes_back(&server, policy);
        let attempts: Vec<Value> = (0..100).map(|_| attempt(policy, "ada")).collect();
        let before = proxy.pieces_sent();
        let reply = server.check(&json!({ "attempts": attempts }));
        let pieces = proxy.pieces_sent() - before;
        let decisions = reply.json();
        let decisions = decisions["decisions"].as_array().unwrap();
        let allowed: Vec<bool> = decisions.iter().map(|one| one["allowed"] == true).collect();
        let expected: Vec<bool> = (0..100).map(|number| number < 60).collect();
        assert_eq!(allowed, expected, "{policy}: the first sixty, in their order");
        println!("{policy}: {pieces} pieces");
        // The node also follows its records meanwhile.
        assert!(pieces <= 12, "{policy}: {pieces} pieces for a hundred attempts");
    }
}

#[test]
fn a_dead_master_of_a_cluster_takes_only_its_own_slots_along() {
    let options = ClusterOptions::masters(3, Flavour::Redis);
    let mut cluster = options.args(["--cluster-require-full-coverage", "no"]).start();
    let home = home(&cluster.url(), HASTY, &RULES);
    let server = home.start();
    comes_back(&server, "window");
    // A node of the Cluster without records, so that only counters are affected.
    let dead = (0..3)
        .find(|number| {
            let keys = cluster.nodes()[*number].server.command(&["KEYS", "tollgate/*"]);
            keys.parts().iter().all(|key| key.text().contains("probe"))
        })
        .unwrap();
    let user_at = |node: usize| {
        let names = (0..1000).map(|number| format!("user-{number}"));
        names
            .into_iter()
            .find(|user| cluster.owner_of(&format!("tollgate:{{window:{user}}}")) == node)
            .unwrap()
    };
    let (there, elsewhere) = (user_at(dead), user_at((dead + 1) % 3));
    cluster.server(dead).kill9();
    wait_until("its slots are decided here", || decide(&server, "window", &there).0 == "local");
    wait_until("the others are well", || decide(&server, "window", &elsewhere).0 == "store");
    wait_for_cause(&server, "unreachable", "these nodes of the Cluster cannot be used");
    let start = now();
    while start.elapsed() < Duration::from_secs(3) {
        assert_eq!(decide(&server, "window", &there).0, "local");
        assert_eq!(decide(&server, "window", &elsewhere), ("store".into(), None));
        pause(Duration::from_millis(20));
    }
    cluster.server(dead).start();
    wait_until("all is well", || decide(&server, "window", &there).0 == "store");
    wait_until("it is ready", || readiness(&server) == "ready");
}
