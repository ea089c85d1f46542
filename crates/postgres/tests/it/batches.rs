//! Attempts that settle together in one transaction are decided as the specification does one after the
//! other: with several keys, plans, costs and ids, and where some are denied.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;

use crate::stage::{PATIENT, plan, runtime, settings, shared};
use futures_util::future::join_all;
use tollgate_core::{Charges, Outcome, Plan, Span, Store, Ticket, Timestamp};
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

/// One attempt: what it costs, its id, and at which keys of which rules.
struct Shot {
    ticket: u64,
    cost: u64,
    id: Option<String>,
    parts: Vec<(Arc<Plan>, String)>,
}

impl Shot {
    fn charges(&self) -> Charges<'_> {
        let mut charges = Charges::new(Ticket(self.ticket), self.cost, self.id.as_deref());
        self.parts.iter().for_each(|(plan, key)| charges.push(plan, key, true));
        charges
    }
}

fn stores(schema: &str) -> (Arc<ManualClock>, MemoryStore, PostgresStore) {
    let clock = Arc::new(ManualClock::at(START));
    let settings = Settings {
        sweep_interval: std::time::Duration::from_secs(3_600),
        ..settings(&shared().url(), schema, PATIENT)
    };
    let postgres = runtime().block_on(PostgresStore::start(settings)).unwrap().with_clock(clock.clone());
    (clock.clone(), MemoryStore::new(clock, 10_000), postgres)
}

/// Settles all at once on PostgreSQL and one after the other in memory, and compares.
fn compare(memory: &MemoryStore, postgres: &PostgresStore, shots: &[Shot], what: &str) {
    let settled = runtime().block_on(join_all(shots.iter().map(|shot| async {
        let mut outcome = Outcome::default();
        postgres.take(&shot.charges(), &mut outcome).await.unwrap();
        outcome
    })));
    for (shot, settled) in shots.iter().zip(settled) {
        let mut expected = Outcome::default();
        runtime().block_on(async { memory.take(&shot.charges(), &mut expected).await }).unwrap();
        assert_eq!(settled, expected, "{what}: {:?}", shot.charges());
    }
}

#[test]
fn mixed_attempts_settle_together_as_one_after_the_other() {
    let (clock, memory, postgres) = stores("mixed");
    let global = plan("global", "300/min sliding, 900/hour, 500 at once for 1m");
    let plans = [
        plan("a", "20/min, 30/min sliding, 40/hour sliding by 1m"),
        plan("b", "15 at once for 30s"),
        plan("b", "10 at once for 30s"),
        plan("c", "ladder 3 +2s then 5 lock 1m forget 5m"),
        plan("d", "10/s burst 20, 90 in total"),
        plan("a", "10/min, 15/min sliding, 60/hour sliding by 1m"),
    ];
    let (mut dice, mut now, mut ticket) = (Dice(3), START, 0);
    for round in 0..60 {
        now = now + Span::from_micros(dice.roll(9_000_000));
        clock.set(now);
        let mut shots = Vec::new();
        for _ in 0..1 + dice.roll(40) {
            ticket += 1;
            let mut parts = vec![(Arc::clone(&global), "all".to_owned())];
            for _ in 0..dice.roll(3) {
                let plan = &plans[dice.roll(6) as usize];
                if parts.iter().all(|(other, _)| other.rule() != plan.rule()) {
                    parts.push((Arc::clone(plan), format!("k{}", dice.roll(3))));
                }
            }
            let id = (dice.roll(3) > 0).then(|| format!("id {}", dice.roll(60)));
            shots.push(Shot { ticket, cost: 1 + dice.roll(3) * dice.roll(2), id, parts });
        }
        compare(&memory, &postgres, &shots, &format!("round {round}"));
    }
}

#[test]
fn attempts_that_are_denied_together_are_told_the_right_time() {
    let (clock, memory, postgres) = stores("told");
    let limits = [
        "100 at once for 10m",
        "100/hour sliding",
        "100/hour sliding by 1s",
        "ladder 90 +1m then 200 lock 1h forget 2h",
    ];
    for (index, limits) in limits.into_iter().enumerate() {
        let plan = plan(&format!("rule{index}"), limits);
        let mut ticket = 1_000 * index as u64;
        let mut shot = |cost| {
            ticket += 1;
            Shot { ticket, cost, id: None, parts: vec![(Arc::clone(&plan), "k".to_owned())] }
        };
        let mut now = START;
        clock.set(now);
        for _ in 0..97 {
            now = now + Span::from_secs(1);
            clock.set(now);
            compare(&memory, &postgres, &[shot(1)], limits);
        }
        // There is room for the first ones only: the others wait for what was taken first.
        let shots: Vec<Shot> = [1, 2, 1, 1, 5, 1, 2].map(&mut shot).into();
        compare(&memory, &postgres, &shots, limits);
    }
}
