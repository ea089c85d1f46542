//! The contract of the queue: what it keeps, what it refuses, and what it shows.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::sync::Arc;

use crate::keeping::forgetful::Forgetful;
use crate::keeping::{START, clock, envelope, open, open_with, options, read_text, submit, text_of};
use tollgate_core::{Span, Timestamp};
use tollgate_relay::message::{Accepted, Idempotency, Intake, IntakeError, MessageId};
use tollgate_relay::queue::{
    AttemptResult, Event, EventKind, Final, ItemKey, OpenAttempt, Queue, QueueOptions, RecipientState,
};

const SMALL: usize = 400;
const LARGE: usize = 300_000;

fn key(message: u128, number: u32) -> ItemKey {
    ItemKey { message: MessageId(message), number }
}

fn last(status: &str) -> Final {
    let (status, reply) = (status.to_owned(), format!("{status} said the server"));
    Final { at: START, status, reply, remote: Some("mx.there.example".to_owned()), reports: false }
}

fn result(settled: Vec<(u32, RecipientState)>, kind: EventKind) -> AttemptResult {
    AttemptResult {
        settled,
        due: START + Span::from_secs(120),
        spent: Span::from_secs(120),
        counts: true,
        uncertain: false,
        at: START,
        events: vec![Event { text: "a reply".to_owned(), ..Event::new(START, kind) }],
    }
}

async fn finish(queue: &Queue, key: ItemKey, settled: Vec<(u32, RecipientState)>, kind: EventKind) -> bool {
    queue.finish_attempt(key, result(settled, kind)).await.unwrap().is_some()
}

fn kinds(queue: &Queue, message: u128) -> Vec<EventKind> {
    let shown = queue.show(MessageId(message)).unwrap().unwrap();
    shown.events.iter().map(|event| event.kind).collect()
}

#[tokio::test]
async fn a_message_is_split_by_domain_and_survives_a_restart() {
    let (disk, clock) = (Forgetful::new(), clock());
    let (queue, mut opened) = open(Arc::new(disk.clone()), &clock);
    let recipients = ["a@one.example", "b@two.example", "c@one.example"];
    for (id, size) in [(1, SMALL), (2, LARGE)] {
        let accepted = submit(&queue, envelope(id, &recipients), &text_of(id, size)).await;
        assert_eq!(accepted, Ok(Accepted::Now(MessageId(id))));
    }
    let first = opened.arrived.recv().await.unwrap();
    assert_eq!((first.key, &*first.domain, first.recipients), (key(1, 0), "one.example", 2));
    drop(queue);
    let (queue, opened) = open(Arc::new(disk.crash(&mut || false)), &clock);
    let waiting: Vec<_> = opened.waiting.iter().map(|item| (item.key, &*item.domain)).collect();
    let expected = [
        (key(1, 0), "one.example"),
        (key(1, 1), "two.example"),
        (key(2, 0), "one.example"),
        (key(2, 1), "two.example"),
    ];
    assert_eq!(waiting, expected);
    assert_eq!((queue.len(), opened.damaged.len()), (2, 0));
    assert_eq!(read_text(&queue, 1), text_of(1, SMALL));
    assert_eq!(read_text(&queue, 2), text_of(2, LARGE));
}

#[tokio::test]
async fn an_abandoned_or_refused_text_leaves_nothing() {
    let (disk, clock) = (Forgetful::new(), clock());
    let (queue, _opened) = open(Arc::new(disk.clone()), &clock);
    let mut incoming = queue.begin(None).await.unwrap();
    incoming.write(&text_of(1, LARGE)).await.unwrap();
    assert_eq!(disk.drafts(), 1, "a large text is written as it comes");
    drop(incoming);
    assert_eq!(disk.drafts(), 0);
    let mut again = envelope(1, &["a@one.example"]);
    again.idempotency =
        Some(Idempotency { scope: "k".into(), key: "n".into(), digest: [1; 32], repeated: false });
    submit(&queue, again.clone(), &text_of(1, LARGE)).await.unwrap();
    again.id = MessageId(2);
    let accepted = submit(&queue, again, &text_of(1, LARGE)).await;
    assert_eq!(accepted, Ok(Accepted::Before(MessageId(1))));
    assert_eq!(disk.kept().len(), 1, "the second file is gone");
}

