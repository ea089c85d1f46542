//! Whatever arrives and whichever callers give up: attempts that wait for the same keys pass by priority,
//! then in the order of arrival, no sooner than the limits allow, and as soon as they do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::support::pacing::{SlowStore, Trace, Track, ask, in_virtual_time, waiting};
use crate::support::policies;
use proptest::prelude::*;
use tokio::time::{Instant, sleep, sleep_until};
use tollgate_core::{Attempt, Policies, Span};
use tollgate_engine::{Ask, PacerOptions};

/// A new attempt.
#[derive(Clone, Copy, Debug)]
struct Visit {
    /// How long after the previous one it comes.
    after_millis: u64,
    chat: u8,
    priority: i8,
    cost: u64,
    /// After how long its caller gives up.
    patience_millis: Option<u64>,
}

/// The result of a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pass {
    number: usize,
    at: u64,
}

const PASSES: &str = "no visit is refused";

fn visit() -> impl Strategy<Value = Visit> {
    let patience = prop_oneof![3 => Just(None), 1 => (0..3_000_u64).prop_map(Some)];
    (prop_oneof![3 => Just(0), 1 => 1..700_u64], 0..4_u8, -1..=1_i8, 1..=2_u64, patience).prop_map(
        |(after_millis, chat, priority, cost, patience_millis)| Visit {
            after_millis,
            chat,
            priority,
            cost,
            patience_millis,
        },
    )
}

fn rules(chat: &str) -> Policies {
    let rules = vec![waiting("all", &[], &["6/s sliding"]), waiting("chat", &["chat"], &[chat])];
    policies(rules, &[("send", &["all", "chat"])])
}

/// Lets all visits come, and returns which passed when.
async fn run(track: Track, visits: &[Visit]) -> Vec<Pass> {
    let track = Arc::new(track);
    let trace: Trace<Pass> = Trace::default();
    let mut tasks = Vec::new();
    let mut at = track.start;
    for (number, visit) in visits.iter().copied().enumerate() {
        at += Duration::from_millis(visit.after_millis);
        sleep_until(at).await;
        let (track, trace) = (Arc::clone(&track), Arc::clone(&trace));
        let (placed, place) = tokio::sync::oneshot::channel();
        tasks.push(tokio::spawn(async move {
            let chat = visit.chat.to_string();
            let fields = [("chat", &*chat)];
            let attempt = Attempt { policy: "send", fields: &fields, cost: visit.cost, id: None };
            let ask = Ask { priority: visit.priority, ..Ask::from(attempt) };
            let (seen, at) = (Arc::clone(&trace), Arc::clone(&track));
            // Recorded when it passes, and not when the waiting task learns of it.
            let acquire = track.pacer.acquire_with(ask, move |_, decision| {
                assert!(decision.allowed());
                seen.lock().push(Pass { number, at: at.millis() });
            });
            let mut acquire = Box::pin(acquire);
            let first = std::future::poll_fn(|context| std::task::Poll::Ready(acquire.as_mut().poll(context)));
            let first = first.await;
            placed.send(()).expect("it is waited for");
            match (first, visit.patience_millis) {
                (std::task::Poll::Ready(passed), _) => drop(passed.expect(PASSES)),
                (_, None) => drop(acquire.await.expect(PASSES)),
                (_, Some(patience)) => {
                    let patience = sleep(Duration::from_millis(patience));
                    tokio::pin!(patience);
                    tokio::select! { biased; passed = &mut acquire => drop(passed.expect(PASSES)), () = patience => {} }
                }
            }
        }));
        place.await.expect("it comes");
    }
    for task in tasks {
        task.await.expect("it ends well");
    }
    assert_eq!(track.pacer.waiting(), 0);
    drop(track);
    Arc::into_inner(trace).expect("all have passed").into_inner()
}

/// When each visit came, in milliseconds.
fn arrivals(visits: &[Visit]) -> Vec<u64> {
    let came = visits.iter().scan(0, |at, visit| {
        *at += visit.after_millis;
        Some(*at)
    });
    came.collect()
}

