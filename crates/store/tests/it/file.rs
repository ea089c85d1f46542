//! The store with a file: what survives a restart, and what happens to damaged or foreign files.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition};
use tempfile::TempDir;
use tollgate_core::store::{Answer, Counter, Forget, HoldsOrder, Records, Refunded, Store};
use tollgate_core::versioned_map::{Edit, Namespace};
use tollgate_core::{Charges, Outcome, Plan, Span, Ticket, Timestamp};
use tollgate_store::file::{FileOptions, OpenError, OpenReport, Syncing};
use tollgate_store::{FileStore, ManualClock};

const START: Timestamp = Timestamp::from_micros(1_760_000_045_000_000);
const STATES: TableDefinition<&[u8; 16], &[u8]> = TableDefinition::new("states");
const PLANS: TableDefinition<u32, (&str, &str)> = TableDefinition::new("plans");
const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");

/// A directory with a state file, and the clock of the stores opened there.
struct Place {
    directory: TempDir,
    clock: Arc<ManualClock>,
}

impl Place {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), clock: Arc::new(ManualClock::at(START)) }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("state.redb")
    }

    fn try_open(&self, path: &Path) -> Result<(FileStore, OpenReport), OpenError> {
        let options = FileOptions {
            flush_interval: Span::from_secs(3_600),
            sync: Syncing::Interval,
            max_keys: 1_000_000,
            on_event: Box::new(|event| panic!("{event:?}")),
        };
        FileStore::open(path, self.clock.clone(), options)
    }

    fn open(&self) -> FileStore {
        let (store, report) = self.try_open(&self.path()).unwrap();
        assert_eq!(report.set_aside, None);
        assert_eq!(report.keys, store.len());
        store
    }

    /// The names of all files here.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.directory.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn plan(rule: &str, limits: &str) -> Arc<Plan> {
    let limits = limits.split(", ").map(|limit| limit.parse().unwrap()).collect();
    Arc::new(Plan::new(rule.into(), limits).unwrap())
}

fn ready<T>(answer: Answer<'_, T>) -> T {
    let Answer::Ready(Some(result)) = answer else { panic!("no caller waits with an interval") };
    result.unwrap()
}

fn take(store: &FileStore, plan: &Arc<Plan>, key: &str, cost: u64, ticket: u64) -> Outcome {
    let mut charges = Charges::new(Ticket(ticket), cost, None);
    charges.push(plan, key, true);
    let mut outcome = Outcome::default();
    ready(store.take(&charges, &mut outcome));
    outcome
}

fn remaining(store: &FileStore, plan: &Arc<Plan>, key: &str) -> u64 {
    take(store, plan, key, 0, 0).readings[0].remaining
}

fn refund(store: &FileStore, plan: &Arc<Plan>, key: &str, ticket: u64) -> Refunded {
    let mut charges = Charges::new(Ticket(ticket), 1, None);
    charges.push(plan, key, true);
    ready(store.refund(&charges, START))
}

fn put(store: &FileStore, name: &str, value: &[u8]) {
    let edits = [Edit::put(name, value)];
    let Answer::Later(mut saved) = store.change(Namespace::Config, &edits) else {
        panic!("a record waits for the file")
    };
    // A later saving completes the one that was requested before it.
    store.flush().unwrap();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert_eq!(saved.as_mut().poll(&mut context), std::task::Poll::Ready(Ok(vec![true])));
}

const KINDS: [&str; 9] = [
    "10/hour",
    "10/hour sliding",
    "10/hour sliding by 1m",
    "10/hour burst 10",
    "10 at once for 1h",
    "10 at once",
    "10 in total",
    "ladder 10 lock 15m",
    "10/hour, 6_000_000_000/day, 20/week",
];

