//! `tollgate doctor` at stores that are not servers: a file, and memory.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod patient;
mod program;

use patient::Patient;
use program::Home;

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
fn a_file_that_is_no_store_is_warned_of_and_not_touched() {
    let home = Home::empty();
    std::fs::write(home.path("t.redb"), "a letter to somebody").unwrap();
    std::fs::write(home.path("t.redb.damaged-1"), "").unwrap();
    let patient = Patient::of(&format!("{{ file: {} }}", home.path("t.redb").display()));
    let (words, code) = patient.words();
    assert!(code == 1 && words.contains("is no store: the server sets it aside"), "{words}");
    assert!(
        words.contains("a file was damaged and set aside, as") && words.contains("t.redb.damaged-1"),
        "{words}"
    );
    assert_eq!(std::fs::read(home.path("t.redb")).unwrap(), b"a letter to somebody");
    assert_eq!(patient.json()["verdict"], "warning");
}

#[test]
fn a_directory_that_is_not_there_is_a_problem() {
    let (words, code) = Patient::of("{ file: ./nowhere/t.redb }").words();
    assert!(code == 2 && words.contains("./nowhere cannot be written to"), "{words}");
    let (words, code) = Patient::of("{ file: . }").words();
    assert!(code == 2 && words.contains(". is not a file"), "{words}");
}

#[test]
fn memory_has_nothing_to_look_at() {
    let patient = Patient::of("memory");
    let (words, code) = patient.words();
    assert!(code == 0 && words.contains("there is nothing to look at from outside"), "{words}");
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
