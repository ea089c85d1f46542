//! Ladders: the effect of each failure, what a success clears, and that nothing else counts.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crate::support::{Ask, Bench, at, ladder, limit, plan, policy, rule};
use proptest::prelude::*;
use tollgate_core::key::FieldKind;
use tollgate_core::limit::{Failures, Pause, Step};
use tollgate_core::{
    Attempt, Charges, Decision, Fate, Limit, OnExceed, OnOutage, Origin, Rule, Span, State, Ticket, Verdict,
    When,
};

const LOGIN: &str = "ladder 4 +2s then 6 +5s captcha then 11 lock 15m notify forget 15m";
const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;

/// The number of counted failures at a time.
fn failures(bench: &Bench, now: u64) -> u64 {
    let reading = bench.look(Ask::of(0), at(now)).readings[0];
    reading.capacity - reading.remaining
}

/// When one more attempt conforms.
fn wait(bench: &Bench, now: u64) -> When {
    bench.look(Ask::of(1), at(now)).readings[0].when
}

/// The effect of each failed attempt, one after the other as early as possible.
#[test]
fn failures_climb_the_steps_as_they_are_written() {
    let Limit::Ladder(steps) = limit(LOGIN) else { panic!("it is one") };
    let mut bench = Bench::one(LOGIN);
    let mut now = 0;
    // The number of the failure, the wait of the next attempt, a CAPTCHA, a lock.
    let after = |secs| When::After(Span::from_secs(secs));
    let table = [
        (1, When::Now, false, false),
        (2, When::Now, false, false),
        (3, When::Now, false, false),
        (4, after(2), false, false),
        (5, after(2), false, false),
        (6, after(5), true, false),
        (7, after(5), true, false),
        (8, after(5), true, false),
        (9, after(5), true, false),
        (10, after(5), true, false),
        (11, after(900), false, true),
    ];
    for (number, pause, captcha, locked) in table {
        assert!(bench.settle(Ask::by(1, number), at(now)).allowed, "attempt {number}");
        assert_eq!(failures(&bench, now), number);
        assert_eq!(wait(&bench, now), pause, "after failure {number}");
        let step = steps.step_at(number);
        assert_eq!(step.is_some_and(|step| step.captcha), captcha, "after failure {number}");
        assert_eq!(step.is_some_and(|step| matches!(step.pause, Pause::Lock(_))), locked);
        assert_eq!(step.is_some_and(|step| step.notify), locked);
        if let When::After(span) = pause {
            assert!(!bench.settle(Ask::by(1, 100), at(now + span.as_micros() - 1)).allowed);
            now += span.as_micros();
        }
    }
    assert_eq!(failures(&bench, now - 1), 11, "while it is locked");
    assert_eq!(failures(&bench, now), 0, "fifteen minutes after the last failure");
    assert_eq!(wait(&bench, now), When::Now);
}

#[test]
fn everything_is_forgotten_fifteen_minutes_after_the_last_failure_and_each_renews() {
    let mut bench = Bench::one(LOGIN);
    for (number, minute) in [(1, 0), (2, 14), (3, 28)] {
        assert!(bench.settle(Ask::by(1, number), at(minute * MINUTE)).allowed);
    }
    assert_eq!(failures(&bench, 43 * MINUTE - 1), 3);
    assert_eq!(failures(&bench, 43 * MINUTE), 0);
}

#[test]
fn attempts_while_it_is_locked_neither_count_nor_lengthen() {
    let mut bench = Bench::one("ladder 3 lock 15m forget 1h");
    for number in 1..=3 {
        assert!(bench.settle(Ask::by(1, number), at(0)).allowed);
    }
    let locked = bench.clone();
    for second in 1..900 {
        let outcome = bench.settle(Ask::by(1, 10 + second), at(second * SECOND));
        assert_eq!((outcome.allowed, outcome.taken), (false, 0));
        assert_eq!(outcome.readings[0].when, When::After(Span::from_secs(900 - second)));
    }
    assert_eq!(bench.states, locked.states);
    assert!(bench.settle(Ask::by(1, 4), at(15 * MINUTE)).allowed);
    let reading = bench.look(Ask::of(1), at(15 * MINUTE)).readings[0];
    assert_eq!(reading.when, When::After(Span::from_secs(900)), "a failure after the lock locks again");
    assert_eq!((reading.capacity, reading.remaining), (4, 0), "beyond the last step they are still told");
}

