//! `tollgate doctor` at real servers: what it says about healthy ones, and about every problem.
#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::time::Duration;

use crate::patient::Patient;
use serde_json::Value;
use tollgate_testbed::{Cluster, Options, Proxy, Sentinel, Server};

const LIMITER: &str = "user limiter on >hunter2 ~tollgate:* ~tollgate/* resetchannels -@all +@read +@write +@connection -@dangerous +eval +evalsha +time +role +info +config|get";

/// A server without any problem.
fn sound(options: Options) -> Options {
    options.max_memory("100mb", "noeviction").append_only()
}

#[test]
fn a_healthy_server_is_fine_and_nothing_is_left_behind() {
    for options in [Server::redis(), Server::valkey()] {
        let server = sound(options).start();
        let _ = server.command(&["SET", "tollgate:{one}", "1"]).ok();
        let _ = server.command(&["SET", "others", "1"]).ok();
        let patient = Patient::at(&server.url());
        let (words, code) = patient.words();
        assert_eq!(code, 0, "{words}");
        assert!(words.ends_with("\n\nall is fine\n"), "{words}");
        assert!(words.contains("1 key under tollgate:, of 2 in the database"), "{words}");
        let report = patient.json();
        assert_eq!(report["verdict"], "ok");
        let facts = &report["servers"][0]["facts"];
        let flavour = if server.url().starts_with("valkey") { "valkey" } else { "redis" };
        assert_eq!([&facts["flavour"], &facts["role"], &facts["user"]], [flavour, "master", "default"]);
        assert_eq!(facts["memory"]["policy"], "noeviction");
        assert_eq!(facts["memory"]["max_bytes"], 100 << 20);
        assert_eq!([&facts["persistence"]["append_only"], &facts["keys"]["exact"]], [true, true]);
        assert_eq!(facts["persistence"]["fsync"], "always");
        assert_eq!(facts["round_trip"]["count"], 20);
        let [min, median, max] =
            ["min_us", "median_us", "max_us"].map(|name| facts["round_trip"][name].as_u64().unwrap());
        assert!(0 < min && min <= median && median <= max, "{facts}");
        assert!(facts["clock"]["ahead_us"].as_i64().unwrap().abs() < 1_000_000, "{facts}");
        let scripts = facts["scripts"].as_array().unwrap();
        assert!(
            scripts.len() == 10 && scripts.iter().all(|script| script["refusal"].is_null()),
            "{scripts:?}"
        );
        assert_eq!(server.command(&["DBSIZE"]).number(), 2, "{:?}", server.command(&["KEYS", "*"]));
    }
}

#[test]
fn scripts_run_to_their_ends_and_write() {
    let server = Server::redis().start();
    let _ = server.command(&["CONFIG", "RESETSTAT"]).ok();
    let (words, _) = Patient::at(&server.url()).words();
    assert!(words.contains("all 10 scripts run"), "{words}");
    let stats = server.command(&["INFO", "commandstats"]).text();
    // The last commands of a complete run of each script.
    for command in ["set", "rpush", "hset", "lrem", "hdel", "zrem", "pexpire", "hmget", "hgetall"] {
        let calls = stats.split(&format!("cmdstat_{command}:calls=")).nth(1).unwrap_or("0,");
        let calls: u64 = calls.split(',').next().unwrap().parse().unwrap();
        // One is the command tried on its own.
        assert!(calls > 1, "no script called {command}: {stats}");
    }
}

#[test]
fn a_wrong_password_is_a_problem_and_is_not_shown() {
    let server = Server::redis().password("the-right-one").start();
    let patient = Patient::at(&server.url().replace("the-right-one", "hunter2-wrong"));
    let (words, code) = patient.words();
    assert_eq!(code, 2);
    assert!(words.contains("problem  login       the server refuses user default: WRONGPASS"), "{words}");
    let json = patient.json().to_string();
    assert!(!words.contains("hunter2") && !json.contains("hunter2"), "{words}{json}");
    let (words, code) = Patient::at(&server.url().replace(":the-right-one@", "")).words();
    assert!(code == 2 && words.contains("asks for a password, and none is configured"), "{words}");
    let open = Server::redis().start();
    let (words, code) = Patient::at(&open.url().replace("://", "://:hunter2@")).words();
    assert!(code == 2 && words.contains("the server's default user has none"), "{words}");
}

