//! Logins at a real server: beginning and finishing them, with a clock that the test moves.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "every test crate uses its own part of this"
)]

use std::time::Duration;

use serde_json::{Value, json};
use tollgate_testbed::Server as Redis;

use crate::program::{Home, Reply, Server, now, wait_until};

/// The store of the counters, and its clock.
pub enum Kept {
    /// In a file, by the clock of the program itself.
    File,
    /// In Redis, by its clock.
    Redis(Box<Redis>),
}

/// A store with a movable clock, and a home for servers on it.
pub struct Stage {
    pub kept: Kept,
    pub home: Home,
    ahead: i64,
}

impl Stage {
    pub fn all(rest: &str) -> [Self; 2] {
        [Self::file(rest), Self::redis(rest)]
    }

    pub fn file(rest: &str) -> Self {
        let store = "store: { file: ./t.redb, sync: always }";
        let home = Home::with(&format!("{store}\nlog: {{ format: json }}\n{rest}"));
        let clock = home.path("faketime").display().to_string();
        std::fs::write(&clock, "+0s\n").unwrap();
        let home = home
            .variable("LD_PRELOAD", &faketime())
            .variable("FAKETIME_TIMESTAMP_FILE", &clock)
            .variable("FAKETIME_NO_CACHE", "1")
            .variable("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .variable("DONT_FAKE_MONOTONIC", "1");
        Self { kept: Kept::File, home, ahead: 0 }
    }

    pub fn redis(rest: &str) -> Self {
        let redis = Redis::redis().faketime(0).start();
        let home = Home::with(&on(&redis, rest));
        Self { kept: Kept::Redis(Box::new(redis)), home, ahead: 0 }
    }

    /// Moves the clock. The server sees it within a moment.
    pub fn advance(&mut self, secs: i64) {
        self.ahead += secs;
        match &self.kept {
            Kept::Redis(redis) => redis.shift_clock(self.ahead),
            Kept::File => {
                let (file, new) = (self.home.path("faketime"), self.home.path("faketime.new"));
                std::fs::write(&new, format!("{:+}s\n", self.ahead)).unwrap();
                std::fs::rename(new, file).unwrap();
            }
        }
    }

    pub fn name(&self) -> &'static str {
        match self.kept {
            Kept::File => "file",
            Kept::Redis(_) => "redis",
        }
    }
}

/// A configuration with counters in this Redis.
pub fn on(redis: &Redis, rest: &str) -> String {
    let store = format!("store: {{ redis: '{}', {} }}", redis.url(), crate::nodes::PATIENT);
    format!("{store}\nlog: {{ format: json }}\n{rest}")
}

/// The path of libfaketime.
fn faketime() -> String {
    let entries = std::fs::read_dir("/usr/lib").unwrap().flatten();
    let found =
        entries.map(|entry| entry.path().join("faketime/libfaketime.so.1")).find(|path| path.exists());
    found.expect("libfaketime is not installed: run `./test`").display().to_string()
}

pub fn begin(server: &Server, fields: &Value) -> Reply {
    server.post("/api/v1/guards/login/begin", &json!({ "fields": fields }))
}

/// Begins a login as soon as the clock allows it.
pub fn begin_in_time(server: &Server, fields: &Value) -> Value {
    let mut begun = None;
    wait_until("a login that may begin", || {
        let reply = begin(server, fields);
        assert!([200, 429].contains(&reply.status), "{}", reply.text());
        begun = (reply.status == 200).then(|| reply.json());
        begun.is_some()
    });
    begun.unwrap()
}

/// Finishes a login; returns the result.
pub fn finish(server: &Server, begun: &Value, outcome: &str) -> Value {
    let body = json!({ "ticket": begun["ticket"], "outcome": outcome });
    server.post("/api/v1/guards/finish", &body).ok()["finished"].clone()
}

pub fn fail(server: &Server, fields: &Value) -> Value {
    let begun = begin_in_time(server, fields);
    assert_eq!(finish(server, &begun, "failure"), "now");
    begun
}

pub fn inspect(server: &Server, fields: &Value) -> Value {
    let shown = server.post("/api/v1/guards/login/inspect", &json!({ "fields": fields })).ok();
    shown["ladders"].clone()
}

pub fn locks(server: &Server) -> Vec<Value> {
    server.get("/api/v1/guards/login/locks").ok()["locks"].as_array().unwrap().clone()
}

/// Begins a login, and expects a refusal if less than `within` has passed since `start`, so that a slow
/// machine cannot fail the test. Returns the refusal, if there was one.
pub fn refused_within(
    server: &Server,
    fields: &Value,
    start: std::time::Instant,
    within: Duration,
) -> Option<Value> {
    let reply = begin(server, fields);
    if reply.status == 200 && start.elapsed() >= within {
        assert_eq!(finish(server, &reply.json(), "abandoned"), "now");
        return None;
    }
    assert_eq!(reply.status, 429, "{}", reply.text());
    Some(reply.json())
}

pub fn started() -> std::time::Instant {
    now()
}

/// The lines of the log with this message.
pub fn lines(log: &str, message: &str) -> Vec<Value> {
    let all =
        log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap_or_else(|_| panic!("{line}")));
    all.filter(|line| line["msg"] == message).collect()
}
