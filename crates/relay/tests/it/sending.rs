//! Queue, lanes, client and engine together, against `smtp-sink` and scripted servers.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::keeping::script::{Act, Scripted, with};
use crate::keeping::stand::{Limited, Stand, account};
use crate::keeping::{START, envelope, submit, text_of};
use tollgate_core::{Clock, Span};
use tollgate_relay::accounts::{Account, OnLimit};
use tollgate_relay::client::Login;
use tollgate_relay::lanes::Cause;
use tollgate_relay::queue::{EventKind, RecipientState};
use tollgate_testbed::Sink;

const HOUR: Span = Span::from_secs(3_600);

fn kinds(stand: &Stand, message: u128) -> Vec<EventKind> {
    stand.show(message).events.iter().map(|event| event.kind).collect()
}

fn recipients(sink: &Sink) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for recipient in sink.messages().into_iter().flat_map(|message| message.recipients) {
        *counts.entry(recipient).or_default() += 1;
    }
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn of_1000_messages_an_account_with_200_an_hour_sends_200() {
    let sink = Sink::start();
    let limited = Limited { account: &["200/hour sliding"], ..Limited::default() };
    let stand = Stand::start(limited, vec![account("main", sink.port(), 0)]).await;
    let submitting = (0..1_000_u128).map(|id| {
        let (queue, to) = (stand.queue.clone(), format!("user{id}@there.example"));
        tokio::spawn(async move { submit(&queue, envelope(id, &[&to]), &text_of(id, 300)).await.unwrap() })
    });
    for one in submitting.collect::<Vec<_>>() {
        one.await.unwrap();
    }
    stand.until("200 messages in the sink", |_| sink.count() >= 200).await;
    stand.settle().await;
    assert_eq!(sink.count(), 200, "exactly as many as the limit allows");
    let lanes = stand.sender.lanes();
    let sleep = lanes[0].sleep.clone().unwrap();
    assert_eq!((lanes.len(), lanes[0].waiting), (1, 800));
    assert_eq!((sleep.cause, sleep.until), (Cause::Limit, START + HOUR), "it sleeps until the exact moment");
    assert!(sleep.reason.starts_with("account acme"), "{}", sleep.reason);
    stand.clock.set(START + Span::from_micros(HOUR.as_micros() - 1));
    stand.sender.nudge();
    stand.settle().await;
    assert_eq!(sink.count(), 200, "not a microsecond early");
    stand.advance(Span::from_micros(1));
    stand.until("400 messages in the sink", |_| sink.count() >= 400).await;
    stand.settle().await;
    assert_eq!(sink.count(), 400);
    assert!(recipients(&sink).values().all(|count| *count == 1), "no recipient got two");
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exhausted_domain_delays_itself_only_and_each_is_charged_once() {
    let sink = Sink::start();
    let limited = Limited {
        domain: &["10/hour sliding"],
        domains: &[("mail.example", "2/hour sliding")],
        ..Limited::default()
    };
    let stand = Stand::start(limited, vec![account("main", sink.port(), 0)]).await;
    submit(&stand.queue, envelope(1, &["x@mail.example", "y@mail.example"]), b"fill\r\n").await.unwrap();
    stand.until("the first message", |_| sink.count() == 1).await;
    stand.settle().await;
    stand.advance(Span::from_secs(600));
    let both = ["a@gmail.example", "b@mail.example"];
    submit(&stand.queue, envelope(2, &both), &text_of(2, 300)).await.unwrap();
    stand.until("the message to gmail.example", |_| sink.count() == 2).await;
    stand.until("the deferral", |stand| kinds(stand, 2).contains(&EventKind::Deferred)).await;
    stand.settle().await;
    assert_eq!(recipients(&sink).get("<b@mail.example>"), None);
    assert_eq!(stand.left_at_domain("gmail.example").await, 9, "charged once");
    let shown = stand.show(2);
    let deferred = shown.events.iter().find(|event| event.kind == EventKind::Deferred).unwrap();
    assert_eq!(deferred.until, Some(START + HOUR));
    assert_eq!((&*deferred.domain, &*deferred.text), ("mail.example", "recipient_domain mail.example"));
    let (key, item) = shown.items.iter().find(|(_, item)| item.domain == "mail.example").unwrap();
    assert_eq!((item.attempts, item.spent), (0, Span::ZERO), "a deferral is no attempt");
    assert_eq!(stand.sender.lane_of(*key).unwrap().sleep.unwrap().until, START + HOUR);
    stand.advance(Span::from_secs(3_000));
    stand.until("the message to mail.example", |_| sink.count() == 3).await;
    stand.settle().await;
    assert_eq!(stand.left_at_domain("mail.example").await, 1, "charged once");
    assert_eq!(stand.left_at_domain("gmail.example").await, 9, "not charged again");
    let counts = recipients(&sink);
    assert_eq!(counts.len(), 4);
    assert!(counts.values().all(|count| *count == 1), "{counts:?}");
    assert!(stand.queue.is_empty());
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_larger_than_the_remainder_is_split() {
    let sink = Sink::start();
    let limited = Limited { domain: &["4/hour sliding"], ..Limited::default() };
    let stand = Stand::start(limited, vec![account("main", sink.port(), 0)]).await;
    let to: Vec<String> = (0..10).map(|number| format!("u{number}@there.example")).collect();
    let to: Vec<&str> = to.iter().map(String::as_str).collect();
    submit(&stand.queue, envelope(1, &to), b"x\r\n").await.unwrap();
    for (messages, reached) in [(1, 4), (2, 8), (3, 10)] {
        stand.until("the next part", |_| sink.count() == messages).await;
        stand.settle().await;
        let lanes = stand.sender.lanes();
        let until = lanes.first().and_then(|lane| lane.sleep.as_ref()).map(|sleep| sleep.until);
        let expected = (reached < 10).then(|| stand.clock.now() + HOUR);
        assert_eq!(until, expected, "the rest waits for the exact moment");
        assert_eq!(recipients(&sink).len(), reached);
        stand.advance(HOUR);
    }
    assert!(recipients(&sink).values().all(|count| *count == 1));
    assert!(stand.queue.is_empty());
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_that_does_not_reach_the_server_is_refunded_and_retried() {
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = closed.local_addr().unwrap().port();
    drop(closed);
    let limited = Limited { domain: &["10/hour sliding"], ..Limited::default() };
    let stand = Stand::start(limited, vec![account("main", port, 0)]).await;
    submit(&stand.queue, envelope(1, &["a@there.example"]), b"x\r\n").await.unwrap();
    stand.until("the failure", |stand| kinds(stand, 1).contains(&EventKind::Failed)).await;
    stand.settle().await;
    assert_eq!(stand.left_at_domain("there.example").await, 10);
    let shown = stand.show(1);
    let item = &shown.items[0].1;
    assert_eq!((item.attempts, item.due), (1, START + Span::from_secs(120)));
    assert_eq!(item.spent, Span::from_secs(120));
    let sink = Sink::start();
    stand.accounts.put(account("main", sink.port(), 0));
    stand.advance(Span::from_secs(119));
    stand.settle().await;
    assert_eq!(sink.count(), 0, "not before its time");
    stand.advance(Span::from_secs(1));
    stand.until("the second attempt", |_| sink.count() == 1).await;
    stand.settle().await;
    assert_eq!(stand.left_at_domain("there.example").await, 9);
    stand.stop().await;
    let server = Scripted::start(with(&[("MAIL", Act::Drop)])).await;
    let stand = Stand::start(limited, vec![account("main", server.port, 0)]).await;
    submit(&stand.queue, envelope(1, &["a@there.example"]), b"x\r\n").await.unwrap();
    stand.until("the failure", |stand| kinds(stand, 1).contains(&EventKind::Failed)).await;
    assert_eq!(stand.left_at_domain("there.example").await, 10, "a server that drops MAIL has nothing");
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_outcome_keeps_its_slot_and_is_retried() {
    let server = Scripted::start(with(&[(".", Act::Drop)])).await;
    let limited = Limited { domain: &["10/hour sliding"], ..Limited::default() };
    let stand = Stand::start(limited, vec![account("main", server.port, 0)]).await;
    submit(&stand.queue, envelope(1, &["a@there.example"]), b"x\r\n").await.unwrap();
    stand.until("the outcome", |stand| kinds(stand, 1).contains(&EventKind::Unknown)).await;
    stand.settle().await;
    assert_eq!(stand.left_at_domain("there.example").await, 9, "the slot stays taken");
    assert!(stand.show(1).items[0].1.possible_duplicate);
    stand.advance(Span::from_secs(120));
    stand.until("the second attempt", |_| server.texts.lock().len() == 2).await;
    stand.settle().await;
    assert_eq!(stand.left_at_domain("there.example").await, 8, "the retry takes another one");
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_that_is_cut_off_keeps_its_slot() {
    let server = Scripted::start(with(&[(".", Act::Hang)])).await;
    let limited = Limited { domain: &["10/hour sliding"], ..Limited::default() };
    let mut stand = Stand::start(limited, vec![account("main", server.port, 0)]).await;
    submit(&stand.queue, envelope(1, &["a@there.example"]), b"x\r\n").await.unwrap();
    stand.until("the text", |_| server.texts.lock().len() == 1).await;
    stand.cut_off().await;
    stand.until("the delivery is gone", |stand| Arc::strong_count(&stand.sender) == 1).await;
    assert_eq!(stand.left_at_domain("there.example").await, 9, "the server may have taken the message");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_message_is_reported_to_its_sender_once() {
    let server = Scripted::start(with(&[("RCPT TO:<gone@", Act::Say("550 5.1.1 no such user\r\n"))])).await;
    let stand = Stand::start(Limited::default(), vec![account("main", server.port, 0)]).await;
    let to = ["gone@there.example", "here@there.example", "gone@other.example"];
    submit(&stand.queue, envelope(1, &to), &text_of(1, 200)).await.unwrap();
    stand.until("an empty queue", |stand| stand.queue.is_empty()).await;
    let texts = server.texts.lock().clone();
    let reports: Vec<&String> = texts.iter().filter(|text| text.contains("delivery-status")).collect();
    assert_eq!((texts.len(), reports.len()), (2, 1), "one message and one report");
    assert!(reports[0].contains("gone@there.example") && reports[0].contains("gone@other.example"));
    assert!(!reports[0].contains("here@there.example"));
    let heard = server.heard.lock().join("\n");
    assert!(heard.contains("MAIL FROM:<> ") && heard.contains("RCPT TO:<app@here.example>"), "{heard}");
    assert!(kinds(&stand, 1).contains(&EventKind::Reported));
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_without_capacity_gives_way_to_the_next() {
    let (first, second) = (Sink::start(), Sink::start());
    let limited = Limited { account: &["2/hour sliding"], ..Limited::default() };
    let accounts = vec![account("second", second.port(), 2), account("first", first.port(), 1)];
    let stand = Stand::start(limited, accounts).await;
    for id in 0..5 {
        submit(&stand.queue, envelope(id, &["a@there.example"]), b"x\r\n").await.unwrap();
        let sent = usize::try_from(id).unwrap().min(3) + 1;
        stand.until("the message", |_| first.count() + second.count() == sent).await;
    }
    stand.settle().await;
    assert_eq!((first.count(), second.count()), (2, 2));
    assert_eq!(stand.queue.len(), 1);
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_rejects_fails_the_item_with_a_report() {
    let sink = Sink::start();
    let limited = Limited { account: &["1/hour sliding"], ..Limited::default() };
    let rejecting = Account { on_limit: OnLimit::Reject, ..account("main", sink.port(), 0) };
    let stand = Stand::start(limited, vec![rejecting]).await;
    submit(&stand.queue, envelope(1, &["a@there.example"]), b"x\r\n").await.unwrap();
    stand.until("the first message", |_| sink.count() == 1).await;
    submit(&stand.queue, envelope(2, &["b@there.example"]), b"x\r\n").await.unwrap();
    stand.until("the rejection", |stand| kinds(stand, 2).contains(&EventKind::Reported)).await;
    stand.settle().await;
    let RecipientState::Failed(last) = stand.show(2).items[0].1.recipients[0].state.clone() else {
        panic!("it failed")
    };
    assert!(last.reply.starts_with("rate limit exceeded: account acme"), "{last:?}");
    assert_eq!(stand.queue.len(), 1, "the report itself waits for its turn");
    stand.advance(HOUR);
    stand.until("the report", |_| sink.count() == 2).await;
    assert!(sink.messages().iter().any(|message| message.text.contains("rate limit exceeded")));
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_whose_login_fails_is_paused_and_the_next_is_used() {
    let script = with(&[
        ("EHLO", Act::Say("250-script.example\r\n250 AUTH PLAIN\r\n")),
        ("AUTH", Act::Say("535 5.7.8 wrong password\r\n")),
    ]);
    let (server, sink) = (Scripted::start(script).await, Sink::start());
    let mut broken = account("broken", server.port, 0);
    broken.destination.login = Some(Login { user: "u".to_owned(), password: "p".to_owned() });
    let limited = Limited { account: &["10/hour sliding"], ..Limited::default() };
    let stand = Stand::start(limited, vec![broken.clone(), account("good", sink.port(), 1)]).await;
    for id in 0..3 {
        submit(&stand.queue, envelope(id, &["a@there.example"]), b"x\r\n").await.unwrap();
        stand.until("the message", |_| sink.count() as u128 == id + 1).await;
    }
    assert_eq!(*server.connections.lock(), 1, "a paused account is left alone");
    let pause = stand.accounts.paused(&broken, stand.clock.now()).unwrap();
    assert!(pause.reason.contains("535 5.7.8 wrong password"), "{pause:?}");
    stand.accounts.remove("acme", "good");
    submit(&stand.queue, envelope(9, &["a@there.example"]), b"x\r\n").await.unwrap();
    stand
        .until("the lane sleeps", |stand| stand.sender.lanes().iter().any(|lane| lane.sleep.is_some()))
        .await;
    let sleep = stand.sender.lanes()[0].sleep.clone().unwrap();
    assert_eq!((sleep.cause, sleep.until), (Cause::Paused, pause.until));
    stand.accounts.put(account("broken", sink.port(), 0));
    stand.sender.resume("acme", "broken");
    stand.until("the message", |_| sink.count() == 4).await;
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_throttles_slows_its_lane_and_no_other() {
    let script = with(&[("RCPT TO:<a@busy.example", Act::Say("450 4.7.1 slow down\r\n"))]);
    let server = Scripted::start(script).await;
    let stand = Stand::start(Limited::default(), vec![account("main", server.port, 0)]).await;
    submit(&stand.queue, envelope(1, &["a@busy.example"]), b"x\r\n").await.unwrap();
    stand.until("the failure", |stand| kinds(stand, 1).contains(&EventKind::Failed)).await;
    stand.settle().await;
    let lanes = stand.sender.lanes();
    let sleep = lanes[0].sleep.clone().unwrap();
    assert_eq!((sleep.cause, sleep.until), (Cause::Throttled, START + Span::from_secs(60)));
    assert!(sleep.reason.contains("slow down"));
    submit(&stand.queue, envelope(2, &["b@busy.example"]), b"x\r\n").await.unwrap();
    submit(&stand.queue, envelope(3, &["c@free.example"]), b"x\r\n").await.unwrap();
    stand.until("the other lane", |stand| stand.show(3).kept.finished.is_some()).await;
    assert!(stand.show(2).kept.finished.is_none(), "the lane rests");
    stand.advance(Span::from_secs(60));
    stand.until("the lane goes on", |stand| stand.show(2).kept.finished.is_some()).await;
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_the_server_closed_meanwhile_costs_nothing() {
    let server = Scripted::start(with(&[(".", Act::SayAndDrop("250 2.0.0 ok\r\n"))])).await;
    let limited = Limited { domain: &["10/hour sliding"], ..Limited::default() };
    let stand = Stand::start(limited, vec![account("main", server.port, 0)]).await;
    for id in 0..3 {
        submit(&stand.queue, envelope(id, &["a@there.example"]), b"x\r\n").await.unwrap();
        stand.until("the message", |stand| stand.show(id).kept.finished.is_some()).await;
        assert_eq!(kinds(&stand, id), [EventKind::Accepted, EventKind::Sent]);
    }
    assert_eq!(stand.left_at_domain("there.example").await, 7, "each was charged once");
    assert_eq!(server.texts.lock().len(), 3);
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_answers_2xx_to_everything_loses_no_message() {
    let server = Scripted::start(vec![("", Act::Say("250 2.0.0 ok\r\n"))]).await;
    let stand = Stand::start(Limited::default(), vec![account("main", server.port, 0)]).await;
    submit(&stand.queue, envelope(1, &["a@there.example"]), b"x\r\n").await.unwrap();
    stand.until("the failure", |stand| kinds(stand, 1).contains(&EventKind::Failed)).await;
    stand.settle().await;
    assert_eq!((stand.queue.len(), stand.show(1).kept.finished), (1, None), "it waits for another attempt");
    let sink = Sink::start();
    stand.accounts.put(account("main", sink.port(), 0));
    stand.advance(Span::from_secs(120));
    stand.until("the message", |_| sink.count() == 1).await;
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ends_a_kept_connection_with_421_costs_nothing() {
    let full = "421 4.7.0 too many messages on this connection\r\n";
    let server = Scripted::start(with(&[("MAIL", Act::IfReused(full))])).await;
    let limited = Limited { domain: &["10/hour sliding"], ..Limited::default() };
    let stand = Stand::start(limited, vec![account("main", server.port, 0)]).await;
    for id in 0..3 {
        submit(&stand.queue, envelope(id, &["a@there.example"]), b"x\r\n").await.unwrap();
        stand.until("the message", |stand| stand.show(id).kept.finished.is_some()).await;
        assert_eq!(kinds(&stand, id), [EventKind::Accepted, EventKind::Sent]);
    }
    assert_eq!(stand.left_at_domain("there.example").await, 7, "each was charged once");
    assert_eq!((server.texts.lock().len(), *server.connections.lock()), (3, 3));
    assert!(stand.sender.lanes().iter().all(|lane| lane.sleep.is_none()), "no lane is slowed");
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_has_limits_of_its_own_and_a_raised_one_is_noticed() {
    let sink = Sink::start();
    let limited = Limited { account: &["100/hour sliding"], ..Limited::default() };
    let stand = Stand::start(limited, vec![account("main, or other\\", sink.port(), 0)]).await;
    let set = async |limit: &str| {
        let limits = vec![limit.parse().unwrap()];
        stand.sender.limits().set_account("acme", "main, or other\\", limits).await.unwrap();
    };
    set("2/hour sliding").await;
    for id in 0..8 {
        let to = format!("a@d{id}.example");
        submit(&stand.queue, envelope(id, &[&to]), b"x\r\n").await.unwrap();
    }
    stand.until("two messages", |_| sink.count() == 2).await;
    stand.settle().await;
    assert_eq!(sink.count(), 2, "its own limit holds");
    set("5/hour sliding").await;
    stand.advance(Span::from_secs(60));
    stand.until("three more", |_| sink.count() == 5).await;
    stand.settle().await;
    assert_eq!(sink.count(), 5);
    stand.sender.limits().reset_account("acme", "main, or other\\").await.unwrap();
    stand.advance(Span::from_secs(60));
    stand.until("all of them", |_| sink.count() == 8).await;
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_a_slow_server_asks_for_late_is_counted_when_it_goes_out() {
    // The reply to DATA takes half a second, and meanwhile the clock moves by five.
    let server = Scripted::start(with(&[("DATA", Act::Dribble("354 go\r\n", 60))])).await;
    let limited = Limited { account: &["1/10s sliding"], ..Limited::default() };
    let stand = Stand::start(limited, vec![account("main", server.port, 0)]).await;
    submit(&stand.queue, envelope(0, &["a@one.example"]), b"x\r\n").await.unwrap();
    let asked = |count: usize| {
        move |server: &Scripted| {
            server.heard.lock().iter().filter(|line| line.starts_with("DATA")).count() == count
        }
    };
    stand.until("the server is asked", |_| asked(1)(&server)).await;
    stand.advance(Span::from_secs(5));
    stand.until("the first text", |_| server.texts.lock().len() == 1).await;
    submit(&stand.queue, envelope(1, &["a@one.example"]), b"x\r\n").await.unwrap();
    let sleeps_until = |stand: &Stand| {
        stand.sender.lanes().iter().find_map(|lane| lane.sleep.as_ref().map(|sleep| sleep.until))
    };
    stand.until("the second one waits", |stand| sleeps_until(stand).is_some()).await;
    let begun = START + Span::from_secs(5);
    assert_eq!(sleeps_until(&stand), Some(begun + Span::from_secs(10)), "ten seconds after the first text");
    stand.advance(Span::from_secs(10));
    stand.until("the second text", |_| server.texts.lock().len() == 2).await;
    stand.stop().await;
}
