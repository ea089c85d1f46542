//! The command line against a real server: every command, as text and as JSON.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::Output;

use crate::program::{Home, Server, text};
use serde_json::Value;

const CONFIG: &str = "
store: memory
rules:
  user: { by: user, limits: [3/hour, 100/day] }
  slots: { by: user, limits: 2 at once for 1h }
  client: { by: ip, limits: 1000000/day }
policies:
  p: [user]
  work: [slots]
  api: [client]
";

/// A server and a home to run commands against it.
struct Terminal {
    home: Home,
    server: Server,
}

impl Terminal {
    fn new() -> Self {
        let home = Home::with(CONFIG);
        let server = home.start();
        Self { home, server }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.home.run(&self.server, arguments)
    }

    /// The output of a command with this exit code. It prints errors only if the code is 2.
    fn says(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        assert_eq!(output.stderr.is_empty(), code != 2, "{arguments:?}: {}", text(&output.stderr));
        assert!(!output.stdout.contains(&0x1b), "{arguments:?} prints colours into a pipe");
        text(if code == 2 { &output.stderr } else { &output.stdout }).to_owned()
    }

    /// The JSON that a command prints.
    fn json(&self, code: i32, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--json"]].concat());
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
    }
}

#[test]
fn check_ends_with_0_allowed_1_denied_2_wrong() {
    let terminal = Terminal::new();
    for _ in 0..3 {
        assert!(terminal.says(0, &["check", "p", "user=ada"]).starts_with("allowed\n"));
    }
    let denied = terminal.says(1, &["check", "p", "user=ada"]);
    assert!(denied.starts_with("denied by user ada, retry in "), "{denied}");
    assert_eq!(terminal.json(1, &["check", "p", "user=ada"])["denied_by"], "user");
    assert_eq!(terminal.json(0, &["check", "p", "user=bob", "--cost", "2"])["rules"][0]["remaining"], 1);
    assert!(terminal.says(0, &["check", "p", "user=bob", "--dry-run"]).contains("nothing was charged"));
    let wrong = terminal.says(2, &["check", "p", "usr=ada"]);
    assert!(wrong.contains("did you mean `user`"), "{wrong}");
    assert_eq!(terminal.json(2, &["check", "q", "user=ada"])["status"], 400);
}

#[test]
fn peek_set_and_reset_show_and_change_one_key() {
    let terminal = Terminal::new();
    terminal.says(0, &["check", "p", "user=ada", "--cost", "2"]);
    let peeked = terminal.says(0, &["peek", "user", "ada"]);
    assert!(peeked.contains("3/hour") && peeked.contains("1 of 3"), "{peeked}");
    assert_eq!(terminal.json(0, &["peek", "user", "ada"])["limits"][0]["used"], 2);
    let set = terminal.says(0, &["set", "user", "ada", "10/hour"]);
    assert!(set.contains("(override)") && set.contains("8 of 10"), "{set}");
    assert_eq!(terminal.json(0, &["set", "user", "ada", "20/hour"])["overridden"], true);
    assert!(terminal.says(0, &["set", "user", "ada", "--unset"]).starts_with("removed"));
    assert_eq!(terminal.json(0, &["set", "user", "ada", "--unset"])["removed"], false);
    assert_eq!(terminal.server.remaining("user", "ada"), 1, "counts are kept");
    assert!(terminal.says(0, &["reset", "user", "ada"]).contains("reset the counts of user ada"));
    assert_eq!(terminal.server.remaining("user", "ada"), 3);
    assert_eq!(terminal.json(0, &["reset", "user", "ada"])["reset"], "key");
    let wrong = terminal.says(2, &["peek", "usr", "ada"]);
    assert!(wrong.contains("user"), "{wrong}");
    assert!(terminal.says(2, &["set", "user", "ada", "3/fortnight"]).contains("3/fortnight"));
}

#[test]
fn reset_forgets_a_rule_or_everything_when_told_so_clearly() {
    let terminal = Terminal::new();
    let used = |user: &str| 3 - terminal.server.remaining("user", user);
    for user in ["ada", "bob"] {
        terminal.says(0, &["check", "p", &format!("user={user}")]);
    }
    terminal.says(0, &["check", "api", "ip=192.0.2.1"]);
    assert!(terminal.says(2, &["reset", "--all"]).contains("--yes"));
    assert_eq!([used("ada"), used("bob")], [1, 1]);
    terminal.says(0, &["reset", "--rule", "user"]);
    assert_eq!([used("ada"), used("bob")], [0, 0]);
    assert_eq!(terminal.server.remaining("client", "192.0.2.1"), 999_999, "the other rule is untouched");
    assert_eq!(terminal.json(0, &["reset", "--rule", "user"])["reset"], "rule");
    terminal.says(0, &["reset", "--all", "--yes"]);
    assert_eq!(terminal.server.remaining("client", "192.0.2.1"), 1_000_000);
    assert_eq!(terminal.json(0, &["reset", "--all", "--yes"])["reset"], "all");
}

