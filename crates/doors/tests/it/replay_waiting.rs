//! A replay lets attempts wait, hold places and count by outcome as a server does: the same attempts meet the engine
//! and its pacer in a tokio runtime, whose paused clock is also the store's.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fmt::Write as _;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tollgate_core::{Attempt, Clock, Limit, OnExceed, Policies, Policy, Rule, Span, Timestamp, grammar};
use tollgate_engine::admit::{Holds, Wait};
use tollgate_engine::pacer::Bound;
use tollgate_engine::{
    Admission, Admissions, Engine, Leases, NotAdmitted, Pacer, PacerOptions, Parts, Terms,
};
use tollgate_replay::choose::{Choosing, Strictness, Wishes};
use tollgate_replay::feed::{Feed, Reading, Refused};
use tollgate_replay::lane::{Fate, Report};
use tollgate_replay::replay::{Replay, Setup};
use tollgate_store::MemoryStore;
use tollgate_web::{Aliases, Statuses};

/// 2026-11-17T00:00:00Z.
const START: u64 = 1_794_873_600_000_000;
const FORMAT: &str = "$remote_addr $remote_user $start_time $request_time $status";

/// How often an arriving request lets the other tasks go first.
const YIELDS: usize = 50;

/// One request of the log.
#[derive(Clone, Debug)]
struct Request {
    millis: u64,
    took_millis: u64,
    ip: String,
    user: String,
    status: u16,
}

/// What became of an attempt: how long it waited, or the rule that refused it.
type Ending = Result<Duration, String>;

/// The runtime's time.
struct RuntimeClock(Instant);

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(START) + Span::from(self.0.elapsed())
    }
}

fn rule(name: &str, by: &[&str], limit: &str, on_exceed: OnExceed) -> Rule {
    let limit: Limit = grammar::parse(limit).unwrap().unwrap();
    Rule { on_exceed, ..Rule::new(name, by, vec![limit]).unwrap() }
}

fn policies(rules: Vec<Rule>) -> Policies {
    let rules: Vec<Arc<Rule>> = rules.into_iter().map(Arc::new).collect();
    let policy = Policy::new("api".into(), rules.clone(), false);
    Policies::new(true, rules, vec![policy])
}

/// Bursts of a few clients and users, in whole milliseconds, like the timers of the runtime.
fn requests(count: u64, seed: u64) -> Vec<Request> {
    let mut state = seed;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut millis = 1;
    let mut request = |_| {
        millis += 1 + if draw(12) == 0 { draw(4_000) } else { draw(120) };
        Request {
            millis,
            took_millis: draw(800),
            ip: format!("192.0.2.{}", draw(6)),
            user: format!("u{}", draw(3)),
            status: if draw(4) == 0 { 401 } else { 200 },
        }
    };
    (0..count).map(&mut request).collect()
}

fn replayed(policies: &Policies, requests: &[Request]) -> Vec<Ending> {
    let mut log = String::new();
    for one in requests {
        let (at, took) = (START / 1_000 + one.millis, one.took_millis);
        writeln!(
            log,
            "{} {} {}.{:03} {}.{:03} {}",
            one.ip,
            one.user,
            at / 1_000,
            at % 1_000,
            took / 1_000,
            took % 1_000,
            one.status
        )
        .unwrap();
    }
    let choosing = Choosing::Policy("api".into());
    let mut wishes = Wishes::default();
    wishes.add("ip", None);
    wishes.add_policies(policies, &choosing, Strictness::AllFields, &Aliases::default());
    let reading = Reading {
        format: Some(FORMAT.to_owned()),
        mappings: Vec::new(),
        taken: None,
        zone: None,
        reorder: Span::from_secs(30),
        now: Timestamp::from_micros(START + 86_400_000_000),
        refused: Refused::Replayed,
    };
    let reader: Box<dyn Read> = Box::new(std::io::Cursor::new(log.into_bytes()));
    let mut feed = Feed::open(vec![("log".to_owned(), reader)], &reading, &wishes.list).unwrap();
    let setup = Setup { policies: policies.clone(), max_keys: 1_000_000, choosing: Arc::new(choosing) };
    let mut endings: Vec<Option<Ending>> = vec![None; requests.len()];
    let each = &mut |report: &Report<'_>| {
        let Report::Fate(moment, fate) = report else { return };
        let ending = match fate {
            Fate::Allowed(waited) => Ok(Duration::from_micros(waited.as_micros())),
            Fate::Denied(named) => Err(named.rule.to_string()),
            other => panic!("{other:?}"),
        };
        endings[moment.number as usize] = Some(ending);
    };
    Replay::new(setup, &wishes).unwrap().run(&mut feed, each).unwrap();
    endings.into_iter().map(|ending| ending.expect("every attempt is decided")).collect()
}

