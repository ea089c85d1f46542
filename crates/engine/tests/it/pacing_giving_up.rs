//! Giving up: a dropped wait leaves the queue, and what was taken for it is refunded.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::pacing::{SlowStore, Trace, Track, ask, begin, in_virtual_time, waiting};
use crate::support::{policies, rule};
use tokio::time::{advance, sleep};
use tollgate_core::{Attempt, OnExceed, Policies, Span};
use tollgate_engine::pacer::Unpaced;
use tollgate_engine::{Ask, Engine, Pacer, PacerOptions};

fn by_chat(limit: &str) -> Policies {
    policies(vec![waiting("chat", &["chat"], &[limit])], &[("send", &["chat"])])
}

const A: [(&str, &str); 1] = [("chat", "a")];

#[test]
fn a_dropped_wait_lets_the_next_one_move_up() {
    in_virtual_time(async {
        let track = Track::new(by_chat("1/s sliding")).await;
        track.acquire("send", &A).await.unwrap();
        let mut first = Box::pin(track.acquire("send", &A));
        let mut second = Box::pin(track.acquire("send", &A));
        let mut third = Box::pin(track.acquire("send", &A));
        begin(&mut first).await;
        begin(&mut second).await;
        begin(&mut third).await;
        drop(second);
        advance(Duration::from_millis(500)).await;
        drop(first);
        assert_eq!(third.await.unwrap().waited, Span::from_secs(1));
        assert_eq!(track.acquire("send", &A).await.unwrap().waited, Span::from_secs(1), "none was used up");
    });
}

#[test]
fn when_a_costly_wait_is_given_up_a_cheaper_one_need_not_wait_as_long() {
    in_virtual_time(async {
        let track = Track::new(by_chat("10/s burst 10")).await;
        let costing = |cost| Ask::from(Attempt { policy: "send", fields: &A, cost, id: None });
        track.pacer.acquire(costing(10)).await.unwrap();
        let mut costly = Box::pin(track.pacer.acquire(costing(10)));
        let mut cheap = Box::pin(track.pacer.acquire(costing(1)));
        begin(&mut costly).await;
        begin(&mut cheap).await;
        sleep(Duration::from_millis(300)).await;
        drop(costly);
        assert_eq!(cheap.await.unwrap().waited, Span::from_millis(300));
    });
}

#[test]
fn a_charge_for_a_caller_that_left_is_refunded() {
    in_virtual_time(async {
        let track = Track::new(by_chat("1/s sliding")).await;
        track.acquire("send", &A).await.unwrap();
        let mut gone = Box::pin(track.acquire("send", &A));
        let mut next = Box::pin(track.acquire("send", &A));
        begin(&mut gone).await;
        begin(&mut next).await;
        // The permit is there, but its caller does not take it.
        sleep(Duration::from_millis(1_200)).await;
        assert_eq!(track.pacer.waiting(), 1);
        drop(gone);
        assert_eq!(next.await.unwrap().waited, Span::from_millis(1_200), "at once, not a second later");
        let counts = track.pacer.meters().counts();
        let count = |outcome| counts.iter().find(|(_, name, _)| *name == outcome).unwrap().2;
        assert_eq!((count("passed"), count("cancelled")), (2, 1));
    });
}

#[test]
fn a_caller_that_leaves_during_its_decision_takes_nothing() {
    in_virtual_time(async {
        let store = SlowStore::new(Duration::from_millis(50));
        let track = Track::shared(by_chat("1/s sliding"), &store, PacerOptions::default()).await;
        let mut gone = Box::pin(track.acquire("send", &A));
        begin(&mut gone).await;
        sleep(Duration::from_millis(60)).await;
        assert_eq!(store.takes.load(Ordering::Relaxed), 1, "it is on its way");
        drop(gone);
        sleep(Duration::from_millis(540)).await;
        let before = track.millis();
        assert!(track.acquire("send", &A).await.is_ok());
        assert_eq!(track.millis() - before, 100, "what was taken is back");
        assert_eq!(track.pacer.waiting(), 0);
    });
}