#[test]
fn every_kind_of_limit_survives_a_restart() {
    let place = Place::new();
    let store = place.open();
    let plans = KINDS.map(|kind| plan(kind, kind));
    for (cost, ticket) in [(3, 1), (4, 2)] {
        plans.iter().for_each(|plan| assert!(take(&store, plan, "ada", cost, ticket).allowed, "{plan}"));
        store.flush().unwrap();
    }
    drop(store);
    // A new configuration makes new plans: their content counts, not their identity.
    let store = place.open();
    assert_eq!(store.len(), KINDS.len());
    for kind in KINDS {
        let plan = plan(kind, kind);
        assert_eq!(remaining(&store, &plan, "ada"), 3, "{kind}");
        assert!(!take(&store, &plan, "ada", 4, 3).allowed, "{kind}");
        assert!(take(&store, &plan, "ada", 3, 4).allowed, "{kind}");
    }
}

#[test]
fn a_store_is_empty_until_it_counts_something() {
    let place = Place::new();
    let store = place.open();
    assert!(store.is_empty());
    take(&store, &plan("client", "10/hour"), "ada", 1, 1);
    assert!(!store.is_empty());
    drop(store);
    assert!(!place.open().is_empty(), "after a restart too");
}

#[test]
fn holds_survive_a_restart_with_their_ids_and_leases() {
    let place = Place::new();
    let holds = plan("holds", "5 at once for 1m");
    let counter = Counter { plan: &holds, key: "ada" };
    let store = place.open();
    let before = ready(store.holds(&counter, HoldsOrder::Replace(&["one", "two"], Ticket(7))));
    drop(store);
    let store = place.open();
    assert_eq!(ready(store.holds(&counter, HoldsOrder::List)), before);
    place.clock.advance(Span::from_secs(60));
    assert!(ready(store.holds(&counter, HoldsOrder::List)).holds.is_empty());
}

#[test]
fn a_ticket_given_back_is_not_given_back_again_after_a_restart() {
    let place = Place::new();
    let plan = plan("client", "10/hour");
    let store = place.open();
    (1..=3).for_each(|ticket| assert!(take(&store, &plan, "ada", 1, ticket).allowed));
    store.flush().unwrap();
    assert_eq!(refund(&store, &plan, "ada", 1), Refunded::Done);
    drop(store);
    let store = place.open();
    assert_eq!(remaining(&store, &plan, "ada"), 8, "it was given back after the others were saved");
    assert_eq!(refund(&store, &plan, "ada", 1), Refunded::Already);
    assert_eq!(refund(&store, &plan, "ada", 2), Refunded::Done);
    assert_eq!(remaining(&store, &plan, "ada"), 9);
}

