//! The first start: no configuration, an empty directory, and the printed command to try.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod program;

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use program::{Home, text};
use serde_json::json;

/// Runs a line in a shell, as a user would who copies it.
fn in_a_shell(home: &Home, line: &str) -> String {
    let output =
        Command::new("sh").args(["-c", line]).current_dir(home.directory()).stdin(Stdio::null()).output();
    let output = output.expect("there is a shell");
    assert!(output.status.success(), "{line}: {}", text(&output.stderr));
    text(&output.stdout).to_owned()
}

/// The line after "try: ".
fn line_to_try(server: &mut program::Server) -> String {
    let line = server.next_line();
    line.strip_prefix("try: ").unwrap_or_else(|| panic!("{line:?}")).to_owned()
}

#[test]
fn it_starts_in_an_empty_directory_and_the_line_it_prints_works() {
    let home = Home::empty();
    let mut server = home.start();
    let line = line_to_try(&mut server);
    assert!(line.starts_with("curl "), "{line}");
    let answer = in_a_shell(&home, &line);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("\"allowed\":true"), "{answer}");
    assert_eq!(server.remaining("client", "192.0.2.7"), 49);
    let file = std::fs::metadata(home.path("tollgate.redb")).expect("counters are kept in a file");
    assert_eq!(file.permissions().mode() & 0o777, 0o600, "only its owner may read it");
    server.stop();
}

#[test]
fn the_line_works_for_rules_that_share_fields_and_for_each_kind_of_field() {
    let home = Home::with(
        "store: memory
rules:
  first: { by: ip, limits: 10/hour }
  second: { by: [sender, route], limits: 10/hour }
  third: { by: [ip, recipient_domain], limits: 10/hour }
  fourth: { by: route, limits: 3 at once }
policies: { all: [first, second, third, fourth] }
",
    );
    let mut server = home.start();
    let line = line_to_try(&mut server);
    let answer = in_a_shell(&home, &line);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{line}: {answer}");
    for rule in ["first", "second", "third", "fourth"] {
        assert!(answer.contains(&format!("\"rule\":\"{rule}\"")), "{rule} is missing: {answer}");
    }
}

#[test]
fn the_line_says_where_the_token_goes_when_there_are_keys() {
    let home = Home::with(
        "store: memory
keys: [{ name: app, role: check, token_env: APP_TOKEN }]
rules: { client: { by: ip, limits: 10/hour } }
policies: { api: [client] }
",
    )
    .variable("APP_TOKEN", "0123456789abcdef");
    let mut server = home.start();
    let line = line_to_try(&mut server);
    assert!(!line.contains("0123456789abcdef"), "{line}");
    let answer = in_a_shell(&home, &format!("TOLLGATE_TOKEN=0123456789abcdef; {line}"));
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{line}: {answer}");
}

#[test]
fn the_server_keeps_serving_if_its_output_is_not_read() {
    let home = Home::with("store: memory\nrules: { one: { limits: 1/hour } }\npolicies: { p: [one] }\n");
    let server = home.start_unread();
    for expected in [200, 429, 429] {
        assert_eq!(server.check(&json!({ "policy": "p" })).status, expected);
    }
}
