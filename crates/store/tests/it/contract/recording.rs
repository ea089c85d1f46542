//! Records: named values in namespaces, and following their changes.

use std::collections::BTreeMap;

use tollgate_core::store::Forget;
use tollgate_core::versioned_map::{Changes, Edit, Expect, MOST_CHANGES, Namespace, Scope};
use tollgate_core::{Span, StoreError};

use crate::contract::bench::{Ask, Bench, START, at, plan, remaining, wait};

const LISTS: Namespace = Namespace::Lists;

fn change(bench: &dyn Bench, edits: &[Edit]) -> Vec<bool> {
    wait(bench.records().change(LISTS, edits)).unwrap()
}

fn changes_since(bench: &dyn Bench, since: Option<u64>) -> Changes {
    wait(bench.records().changes(LISTS, since)).unwrap()
}

/// The changed entries, sorted by name.
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

fn is(bytes: &str) -> Expect {
    Expect::Is(bytes.into())
}

pub(crate) fn a_namespace_is_read_whole_and_then_by_its_changes(bench: &mut dyn Bench) {
    let first = changes_since(bench, None);
    assert_eq!((first.scope, told(&first)), (Scope::All, vec![]));
    let edits = [
        Edit::put("b", "1"),
        Edit::put("a/ü,=", ""),
        Edit::put("c", "x\ny"),
        Edit::put("b", "2"),
        Edit::remove("c"),
        Edit::remove("none"),
    ];
    assert_eq!(change(bench, &edits), [true; 6]);
    let whole = changes_since(bench, None);
    assert_eq!(whole.scope, Scope::All);
    assert_eq!(told(&whole), expected(&[("a/ü,=", Some("")), ("b", Some("2"))]));
    let nothing = changes_since(bench, Some(whole.version));
    assert_eq!((nothing.scope, nothing.entries.len(), nothing.size), (Scope::Changes, 0, 2));
    change(bench, &[Edit::remove("b"), Edit::put("d", "4")]);
    let later = changes_since(bench, Some(whole.version));
    assert_eq!((later.scope, later.size), (Scope::Changes, 2));
    assert_eq!(told(&later), expected(&[("b", None), ("d", Some("4"))]));
    assert!(later.version > whole.version);
    change(bench, &[Edit::remove("b"), Edit::remove("d").expecting(is("5"))]);
    assert_eq!(changes_since(bench, Some(later.version)).version, later.version, "nothing has changed");
    bench.set_time(at(60));
    assert_eq!(changes_since(bench, None).now, at(60), "the store tells its time");
    bench.disturb();
    let kept = changes_since(bench, None);
    assert_eq!(told(&kept), expected(&[("a/ü,=", Some("")), ("d", Some("4"))]));
}

pub(crate) fn an_entry_is_changed_only_from_what_is_expected(bench: &dyn Bench) {
    let swap = |from: Option<&str>, to: Option<&str>| {
        let edit = to.map_or_else(|| Edit::remove("a"), |to| Edit::put("a", to));
        let expect = Expect::exactly(from.map(Into::into));
        change(bench, &[edit.expecting(expect)]) == [true]
    };
    let now = || told(&changes_since(bench, None)).pop().and_then(|(_, value)| value);
    assert!(!swap(Some("x"), Some("y")) && !swap(Some(""), Some("y")), "there is nothing yet");
    assert!(swap(None, Some("")));
    assert!(!swap(None, Some("y")) && !swap(Some("-"), None), "no entry is not the same as an empty one");
    assert!(swap(Some(""), Some("=x")) && now().as_deref() == Some("=x"));
    assert!(!swap(Some("x"), None) && !swap(Some("*"), None) && now().as_deref() == Some("=x"));
    assert!(swap(Some("=x"), None) && now().is_none());
    assert!(swap(None, None), "as it was");
}

pub(crate) fn of_callers_that_expect_the_same_one_succeeds(bench: &dyn Bench) {
    let succeeded = std::thread::scope(|scope| {
        let swap = |number: u8| change(bench, &[Edit::put("a", [number]).expecting(Expect::Absent)]);
        let swapping: Vec<_> = (0..8).map(|number| scope.spawn(move || swap(number))).collect();
        swapping.into_iter().map(|swapping| swapping.join().unwrap()).filter(|held| held[0]).count()
    });
    assert_eq!((succeeded, changes_since(bench, None).entries.len()), (1, 1));
}

pub(crate) fn edits_whose_condition_fails_leave_the_others(bench: &dyn Bench) {
    change(bench, &[Edit::put("a", "1"), Edit::put("b", "1")]);
    change(bench, &[Edit::put("a", "2")]);
    let remove = |name: &str| Edit::remove(name).expecting(is("1"));
    assert_eq!(change(bench, &[remove("a"), remove("b"), remove("none")]), [false, true, false]);
    assert_eq!(told(&changes_since(bench, None)), expected(&[("a", Some("2"))]));
}

