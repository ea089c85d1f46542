//! The directory of the relay's queue: the server uses its own or an empty one, and touches nothing else. `doctor` says
//! the same beforehand.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::mail::{Client, home, submit};
use crate::program::{Home, Signal, text};

/// Every path below a directory, and the content of files.
fn contents(directory: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut all = BTreeMap::new();
    for path in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
        let kind = fs::symlink_metadata(&path).unwrap();
        if kind.is_dir() {
            all.extend(contents(&path));
        }
        all.insert(path.clone(), kind.is_file().then(|| fs::read(&path).unwrap()));
    }
    all
}

fn doctor(home: &Home) -> (String, Option<i32>) {
    let output = home.program().args(["doctor", "tollgate.yaml"]).output().unwrap();
    (format!("{}{}", text(&output.stdout), text(&output.stderr)), output.status.code())
}

/// A queue that was used, with one message that waits.
fn used() -> Home {
    // Nothing listens there, so the message stays.
    let home = home(9, "store: memory", "");
    let server = home.start();
    submit(server.relays[0], "waits", &["a@one.example"]);
    assert!(!server.end_by(Signal::TERM).log.contains("missing or empty"));
    home
}

#[test]
fn a_path_that_is_no_queue_is_refused_and_left_unchanged() {
    let queue = |home: &Home| home.path("queue");
    type Prepare = fn(&Path);
    let cases: [(&str, Prepare); 7] = [
        ("is not a directory", |queue| fs::write(queue, "Dear diary").unwrap()),
        ("is not empty, and not a mail queue", |queue| {
            fs::create_dir_all(queue.join("texts")).unwrap();
            fs::write(queue.join("texts").join("0".repeat(32)), "Dear diary").unwrap();
        }),
        ("was not written by tollgate", |queue| {
            fs::create_dir(queue).unwrap();
            fs::write(queue.join("lock"), "Dear diary").unwrap();
        }),
        ("is not a regular file", |queue| {
            fs::create_dir(queue).unwrap();
            rustix::fs::mkfifoat(rustix::fs::CWD, queue.join("lock"), rustix::fs::Mode::RWXU).unwrap();
        }),
        ("is not a regular file", |queue| {
            fs::rename(queue.join("queue.redb"), queue.join("moved")).unwrap();
            std::os::unix::fs::symlink("moved", queue.join("queue.redb")).unwrap();
        }),
        ("is not a regular file", |queue| {
            fs::remove_file(queue.join("queue.redb")).unwrap();
            rustix::fs::mkfifoat(rustix::fs::CWD, queue.join("queue.redb"), rustix::fs::Mode::RWXU).unwrap();
        }),
        ("is not the database of a queue", |queue| {
            fs::write(queue.join("queue.redb"), "Dear diary").unwrap();
        }),
    ];
    for (number, (what, prepare)) in cases.into_iter().enumerate() {
        let home = if number < 4 { home(9, "store: memory", "") } else { used() };
        prepare(&queue(&home));
        let before = contents(home.directory());
        let refused = home.refused();
        let said = text(&refused.stderr);
        assert_eq!((refused.status.code(), said.contains(what)), (Some(2), true), "{what}: {said}");
        let (found, code) = doctor(&home);
        assert!(code == Some(2) && found.contains(what), "{what}: {found}");
        assert_eq!(contents(home.directory()), before, "{what}: something was changed");
    }
}

#[test]
fn a_database_that_is_gone_is_logged_as_an_error() {
    for empties in [true, false] {
        let home = used();
        let database = home.path("queue").join("queue.redb");
        let (found, code) = doctor(&home);
        assert!(code == Some(0) && found.contains("no process uses"), "{found}");
        if empties {
            fs::write(&database, "").unwrap()
        } else {
            fs::remove_file(&database).unwrap()
        }
        let (found, code) = doctor(&home);
        assert!(code == Some(1) && found.contains("is missing or empty"), "{found}");
        let log = home.start().stop();
        let line = log.lines().find(|line| line.contains("the queue's database is missing or empty"));
        assert!(line.is_some_and(|line| line.contains("\"level\":\"error\"")), "{log}");
        assert!(!home.start().stop().contains("missing or empty"), "it is told once");
    }
}

#[test]
fn a_damaged_queue_starts_with_the_messages_that_can_be_read() {
    // Nothing listens there, so the messages stay.
    let home = home(9, "store: memory", "");
    let server = home.start();
    for number in 0..40 {
        submit(server.relays[0], &format!("waits-{number}"), &[&format!("a{number}@one.example")]);
    }
    server.end_by(Signal::TERM);
    let database = home.path("queue").join("queue.redb");
    let sound = fs::read(&database).unwrap();
    let needle = b"a17@one.example";
    let at = sound.windows(needle.len()).position(|window| window == needle).unwrap();
    for (what, from, to) in [
        ("an entry", at, at + 1),
        ("a page", at / 4_096 * 4_096, at / 4_096 * 4_096 + 4_096),
        ("the header", 0, 9),
    ] {
        let mut damaged = sound.clone();
        damaged[from..to].iter_mut().for_each(|byte| *byte ^= 0x20);
        fs::write(&database, &damaged).unwrap();
        let server = home.start();
        let listed = home.run(&server, &["queue", "list", "--limit", "100", "--json"]);
        let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
        let left = listed["messages"].as_array().map_or(0, Vec::len);
        assert!((20..=40).contains(&left), "{what}: {left}");
        let log = server.stop();
        let line = log
            .lines()
            .find(|line| line.contains("the queue's database is damaged"))
            .unwrap_or_else(|| panic!("{what}: {log}"));
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["level"], "error");
        let kept = home.path(line["to"].as_str().unwrap()).join("queue.redb");
        assert_eq!(fs::read(kept).unwrap(), damaged, "{what}: it is kept as it was found");
        let (found, _) = doctor(&home);
        assert!(found.contains("a damaged queue was set aside"), "{found}");
        assert!(!home.start().stop().contains("damaged"), "it is told once");
    }
}

#[test]
fn a_queue_that_vanishes_is_not_ready_takes_no_mail_and_doctor_finds_it() {
    for replaced in [false, true] {
        let home = home(9, "store: memory", "");
        let server = home.start();
        submit(server.relays[0], "waits", &["a@one.example"]);
        assert!(server.get("/readyz").text().contains("ready"));
        fs::remove_dir_all(home.path("queue")).unwrap();
        if replaced {
            fs::create_dir(home.path("queue")).unwrap();
        }
        let ready = server.get("/readyz").text().to_owned();
        assert!(ready.contains("degraded") && ready.contains("was deleted or moved"), "{ready}");
        let reply = Client::greeted(server.relays[0]).unwrap().send("lost", &["a@one.example"]).unwrap();
        assert!(reply.starts_with("451 "), "{reply}");
        let (found, code) = doctor(&home);
        assert!(code == Some(2) && found.contains("a server uses the queue that was deleted"), "{found}");
        server.end_by(Signal::KILL);
        let (found, _) = doctor(&home);
        assert!(!found.contains("was deleted"), "{found}");
    }
}
