//! A waiting attempt passes as soon as units are freed: refunded, released or forgotten.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::time::Duration;

use crate::support::{
    self,
    pacing::{RuntimeClock, SlowStore, Trace, Track, begin, in_virtual_time},
};
use crate::support::{policies, rule};
use tokio::time::sleep;
use tollgate_core::store::{Counter, Forget, HoldsOrder};
use tollgate_core::{Attempt, OnExceed, OutcomeClass, Policies, Rule, Span};
use tollgate_engine::engine::RefundPart;
use tollgate_engine::pacer::{Bound, Unpaced};
use tollgate_engine::{Ask, Leases, PacerOptions};

const A: [(&str, &str); 1] = [("job", "a")];

/// One rule by job, which lets attempts wait for up to a minute.
fn by_job(limit: &str) -> Policies {
    let job = rule::with("job", &["job"], &[limit], OnExceed::Wait(Span::from_secs(60)));
    policies(vec![job], &[("run", &["job"])])
}

/// An attempt with an id of its own.
fn held<'a>(id: &'a str) -> Ask<'a> {
    Ask::from(Attempt { policy: "run", fields: &A, cost: 1, id: Some(id) })
}

/// Another caller gives an order on the holds of the job.
async fn order(track: &Track, order: HoldsOrder<'_>) {
    let pinned = track.engine.pin();
    let plan = pinned.policies.rule("job").unwrap().plan_at("a");
    track.engine.counters.holds(&Counter { plan, key: "a" }, order).await.unwrap();
}

#[test]
fn a_released_hold_admits_the_first_waiter() {
    for limit in ["2 at once for 20s", "2 at once"] {
        in_virtual_time(async {
            let track = Track::new(by_job(limit)).await;
            track.pacer.acquire(held("x")).await.unwrap();
            track.pacer.acquire(held("y")).await.unwrap();
            let (mut third, mut fourth) =
                (Box::pin(track.pacer.acquire(held("3"))), Box::pin(track.pacer.acquire(held("4"))));
            begin(&mut third).await;
            begin(&mut fourth).await;
            sleep(Duration::from_millis(300)).await;
            order(&track, HoldsOrder::Release("x")).await;
            assert_eq!(third.await.unwrap().waited, Span::from_millis(300), "{limit}");
            begin(&mut fourth).await;
            sleep(Duration::from_millis(300)).await;
            order(&track, HoldsOrder::ReleaseMany(&["y"])).await;
            assert_eq!(fourth.await.unwrap().waited, Span::from_millis(600), "{limit}");
        });
    }
}

#[test]
fn a_refund_admits_the_first_waiter() {
    in_virtual_time(async {
        let track = Track::new(by_job("1/10s sliding")).await;
        let first = track.acquire("run", &A).await.unwrap();
        let mut second = Box::pin(track.acquire("run", &A));
        begin(&mut second).await;
        sleep(Duration::from_millis(300)).await;
        let pinned = track.engine.pin();
        track.engine.refund(&pinned, &first.receipt.unwrap(), RefundPart::All).await.unwrap();
        assert_eq!(second.await.unwrap().waited, Span::from_millis(300));
    });
}

#[test]
fn a_reset_or_replaced_holds_admit_the_first_waiter() {
    in_virtual_time(async {
        let track = Track::new(by_job("1 at once")).await;
        track.pacer.acquire(held("x")).await.unwrap();
        let trace: Trace<(u32, u64)> = Trace::default();
        let mut waits = Vec::new();
        for n in 0..3 {
            waits.push(track.send("run", vec![("job", "a".into())], &trace, n));
            sleep(Duration::from_millis(1)).await;
        }
        let pinned = track.engine.pin();
        let plan = pinned.policies.rule("job").unwrap().plan_at("a");
        track.engine.counters.forget(Forget::Key(Counter { plan, key: "a" })).await.unwrap();
        sleep(Duration::from_millis(97)).await;
        track.engine.counters.forget(Forget::Rule("job")).await.unwrap();
        sleep(Duration::from_millis(100)).await;
        track.engine.counters.replace_holds(&Counter { plan, key: "a" }, &[]).await.unwrap();
        for wait in waits {
            wait.await.unwrap();
        }
        assert_eq!(*trace.lock(), [(0, 3), (1, 100), (2, 200)], "one at a time, in order");
    });
}

#[test]
fn a_refund_by_an_answer_admits_the_first_waiter() {
    in_virtual_time(async {
        let wait = OnExceed::Wait(Span::from_secs(60));
        let job = Rule { on_exceed: wait, ..rule::counting("job", &["1/50s sliding"], "[401]") };
        let track = Track::new(policies(vec![job], &[("run", &["job"])])).await;
        let mut first = support::taken(&track.engine, "run", &A);
        let mut second = Box::pin(track.acquire("run", &A));
        begin(&mut second).await;
        sleep(Duration::from_millis(300)).await;
        assert!(first.settle(OutcomeClass(200)).is_made());
        assert_eq!(second.await.unwrap().waited, Span::from_millis(300));
    });
}

