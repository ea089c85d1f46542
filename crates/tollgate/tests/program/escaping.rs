//! Untrusted text cannot control a terminal, wherever the program prints or logs it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use crate::program::{Home, Server, text};
use serde_json::{Value, json};

/// A colour, a C1 introducer, separators, a right-to-left override and isolate, and a line that looks like
/// one of the log.
const HOSTILE: &str =
    "eve\x1b[31m\u{9b}2J\u{7f}\u{2028}\u{2029}\u{202e}\u{2067}\u{feff}\r\n2026-01-01T00:00:00Z ERROR forged";

/// Checks that nothing in a text controls a terminal.
fn is_plain(printed: &str) {
    let acting =
        |c: char| (c.is_control() && c != '\n') || "\u{2028}\u{2029}\u{202e}\u{2067}\u{feff}".contains(c);
    assert!(!printed.contains(acting), "{printed:?}");
    assert!(!printed.lines().any(|line| line.starts_with("2026-01-01T00:00:00Z ERROR")), "{printed}");
}

fn config(format: &str) -> String {
    format!(
        "store: memory\nlog: {{ format: {format} }}\nrules: {{ one: {{ by: user, limits: 1/hour }} }}\npolicies: {{ p: [one] }}\n"
    )
}

/// A server at which the hostile key was denied.
fn denied(home: &Home) -> Server {
    let server = home.start();
    for status in [200, 429] {
        let body = json!({ "policy": "p", "fields": { "user": HOSTILE } });
        assert_eq!(server.check(&body).status, status);
    }
    server
}

#[test]
fn the_json_log_escapes_it_and_means_the_same() {
    let log = denied(&Home::with(&config("json"))).stop();
    is_plain(&log);
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let keys: Vec<Value> = lines.map(|line| line["key"].clone()).filter(Value::is_string).collect();
    assert_eq!(keys, [HOSTILE]);
}

#[test]
fn the_pretty_log_makes_it_visible() {
    let log = denied(&Home::with(&config("pretty"))).stop();
    is_plain(&log);
    assert!(log.contains("\\u{1b}[31m") && log.contains("\\u{202e}"), "{log}");
}

#[test]
fn every_command_makes_it_visible_or_escapes_it() {
    let home = Home::with(&config("json"));
    let server = denied(&home);
    let commands: [&[&str]; 6] = [
        &["decisions"],
        &["peek", "one", HOSTILE],
        &["top", "--once", "--interval", "10ms"],
        &["decisions", "--json"],
        &["peek", "one", HOSTILE, "--json"],
        &["top", "--json"],
    ];
    for arguments in commands {
        let output = home.run(&server, arguments);
        let printed = text(&output.stdout);
        assert!(printed.contains("31m"), "{arguments:?}: {output:?}");
        is_plain(printed);
        if arguments.contains(&"--json") {
            let said: Value = serde_json::from_str(printed).unwrap();
            assert!(said.to_string().contains("\\u001b[31m"), "{said}");
        }
    }
}

#[test]
fn check_config_makes_it_visible_or_escapes_it() {
    let home = Home::empty();
    let escaped = |c: char| match c {
        ' '..='~' => c.to_string(),
        _ => format!("\\u{:04x}", u32::from(c)),
    };
    let quoted = format!("\"{}\"", HOSTILE.chars().map(escaped).collect::<String>());
    let good = format!(
        "store: memory\nrules: {{ one: {{ by: user, limits: 1/hour, overrides: {{ {quoted}: 2/hour }} }} }}\n"
    );
    let bad = format!(
        "store: memory\nrules: {{ one: {{ by: user, limits: {quoted}, {quoted}: 5, on_exceed: {quoted} }} }}\n"
    );
    let grammar = format!("rules: {{ one: {{ limits: [\"5/s {}\"] }} }}\n", &quoted[1..quoted.len() - 1]);
    for (name, config, code) in
        [("good.yaml", &good, 0), ("bad.yaml", &bad, 2), ("grammar.yaml", &grammar, 2)]
    {
        std::fs::write(home.path(name), config).unwrap();
        for arguments in [&["check-config", name][..], &["check-config", name, "--json"]] {
            let output = home.program().args(arguments).output().unwrap();
            assert_eq!(output.status.code(), Some(code), "{output:?}");
            let printed = format!("{}{}", text(&output.stdout), text(&output.stderr));
            assert!(printed.contains("eve"), "{printed}");
            is_plain(&printed);
        }
    }
}

#[test]
fn the_error_of_a_redis_server_cannot_act_on_the_terminal_that_shows_the_log() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut buffer = [0; 4096];
                while matches!(stream.read(&mut buffer), Ok(1..)) {
                    let error = "-ERR hostile \x1b[31m\u{9b}2J\u{202e} text\r\n".repeat(16);
                    if stream.write_all(error.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    let store = format!("store: {{ redis: 'redis://127.0.0.1:{port}', command_timeout: 500ms }}\n");
    let home = Home::with(&(store + "rules: { one: { limits: 1/hour } }\npolicies: { p: [one] }\n"));
    let server = home.start();
    server.check(&json!({ "policy": "p" }));
    server.wait_for_log("hostile");
    let log = server.stop();
    is_plain(&log);
    assert!(log.contains("hostile \\u{1b}[31m\\u{9b}2J\\u{202e} text"), "{log}");
}
