//! Logins by the entry point of the doors: delays, their bounds, and clients that go away.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use crate::support::pacing::{SlowStore, Track, in_virtual_time};
use crate::support::{
    self,
    cluster::{Centre, Mode},
};
use crate::support::{admissions, policies, rule};
use futures_lite::future::{block_on, poll_once};
use tokio::time::{Instant, sleep};
use tollgate_core::{Attempt, Guard, Policies, Rule, Span, Verdict};
use tollgate_engine::admit::{Holds, Login};
use tollgate_engine::guard::{Advice, Ending};
use tollgate_engine::{Admissions, Admit, NotAdmitted, PacerOptions, Terms};

const ADA: [(&str, &str); 1] = [("user", "ada")];

fn guarded(rules: Vec<Rule>, own: &[&str]) -> Policies {
    policies(rules, &[("login", own)]).with_guards(vec![Guard::new("door", "login")])
}

fn by_user(limits: &[&str]) -> Policies {
    guarded(vec![rule::rejecting("account", &["user"], limits)], &["account"])
}

/// Begins a login that may be delayed by so many seconds in total. A refusal is its advice.
fn begin(door: &Admissions, fields: &[(&str, &str)], max_delay: u64) -> Admit<Result<(), Advice>> {
    let pinned = door.pin();
    let guard = pinned.policies.guard("door").unwrap();
    let attempt = Attempt { policy: &guard.policy, fields, cost: 1, id: None };
    let login = Some(Login { guard, max_delay: Span::from_secs(max_delay) });
    let terms = Terms { login, holds: Holds::ByTaken, ..Terms::default() };
    pinned.admit(
        &attempt,
        terms,
        |_, decision| {
            if decision.allowed() { Ok(()) } else { Err(Advice::of(decision)) }
        },
    )
}

/// Begins a login that fails at once. Returns its refusal and how long it waited, in whole seconds.
async fn guess(door: &Admissions, max_delay: u64) -> (Result<(), Advice>, u64) {
    let start = Instant::now();
    let mut admission = begin(door, &ADA, max_delay).await.unwrap();
    // A store that takes some time uses a little of the delay.
    let elapsed = (start.elapsed() + Duration::from_millis(10)).as_secs();
    assert_eq!(admission.waited.as_secs_ceil(), elapsed);
    admission.taken.end_login(Ending::Failure).await.unwrap();
    (admission.seen, elapsed)
}

fn delayed(door: &Admissions) -> i64 {
    let mut page = String::new();
    let mut registry = prometheus_client::registry::Registry::default();
    registry.register_collector(Box::new(door.engine.guards.meters().clone()));
    prometheus_client::encoding::text::encode(&mut page, &registry).unwrap();
    let line = page.lines().find_map(|line| line.strip_prefix("tollgate_guard_delayed "));
    line.unwrap().parse().unwrap()
}

fn wait(secs: u64) -> Advice {
    Advice { delay: Span::from_secs(secs), ..Advice::default() }
}

/// Over a store in this process, and over one that takes some time.
async fn doors(policies: impl Fn() -> Policies) -> [Admissions; 2] {
    let store = SlowStore::new(Duration::from_micros(100));
    let tracks =
        [Track::new(policies()).await, Track::shared(policies(), &store, PacerOptions::default()).await];
    tracks.map(|track| Admissions { pacer: Some(track.pacer), ..admissions(&track.engine) })
}

#[test]
fn a_login_waits_out_short_delays_and_is_refused_if_they_are_longer_in_total() {
    in_virtual_time(async {
        for door in doors(|| by_user(&["ladder 1 +2s then 2 +60s then 3 lock 15m"])).await {
            assert_eq!(guess(&door, 10).await, (Ok(()), 0));
            assert_eq!(guess(&door, 1).await.1, 0, "it does not wait if the wait is too long");
            assert_eq!(guess(&door, 10).await, (Ok(()), 2), "it waits");
            let (refused, waited) = guess(&door, 10).await;
            assert_eq!((refused.unwrap_err().delay.as_secs_ceil(), waited), (60, 0));
            sleep(Duration::from_secs(60)).await;
            assert_eq!(guess(&door, 10).await, (Ok(()), 0));
            let (locked, waited) = guess(&door, 3_600).await;
            assert!(locked.unwrap_err().locked_until.is_some());
            assert_eq!((waited, delayed(&door)), (0, 0), "a lock is no delay");
        }
    });
}

