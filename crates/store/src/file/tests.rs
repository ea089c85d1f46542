//! Failing disks: what calls return, which events are reported, and that nothing is lost once the disk works
//! again.

use std::io;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::{Condvar, Mutex};
use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};
use tollgate_core::versioned_map::MOST_CHANGES;
use tollgate_core::{Plan, Ticket};

use super::*;
use crate::ManualClock;

/// A disk that is full or slow when the test says so.
#[derive(Debug)]
struct Moody {
    below: FileBackend,
    mood: Arc<Mood>,
}

#[derive(Debug, Default)]
struct Mood {
    full: AtomicBool,
    /// How often everything written was made durable.
    syncs: AtomicU64,
    held: Mutex<bool>,
    released: Condvar,
}

impl Mood {
    fn check(&self) -> io::Result<()> {
        let mut held = self.held.lock();
        while *held {
            self.released.wait(&mut held);
        }
        if self.full.load(Ordering::SeqCst) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn hold(&self) {
        *self.held.lock() = true;
    }

    fn release(&self) {
        *self.held.lock() = false;
        self.released.notify_all();
    }
}

impl StorageBackend for Moody {
    fn len(&self) -> io::Result<u64> {
        self.below.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.below.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.mood.check()?;
        self.below.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.mood.check()?;
        self.mood.syncs.fetch_add(1, Ordering::SeqCst);
        self.below.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.mood.check()?;
        self.below.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.below.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.below.try_lock_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.below.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.below.query_lock_range(start, end)
    }
}

struct Setup {
    directory: tempfile::TempDir,
    mood: Arc<Mood>,
    events: Arc<Mutex<Vec<FileEvent>>>,
    plan: Arc<Plan>,
}

impl Setup {
    fn new() -> Self {
        let plan = Plan::new("client".into(), vec!["100/hour".parse().unwrap()]).unwrap();
        Self {
            directory: tempfile::tempdir().unwrap(),
            mood: Arc::default(),
            events: Arc::default(),
            plan: Arc::new(plan),
        }
    }

    fn open(&self, sync: Syncing) -> FileStore {
        let mood = Arc::clone(&self.mood);
        let mount: Mount = Arc::new(move |file| {
            Ok(Box::new(Moody { below: FileBackend::new(file)?, mood: Arc::clone(&mood) }))
        });
        let events = Arc::clone(&self.events);
        let options = FileOptions {
            flush_interval: Span::from_secs(3_600),
            sync,
            max_keys: 10_000,
            on_event: Box::new(move |event| events.lock().push(event)),
        };
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_760_000_000_000_000)));
        let path = self.directory.path().join("state.redb");
        let (store, report) = FileStore::open_on(&path, clock, options, mount).unwrap();
        assert_eq!(report.set_aside, None);
        store
    }

    /// Takes one, and passes the answer to `then`.
    fn take(&self, store: &FileStore, key: &str, then: impl FnOnce(Answer<'_, ()>)) {
        let mut charges = Charges::new(Ticket(1), 1, None);
        charges.push(&self.plan, key, true);
        let mut outcome = Outcome::default();
        then(store.take(&charges, &mut outcome));
    }

    fn used(&self, store: &FileStore, key: &str) -> u64 {
        let mut charges = Charges::new(Ticket(1), 1, None);
        charges.push(&self.plan, key, true);
        let mut outcome = Outcome::default();
        store.memory.peek_now(&charges, &mut outcome).unwrap();
        100 - outcome.readings[0].remaining
    }
}

