//! Attempts that may wait, by the entry point of the doors.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use support::pacing::{SlowStore, Track, in_virtual_time, waiting};
use support::{admissions, policies};
use tollgate_core::{Attempt, Policies};
use tollgate_engine::admit::Wait;
use tollgate_engine::{Admissions, PacerOptions, Terms};

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
