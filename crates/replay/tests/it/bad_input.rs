//! Damaged and hostile logs: what cannot be read is counted, and the rest is replayed.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::cell::Cell;
use std::rc::Rc;

use crate::support::{self, MIDNIGHT, combined, policies, reading, replay, rule};
use tollgate_core::Span;
use tollgate_replay::feed::{Feed, Input, OpenLog, Reading};
use tollgate_replay::log::Unreadable;

fn limited() -> tollgate_core::Policies {
    policies(vec![rule("client", &["ip"], &["2/min"])])
}

#[test]
fn garbage_between_good_lines_is_counted_and_shown() {
    let mut log = combined(1, "192.0.2.7", "/", 200).into_bytes();
    log.extend_from_slice(b"\0\xff\xfe\x1b[31mgarbage\n");
    log.extend_from_slice(&[0x80; 300]);
    log.push(b'\n');
    log.extend(std::iter::repeat_n(b'x', 1 << 20));
    log.push(b'\n');
    log.extend(std::iter::repeat_n(b'"', 3 << 20));
    log.push(b'\n');
    log.extend_from_slice(br#"192.0.2.7 - - [17/Nov/2099:00:00:01 +0000] "GET / HTTP/1.1" 200 1 "-" "-""#);
    log.push(b'\n');
    log.extend_from_slice(br#"192.0.2.7 - - [yesterday] "GET / HTTP/1.1" 200 1 "-" "-""#);
    log.push(b'\n');
    log.extend_from_slice(combined(2, "192.0.2.7", "/", 200).as_bytes());
    let (outcome, decided) = replay(&limited(), &[&log], &reading()).unwrap();
    assert_eq!((outcome.account.lines, outcome.account.unreadable, decided.len()), (8, 6, 2));
    let reasons: Vec<_> = outcome.account.samples.iter().map(|sample| (sample.line, sample.reason)).collect();
    use Unreadable::{Format, Future, TooLong};
    assert_eq!(reasons, [(2, Format), (3, Format), (4, Format), (5, TooLong), (6, Future)]);
    assert!(outcome.account.samples.iter().all(|sample| sample.text.chars().count() <= 100));
    assert_eq!(decided[1].at.as_micros(), MIDNIGHT + 2_000_000, "the line from the future moved nothing");
}

#[test]
fn a_value_that_no_rule_can_count_is_a_mistake_and_not_a_denial() {
    let log = combined(1, "192.0.2.7", "/", 200) + &combined(2, "not-an-address", "/", 200);
    let (outcome, _) = replay(&limited(), &[log.as_bytes()], &reading()).unwrap();
    let tally = &outcome.tally;
    assert_eq!((tally.attempts, tally.invalid, tally.denied), (1, 1, 0));
    assert!(tally.mistakes[0].contains("ip"), "{:?}", tally.mistakes);
}

#[test]
fn zones_are_mixed_and_every_line_has_its_own() {
    let line = |time: &str| format!("192.0.2.7 - - [{time}] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\"\n");
    let log = line("17/Nov/2026:10:00:00 +0100")
        + &line("17/Nov/2026:04:00:30 -0500")
        + &line("17/Nov/2026:09:00:59 +0000");
    let (outcome, decided) = replay(&limited(), &[log.as_bytes()], &reading()).unwrap();
    let seconds: Vec<u64> =
        decided.iter().map(|one| (one.at.as_micros() - MIDNIGHT) / 1_000_000 - 9 * 3_600).collect();
    assert_eq!(seconds, [0, 30, 59]);
    assert_eq!(outcome.tally.denied, 1, "three within a minute");
}

#[test]
fn lines_out_of_order_are_decided_in_order() {
    let order = [5, 3, 9, 1, 7, 40, 20, 30];
    let log: String =
        order.iter().map(|second| combined(*second, &format!("192.0.2.{second}"), "/", 200)).collect();
    let (outcome, decided) = replay(&limited(), &[log.as_bytes()], &reading()).unwrap();
    let ips: Vec<_> = decided.iter().map(|one| one.field("ip").unwrap()).collect();
    assert_eq!(ips, [1, 3, 5, 7, 9, 20, 30, 40].map(|second| format!("192.0.2.{second}")));
    assert_eq!(outcome.account.late, 0);

    let strict = Reading { reorder: Span::from_secs(1), ..reading() };
    // Beyond the bound, a line is replayed at the earliest open moment and counted.
    let mut lines: Vec<u64> = (100..5_000).collect();
    lines.push(7);
    lines.extend(5_000..10_000);
    let log: String = lines.iter().map(|second| combined(*second, "192.0.2.7", "/", 200)).collect();
    let (outcome, decided) = replay(&limited(), &[log.as_bytes()], &strict).unwrap();
    assert_eq!(outcome.account.late, 1);
    assert!(decided.is_sorted_by_key(|one| one.at));
}

#[test]
fn one_line_far_ahead_does_not_make_the_others_late() {
    let mut log = String::new();
    for second in 0..20_000 {
        log += &combined(second, "192.0.2.7", "/", 200);
        if second == 5_000 {
            log += &combined(80_000, "192.0.2.8", "/", 200);
        }
    }
    let (outcome, decided) = replay(&limited(), &[log.as_bytes()], &reading()).unwrap();
    assert_eq!((outcome.account.late, decided.len()), (0, 20_001));
    assert_eq!(decided.last().unwrap().field("ip"), Some("192.0.2.8"));
}

#[test]
fn several_logs_are_merged_by_time_in_whatever_order_they_are_named() {
    let log = |seconds: std::ops::Range<u64>, ip: &str| -> String {
        seconds.map(|second| combined(second, ip, "/", 200)).collect()
    };
    let (first, second, beside) =
        (log(0..3_000, "192.0.2.1"), log(3_000..6_000, "192.0.2.1"), log(0..6_000, "192.0.2.2"));
    let logs = [second.as_bytes(), beside.as_bytes(), first.as_bytes()];
    let (outcome, decided) = replay(&limited(), &logs, &reading()).unwrap();
    assert_eq!((outcome.account.late, decided.len()), (0, 12_000));
    assert!(decided.is_sorted_by_key(|one| one.at));
}

#[test]
fn a_log_in_no_known_format_is_refused() {
    let error = replay(&limited(), &[b"hello\nworld\n"], &reading()).unwrap_err().to_string();
    assert!(error.contains("log0: the format is not known: choose one of combined"), "{error}");
    let (outcome, _) = replay(&limited(), &[b""], &reading()).unwrap();
    assert_eq!((outcome.account.lines, outcome.tally.attempts), (0, 0));
}

#[test]
fn a_log_may_begin_with_garbage() {
    let good: String = (1..4).map(|second| combined(second, "192.0.2.7", "/", 200)).collect();
    let long_line = [vec![b'x'; 3 << 20], b"\n".to_vec()].concat();
    let many_lines = format!("no line of a log: {}\n", "y".repeat(150)).into_bytes().repeat(2_500);
    let json = |ip: &str| format!("{{\"time\":\"2026-11-17T00:00:01Z\",\"ip\":\"{ip}\"}}\n");
    let named = Reading { format: Some("json".to_owned()), ..reading() };
    for (garbage, lines) in [(&long_line, 1), (&many_lines, 2_500)] {
        let log = [&garbage[..], good.as_bytes()].concat();
        let (outcome, decided) = replay(&limited(), &[&log], &reading()).unwrap();
        let account = &outcome.account;
        assert_eq!((account.lines, account.unreadable, decided.len()), (lines + 3, lines, 3));
        assert_eq!((account.samples[0].line, &*account.formats), (1, &["combined"][..]));
        let log = [&garbage[..], json("192.0.2.7").as_bytes()].concat();
        let (outcome, decided) = replay(&limited(), &[&log], &named).unwrap();
        assert_eq!((outcome.account.unreadable, decided.len()), (lines, 1));
    }
    let error = replay(&limited(), &[&many_lines], &named).unwrap_err().to_string();
    assert_eq!(error, "log0: no line is a JSON object");
}

#[test]
fn a_mapped_member_of_json_may_come_late() {
    let mut log = "{\"time\":\"2026-11-17T00:00:01Z\",\"ip\":\"192.0.2.7\"}\n".repeat(3_000);
    log += "{\"time\":\"2026-11-17T00:00:02Z\",\"ip\":\"192.0.2.7\",\"who\":\"ada\"}\n";
    let policies = policies(vec![rule("user", &["user"], &["2/min"])]);
    let reading = support::mapped(&["user=who"]);
    let (outcome, decided) = replay(&policies, &[log.as_bytes()], &reading).unwrap();
    assert_eq!((outcome.account.unreadable, decided.last().unwrap().field("user")), (0, Some("ada")));
    // A column that no line has is a mistake all the same.
    let error = replay(&policies, &[log.as_bytes()], &support::mapped(&["user=whom"])).unwrap_err();
    assert!(error.to_string().contains("this log (json) has no column `whom`"), "{error}");
}

#[test]
fn an_unreadable_line_is_named_by_its_number_in_the_file() {
    let log = format!("\n\n{}\r\n\nnot a line\n", combined(1, "192.0.2.7", "/", 200));
    let (outcome, _) = replay(&limited(), &[log.as_bytes()], &reading()).unwrap();
    let samples: Vec<_> = outcome.account.samples.iter().map(|sample| (sample.line, &*sample.text)).collect();
    assert_eq!((samples, outcome.account.lines), (vec![(6, "not a line")], 2));
}

#[test]
fn two_thousand_rotated_logs_are_open_one_after_the_other() {
    let opened = Rc::new(Cell::new((0_usize, 0_usize)));
    let logs: Vec<(String, Input)> = (0..2_000_u64)
        .rev()
        .map(|number| {
            let opened = Rc::clone(&opened);
            let open: OpenLog = Box::new(move |_| {
                let lines = (0..3).map(|line| combined(number * 40 + line * 13, "192.0.2.7", "/", 200));
                let (now, most) = opened.get();
                opened.set((now + 1, most.max(now + 1)));
                let text = std::io::Cursor::new(lines.collect::<String>().into_bytes());
                Ok(Box::new(Counted { text, opened: Rc::clone(&opened) }))
            });
            (format!("log{number}"), Input::File(open))
        })
        .collect();
    let policies = limited();
    let wishes = support::wishes(&policies);
    let mut feed = Feed::open(logs, &reading(), &wishes.list).unwrap();
    let run = tollgate_replay::replay::Replay::new(support::setup(policies), &wishes).unwrap();
    let outcome = run.run(&mut feed, &mut |_| {}).unwrap();
    assert_eq!((outcome.account.lines, outcome.account.late), (6_000, 0));
    assert!(opened.get().1 < 10, "{} were open at once", opened.get().1);
}

/// Counts how many of its kind are open, and how many were at most.
struct Counted {
    text: std::io::Cursor<Vec<u8>>,
    opened: Rc<Cell<(usize, usize)>>,
}

impl std::io::Read for Counted {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.text.read(into)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let (now, most) = self.opened.get();
        self.opened.set((now - 1, most));
    }
}
