//! What must be durable when: counts before the server gets a message, and a result before anything else happens to its item.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::keeping::forgetful::Forgetful;
use crate::keeping::script::{Act, Scripted, with};
use crate::keeping::stand::{Limited, Setup, Stand, account};
use crate::keeping::watched::Watched;
use crate::keeping::{envelope, open, submit};
use tollgate_core::Span;
use tollgate_relay::lanes::Cause;
use tollgate_relay::message::MessageId;
use tollgate_relay::queue::EventKind;

/// Slow to greet, so that a test can move the clock meanwhile.
const GREETING: Act = Act::Dribble("220 script.example\r\n", 20);

#[tokio::test(flavor = "multi_thread")]
async fn counts_that_are_taken_anew_for_a_new_connection_are_durable_too() {
    let full = "421 4.7.0 too many messages on this connection\r\n";
    let server = Scripted::start(with(&[("GREETING", GREETING), ("MAIL", Act::IfReused(full))])).await;
    let limited = Limited { domain: &["10/hour sliding"], ..Limited::default() };
    let setup = Setup::new(limited, vec![account("main", server.port, 0)]);
    let store = Arc::new(Watched::new(&setup.clock, |_| {}));
    let stand = Stand::start_with(setup.watched(&store).await).await;
    let counts = || (store.taken.load(Ordering::SeqCst), store.durable.load(Ordering::SeqCst));
    submit(&stand.queue, envelope(1, &["a@there.example"]), b"x\r\n").await.unwrap();
    stand.until("the first message", |stand| stand.show(1).kept.finished.is_some()).await;
    assert_eq!(counts(), (1, 1));
    submit(&stand.queue, envelope(2, &["a@there.example"]), b"x\r\n").await.unwrap();
    stand.until("the second connection", |_| *server.connections.lock() == 2).await;
    assert_eq!(counts(), (2, 2));
    // What was taken is too old by now.
    stand.advance(Span::from_secs(6));
    stand.until("the second message", |stand| stand.show(2).kept.finished.is_some()).await;
    assert_eq!(counts(), (3, 3), "the last take is durable, too");
    assert_eq!(stand.left_at_domain("there.example").await, 8, "each was charged once");
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_is_used_up_while_a_new_connection_is_made_defers_and_fails_nothing() {
    let full = "421 4.7.0 too many messages on this connection\r\n";
    let greeting = Act::Dribble("220 script.example\r\n", 100);
    let server = Scripted::start(with(&[("GREETING", greeting), ("MAIL", Act::IfReused(full))])).await;
    let limited = Limited { account: &["2/hour sliding"], ..Limited::default() };
    let setup = Setup::new(limited, vec![account("main", server.port, 0)]);
    let disk = Forgetful::new();
    let mut stand = Stand::start_with(Setup { disk: Arc::new(disk.clone()), ..setup }).await;
    submit(&stand.queue, envelope(1, &["a@there.example"]), b"x\r\n").await.unwrap();
    stand.until("the first message", |stand| stand.show(1).kept.finished.is_some()).await;
    submit(&stand.queue, envelope(2, &["a@there.example"]), b"x\r\n").await.unwrap();
    stand.until("the second connection", |_| *server.connections.lock() == 2).await;
    let lowered = vec!["1/hour sliding".parse().unwrap()];
    stand.sender.limits().set_account("acme", "main", lowered).await.unwrap();
    // What was taken is too old by now.
    stand.advance(Span::from_secs(6));
    stand.until("the deferral", |stand| stand.show(2).events.len() == 2).await;
    stand.settle().await;
    let shown = stand.show(2);
    let (item, last) = (&shown.items[0].1, shown.events.last().unwrap());
    assert_eq!((last.kind, &*last.text), (EventKind::Deferred, "account acme,main"));
    assert_eq!((item.attempts, item.failures, item.spent), (0, 0, Span::ZERO), "a deferral is no attempt");
    let lane = stand.sender.lanes().remove(0);
    assert_eq!(lane.sleep.unwrap().cause, Cause::Limit);
    assert_eq!(server.texts.lock().len(), 1);
    // After a crash nothing speaks for a second copy.
    let clock = Arc::clone(&stand.clock);
    stand.cut_off().await;
    drop(stand);
    let (_queue, opened) = open(Arc::new(disk.crash(&mut || true)), &clock);
    assert_eq!((opened.waiting.len(), opened.possible_duplicates.len()), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_the_disk_does_not_take_is_recorded_before_the_item_goes_on() {
    // The server takes its time, so that the disk can fail meanwhile.
    let server = Scripted::start(with(&[(".", Act::Dribble("250 2.0.0 ok\r\n", 30))])).await;
    let disk = Forgetful::new();
    let setup = Setup::new(Limited::default(), vec![account("main", server.port, 0)]);
    let stand = Stand::start_with(Setup { disk: Arc::new(disk.clone()), ..setup }).await;
    submit(&stand.queue, envelope(1, &["a@there.example"]), b"x\r\n").await.unwrap();
    stand.until("the message", |_| server.texts.lock().len() == 1).await;
    disk.fail_after(1);
    stand.until("the failure", |stand| stand.queue.show(MessageId(1)).is_err()).await;
    assert_eq!(stand.sender.lanes()[0].in_flight, 1, "nothing else happens to the item");
    disk.mend();
    let finished = |stand: &Stand| {
        stand.queue.show(MessageId(1)).ok().flatten().is_some_and(|shown| shown.kept.finished.is_some())
    };
    stand.until("the result", finished).await;
    let kinds: Vec<EventKind> = stand.show(1).events.iter().map(|event| event.kind).collect();
    assert_eq!((kinds, server.texts.lock().len()), (vec![EventKind::Accepted, EventKind::Sent], 1));
    stand.stop().await;
}