#[test]
fn a_refund_or_retraction_is_saved_for_every_key_it_changed() {
    let (refund, retract) = (
        |store: &FileStore, charges: &Charges<'_>| {
            assert_eq!(ready(store.refund(charges, START)), Refunded::Done);
        },
        |store: &FileStore, charges: &Charges<'_>| ready(store.retract(charges)),
    );
    let ways: [fn(&FileStore, &Charges<'_>); 2] = [refund, retract];
    for undo in ways {
        let place = Place::new();
        let plans = ["first", "second", "third"].map(|rule| plan(rule, "10/hour sliding"));
        let mut charges = Charges::new(Ticket(1), 4, None);
        plans.iter().for_each(|plan| charges.push(plan, "ada", true));
        let store = place.open();
        // Another take keeps the keys from being idle, since idle ones leave the file anyway.
        plans.iter().for_each(|plan| assert!(take(&store, plan, "ada", 1, 2).allowed));
        ready(store.take(&charges, &mut Outcome::default()));
        store.flush().unwrap();
        undo(&store, &charges);
        store.flush().unwrap();
        drop(store);
        let store = place.open();
        plans.iter().for_each(|plan| assert_eq!(remaining(&store, plan, "ada"), 9, "{plan}"));
    }
}

#[test]
fn a_charge_lost_in_a_crash_cannot_be_refunded() {
    let place = Place::new();
    let plan = plan("orders", "10 in total");
    let store = place.open();
    take(&store, &plan, "ada", 5, 1);
    store.flush().unwrap();
    take(&store, &plan, "ada", 4, 2);
    // The file as it would be if the process were killed now.
    let left = place.directory.path().join("left.redb");
    fs::copy(place.path(), &left).unwrap();
    drop(store);
    let (after, _) = place.try_open(&left).unwrap();
    assert_eq!(refund(&after, &plan, "ada", 2), Refunded::TooOld);
    assert_eq!(remaining(&after, &plan, "ada"), 5, "what was saved stays taken");
    drop(after);
    assert_eq!(
        refund(&place.open(), &plan, "ada", 2),
        Refunded::Done,
        "what was closed as it should be is whole"
    );
}

#[test]
fn a_reset_rule_stays_reset_after_a_restart() {
    let place = Place::new();
    let plan = plan("orders", "10 in total");
    let store = place.open();
    take(&store, &plan, "ada", 4, 1);
    ready(store.forget(Forget::Rule("orders")));
    take(&store, &plan, "ada", 6, 2);
    drop(store);
    let store = place.open();
    assert_eq!(refund(&store, &plan, "ada", 1), Refunded::TooOld);
    assert_eq!(remaining(&store, &plan, "ada"), 4);
}

#[test]
fn a_reset_of_all_rules_is_kept_by_a_file_that_is_opened_and_never_closed() {
    let place = Place::new();
    let plan = plan("orders", "10 in total");
    let store = place.open();
    take(&store, &plan, "ada", 4, 1);
    ready(store.forget(Forget::All));
    drop(store);
    let always = || FileOptions {
        flush_interval: Span::from_secs(3_600),
        sync: Syncing::Always,
        max_keys: 1_000,
        on_event: Box::new(|event| panic!("{event:?}")),
    };
    let (store, _) = FileStore::open(place.path(), place.clock.clone(), always()).unwrap();
    // The file as it would be if the process were killed now.
    let left = place.directory.path().join("left.redb");
    fs::copy(place.path(), &left).unwrap();
    drop(store);
    let (after, _) = FileStore::open(&left, place.clock.clone(), always()).unwrap();
    assert_eq!(refund(&after, &plan, "ada", 1), Refunded::TooOld);
    // Another reset is in the file once it is saved, and need not wait for the end.
    place.clock.advance(Span::from_secs(1));
    let taken_at = START + Span::from_secs(1);
    drop(after.forget(Forget::All));
    after.flush().unwrap();
    let left = place.directory.path().join("later.redb");
    fs::copy(place.directory.path().join("left.redb"), &left).unwrap();
    let (later, _) = FileStore::open(&left, place.clock.clone(), always()).unwrap();
    let mut charges = Charges::new(Ticket(2), 1, None);
    charges.push(&plan, "ada", true);
    assert_eq!(ready(later.refund(&charges, taken_at)), Refunded::TooOld);
}

#[test]
fn records_and_the_secret_survive_a_restart() {
    let place = Place::new();
    let store = place.open();
    let secret = store.secret();
    put(&store, "b", b"two");
    put(&store, "a", b"one");
    put(&store, "b", b"again");
    drop(store);
    let store = place.open();
    assert_eq!(store.secret(), secret);
    let expected = vec![("a".to_owned(), Some(b"one".to_vec())), ("b".to_owned(), Some(b"again".to_vec()))];
    assert_eq!(ready(store.changes(Namespace::Config, None)).entries, expected);
    assert_ne!(Place::new().open().secret(), secret, "every file has its own");
}

#[test]
fn idle_keys_leave_the_file() {
    let place = Place::new();
    let store = place.open();
    let (short, long) = (plan("short", "10/min"), plan("long", "10/day"));
    for number in 0..2_000 {
        take(&store, &short, &number.to_string(), 1, number);
    }
    take(&store, &long, "ada", 1, 1);
    store.flush().unwrap();
    place.clock.advance(Span::from_secs(3_600));
    // Closing gaps may carry a key past the sweep; the next sweep meets it.
    (0..3).for_each(|_| store.flush().unwrap());
    assert_eq!(store.len(), 1, "and the memory");
    drop(store);
    let file = Database::open(place.path()).unwrap().begin_read().unwrap();
    assert_eq!(file.open_table(STATES).unwrap().len().unwrap(), 1);
    let plans = file.open_table(PLANS).unwrap();
    let rules: Vec<String> = plans.iter().unwrap().map(|row| row.unwrap().1.value().0.to_owned()).collect();
    assert_eq!(rules, ["long"], "an unused plan goes too");
}

#[test]
fn plans_of_equal_content_share_a_number() {
    let place = Place::new();
    let store = place.open();
    for number in 0..50 {
        take(&store, &plan("client", "10/hour"), &number.to_string(), 1, number);
    }
    store.flush().unwrap();
    for number in 0..50 {
        take(&store, &plan("client", "20/hour"), &number.to_string(), 1, number);
    }
    drop(store);
    let file = Database::open(place.path()).unwrap().begin_read().unwrap();
    let plans = file.open_table(PLANS).unwrap();
    let limits: Vec<String> = plans.iter().unwrap().map(|row| row.unwrap().1.value().1.to_owned()).collect();
    assert_eq!(limits, ["20/hour"]);
}

#[test]
fn a_plan_that_goes_and_comes_back_is_saved_again() {
    let place = Place::new();
    let (plan, other) = (plan("client", "10/hour"), plan("other", "10/hour"));
    let store = place.open();
    take(&store, &other, "ada", 1, 1);
    for cost in [4, 3] {
        take(&store, &plan, "ada", cost, 2);
        store.flush().unwrap();
        ready(store.forget(Forget::Key(Counter { plan: &plan, key: "ada" })));
        store.flush().unwrap();
    }
    take(&store, &plan, "ada", 2, 3);
    take(&store, &other, "bob", 1, 4);
    drop(store);
    let store = place.open();
    assert_eq!([&plan, &other].map(|plan| remaining(&store, plan, "ada")), [8, 9]);
}

#[test]
fn a_key_that_goes_and_comes_back_is_saved_as_it_is() {
    let place = Place::new();
    let plan = plan("client", "10/hour");
    let counter = Counter { plan: &plan, key: "ada" };
    let forget = |store: &FileStore| ready(store.forget(tollgate_core::store::Forget::Key(counter)));
    let store = place.open();
    take(&store, &plan, "ada", 4, 1);
    store.flush().unwrap();
    forget(&store);
    take(&store, &plan, "ada", 1, 2);
    forget(&store);
    drop(store);
    let store = place.open();
    assert_eq!(store.len(), 0, "it was saved, went, came and went: nothing may be left");
    take(&store, &plan, "ada", 2, 3);
    store.flush().unwrap();
    forget(&store);
    take(&store, &plan, "ada", 3, 4);
    drop(store);
    assert_eq!(remaining(&place.open(), &plan, "ada"), 7);
}

#[test]
fn a_smaller_store_forgets_down_to_its_size() {
    let place = Place::new();
    let store = place.open();
    let (plan, pinned) = (plan("client", "10/hour"), plan("pinned", "1 in total"));
    for number in 0..5_000 {
        take(&store, &plan, &number.to_string(), 1, number);
    }
    take(&store, &pinned, "ada", 1, 1);
    drop(store);
    let options = FileOptions {
        flush_interval: Span::from_secs(3_600),
        sync: Syncing::Interval,
        max_keys: 512,
        on_event: Box::new(|event| panic!("{event:?}")),
    };
    let (store, report) = FileStore::open(place.path(), place.clock.clone(), options).unwrap();
    assert!(store.len() <= 512 && report.keys == store.len());
    assert_eq!(remaining(&store, &pinned, "ada"), 0);
    drop(store);
    assert!(place.open().len() <= 512, "they are gone from the file too");
}

#[test]
fn a_flush_tells_what_it_did() {
    let place = Place::new();
    let store = place.open();
    let plan = plan("client", "10/hour");
    (0..10).for_each(|number: u64| assert!(take(&store, &plan, &number.to_string(), 1, number).allowed));
    store.flush().unwrap();
    take(&store, &plan, "3", 1, 11);
    store.flush().unwrap();
    assert_eq!(remaining(&store, &plan, "5"), 9, "a look leaves nothing to save");
    store.flush().unwrap();
    let stats = store.flush_stats();
    assert_eq!((stats.flushes, stats.keys_written, stats.errors), (3, 11, 0));
    assert_eq!((stats.begun, stats.durable, stats.last_error), (3, 3, None));
}

#[test]
fn the_file_is_its_owners_alone() {
    let place = Place::new();
    drop(place.open());
    assert_eq!(fs::metadata(place.path()).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(place.names(), ["state.redb"], "nothing else is left there");
}

#[test]
fn an_empty_file_is_a_new_one() {
    let place = Place::new();
    fs::write(place.path(), b"").unwrap();
    drop(place.open());
    assert_eq!(place.names(), ["state.redb"]);
    assert_eq!(fs::metadata(place.path()).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_new_file_left_unfinished_by_a_crash_is_created_again() {
    let place = Place::new();
    let draft = place.directory.path().join("state.redb.new");
    fs::write(&draft, [0; 5_000]).unwrap();
    fs::set_permissions(&draft, fs::Permissions::from_mode(0o666)).unwrap();
    drop(place.open());
    assert_eq!(place.names(), ["state.redb"]);
    assert_eq!(fs::metadata(place.path()).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_file_in_use_is_left_alone() {
    let place = Place::new();
    let store = place.open();
    take(&store, &plan("client", "10/hour"), "ada", 4, 1);
    store.flush().unwrap();
    let before = fs::read(place.path()).unwrap();
    let Err(error) = place.try_open(&place.path()) else { panic!("two stores in one file") };
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("in use by another process: stop that one"), "{error}");
    assert_eq!(fs::read(place.path()).unwrap(), before);
    assert_eq!(place.names(), ["state.redb"]);
}

#[test]
fn a_directory_that_is_not_there_is_an_error() {
    let place = Place::new();
    let Err(error) = place.try_open(&place.directory.path().join("missing/state.redb")) else {
        panic!("opened nowhere")
    };
    assert!(error.to_string().contains("its directory must exist"), "{error}");
    let Err(error) = place.try_open(place.directory.path()) else { panic!("a directory is no file") };
    assert!(matches!(error, OpenError::Foreign { what: "a directory", .. }), "{error}");
}

/// Opens a damaged file, and checks that it was set aside unchanged.
fn sets_aside(place: &Place, name: &str) -> FileStore {
    let damaged = fs::read(place.path()).unwrap();
    let (store, report) = place.try_open(&place.path()).unwrap();
    let aside = report.set_aside.unwrap();
    assert_eq!(aside.to, fs::canonicalize(place.directory.path()).unwrap().join(name));
    assert!(!aside.reason.is_empty());
    assert_eq!(fs::read(&aside.to).unwrap(), damaged, "not a byte was changed");
    assert_eq!(store.len(), 0);
    store
}

#[test]
fn a_damaged_file_is_set_aside_and_never_written_over() {
    let place = Place::new();
    fs::write(place.path(), b"redb\x1a\x0a\xa9\x0d\x0a and nothing else of a database").unwrap();
    drop(sets_aside(&place, "state.redb.damaged-1"));
    fs::write(place.path(), vec![0; 1 << 20]).unwrap();
    let store = sets_aside(&place, "state.redb.damaged-2");
    take(&store, &plan("client", "10/hour"), "ada", 4, 1);
    drop(store);
    assert_eq!(remaining(&place.open(), &plan("client", "10/hour"), "ada"), 6, "the new file works");
    assert_eq!(place.names(), ["state.redb", "state.redb.damaged-1", "state.redb.damaged-2"]);
}

#[test]
fn a_file_of_another_format_is_set_aside() {
    let place = Place::new();
    drop(place.open());
    let database = Database::open(place.path()).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(META).unwrap().insert("format", 99_u32.to_le_bytes().as_slice()).unwrap();
    transaction.commit().unwrap();
    drop(database);
    drop(sets_aside(&place, "state.redb.damaged-1"));
}

#[test]
fn a_garbled_row_is_damage() {
    let place = Place::new();
    let store = place.open();
    take(&store, &plan("client", "10/hour"), "ada", 4, 1);
    drop(store);
    let database = Database::open(place.path()).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(STATES).unwrap().insert(&[7; 16], [0xff; 20].as_slice()).unwrap();
    transaction.commit().unwrap();
    drop(database);
    drop(sets_aside(&place, "state.redb.damaged-1"));
}

/// A file with all kinds of content.
fn sound_file() -> (Place, Vec<u8>) {
    let place = Place::new();
    let store = place.open();
    for number in 0..3_000 {
        let kind = KINDS[number as usize % KINDS.len()];
        let plan = plan(kind, kind);
        take(&store, &plan, &number.to_string(), 1 + number % 10, number);
    }
    put(&store, "record", &[7; 5_000]);
    drop(store);
    let bytes = fs::read(place.path()).unwrap();
    (place, bytes)
}

#[expect(clippy::disallowed_methods, reason = "the long form of this test is asked for by environment")]
fn rounds(short: u64) -> u64 {
    if std::env::var("TOLLGATE_LONG").is_ok() { short * 20 } else { short }
}

/// Opens a file with these bytes. Checks that it is read, or set aside unchanged.
fn opens_or_sets_aside(place: &Place, bytes: &[u8], what: &str) -> bool {
    fs::write(place.path(), bytes).unwrap();
    let (store, report) = place.try_open(&place.path()).unwrap_or_else(|error| panic!("{what}: {error}"));
    drop(store);
    if let Some(aside) = &report.set_aside {
        assert!(fs::read(&aside.to).unwrap() == bytes, "{what}: not a byte is changed");
        fs::remove_file(&aside.to).unwrap();
    }
    report.set_aside.is_some()
}

#[test]
fn flipped_bytes_never_stop_the_start_nor_lose_the_file() {
    let (place, sound) = sound_file();
    let mut dice = u64::from(std::process::id()) | 1;
    println!("seed {dice}");
    let mut roll = |sides: usize| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        (dice % sides as u64) as usize
    };
    let mut damaged = 0;
    for round in 0..rounds(150) {
        let mut bytes = sound.clone();
        let flips = 1 + roll(4);
        // Half of them in the first pages, where damage is worst.
        let within = if round % 2 == 0 { bytes.len() } else { 16_384 };
        let spots: Vec<(usize, u8)> = (0..flips).map(|_| (roll(within), 1 << roll(8))).collect();
        spots.iter().for_each(|(at, bit)| bytes[*at] ^= bit);
        damaged += u64::from(opens_or_sets_aside(&place, &bytes, &format!("round {round}, {spots:?}")));
    }
    assert!(damaged > 0, "no flip was ever noticed");
}

#[test]
fn a_flipped_bit_that_leaves_a_possible_number_is_noticed_all_the_same() {
    // Seven bits to a byte, lowest first, and a flag on all but the last.
    const WRITTEN: [u8; 7] = [0x91, 0x92, 0x93, 0x94, 0x95, 0x96, 0x17];
    let taken = WRITTEN.iter().rev().fold(0, |number: u64, byte| number << 7 | u64::from(byte & 0x7f));
    let place = Place::new();
    let store = place.open();
    take(&store, &plan("client", "9007199254740991 in total"), "ada", taken, 1);
    put(&store, "record", &[0x5a; 5_000]);
    drop(store);
    let sound = fs::read(place.path()).unwrap();
    assert!(!opens_or_sets_aside(&place, &sound, "the sound file"));
    for what in [&WRITTEN[..], &[0x5a; 5_000]] {
        let spots = (0..sound.len() - what.len()).filter(|at| sound[*at..].starts_with(what));
        let spots: Vec<usize> = spots.collect();
        assert!(!spots.is_empty(), "it is in the file");
        // The file may contain older versions of a page: all of them are damaged.
        let mut bytes = sound.clone();
        spots.iter().for_each(|at| bytes[at + what.len() / 2] ^= 1);
        assert!(opens_or_sets_aside(&place, &bytes, "a bit in a value"), "it was used as if it were sound");
    }
}

#[test]
fn truncated_files_never_stop_the_start_nor_lose_the_file() {
    let (place, sound) = sound_file();
    let mut dice = u64::from(std::process::id()) | 1;
    println!("seed {dice}");
    for round in 0..rounds(60) {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // Four bytes or fewer do not show that the file was a state file.
        let length = 5 + (dice >> 33) as usize % (sound.len() - 5);
        let aside = opens_or_sets_aside(&place, &sound[..length], &format!("round {round}, {length} bytes"));
        // The truncated part may have been free.
        assert!(aside || length > sound.len() / 8, "{length} bytes");
    }
    assert!(!opens_or_sets_aside(&place, &sound, "the sound file"));
}
