//! Compares the short ways to decide (`lone.lua`, `quick.lua`, and the script without logs and holds) with the
//! script that settles any charges. Each way runs the same steps on a key of its own; outcomes, stored values
//! and their times to live must be the same.

mod parts;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tokio::runtime::Runtime;
use tollgate_core::limit::{Page, Period};
use tollgate_core::{Span, Ticket};
use tollgate_store::ManualClock;
use tollgate_testbed::Server;

use super::*;
use crate::Settings;
use crate::row::heading;

/// A copy of `quick.lua` adds this to its reply, so that a test can tell which script decided.
const QUICK: &str = "quick";

/// One attempt: the time by which the clock moves before it, in seconds, and the cost of each charge.
#[derive(Clone, Debug)]
struct Step {
    wait: i64,
    costs: Vec<u64>,
    /// Whether each charge is enforced, or only observed.
    enforced: Vec<bool>,
    /// A number in the attempt that limits may bound, if it has one.
    recipients: Option<u64>,
    /// The time by which the caller's clock, which chose the calendar page, is behind, in seconds.
    behind: u64,
    /// Whether the second set of limits applies.
    other_limits: bool,
}

struct Stage {
    store: RedisStore,
    clock: Arc<ManualClock>,
    marked: Script,
}

/// The number of decisions by each way.
#[derive(Clone, Copy, Debug, Default)]
struct Ways {
    short: usize,
    general: usize,
}

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new().unwrap())
}

fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::redis().start())
}

fn plan(rule: &str, limits: &[&str]) -> Arc<tollgate_core::Plan> {
    let limits = limits.iter().map(|limit| limit.parse().unwrap()).collect();
    Arc::new(tollgate_core::Plan::new(rule.into(), limits).unwrap())
}

/// The calendar page around a time, in UTC. Months are not supported here.
fn page(period: &Period, now: Timestamp) -> Page {
    let length = period.unit.length().unwrap().as_micros();
    let start = now.as_micros() / length * length;
    let edge = |count| Timestamp::from_micros(start + count * length);
    Page { period: period.clone(), edges: [edge(0), edge(1), edge(2)] }
}

