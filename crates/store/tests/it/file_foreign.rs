//! Foreign files are refused and left unchanged. Also: what is reported of state files with a problem.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{Database, TableDefinition};
use tempfile::TempDir;
use tollgate_core::store::{Refunded, Store};
use tollgate_core::{Charges, Outcome, Plan, Span, Ticket, Timestamp};
use tollgate_store::file::{Condition, FileOptions, Inspection, OpenError, OpenReport, Syncing, inspect};
use tollgate_store::{FileStore, ManualClock};

const START: Timestamp = Timestamp::from_micros(1_760_000_045_000_000);

fn open(path: &Path) -> Result<(FileStore, OpenReport), OpenError> {
    open_with(path, Syncing::Interval)
}

fn open_with(path: &Path, sync: Syncing) -> Result<(FileStore, OpenReport), OpenError> {
    let options = FileOptions {
        flush_interval: Span::from_secs(3_600),
        sync,
        max_keys: 1_000,
        on_event: Box::new(|event| panic!("{event:?}")),
    };
    FileStore::open(path, Arc::new(ManualClock::at(START)), options)
}

fn take(store: &FileStore, key: &str) {
    let plan = Arc::new(Plan::new("client".into(), vec!["10/hour".parse().unwrap()]).unwrap());
    let mut charges = Charges::new(Ticket(7), 1, None);
    charges.push(&plan, key, true);
    drop(store.take(&charges, &mut Outcome::default()));
    store.flush().unwrap();
}

/// Every name in a directory, and the content of regular files.
fn contents(directory: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let content =
        |path: &PathBuf| fs::symlink_metadata(path).unwrap().is_file().then(|| fs::read(path).unwrap());
    entries.map(|path| (path.clone(), content(&path))).collect()
}

/// Opens a path that is not a state file, and checks that nothing around it has changed.
fn refuses(path: &Path, what: &str) {
    let before = contents(path.parent().unwrap());
    let Err(error) = open(path) else { panic!("{what} was opened") };
    let OpenError::Foreign { what: told, .. } = &error else { panic!("{what}: {error}") };
    assert_eq!(*told, what);
    let text = error.to_string();
    assert!(text.contains("name another file in `store`"), "{text}");
    let Err(OpenError::Foreign { what: told, .. }) = inspect(path) else { panic!("{what} was inspected") };
    assert_eq!(told, what);
    assert_eq!(contents(path.parent().unwrap()), before, "{what}: something was changed");
}

#[test]
fn only_regular_files_are_opened() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::create_dir(path("directory")).unwrap();
    refuses(&path("directory"), "a directory");
    drop(open(&path("state")).unwrap());
    symlink(path("state"), path("link")).unwrap();
    refuses(&path("link"), "a symbolic link");
    symlink(path("missing"), path("dangling")).unwrap();
    refuses(&path("dangling"), "a symbolic link");
    let _socket = UnixListener::bind(path("socket")).unwrap();
    refuses(&path("socket"), "a socket");
    rustix::fs::mkfifoat(rustix::fs::CWD, path("pipe"), rustix::fs::Mode::RUSR).unwrap();
    refuses(&path("pipe"), "a named pipe");
    let Err(error) = open(Path::new("/dev/null")) else { panic!("a device was opened") };
    assert!(matches!(error, OpenError::Foreign { what: "a device", .. }), "{error}");
    assert!(Path::new("/dev/null").exists(), "a device was renamed");
}

#[test]
fn a_linked_directory_is_followed() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("real")).unwrap();
    symlink(directory.path().join("real"), directory.path().join("link")).unwrap();
    drop(open(&directory.path().join("link/state")).unwrap());
    assert!(directory.path().join("real/state").is_file());
}

#[test]
fn files_of_other_programs_are_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.redb");
    for content in
        [&b"rules:\n  client: { by: ip }\n"[..], b"redb", b"\x7fELF\0\0\0\0\0\0\0\0", &[0xff; 100_000]]
    {
        fs::write(&path, content).unwrap();
        refuses(&path, "not a state file");
    }
    let mut mostly_zeros = vec![0; 600_000];
    mostly_zeros[599_999] = 1;
    fs::write(&path, mostly_zeros).unwrap();
    refuses(&path, "not a state file");
    fs::remove_file(&path).unwrap();
    let database = Database::create(&path).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(TableDefinition::<&str, u64>::new("meta")).unwrap().insert("format", 2).unwrap();
    transaction.commit().unwrap();
    drop(database);
    refuses(&path, "a database of another program");
}

