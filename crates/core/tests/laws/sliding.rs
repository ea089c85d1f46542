//! Sliding windows, exact and in slots: never more than the limit in any interval.

use crate::support::{Ask, Bench, at};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Event {
    Take { wait: u64, cost: u64 },
    Refund { wait: u64, which: prop::sample::Index },
}

#[derive(Clone, Copy, Debug)]
struct Taken {
    at: u64,
    cost: u64,
    ticket: u64,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let wait = || prop_oneof![4 => 0..5_u64, 2 => 0..50_u64, 1 => 0..200_u64];
    let take = (wait(), 1..7_u64).prop_map(|(wait, cost)| Event::Take { wait, cost });
    let refund =
        (wait(), any::<prop::sample::Index>()).prop_map(|(wait, which)| Event::Refund { wait, which });
    prop::collection::vec(prop_oneof![5 => take, 1 => refund], 1..80)
}

/// The cost taken and not refunded in the half-open interval of this length from `start`.
fn inside(taken: &[Taken], start: u64, length: u64) -> u64 {
    let inside = taken.iter().filter(|one| (start..start + length).contains(&one.at));
    inside.map(|one| one.cost).sum()
}

/// What is left of the takes within this length before now.
fn since(taken: &[Taken], now: u64, length: u64) -> u64 {
    taken.iter().filter(|one| one.at + length > now).map(|one| one.cost).sum()
}

/// Runs a trace and checks every interval after every event. `late` is how much longer than the period a take
/// may count.
fn never_more(text: &str, max: u64, period: u64, late: u64, events: Vec<Event>) -> Result<(), TestCaseError> {
    let mut bench = Bench::one(text);
    let mut taken: Vec<Taken> = Vec::new();
    let mut now = 0;
    for (ticket, event) in (0..).zip(events) {
        match event {
            Event::Take { wait, cost } => {
                now += wait;
                let allowed = bench.settle(Ask::by(cost, ticket), at(now)).allowed;
                if allowed {
                    taken.push(Taken { at: now, cost, ticket });
                } else {
                    let held = since(&taken, now, period + late);
                    prop_assert!(held + cost > max, "{text}: {cost} denied at {now} beside {held}");
                }
            }
            Event::Refund { wait, which } if !taken.is_empty() => {
                now += wait;
                let one = taken.swap_remove(which.index(taken.len()));
                bench.refund(Ask::by(one.cost, one.ticket), at(one.at), at(now));
            }
            Event::Refund { .. } => {}
        }
        for one in &taken {
            let sum = inside(&taken, one.at, period);
            prop_assert!(sum <= max, "{text}: {sum} in {}..{}", one.at, one.at + period);
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn no_interval_of_the_period_holds_more_than_an_exact_log_allows(
        max in 1..7_u64, period in 1..50_u64, events in events(),
    ) {
        never_more(&format!("{max}/{period}us sliding"), max, period, 0, events)?;
    }

    #[test]
    fn slots_never_exceed_the_limit_and_free_room_at_most_one_slot_late(
        max in 1..7_u64, a in 1..50_u64, b in 1..50_u64, events in events(),
    ) {
        let (period, slot) = (a.max(b), a.min(b));
        never_more(&format!("{max}/{period}us sliding by {slot}us"), max, period, slot, events)?;
    }
}

#[test]
fn an_entry_leaves_an_exact_log_exactly_one_period_later() {
    let mut bench = Bench::one("1/10us sliding");
    assert!(bench.settle(Ask::of(1), at(5)).allowed);
    assert!(!bench.settle(Ask::of(1), at(14)).allowed);
    assert!(bench.settle(Ask::of(1), at(15)).allowed);
}

#[test]
fn a_slot_counts_whole_until_its_end_has_left_the_period() {
    // The slot around the take ends at 10, at whichever microsecond of it the take was.
    for taken_at in 0..10 {
        let mut bench = Bench::one("1/30us sliding by 10us");
        assert!(bench.settle(Ask::of(1), at(taken_at)).allowed);
        assert!(!bench.settle(Ask::of(1), at(39)).allowed);
        assert!(bench.settle(Ask::of(1), at(40)).allowed);
    }
}
