//! The same steps on the same clock, on the store and on the specification, compared one by one.

use std::sync::Arc;

use tollgate_core::store::{Counter, Forget, HoldsOrder};
use tollgate_core::{Charges, Fate, Limit, Outcome, Plan, Span, Ticket, Timestamp};

use crate::contract::bench::{Bench, START, page, plan, wait};
use crate::contract::model::Model;

/// The inputs of a run.
struct Cast {
    /// The limits that a rule may have, from step to step.
    shapes: &'static [&'static str],
    keys: &'static [&'static str],
    costs: &'static [u64],
}

/// A bit of everything.
const EVERYTHING: Cast = Cast { shapes: &SHAPES, keys: &KEYS, costs: &[0, 1, 1, 1, 2, 3, 8, 13] };

/// A few keys that fail again and again, under ladders that change meanwhile.
const CLIMBERS: Cast = Cast {
    shapes: &[
        "ladder 2 +400ms forget 30s",
        "ladder 3 +200ms then 5 +900ms captcha forget 30s",
        "ladder 2 captcha then 4 +500ms then 8 lock 4s notify forget 30s",
        "ladder 1 +300ms forget 5s",
        "ladder 3 +200ms forget 30s, ladder 6 +1s forget 20s, 60/min",
    ],
    keys: &["ada", "bob"],
    costs: &[0, 1, 1, 1, 1, 1, 1, 2],
};

const SHAPES: [&str; 23] = [
    "7/10s",
    "9/10s",
    "9/10s, 20/min",
    "9/10s, 20/min, 30/hour calendar",
    "12/min calendar",
    "15/30s sliding",
    "12/30s sliding, 9/10s",
    "20/min sliding by 7s",
    "3/s burst 11",
    "7/s burst 11",
    "7/s burst 5, 100/hour",
    "5 at once",
    "8 at once for 9s",
    "8 at once for 9s, 40/min",
    "200 in total",
    "ladder 3 +700ms then 5 +2s captcha then 7 lock 9s notify forget 9s",
    "ladder 4 +1s then 6 lock 7s forget 30s",
    "ladder 2 +400ms forget 30s",
    "ladder 9 lock 5s forget 20s, 40/min, 9/10s sliding",
    "5000000000/10s, 9/min sliding",
    "4 recipients per attempt",
    "9/10s, 5 recipients per attempt",
    "6 recipients per attempt, 8 at once for 9s, 12/30s sliding",
];

/// A reproducible random source: a linear congruence of which only the upper bits are used.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn pick<T: Clone>(&mut self, among: &[T]) -> T {
        among[self.roll(among.len() as u64) as usize].clone()
    }
}

/// How the clock moves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    Steady,
    Jumpy,
}

/// A take that may be refunded.
struct Take {
    charges: Vec<Part>,
    id: Option<&'static str>,
    /// A number in the attempt that limits may bound, if it has one.
    recipients: Option<u64>,
    ticket: Ticket,
    /// By the caller's clock, which chose the calendar, and by the store's.
    asked_at: Timestamp,
    at: Timestamp,
}

/// One charge: its limits, its key and its own cost.
#[derive(Clone)]
struct Part {
    plan: Arc<Plan>,
    key: &'static str,
    cost: u64,
}

/// One run: a store and a model that must agree.
struct Trace<'b> {
    bench: &'b mut dyn Bench,
    model: Model,
    dice: Dice,
    now: Timestamp,
    /// The current limits of four rules.
    plans: Vec<Arc<Plan>>,
    cast: &'static Cast,
    taken: Vec<Take>,
    step: u64,
    seed: u64,
    pace: Pace,
}

const RULES: [&str; 4] = ["global", "domain", "sender", "ip"];
const KEYS: [&str; 5] = ["ada", "bob", "cy", "dee", ""];
const IDS: [&str; 4] = ["one", "two", "three", "four"];

pub(crate) fn settles_as_the_specification_does(bench: &mut dyn Bench) {
    run(bench, &EVERYTHING, Pace::Steady);
}

pub(crate) fn settles_as_the_specification_does_while_the_clock_jumps(bench: &mut dyn Bench) {
    run(bench, &EVERYTHING, Pace::Jumpy);
}

pub(crate) fn climbs_as_the_specification_does(bench: &mut dyn Bench) {
    run(bench, &CLIMBERS, Pace::Steady);
}

pub(crate) fn climbs_as_the_specification_does_while_the_clock_jumps(bench: &mut dyn Bench) {
    run(bench, &CLIMBERS, Pace::Jumpy);
}

