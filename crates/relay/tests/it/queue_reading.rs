//! Reading the queue: pages of messages by tenant, state, recipient and Message-ID, and what keeps a message waiting.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::sync::Arc;

use crate::keeping::forgetful::Forgetful;
use crate::keeping::{START, clock, envelope, open, submit};
use tollgate_core::Span;
use tollgate_relay::message::MessageId;
use tollgate_relay::queue::{AttemptResult, Event, EventKind, ItemKey, Queue, Wanted};

async fn filled() -> Queue {
    let (queue, _opened) = open(Arc::new(Forgetful::new()), &clock());
    for id in 1..=30 {
        let domain = if id % 3 == 0 { "three.example" } else { "other.example" };
        let mut one = envelope(id, &[&format!("user{id}@{domain}"), "all@every.example"]);
        one.tenant = if id % 2 == 0 { "even" } else { "odd" }.to_owned();
        one.message_id = Some(format!("<{}@here.example>", id % 10));
        submit(&queue, one, b"x\r\n").await.unwrap();
    }
    queue.cancel(MessageId(4)).await.unwrap();
    queue
}

/// All ids that are wanted, page by page.
fn all(queue: &Queue, wanted: &Wanted, most: usize) -> Vec<u128> {
    let (mut ids, mut after) = (Vec::new(), None);
    loop {
        let page = queue.find(wanted, after, most).unwrap();
        assert!(page.messages.len() <= most);
        ids.extend(page.messages.iter().map(|shown| shown.kept.envelope.id.0));
        after = page.next;
        if after.is_none() {
            return ids;
        }
    }
}

#[tokio::test]
async fn messages_are_found_by_any_of_their_attributes_page_by_page() {
    let queue = filled().await;
    let text = |text: &str| Some(text.to_owned());
    for most in [1, 4, 100] {
        let find = |wanted: Wanted| all(&queue, &wanted, most);
        assert_eq!(find(Wanted::default()), (1..=30).collect::<Vec<_>>());
        assert_eq!(find(Wanted { tenant: text("even"), ..Wanted::default() }).len(), 15);
        assert_eq!(find(Wanted { finished: Some(true), ..Wanted::default() }), [4]);
        assert_eq!(find(Wanted { finished: Some(false), ..Wanted::default() }).len(), 29);
        let to_user = Wanted { recipient: text("USER7@other.example"), ..Wanted::default() };
        assert_eq!(find(to_user), [7]);
        let to_three = Wanted { recipient: text("@three.example"), ..Wanted::default() };
        assert_eq!(find(to_three).len(), 10);
        for name in ["<5@here.example>", "5@here.example"] {
            assert_eq!(find(Wanted { message_id: text(name), ..Wanted::default() }), [5, 15, 25]);
        }
        let both = Wanted { message_id: text("4@here.example"), finished: Some(false), ..Wanted::default() };
        assert_eq!(find(both), [14, 24]);
        assert!(find(Wanted { message_id: text("none@here.example"), ..Wanted::default() }).is_empty());
    }
}

#[tokio::test]
async fn a_message_tells_until_when_it_waits_and_why() {
    let queue = filled().await;
    let until = |seconds| START + Span::from_secs(seconds);
    let deferred = |domain: &str, seconds, text: &str| Event {
        domain: domain.to_owned(),
        text: text.to_owned(),
        until: Some(until(seconds)),
        ..Event::new(START, EventKind::Deferred)
    };
    let id = MessageId(3);
    let why = |at| {
        let shown = queue.show(id).unwrap().unwrap();
        shown.deferral(at).map(|event| (event.until.unwrap(), event.text.clone()))
    };
    assert_eq!(why(START), None);
    queue.tell(id, deferred("three.example", 60, "account acme, 10/min")).await.unwrap();
    queue.tell(id, deferred("every.example", 30, "domain every.example, 5/min")).await.unwrap();
    assert_eq!(why(START), Some((until(60), "account acme, 10/min".to_owned())), "the last one to end");
    // An attempt ends the deferral of its domain.
    let failed = AttemptResult {
        settled: Vec::new(),
        due: until(600),
        spent: Span::ZERO,
        counts: true,
        uncertain: false,
        at: START,
        events: vec![Event { domain: "three.example".to_owned(), ..Event::new(START, EventKind::Failed) }],
    };
    queue.finish_attempt(ItemKey { message: id, number: 0 }, failed).await.unwrap();
    assert_eq!(why(START), Some((until(30), "domain every.example, 5/min".to_owned())));
    assert_eq!(why(until(30)), None, "it is over");
    queue.cancel(id).await.unwrap();
    assert_eq!(why(START), None);
}
