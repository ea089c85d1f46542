//! Logs and holds that are too many to be loaded whole are decided as the store in memory does, which has
//! all of them: when many have aged out at once, when a lowered limit asks to wait for many, when one of
//! many is given back or released, and when the clock goes back.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;

use crate::stage::{PATIENT, plan, runtime, settings, shared};
use tollgate_core::store::{Counter, HoldsOrder};
use tollgate_core::{Charges, Fate, Outcome, Plan, Span, Store, Ticket, Timestamp};
use tollgate_postgres::{PostgresStore, Settings};
use tollgate_store::{ManualClock, MemoryStore};

const START: Timestamp = Timestamp::from_micros(1_760_000_045_000_000);

/// A reproducible source of choices.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// The same key on both stores.
struct Pair {
    clock: Arc<ManualClock>,
    memory: MemoryStore,
    postgres: PostgresStore,
}

impl Pair {
    fn new(schema: &str) -> Self {
        let clock = Arc::new(ManualClock::at(START));
        let settings = Settings {
            sweep_interval: std::time::Duration::from_secs(3_600),
            ..settings(&shared().url(), schema, PATIENT)
        };
        let postgres = runtime().block_on(PostgresStore::start(settings)).unwrap().with_clock(clock.clone());
        Self { memory: MemoryStore::new(clock.clone(), 1_000), clock, postgres }
    }

    /// Takes on both, and answers what both say.
    fn take(&self, charges: &Charges<'_>, step: u64) -> Outcome {
        let [mut one, mut other] = [Outcome::default(), Outcome::default()];
        runtime().block_on(async {
            self.memory.take(charges, &mut one).await.unwrap();
            self.postgres.take(charges, &mut other).await.unwrap();
        });
        assert_eq!(other, one, "step {step}: {charges:?}");
        one
    }

    fn refund(&self, charges: &Charges<'_>, at: Timestamp, step: u64) {
        let (one, other) = runtime().block_on(async {
            (self.memory.refund(charges, at).await.unwrap(), self.postgres.refund(charges, at).await.unwrap())
        });
        assert_eq!(other, one, "step {step}: {charges:?}");
    }

    fn order(&self, plan: &Arc<Plan>, order: HoldsOrder<'_>, step: u64) {
        let counter = Counter { plan, key: "k" };
        let (one, other) = runtime().block_on(async {
            (
                self.memory.holds(&counter, order).await.unwrap(),
                self.postgres.holds(&counter, order).await.unwrap(),
            )
        });
        assert_eq!(other, one, "step {step}: {order:?}");
    }
}

#[test]
fn long_logs_are_decided_as_in_memory() {
    let pair = Pair::new("long_logs");
    let plans =
        ["400/min sliding, 900/5m sliding", "60/min sliding, 900/5m sliding", "900/5m sliding, 400/min"]
            .map(|limits| plan("rule", limits));
    let (mut dice, mut now, mut taken) = (Dice(7), START, Vec::new());
    for step in 1..2_500 {
        now = match dice.roll(400) {
            0 => now + Span::from_secs(dice.roll(400)),
            1 => now - Span::from_secs(dice.roll(40)),
            _ => now + Span::from_micros(dice.roll(300_000)),
        };
        pair.clock.set(now);
        let plan = &plans[match dice.roll(60) {
            0 => 1,
            1 => 2,
            _ => 0,
        }];
        let cost = if dice.roll(20) == 0 { dice.roll(200) } else { 1 + dice.roll(4) };
        let mut charges = Charges::new(Ticket(step), cost, None);
        charges.push(plan, "k", true);
        if pair.take(&charges, step).taken != 0 {
            taken.push((step, cost, now));
        }
        if dice.roll(9) == 0 && !taken.is_empty() {
            let (ticket, cost, at) = taken.swap_remove(dice.roll(taken.len() as u64) as usize);
            let mut charges = Charges::new(Ticket(ticket), cost, None);
            charges.push(plan, "k", true);
            pair.refund(&charges, at, step);
        }
    }
}

