//! Ledgers: many records whose changes are followed.

use std::collections::BTreeMap;

use tollgate_core::ledger::{Changes, Edit, Entry, MOST_CHANGES, Scope};
use tollgate_core::store::Forget;

use crate::bench::{Ask, Bench, START, at, plan, remaining, wait};

fn write(name: &str, value: &str) -> Edit {
    Edit { name: name.to_owned(), to: Entry::Written(value.as_bytes().to_vec()) }
}

fn remove(name: &str) -> Edit {
    Edit { name: name.to_owned(), to: Entry::Removed }
}

fn remove_if(name: &str, value: &str) -> Edit {
    Edit { name: name.to_owned(), to: Entry::RemovedIf(value.as_bytes().to_vec()) }
}

fn enter(bench: &dyn Bench, edits: &[Edit]) {
    wait(bench.records().enter(edits)).unwrap();
}

fn changes_since(bench: &dyn Bench, since: Option<u64>) -> Changes {
    wait(bench.records().changes(since)).unwrap()
}

/// What news tell, sorted by name.
fn told(changes: &Changes) -> Vec<(String, Option<String>)> {
    let text =
        |value: &Option<Vec<u8>>| value.as_ref().map(|value| String::from_utf8(value.clone()).unwrap());
    let all: BTreeMap<String, Option<String>> =
        changes.entries.iter().map(|(name, value)| (name.clone(), text(value))).collect();
    all.into_iter().collect()
}

fn expected(entries: &[(&str, Option<&str>)]) -> Vec<(String, Option<String>)> {
    entries.iter().map(|(name, value)| ((*name).to_owned(), value.map(ToOwned::to_owned))).collect()
}

pub(crate) fn a_ledger_is_read_whole_and_then_by_its_changes(bench: &mut dyn Bench) {
    let first = changes_since(bench, None);
    assert_eq!((first.scope, told(&first)), (Scope::All, vec![]));
    enter(
        bench,
        &[
            write("b", "1"),
            write("a/ü,=", ""),
            write("c", "x\ny"),
            write("b", "2"),
            remove("c"),
            remove("none"),
        ],
    );
    let whole = changes_since(bench, None);
    assert_eq!(whole.scope, Scope::All);
    assert_eq!(told(&whole), expected(&[("a/ü,=", Some("")), ("b", Some("2"))]));
    let nothing = changes_since(bench, Some(whole.version));
    assert_eq!((nothing.scope, nothing.entries.len(), nothing.size), (Scope::Changes, 0, Some(2)));
    enter(bench, &[remove("b"), write("d", "4")]);
    let later = changes_since(bench, Some(whole.version));
    assert_eq!((later.scope, later.size), (Scope::Changes, Some(2)));
    assert_eq!(told(&later), expected(&[("b", None), ("d", Some("4"))]));
    assert!(later.version > whole.version);
    enter(bench, &[remove("b"), remove_if("d", "5")]);
    assert_eq!(changes_since(bench, Some(later.version)).version, later.version, "nothing has changed");
    bench.set_time(at(60));
    assert_eq!(changes_since(bench, None).now, Some(at(60)), "the store tells its time");
    bench.disturb();
    let kept = changes_since(bench, None);
    assert_eq!(told(&kept), expected(&[("a/ü,=", Some("")), ("d", Some("4"))]));
}

pub(crate) fn what_changed_meanwhile_is_not_removed(bench: &dyn Bench) {
    enter(bench, &[write("a", "1"), write("b", "1")]);
    enter(bench, &[write("a", "2")]);
    enter(bench, &[remove_if("a", "1"), remove_if("b", "1"), remove_if("none", "1")]);
    assert_eq!(told(&changes_since(bench, None)), expected(&[("a", Some("2"))]));
}

pub(crate) fn whoever_missed_too_much_reads_everything(bench: &dyn Bench) {
    enter(bench, &[write("first", "1")]);
    let known = changes_since(bench, None).version;
    let many: Vec<Edit> =
        (0..MOST_CHANGES).map(|number| write(&format!("{}", number % 7), &number.to_string())).collect();
    enter(bench, &many[1..]);
    let changes = changes_since(bench, Some(known));
    assert_eq!((changes.scope, told(&changes).len(), changes.size), (Scope::Changes, 7, Some(8)));
    enter(bench, &[write("last", "1"), remove("first")]);
    let all = changes_since(bench, Some(known));
    assert_eq!((all.scope, told(&all).len()), (Scope::All, 8));
    assert!(!told(&all).iter().any(|(name, _)| name == "first"));
    let after = changes_since(bench, Some(all.version + 1));
    assert_eq!(after.scope, Scope::All, "a version that there has not been");
}

pub(crate) fn a_ledger_is_apart_from_records_and_counters(bench: &dyn Bench) {
    let plan = plan("client", "10/min");
    Ask::one(&plan, "ada", 1).take(bench);
    enter(bench, &[write("ada", "1")]);
    wait(bench.records().put("ada", b"x")).unwrap();
    assert_eq!(wait(bench.records().all()).unwrap(), [("ada".to_owned(), b"x".to_vec())]);
    assert_eq!(remaining(bench, &plan, "ada", START), 9);
    wait(bench.store().forget(Forget::All)).unwrap();
    assert_eq!(told(&changes_since(bench, None)), expected(&[("ada", Some("1"))]));
}

pub(crate) fn a_long_ledger_is_read_whole(bench: &mut dyn Bench) {
    let many: Vec<Edit> = (0..12_345).map(|number| write(&format!("10.0.{number}"), "block")).collect();
    enter(bench, &many);
    bench.disturb();
    let all = changes_since(bench, None);
    assert_eq!((all.scope, told(&all).len()), (Scope::All, 12_345));
}
