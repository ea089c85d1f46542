//! Kills the process while it writes: saved takes are kept, and lost takes are the latest ones.
//!
//! The test starts itself again as a process that takes and reports, and kills it at random times.
//! `TOLLGATE_LONG=1` kills it two hundred times.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::pin::pin;
use std::process::Stdio;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use tollgate_core::store::Answer;
use tollgate_core::{Charges, Outcome, Plan, Span, Store, StoreError, Ticket};
use tollgate_store::file::{FileOptions, Syncing};
use tollgate_store::{FileStore, SystemClock};

const THREADS: usize = 3;
const KEYS: usize = 40;
const CHILD: &str = "TOLLGATE_CRASH_CHILD";

/// What the killed process reported of one key.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    /// How much was taken and returned.
    answered: u64,
    /// How much of that was returned before a saving began that is known to have succeeded.
    durable: u64,
}

fn open(path: &Path, sync: Syncing) -> FileStore {
    let options = FileOptions {
        flush_interval: Span::from_micros(3_000),
        sync,
        max_keys: 100_000,
        on_event: Box::new(|event| panic!("{event:?}")),
    };
    let (store, report) = FileStore::open(path, Arc::new(SystemClock::new()), options).unwrap();
    assert_eq!(report.set_aside, None, "a crash is no damage");
    assert_eq!(report.lost_commits, 0, "what was durable is there");
    store
}

fn plan() -> Arc<Plan> {
    Arc::new(Plan::new("client".into(), vec!["1000000000 in total".parse().unwrap()]).unwrap())
}

fn wait<T: Unpin>(answer: Answer<'_, T>) -> Result<T, StoreError> {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut answer = pin!(answer);
    loop {
        match answer.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn key(thread: usize, number: usize) -> String {
    format!("thread {thread} key {number}")
}

/// Takes for ever, and reports after each take: the key, how many savings had begun by then, and which one
/// was the last to succeed.
fn take_and_tell(path: &Path, sync: Syncing) {
    let (store, plan) = (open(path, sync), plan());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, plan) = (&store, &plan);
            scope.spawn(move || {
                for count in 0.. {
                    let number = count * 7 % KEYS;
                    let name = key(thread, number);
                    let mut charges = Charges::new(Ticket(count as u64), 1, None);
                    charges.push(plan, &name, true);
                    let mut outcome = Outcome::default();
                    wait(store.take(&charges, &mut outcome)).unwrap();
                    let stats = store.flush_stats();
                    let line = format!("took {thread} {number} {} {}\n", stats.begun, stats.durable);
                    std::io::stdout().write_all(line.as_bytes()).unwrap();
                }
            });
        }
    });
}

/// The process that is killed. Does nothing unless the crash test started it.
#[test]
#[expect(clippy::disallowed_methods, reason = "it is told by environment that it is the child")]
fn takes_until_it_is_killed() {
    let Ok(what) = std::env::var(CHILD) else { return };
    let (sync, path) = what.split_once(' ').unwrap();
    take_and_tell(Path::new(path), if sync == "always" { Syncing::Always } else { Syncing::Interval });
}

/// When the process is killed.
#[derive(Clone, Copy, Debug)]
enum Killed {
    /// After it has reported this many takes, saved or not.
    After(usize),
    /// After it has reported a successful saving, however slow the disk is.
    Saved,
}

/// Runs the process until it must be killed, kills it, and adds up its reports.
fn run_and_kill(path: &Path, sync: &str, killed: Killed, told: &mut HashMap<(usize, usize), Told>) {
    let mut child = tollgate_testbed::rerun(module_path!(), "takes_until_it_is_killed")
        .arg("--test-threads=1")
        .env(CHILD, format!("{sync} {}", path.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut takes: Vec<[u64; 4]> = Vec::new();
    let mut line = String::new();
    while output.read_line(&mut line).unwrap() > 0 {
        // The last line may be incomplete.
        let words: Vec<u64> = line.split(' ').filter_map(|word| word.trim_end().parse().ok()).collect();
        if let (true, Ok(take)) = (line.contains("took ") && line.ends_with('\n'), words.try_into()) {
            takes.push(take);
        }
        let due = match killed {
            Killed::After(count) => takes.len() == count,
            // The takes before the first saving are those that it covers.
            Killed::Saved => takes.last().is_some_and(|take| take[3] > 0 && takes[0][2] < take[3]),
        };
        if due {
            child.kill().unwrap();
        }
        line.clear();
    }
    child.wait().unwrap();
    let least = if let Killed::After(count) = killed { count } else { 1 };
    assert!(takes.len() >= least, "the process ended by itself after {} takes", takes.len());
    let succeeded = takes.iter().map(|take| take[3]).max().unwrap_or(0);
    for [thread, number, begun, _] in takes {
        let told = told.entry((thread as usize, number as usize)).or_default();
        told.answered += 1;
        told.durable += u64::from(sync == "always" || begun < succeeded);
    }
}

#[expect(clippy::disallowed_methods, reason = "the long form of this test is asked for by environment")]
fn kills() -> usize {
    if std::env::var("TOLLGATE_LONG").is_ok() { 200 } else { 20 }
}

fn survives_kills(sync: &str) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.redb");
    let plan = plan();
    let mut dice = u64::from(std::process::id());
    println!("seed {dice}");
    let mut durable = 0;
    let mut kept: HashMap<(usize, usize), u64> = HashMap::new();
    for round in 0..kills() {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut told: HashMap<(usize, usize), Told> = HashMap::new();
        // Takes that wait for the disk are about ten times slower.
        let most = if sync == "always" { 300 } else { 3_000 };
        let killed = match round % 5 {
            4 => Killed::Saved,
            _ => Killed::After(1 + (dice >> 33) as usize % most),
        };
        run_and_kill(&path, sync, killed, &mut told);
        let store = open(&path, Syncing::Interval);
        for thread in 0..THREADS {
            // Each thread may have made one take that it did not report.
            let mut untold = 1;
            for number in 0..KEYS {
                let before = kept.get(&(thread, number)).copied().unwrap_or(0);
                let told = told.get(&(thread, number)).copied().unwrap_or_default();
                let now = taken(&store, &plan, &key(thread, number));
                let (least, most) = (before + told.durable, before + told.answered + untold);
                assert!((least..=most).contains(&now), "round {round}: {now} of {before} and {told:?}");
                untold -= u64::from(now > before + told.answered);
                durable += told.durable;
                kept.insert((thread, number), now);
            }
        }
    }
    assert!(durable > 0, "nothing was ever saved");
}

fn taken(store: &FileStore, plan: &Arc<Plan>, key: &str) -> u64 {
    let mut charges = Charges::new(Ticket(0), 0, None);
    charges.push(plan, key, true);
    let mut outcome = Outcome::default();
    wait(store.peek(&charges, &mut outcome)).unwrap();
    1_000_000_000 - outcome.readings[0].remaining
}

#[test]
fn a_kill_loses_only_changes_since_the_last_save() {
    survives_kills("interval");
}

#[test]
fn a_kill_loses_nothing_that_was_answered_when_answers_wait() {
    survives_kills("always");
}