fn run(bench: &mut dyn Bench, cast: &'static Cast, pace: Pace) {
    let seed = seed();
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let plans = RULES.map(|rule| plan(rule, dice.pick(cast.shapes))).to_vec();
    let model = Model::new(bench.forgets_by_looking());
    let taken = Vec::new();
    let mut trace = Trace { bench, model, dice, now: START, plans, cast, taken, step: 0, seed, pace };
    let steps = steps();
    while trace.step < steps {
        trace.step += 1;
        trace.move_clock(pace);
        match trace.dice.roll(100) {
            0..60 => trace.take(),
            60..72 => trace.peek(),
            72..82 => trace.refund(),
            82..92 => trace.order(),
            92..96 => trace.change_plan(),
            96..98 => trace.forget(),
            // A swept key is only equal to a new one while the clock does not go back.
            _ if pace == Pace::Steady && trace.step.is_multiple_of(4) => trace.bench.disturb(),
            _ => {}
        }
    }
}

/// The number of steps: a few thousand, or as the environment says.
#[expect(clippy::disallowed_methods, reason = "the long form of this test is asked for by environment")]
fn steps() -> u64 {
    std::env::var("TOLLGATE_STEPS").map_or(6_000, |steps| steps.parse().unwrap())
}

/// The seed: a new one for each run, or as the environment says.
#[expect(clippy::disallowed_methods, reason = "a run that failed is repeated by environment")]
fn seed() -> u64 {
    let fresh = START.as_micros() ^ u64::from(std::process::id());
    std::env::var("TOLLGATE_SEED").map_or(fresh, |seed| seed.parse().unwrap())
}