/// Asserts that no visit was overtaken by one to the same chat that had come later or at the same time and
/// had no higher priority, unless its caller had given up by then.
fn assert_in_order(visits: &[Visit], passes: &[Pass]) {
    let came = arrivals(visits);
    for (index, pass) in passes.iter().enumerate() {
        let visit = visits[pass.number];
        for earlier in &passes[..index] {
            let other = visits[earlier.number];
            let same = other.chat == visit.chat && earlier.number > pass.number;
            let waited = earlier.at > came[pass.number];
            assert!(
                !(same && waited && other.priority <= visit.priority),
                "{earlier:?} {other:?} passed by {pass:?} {visit:?}"
            );
        }
    }
}

/// Asserts that in no period more was taken than the limit allows.
fn assert_within(visits: &[Visit], passes: &[Pass], millis: u64, most: u64) {
    for start in passes {
        let within = passes.iter().filter(|pass| (start.at..start.at + millis).contains(&pass.at));
        let taken: u64 = within.map(|pass| visits[pass.number].cost).sum();
        assert!(taken <= most, "{taken} within {millis} ms of {start:?}");
    }
}

fn of_chat(visits: &[Visit], passes: &[Pass], chat: u8) -> Vec<Pass> {
    passes.iter().filter(|pass| visits[pass.number].chat == chat).copied().collect()
}

/// Asserts that every visit passes unless its caller gives up.
fn assert_every_visit_passes(visits: &[Visit], passes: &[Pass]) {
    let passed: BTreeMap<usize, u64> = passes.iter().map(|pass| (pass.number, pass.at)).collect();
    for (number, visit) in visits.iter().enumerate() {
        assert!(visit.patience_millis.is_some() || passed.contains_key(&number), "{number} {visit:?}");
    }
}

