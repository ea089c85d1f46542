//! Measures the memory of a key of each kind, and of each entry of a log, slot or hold: the numbers that
//! `check-config` uses. Each kind is measured in its own process, with the program's allocator, so that the
//! process's memory is the store's.
//!
//! `cargo test -p tollgate-counters --test it memory_kinds:: -- --nocapture` prints them;
//! `TOLLGATE_MEASURED_TAKES=4000000` measures larger stores.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::fmt::Write;
use std::sync::Arc;

use tollgate_core::store::Answer;
use tollgate_core::{Charges, Outcome, Plan, Store, Ticket, Timestamp};
use tollgate_store::memory::Footprint;
use tollgate_store::{ManualClock, MemoryStore};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const KIND: &str = "TOLLGATE_MEASURED_KIND";
const ENTRIES: &str = "TOLLGATE_MEASURED_ENTRIES";
/// The memory of the process itself, and what the allocator keeps.
const BYTES_BESIDE: u64 = 4 << 20;

/// Limits, and how many entries their keys get.
const MEASURED: [(&str, &[u64]); 10] = [
    ("1000/hour", &[1]),
    ("10/s burst 50", &[1]),
    ("1000 in total", &[1]),
    ("1000/hour, 5000/day", &[1]),
    ("1000/hour, 5000/day, 9000/week", &[1]),
    ("5/hour sliding", &[1, 5]),
    ("100/hour sliding", &[20]),
    ("1000/hour sliding by 1m", &[1, 20]),
    ("100 at once for 1h", &[1, 4, 20]),
    ("ladder 20 lock 15m", &[1, 20]),
];

/// The number of measured keys: fewer, the more entries each has.
#[expect(clippy::disallowed_methods, reason = "more keys are asked for by environment")]
fn keys(entries: u64) -> u64 {
    let takes = std::env::var("TOLLGATE_MEASURED_TAKES").map_or(160_000, |takes| takes.parse().unwrap());
    (takes / entries).min(takes / 2)
}

fn plan(limits: &str) -> Arc<Plan> {
    let limits = limits.split(", ").map(|limit| limit.parse().unwrap()).collect();
    Arc::new(Plan::new("rule".into(), limits).unwrap())
}

/// Fills a store in this process, and prints how much memory each key took.
#[expect(clippy::disallowed_methods, reason = "the process is told what to measure by its environment")]
#[test]
fn measures_what_its_environment_says() {
    let (Ok(limits), Ok(entries)) = (std::env::var(KIND), std::env::var(ENTRIES)) else { return };
    let entries: u64 = entries.parse().unwrap();
    let (keys, plan) = (keys(entries), plan(&limits));
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_760_000_045_000_000)));
    let before = own_bytes();
    let store = MemoryStore::new(clock.clone(), keys as usize * 2);
    let (mut key, mut id) = (String::new(), String::new());
    // In rounds, as keys grow in practice: each a little at a time.
    for entry in 0..entries {
        for number in 0..keys {
            key.clear();
            write!(key, "key {number}").unwrap();
            id.clear();
            write!(id, "{entry:08}-0000-0000-0000-{number:012}").unwrap();
            let mut charges = Charges::new(Ticket(entry << 32 | number), 1, Some(&id));
            charges.push(&plan, &key, true);
            let mut outcome = Outcome::default();
            let answer = store.take(&charges, &mut outcome);
            assert!(matches!(answer, Answer::Ready(Some(Ok(())))), "{key}");
            drop(answer);
        }
        clock.advance(tollgate_core::Span::from_secs(3_540 / entries));
    }
    let grown = own_bytes().saturating_sub(before);
    assert_eq!(store.len() as u64, keys);
    println!("measured {}", grown as u64 / keys);
}

/// Measures in a process of its own.
fn measured(limits: &str, entries: u64) -> u64 {
    let output = tollgate_testbed::rerun(module_path!(), "measures_what_its_environment_says")
        .env(KIND, limits)
        .env(ENTRIES, entries.to_string())
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let bytes = printed.split("measured ").nth(1).unwrap_or_else(|| panic!("{printed}"));
    bytes.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn no_key_takes_more_than_its_footprint_says() {
    for (limits, counts) in MEASURED {
        let footprint = Footprint::of(&plan(limits));
        for entries in counts {
            let bytes = measured(limits, *entries);
            let told = footprint.with_entries(*entries);
            println!("{limits:<34} {entries:>4} entries: {bytes:>6} bytes a key, at most {told}");
            let beside = BYTES_BESIDE / keys(*entries);
            assert!(bytes <= told + beside, "{limits} with {entries}: {bytes} bytes, and not {told}");
            assert!(bytes * 2 >= told, "{limits} with {entries}: {bytes} bytes, far from {told}");
        }
    }
}

/// Resident memory without the pages of the program's file, which are read when they are first used.
fn own_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux tells");
    let mut pages = statm.split_whitespace().map(|pages| pages.parse::<usize>().expect("a number")).skip(1);
    let (resident, of_files) = (pages.next().expect("a number"), pages.next().expect("a number"));
    (resident - of_files) * 4_096
}
