//! Refusals that are said again and again: as if each was the first.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use http::header::HeaderValue;
use proptest::prelude::*;
use support::{Bench, rule};
use tollgate_core::{Rule, Span};
use tollgate_web::answer::{HeaderSets, Lines, Media, Written};
use tollgate_web::json::Json;
use tollgate_web::{AnswerSettings, Answers, Correlation};

/// What happens next: who asks, how long after the one before, and for how much.
#[derive(Clone, Debug)]
struct Step {
    user: usize,
    micros: u64,
    cost: u64,
    given: bool,
    other: bool,
}

const USERS: [&str; 3] = ["alice", "b\"o\nb", "\",\"correlationId\":\"0000000000000000"];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (
        prop_oneof![6 => Just(0_usize), 1 => 0..USERS.len()],
        prop_oneof![4 => 0_u64..3_000, 2 => 0_u64..2_000_000, 1 => 0_u64..200_000_000],
        prop_oneof![6 => Just(1_u64), 1 => 1_u64..4],
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.1),
    );
    let step = step.prop_map(|(user, micros, cost, given, other)| Step { user, micros, cost, given, other });
    prop::collection::vec(step, 1..60)
}

fn rules(kind: usize) -> Vec<Rule> {
    let several = ["2/min", "1000/day sliding"];
    match kind {
        0 => vec![rule("one", &["user"], &["2/min"])],
        1 => vec![rule("bucket", &["user"], &["3/min burst 2"])],
        2 => vec![rule("sliding", &["user"], &["2/100s sliding"])],
        3 => vec![rule("several", &["user"], &several), rule("all", &[], &["5/hour"])],
        4 => vec![rule("held", &["user"], &["2 at once for 100s"])],
        _ => vec![rule("secret", &["user"], &["1/min"]).with_secret_keys()],
    }
}

fn answers(kind: usize) -> Answers {
    let mut settings = AnswerSettings::default();
    match kind {
        0 => settings.media = Media::Json,
        1 => settings.detail = Some("come back in {retry_after} s".into()),
        2 => settings.headers = HeaderSets { x_ratelimit: true, ietf: true },
        3 => settings.headers = HeaderSets { x_ratelimit: false, ietf: false },
        4 => settings.title = Some("\",\"retry_after\":".into()),
        _ => {}
    }
    Answers::new(settings).unwrap()
}

/// The id that a refusal says.
fn id_of(written: &Written) -> HeaderValue {
    let lines = str::from_utf8(written.lines()).unwrap();
    let id = lines.lines().find_map(|line| line.strip_prefix("x-correlation-id: ")).unwrap();
    HeaderValue::from_str(id).unwrap()
}

proptest! {
    #[test]
    fn what_is_written_over_an_earlier_refusal_is_what_is_written_anew(
        steps in steps(), kind in 0_usize..6, words in 0_usize..8,
    ) {
        let bench = Bench::new(rules(kind));
        let (answers, others) = (answers(words), answers(7));
        let mut written = Written::default();
        let mut ids = std::collections::HashSet::new();
        for step in steps {
            bench.clock.advance(Span::from_micros(step.micros));
            let said = bench.decide_costing(step.cost, &[("user", USERS[step.user])], |decision| {
                if decision.allowed() {
                    return None;
                }
                let answers = if step.other { &others } else { &answers };
                let given = step.given.then(|| HeaderValue::from_static("abc-123"));
                let status = answers.refuse_again(&bench.engine, decision, &Correlation { given }, &mut written);
                let id = id_of(&written);
                let same = Correlation { given: Some(id.clone()) };
                let (mut lines, mut body) = (Lines::default(), Json::with_capacity(0));
                let expected = answers.refuse(&bench.engine, decision, &same, &mut lines, &mut body);
                Some((id, (status, written.clone()), (expected, lines.0, body.into_bytes())))
            });
            let Some((id, (status, written), (expected, lines, body))) = said else { continue };
            prop_assert_eq!(status, expected);
            prop_assert_eq!(String::from_utf8_lossy(written.lines()), String::from_utf8_lossy(&lines));
            prop_assert_eq!(String::from_utf8_lossy(written.body()), String::from_utf8_lossy(&body));
            prop_assert!(step.given || ids.insert(id), "every refusal has an id of its own");
        }
    }
}

#[test]
fn a_line_that_is_added_is_not_said_to_the_next() {
    let bench = Bench::new(rules(0));
    let answers = Answers::default();
    let fields = [("user", "alice")];
    bench.exhaust(&fields);
    let mut written = Written::default();
    for _ in 0..4 {
        bench.decide(&fields, |decision| {
            answers.refuse_again(&bench.engine, decision, &Correlation::default(), &mut written)
        });
        assert!(!written.lines().ends_with(b"x-more: 1\r\n"));
        written.add_line(b"x-more: 1\r\n");
    }
}
