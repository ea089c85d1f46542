//! Things in flight: never more held than the limit allows, whatever is taken, renewed, released or expires.

use std::collections::BTreeMap;

use crate::support::{Ask, Bench, any_bench, any_trace, at, plan};
use proptest::prelude::*;
use tollgate_core::{Span, Ticket, When};

const IDS: [&str; 5] = ["a", "b", "c", "d", "e"];

#[derive(Clone, Debug)]
enum Event {
    Take { cost: u64, id: Option<&'static str> },
    Renew(&'static str),
    Release(Vec<&'static str>),
    Claim(&'static str, u64),
    Refund(u64),
    Replace(Vec<&'static str>),
}

fn events() -> impl Strategy<Value = Vec<(u64, Event)>> {
    let id = || prop::sample::select(&IDS[..]);
    let event = prop_oneof![
        8 => (1..4_u64, prop::option::of(id())).prop_map(|(cost, id)| Event::Take { cost, id }),
        3 => id().prop_map(Event::Renew),
        2 => prop::collection::vec(id(), 1..4).prop_map(Event::Release),
        2 => (id(), 1..4_u64).prop_map(|(id, weight)| Event::Claim(id, weight)),
        1 => (0..80_u64).prop_map(Event::Refund),
        1 => prop::collection::vec(id(), 0..3).prop_map(Event::Replace),
    ];
    prop::collection::vec((prop_oneof![3 => 0..4_u64, 1 => 0..60_u64], event), 1..80)
}

/// A simple model of holds: weight, ticket, and the time of the last renewal.
#[derive(Debug)]
struct Model {
    max: u64,
    lease: Option<u64>,
    holds: BTreeMap<String, (u64, u64, u64)>,
}

impl Model {
    fn expire(&mut self, now: u64) {
        let lease = self.lease;
        self.holds.retain(|_, (_, _, renewed)| lease.is_none_or(|lease| now < *renewed + lease));
    }

    fn used(&self) -> u64 {
        self.holds.values().map(|(weight, _, _)| weight).sum()
    }

    fn take(&mut self, cost: u64, id: Option<&str>, ticket: u64, now: u64) -> bool {
        let id = id.map_or_else(|| Ticket(ticket).to_string(), String::from);
        if self.holds.contains_key(&id) {
            return true;
        }
        let fits = self.used() + cost <= self.max;
        if fits {
            self.holds.insert(id, (cost, ticket, now));
        }
        fits
    }

    /// The caller's records are the truth, whatever the limit says.
    fn replace(&mut self, ids: &[&str], ticket: u64, now: u64) {
        self.holds.retain(|id, _| ids.contains(&id.as_str()));
        for id in ids {
            self.holds.entry((*id).to_string()).or_insert((1, ticket, now));
        }
    }
}

fn holds_are_those_of_the_model(
    max: u64,
    lease: Option<u64>,
    events: Vec<(u64, Event)>,
) -> Result<(), TestCaseError> {
    let lease_text = lease.map_or_else(String::new, |lease| format!(" for {lease}us"));
    let mut bench = Bench::one(&format!("{max} at once{lease_text}"));
    let mut model = Model { max, lease, holds: BTreeMap::new() };
    let mut now = 0;
    for (ticket, (wait, event)) in (0..).zip(events) {
        now += wait;
        model.expire(now);
        bench.survey(Ask::of(0), at(now));
        match event {
            Event::Take { cost, id } => {
                let ask = Ask { cost, ticket: Ticket(ticket), id };
                let expected = model.take(cost, id, ticket, now);
                prop_assert_eq!(bench.settle(ask, at(now)).allowed, expected);
            }
            Event::Renew(id) => {
                let hold = model.holds.get_mut(id);
                prop_assert_eq!(
                    bench.states[0].change_holds(|holds| holds.renew(id, at(now))),
                    hold.is_some()
                );
                if let Some((_, _, renewed)) = hold {
                    *renewed = now;
                }
            }
            Event::Release(ids) => {
                let found: Vec<_> = ids.iter().filter(|id| model.holds.remove(**id).is_some()).collect();
                let ended = bench.states[0].change_holds(|holds| holds.release_all(ids.iter().copied()));
                prop_assert_eq!(ended.iter().map(|(id, _)| id).collect::<Vec<_>>(), found);
            }
            Event::Claim(id, weight) => {
                let held = model.take(weight, Some(id), ticket, now);
                if let Some((_, _, renewed)) = model.holds.get_mut(id) {
                    *renewed = now;
                }
                let limit = bench.limit(0).in_flight().expect("a limit on holds").clone();
                let hold = bench.states[0]
                    .change_holds(|holds| limit.claim(holds, (id, weight), Ticket(ticket), at(now)));
                prop_assert_eq!(hold.map(|hold| hold.renewed), held.then_some(at(now)));
            }
            Event::Refund(ticket) => {
                model.holds.retain(|_, (_, by, _)| *by != ticket);
                bench.refund(Ask::by(1, ticket), at(0), at(now));
            }
            Event::Replace(ids) => {
                model.replace(&ids, ticket, now);
                bench.states[0].change_holds(|holds| holds.replace(ids.into_iter(), Ticket(ticket), at(now)));
            }
        }
        let reading = bench.look(Ask::of(0), at(now)).readings[0];
        prop_assert_eq!(reading.remaining, max.saturating_sub(model.used()));
        let last = model.holds.values().map(|(_, _, renewed)| *renewed).max();
        let reset = lease.map(|lease| last.map_or(at(now), |renewed| at(renewed + lease)));
        prop_assert_eq!(reading.reset, reset, "when the last of them runs out");
        let held: Vec<_> = bench.states[0]
            .holds()
            .into_iter()
            .flat_map(|holds| holds.iter())
            .map(|(id, hold)| (id.to_string(), hold.weight))
            .collect();
        let expected: Vec<_> = model.holds.iter().map(|(id, (weight, _, _))| (id.clone(), *weight)).collect();
        prop_assert_eq!(held, expected);
    }
    Ok(())
}

proptest! {
    #[test]
    fn holds_never_exceed_the_limit_and_expired_ones_are_free(
        max in 1..6_u64, lease in prop::option::of(1..40_u64), events in events(),
    ) {
        holds_are_those_of_the_model(max, lease, events)?;
    }

    #[test]
    fn an_id_held_already_is_allowed_and_charges_nothing_anywhere(
        others in any_bench(), trace in any_trace(), wait in 0..100_u64, cost in 1..9_u64,
    ) {
        let mut plans = others.plans.clone();
        plans.retain(|(plan, _)| !plan.limits()[0].holds());
        plans.push((plan("held", &["20 at once for 100us"]), true));
        let mut bench = Bench::new(plans);
        let index = bench.plans.len() - 1;
        let ask = Ask { cost: 1, ticket: Ticket(1), id: Some("x") };
        prop_assert!(bench.settle(ask, at(0)).allowed);

        // Other attempts come and go, and may use up everything.
        let mut now = 0;
        for (ticket, (wait, cost)) in (10..).zip(trace) {
            now = (now + wait).min(99);
            bench.settle(Ask::by(cost, ticket), at(now));
        }
        let then = now.max(wait.min(99));
        let before = bench.clone();
        let again = bench.settle(Ask { cost, ticket: Ticket(2), id: Some("x") }, at(then));
        prop_assert!(again.allowed && again.repeated);
        prop_assert_eq!(again.taken, 0);
        prop_assert!(bench.behaves_as(&before, then));
        prop_assert_eq!(bench.alone(index).states[0].holds().map(|holds| holds.has(Some("x"))), Some(true));
    }
}

#[test]
fn renewing_an_expired_hold_does_not_revive_it() {
    let mut bench = Bench::one("1 at once for 10us");
    let ask = Ask { cost: 1, ticket: Ticket(1), id: Some("a") };
    assert!(bench.settle(ask, at(0)).allowed);
    bench.survey(Ask::of(0), at(10));
    assert!(!bench.states[0].change_holds(|holds| holds.renew("a", at(10))));
    assert!(bench.settle(Ask { id: Some("b"), ..ask }, at(10)).allowed);
}

#[test]
fn an_id_that_only_some_limits_hold_is_charged_at_the_others() {
    let (near, far) = (plan("near", &["2 at once"]), plan("far", &["2 at once"]));
    let ask = Ask { cost: 1, ticket: Ticket(1), id: Some("a") };
    let mut bench = Bench::new(vec![(near.clone(), true)]);
    assert!(bench.settle(ask, at(0)).allowed);
    let mut both = Bench::new(vec![(near, true), (far, true)]);
    both.states[0] = bench.states[0].clone();
    let outcome = both.settle(ask, at(1));
    assert!(outcome.allowed && !outcome.repeated);
    let remaining: Vec<_> = outcome.readings.iter().map(|reading| reading.remaining).collect();
    assert_eq!(remaining, [1, 1]);
}

#[test]
fn only_a_release_frees_a_hold_without_an_expiry() {
    let mut bench = Bench::one("1 at once");
    assert!(bench.settle(Ask { cost: 1, ticket: Ticket(1), id: Some("a") }, at(0)).allowed);
    let century = 3_155_760_000_000_000;
    assert_eq!(bench.look(Ask::of(1), at(century)).readings[0].when, When::OnRelease);
    assert!(bench.states[0].change_holds(|holds| holds.release("a")));
    assert!(bench.settle(Ask::of(1), at(century)).allowed);
}

#[test]
fn a_place_is_free_when_enough_holds_have_expired() {
    let mut bench = Bench::one("5 at once for 50us");
    assert!(bench.settle(Ask::by(3, 1), at(0)).allowed);
    assert!(bench.settle(Ask::by(2, 2), at(10)).allowed);
    let when = |cost| bench.look(Ask::of(cost), at(20)).readings[0].when;
    let after = |micros| When::After(Span::from_micros(micros));
    let whens = [0, 1, 2, 3, 4, 5, 6].map(when);
    assert_eq!(whens, [When::Now, after(30), after(30), after(30), after(40), after(40), When::Never]);
}

#[test]
fn a_held_id_is_allowed_at_a_full_limit() {
    let mut bench = Bench::one("2 at once");
    let held = Ask { cost: 2, ticket: Ticket(1), id: Some("a") };
    assert!(bench.settle(held, at(0)).allowed);
    let when = |bench: &Bench, ask| bench.look(ask, at(1)).readings[0].when;
    assert_eq!(when(&bench, Ask { ticket: Ticket(2), ..held }), When::Now);
    assert_eq!(when(&bench, Ask { id: Some("b"), ..held }), When::OnRelease);
}

#[test]
fn cost_0_is_allowed_above_a_lowered_limit() {
    let mut bench = Bench::one("2 at once");
    assert!(bench.settle(Ask { cost: 2, ticket: Ticket(1), id: Some("a") }, at(0)).allowed);
    let lowered = Bench { plans: vec![(plan("rule", &["1 at once"]), true)], states: bench.states };
    let when = |cost| lowered.look(Ask::of(cost), at(1)).readings[0].when;
    assert_eq!([0, 1].map(when), [When::Now, When::OnRelease]);
}

/// Ending one of many must not look at all others, so the reset may be later than the last end.
#[test]
fn among_many_holds_the_end_of_the_newest_moves_the_reset_only_when_few_are_left() {
    let mut bench = Bench::one("100 at once for 50us");
    let ids: Vec<String> = (0..70_u64).map(|number| format!("{number:02}")).collect();
    for (number, id) in (0..).zip(&ids) {
        let ask = Ask { cost: 1, ticket: Ticket(number), id: Some(id) };
        assert!(bench.settle(ask, at(number / 7)).allowed);
    }
    let mut reset_without = |released: &[String]| {
        bench.states[0].change_holds(|holds| holds.release_all(released.iter().map(String::as_str)));
        bench.look(Ask::of(0), at(10)).readings[0].reset
    };
    assert_eq!(reset_without(&ids[63..65]), Some(at(59)), "others of that moment are left");
    assert_eq!(reset_without(&ids[65..69]), Some(at(59)));
    assert_eq!(reset_without(&ids[69..]), Some(at(58)), "no more than 64 are left: all are looked at");

    let mut many = Bench::one("100 at once for 50us");
    for (number, id) in (0..).zip(&ids) {
        let ask = Ask { cost: 1, ticket: Ticket(number), id: Some(id) };
        assert!(many.settle(ask, at(number / 69)).allowed);
    }
    assert!(many.states[0].change_holds(|holds| holds.release(&ids[69])));
    assert_eq!(many.look(Ask::of(0), at(10)).readings[0].reset, Some(at(51)), "the latest that is known");
}
