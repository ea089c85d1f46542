//! Servers start, respond, pause, restart, and end with the test.

use std::path::Path;
use std::time::Duration;

use tollgate_testbed::{Options, PATIENCE, Reply, Server, Wire, wait_until};

const SHORT: Duration = Duration::from_millis(300);

fn both() -> [Options; 2] {
    [Server::redis(), Server::valkey()]
}

fn runs(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn a_server_answers_on_its_port_and_its_socket() {
    for options in both() {
        let server = options.start();
        let pong = Reply::Status("PONG".to_owned());
        assert_eq!(server.command(&["PING"]), pong);
        assert_eq!(Wire::tcp(server.port(), PATIENCE).unwrap().command(&["PING"]).unwrap(), pong);
        assert!(server.url().ends_with(&format!("://127.0.0.1:{}", server.port())), "{}", server.url());
        let bytes = b"\r\n\0\xff";
        assert_eq!(server.command(&[&b"SET"[..], bytes, bytes]).ok().text(), "OK");
        assert_eq!(server.command(&[&b"GET"[..], bytes]), Reply::Bulk(bytes.to_vec()));
        assert_eq!(server.command(&["DEBUG", "SET-ACTIVE-EXPIRE", "1"]).ok().text(), "OK");
    }
}

#[test]
fn a_server_ends_with_its_value_even_if_the_test_panics() {
    let server = Server::redis().start();
    let (pid, socket) = (server.pid(), server.socket());
    assert!(runs(pid) && socket.exists());
    let panicked = std::thread::spawn(move || {
        let _kept = server;
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    assert!(panicked.join().is_err());
    assert!(!runs(pid) && !socket.exists());
}

#[test]
fn a_paused_server_takes_connections_and_answers_nothing() {
    let server = Server::redis().start();
    let mut before = Wire::tcp(server.port(), SHORT).unwrap();
    server.pause();
    assert!(before.command(&["PING"]).is_err());
    assert!(Wire::tcp(server.port(), SHORT).unwrap().command(&["PING"]).is_err());
    server.resume();
    assert_eq!(before.receive().unwrap().text(), "PONG");
}

#[test]
fn a_stopped_server_starts_again_where_it_was() {
    for options in both() {
        let mut server = options.append_only().start();
        let (port, pid) = (server.port(), server.pid());
        let _ = server.command(&["SET", "a", "1"]).ok();
        server.stop();
        assert!(!runs(pid) && !server.is_running());
        assert!(Wire::tcp(port, SHORT).is_err());
        server.start();
        assert_eq!((server.port(), server.command(&["GET", "a"]).text().as_str()), (port, "1"));
        let _ = server.command(&["SET", "a", "2"]).ok();
        server.pause();
        server.kill9();
        server.start();
        assert_eq!(server.command(&["GET", "a"]).text(), "2");
    }
}

#[test]
fn a_server_without_a_log_of_writes_forgets_when_it_is_killed() {
    let mut server = Server::redis().start();
    let _ = server.command(&["SET", "a", "1"]).ok();
    server.kill9();
    server.start();
    assert_eq!(server.command(&["GET", "a"]), Reply::Nil);
}

#[test]
fn a_password_is_asked_for_and_is_in_the_address() {
    let server = Server::redis().password("s3cret/@").start();
    assert_eq!(server.url(), format!("redis://:s3cret%2F%40@127.0.0.1:{}", server.port()));
    let mut wire = Wire::tcp(server.port(), PATIENCE).unwrap();
    assert!(wire.command(&["PING"]).unwrap().text().starts_with("NOAUTH"));
    let _ = wire.command(&["AUTH", "s3cret/@"]).unwrap().ok();
    assert_eq!(server.command(&["PING"]).text(), "PONG");
}

#[test]
fn users_may_do_what_their_line_says() {
    let lines = "user default off\nuser limiter on >secret ~tollgate:* +get";
    let server = Server::valkey().users(lines).start();
    assert!(server.url_as("limiter", "secret").starts_with("valkey://limiter:secret@"));
    let mut wire = Wire::tcp(server.port(), PATIENCE).unwrap();
    let _ = wire.command(&["AUTH", "limiter", "secret"]).unwrap().ok();
    assert_eq!(wire.command(&["GET", "tollgate:a"]).unwrap(), Reply::Nil);
    assert!(wire.command(&["GET", "a"]).unwrap().text().starts_with("NOPERM"));
    let _ = server.command(&["SET", "a", "1"]).ok();
}

#[test]
fn a_server_with_tls_has_an_authority_and_no_open_port() {
    let server = Server::redis().tls().start();
    assert!(server.url().starts_with("rediss://"));
    assert!(std::fs::read_to_string(server.authority()).unwrap().contains("BEGIN CERTIFICATE"));
    assert!(Wire::tcp(server.port(), SHORT).unwrap().command(&["PING"]).is_err());
    let asked = std::process::Command::new("redis-cli")
        .args(["--tls", "-h", "localhost", "--cacert", server.authority().to_str().unwrap()])
        .args(["-p", &server.port().to_string(), "PING"])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&asked.stdout), "PONG\n", "{asked:?}");
}

#[test]
fn a_full_server_refuses_or_forgets() {
    let value = "x".repeat(100_000);
    for (policy, refuses) in [("noeviction", true), ("allkeys-lru", false)] {
        let server = Server::redis().max_memory("4mb", policy).start();
        let mut wire = server.wire();
        let mut set = |number: i32| wire.command(&["SET", &number.to_string(), &value]).unwrap();
        assert_eq!((0..60).any(|number| set(number).text().starts_with("OOM")), refuses, "{policy}");
    }
}

#[test]
fn a_clock_can_be_moved_while_the_server_runs() {
    for options in both() {
        let real = Server::redis().start();
        let server = options.faketime(3600).start();
        let time = |server: &Server| server.command(&["TIME"]).parts()[0].number();
        assert!((3595..3605).contains(&(time(&server) - time(&real))));
        let _ = server.command(&["SET", "a", "1", "EX", "60"]).ok();
        server.shift_clock(-3600);
        let off = time(&server) - time(&real);
        assert!((-3605..-3595).contains(&off), "{off} {}", server.url());
        server.shift_clock(3600 + 100);
        wait_until("the key expires", || server.command(&["GET", "a"]) == Reply::Nil);
    }
}
