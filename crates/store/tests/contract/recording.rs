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

pub(crate) fn a_record_is_swapped_only_for_what_is_expected(bench: &dyn Bench) {
    let swap = |from: Option<&str>, to: Option<&str>| {
        let (from, to) = (from.map(str::as_bytes), to.map(str::as_bytes));
        wait(bench.records().swap("a", from, to)).unwrap()
    };
    let now = || all(bench).pop().map(|(_, value)| String::from_utf8(value).unwrap());
    assert!(!swap(Some("x"), Some("y")) && !swap(Some(""), Some("y")), "there is nothing yet");
    assert!(swap(None, Some("")));
    assert!(!swap(None, Some("y")) && !swap(Some("-"), None), "nothing is not the same as empty");
    assert!(swap(Some(""), Some("=x")) && now().as_deref() == Some("=x"));
    assert!(!swap(Some("x"), None) && !swap(Some("*"), None) && now().as_deref() == Some("=x"));
    assert!(swap(Some("=x"), None) && now().is_none());
    assert!(swap(None, None), "as it was");
}

pub(crate) fn of_many_who_swap_at_once_one_succeeds(bench: &dyn Bench) {
    let succeeded = std::thread::scope(|scope| {
        let swapping: Vec<_> = (0..8)
            .map(|number: u8| {
                scope.spawn(move || wait(bench.records().swap("a", None, Some(&[number]))).unwrap())
            })
            .collect();
        swapping.into_iter().map(|swapping| swapping.join().unwrap()).filter(|done| *done).count()
    });
    assert_eq!((succeeded, all(bench).len()), (1, 1));
}

pub(crate) fn records_and_counters_do_not_touch_each_other(bench: &dyn Bench) {
    let plan = plan("client", "10/min");
    Ask::one(&plan, "ada", 1).take(bench);
    wait(bench.records().put("ada", b"x")).unwrap();
    assert_eq!(remaining(bench, &plan, "ada", START), 9);
    wait(bench.store().forget(Forget::All)).unwrap();
    assert_eq!(all(bench).len(), 1);
}
