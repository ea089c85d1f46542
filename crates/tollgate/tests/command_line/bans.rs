//! `ban`, `unban` and `bans`: what they send, and how they print the response.

#![allow(clippy::unwrap_used, reason = "a test fails where something is missing")]

use std::io::Write;

use crate::responder::{Reply, Responder, run};
use serde_json::{Value, json};

const SET: &str = r#"{"bans":[{"target":"203.0.113.0/24","kind":"block","reason":"spam","public":true,"author":"ops","since":"2026-01-15T10:00:00Z","until":"2026-01-15T11:00:00Z"},{"target":"user=bob","kind":"allow","reason":"","public":false,"author":"rule login","since":null,"until":null}]}"#;

fn body(server: &Responder) -> Value {
    serde_json::from_str(&server.only().body).unwrap()
}

#[test]
fn a_ban_is_sent_with_all_that_was_said_and_put_in_words() {
    let server = Responder::always(Reply::Json(200, SET));
    let run =
        server.run(&["ban", "203.0.113.0/24", "user=bob", "--for", "60m", "--reason", "spam", "--public"]);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    assert_eq!(run.out, "203.0.113.0/24 is blocked, until 2026-01-15T11:00:00Z\nuser=bob is never blocked\n");
    assert_eq!(server.only().line, "POST /api/v1/bans");
    let ban = |target: &str| json!({ "target": target, "for": "1h", "reason": "spam", "public": true });
    assert_eq!(body(&server), json!({ "bans": [ban("203.0.113.0/24"), ban("user=bob")] }));

    let server = Responder::always(Reply::Json(200, SET));
    let run = server.run(&["ban", "--allow", "10.0.0.1", "--json"]);
    assert_eq!((run.code, run.out), (0, format!("{SET}\n")));
    assert_eq!(body(&server), json!({ "bans": [{ "target": "10.0.0.1", "kind": "allow" }] }));
}

#[test]
fn every_address_is_sent_with_the_word_that_it_needs() {
    let server = Responder::always(Reply::Json(200, SET));
    assert_eq!(server.run(&["ban", "0.0.0.0/0", "--force"]).code, 0);
    assert_eq!(body(&server), json!({ "bans": [{ "target": "0.0.0.0/0", "force": true }] }));
}

#[test]
fn a_file_is_sent_a_thousand_targets_at_a_time() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "# a list\n\n10.0.0.1 ; SBL1\n  10.0.0.2/32  # why\n;").unwrap();
    for number in 0..2_000 {
        writeln!(file, "user=u{number}").unwrap();
    }
    let server = Responder::always(Reply::Json(200, r#"{"bans":[]}"#));
    let run = server.run(&["ban", "--from", file.path().to_str().unwrap()]);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    let sent: Vec<Value> =
        server.asked().iter().map(|asked| serde_json::from_str(&asked.body).unwrap()).collect();
    let sizes: Vec<usize> = sent.iter().map(|body| body["bans"].as_array().unwrap().len()).collect();
    assert_eq!(sizes, [1_000, 1_000, 2]);
    assert_eq!(sent[0]["bans"][0]["target"], "10.0.0.1");
    assert_eq!(sent[0]["bans"][1]["target"], "10.0.0.2/32");
    assert_eq!(sent[2]["bans"][1]["target"], "user=u1999");
}

#[test]
fn invalid_arguments_are_refused_before_any_request() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let empty = file.path().to_str().unwrap();
    for (arguments, expected) in [
        (&["ban"][..], "required"),
        (&["ban", "10.0.0.1", "--public"], "--reason"),
        (&["ban", "10.0.0.1", "--allow", "--reason", "us", "--public"], "cannot be used with"),
        (&["ban", "10.0.0.1", "--for", "soon"], "a duration is a number and a unit"),
        (&["ban", "--from", "/no/such/file"], "cannot read /no/such/file"),
        (&["ban", "--from", empty], "there are no targets"),
        (&["unban"], "required"),
        (&["bans", "--kind", "ban"], "possible values"),
        (&["bans", "--address", "bob"], "invalid"),
    ] {
        let run = run("http://127.0.0.1:1", arguments, &[]);
        assert_eq!(run.code, 2, "{arguments:?}");
        assert!(run.err.contains(expected), "{arguments:?}: {}", run.err);
    }
}

