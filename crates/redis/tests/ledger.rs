//! The ledger in Redis: what comes too late changes nothing, and whatever became of the hash, who follows
//! it knows what is in it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod stage;

use stage::{HASTY, Node, is_outage, shared, wait};
use tollgate_core::ledger::{Changes, Edit, Entry, Scope};
use tollgate_core::{Records, StoreError};
use tollgate_testbed::{Server, pause};

fn write(name: &str) -> Edit {
    Edit { name: name.to_owned(), to: Entry::Written(b"block".to_vec()) }
}

fn changes(node: &Node, since: Option<u64>) -> Changes {
    wait(node.store.changes(since)).unwrap()
}

#[test]
fn a_change_that_reaches_a_paused_server_after_its_caller_gave_up_is_not_made() {
    let server = Server::redis().start();
    let (direct, node) = (Node::patient(&server.url(), "late"), Node::hasty(&server.url(), "late"));
    wait(direct.store.enter(&[write("before")])).unwrap();
    node.recovers();
    server.pause();
    assert!(is_outage(&wait(node.store.enter(&[write("late")])).unwrap_err()));
    pause(HASTY * 3);
    server.resume();
    node.recovers();
    let known: Vec<String> = changes(&direct, None).entries.into_iter().map(|(name, _)| name).collect();
    assert_eq!(known, ["before"]);
}

#[test]
fn a_ledger_that_somebody_else_wrote_is_named_and_left_alone() {
    let (server, node) = (shared(), Node::patient(&shared().url(), "other"));
    let _ = server.command(&["SET", "other/ledger", "not ours"]).ok();
    for answer in [wait(node.store.changes(None)).map(drop), wait(node.store.enter(&[write("a")]))] {
        let Err(StoreError::Damaged { key, .. }) = &answer else { panic!("{answer:?}") };
        assert_eq!(key, "other/ledger");
    }
    assert_eq!(server.command(&["GET", "other/ledger"]).text(), "not ours");
}

#[test]
fn changes_that_were_lost_make_everything_be_read() {
    let (server, node) = (shared(), Node::patient(&shared().url(), "torn"));
    wait(node.store.enter(&[write("a"), write("b")])).unwrap();
    let known = changes(&node, None).version;
    wait(node.store.enter(&[write("c"), write("d")])).unwrap();
    assert_eq!(changes(&node, Some(known)).scope, Scope::Changes);
    let _ = server.command(&["HDEL", "torn/ledger", &format!("change:{}", known + 1)]).ok();
    let whole = changes(&node, Some(known));
    assert_eq!((whole.scope, whole.entries.len()), (Scope::All, 4));
    let _ = server.command(&["DEL", "torn/ledger"]).ok();
    let empty = changes(&node, Some(whole.version));
    assert_eq!((empty.scope, empty.entries.len(), empty.version), (Scope::All, 0, 0));
}

#[test]
fn the_ledger_is_one_hash_that_does_not_grow_with_its_changes() {
    let (server, node) = (shared(), Node::patient(&shared().url(), "size"));
    for _ in 0..12 {
        let edits: Vec<Edit> = (0..1_000).map(|number| write(&format!("{}", number % 10))).collect();
        wait(node.store.enter(&edits)).unwrap();
    }
    assert_eq!(server.command(&["HLEN", "size/ledger"]).number(), 10 + 10_000 + 1);
    assert_eq!(server.command(&["TTL", "size/ledger"]).number(), -1, "bans are not forgotten");
    assert_eq!(changes(&node, Some(12_000)).size, Some(10));
}
