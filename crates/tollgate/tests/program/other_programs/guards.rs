//! Guards in the real program, on a file and on Redis: failures climb as in the table, parallel guesses gain
//! nothing, and no lock is lost.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::guarding::{
    Stage, begin, begin_in_time, fail, finish, inspect, lines, locks, on, refused_within, started,
};
use crate::program::{self, Connection, Home, Signal, request, text};
use serde_json::{Value, json};
use tollgate_testbed::Server as Redis;

/// As in the table, by the account alone.
const STANDARD: &str = "guards: { login: by user }\n";
/// Locks at the second failure, for longer than any test takes.
const SHORT: &str = "guards: { login: { by: [user, ip], ladder: ladder 2 lock 1h notify } }\n";

#[test]
fn failures_bring_delays_a_captcha_and_a_lock_as_the_table_has_it() {
    for mut stage in Stage::all(STANDARD) {
        let (server, on) = (stage.home.start(), stage.name());
        let ada = json!({ "user": "ada.lovelace" });
        for number in 1..=11_u64 {
            let start = started();
            let begun = begin_in_time(&server, &ada);
            let next = &begun["if_failed"];
            assert_eq!(begun["captcha"], number > 6, "{on}: attempt {number}");
            let (delay, captcha) = match number {
                1..=3 => (0, false),
                4..=5 => (2, false),
                6..=10 => (5, true),
                _ => (900, false),
            };
            assert_eq!(
                (&next["delay_ms"], &next["captcha"], next["locked_until"].is_string()),
                (&json!(delay * 1_000), &json!(captcha), number == 11),
                "{on}: after failure {number}"
            );
            assert_eq!(finish(&server, &begun, "failure"), "now");
            if delay > 0
                && let Some(refused) = refused_within(&server, &ada, start, Duration::from_secs(delay))
            {
                let wait = refused["delay_ms"].as_u64().unwrap();
                assert!((1..=delay * 1_000).contains(&wait), "{on}: {refused}");
                assert_eq!(refused["captcha"], captcha);
                assert_eq!(refused["locked_until"], next["locked_until"]);
            }
            if number < 11 {
                stage.advance(delay.cast_signed());
            }
        }
        let locked = inspect(&server, &ada);
        stage.advance(13 * 60);
        for _ in 0..5 {
            assert_eq!(begin(&server, &ada).status, 429, "{on}");
        }
        let still = inspect(&server, &ada);
        assert_eq!(still[0]["failures"], 11, "{on}: what is refused counts nothing");
        assert_eq!(still[0]["locked_until"], locked[0]["locked_until"], "{on}: and lengthens nothing");
        assert_eq!(locks(&server).len(), 1);
        stage.advance(2 * 60);
        let begun = begin_in_time(&server, &ada);
        assert_eq!(begun["captcha"], false, "{on}: the lock is over, and all is forgotten");
        assert_eq!(inspect(&server, &ada)[0]["failures"], 1);
        assert_eq!(locks(&server), Vec::<Value>::new());
        let log = server.stop();
        let told = lines(&log, "locked");
        assert_eq!(told.len(), 1, "{on}: {log}");
        assert_eq!((&told[0]["failures"], &told[0]["lasts"]), (&json!(11), &json!("15m")));
        assert!(!log.contains("lovelace"), "{on}: keys of accounts are not for everybody: {log}");
    }
}

