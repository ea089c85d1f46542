//! The two short ways through a script, `lone.lua` and `quick.lua`, against the general script: the same
//! steps on two keys, one by each way. Outcomes, what is kept and how long it is kept must be the same.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tokio::runtime::Runtime;
use tollgate_core::{Span, Ticket};
use tollgate_store::ManualClock;
use tollgate_testbed::Server;

use super::*;
use crate::Settings;

/// What a copy of `quick.lua` adds to its reply, so that a test knows which script decided.
const QUICK: &str = "quick";

/// One attempt: how far the clock moves before it, in seconds, and what each charge costs.
#[derive(Clone, Debug)]
struct Step {
    wait: i64,
    costs: Vec<u64>,
    /// Which of the two sets of limits holds.
    other_limits: bool,
}

struct Stage {
    store: RedisStore,
    clock: Arc<ManualClock>,
    general: Script,
    marked: Script,
}

/// How often each way was taken.
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
            include_str!("../../lua/quick.lua"),
            include_str!("../../lua/tools.lua"),
            include_str!("../../lua/settle.lua"),
            include_str!("../../lua/end.lua"),
        ];
        let [begin, plain, weigh, quick, tools, settle, end] = parts;
        let marked = quick.replace("  return reply\n", "  reply[n + 3] = 'quick'\n  return reply\n");
        assert_ne!(marked, quick, "quick.lua ends by returning its reply");
        assert_eq!(Script::of(&parts).name, store.scripts.plain.name, "the script is made of these parts");
        Self {
            store: store.with_clock(clock.clone()),
            clock,
            general: Script::of(&[begin, plain, weigh, tools, settle, end]),
            marked: Script::of(&[begin, plain, weigh, &marked, tools, settle, end]),
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

    async fn settle_generally(&self, request: &mut Request<'_, '_>) -> Reply {
        let deadline = self.store.deadline();
        self.store.settle(&self.general, request, Ask::to(Mode::Take), &[], deadline).await.unwrap()
    }

    /// Takes by the short way where there is one; says whether it was taken.
    async fn settle_shortly(&self, request: &mut Request<'_, '_>) -> (Reply, bool) {
        let deadline = self.store.deadline();
        if let Some(reply) = self.store.settle_alone(request, deadline).await.unwrap() {
            return (reply, true);
        }
        let reply = self.store.settle(&self.marked, request, Ask::to(Mode::Take), &[], deadline).await;
        let Reply::List(mut parts) = reply.unwrap() else { panic!("a list") };
        let quick = parts.last().and_then(Reply::text) == Some(QUICK);
        if quick {
            parts.pop();
        }
        (Reply::List(parts), quick)
    }

    /// Runs the steps by both ways, each on keys of its own.
    async fn compare(&self, plans: &[[Arc<tollgate_core::Plan>; 2]], steps: &[Step], ways: &mut Ways) {
        let mut all = Vec::new();
        for step in steps {
            self.set_time(step.wait);
            let charges = |key: &'static str| {
                let mut charges = Charges::new(Ticket(1), 1, None);
                for (plans, cost) in plans.iter().zip(&step.costs) {
                    charges.push_costing(&plans[usize::from(step.other_limits)], key, true, *cost);
                }
                charges
            };
            let (one, other) = (charges("short"), charges("general"));
            let chosen: Vec<usize> = (0..plans.len()).collect();
            let mut first = Request::new(&one, chosen.clone(), &self.store.names).unwrap();
            let mut second = Request::new(&other, chosen, &self.store.names).unwrap();
            let (reply, shortly) = self.settle_shortly(&mut first).await;
            let general = self.settle_generally(&mut second).await;
            assert_eq!(outcome(&first, &reply), outcome(&second, &general), "{step:?}, shortly: {shortly}");
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

fn outcome(request: &Request<'_, '_>, reply: &Reply) -> Outcome {
    let mut outcome = Outcome::default();
    read_outcome(request, &head(reply).unwrap(), &mut outcome).unwrap();
    outcome
}

fn steps(charges: usize) -> impl Strategy<Value = Vec<Step>> {
    let wait = prop_oneof![6 => Just(0), 4 => 1..40_i64, 2 => 300..5_000_i64, 1 => -400..0_i64];
    let costs = prop::collection::vec(prop_oneof![8 => 1..4_u64, 1 => 0..30_u64], charges);
    let step = (wait, costs, prop::bool::weighted(0.1));
    let step = step.prop_map(|(wait, costs, other_limits)| Step { wait, costs, other_limits });
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