impl Stage {
    fn new(prefix: &str) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_800_000_000_000_000)));
        let parsed = Settings::parse(&server().url()).unwrap();
        let settings = Settings { prefix: prefix.into(), command_timeout: Duration::from_secs(30), ..parsed };
        let store = runtime().block_on(RedisStore::start(settings)).unwrap();
        let parts = [
            include_str!("../../lua/begin.lua"),
            include_str!("../../lua/plain.lua"),
            include_str!("../../lua/weigh.lua"),
            include_str!("../../lua/tools.lua"),
            include_str!("../../lua/quick.lua"),
            include_str!("../../lua/settle.lua"),
            include_str!("../../lua/end.lua"),
        ];
        let [begin, plain, weigh, tools, quick, settle, end] = parts;
        let marked = quick.replace("  return reply\n", "  reply[n + 3] = 'quick'\n  return reply\n");
        assert_ne!(marked, quick, "quick.lua ends by returning its reply");
        assert_eq!(Script::of(&parts).name, store.scripts.plain.name, "the script is made of these parts");
        Self {
            store: store.with_clock(clock.clone()),
            clock,
            marked: Script::of(&[begin, plain, weigh, tools, &marked, settle, end]),
        }
    }

    fn set_time(&self, wait: i64) {
        let span = Span::from_secs(wait.unsigned_abs());
        let now = tollgate_core::Clock::now(&*self.clock);
        self.clock.set(if wait < 0 { now - span } else { now + span });
    }

    /// The value under a name, and its remaining time in milliseconds.
    async fn kept(&self, name: &str) -> (Reply, i64) {
        let value = self.store.command(name, &[b"GET", name.as_bytes()]).await.unwrap();
        let left = self.store.command(name, &[b"PTTL", name.as_bytes()]).await.unwrap();
        (value, left.number().unwrap())
    }

    async fn forget(&self, names: &[String]) {
        for name in names {
            self.store.command(name, &[b"DEL", name.as_bytes()]).await.unwrap();
        }
    }

    async fn settle_generally(&self, request: &mut Request<'_, '_>) -> Result<Outcome, StoreError> {
        let deadline = self.store.deadline();
        let reply =
            self.store.settle(&self.store.scripts.full, request, Ask::to(Mode::Take), &[], deadline).await?;
        outcome(request, &reply)
    }

    /// Takes by the short way where there is one; says whether it was taken.
    async fn settle_shortly(&self, request: &mut Request<'_, '_>) -> Result<(Outcome, bool), StoreError> {
        let deadline = self.store.deadline();
        if let Some(reply) = self.store.settle_alone(request, deadline).await? {
            return Ok((outcome(request, &reply)?, true));
        }
        let reply = self.store.settle(&self.marked, request, Ask::to(Mode::Take), &[], deadline).await?;
        let Reply::List(mut parts) = reply else { panic!("a list") };
        let quick = parts.last().and_then(Reply::text) == Some(QUICK);
        if quick {
            parts.pop();
        }
        Ok((outcome(request, &Reply::List(parts))?, quick))
    }

    /// Runs the steps by both ways, each on keys of its own.
    async fn compare(&self, plans: &[[Arc<tollgate_core::Plan>; 2]], steps: &[Step], ways: &mut Ways) {
        let mut all = Vec::new();
        for step in steps {
            self.set_time(step.wait);
            let charges = |key: &'static str| {
                let mut charges = Charges::new(Ticket(1), 1, None);
                for ((plans, cost), enforced) in plans.iter().zip(&step.costs).zip(&step.enforced) {
                    charges.push_costing(&plans[usize::from(step.other_limits)], key, *enforced, *cost);
                }
                if let Some(recipients) = step.recipients {
                    charges.push_amount("recipients", recipients);
                }
                let asked_at = tollgate_core::Clock::now(&*self.clock) - Span::from_secs(step.behind);
                charges.calendar = charges.periods().map(|period| page(period, asked_at)).collect();
                charges
            };
            let (one, other) = (charges("short"), charges("general"));
            let chosen: Vec<usize> = (0..plans.len()).collect();
            let mut first = Request::new(&one, chosen.clone(), &self.store.names).unwrap();
            let mut second = Request::new(&other, chosen, &self.store.names).unwrap();
            let short = self.settle_shortly(&mut first).await;
            let shortly = short.as_ref().is_ok_and(|(_, shortly)| *shortly);
            let general = self.settle_generally(&mut second).await;
            assert_eq!(short.map(|(outcome, _)| outcome), general, "{step:?}, shortly: {shortly}");
            ways.short += usize::from(shortly);
            ways.general += usize::from(!shortly);
            for (one, other) in first.keys[..plans.len()].iter().zip(&second.keys) {
                let ((value, left), (same, as_long)) = (self.kept(one).await, self.kept(other).await);
                assert_eq!(value, same, "what is kept after {step:?}, shortly: {shortly}");
                // The two were written one after the other, so their ends differ by the time between.
                assert!(left.abs_diff(as_long) < 60_000, "kept for {left} and {as_long} after {step:?}");
                all.extend([one.clone(), other.clone()]);
            }
        }
        self.forget(&all).await;
    }
}

fn outcome(request: &Request<'_, '_>, reply: &Reply) -> Result<Outcome, StoreError> {
    let mut outcome = Outcome::default();
    read_outcome(request, &head(reply)?, &mut outcome)?;
    Ok(outcome)
}