#[test]
fn a_server_that_throws_keys_out_is_warned_of() {
    for policy in ["allkeys-lru", "volatile-ttl"] {
        let server = sound(Server::redis()).max_memory("100mb", policy).start();
        let patient = Patient::at(&server.url());
        let (words, code) = patient.words();
        assert_eq!(code, 1, "{words}");
        assert!(words.contains(&format!("{policy} evicts counters when memory is full")), "{words}");
        assert!(words.contains("remedy: CONFIG SET maxmemory-policy noeviction"), "{words}");
        assert_eq!(patient.json()["verdict"], "warning");
    }
}

#[test]
fn data_lost_by_a_server_restart_is_noted() {
    let table = [
        (["--save", "", "--appendonly", "no"], "none: a restart of the server forgets every limit"),
        (["--save", "60 1", "--appendonly", "no"], "snapshots: a crash of the server loses"),
        (["--save", "", "--appendonly", "yes"], "append-only file: a crash forgets about a second"),
    ];
    for (arguments, expected) in table {
        let server = Server::redis().args(arguments).start();
        let (words, code) = Patient::at(&server.url()).words();
        assert!(code == 0 && words.contains(expected), "{words}");
    }
}

#[test]
fn a_full_server_is_a_problem() {
    let server = Server::redis().max_memory("1", "noeviction").start();
    let (words, code) = Patient::at(&server.url()).words();
    assert_eq!(code, 2);
    assert!(words.contains("scripts are refused") && words.contains("OOM"), "{words}");
    assert!(words.contains("raise `maxmemory`") && words.contains("nearly full"), "{words}");
}

#[test]
fn missing_acl_rights_are_named_with_the_command_that_grants_them() {
    for options in [Server::redis(), Server::valkey()] {
        let users = format!("user default off\n{LIMITER} -hset -pexpire -evalsha -config\n");
        let server = options.users(&users).start();
        let (words, code) = Patient::at(&server.url_as("limiter", "hunter2")).words();
        assert_eq!(code, 2, "{words}");
        assert!(words.contains("user limiter may not use evalsha, hset, pexpire"), "{words}");
        assert!(words.contains("remedy: ACL SETUSER limiter +evalsha +hset +pexpire\n"), "{words}");
        assert!(words.contains("CONFIG is not permitted, so this is what INFO says"), "{words}");
        assert!(words.contains("eviction     noeviction"), "{words}");
        // Granting the commands in the message is enough.
        let grant = ["ACL", "SETUSER", "limiter", "+evalsha", "+hset", "+pexpire"];
        assert_eq!(server.command(&grant).text(), "OK");
        let (words, code) = Patient::at(&server.url_as("limiter", "hunter2")).words();
        assert_eq!(code, 0, "{words}");
        assert_eq!(server.command(&["DBSIZE"]).number(), 0, "{:?}", server.command(&["KEYS", "*"]));
    }
}

#[test]
fn keys_that_an_acl_keeps_from_us_are_named() {
    let users = format!("user default off\n{}\n", LIMITER.replace("~tollgate:* ~tollgate/*", "~others:*"));
    let server = Server::redis().users(&users).start();
    let (words, code) = Patient::at(&server.url_as("limiter", "hunter2")).words();
    assert_eq!(code, 2, "{words}");
    assert!(words.contains("user limiter may not use the keys tollgate:* and tollgate/*"), "{words}");
    assert!(words.contains("remedy: ACL SETUSER limiter ~tollgate:* ~tollgate/*\n"), "{words}");
    let users = format!("user default off\n{}\n", LIMITER.replace(" ~tollgate/*", ""));
    let server = Server::redis().users(&users).start();
    let (words, code) = Patient::at(&server.url_as("limiter", "hunter2")).words();
    assert_eq!(code, 2, "{words}");
    assert!(words.contains("remedy: ACL SETUSER limiter ~tollgate:* ~tollgate/*\n"), "{words}");
}

