//! Logins that the account reader accepts are read by parsers of real services: Werkzeug, Django, PHP, Express,
//! Rack, Rails and Tomcat find the same account, or none. Every other login is refused.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::policy;
use bytes::Bytes;
use http::Method;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use tollgate_web::Identity;
use tollgate_web::facts::{Aliases, Body, BodyKind, Facts};

/// The number of generated logins.
const LOGINS: usize = 20_000;
const FORMS: [&str; 2] =
    ["application/x-www-form-urlencoded", "application/x-www-form-urlencoded; charset=UTF-8"];
const JSONS: [&str; 3] = ["application/json", "application/json; charset=utf-8", "application/vnd.api+json"];

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

/// A program that reads logins with the parsers of one language, all of them in one process.
struct Reader {
    program: PathBuf,
    arguments: &'static [&'static str],
    parsers: &'static [&'static str],
}

fn readers() -> Vec<Reader> {
    let reader = |program: &str, arguments, parsers| Reader { program: program.into(), arguments, parsers };
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/bin/python");
    vec![
        Reader { program: python, arguments: &["werkzeug_django.py"], parsers: &["Werkzeug", "Django"] },
        reader("php", &["php.php"], &["PHP"]),
        reader("node", &["express/express.js"], &["Express", "Express, extended names"]),
        reader("ruby", &["rails.rb"], &["Rack", "Rails"]),
        reader("java", &["-cp", "/usr/share/java/*", "Servlet.java"], &["Tomcat"]),
    ]
}

impl Reader {
    /// What the parsers find, for each login.
    fn read(&self, lines: &str, logins: usize) -> Vec<Value> {
        let mut child = Command::new(&self.program)
            .args(self.arguments)
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/parsers"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("{} is not installed: run `./test`: {error}", self.program.display())
            });
        let mut input = child.stdin.take().unwrap();
        let output = std::thread::scope(|scope| {
            scope.spawn(move || input.write_all(lines.as_bytes()));
            child.wait_with_output().unwrap()
        });
        let found = format!(
            "{} with {:?}: run `./test` to install its libraries",
            self.program.display(),
            self.arguments
        );
        assert!(output.status.success(), "{found}");
        let text = String::from_utf8(output.stdout).unwrap();
        let read: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect(&found)).collect();
        assert_eq!(read.len(), logins, "{found}");
        read
    }
}

/// Logins as the programs read them, one on each line.
fn lines(logins: &[(Login, String)]) -> String {
    let line = |Login { kind, query, body }: &Login| {
        let hex: String = body.iter().map(|byte| format!("{byte:02x}")).collect();
        json!({ "type": kind, "query": query, "body": hex }).to_string() + "\n"
    };
    logins.iter().map(|(login, _)| line(login)).collect()
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
        "user.name",
        "user[user]",
        "user[",
        "user%5D",
        " user",
        "%20user",
        "__proto__[user]",
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
        "ada,bob",
        "ada%2Cbob",
        "&#97;da",
        "+ada",
        "ada%20",
        "%E2%9C%93",
        "%ED%A0%80",
        "%C0%AF",
        "%E2%80%8Bada",
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
        "user[]",
        "__proto__",
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
        "-0",
        "01",
        "1E400",
        "\"ad\u{e9}\"",
        "\"\\ud83d\\ude00\"",
        "\"ada\" /* note */",
        "'ada'",
    ]);
    let member = (name, value).prop_map(|(name, value)| format!("\"{name}\":{value}"));
    prop::collection::vec(member, 0..4).prop_map(|members| format!("{{{}}}", members.join(",")))
}

fn logins() -> impl Strategy<Value = Login> {
    let query = || prop_oneof![2 => Just(String::new()), 1 => members(3)];
    let login = |(kind, query, body): (&'static str, String, String)| {
        let query = query.chars().filter(|c| c.is_ascii() && *c != ' ').collect();
        Login { kind, query, body: body.into() }
    };
    prop_oneof![
        3 => (prop::sample::select(&FORMS[..]), query(), members(4)).prop_map(login),
        2 => (prop::sample::select(&JSONS[..]), query(), objects()).prop_map(login),
    ]
}

#[test]
fn whatever_account_is_taken_is_the_one_that_real_parsers_find() {
    let mut runner = TestRunner::deterministic();
    let strategy = logins();
    let logins = (0..LOGINS).map(|_| strategy.new_tree(&mut runner).unwrap().current());
    let mut taken = Vec::new();
    for login in logins {
        let field = if FORMS.contains(&login.kind) { "form.user" } else { "json.user" };
        for field in [field, "query.user"] {
            taken.extend(account(&login, field).map(|account| (login.clone(), account)));
        }
    }
    assert!(taken.len() > LOGINS / 40, "only {} of {LOGINS} logins are taken", taken.len());
    let (taken, lines) = (&taken, &lines(&taken));
    std::thread::scope(|scope| {
        for reader in readers() {
            scope.spawn(move || compare(&reader, &reader.read(lines, taken.len()), taken));
        }
    });
}

/// Checks what the parsers of one language find in logins whose account is taken.
fn compare(reader: &Reader, found: &[Value], taken: &[(Login, String)]) {
    for parser in reader.parsers {
        let mut same = 0;
        for ((login, account), found) in taken.iter().zip(found) {
            let values = found[parser].as_array().unwrap();
            let text = String::from_utf8_lossy(&login.body);
            assert!(
                values.len() <= 1 && values.iter().all(|value| value == account),
                "{parser} finds {values:?} and the guard {account:?} in {login:?}: {text}"
            );
            same += values.len();
        }
        // A parser that fails at everything would agree with everything.
        assert!(same > taken.len() / 2, "{parser} finds only {same} of {} accounts", taken.len());
    }
}