#[test]
fn the_end_of_a_runtime_ends_the_waiting_in_it_and_no_other() {
    let track = in_virtual_time(async {
        let track = Track::new(by_chat("1/s sliding")).await;
        track.acquire("send", &A).await.unwrap();
        let trace: Trace<((), u64)> = Trace::default();
        track.send("send", vec![("chat", "a".into())], &trace, ());
        tokio::task::yield_now().await;
        assert_eq!(track.pacer.waiting(), 1);
        track
    });
    assert_eq!(track.pacer.waiting(), 0);
    in_virtual_time(async {
        let waited = track.acquire("send", &A).await.unwrap().waited;
        assert!(waited <= Span::from_secs(1), "{waited}");
    });
}

#[test]
fn a_waiter_in_another_runtime_learns_that_the_drivers_runtime_ended() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (first, second) = (runtime(), runtime());
    let track = first.block_on(Track::new(by_chat("1/hour sliding")));
    first.block_on(track.acquire("send", &A)).unwrap();
    let mut driven = Box::pin(track.acquire("send", &A));
    first.block_on(begin(&mut driven));
    let mut other = Box::pin(track.acquire("send", &A));
    second.block_on(begin(&mut other));
    drop(first);
    assert_eq!(second.block_on(other), Err(Unpaced::Ended));
    assert_eq!(second.block_on(driven), Err(Unpaced::Ended));
    let mut again = Box::pin(track.acquire("send", &A));
    second.block_on(begin(&mut again));
    assert_eq!(track.pacer.waiting(), 1, "it goes on where it is wanted");
}

#[test]
fn waiting_in_an_ended_runtime_fails() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let track = runtime.block_on(Track::new(by_chat("1/hour sliding")));
    let handle = runtime.handle().clone();
    drop(runtime);
    let _entered = handle.enter();
    assert!(futures_lite::future::block_on(track.acquire("send", &A)).is_ok());
    assert_eq!(futures_lite::future::block_on(track.acquire("send", &A)), Err(Unpaced::Ended));
}

/// Calls the pacer when it is dropped.
struct Asks(Pacer, Arc<Engine>);

impl Drop for Asks {
    fn drop(&mut self) {
        let attempt = Attempt { policy: "send", fields: &A, cost: 1, id: None };
        self.0.is_waiting(&self.1.pin(), &attempt);
    }
}

#[test]
fn a_leaving_caller_may_call_the_pacer_while_it_is_dropped() {
    in_virtual_time(async {
        let track = Track::bounded(
            by_chat("1/s sliding"),
            PacerOptions { max_waiting_per_key: 2, ..PacerOptions::default() },
        );
        let track = track.await;
        track.acquire("send", &A).await.unwrap();
        let acquire = |max_wait| {
            let asks = Asks(track.pacer.clone(), Arc::clone(&track.engine));
            let ask = Ask { max_wait, ..ask("send", &A) };
            Box::pin(track.pacer.acquire_with(ask, move |_, _| drop(asks)))
        };
        let (mut first, mut second) = (acquire(None), acquire(None));
        begin(&mut first).await;
        let late = acquire(Some(Span::ZERO)).await;
        assert!(matches!(late, Err(Unpaced::TooLate { .. })), "it is sent away");
        begin(&mut second).await;
        assert_eq!(acquire(None).await, Err(Unpaced::Full { waiting: 2 }), "it is sent away");
        drop(second);
        first.await.unwrap();
    });
}