#[tokio::test]
async fn an_idempotency_key_works_once_for_a_day() {
    let (disk, clock) = (Forgetful::new(), clock());
    let (queue, _opened) = open(Arc::new(disk.clone()), &clock);
    let named = |id: u128, scope: &str, digest: u8, at: Timestamp| {
        let mut envelope = envelope(id, &["a@one.example"]);
        let (scope, key) = (scope.to_owned(), "order-1".to_owned());
        envelope.idempotency = Some(Idempotency { scope, key, digest: [digest; 32], repeated: false });
        envelope.accepted = at;
        envelope
    };
    let now = |id| Ok(Accepted::Now(MessageId(id)));
    assert_eq!(submit(&queue, named(1, "ops", 7, START), b"x\r\n").await, now(1));
    let before = Ok(Accepted::Before(MessageId(1)));
    assert_eq!(submit(&queue, named(2, "ops", 7, START), b"x\r\n").await, before);
    assert_eq!(submit(&queue, named(3, "ops", 8, START), b"y\r\n").await, Err(IntakeError::Conflict));
    assert_eq!(submit(&queue, named(4, "dev", 8, START), b"y\r\n").await, now(4));
    drop(queue);
    let (queue, _opened) = open(Arc::new(disk.crash(&mut || false)), &clock);
    assert_eq!(submit(&queue, named(5, "ops", 7, START), b"x\r\n").await, before);
    let tomorrow = START + Span::from_secs(86_400);
    clock.set(tomorrow);
    assert_eq!(submit(&queue, named(6, "ops", 8, tomorrow), b"y\r\n").await, now(6));
}

#[tokio::test]
async fn no_recipient_is_settled_because_another_one_was() {
    let (disk, clock) = (Forgetful::new(), clock());
    let (queue, _opened) = open(Arc::new(disk.clone()), &clock);
    let recipients = ["a@one.example", "b@two.example", "c@one.example"];
    submit(&queue, envelope(1, &recipients), &text_of(1, SMALL)).await.unwrap();
    let sent = vec![(0, RecipientState::Sent(last("2.0.0")))];
    assert!(finish(&queue, key(1, 0), sent, EventKind::Failed).await, "c still waits");
    let (kept, item) = queue.item(key(1, 0)).unwrap().unwrap();
    assert_eq!((item.waiting(), item.attempts), (vec![2], 1));
    assert_eq!((item.due, item.spent), (START + Span::from_secs(120), Span::from_secs(120)));
    assert_eq!(kept.open_items, 2);
    let again = vec![(0, RecipientState::Failed(last("5.0.0"))), (2, RecipientState::Sent(last("2.0.0")))];
    assert!(!finish(&queue, key(1, 0), again, EventKind::Sent).await);
    let (_, item) = queue.item(key(1, 0)).unwrap().unwrap();
    assert_eq!(item.recipients[0].state, RecipientState::Sent(last("2.0.0")), "what is settled stays");
    assert_eq!(queue.len(), 1);
    assert!(
        !finish(&queue, key(1, 1), vec![(1, RecipientState::Sent(last("2.0.0")))], EventKind::Sent).await
    );
    assert_eq!(queue.len(), 0);
    let shown = queue.show(MessageId(1)).unwrap().unwrap();
    assert_eq!(shown.kept.finished, Some(START));
    assert!(queue.text(&shown.kept).is_err(), "the text of a finished message is removed");
    let expected = [EventKind::Accepted, EventKind::Failed, EventKind::Sent, EventKind::Sent];
    assert_eq!(kinds(&queue, 1), expected);
}

