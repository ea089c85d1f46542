//! Waiting where two nodes share the limits: the limits are never exceeded, each node keeps the order of
//! arrival, and a pause on one node pauses the other.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::stage::{PATIENT, now, runtime, settings, shared};
use tollgate_core::key::FieldKind;
use tollgate_core::{Attempt, Field, OnExceed, OnOutage, Plan, Policies, Policy, Rule, Span, Timestamp};
use tollgate_engine::pacer::Scope;
use tollgate_engine::{Ask, Engine, Fallback, Pacer, PacerOptions, Parts};
use tollgate_redis::RedisStore;
use tollgate_store::{MemoryStore, SteadyClock};

fn rule(name: &str, by: &[&str], limit: &str) -> Arc<Rule> {
    let plan = Plan::new(name.into(), vec![limit.parse().expect("a limit")]).expect("a plan");
    let field = |name: &&str| Field { name: (*name).into(), kind: FieldKind::Text };
    Arc::new(Rule {
        name: name.into(),
        by: by.iter().map(field).collect(),
        on_outage: OnOutage::of(&plan),
        plan: Arc::new(plan),
        overrides: Default::default(),
        on_exceed: OnExceed::Wait(Span::from_secs(600)),
        code: None,
        count: None,
        count_when: None,
        rows: None,
        ban: None,
        enabled: true,
        secret: false,
    })
}

fn policies() -> Policies {
    let rules = vec![rule("all", &[], "20/200ms sliding"), rule("chat", &["chat"], "4/200ms sliding")];
    Policies::new(true, rules.clone(), vec![Policy::new("send".into(), rules, false)])
}

/// One node's engine and pacer.
async fn node(prefix: &str) -> (Arc<Engine>, Pacer) {
    let store = RedisStore::start(settings(&shared().url(), prefix, PATIENT)).await.expect("a server");
    let (store, clock) = (Arc::new(store), Arc::new(SteadyClock::new()));
    let fallback = Fallback {
        store: Arc::new(MemoryStore::new(clock.clone(), 1_000)),
        clock,
        probe_every: Span::from_secs(10),
    };
    let parts = Parts { store: store.clone(), records: store, fallback: Some(fallback) };
    let engine = Arc::new(Engine::start(policies(), parts).await.expect("its records"));
    let options = PacerOptions { max_in_flight: 16, ..PacerOptions::default() };
    (Arc::clone(&engine), Pacer::new(engine, options))
}

/// The passed attempts: node, chat, number, and the time by the server's clock.
type Passes = Arc<Mutex<Vec<(usize, usize, usize, Timestamp)>>>;

#[test]
fn two_nodes_keep_to_the_limits_and_each_to_its_order() {
    let passes = Passes::default();
    runtime().block_on(async {
        let mut tasks = Vec::new();
        for (number, (_, pacer)) in [node("paced:").await, node("paced:").await].into_iter().enumerate() {
            for n in 0..120 {
                let (pacer, passes, chat) = (pacer.clone(), Arc::clone(&passes), n % 6);
                let task = async move {
                    let text = chat.to_string();
                    let fields = [("chat", &*text)];
                    let attempt = Attempt { policy: "send", fields: &fields, cost: 1, id: None };
                    let noted = Arc::clone(&passes);
                    let see = move |_: &Arc<Engine>, decision: &tollgate_core::Decision<'_>| {
                        noted.lock().unwrap().push((number, chat, n, decision.outcome.now));
                    };
                    pacer.acquire_with(Ask::from(attempt), see).await.unwrap();
                };
                // Each takes its place before the next one starts. One that has already passed is done.
                let mut task = Box::pin(task);
                let pending = std::future::poll_fn(|context| {
                    std::task::Poll::Ready(task.as_mut().poll(context).is_pending())
                });
                if pending.await {
                    tasks.push(tokio::spawn(task));
                }
            }
        }
        for task in tasks {
            task.await.unwrap();
        }
    });
    let mut passes = passes.lock().unwrap().clone();
    assert_eq!(passes.len(), 240);
    // A thread may stand still between a decision and the call of `see`.
    passes.sort_by_key(|pass| pass.3);
    for node in 0..2 {
        for chat in 0..6 {
            let order = passes.iter().filter(|pass| (pass.0, pass.1) == (node, chat)).map(|pass| pass.2);
            assert!(order.is_sorted(), "chat {chat} of node {node}");
        }
    }
    let period = Span::from_millis(200);
    let most = |times: &[Timestamp]| {
        let within =
            |start: &Timestamp| times.iter().filter(|at| (*start..*start + period).contains(at)).count();
        times.iter().map(within).max().unwrap()
    };
    let all: Vec<Timestamp> = passes.iter().map(|pass| pass.3).collect();
    assert!(most(&all) <= 20, "{} in one period", most(&all));
    for chat in 0..6 {
        let own: Vec<Timestamp> = passes.iter().filter(|pass| pass.1 == chat).map(|pass| pass.3).collect();
        assert!(most(&own) <= 4, "{} to chat {chat} in one period", most(&own));
    }
}

#[test]
fn a_pause_on_one_node_holds_on_the_other_and_after_a_restart() {
    runtime().block_on(async {
        let ((_, here), (engine, there)) = (node("paused:").await, node("paused:").await);
        here.pause(Scope::Key { rule: "chat", key: "5" }, Span::from_secs(3_600)).await.unwrap();
        let stands_still = |engine: &Engine, pacer: &Pacer, chat: &str| {
            let attempt = Attempt { policy: "send", fields: &[("chat", chat)], cost: 1, id: None };
            pacer.is_waiting(&engine.pin(), &attempt)
        };
        let begun = now();
        while !stands_still(&engine, &there, "5") {
            assert!(begun.elapsed() < PATIENT, "the other node does not hear of it");
            tokio::time::sleep(Duration::from_millis(20)).await;
            engine.tend().await;
        }
        assert!(!stands_still(&engine, &there, "6"));
        let (engine, later) = node("paused:").await;
        assert!(stands_still(&engine, &later, "5"), "a node that starts later knows it too");
        here.resume(Scope::Key { rule: "chat", key: "5" }).await.unwrap();
        let (engine, later) = node("paused:").await;
        assert!(!stands_still(&engine, &later, "5"));
    });
}