#[test]
fn many_slots_are_decided_as_in_memory() {
    let pair = Pair::new("many_slots");
    let plans = ["400/min", "40/min"]
        .map(|most| plan("rule", &format!("{most} sliding by 1s, 900/5m sliding by 3s, 1200/6m sliding")));
    let (mut dice, mut now, mut taken) = (Dice(3), START, Vec::new());
    for step in 1..1_200 {
        now = match dice.roll(100) {
            0 => now + Span::from_secs(dice.roll(90)),
            1 => now + Span::from_secs(60),
            _ => now + Span::from_micros(dice.roll(1_500_000)),
        };
        pair.clock.set(now);
        let plan = &plans[usize::from(dice.roll(9) == 0)];
        let cost = if dice.roll(20) == 0 { dice.roll(200) } else { 1 + dice.roll(9) };
        let mut charges = Charges::new(Ticket(step), cost, None);
        charges.push(plan, "k", true);
        if pair.take(&charges, step).taken != 0 {
            taken.push((step, cost, now));
        }
        if dice.roll(6) == 0 && !taken.is_empty() {
            let (ticket, cost, at) = taken.swap_remove(dice.roll(taken.len() as u64) as usize);
            let mut charges = Charges::new(Ticket(ticket), cost, None);
            charges.push(plan, "k", true);
            pair.refund(&charges, at, step);
        }
    }
}

#[test]
fn long_ladders_are_decided_as_in_memory() {
    climb("long_ladders", "");
}

#[test]
fn long_ladders_beside_a_log_are_decided_as_in_memory() {
    climb("long_ladders_and_log", ", 90000/hour sliding");
}

/// Compares ladders with these limits beside them.
fn climb(schema: &str, beside: &str) {
    let pair = Pair::new(schema);
    // The last step is far above what is loaded at first. Failures beyond it are merged.
    let plans =
        ["40", "60"].map(|last| plan("rule", &format!("ladder 20 +1ms then {last} +2ms forget 10m{beside}")));
    let (mut dice, mut now, mut taken) = (Dice(5), START, Vec::new());
    for step in 1..1_200 {
        now = match dice.roll(300) {
            0 => now + Span::from_secs(600),
            _ => now + Span::from_micros(1 + dice.roll(4_000)),
        };
        pair.clock.set(now);
        let plan = &plans[usize::from(dice.roll(50) == 0)];
        let mut charges = Charges::new(Ticket(step), 1 + dice.roll(2), None);
        charges.push(plan, "k", true);
        if pair.take(&charges, step).taken != 0 {
            taken.push((step, charges.cost, now));
        }
        if dice.roll(4) == 0 && !taken.is_empty() {
            let (ticket, cost, at) = taken.swap_remove(dice.roll(taken.len() as u64) as usize);
            let fate = match dice.roll(60) {
                0 => Fate::Clear,
                1..15 => Fate::Keep,
                15..25 => Fate::Part(1),
                _ => Fate::Back,
            };
            let mut charges = Charges::new(Ticket(ticket), cost, None);
            charges.push_taken(plan, "k", cost, fate);
            pair.refund(&charges, at, step);
        }
    }
}

#[test]
fn many_holds_are_decided_as_in_memory() {
    let pair = Pair::new("many_holds");
    let (leased, longer) = (plan("rule", "150 at once for 1m"), plan("rule", "150 at once for 2m"));
    let ids: Vec<String> = (0..400).map(|number| format!("id {number}")).collect();
    let (mut dice, mut now) = (Dice(11), START);
    for step in 1..1_500 {
        now = match dice.roll(200) {
            0 => now + Span::from_secs(dice.roll(70)),
            _ => now + Span::from_micros(dice.roll(300_000)),
        };
        pair.clock.set(now);
        let plan = if dice.roll(100) == 0 { &longer } else { &leased };
        let mut some = || ids[dice.roll(400) as usize].as_str();
        let (one, two, three) = (some(), some(), some());
        match dice.roll(10) {
            0 => pair.order(plan, HoldsOrder::Release(one), step),
            1 => pair.order(plan, HoldsOrder::RenewMany(&[one, two, three]), step),
            2 => pair.order(plan, HoldsOrder::Claim(&[(one, 1), (two, 2)], Ticket(step)), step),
            3 if step % 20 == 0 => pair.order(plan, HoldsOrder::List, step),
            _ => {
                let mut charges = Charges::new(Ticket(step), 1 + dice.roll(2), Some(one));
                charges.push(plan, "k", true);
                pair.take(&charges, step);
            }
        }
    }
}
