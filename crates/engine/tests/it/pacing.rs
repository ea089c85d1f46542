//! Waiting for a turn: in order, until the deadline, or until the caller gives up.

use std::sync::Arc;
use std::time::Duration;

use crate::support::pacing::{SlowStore, Trace, Track, ask, begin, in_virtual_time, waiting};
use crate::support::{policies, rule};
use tokio::time::{advance, sleep};
use tollgate_core::{Attempt, OnExceed, Policies, Span, When};
use tollgate_engine::engine::RefundPart;
use tollgate_engine::pacer::{Bound, Unpaced};
use tollgate_engine::{Ask, Pacer, PacerOptions};

/// One rule by chat, which lets attempts wait for up to ten seconds.
fn by_chat(limit: &str) -> Policies {
    let chat = rule::with("chat", &["chat"], &[limit], OnExceed::Wait(Span::from_secs(10)));
    policies(vec![chat], &[("send", &["chat"])])
}

const A: [(&str, &str); 1] = [("chat", "a")];

#[test]
fn permits_come_when_they_are_due_and_in_order() {
    in_virtual_time(async {
        let track = Track::new(by_chat("2/s burst 1")).await;
        let trace: Trace<(u32, u64)> = Trace::default();
        let tasks: Vec<_> =
            (0..5).map(|n| track.send("send", vec![("chat", "a".into())], &trace, n)).collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*trace.lock(), [(0, 0), (1, 500), (2, 1_000), (3, 1_500), (4, 2_000)]);
        assert_eq!(track.pacer.waiting(), 0);
    });
}

#[test]
fn a_permit_says_how_long_it_waited_and_can_be_given_back() {
    in_virtual_time(async {
        let track = Track::new(by_chat("1/s sliding")).await;
        assert_eq!(track.acquire("send", &A).await.unwrap().waited, Span::ZERO);
        let permit = track.acquire("send", &A).await.unwrap();
        assert_eq!(permit.waited, Span::from_secs(1));
        let pinned = track.engine.pin();
        track.engine.refund(&pinned, &permit.receipt.unwrap(), RefundPart::All).await.unwrap();
        assert_eq!(track.acquire("send", &A).await.unwrap().waited, Span::ZERO, "it was given back");
    });
}

#[test]
fn the_caller_sees_the_decision_that_let_it_pass() {
    in_virtual_time(async {
        let track = Track::new(by_chat("2/s sliding")).await;
        let mut left = Vec::new();
        for _ in 0..4 {
            let paced = track.pacer.acquire_with(ask("send", &A), |_, decision| {
                assert!(decision.allowed());
                decision.binding().unwrap().1.remaining
            });
            left.push(paced.await.unwrap().seen);
        }
        assert_eq!(left, [1, 0, 1, 0]);
    });
}

#[test]
fn a_slow_chat_delays_no_other_and_uses_up_nothing_that_others_need() {
    in_virtual_time(async {
        let rules =
            vec![waiting("all", &[], &["10/s burst 1"]), waiting("chat", &["chat"], &["1/10s sliding"])];
        let track = Track::new(policies(rules, &[("send", &["all", "chat"])])).await;
        let trace: Trace<(String, u64)> = Trace::default();
        let mut tasks = Vec::new();
        for n in 0..3 {
            tasks.push(track.send("send", vec![("chat", "slow".into())], &trace, format!("slow {n}")));
        }
        for n in 0..5 {
            tasks.push(track.send("send", vec![("chat", format!("{n}"))], &trace, format!("{n}")));
        }
        for task in tasks {
            task.await.unwrap();
        }
        let expected = [
            ("slow 0", 0),
            ("0", 100),
            ("1", 200),
            ("2", 300),
            ("3", 400),
            ("4", 500),
            ("slow 1", 10_000),
            ("slow 2", 20_000),
        ];
        assert_eq!(*trace.lock(), expected.map(|(who, at)| (who.to_owned(), at)));
    });
}

