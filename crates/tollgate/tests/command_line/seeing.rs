//! The commands that show a node: `status`, `rules`, `peek KEY` and `decisions --id`.

use crate::responder::{Reply, Responder};

#[test]
fn status_shows_the_store_and_the_rates_of_each_policy() {
    let status = r#"{"at":"2026-01-01T00:00:00Z","store":{"shared":true,"state":"up","reason":null,"cause":null},"relay_fault":null,"policies":[
{"policy":"api","waiting":2,"second":{},"minute":{"allow":72000,"blocked":3,"deny":30,"wait":0,"defer":0,"observe":6}},
{"policy":"login","waiting":0,"second":{},"minute":{"allow":0,"blocked":0,"deny":0,"wait":0,"defer":1,"observe":0}}]}"#;
    let server = Responder::always(Reply::Json(200, status));
    let run = server.run(&["status"]);
    assert_eq!(
        run.out,
        "\
the shared store is up

policy  allowed/s  denied/s  deferred/s  waited/s  blocked/s  observed/s  waiting
api         1,200      0.50           0         0       0.05        0.10        2
login           0         0        0.02         0          0           0        0
"
    );
    assert_eq!((run.code, server.only().line.as_str()), (0, "GET /api/v1/status"));
}

#[test]
fn status_shows_why_a_store_and_a_relay_do_not_work() {
    let status = r#"{"store":{"shared":true,"state":"degraded","reason":"unreachable","cause":"the store cannot be used: connection \u001b[31mrefused"},"relay_fault":"the disk is full","policies":[]}"#;
    let run = Responder::always(Reply::Json(200, status)).run(&["status"]);
    let lines: Vec<&str> = run.out.lines().collect();
    assert_eq!(lines.len(), 3, "{}", run.out);
    assert!(lines[0].starts_with("the shared store cannot be used: connection "), "{}", run.out);
    assert!(lines[0].ends_with("refused") && !run.out.contains('\u{1b}'), "{}", run.out);
    assert_eq!(
        lines[1..],
        ["the mail relay does not work: the disk is full", "no attempts in the last minute"]
    );
    let alone = r#"{"store":{"shared":false,"state":"up","reason":null,"cause":null},"relay_fault":null,"policies":[]}"#;
    let run = Responder::always(Reply::Json(200, alone)).run(&["status"]);
    assert_eq!(run.out, "the store is up\nno attempts in the last minute\n");
}

#[test]
fn the_history_is_the_servers_answer_as_it_came() {
    let history = r#"{"at":"2026-01-01T00:00:00Z","policies":[{"policy":"api","outcomes":{"deny":[0,2]}}]}"#;
    let server = Responder::always(Reply::Json(200, history));
    assert_eq!(server.run(&["status", "--history"]).out, format!("{history}\n"));
    assert_eq!(server.only().line, "GET /api/v1/status/history");
}

