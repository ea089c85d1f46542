//! What each command sends to the server, and how it prints the response.

use crate::responder::{Reply, Responder, run};
use serde_json::{Value, json};

const ALLOWED: &str = r#"{"allowed":true,"verdict":"allow","policy":"mail.accept","origin":"store","repeated":false,
"rules":[{"rule":"ip","key":"10.0.0.1","limit":"500/hour","capacity":500,"remaining":499,"reset_after":3600,"reset_after_ms":3600000,"exceeded":false,"observed":false,
"limits":[{"limit":"500/hour","capacity":500,"remaining":499,"reset_after_ms":3600000,"retry_after_ms":null},
{"limit":"5000/day","capacity":5000,"remaining":4999,"reset_after_ms":86400000,"retry_after_ms":null}]}],
"receipt":"r-1"}"#;

const DENIED: &str = r#"{"type":"/problems/rate-limit-exceeded","title":"Rate limit exceeded","status":429,"detail":"sender user@example.com exceeded 100/hour; retry after 1799 s","correlationId":"c0ffee","error":"rate limit exceeded","allowed":false,"verdict":"deny","policy":"mail.accept","origin":"store","denied_by":"sender","denied_key":"user@example.com","retry_after":1799,"retryAfter":1799,"retry_after_ms":1798500,
"rules":[{"rule":"sender","key":"user@example.com","limit":"100/hour","capacity":100,"remaining":0,"reset_after":1799,"reset_after_ms":1798500,"exceeded":true,"observed":false,
"limits":[{"limit":"100/hour","capacity":100,"remaining":0,"reset_after_ms":1798500,"retry_after_ms":1798500}]}]}"#;

#[test]
fn an_allowed_check_exits_with_0_and_shows_every_limit() {
    let server = Responder::always(Reply::Json(200, ALLOWED));
    let run = server.run(&["check", "mail.accept", "ip=10.0.0.1", "recipients=3"]);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    assert_eq!(
        run.out,
        "\
allowed

rule  key       limit          remaining  resets in
ip    10.0.0.1  500/hour      499 of 500         1h
ip    10.0.0.1  5000/day  4,999 of 5,000         1d

receipt r-1
"
    );
    let asked = server.only();
    assert_eq!(asked.line, "POST /api/v1/check");
    assert_eq!(asked.headers["content-type"], "application/json");
    assert!(!asked.headers.contains_key("authorization"));
    let body: Value = serde_json::from_str(&asked.body).unwrap();
    let fields = json!({ "ip": "10.0.0.1", "recipients": "3" });
    assert_eq!(body, json!({ "policy": "mail.accept", "fields": fields, "cost": 1 }));
}