/// Asserts that at a lone limit of one per period no visit waits while the limit is free.
fn assert_no_time_is_lost(visits: &[Visit], passes: &[Pass], period: u64, chat: u8) {
    let came = arrivals(visits);
    let mut free_at = 0;
    for pass in of_chat(visits, passes, chat) {
        let could = free_at.max(came[pass.number]);
        assert_eq!(pass.at, could, "{pass:?} could have passed at {could}");
        free_at = pass.at + period;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn order_and_limits_are_kept(visits in prop::collection::vec(visit(), 1..60)) {
        let passes = in_virtual_time(async { run(Track::new(rules("2/s sliding")).await, &visits).await });
        assert_in_order(&visits, &passes);
        assert_every_visit_passes(&visits, &passes);
        assert_within(&visits, &passes, 1_000, 6);
        for chat in 0..4 {
            assert_within(&visits, &of_chat(&visits, &passes, chat), 1_000, 2);
        }
    }

    #[test]
    fn they_are_kept_where_the_store_takes_its_time(
        visits in prop::collection::vec(visit(), 1..40),
        latency in 1..30_u64,
    ) {
        let options = PacerOptions { max_in_flight: 3, ..PacerOptions::default() };
        let passes = in_virtual_time(async {
            let store = SlowStore::new(Duration::from_millis(latency));
            let passes = run(Track::shared(rules("2/s sliding"), &store, options).await, &visits).await;
            assert!(store.most_in_flight.load(std::sync::atomic::Ordering::Relaxed) <= 3);
            passes
        });
        assert_in_order(&visits, &passes);
        assert_every_visit_passes(&visits, &passes);
        for chat in 0..4 {
            // Callers learn of permits up to one latency after the store let them pass.
            assert_within(&visits, &of_chat(&visits, &passes, chat), 1_000 - latency, 2);
        }
    }

    #[test]
    fn a_permit_is_let_go_the_moment_it_is_due(mut visits in prop::collection::vec(visit(), 1..40)) {
        for visit in &mut visits {
            (visit.cost, visit.patience_millis) = (1, None);
        }
        let lone = policies(vec![waiting("chat", &["chat"], &["1/s sliding"])], &[("send", &["chat"])]);
        let passes = in_virtual_time(async { run(Track::new(lone).await, &visits).await });
        for chat in 0..4 {
            assert_no_time_is_lost(&visits, &passes, 1_000, chat);
        }
    }
}

#[test]
fn few_decisions_are_needed_for_a_permit_however_many_callers_wait() {
    in_virtual_time(async {
        let store = SlowStore::new(Duration::from_micros(10));
        let rules =
            vec![waiting("all", &[], &["10/s burst 1"]), waiting("chat", &["chat"], &["1/s sliding"])];
        let track =
            Track::shared(policies(rules, &[("send", &["all", "chat"])]), &store, PacerOptions::default())
                .await;
        let trace: Trace<(u32, u64)> = Trace::default();
        let tasks = (0..1_000).map(|n| track.send("send", vec![("chat", format!("{}", n % 500))], &trace, n));
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        let takes = store.takes.load(std::sync::atomic::Ordering::Relaxed);
        assert!(takes < 2_200, "{takes} decisions for 1,000 permits");
    });
}

#[test]
fn a_lane_with_a_free_limit_does_not_overtake_others_at_a_shared_limit() {
    // Which of two limits that are free at the same time comes first is random.
    for _ in 0..16 {
        in_virtual_time(async {
            let rules =
                vec![waiting("all", &[], &["1/s sliding"]), waiting("chat", &["chat"], &["1/2s sliding"])];
            let track = Track::new(policies(rules, &[("send", &["all", "chat"])])).await;
            let trace: Trace<(&str, u64)> = Trace::default();
            let chats = [("x", "first"), ("x", "again"), ("a", "a"), ("b", "b"), ("c", "c")];
            let tasks =
                chats.map(|(chat, what)| track.send("send", vec![("chat", chat.into())], &trace, what));
            for task in tasks {
                task.await.unwrap();
            }
            let expected = [("first", 0), ("a", 1_000), ("b", 2_000), ("c", 3_000), ("again", 4_000)];
            assert_eq!(*trace.lock(), expected);
        });
    }
}

#[test]
fn no_more_is_asked_at_once_than_may_be() {
    in_virtual_time(async {
        let store = SlowStore::new(Duration::from_millis(1));
        let options = PacerOptions { max_in_flight: 3, ..PacerOptions::default() };
        let by_chat = || policies(vec![waiting("chat", &["chat"], &["1/s sliding"])], &[("send", &["chat"])]);
        let track = Track::shared(by_chat(), &store, options).await;
        let trace: Trace<(u32, u64)> = Trace::default();
        let tasks = (0..100).map(|n| track.send("send", vec![("chat", format!("{}", n % 50))], &trace, n));
        let tasks: Vec<_> = tasks.collect();
        sleep(Duration::from_millis(500)).await;
        // With other policies, every waiting attempt is decided once more.
        track.engine.reload(by_chat());
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(store.most_in_flight.load(std::sync::atomic::Ordering::Relaxed), 3);
    });
}

#[test]
fn a_caller_that_does_not_wait_can_see_that_others_do() {
    in_virtual_time(async {
        let track = Track::new(rules("1/s sliding")).await;
        let (a, b) = ([("chat", "a")], [("chat", "b")]);
        let attempt = |fields| Attempt { policy: "send", fields, cost: 1, id: None };
        let is_waiting = |fields| track.pacer.is_waiting(&track.engine.pin(), &attempt(fields));
        track.acquire("send", &a).await.unwrap();
        assert!(!is_waiting(&a));
        let until = Instant::now() + Duration::from_secs(1);
        let acquire = track.pacer.acquire(Ask { max_wait: Some(Span::from_secs(2)), ..ask("send", &a) });
        tokio::pin!(acquire);
        tokio::select! {
            biased;
            _ = &mut acquire => unreachable!("it has to wait"),
            () = std::future::ready(()) => {}
        }
        assert!(is_waiting(&a), "a caller waits for the chat");
        assert!(!is_waiting(&b), "and none for another chat");
        acquire.await.unwrap();
        assert!(Instant::now() >= until && !is_waiting(&a));
    });
}
