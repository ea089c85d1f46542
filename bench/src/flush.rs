//! What saving 1,000,000 keys does to decisions, and how long a start with as many takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tollgate_core::store::Answer;
use tollgate_core::{Charges, Outcome, Plan, Span, Store, Ticket};
use tollgate_store::SystemClock;
use tollgate_store::file::{FileOptions, FileStore, Syncing};

use crate::draws::{self, KEYS};
use crate::rounds::line;

pub fn run() {
    let directory = std::env::temp_dir().join(format!("tollgate-bench-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory for the file");
    let path = directory.join("bench.redb");
    // A window that lasts: a bucket would be full again, and its key forgotten, before it is saved.
    let limit = "1000000/hour".parse().expect("a limit");
    let plan = Arc::new(Plan::new("api".into(), vec![limit]).expect("a plan"));
    let store = open(&path);
    for n in 0..KEYS {
        take(&store, &plan, &draws::key(n));
    }
    let keys = draws::uniform();
    let mut ratios = Vec::new();
    let (mut idle, mut busy) = (0.0, 0.0);
    for _ in 0..3 {
        store.flush().expect("the file can be written");
        idle = p99(&store, &plan, &keys, || false);
        for key in &keys {
            take(&store, &plan, key);
        }
        for n in 0..KEYS {
            take(&store, &plan, &draws::key(n));
        }
        let done = AtomicBool::new(false);
        busy = std::thread::scope(|scope| {
            scope.spawn(|| {
                store.flush().expect("the file can be written");
                done.store(true, Ordering::Release);
            });
            p99(&store, &plan, &keys, || done.load(Ordering::Acquire))
        });
        ratios.push(busy / idle);
    }
    ratios.sort_by(f64::total_cmp);
    line("p99 of decisions while 1,000,000 dirty keys are saved", &format!("{busy:.0} ns"), &format!("idle {idle:.0} ns"), ratios[1], "≤ 2.0");
    let last = store.flush_stats().last_duration;
    drop(store);
    let start = Instant::now();
    let store = open(&path);
    let seconds = start.elapsed().as_secs_f64();
    assert_eq!(store.len(), KEYS);
    line("start with 1,000,000 stored keys", &format!("{seconds:.2} s"), &format!("saving them took {last}"), seconds, "< 2 s");
    drop(store);
    std::fs::remove_dir_all(&directory).expect("the directory can be removed");
}

fn open(path: &std::path::Path) -> FileStore {
    let options = FileOptions {
        flush_interval: Span::from_secs(86_400),
        sync: Syncing::Interval,
        max_keys: 8 * KEYS,
        on_event: Box::new(|event| eprintln!("{event:?}")),
    };
    FileStore::open(path, Arc::new(SystemClock::new()), options).expect("the file opens").0
}

fn take(store: &FileStore, plan: &Arc<Plan>, key: &str) -> bool {
    let mut charges = Charges::new(Ticket(1), 1, None);
    charges.push(plan, key, true);
    let mut outcome = Outcome::default();
    assert!(matches!(store.take(&charges, &mut outcome), Answer::Ready(Some(Ok(())))));
    outcome.allowed
}

/// The 99th percentile of the nanoseconds a take needs, over all keys or until `done`.
fn p99(store: &FileStore, plan: &Arc<Plan>, keys: &[String], done: impl Fn() -> bool) -> f64 {
    let mut times = Vec::with_capacity(keys.len());
    for key in keys {
        let start = Instant::now();
        take(store, plan, key);
        times.push(start.elapsed().as_nanos() as u32);
        if times.len() % 1_024 == 0 && done() {
            break;
        }
    }
    times.sort_unstable();
    f64::from(times[times.len() * 99 / 100])
}