fn poll<T: Unpin>(answer: &mut Answer<'_, T>) -> Poll<Result<T, StoreError>> {
    let answer = std::pin::Pin::new(answer);
    answer.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_full_disk_loses_nothing_once_there_is_room_again() {
    let setup = Setup::new();
    let store = setup.open(Syncing::Interval);
    for key in ["ada", "bob"] {
        setup.take(&store, key, |_| {});
    }
    store.flush().unwrap();
    setup.mood.full.store(true, Ordering::SeqCst);
    for key in ["ada", "cy"] {
        setup.take(&store, key, |mut answer| assert_eq!(poll(&mut answer), Poll::Ready(Ok(()))));
    }
    store.memory.forget_now(Forget::Key(Counter { plan: &setup.plan, key: "bob" }));
    for _ in 0..3 {
        let Err(StoreError::Unavailable { reason }) = store.flush() else { panic!("the disk is full") };
        assert!(reason.starts_with("the file cannot be written: "), "{reason}");
    }
    let stats = store.flush_stats();
    assert_eq!((stats.flushes, stats.errors), (1, 3));
    assert!(stats.last_error.is_some());
    setup.mood.full.store(false, Ordering::SeqCst);
    store.flush().unwrap();
    drop(store);
    let events = setup.events.lock().clone();
    assert!(matches!(&events[..], [FileEvent::Failed { .. }, FileEvent::Recovered]), "{events:?}");
    let store = setup.open(Syncing::Interval);
    assert_eq!(["ada", "bob", "cy"].map(|key| setup.used(&store, key)), [2, 0, 1]);
}

#[test]
fn a_write_to_a_full_disk_fails() {
    let setup = Setup::new();
    let store = setup.open(Syncing::Always);
    setup.mood.full.store(true, Ordering::SeqCst);
    setup.take(&store, "ada", |mut answer| {
        assert!(store.flush().is_err());
        let Poll::Ready(Err(StoreError::Unavailable { .. })) = poll(&mut answer) else {
            panic!("it is not in the file")
        };
    });
    setup.mood.full.store(false, Ordering::SeqCst);
    setup.take(&store, "ada", |mut answer| {
        store.flush().unwrap();
        assert_eq!(poll(&mut answer), Poll::Ready(Ok(())));
    });
    drop(store);
    // The first one got an error, but was not undone.
    assert_eq!(setup.used(&setup.open(Syncing::Always), "ada"), 2);
}

#[test]
fn no_charge_is_answered_before_the_disk_has_it() {
    let setup = Setup::new();
    let store = setup.open(Syncing::Always);
    setup.mood.hold();
    setup.take(&store, "ada", |mut first| {
        setup.take(&store, "bob", |mut second| {
            assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
            setup.mood.release();
            store.flush().unwrap();
            assert_eq!(poll(&mut first), Poll::Ready(Ok(())));
            assert_eq!(poll(&mut second), Poll::Ready(Ok(())));
        });
    });
}

#[test]
fn decisions_go_on_while_the_disk_is_busy() {
    let setup = Setup::new();
    let store = setup.open(Syncing::Interval);
    setup.take(&store, "ada", |_| {});
    setup.mood.hold();
    let saved = store.board.request();
    for _ in 0..50 {
        setup.take(&store, "ada", |mut answer| assert_eq!(poll(&mut answer), Poll::Ready(Ok(()))));
    }
    setup.mood.release();
    store.flush().unwrap();
    drop(saved);
    assert_eq!(setup.used(&store, "ada"), 51);
}

#[test]
fn a_flush_makes_the_disk_durable() {
    let setup = Setup::new();
    let syncs = || setup.mood.syncs.load(Ordering::SeqCst);
    for sync in [Syncing::Interval, Syncing::Always] {
        let store = setup.open(sync);
        for _ in 0..3 {
            let before = syncs();
            setup.take(&store, "ada", |_| store.flush().unwrap());
            assert!(syncs() > before, "{sync:?}");
        }
        let before = syncs();
        store.flush().unwrap();
        assert_eq!(syncs(), before, "nothing has changed: {sync:?}");
    }
}

#[test]
fn a_refused_take_waits_for_nothing() {
    let setup = Setup::new();
    let store = setup.open(Syncing::Always);
    let mut charges = Charges::new(Ticket(1), 101, None);
    charges.push(&setup.plan, "ada", true);
    let mut outcome = Outcome::default();
    assert_eq!(poll(&mut store.take(&charges, &mut outcome)), Poll::Ready(Ok(())));
    assert!(!outcome.allowed);
}

#[test]
fn a_refund_is_answered_when_the_disk_has_it_and_a_repeated_one_at_once() {
    let setup = Setup::new();
    let store = setup.open(Syncing::Always);
    setup.take(&store, "ada", |_| store.flush().unwrap());
    let mut charges = Charges::new(Ticket(1), 1, None);
    charges.push(&setup.plan, "ada", true);
    let taken_at = store.memory.now();
    setup.mood.hold();
    let mut refunded = store.refund(&charges, taken_at);
    let mut repeated = store.refund(&charges, taken_at);
    let told = (poll(&mut refunded), poll(&mut repeated));
    setup.mood.release();
    assert_eq!(told, (Poll::Pending, Poll::Ready(Ok(Refunded::Already))));
    store.flush().unwrap();
    assert_eq!(poll(&mut refunded), Poll::Ready(Ok(Refunded::Done)));
}

#[test]
fn refunds_and_resets_that_a_full_disk_refused_are_saved_later() {
    let refund: fn(&FileStore, &Charges<'_>) = |store, charges| {
        assert_eq!(store.memory.refund_now(charges, store.memory.now()), Ok(Refunded::Done));
    };
    let reset: fn(&FileStore, &Charges<'_>) = |store, _| store.memory.forget_now(Forget::Rule("client"));
    for (change, expected) in [(refund, Refunded::Already), (reset, Refunded::TooOld)] {
        let setup = Setup::new();
        let store = setup.open(Syncing::Interval);
        setup.take(&store, "ada", |_| store.flush().unwrap());
        let mut charges = Charges::new(Ticket(1), 1, None);
        charges.push(&setup.plan, "ada", true);
        setup.mood.full.store(true, Ordering::SeqCst);
        change(&store, &charges);
        assert!(store.flush().is_err());
        setup.mood.full.store(false, Ordering::SeqCst);
        drop(store);
        let store = setup.open(Syncing::Interval);
        let taken_at = store.memory.now();
        assert_eq!(store.memory.refund_now(&charges, taken_at), Ok(expected));
    }
}

#[test]
fn a_mark_is_durable_once_the_disk_has_what_was_taken_before_it() {
    let setup = Setup::new();
    let store = setup.open(Syncing::Interval);
    // The disk has an earlier saving.
    setup.take(&store, "ada", |_| store.flush().unwrap());
    let saved = store.mark();
    setup.take(&store, "ada", |_| {});
    setup.mood.hold();
    let mut durable = store.durable(store.mark());
    let waits = poll(&mut durable).is_pending();
    setup.mood.release();
    assert!(waits, "the disk does not have it yet");
    store.flush().unwrap();
    assert_eq!(poll(&mut durable), Poll::Ready(Ok(())));
    let begun = store.flush_stats().begun;
    assert_eq!(poll(&mut store.durable(saved)), Poll::Ready(Ok(())));
    assert_eq!(store.flush_stats().begun, begun, "nothing is saved twice");
}

#[test]
fn callers_wait_only_if_every_change_is_saved_first() {
    for sync in [Syncing::Interval, Syncing::Always] {
        let setup = Setup::new();
        let store = setup.open(sync);
        setup.take(&store, "ada", |answer| {
            let is_ready = matches!(answer, Answer::Ready(_));
            assert_eq!(
                (store.answers_at_once(), is_ready),
                (sync == Syncing::Interval, sync == Syncing::Interval)
            );
        });
    }
}

#[test]
fn printed_options_say_how_a_store_is_saved() {
    let options = FileOptions {
        flush_interval: Span::from_secs(7),
        sync: Syncing::Always,
        max_keys: 12_345,
        on_event: Box::new(|_| {}),
    };
    let printed = format!("{options:?}");
    for part in [format!("{:?}", options.flush_interval), "Always".to_owned(), "12345".to_owned()] {
        assert!(printed.contains(&part), "{printed}");
    }
}

#[test]
fn a_reader_is_told_of_changed_records_once_the_disk_is_done() {
    let setup = Setup::new();
    let store = setup.open(Syncing::Interval);
    let known = store.changes(Namespace::Lists, None);
    assert!(matches!(known, Answer::Ready(_)), "nothing has changed");
    setup.mood.hold();
    let edits = [Edit::put("a", "x")];
    let mut changed = store.change(Namespace::Lists, &edits);
    let mut told = store.changes(Namespace::Lists, Some(0));
    let pending = (poll(&mut changed).is_pending(), poll(&mut told).is_pending());
    let other = matches!(store.changes(Namespace::Locks, None), Answer::Ready(_));
    setup.mood.release();
    assert_eq!((pending, other), ((true, true), true), "another namespace has not changed");
    store.flush().unwrap();
    assert_eq!(poll(&mut changed), Poll::Ready(Ok(vec![true])));
    let Poll::Ready(Ok(told)) = poll(&mut told) else { panic!("it is in the file") };
    assert_eq!(told.entries, [("a".to_owned(), Some(b"x".to_vec()))]);
    assert!(matches!(store.changes(Namespace::Lists, Some(0)), Answer::Ready(_)));
}

#[test]
fn records_that_a_full_disk_refused_are_saved_later_however_many_they_are() {
    let setup = Setup::new();
    let store = setup.open(Syncing::Interval);
    let put = |name: &str| Edit::put(name, "x");
    let change = |space, edits: &[Edit]| drop(store.change(space, edits));
    change(Namespace::Lists, &[put("gone"), put("kept")]);
    change(Namespace::Locks, &[put("gone"), put("kept")]);
    store.flush().unwrap();
    setup.mood.full.store(true, Ordering::SeqCst);
    let mut edits = vec![Edit::remove("gone")];
    change(Namespace::Locks, &edits);
    edits.extend((0..=MOST_CHANGES).map(|number| put(&(number % 100).to_string())));
    let mut answer = store.change(Namespace::Lists, &edits);
    assert!(store.flush().is_err());
    assert!(matches!(poll(&mut answer), Poll::Ready(Err(StoreError::Unavailable { .. }))));
    drop(answer);
    setup.mood.full.store(false, Ordering::SeqCst);
    drop(store);
    let store = setup.open(Syncing::Interval);
    let names = |space| {
        let Poll::Ready(Ok(changes)) = poll(&mut store.changes(space, None)) else { panic!("all is saved") };
        changes.entries.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    assert_eq!(names(Namespace::Locks), ["kept"]);
    let lists = names(Namespace::Lists);
    assert_eq!((lists.len(), lists.contains(&"gone".to_owned())), (101, false));
}