impl Trace<'_> {
    fn whence(&self) -> String {
        format!("seed {}, step {}", self.seed, self.step)
    }

    fn move_clock(&mut self, pace: Pace) {
        let span = Span::from_micros(match self.dice.roll(12) {
            0..4 => 0,
            4..9 => self.dice.roll(900_000),
            9..11 => self.dice.roll(8_000_000),
            _ => self.dice.roll(90_000_000),
        });
        let leap = Span::from_secs(self.dice.roll(3) * 5_400);
        self.now = match (pace, self.dice.roll(50)) {
            (Pace::Jumpy, 0) => self.now - span - leap,
            (Pace::Jumpy, 1) => self.now + span + leap,
            (Pace::Jumpy, 2..5) => self.now - span,
            _ => self.now + span,
        };
        self.bench.set_time(self.now);
    }

    /// One to three charges at different rules.
    fn pick_charges(&mut self) -> Take {
        let first = self.dice.roll(4) as usize;
        let cost = self.dice.pick(self.cast.costs);
        let charges = (0..=self.dice.roll(3) as usize)
            .map(|offset| Part {
                plan: self.plans[(first + offset) % 4].clone(),
                key: self.dice.pick(self.cast.keys),
                // Mostly all rules count the attempt's cost; a rule that counts a field has its own.
                cost: if self.dice.roll(4) == 0 { self.dice.pick(self.cast.costs) } else { cost },
            })
            .collect();
        let id = (self.dice.roll(2) == 0).then(|| self.dice.pick(&IDS));
        // Sometimes the caller's clock is hours behind, and its calendar is stale.
        let behind = self.dice.roll(20) == 0 && (self.bench.settles_at_once() || self.pace == Pace::Steady);
        let asked_at = if behind { self.now - Span::from_secs(9_000) } else { self.now };
        let recipients = (self.dice.roll(4) > 0).then(|| self.dice.roll(9));
        Take { charges, id, recipients, ticket: Ticket(self.step), asked_at, at: self.now }
    }

    fn take(&mut self) {
        let mut take = self.pick_charges();
        let observed = self.dice.roll(8) == 0;
        let charges = take.charges(observed);
        let mut outcome = Outcome::default();
        let answer = wait(self.bench.store().take(&charges, &mut outcome)).map(|()| outcome);
        let expected = self.model.take(&charges, self.now);
        assert_eq!(answer, expected, "{}: take {charges:?}", self.whence());
        let Ok(outcome) = answer else { return };
        drop(charges);
        let mut index = 0;
        take.charges.retain(|_| {
            index += 1;
            outcome.taken & (1 << (index - 1)) != 0
        });
        if !take.charges.is_empty() {
            self.taken.push(take);
        }
        if self.taken.len() > 60 {
            self.taken.remove(0);
        }
    }

    fn peek(&mut self) {
        let look = self.pick_charges();
        let charges = look.charges(false);
        let mut outcome = Outcome::default();
        let answer = wait(self.bench.store().peek(&charges, &mut outcome)).map(|()| outcome);
        let expected = self.model.peek(&charges, self.now);
        assert_eq!(answer, expected, "{}: peek {charges:?}", self.whence());
    }

    /// Refunds a take or a part of it, which may have been refunded before.
    fn refund(&mut self) {
        if self.taken.is_empty() {
            return;
        }
        let (number, part) = (self.dice.roll(self.taken.len() as u64), self.dice.roll(8));
        let take = &self.taken[number as usize];
        // As the engine does, with the current limits.
        let current = |plan: &Arc<Plan>| self.plans.iter().find(|now| now.rule() == plan.rule()).unwrap();
        let by_now = |part: &Part| Part { plan: current(&part.plan).clone(), ..part.clone() };
        let mut charges: Vec<_> = take.charges.iter().map(by_now).collect();
        match part {
            0..2 => charges.truncate(1),
            2..4 => drop(charges.drain(..charges.len() - 1)),
            _ => {}
        }
        let take = Take { charges, ..*take };
        let mut charges = Charges::new(take.ticket, 1, take.id);
        for Part { plan, key, cost } in &take.charges {
            let part = Fate::Part(self.dice.roll(cost + 1));
            let fates = [Fate::Back, Fate::Back, part, Fate::Clear, Fate::Keep];
            charges.push_taken(plan, key, *cost, self.dice.pick(&fates));
        }
        charges.calendar = take.charges(false).calendar;
        let answer = wait(self.bench.store().refund(&charges, take.at)).unwrap();
        let expected = self.model.refund(&charges, take.at, self.now);
        assert_eq!(answer, expected, "{}: give {charges:?}", self.whence());
    }

    fn order(&mut self) {
        // Orders are mostly about rules with holds, and sometimes about others.
        let held: Vec<_> = self.plans.iter().filter(|plan| plan.limits().iter().any(Limit::holds)).collect();
        let plan = match self.dice.roll(8) {
            1.. if !held.is_empty() => Arc::clone(held[self.dice.roll(held.len() as u64) as usize]),
            _ => self.dice.pick(&self.plans),
        };
        let counter = Counter { plan: &plan, key: self.dice.pick(self.cast.keys) };
        let some: Vec<&str> = (0..self.dice.roll(4)).map(|_| self.dice.pick(&IDS)).collect();
        let claims: Vec<(&str, u64)> = some.iter().map(|id| (*id, 1 + self.dice.roll(3))).collect();
        let order = match self.dice.roll(10) {
            0 => HoldsOrder::List,
            1 => HoldsOrder::Renew(self.dice.pick(&IDS)),
            2 => HoldsOrder::Release(self.dice.pick(&IDS)),
            3..5 => HoldsOrder::RenewMany(&some),
            5..7 => HoldsOrder::ReleaseMany(&some),
            7..9 => HoldsOrder::Claim(&claims, Ticket(self.step)),
            _ => HoldsOrder::Replace(&IDS[..self.dice.roll(4) as usize], Ticket(self.step)),
        };
        let answer = wait(self.bench.store().holds(&counter, order)).unwrap();
        let expected = self.model.holds(&counter, order, self.now);
        assert_eq!(answer, expected, "{}: {order:?} at {counter:?}", self.whence());
    }

    fn change_plan(&mut self) {
        let rule = self.dice.roll(4) as usize;
        self.plans[rule] = plan(RULES[rule], self.dice.pick(self.cast.shapes));
    }

    fn forget(&mut self) {
        let plan = self.dice.pick(&self.plans);
        let key = self.dice.pick(self.cast.keys);
        wait(self.bench.store().forget(Forget::Key(Counter { plan: &plan, key }))).unwrap();
        self.model.forget(plan.rule(), key, self.now);
    }
}

impl Take {
    fn charges(&self, last_observed: bool) -> Charges<'_> {
        let mut charges = Charges::new(self.ticket, 1, self.id);
        for (index, Part { plan, key, cost }) in self.charges.iter().enumerate() {
            charges.push_costing(plan, key, !(last_observed && index + 1 == self.charges.len()), *cost);
        }
        if let Some(recipients) = self.recipients {
            charges.push_amount("recipients", recipients);
        }
        charges.calendar = charges.periods().map(|period| page(period, self.asked_at)).collect();
        charges
    }
}
