//! Policies, routes and consumers on the command line: what is sent to the server, and how its responses are
//! printed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crate::responder::{Reply, Responder};
use serde_json::{Value, json};

const POLICY: &str = r#"{"id":"partners","name":"partners","description":"what partners\nmay do","requestsPerSecond":10,"burstSize":50,"limits":["10/s burst 50"],"by":["route","ip"],"on_exceed":"reject","on_outage":null,"effective_on_outage":"local 50%","in_force":true,"routes":2,"version":3,"createdAt":"2026-01-15T10:00:00Z","updatedAt":"2026-01-15T10:00:05Z"}"#;

const IN_WORDS: &str = "\
partners

limits             10/s burst 50
by                 route, ip
when exceeded      reject
without the store  local 50%, by default
routes             2
made               2026-01-15T10:00:00Z
changed            2026-01-15T10:00:05Z, version 3
description        what partners
description        may do
";

fn body(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_policy_is_made_from_limits_or_from_two_numbers() {
    let table: [(&[&str], Value); 3] = [
        (&["10/s burst 50"], json!({ "name": "partners", "limits": ["10/s burst 50"] })),
        (
            &["--requests-per-second", "10", "--burst-size", "50"],
            json!({ "name": "partners", "requestsPerSecond": 10, "burstSize": 50 }),
        ),
        (
            &[
                "100/hour",
                "5 at once",
                "--by",
                "subject,ip",
                "--description",
                "d",
                "--on-exceed",
                "wait 2s",
                "--on-outage",
                "deny",
            ],
            json!({
                "name": "partners", "limits": ["100/hour", "5 at once"], "by": ["subject", "ip"],
                "description": "d", "on_exceed": "wait 2s", "on_outage": "deny",
            }),
        ),
    ];
    for (arguments, expected) in table {
        let server = Responder::always(Reply::Json(201, POLICY));
        let run = server.run(&[&["policies", "create", "partners"], arguments].concat());
        assert_eq!((run.code, run.out.as_str()), (0, IN_WORDS), "{}", run.err);
        let asked = server.only();
        assert_eq!((asked.line.as_str(), body(&asked.body)), ("POST /api/v1/policies", expected));
    }
}

#[test]
fn an_invalid_policy_is_not_sent() {
    let server = Responder::always(Reply::Json(201, POLICY));
    let table: [(&[&str], &str); 7] = [
        (&[], "limits are missing"),
        (&["10/s brust 50"], "\n    10/s brust 50\n         ^"),
        (&["--requests-per-second", "10"], "--burst-size"),
        (&["--burst-size", "10"], "--requests-per-second"),
        (&["5/s", "--requests-per-second", "10", "--burst-size", "9"], "cannot be used with"),
        (&["5/s", "--on-exceed", "wait"], "a duration is a number and a unit"),
        (&["5/s", "--on-outage", "local"], "`local` is followed by a share"),
    ];
    for (arguments, piece) in table {
        let run = server.run(&[&["policies", "create", "partners"], arguments].concat());
        assert!(run.code == 2 && run.err.contains(piece), "{arguments:?}: {}", run.err);
    }
    assert_eq!(server.run(&["consumers", "set", "acme"]).code, 2);
    assert!(server.asked().is_empty());
}

#[test]
fn a_change_keeps_other_fields_and_never_overwrites_a_newer_version() {
    let answer =
        format!("HTTP/1.1 200 x\r\netag: \"tag-3\"\r\ncontent-length: {}\r\n\r\n{POLICY}", POLICY.len());
    let answer: &'static [u8] = answer.leak().as_bytes();
    let table: [(&[&str], Value); 3] = [
        (
            &["20/s burst 9"],
            json!({ "limits": ["20/s burst 9"], "on_exceed": "reject", "by": ["route", "ip"] }),
        ),
        (
            &["--requests-per-second", "1", "--burst-size", "2"],
            json!({ "requestsPerSecond": 1, "burstSize": 2, "on_exceed": "reject", "by": ["route", "ip"] }),
        ),
        (
            &["--on-exceed", "observe", "--by", "ip"],
            json!({ "limits": ["10/s burst 50"], "on_exceed": "observe", "by": ["ip"] }),
        ),
    ];
    for (arguments, mut expected) in table {
        expected["description"] = json!("what partners\nmay do");
        expected["on_outage"] = Value::Null;
        let server = Responder::always(Reply::Raw(answer));
        let run = server.run(&[&["policies", "set", "partners"], arguments].concat());
        assert_eq!((run.code, run.out.as_str()), (0, IN_WORDS), "{}", run.err);
        let [looked, put] = server.asked().try_into().unwrap();
        assert_eq!(looked.line, "GET /api/v1/policies/partners");
        assert_eq!(put.line, "PUT /api/v1/policies/partners");
        assert_eq!(put.headers.get("if-match").map(String::as_str), Some("\"tag-3\""));
        assert_eq!(body(&put.body), expected);
    }
}

#[test]
fn policies_are_listed_shown_and_deleted() {
    let off = POLICY.replace("\"in_force\":true", "\"in_force\":false").replace("partners", "old");
    let page = format!("{{\"policies\":[{POLICY},{off}],\"next\":\"old\"}}");
    let server = Responder::always(Reply::Json(200, page.leak()));
    let run = server.run(&["policies", "list", "--limit", "2", "--after", "a&b"]);
    assert_eq!(
        run.out,
        "\
policy              limits         by         when exceeded  routes  description
partners            10/s burst 50  route, ip  reject              2  what partners
old (not in force)  10/s burst 50  route, ip  reject              2  what old

more: tollgate policies list --after old
"
    );
    assert_eq!(server.only().line, "GET /api/v1/policies?limit=2&after=a%26b");
    let server = Responder::always(Reply::Json(200, r#"{"policies":[],"next":null}"#));
    assert_eq!(server.run(&["policies", "list"]).out, "no policies were created over the API\n");
    assert_eq!(server.only().line, "GET /api/v1/policies?limit=100");

    let server = Responder::always(Reply::Json(200, POLICY));
    assert_eq!(server.run(&["policies", "show", "partners"]).out, IN_WORDS);
    let json = server.run(&["policies", "show", "partners", "--json"]);
    assert_eq!(json.out, format!("{POLICY}\n"));
    let server = Responder::always(Reply::Json(200, r#"{"deleted":"partners"}"#));
    assert_eq!(server.run(&["policies", "delete", "partners"]).out, "deleted the policy partners\n");
    assert_eq!(server.only().line, "DELETE /api/v1/policies/partners");
}

#[test]
fn routes_are_listed_assigned_and_unassigned() {
    let routes = r#"{"routes":[
        {"route":"a","path":"/a","policy":null,"assigned":null,"configured":null},
        {"route":"b","path":"/b","policy":"p","assigned":null,"configured":"p"},
        {"route":"c","path":"/c","policy":"q","assigned":"q","configured":"p"},
        {"route":"d","path":"/d","policy":"p","assigned":"q","configured":"p"},
        {"route":"e","path":null,"policy":"q","assigned":"q","configured":null}]}"#;
    let server = Responder::always(Reply::Json(200, routes));
    assert_eq!(
        server.run(&["routes", "list"]).out,
        "\
route  path                      policy  because
a      /a                        -       -
b      /b                        p       configured
c      /c                        q       assigned
d      /d                        p       the assigned policy is gone
e      (there is no such route)  q       assigned
"
    );
    assert_eq!(server.only().line, "GET /api/v1/routes");
    let none = Responder::always(Reply::Json(200, r#"{"routes":[]}"#));
    assert_eq!(none.run(&["routes", "list"]).out, "this server has no routes\n");

    let shown = r#"{"route":"a b","path":"/a","policy":"q","assigned":"q","configured":null}"#;
    let server = Responder::always(Reply::Json(200, shown));
    assert_eq!(server.run(&["routes", "assign", "a b", "q"]).out, "a b passes q\n");
    let asked = server.only();
    assert_eq!(asked.line, "PUT /api/v1/routes/a%20b/rate-limit");
    assert_eq!(asked.body, r#"{"policy":"q"}"#);
    for (answer, expected) in [
        (r#"{"removed":true}"#, "a uses its configured policy\n"),
        (r#"{"removed":false}"#, "a had no assigned policy\n"),
    ] {
        let server = Responder::always(Reply::Json(200, answer));
        assert_eq!(server.run(&["routes", "unassign", "a"]).out, expected);
        assert_eq!(server.only().line, "DELETE /api/v1/routes/a/rate-limit");
    }
}

#[test]
fn consumers_are_listed_shown_set_and_unset() {
    let acme =
        r#"{"id":"acme","requestsPerSecond":10,"burstSize":50,"limits":["10/s burst 50"],"overridden":true}"#;
    let page =
        format!(r#"{{"consumers":[{acme},{{"id":"b","limits":["5/s"],"overridden":false}}],"next":"b"}}"#);
    let server = Responder::always(Reply::Json(200, page.leak()));
    assert_eq!(
        server.run(&["consumers", "list"]).out,
        "\
consumer  limits         set by
acme      10/s burst 50  the API
b         5/s            the configuration

more: tollgate consumers list --after b
"
    );
    assert_eq!(server.only().line, "GET /api/v1/consumers?limit=100");
    let server = Responder::always(Reply::Json(200, acme));
    assert_eq!(server.run(&["consumers", "set", "a/c", "10/s burst 50"]).out, "acme: 10/s burst 50\n");
    let asked = server.only();
    assert_eq!(asked.line, "PUT /api/v1/consumers/a%2Fc/rate-limit");
    assert_eq!(asked.body, r#"{"limits":["10/s burst 50"]}"#);
    let server = Responder::always(Reply::Json(200, acme));
    assert_eq!(server.run(&["consumers", "show", "acme"]).out, "acme: 10/s burst 50\n");
    for (answer, expected) in [
        (r#"{"removed":true}"#, "removed the limits of acme\n"),
        (r#"{"removed":false}"#, "acme has no limits of its own\n"),
    ] {
        let server = Responder::always(Reply::Json(200, answer));
        assert_eq!(server.run(&["consumers", "unset", "acme"]).out, expected);
        assert_eq!(server.only().line, "DELETE /api/v1/consumers/acme/rate-limit");
    }
}

#[test]
fn the_earlier_name_of_the_command_still_works() {
    let asked = |command| {
        let server = Responder::always(Reply::Json(200, r#"{"deleted":"partners"}"#));
        let run = server.run(&[command, "delete", "partners"]);
        (run.code, run.out, server.only().line)
    };
    assert_eq!(asked("rate-limits"), asked("policies"));
    assert_eq!(asked("policies").2, "DELETE /api/v1/policies/partners");
}

#[test]
fn a_conflict_is_an_error_that_says_why() {
    let problem = r#"{"type":"/problems/conflict","title":"Conflict","status":409,"detail":"`partners` is in use by the routes `checkout`","correlationId":"x"}"#;
    let server = Responder::always(Reply::Problem(409, problem));
    let run = server.run(&["policies", "delete", "partners"]);
    let expected = "error: Conflict: `partners` is in use by the routes `checkout` (correlation id x)\n";
    assert_eq!((run.code, run.err.as_str()), (2, expected));
}
