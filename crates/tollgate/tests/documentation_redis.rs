//! The user that the guide to Redis describes may run what the store runs, on its own keys, and
//! nothing that would harm others.
#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::Path;

use tollgate_testbed::{Options, Server};

/// Every command that the scripts call, with arguments that fit it.
const IN_SCRIPTS: &[&str] = &[
    "DEL tollgate:a",
    "EXISTS tollgate:a tollgate:b",
    "GET tollgate:a",
    "HDEL tollgate:a b",
    "HEXISTS tollgate:a b",
    "HGET tollgate:a b",
    "HGETALL tollgate:a",
    "HINCRBY tollgate:a b 1",
    "HLEN tollgate:a",
    "HMGET tollgate:a b",
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
];

/// What the store asks besides.
const ALONE: [&str; 13] = [
    "ASKING",
    "AUTH limiter secret",
    "CLUSTER SHARDS",
    "CLUSTER SLOTS",
    "EVAL return 1 tollgate:a",
    "EVALSHA 0 1 tollgate:a",
    "HSETNX tollgate:a b c",
    "PING",
    "READONLY",
    "ROLE",
    "SCAN 0 MATCH tollgate:*",
    "SELECT 0",
    "UNLINK tollgate:a",
];

/// What a user of its own must not do.
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

/// The user of the guide, with what it says to add for a Cluster.
fn user() -> String {
    let page = std::fs::read_to_string(root().join("docs/guides/redis.md")).unwrap();
    let line = page.lines().find(|line| line.starts_with("user limiter ")).unwrap();
    let (_, rest) = page.split_once("In a Cluster add").unwrap();
    let added = rest.split('`').nth(1).unwrap();
    format!("{line} {added}").replace("PASSWORD", "secret")
}

/// Whether the server would let the user run this.
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
        for call in ["redis.call('", "later(i, '", "later(1, '", "{ '"] {
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