#[test]
fn a_check_says_that_it_was_decided_without_the_store() {
    let skipped = r#"{"allowed":true,"verdict":"allow","policy":"p","origin":"outage","reason":"open","repeated":false,"rules":[]}"#;
    let run = Responder::always(Reply::Json(200, skipped)).run(&["check", "p"]);
    assert_eq!((run.code, run.out.as_str()), (0, "allowed\ndecided without the store: open\n"));
    let denied = DENIED
        .replace(r#""origin":"store""#, r#""origin":"outage","reason":"timeout""#)
        .replace("429", "503");
    let run = Responder::always(Reply::Problem(503, denied.leak())).run(&["check", "p"]);
    assert_eq!((run.code, run.out.as_str()), (2, ""), "it is not known whether it would pass");
    assert!(run.err.contains("sender user@example.com exceeded"), "{}", run.err);
}

#[test]
fn a_check_sends_cost_id_and_that_it_is_only_a_try() {
    let server = Responder::always(Reply::Json(200, ALLOWED));
    let run = server.run(&["check", "p", "a=b=c", "--cost", "7", "--id", "deal-7", "--dry-run"]);
    assert!(run.out.starts_with("allowed; nothing was charged\n"), "{}", run.out);
    let body: Value = serde_json::from_str(&server.only().body).unwrap();
    let fields = json!({ "a": "b=c" });
    assert_eq!(body, json!({ "policy": "p", "fields": fields, "cost": 7, "id": "deal-7", "dry_run": true }));
}

#[test]
fn a_denied_check_exits_with_1_and_says_when_to_come_back() {
    let server = Responder::always(Reply::Problem(429, DENIED));
    let run = server.run(&["check", "mail.accept", "sender=user@example.com"]);
    assert_eq!((run.code, run.err.as_str()), (1, ""));
    assert_eq!(
        run.out,
        "\
denied by sender user@example.com, retry in 29m 59s

rule    key               limit     remaining  resets in
sender  user@example.com  100/hour   0 of 100    29m 59s
"
    );
}

#[test]
fn json_is_the_servers_answer_as_it_came() {
    for (reply, text, code) in
        [(Reply::Json(200, ALLOWED), ALLOWED, 0), (Reply::Problem(429, DENIED), DENIED, 1)]
    {
        let run = Responder::always(reply).run(&["check", "mail.accept", "ip=10.0.0.1", "--json"]);
        assert_eq!((run.code, run.out, run.err.as_str()), (code, format!("{text}\n"), ""));
    }
}

#[test]
fn waits_deferrals_and_hopeless_attempts_have_headlines_of_their_own() {
    let table = [
        (
            r#"{"allowed":false,"verdict":"wait","denied_by":"out","denied_key":"smtp","retry_after_ms":250,"rules":[]}"#,
            "told to wait by out smtp, retry in 250ms\n",
        ),
        (
            r#"{"allowed":false,"verdict":"defer","denied_by":"global","denied_key":"global","defer_until":"2026-01-01T00:00:00Z","retry_after_ms":1000,"rules":[]}"#,
            "deferred by global, retry at 2026-01-01T00:00:00Z\n",
        ),
        (
            r#"{"allowed":false,"verdict":"deny","denied_by":"jobs","denied_key":"7","rules":[]}"#,
            "denied by jobs 7, and waiting does not help\n",
        ),
        (
            r#"{"allowed":false,"verdict":"deny","denied_by":"jobs","denied_key":"7","rules":[{"rule":"jobs","key":"7","limit":"10 at once","exceeded":true,"observed":false,"limits":[]}]}"#,
            "denied by jobs 7, and waiting does not help: 10 at once\n",
        ),
    ];
    for (answer, expected) in table {
        let run = Responder::always(Reply::Problem(429, answer)).run(&["check", "p"]);
        assert_eq!((run.code, run.out.as_str()), (1, expected));
    }
}

#[test]
fn an_id_that_was_made_up_is_told() {
    let answer = r#"{"allowed":true,"verdict":"allow","id":"9f86d081884c7d65","rules":[],"receipt":"r"}"#;
    let run = Responder::always(Reply::Json(200, answer)).run(&["check", "jobs"]);
    assert_eq!(run.out, "allowed; no limit applies\n\nheld as 9f86d081884c7d65\n\nreceipt r\n");
    let run = Responder::always(Reply::Json(200, answer)).run(&["check", "jobs", "--id", "mine"]);
    assert_eq!(run.out, "allowed; no limit applies\n\nreceipt r\n");
}

#[test]
fn a_repeated_id_and_an_attempt_without_limits_are_said() {
    let table = [
        (
            r#"{"allowed":true,"verdict":"allow","repeated":true,"rules":[]}"#,
            "allowed; this id is already held",
        ),
        (r#"{"allowed":true,"verdict":"allow","repeated":false,"rules":[]}"#, "allowed; no limit applies"),
    ];
    for (answer, expected) in table {
        let run = Responder::always(Reply::Json(200, answer)).run(&["check", "p", "--id", "x"]);
        assert!(run.code == 0 && run.out.starts_with(expected), "{run:?}");
    }
}

#[test]
fn no_limit_at_all_is_the_word_and_not_zero() {
    let commands: [&[&str]; 5] = [
        &["set", "sender", "bob", "0"],
        &["set", "sender", "bob", "5/day", "0/hour"],
        &["set", "sender", "bob", "null"],
        &["policies", "create", "search", "0"],
        &["consumers", "set", "bob", "0"],
    ];
    for arguments in commands {
        let server = Responder::always(Reply::Json(200, "{}"));
        let run = server.run(arguments);
        assert_eq!((run.code, server.asked().len()), (2, 0), "{arguments:?}: {run:?}");
        assert!(
            run.err.contains("this would mean no limit at all: write `unlimited` if you mean that"),
            "{run:?}"
        );
    }
}

#[test]
fn a_key_cannot_act_on_the_terminal() {
    let answer = r#"{"allowed":false,"verdict":"deny","denied_by":"user","denied_key":"\u001b[2Jx","rules":[{"rule":"user","key":"\u001b[2Jx","exceeded":true,"observed":false,"limits":[{"limit":"1/s","capacity":1,"remaining":0}]}]}"#;
    let run = Responder::always(Reply::Problem(429, answer)).run(&["check", "p", "user=x"]);
    assert_eq!(run.out.matches("\\u{1b}[2Jx").count(), 2, "{}", run.out);
    assert!(!run.out.contains('\x1b'));
}

const COUNTERS: &str = r#"{"rule":"sender","key":"user@example.com","overridden":true,"limits":[{"limit":"2000/hour","capacity":2000,"remaining":1990,"used":10,"reset_after_ms":61000,"reset_at":"2026-01-01T00:00:00Z"},{"limit":"1/s burst 5","capacity":5,"remaining":5,"used":0,"reset_after_ms":0,"reset_at":"2026-01-01T00:00:00Z"}],"level":"sender","hourly_count":10,"daily_count":0,"hourly_limit":2000,"daily_limit":0,"hour_start":"2026-01-01T00:00:00Z","day_start":null}"#;

const COUNTERS_IN_WORDS: &str = "\
sender user@example.com (override)

limit        used       remaining  resets in
2000/hour      10  1,990 of 2,000      1m 1s
1/s burst 5     0          5 of 5          -
";

#[test]
fn peek_shows_the_counters_of_a_key() {
    let server = Responder::always(Reply::Json(200, COUNTERS));
    let run = server.run(&["peek", "sender", "user@example.com"]);
    assert_eq!((run.code, run.out.as_str()), (0, COUNTERS_IN_WORDS));
    assert_eq!(server.only().line, "GET /api/v1/counters/sender/user%40example.com");
}

#[test]
fn a_key_with_slashes_stays_one_part_of_the_path() {
    let server = Responder::always(Reply::Json(200, COUNTERS));
    server.run(&["peek", "orders", "/a b/%2F,10.0.0.1"]);
    assert_eq!(server.only().line, "GET /api/v1/counters/orders/%2Fa%20b%2F%252F%2C10.0.0.1");
}

#[test]
fn set_puts_limits_and_unset_removes_them() {
    let server = Responder::always(Reply::Json(200, COUNTERS));
    let run = server.run(&["set", "sender", "user@example.com", "2000/hour", "10/s burst 50"]);
    assert_eq!((run.code, run.out.as_str()), (0, COUNTERS_IN_WORDS));
    let asked = server.only();
    assert_eq!(asked.line, "PUT /api/v1/counters/sender/user%40example.com");
    assert_eq!(asked.body, r#"{"limits":["2000/hour","10/s burst 50"]}"#);

    for (answer, expected) in [
        (r#"{"removed":true}"#, "removed: the limits of rule sender apply to u again\n"),
        (r#"{"removed":false}"#, "u had no override in rule sender\n"),
    ] {
        let server = Responder::always(Reply::Json(200, answer));
        let run = server.run(&["set", "sender", "u", "--unset"]);
        assert_eq!((run.code, run.out.as_str()), (0, expected));
        assert_eq!(server.only().line, "DELETE /api/v1/counters/sender/u/override");
    }
}

#[test]
fn a_limit_that_is_none_is_shown_where_it_goes_wrong_and_not_sent() {
    let server = Responder::always(Reply::Json(200, COUNTERS));
    let run = server.run(&["set", "sender", "u", "10/fortnight"]);
    assert!(run.code == 2 && run.err.contains("\n    10/fortnight\n       ^"), "{}", run.err);
    assert_eq!(server.run(&["set", "sender", "u"]).code, 2);
    assert_eq!(server.run(&["set", "sender", "u", "1/s", "--unset"]).code, 2);
    assert!(server.asked().is_empty());
}

#[test]
fn reset_names_exactly_what_is_forgotten() {
    let table: [(&[&str], &str, &str); 3] = [
        (&["sender", "u"], "/sender/u", "reset the counts of sender u\n"),
        (&["--rule", "sender"], "/sender", "reset the counts of every key of sender\n"),
        (&["--all", "--yes"], "", "reset the counts of every key of every rule\n"),
    ];
    for (arguments, path, expected) in table {
        let server = Responder::always(Reply::Json(200, r#"{"reset":true}"#));
        let run = server.run(&[&["reset"], arguments].concat());
        assert_eq!((run.code, run.out.as_str()), (0, expected));
        assert_eq!(server.only().line, format!("DELETE /api/v1/counters{path}"));
    }
}

#[test]
fn an_ambiguous_reset_resets_nothing() {
    let server = Responder::always(Reply::Json(200, r#"{"reset":true}"#));
    let all = server.run(&["reset", "--all"]);
    assert_eq!(
        (all.code, all.err.as_str()),
        (2, "error: --all needs --yes if standard input is not a terminal\n")
    );
    for arguments in
        [&["reset"][..], &["reset", "a"], &["reset", "a", "b", "--all"], &["reset", "a", "--rule", "b"]]
    {
        assert_eq!(server.run(arguments).code, 2, "{arguments:?}");
    }
    assert!(server.asked().is_empty());
}

#[test]
fn a_part_of_a_receipt_is_named_by_amount_and_by_field() {
    for (arguments, body) in [
        (&["refund", "r-1", "--amount", "2"][..], r#"{"amount":2,"receipt":"r-1"}"#),
        (&["refund", "r-1", "--count", "recipients=3"], r#"{"counts":{"recipients":3},"receipt":"r-1"}"#),
        (&["give", "r-1", "--amount", "0"], r#"{"amount":0,"receipt":"r-1"}"#),
    ] {
        let server = Responder::always(Reply::Json(200, r#"{"refunded":"back","given":"back"}"#));
        assert_eq!(server.run(arguments).code, 0);
        assert_eq!(server.only().body, body);
    }
    let server = Responder::always(Reply::Json(200, r#"{"refunded":"back","given":"back"}"#));
    for bad in ["recipients", "recipients=many", "=3x"] {
        assert_eq!(server.run(&["refund", "r-1", "--count", bad]).code, 2, "{bad}");
    }
    assert!(server.asked().is_empty());
}

#[test]
fn refund_reports_the_outcome_of_the_receipt() {
    let table = [
        (r#"{"refunded":"back","given":"back"}"#, 0, "refunded\n"),
        (r#"{"refunded":"already","given":"already"}"#, 0, "was refunded before\n"),
        (r#"{"refunded":"too_old","given":"too_old"}"#, 1, "too old to be refunded\n"),
    ];
    for (answer, code, expected) in table {
        let server = Responder::always(Reply::Json(200, answer));
        let run = server.run(&["refund", "r-1"]);
        assert_eq!((run.code, run.out.as_str()), (code, expected));
        let asked = server.only();
        assert_eq!(
            (asked.line.as_str(), asked.body.as_str()),
            ("POST /api/v1/refund", r#"{"receipt":"r-1"}"#)
        );
    }
}

#[test]
fn holds_are_shown_released_and_renewed() {
    let held = r#"{"rule":"jobs","key":"7","limit":"10 at once","capacity":10,"held":2,"holds":[{"id":"job-42","weight":2,"since":"2026-01-01T00:00:00Z","expires":null}]}"#;
    let table: [(&[&str], &str, &str, &str); 4] = [
        (
            &[],
            "GET /api/v1/holds/jobs/7",
            held,
            "2 of 10 held (10 at once)\n\nid      weight  since                 expires\njob-42       2  2026-01-01T00:00:00Z  -\n",
        ),
        (
            &["--release", "a/b"],
            "DELETE /api/v1/holds/jobs/7/a%2Fb",
            r#"{"released":true}"#,
            "released a/b\n",
        ),
        (&["--release", "x"], "DELETE /api/v1/holds/jobs/7/x", r#"{"released":false}"#, "was not held: x\n"),
        (&["--renew", "x"], "POST /api/v1/holds/jobs/7/x/renew", r#"{"renewed":true}"#, "renewed x\n"),
    ];
    for (arguments, line, answer, expected) in table {
        let server = Responder::always(Reply::Json(200, answer));
        let run = server.run(&[&["holds", "jobs", "7"], arguments].concat());
        assert_eq!((run.code, run.out.as_str()), (0, expected));
        assert_eq!(server.only().line, line);
    }
}

#[test]
fn decisions_are_listed_newest_first() {
    let journal = r#"{"decisions":[{"at":"2026-01-01T00:00:01Z","policy":"api","verdict":"deny","rule":"client","key":"10.0.0.1","cost":1,"retry_after_ms":100},{"at":"2026-01-01T00:00:00Z","policy":"api","verdict":"allow","rule":null,"key":null,"cost":1,"retry_after_ms":null}]}"#;
    let server = Responder::always(Reply::Json(200, journal));
    let run = server.run(&["decisions", "--limit", "5"]);
    assert_eq!(
        run.out,
        "\
at                    policy  verdict  rule    key       cost  retry in
2026-01-01T00:00:01Z  api     deny     client  10.0.0.1     1     100ms
2026-01-01T00:00:00Z  api     allow    -       -            1         -
"
    );
    assert_eq!(server.only().line, "GET /api/v1/decisions?limit=5");
}

#[test]
fn decisions_are_looked_for_by_the_server() {
    let server = Responder::always(Reply::Json(200, r#"{"decisions":[]}"#));
    let filters = ["--policy", "api", "--rule", "client", "--key", "a b,c", "--verdict", "deny"];
    let run = server.run(&[&["decisions"][..], &filters].concat());
    assert_eq!((run.code, run.out.as_str()), (0, "no such decisions: the journal of this node is empty\n"));
    let query = "limit=100&policy=api&rule=client&key=a%20b%2Cc&verdict=deny";
    assert_eq!(server.only().line, format!("GET /api/v1/decisions?{query}"));
}

#[test]
fn config_shows_rules_overrides_and_policies() {
    let answer = r#"{"enabled":true,"rules":{"domain":{"by":["domain"],"limits":["1000/hour","10000/day"],"overrides":{"example.com":["5000/hour"],"free.example":[]},"on_exceed":"reject","enabled":true},"global":{"by":[],"limits":["50000/hour"],"overrides":{},"on_exceed":"defer","enabled":false}},"policies":{"mail.accept":["global","domain"]},"global":{"messages_per_hour":50000,"messages_per_day":0}}"#;
    let server = Responder::always(Reply::Json(200, answer));
    let run = server.run(&["config"]);
    assert_eq!(
        run.out,
        "\
rule          by      key           limits                when exceeded
domain        domain  -             1000/hour, 10000/day  reject
                      example.com   5000/hour
                      free.example  unlimited
global (off)  -       -             50000/hour            defer

policy       rules
mail.accept  global, domain
"
    );
    assert_eq!(server.only().line, "GET /api/v1/counters");
}

#[test]
fn reload_asks_once() {
    let server = Responder::always(Reply::Json(200, r#"{"reloaded":true}"#));
    let run = server.run(&["reload"]);
    assert_eq!((run.code, run.out.as_str()), (0, "reloaded\n"));
    assert_eq!(server.only().line, "POST /api/v1/reload");
}

#[test]
fn the_token_comes_from_a_file_or_else_from_the_environment() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, "from-a-file\nand more\n").unwrap();
    let file = file.to_str().unwrap();
    let table: [(&[&str], &str, Option<&str>); 4] = [
        (&["reload"], "from-the-environment", Some("Bearer from-the-environment")),
        (&["reload", "--token-file", file], "from-the-environment", Some("Bearer from-a-file")),
        (&["reload", "--token-file", file], "", Some("Bearer from-a-file")),
        (&["reload"], "", None),
    ];
    for (arguments, variable, expected) in table {
        let server = Responder::always(Reply::Json(200, r#"{"reloaded":true}"#));
        assert_eq!(run(&server.url(), arguments, &[("TOLLGATE_TOKEN", variable)]).code, 0);
        assert_eq!(server.only().headers.get("authorization").map(String::as_str), expected);
    }
}

#[test]
fn a_path_in_front_of_the_api_is_kept() {
    let server = Responder::always(Reply::Json(200, r#"{"reloaded":true}"#));
    assert_eq!(
        run("http://127.0.0.1:1", &["reload", "--server", &format!("{}/limits/", server.url())], &[]).code,
        0
    );
    assert_eq!(server.only().line, "POST /limits/api/v1/reload");
}

#[test]
fn a_proxy_in_the_environment_is_not_used() {
    let server = Responder::always(Reply::Json(200, r#"{"reloaded":true}"#));
    let proxies =
        ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"].map(|name| (name, "http://127.0.0.1:1"));
    assert_eq!(run(&server.url(), &["reload"], &proxies).code, 0);
}