/// Sends every request at its time, as a task of its own, and keeps its place until it has ended.
async fn served(policies: &Policies, requests: &[Request]) -> Vec<Ending> {
    let start = Instant::now();
    let clock = || Arc::new(RuntimeClock(start)) as Arc<dyn Clock>;
    let store = Arc::new(MemoryStore::new(clock(), 1_000_000));
    let parts = Parts { store: Arc::clone(&store) as _, records: store, fallback: None };
    let engine = Arc::new(Engine::start(policies.clone(), parts).await.unwrap());
    let leases = Arc::new(Leases::new(Arc::clone(&engine), clock()));
    let pacer = Pacer::new(Arc::clone(&engine), PacerOptions::default());
    let admissions = Admissions { engine, pacer: Some(pacer), leases };
    let tending = tokio::spawn(tend(admissions.clone(), start + Duration::from_millis(requests[0].millis)));
    let tasks: Vec<_> = requests
        .iter()
        .cloned()
        .map(|one| {
            let admissions = admissions.clone();
            tokio::spawn(async move {
                sleep_until(start + Duration::from_millis(one.millis)).await;
                // What else happens in the same millisecond happens before, as in a replay.
                yield_to_others(YIELDS).await;
                serve(&admissions, &one).await
            })
        })
        .collect();
    let mut endings = Vec::new();
    for task in tasks {
        endings.push(task.await.unwrap());
    }
    tending.abort();
    endings
}

/// The periodic work of a server.
async fn tend(admissions: Admissions, start: Instant) {
    for round in 0.. {
        sleep_until(start + Duration::from_millis(250 * round)).await;
        yield_to_others(YIELDS / 2).await;
        admissions.engine.tend().await;
        admissions.leases.tend().await;
    }
}

async fn yield_to_others(times: usize) {
    for _ in 0..times {
        tokio::task::yield_now().await;
    }
}

async fn serve(admissions: &Admissions, one: &Request) -> Ending {
    let known = [("ip", &*one.ip), ("user", &*one.user)];
    let pinned = admissions.pin();
    let policy = pinned.policies.find("api").unwrap();
    let fields: Vec<_> =
        known.into_iter().filter(|(name, _)| policy.fields().any(|field| field == *name)).collect();
    let attempt = Attempt { policy: "api", fields: &fields, cost: 1, id: None };
    let terms = Terms { wait: Wait::AsRulesSay, holds: Holds::ByTaken, ..Terms::default() };
    let admit = pinned.admit(&attempt, terms, |_, decision| {
        decision.denied_by().filter(|_| !decision.allowed()).map(|line| line.rule.name.to_string())
    });
    drop(pinned);
    match admit.await {
        Ok(Admission { waited, seen: None, mut taken }) => {
            let ended = Instant::now() + Duration::from_millis(one.took_millis);
            sleep_until(ended).await;
            drop(taken.settle(Statuses::class_of(one.status)));
            Ok(Duration::from_micros(waited.as_micros()))
        }
        Ok(Admission { seen: Some(rule), .. }) => Err(rule),
        Err(NotAdmitted::TooLate { bound: Bound::Rule(rule), .. }) => Err(rule.to_string()),
        Err(other) => panic!("{other}"),
    }
}

/// Compares both, attempt by attempt. Returns how many waited and how many were refused.
fn compare(policies: &Policies, requests: &[Request]) -> (usize, usize) {
    let replayed = replayed(policies, requests);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    let served = runtime.block_on(served(policies, requests));
    for (number, (replay, server)) in replayed.iter().zip(&served).enumerate() {
        let same = match (replay, server) {
            // The timer of the runtime may be late by a tick.
            (Ok(replay), Ok(server)) => replay.abs_diff(*server) <= Duration::from_millis(1),
            (replay, server) => replay == server,
        };
        assert!(same, "attempt {number}, {:?}: replay {replay:?}, server {server:?}", requests[number]);
    }
    let waited =
        replayed.iter().filter(|ending| ending.as_ref().is_ok_and(|waited| !waited.is_zero())).count();
    (waited, replayed.iter().filter(|ending| ending.is_err()).count())
}

const PATIENT: OnExceed = OnExceed::Wait(Span::from_secs(3));

#[test]
fn attempts_wait_for_one_key_as_at_the_pacer() {
    let policies = policies(vec![rule("client", &["ip"], "1/s burst 2", PATIENT)]);
    let (waited, refused) = compare(&policies, &requests(2_000, 7));
    assert!(waited > 300 && refused > 100, "{waited} waited, {refused} were refused");
}

#[test]
fn clients_take_turns_at_a_limit_that_they_share() {
    let policies = policies(vec![
        rule("all", &[], "8/s burst 1", PATIENT),
        rule("client", &["ip"], "4/s burst 3", PATIENT),
        rule("user", &["user"], "200/min", OnExceed::Reject),
    ]);
    let (waited, refused) = compare(&policies, &requests(2_000, 11));
    assert!(waited > 300 && refused > 20, "{waited} waited, {refused} were refused");
}

#[test]
fn places_are_held_and_waited_for_as_at_the_pacer() {
    let policies = policies(vec![
        rule("places", &["ip"], "1 at once", PATIENT),
        rule("user", &["user"], "4 at once", OnExceed::Reject),
    ]);
    let (waited, refused) = compare(&policies, &requests(2_000, 13));
    assert!(waited > 200 && refused > 20, "{waited} waited, {refused} were refused");
}

#[test]
fn outcomes_count_as_at_the_server() {
    let mut failures = rule("failures", &["ip"], "10/min", OnExceed::Reject);
    failures.count_when = Some("4xx".parse::<Statuses>().unwrap().classes());
    let policies = policies(vec![failures, rule("client", &["ip"], "1/s burst 2", PATIENT)]);
    let (waited, refused) = compare(&policies, &requests(2_000, 17));
    assert!(waited > 50 && refused > 50, "{waited} waited, {refused} were refused");
}
