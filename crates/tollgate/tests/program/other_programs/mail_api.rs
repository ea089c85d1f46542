//! The relay's API through the real program: the requests of the other mail proxy as its manual prints them, the command
//! line, keys with tenants, and what a restart keeps.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use crate::mail;
use std::process::Output;

use crate::program::{Home, Server, wait_until};
use serde_json::{Value, json};
use tollgate_testbed::Sink;

const ADMIN: &str = "admin-token-0123456789";
const APP: &str = "app-token-0123456789";
const PASSWORD: &str = "correct-horse-battery";

fn home() -> Home {
    let config = "
log: { format: json }
keys:
  - { name: ops, role: admin, token_env: ADMIN_TOKEN }
  - { name: app, role: check, token_env: APP_TOKEN, tenant: acme, senders: [acme.example] }
rules:
  sender: { by: sender, limits: [100/hour] }
policies:
  mail.accept: [sender]
relay:
  hostname: relay.example
  listen: [{ smtp: 127.0.0.1:0 }]
  queue: { dir: ./queue, min_free: 1KiB }
  accept: mail.accept
  secret_env: RELAY_SECRET
  accounts:
    fixed/main: { host: 127.0.0.1, port: 1, tls: none }
";
    let home = Home::with(config).variable("ADMIN_TOKEN", ADMIN).variable("APP_TOKEN", APP);
    home.variable("RELAY_SECRET", "a-secret-that-all-nodes-know").variable("TOLLGATE_TOKEN", ADMIN)
}

/// Runs a command of the manual.
fn printed(home: &Home, server: &Server, command: &str) -> String {
    mail::printed(home, server, ADMIN, command)
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Submits mail as the application. Returns status and body.
fn submit(home: &Home, server: &Server, key: &str, body: &Value) -> (String, Value) {
    let command = format!(
        "curl -s -w '\\n%{{http_code}}' http://localhost:8000/api/v1/messages -H 'X-API-Token: {APP}' \
         -H 'Content-Type: application/json' -H 'Idempotency-Key: {key}' -d '{body}'"
    );
    let answer = printed(home, server, &command);
    let (body, status) = answer.rsplit_once('\n').unwrap();
    (status.to_owned(), serde_json::from_str(body).unwrap())
}

fn message() -> Value {
    json!({ "from": "ada@acme.example", "to": "bob@there.example", "subject": "hi", "text": "hello" })
}

#[test]
fn the_printed_requests_of_the_other_proxy_work() {
    let home = home();
    let server = home.start();
    let made = printed(
        &home,
        &server,
        r#"curl -s -X POST http://localhost:8000/account \
     -H "X-API-Token: $TOKEN" \
     -H "Content-Type: application/json" \
     -d '{
       "id": "primary-smtp",
       "tenant_id": "acme",
       "host": "smtp.example.com",
       "port": 587,
       "user": "sender@example.com",
       "password": "secret",
       "use_tls": true,
       "limit_per_minute": 10,
       "limit_per_hour": 100,
       "limit_per_day": 1000
     }'"#,
    );
    let made: Value = serde_json::from_str(&made).unwrap();
    assert_eq!((&made["ok"], &made["limit_per_hour"]), (&json!(true), &json!(100)), "{made}");
    let made = printed(
        &home,
        &server,
        r#"curl -s -X POST http://localhost:8000/account \
     -H "X-API-Token: $TOKEN" \
     -H "Content-Type: application/json" \
     -d '{
       "id": "unlimited-smtp",
       "tenant_id": "acme",
       "host": "smtp.example.com",
       "port": 587
     }'"#,
    );
    let made: Value = serde_json::from_str(&made).unwrap();
    assert_eq!(made["limits"], json!(["unlimited"]), "{made}");

    // The first of two messages is sent; the limit defers the second, and the manual's filter finds it.
    let sink = Sink::start();
    let account = format!(
        "curl -s -X PUT http://localhost:8000/api/v1/accounts/acme/sink -H \"X-API-Token: $TOKEN\" \
         -d '{{\"host\":\"127.0.0.1\",\"port\":{},\"use_tls\":false,\"limit_per_hour\":1}}'",
        sink.port()
    );
    printed(&home, &server, &account);
    for id in ["primary-smtp", "unlimited-smtp"] {
        text(&home.run(&server, &["accounts", "remove", "--tenant", "acme", id]));
    }
    for key in ["1", "2"] {
        assert_eq!(submit(&home, &server, key, &message()).0, "202");
    }
    wait_until("one message is sent", || sink.count() == 1);
    let deferred = || {
        printed(
            &home,
            &server,
            r#"curl -s "http://localhost:8000/messages?tenant_id=acme" \
     -H "X-API-Token: $TOKEN" | jq '.messages[] | select(.deferred_ts != null)'"#,
        )
    };
    wait_until("the other is deferred", || !deferred().is_empty());
    let deferred: Value = serde_json::from_str(&deferred()).unwrap();
    assert_eq!(
        (&deferred["deferred_by"], &deferred["status"]),
        (&json!("account acme,sink"), &json!("deferred"))
    );
    assert_eq!(sink.count(), 1);
}