#[tokio::test]
async fn failures_of_all_items_are_reported_once() {
    let (disk, clock) = (Forgetful::new(), clock());
    let (queue, mut opened) = open(Arc::new(disk.clone()), &clock);
    let recipients = ["a@one.example", "b@two.example", "c@three.example"];
    submit(&queue, envelope(1, &recipients), &text_of(1, LARGE)).await.unwrap();
    finish(&queue, key(1, 0), vec![(0, RecipientState::Failed(last("5.1.1")))], EventKind::Bounced).await;
    finish(&queue, key(1, 1), vec![(1, RecipientState::Sent(last("2.0.0")))], EventKind::Sent).await;
    assert_eq!(queue.len(), 1, "no report while an item waits");
    finish(&queue, key(1, 2), vec![(2, RecipientState::Failed(last("5.7.1")))], EventKind::Bounced).await;
    assert_eq!(queue.len(), 1, "the report waits");
    assert_eq!(disk.kept(), Vec::<String>::new(), "the file of the original is removed");
    for _ in 0..3 {
        opened.arrived.recv().await.unwrap();
    }
    let report = opened.arrived.recv().await.unwrap();
    assert_eq!((&*report.domain, &*report.tenant), ("here.example", "acme"));
    let text = String::from_utf8(read_text(&queue, report.key.message.0)).unwrap();
    assert!(text.contains("Final-Recipient: rfc822; a@one.example\r\nAction: failed\r\nStatus: 5.1.1"));
    assert!(text.contains("Final-Recipient: rfc822; c@three.example"));
    assert!(!text.contains("b@two.example"));
    assert!(text.contains("\r\n\r\nSubject: 1\r\n"), "the headers come back");
    // The report itself is refused: its sender is null, so that no report follows.
    let failed = vec![(0, RecipientState::Failed(last("5.1.1")))];
    assert!(!finish(&queue, report.key, failed, EventKind::Bounced).await);
    assert_eq!(queue.len(), 0);
}

#[tokio::test]
async fn an_attempt_that_a_crash_left_open_is_marked() {
    let (disk, clock) = (Forgetful::new(), clock());
    let (queue, _opened) = open(Arc::new(disk.clone()), &clock);
    for id in [1, 2] {
        submit(&queue, envelope(id, &["a@one.example"]), &text_of(id, SMALL)).await.unwrap();
        let attempt = OpenAttempt { at: START, account: Some("main".into()), recipients: vec![0] };
        queue.begin_attempt(key(id, 0), attempt).await.unwrap();
    }
    finish(&queue, key(1, 0), vec![], EventKind::Failed).await;
    drop(queue);
    clock.advance(Span::from_secs(10));
    let (queue, opened) = open(Arc::new(disk.crash(&mut || false)), &clock);
    assert_eq!(opened.possible_duplicates, [key(2, 0)]);
    let (_, item) = queue.item(key(2, 0)).unwrap().unwrap();
    assert!(item.possible_duplicate);
    assert_eq!((item.attempts, item.due), (1, START), "it keeps its place in its lane");
    assert_eq!(kinds(&queue, 2), [EventKind::Accepted, EventKind::Unknown]);
    let (_, item) = queue.item(key(1, 0)).unwrap().unwrap();
    assert!(!item.possible_duplicate);
    drop(queue);
    let (_queue, opened) = open(Arc::new(disk.crash(&mut || false)), &clock);
    assert_eq!(opened.possible_duplicates.len(), 1, "the first disk is as it was");
}

