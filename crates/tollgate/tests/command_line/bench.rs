//! `tollgate bench` against canned responses: what it sends, what it counts, and that it ends.

use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::responder::{Asked, Reply, Responder, Run, done, program};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const ALLOWED: &str =
    r#"{"allowed":true,"verdict":"allow","policy":"api","origin":"store","repeated":false,"rules":[]}"#;
const DENIED: &str =
    r#"{"title":"Rate limit exceeded","status":429,"allowed":false,"verdict":"deny","rules":[]}"#;

/// A server that denies every third attempt.
fn limiter() -> Responder {
    let asked = AtomicUsize::new(0);
    Responder::start(move |request: &Asked| {
        if request.body.contains("dry_run") {
            return Reply::Json(200, ALLOWED);
        }
        match asked.fetch_add(1, Ordering::Relaxed) % 3 {
            2 => Reply::Problem(429, DENIED),
            _ => Reply::Json(200, ALLOWED),
        }
    })
}

fn report(run: &Run) -> Value {
    serde_json::from_str(&run.out).unwrap_or_else(|error| panic!("{error}: {run:?}"))
}

#[test]
fn so_many_requests_are_sent_and_counted() {
    let server = limiter();
    let run = server.run(&[
        "bench",
        "--json",
        "--policy",
        "login",
        "--field",
        "user=ada",
        "--field",
        "ip=@50",
        "--requests",
        "300",
        "--connections",
        "4",
    ]);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    let report = report(&run);
    assert_eq!(
        (&report["requests"], &report["allowed"], &report["denied"]),
        (&300.into(), &200.into(), &100.into())
    );
    assert_eq!((&report["errors"], &report["interrupted"]), (&0.into(), &false.into()));
    let latency = &report["latency_us"];
    let micros = ["p50", "p90", "p99", "p99.9", "max"].map(|name| latency[name].as_f64().unwrap());
    assert!(micros[0] > 0.0 && micros.is_sorted(), "{micros:?}");

    let asked = server.asked();
    assert_eq!(asked.len(), 301, "one rehearsal, and no request more than was told");
    let rehearsal: Value = serde_json::from_str(&asked[0].body).unwrap();
    assert_eq!(rehearsal["dry_run"], true);
    let addresses: std::collections::HashSet<String> = asked[1..]
        .iter()
        .map(|asked| {
            let body: Value = serde_json::from_str(&asked.body).unwrap();
            assert_eq!((&body["policy"], &body["fields"]["user"]), (&"login".into(), &"ada".into()));
            assert_eq!(body.get("dry_run"), None);
            body["fields"]["ip"].as_str().unwrap().to_owned()
        })
        .collect();
    assert!((25..=50).contains(&addresses.len()), "{} of 50 addresses", addresses.len());
}

#[test]
fn words_have_a_table_of_latencies_and_counts() {
    let run = limiter().run(&["bench", "--policy", "api", "--requests", "30"]);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    assert!(run.out.starts_with("30 requests in "), "{}", run.out);
    let words: Vec<Vec<&str>> = run.out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(words[2], ["p50", "p90", "p99", "p99.9", "max"]);
    assert_eq!(words[5], ["requests/s", "decisions/s", "allowed", "denied", "errors"]);
    assert_eq!(words[6][2..], ["20", "10", "0"]);
}

#[test]
fn every_decision_of_a_batch_is_counted() {
    let server = Responder::start(|asked| {
        if asked.body.contains("dry_run") {
            return Reply::Json(200, ALLOWED);
        }
        Reply::Json(200, r#"{"decisions":[{"status":200},{"status":429},{"status":503}]}"#)
    });
    let run = server.run(&[
        "bench",
        "--policy",
        "api",
        "--json",
        "--requests",
        "10",
        "--batch",
        "3",
        "--field",
        "ip=@9",
    ]);
    let report = report(&run);
    assert_eq!(
        (&report["allowed"], &report["denied"], &report["errors"]),
        (&10.into(), &10.into(), &10.into())
    );
    assert_eq!(report["first_error"], "status 503");
    let body: Value = serde_json::from_str(&server.asked()[1].body).unwrap();
    assert_eq!(body["attempts"].as_array().unwrap().len(), 3);
}

#[test]
fn bench_ends_on_time_even_without_responses() {
    let server = Responder::start(|asked| {
        if asked.body.contains("dry_run") { Reply::Json(200, ALLOWED) } else { Reply::Hang }
    });
    let run =
        server.run(&["bench", "--policy", "api", "--json", "--duration", "200ms", "--connections", "2"]);
    assert_eq!(run.code, 2, "nothing was measured");
    assert_eq!(report(&run)["requests"], 0);
}

#[test]
fn requests_without_an_answer_are_errors() {
    let server = Responder::start(|asked| {
        if asked.body.contains("dry_run") { Reply::Json(200, ALLOWED) } else { Reply::Close }
    });
    let run = server.run(&["bench", "--policy", "api", "--json", "--requests", "20", "--connections", "2"]);
    let report = report(&run);
    assert_eq!((run.code, &report["requests"], &report["errors"]), (2, &0.into(), &20.into()));
    assert!(report["first_error"].is_string());
}

#[test]
fn bench_stops_if_the_server_refuses_its_requests() {
    let problem = r#"{"title":"Bad request","status":400,"detail":"there is no policy `api`"}"#;
    let server = Responder::always(Reply::Problem(400, problem));
    let run = server.run(&["bench", "--policy", "api", "--requests", "50"]);
    assert_eq!((run.code, run.err.as_str()), (2, "error: Bad request: there is no policy `api`\n"));
    assert_eq!(server.asked().len(), 1);
}

#[test]
fn without_a_policy_the_only_one_is_asked_about_or_that_of_the_starter() {
    let rules = r#""enabled":true,"rules":{}"#;
    let table = [
        ("{\"mail\":[]}", Ok("mail")),
        ("{\"api\":[],\"login\":[]}", Ok("api")),
        ("{\"accept\":[],\"deliver\":[]}", Err("the server has accept, deliver")),
        ("{}", Err("the server has none")),
    ];
    for (policies, expected) in table {
        let configuration: &'static str = format!("{{{rules},\"policies\":{policies}}}").leak();
        let server = Responder::start(move |asked| match asked.line.starts_with("GET ") {
            true => Reply::Json(200, configuration),
            false => Reply::Json(200, ALLOWED),
        });
        let run = server.run(&["bench", "--json", "--requests", "3"]);
        match expected {
            Ok(policy) => assert_eq!(report(&run)["policy"], policy),
            Err(why) => {
                let said = format!("error: name a policy with --policy: {why}\n");
                assert_eq!((run.code, run.err), (2, said));
                assert_eq!(server.asked().len(), 1);
            }
        }
    }
}

#[test]
fn an_interrupt_prints_the_results_so_far() {
    let server = limiter();
    let child = program(
        &server.url(),
        &["bench", "--policy", "api", "--json", "--duration", "600s", "--connections", "2"],
    )
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    server.wait_for(50);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let run = done(child.wait_with_output().unwrap());
    let report = report(&run);
    assert_eq!((run.code, &report["interrupted"]), (0, &true.into()));
    assert!(report["requests"].as_u64().unwrap() >= 40);
}