pub(crate) fn a_reader_that_missed_too_much_reads_everything(bench: &dyn Bench) {
    change(bench, &[Edit::put("first", "1")]);
    let known = changes_since(bench, None).version;
    let many: Vec<Edit> =
        (0..MOST_CHANGES).map(|number| Edit::put(format!("{}", number % 7), number.to_string())).collect();
    change(bench, &many[1..]);
    let changes = changes_since(bench, Some(known));
    assert_eq!((changes.scope, told(&changes).len(), changes.size), (Scope::Changes, 7, 8));
    change(bench, &[Edit::put("last", "1"), Edit::remove("first")]);
    let all = changes_since(bench, Some(known));
    assert_eq!((all.scope, told(&all).len()), (Scope::All, 8));
    assert!(!told(&all).iter().any(|(name, _)| name == "first"));
    let after = changes_since(bench, Some(all.version + 1));
    assert_eq!(after.scope, Scope::All, "a version that there has not been");
}

pub(crate) fn namespaces_and_counters_are_apart(bench: &mut dyn Bench) {
    let plan = plan("client", "10/min");
    Ask::one(&plan, "ada", 1).take(bench);
    for space in Namespace::ALL {
        let edit = Edit::put("ada", space.name()).expecting(Expect::Absent);
        assert_eq!(wait(bench.records().change(space, &[edit])).unwrap(), [true], "{space:?}");
    }
    wait(bench.records().change(Namespace::Config, &[Edit::remove("ada")])).unwrap();
    assert_eq!(remaining(bench, &plan, "ada", START), 9);
    wait(bench.store().forget(Forget::All)).unwrap();
    bench.disturb();
    for space in Namespace::ALL {
        let found = told(&wait(bench.records().changes(space, None)).unwrap());
        let value = (space != Namespace::Config).then_some(("ada", Some(space.name())));
        assert_eq!(found, expected(&value.into_iter().collect::<Vec<_>>()), "{space:?}");
    }
}

pub(crate) fn a_long_namespace_is_read_whole(bench: &mut dyn Bench) {
    let many: Vec<Edit> = (0..12_345).map(|number| Edit::put(format!("10.0.{number}"), "block")).collect();
    change(bench, &many);
    bench.disturb();
    let all = changes_since(bench, None);
    assert_eq!((all.scope, told(&all).len()), (Scope::All, 12_345));
}

pub(crate) fn an_entry_ends_by_the_clock_of_the_store(bench: &mut dyn Bench) {
    let ends = |name: &str, secs: u64| Edit::put(name, "x").until(Some(at(secs)));
    change(bench, &[ends("a", 10), ends("b", 20), Edit::put("c", "x")]);
    bench.disturb();
    let known = changes_since(bench, None).version;
    let just_before = at(10) - Span::from_micros(1);
    bench.set_time(just_before);
    assert!(changes_since(bench, Some(known)).entries.is_empty());
    bench.set_time(at(10));
    let changes = changes_since(bench, Some(known));
    assert_eq!((told(&changes), changes.size), (expected(&[("a", None)]), 2));
    bench.disturb();
    assert_eq!(told(&changes_since(bench, None)), expected(&[("b", Some("x")), ("c", Some("x"))]));
    bench.set_time(at(30));
    let edits = [Edit::put("b", "y").expecting(Expect::Absent), Edit::remove("a").expecting(is("x"))];
    assert_eq!(change(bench, &edits), [true, false], "an ended entry does not exist for a condition either");
}

pub(crate) fn an_entry_that_is_written_again_has_its_new_end(bench: &mut dyn Bench) {
    let ends = |name: &str, secs: u64| Edit::put(name, "x").until(Some(at(secs)));
    change(bench, &[ends("longer", 10), ends("shorter", 30), ends("kept", 10), ends("gone", 10)]);
    change(bench, &[ends("longer", 30), ends("shorter", 10), Edit::put("kept", "x"), Edit::remove("gone")]);
    change(bench, &[Edit::put("gone", "back")]);
    bench.disturb();
    let left = |secs: u64| {
        bench.set_time(at(secs));
        told(&changes_since(bench, None)).into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    assert_eq!(left(10), ["gone", "kept", "longer"]);
    assert_eq!(left(30), ["gone", "kept"]);
}

pub(crate) fn a_full_namespace_refuses_new_names_and_nothing_else(bench: &dyn Bench) {
    let most = Namespace::Pauses.most_entries();
    let change = |edits: &[Edit]| wait(bench.records().change(Namespace::Pauses, edits));
    let many: Vec<Edit> = (1..most).map(|number| Edit::put(format!("{number}"), "x")).collect();
    change(&many).unwrap();
    let refused = change(&[Edit::put("1", "changed"), Edit::put("a", "x"), Edit::put("b", "x")]);
    assert!(matches!(refused, Err(StoreError::OutOfMemory { .. })), "{refused:?}");
    let read = || wait(bench.records().changes(Namespace::Pauses, None)).unwrap().entries;
    let of = |name: &str| read().into_iter().find(|(own, _)| own == name).and_then(|(_, value)| value);
    assert_eq!((of("1"), of("a")), (Some(b"x".to_vec()), None), "none of the edits was made");
    assert_eq!(change(&[Edit::put("1", "changed"), Edit::put("a", "x")]).unwrap(), [true, true]);
    assert!(change(&[Edit::put("b", "x")]).is_err());
    assert_eq!(change(&[Edit::remove("2"), Edit::put("1", "again")]).unwrap(), [true, true]);
    change(&[Edit::put("b", "x")]).unwrap();
    assert_eq!(read().len(), most);
}