fn steps(charges: usize) -> impl Strategy<Value = Vec<Step>> {
    let wait = prop_oneof![6 => Just(0), 4 => 1..40_i64, 2 => 300..5_000_i64, 1 => -400..0_i64];
    let costs = prop::collection::vec(prop_oneof![8 => 1..4_u64, 1 => 0..30_u64], charges);
    let enforced = prop::collection::vec(prop::bool::weighted(0.9), charges);
    let recipients = prop::option::weighted(0.8, prop_oneof![8 => 0..=4_u64, 1 => 5..9_u64]);
    let behind = prop_oneof![15 => Just(0), 1 => Just(9_000_u64)];
    let step = (wait, costs, enforced, recipients, behind, prop::bool::weighted(0.1));
    let step = step.prop_map(|(wait, costs, enforced, recipients, behind, other_limits)| Step {
        wait,
        costs,
        enforced,
        recipients,
        behind,
        other_limits,
    });
    prop::collection::vec(step, 1..25)
}

/// Compares many runs, and returns how often each path was taken.
fn compare_many(prefix: &str, plans: &[[Arc<tollgate_core::Plan>; 2]]) -> Ways {
    let stage = Stage::new(prefix);
    let mut ways = Ways::default();
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 60, failure_persistence: None, ..Default::default() });
    let counted = std::cell::RefCell::new(&mut ways);
    let result = runner.run(&steps(plans.len()), |steps| {
        runtime().block_on(stage.compare(plans, &steps, &mut counted.borrow_mut()));
        Ok(())
    });
    result.unwrap();
    ways
}

#[test]
fn a_lone_bucket_says_and_keeps_what_the_general_script_does() {
    for limits in [["10/hour burst 5", "7/30m burst 9"], ["7/hour burst 20", "7/hour burst 3"]] {
        let plans = [[plan("lone", &limits[..1]), plan("lone", &limits[1..])]];
        let ways = compare_many("lone", &plans);
        assert!(ways.short > 100 && ways.general > 10, "both ways are taken: {ways:?}");
    }
}

#[test]
fn growing_counters_say_and_keep_what_the_general_script_does() {
    let window = plan("window", &["40/hour"]);
    let total = plan("total", &["500 in total", "30/30m"]);
    let other = plan("window", &["50/hour", "20/10m"]);
    let plans = [[window, other], [total.clone(), total]];
    let ways = compare_many("quick", &plans);
    assert!(ways.short > 100 && ways.general > 100, "both ways are taken: {ways:?}");
}

#[test]
fn calendar_limits_and_bounds_of_attempts_say_and_keep_what_the_general_script_does() {
    let calendar =
        [plan("calendar", &["60/hour calendar"]), plan("calendar", &["90/hour calendar", "70/2h"])];
    let attempt = plan("attempt", &["4 recipients per attempt"]);
    let mixed = plan("mixed", &["5 recipients per attempt", "900 in total"]);
    let ways = compare_many("calendar", &[calendar, [attempt.clone(), attempt], [mixed.clone(), mixed]]);
    assert!(ways.short > 100 && ways.general > 100, "both ways are taken: {ways:?}");
}

#[test]
fn a_damaged_bucket_is_told_and_left_alone_as_by_the_general_script() {
    let stage = Stage::new("damaged");
    let plan = plan("lone", &["10/hour burst 5"]);
    let counter = |numbers: &[u64]| [heading(&plan).as_bytes(), &packed(numbers)].concat();
    let now = 1_800_000_000_000_000;
    let mut values = vec![b"".to_vec(), b"hello".to_vec(), b"\n".to_vec(), vec![b'x'; 9_000]];
    values.extend([counter(&[]), counter(&[now]), counter(&[now, 0, 0]), counter(&[now, 0])[..20].to_vec()]);
    for odd in [1 << 53, u64::MAX, u64::MAX / 3, f64::NAN.to_bits()] {
        values.extend([counter(&[odd, 0]), counter(&[now, odd]), counter(&[0, odd]), counter(&[odd, odd])]);
    }
    runtime().block_on(async {
        for value in values {
            let charges = ["short", "general"].map(|key| {
                let mut charges = Charges::new(Ticket(1), 1, None);
                charges.push(&plan, key, true);
                charges
            });
            let [mut short, mut general] =
                charges.each_ref().map(|charges| Request::new(charges, vec![0], &stage.store.names).unwrap());
            let names = [short.keys[0].clone(), general.keys[0].clone()];
            for name in &names {
                stage.store.command(name, &[b"SET", name.as_bytes(), &value]).await.unwrap();
            }
            let answers = [
                stage.settle_shortly(&mut short).await.map(|(outcome, _)| outcome),
                stage.settle_generally(&mut general).await,
            ];
            let reasons = answers.each_ref().map(|answer| match answer {
                Err(StoreError::Damaged { reason, .. }) => reason,
                other => panic!("{other:?} at {value:?}"),
            });
            assert_eq!(reasons[0], reasons[1], "{value:?}");
            for name in &names {
                assert_eq!(stage.kept(name).await, (Reply::Bytes(value.clone()), -1), "it is left alone");
            }
            stage.forget(&names).await;
        }
    });
}