#[test]
fn senders_of_a_key_bind_from_and_sender() {
    let home = home();
    let server = home.start();
    text(&run(&home, &server, "accounts add --tenant acme --id main --host 127.0.0.1 --port 1 --tls none"));
    let post = |kind: &str, query: &str, body: &str| {
        std::fs::write(home.path("body"), body).unwrap();
        let command = format!(
            "curl -s -w '\\n%{{http_code}}' 'http://localhost:8000/api/v1/messages?{query}' \
             -H 'X-API-Token: {APP}' -H 'Content-Type: {kind}' --data-binary @body"
        );
        let answer = printed(&home, &server, &command);
        let (body, status) = answer.rsplit_once('\n').unwrap();
        (status.to_owned(), body.to_owned())
    };
    let (json, rfc822) = ("application/json", "message/rfc822");
    let with = |member: &str, value: Value| {
        let mut message = message();
        message[member] = value;
        message.to_string()
    };
    let whole = |header: &str| format!("{header}\r\nTo: bob@there.example\r\n\r\nhello\r\n");
    let envelope = "from=ada@acme.example";
    for (kind, query, body) in [
        (json, "", with("from", json!("Ada <ada@acme.example>"))),
        (json, "", with("headers", json!({ "Sender": "list@acme.example" }))),
        (rfc822, "", whole("From: Ada <ada@acme.example>")),
    ] {
        let (status, answer) = post(kind, query, &body);
        assert_eq!(status, "202", "{body}: {answer}");
    }
    for (kind, query, body) in [
        (json, "", with("from", json!("ceo@other.example"))),
        (json, "", with("from", json!("ceo@other.example <ada@acme.example>"))),
        (json, "", with("headers", json!({ "Sender": "ceo@other.example" }))),
        (json, "", with("headers", json!({ "sender": "CEO <ceo@other.example>" }))),
        (rfc822, envelope, whole("From: ceo@other.example")),
        (rfc822, envelope, whole("From: ada@acme.example\r\nSender: ceo@other.example")),
        (rfc822, "from=", whole("From: ada@acme.example")),
    ] {
        let (status, answer) = post(kind, query, &body);
        assert_eq!(status, "403", "{query} {body}: {answer}");
    }
    let (status, answer) = post(rfc822, envelope, &whole("From: ada@acme.example\r\nFrom: ada@acme.example"));
    assert!(status == "400" && answer.contains("several From"), "{status} {answer}");
    server.stop();
}

/// Makes accounts with Python as the manual does, each with the limits of its example.
const THREE_ACCOUNTS: &str = r#"
import json, os, sys, urllib.request
accounts = [
    {"id": "smtp-1", "limit_per_minute": 10, "limit_per_hour": 500},
    {"id": "smtp-2", "limit_per_minute": 10, "limit_per_hour": 500},
    {"id": "smtp-3", "limit_per_minute": 10, "limit_per_hour": 500},
]
for account in accounts:
    account.update(tenant_id="acme", host="127.0.0.1", port=int(sys.argv[2]), use_tls=False)
    headers = {"X-API-Token": os.environ["TOKEN"], "Content-Type": "application/json"}
    request = urllib.request.Request(sys.argv[1] + "/account", json.dumps(account).encode(), headers)
    assert json.load(urllib.request.urlopen(request))["ok"]
