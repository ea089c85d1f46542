//! Rules with secret keys, in a file: their counts survive any number of restarts, and the file has only
//! their HMACs.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::Path;
use std::sync::Arc;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use ring::hmac::{self, HMAC_SHA256};
use tollgate_core::store::{Answer, Store};
use tollgate_core::{Charges, Outcome, Plan, Span, Ticket, Timestamp};
use tollgate_store::file::{FileOptions, OpenReport, Syncing};
use tollgate_store::{FileStore, ManualClock};

fn open(path: &Path) -> (FileStore, OpenReport) {
    let options = FileOptions {
        flush_interval: Span::from_secs(3_600),
        sync: Syncing::Interval,
        max_keys: 1_000,
        on_event: Box::new(|event| panic!("{event:?}")),
    };
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_760_000_045_000_000)));
    FileStore::open(path, clock, options).unwrap()
}

/// The limits of a rule, as every start makes them anew.
fn plan() -> Arc<Plan> {
    let plan = Plan::new("account".into(), vec!["100 in total".parse().unwrap()]).unwrap();
    Arc::new(plan.with_secret_keys())
}

/// Takes one. Returns how many are left.
fn take(store: &FileStore, plan: &Arc<Plan>, key: &str) -> u64 {
    let mut charges = Charges::new(Ticket(1), 1, None);
    charges.push(plan, key, true);
    let mut outcome = Outcome::default();
    let Answer::Ready(Some(taken)) = store.take(&charges, &mut outcome) else {
        panic!("no caller waits with an interval")
    };
    taken.unwrap();
    outcome.readings[0].remaining
}

#[test]
fn a_rule_with_secret_keys_counts_on_after_any_number_of_restarts() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.redb");
    for round in 0..5 {
        let (store, report) = open(&path);
        assert_eq!(report.set_aside, None, "round {round}");
        let plan = plan();
        assert_eq!(take(&store, &plan, "ada"), 99 - round, "round {round}");
        // Other keys come and go, so that some rows have an older plan.
        assert_eq!(take(&store, &plan, &format!("other {round}")), 99);
        store.flush().unwrap();
    }
}

#[test]
fn a_file_knows_a_secret_key_only_by_its_hmac() {
    const STATES: TableDefinition<&[u8; 16], &[u8]> = TableDefinition::new("states");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.redb");
    let (store, _) = open(&path);
    take(&store, &plan(), "ada");
    let secret = store.secret();
    drop(store);
    let database = Database::open(&path).unwrap();
    let states = database.begin_read().unwrap().open_table(STATES).unwrap();
    let keys: Vec<[u8; 16]> = states.iter().unwrap().map(|row| *row.unwrap().0.value()).collect();
    let tag = hmac::sign(&hmac::Key::new(HMAC_SHA256, &secret), b"tollgate key\0account\0ada");
    assert_eq!(keys.concat(), tag.as_ref()[..16]);
}
