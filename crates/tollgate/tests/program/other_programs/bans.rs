//! Bans in the real program: with a file they survive a crash, on Redis they apply on all nodes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::nodes::{self, PATIENT, wait_until_it_is};
use crate::program::{self, Home, Server, Signal, now, pause, request, text, wait_until};
use serde_json::{Value, json};
use tollgate_testbed::Server as Redis;

const RULES: &str = "\
rules:
  client: { by: ip, limits: 3/day, ban: after 5 denials in 10m ban 1h up to 24h }
  login: { by: [user, ip], limits: 1000/day }
policies:
  api: [client]
  login: [login]
";

fn with_file() -> Home {
    Home::with(&format!("store: {{ file: ./t.redb, sync: always }}\nlog: {{ format: json }}\n{RULES}"))
}

fn on_redis(redis: &Redis) -> Home {
    let store = format!("store: {{ redis: '{}', {PATIENT} }}", redis.url());
    Home::with(&format!("{store}\nlog: {{ format: json }}\n{RULES}"))
}

fn ban(server: &Server, body: &Value) {
    server.post("/api/v1/bans", body).ok();
}

/// The status for an attempt by this address.
fn status(server: &Server, ip: &str) -> u16 {
    server.check(&json!({ "policy": "login", "fields": { "user": "bob", "ip": ip } })).status
}

fn targets(server: &Server) -> Vec<String> {
    let bans = server.get("/api/v1/bans?limit=1000").ok();
    bans["bans"].as_array().unwrap().iter().map(|ban| ban["target"].as_str().unwrap().to_owned()).collect()
}

/// Sends attempts until the address is banned. Returns how often it was denied.
fn knock_until_banned(server: &Server, ip: &str) -> usize {
    let mut connection = server.connect();
    let mut denied = 0;
    let start = now();
    loop {
        let attempt = json!({ "policy": "api", "fields": { "ip": ip } });
        match connection.ask("POST", "/api/v1/check", &[], Some(&attempt)).status {
            403 => return denied,
            429 => denied += 1,
            _ => {}
        }
        assert!(start.elapsed() < program::PATIENCE, "denied {denied} times and not banned");
        pause(Duration::from_millis(5));
    }
}

/// The lines of the log with this message.
fn lines(log: &str, message: &str) -> Vec<Value> {
    let all =
        log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap_or_else(|_| panic!("{line}")));
    all.filter(|line| line["msg"] == message).collect()
}

#[test]
fn with_sync_always_every_ban_that_was_answered_survives_a_kill() {
    let home = with_file();
    let mut known = 0;
    for round in 0..4 {
        let server = home.start();
        let answered = AtomicUsize::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut connection = server.connect();
                for number in 0.. {
                    let target = format!("10.{round}.{}.{}", number / 256, number % 256);
                    let body = json!({ "target": target, "for": "1h" });
                    let sent = connection.try_send(&request("POST", "/api/v1/bans", &[], Some(&body)));
                    let Some(reply) = sent.ok().and_then(|()| connection.reply()) else { return };
                    assert_eq!(reply.status, 200, "{}", reply.text());
                    answered.fetch_add(1, Ordering::SeqCst);
                }
            });
            wait_until("some answers", || answered.load(Ordering::SeqCst) > 10);
            pause(Duration::from_millis(3 * round));
            server.signal(Signal::KILL);
        });
        server.ended();
        let server = home.start();
        let kept = targets(&server).len();
        let answered = answered.into_inner();
        // One more may have been kept whose response did not arrive.
        assert!(
            (known + answered..=known + answered + 1).contains(&kept),
            "{kept} of {known} and {answered}"
        );
        assert_eq!(status(&server, &format!("10.{round}.0.0")), 403);
        known = kept;
        server.end_by(Signal::KILL);
    }
}

#[test]
fn a_ban_by_a_rule_survives_a_kill_and_is_told_in_the_log() {
    let home = with_file();
    let server = home.start();
    assert!(knock_until_banned(&server, "203.0.113.7") >= 5);
    server.wait_for_log("banned by a rule");
    let log = server.end_by(Signal::KILL).log;
    let told = lines(&log, "banned by a rule");
    assert_eq!(told.len(), 1, "{log}");
    assert_eq!(
        (&told[0]["rule"], &told[0]["key"], &told[0]["lasts"]),
        (&json!("client"), &json!("203.0.113.7"), &json!("1h"))
    );
    let server = home.start();
    assert_eq!(status(&server, "203.0.113.7"), 403, "at every policy");
    let ban = &server.get("/api/v1/bans").ok()["bans"][0];
    assert_eq!((&ban["author"], &ban["times"]), (&json!("rule client"), &json!(1)));
}

