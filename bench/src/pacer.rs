//! How many permits the pacer lets go, how true it is to the rates it was given, and how late a single
//! permit comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tollgate_core::{Attempt, Decision, OnExceed, Policies, Policy, Rule, Span};
use tollgate_engine::pacer::Unpaced;
use tollgate_engine::{Ask, Engine, Pacer, PacerOptions, Parts};
use tollgate_store::{MemoryStore, SystemClock};

use crate::rounds::line;

const KEYS: u64 = 1_000;
const SECONDS: u64 = 10;

/// A rule: its name, the fields it goes by, and its limit.
type Refunded<'a> = (&'a str, &'a [&'a str], &'a str);

pub fn run() {
    rate("a limit for each key", &[("key", &["key"], "110/s burst 10")], 110 * KEYS);
    let shared: [Refunded<'_>; 2] = [("all", &[], "110000/s burst 11000"), ("key", &["key"], "1000/s burst 10")];
    rate("one limit for all keys", &shared, 110_000);
    lateness("1/250ms sliding");
    lateness("20/s burst 1");
}

/// How many permits a second there are when everybody always wants one.
fn rate(what: &str, rules: &[Refunded<'_>], configured: u64) {
    let runtime = runtime();
    let pacer = pacer(&runtime, rules);
    let passed = Arc::new(AtomicU64::new(0));
    for key in 0..KEYS {
        // Enough callers for each key that one is always waiting.
        for _ in 0..8 {
            let (pacer, passed) = (pacer.clone(), Arc::clone(&passed));
            runtime.spawn(async move {
                let key = key.to_string();
                let fields = [("key", &*key)];
                let attempt = Attempt { policy: "paced", fields: &fields, cost: 1, id: None };
                while pacer.acquire_with(Ask::from(attempt), |_, _| ()).await.is_ok() {
                    passed.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    }
    let (count, seconds) = runtime.block_on(async {
        // What was saved up at first is used up by then.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let (start, before) = (Instant::now(), passed.load(Ordering::Relaxed));
        tokio::time::sleep(Duration::from_secs(SECONDS)).await;
        (passed.load(Ordering::Relaxed) - before, start.elapsed().as_secs_f64())
    });
    runtime.shutdown_background();
    let (rate, configured) = (count as f64 / seconds, configured as f64);
    let (measured, beside) = (format!("{rate:.0}/s"), format!("configured {configured:.0}/s"));
    let error = (rate - configured).abs() / configured * 100.0;
    line(&format!("pacer, {KEYS} keys, {what}: error in %"), &measured, &beside, error, "≤ 1, from 100,000/s on");
}

/// How much later than due permits come where one at a time waits, beside tokio's own timer.
fn lateness(limit: &str) {
    let runtime = runtime();
    let pacer = pacer(&runtime, &[("key", &["key"], limit)]);
    let (mut paced, mut slept) = (Vec::new(), Vec::new());
    runtime.block_on(async {
        let fields = [("key", "k")];
        let attempt = Attempt { policy: "paced", fields: &fields, cost: 1, id: None };
        for _ in 0..60 {
            let wait_of = |_: &Arc<Engine>, decision: &Decision<'_>| decision.wait();
            let ask = Ask { max_wait: Some(Span::ZERO), ..Ask::from(attempt) };
            // A caller that does not wait learns when its turn would come.
            let due = match pacer.acquire_with(ask, wait_of).await {
                Err(Unpaced::TooLate { wait, .. }) => Instant::now() + Duration::from(wait),
                _ => continue,
            };
            pacer.acquire(Ask::from(attempt)).await.expect("it may wait");
            paced.push(due.elapsed().as_secs_f64() * 1e3);
            let due = Instant::now() + Duration::from_micros(33_333);
            tokio::time::sleep_until(due.into()).await;
            slept.push(due.elapsed().as_secs_f64() * 1e3);
        }
    });
    let [paced, slept] = [&mut paced, &mut slept].map(|late| {
        late.sort_by(f64::total_cmp);
        (late[late.len() / 2], late[late.len() * 9 / 10])
    });
    let figures = |(half, most): (f64, f64)| format!("half of them {half:.2} ms, nine of ten {most:.2} ms");
    let beside = format!("tokio's timer: {}", figures(slept));
    line(&format!("pacer, how late at `{limit}`"), &figures(paced), &beside, paced.1 / 2.0, "≤ 1 (2 ms)");
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime")
}

fn pacer(runtime: &Runtime, rules: &[Refunded<'_>]) -> Pacer {
    let rules: Vec<Arc<Rule>> = rules.iter().map(|(name, by, limit)| Arc::new(rule(name, by, limit))).collect();
    let policies = Policies::new(true, rules.clone(), vec![Policy::new("paced".into(), rules, false)]);
    let store = Arc::new(MemoryStore::new(Arc::new(SystemClock::new()), 100_000));
    let parts = Parts { store: store.clone(), records: store, fallback: None };
    let engine = runtime.block_on(Engine::start(policies, parts)).expect("it reads its records");
    Pacer::new(Arc::new(engine), PacerOptions::default())
}

fn rule(name: &str, by: &[&str], limit: &str) -> Rule {
    let mut rule = Rule::new(name, by, vec![limit.parse().expect("a limit")]).expect("a plan");
    rule.on_exceed = OnExceed::Wait(Span::from_secs(60));
    rule
}
