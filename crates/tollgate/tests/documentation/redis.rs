//! The guide to Redis is true: the user that it describes may run what the store runs, on its own keys, and
//! nothing that would harm others; keys take as much memory as it says. The README's commands for Valkey work
//! too.
#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use crate::server;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use tollgate_testbed::{Options, Server};

/// Every command of the scripts, with valid arguments.
const IN_SCRIPTS: &[&str] = &[
    "DEL tollgate:a",
    "EXISTS tollgate:a tollgate:b",
    "GET tollgate:a",
    "HDEL tollgate:a b",
    "HEXISTS tollgate:a b",
    "HGET tollgate:a b",
    "HGETALL tollgate:a",
    "HLEN tollgate:a",
    "HMGET tollgate/{lists} b",
    "HSCAN tollgate/{lists} 0",
    "HSET tollgate:a b c",
    "LINDEX tollgate:a 0",
    "LLEN tollgate:a",
    "LPOP tollgate:a",
    "LRANGE tollgate:a 0 1",
    "LREM tollgate:a 1 b",
    "LSET tollgate:a 0 b",
    "LTRIM tollgate:a 0 1",
    "MGET tollgate:a tollgate:b",
    "PERSIST tollgate:a",
    "PEXPIRE tollgate:a 1",
    "RPUSH tollgate:a b",
    "SETRANGE tollgate:a 8 b",
    "SET tollgate:a b PX 1",
    "TIME",
    "TYPE tollgate:a",
    "ZADD tollgate/{lists}:ends 1 a",
    "ZRANGEBYSCORE tollgate/{lists}:ends -inf 1",
    "ZREM tollgate/{lists}:ends a",
];

/// The commands of the store outside of scripts.
const ALONE: [&str; 14] = [
    "ASKING",
    "AUTH limiter secret",
    "CLUSTER SHARDS",
    "CLUSTER SLOTS",
    "EVAL return 1 tollgate:a",
    "EVALSHA 0 1 tollgate:a",
    "HSCAN tollgate:a 0",
    "HSETNX tollgate:a b c",
    "PING",
    "READONLY",
    "ROLE",
    "SCAN 0 MATCH tollgate:*",
    "SELECT 0",
    "UNLINK tollgate:a",
];

/// Commands that this user must not run.
const REFUSED: [&str; 9] = [
    "CONFIG GET *",
    "DEL others:a",
    "FLUSHALL",
    "FLUSHDB",
    "GET others:a",
    "KEYS *",
    "PUBLISH a b",
    "SCRIPT FLUSH",
    "SHUTDOWN",
];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The user of the guide, with the additions for a Cluster.
fn user() -> String {
    let page = std::fs::read_to_string(root().join("docs/guides/redis.md")).unwrap();
    let line = page.lines().find(|line| line.starts_with("user limiter ")).unwrap();
    let (_, rest) = page.split_once("In a Cluster add").unwrap();
    let added = rest.split('`').nth(1).unwrap();
    format!("{line} {added}").replace("PASSWORD", "secret")
}

/// Whether the server permits this command to the user.
fn permits(server: &Server, command: &str) -> bool {
    let words: Vec<&str> = ["ACL", "DRYRUN", "limiter"].into_iter().chain(command.split(' ')).collect();
    let reply = server.command(&words);
    let refused = !reply.is_error() && reply.text().contains("no permissions");
    assert!(refused || reply.text() == "OK", "{command}: {reply:?}");
    !refused
}

#[test]
fn the_user_of_the_guide_may_do_what_the_store_does_and_no_harm() {
    let both: [Options; 2] = [Server::redis(), Server::valkey()];
    for options in both {
        let server = options.users(&format!("user default off\n{}", user())).start();
        for command in IN_SCRIPTS.iter().chain(&ALONE) {
            assert!(permits(&server, command), "{command} is needed");
        }
        for command in REFUSED {
            assert!(!permits(&server, command), "{command} is not needed");
        }
    }
}

#[test]
fn every_command_of_the_scripts_is_tried() {
    let mut found = 0;
    for entry in std::fs::read_dir(root().join("crates/redis/src/lua")).unwrap() {
        let script = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for call in ["redis.call('", "change('", "later(i, '", "later(1, '", "{ '"] {
            for rest in script.split(call).skip(1) {
                let command = rest.split('\'').next().unwrap();
                let known = IN_SCRIPTS.iter().any(|known| known.split(' ').next() == Some(command));
                assert!(known, "`{command}` is not tried");
                found += 1;
            }
        }
    }
    assert!(found > 30, "only {found} calls were found");
}

