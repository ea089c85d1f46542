//! Attempts that may wait, by the entry point of the doors.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::pacing::{SlowStore, Track, in_virtual_time, waiting};
use crate::support::{admissions, policies};
use tollgate_core::{Attempt, Author, Policies, Span, Stance, Verdict};
use tollgate_engine::admit::Wait;
use tollgate_engine::{Admissions, Engine, PacerOptions, Terms, Wish};

const ATTEMPT: Attempt<'_> = Attempt { policy: "send", fields: &[("chat", "a")], cost: 1, id: None };

/// Terms under which an attempt waits.
fn terms(wait: Wait) -> Terms<'static> {
    Terms { wait, ..Terms::default() }
}

/// One rule by chat, which lets attempts wait, in a policy of this name.
fn by_chat(policy: &str) -> Policies {
    policies(vec![waiting("chat", &["chat"], &["1/s sliding"])], &[(policy, &["chat"])])
}

/// What a door admits with over this pacer.
fn door(track: &Track) -> Admissions {
    Admissions { pacer: Some(track.pacer.clone()), ..admissions(&track.engine) }
}

/// An engine over counters in this process, and one over a store that takes some time.
async fn tracks() -> [Track; 2] {
    let store = SlowStore::new(Duration::from_millis(5));
    [Track::new(by_chat("send")).await, Track::shared(by_chat("send"), &store, PacerOptions::default()).await]
}

async fn block(engine: &Engine, target: &str) {
    let wish = Wish {
        target: engine.lists.target(target).unwrap(),
        stance: Stance::Block,
        lasts: None,
        reason: "spam".into(),
        show_reason: false,
        author: Author::Key("ops".into()),
    };
    engine.lists.put(vec![wish]).await.unwrap();
}

#[test]
fn an_attempt_that_may_wait_is_decided_by_the_pinned_policies() {
    in_virtual_time(async {
        for track in tracks().await {
            let door = door(&track);
            let pinned = door.pin();
            track.engine.reload(by_chat("other"));
            let admission = pinned
                .admit(&ATTEMPT, terms(Wait::AsRulesSay), |_, decision| Arc::clone(&decision.policy().name));
            assert_eq!(&*admission.await.unwrap().seen, "send");
        }
    });
}

#[test]
fn a_wait_is_recorded_once_and_costs_one_call_of_the_store_more_than_the_pass() {
    in_virtual_time(async {
        let store = SlowStore::new(Duration::from_millis(5));
        let track = Track::shared(by_chat("send"), &store, PacerOptions::default()).await;
        let door = door(&track);
        let mut waits = Vec::new();
        for _ in 0..2 {
            let admit = door.pin().admit(&ATTEMPT, terms(Wait::AsRulesSay), |_, decision| decision.allowed());
            let admission = admit.await.unwrap();
            assert!(admission.seen);
            waits.push(admission.waited.as_millis_ceil());
        }
        assert!(waits[0] == 0 && (1_000..=1_010).contains(&waits[1]), "{waits:?}");
        assert_eq!(store.takes.load(Ordering::Relaxed), 3);
        let entries = track.engine.observer.journal.latest(10);
        let waiting = entries.iter().filter(|entry| matches!(entry.verdict, Verdict::Wait(_)));
        assert_eq!(waiting.count(), 1);
        let counts = track.pacer.meters().counts();
        let passed = counts.iter().find(|(_, outcome, _)| *outcome == "passed").unwrap().2;
        assert_eq!(passed, 2, "those that did not wait count as well, wherever the counters are");
    });
}

#[test]
fn an_attempt_with_a_bound_of_its_own_queues_first_over_a_shared_store() {
    in_virtual_time(async {
        let store = SlowStore::new(Duration::from_millis(5));
        let options = PacerOptions { max_in_flight: 1, ..PacerOptions::default() };
        let track = Track::shared(by_chat("send"), &store, options).await;
        let door = door(&track);
        let attempts: Vec<_> = ["a", "b", "c"].into_iter().map(|chat| [("chat", chat)]).collect();
        let wait = Wait::AtMost { span: Span::from_secs(9), priority: 0 };
        let admitting: Vec<_> = attempts
            .iter()
            .map(|fields| door.pin().admit(&Attempt { fields, ..ATTEMPT }, terms(wait), |_, _| ()))
            .map(tokio::spawn)
            .collect();
        for admit in admitting {
            admit.await.unwrap().unwrap();
        }
        assert_eq!(store.most_in_flight.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_blocked_attempt_that_no_rule_counts_is_blocked_while_others_wait() {
    in_virtual_time(async {
        for track in tracks().await {
            let door = door(&track);
            let admit = |fields: &[(&str, &str)]| {
                let attempt = Attempt { fields, ..ATTEMPT };
                door.pin()
                    .admit(&attempt, terms(Wait::AsRulesSay), |_, decision| decision.blocked().is_some())
            };
            let blocked = [("ip", "192.0.2.1")];
            block(&track.engine, "192.0.2.1").await;
            assert!(!admit(&[("chat", "a")]).await.unwrap().seen);
            let waiting = tokio::spawn(admit(&[("chat", "a")]));
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert_eq!(track.pacer.waiting(), 1);
            assert!(admit(&blocked).await.unwrap().seen);
            waiting.await.unwrap().unwrap();
        }
    });
}