#[test]
fn many_callers_that_give_up_leave_nothing_behind() {
    in_virtual_time(async {
        let rules = vec![waiting("all", &[], &["1/s burst 1"]), waiting("chat", &["chat"], &["1/s sliding"])];
        let track = Track::new(policies(rules, &[("send", &["all", "chat"])])).await;
        track.acquire("send", &[("chat", "first")]).await.unwrap();
        let pacer = &track.pacer;
        let mut waits = Vec::new();
        for n in 0..500 {
            let chat = format!("{}", n % 50);
            waits.push(Box::pin(async move { pacer.acquire(ask("send", &[("chat", &chat)])).await }));
            begin(waits.last_mut().unwrap()).await;
        }
        assert_eq!(pacer.waiting(), 500);
        drop(waits);
        assert_eq!(pacer.waiting(), 0);
        let pinned = track.engine.pin();
        let attempt = Attempt { policy: "send", fields: &[("chat", "7")], cost: 1, id: None };
        assert!(!pacer.is_waiting(&pinned, &attempt));
        assert_eq!(pacer.meters().waiting()[0].1, 0);
        assert_eq!(track.acquire("send", &[("chat", "7")]).await.unwrap().waited, Span::from_secs(1));
    });
}

#[test]
fn a_denied_waiter_leaves_its_turn_to_the_next() {
    in_virtual_time(async {
        let rules = vec![
            waiting("chat", &["chat"], &["1/s sliding"]),
            rule::with("size", &[], &["100 size per attempt"], OnExceed::Reject),
        ];
        let track = Track::new(policies(rules, &[("send", &["chat", "size"])])).await;
        let sized = |size: &'static str| [("chat", "a"), ("size", size)];
        track.acquire("send", &sized("1")).await.unwrap();
        let (large, small) = (sized("101"), sized("1"));
        let mut first = Box::pin(track.acquire("send", &small));
        let mut second = Box::pin(track.acquire("send", &large));
        let mut third = Box::pin(track.acquire("send", &small));
        begin(&mut first).await;
        begin(&mut second).await;
        begin(&mut third).await;
        let (first, second, third) = tokio::join!(first, second, third);
        assert_eq!(first.unwrap().waited, Span::from_secs(1));
        assert!(matches!(second, Err(Unpaced::Denied { .. })));
        assert_eq!(third.unwrap().waited, Span::from_secs(2));
    });
}

#[test]
fn a_pacer_that_is_dropped_is_gone() {
    in_virtual_time(async {
        let track = Track::new(by_chat("1/s sliding")).await;
        let engine = Arc::downgrade(&track.engine);
        track.acquire("send", &A).await.unwrap();
        let mut wait = Box::pin(track.acquire("send", &A));
        begin(&mut wait).await;
        drop(wait);
        drop(track);
        sleep(Duration::from_secs(1)).await;
        assert!(engine.upgrade().is_none(), "its driver ends with the last who waits");
    });
}

#[test]
fn at_its_end_the_pacer_refuses_all_waiters_and_takes_nothing_for_them() {
    in_virtual_time(async {
        let rules =
            vec![waiting("all", &[], &["30/s sliding"]), waiting("chat", &["chat"], &["1/s sliding"])];
        let policies = policies(rules, &[("telegram", &["all", "chat"])]);
        for store in [None, Some(SlowStore::new(Duration::from_millis(1)))] {
            let track = match &store {
                None => Track::new(policies.clone()).await,
                Some(store) => Track::shared(policies.clone(), store, PacerOptions::default()).await,
            };
            let (a, b) = ([("chat", "a")], [("chat", "b")]);
            track.acquire("telegram", &a).await.unwrap();
            let mut waits: Vec<_> = (0..3).map(|_| Box::pin(track.acquire("telegram", &a))).collect();
            for wait in &mut waits {
                begin(wait).await;
            }
            sleep(Duration::from_millis(500)).await;
            track.pacer.end();
            for wait in waits {
                assert_eq!(wait.await, Err(Unpaced::Ended));
            }
            assert_eq!(track.acquire("telegram", &a).await, Err(Unpaced::Ended), "a later caller too");
            assert_eq!(track.pacer.waiting(), 0);
            if store.is_none() {
                assert!(track.acquire("telegram", &b).await.is_ok(), "who need not wait passes");
            }
        }
    });
}