#[test]
fn an_ended_lease_admits_the_first_waiter() {
    in_virtual_time(async {
        let track = Track::new(by_job("1 at once for 50s")).await;
        let leases = Leases::new(Arc::clone(&track.engine), RuntimeClock::new());
        let pinned = track.engine.pin();
        let attempt = Attempt { policy: "run", fields: &A, cost: 1, id: Some("x") };
        let decision = track.engine.decide(&pinned, &attempt).await.unwrap();
        let lease = leases.keep(&decision, "x");
        let mut second = Box::pin(track.pacer.acquire(held("y")));
        begin(&mut second).await;
        sleep(Duration::from_millis(300)).await;
        drop(lease);
        assert_eq!(second.await.unwrap().waited, Span::from_millis(300));
    });
}

#[test]
fn a_caller_waits_for_a_release_up_to_its_own_bound() {
    for (limit, ends) in [("1 at once for 5m", 298), ("1 at once", 0)] {
        in_virtual_time(async {
            let track = Track::new(by_job(limit)).await;
            track.pacer.acquire(held("x")).await.unwrap();
            let brief = Ask { max_wait: Some(Span::from_secs(2)), ..held("y") };
            let late = track.pacer.acquire(brief).await.unwrap_err();
            let Unpaced::TooLate { waited, wait, bound: Bound::Caller } = late else { panic!("{late:?}") };
            assert_eq!((waited.as_secs_ceil(), wait.as_secs_ceil()), (3, ends), "{limit}");
            let late = track.pacer.acquire(held("z")).await.unwrap_err();
            let Unpaced::TooLate { waited, bound, .. } = late else { panic!("{late:?}") };
            assert_eq!((waited.as_millis_ceil() / 1_000, bound), (60, Bound::Rule("job".into())), "{limit}");
            let counts = track.engine.observer.meters.counts();
            let denied = counts.iter().filter(|([.., outcome], _)| **outcome == *"deny");
            assert_eq!(denied.map(|(_, count)| count).sum::<u64>(), 0, "no rule refused a caller");
        });
    }
}

#[test]
fn a_release_on_another_node_is_found_within_about_a_second() {
    in_virtual_time(async {
        let store = SlowStore::new(Duration::from_millis(5));
        let here = Track::shared(by_job("1 at once for 50s"), &store, PacerOptions::default()).await;
        let there = Track::shared(by_job("1 at once for 50s"), &store, PacerOptions::default()).await;
        here.pacer.acquire(held("x")).await.unwrap();
        let mut waits = Box::pin(here.pacer.acquire(held("y")));
        begin(&mut waits).await;
        let released = async {
            sleep(Duration::from_secs(5)).await;
            order(&there, HoldsOrder::Release("x")).await;
        };
        let (permit, ()) = tokio::join!(waits, released);
        let waited = permit.unwrap().waited;
        assert!(waited > Span::from_secs(5) && waited < Span::from_millis(6_500), "{waited}");
    });
}

#[test]
fn a_refund_during_a_decision_is_not_missed() {
    in_virtual_time(async {
        let store = SlowStore::new(Duration::from_millis(50));
        let track = Track::shared(by_job("1/10s sliding"), &store, PacerOptions::default()).await;
        let first = track.acquire("run", &A).await.unwrap();
        let given = async {
            // The store has refused the second attempt when this reaches it, and the reply has not arrived
            // yet.
            sleep(Duration::from_millis(10)).await;
            let pinned = track.engine.pin();
            track.engine.refund(&pinned, &first.receipt.unwrap(), RefundPart::All).await.unwrap();
        };
        let (second, ()) = tokio::join!(track.acquire("run", &A), given);
        let waited = second.unwrap().waited;
        assert!(waited < Span::from_secs(1), "{waited}");
    });
}

#[test]
fn a_refund_while_a_caller_enters_the_queue_is_not_missed() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    runtime.block_on(async {
        let track = Arc::new(Track::new(by_job("1/50s sliding")).await);
        for number in 0..3_000 {
            let job = number.to_string();
            let fields = [("job", &*job)];
            let first = track.acquire("run", &fields).await.unwrap();
            let giving = Arc::clone(&track);
            let giving = tokio::spawn(async move {
                let pinned = giving.engine.pin();
                giving.engine.refund(&pinned, &first.receipt.unwrap(), RefundPart::All).await.unwrap();
            });
            let second = tokio::time::timeout(Duration::from_secs(30), track.acquire("run", &fields));
            second.await.expect("it is told that there is room").unwrap();
            giving.await.unwrap();
        }
    });
}