#[test]
fn a_user_without_the_right_to_inspect_is_told_so() {
    let users = format!("user default off\n{LIMITER} -info -config\n");
    let server = Server::redis().users(&users).start();
    let (words, code) = Patient::at(&server.url_as("limiter", "hunter2")).words();
    assert_eq!(code, 0, "{words}");
    assert!(words.contains("neither INFO nor CONFIG is permitted"), "{words}");
    assert!(words.contains("ACL SETUSER limiter +info +config|get"), "{words}");
    assert!(words.contains("redis 7"), "{words}");
}

#[test]
fn a_server_that_is_down_is_a_problem() {
    let mut server = Server::redis().start();
    server.stop();
    let patient = Patient::at(&server.url());
    let (words, code) = patient.words();
    assert!(code == 2 && words.contains("Connection refused"), "{words}");
    assert_eq!(patient.json()["servers"][0]["findings"][0]["grade"], "problem");
}

#[test]
fn a_server_that_does_not_answer_is_given_up() {
    let server = Server::redis().start();
    server.pause();
    let (words, code) = Patient::silent(&server.url()).words();
    server.resume();
    assert!(code == 2 && words.contains("it accepts connections and does not answer"), "{words}");
}

#[test]
fn sockets_and_tls_are_looked_at_as_the_store_uses_them() {
    let server = sound(Server::redis()).tls().start();
    let (words, code) = Patient::at(&server.socket_url()).words();
    assert!(code == 0 && words.ends_with("all is fine\n"), "{words}");
    let authority = server.authority().display();
    let (words, code) =
        Patient::of(&format!("{{ redis: '{}', tls_ca: {authority}, command_timeout: 10s }}", server.url()))
            .words();
    assert!(code == 0 && words.ends_with("all is fine\n"), "{words}");
    let (words, code) = Patient::at(&server.url()).words();
    assert!(code == 2 && words.contains("remedy: name the authority that vouches"), "{words}");
    let (words, code) = Patient::at(&server.url().replace("rediss:", "redis:")).words();
    assert!(code == 2 && words.contains("remedy: it may speak TLS on this port"), "{words}");
    let plain = Server::redis().start();
    let url = plain.url().replace("redis:", "rediss:");
    let (words, code) = Patient::of(&format!("{{ redis: '{url}', connect_timeout: 200ms }}")).words();
    assert!(code == 2 && words.contains("it may speak no TLS on this port"), "{words}");
}

#[test]
fn a_server_with_too_many_clients_is_a_problem() {
    let server = Server::redis().start();
    // The server refuses new connections; the test's own are already open.
    let mut wire = server.wire();
    assert!(wire.command(&["CONFIG", "SET", "maxclients", "1"]).is_ok());
    let (words, code) = Patient::at(&server.url()).words();
    assert!(code == 2 && words.contains("remedy: raise `maxclients` at the server"), "{words}");
}

#[test]
fn a_server_that_is_too_far_away_is_a_problem() {
    let server = sound(Server::redis()).start();
    let proxy = Proxy::to(server.port());
    proxy.delay(Duration::from_millis(60));
    let (words, code) = Patient::of(&format!("redis://127.0.0.1:{}", proxy.port())).words();
    assert!(code == 2 && words.contains("most decisions do not get an answer within"), "{words}");
}

#[test]
fn a_clock_that_is_wrong_is_warned_of() {
    let server = sound(Server::redis()).faketime(3_600).start();
    let patient = Patient::at(&server.url());
    let (words, code) = patient.words();
    assert!(code == 1 && words.contains("ahead of this machine's"), "{words}");
    let ahead = patient.json()["servers"][0]["facts"]["clock"]["ahead_us"].as_i64().unwrap();
    assert!((ahead - 3_600_000_000).abs() < 3_000_000, "{ahead}");
}

