//! What a replay decides: curves, differences, holds, outcomes, waiting, bans and calendars on the virtual clock.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod support;

use std::sync::Arc;

use support::{combined, open, policies, reading, replay, rule, setup, wishes};
use tollgate_core::{OnExceed, Policies, Span};
use tollgate_replay::feed::Reading;
use tollgate_replay::lane::Fate;
use tollgate_replay::replay::{Outcome, Replay, rule_and_key};
use tollgate_web::Statuses;

/// Bursts of a few clients, always the same.
fn bursts(lines: u64) -> String {
    let mut state = 7_u64;
    let mut second = 0;
    let mut log = String::new();
    for _ in 0..lines {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        second += u64::from(state >> 60 == 0);
        log += &combined(second, &format!("192.0.2.{}", (state >> 33) % 20), "/", 200);
    }
    log
}

fn run(policies: &Policies, log: &str, change: impl FnOnce(Replay) -> Replay) -> Outcome {
    let wishes = wishes(policies);
    let mut feed = open(&[log.as_bytes()], &reading(), &wishes).unwrap();
    let run = Replay::new(setup(policies.clone()), &wishes).unwrap();
    change(run).run(&mut feed, &mut |_| {}).unwrap()
}

#[test]
fn the_curve_equals_separate_runs() {
    let log = bursts(6_000);
    let at = |limit: &str| policies(vec![rule("all", &[], &["5000/min"]), rule("client", &["ip"], &[limit])]);
    let main = at("2/s burst 4");
    let outcome =
        run(&main, &log, |run| run.with_curve(&setup(main.clone()), "client", &wishes(&main)).unwrap());
    let (name, points) = outcome.curve.unwrap();
    assert_eq!(&*name, "client");
    let limits = ["1/s burst 2", "2/s burst 4", "4/s burst 8", "8/s burst 16"];
    assert_eq!(points.iter().map(|point| &*point.limits).collect::<Vec<_>>(), limits);
    for (point, limit) in points.iter().zip(limits) {
        let alone = run(&at(limit), &log, |run| run);
        let client = alone.tally.rule("client");
        assert_eq!(point.denied, client.map_or(0, |rule| rule.denied.count), "{limit}");
        assert_eq!(point.clients, client.map_or(0, |rule| rule.clients.count()), "{limit}");
    }
    assert!(points[0].denied > points[1].denied && points[1].denied > points[3].denied, "{points:?}");
}

#[test]
fn the_difference_of_two_configurations_is_what_changes() {
    let log = bursts(5_000);
    let (new, old) =
        (policies(vec![rule("client", &["ip"], &["5/s"])]), policies(vec![rule("old", &["ip"], &["9/s"])]));
    let outcome = run(&new, &log, |run| run.against(setup(old.clone()), &wishes(&new)).unwrap());
    let difference = outcome.difference.unwrap();
    let before = run(&old, &log, |run| run).tally.denied;
    assert_eq!(difference.denied_before, before);
    assert_eq!(outcome.tally.denied, before + difference.newly_denied - difference.newly_allowed);
    assert!(difference.newly_denied > 0);
    assert_eq!(rule_and_key(&difference.denied_keys.ranked(1)[0]).0, "client");
}

fn timed(lines: &[(f64, f64, u16)]) -> (String, Reading) {
    let format = "$remote_addr $start_time $request_time $status";
    let log = lines
        .iter()
        .map(|(at, took, status)| format!("192.0.2.7 {} {took} {status}\n", 1_794_873_600.0 + at));
    (log.collect(), Reading { format: Some(format.to_owned()), ..reading() })
}

#[test]
fn a_request_holds_its_place_for_as_long_as_it_took() {
    let policies = policies(vec![rule("at_once", &["ip"], &["1 at once"])]);
    let (log, reading) = timed(&[(0.5, 2.0, 200), (1.0, 0.5, 200), (2.75, 1.0, 200), (3.0, 1.0, 200)]);
    let (_, decided) = replay(&policies, &[log.as_bytes()], &reading).unwrap();
    let denied: Vec<bool> = decided.iter().map(support::Decided::is_denied).collect();
    assert_eq!(denied, [false, true, false, true]);
}

#[test]
fn a_rule_counts_only_the_statuses_that_it_names() {
    let mut failures = rule("failures", &["ip"], &["1/hour"]);
    failures.count_when = Some("4xx".parse::<Statuses>().unwrap().classes());
    let policies = policies(vec![failures]);
    let (log, reading) = timed(&[(1.0, 0.1, 200), (2.0, 0.1, 401), (3.0, 0.1, 200)]);
    let (_, decided) = replay(&policies, &[log.as_bytes()], &reading).unwrap();
    let denied: Vec<bool> = decided.iter().map(support::Decided::is_denied).collect();
    assert_eq!(denied, [false, false, true]);
}

