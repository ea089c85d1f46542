//! Kill -9 of the real program while it accepts and sends: no acknowledged message is lost, and the next hop never gets
//! more than the limit allows, though counters are saved only every ten seconds: the relay waits for its own.
//!
//! `TOLLGATE_LONG=1` kills fifty times.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod mail;
mod program;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mail::{Client, home, relaying_to};
use program::{Signal, now, pause, wait_until};
use tollgate_testbed::Sink;

const LIMIT: usize = 60;
const CLIENTS: usize = 4;
/// How many deliveries one lane has in flight, and how many lanes there are.
const MOST_IN_FLIGHT: usize = 20 * 3;

fn rounds() -> usize {
    #[expect(clippy::disallowed_methods, reason = "the long form is chosen by whoever runs the tests")]
    let long = std::env::var("TOLLGATE_LONG").is_ok();
    if long { 50 } else { 4 }
}

/// What was acknowledged.
#[derive(Default)]
struct Told {
    next: AtomicUsize,
    acknowledged: Mutex<BTreeSet<String>>,
    over: AtomicBool,
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

#[test]
fn kill_9_under_load_loses_no_message_and_keeps_the_limit() {
    let sink = Sink::start();
    let home = home(sink.port(), &file(&format!("{LIMIT}/hour sliding")), "");
    let (told, rounds, start) = (Arc::new(Told::default()), rounds(), now());
    for round in 0..rounds {
        let server = home.start();
        let clients = load(server.relays[0], &told);
        // At another moment each time.
        let before = told.acknowledged.lock().unwrap().len();
        let enough = before + 25 + 7 * (round % 5);
        wait_until("messages are acknowledged", || told.acknowledged.lock().unwrap().len() >= enough);
        server.end_by(Signal::KILL);
        clients.into_iter().for_each(|client| client.join().unwrap());
        assert!(sink.count() <= LIMIT, "{} after {} kills", sink.count(), round + 1);
    }
    assert!(start.elapsed() < Duration::from_secs(3_600), "the window has not moved");
    let server = home.start();
    wait_until("the limit is used up", || server.remaining("account", "default,main") == 0);
    pause(Duration::from_secs(1));
    assert!(sink.count() <= LIMIT, "{}", sink.count());
    server.stop();

    home.configure(&relaying_to(sink.port(), &file("unlimited"), ""));
    let server = home.start();
    let acknowledged = told.acknowledged.lock().unwrap().clone();
    assert!(acknowledged.len() > LIMIT, "{} messages are too few", acknowledged.len());
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
    sink.messages().iter().for_each(|sunk| *copies.entry(subject_of(&sunk.text)).or_default() += 1);
    let duplicates: usize = copies.values().map(|count| count - 1).sum();
    assert!(duplicates <= rounds * MOST_IN_FLIGHT, "{duplicates} duplicates");
    server.stop();
}
