//! Concurrent takes: all or nothing, and never one too many.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::store::Refunded;

use crate::contract::bench::{Ask, Bench, KINDS, START, plan, remaining};

const THREADS: u64 = 8;

/// Runs `work` on every thread with the thread's number, and adds up the results.
fn on_all_threads(work: impl Fn(u64) -> u64 + Sync) -> u64 {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                scope.spawn({
                    let work = &work;
                    move || work(number)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}

pub(crate) fn many_threads_admit_exactly_the_limit(bench: &dyn Bench) {
    for kind in KINDS {
        let fifty = kind.replace("10/min", "50/min").replace("10 ", "50 ").replace("burst 10", "burst 50");
        let fifty = fifty.replace("12/", "60/").replace("14/", "70/");
        let plan = plan(kind, &fifty);
        let tickets = AtomicU64::new(1);
        let admitted = on_all_threads(|_| {
            let mut admitted = 0;
            while let ticket @ 1..=500 = tickets.fetch_add(1, Ordering::Relaxed) {
                admitted += u64::from(Ask::one(&plan, "ada", ticket).take(bench).allowed);
            }
            admitted
        });
        assert_eq!(admitted, 50, "{fifty}");
    }
}

pub(crate) fn many_threads_take_all_or_nothing(bench: &dyn Bench) {
    for kind in KINDS {
        let fifty = kind.replace("10/min", "50/min").replace("10 ", "50 ").replace("burst 10", "burst 50");
        let fifty = fifty.replace("12/", "60/").replace("14/", "70/");
        let (shared, own) = (plan(kind, &fifty), plan(&format!("own {kind}"), "5/hour"));
        let admitted = on_all_threads(|thread| {
            let client = format!("client {thread}");
            let asks =
                (0..60).map(|count| Ask::one(&shared, "all", 1 + thread * 60 + count).and(&own, &client));
            asks.map(|ask| u64::from(ask.take(bench).allowed)).sum()
        });
        assert_eq!(admitted, 40, "{fifty}: five of each");
        assert_eq!(remaining(bench, &shared, "all", START), 10, "{fifty}: the refused took nothing");
        // Now the shared limit is the narrow one, and the clients' own limits are not charged.
        let wide = plan(&format!("wide {kind}"), "500/hour");
        let again = on_all_threads(|thread| {
            let client = format!("client {thread}");
            let asks = (0..60)
                .map(|count| Ask::one(&wide, &client, 1_000 + thread * 60 + count).and(&shared, "all"));
            asks.map(|ask| u64::from(ask.take(bench).allowed)).sum()
        });
        assert_eq!(again, 10, "{fifty}");
        let left: u64 =
            (0..THREADS).map(|thread| remaining(bench, &wide, &format!("client {thread}"), START)).sum();
        assert_eq!(left, THREADS * 500 - 10, "{fifty}");
    }
}

pub(crate) fn threads_that_charge_in_opposite_order_never_wait_for_each_other_for_ever(bench: &dyn Bench) {
    let (one, other) = (plan("one", "100000/hour"), plan("other", "100000/hour, 200000/day"));
    let keys: Vec<String> = (0..32).map(|number| format!("key {number}")).collect();
    on_all_threads(|thread| {
        for count in 0..300 {
            let (first, second) =
                (&keys[(count * 7 + thread) as usize % 32], &keys[count as usize * 11 % 32]);
            let ticket = thread * 1_000 + count;
            let ask = if thread % 2 == 0 {
                Ask::one(&one, first, ticket).and(&other, second)
            } else {
                Ask::one(&other, second, ticket).and(&one, first)
            };
            assert!(ask.take(bench).allowed);
        }
        0
    });
    let used = |plan| keys.iter().map(|key| 100_000 - remaining(bench, plan, key, START)).sum::<u64>();
    assert_eq!((used(&one), used(&other)), (THREADS * 300, THREADS * 300));
}

pub(crate) fn a_receipt_given_back_by_many_is_given_once(bench: &dyn Bench) {
    let plan = plan("client", "100/hour");
    for ticket in 1..=50 {
        Ask::one(&plan, "ada", ticket).take(bench);
    }
    let given = on_all_threads(|_| {
        (1..=20)
            .filter(|ticket| Ask::one(&plan, "ada", *ticket).refund(bench, START) == Refunded::Done)
            .count() as u64
    });
    assert_eq!(given, 20);
    assert_eq!(remaining(bench, &plan, "ada", START), 70);
}

pub(crate) fn parts_given_back_by_many_are_given_once_each(bench: &dyn Bench) {
    let (one, two) = (plan("one", "100/hour"), plan("two", "100/hour"));
    for ticket in 1..=50 {
        Ask::one(&one, "ada", ticket).and(&two, "ada").take(bench);
    }
    on_all_threads(|thread| {
        for ticket in 1..=20 {
            match thread % 3 {
                0 => Ask::one(&one, "ada", ticket).refund(bench, START),
                1 => Ask::one(&two, "ada", ticket).refund(bench, START),
                _ => Ask::one(&one, "ada", ticket).and(&two, "ada").refund(bench, START),
            };
        }
        0
    });
    assert_eq!([&one, &two].map(|plan| remaining(bench, plan, "ada", START)), [70, 70]);
}
