//! Kill -9 of the real program while it accepts and sends: no acknowledged message is lost, messages that arrive twice were
//! in flight and are marked, and the next hop never gets more than the limit allows, though counters are saved only every
//! ten seconds: the relay waits for its own.
//!
//! `TOLLGATE_LONG=1` kills fifty times.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use crate::mail::{Client, home, relaying_to};
use crate::program::{Home, Server, Signal, now, pause, wait_until};
use serde_json::Value;
use tollgate_testbed::Sink;

const CLIENTS: usize = 4;
/// The longest wait for acknowledgements: each one waits for the disk, which others may keep busy.
const MOST_WAITING: Duration = Duration::from_secs(120);

/// The limit of the test that lasts for less than its window: exact.
const IN_ALL: usize = 60;

/// The limit of the test that lasts for several windows, and how much later than it was counted a message may arrive
/// on a busy machine.
const IN_A_WINDOW: usize = 25;
const WINDOW: Duration = Duration::from_secs(10);
const LATEST: Duration = Duration::from_secs(2);
const WINDOWS: usize = 4;

fn rounds() -> usize {
    #[expect(clippy::disallowed_methods, reason = "the developer who runs the tests chooses the long form")]
    let long = std::env::var("TOLLGATE_LONG").is_ok();
    if long { 50 } else { 4 }
}

/// What was acknowledged, and what was in flight at the kills.
#[derive(Default)]
struct Told {
    next: AtomicUsize,
    acknowledged: Mutex<BTreeSet<String>>,
    over: AtomicBool,
    in_flight: AtomicUsize,
}

impl Told {
    fn count(&self) -> usize {
        self.acknowledged.lock().unwrap().len()
    }
}

fn file(limit: &str) -> String {
    format!(
        "store: {{ file: ./tollgate.redb, flush_interval: 10s }}\n\
         rules: {{ account: {{ by: [tenant, account], limits: {limit}, on_exceed: defer }} }}"
    )
}

/// Clients that send until the server is gone.
fn load(address: SocketAddr, told: &Arc<Told>) -> Vec<JoinHandle<()>> {
    let one = |_| {
        let told = Arc::clone(told);
        thread::spawn(move || {
            let Some(mut client) = Client::greeted(address) else { return };
            while !told.over.load(Ordering::Relaxed) {
                let number = told.next.fetch_add(1, Ordering::Relaxed);
                let subject = format!("message-{number:06}");
                let recipient = format!("someone@d{}.example", number % 3);
                let Some(reply) = client.send(&subject, &[&recipient]) else { return };
                if reply.starts_with("250 ") {
                    told.acknowledged.lock().unwrap().insert(subject);
                }
                pause(Duration::from_millis(5));
            }
        })
    };
    (0..CLIENTS).map(one).collect()
}

fn subject_of(text: &str) -> String {
    let line = text.lines().find_map(|line| line.strip_prefix("Subject: "));
    line.expect("every message has a subject").to_owned()
}

/// Starts the program, and notes what it found in flight.
fn start(home: &Home, told: &Told) -> Server {
    let server = home.start();
    server.wait_for_log("the queue is open");
    for line in server.log().lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let found = line["deliveries"].as_u64().and_then(|found| usize::try_from(found).ok());
        told.in_flight.fetch_add(found.unwrap_or(0), Ordering::Relaxed);
    }
    server
}

/// Kills the program under load as often as the test does that, each time when it has done enough.
fn kill_often(home: &Home, told: &Arc<Told>, mut is_enough: impl FnMut(usize) -> bool) {
    for round in 0..rounds() {
        let server = start(home, told);
        let clients = load(server.relays[0], told);
        // At another moment each time.
        let enough = told.count() + 25 + 7 * (round % 5);
        let deadline = now() + MOST_WAITING;
        while told.count() < enough {
            assert!(now() < deadline, "round {round}: nothing is acknowledged any more: {}", server.log());
            pause(Duration::from_millis(10));
        }
        while !is_enough(round) {
            pause(Duration::from_millis(20));
        }
        server.end_by(Signal::KILL);
        clients.into_iter().for_each(|client| client.join().unwrap());
    }
}

