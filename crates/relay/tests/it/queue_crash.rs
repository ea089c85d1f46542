//! Crashes: a disk that forgets what was not synced, and kill -9 of a process that writes.
//!
//! `TOLLGATE_LONG=1` crashes more often.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use crate::keeping::forgetful::Forgetful;
use crate::keeping::{START, clock, envelope, open, read_text, submit, text_of};
use parking_lot::Mutex;
use tollgate_core::Span;
use tollgate_relay::message::MessageId;
use tollgate_relay::queue::disk::{Directory, Disk};
use tollgate_relay::queue::{
    AttemptResult, Event, EventKind, Final, ItemKey, OpenAttempt, Queue, RecipientState,
};

const CHILD: &str = "TOLLGATE_RELAY_CRASH_CHILD";

/// What the queue acknowledged before the crash.
#[derive(Debug, Default)]
struct Acknowledged {
    accepted: BTreeSet<u128>,
    begun: BTreeSet<u128>,
    finishing: BTreeSet<u128>,
    finished: BTreeSet<u128>,
}

fn long() -> bool {
    std::env::vars_os().any(|(name, _)| name == "TOLLGATE_LONG")
}

fn key(message: u128) -> ItemKey {
    ItemKey { message: MessageId(message), number: 0 }
}

fn size_of(id: u128) -> usize {
    if id.is_multiple_of(5) { 40_000 } else { 300 }
}

fn sent() -> AttemptResult {
    let last =
        Final { at: START, status: "2.0.0".into(), reply: "250 ok".into(), remote: None, reports: false };
    AttemptResult {
        settled: vec![(0, RecipientState::Sent(last))],
        due: START,
        spent: Span::ZERO,
        counts: true,
        uncertain: false,
        at: START,
        events: vec![Event::new(START, EventKind::Sent)],
    }
}

/// Accepts messages and delivers every second one, until the disk fails. `tell` hears of each acknowledgement.
async fn work(queue: &Queue, ids: impl Iterator<Item = u128>, tell: &impl Fn(&str, u128)) {
    for id in ids {
        let text = text_of(id, size_of(id));
        if submit(queue, envelope(id, &["a@one.example"]), &text).await.is_err() {
            return;
        }
        tell("accepted", id);
        if !id.is_multiple_of(2) {
            continue;
        }
        let attempt = OpenAttempt { at: START, account: None, recipients: vec![0] };
        if queue.begin_attempt(key(id), attempt).await.is_err() {
            return;
        }
        tell("begun", id);
        tell("finishing", id);
        if queue.finish_attempt(key(id), sent()).await.is_err() {
            return;
        }
        tell("finished", id);
    }
}

fn note(known: &mut Acknowledged, word: &str, id: u128) {
    let set = match word {
        "accepted" => &mut known.accepted,
        "begun" => &mut known.begun,
        "finishing" => &mut known.finishing,
        "finished" => &mut known.finished,
        _ => panic!("{word} is no word"),
    };
    set.insert(id);
}

/// Opens what a crash left, and compares it with what was acknowledged.
fn check(disk: Arc<dyn Disk>, known: &Acknowledged) {
    let (queue, opened) = open(disk, &clock());
    assert_eq!(opened.damaged, [], "a crash damages nothing");
    assert_eq!(opened.set_aside, None, "a crash damages nothing");
    let waiting: BTreeMap<u128, _> = opened.waiting.iter().map(|item| (item.key.message.0, item)).collect();
    for id in &known.accepted {
        if known.finished.contains(id) {
            assert!(!waiting.contains_key(id), "message {id} was delivered and is delivered again");
            continue;
        }
        let shown = queue.show(MessageId(*id)).unwrap();
        let shown = shown.unwrap_or_else(|| panic!("message {id} was acknowledged and is lost"));
        if shown.kept.finished.is_some() {
            assert!(known.finishing.contains(id), "message {id} was never delivered");
            continue;
        }
        assert!(waiting.contains_key(id), "message {id} waits");
        assert_eq!(read_text(&queue, *id), text_of(*id, size_of(*id)), "message {id} is whole");
        if known.begun.contains(id) {
            assert!(opened.possible_duplicates.contains(&key(*id)), "message {id} may be a duplicate");
        }
    }
}

#[test]
fn a_disk_that_forgets_loses_no_acknowledged_message() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut interrupted = 0;
    for seed in 0..if long() { 2_000 } else { 150 } {
        let mut random = fastrand::Rng::with_seed(seed);
        let disk = Forgetful::new();
        let (queue, opened) = open(Arc::new(disk.clone()), &clock());
        disk.fail_after(random.u64(2..400));
        let known = Mutex::new(Acknowledged::default());
        let tell = |word: &str, id| note(&mut known.lock(), word, id);
        let one = |start: u128| work(&queue, (start..10_000).step_by(4), &tell);
        runtime.block_on(async { tokio::join!(one(1), one(2), one(3), one(4)) });
        interrupted += usize::from(!known.lock().accepted.is_empty());
        let after = disk.crash(&mut || random.bool());
        drop((queue, opened));
        check(Arc::new(after), &known.lock());
    }
    assert!(interrupted > 50, "most crashes come after something was acknowledged: {interrupted}");
}

/// Writes to a queue in a directory for ever, and tells on its output what was acknowledged.
fn write_and_tell(path: &Path) {
    let (queue, opened) = open(Arc::new(Directory::open(path).unwrap()), &clock());
    let last = opened.waiting.iter().map(|item| item.key.message.0).max().unwrap_or(0);
    let shown = queue.list(None, usize::MAX).unwrap();
    let last = shown.iter().map(|shown| shown.kept.envelope.id.0).max().unwrap_or(0).max(last);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let tell = |word: &str, id: u128| {
        let mut out = std::io::stdout().lock();
        out.write_all(format!("{word} {id}\n").as_bytes()).unwrap();
        out.flush().unwrap();
    };
    let one = |start: u128| work(&queue, (last + start..).step_by(4), &tell);
    runtime.block_on(async { tokio::join!(one(1), one(2), one(3), one(4)) });
}

#[test]
fn kill_9_loses_no_acknowledged_message() {
    if let Some((_, path)) = std::env::vars_os().find(|(name, _)| name == CHILD) {
        return write_and_tell(Path::new(&path));
    }
    let directory = tempfile::tempdir().unwrap();
    let mut known = Acknowledged::default();
    for round in 0..if long() { 50 } else { 8 } {
        let mut child = tollgate_testbed::rerun(module_path!(), "kill_9_loses_no_acknowledged_message")
            .env(CHILD, directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut random = fastrand::Rng::with_seed(round);
        let mut left = random.usize(20..200);
        for line in lines {
            let line = line.unwrap();
            let Some((word, id)) = line.split_once(' ').and_then(|(word, id)| Some((word, id.parse().ok()?)))
            else {
                continue;
            };
            note(&mut known, word, id);
            left = left.saturating_sub(1);
            if left == 0 {
                // What the pipe still holds was acknowledged too.
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert_eq!(left, 0, "the process wrote until it was killed");
        check(Arc::new(Directory::open(directory.path()).unwrap()), &known);
        // Opening settled the marks: they are compared once.
        known.begun.clear();
    }
    assert!(known.accepted.len() > 100);
}
