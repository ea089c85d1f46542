//! Reports on delays: one for each message, for senders that asked, whatever the recipients wait for.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::sync::Arc;

use crate::keeping::forgetful::Forgetful;
use crate::keeping::{START, clock, envelope, open, read_text, submit, text_of};
use tollgate_core::{Clock, Span, Timestamp};
use tollgate_relay::message::{Envelope, MessageId};
use tollgate_relay::queue::{
    AttemptResult, Event, EventKind, Final, ItemKey, Opened, Queue, RecipientState, Waiting,
};
use tollgate_store::ManualClock;

const FOUR_HOURS: Span = Span::from_secs(4 * 3_600);
const SECOND: Span = Span::from_secs(1);

/// A message whose sender wants to know of delays.
fn asking(id: u128, recipients: &[&str]) -> Envelope {
    let mut asking = envelope(id, recipients);
    for recipient in &mut asking.recipients {
        recipient.notify.delay = true;
    }
    asking
}

/// Records an event for one of a message's domains, as an attempt that failed or a limit does.
async fn note(queue: &Queue, message: u128, kind: EventKind, domain: &str, text: &str) {
    let event = Event {
        domain: domain.to_owned(),
        remote: Some("mx.there.example".to_owned()),
        text: text.to_owned(),
        ..Event::new(START, kind)
    };
    queue.tell(MessageId(message), event).await.unwrap();
}

async fn settle(queue: &Queue, message: u128, number: u32, at: Timestamp) {
    let last = Final {
        at,
        status: "2.0.0".to_owned(),
        reply: "250 2.0.0 Ok".to_owned(),
        remote: None,
        reports: false,
    };
    let result = AttemptResult {
        settled: vec![(number, RecipientState::Sent(last))],
        due: at,
        spent: Span::ZERO,
        counts: true,
        uncertain: false,
        at,
        events: vec![Event::new(at, EventKind::Sent)],
    };
    queue.finish_attempt(ItemKey { message: MessageId(message), number }, result).await.unwrap();
}

/// The reports that have arrived since.
fn reports(opened: &mut Opened) -> Vec<Waiting> {
    std::iter::from_fn(|| opened.arrived.try_recv().ok()).filter(|one| one.reports_on.is_some()).collect()
}

fn set(clock: &ManualClock, at: Timestamp) {
    clock.advance(at.since(clock.now()));
}

#[tokio::test]
async fn a_sender_that_asked_gets_one_report_of_a_delay() {
    let (disk, clock) = (Arc::new(Forgetful::new()), clock());
    let (queue, mut opened) = open(Arc::clone(&disk) as _, &clock);
    let recipients = ["a@slow.example", "b@limited.example", "c@quick.example", "d@silent.example"];
    let mut message = asking(1, &recipients);
    message.recipients[3].notify.delay = false;
    message.report.full = true;
    submit(&queue, message, &text_of(1, 400)).await.unwrap();
    submit(&queue, envelope(2, &["e@slow.example"]), &text_of(2, 400)).await.unwrap();
    note(&queue, 1, EventKind::Failed, "slow.example", "451 4.3.2 come back later").await;
    note(&queue, 1, EventKind::Deferred, "limited.example", "recipient_domain limited.example").await;
    settle(&queue, 1, 2, START).await;

    set(&clock, START + FOUR_HOURS - SECOND);
    queue.report_delays().await.unwrap();
    assert_eq!(reports(&mut opened).len(), 0, "it is early");
    set(&clock, START + FOUR_HOURS);
    queue.report_delays().await.unwrap();
    let reported = reports(&mut opened);
    assert_eq!(reported.len(), 1, "only one of the two asked");
    assert_eq!(reported[0].reports_on.as_deref(), Some(&MessageId(1)));
    let text = String::from_utf8(read_text(&queue, reported[0].key.message.0)).unwrap();
    for part in [
        "To: <app@here.example>\r\n",
        "Subject: Delayed mail (still being sent)\r\n",
        "Final-Recipient: rfc822; a@slow.example\r\nAction: delayed\r\nStatus: 4.3.2\r\n",
        "Remote-MTA: dns; mx.there.example\r\nDiagnostic-Code: smtp; 451 4.3.2 come back later\r\n",
        "Final-Recipient: rfc822; b@limited.example\r\nAction: delayed\r\nStatus: 4.0.0\r\n",
        "Diagnostic-Code: x-tollgate; deferred by a limit: recipient_domain limited.example\r\n",
        "Content-Type: text/rfc822-headers\r\n",
    ] {
        assert!(text.contains(part), "{part:?} is missing in {text}");
    }
    assert!(!text.contains("c@quick.example"), "it got its copy");
    assert!(!text.contains("d@silent.example"), "nothing was asked about it");

    set(&clock, START + FOUR_HOURS + FOUR_HOURS);
    queue.report_delays().await.unwrap();
    drop((queue, opened));
    let (queue, mut opened) = open(disk, &clock);
    queue.report_delays().await.unwrap();
    assert_eq!(reports(&mut opened).len(), 0, "one report for each message, also after a restart");
    let shown = queue.show(MessageId(1)).unwrap().unwrap();
    assert_eq!(shown.events.iter().filter(|event| event.kind == EventKind::Reported).count(), 1);
    assert_eq!(queue.len(), 3, "the message still waits, with the other one and the report");
}

#[tokio::test]
async fn a_wish_outlasts_a_restart_and_ends_with_its_message() {
    let (disk, clock) = (Arc::new(Forgetful::new()), clock());
    let (queue, opened) = open(Arc::clone(&disk) as _, &clock);
    for id in 1..=3 {
        submit(&queue, asking(id, &["a@slow.example"]), &text_of(id, 400)).await.unwrap();
    }
    let mut null = asking(4, &["a@slow.example"]);
    null.sender = None;
    submit(&queue, null, &text_of(4, 400)).await.unwrap();
    settle(&queue, 1, 0, START).await;
    queue.cancel(MessageId(2)).await.unwrap();
    drop((queue, opened));
    let (queue, mut opened) = open(disk, &clock);
    set(&clock, START + FOUR_HOURS);
    queue.report_delays().await.unwrap();
    let about: Vec<_> = reports(&mut opened).into_iter().map(|report| report.reports_on).collect();
    assert_eq!(about, [Some(Box::new(MessageId(3)))], "not about finished ones, nor to the null sender");
}
