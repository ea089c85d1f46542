//! Replies have at most 1 MiB. Longer lists are read in pages. A value that another program made longer
//! affects only its key.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::stage::{Ask, Node, plan, shared, wait};
use tollgate_core::store::{Counter, HoldsOrder};
use tollgate_core::versioned_map::{Edit, Namespace, Scope};
use tollgate_core::{Records, Store, StoreError, Ticket};

#[test]
fn records_of_many_mebibytes_are_read_in_pages() {
    let node = Node::patient(&shared().url(), "pages");
    let mut written: Vec<(String, Vec<u8>)> =
        (0..3_000).map(|number| (format!("limits/{number:05}"), vec![b'v'; 1_000])).collect();
    written.push(("policy/long".into(), vec![b'l'; 400_000]));
    written.push(("policy/longer".into(), vec![b'm'; 400_000]));
    for (name, value) in &written {
        wait(node.store.change(Namespace::Config, &[Edit::put(&**name, &**value)])).unwrap();
    }
    let read = wait(node.store.changes(Namespace::Config, None)).unwrap().entries;
    let written: Vec<_> = written.into_iter().map(|(name, value)| (name, Some(value))).collect();
    assert!(read == written, "{} of {} records were read", read.len(), written.len());
    let endless = [Edit::put("policy/endless", vec![b'x'; 2 << 20])];
    let refused = wait(node.store.change(Namespace::Config, &endless));
    assert!(matches!(refused, Err(StoreError::OutOfMemory { .. })), "{refused:?}");
}

#[test]
fn a_namespace_of_many_mebibytes_is_read_and_followed_in_pages() {
    let node = Node::patient(&shared().url(), "leaves");
    let edits: Vec<Edit> =
        (0..1_500).map(|number| Edit::put(format!("user={number:05}"), vec![b'e'; 2_000])).collect();
    wait(node.store.change(Namespace::Lists, &edits)).unwrap();
    for (since, scope) in [(None, Scope::All), (Some(0), Scope::Changes)] {
        let changes = wait(node.store.changes(Namespace::Lists, since)).unwrap();
        let mut names: Vec<String> = changes.entries.into_iter().map(|(name, _)| name).collect();
        names.sort();
        names.dedup();
        assert_eq!((names.len(), changes.version, changes.scope), (1_500, 1_500, scope));
    }
}

#[test]
fn orders_about_many_holds_with_long_ids_are_obeyed_in_parts() {
    let node = Node::patient(&shared().url(), "long");
    let plan = plan("jobs", "20000 at once for 1h");
    let ids: Vec<String> = (0..HoldsOrder::MOST_IDS).map(|number| format!("{number:0250}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let counter = Counter { plan: &plan, key: "k" };
    let wanted: Vec<(&str, u64)> = ids.iter().map(|id| (*id, 1)).collect();
    for order in [
        HoldsOrder::Claim(&wanted, Ticket(7)),
        HoldsOrder::RenewMany(&ids),
        HoldsOrder::List,
        HoldsOrder::ReleaseMany(&ids),
    ] {
        let report = wait(node.store.holds(&counter, order)).unwrap();
        let held: Vec<&str> = report.holds.iter().map(|(id, _)| id.as_str()).collect();
        assert!(held == ids, "{order:.20?}: {} holds", held.len());
    }
    assert_eq!(node.used(&plan, "k"), 0);
}

#[test]
fn a_key_that_holds_mebibytes_of_something_else_is_damaged_and_the_connection_lives() {
    let node = Node::patient(&shared().url(), "huge");
    let other = plan("other", "10/min");
    for (rule, limits) in [("lone", "10/min burst 10"), ("plain", "10/min"), ("full", "10/min sliding")] {
        let (plan, key) = (plan(rule, limits), format!("huge:{{{rule}:k}}"));
        let _ = shared().command(&["SET", &key, &"x".repeat(4 << 20)]).ok();
        let answer = node.take(&Ask::one(&plan, "k"));
        assert!(matches!(answer, Err(StoreError::Damaged { .. })), "{rule}: {answer:?}");
        assert!(node.take(&Ask::one(&other, "o")).unwrap().allowed);
        wait(node.store.forget(tollgate_core::store::Forget::Key(Counter { plan: &plan, key: "k" })))
            .unwrap();
        assert!(node.take(&Ask::one(&plan, "k")).unwrap().allowed, "{rule}: it was reset");
    }
}