#[test]
fn bans_and_unbans_are_logged_with_their_author() {
    let home = Home::with(&format!(
        "store: memory\nlog: {{ format: json }}\nkeys: [{{ name: ops, role: admin, token_env: TOKEN }}]\n{RULES}"
    ))
    .variable("TOKEN", "0123456789abcdef")
    .variable("TOLLGATE_TOKEN", "0123456789abcdef");
    let server = home.start();
    let run = home
        .run(&server, &["ban", "203.0.113.0/24", "user=bob,ip=10.0.0.1", "--for", "1h", "--reason", "spam"]);
    assert!(run.status.success(), "{}", text(&run.stderr));
    let run = home.run(&server, &["check", "login", "user=bob", "ip=10.0.0.1"]);
    assert_eq!((run.status.code(), text(&run.stdout)), (Some(1), "blocked, retry in 1h\n"));
    let run = home.run(&server, &["unban", "203.0.113.0/24", "--json"]);
    assert_eq!(text(&run.stdout), "{\"removed\":true,\"configured\":false}\n");
    let run = home.run(&server, &["bans", "--json"]);
    let shown: Value = serde_json::from_str(text(&run.stdout)).unwrap();
    assert_eq!(
        (&shown["bans"][0]["author"], &shown["bans"][0]["target"]),
        (&json!("ops"), &json!("ip=10.0.0.1,user=bob"))
    );
    let run = home.run(&server, &["ban", "user=bob,ip=10.0.0.1", "--for", "2h"]);
    assert!(run.status.success(), "{}", text(&run.stderr));
    let run = home.run(&server, &["changes", "--json"]);
    let shown: Value = serde_json::from_str(text(&run.stdout)).unwrap();
    for changed in [&shown["changes"][0], &shown["changes"][1]] {
        let before = changed["before"].as_str();
        assert!(before.is_some_and(|before| before.starts_with("block until 20")), "{shown}");
        assert_ne!(changed["before"], changed["after"]);
    }
    assert_eq!(shown["changes"][3]["before"], Value::Null, "{shown}");
    let log = server.stop();
    let changes: Vec<(Value, Value, Value)> = lines(&log, "changed over the API")
        .into_iter()
        .map(|line| (line["actor"].clone(), line["action"].clone(), line["what"].clone()))
        .collect();
    let change = |action: &str, what: &str| (json!("ops"), json!(action), json!(what));
    let expected = [
        change("ban.set", "203.0.113.0/24"),
        change("ban.set", "ip=10.0.0.1,user=bob"),
        change("ban.remove", "203.0.113.0/24"),
        change("ban.set", "ip=10.0.0.1,user=bob"),
    ];
    assert_eq!(changes, expected);
}

#[test]
fn a_reload_changes_configured_entries_and_keeps_runtime_ones() {
    let config = |lists: &str| format!("store: memory\n{lists}\n{RULES}");
    let home = Home::with(&config("blocklist: [203.0.113.0/24]"));
    let server = home.start();
    ban(&server, &json!({ "target": "198.51.100.7" }));
    assert_eq!((status(&server, "203.0.113.7"), status(&server, "198.51.100.7")), (403, 403));
    home.configure(&config("allowlist: [198.51.100.0/24]"));
    wait_until("the new lists", || status(&server, "203.0.113.7") == 200);
    assert_eq!(status(&server, "198.51.100.7"), 403, "the smaller network");
    home.configure(&config("blocklist: [203.0.113.7/24]"));
    server.wait_for_log("write `203.0.113.0/24` for the network");
    assert_eq!(status(&server, "203.0.113.7"), 200, "a broken file changes nothing");
}