#[test]
fn a_higher_priority_goes_first_and_equals_keep_their_order() {
    in_virtual_time(async {
        let track = Track::new(by_chat("1/s sliding")).await;
        track.acquire("send", &A).await.unwrap();
        let trace: Trace<usize> = Trace::default();
        let mut tasks = Vec::new();
        for (number, priority) in [0, 0, 5, -3, 5].into_iter().enumerate() {
            let (pacer, trace) = (track.pacer.clone(), Arc::clone(&trace));
            tasks.push(tokio::spawn(async move {
                pacer.acquire(Ask { priority, ..ask("send", &A) }).await.unwrap();
                trace.lock().push(number);
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*trace.lock(), [2, 4, 0, 1, 3]);
    });
}

#[test]
fn a_deadline_that_can_just_be_met_is_met_and_one_that_cannot_fails_at_once() {
    in_virtual_time(async {
        let track = Track::new(by_chat("1/s sliding")).await;
        track.acquire("send", &A).await.unwrap();
        let within = |millis| Ask { max_wait: Some(Span::from_millis(millis)), ..ask("send", &A) };
        let late = track.pacer.acquire(within(998)).await.unwrap_err();
        let told = |wait| Unpaced::TooLate { waited: Span::ZERO, wait, bound: Bound::Caller };
        assert_eq!(late, told(Span::from_secs(1)));
        assert_eq!(track.millis(), 0, "it did not wait to find out");
        assert_eq!(track.pacer.acquire(within(1_000)).await.unwrap().waited, Span::from_secs(1));

        let (mut second, mut third) =
            (Box::pin(track.acquire("send", &A)), Box::pin(track.acquire("send", &A)));
        begin(&mut second).await;
        begin(&mut third).await;
        let late = track.pacer.acquire(within(2_998)).await.unwrap_err();
        assert_eq!(late, told(Span::from_secs(3)), "two wait before it");
        let fourth = track.pacer.acquire(within(3_000));
        let (second, third, fourth) = tokio::join!(second, third, fourth);
        let waited = [second, third, fourth].map(|permit| permit.unwrap().waited);
        assert_eq!(waited, [1, 2, 3].map(Span::from_secs));
    });
}

#[test]
fn a_queue_at_a_bucket_is_told_to_the_microsecond() {
    in_virtual_time(async {
        let track = Track::new(by_chat("7/s burst 2")).await;
        track.acquire("send", &A).await.unwrap();
        track.acquire("send", &A).await.unwrap();
        let mut before: Vec<_> = (0..3).map(|_| Box::pin(track.acquire("send", &A))).collect();
        for one in &mut before {
            begin(one).await;
        }
        let late = track.pacer.acquire(Ask { max_wait: Some(Span::ZERO), ..ask("send", &A) }).await;
        let Err(Unpaced::TooLate { wait, .. }) = late else { panic!("{late:?}") };
        let fourth = 4_000_000_u64.div_ceil(7);
        assert!(wait.as_micros().abs_diff(fourth) <= 1, "{wait} beside {fourth}us");
    });
}

#[test]
fn lanes_that_share_a_limit_count_into_the_time_that_is_told() {
    in_virtual_time(async {
        let rules = vec![waiting("all", &[], &["1/s burst 1"]), waiting("chat", &["chat"], &["100/s"])];
        let track = Track::new(policies(rules, &[("send", &["all", "chat"])])).await;
        track.acquire("send", &[("chat", "0")]).await.unwrap();
        let keys: Vec<String> = (1..=5).map(|n: u32| n.to_string()).collect();
        let fields: Vec<_> = keys.iter().map(|key| [("chat", &**key)]).collect();
        let mut before: Vec<_> =
            fields.iter().map(|fields| Box::pin(track.acquire("send", fields))).collect();
        for one in &mut before {
            begin(one).await;
        }
        let new = [("chat", "new")];
        let late = track.pacer.acquire(Ask { max_wait: Some(Span::ZERO), ..ask("send", &new) }).await;
        let wait = Span::from_secs(6);
        let told = Unpaced::TooLate { waited: Span::ZERO, wait, bound: Bound::Caller };
        assert_eq!(late.unwrap_err(), told, "each of the five goes first");
    });
}

#[test]
fn a_rule_bounds_the_whole_wait() {
    in_virtual_time(async {
        let track = Track::new(by_chat("1/4s sliding")).await;
        track.acquire("send", &A).await.unwrap();
        let (mut first, mut second) =
            (Box::pin(track.acquire("send", &A)), Box::pin(track.acquire("send", &A)));
        begin(&mut first).await;
        begin(&mut second).await;
        let late = track.acquire("send", &A).await.unwrap_err();
        let wait = Span::from_secs(12);
        assert_eq!(late, Unpaced::TooLate { waited: Span::ZERO, wait, bound: Bound::Rule("chat".into()) });
        advance(Duration::from_secs(3)).await;
        assert_eq!(track.millis(), 3_000);
        assert!(first.await.is_ok() && second.await.is_ok());
    });
}

#[test]
fn an_overtaken_waiter_is_refused_when_its_wait_ends() {
    in_virtual_time(async {
        let track = Track::new(by_chat("1/s sliding")).await;
        track.acquire("send", &A).await.unwrap();
        let mut last = Box::pin(track.acquire("send", &A));
        begin(&mut last).await;
        let pushing = tokio::spawn(push(track.pacer.clone()));
        let late = last.await.unwrap_err();
        pushing.abort();
        let Unpaced::TooLate { waited, bound, .. } = late else { panic!("{late:?}") };
        assert_eq!(bound, Bound::Rule("chat".into()));
        assert!((10_000..=10_003).contains(&waited.as_millis_ceil()), "{waited}");
    });
}

#[test]
fn an_overtaken_waiter_is_refused_in_time_with_a_slow_store_too() {
    in_virtual_time(async {
        let store = SlowStore::new(Duration::from_millis(5));
        let track = Track::shared(by_chat("1/s sliding"), &store, PacerOptions::default()).await;
        // At least one of them is always queued first.
        let pushing: Vec<_> = (0..3).map(|_| tokio::spawn(push(track.pacer.clone()))).collect();
        tokio::task::yield_now().await;
        let last = tokio::time::timeout(Duration::from_secs(60), track.acquire("send", &A)).await;
        let late = last.expect("it is told some time").unwrap_err();
        pushing.iter().for_each(tokio::task::JoinHandle::abort);
        let Unpaced::TooLate { waited, bound, .. } = late else { panic!("{late:?}") };
        assert_eq!(bound, Bound::Rule("chat".into()));
        assert!((10_000..=10_003).contains(&waited.as_millis_ceil()), "{waited}");
    });
}

/// Takes permit after permit, with a higher priority than all others.
async fn push(pacer: Pacer) {
    while pacer.acquire(Ask { priority: 1, ..ask("send", &A) }).await.is_ok() {}
}

#[test]
fn a_slow_store_does_not_count_as_waiting() {
    in_virtual_time(async {
        let store = SlowStore::new(Duration::from_millis(50));
        let track = Track::shared(by_chat("1/s sliding"), &store, PacerOptions::default()).await;
        let at_once = Ask { max_wait: Some(Span::ZERO), ..ask("send", &A) };
        assert_eq!(track.pacer.acquire(at_once).await.unwrap().waited, Span::from_millis(100));
        let late = track.pacer.acquire(at_once).await.unwrap_err();
        let (waited, wait) = (Span::from_millis(100), Span::from_millis(900));
        assert_eq!(late, Unpaced::TooLate { waited, wait, bound: Bound::Caller });
    });
}

#[test]
fn a_waiter_without_time_left_is_refused_at_its_turn() {
    in_virtual_time(async {
        let chat = rule::with("chat", &["chat"], &["1/s sliding"], OnExceed::Wait(Span::from_secs(3)));
        let rules = vec![waiting("all", &[], &["1/4s sliding"]), chat];
        let track = Track::new(policies(rules, &[("send", &["all", "chat"]), ("direct", &["chat"])])).await;
        track.acquire("send", &[("chat", "b")]).await.unwrap();
        let mut last = Box::pin(track.acquire("send", &A));
        begin(&mut last).await;
        sleep(Duration::from_millis(3_500)).await;
        // It has waited four seconds for the shared rule, and would have to wait half a second for the chat.
        track.acquire("direct", &A).await.unwrap();
        let wait = Span::from_millis(500);
        let late = Unpaced::TooLate { waited: Span::from_secs(4), wait, bound: Bound::Rule("chat".into()) };
        assert_eq!(last.await, Err(late));
    });
}

#[test]
fn a_denial_by_a_rejecting_rule_comes_at_once_despite_the_queue() {
    in_virtual_time(async {
        let rules = vec![
            waiting("chat", &["chat"], &["1/s sliding"]),
            rule::rejecting("user", &["user"], &["1/hour"]),
        ];
        let track = Track::new(policies(rules, &[("send", &["chat", "user"])])).await;
        track.acquire("send", &[("chat", "a"), ("user", "u")]).await.unwrap();
        let denied = track.acquire("send", &[("chat", "b"), ("user", "u")]).await.unwrap_err();
        let Unpaced::Denied { refusal, .. } = denied else { panic!("{denied:?}") };
        assert_eq!((refusal.rule.as_deref(), refusal.key.as_deref()), (Some("user"), Some("u")));
        assert_eq!(refusal.retry, When::After(Span::from_secs(3_600)));
        let denied = track.pacer.acquire_with(ask("send", &[("chat", "a"), ("user", "v")]), |_, decision| {
            decision.denied_by().map(|line| line.rule.name.to_string())
        });
        assert_eq!(denied.await.unwrap().seen, None, "another user waits for the chat");
    });
}

#[test]
fn no_more_wait_than_may() {
    in_virtual_time(async {
        let options = PacerOptions { max_waiting: 3, max_waiting_per_key: 2, ..PacerOptions::default() };
        let track = Track::bounded(by_chat("1/s sliding"), options).await;
        let b = [("chat", "b")];
        track.acquire("send", &A).await.unwrap();
        track.acquire("send", &b).await.unwrap();
        let mut waits: Vec<_> = (0..2).map(|_| Box::pin(track.acquire("send", &A))).collect();
        for wait in &mut waits {
            begin(wait).await;
        }
        assert_eq!(track.acquire("send", &A).await, Err(Unpaced::Full { waiting: 2 }));
        let mut third = Box::pin(track.acquire("send", &b));
        begin(&mut third).await;
        assert_eq!(track.acquire("send", &b).await, Err(Unpaced::Full { waiting: 3 }));
        assert_eq!(track.pacer.waiting(), 3);
        drop(third);
        assert_eq!(track.acquire("send", &b).await.unwrap().waited, Span::from_secs(1));
    });
}

#[test]
fn a_costly_attempt_is_not_overtaken_for_ever_by_cheap_ones() {
    in_virtual_time(async {
        let rules = vec![waiting("all", &[], &["10/s burst 10"]), waiting("chat", &["chat"], &["100/s"])];
        let track = Track::new(policies(rules, &[("send", &["all", "chat"])])).await;
        let attempt = |fields, cost| Ask::from(Attempt { policy: "send", fields, cost, id: None });
        track.pacer.acquire(attempt(&A, 10)).await.unwrap();
        let pacer = track.pacer.clone();
        let costly = tokio::spawn(async move { pacer.acquire(attempt(&A, 10)).await.unwrap() });
        tokio::task::yield_now().await;
        let trace: Trace<(u32, u64)> = Trace::default();
        for n in 0..5 {
            track.send("send", vec![("chat", format!("{n}"))], &trace, n);
        }
        assert_eq!(costly.await.unwrap().waited, Span::from_secs(1));
        assert!(trace.lock().is_empty(), "a caller that came later goes later");
    });
}

#[test]
fn a_mistake_is_told_at_once() {
    in_virtual_time(async {
        let track = Track::new(by_chat("1/s sliding")).await;
        assert!(matches!(track.acquire("sned", &A).await, Err(Unpaced::Fault(_))));
        assert!(matches!(track.acquire("send", &[("cat", "a")]).await, Err(Unpaced::Fault(_))));
    });
}

#[test]
fn waiting_outside_a_runtime_fails() {
    let track = in_virtual_time(Track::new(by_chat("1/s sliding")));
    assert!(futures_lite::future::block_on(track.acquire("send", &A)).is_ok());
    let unpaced = futures_lite::future::block_on(track.acquire("send", &A));
    assert_eq!(unpaced, Err(Unpaced::Ended));
}

#[test]
fn no_caller_waits_while_limits_are_switched_off() {
    in_virtual_time(async {
        let track = Track::new(by_chat("1/s sliding")).await;
        track.acquire("send", &A).await.unwrap();
        let trace: Trace<((), u64)> = Trace::default();
        let waits = track.send("send", vec![("chat", "a".into())], &trace, ());
        tokio::task::yield_now().await;
        let off = Policies::new(false, Vec::new(), Vec::new());
        track.engine.reload(off);
        assert_eq!(track.acquire("send", &A).await.unwrap().waited, Span::ZERO);
        waits.await.unwrap();
        assert!(trace.lock()[0].1 <= 250, "the waiting caller passes: {:?}", trace.lock());
    });
}

#[test]
fn changed_limits_apply_to_callers_that_wait_already() {
    in_virtual_time(async {
        let track = Track::new(by_chat("1/9s sliding")).await;
        track.acquire("send", &A).await.unwrap();
        let trace: Trace<((), u64)> = Trace::default();
        let waits = track.send("send", vec![("chat", "a".into())], &trace, ());
        tokio::task::yield_now().await;
        advance(Duration::from_millis(100)).await;
        track.engine.reload(by_chat("2/9s sliding"));
        waits.await.unwrap();
        assert!(trace.lock()[0].1 <= 400, "{:?}", trace.lock());
    });
}

#[test]
fn outcomes_of_waiting_callers_are_counted_by_policy() {
    in_virtual_time(async {
        let options = PacerOptions { max_waiting_per_key: 2, ..PacerOptions::default() };
        let track = Track::bounded(by_chat("1/s sliding"), options).await;
        track.acquire("send", &A).await.unwrap();
        let (mut first, mut second) =
            (Box::pin(track.acquire("send", &A)), Box::pin(track.acquire("send", &A)));
        begin(&mut first).await;
        begin(&mut second).await;
        assert!(matches!(track.acquire("send", &A).await, Err(Unpaced::Full { .. })));
        drop(second);
        let brief = Ask { max_wait: Some(Span::ZERO), ..ask("send", &A) };
        assert!(matches!(track.pacer.acquire(brief).await, Err(Unpaced::TooLate { .. })));
        let text = metrics(&track);
        assert!(text.contains("tollgate_paced_waiting{policy=\"send\"} 1\n"), "{text}");
        first.await.unwrap();
        let text = metrics(&track);
        let expected = [
            "tollgate_paced_waiting{policy=\"send\"} 0\n",
            "tollgate_paced_wait_seconds_count{policy=\"send\"} 2\n",
            "tollgate_paced_wait_seconds_sum{policy=\"send\"} 1.0\n",
            "tollgate_paced_total{policy=\"send\",outcome=\"passed\"} 2\n",
            "tollgate_paced_total{policy=\"send\",outcome=\"late\"} 1\n",
            "tollgate_paced_total{policy=\"send\",outcome=\"full\"} 1\n",
            "tollgate_paced_total{policy=\"send\",outcome=\"cancelled\"} 1\n",
            "tollgate_paced_total{policy=\"send\",outcome=\"denied\"} 0\n",
        ];
        for line in expected {
            assert!(text.contains(line), "{line} in {text}");
        }
    });
}

fn metrics(track: &Track) -> String {
    let mut registry = prometheus_client::registry::Registry::default();
    registry.register_collector(Box::new(track.pacer.meters().clone()));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("text can be written");
    text
}

#[test]
fn asking_again_and_again_is_noted_once() {
    in_virtual_time(async {
        let track = Track::new(by_chat("1/5s sliding")).await;
        track.acquire("send", &A).await.unwrap();
        let trace: Trace<((), u64)> = Trace::default();
        let waits = track.send("send", vec![("chat", "a".into())], &trace, ());
        for _ in 0..3 {
            // With other policies, it is decided once more.
            sleep(Duration::from_millis(500)).await;
            track.engine.reload(by_chat("1/5s sliding"));
        }
        waits.await.unwrap();
        let counts = track.engine.observer.meters.counts();
        let count = |wanted: &str| {
            let of = counts.iter().filter(|([_, _, outcome], _)| **outcome == *wanted);
            of.map(|(_, count)| count).sum::<u64>()
        };
        assert_eq!((count("allow"), count("wait")), (2, 1));
    });
}
