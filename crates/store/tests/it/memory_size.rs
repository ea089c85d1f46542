//! Measures the memory of a store that meets ten times as many keys as it may keep, in a process of its own, so
//! that the process's memory is the store's.
//!
//! `TOLLGATE_LONG=1` sends ten million keys past a store of a million.

use std::fmt::Write;
use std::sync::Arc;

use tollgate_core::store::Answer;
use tollgate_core::{Charges, Outcome, Plan, Store, Ticket, Timestamp};
use tollgate_store::{ManualClock, MemoryStore};

/// The most that a key with one limit may take: 96 MiB for a million of them, and something for the process.
const BYTES_PER_KEY: usize = 96;
const BYTES_BESIDE: usize = 4 << 20;

#[test]
fn a_flood_of_unique_keys_stays_within_its_memory() {
    if !tollgate_testbed::alone(module_path!(), "a_flood_of_unique_keys_stays_within_its_memory") {
        return;
    }
    #[expect(clippy::disallowed_methods, reason = "the long form of this test is asked for by environment")]
    let max_keys = if std::env::var("TOLLGATE_LONG").is_ok() { 1_000_000 } else { 100_000 };
    let limit = "10/hour".parse().unwrap();
    let plan = Arc::new(Plan::new("ip".into(), vec![limit]).unwrap());
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_760_000_045_000_000)));
    let before = resident_bytes();
    let store = MemoryStore::new(clock, max_keys);
    let mut key = String::new();
    for number in 0..max_keys * 10 {
        key.clear();
        write!(key, "flood {number}").unwrap();
        let mut charges = Charges::new(Ticket(number as u64), 1, None);
        charges.push(&plan, &key, true);
        let mut outcome = Outcome::default();
        let answer = store.take(&charges, &mut outcome);
        assert!(matches!(answer, Answer::Ready(Some(Ok(())))), "{key}");
        drop(answer);
        assert!(outcome.allowed, "{key}: a new key is always served");
    }
    let grown = resident_bytes().saturating_sub(before);
    println!("{} bytes for each of {max_keys} keys", grown / max_keys);
    assert!(store.len() >= max_keys * 9 / 10, "the store is full");
    assert!(grown < max_keys * BYTES_PER_KEY + BYTES_BESIDE, "{grown} bytes for {max_keys} keys");
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux tells");
    let pages: usize =
        statm.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).expect("a number");
    pages * 4_096
}