#[test]
fn rules_show_their_pressure_and_when_they_were_last_exceeded() {
    let rules = r#"{"enabled":true,"rules":[
{"rule":"client","policies":["api"],"by":["ip"],"limits":["10/s burst 50","1000/hour"],"overrides":0,"on_exceed":"reject","observed":false,"enabled":true,"attempts":1000,"recent":{"deny":20,"wait":3,"defer":2,"observe":0},"pressure":0.025,"last_denied":"2026-01-01T00:00:00Z","last_observed":null,"used":null},
{"rule":"new","policies":["api"],"by":["ip"],"limits":["5/s"],"overrides":0,"on_exceed":"observe","observed":true,"enabled":true,"attempts":1000,"recent":{"deny":0,"wait":0,"defer":0,"observe":700},"pressure":0.7,"last_denied":null,"last_observed":"2026-01-01T00:00:05Z","used":null},
{"rule":"late","policies":["p"],"by":["ip"],"limits":["5/s"],"overrides":0,"on_exceed":"reject","observed":false,"enabled":true,"attempts":null,"recent":{"deny":0,"wait":0,"defer":0,"observe":0},"pressure":null,"last_denied":null,"last_observed":null,"used":null}]}"#;
    let server = Responder::always(Reply::Json(200, rules));
    let run = server.run(&["rules"]);
    assert_eq!(
        run.out,
        "\
rule    limits                    mode      pressure  enforced  observed  last exceeded
client  10/s burst 50, 1000/hour  reject       2.5 %        25         0  2026-01-01T00:00:00Z
new     5/s                       observed    70.0 %         0       700  2026-01-01T00:00:05Z
late    5/s                       reject           -         0         0  -
"
    );
    assert_eq!((run.code, server.only().line.as_str()), (0, "GET /api/v1/rules"));
    let none = Responder::always(Reply::Json(200, r#"{"enabled":true,"rules":[]}"#)).run(&["rules"]);
    assert_eq!(none.out, "there are no rules\n");
}

#[test]
fn peek_tells_that_a_pseudonym_is_none_of_the_keys() {
    let answer = r#"{"rules":[],"left_out":0,"pseudonym":true}"#;
    let server = Responder::always(Reply::Json(200, answer));
    let run = server.run(&["peek", "#0123456789abcdef"]);
    assert_eq!(run.out, "this is the pseudonym of a secret key: to see its counts, give the key itself\n");
    assert_eq!(server.only().line, "GET /api/v1/keys/%230123456789abcdef");
    let answer = r#"{"rules":[],"left_out":0,"pseudonym":false}"#;
    let run = Responder::always(Reply::Json(200, answer)).run(&["peek", "x"]);
    assert_eq!(run.out, "no rule has keys like this\n");
}

const DETAIL: &str = r#"{"at":"2026-01-01T00:00:00Z","policy":"api","verdict":"deny","origin":"blocked","rule":null,"blocked":"203.0.113.7","id":"abc","cost":1,"retry_after_ms":null,"rules":[],"complete":true}"#;
const PROBLEM: &str = r#"{"type":"about:blank","title":"Bad request","status":400,"detail":"this is not the token of a decision of this store"}"#;

/// A journal without decisions, and one token.
fn knows(token: &'static str) -> Responder {
    Responder::start(move |asked| match asked.line.strip_prefix("GET /api/v1/decisions/") {
        None => Reply::Json(200, r#"{"decisions":[]}"#),
        Some(path) if path == token => Reply::Json(200, DETAIL),
        Some(_) => Reply::Problem(400, PROBLEM),
    })
}

#[test]
fn a_short_token_is_found_like_a_long_one() {
    let short = "EAbG_x-9";
    for written in [short.to_owned(), format!("https://limits.example/#/decision/{short}")] {
        let server = knows(short);
        let run = server.run(&["decisions", "--id", &written]);
        assert!(run.code == 0 && run.out.contains("203.0.113.7"), "{run:?}");
        assert_eq!(server.asked().len(), 2, "the journal first, then the token");
    }
    let long: &str = "A".repeat(129).leak();
    let server = knows(long);
    assert!(server.run(&["decisions", "--id", long]).out.contains("203.0.113.7"));
    assert_eq!(server.asked().len(), 1, "no correlation id is so long");
}

#[test]
fn an_id_that_is_unknown_fails_and_the_server_says_how_far_back_it_looked() {
    for id in ["unknown", "100%", "a/b/"] {
        let run = knows("x").run(&["decisions", "--id", id]);
        let said = format!("no decision has the id {id}: the journal of this node is empty\n");
        assert_eq!((run.code, run.out, run.err.as_str()), (1, said, ""), "{id}");
    }
    let journal = r#"{"decisions":[],"kept":1000,"oldest":"2026-01-01T00:00:01Z"}"#;
    let server = || Responder::always(Reply::Json(200, journal));
    let long = "a".repeat(100);
    let said = "the journal of this node has 1,000 decisions, the oldest of 2026-01-01T00:00:01Z\n";
    for (filters, code, about) in
        [(["--id", "é"], 1, "no decision has the id é"), (["--key", &long], 0, "no such decisions")]
    {
        let run = server().run(&[&["decisions"][..], &filters].concat());
        assert_eq!((run.code, run.out), (code, format!("{about}: {said}")), "{filters:?}");
    }
    let run = server().run(&["decisions", "--json", "--id", "é"]);
    assert_eq!((run.code, run.out.contains("\"oldest\"")), (1, true), "{run:?}");
}

#[test]
fn a_correlation_id_may_be_as_long_as_a_token() {
    let id = "a".repeat(128);
    let journal = r#"{"decisions":[{"at":"2026-01-01T00:00:01Z","policy":"api","verdict":"deny","rule":"client","key":"10.0.0.1","cost":1,"retry_after_ms":100}]}"#;
    let server = Responder::always(Reply::Json(200, journal));
    assert!(server.run(&["decisions", "--id", &id]).out.contains("10.0.0.1"));
    assert_eq!(server.only().line, format!("GET /api/v1/decisions?limit=100&id={id}"));
}
