//! Records: names and what is written under them.

use tollgate_core::store::Forget;

use crate::bench::{Ask, Bench, START, plan, remaining, wait};

fn all(bench: &dyn Bench) -> Vec<(String, Vec<u8>)> {
    wait(bench.records().all()).unwrap()
}

pub(crate) fn records_are_listed_by_name(bench: &dyn Bench) {
    assert!(all(bench).is_empty());
    for (name, value) in [("b", "two"), ("a/ü", "one"), ("c", ""), ("b", "again")] {
        wait(bench.records().put(name, value.as_bytes())).unwrap();
    }
    let expected = [("a/ü", "one"), ("b", "again"), ("c", "")];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()));
    assert_eq!(all(bench), expected);
}

pub(crate) fn a_deleted_record_is_gone(bench: &dyn Bench) {
    for name in ["a", "b"] {
        wait(bench.records().put(name, b"x")).unwrap();
    }
    for _ in 0..2 {
        wait(bench.records().delete("a")).unwrap();
    }
    assert_eq!(all(bench), [("b".to_owned(), b"x".to_vec())]);
}

pub(crate) fn records_and_counters_do_not_touch_each_other(bench: &dyn Bench) {
    let plan = plan("client", "10/min");
    Ask::one(&plan, "ada", 1).take(bench);
    wait(bench.records().put("ada", b"x")).unwrap();
    assert_eq!(remaining(bench, &plan, "ada", START), 9);
    wait(bench.store().forget(Forget::All)).unwrap();
    assert_eq!(all(bench).len(), 1);
}