#[test]
fn a_ban_on_one_node_holds_on_the_other_within_a_second_and_so_does_its_end() {
    let redis = Redis::redis().start();
    let homes = [on_redis(&redis), on_redis(&redis)];
    let [one, other] = [homes[0].start(), homes[1].start()];
    ban(&one, &json!({ "target": "203.0.113.0/24", "reason": "spam" }));
    assert_eq!(status(&one, "203.0.113.7"), 403, "at once");
    let start = now();
    wait_until("the ban", || status(&other, "203.0.113.7") == 403);
    let took = start.elapsed();
    assert!(took < Duration::from_secs(1 + 2), "{took:?}, on a busy machine");
    other.ask("DELETE", "/api/v1/bans/203.0.113.0%2F24", None).ok();
    assert_eq!(status(&other, "203.0.113.7"), 200);
    wait_until("its end", || status(&one, "203.0.113.7") == 200);
    // Nothing was counted for a blocked client.
    ban(&one, &json!({ "target": "198.51.100.7" }));
    let before = one.remaining("login", "bob,198.51.100.7");
    for _ in 0..10 {
        assert_eq!(status(&one, "198.51.100.7"), 403);
    }
    assert_eq!(one.remaining("login", "bob,198.51.100.7"), before);
}

#[test]
fn nodes_on_redis_count_denials_together_and_a_late_one_knows_the_ban() {
    let redis = Redis::redis().start();
    let homes = [on_redis(&redis), on_redis(&redis), on_redis(&redis)];
    let [one, other] = [homes[0].start(), homes[1].start()];
    let attempt = json!({ "policy": "api", "fields": { "ip": "203.0.113.7" } });
    let mut denied = 0;
    // Three denials on each node: neither node has enough for a ban, but together they have.
    for server in [&one, &other] {
        let mut own = 0;
        while own < 3 {
            let reply = server.check(&attempt);
            own += usize::from(reply.status == 429);
        }
        denied += own;
    }
    assert_eq!(denied, 6);
    for server in [&one, &other] {
        wait_until("the ban", || {
            server.check(&json!({ "policy": "login", "fields": { "user": "a", "ip": "203.0.113.7" } })).status
                == 403
        });
    }
    let late = homes[2].start();
    assert_eq!(status(&late, "203.0.113.7"), 403);
    let bans = late.get("/api/v1/bans").ok();
    assert_eq!(
        (bans["bans"].as_array().unwrap().len(), &bans["bans"][0]["author"]),
        (1, &json!("rule client"))
    );
    let logs = [one.stop(), other.stop()].concat();
    assert_eq!(lines(&logs, "banned by a rule").len(), 1, "{logs}");
}

#[test]
fn bans_hold_during_an_outage_and_missed_ones_after_it() {
    let redis = Redis::redis().start();
    let home = |settings: &str| {
        let store = format!("store: {{ redis: '{}', {settings} }}", redis.url());
        Home::with(&format!("{store}\nlog: {{ format: json }}\n{RULES}"))
    };
    let hasty = home(nodes::STEADY);
    let server = hasty.start();
    ban(&server, &json!({ "target": "203.0.113.7" }));
    redis.pause();
    let attempt = json!({ "policy": "login", "fields": { "user": "ann", "ip": "192.0.2.1" } });
    wait_until("an outage", || nodes::origin(&server.check(&attempt)).1.as_deref() == Some("open"));
    assert_eq!(status(&server, "203.0.113.7"), 403);
    let refused = server.post("/api/v1/bans", &json!({ "target": "203.0.113.8" }));
    assert_eq!(refused.status, 503, "{}", refused.text());
    redis.resume();
    wait_until_it_is(&server, "ready");
    assert_eq!(
        (status(&server, "203.0.113.7"), status(&server, "203.0.113.8")),
        (403, 200),
        "nothing was done"
    );
}

#[test]
fn a_hundred_thousand_bans_are_set_by_one_command_and_read_by_a_node_that_starts() {
    let redis = Redis::redis().start();
    let homes = [on_redis(&redis), on_redis(&redis)];
    let server = homes[0].start();
    let list: String = (0..100_000)
        .map(|number| format!("10.{}.{}.{}\n", number >> 16, number >> 8 & 255, number & 255))
        .collect();
    std::fs::write(homes[0].path("list.txt"), list).unwrap();
    let run = homes[0].run(&server, &["ban", "--from", "list.txt", "--timeout", "1m"]);
    assert!(run.status.success(), "{}", text(&run.stderr));
    assert_eq!(status(&server, "10.1.134.159"), 403);
    let late = homes[1].start();
    assert_eq!(
        (status(&late, "10.0.0.0"), status(&late, "10.1.134.159"), status(&late, "10.1.134.160")),
        (403, 403, 200)
    );
    assert_eq!(nodes::metric(&late, "tollgate_list_entries{kind=\"block\"}"), 100_000.0);
}