#[test]
fn the_wrong_kind_of_address_is_said_to_be_one() {
    let cluster = Cluster::start(3);
    let (words, code) = Patient::at(&cluster.nodes()[0].server.url()).words();
    assert!(code == 2 && words.contains("write `redis+cluster://` in `store`"), "{words}");
    let single = Server::redis().start();
    let (words, code) = Patient::at(&single.url().replace("redis://", "redis+cluster://")).words();
    assert!(code == 2 && words.contains("is no node of a Cluster"), "{words}");
    let sentinel = Sentinel::start();
    let (words, code) = Patient::at(&sentinel.sentinels()[0].url()).words();
    assert!(code == 2 && words.contains("this is a Sentinel, which keeps nothing"), "{words}");
    let replica = &sentinel.servers()[1];
    let (words, code) = Patient::at(&replica.url()).words();
    assert!(code == 2 && words.contains("this is a replica, which takes no writes"), "{words}");
}

/// All findings about a topic.
fn about<'r>(findings: &'r Value, topic: &str) -> Vec<&'r Value> {
    findings.as_array().unwrap().iter().filter(|finding| finding["about"] == topic).collect()
}

#[test]
fn a_cluster_is_looked_at_node_by_node() {
    let mut cluster = Cluster::start(3);
    let patient = Patient::at(&cluster.url());
    let report = patient.json();
    assert_eq!(report["servers"].as_array().unwrap().len(), 3, "{report}");
    let slots = about(&report["findings"], "cluster");
    assert_eq!(slots[0]["message"], "all 16384 slots are covered by 3 masters");
    for server in report["servers"].as_array().unwrap() {
        assert_eq!(about(&server["findings"], "scripts")[0]["message"], "all 10 scripts run", "{server}");
        assert_eq!(about(&server["findings"], "permissions")[0]["grade"], "ok", "{server}");
    }
    // The starter's policies have two rules each, and no tag.
    let apart = about(&report["findings"], "policies");
    assert_eq!(apart.len(), 2, "{apart:?}");
    assert!(apart[0]["remedy"].as_str().unwrap().contains("hash_tag: api"), "{apart:?}");
    for node in cluster.nodes() {
        assert_eq!(node.server.command(&["DBSIZE"]).number(), 0);
    }
    let url = cluster.url();
    cluster.kill(1);
    let (words, code) = Patient::at(&url).words();
    assert!(code == 2 && words.contains("Connection refused"), "{words}");
}

#[test]
fn unassigned_slots_are_a_problem() {
    let cluster = Cluster::start(3);
    let node = &cluster.nodes()[0].server;
    let _ = node.command(&["CLUSTER", "DELSLOTS", "0", "1", "2"]).ok();
    let (words, code) = Patient::at(&format!("redis+cluster://127.0.0.1:{}", node.port())).words();
    assert!(code == 2 && words.contains("3 of 16384 slots have no node: 0-2"), "{words}");
}

#[test]
fn sentinels_are_looked_at_and_their_master() {
    let mut sentinel = Sentinel::start();
    let patient = Patient::at(&sentinel.url());
    let report = patient.json();
    let port = sentinel.master_port();
    let said = about(&report["findings"], "sentinel");
    assert_eq!(said.len(), 4, "{said:?}");
    let first = said[0]["message"].as_str().unwrap();
    assert!(first.ends_with(&format!("says that main is 127.0.0.1:{port}; quorum 2 of 3")), "{first}");
    assert_eq!(said[3]["message"], "3 of 3 Sentinels answer");
    assert_eq!(report["servers"][0]["facts"]["replicas"], 2);
    assert_eq!(report["servers"][0]["address"], format!("127.0.0.1:{port}"));
    let (words, code) = Patient::at(&sentinel.url().replace("/main", "/nobody")).words();
    assert!(code == 2 && words.contains("none of 3 Sentinels knows a master called nobody"), "{words}");
    // One Sentinel alone may not replace the master.
    sentinel.sentinels()[1..].iter().for_each(Server::pause);
    sentinel.kill_master();
    let (words, code) = Patient::silent(&sentinel.url()).words();
    let silent = format!("Sentinel 127.0.0.1:{}: no answer within 2s", sentinel.sentinels()[2].port());
    assert!(words.contains(&silent) && words.contains("1 of 3 Sentinels answer"), "{words}");
    assert!(code == 2 && words.contains(&format!("cannot connect to 127.0.0.1:{port}")), "{words}");
}
