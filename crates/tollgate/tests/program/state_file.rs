//! Unusable state files and ports: damaged state files are set aside, everything else is left alone and
//! named.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::program::{Home, Signal, text};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::json;

const CONFIG: &str = "
store: { file: ./state.redb, sync: always }
rules: { one: { by: user, limits: 10/day } }
policies: { p: [one] }
";

#[test]
fn a_damaged_file_is_set_aside_as_it_was_and_counting_goes_on() {
    let home = Home::with(CONFIG);
    let server = home.start();
    server.check(&json!({ "policy": "p", "fields": { "user": "ada" } })).ok();
    server.stop();
    let file = home.path("state.redb");
    let mut damaged = std::fs::read(&file).unwrap();
    let middle = damaged.len() / 2;
    damaged[..512].fill(0x5a);
    damaged[middle..middle + 64].fill(0xa5);
    std::fs::write(&file, &damaged).unwrap();

    let server = home.start();
    assert_eq!(server.remaining("one", "ada"), 10, "counting starts afresh");
    server.check(&json!({ "policy": "p", "fields": { "user": "ada" } })).ok();
    let log = server.stop();
    let line = log.lines().find(|line| line.contains("damaged")).unwrap_or_else(|| panic!("{log}"));
    assert!(line.contains("ERROR") && line.contains("state.redb"), "{line}");
    let aside: Vec<_> = std::fs::read_dir(home.directory())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name.starts_with("state.redb") && name != "state.redb"
        })
        .collect();
    assert_eq!(aside.len(), 1, "{aside:?}");
    assert!(std::fs::read(&aside[0]).unwrap() == damaged, "the file was changed");
    assert!(line.contains(aside[0].file_name().unwrap().to_str().unwrap()), "{line} does not say where to");

    let server = home.start();
    assert_eq!(server.remaining("one", "ada"), 9, "the new file is a sound one");
    assert!(!server.stop().contains("damaged"));
}

/// Every name in a server's directory, and the content of files.
fn contents(home: &Home) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let entries = std::fs::read_dir(home.directory()).unwrap().map(|entry| entry.unwrap().path());
    let content = |path: &PathBuf| {
        let regular = std::fs::symlink_metadata(path).unwrap().is_file();
        regular.then(|| std::fs::read(path).unwrap())
    };
    entries.map(|path| (path.clone(), content(&path))).collect()
}

#[test]
fn a_path_that_is_no_state_file_is_refused_and_left_unchanged() {
    let rules = "rules: { one: { by: user, limits: 10/day } }\npolicies: { p: [one] }\n";
    for (file, what) in [
        ("letter.txt", "is not a state file"),
        ("directory", "is a directory"),
        ("pipe", "is a named pipe"),
        ("link", "is a symbolic link"),
        ("/dev/null", "is a device"),
        ("tollgate.yaml", "is this configuration itself"),
        ("config-link", "is this configuration itself"),
    ] {
        let home = Home::with(&format!("store: {{ file: '{file}' }}\n{rules}"));
        std::fs::write(home.path("letter.txt"), "Dear diary,\n".repeat(1000)).unwrap();
        std::fs::create_dir(home.path("directory")).unwrap();
        std::os::unix::fs::symlink("letter.txt", home.path("link")).unwrap();
        std::os::unix::fs::symlink("tollgate.yaml", home.path("config-link")).unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, home.path("pipe"), mode).unwrap();
        let before = contents(&home);
        let refused = home.refused();
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{file}: {said}");
        assert!(said.contains(what) && said.contains("name another file in `store`"), "{file}: {said}");
        let mut doctor = home.program();
        let doctor = doctor.args(["doctor", "tollgate.yaml"]).output().unwrap();
        let found = format!("{}{}", text(&doctor.stdout), text(&doctor.stderr));
        assert!(doctor.status.code() == Some(2) && found.contains(what), "{file}: {found}");
        assert_eq!(contents(&home), before, "{file}: something was changed");
    }
    assert!(std::path::Path::new("/dev/null").exists());
}

#[test]
fn an_empty_file_where_counters_were_is_logged() {
    let home = Home::with(CONFIG);
    let server = home.start();
    server.check(&json!({ "policy": "p", "fields": { "user": "ada" } })).ok();
    assert!(!server.stop().contains("empty"));
    std::fs::write(home.path("state.redb"), "").unwrap();
    let server = home.start();
    assert_eq!(server.remaining("one", "ada"), 10);
    let log = server.stop();
    let line = log.lines().find(|line| line.contains("the state file was empty"));
    assert!(line.is_some_and(|line| line.contains("WARN") && line.contains("state.redb")), "{log}");
}

