//! What a replay decides: curves, differences, holds, outcomes, waiting, bans and calendars on the virtual clock.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::sync::Arc;

use crate::support::{self, combined, open, policies, reading, replay, rule, setup, wishes};
use tollgate_core::{OnExceed, Policies, Policy, Span};
use tollgate_replay::curve::Point;
use tollgate_replay::feed::Reading;
use tollgate_replay::lane::{Fate, Report};
use tollgate_replay::replay::{Outcome, Replay, rule_and_key};
use tollgate_replay::tally::{RuleTally, Way};
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

/// What a rule with this way of acting does at half and at four times its numbers, beside separate runs.
fn curve_of(on_exceed: OnExceed, count: fn(&Point) -> u64, alone: fn(&RuleTally) -> u64) {
    let log = bursts(3_000);
    let at = |limit: &str| {
        let mut client = rule("client", &["ip"], &[limit]);
        client.on_exceed = on_exceed;
        policies(vec![client])
    };
    let main = at("2/s burst 4");
    let outcome =
        run(&main, &log, |run| run.with_curve(&setup(main.clone()), "client", &wishes(&main)).unwrap());
    let (_, points) = outcome.curve.unwrap();
    for (point, limit) in points.iter().zip(["1/s burst 2", "2/s burst 4", "4/s burst 8", "8/s burst 16"]) {
        let separate = run(&at(limit), &log, |run| run);
        let client = separate.tally.rule("client").unwrap();
        assert_eq!((count(point), point.affected()), (alone(client), alone(client)), "{limit}");
        assert_eq!(point.clients, client.clients.count(), "{limit}");
    }
    assert!(count(&points[0]) > count(&points[3]) && points[0].clients > 0, "{points:?}");
}

#[test]
fn the_curve_of_an_observed_rule_counts_what_it_would_deny() {
    curve_of(OnExceed::Observe, |point| point.observed, |rule| rule.observed.count);
}

#[test]
fn the_curve_of_a_deferring_rule_counts_what_it_defers() {
    let deferral = OnExceed::Defer(tollgate_core::Deferral::default());
    curve_of(deferral, |point| point.deferred, |rule| rule.deferred.count);
}