#[test]
fn a_file_under_the_name_of_a_draft_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.redb");
    let draft = directory.path().join("state.redb.new");
    fs::write(directory.path().join("diary"), "Dear diary").unwrap();
    for put in [
        |draft: &Path| symlink("diary", draft).unwrap(),
        |draft: &Path| fs::write(draft, "a new state of the union").unwrap(),
    ] {
        put(&draft);
        let before = contents(directory.path());
        let Err(error) = open(&path) else { panic!("it was opened") };
        assert!(
            matches!(&error, OpenError::Foreign { path, .. } if path.ends_with("state.redb.new")),
            "{error}"
        );
        assert_eq!(contents(directory.path()), before);
        fs::remove_file(&draft).unwrap();
    }
}

#[test]
fn a_state_file_is_recognised_by_any_of_its_traces() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.redb");
    drop(open(&path).unwrap());
    let sound = fs::read(&path).unwrap();
    let zeroed = |range: std::ops::Range<usize>| {
        let mut bytes = sound.clone();
        bytes[range].fill(0);
        bytes
    };
    let damaged = [zeroed(0..512), zeroed(0..4_096), zeroed(0..sound.len()), sound[..5].to_vec()];
    for (round, bytes) in damaged.into_iter().enumerate() {
        fs::write(&path, &bytes).unwrap();
        let condition = inspect(&path).unwrap().unwrap().condition;
        assert!(matches!(condition, Condition::Damaged { .. }), "round {round}: {condition:?}");
        let (store, report) = open(&path).unwrap_or_else(|error| panic!("round {round}: {error}"));
        let aside = report.set_aside.unwrap();
        assert!(fs::read(&aside.to).unwrap() == bytes, "round {round}: the file was changed");
        drop(store);
    }
}

#[test]
fn an_empty_file_and_wide_permissions_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.redb");
    let (store, report) = open(&path).unwrap();
    assert_eq!(report, OpenReport::default());
    drop(store);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(open(&path).unwrap().1, OpenReport { wide_permissions: Some(0o644), ..OpenReport::default() });
    assert_eq!(inspect(&path).unwrap().unwrap().wide_permissions, Some(0o644));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
    let empty = Inspection { bytes: 0, wide_permissions: None, condition: Condition::Empty };
    assert_eq!(inspect(&path).unwrap(), Some(empty));
    assert_eq!(open(&path).unwrap().1, OpenReport { was_empty: true, ..OpenReport::default() });
    assert_eq!(inspect(&directory.path().join("missing")).unwrap(), None);
}

/// A copy of a running store's file, as a crash of the machine would leave it.
fn crashed(sync: Syncing) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let (path, copy) = (directory.path().join("state.redb"), directory.path().join("copy.redb"));
    let (store, _) = open_with(&path, sync).unwrap();
    take(&store, "ada");
    take(&store, "bob");
    assert_eq!(inspect(&path).unwrap().unwrap().condition, Condition::InUse);
    fs::copy(&path, &copy).unwrap();
    (directory, copy)
}

#[test]
fn a_crash_alone_loses_no_commit() {
    let (_directory, path) = crashed(Syncing::Interval);
    let sound = Condition::Sound { keys: 2, lost_commits: 0 };
    assert_eq!(inspect(&path).unwrap().unwrap().condition, sound);
    let before = fs::read(&path).unwrap();
    assert_eq!(inspect(&path).unwrap().unwrap().condition, sound);
    assert!(fs::read(&path).unwrap() == before, "looking changes nothing");
    let (_store, report) = open(&path).unwrap();
    assert_eq!((report.keys, report.lost_commits), (2, 0));
}

#[test]
fn a_commit_that_is_rolled_back_is_told_and_nothing_of_it_is_given_back() {
    for sync in [Syncing::Interval, Syncing::Always] {
        let (_directory, path) = crashed(sync);
        // The header says which of its two commit slots is the newest. That one is damaged.
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let mut flags = [0];
        file.read_exact_at(&mut flags, 9).unwrap();
        let newest = if flags[0] & 1 == 0 { 64 } else { 192 };
        file.write_all_at(&[0; 100], newest + 8).unwrap();
        let condition = inspect(&path).unwrap().unwrap().condition;
        assert_eq!(condition, Condition::Sound { keys: 1, lost_commits: 1 });
        let (store, report) = open_with(&path, sync).unwrap();
        assert_eq!((report.keys, report.lost_commits), (1, 1));
        let plan = Arc::new(Plan::new("client".into(), vec!["10/hour".parse().unwrap()]).unwrap());
        let mut charges = Charges::new(Ticket(7), 1, None);
        charges.push(&plan, "ada", true);
        let tollgate_core::store::Answer::Ready(Some(Ok(given))) = store.refund(&charges, START) else {
            panic!("refunding back answers at once")
        };
        assert_ne!(given, Refunded::Done, "what was taken last may be among what is lost");
        drop(store);
        let (_store, report) = open_with(&path, sync).unwrap();
        assert_eq!((report.keys, report.lost_commits), (1, 0), "it is told once");
    }
}
