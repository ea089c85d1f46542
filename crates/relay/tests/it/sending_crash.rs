//! Kill -9 of a process that accepts and sends: no acknowledged message is lost, copies are marked, and the next hop
//! never gets more than the limit allows.
//!
//! `TOLLGATE_LONG=1` kills more often.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

use crate::keeping::stand::{Limited, account, admissions, policies};
use crate::keeping::{clock, envelope, open, options, patient_options, submit, text_of};
use tollgate_core::rule::Deferral;
use tollgate_core::{Clock, Records, Span, Store};
use tollgate_engine::{Engine, Parts};
use tollgate_relay::accounts::Accounts;
use tollgate_relay::client::Client;
use tollgate_relay::lanes::{LaneOptions, Retry};
use tollgate_relay::limits::Limits;
use tollgate_relay::message::MessageId;
use tollgate_relay::meters::RelayMeters;
use tollgate_relay::queue::disk::Directory;
use tollgate_relay::queue::{EventKind, Queue};
use tollgate_relay::sender::{RecipientLog, Sender, SenderParts};
use tollgate_store::file::{FileOptions, Syncing};
use tollgate_store::{FileStore, SystemClock};
use tollgate_testbed::{Sink, wait_until};

const CHILD: &str = "TOLLGATE_RELAY_SENDING_CHILD";
const NAME: &str = "kill_9_while_sending_loses_nothing_and_keeps_the_limit";
const LIMITED: Limited = Limited {
    account: &["120/hour sliding"],
    domain: &[],
    domains: &[],
    deferral: Deferral { aligned: false, jitter: Span::ZERO },
};
const LIMIT: usize = 120;
const DOMAINS: u128 = 3;

fn address(id: u128) -> String {
    format!("user{id}@d{}.example", id % DOMAINS)
}

/// Accepts and sends for ever, and tells on its output what was accepted.
fn accept_and_send(directory: &Path, port: u16) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let file = FileOptions {
        // Counts are saved because deliveries wait for it, and for no other reason.
        flush_interval: Span::from_secs(3_600),
        sync: Syncing::Interval,
        max_keys: 1_000,
        on_event: Box::new(|event| panic!("{event:?}")),
    };
    let (store, _) = FileStore::open(directory.join("counts.redb"), Arc::clone(&clock), file).unwrap();
    let store = Arc::new(store);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let parts = Parts {
            store: Arc::clone(&store) as Arc<dyn Store>,
            records: store as Arc<dyn Records>,
            fallback: None,
        };
        let engine = Arc::new(Engine::start(policies(LIMITED), parts).await.unwrap());
        let disk = Arc::new(Directory::open(&directory.join("queue")).unwrap());
        let (queue, opened) = Queue::open(disk, Arc::clone(&clock), options()).unwrap();
        let known = queue.list(None, usize::MAX).unwrap();
        let next = known.last().map_or(0, |shown| shown.kept.envelope.id.0 + 1);
        let sender = Arc::new(Sender::new(SenderParts {
            queue: queue.clone(),
            client: Client::new(patient_options(rustls::RootCertStore::empty())),
            limits: Limits::new(admissions(&engine, Arc::clone(&clock)), "mail.deliver"),
            accounts: Arc::new(Accounts::new([account("main", port, 0)])),
            direct: None,
            clock: Arc::clone(&clock),
            retry: Retry::default(),
            lanes: LaneOptions::default(),
            most_recipients: 100,
            meters: RelayMeters::new(),
            recipient_log: RecipientLog::default(),
        }));
        tokio::spawn(Arc::clone(&sender).run(opened, std::future::pending()));
        for id in next.. {
            if sender.lanes().iter().any(|lane| lane.sleep.is_some()) {
                tell("limited");
            }
            let mut envelope = envelope(id, &[&address(id)]);
            envelope.accepted = clock.now();
            submit(&queue, envelope, &text_of(id, 500)).await.unwrap();
            tell(&format!("accepted {id}"));
        }
    });
}

fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// What the processes told.
#[derive(Default)]
struct Told {
    accepted: BTreeSet<u128>,
    /// Whether the limit is reached.
    limited: bool,
}

fn start(directory: &Path, port: u16, told: &Arc<Mutex<Told>>) -> (Child, std::thread::JoinHandle<()>) {
    let mut child = tollgate_testbed::rerun(module_path!(), NAME)
        .env(CHILD, format!("{port} {}", directory.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let told = Arc::clone(told);
    let reading = std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let id: Option<u128> = line.strip_prefix("accepted ").and_then(|id| id.parse().ok());
            told.lock().unwrap().accepted.extend(id);
            told.lock().unwrap().limited |= line == "limited";
        }
    });
    (child, reading)
}

/// How often the sink got each message.
fn copies(sink: &Sink) -> BTreeMap<u128, usize> {
    let mut copies = BTreeMap::new();
    for message in sink.messages() {
        let address = message.recipients[0].trim_start_matches("<user");
        let id = address.split_once('@').and_then(|(id, _)| id.parse().ok());
        *copies.entry(id.unwrap()).or_default() += 1;
    }
    copies
}

#[test]
fn kill_9_while_sending_loses_nothing_and_keeps_the_limit() {
    if let Some((_, told)) = std::env::vars_os().find(|(name, _)| name == CHILD) {
        let told = told.into_string().unwrap();
        let (port, directory) = told.split_once(' ').unwrap();
        return accept_and_send(Path::new(directory), port.parse().unwrap());
    }
    let (sink, directory) = (Sink::start(), tempfile::tempdir().unwrap());
    let told: Arc<Mutex<Told>> = Arc::default();
    let long = std::env::vars_os().any(|(name, _)| name == "TOLLGATE_LONG");
    let kills = if long { 50 } else { 6 };
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..kills {
        let (mut child, reading) = start(directory.path(), sink.port(), &told);
        // The limit is reached before the last kill. After that, messages are accepted and wait.
        let (before, known) = (sink.count(), told.lock().unwrap().accepted.len());
        let (sent, taken) = (random.usize(1..30), random.usize(1..100));
        wait_until("work before the kill", || {
            assert!(child.try_wait().unwrap().is_none(), "round {round}: the process runs");
            let told = told.lock().unwrap();
            (told.limited || sink.count() >= before + sent) && told.accepted.len() >= known + taken
        });
        child.kill().unwrap();
        child.wait().unwrap();
        reading.join().unwrap();
    }
    assert!(told.lock().unwrap().limited, "the limit was reached");
    let copies = copies(&sink);
    let total: usize = copies.values().sum();
    assert!(total <= LIMIT, "the sink got {total} of {LIMIT}");
    let disk = Arc::new(Directory::open(&directory.path().join("queue")).unwrap());
    let (queue, opened) = open(disk, &clock());
    assert_eq!((opened.damaged.len(), opened.set_aside), (0, None));
    let waiting: BTreeSet<u128> = opened.waiting.iter().map(|item| item.key.message.0).collect();
    for id in &told.lock().unwrap().accepted {
        let shown = queue.show(MessageId(*id)).unwrap();
        let shown = shown.unwrap_or_else(|| panic!("message {id} was acknowledged and is lost"));
        match shown.kept.finished {
            Some(_) => assert!(copies.contains_key(id), "message {id} was settled and never arrived"),
            None => assert!(waiting.contains(id), "message {id} waits"),
        }
    }
    for (id, copies) in copies.iter().filter(|(_, copies)| **copies > 1) {
        let shown = queue.show(MessageId(*id)).unwrap().unwrap();
        let marked = shown.events.iter().filter(|event| event.kind == EventKind::Unknown).count();
        assert!(*copies <= marked + 1, "message {id} arrived {copies} times, and is marked {marked} times");
    }
}