"#;

#[test]
fn three_accounts_send_three_times_as_much_and_metrics_tell_what_waits() {
    let (sink, home) = (Sink::start(), home());
    let server = home.start();
    std::fs::write(home.path("accounts.py"), THREE_ACCOUNTS).unwrap();
    printed(&home, &server, &format!("python3 accounts.py http://localhost:8000 {}", sink.port()));
    for number in 0..40 {
        assert_eq!(submit(&home, &server, &number.to_string(), &message()).0, "202");
    }
    wait_until("each account sends its ten", || sink.count() == 30);
    let metric = |start: &str| -> u64 {
        let page = server.ask_as(ADMIN, "GET", "/metrics", None);
        let lines = page.text().lines().filter(|line| line.starts_with(start));
        lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
    };
    wait_until("the others wait for a limit", || metric("tollgate_relay_deferred{tenant=\"acme\"") == 10);
    for id in ["smtp-1", "smtp-2", "smtp-3"] {
        let sent = format!("tollgate_relay_sent_total{{tenant=\"acme\",account=\"{id}\"}}");
        assert_eq!(metric(&sent), 10, "{id}");
        assert_eq!(
            server.ask_as(ADMIN, "GET", &format!("/api/v1/counters/account/acme,{id}"), None).ok()["limits"]
                [0]["remaining"],
            0
        );
    }
    assert!(metric("tollgate_relay_rate_limited_total{tenant=\"acme\"") >= 1);
    assert_eq!(sink.count(), 30);
    server.stop();
}

#[test]
fn an_account_may_return_what_exceeds_its_limits() {
    let (sink, home) = (Sink::start(), home());
    let server = home.start();
    let account = format!(
        r#"curl -s -X POST http://localhost:8000/account -H "X-API-Token: $TOKEN" -d '{{
       "id": "strict", "tenant_id": "acme", "host": "127.0.0.1", "port": {}, "use_tls": false,
       "limit_per_minute": 0, "limit_per_hour": 1, "limit_per_day": null, "limit_behavior": "reject"
     }}'"#,
        sink.port()
    );
    let made: Value = serde_json::from_str(&printed(&home, &server, &account)).unwrap();
    assert_eq!(
        (&made["limits"], &made["limit_behavior"]),
        (&json!(["1/hour sliding"]), &json!("reject")),
        "{made}"
    );
    let (_, first) = submit(&home, &server, "1", &message());
    let status = |id: &Value| {
        let path = format!("/api/v1/messages/{}", id["id"].as_str().unwrap());
        server.ask_as(ADMIN, "GET", &path, None).ok()["status"].clone()
    };
    wait_until("the first is sent", || status(&first) == "sent");
    let (_, second) = submit(&home, &server, "2", &message());
    wait_until("the second is returned", || status(&second) == "bounced");
    server.stop();
}