#[test]
fn a_cost_of_several_counts_as_that_many_at_one_moment() {
    let mut bench = Bench::one(LOGIN);
    assert_eq!(bench.look(Ask::of(5), at(0)).readings[0].when, When::Never, "the fifth would have to wait");
    assert!(bench.settle(Ask::by(3, 1), at(0)).allowed);
    assert_eq!(failures(&bench, 0), 3);
    let refused = bench.settle(Ask::by(2, 2), at(MINUTE));
    assert_eq!(refused.readings[0].when, When::After(Span::from_secs(14 * 60)), "not before it is forgotten");
    assert!(bench.settle(Ask::by(1, 3), at(MINUTE)).allowed);
    assert_eq!(wait(&bench, MINUTE), When::After(Span::from_secs(2)));
}

/// A simple model: a list that keeps every take, and steps climbed one by one.
#[derive(Clone, Debug, Default)]
struct Model {
    failures: Vec<(u64, u64)>,
    steps: Vec<Step>,
    forget: u64,
}

impl Model {
    fn of(text: &str) -> Self {
        let Limit::Ladder(ladder) = limit(text) else { panic!("it is one") };
        Self { failures: Vec::new(), steps: ladder.steps().to_vec(), forget: ladder.forget().as_micros() }
    }

    fn pause(&self) -> u64 {
        let mut reached = self.steps.iter().filter(|step| step.from <= self.failures.len() as u64);
        reached.next_back().map_or(0, |step| step.pause.span().as_micros())
    }

    fn age(&mut self, now: u64) {
        if self.failures.last().is_some_and(|(at, _)| at + self.forget <= now) {
            self.failures.clear();
        }
    }

    /// Each unit of the cost is an attempt of its own.
    fn take(&mut self, cost: u64, ticket: u64, now: u64) -> bool {
        self.age(now);
        let before = self.failures.clone();
        for _ in 0..cost {
            if self.failures.last().is_some_and(|(at, _)| now < at + self.pause()) {
                self.failures = before;
                return false;
            }
            self.failures.push((now, ticket));
        }
        true
    }

    fn refund(&mut self, ticket: u64, taken_at: u64, now: u64) {
        self.age(now);
        if now < taken_at + self.forget {
            self.failures.retain(|(_, own)| *own != ticket);
        }
    }

    fn clear(&mut self, ticket: u64, taken_at: u64, now: u64) {
        self.age(now);
        if now < taken_at + self.forget {
            let own = self.failures.iter().rposition(|(_, own)| *own == ticket);
            let earlier = self.failures.iter().take_while(|(at, _)| *at <= taken_at).count();
            self.failures.drain(..own.map_or(earlier, |own| own + 1));
        }
    }
}

#[derive(Clone, Debug)]
enum Event {
    Take { cost: u64 },
    Give(prop::sample::Index),
    Clear(prop::sample::Index),
    Keep(prop::sample::Index),
}

fn events() -> impl Strategy<Value = Vec<(u64, Event)>> {
    let wait = prop_oneof![6 => 0..4_u64, 3 => 0..20_u64, 1 => 0..90_u64];
    let event = prop_oneof![
        8 => Just(Event::Take { cost: 1 }),
        1 => (0..4_u64).prop_map(|cost| Event::Take { cost }),
        2 => any::<prop::sample::Index>().prop_map(Event::Give),
        1 => any::<prop::sample::Index>().prop_map(Event::Clear),
        1 => any::<prop::sample::Index>().prop_map(Event::Keep),
    ];
    prop::collection::vec((wait, event), 1..80)
}

/// Refunds or finishes one ticket's take.
fn refund(bench: &mut Bench, ticket: u64, fate: Fate, taken_at: u64, now: u64) {
    let mut charges = Charges::new(Ticket(ticket), 1, None);
    charges.push_taken(&bench.plans[0].0, "key", 1, fate);
    charges.refund(&mut bench.states, at(taken_at), at(now));
}