#[test]
fn an_attempt_that_may_wait_passes_later_in_its_turn() {
    let mut paced = rule("paced", &["ip"], &["1/s burst 1"]);
    paced.on_exceed = OnExceed::Wait(Span::from_secs(2));
    let policies = policies(vec![paced]);
    let (log, reading) =
        timed(&[(1.0, 0.0, 200), (1.1, 0.0, 200), (1.2, 0.0, 200), (1.3, 0.0, 200), (9.0, 0.0, 200)]);
    let (outcome, mut decided) = replay(&policies, &[log.as_bytes()], &reading).unwrap();
    decided.sort_by_key(|one| one.number);
    let waits: Vec<Option<u64>> = decided
        .iter()
        .map(|one| match &one.fate {
            Fate::Allowed(waited) => Some(waited.as_micros() / 1_000),
            _ => None,
        })
        .collect();
    assert_eq!(waits, [Some(0), Some(900), Some(1_800), None, Some(0)]);
    let tally = &outcome.tally;
    assert_eq!((tally.allowed, tally.delayed, tally.denied), (4, 2, 1));
    assert_eq!(tally.longest_wait, Span::from_millis(1_800));
}

#[test]
fn a_rule_bans_and_the_ban_ends_on_the_virtual_clock() {
    let mut client = rule("client", &["ip"], &["1/s"]);
    client.ban = Some("after 3 denials in 1m ban 10m".parse().unwrap());
    let policies = policies(vec![client]);
    let burst = |from: u64| (0..10).map(move |step| (from as f64 + f64::from(step) / 10.0, 0.0, 200));
    let later = [(300.0, 0.0, 200), (900.0, 0.0, 200)];
    let (log, reading) = timed(&burst(0).chain(later).collect::<Vec<_>>());
    let (outcome, decided) = replay(&policies, &[log.as_bytes()], &reading).unwrap();
    assert!(
        outcome.tally.rule("blocklist").is_some_and(|rule| rule.denied.count >= 1),
        "{:?}",
        outcome.tally.rules
    );
    let fates: Vec<bool> = decided.iter().rev().take(2).map(support::Decided::is_denied).collect();
    assert_eq!(fates, [false, true], "denied after five minutes, allowed after fifteen");
}

#[test]
fn a_calendar_limit_starts_anew_with_its_period() {
    let policies = policies(vec![rule("daily", &["ip"], &["1/hour calendar"])]);
    let log: String =
        [3_590, 3_595, 3_605, 7_199, 7_201].map(|second| combined(second, "192.0.2.7", "/", 200)).concat();
    let (_, decided) = replay(&policies, &[log.as_bytes()], &reading()).unwrap();
    let denied: Vec<bool> = decided.iter().map(support::Decided::is_denied).collect();
    assert_eq!(denied, [false, true, false, true, false]);
}

#[test]
fn an_observed_rule_tells_whom_it_would_deny() {
    let mut watched = rule("watched", &["ip"], &["1/min"]);
    watched.on_exceed = OnExceed::Observe;
    let policies = policies(vec![watched]);
    let log: String = (0..5).map(|second| combined(second, "192.0.2.7", "/", 200)).collect();
    let (outcome, _) = replay(&policies, &[log.as_bytes()], &reading()).unwrap();
    let rule = outcome.tally.rule("watched").unwrap();
    assert_eq!((outcome.tally.denied, rule.observed.count, rule.denied.count), (0, 4, 0));
    assert_eq!(&*rule.observed.keys.ranked(1)[0].key, "192.0.2.7");
}

#[test]
fn many_distinct_clients_fit_in_bounded_memory() {
    let long = std::env::vars_os().any(|(name, _)| name == "TOLLGATE_LONG");
    let clients: u32 = if long { 10_000_000 } else { 100_000 };
    let policies = Arc::new(policies(vec![rule("client", &["ip"], &["1/min"])]));
    let wishes = wishes(&policies);
    let log: Box<dyn std::io::Read> = Box::new(Many { next: 0, clients, rest: Vec::new() });
    let mut feed =
        tollgate_replay::feed::Feed::open(vec![("many".to_owned(), log)], &reading(), &wishes.list).unwrap();
    let before = resident();
    let run = Replay::new(setup(Policies::clone(&policies)), &wishes).unwrap();
    let outcome = run.run(&mut feed, &mut |_| {}).unwrap();
    let grown = resident().saturating_sub(before);
    let counted = outcome.tally.clients.count() as f64;
    assert!((counted / f64::from(clients) - 1.0).abs() < 0.02, "{counted}");
    assert_eq!(outcome.tally.attempts, u64::from(clients));
    assert!(grown < 200 << 20, "{} MiB", grown >> 20);
}

/// A log of one request from each of many clients.
struct Many {
    next: u32,
    clients: u32,
    rest: Vec<u8>,
}

impl std::io::Read for Many {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        while self.rest.len() < into.len() && self.next < self.clients {
            let [a, b, c, d] = (self.next + (11 << 24)).to_be_bytes();
            let second = u64::from(self.next) / 200;
            self.rest.extend_from_slice(
                combined(second % 86_000, &format!("{a}.{b}.{c}.{d}"), "/", 200).as_bytes(),
            );
            self.next += 1;
        }
        let length = self.rest.len().min(into.len());
        into[..length].copy_from_slice(&self.rest[..length]);
        self.rest.drain(..length);
        Ok(length)
    }
}

/// The memory of this process, in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4_096
}
