//! Rows that another program has written: a clear error for their own key, for no other, and a reset heals it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::stage::{Node, PATIENT, charges, plan, runtime, shared, ticket};
use tollgate_core::store::{Counter, Forget, Records};
use tollgate_core::versioned_map::{Edit, Namespace};
use tollgate_core::{StoreError, Ticket};

const LIMITS: &str = "5000/min, 5000/hour sliding, 5000/day sliding by 1h, ladder 400 lock 1m forget 1h, 3000 at once, 9000 in total";

fn is_damaged<T: std::fmt::Debug>(answer: Result<T, StoreError>, key: &str) -> bool {
    matches!(answer, Err(StoreError::Damaged { key: told, .. }) if told.ends_with(key))
}

#[test]
fn a_damaged_row_is_told_hurts_no_other_key_and_a_reset_heals_it() {
    let node = Node::new(&shared().url(), "garbled", PATIENT);
    let plan = plan("a", LIMITS);
    let bad = Counter { plan: &plan, key: "bad" };
    let of_bad = "counter = (SELECT id FROM garbled.counter WHERE key = 'bad')";
    for damage in [
        "UPDATE garbled.counter SET used = '{}' WHERE key = 'bad'".to_owned(),
        "UPDATE garbled.counter SET used[1] = -5 WHERE key = 'bad'".to_owned(),
        "UPDATE garbled.counter SET used[2] = 0 WHERE key = 'bad'".to_owned(),
        "UPDATE garbled.counter SET marks[1] = NULL WHERE key = 'bad'".to_owned(),
        "UPDATE garbled.counter SET marks[1] = 9223372036854775807 WHERE key = 'bad'".to_owned(),
        "UPDATE garbled.counter SET logs[2] = NULL WHERE key = 'bad'".to_owned(),
        "UPDATE garbled.counter SET limits = 'nonsense' WHERE key = 'bad'".to_owned(),
        "UPDATE garbled.counter SET limits = repeat('x', 100000000) WHERE key = 'bad'".to_owned(),
        "UPDATE garbled.counter SET used = array_fill(1, ARRAY[10000000]) WHERE key = 'bad'".to_owned(),
        "UPDATE garbled.counter SET marks = array_fill(1, ARRAY[100000]) WHERE key = 'bad'".to_owned(),
        "UPDATE garbled.counter SET holds = 100, used[5] = -1 WHERE key = 'bad'".to_owned(),
        "UPDATE garbled.counter SET oldest = -1 WHERE key = 'bad'".to_owned(),
        "UPDATE garbled.counter SET seq = -1 WHERE key = 'bad'".to_owned(),
        format!("UPDATE garbled.entry SET cost = -1 WHERE {of_bad}"),
        format!("UPDATE garbled.entry SET at = -1 WHERE {of_bad}"),
        format!("UPDATE garbled.entry SET cost = 100 WHERE {of_bad} AND log < 0"),
        format!("DELETE FROM garbled.entry WHERE {of_bad}"),
        format!("UPDATE garbled.hold SET weight = -1 WHERE {of_bad}"),
        format!("UPDATE garbled.hold SET id = '%x' WHERE {of_bad}"),
    ] {
        let own = ticket();
        let at = node.take_by(&plan, "bad", own).unwrap().now;
        shared().sql(&damage);
        assert!(is_damaged(node.take(&plan, "bad"), "a:bad"), "{damage}");
        assert!(is_damaged(node.refund(&plan, "bad", own, at), "a:bad"), "{damage}");
        // Callers that settle together with it are decided.
        let good = runtime().block_on(async {
            let key = |key: usize| if key % 7 == 3 { "bad".to_owned() } else { key.to_string() };
            let parts = |key| [(Arc::clone(&plan), key), (Arc::clone(&plan), "shared".to_owned())];
            let all: Vec<_> = (0..40).map(|number| parts(key(number))).collect();
            let takes = all.iter().map(|parts| async { node.take_all(&charges(ticket(), parts)).await });
            let answers = futures_util::future::join_all(takes).await;
            let answers = answers.into_iter().zip(&all);
            answers.filter(|(answer, parts)| answer.is_ok() == (parts[0].1 != "bad")).count()
        });
        assert_eq!(good, 40, "{damage}");
        runtime().block_on(node.store.sweep()).unwrap();
        node.forget(Forget::Key(bad)).unwrap();
        assert_eq!(node.used(&plan, "bad"), 0, "{damage}");
        assert!(node.take(&plan, "bad").unwrap().allowed, "{damage}");
        node.forget(Forget::Key(bad)).unwrap();
    }
}

#[test]
fn a_record_of_a_hundred_megabytes_is_cut_and_others_are_read() {
    let node = Node::new(&shared().url(), "bulky", PATIENT);
    let sound = [Edit::put("bulky", "sound"), Edit::put("other", "sound")];
    runtime().block_on(async { node.store.change(Namespace::Config, &sound).await }).unwrap();
    runtime().block_on(async { node.store.secret().await }).unwrap();
    let bulky = "convert_to(repeat('x', 100000000), 'UTF8')";
    shared().sql(&format!("UPDATE bulky.record SET bytes = {bulky} WHERE name = 'bulky'"));
    let read = runtime().block_on(async { node.store.changes(Namespace::Config, None).await }).unwrap();
    let length = |bytes: Option<Vec<u8>>| bytes.map_or(0, |bytes| bytes.len());
    let lengths: BTreeMap<String, usize> =
        read.entries.into_iter().map(|(name, bytes)| (name, length(bytes))).collect();
    assert_eq!(lengths, BTreeMap::from([("bulky".into(), 8 << 20), ("other".into(), 5)]));
    shared().sql(&format!("UPDATE bulky.secret SET bytes = {bulky}"));
    let secret = runtime().block_on(async { node.store.secret().await });
    assert!(matches!(secret, Err(StoreError::Damaged { .. })), "{secret:?}");
}

#[test]
fn rows_of_no_counter_touch_nothing() {
    let node = Node::new(&shared().url(), "strangers", PATIENT);
    let plan = plan("a", "5/min, 50/min sliding");
    node.take(&plan, "k").unwrap();
    shared().sql(
        "INSERT INTO strangers.counter SELECT '\\x01', rule, 'short', limits, used, marks, logs, seq, holds, oldest, \
         newest, 0 FROM strangers.counter; \
         INSERT INTO strangers.entry VALUES ('\\x0102', 0, 0, 0, 0, 1); \
         INSERT INTO strangers.spent VALUES ('\\x', 1, 1, 1); INSERT INTO strangers.forgotten VALUES ('b', 1)",
    );
    node.take(&plan, "k").unwrap();
    assert_eq!(runtime().block_on(node.store.sweep()).unwrap(), 0);
    node.refund(&plan, "k", Ticket(1), stage_now(&node)).unwrap();
    node.forget(Forget::Rule("a")).unwrap();
    assert_eq!(node.used(&plan, "k"), 0);
}

fn stage_now(node: &Node) -> tollgate_core::Timestamp {
    runtime().block_on(async { tollgate_core::Store::now(&node.store).await }).unwrap()
}
