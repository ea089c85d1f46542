//! Attempts whose keys are in several slots: how the outcomes of the slots are combined, and what is undone
//! if one of them refuses.

use super::*;

fn reading(remaining: u64, when: When) -> Reading {
    Reading { capacity: 10, remaining, reset: None, when }
}

fn charges<'a>(plans: &'a [Arc<tollgate_core::Plan>], enforced: &[bool]) -> Charges<'a> {
    let mut charges = Charges::new(Ticket(7), 1, None);
    for (plan, enforced) in plans.iter().zip(enforced) {
        charges.push(plan, "k", *enforced);
    }
    charges
}

fn part(chosen: &[usize], widths: &[usize], now: u64, taken: u32, remaining: &[u64]) -> Part {
    let readings = remaining.iter().map(|remaining| reading(*remaining, When::Now)).collect();
    let now = Timestamp::from_micros(now);
    let outcome = Outcome { now, allowed: true, taken, readings, ..Outcome::default() };
    Part { chosen: chosen.to_vec(), outcome, widths: widths.to_vec(), holds: false }
}

#[test]
fn the_outcomes_of_slots_are_combined_in_the_order_of_the_charges() {
    let plans = [
        plan("a", &["5/min", "6/hour"]),
        plan("b", &["5/min"]),
        plan("c", &["5/min", "6/hour"]),
        plan("d", &["5/min"]),
    ];
    let charges = charges(&plans, &[true; 4]);
    let parts = [
        part(&[2, 0], &[2, 2], 500, 0b10, &[20, 21, 0, 1]),
        part(&[3], &[1], 400, 0b1, &[30]),
        part(&[1], &[1], 600, 0b0, &[10]),
    ];
    let mut outcome = Outcome::default();
    assemble(&charges, &parts, &mut outcome);
    let remaining: Vec<u64> = outcome.readings.iter().map(|reading| reading.remaining).collect();
    assert_eq!(remaining, [0, 1, 10, 20, 21, 30]);
    assert_eq!(outcome.taken, 0b1001, "charges 0 and 3");
    assert_eq!(outcome.now, Timestamp::from_micros(400), "the earliest time");
    assert!(!outcome.allowed, "its caller decides that");
}

#[test]
fn a_refusal_has_a_wait_at_an_enforced_limit() {
    let plans = [plan("a", &["5/min", "6/hour"]), plan("b", &["5/min", "6/hour"]), plan("c", &["5/min"])];
    let charges = charges(&plans, &[false, true, true]);
    let (minute, shortest) = (When::After(Span::from_secs(60)), When::After(Span::from_micros(1)));
    let insisted = |whens: [When; 5]| {
        let readings = whens.iter().map(|when| reading(1, *when)).collect();
        let mut outcome = Outcome { readings, ..Outcome::default() };
        insist(&charges, &mut outcome);
        outcome.readings.iter().map(|reading| reading.when).collect::<Vec<_>>()
    };
    let free = When::Now;
    for waiting in 2..5 {
        let mut whens = [free; 5];
        whens[waiting] = minute;
        assert_eq!(insisted(whens), whens, "limit {waiting} is the reason");
    }
    assert_eq!(insisted([free; 5]), [free, free, shortest, free, free]);
    assert_eq!(insisted([minute, minute, free, free, free]), [minute, minute, shortest, free, free]);
}

#[test]
fn a_damaged_counter_is_reported_by_its_own_key() {
    let stage = Stage::new("which");
    let plans = [plan("a", &["5/min"]), plan("b", &["5/min"]), plan("c", &["5/min"])];
    let charges = charges(&plans, &[true; 3]);
    let request = Request::new(&charges, vec![0, 1, 2], &stage.store.names).unwrap();
    for number in 1..=3 {
        let rest = [Reply::Number(number), Reply::Bytes(b"a list".to_vec())];
        let head = Head { now: Timestamp::ZERO, status: DAMAGED, rest: &rest };
        let key = request.keys[number as usize - 1].clone();
        assert_eq!(
            damaged(&request, &head),
            StoreError::Damaged { key, reason: "it holds a list, not a counter".into() }
        );
    }
}

#[test]
fn only_the_charges_that_a_slot_took_are_undone() {
    let stage = Stage::new("undone");
    let plans = ["a", "b", "c"].map(|rule| plan(rule, &["50/hour"]));
    let all = charges(&plans, &[true; 3]);
    let used = || {
        let mut outcome = Outcome::default();
        runtime().block_on(stage.store.decide(&all, Mode::Peek, &mut outcome)).unwrap();
        outcome.readings.iter().map(|reading| 50 - reading.remaining).collect::<Vec<_>>()
    };
    runtime().block_on(async {
        for _ in 0..5 {
            stage.store.decide(&all, Mode::Take, &mut Outcome::default()).await.unwrap();
        }
    });
    assert_eq!(used(), [5, 5, 5]);
    let now = tollgate_core::Clock::now(&*stage.clock).as_micros();
    let parts = [
        Ok(part(&[0, 1], &[1, 1], now, 0b10, &[45, 45])),
        Ok(part(&[2], &[1], now, 0, &[45])),
        Err(StoreError::Busy),
    ];
    runtime().block_on(stage.store.roll_back(&all, &parts, stage.store.deadline()));
    assert_eq!(used(), [5, 4, 5], "the second charge was taken, and nothing else");
}

#[test]
fn a_slot_that_refuses_leaves_the_others_untouched() {
    let stage = Stage::new("slots");
    let plans = [plan("wide", &["50/hour"]), plan("narrow", &["1/hour"])];
    let all = charges(&plans, &[true; 2]);
    let groups = || vec![vec![0], vec![1]];
    let decided = |mode: Mode| {
        let mut outcome = Outcome::default();
        runtime().block_on(stage.store.decide_in_groups(&all, groups(), mode, &mut outcome)).unwrap();
        let remaining: Vec<u64> = outcome.readings.iter().map(|reading| reading.remaining).collect();
        (outcome.allowed, outcome.taken, remaining)
    };
    assert_eq!(decided(Mode::Peek), (true, 0, vec![50, 1]));
    assert_eq!(decided(Mode::Take), (true, 0b11, vec![49, 0]));
    assert_eq!(decided(Mode::Take), (false, 0, vec![49, 0]));
    assert_eq!(decided(Mode::Peek), (false, 0, vec![49, 0]));
}
