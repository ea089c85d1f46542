//! A refund credits a charge that still counts, ignores an expired one, and never credits more than was charged.

use crate::support::{Ask, Bench, CALENDAR_MICROS, START, any_limit, any_trace, at, quota};
use proptest::prelude::*;
use tollgate_core::Limit;

#[derive(Clone, Copy, Debug)]
struct Taken {
    at: u64,
    cost: u64,
    ticket: u64,
}

impl Taken {
    fn ask(&self) -> Ask<'static> {
        Ask::by(self.cost, self.ticket)
    }
}

/// Whether a take still counts, stated anew for each kind. `window` is the start of the current window.
fn counts(limit: &Limit, taken: Taken, window: Option<u64>, now: u64) -> bool {
    match limit {
        Limit::Window(_) => window.is_some_and(|start| taken.at >= start),
        Limit::Calendar(_) => (START + taken.at) / CALENDAR_MICROS == (START + now) / CALENDAR_MICROS,
        Limit::Sliding(limit) => now < taken.at + limit.period().as_micros(),
        Limit::Slotted(limit) => {
            let slot = limit.slot().as_micros();
            START + now < (START + taken.at) / slot * slot + slot + limit.period().as_micros()
        }
        Limit::InFlight(limit) => limit.lease().is_none_or(|lease| now < taken.at + lease.as_micros()),
        Limit::Total { .. } => true,
        Limit::Bucket(_) | Limit::Ladder(_) | Limit::PerAttempt { .. } => unreachable!("not asked here"),
    }
}

fn counted_limit() -> impl Strategy<Value = String> {
    quota().prop_filter("buckets have laws of their own", |text| !text.contains("burst"))
}

fn trace_with_refunds() -> impl Strategy<Value = Vec<(u64, u64, Option<prop::sample::Index>)>> {
    let wait = prop_oneof![6 => 0..6_u64, 3 => 0..60_u64, 1 => 0..200_u64];
    let refund = prop::option::weighted(0.3, any::<prop::sample::Index>());
    prop::collection::vec((wait, 1..4_u64, refund), 1..60)
}

proptest! {
    #[test]
    fn remaining_is_the_capacity_minus_charges_that_count_and_were_not_refunded(
        text in counted_limit(), trace in trace_with_refunds(),
    ) {
        let mut bench = Bench::one(&text);
        let limit = bench.limit(0).clone();
        let mut taken: Vec<Taken> = Vec::new();
        let mut window = None;
        let mut now = 0;
        for (ticket, (wait, cost, refund)) in (0..).zip(trace) {
            now += wait;
            if let Limit::Window(limit) = &limit {
                window = window.filter(|start| now < start + limit.period().as_micros());
            }
            match refund.filter(|_| !taken.is_empty()) {
                Some(which) => {
                    let one = taken.swap_remove(which.index(taken.len()));
                    bench.refund(one.ask(), at(one.at), at(now));
                }
                None if bench.settle(Ask::by(cost, ticket), at(now)).allowed => {
                    taken.push(Taken { at: now, cost, ticket });
                    window = window.or(Some(now));
                }
                None => {}
            }
            let used: u64 =
                taken.iter().filter(|one| counts(&limit, **one, window, now)).map(|one| one.cost).sum();
            prop_assert_eq!(bench.look(Ask::of(0), at(now)).readings[0].remaining, limit.capacity() - used);
        }
    }

    #[test]
    fn the_order_of_refunds_does_not_matter(
        text in any_limit(), trace in any_trace(), wait in 0..60_u64,
        order in Just((0..60).collect::<Vec<usize>>()).prop_shuffle(), count in 0..60_usize,
    ) {
        let mut bench = Bench::one(&text);
        let mut taken: Vec<Taken> = Vec::new();
        let mut now = 0;
        for (ticket, (wait, cost)) in (1..).zip(trace) {
            now += wait;
            if cost > 0 && bench.settle(Ask::by(cost, ticket), at(now)).allowed {
                taken.push(Taken { at: now, cost, ticket });
            }
        }
        now += wait;
        let chosen: Vec<usize> = order.into_iter().take(count).filter(|index| *index < taken.len()).collect();
        let mut sorted = chosen.clone();
        sorted.sort_unstable();
        let mut other = bench.clone();
        chosen.iter().for_each(|index| bench.refund(taken[*index].ask(), at(taken[*index].at), at(now)));
        sorted.iter().for_each(|index| other.refund(taken[*index].ask(), at(taken[*index].at), at(now)));
        prop_assert!(bench.behaves_as(&other, now));
    }

    #[test]
    fn an_immediate_refund_leaves_no_trace_of_the_charge(
        text in any_limit(), trace in any_trace(), wait in 0..60_u64, cost in 1..6_u64,
    ) {
        let mut bench = Bench::one(&text);
        let now = bench.run(&trace, 0) + wait;
        let before = bench.clone();
        let ask = Ask::by(cost, 1);
        if !bench.settle(ask, at(now)).allowed {
            return Ok(());
        }
        bench.refund(ask, at(now), at(now));
        let [left, right] = [&bench, &before].map(|bench| bench.look(Ask::of(0), at(now)).readings[0]);
        prop_assert_eq!(left.remaining, right.remaining);
        // A started window stays started: its end never moves.
        if !matches!(bench.limit(0), Limit::Window(_)) {
            prop_assert!(bench.behaves_as(&before, now));
        }
    }

    #[test]
    fn a_refund_to_a_fresh_key_does_nothing(text in any_limit(), cost in 1..9_u64, now in 0..200_u64) {
        let mut bench = Bench::one(&text);
        let fresh = bench.clone();
        bench.refund(Ask::of(cost), at(0), at(now));
        prop_assert_eq!(bench.states, fresh.states);
    }
}

#[test]
fn a_later_window_or_slot_is_not_credited_for_an_earlier_one() {
    for (text, next) in [("3/10us", 10), ("3/10us sliding by 10us", 20), ("3/min calendar", CALENDAR_MICROS)]
    {
        let mut bench = Bench::one(text);
        assert!(bench.settle(Ask::by(2, 1), at(0)).allowed);
        assert!(bench.settle(Ask::by(2, 2), at(next)).allowed);
        bench.refund(Ask::by(2, 1), at(0), at(next));
        assert_eq!(bench.look(Ask::of(0), at(next)).readings[0].remaining, 1, "{text}");
        bench.refund(Ask::by(2, 2), at(next), at(next));
        assert_eq!(bench.look(Ask::of(0), at(next)).readings[0].remaining, 3, "{text}");
    }
}

#[test]
fn a_bucket_regains_only_what_it_has_not_refilled_by_itself() {
    // One token every ten microseconds.
    let mut bench = Bench::one("1/10us burst 5");
    assert!(bench.settle(Ask::of(4), at(0)).allowed);
    assert!(bench.settle(Ask::of(1), at(0)).allowed);
    bench.refund(Ask::of(4), at(0), at(30));
    // Three of the four were refilled, the fourth was refunded; one is still in use.
    assert_eq!(bench.look(Ask::of(0), at(30)).readings[0].remaining, 4);
}

#[test]
fn a_window_is_credited_for_takes_from_its_first_to_its_last_microsecond() {
    for (taken_at, left) in [(19, 1), (20, 3), (29, 3), (30, 1)] {
        let mut bench = Bench::one("3/10us");
        assert!(bench.settle(Ask::of(2), at(20)).allowed);
        bench.refund(Ask::of(2), at(taken_at), at(25));
        assert_eq!(bench.look(Ask::of(0), at(25)).readings[0].remaining, left, "taken at {taken_at}");
    }
}