#[test]
fn a_rule_that_no_attempt_passes_has_no_curve() {
    let elsewhere = Arc::new(rule("elsewhere", &["ip"], &["1/s"]));
    let client = Arc::new(rule("client", &["ip"], &["1/s"]));
    let chosen = Policy::new("api".into(), vec![Arc::clone(&client)], true);
    let other = Policy::new("other".into(), vec![Arc::clone(&elsewhere)], true);
    let policies = Policies::new(true, vec![client, elsewhere], vec![chosen, other]);
    let run = Replay::new(setup(policies.clone()), &wishes(&policies)).unwrap();
    let error = run.with_curve(&setup(policies.clone()), "elsewhere", &wishes(&policies)).err().unwrap();
    assert_eq!(
        error.to_string(),
        "no attempt passes the rule `elsewhere`: it is switched off, or not in policy api"
    );
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
fn an_observed_rule_reports_the_clients_it_would_deny() {
    let mut watched = rule("watched", &["ip"], &["1/min"]);
    watched.on_exceed = OnExceed::Observe;
    let policies = policies(vec![watched]);
    let log: String = (0..5).map(|second| combined(second, "192.0.2.7", "/", 200)).collect();
    let (outcome, _) = replay(&policies, &[log.as_bytes()], &reading()).unwrap();
    let rule = outcome.tally.rule("watched").unwrap();
    assert_eq!((outcome.tally.denied, rule.observed.count, rule.denied.count), (0, 4, 0));
    assert_eq!(&*rule.observed.keys.ranked(1)[0].key, "192.0.2.7");
    let tally = &outcome.tally;
    let clients = [Way::Denied, Way::Observed, Way::Deferred].map(|way| tally.clients_of(way).count());
    assert_eq!((clients, rule.clients.count(), tally.observed), ([0, 1, 0], 1, 4));
}

/// A rule that lets attempts wait for two seconds.
fn paced(by: &[&str], limit: &str) -> tollgate_core::Rule {
    let mut paced = rule("paced", by, &[limit]);
    paced.on_exceed = OnExceed::Wait(Span::from_secs(2));
    paced
}

/// When each attempt passed, in milliseconds after it came; `None` if it was denied.
fn waits(policies: &Policies, lines: &[(f64, f64, u16)]) -> Vec<Option<u64>> {
    let (log, reading) = timed(lines);
    let (_, mut decided) = replay(policies, &[log.as_bytes()], &reading).unwrap();
    decided.sort_by_key(|one| one.number);
    let waited = |one: &support::Decided| match &one.fate {
        Fate::Allowed(waited) => Some(waited.as_micros() / 1_000),
        _ => None,
    };
    decided.iter().map(waited).collect()
}

#[test]
fn the_queue_of_a_secret_key_is_not_overtaken() {
    let open = policies(vec![paced(&["ip"], "1/s burst 1")]);
    let mut secret = paced(&["ip"], "1/s burst 1");
    secret.secret = true;
    secret.plan = Arc::new(tollgate_core::Plan::clone(&secret.plan).with_secret_keys());
    let secret = policies(vec![secret]);
    // The last one comes when the first of the queue is due.
    let lines = [(1.0, 0.0, 200), (1.1, 0.0, 200), (1.2, 0.0, 200), (2.05, 0.0, 200), (9.0, 0.0, 200)];
    assert_eq!(waits(&secret, &lines), waits(&open, &lines));
}

#[test]
fn secret_keys_have_the_same_pseudonyms_in_every_run() {
    let mut secret = rule("secret", &["ip"], &["1/min"]);
    secret.secret = true;
    secret.plan = Arc::new(tollgate_core::Plan::clone(&secret.plan).with_secret_keys());
    let policies = policies(vec![secret]);
    let log: String = (0..5).map(|second| combined(second, "192.0.2.7", "/", 200)).collect();
    let key = || {
        let (outcome, _) = replay(&policies, &[log.as_bytes()], &reading()).unwrap();
        outcome.tally.rule("secret").unwrap().denied.keys.ranked(1)[0].key.to_string()
    };
    let first = key();
    assert_eq!(first, key());
    assert!(first.starts_with('#') && !first.contains("192.0.2.7"), "{first}");
}

#[test]
fn a_waiting_attempt_is_observed_once() {
    let mut watched = rule("watched", &["ip"], &["1/min"]);
    watched.on_exceed = OnExceed::Observe;
    let policies = policies(vec![paced(&["ip"], "1/s burst 1"), watched]);
    let (log, reading) = timed(&[(1.0, 0.0, 200), (1.1, 0.0, 200), (1.2, 0.0, 200)]);
    let wishes = wishes(&policies);
    let mut feed = open(&[log.as_bytes()], &reading, &wishes).unwrap();
    let mut observed = Vec::new();
    let run = Replay::new(setup(policies.clone()), &wishes).unwrap();
    let outcome = run.run(&mut feed, &mut |report| {
        if let Report::Observed(moment, _) = report {
            observed.push(moment.number);
        }
    });
    assert_eq!((observed, outcome.unwrap().tally.delayed), (vec![1, 2], 2));
}

#[test]
fn an_attempt_waits_for_a_place_that_a_request_leaves() {
    let policies = policies(vec![paced(&["ip"], "1 at once")]);
    let lines = [(1.0, 1.5, 200), (1.5, 0.25, 200), (2.0, 0.25, 200), (2.1, 9.0, 200), (2.2, 0.0, 200)];
    // Places are left at 2.5, 2.75 and 3.0. The last one's two seconds are over while the fourth is in flight.
    assert_eq!(waits(&policies, &lines), [Some(0), Some(1_000), Some(750), Some(900), None]);
}

#[test]
fn an_eviction_of_a_key_that_counts_is_told() {
    let policies = policies(vec![rule("client", &["ip"], &["1/hour"])]);
    let log: String = (0..2_000)
        .map(|number| combined(number / 100, &format!("10.0.{}.{}", number / 250, number % 250), "/", 200))
        .collect();
    let evicted = |max_keys| {
        let wishes = wishes(&policies);
        let mut feed = open(&[log.as_bytes()], &reading(), &wishes).unwrap();
        let setup = tollgate_replay::replay::Setup { max_keys, ..setup(policies.clone()) };
        let outcome = Replay::new(setup, &wishes).unwrap().run(&mut feed, &mut |_| {}).unwrap();
        outcome.last_eviction.is_some()
    };
    assert!(evicted(500));
    assert!(!evicted(100_000));
}

#[test]
fn many_distinct_clients_fit_in_bounded_memory() {
    let long = std::env::vars_os().any(|(name, _)| name == "TOLLGATE_LONG");
    let clients: u64 = if long { 10_000_000 } else { 100_000 };
    let policies = Arc::new(policies(vec![rule("client", &["ip"], &["1/min"])]));
    let wishes = wishes(&policies);
    let log: Box<dyn std::io::Read> = Box::new(Generated {
        next: 0,
        count: clients,
        line: |number: u64| {
            let [a, b, c, d] = (number as u32 + (11 << 24)).to_be_bytes();
            combined(number / 200 % 86_000, &format!("{a}.{b}.{c}.{d}"), "/", 200)
        },
        rest: Vec::new(),
    });
    let mut feed =
        tollgate_replay::feed::Feed::open(vec![("many".to_owned(), log)], &reading(), &wishes.list).unwrap();
    let before = resident();
    let run = Replay::new(setup(Policies::clone(&policies)), &wishes).unwrap();
    let outcome = run.run(&mut feed, &mut |_| {}).unwrap();
    let grown = resident().saturating_sub(before);
    let counted = outcome.tally.clients.count() as f64;
    assert!((counted / clients as f64 - 1.0).abs() < 0.02, "{counted}");
    assert_eq!(outcome.tally.attempts, clients);
    assert!(grown < 200 << 20, "{} MiB", grown >> 20);
}

/// Ten gigabytes of lines of some kilobytes each, or a part of them.
#[test]
fn a_log_of_ten_gigabytes_fits_in_bounded_memory() {
    if !tollgate_testbed::alone(module_path!(), "a_log_of_ten_gigabytes_fits_in_bounded_memory") {
        return;
    }
    let long = std::env::vars_os().any(|(name, _)| name == "TOLLGATE_LONG");
    let bytes: u64 = if long { 10_000_000_000 } else { 10_000_000 };
    let agent = "x".repeat(8_000);
    let line = move |number: u64| {
        let (ip, path) = (format!("192.0.{}.{}", number / 250 % 250, number % 250), format!("/{agent}"));
        // Some lines are out of order, and some are no lines.
        let second = number / 20 % 86_000 + number % 7;
        if number % 1_000 == 17 {
            format!("{path}\n")
        } else {
            combined(second, &ip, "/", 200).replace("Mozilla/5.0", &path)
        }
    };
    let (lines, per_line) =
        (bytes / 8_000, Generated { next: 0, count: bytes / 8_000, line, rest: Vec::new() });
    let policies = policies(vec![rule("client", &["ip"], &["1/min"])]);
    let wishes = wishes(&policies);
    let log: Box<dyn std::io::Read> = Box::new(per_line);
    let mut feed =
        tollgate_replay::feed::Feed::open(vec![("large".to_owned(), log)], &reading(), &wishes.list).unwrap();
    let run = Replay::new(setup(policies), &wishes).unwrap();
    let before = resident();
    let outcome = run.run(&mut feed, &mut |_| {}).unwrap();
    let grown = resident().saturating_sub(before);
    assert_eq!(outcome.account.lines, lines);
    assert_eq!(outcome.tally.attempts + outcome.account.unreadable, lines);
    assert!(grown < 100 << 20, "{} MiB", grown >> 20);
}

/// A log whose lines are made when they are read.
struct Generated<F> {
    next: u64,
    count: u64,
    line: F,
    rest: Vec<u8>,
}

impl<F: Fn(u64) -> String> std::io::Read for Generated<F> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        while self.rest.len() < into.len() && self.next < self.count {
            self.rest.extend_from_slice((self.line)(self.next).as_bytes());
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