#[tokio::test]
async fn a_full_queue_refuses_and_recovers() {
    let (disk, clock) = (Forgetful::new(), clock());
    let few = QueueOptions { max_messages: 2, min_free: 10_000, ..options() };
    let (queue, _opened) = open_with(Arc::new(disk.clone()), &clock, few);
    let try_one = async |id| submit(&queue, envelope(id, &["a@one.example"]), &text_of(id, SMALL)).await;
    assert!(try_one(1).await.is_ok());
    disk.set_free(100);
    // What the database can use again counts as free.
    assert!(try_one(2).await.is_ok());
    assert_eq!(try_one(3).await, Err(IntakeError::Full), "two messages are the most");
    finish(&queue, key(1, 0), vec![(0, RecipientState::Sent(last("2.0.0")))], EventKind::Sent).await;
    let huge = queue.begin(Some(1 << 40)).await;
    assert!(matches!(huge, Err(IntakeError::Full)), "there is no room for a terabyte");
    assert!(try_one(4).await.is_ok());
}

#[tokio::test]
async fn a_large_text_needs_room_outside_the_database() {
    let (disk, clock) = (Forgetful::new(), clock());
    let few = QueueOptions { min_free: 10_000, ..options() };
    let (queue, _opened) = open_with(Arc::new(disk.clone()), &clock, few);
    submit(&queue, envelope(1, &["a@one.example"]), b"x\r\n").await.unwrap();
    disk.set_free(100);
    submit(&queue, envelope(2, &["a@one.example"]), b"x\r\n").await.expect("it uses a page again");
    let (announced, unannounced) = (queue.begin(Some(100_000)).await, queue.begin(None).await);
    assert!(matches!(announced, Err(IntakeError::Full)));
    // A client that does not say how long its text is gets no further than the first piece of a file.
    let mut text = unannounced.expect("it may be small");
    let written = text.write(&text_of(3, 100_000)).await;
    assert_eq!(written, Err(IntakeError::Full));
    disk.set_free(200_000);
    submit(&queue, envelope(4, &["a@one.example"]), &text_of(4, 100_000)).await.unwrap();
}

#[tokio::test]
async fn a_message_to_many_domains_takes_the_room_of_many() {
    let (disk, clock) = (Forgetful::new(), clock());
    let few = || QueueOptions { max_messages: 3, ..options() };
    let (queue, _opened) = open_with(Arc::new(disk.clone()), &clock, few());
    let to: Vec<String> = (0..12).map(|number| format!("a@d{number}.example")).collect();
    let to: Vec<&str> = to.iter().map(|address| &**address).collect();
    submit(&queue, envelope(1, &to), b"x\r\n").await.unwrap();
    let one = async |queue: &Queue, id| submit(queue, envelope(id, &["a@one.example"]), b"x\r\n").await;
    assert_eq!(one(&queue, 2).await, Err(IntakeError::Full), "twelve items are the most");
    drop(queue);
    let (queue, _opened) = open_with(Arc::new(disk.clone()), &clock, few());
    assert_eq!(one(&queue, 2).await, Err(IntakeError::Full), "also after a restart");
    finish(&queue, key(1, 0), vec![(0, RecipientState::Sent(last("2.0.0")))], EventKind::Sent).await;
    one(&queue, 2).await.unwrap();
    assert_eq!(one(&queue, 3).await, Err(IntakeError::Full));
    queue.cancel(MessageId(1)).await.unwrap();
    one(&queue, 3).await.unwrap();
    one(&queue, 4).await.unwrap();
    assert_eq!(one(&queue, 5).await, Err(IntakeError::Full), "three messages are the most");
}

