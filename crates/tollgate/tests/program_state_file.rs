//! State files and ports that cannot be used: damaged ones are set aside unread, those of somebody
//! else are left alone and named.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod program;

use program::{Home, text};
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

#[test]
fn a_file_that_is_something_else_is_kept() {
    let home = Home::with(CONFIG);
    let letter = "Dear diary,\n".repeat(1000);
    std::fs::write(home.path("state.redb"), &letter).unwrap();
    let server = home.start();
    server.check(&json!({ "policy": "p", "fields": { "user": "ada" } })).ok();
    server.stop();
    let kept = std::fs::read_dir(home.directory())
        .unwrap()
        .any(|entry| std::fs::read(entry.unwrap().path()).is_ok_and(|bytes| bytes == letter.as_bytes()));
    assert!(kept);
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