#[test]
fn parallel_guesses_do_not_slip_through() {
    for stage in Stage::all("guards: { login: { by: user, ladder: ladder 4 lock 1h } }\n") {
        let server = stage.home.start();
        let ada = json!({ "user": "ada" });
        let statuses: Vec<u16> = thread::scope(|scope| {
            let threads: Vec<_> = (0..100).map(|_| scope.spawn(|| begin(&server, &ada).status)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let allowed = statuses.iter().filter(|status| **status == 200).count();
        assert_eq!(allowed, 4, "{}: three are free, and the fourth locks", stage.name());
        assert!(statuses.iter().all(|status| [200, 429].contains(status)));
    }
}

#[test]
fn a_success_clears_an_abandoned_attempt_is_refunded_and_an_unfinished_one_stays() {
    for stage in Stage::all("guards: { login: { by: user, ladder: ladder 9 lock 1h } }\n") {
        let server = stage.home.start();
        let ada = json!({ "user": "ada" });
        let failures = || inspect(&server, &ada)[0]["failures"].clone();
        for _ in 0..3 {
            fail(&server, &ada);
        }
        let abandoned = begin_in_time(&server, &ada);
        assert_eq!(failures(), 4);
        assert_eq!(finish(&server, &abandoned, "abandoned"), "now");
        let open = begin_in_time(&server, &ada);
        assert_eq!(failures(), 4, "{}: what is not finished is a failure", stage.name());
        let won = begin_in_time(&server, &ada);
        assert_eq!(finish(&server, &won, "success"), "now");
        assert_eq!(failures(), 0);
        assert_eq!(finish(&server, &won, "failure"), "already");
        assert_eq!(finish(&server, &open, "failure"), "now", "it began before the success");
        assert_eq!(failures(), 0);
    }
}

#[test]
fn a_lock_survives_a_kill_and_an_operator_lifts_it() {
    for stage in Stage::all(SHORT) {
        let server = stage.home.start();
        let (home, other) =
            (json!({ "user": "ada", "ip": "192.0.2.1" }), json!({ "user": "ada", "ip": "192.0.2.2" }));
        for fields in [&home, &home, &other] {
            fail(&server, fields);
        }
        assert_eq!(begin(&server, &home).status, 429);
        server.end_by(Signal::KILL);
        let server = stage.home.start();
        assert_eq!(begin(&server, &home).status, 429, "{}: killed, and still locked", stage.name());
        assert_eq!(inspect(&server, &other)[0]["failures"], 1, "and still remembered");
        assert_eq!(locks(&server).len(), 1);
        let run = |arguments: &[&str]| {
            let run = stage.home.run(&server, arguments);
            (run.status.code(), format!("{}{}", text(&run.stdout), text(&run.stderr)))
        };
        let (code, said) = run(&["guard", "begin", "login", "user=ada", "ip=192.0.2.1"]);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.starts_with("denied by login, locked until 20"), "{said}");
        let (_, said) = run(&["guard", "locks", "login"]);
        assert!(said.contains("login  #") && said.lines().count() == 2, "{said}");
        let (_, said) = run(&["guard", "inspect", "login", "user=ada", "ip=192.0.2.1"]);
        assert!(said.lines().nth(1).unwrap().contains(" 2 "), "{said}");
        let (code, said) = run(&["guard", "unlock", "login", "user=ada"]);
        assert_eq!((code, said.starts_with("forgot the failures of login #")), (Some(0), true), "{said}");
        assert_eq!(run(&["guard", "locks", "login"]).1, "there are no locks\n");
        let (code, said) = run(&["guard", "begin", "login", "user=ada", "ip=192.0.2.1", "--json"]);
        let begun: Value = serde_json::from_str(&said).unwrap();
        assert_eq!((code, &begun["allowed"]), (Some(0), &json!(true)));
        let ticket = begun["ticket"].as_str().unwrap();
        let (_, said) = run(&["guard", "finish", ticket, "success"]);
        assert_eq!(said, "finished as success at login\n");
        assert!(run(&["guard", "finish", ticket, "failure"]).1.starts_with("it was finished before"));
        let (code, said) = run(&["guard", "finish", "forged", "failure"]);
        assert!(code == Some(2) && said.contains("this is not a ticket of this server"), "{said}");
        assert!(run(&["guard", "list"]).1.contains("login"));
        let log = server.stop();
        let audit = lines(&log, "changed over the API");
        assert_eq!((audit.len(), &audit[0]["action"]), (1, &json!("guard.unlock")), "{log}");
    }
}

/// Locks users one after the other until the connection breaks, and counts them.
fn lock_until_it_breaks(mut connection: Connection, round: usize, locked: &AtomicUsize) {
    for number in 0.. {
        let fields = json!({ "user": format!("user{round}.{number}"), "ip": "192.0.2.1" });
        let begin = request("POST", "/api/v1/guards/login/begin", &[], Some(&json!({ "fields": fields })));
        // The second attempt counts as a failure from its start, and so it locks, whether or not it is
        // finished.
        for _ in 0..2 {
            let sent = connection.try_send(&begin);
            let Some(reply) = sent.ok().and_then(|()| connection.reply()) else { return };
            assert_eq!(reply.status, 200, "{}", reply.text());
        }
        locked.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn with_sync_always_every_lock_that_was_answered_survives_a_kill() {
    let home = Home::with(&format!("store: {{ file: ./t.redb, sync: always }}\n{SHORT}"));
    for round in 0..4 {
        let server = home.start();
        let locked = AtomicUsize::new(0);
        thread::scope(|scope| {
            let connection = server.connect();
            scope.spawn(|| lock_until_it_breaks(connection, round, &locked));
            program::wait_until("some locks", || locked.load(Ordering::SeqCst) > 5);
            program::pause(Duration::from_millis(3 * round as u64));
            server.signal(Signal::KILL);
        });
        server.ended();
        let server = home.start();
        for number in 0..locked.into_inner() {
            let fields = json!({ "user": format!("user{round}.{number}"), "ip": "192.0.2.1" });
            assert_eq!(begin(&server, &fields).status, 429, "{round} {number}");
        }
        server.end_by(Signal::KILL);
    }
}

#[test]
fn a_login_begun_on_one_node_can_finish_on_another_and_both_list_the_lock() {
    let redis = Redis::redis().start();
    let homes = [0, 1].map(|_| Home::with(&on(&redis, SHORT)));
    let [one, other] = [homes[0].start(), homes[1].start()];
    let ada = json!({ "user": "ada", "ip": "192.0.2.1" });
    let first = begin_in_time(&one, &ada);
    assert_eq!(finish(&other, &first, "failure"), "now");
    assert_eq!(finish(&one, &first, "success"), "already");
    let second = begin_in_time(&other, &ada);
    assert_eq!(finish(&one, &second, "failure"), "now");
    for server in [&one, &other] {
        assert_eq!(begin(server, &ada).status, 429);
        program::wait_until("the lock in the list", || locks(server).len() == 1);
    }
    let unlock = json!({ "fields": { "user": "ada" } });
    assert_eq!(other.post("/api/v1/guards/login/unlock", &unlock).ok()["unlocked"][0]["rule"], "login");
    program::wait_until("the lock's end", || begin(&one, &ada).status == 200);
    let logs = [one.stop(), other.stop()].concat();
    assert_eq!(lines(&logs, "locked").len(), 1, "one of them tells: {logs}");
}

#[test]
fn a_reload_replaces_guards_and_keeps_failures() {
    let config = |guards: &str| format!("store: memory\nlog: {{ format: json }}\n{guards}");
    let home = Home::with(&config("guards: { login: { by: user, ladder: ladder 3 lock 1h } }"));
    let server = home.start();
    let ada = json!({ "user": "ada" });
    for _ in 0..2 {
        fail(&server, &ada);
    }
    assert!(inspect(&server, &ada)[0]["locked_until"].is_null());
    home.configure(&config("guards: { login: { by: user, ladder: ladder 2 lock 1h } }"));
    program::wait_until("the other ladder", || inspect(&server, &ada)[0]["locked_until"].is_string());
    assert_eq!(begin(&server, &ada).status, 429);
    home.configure(&config("guards: { signin: { by: user } }"));
    program::wait_until("the other guard", || begin(&server, &ada).status == 404);
    let reply = server.post("/api/v1/guards/signn/begin", &json!({ "fields": ada }));
    assert!(reply.text().contains("did you mean `signin`?"), "{}", reply.text());
}