#[tokio::test]
async fn cancelling_and_retrying_touch_only_what_waits() {
    let (disk, clock) = (Forgetful::new(), clock());
    let (queue, _opened) = open(Arc::new(disk.clone()), &clock);
    submit(&queue, envelope(1, &["a@one.example", "b@two.example"]), b"x\r\n").await.unwrap();
    finish(&queue, key(1, 0), vec![(0, RecipientState::Sent(last("2.0.0")))], EventKind::Sent).await;
    clock.advance(Span::from_secs(5));
    let due = queue.retry(MessageId(1)).await.unwrap();
    assert_eq!(due.len(), 1);
    assert_eq!((due[0].key, due[0].due), (key(1, 1), START), "it was due, and keeps its place");
    assert!(queue.cancel(MessageId(1)).await.unwrap());
    assert!(!queue.cancel(MessageId(1)).await.unwrap(), "it is finished");
    assert!(queue.is_empty());
    assert!(
        !finish(&queue, key(1, 1), vec![(1, RecipientState::Sent(last("2.0.0")))], EventKind::Sent).await
    );
    let (_, item) = queue.item(key(1, 1)).unwrap().unwrap();
    // It was on its way when it was cancelled, and the next hop took it: that is known.
    assert!(matches!(item.recipients[0].state, RecipientState::Sent(_)));
}

#[tokio::test]
async fn history_and_timelines_are_bounded() {
    let (disk, clock) = (Forgetful::new(), clock());
    let few = QueueOptions { history_messages: 3, history: Span::from_secs(100), ..options() };
    let (queue, _opened) = open_with(Arc::new(disk.clone()), &clock, few);
    for id in 1..=5 {
        submit(&queue, envelope(id, &["a@one.example"]), b"x\r\n").await.unwrap();
        finish(&queue, key(id, 0), vec![(0, RecipientState::Sent(last("2.0.0")))], EventKind::Sent).await;
        clock.advance(Span::from_secs(1));
    }
    let listed = |queue: &Queue| -> Vec<u128> {
        queue.list(None, 100).unwrap().iter().map(|shown| shown.kept.envelope.id.0).collect()
    };
    assert_eq!(listed(&queue).len(), 3, "{:?}", listed(&queue));
    assert_eq!(queue.list(Some(MessageId(4)), 1).unwrap()[0].kept.envelope.id, MessageId(5));
    submit(&queue, envelope(9, &["a@one.example"]), b"x\r\n").await.unwrap();
    for _ in 0..200 {
        let event = Event { text: "é".repeat(5_000), ..Event::new(START, EventKind::Deferred) };
        queue.tell(MessageId(9), event).await.unwrap();
    }
    let events = queue.show(MessageId(9)).unwrap().unwrap().events;
    assert_eq!((events.len(), events[0].kind), (65, EventKind::Accepted), "64, and one for its recipient");
    assert!(events.iter().all(|event| event.text.len() <= 1_000));
    clock.advance(Span::from_secs(1_000));
    queue.tell(MessageId(9), Event::new(START, EventKind::Deferred)).await.unwrap();
    assert_eq!(listed(&queue), [9], "old history is forgotten, what waits is not");
}

#[tokio::test]
async fn success_is_reported_if_the_sender_asked_and_the_next_hop_does_not() {
    let (queue, mut opened) = open(Arc::new(Forgetful::new()), &clock());
    let mut asking = envelope(1, &["a@one.example", "b@two.example", "c@three.example"]);
    for recipient in &mut asking.recipients[..2] {
        recipient.notify.success = true;
    }
    submit(&queue, asking, &text_of(1, SMALL)).await.unwrap();
    let promised = Final { reports: true, ..last("2.0.0") };
    for (number, last) in [(0, last("2.0.0")), (1, promised), (2, last("2.0.0"))] {
        let settled = vec![(number, RecipientState::Sent(last))];
        finish(&queue, key(1, number), settled, EventKind::Sent).await;
        opened.arrived.recv().await.unwrap();
    }
    let report = opened.arrived.recv().await.unwrap();
    let text = String::from_utf8(read_text(&queue, report.key.message.0)).unwrap();
    assert!(
        text.contains("Final-Recipient: rfc822; a@one.example\r\nAction: relayed\r\nStatus: 2.0.0"),
        "{text}"
    );
    assert!(!text.contains("b@two.example"), "its server reports itself");
    assert!(!text.contains("c@three.example"), "nothing was asked about it");
    assert_eq!(queue.len(), 1, "there is one report");
}
