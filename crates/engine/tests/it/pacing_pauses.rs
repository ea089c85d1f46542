//! Pauses that an upstream asked for: on this node at once and on every node within a second.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::support::pacing::{SlowStore, Track, ask, begin, in_virtual_time, waiting};
use crate::support::{policies, rule};
use tokio::time::{Instant, sleep, sleep_until};
use tollgate_core::versioned_map::{Edit, Namespace};
use tollgate_core::{Attempt, Mistake, OnExceed, Policies, Receipt, ReceiptLine, Records, Span, Ticket};
use tollgate_engine::pacer::{Bound, PauseFault, Paused, Permit, Scope, Unpaced};
use tollgate_engine::receipt::{Kind, Seal};
use tollgate_engine::{Ask, PacerOptions};

fn telegram() -> Policies {
    let rules = vec![waiting("all", &[], &["30/s sliding"]), waiting("chat", &["chat"], &["1/s sliding"])];
    policies(rules, &[("telegram", &["all", "chat"]), ("other", &["chat"])])
}

const A: [(&str, &str); 1] = [("chat", "a")];
const B: [(&str, &str); 1] = [("chat", "b")];
const SEVEN: Span = Span::from_secs(7);

#[test]
fn a_paused_key_stands_still_and_no_other_does() {
    in_virtual_time(async {
        let track = Track::new(telegram()).await;
        let mut before = Box::pin(track.acquire("telegram", &A));
        track.pacer.pause(Scope::Key { rule: "chat", key: "a" }, SEVEN).await.unwrap();
        begin(&mut before).await;
        assert_eq!(track.acquire("telegram", &B).await.unwrap().waited, Span::ZERO);
        let mut other = Box::pin(track.acquire("other", &A));
        begin(&mut other).await;
        assert_eq!(before.await.unwrap().waited, SEVEN, "whatever policy counts there waits");
        assert_eq!(other.await.unwrap().waited, Span::from_secs(8));
        assert_eq!(track.acquire("telegram", &B).await.unwrap().waited, Span::ZERO);
    });
}

#[test]
fn a_paused_policy_stands_still_as_a_whole() {
    in_virtual_time(async {
        let track = Track::new(telegram()).await;
        track.pacer.pause(Scope::Policy("telegram"), SEVEN).await.unwrap();
        let mut waits: Vec<_> =
            [A, B].iter().map(|fields| Box::pin(track.pacer.acquire(ask("telegram", fields)))).collect();
        for wait in &mut waits {
            begin(wait).await;
        }
        assert_eq!(track.acquire("other", &A).await.unwrap().waited, Span::ZERO);
        for wait in waits {
            assert_eq!(wait.await.unwrap().waited, SEVEN);
        }
    });
}

#[test]
fn a_pause_also_stops_callers_that_wait_already() {
    in_virtual_time(async {
        let track = Track::new(telegram()).await;
        track.acquire("telegram", &A).await.unwrap();
        let mut wait = Box::pin(track.acquire("telegram", &A));
        begin(&mut wait).await;
        sleep(Duration::from_millis(500)).await;
        assert_eq!(track.pacer.pause_like("telegram", &A, SEVEN).await, Ok(1));
        assert_eq!(wait.await.unwrap().waited, Span::from_millis(7_500));
    });
}

#[test]
fn a_caller_that_does_not_wait_can_see_pauses() {
    in_virtual_time(async {
        let track = Track::new(telegram()).await;
        let attempt = |fields| Attempt { policy: "telegram", fields, cost: 1, id: None };
        let is_waiting = |fields| track.pacer.is_waiting(&track.engine.pin(), &attempt(fields));
        track.pacer.pause_like("telegram", &A, SEVEN).await.unwrap();
        assert!(is_waiting(&A) && !is_waiting(&B));
        sleep(Duration::from_secs(7)).await;
        assert!(!is_waiting(&A));
    });
}