/// Sends everything that waits, without a limit. Nothing acknowledged is lost, and what arrived twice is marked.
fn check_the_rest(home: &Home, sink: &Sink, told: &Told) {
    home.configure(&relaying_to(sink.port(), &file("unlimited"), ""));
    let server = start(home, told);
    let acknowledged = told.acknowledged.lock().unwrap().clone();
    let missing = || {
        let arrived: BTreeSet<String> = sink.messages().iter().map(|sunk| subject_of(&sunk.text)).collect();
        acknowledged.difference(&arrived).count()
    };
    let deadline = now() + Duration::from_secs(300);
    while missing() > 0 && now() < deadline {
        pause(Duration::from_millis(200));
    }
    assert_eq!(missing(), 0, "acknowledged messages are lost");
    let mut copies: BTreeMap<String, usize> = BTreeMap::new();
    sink.messages().iter().for_each(|sunk| *copies.entry(id_of(&sunk.text)).or_default() += 1);
    let in_flight = told.in_flight.load(Ordering::Relaxed);
    let duplicates: usize = copies.values().map(|count| count - 1).sum();
    println!(
        "{} acknowledged, {in_flight} in flight at kills, {duplicates} arrived twice",
        acknowledged.len()
    );
    assert!(duplicates <= in_flight, "{duplicates} duplicates of {in_flight} deliveries in flight");
    for (id, copies) in copies.into_iter().filter(|(_, copies)| *copies > 1) {
        let found = server.get(&format!("/api/v1/messages?message_id={id}")).ok();
        let id = found["messages"][0]["id"].as_str().unwrap_or_else(|| panic!("{id}: {found}"));
        let shown = server.get(&format!("/api/v1/messages/{id}")).ok();
        assert_eq!(shown["possible_duplicate"], true, "{shown}");
        let unknown =
            shown["timeline"].as_array().unwrap().iter().filter(|event| event["event"] == "unknown");
        assert!(copies - 1 <= unknown.count(), "{copies} copies: {shown}");
    }
    server.stop();
}

/// The relay's own name for a message: its `Message-ID`, without `<>`.
fn id_of(text: &str) -> String {
    let line = text.lines().find_map(|line| line.strip_prefix("Message-ID: <"));
    line.and_then(|line| line.strip_suffix('>')).expect("every message has a Message-ID").to_owned()
}

#[test]
fn kill_9_under_load_loses_no_message_and_keeps_the_limit() {
    let sink = Sink::start();
    let home = home(sink.port(), &file(&format!("{IN_ALL}/hour sliding")), "");
    let (told, begun) = (Arc::new(Told::default()), now());
    kill_often(&home, &told, |round| {
        assert!(sink.count() <= IN_ALL, "{} in round {round}", sink.count());
        true
    });
    assert!(begun.elapsed() < Duration::from_secs(3_600), "the window has not moved");
    let server = start(&home, &told);
    wait_until("the limit is used up", || server.remaining("account", "default,main") == 0);
    pause(Duration::from_secs(1));
    assert!(sink.count() <= IN_ALL, "{}", sink.count());
    server.end_by(Signal::KILL);
    assert!(told.count() > IN_ALL, "{} messages are too few", told.count());
    check_the_rest(&home, &sink, &told);
}

#[test]
fn kill_9_under_load_lets_no_more_than_the_limit_through_in_any_window() {
    let sink = Sink::start();
    let limit = format!("{IN_A_WINDOW}/{}s sliding", WINDOW.as_secs());
    let home = home(sink.port(), &file(&limit), "");
    let (told, begun) = (Arc::new(Told::default()), now());
    // A kill about every second and a half, so that each window has several.
    kill_often(&home, &told, |round| begun.elapsed() > Duration::from_millis(1_500) * (round as u32 + 1));
    let server = start(&home, &told);
    let enough = IN_A_WINDOW * WINDOWS;
    let deadline = now() + WINDOW * (WINDOWS as u32 + 2);
    while sink.count() < enough && now() < deadline {
        pause(Duration::from_millis(100));
    }
    server.end_by(Signal::KILL);
    let mut arrivals: Vec<SystemTime> = sink.messages().iter().map(|sunk| sunk.arrived).collect();
    arrivals.sort();
    assert!(arrivals.len() >= enough.min(told.count()), "{} are too few", arrivals.len());
    for (first, next) in arrivals.iter().zip(arrivals.iter().skip(IN_A_WINDOW)) {
        let took = next.duration_since(*first).unwrap();
        assert!(took > WINDOW - LATEST, "{} messages within {took:?}", IN_A_WINDOW + 1);
    }
    check_the_rest(&home, &sink, &told);
}
