//! `tollgate doctor` at stores without a server: a file, and memory.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use crate::patient::Patient;
use crate::program::{Home, Signal};

#[test]
fn a_file_is_looked_at_beside_the_server_that_has_it_and_without_it() {
    let home = Home::empty();
    let store = format!("{{ file: {} }}", home.path("t.redb").display());
    let patient = Patient::of(&store);
    let (words, code) = patient.words();
    assert!(code == 0 && words.contains("t.redb yet: the server begins one"), "{words}");
    let home = home.variable("TOLLGATE__STORE", &store);
    let server = home.start();
    let (words, code) = patient.words();
    assert!(code == 0 && words.contains("a process has it open"), "{words}");
    let size = std::fs::metadata(home.path("t.redb")).unwrap().len();
    assert!(words.contains(&format!("t.redb has {size} bytes")), "{words}");
    assert!(words.ends_with("\n\nall is fine\n"), "{words}");
    server.stop();
    let (words, code) = patient.words();
    assert!(code == 0 && words.contains("no process has it open"), "{words}");
    let left: Vec<_> =
        std::fs::read_dir(home.directory()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["t.redb"], "nothing is left behind");
}

#[test]
fn a_file_that_is_no_store_is_a_problem_and_not_touched() {
    let home = Home::empty();
    std::fs::write(home.path("t.redb"), "a letter to a friend").unwrap();
    std::fs::write(home.path("t.redb.damaged-1"), "").unwrap();
    let patient = Patient::of(&format!("{{ file: {} }}", home.path("t.redb").display()));
    let (words, code) = patient.words();
    assert!(code == 2 && words.contains("is not a state file: the server does not start"), "{words}");
    assert!(
        words.contains("a file was damaged and set aside, as") && words.contains("t.redb.damaged-1"),
        "{words}"
    );
    assert_eq!(std::fs::read(home.path("t.redb")).unwrap(), b"a letter to a friend");
    assert_eq!(patient.json()["verdict"], "problem");
}

#[test]
fn damage_is_found_before_the_server_starts() {
    let home = Home::empty();
    let store = format!("{{ file: {}, sync: always }}", home.path("t.redb").display());
    let patient = Patient::of(&store);
    let home = home.variable("TOLLGATE__STORE", &store);
    let server = home.start();
    for ip in ["192.0.2.1", "192.0.2.2"] {
        let fields = serde_json::json!({ "ip": ip });
        server.check(&serde_json::json!({ "policy": "api", "fields": fields })).ok();
    }
    server.end_by(Signal::KILL);
    let sound = std::fs::read(home.path("t.redb")).unwrap();
    let (words, code) = patient.words();
    assert!(code == 0 && words.contains("3 keys, and all of it can be read"), "{words}");
    let newest = if sound[9] & 1 == 0 { 64 } else { 192 };
    let damaged = |range: std::ops::Range<usize>, with: u8| {
        let mut bytes = sound.clone();
        bytes[range].fill(with);
        bytes
    };
    for (bytes, found) in [
        (Vec::new(), "is empty: the server starts counting at zero"),
        (sound[..sound.len() / 16].to_vec(), "is damaged ("),
        (damaged(0..sound.len(), 0), "is damaged ("),
        (damaged(0..512, 0x5a), "is damaged ("),
        (damaged(newest + 8..newest + 100, 0x5a), "2 keys; the newest commit is damaged"),
    ] {
        std::fs::write(home.path("t.redb"), &bytes).unwrap();
        let (words, code) = patient.words();
        assert!(code == 1 && words.contains(found), "{found}: {words}");
        assert!(std::fs::read(home.path("t.redb")).unwrap() == bytes, "{found}: the file was changed");
    }
    std::fs::write(home.path("t.redb"), &sound).unwrap();
    let wide = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(home.path("t.redb"), wide).unwrap();
    let (words, code) = patient.words();
    assert!(code == 1 && words.contains("its mode is 666") && words.contains("chmod 600"), "{words}");
}

#[test]
fn a_directory_that_is_not_there_is_a_problem() {
    let (words, code) = Patient::of("{ file: ./nowhere/t.redb }").words();
    assert!(code == 2 && words.contains("./nowhere cannot be written to"), "{words}");
    let (words, code) = Patient::of("{ file: . }").words();
    assert!(code == 2 && words.contains(". is a directory"), "{words}");
}

#[test]
fn memory_has_nothing_to_look_at() {
    let patient = Patient::of("memory");
    let (words, code) = patient.words();
    assert!(code == 0 && words.contains("there is nothing to check from outside"), "{words}");
    let report = patient.json();
    assert_eq!((&report["verdict"], &report["store"]["kind"]), (&"note".into(), &"memory".into()));
}

#[test]
fn a_configuration_that_cannot_be_used_is_a_problem() {
    let patient = Patient::of("redis://:hunter2@");
    let (words, code) = patient.words();
    assert!(code == 2 && words.contains("the host is missing") && !words.contains("hunter2"), "{words}");
    assert_eq!(patient.json()["ok"], false);
}