#[test]
fn a_pause_longer_than_the_allowed_wait_is_refused_at_once() {
    in_virtual_time(async {
        let brief = OnExceed::Wait(Span::from_secs(5));
        let rules = vec![
            rule::with("chat", &["chat"], &["1/s sliding"], brief),
            rule::rejecting("user", &["user"], &["9/s"]),
        ];
        let track = Track::new(policies(rules, &[("send", &["chat", "user"])])).await;
        let late = |bound| Err(Unpaced::TooLate { waited: Span::ZERO, wait: SEVEN, bound });
        let chat = || Bound::Rule("chat".into());
        track.pacer.pause(Scope::Policy("send"), SEVEN).await.unwrap();
        assert_eq!(track.acquire("send", &A).await, late(chat()), "as long as any of its rules allows");
        track.pacer.resume(Scope::Policy("send")).await.unwrap();
        track.pacer.pause_like("send", &[("user", "u")], SEVEN).await.unwrap();
        let user = Bound::Rule("user".into());
        assert_eq!(track.acquire("send", &[("chat", "a"), ("user", "u")]).await, late(user));
        track.pacer.pause_like("send", &A, SEVEN).await.unwrap();
        assert_eq!(track.acquire("send", &A).await, late(chat()));
        let brief = Ask { max_wait: Some(Span::from_secs(1)), ..ask("send", &A) };
        assert_eq!(track.pacer.acquire(brief).await, late(Bound::Caller));
    });
}

#[test]
fn a_pause_is_lengthened_but_not_cut_short_and_ends_when_it_is_ended() {
    in_virtual_time(async {
        let track = Track::new(telegram()).await;
        let scope = Scope::Key { rule: "chat", key: "a" };
        track.pacer.pause(scope, Span::from_secs(2)).await.unwrap();
        track.pacer.pause(scope, SEVEN).await.unwrap();
        track.pacer.pause(scope, Span::from_secs(1)).await.unwrap();
        assert_eq!(track.acquire("telegram", &A).await.unwrap().waited, SEVEN);
        track.pacer.pause(scope, SEVEN).await.unwrap();
        let mut wait = Box::pin(track.acquire("telegram", &A));
        begin(&mut wait).await;
        sleep(Duration::from_secs(3)).await;
        track.pacer.resume(scope).await.unwrap();
        assert_eq!(wait.await.unwrap().waited, Span::from_secs(3));
    });
}

#[test]
fn an_unknown_policy_or_field_cannot_be_paused() {
    in_virtual_time(async {
        let track = Track::new(telegram()).await;
        let unknown = track.pacer.pause_like("telegarm", &[], SEVEN).await;
        assert!(matches!(unknown, Err(PauseFault::Mistake(Mistake::UnknownPolicy { .. }))));
        let unknown = track.pacer.pause_like("telegram", &[("cat", "a")], SEVEN).await;
        assert!(matches!(unknown, Err(PauseFault::Mistake(Mistake::UnknownField { .. }))));
        assert_eq!(track.acquire("telegram", &A).await.unwrap().waited, Span::ZERO);
    });
}

/// Two nodes, each tended four times a second.
async fn two_nodes(store: &Arc<SlowStore>) -> [Track; 2] {
    let node = || Track::shared(telegram(), store, PacerOptions::default());
    let nodes = [node().await, node().await];
    for node in &nodes {
        let engine = Arc::clone(&node.engine);
        tokio::spawn(async move {
            loop {
                engine.tend().await;
                sleep(Duration::from_millis(250)).await;
            }
        });
    }
    nodes
}

#[test]
fn every_node_stands_still_within_a_second_and_goes_on_at_the_same_moment() {
    in_virtual_time(async {
        let store = SlowStore::new(Duration::from_millis(1));
        let [here, there] = two_nodes(&store).await;
        sleep(Duration::from_millis(100)).await;
        let end = Instant::now() + Duration::from_secs(7);
        here.pacer.pause(Scope::Policy("telegram"), SEVEN).await.unwrap();
        let mut wait = Box::pin(here.acquire("telegram", &A));
        begin(&mut wait).await;
        sleep(Duration::from_secs(1)).await;
        let waits = there.acquire("telegram", &B);
        assert!(there.acquire("other", &[("chat", "c")]).await.unwrap().waited < Span::from_millis(10));
        let ended = async |wait: Pin<Box<dyn Future<Output = Result<Permit, Unpaced>> + '_>>| {
            assert!(wait.await.is_ok());
            Instant::now() - end
        };
        let (there, here) = tokio::join!(ended(Box::pin(waits)), ended(wait));
        let moment = Duration::from_millis(20);
        assert!(there < moment && here < moment, "{there:?} and {here:?} after the end");
    });
}