#[test]
fn each_of_several_logins_that_wait_for_the_same_ladder_has_its_own_bound() {
    in_virtual_time(async {
        let track = Track::new(by_user(&["ladder 1 +2s"])).await;
        let door = admissions(&track.engine);
        assert_eq!(guess(&door, 0).await, (Ok(()), 0));
        let guesses = futures_util::future::join_all((0..4).map(|_| guess(&door, 5))).await;
        let mut passed: Vec<u64> =
            guesses.iter().filter(|(seen, _)| seen.is_ok()).map(|(_, at)| *at).collect();
        passed.sort_unstable();
        assert_eq!(passed, [2, 4], "each climbs the ladder, and the others wait again");
        let refused: Vec<_> = guesses.into_iter().filter_map(|(seen, at)| Some((seen.err()?, at))).collect();
        assert_eq!(refused, [(wait(2), 4), (wait(2), 4)], "six seconds would be too many");
    });
}

#[test]
fn a_login_that_waits_is_recorded_once() {
    in_virtual_time(async {
        let track = Track::new(by_user(&["ladder 1 +2s"])).await;
        let door = admissions(&track.engine);
        for waited in [0, 2, 2] {
            assert_eq!(guess(&door, 5).await, (Ok(()), waited));
        }
        assert_eq!(guess(&door, 1).await.1, 0);
        let entries = track.engine.observer.journal.latest(10);
        let verdicts: Vec<Verdict> = entries.iter().rev().map(|entry| entry.verdict).collect();
        assert_eq!(verdicts, [Verdict::Allow, Verdict::Allow, Verdict::Allow, Verdict::Deny]);
    });
}

#[test]
fn only_the_delay_of_a_ladder_is_waited_out() {
    in_virtual_time(async {
        let track = Track::new(by_user(&["1/2s", "ladder 9 +1s"])).await;
        let door = admissions(&track.engine);
        assert_eq!(guess(&door, 10).await, (Ok(()), 0));
        assert_eq!(guess(&door, 10).await, (Err(wait(2)), 0));
    });
}

#[test]
fn a_login_whose_client_goes_away_during_the_delay_leaves_nothing_behind() {
    in_virtual_time(async {
        let track = Track::new(by_user(&["ladder 1 +2s"])).await;
        let door = admissions(&track.engine);
        assert_eq!(guess(&door, 0).await, (Ok(()), 0));
        let mut waiting = begin(&door, &ADA, 10);
        assert!(poll_once(&mut waiting).await.is_none());
        assert_eq!(delayed(&door), 1);
        drop(waiting);
        assert_eq!(delayed(&door), 0);
        sleep(Duration::from_secs(2)).await;
        assert_eq!(guess(&door, 0).await, (Ok(()), 0), "nothing took its turn");
    });
}

#[test]
fn delays_end_when_the_process_does() {
    in_virtual_time(async {
        let track = Track::new(by_user(&["ladder 1 +60s"])).await;
        let door = admissions(&track.engine);
        assert_eq!(guess(&door, 0).await, (Ok(()), 0));
        let end = async {
            sleep(Duration::from_secs(7)).await;
            door.end_waits();
        };
        let start = Instant::now();
        let (ended, ()) = tokio::join!(begin(&door, &ADA, 3_600), end);
        assert_eq!((ended.unwrap_err(), start.elapsed().as_secs()), (NotAdmitted::Ended, 7));
        assert_eq!(begin(&door, &ADA, 3_600).await.unwrap_err(), NotAdmitted::Ended, "nor does one begin");
        assert_eq!((delayed(&door), start.elapsed().as_secs()), (0, 7));
        assert_eq!(guess(&door, 0).await, (Err(wait(53)), 0), "one that may not wait is decided");
    });
}