#[test]
fn a_commit_that_is_rolled_back_is_logged() {
    let home = Home::with(CONFIG);
    let server = home.start();
    for user in ["ada", "bob"] {
        server.check(&json!({ "policy": "p", "fields": { "user": user } })).ok();
    }
    server.end_by(Signal::KILL);
    // The header says which of its two commit slots is the newest. That one is damaged.
    let file = std::fs::File::options().read(true).write(true).open(home.path("state.redb")).unwrap();
    let mut flags = [0];
    file.read_exact_at(&mut flags, 9).unwrap();
    let newest = if flags[0] & 1 == 0 { 64 } else { 192 };
    file.write_all_at(&[0x5a; 100], newest + 8).unwrap();
    let server = home.start();
    assert_eq!((server.remaining("one", "ada"), server.remaining("one", "bob")), (9, 10));
    let log = server.stop();
    let line = log.lines().find(|line| line.contains("was rolled back"));
    assert!(line.is_some_and(|line| line.contains("ERROR") && line.contains("lost_commits=1")), "{log}");
    assert!(!home.start().stop().contains("rolled back"), "it is told once");
}

#[test]
fn permissions_wider_than_the_owners_are_warned_of() {
    let home = Home::with(CONFIG);
    assert!(!home.start().stop().contains("chmod"));
    let wide = std::os::unix::fs::PermissionsExt::from_mode(0o640);
    std::fs::set_permissions(home.path("state.redb"), wide).unwrap();
    let log = home.start().stop();
    let line = log.lines().find(|line| line.contains("run `chmod 600` on it"));
    assert!(line.is_some_and(|line| line.contains("WARN") && line.contains("640")), "{log}");
}

#[test]
fn a_second_server_on_the_same_file_is_refused_and_the_first_one_goes_on() {
    let home = Home::with(CONFIG);
    let server = home.start();
    let refused = home.refused();
    assert_eq!(refused.status.code(), Some(2));
    let said = text(&refused.stderr);
    assert!(said.contains("state.redb") && said.contains("in use"), "{said}");
    assert_eq!(text(&refused.stdout), "", "it does not say that it listens");
    server.check(&json!({ "policy": "p", "fields": { "user": "ada" } })).ok();
    server.stop();
    let server = home.start();
    assert_eq!(server.remaining("one", "ada"), 9);
}

#[test]
fn a_port_that_is_in_use_is_refused_and_named() {
    let first = Home::with(CONFIG);
    let server = first.start();
    let address = server.address.to_string();
    let second = Home::with(CONFIG).variable("TOLLGATE__LISTEN__HTTP", &address);
    let refused = second.refused();
    assert_eq!(refused.status.code(), Some(2));
    let said = text(&refused.stderr);
    assert!(said.contains(&address) && said.contains("in use"), "{said}");
}

#[test]
fn a_directory_that_is_not_there_is_refused_and_named() {
    let home = Home::with("store: { file: ./no/such/state.redb }\n");
    let refused = home.refused();
    assert_eq!(refused.status.code(), Some(2));
    let said = text(&refused.stderr);
    assert!(said.contains("no/such/state.redb") && said.contains("directory must exist"), "{said}");
    assert_eq!(said.matches("os error").count(), 1, "the cause is told once: {said}");
}

#[test]
fn a_file_that_may_not_grow_stops_no_decision() {
    let home = Home::with(
        "
store: { file: ./state.redb, flush_interval: 100ms }
rules: { one: { by: user, limits: 10/day } }
policies: { p: [one] }
",
    );
    let server = home.start();
    let size = std::fs::metadata(home.path("state.redb")).unwrap().len();
    let bound = Rlimit { current: Some(size), maximum: Some(size) };
    let pid = Pid::from_raw(i32::try_from(server.pid()).unwrap());
    prlimit(pid, Resource::Fsize, bound).unwrap();
    for round in 0..200 {
        let one = |n| json!({ "policy": "p", "fields": { "user": format!("user-{round}-{n}") } });
        server.post("/api/v1/check", &json!({ "attempts": (0..100).map(one).collect::<Vec<_>>() })).ok();
    }
    server.wait_for_log("counters cannot be saved");
    server.check(&json!({ "policy": "p", "fields": { "user": "ada" } })).ok();
    assert_eq!(server.remaining("one", "ada"), 9, "it counts on");
}
