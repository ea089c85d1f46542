//! `tollgate top` without a terminal: two samples, one page.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::responder::{Reply, Responder};

const BEFORE: &str =
    r#"{"offenders":[],"totals":[{"policy":"api","rule":"","outcome":"allow","count":1000}]}"#;
const AFTER: &str = r#"{"offenders":[{"rule":"client","key":"10.0.0.1","denied":1234,"last":"2026-01-01T00:00:00Z"}],"totals":[{"policy":"api","rule":"","outcome":"allow","count":1500},{"policy":"api","rule":"client","outcome":"deny","count":7},{"policy":"login","rule":"","outcome":"allow","count":2}]}"#;

fn growing() -> Responder {
    let asked = AtomicUsize::new(0);
    Responder::start(move |_| match asked.fetch_add(1, Ordering::Relaxed) {
        0 => Reply::Json(200, BEFORE),
        _ => Reply::Json(200, AFTER),
    })
}

#[test]
fn one_page_is_made_of_two_samples() {
    for arguments in [&["top", "--interval", "10ms", "--once"][..], &["top", "--interval", "10ms"]] {
        let server = growing();
        let run = server.run(arguments);
        assert_eq!((run.code, run.err.as_str()), (0, ""));
        assert!(server.asked().len() >= 2);
        assert_eq!(server.asked()[0].line, "GET /api/v1/top?limit=20");
        let lines: Vec<&str> = run.out.lines().collect();
        assert_eq!(lines[0], format!("{}  1,509 decisions since it started", server.url()));
        assert!(lines[1].contains("/s allowed") && !lines[1].starts_with("0.0/s decisions"), "{}", lines[1]);
        let words: Vec<Vec<&str>> = lines.iter().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[3], ["policy", "decisions/s", "allowed/s", "refused/s", "total"]);
        assert_eq!((words[4][0], words[4][4]), ("api", "1,507"));
        assert_eq!((words[5][0], words[5][4]), ("login", "2"));
        assert_eq!(words[8], ["client", "10.0.0.1", "1,234", "2026-01-01T00:00:00Z"]);
    }
}

#[test]
fn json_is_one_sample_as_it_came() {
    let server = growing();
    let run = server.run(&["top", "--json", "--limit", "3"]);
    assert_eq!((run.code, run.out), (0, format!("{BEFORE}\n")));
    assert_eq!(server.only().line, "GET /api/v1/top?limit=3");
}

#[test]
fn a_second_sample_that_fails_is_an_error() {
    let asked = AtomicUsize::new(0);
    let server = Responder::start(move |_| match asked.fetch_add(1, Ordering::Relaxed) {
        0 => Reply::Json(200, BEFORE),
        _ => Reply::Close,
    });
    let run = server.run(&["top", "--interval", "10ms"]);
    assert_eq!((run.code, run.out.as_str()), (2, ""));
}