#[test]
fn no_more_than_ten_thousand_logins_are_delayed_at_once() {
    in_virtual_time(async {
        let track = Track::new(by_user(&["ladder 1 +60s"])).await;
        let door = admissions(&track.engine);
        assert_eq!(guess(&door, 0).await, (Ok(()), 0));
        let mut waiting: Vec<_> = (0..10_000).map(|_| begin(&door, &ADA, 60)).collect();
        for login in &mut waiting {
            assert!(poll_once(login).await.is_none());
        }
        assert_eq!(guess(&door, 60).await, (Err(wait(60)), 0));
        assert_eq!(delayed(&door), 10_000);
        waiting.pop();
        let mut next = begin(&door, &ADA, 60);
        assert!(poll_once(&mut next).await.is_none(), "there is room for one more");
        drop((waiting, next));
        assert_eq!(delayed(&door), 0);
    });
}

#[test]
fn a_login_that_no_runtime_can_delay_is_told_so() {
    let stand = support::Stand::new(by_user(&["ladder 1 +2s"]));
    let door = admissions(&stand.engine);
    assert!(block_on(begin(&door, &ADA, 10)).is_ok());
    assert_eq!(block_on(begin(&door, &ADA, 10)).unwrap_err(), NotAdmitted::Ended);
}

#[test]
fn a_login_is_not_delayed_because_the_store_is_down() {
    let node = Centre::new().node(by_user(&["ladder 1 +2s"]));
    let door = admissions(&node.engine);
    node.link.set(Mode::Unreachable);
    assert!(block_on(begin(&door, &ADA, 3_600)).unwrap().seen.is_err());
}

#[test]
fn a_client_that_goes_away_while_its_lock_is_recorded_keeps_no_hold() {
    let rules = vec![
        rule::rejecting("account", &["user"], &["ladder 1 lock 15m"]),
        rule::rejecting("address", &["ip"], &["1 at once for 1h"]),
    ];
    let node = Centre::new().node(guarded(rules, &["account", "address"]));
    let door = admissions(&node.engine);
    let login = |user| begin(&door, &[("user", user), ("ip", "192.0.2.1")], 0);
    node.link.set(Mode::WritesNoRecords);
    let mut leaving = login("ada");
    assert!(block_on(poll_once(&mut leaving)).is_none(), "its lock is being recorded");
    assert!(block_on(login("bob")).unwrap().seen.is_err(), "its hold is taken");
    drop(leaving);
    node.link.set(Mode::Up);
    block_on(door.leases.tend());
    assert_eq!(block_on(login("bob")).unwrap().seen, Ok(()), "its hold is released");
    assert!(block_on(login("ada")).unwrap().seen.is_err(), "its failure is counted");
}

#[test]
fn a_login_without_a_report_stays_a_failure_and_its_holds_end() {
    let rules = vec![
        rule::rejecting("account", &["user"], &["ladder 1 lock 15m"]),
        rule::rejecting("address", &["ip"], &["1 at once for 1h"]),
    ];
    let stand = support::Stand::new(guarded(rules, &["account", "address"]));
    let door = admissions(&stand.engine);
    let login = |user| block_on(begin(&door, &[("user", user), ("ip", "192.0.2.1")], 0)).unwrap();
    drop(login("ada"));
    block_on(door.leases.tend());
    assert!(login("ada").seen.is_err());
    let mut bob = login("bob");
    assert_eq!(bob.seen, Ok(()));
    block_on(bob.taken.end_login(Ending::Success)).unwrap();
    drop(bob);
    block_on(door.leases.tend());
    assert_eq!(login("bob").seen, Ok(()));
}