#[test]
fn an_unban_names_its_target_whatever_that_contains() {
    let server = Responder::always(Reply::Json(200, r#"{"removed":true,"configured":true}"#));
    let run = server.run(&["unban", "user=a/b,ip=2001:db8::/64"]);
    assert_eq!(
        (run.code, run.out.as_str()),
        (0, "removed user=a/b,ip=2001:db8::/64; the configuration lists it\n")
    );
    assert_eq!(server.only().line, "DELETE /api/v1/bans/user%3Da%2Fb%2Cip%3D2001%3Adb8%3A%3A%2F64");
    let server = Responder::always(Reply::Json(200, r#"{"removed":false,"configured":false}"#));
    assert_eq!(server.run(&["unban", "user=bob"]).out, "nothing was set for user=bob\n");
}

#[test]
fn the_lists_are_shown_as_a_table() {
    let server = Responder::always(Reply::Json(200, SET));
    let run = server.run(&[
        "bans",
        "--limit",
        "7",
        "--kind",
        "block",
        "--address",
        "10.0.0.1",
        "--author",
        "rule a",
        "--contains",
        "x&y",
        "--after",
        "user=a",
    ]);
    let expected = "\
target          kind   until                 author      reason
203.0.113.0/24  block  2026-01-15T11:00:00Z  ops         spam
user=bob        allow  -                     rule login  -
";
    assert_eq!((run.code, run.out.as_str()), (0, expected));
    let query =
        "GET /api/v1/bans?limit=7&after=user%3Da&kind=block&author=rule%20a&address=10.0.0.1&contains=x%26y";
    assert_eq!(server.only().line, query);
    let more = r#"{"bans":[{"target":"user=bob","kind":"block","reason":"","public":false,"author":"ops","since":null,"until":null}],"next":"user=bob"}"#;
    let run = Responder::always(Reply::Json(200, more)).run(&["bans"]);
    assert!(run.out.ends_with("\nthere are more: --after 'user=bob'\n"), "{}", run.out);
    let run = Responder::always(Reply::Json(200, r#"{"bans":[]}"#)).run(&["bans"]);
    assert_eq!(run.out, "the lists are empty\n");
}

#[test]
fn a_check_of_a_blocked_client_exits_with_1_and_a_missing_role_with_2() {
    let blocked = r#"{"type":"/problems/banned","title":"Banned","status":403,"detail":"banned: spam; retry after 3600 s","correlationId":"c","error":"banned","allowed":false,"verdict":"deny","policy":"p","origin":"blocked","reason":"spam","retry_after_ms":3600000,"rules":[]}"#;
    let run = Responder::always(Reply::Problem(403, blocked)).run(&["check", "p"]);
    assert_eq!(
        (run.code, run.out.as_str(), run.err.as_str()),
        (1, "blocked, retry in 1h\nreason: spam\n", "")
    );
    let run = Responder::always(Reply::Problem(403, blocked)).run(&["check", "p", "--json"]);
    assert_eq!((run.code, run.out), (1, format!("{blocked}\n")));
    let good = blocked.replace(r#","retry_after_ms":3600000"#, "").replace(r#","reason":"spam""#, "");
    let run = Responder::always(Reply::Problem(403, good.leak())).run(&["check", "p"]);
    assert_eq!((run.code, run.out.as_str()), (1, "blocked\n"));
    let forbidden = r#"{"type":"/problems/forbidden","title":"Forbidden","status":403,"detail":"this needs the role `check`","correlationId":"c"}"#;
    let run = Responder::always(Reply::Problem(403, forbidden)).run(&["check", "p"]);
    assert_eq!((run.code, run.out.as_str()), (2, ""));
    assert!(run.err.contains("this needs the role"), "{}", run.err);
}
