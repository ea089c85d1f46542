//! Plans that change while counts exist.

use tollgate_core::Fate;
use tollgate_core::store::Refunded;

use crate::contract::bench::{Ask, Bench, KINDS, START, at, plan, remaining};

pub(crate) fn a_raised_number_keeps_the_count(bench: &dyn Bench) {
    for kind in KINDS {
        let old = plan(kind, kind);
        // `10/min burst 10` must keep its rate; otherwise its tokens have another value.
        let raised = kind.replace("10/min", "20/min").replace("10 ", "20 ").replace("20/min burst 10", kind);
        let new = plan(kind, &raised);
        Ask::one(&old, "ada", 1).cost(7).take(bench);
        let expected = if kind.contains("burst") { 3 } else { 13 };
        assert_eq!(remaining(bench, &new, "ada", START), expected, "{kind} to {raised}");
        assert!(Ask::one(&new, "ada", 2).cost(3).take(bench).allowed);
        assert_eq!(remaining(bench, &old, "ada", START), 0, "{raised} back to {kind}");
    }
}

pub(crate) fn a_changed_period_starts_afresh(bench: &dyn Bench) {
    for (old, new) in [
        ("10/min", "10/hour"),
        ("10/min calendar", "10/hour calendar"),
        ("10/min sliding", "10/hour sliding"),
        ("10/min sliding by 10s", "10/min sliding by 5s"),
        ("10/min burst 10", "10/hour burst 10"),
        ("ladder 10 lock 1m forget 1m", "ladder 10 lock 1m forget 2m"),
    ] {
        let (before, after) = (plan(old, old), plan(old, new));
        Ask::one(&before, "ada", 1).cost(7).take(bench);
        assert_eq!(remaining(bench, &after, "ada", START), 10, "{old} to {new}");
    }
}

pub(crate) fn a_changed_kind_starts_afresh(bench: &dyn Bench) {
    for (old, new) in KINDS.iter().zip(KINDS.iter().skip(1)).take(8) {
        let leased = old.contains("at once") && new.contains("at once");
        let (before, after) = (plan(old, old), plan(old, new));
        Ask::one(&before, "ada", 1).cost(7).take(bench);
        let expected = if leased { 3 } else { 10 };
        assert_eq!(remaining(bench, &after, "ada", START), expected, "{old} to {new}");
    }
}

pub(crate) fn overrides_of_every_shape_keep_what_they_share(bench: &dyn Bench) {
    let shapes = [
        "100/min",
        "100/min, 200/hour",
        "100/min, 200/hour, 300/day",
        "100/min, 100/hour sliding",
        "100/hour sliding, 100/min, 5 recipients per attempt",
        "100/min, 100 at once",
        "100/min, 100 in total",
        "100/min, 6_000_000_000/day",
    ];
    let mut taken = 0;
    for first in shapes {
        for second in shapes {
            for shape in [first, second] {
                let plan = plan("client", shape);
                let index = plan.limits().iter().position(|limit| limit.to_string() == "100/min").unwrap();
                let outcome = Ask::one(&plan, "ada", taken + 1).take(bench);
                taken += u64::from(outcome.allowed);
                assert_eq!(outcome.readings[index].remaining, 100 - taken, "{first} to {second}");
            }
        }
    }
    assert_eq!(taken, 100);
}

pub(crate) fn a_changed_rate_keeps_the_used_tokens(bench: &dyn Bench) {
    let (slow, fast) = (plan("bucket", "6/min burst 10"), plan("bucket", "60/min burst 20"));
    Ask::one(&slow, "ada", 1).cost(8).take(bench);
    assert_eq!(remaining(bench, &fast, "ada", START), 12);
    bench.set_time(at(3));
    assert_eq!(remaining(bench, &fast, "ada", at(3)), 15, "it refills at its new rate");
    let small = plan("bucket", "6/min burst 2");
    Ask::one(&fast, "ada", 2).cost(10).at(at(3)).take(bench);
    assert_eq!(remaining(bench, &small, "ada", at(3)), 0, "clamped to the smaller burst");
}

pub(crate) fn a_longer_lease_does_not_revive_an_expired_hold(bench: &dyn Bench) {
    for longer in ["5 at once for 1h", "5 at once"] {
        let (short, long) = (plan(longer, "5 at once for 1m"), plan(longer, longer));
        bench.set_time(START);
        Ask::one(&short, "ada", 1).cost(5).take(bench);
        bench.set_time(at(60));
        assert_eq!(remaining(bench, &long, "ada", at(60)), 5, "{longer}");
    }
}

pub(crate) fn a_refund_under_a_longer_lease_does_not_revive_an_expired_hold(bench: &dyn Bench) {
    let log = plan("log", "50/hour sliding");
    for others in ["", "100/hour, 200/day, 9/min sliding, "] {
        let rule = format!("jobs {others}");
        let short = plan(&rule, &format!("{others}5 at once for 1m"));
        let long = plan(&rule, &format!("{others}5 at once for 1h"));
        bench.set_time(START);
        Ask::one(&short, "ada", 1).cost(5).take(bench);
        bench.set_time(at(60));
        // The holds are converted to the longer lease by the end of a ticket that never held any.
        Ask::one(&log, "ada", 2).and(&long, "ada").finish(bench, START, &[Fate::Keep, Fate::Keep]);
        let readings = Ask::one(&long, "ada", 3).peek(bench).readings;
        assert_eq!(readings.last().map(|held| held.remaining), Some(5), "{rule}");
    }
}

pub(crate) fn a_charge_that_is_kept_is_carried_over_all_the_same(bench: &dyn Bench) {
    let (before, between) = (plan("client", "10/min"), plan("client", "10/hour"));
    let asked = Ask::one(&before, "ada", 1).cost(4);
    asked.take(bench);
    let kept = Ask { charges: vec![(&between, "ada")], ..asked };
    assert_eq!(kept.finish(bench, START, &[Fate::Keep]), Refunded::Done);
    assert_eq!(remaining(bench, &before, "ada", START), 10, "the limit was another one meanwhile");
}

pub(crate) fn a_limit_that_stays_is_left_alone_when_another_comes_beside_it(bench: &dyn Bench) {
    let (alone, beside) = (plan("jobs", "5 at once for 1m"), plan("jobs", "5 at once for 1m, 100/hour"));
    Ask::one(&alone, "ada", 1).take(bench);
    // Finishing another ticket does not age the hold, whose time is over by then.
    bench.set_time(at(61));
    Ask::one(&beside, "ada", 2).finish(bench, START, &[Fate::Keep]);
    bench.set_time(at(30));
    assert_eq!(remaining(bench, &beside, "ada", at(30)), 4, "the clock went back, and it counts again");
}