#[test]
fn a_pause_stops_callers_on_another_node_within_a_second() {
    in_virtual_time(async {
        let store = SlowStore::new(Duration::from_millis(1));
        let [here, there] = two_nodes(&store).await;
        there.acquire("telegram", &A).await.unwrap();
        let mut times = Vec::new();
        let end = Instant::now() + Duration::from_secs(20);
        for second in 0..4 {
            if second == 2 {
                here.pacer.pause(Scope::Policy("telegram"), Span::from_secs(20)).await.unwrap();
                sleep(Duration::from_secs(1)).await;
            }
            there.acquire("telegram", &A).await.unwrap();
            times.push(Instant::now());
        }
        assert!(times[1] < end && times[2] > end, "{times:?} beside {end:?}");
    });
}

#[test]
fn a_pause_that_is_ended_ends_on_every_node() {
    in_virtual_time(async {
        let store = SlowStore::new(Duration::from_millis(1));
        let [here, there] = two_nodes(&store).await;
        here.pacer.pause(Scope::Policy("telegram"), Span::from_secs(60)).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        let mut wait = Box::pin(there.acquire("telegram", &A));
        begin(&mut wait).await;
        here.pacer.resume(Scope::Policy("telegram")).await.unwrap();
        let resumed = Instant::now();
        wait.await.unwrap();
        assert!(resumed.elapsed() < Duration::from_secs(1), "{:?}", resumed.elapsed());
        assert!(here.acquire("telegram", &B).await.unwrap().waited < Span::from_millis(10));
    });
}

#[test]
fn a_node_that_starts_later_knows_pauses_and_their_ends() {
    in_virtual_time(async {
        let store = SlowStore::new(Duration::from_millis(1));
        let before = Track::shared(telegram(), &store, PacerOptions::default()).await;
        let end = Instant::now() + Duration::from_secs(7);
        before.pacer.pause_like("telegram", &A, SEVEN).await.unwrap();
        drop(before);
        sleep_until(end - Duration::from_secs(2)).await;
        let after = Track::shared(telegram(), &store, PacerOptions::default()).await;
        after.acquire("telegram", &A).await.unwrap();
        let late = Instant::now() - end;
        assert!(late < Duration::from_millis(20), "{late:?}");
    });
}

#[test]
fn records_of_pauses_that_are_over_do_not_pile_up() {
    in_virtual_time(async {
        let store = SlowStore::new(Duration::from_millis(1));
        let track = Track::shared(telegram(), &store, PacerOptions::default()).await;
        for n in 0..100 {
            let chat = n.to_string();
            let scope = Scope::Key { rule: "chat", key: &chat };
            track.pacer.pause(scope, Span::from_millis(100)).await.unwrap();
            sleep(Duration::from_millis(10)).await;
        }
        let pauses = store.recorded().await.len();
        assert!(pauses <= 12, "{pauses} records");
        for _ in 0..50 {
            track.pacer.pause(Scope::Policy("telegram"), SEVEN).await.unwrap();
            sleep(Duration::from_millis(10)).await;
        }
        track.pacer.pause(Scope::Policy("telegram"), Span::from_secs(1)).await.unwrap();
        assert_eq!(store.recorded().await.len(), 1);
    });
}

#[test]
fn pauses_of_a_policy_are_listed_and_can_be_ended_at_once() {
    in_virtual_time(async {
        let track = Track::new(telegram()).await;
        let pacer = &track.pacer;
        assert_eq!(pacer.paused("telegram"), Ok(vec![]));
        pacer.pause(Scope::Policy("telegram"), Span::from_secs(2)).await.unwrap();
        pacer.pause(Scope::Policy("telegram"), SEVEN).await.unwrap();
        pacer.pause_like("telegram", &A, SEVEN).await.unwrap();
        sleep(Duration::from_secs(3)).await;
        let left = Span::from_secs(4);
        let chat = Paused { place: Some(("chat".into(), "a".into())), left };
        let whole = Paused { place: None, left };
        assert_eq!(pacer.paused("telegram"), Ok(vec![whole, chat.clone()]));
        assert_eq!(pacer.paused("other"), Ok(vec![chat]), "the key is counted there too");
        assert!(matches!(pacer.paused("telegarm"), Err(Mistake::UnknownPolicy { .. })));
        let mut wait = Box::pin(track.acquire("telegram", &A));
        begin(&mut wait).await;
        assert_eq!(pacer.resume_policy("telegram").await, Ok(2));
        assert_eq!(wait.await.unwrap().waited, Span::ZERO);
        assert_eq!(pacer.paused("telegram"), Ok(vec![]));
        assert_eq!(pacer.resume_policy("telegram").await, Ok(0));
    });
}