#[test]
fn lists_by_status_have_full_pages() {
    let (sink, home) = (Sink::start(), home());
    let server = home.start();
    let account = format!(
        "accounts add --tenant acme --id main --host 127.0.0.1 --port {} --tls none --limit-hour 1",
        sink.port()
    );
    text(&run(&home, &server, &account));
    text(&run(&home, &server, "accounts add --tenant acme --id paused --host 127.0.0.1 --port 1 --tls none"));
    text(&run(&home, &server, "accounts pause --tenant acme paused"));
    submit(&home, &server, "first", &message());
    wait_until("the limit is used up", || sink.count() == 1);
    // Messages that wait for an account and messages that wait for a limit, in turn.
    let mut deferred = Vec::new();
    for number in 0..12 {
        let mut message = message();
        if number % 2 == 0 {
            message["account"] = json!("paused");
        }
        let (status, sent) = submit(&home, &server, &number.to_string(), &message);
        assert_eq!(status, "202", "{sent}");
        if number % 2 == 1 {
            deferred.push(sent["id"].as_str().unwrap().to_owned());
        }
    }
    let lanes = || text(&run(&home, &server, "queue lanes"));
    wait_until("both lanes sleep", || lanes().contains("limit") && lanes().contains("paused"));
    let (mut found, mut sizes, mut after) = (Vec::new(), Vec::new(), String::new());
    loop {
        let path = format!("/api/v1/messages?status=deferred&order=oldest&limit=2{after}");
        let page = server.ask_as(ADMIN, "GET", &path, None).ok();
        let messages = page["messages"].as_array().unwrap();
        sizes.push(messages.len());
        found.extend(messages.iter().map(|message| message["id"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!((found, sizes), (deferred, vec![2, 2, 2]));
    server.stop();
}

/// Runs a command that is written as people type it.
fn run(home: &Home, server: &Server, command: &str) -> Output {
    home.run(server, &command.split(' ').collect::<Vec<_>>())
}

/// The errors of a command that must fail.
fn refused(output: &Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const ADD: &str = "accounts add --tenant acme --host 127.0.0.1 --port 587 --tls none --user sender@example.com \
                   --password-file password --limit-minute 10 --limit-hour 100 --limit-day 1000";

#[test]
fn accounts_are_managed_from_the_command_line() {
    let home = home();
    let server = home.start();
    let run = |command: &str| run(&home, &server, command);
    std::fs::write(home.path("password"), format!("{PASSWORD}\n")).unwrap();
    let id = text(&run(ADD)).trim().to_owned();
    assert!(id.starts_with("account-"), "{id}");
    let shown = text(&run(&format!("accounts show --tenant acme {id} --json")));
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["limits"], json!(["10/min sliding", "100/hour sliding", "1000/day sliding"]), "{shown}");
    let preset = "accounts add --tenant acme --id ses --host ses.example --preset ses-production";
    assert_eq!(text(&run(preset)), "ses\n");
    let list = text(&run("accounts list"));
    assert!(list.contains("14/min sliding, 840/hour sliding, 50000/day sliding"), "{list}");
    assert!(list.contains("fixed") && !list.contains(PASSWORD), "{list}");
    assert!(refused(&run(preset)).contains("already"));
    assert!(refused(&run("accounts remove --tenant fixed main")).contains("configuration file"));
    for id in [&*id, "ses"] {
        assert!(text(&run(&format!("accounts remove --tenant acme {id}"))).contains("removed"));
    }
    assert_no_password(&home, &server.stop());
}

#[test]
fn the_presets_have_the_limits_of_the_guide() {
    let home = home();
    let server = home.start();
    let run = |command: &str| run(&home, &server, command);
    let guide = include_str!("../../../../../docs/guides/relay.md");
    let table = guide.split("| provider | preset |").nth(1).unwrap().split("\n\n").next().unwrap();
    let mut named = Vec::new();
    for row in table.lines().skip(2) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, _, preset, minute, hour, day, _] = cells[..] else { panic!("{row}") };
        let preset = preset.trim_matches('`');
        let limits: Vec<String> = [(minute, "min"), (hour, "hour"), (day, "day")]
            .iter()
            .filter(|(number, _)| *number != "none")
            .map(|(number, period)| format!("{}/{period} sliding", number.replace(',', "")))
            .collect();
        text(&run(&format!(
            "accounts add --tenant acme --id {preset} --host smtp.example --preset {preset}"
        )));
        let shown = text(&run(&format!("accounts show --tenant acme {preset} --json")));
        let shown: Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(shown["limits"], json!(limits), "{preset}");
        named.push(preset.to_owned());
    }
    let said = refused(&run("accounts add --tenant acme --host smtp.example --preset another"));
    let known = said.split("[possible values: ").nth(1).unwrap().split(']').next().unwrap().to_owned();
    assert_eq!(known.split(", ").collect::<Vec<_>>(), named, "the guide has all presets");
    server.stop();
}

#[test]
fn the_queue_is_managed_from_the_command_line_and_a_restart_keeps_it() {
    let home = home();
    let server = home.start();
    std::fs::write(home.path("password"), format!("{PASSWORD}\n")).unwrap();
    let (status, refused_text) = submit(&home, &server, "one", &message());
    assert_eq!(status, "422", "{refused_text}");
    text(&run(&home, &server, "accounts add --tenant acme --id main --host 127.0.0.1 --port 1 --tls none"));
    assert_eq!(text(&run(&home, &server, "accounts pause --tenant acme main")), "paused\n");
    let accounts = text(&run(&home, &server, "accounts list --tenant acme"));
    assert!(accounts.contains("paused: an operator paused it"), "{accounts}");
    // While no account can be used the message waits; a restart keeps it, its idempotency key, and the accounts.
    let (status, sent) = submit(&home, &server, "one", &message());
    assert_eq!(status, "202", "{sent}");
    let message_id = sent["id"].as_str().unwrap().to_owned();
    wait_until("the lane sleeps", || text(&run(&home, &server, "queue lanes")).contains("paused"));
    let top = text(&run(&home, &server, "top --once --interval 100ms"));
    assert!(top.contains("there.example"), "{top}");
    let kept =
        "accounts add --tenant other --id kept --host 127.0.0.1 --tls none --user u --password-file password";
    text(&run(&home, &server, kept));
    assert_eq!(text(&run(&home, &server, "queue pause --tenant acme")), "paused\n");
    let log = server.stop();
    let server = home.start();
    let run = |command: &str| run(&home, &server, command);
    wait_until("the pause holds again", || text(&run("queue lanes")).contains("an operator paused it"));
    assert_eq!(text(&run("queue resume --tenant acme")), "resumed\n");
    assert!(text(&run("accounts list")).contains("kept"));
    let (status, again) = submit(&home, &server, "one", &message());
    assert_eq!((&*status, &again), ("202", &sent), "the first result");
    let mut other = message();
    other["subject"] = json!("another");
    assert_eq!(submit(&home, &server, "one", &other).0, "422");
    let list = text(&run("queue list --tenant acme"));
    assert!(list.contains(&message_id) && list.contains("bob@there.example"), "{list}");
    assert_eq!(list.matches("queued").count(), 1, "one message was queued: {list}");
    assert!(text(&run(&format!("queue retry {message_id}"))).contains("tried now"));
    assert!(text(&run(&format!("queue cancel {message_id}"))).contains("is cancelled"));
    let shown = text(&run(&format!("queue show {message_id}")));
    assert!(shown.contains("cancelled") && shown.contains("accepted"), "{shown}");
    refused(&run("queue show 00000000000000000000000000000000"));
    let log = log + &server.stop();
    assert!(log.contains("account.create") && log.contains("message.cancel"), "{log}");
    assert_no_password(&home, &log);
}

/// Submits a message with this subject from this address, which waits, and returns its id.
fn submit_waiting(home: &Home, server: &Server, number: usize, from: &str) -> String {
    let mut body = message();
    (body["subject"], body["from"]) = (json!(format!("number {number}")), json!(from));
    let (status, sent) = submit(home, server, &format!("waits-{number}"), &body);
    assert_eq!(status, "202", "{sent}");
    sent["id"].as_str().unwrap().to_owned()
}

#[test]
fn the_queue_tells_what_each_message_waits_for_and_retry_tells_the_truth() {
    let (home, sink) = (home(), Sink::start());
    let server = home.start();
    let run = |command: &str| text(&run(&home, &server, command));
    let account = "accounts add --tenant acme --id main --host 127.0.0.1 --tls none --limit-hour 1";
    run(&format!("{account} --port {}", sink.port()));
    submit_waiting(&home, &server, 0, "ada@acme.example");
    wait_until("the limit is used up", || sink.count() == 1);
    let id = submit_waiting(&home, &server, 1, "ada@acme.example");
    let waits = |word: &str| wait_until(word, || run("queue list --status waiting").contains(word));
    waits("limit until 2");
    assert!(run(&format!("queue show {id}")).contains("there.example waits for limit until 2"));
    wait_until("the limit keeps it", || {
        let told = run(&format!("queue retry {id}"));
        told.contains("still waits for limit until 2") && told.contains("account acme,main")
    });
    assert_eq!(run("queue pauses"), "nothing is paused\n");
    run("queue pause --tenant acme");
    run("queue pause --tenant other");
    waits("pause: an operator paused it");
    let told = run(&format!("queue retry {id}"));
    assert!(told.contains("still waits for pause") && told.contains("tollgate queue resume"), "{told}");
    for command in ["queue pauses", "queue lanes", "status", "top --once --interval 100ms"] {
        let shown = run(command);
        assert!(shown.contains("paused: mail of other"), "{command}: {shown}");
    }
    let ready = server.get("/readyz");
    assert_eq!((&ready.ok()["status"], &ready.ok()["pauses"]), (&json!("ready"), &json!(2)));
    assert!(run(&format!("queue text {id}")).contains("Subject: number 1"));
    let list = run("queue list");
    let newest = list.lines().nth(1).unwrap();
    assert!(newest.starts_with(&id), "the newest comes first: {list}");
    server.stop();
}

#[test]
fn messages_that_fit_a_filter_are_changed_when_their_number_is_confirmed() {
    let home = home();
    let server = home.start();
    let run = |command: &str| run(&home, &server, command);
    text(&run("accounts add --tenant acme --id main --host 127.0.0.1 --port 1 --tls none"));
    text(&run("queue pause --tenant acme"));
    for number in 0..5 {
        let from = if number < 3 { "eve@acme.example" } else { "ada@acme.example" };
        submit_waiting(&home, &server, number, from);
    }
    let counted = text(&run("queue cancel --sender eve@acme.example"));
    assert!(
        counted.starts_with("3 messages fit; nothing was changed") && counted.contains("--confirm 3"),
        "{counted}"
    );
    assert!(
        refused(&run("queue cancel --sender eve@acme.example --confirm 2")).contains("nothing was changed")
    );
    assert!(text(&run("queue cancel --status waiting --older-than 1h")).starts_with("0 messages"));
    assert_eq!(text(&run("queue cancel --sender eve@acme.example --confirm 3")), "cancel: 3 of 3 messages\n");
    let listed = |arguments: &str| {
        let list = text(&run(&format!("queue list {arguments} --json")));
        serde_json::from_str::<Value>(&list).unwrap()["messages"].as_array().unwrap().len()
    };
    assert_eq!((listed("--status cancelled"), listed("--status waiting")), (3, 2));
    assert_eq!((listed("--sender @acme.example --newer-than 1h"), listed("--account main")), (5, 0));
    assert_eq!(text(&run("queue delete --status cancelled --confirm 3")), "delete: 3 of 3 messages\n");
    assert_eq!(listed("--order oldest"), 2);
    assert_eq!(text(&run("queue delete --confirm 2")), "delete: 2 of 2 messages\n");
    assert_eq!(listed("--order newest"), 0);
    let log = server.stop();
    assert!(log.contains("message.cancel") && log.contains("message.delete"), "{log}");
}

#[test]
fn a_message_whose_account_disappears_is_logged_and_counted() {
    let home = home();
    let server = home.start();
    let run = |command: &str| text(&run(&home, &server, command));
    run("accounts add --tenant acme --id main --host 127.0.0.1 --port 1 --tls none");
    run("queue pause --tenant acme");
    let mut body = message();
    body["account"] = json!("main");
    assert_eq!(submit(&home, &server, "one", &body).0, "202");
    run("accounts remove --tenant acme main");
    run("queue resume --tenant acme");
    server.wait_for_log("a message waits for an account that does not exist");
    let metrics =
        printed(&home, &server, &format!("curl -s http://localhost:8000/metrics -H 'X-API-Token: {ADMIN}'"));
    assert!(metrics.contains("tollgate_relay_unserved_total 1"), "{metrics}");
    body["account"] = json!("mian");
    let (status, refused) = submit(&home, &server, "two", &body);
    assert!(status == "422" && refused["detail"].as_str().unwrap().contains("mian"), "{refused}");
    server.stop();
}

/// Neither the log nor a file has the password, but the file that it was read from.
fn assert_no_password(home: &Home, log: &str) {
    assert!(!log.contains(PASSWORD), "{log}");
    for entry in walk(home.directory()) {
        let bytes = std::fs::read(&entry).unwrap();
        let found = bytes.windows(PASSWORD.len()).any(|window| window == PASSWORD.as_bytes());
        assert!(!found || entry.ends_with("password"), "{} has the password", entry.display());
    }
}

/// All files below a directory.
fn walk(directory: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(walk(&path)) } else { found.push(path) }
    }
    found
}
