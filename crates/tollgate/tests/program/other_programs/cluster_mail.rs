//! `examples/cluster-mail.toml` on three nodes that share a Valkey: one count, full limits on each node
//! during an outage, and one count again. `VALKEY_URL` puts the nodes on it, whatever store the file names.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::nodes::{self, origin};
use crate::program::{Home, Reply, Server, wait_until};
use serde_json::json;
use tollgate_testbed::{Proxy, Server as Valkey};

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/cluster-mail.toml");

/// A node in a directory of its own.
fn node(url: &str) -> (Home, Server) {
    let home = Home::empty()
        .variable("TOLLGATE_CONFIG", "cluster-mail.toml")
        .variable("VALKEY_URL", url)
        .variable("VALKEY_KEY_PREFIX", "mail:front")
        .variable("TOLLGATE__LOG__FORMAT", "json")
        .variable("TOLLGATE__STORE__COMMAND_TIMEOUT", "10s");
    std::fs::copy(EXAMPLE, home.path("cluster-mail.toml")).unwrap();
    let server = home.start();
    (home, server)
}

fn connect(server: &Server, ip: &str, id: &str) -> Reply {
    let body = json!({ "policy": "smtp.connect", "fields": { "ip": ip }, "id": id });
    server.post("/api/v1/holds", &body)
}

/// How many connections of a client each node admits until it denies one, asked in turn.
fn admitted(nodes: &[(Home, Server)], ip: &str, expected_origin: &str) -> Vec<usize> {
    let mut admitted = vec![0; nodes.len()];
    for round in 0..60 {
        for (number, (_, server)) in nodes.iter().enumerate() {
            let reply = connect(server, ip, &format!("conn-{number}-{round}"));
            assert_eq!(origin(&reply).0, expected_origin, "{}", reply.text());
            match reply.status {
                200 => admitted[number] += 1,
                429 => assert_eq!(reply.json()["denied_by"], "per_ip", "{}", reply.text()),
                _ => panic!("{}", reply.text()),
            }
        }
    }
    admitted
}

/// How many of a policy's attempts a node allows.
fn allowed(server: &Server, policy: &str) -> usize {
    let body = json!({ "policy": policy, "fields": { "ip": "192.0.2.200" } });
    (0..12).filter(|_| server.check(&body).status == 200).count()
}

#[test]
fn three_nodes_share_a_count_fall_back_to_full_limits_and_share_again() {
    let valkey = Valkey::valkey().start();
    let proxy = Proxy::to(valkey.port());
    let nodes: Vec<(Home, Server)> =
        (0..3).map(|_| node(&format!("valkey://127.0.0.1:{}", proxy.port()))).collect();
    for (home, server) in &nodes {
        wait_until("the store can be used", || nodes::readiness(server) == "ready");
        for variable in ["VALKEY_URL", "VALKEY_KEY_PREFIX"] {
            let log = server.log();
            let line = log.lines().find(|line| line.contains(variable)).unwrap_or_else(|| panic!("{log}"));
            assert!(line.contains("\"level\":\"info\""), "{line}");
        }
        assert!(server.log().contains("\"effect\":\"overrides the store of the configuration\""));
        assert!(!home.path("tollgate.redb").exists(), "the store of the file is not opened");
    }
    let made = nodes[0].1.post(
        "/api/v1/policies",
        &json!({ "name": "probe", "limits": "10/day", "by": ["ip"], "on_exceed": "reject" }),
    );
    assert_eq!(made.json()["effective_on_outage"], "local 100%", "{}", made.text());
    for (_, server) in &nodes {
        wait_until("the policy is everywhere", || server.get("/api/v1/policies/probe").status == 200);
    }

    assert_eq!(admitted(&nodes, "192.0.2.1", "store").iter().sum::<usize>(), 50, "one count");
    let keys = format!("{:?}", valkey.command(&["KEYS", "mail:front*"]));
    assert_ne!(keys, "Array([])", "the keys are under the prefix");

    proxy.cut();
    for (_, server) in &nodes {
        wait_until("the node notices", || origin(&connect(server, "192.0.2.250", "x")).0 == "local");
    }
    assert_eq!(admitted(&nodes, "192.0.2.2", "local"), [50, 50, 50], "each node has the full limit");
    let made: Vec<usize> = nodes.iter().map(|(_, server)| allowed(server, "probe")).collect();
    assert_eq!(made, [10, 10, 10], "a policy made over the API follows the default too");

    proxy.heal();
    for (_, server) in &nodes {
        wait_until("the store is up again", || nodes::readiness(server) == "ready");
    }
    assert_eq!(admitted(&nodes, "192.0.2.3", "store").iter().sum::<usize>(), 50, "one count again");
}