proptest! {
    #[test]
    fn a_ladder_admits_and_remembers_as_attempts_made_one_by_one(text in ladder(), events in events()) {
        let (mut bench, mut model) = (Bench::one(&text), Model::of(&text));
        let top = model.steps.last().unwrap().from as usize;
        let mut taken: Vec<(u64, u64)> = Vec::new();
        let mut now = 0;
        for (ticket, (step, event)) in (1..).zip(events) {
            now += step;
            // Failures further back than the last step are counted without their tickets.
            let recent = taken.len().saturating_sub(top);
            let pick = |which: prop::sample::Index| {
                let recent = &taken[recent..];
                recent[which.index(recent.len())]
            };
            match event {
                Event::Take { cost } => {
                    let allowed = bench.settle(Ask::by(cost, ticket), at(now)).allowed;
                    prop_assert_eq!(allowed, model.take(cost, ticket, now), "{} at {}", cost, now);
                    if allowed && cost > 0 {
                        taken.push((ticket, now));
                    }
                }
                Event::Give(_) | Event::Clear(_) | Event::Keep(_) if taken.is_empty() => {}
                Event::Keep(which) => {
                    let (ticket, taken_at) = pick(which);
                    refund(&mut bench, ticket, Fate::Keep, taken_at, now);
                }
                Event::Give(which) => {
                    let (ticket, taken_at) = pick(which);
                    refund(&mut bench, ticket, Fate::Back, taken_at, now);
                    model.refund(ticket, taken_at, now);
                }
                Event::Clear(which) => {
                    let (ticket, taken_at) = pick(which);
                    refund(&mut bench, ticket, Fate::Clear, taken_at, now);
                    model.clear(ticket, taken_at, now);
                }
            }
            model.age(now);
            prop_assert_eq!(failures(&bench, now), model.failures.len() as u64);
        }
    }

    #[test]
    fn a_refund_restores_the_previous_wait(
        text in ladder(), waits in prop::collection::vec(0..12_u64, 1..60), later in 0..20_u64,
    ) {
        let mut bench = Bench::one(&text);
        let mut now = 0;
        for (ticket, wait) in (1..).zip(waits) {
            now += wait;
            let before = bench.clone();
            if bench.settle(Ask::by(1, ticket), at(now)).allowed {
                let mut given = bench.clone();
                refund(&mut given, ticket, Fate::Back, now, now);
                prop_assert!(given.behaves_as(&before, now + later));
            }
        }
    }

    #[test]
    fn a_log_never_outgrows_its_ladder(text in ladder(), waits in prop::collection::vec(0..30_u64, 1..200)) {
        let mut bench = Bench::one(&text);
        let Limit::Ladder(ladder) = bench.limit(0).clone() else { panic!("it is one") };
        let mut now = 0;
        for (ticket, wait) in (1..).zip(waits) {
            now += wait;
            bench.settle(Ask::by(1, ticket), at(now));
            if let State::Failures(failures) = &bench.states[0] {
                prop_assert!(failures.iter().len() <= ladder.most_entries());
                prop_assert_eq!(failures.count(), failures.iter().map(|failure| failure.count).sum::<u64>());
            }
        }
    }
}

#[test]
fn a_success_clears_what_came_before_it_and_nothing_that_came_after() {
    let mut bench = Bench::one(LOGIN);
    for ticket in 1..=3 {
        assert!(bench.settle(Ask::by(1, ticket), at(ticket)).allowed);
    }
    refund(&mut bench, 2, Fate::Clear, 2, 10);
    assert_eq!(failures(&bench, 10), 1, "the third began later");
    refund(&mut bench, 3, Fate::Clear, 3, 11);
    assert_eq!(failures(&bench, 11), 0);
    assert_eq!(wait(&bench, 11), When::Now);
}

#[test]
fn a_success_whose_own_failure_is_gone_clears_failures_as_old_as_it() {
    let mut bench = Bench::one(LOGIN);
    for ticket in 1..=3 {
        assert!(bench.settle(Ask::by(1, ticket), at(ticket)).allowed);
    }
    refund(&mut bench, 99, Fate::Clear, 2, 10);
    assert_eq!(failures(&bench, 10), 1);
}

#[test]
fn a_failure_older_than_its_own_memory_cannot_be_refunded() {
    for fate in [Fate::Back, Fate::Clear] {
        let mut bench = Bench::one(LOGIN);
        assert!(bench.settle(Ask::by(1, 1), at(0)).allowed);
        assert!(bench.settle(Ask::by(1, 2), at(10 * MINUTE)).allowed);
        let mut late = bench.clone();
        refund(&mut late, 1, fate, 0, 15 * MINUTE);
        assert_eq!(failures(&late, 15 * MINUTE), 2, "{fate:?}");
        refund(&mut bench, 1, fate, 0, 15 * MINUTE - 1);
        assert_eq!(failures(&bench, 15 * MINUTE - 1), 1, "{fate:?}");
    }
}

#[test]
fn other_limits_beside_a_ladder_get_their_cost_back_when_it_is_cleared() {
    let mut bench = Bench::new(vec![(plan("rule", &[LOGIN, "10/hour"]), true)]);
    for ticket in 1..=3 {
        assert!(bench.settle(Ask::by(1, ticket), at(0)).allowed);
    }
    refund(&mut bench, 3, Fate::Clear, 0, 1);
    let remaining: Vec<u64> =
        bench.look(Ask::of(0), at(1)).readings.iter().map(|reading| reading.remaining).collect();
    assert_eq!(remaining, [11, 8]);
}

