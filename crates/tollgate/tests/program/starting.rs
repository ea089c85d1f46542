//! How a server gets its configuration, and what it prints when it starts.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::program::{Home, text};

const CONFIG: &str = "store: memory\nrules: { mine: { limits: 1/hour } }\npolicies: { mine: [mine] }\n";
const TOML: &str = "store = 'memory'\n[rules]\nmine = { limits = '1/hour' }\n[policies]\nmine = ['mine']\n";

/// The lines that a server prints at its start, up to the command to try.
fn greeting(home: &Home, arguments: &[&str]) -> Vec<String> {
    let mut command = home.program();
    let mut child = command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let mut lines = Vec::new();
    for line in out.lines().map_while(Result::ok) {
        let last = line.starts_with("try: ");
        lines.push(line);
        if last {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    lines
}

#[test]
fn the_file_is_an_argument_an_option_or_the_usual_one() {
    let table: [(&str, &str, &[&str]); 6] = [
        ("other.yaml", CONFIG, &["serve", "other.yaml"]),
        ("other.yaml", CONFIG, &["serve", "-c", "other.yaml"]),
        ("other.toml", TOML, &["serve", "--config", "other.toml"]),
        ("tollgate.yaml", CONFIG, &["serve"]),
        ("tollgate.yml", CONFIG, &["serve"]),
        ("tollgate.toml", TOML, &["serve"]),
    ];
    for (name, config, arguments) in table {
        let home = Home::empty();
        std::fs::write(home.path(name), config).unwrap();
        let lines = greeting(&home, arguments);
        assert_eq!(lines.len(), 5, "{arguments:?}: {lines:?}");
        assert_eq!(lines[0], format!("reads the configuration {name}"));
        assert_eq!(lines[1], "keeps counters in memory, for at most 1000000 keys");
        assert!(
            lines[2].starts_with("tollgate ") && lines[2].contains(" listens on http://127.0.0.1:"),
            "{lines:?}"
        );
        assert!(lines[3].starts_with("the console is at http://127.0.0.1:"), "{lines:?}");
        assert!(lines[4].contains("\"policy\":\"mine\""), "{lines:?}");
        assert!(
            home.program().args(["check-config"]).args(&arguments[1..]).output().unwrap().status.success()
        );
    }
}

#[test]
fn without_a_file_the_starter_is_served_and_said_so() {
    let home = Home::empty();
    let lines = greeting(&home, &["serve"]);
    assert_eq!(lines[0], "reads the built-in starter configuration: there is no tollgate.yaml here");
    assert_eq!(lines[1], "keeps counters in ./tollgate.redb, written every 10s, for at most 1000000 keys");
}

#[test]
fn the_listeners_of_the_gateway_are_printed_too() {
    let home = Home::with(
        "store: memory\nrules: { mine: { limits: 1/hour } }\npolicies: { mine: [mine] }\ngateway:\n  listen: 127.0.0.1:0\n  upstreams: { site: 127.0.0.1:1 }\n  routes: { all: { upstream: site } }\n",
    );
    let lines = greeting(&home, &["serve"]);
    assert!(lines[2].starts_with("the gateway listens on http://127.0.0.1:"), "{lines:?}");
}

#[test]
fn two_usual_files_are_one_too_many() {
    let home = Home::with(CONFIG);
    std::fs::write(home.path("tollgate.toml"), TOML).unwrap();
    assert_eq!(greeting(&home, &["serve"]), [""; 0]);
    for command in ["check-config", "doctor"] {
        let output = home.program().arg(command).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let expected =
            "error: found tollgate.yaml and tollgate.toml here: choose one, as in `-c tollgate.yaml`\n";
        assert_eq!(text(&output.stderr), expected);
    }
}

#[test]
fn an_empty_file_is_not_served() {
    let home = Home::with("# nothing yet\n");
    let output = home.refused();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("tollgate.yaml: the file is empty: add rules and policies"),
        "{output:?}"
    );
}