#[test]
fn the_number_of_pauses_is_bounded_and_ended_ones_make_room() {
    in_virtual_time(async {
        let track = Track::new(telegram()).await;
        for n in 0..4_000 {
            let chat = n.to_string();
            track.pacer.pause(Scope::Key { rule: "chat", key: &chat }, SEVEN).await.unwrap();
        }
        let more = || track.pacer.pause_like("telegram", &A, SEVEN);
        assert_eq!(more().await, Err(PauseFault::TooMany { most: 4_000 }));
        assert_eq!(track.acquire("telegram", &A).await.unwrap().waited, Span::ZERO);
        sleep(Duration::from_secs(8)).await;
        assert_eq!(more().await, Ok(1));
    });
}

#[test]
fn a_pause_record_hides_a_secret_key_and_every_node_follows_it() {
    in_virtual_time(async {
        let secret = || {
            let chat = waiting("chat", &["chat"], &["1/s sliding"]).with_secret_keys();
            policies(vec![chat], &[("telegram", &["chat"])])
        };
        let store = SlowStore::new(Duration::from_millis(1));
        let here = Track::shared(secret(), &store, PacerOptions::default()).await;
        let there = Track::shared(secret(), &store, PacerOptions::default()).await;
        let chat = [("chat", "ada.lovelace@example.com")];
        assert_eq!(here.pacer.pause_like("telegram", &chat, SEVEN).await, Ok(1));
        let records = store.recorded().await;
        assert_eq!(records.len(), 1);
        let (name, value) = &records[0];
        let text = std::str::from_utf8(value).unwrap();
        let sealed = data_encoding::BASE64URL_NOPAD.decode(text.lines().last().unwrap().as_bytes()).unwrap();
        for bytes in [name.as_bytes(), value, &sealed] {
            assert!(!bytes.windows(8).any(|window| window == b"lovelace"), "{name}: {text}");
        }
        sleep(Duration::from_secs(1)).await;
        there.engine.tend().await;
        let waited = there.acquire("telegram", &chat).await.unwrap().waited;
        assert!(waited > Span::from_secs(5) && waited < SEVEN, "{waited}");
        assert_eq!(here.pacer.resume_policy("telegram").await, Ok(0), "it is over");
        assert_eq!(here.pacer.pause_like("telegram", &chat, SEVEN).await, Ok(1));
        assert_eq!(here.pacer.resume_policy("telegram").await, Ok(1));
        let left = store.recorded().await;
        assert!(left.iter().all(|(name, _)| name == &records[0].0) || left.is_empty(), "{left:?}");
    });
}

#[test]
fn a_record_of_another_version_or_secret_pauses_nothing_and_the_others_do() {
    in_virtual_time(async {
        let store = SlowStore::new(Duration::from_millis(1));
        let secret = Records::secret(&store.memory).await.unwrap();
        let until = Records::changes(&store.memory, Namespace::Pauses, None).await.unwrap().now + SEVEN;
        let line = ReceiptLine { rule: "chat".into(), key: "a".into(), cost: 0 };
        let pause = Receipt { ticket: Ticket(1), at: until, taken: vec![line] };
        let sealed = Seal::new(secret).seal(Kind::Pause, &pause);
        let version = |version: u8| {
            let mut bytes = data_encoding::BASE64URL_NOPAD.decode(sealed.as_bytes()).unwrap();
            bytes[0] = version;
            data_encoding::BASE64URL_NOPAD.encode(&bytes)
        };
        let until = until.as_micros();
        let records = [
            format!("{until}\nsealed\n{}", version(4)),
            format!("{until}\nsealed\n{}", version(17)),
            format!("{until}\nsealed\n{}", Seal::new([9; 32]).seal(Kind::Pause, &pause)),
            format!("{until}\nsealed\n{}", Seal::new(secret).seal(Kind::Lock, &pause)),
            format!("{until}\nchat\na"),
            format!("{until}\nkey\nchat\nb"),
        ];
        let edits =
            records.iter().enumerate().map(|(number, record)| Edit::put(number.to_string(), record.clone()));
        let edits: Vec<Edit> = edits.collect();
        Records::change(&store.memory, Namespace::Pauses, &edits).await.unwrap();
        let track = Track::shared(telegram(), &store, PacerOptions::default()).await;
        assert!(track.acquire("telegram", &A).await.unwrap().waited < Span::from_secs(1));
        assert!(track.acquire("telegram", &B).await.unwrap().waited > Span::from_secs(6));
    });
}