#[test]
fn a_call_that_the_server_refuses_every_time_is_busy_and_no_outage() {
    let stage = Stage::new("busy");
    let plan = plan("rule", &["5/min"]);
    let mut charges = Charges::new(Ticket(1), 1, None);
    charges.push(&plan, "k", true);
    for refusal in [TOO_LATE, OTHER_LIMITS] {
        let script = Script::of(&[&format!("return {{ 1, {refusal} }}")]);
        let mut request = Request::new(&charges, vec![0], &stage.store.names).unwrap();
        let deadline = stage.store.deadline();
        let settled = stage.store.settle(&script, &mut request, Ask::to(Mode::Take), &[], deadline);
        let error = runtime().block_on(settled).unwrap_err();
        assert_eq!(error, StoreError::Busy, "{refusal}");
        assert!(!error.is_outage() && !error.is_uncertain(), "nothing was done, and the store works");
    }
}

#[test]
fn a_calendar_that_the_server_finds_stale_is_told_with_its_time() {
    let stage = Stage::new("stale");
    let plan = plan("rule", &["5/min"]);
    let mut charges = Charges::new(Ticket(1), 1, None);
    charges.push(&plan, "k", true);
    let mut request = Request::new(&charges, vec![0], &stage.store.names).unwrap();
    let script = Script::of(&[&format!("return {{ 42, {STALE} }}")]);
    let deadline = stage.store.deadline();
    let settled = stage.store.settle(&script, &mut request, Ask::to(Mode::Take), &[], deadline);
    let error = runtime().block_on(settled).err();
    assert_eq!(error, Some(StoreError::Stale { now: Timestamp::from_micros(42) }));
}

#[test]
fn a_script_refuses_a_kind_of_limit_that_it_does_not_know() {
    let stage = Stage::new("kind");
    let plan = plan("rule", &["5 at once"]);
    let mut charges = Charges::new(Ticket(1), 1, None);
    charges.push(&plan, "k", true);
    let request = Request::new(&charges, vec![0], &stage.store.names).unwrap();
    let deadline = stage.store.deadline();
    for mode in [Mode::Peek, Mode::Take] {
        let mut body = request.body(Ask::to(mode), stage.store.timing(&request.keys[0], deadline));
        // Its kind, its number, no lease, and the index of its key.
        let limit = body.windows(4).position(|numbers| numbers == [8, 5, 0, 2]).unwrap();
        body[limit] = 10;
        runtime().block_on(async {
            let (script, keys) = (&stage.store.scripts.full, [&request.keys[..], &[]]);
            let error = stage.store.run(script, keys, &[&body], deadline).await.unwrap_err().to_string();
            assert!(error.contains("there is no limit of kind 10"), "{error}");
            for key in &request.keys {
                let kept = stage.store.command(key, &[b"EXISTS", key.as_bytes()]).await.unwrap();
                assert_eq!(kept.number(), Some(0), "{key}");
            }
        });
    }
}