/// The rows of the guide's table of sizes: limits, and bytes in Redis and Valkey.
fn sizes() -> Vec<(String, [i64; 2])> {
    let page = std::fs::read_to_string(root().join("docs/guides/redis.md")).unwrap();
    let (_, rest) = page.split_once("| limits of a rule | Redis 7.0 | Valkey 9 |").unwrap();
    let rows = rest.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let limits: Vec<&str> = cells[1].split('`').skip(1).step_by(2).collect();
        let bytes = |cell: &str| cell.trim_end_matches(" bytes").parse().unwrap();
        (limits.join(", "), [bytes(cells[2]), bytes(cells[3])])
    })
    .collect()
}

/// The memory of all keys of a counter.
fn size(redis: &Server, rule: &str) -> i64 {
    let pattern = format!("tollgate:{{{rule}:*");
    let found = redis.command(&["KEYS", &pattern]);
    let sizes = found
        .parts()
        .iter()
        .map(|key| redis.command(&["MEMORY", "USAGE", &key.text(), "SAMPLES", "0"]).number());
    sizes.sum()
}

#[test]
fn keys_take_as_much_memory_as_the_guide_says() {
    let sizes = sizes();
    let rules: Vec<String> = sizes
        .iter()
        .enumerate()
        .map(|(index, (limits, _))| format!("rule{index}: {{ by: ip, limits: [{limits}] }}"))
        .collect();
    let policies: Vec<String> = (0..sizes.len()).map(|index| format!("rule{index}: [rule{index}]")).collect();
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("t.yaml");
    std::fs::write(
        &config,
        format!("rules: {{ {} }}\npolicies: {{ {} }}\n", rules.join(", "), policies.join(", ")),
    )
    .unwrap();
    for (column, redis) in [Server::redis().start(), Server::valkey().start()].iter().enumerate() {
        let store = format!("{{ redis: '{}', command_timeout: 10s }}", redis.url());
        let tollgate = server::Server::start(Some(&config), &[("TOLLGATE__STORE", &store)]);
        for (index, (limits, written)) in sizes.iter().enumerate() {
            let rule = format!("rule{index}");
            let mut measured = 0;
            let attempts = if limits.contains("sliding") { 100 } else { 1 };
            // A nearly full bucket refills, and expires, in a moment.
            let cost = if limits.contains("burst") { 50 } else { 1 };
            for _ in 0..attempts {
                let attempt = json!({ "policy": rule, "fields": { "ip": "192.0.2.7" }, "cost": cost });
                assert_eq!(tollgate.post("/api/v1/check", &attempt).0, 200);
                measured = size(redis, &rule);
            }
            // Numbers have more digits as time goes by, and allocators differ a little.
            let off = (measured - written[column]).abs() * 100;
            assert!(off <= written[column] * 5, "{limits} takes {measured} bytes, not {}", written[column]);
        }
    }
}

#[test]
fn the_line_in_the_readme_serves_from_valkey() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let line = readme.split('`').find(|code| code.starts_with("VALKEY_URL=")).unwrap();
    let valkey = Server::valkey().start();
    let line = line.replace("localhost:6379", &format!("localhost:{}", valkey.port()));
    let program = Path::new(env!("CARGO_BIN_EXE_tollgate")).parent().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut tollgate = Command::new("sh")
        .args(["-c", &line.replace("tollgate serve", "exec tollgate serve")])
        .current_dir(directory.path())
        .env_clear()
        .env("PATH", format!("{}:/usr/bin:/bin", program.display()))
        .env("TOLLGATE__LISTEN__HTTP", "127.0.0.1:0")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let greeting = BufReader::new(tollgate.stdout.as_mut().unwrap()).lines().map_while(Result::ok);
    let listens = greeting.take(10).any(|line| line.contains("listens on http://127.0.0.1:"));
    let _ = tollgate.kill();
    let _ = tollgate.wait();
    assert!(listens, "it says where it listens");
    // At its start a server creates the secret that signs receipts.
    assert_eq!(valkey.command(&["HEXISTS", "tollgate/records", "secret"]).number(), 1);
}
