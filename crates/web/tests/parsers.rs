//! Logins that the account reader accepts are read by parsers of real services: Werkzeug, Django and PHP find
//! the same account, or none. Every other login is refused.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bytes::Bytes;
use http::Method;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use support::policy;
use tollgate_web::Identity;
use tollgate_web::facts::{Aliases, Body, BodyKind, Facts};

/// The number of generated logins.
const LOGINS: usize = 8_000;
const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json";

/// A login as a client sends it.
#[derive(Clone, Debug)]
struct Login {
    kind: &'static str,
    query: String,
    body: Vec<u8>,
}

/// The account that a guard reads from a login; `None` if it refuses the login.
fn account(login: &Login, field: &str) -> Option<String> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(login.kind));
    let body = Body::new(BodyKind::of(&headers).ok()?, Bytes::copy_from_slice(&login.body));
    let facts = Facts {
        route: "login",
        client: "192.0.2.7".parse().unwrap(),
        address: None,
        method: &Method::POST,
        path: "/login",
        query: Some(&login.query),
        host: "shop.example",
        headers: &headers,
        identity: &Identity::default(),
        body: Some(&body),
    };
    let (policy, aliases) = (policy(&[field]), Aliases::default());
    let asked = facts.ask(&policy, &aliases).ok()?;
    asked.pairs().first().map(|(_, value)| (*value).to_owned())
}

/// Runs a program that reads logins, one on each line.
fn read_by(program: &Path, script: &str, logins: &[Login]) -> Vec<Value> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/parsers").join(script);
    let mut child = Command::new(program)
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{} is not installed: run `./test`: {error}", program.display()));
    let mut input = child.stdin.take().unwrap();
    let lines: String = logins
        .iter()
        .map(|Login { kind, query, body }| {
            let hex: String = body.iter().map(|byte| format!("{byte:02x}")).collect();
            json!({ "type": kind, "query": query, "body": hex }).to_string() + "\n"
        })
        .collect();
    let writing = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writing.join().unwrap().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let read: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(read.len(), logins.len());
    read
}

fn python() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/bin/python")
}

/// Parts of logins. Most of them mean the account to some parser.
fn names() -> impl Strategy<Value = String> {
    let usual = prop::sample::select(vec![
        "user",
        "user",
        "user",
        "password",
        "%75ser",
        "USER",
        "user[]",
        "user%5B%5D",
        "user[0]",
        "user[a]",
        "[user]",
        "+user",
        "user+",
        "user%00",
        "user.",
        "us%65r",
        "user%",
        "_charset_",
        "user;",
        "x;user",
        "%EF%BB%BFuser",
        "",
    ]);
    let harmless =
        prop::sample::select(vec!["user", "password", "next", "remember", "theme[user]", "username"]);
    prop_oneof![
        6 => harmless.prop_map(str::to_owned),
        3 => usual.prop_map(str::to_owned),
        1 => "[a-zA-Z%+;.\\[\\]0-9]{0,6}",
    ]
}

fn values() -> impl Strategy<Value = String> {
    let usual = prop::sample::select(vec![
        "ada",
        "bob",
        "a+b",
        "ad%61",
        "%C3%A9",
        "%ff",
        "ada%00",
        "a%3Db",
        "%",
        "%4",
        "ada;user=bob",
        "ada=",
        "",
        "utf-16",
        "ad\u{e9}",
        "{",
        "%u0061",
    ]);
    prop_oneof![4 => usual.prop_map(str::to_owned), 1 => "[a-z%+;=0-9]{0,6}"]
}

fn members(most: usize) -> impl Strategy<Value = String> {
    let member = (names(), prop::option::of(values()))
        .prop_map(|(name, value)| value.map_or(name.clone(), |value| format!("{name}={value}")));
    prop::collection::vec(member, 0..most).prop_map(|members| members.join("&"))
}

fn objects() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec![
        "user",
        "user",
        "user",
        "password",
        "User",
        "\\u0075ser",
        "user\\u0000",
        " user",
        "a&user=b",
        "\u{feff}user",
    ]);
    let value = prop::sample::select(vec![
        "\"ada\"",
        "\"bob\"",
        "7",
        "-7",
        "7.0",
        "1e3",
        "12345678901234567890",
        "true",
        "null",
        "[\"ada\"]",
        "{\"user\":\"eve\"}",
        "\"ad\\u0061\"",
        "\"\\ud800\"",
        "\"a&user=vic\"",
        "\"ada\\u0000\"",
        "NaN",
    ]);
    let member = (name, value).prop_map(|(name, value)| format!("\"{name}\":{value}"));
    prop::collection::vec(member, 0..4).prop_map(|members| format!("{{{}}}", members.join(",")))
}

fn logins() -> impl Strategy<Value = Login> {
    let query = || prop_oneof![2 => Just(String::new()), 1 => members(3)];
    let ascii = |text: String| text.chars().filter(char::is_ascii).collect::<String>();
    prop_oneof![
        3 => (query(), members(4)).prop_map(move |(query, body)| Login { kind: FORM, query: ascii(query), body: body.into() }),
        2 => (query(), objects()).prop_map(move |(query, body)| Login { kind: JSON, query: ascii(query), body: body.into() }),
    ]
}

#[test]
fn whatever_account_is_taken_is_the_one_that_real_parsers_find() {
    let mut runner = TestRunner::deterministic();
    let logins: Vec<Login> = (0..LOGINS).map(|_| logins().new_tree(&mut runner).unwrap().current()).collect();
    let mut taken = Vec::new();
    for login in logins {
        let field = if login.kind == FORM { "form.user" } else { "json.user" };
        for field in [field, "query.user"] {
            if let Some(account) = account(&login, field) {
                taken.push((login.clone(), account));
            }
        }
    }
    assert!(taken.len() > LOGINS / 40, "only {} of {LOGINS} logins are taken", taken.len());
    let sent: Vec<Login> = taken.iter().map(|(login, _)| login.clone()).collect();
    let (pythons, phps) =
        (read_by(&python(), "werkzeug_django.py", &sent), read_by(Path::new("php"), "php.php", &sent));
    for ((login, account), found) in taken.iter().zip(pythons).chain(taken.iter().zip(phps)) {
        for (parser, values) in found.as_object().unwrap() {
            let values = values.as_array().unwrap();
            let same = values.iter().all(|value| value == account);
            let text = String::from_utf8_lossy(&login.body);
            assert!(
                same && values.len() <= 1,
                "{parser} finds {values:?} and the guard {account:?} in {login:?}: {text}"
            );
        }
    }
}
