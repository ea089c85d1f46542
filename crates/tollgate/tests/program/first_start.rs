//! The first start: no configuration, an empty directory, and the printed command to try.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use crate::program::{self, Home, text};
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
    assert_eq!(server.next_line(), format!("the console is at {}/", server.url()));
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

fn tollgate(home: &Home, arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(arguments).current_dir(home.directory()).env_clear().output().expect("the program starts")
}

/// Writes a starter, checks it strictly and serves it, on free ports.
fn serve_starter(home: &Home, kind: &str) -> program::Server {
    let output = tollgate(home, &["init", kind]);
    assert!(output.status.success(), "{kind}: {}", text(&output.stderr));
    let said = "wrote tollgate.yaml: edit it, then `tollgate check-config` and `tollgate serve`\n";
    assert_eq!(text(&output.stdout), said);
    let written = std::fs::read_to_string(home.path("tollgate.yaml")).unwrap();
    let comments = written.lines().filter(|line| line.trim_start().starts_with('#')).count();
    assert!(written.starts_with("# ") && comments >= 8, "{kind} has {comments} lines of comments");
    let output = tollgate(home, &["check-config", "--strict"]);
    assert!(output.status.success(), "{kind}: {}", text(&output.stderr));
    let server = home.start();
    assert_eq!(server.get("/readyz").status, 200, "{kind}");
    server
}

/// The line of a starter's comments that calls this path, at the server's address.
fn line_in_comments(home: &Home, server: &program::Server, path: &str) -> String {
    let written = std::fs::read_to_string(home.path("tollgate.yaml")).unwrap();
    let mut lines = written.lines().filter_map(|line| line.strip_prefix("#   curl "));
    let line = lines.find(|line| line.contains(path)).unwrap_or_else(|| panic!("no line calls {path}"));
    format!("curl -s {}", line.replace("http://127.0.0.1:8080", &server.url()))
}

#[test]
fn the_starter_of_an_api_answers_the_request_in_its_comments() {
    let home = Home::empty();
    let server = serve_starter(&home, "api");
    let answer = in_a_shell(&home, &line_in_comments(&home, &server, "/check"));
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("\"rule\":\"all\"") && answer.contains("\"rule\":\"client\""), "{answer}");
}

#[test]
fn the_starter_of_logins_answers_the_request_in_its_comments() {
    let home = Home::empty();
    let server = serve_starter(&home, "logins");
    let begun = in_a_shell(&home, &line_in_comments(&home, &server, "/begin"));
    let begun: serde_json::Value = serde_json::from_str(&begun).unwrap();
    let finish = line_in_comments(&home, &server, "/finish").replace('…', begun["ticket"].as_str().unwrap());
    let finished = in_a_shell(&home, &finish);
    assert!(finished.contains("\"finished\":\"now\""), "{finished}");
}

#[test]
fn the_starter_of_a_gateway_limits_writes_and_passes_on_the_rest() {
    let home = Home::empty()
        .variable("TOLLGATE__GATEWAY__LISTEN", "127.0.0.1:0")
        .variable("TOLLGATE__GATEWAY__UPSTREAMS__SERVICE", "127.0.0.1:1");
    let server = serve_starter(&home, "gateway");
    // There is no service at its upstream, so a request that passes is answered with 502.
    let mut statuses = (0..31).map(|_| server.gateway().ask("POST", "/", &[], Some(&json!({}))).status);
    assert!(statuses.by_ref().take(30).all(|status| status == 502));
    assert_eq!(statuses.next(), Some(429));
    assert_eq!(server.gateway().ask("GET", "/", &[], None).status, 502);
}

#[test]
fn the_starter_of_a_relay_accepts_mail() {
    let home = Home::empty()
        .variable("TOLLGATE__RELAY__LISTEN", "[{ smtp: '127.0.0.1:0' }]")
        .variable("TOLLGATE__RELAY__QUEUE__MIN_FREE", "0");
    let server = serve_starter(&home, "mail");
    let message = json!({
        "tenant": "main", "from": "app@example.com", "to": ["ada@example.net"],
        "subject": "hello", "text": "hello",
    });
    let accepted = server.post("/api/v1/messages", &message);
    assert_eq!(accepted.status, 202, "{}", accepted.text());
}

#[test]
fn init_writes_an_api_by_default_and_never_replaces_a_file() {
    let home = Home::empty();
    assert!(tollgate(&home, &["init"]).status.success());
    let path = home.path("tollgate.yaml");
    let api = include_str!("../../src/config/starters/api.yaml");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), api);
    let again = tollgate(&home, &["init", "mail"]);
    assert_eq!(again.status.code(), Some(2));
    let said = "tollgate.yaml: the file exists and is kept: name another one with -o";
    assert!(text(&again.stderr).contains(said), "{}", text(&again.stderr));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), api);
    // `serve` could not choose between two usual names.
    let beside = tollgate(&home, &["init", "-o", "tollgate.yml"]);
    assert_eq!(beside.status.code(), Some(2));
    assert!(text(&beside.stderr).contains("there is a configuration already, tollgate.yaml"));
    assert!(!home.path("tollgate.yml").exists());
    // A link is not followed, also if it points nowhere.
    std::os::unix::fs::symlink(home.path("elsewhere.yaml"), home.path("link.yaml")).unwrap();
    assert_eq!(tollgate(&home, &["init", "-o", "link.yaml"]).status.code(), Some(2));
    assert!(!home.path("elsewhere.yaml").exists());
    let other = tollgate(&home, &["init", "logins", "-o", "logins.yaml"]);
    assert_eq!(
        text(&other.stdout),
        "wrote logins.yaml: edit it, then `tollgate check-config logins.yaml` and `tollgate serve logins.yaml`\n"
    );
}
