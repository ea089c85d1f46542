//! Sentinels promote a replica when the master dies.

use tollgate_testbed::{Flavour, Sentinel, SentinelOptions};

#[test]
fn a_replica_becomes_the_master_when_the_master_is_killed() {
    let mut sentinel = Sentinel::start();
    let first = sentinel.master_port();
    assert_eq!(first, sentinel.servers()[0].port());
    let mut wire = sentinel.master().wire();
    assert!(wire.command(&["SET", "a", "1"]).is_ok());
    assert!(wire.command(&["WAIT", "2", "5000"]).is_ok_and(|reply| reply.number() == 2));
    sentinel.kill_master();
    let second = sentinel.wait_for_failover(first);
    assert_ne!(first, second);
    assert_eq!(sentinel.master().command(&["GET", "a"]).text(), "1");
    assert_eq!(sentinel.master().command(&["SET", "a", "2"]).text(), "OK");
}

#[test]
fn valkey_is_watched_with_a_password() {
    let sentinel = SentinelOptions::of(Flavour::Valkey).password("secret").start();
    let url = sentinel.url();
    assert!(url.starts_with("valkey+sentinel://:secret@127.0.0.1:") && url.ends_with("/main"), "{url}");
    assert_eq!(sentinel.sentinels().len(), 3);
    assert_eq!(sentinel.master_port(), sentinel.servers()[0].port());
}

#[test]
fn sentinels_with_tls_fail_over_too() {
    let mut sentinel = SentinelOptions::of(Flavour::Redis).tls().password("secret").start();
    assert!(sentinel.url().starts_with("rediss+sentinel://:secret@127.0.0.1:"), "{}", sentinel.url());
    let first = sentinel.master_port();
    sentinel.kill_master();
    assert_ne!(sentinel.wait_for_failover(first), first);
}
