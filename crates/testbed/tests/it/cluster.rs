//! A Cluster serves all slots, moves them, and replaces masters that fail.

use tollgate_testbed::{Cluster, ClusterOptions, Flavour, PATIENCE, Reply, Wire, slot_of};

#[test]
fn three_masters_share_the_slots_and_point_to_each_other() {
    for flavour in [Flavour::Redis, Flavour::Valkey] {
        let cluster = ClusterOptions::masters(3, flavour).password("secret").start();
        assert!(cluster.url().contains("+cluster://:secret@127.0.0.1:"), "{}", cluster.url());
        let keys = ["a", "b", "c"];
        let owners = keys.map(|key| cluster.owner_of(key));
        assert_eq!(owners, [2, 0, 1]);
        for (key, owner) in keys.into_iter().zip(owners) {
            for (number, node) in cluster.nodes().iter().enumerate() {
                let reply = node.server.command(&["SET", key, "1"]);
                let port = cluster.nodes()[owner].server.port();
                let moved = Reply::Error(format!("MOVED {} 127.0.0.1:{port}", slot_of(key)));
                assert_eq!(reply, if number == owner { Reply::Status("OK".to_owned()) } else { moved });
            }
        }
    }
}

#[test]
fn a_cluster_with_tls_has_it_between_its_nodes_too() {
    let cluster = ClusterOptions::masters(3, Flavour::Redis).tls().replicas().start();
    assert!(cluster.url().starts_with("rediss+cluster://"), "{}", cluster.url());
    let authority = cluster.nodes()[0].server.authority();
    assert!(cluster.nodes().iter().all(|node| node.server.authority() == authority));
    let slot = slot_of("a");
    let from = cluster.owner_of_slot(slot);
    let _ = cluster.nodes()[from].server.command(&["SET", "a", "1"]).ok();
    let to = (from + 1) % 3;
    cluster.migrate(slot, to).finish();
    assert_eq!(cluster.nodes()[to].server.command(&["GET", "a"]).text(), "1");
}

#[test]
fn a_slot_moves_and_one_is_told_to_ask_meanwhile() {
    let cluster = Cluster::start(3);
    let (slot, to) = (slot_of("{a}"), 0);
    let from = cluster.owner_of_slot(slot);
    let (source, target) = (&cluster.nodes()[from].server, &cluster.nodes()[to].server);
    let _ = source.command(&["SET", "{a}1", "one"]).ok();
    let migration = cluster.migrate(slot, to);
    assert_eq!(source.command(&["GET", "{a}1"]).text(), "one");
    let ask = format!("ASK {slot} 127.0.0.1:{}", target.port());
    assert_eq!(source.command(&["GET", "{a}2"]).text(), ask);
    assert_eq!(migration.move_keys(), 1);
    assert_eq!(source.command(&["GET", "{a}1"]).text(), ask);
    let mut wire = target.wire();
    assert!(wire.command(&["GET", "{a}1"]).is_ok_and(|reply| reply.text().starts_with("MOVED")));
    assert!(wire.command(&["ASKING"]).is_ok());
    assert!(wire.command(&["GET", "{a}1"]).is_ok_and(|reply| reply.text() == "one"));
    migration.finish();
    assert_eq!(cluster.owner_of("{a}1"), to);
    assert_eq!(target.command(&["GET", "{a}1"]).text(), "one");
    assert!(source.command(&["GET", "{a}1"]).text().starts_with("MOVED"));
}

#[test]
fn replicas_take_over_when_told_and_when_their_master_dies() {
    let mut cluster = ClusterOptions::masters(3, Flavour::Redis).replicas().start();
    let master = cluster.owner_of("a");
    let mut wire = cluster.nodes()[master].server.wire();
    assert!(wire.command(&["SET", "a", "1"]).is_ok());
    assert!(wire.command(&["WAIT", "1", "5000"]).is_ok_and(|reply| reply.number() == 1));
    cluster.fail_over(master);
    assert_eq!(cluster.owner_of("a"), master + 3);
    let other = (master + 1) % 3;
    cluster.kill(other);
    cluster.wait_for_failover(other);
    assert_eq!(cluster.nodes()[master + 3].server.command(&["GET", "a"]).text(), "1");
    let key = ["a", "b", "c"].into_iter().find(|key| cluster.owner_of(key) == other + 3);
    let port = cluster.nodes()[other + 3].server.port();
    let set = Wire::tcp(port, PATIENCE).and_then(|mut wire| wire.command(&["SET", key.unwrap_or("?"), "2"]));
    assert!(set.is_ok_and(|reply| reply.text() == "OK"));
}
