//! Records in Redis: a late change is refused, and a node that follows a namespace knows its entries,
//! whatever happened to the keys.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use crate::stage::{HASTY, Node, is_outage, shared, wait};
use tollgate_core::versioned_map::{Changes, Edit, Namespace, Scope};
use tollgate_core::{Records, Span, Store, StoreError};
use tollgate_testbed::{Server, pause};

fn write(name: &str) -> Edit {
    Edit::put(name, "block")
}

fn changes(node: &Node, since: Option<u64>) -> Changes {
    wait(node.store.changes(Namespace::Lists, since)).unwrap()
}

#[test]
fn a_change_that_reaches_a_paused_server_after_its_caller_gave_up_is_not_made() {
    let server = Server::redis().start();
    let (direct, node) = (Node::patient(&server.url(), "late"), Node::hasty(&server.url(), "late"));
    wait(direct.store.change(Namespace::Lists, &[write("before")])).unwrap();
    node.recovers();
    server.pause();
    assert!(is_outage(&wait(node.store.change(Namespace::Lists, &[write("late")])).unwrap_err()));
    pause(HASTY * 3);
    server.resume();
    node.recovers();
    let known: Vec<String> = changes(&direct, None).entries.into_iter().map(|(name, _)| name).collect();
    assert_eq!(known, ["before"]);
}

#[test]
fn a_key_that_another_program_wrote_is_named_and_left_alone() {
    let (server, node) = (shared(), Node::patient(&shared().url(), "other"));
    let _ = server.command(&["SET", "other/{lists}", "not ours"]).ok();
    let (store, edits) = (&node.store, [write("a")]);
    let read = || wait(store.changes(Namespace::Lists, None)).map(drop);
    let written = || wait(store.change(Namespace::Lists, &edits)).map(drop);
    for answer in [read(), written()] {
        let Err(StoreError::Damaged { key, .. }) = &answer else { panic!("{answer:?}") };
        assert_eq!(key, "other/{lists}");
    }
    assert_eq!(server.command(&["GET", "other/{lists}"]).text(), "not ours");
    assert!(wait(store.changes(Namespace::Locks, None)).is_ok(), "other namespaces are well");
    let _ = server.command(&["DEL", "other/{lists}"]);
    let _ = server.command(&["SET", "other/{lists}:ends", "not ours"]).ok();
    for answer in [read(), written()] {
        let Err(StoreError::Damaged { key, .. }) = &answer else { panic!("{answer:?}") };
        assert_eq!(key, "other/{lists}:ends");
    }
    let _ = server.command(&["DEL", "other/{lists}:ends"]);
    written().unwrap();
    assert_eq!(changes(&node, None).entries.len(), 1);
}

#[test]
fn changes_that_were_lost_make_everything_be_read() {
    let (server, node) = (shared(), Node::patient(&shared().url(), "torn"));
    wait(node.store.change(Namespace::Lists, &[write("a"), write("b")])).unwrap();
    let known = changes(&node, None).version;
    wait(node.store.change(Namespace::Lists, &[write("c"), write("d")])).unwrap();
    assert_eq!(changes(&node, Some(known)).scope, Scope::Changes);
    let _ = server.command(&["HDEL", "torn/{lists}", &format!("change:{}", known + 1)]).ok();
    let whole = changes(&node, Some(known));
    assert_eq!((whole.scope, whole.entries.len()), (Scope::All, 4));
    let _ = server.command(&["DEL", "torn/{lists}"]).ok();
    let empty = changes(&node, Some(whole.version));
    assert_eq!((empty.scope, empty.entries.len(), empty.version), (Scope::All, 0, 0));
}

#[test]
fn a_namespace_does_not_grow_with_its_changes() {
    let (server, node) = (shared(), Node::patient(&shared().url(), "size"));
    for _ in 0..12 {
        let edits: Vec<Edit> = (0..1_000).map(|number| write(&format!("{}", number % 10))).collect();
        wait(node.store.change(Namespace::Lists, &edits)).unwrap();
    }
    assert_eq!(server.command(&["HLEN", "size/{lists}"]).number(), 10 + 10_000 + 1);
    assert_eq!(server.command(&["TTL", "size/{lists}"]).number(), -1, "bans are not forgotten");
    assert_eq!(changes(&node, Some(12_000)).size, 10);
}

#[test]
fn entries_that_end_leave_the_server_and_all_that_was_kept_of_them() {
    let (server, node) = (shared(), Node::patient(&shared().url(), "ends"));
    let soon = wait(node.store.now()).unwrap() + Span::from_millis(300);
    let edits = [write("soon").until(Some(soon)), write("stays"), write("again").until(Some(soon))];
    wait(node.store.change(Namespace::Lists, &edits)).unwrap();
    wait(node.store.change(Namespace::Lists, &[write("again")])).unwrap();
    let known = changes(&node, None);
    assert_eq!((known.entries.len(), server.command(&["ZCARD", "ends/{lists}:ends"]).number()), (3, 1));
    pause(Duration::from_millis(310));
    let changed = changes(&node, Some(known.version));
    assert_eq!((changed.entries, changed.size), (vec![("soon".to_owned(), None)], 2));
    assert_eq!(server.command(&["EXISTS", "ends/{lists}:ends"]).number(), 0);
}

#[test]
fn records_of_the_first_layout_are_moved_to_their_namespaces() {
    let (server, node) = (shared(), Node::patient(&shared().url(), "old"));
    let record = |name: &str, value: &str| server.command(&["HSET", "old/records", name, value]).ok();
    let _ = record("record:override/ip/192.0.2.1", "2/hour");
    let _ = record("record:pause/77", "9000000000000000\npolicy\ntelegram");
    let _ = record("record:pause/78", "1\npolicy\nover");
    let _ = record("version", "3");
    let entry = |name: &str, value: &str| server.command(&["HSET", "old/ledger", name, value]).ok();
    let _ = entry("entry:203.0.113.7", "block\nsince 1\nuntil 9000000000000000");
    let _ = entry("entry:203.0.113.8", "block\nsince 1\nuntil 2");
    let _ = entry("entry:lock/door/account/x", "9000000000000000\nsealed");
    let _ = entry("version", "3");
    let _ = entry("change:3", "203.0.113.7");
    let of = |space| {
        let entries = wait(node.store.changes(space, None)).unwrap().entries;
        entries.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    assert_eq!(of(Namespace::Config), ["override/ip/192.0.2.1"]);
    assert_eq!(of(Namespace::Lists), ["203.0.113.7"], "the other has ended");
    assert_eq!(of(Namespace::Pauses), ["77"]);
    assert_eq!(of(Namespace::Locks), ["door/account/x"]);
    assert_eq!(server.command(&["EXISTS", "old/records", "old/ledger"]).number(), 0);
    let _ = wait(node.store.change(Namespace::Lists, &[Edit::remove("203.0.113.7")])).unwrap();
    assert_eq!(changes(&Node::patient(&server.url(), "old"), None).entries, [], "it is moved once");
}

#[test]
fn a_user_that_may_not_write_all_of_a_change_writes_nothing_of_it_and_can_read() {
    let server = Server::redis().users("user default on nopass ~* &* +@all -zrem\n").start();
    let node = Node::patient(&server.url(), "half");
    let refused = wait(node.store.change(Namespace::Lists, &[write("a")])).unwrap_err();
    assert!(matches!(&refused, StoreError::Forbidden { reason } if reason.contains("zrem")), "{refused}");
    assert_eq!(server.command(&["EXISTS", "half/{lists}"]).number(), 0);
    assert_eq!(changes(&node, None).entries, []);
}
