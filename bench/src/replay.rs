//! `tollgate replay` of a combined log, on one core, beside looking for the ends of its lines.

use std::fmt::Write as _;
use std::hint::black_box;
use std::io::Read;
use std::sync::Arc;

use tollgate_core::{Policies, Policy, Rule, Span, Timestamp, grammar};
use tollgate_replay::choose::{Choosing, Strictness, Wishes};
use tollgate_replay::feed::{Feed, Reading, Refused};
use tollgate_replay::replay::{Replay, Setup};
use tollgate_web::Aliases;

use crate::draws::Random;
use crate::rounds::{line, measure};

const LINES: usize = 2_000_000;
const CLIENTS: usize = 100_000;

pub fn run() {
    let log = log();
    let one = [("client", &["ip"][..], "2/s burst 20")];
    let five = [
        ("all", &[][..], "100000000/hour"),
        ("client", &["ip"][..], "2/s burst 20"),
        ("hourly", &["ip"][..], "10000/hour"),
        ("page", &["path"][..], "1000000/min"),
        ("pages", &["ip", "path"][..], "600/min"),
    ];
    for (what, rules, curve, bound) in [
        ("one rule by address", &one[..], None, "≥ 500,000/s"),
        ("five rules", &five[..], None, "≥ 250,000/s"),
        ("one rule with its curve", &one[..], Some("client"), "≥ 150,000/s"),
    ] {
        let policies = policies(rules);
        let times = measure(
            5,
            &mut [
                &mut || black_box(log.split(|byte| *byte == b'\n').count()),
                &mut || {
                    assert_eq!(replay(&log, &policies, curve), LINES as u64);
                    LINES
                },
            ],
        );
        let speed = format!("{:.0}/s", 1e9 / times.nanos(1));
        let ends = format!("line ends alone {:.0}/s", 1e9 / times.nanos(0));
        line(&format!("replay, {what}"), &speed, &ends, times.ratio(1, 0), bound);
    }
}

/// Two million lines of an hour: a few busy clients, and many quiet ones.
fn log() -> Arc<[u8]> {
    let mut random = Random(88_172_645_463_325_252);
    let mut log = String::with_capacity(LINES * 200);
    for number in 0..LINES {
        let (minute, second) = (number * 3_600 / LINES / 60, number * 3_600 / LINES % 60);
        let busy = random.below(10) == 0;
        let client = random.below(if busy { 10 } else { CLIENTS });
        let (path, agent) = (random.below(500), random.below(50));
        writeln!(
            log,
            "10.{}.{}.{} - - [17/Nov/2026:09:{minute:02}:{second:02} +0000] \"GET /shop/items/{path}?page=2 HTTP/1.1\" 200 5316 \"https://shop.example/start\" \"Mozilla/5.0 (X11; Linux x86_64; rv:{agent}.0) Gecko/20100101 Firefox/{agent}.0\"",
            client >> 16,
            client >> 8 & 255,
            client & 255
        )
        .expect("a string takes everything");
    }
    log.into_bytes().into()
}

fn policies(rules: &[(&str, &[&str], &str)]) -> Policies {
    let rule = |(name, by, limit): &(&str, &[&str], &str)| {
        let limit = grammar::parse(limit).expect("a limit").expect("a limit");
        Arc::new(Rule::new(name, by, vec![limit]).expect("one limit does not clash"))
    };
    let rules: Vec<Arc<Rule>> = rules.iter().map(rule).collect();
    let policy = Policy::new("api".into(), rules.clone(), false);
    Policies::new(true, rules, vec![policy])
}

/// Replays the log. Returns how many attempts were decided.
fn replay(log: &Arc<[u8]>, policies: &Policies, curve: Option<&str>) -> u64 {
    let mut wishes = Wishes::default();
    wishes.add("ip", None);
    wishes.add("user", None);
    wishes.add_policies(policies, &Choosing::Policy("api".into()), Strictness::AllFields, &Aliases::default());
    let reading = Reading {
        format: None,
        mappings: Vec::new(),
        taken: None,
        zone: None,
        reorder: Span::from_secs(60),
        now: Timestamp::from_micros(1_800_000_000_000_000),
        refused: Refused::Replayed,
    };
    let reader: Box<dyn Read> = Box::new(std::io::Cursor::new(Arc::clone(log)));
    let mut feed = Feed::open(vec![("log".to_owned(), reader)], &reading, &wishes.list).expect("a good log");
    let choosing = Arc::new(Choosing::Policy("api".into()));
    let setup = Setup { policies: policies.clone(), max_keys: 1_000_000, choosing };
    let mut run = Replay::new(setup.clone(), &wishes).expect("memory can be used");
    if let Some(rule) = curve {
        run = run.with_curve(&setup, rule, &wishes).expect("the rule is there");
    }
    let outcome = run.run(&mut feed, &mut |_| {}).expect("reading from memory works");
    assert!(outcome.tally.denied > 0 && outcome.account.unreadable == 0);
    outcome.tally.attempts
}
