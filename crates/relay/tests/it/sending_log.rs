//! The log: one line for each event of a message's life, and no other.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use crate::keeping::script::{Act, Scripted, with};
use crate::keeping::stand::{Limited, Stand, account};
use crate::keeping::{envelope, submit};
use parking_lot::Mutex;
use tollgate_core::Span;
use tollgate_relay::message::MessageId;
use tollgate_relay::queue::EventKind;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

type Fields = BTreeMap<&'static str, String>;

/// Keeps the fields of every event.
#[derive(Clone, Default)]
struct Capture(Arc<Mutex<Vec<Fields>>>);

struct Reading<'f>(&'f mut Fields);

impl Visit for Reading<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let known = self.0.insert(field.name(), format!("{value:?}").trim_matches('"').to_owned());
        assert_eq!(known, None, "the field {} is there twice", field.name());
    }
}

impl Subscriber for Capture {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tollgate_relay") && metadata.is_event()
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::new();
        event.record(&mut Reading(&mut fields));
        self.0.lock().push(fields);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The line that tells of an event, if the sender tells of it.
fn line(kind: EventKind) -> Option<&'static str> {
    match kind {
        // Doors tell of it.
        EventKind::Accepted => None,
        EventKind::Deferred => Some("message deferred by a limit"),
        EventKind::Failed => Some("delivery failed for now"),
        EventKind::Unknown => Some("delivery ended without a known result"),
        EventKind::Sent => Some("message sent"),
        EventKind::Bounced => Some("message bounced"),
        EventKind::Reported => Some("delivery report queued"),
        EventKind::Retried => Some("message retried by an operator"),
        EventKind::Cancelled => Some("message cancelled by an operator"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_event_of_a_message_is_logged_once() {
    if !tollgate_testbed::alone(module_path!(), "every_event_of_a_message_is_logged_once") {
        return;
    }
    let capture = Capture::default();
    tracing::subscriber::set_global_default(capture.clone()).unwrap();
    let script = with(&[
        ("RCPT TO:<gone@", Act::Say("550 5.1.1 no such user\r\n")),
        ("RCPT TO:<busy@", Act::Say("451 4.2.1 later\r\n")),
    ]);
    let server = Scripted::start(script).await;
    let limited = Limited { domains: &[("full.example", "1/hour sliding")], ..Limited::default() };
    let stand = Stand::start(limited, vec![account("main", server.port, 0)]).await;
    let to = ["a@one.example", "gone@two.example", "a@full.example", "b@full.example"];
    submit(&stand.queue, envelope(1, &to), b"x\r\n").await.unwrap();
    for id in [2, 3] {
        submit(&stand.queue, envelope(id, &["busy@three.example"]), b"x\r\n").await.unwrap();
    }
    stand.until("they were tried", |stand| stand.sender.lanes().len() == 2).await;
    stand.settle().await;
    assert_eq!(stand.sender.retry(MessageId(2)).await.unwrap(), 1);
    stand.until("it was tried again", |stand| stand.show(2).items[0].1.attempts == 2).await;
    assert!(stand.sender.cancel(MessageId(3)).await.unwrap());
    for _ in 0..3 {
        stand.advance(Span::from_secs(1_800));
        stand.settle().await;
    }
    stand.until("the report is out", |stand| stand.queue.len() == 1).await;
    let of = |event: &str| -> Vec<Fields> {
        capture.0.lock().iter().filter(|fields| fields["message"] == event).cloned().collect()
    };
    let bounced = of("message bounced");
    assert_eq!((bounced.len(), &*bounced[0]["recipient"]), (1, "gone@two.example"));
    assert_eq!((&*bounced[0]["reason"], &*bounced[0]["recipients"]), ("550 5.1.1 no such user", "1"));
    let failed = of("delivery failed for now");
    let until = &failed[0]["until"];
    assert!(until.parse::<jiff::Timestamp>().is_ok(), "RFC 3339: {until}");
    let mut kinds = Vec::new();
    for id in 1..=3_u128 {
        let mut told: Vec<&str> = stand.show(id).events.iter().filter_map(|event| line(event.kind)).collect();
        kinds.extend(told.clone());
        let wanted = format!("{id:032x}");
        let lines = capture.0.lock().clone();
        let of_message = lines.iter().filter(|fields| fields.get("id") == Some(&wanted));
        let mut logged: Vec<&str> = of_message.map(|fields| &*fields["message"]).collect();
        told.sort_unstable();
        logged.sort_unstable();
        assert_eq!(logged, told, "message {id}");
    }
    for kind in [
        EventKind::Deferred,
        EventKind::Failed,
        EventKind::Sent,
        EventKind::Bounced,
        EventKind::Reported,
        EventKind::Retried,
        EventKind::Cancelled,
    ] {
        assert!(kinds.contains(&line(kind).unwrap()), "{kind:?} did not happen: {kinds:?}");
    }
    assert!(stand.page().contains("tollgate_relay_reported_total 1"), "{}", stand.page());
    stand.stop().await;
}