#[test]
fn refund_takes_a_receipt_once_under_either_name() {
    let terminal = Terminal::new();
    let receipt = terminal.json(0, &["check", "p", "user=ada"])["receipt"].as_str().unwrap().to_owned();
    assert_eq!(terminal.says(0, &["refund", &receipt]), "refunded\n");
    assert_eq!(terminal.server.remaining("user", "ada"), 3);
    assert_eq!(terminal.says(0, &["give", &receipt]), "was refunded before\n");
    assert_eq!(terminal.json(0, &["refund", &receipt])["refunded"], "already");
    terminal.says(2, &["refund", "no-receipt"]);
}

#[test]
fn holds_are_shown_renewed_and_released() {
    let terminal = Terminal::new();
    for id in ["job-1", "job-2"] {
        terminal.says(0, &["check", "work", "user=ada", "--id", id]);
    }
    assert!(terminal.says(1, &["check", "work", "user=ada", "--id", "job-3"]).starts_with("denied by slots"));
    let shown = terminal.says(0, &["holds", "slots", "ada"]);
    assert!(shown.starts_with("2 of 2 held") && shown.contains("job-1"), "{shown}");
    terminal.says(0, &["holds", "slots", "ada", "--renew", "job-1"]);
    terminal.says(0, &["holds", "slots", "ada", "--release", "job-1"]);
    assert_eq!(terminal.json(0, &["holds", "slots", "ada", "--release", "job-1"])["released"], false);
    terminal.says(2, &["holds", "slots", "ada", "--renew", "job-1"]);
    assert_eq!(terminal.json(0, &["holds", "slots", "ada"])["holds"][0]["id"], "job-2");
}

#[test]
fn top_and_decisions_name_the_denied_keys() {
    let terminal = Terminal::new();
    for _ in 0..3 {
        terminal.says(0, &["check", "p", "user=ada"]);
    }
    terminal.says(1, &["check", "p", "user=ada"]);
    let top = terminal.says(0, &["top", "--once", "--interval", "50ms"]);
    assert!(top.contains("ada") && top.contains("user"), "{top}");
    assert_eq!(terminal.json(0, &["top", "--once"])["offenders"][0]["key"], "ada");
    let decisions = terminal.says(0, &["decisions"]);
    assert!(decisions.contains("deny") && decisions.contains("allow"), "{decisions}");
    let newest = terminal.json(0, &["decisions", "--limit", "1"]);
    assert_eq!(newest["decisions"].as_array().unwrap().len(), 1);
    assert_eq!(newest["decisions"][0]["verdict"], "deny");
}

#[test]
fn config_shows_and_reload_renews_the_configuration_in_force() {
    let terminal = Terminal::new();
    let shown = terminal.says(0, &["config"]);
    assert!(shown.contains("3/hour, 100/day") && shown.contains("work"), "{shown}");
    assert_eq!(terminal.says(0, &["reload"]), "reloaded\n");
    assert_eq!(terminal.json(0, &["reload"])["reloaded"], true);
    terminal.home.configure(&CONFIG.replace("3/hour", "4/hour"));
    terminal.says(0, &["reload"]);
    assert_eq!(terminal.json(0, &["config"])["rules"]["user"]["limits"][0], "4/hour");
    terminal.home.configure(&CONFIG.replace("3/hour", "4/fortnight"));
    let broken = terminal.says(2, &["reload"]);
    assert!(broken.contains("fortnight"), "{broken}");
    assert_eq!(terminal.json(2, &["reload"])["status"], 422);
}

#[test]
fn bench_measures_and_its_requests_are_counted() {
    let terminal = Terminal::new();
    let load = ["bench", "--policy", "api", "--field", "ip=192.0.2.9", "--requests", "2000"];
    let table = terminal.home.run(&terminal.server, &load);
    assert_eq!(table.status.code(), Some(0), "{table:?}");
    let said = text(&table.stdout);
    assert!(said.contains("p99") && said.contains("2,000"), "{said}");
    assert_eq!(terminal.server.remaining("client", "192.0.2.9"), 1_000_000 - 2_000);
    let report = terminal.json(0, &load);
    assert_eq!((&report["allowed"], &report["errors"]), (&Value::from(2_000), &Value::from(0)));
    assert_eq!(terminal.server.remaining("client", "192.0.2.9"), 1_000_000 - 4_000);
}

#[test]
fn a_server_that_is_gone_is_named() {
    let home = Home::with(CONFIG);
    let server = home.start();
    let url = server.url();
    server.stop();
    let output = home.program().args(["peek", "user", "ada", "--server", &url]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains(&url), "{}", text(&output.stderr));
}