#[test]
fn more_failures_than_the_last_step_takes_are_counted_though_no_longer_by_name() {
    let mut bench = Bench::one("ladder 2 +1us forget 1h");
    let mut logs = Vec::new();
    for ticket in 1..=6 {
        assert!(bench.settle(Ask::by(1, ticket), at(ticket * 10)).allowed);
        let State::Failures(remembered) = &bench.states[0] else { panic!("they are") };
        let log = remembered.iter().map(|failure| (failure.ticket.0, failure.count));
        logs.push(log.collect::<Vec<(u64, u64)>>());
    }
    assert_eq!(logs[2], [(1, 1), (2, 1), (3, 1)], "one more than the last step takes is still known");
    assert_eq!(logs[3], [(0, 2), (3, 1), (4, 1)]);
    assert_eq!(logs[5], [(0, 4), (5, 1), (6, 1)]);
    refund(&mut bench, 6, Fate::Back, 60, 70);
    refund(&mut bench, 3, Fate::Back, 30, 70);
    assert_eq!(failures(&bench, 70), 5);
    let none: Failures = std::iter::empty().collect();
    assert_eq!(none, Failures::default());
}

/// A decision on one attempt over the states of a bench.
fn decide<'a>(rules: &'a tollgate_core::Policy, bench: &mut Bench, ticket: u64, now: u64) -> Decision<'a> {
    let attempt = Attempt { policy: "policy", fields: &[("user", "ada")], cost: 1, id: None };
    let charges = rules.charges(&attempt, Ticket(ticket)).unwrap();
    let outcome = charges.settle(&mut bench.states, at(now)).unwrap();
    Decision::new(rules, charges, outcome, Origin::Store)
}

fn guard(ladder: &str, on_exceed: OnExceed) -> Rule {
    Rule { on_exceed, ..rule("login", &[("user", FieldKind::Text)], &[ladder]) }
}

#[test]
fn with_a_bounded_wait_a_delay_waits_and_a_lock_denies() {
    let five = Span::from_secs(5);
    for (on_exceed, delayed) in
        [(OnExceed::Wait(five), Verdict::Wait(Span::from_secs(2))), (OnExceed::Reject, Verdict::Deny)]
    {
        let rules = policy(vec![guard(LOGIN, on_exceed)]);
        let mut bench = Bench::one(LOGIN);
        let mut now = 0;
        for ticket in 1..=4 {
            assert!(decide(&rules, &mut bench, ticket, now).allowed());
        }
        let decision = decide(&rules, &mut bench, 5, now);
        assert_eq!((decision.verdict, decision.wait()), (delayed, Some(Span::from_secs(2))));
        for ticket in 5..=11 {
            now += 5 * SECOND;
            assert!(decide(&rules, &mut bench, ticket, now).allowed());
        }
        let decision = decide(&rules, &mut bench, 12, now + SECOND);
        assert_eq!((decision.verdict, decision.wait()), (Verdict::Deny, Some(Span::from_secs(899))));
    }
    assert_eq!(guard(LOGIN, OnExceed::Reject).on_outage, OnOutage::Deny, "only the store knows the failures");
}

#[test]
fn a_decision_tells_which_step_held_and_which_is_reached() {
    let text = "ladder 2 captcha then 3 +2s then 4 lock 1m notify forget 1h";
    let rules = policy(vec![guard(text, OnExceed::Reject)]);
    let mut bench = Bench::one(text);
    let from = |step: Option<&Step>| step.map(|step| step.from);
    // The time, whether it passes, the failures then, and the steps that applied and are reached.
    let table = [
        (0, true, 1, None, None, false),
        (0, true, 2, None, Some(2), true),
        (0, true, 3, Some(2), Some(3), true),
        (1, false, 3, Some(3), Some(3), false),
        (2, true, 4, Some(3), Some(4), true),
        (61, false, 4, Some(4), Some(4), false),
        (62, true, 5, Some(4), Some(4), false),
    ];
    for (ticket, (second, passes, count, held, reached, arrives)) in (1..).zip(table) {
        let decision = decide(&rules, &mut bench, ticket, second * SECOND);
        let line = decision.lines().next().unwrap();
        let climbs: Vec<_> = line.climbs().collect();
        let [climb] = climbs.as_slice() else { panic!("there is one ladder") };
        assert_eq!(decision.allowed(), passes, "at {second}");
        assert_eq!((climb.failures(), from(climb.held()), from(climb.reached())), (count, held, reached));
        assert_eq!((climb.arrives(), climb.refused()), (arrives, !passes), "at {second}");
        let next = match (second, reached) {
            (0 | 1, Some(3)) => Some(2 * SECOND),
            (2 | 61, _) => Some(62 * SECOND),
            (62, _) => Some(122 * SECOND),
            _ => Some(0),
        };
        assert_eq!(Some(climb.next_at()), next.map(at), "at {second}");
        let locked = (reached == Some(4)).then(|| climb.next_at());
        assert_eq!(climb.locked_until(), locked, "at {second}");
    }
}
