//! Transactions whose end is not known, or does not come: their charges count once at most, and no caller
//! waits for them for long.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use crate::stage::{HASTY, Node, PATIENT, RECOVERY, client, lock_of, now, plan, runtime, shared, ticket};
use tollgate_core::StoreError;
use tollgate_testbed::{Pgbouncer, Postgres, Proxy, pause, wait_until};

#[test]
fn a_node_that_stops_within_a_transaction_is_cut_off_by_the_server() {
    let node = Node::new(&shared().url(), "paused", Duration::from_secs(1));
    let plan = plan("a", "1000/min");
    node.take(&plan, "k").unwrap();
    // It takes the lock as a node does, and then neither goes on nor closes its connection.
    let stopped = client(&shared().url());
    let lock = shared().sql(&format!("SELECT {}", lock_of("paused", "k")));
    let load = format!(
        "SELECT count(*) FROM paused.lock_and_read('{{800,1000,2000}}', '{{{lock}}}', '{{}}', NULL, true)"
    );
    runtime().block_on(stopped.batch_execute(&format!("BEGIN; {load}"))).unwrap();
    let start = now();
    assert_eq!(node.take(&plan, "k").unwrap_err(), StoreError::Busy, "the store is well");
    wait_until("the lock is free", || node.take(&plan, "k").is_ok());
    assert!(start.elapsed() < RECOVERY, "{:?}", start.elapsed());
    assert!(runtime().block_on(stopped.batch_execute("COMMIT")).is_err());
    assert!(shared().log().contains("idle-in-transaction timeout"));
}

#[test]
fn a_caller_waits_for_all_locks_together_no_longer_than_for_one() {
    let node = Node::new(&shared().url(), "collected", HASTY);
    let plan = plan("a", "1000/min");
    let keys: Vec<String> = (0..6).map(|key| key.to_string()).collect();
    keys.iter().for_each(|key| drop(node.take(&plan, key).unwrap()));
    // Other sessions lock the keys, and unlock them after a while, one after the other.
    let locks: Vec<String> =
        keys.iter().map(|key| shared().sql(&format!("SELECT {}", lock_of("collected", key)))).collect();
    let mut sorted: Vec<i64> = locks.iter().map(|lock| lock.parse().unwrap()).collect();
    sorted.sort_unstable();
    let holders: Vec<_> = sorted.iter().map(|_| client(&shared().url())).collect();
    for (holder, lock) in holders.iter().zip(&sorted) {
        let hold = format!("BEGIN; SELECT pg_advisory_xact_lock({lock})");
        runtime().block_on(holder.batch_execute(&hold)).unwrap();
    }
    let waiter = client(&shared().url());
    let list: Vec<String> = sorted.iter().map(ToString::to_string).collect();
    let load = format!(
        "BEGIN; SELECT count(*) FROM collected.lock_and_read('{{400,5000,5000}}', '{{{}}}', '{{}}', NULL, true)",
        list.join(",")
    );
    let start = now();
    let waiting = runtime().spawn(async move { waiter.batch_execute(&load).await });
    for holder in &holders[..5] {
        pause(Duration::from_millis(150));
        runtime().block_on(holder.batch_execute("ROLLBACK")).unwrap();
    }
    let error = runtime().block_on(waiting).unwrap().unwrap_err();
    assert_eq!(error.code().map(|code| code.code()), Some("55P03"), "{error}");
    // With one time-out for each lock it would wait for 750 ms until the last, and then 400 ms for that.
    assert!(start.elapsed() < Duration::from_millis(1_000), "{:?}", start.elapsed());
}

#[test]
fn a_lost_reply_counts_at_most_once_and_is_retracted_by_its_ticket() {
    let (direct, proxy) = (Node::new(&shared().url(), "lost", PATIENT), Proxy::to(shared().port()));
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", proxy.port());
    let node = Node::new(&url, "lost", Duration::from_secs(2));
    for (limits, named) in [
        ("1000/hour sliding", true),
        ("1000 at once", true),
        ("ladder 500 lock 1m forget 1h", true),
        ("1000/hour", false),
        ("1000/hour sliding by 1m", false),
        ("1000 in total", false),
    ] {
        let plan = plan(limits, limits);
        assert!(node.take(&plan, "k").unwrap().allowed);
        let before = proxy.bytes_received();
        node.take(&plan, "k").unwrap();
        let whole = usize::try_from(proxy.bytes_received() - before).unwrap();
        let (mut used, mut unanswered) = (2, 0);
        // The reply to the commit is at the end.
        for missing in [1, 3, 17, 60, whole / 2, whole - 1] {
            let lost = ticket();
            proxy.cut_after(whole - missing);
            let answer = node.take_by(&plan, "k", lost);
            proxy.heal();
            node.recovers();
            let now_used = direct.used(&plan, "k");
            assert!(now_used == used || now_used == used + 1, "{limits}, {missing}: {now_used}");
            assert!(answer.is_err() || now_used == used + 1, "{limits}, {missing}: {answer:?}");
            unanswered += u64::from(answer.is_err() && now_used == used + 1);
            for _ in 0..2 {
                direct.retract(&plan, "k", lost).unwrap();
            }
            used = if named { used } else { now_used };
            assert_eq!(direct.used(&plan, "k"), used, "{limits}, {missing}");
        }
        assert!(unanswered > 0, "{limits}: no commit was without an answer");
    }
}

#[test]
fn behind_pgbouncer_faults_end_as_soon() {
    let mut server = Postgres::start_with("");
    let mut pooler = Pgbouncer::start_with(&server, 4, "query_wait_timeout = 1");
    let node = Node::new(&pooler.url(), "tollgate", Duration::from_secs(1));
    let plan = plan("a", "1000/hour sliding");
    assert!(node.take(&plan, "k").unwrap().allowed);
    pooler.restart();
    node.recovers();
    assert!(node.take(&plan, "k").unwrap().allowed);
    // The server behind it goes.
    server.stop_immediately();
    assert!(node.take(&plan, "k").unwrap_err().is_outage());
    server.restart();
    // Debian's pgbouncer tries a server that refused it again after 15 seconds.
    pooler.restart();
    node.recovers();
    assert_eq!(node.used(&plan, "k"), 2);
    // Others have all of its connections.
    let hogs: Vec<_> = (0..4).map(|_| client(&pooler.url())).collect();
    hogs.iter().for_each(|hog| runtime().block_on(hog.batch_execute("BEGIN")).unwrap());
    assert!(node.take(&plan, "k").unwrap_err().is_outage());
    hogs.iter().for_each(|hog| runtime().block_on(hog.batch_execute("ROLLBACK")).unwrap());
    node.recovers();
    // Another session locks a key within a transaction.
    let lock = server.sql(&format!("SELECT {}", lock_of("tollgate", "k")));
    runtime()
        .block_on(hogs[0].batch_execute(&format!("BEGIN; SELECT pg_advisory_xact_lock({lock})")))
        .unwrap();
    assert_eq!(node.take(&plan, "k").unwrap_err(), StoreError::Busy);
    drop(hogs);
    node.recovers();
    let used = node.used(&plan, "k");
    let proxy = Proxy::to(pooler.port());
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", proxy.port());
    let far = Node::new(&url, "tollgate", HASTY);
    far.take(&plan, "k").unwrap();
    proxy.swallow_replies();
    let lost = ticket();
    assert!(far.take_by(&plan, "k", lost).unwrap_err().is_uncertain());
    proxy.heal();
    far.recovers();
    node.retract(&plan, "k", lost).unwrap();
    assert_eq!(node.used(&plan, "k"), used + 1);
}
