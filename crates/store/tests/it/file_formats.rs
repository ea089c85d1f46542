//! State files of an older format are read and converted to the current one.
#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::Path;
use std::sync::Arc;

use redb::{Database, TableDefinition, TableHandle};
use tollgate_core::store::{Answer, Records};
use tollgate_core::versioned_map::Namespace;
use tollgate_core::{Span, Timestamp};
use tollgate_store::file::{FileOptions, Syncing};
use tollgate_store::{FileStore, ManualClock};

type EntryRow = (Option<u64>, &'static [u8]);

const START: Timestamp = Timestamp::from_micros(1_760_000_045_000_000);
const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");
const ENTRIES: TableDefinition<(&str, &str), EntryRow> = TableDefinition::new("entries");
const RECORDS: TableDefinition<&str, &[u8]> = TableDefinition::new("records");

fn open(path: &Path, clock: &Arc<ManualClock>) -> FileStore {
    let options = FileOptions {
        flush_interval: Span::from_secs(3_600),
        sync: Syncing::Interval,
        max_keys: 1_000,
        on_event: Box::new(|event| panic!("{event:?}")),
    };
    let (store, report) = FileStore::open(path, clock.clone(), options).unwrap();
    assert_eq!(report.set_aside, None);
    store
}

fn names(store: &FileStore, space: Namespace) -> Vec<String> {
    let Answer::Ready(Some(Ok(changes))) = store.changes(space, None) else { panic!("all of it is saved") };
    changes.entries.into_iter().map(|(name, _)| name).collect()
}

#[test]
fn records_of_format_2_are_in_their_namespaces_and_end_when_they_did() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.redb");
    let clock = Arc::new(ManualClock::at(START));
    let secret = open(&path, &clock).secret();
    let later = (START + Span::from_secs(60)).as_micros();
    {
        let file = Database::open(&path).unwrap();
        let transaction = file.begin_write().unwrap();
        transaction.delete_table(ENTRIES).unwrap();
        transaction.open_table(META).unwrap().insert("format", [2, 0, 0, 0].as_slice()).unwrap();
        {
            let mut records = transaction.open_table(RECORDS).unwrap();
            for (name, value) in [
                ("override/ip/192.0.2.1", "2/hour".to_owned()),
                ("policy/orders", "version 1".to_owned()),
                ("pause/77", format!("{later}\npolicy\ntelegram")),
                ("ban/203.0.113.7", format!("block\nsince 1\nuntil {later}\nkey ops")),
                ("ban/203.0.113.8", "block\nsince 1\nkey ops".to_owned()),
                ("ban/lock/door/account/x", format!("{later}\nsealed")),
            ] {
                records.insert(name, value.as_bytes()).unwrap();
            }
        }
        transaction.commit().unwrap();
    }
    for _ in 0..2 {
        let store = open(&path, &clock);
        assert_eq!(store.secret(), secret);
        assert_eq!(names(&store, Namespace::Config), ["override/ip/192.0.2.1", "policy/orders"]);
        assert_eq!(names(&store, Namespace::Lists), ["203.0.113.7", "203.0.113.8"]);
        assert_eq!(names(&store, Namespace::Pauses), ["77"]);
        assert_eq!(names(&store, Namespace::Locks), ["door/account/x"]);
    }
    clock.advance(Span::from_secs(60));
    let store = open(&path, &clock);
    for space in Namespace::ALL {
        drop(store.changes(space, None));
    }
    store.flush().unwrap();
    assert_eq!(names(&store, Namespace::Lists), ["203.0.113.8"]);
    assert!(names(&store, Namespace::Pauses).is_empty() && names(&store, Namespace::Locks).is_empty());
    drop(store);
    let file = Database::open(&path).unwrap();
    let tables: Vec<String> =
        file.begin_write().unwrap().list_tables().unwrap().map(|table| table.name().to_owned()).collect();
    assert!(!tables.contains(&"records".to_owned()), "{tables:?}");
}
