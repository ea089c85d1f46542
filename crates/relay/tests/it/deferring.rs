//! Deferrals: to aligned and spread moments, by pauses, by holds, and what the timeline and the metrics say of them.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::sync::Arc;

use crate::keeping::script::{Act, Scripted, with};
use crate::keeping::stand::{Limited, Setup, Stand, account};
use crate::keeping::{self, forgetful::Forgetful};
use crate::keeping::{START, envelope, submit};
use tollgate_core::rule::Deferral;
use tollgate_core::{Clock, Span, Timestamp};
use tollgate_relay::lanes::{Cause, LaneView, Retry, Scope};
use tollgate_relay::message::Envelope;
use tollgate_relay::queue::{Event, EventKind, RecipientState};
use tollgate_store::ManualClock;
use tollgate_testbed::Sink;

const HOUR: Span = Span::from_secs(3_600);

fn deferrals(stand: &Stand, message: u128) -> Vec<Event> {
    stand.show(message).events.into_iter().filter(|event| event.kind == EventKind::Deferred).collect()
}

/// Moves the clock to a moment in steps, as time does.
async fn pass(stand: &Stand, until: Timestamp, step: Span) {
    while stand.clock.now() < until {
        let next = (stand.clock.now() + step).min(until);
        stand.advance(next.since(stand.clock.now()));
        stand.settle().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_aligned_deferral_lasts_until_the_next_boundary() {
    let sink = Sink::start();
    let deferral = Deferral { aligned: true, jitter: Span::ZERO };
    let limited = Limited { account: &["2/hour sliding"], deferral, ..Limited::default() };
    let stand = Stand::start(limited, vec![account("main", sink.port(), 0)]).await;
    for id in 0..4 {
        submit(&stand.queue, envelope(id, &[&format!("a@d{id}.example")]), b"x\r\n").await.unwrap();
    }
    stand.until("two messages", |_| sink.count() == 2).await;
    stand.settle().await;
    // It is half past eight. The window is free at half past nine, and the next full hour is ten.
    let ten = START + Span::from_secs(5_400);
    let sleeps: Vec<Timestamp> =
        stand.sender.lanes().iter().filter_map(|lane| lane.sleep.as_ref()).map(|sleep| sleep.until).collect();
    assert_eq!(sleeps, [ten, ten]);
    pass(&stand, ten - Span::from_secs(1), Span::from_secs(299)).await;
    assert_eq!(sink.count(), 2, "nothing is sent before the full hour, though the window is free");
    stand.advance(Span::from_secs(1));
    stand.until("the other messages", |_| sink.count() == 4).await;
    for id in 0..4 {
        let told = deferrals(&stand, id);
        assert!(told.len() <= 1, "told once: {told:?}");
        assert!(told.iter().all(|event| event.until == Some(ten)));
    }
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn spread_deferrals_stay_within_their_spread() {
    let sink = Sink::start();
    let deferral = Deferral { aligned: false, jitter: Span::from_secs(600) };
    let limited = Limited { account: &["1/hour sliding"], deferral, ..Limited::default() };
    let stand = Stand::start(limited, vec![account("main", sink.port(), 0)]).await;
    submit(&stand.queue, envelope(0, &["a@first.example"]), b"x\r\n").await.unwrap();
    stand.until("the first message", |_| sink.count() == 1).await;
    submit(&stand.queue, envelope(1, &["a@second.example"]), b"x\r\n").await.unwrap();
    stand.until("the deferral", |stand| !deferrals(stand, 1).is_empty()).await;
    stand.settle().await;
    let until = deferrals(&stand, 1)[0].until.unwrap();
    assert!(until >= START + HOUR && until < START + HOUR + Span::from_secs(600), "{until:?}");
    pass(&stand, START + HOUR - Span::from_secs(1), Span::from_secs(599)).await;
    assert_eq!((sink.count(), deferrals(&stand, 1).len()), (1, 1), "looks are not told");
    // The last look may have drawn another moment, or may not have ended yet.
    let asleep =
        |stand: &Stand| stand.sender.lanes().first().and_then(|lane| Some(lane.sleep.as_ref()?.until));
    stand.until("the lane sleeps", |stand| asleep(stand).is_some()).await;
    let until = asleep(&stand).unwrap();
    pass(&stand, until - Span::from_micros(1), Span::from_secs(30)).await;
    assert_eq!(sink.count(), 1, "not before its own moment");
    stand.advance(Span::from_micros(1));
    stand.until("the second message", |_| sink.count() == 2).await;
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_is_only_at_its_limit_keeps_mail_from_failing() {
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = closed.local_addr().unwrap().port();
    drop(closed);
    let sink = Sink::start();
    let limited = Limited { account: &["1/hour sliding"], ..Limited::default() };
    let accounts = vec![account("first", sink.port(), 1), account("second", port, 2)];
    let stand = Stand::start(limited, accounts).await;
    submit(&stand.queue, envelope(0, &["a@there.example"]), b"x\r\n").await.unwrap();
    stand.until("the first message", |_| sink.count() == 1).await;
    submit(&stand.queue, envelope(1, &["a@there.example"]), b"x\r\n").await.unwrap();
    stand.until("the deferral", |stand| !deferrals(stand, 1).is_empty()).await;
    stand.settle().await;
    let item = stand.show(1).items[0].1.clone();
    assert_eq!((item.attempts, item.failures, item.spent), (0, 0, Span::ZERO), "this is no failure");
    let told = deferrals(&stand, 1).remove(0);
    assert_eq!(told.until, Some(START + Span::from_secs(120)), "the second account is tried again soon");
    assert!(told.text.contains("account acme,first") && told.text.contains("account second"), "{told:?}");
    stand.advance(HOUR);
    stand.until("the second message", |_| sink.count() == 2).await;
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_pauses_and_resumes() {
    let (first, second) = (Sink::start(), Sink::start());
    let accounts = vec![account("first", first.port(), 1), account("second", second.port(), 2)];
    let stand = Stand::start(Limited::default(), accounts).await;
    assert!(stand.sender.hold(Scope::Queue));
    for id in 0..3 {
        submit(&stand.queue, envelope(id, &["a@there.example"]), b"x\r\n").await.unwrap();
    }
    stand
        .until("they wait", |stand| stand.sender.lanes().iter().any(|lane| lane.held && lane.waiting == 3))
        .await;
    assert!(stand.page().contains(r#"tollgate_relay_sleeping_lanes{cause="held"} 1"#), "{}", stand.page());
    assert_eq!(stand.sender.holds(), [Scope::Queue]);
    assert!(stand.sender.release(&Scope::Queue));
    stand.until("all of them", |_| first.count() == 3).await;
    assert!(stand.sender.hold_account("acme", "first"));
    submit(&stand.queue, envelope(3, &["a@there.example"]), b"x\r\n").await.unwrap();
    stand.until("the next account is used", |_| second.count() == 1).await;
    assert!(stand.sender.hold_account("acme", "second"));
    submit(&stand.queue, envelope(4, &["a@there.example"]), b"x\r\n").await.unwrap();
    let paused = |stand: &Stand| {
        let lanes = stand.sender.lanes();
        lanes.iter().any(|lane| lane.sleep.as_ref().is_some_and(|sleep| sleep.cause == Cause::Paused))
    };
    stand.until("it waits for an account", paused).await;
    assert!(stand.sender.release_account("acme", "first") && !stand.sender.release_account("acme", "first"));
    stand.until("the last one", |_| first.count() == 4).await;
    stand.stop().await;
}

/// Lets the time pass until an item has no lifetime left.
async fn age(stand: &Stand, message: u128) {
    let end = START + Retry::default().lifetime + HOUR;
    while stand.show(message).kept.finished.is_none() && stand.clock.now() < end {
        stand.settle().await;
        stand.advance(HOUR);
        stand.settle().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mail_without_a_usable_account_is_reported_when_its_lifetime_is_over() {
    let script = with(&[
        ("RCPT TO:<gone@", Act::Say("550 5.1.1 no such user\r\n")),
        ("RCPT TO:<busy@", Act::Say("451 4.2.1 later\r\n")),
    ]);
    let server = Scripted::start(script).await;
    let main = account("main", server.port, 0);
    let stand = Stand::start(Limited::default(), vec![main.clone()]).await;
    let to = ["gone@one.example", "busy@two.example"];
    submit(&stand.queue, envelope(1, &to), b"Subject: x\r\n\r\nx\r\n").await.unwrap();
    stand.until("both are tried", |stand| stand.show(1).events.len() == 3).await;
    // The account goes, and another message names one that never was.
    assert!(stand.accounts.remove("acme", "main"));
    let lost = Envelope { account: Some("typo".to_owned()), ..envelope(2, &["a@three.example"]) };
    submit(&stand.queue, lost, b"x\r\n").await.unwrap();
    age(&stand, 1).await;
    stand
        .until("the messages end", |stand| [1, 2].iter().all(|id| stand.show(*id).kept.finished.is_some()))
        .await;
    let last = |message: u128, item: usize| match &stand.show(message).items[item].1.recipients[0].state {
        RecipientState::Failed(last) => (last.status.clone(), last.reply.clone()),
        other => panic!("it fails: {other:?}"),
    };
    assert_eq!(last(1, 0).0, "5.1.1");
    let (status, reply) = last(1, 1);
    assert_eq!(status, "5.4.7");
    assert!(reply.ends_with("the tenant has no account for this message"), "{reply}");
    assert!(last(2, 0).1.ends_with("the tenant has no account typo"), "{}", last(2, 0).1);
    let item = stand.show(1).items[1].1.clone();
    assert_eq!((item.attempts, item.failures), (1, 1), "waiting for an account is no attempt");
    // The report on the first message waits for an account, too.
    stand.accounts.put(main);
    stand.sender.reconsider("acme");
    stand.until("the reports", |_| server.texts.lock().len() == 2).await;
    let texts = server.texts.lock().clone();
    assert!(
        texts.iter().any(|report| report.contains("has no account typo")),
        "by another account: {texts:?}"
    );
    let report = texts.iter().find(|report| report.contains("Status: 5.1.1")).unwrap();
    assert!(report.contains("Status: 5.1.1\r\n") && report.contains("Status: 5.4.7\r\n"), "{report}");
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_mail_that_waits_for_an_account_ages_also_across_a_restart() {
    let disk = Forgetful::new();
    let setup = |disk: &Forgetful, clock: Arc<ManualClock>| Setup {
        disk: Arc::new(disk.clone()),
        clock,
        ..Setup::new(Limited::default(), vec![])
    };
    let stand = Stand::start_with(setup(&disk, keeping::clock())).await;
    for id in 0..5 {
        submit(&stand.queue, envelope(id, &["a@one.example"]), b"x\r\n").await.unwrap();
    }
    pass(&stand, START + Span::from_secs(3 * 86_400), HOUR).await;
    let spent = stand.show(4).items[0].1.spent;
    assert!(spent >= Span::from_secs(3 * 86_400 - 3_600), "each item ages: {spent:?}");
    let clock = Arc::clone(&stand.clock);
    stand.stop().await;
    let stand = Stand::start_with(setup(&disk, clock)).await;
    stand.until("all wait", |stand| stand.sender.lanes().iter().any(|lane| lane.sleep.is_some())).await;
    pass(&stand, START + Span::from_secs(5 * 86_400) + HOUR + HOUR, HOUR).await;
    for id in 0..5 {
        stand.until("it is given up", |stand| stand.show(id).kept.finished.is_some()).await;
    }
    assert_eq!(stand.queue.len(), 5, "the reports wait");
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_an_operator_paused_lets_mail_age_and_a_limit_does_not() {
    let sink = Sink::start();
    let limited = Limited { account: &["1/day sliding"], ..Limited::default() };
    let stand = Stand::start(limited, vec![account("main", sink.port(), 0)]).await;
    for id in 0..2 {
        submit(&stand.queue, envelope(id, &["a@one.example"]), b"x\r\n").await.unwrap();
    }
    stand.until("the limit", |stand| sink.count() == 1 && !deferrals(stand, 1).is_empty()).await;
    pass(&stand, START + HOUR, HOUR).await;
    assert_eq!(stand.show(1).items[0].1.spent, Span::ZERO, "a limit suspends the lifetime");
    assert!(stand.sender.hold_account("acme", "main"));
    stand.sender.reconsider("acme");
    stand
        .until("the pause", |stand| {
            stand.sender.lanes()[0].sleep.as_ref().is_some_and(|sleep| sleep.cause == Cause::Paused)
        })
        .await;
    pass(&stand, START + HOUR + HOUR, Span::from_secs(900)).await;
    let spent = stand.show(1).items[0].1.spent;
    assert!((Span::from_secs(2_700)..=HOUR).contains(&spent), "{spent:?}");
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_421_at_the_greeting_lets_only_that_account_rest() {
    let closed =
        Scripted::start(with(&[("GREETING", Act::SayAndDrop("421 4.7.0 too many connections\r\n"))])).await;
    let sink = Sink::start();
    let accounts = vec![account("full", closed.port, 0), account("free", sink.port(), 1)];
    let stand = Stand::start(Limited::default(), accounts).await;
    let through =
        |id, name: &str, to: &str| Envelope { account: Some(name.to_owned()), ..envelope(id, &[to]) };
    submit(&stand.queue, through(1, "full", "a@one.example"), b"x\r\n").await.unwrap();
    let rests = |stand: &Stand| {
        let lanes = stand.sender.lanes();
        lanes.iter().find_map(|lane| lane.sleep.clone()).is_some_and(|sleep| sleep.cause == Cause::Paused)
    };
    stand.until("the account rests", rests).await;
    stand.settle().await;
    submit(&stand.queue, through(2, "full", "b@one.example"), b"x\r\n").await.unwrap();
    submit(&stand.queue, through(3, "free", "c@one.example"), b"x\r\n").await.unwrap();
    stand.until("the other lane", |_| sink.count() == 1).await;
    assert_eq!(*closed.connections.lock(), 1, "nothing else is tried through the account that rests");
    let lanes = stand.sender.lanes();
    let sleep = lanes.iter().find_map(|lane| lane.sleep.clone()).unwrap();
    assert_eq!(sleep.until, START + Span::from_secs(60));
    assert!(sleep.reason.contains("421 4.7.0 too many connections"), "{sleep:?}");
    assert!(stand.page().contains(r#"tollgate_relay_sleeping_lanes{cause="paused"} 1"#), "{}", stand.page());
    stand.advance(Span::from_secs(60));
    stand.until("the lane asks again", |_| *closed.connections.lock() == 2).await;
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_with_a_hold_has_that_many_deliveries_at_once() {
    let server = Scripted::start(with(&[("DATA", Act::Dribble("354 go on\r\n", 3))])).await;
    let limited = Limited { account: &["1 at once for 60s"], ..Limited::default() };
    let stand = Stand::start(limited, vec![account("main", server.port, 0)]).await;
    for id in 0..5 {
        submit(&stand.queue, envelope(id, &[&format!("a@d{id}.example")]), b"x\r\n").await.unwrap();
    }
    for sent in 1..=5 {
        stand
            .until("the next message", |stand| {
                stand.advance(Span::from_secs(1));
                server.texts.lock().len() >= sent
            })
            .await;
    }
    stand.until("an empty queue", |stand| stand.queue.is_empty()).await;
    assert_eq!(server.transactions.lock().most, 1, "one after another");
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_metrics_count_every_outcome_of_mail() {
    let script = with(&[
        ("RCPT TO:<gone@", Act::Say("550 5.1.1 no such user\r\n")),
        ("RCPT TO:<busy@", Act::Say("451 4.2.1 later\r\n")),
    ]);
    let server = Scripted::start(script).await;
    let limited = Limited { domains: &[("full.example", "1/hour sliding")], ..Limited::default() };
    let stand = Stand::start(limited, vec![account("main", server.port, 0)]).await;
    let to = ["a@one.example", "gone@one.example", "busy@two.example", "a@full.example", "b@full.example"];
    submit(&stand.queue, envelope(u128::from(START.as_micros()) << 64, &to), b"x\r\n").await.unwrap();
    let has = |stand: &Stand, line: &str| stand.page().lines().any(|known| known == line);
    stand.until("all outcomes", |stand| stand.sender.lanes().len() == 2).await;
    stand.until("the retry", |stand| has(stand, "tollgate_relay_retried_total 1")).await;
    stand.until("the deliveries", |stand| has(stand, "tollgate_relay_delivery_seconds_count 2")).await;
    stand.settle().await;
    stand.advance(Span::from_secs(60));
    stand.settle().await;
    let of_account = r#"{tenant="acme",account="main"}"#;
    for line in [
        format!("tollgate_relay_sent_total{of_account} 2"),
        format!("tollgate_relay_bounced_total{of_account} 1"),
        format!("tollgate_relay_rate_limited_total{of_account} 1"),
        format!("tollgate_relay_deferred{of_account} 1"),
        "tollgate_relay_retried_total 1".to_owned(),
        "tollgate_relay_delivery_seconds_count 2".to_owned(),
        "tollgate_relay_queue_messages 1".to_owned(),
        "tollgate_relay_queue_oldest_seconds 60".to_owned(),
        r#"tollgate_relay_sleeping_lanes{cause="limit"} 1"#.to_owned(),
    ] {
        stand.until(&line, |stand| has(stand, &line)).await;
    }
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_wrong_for_a_moment_delays_mail_no_longer_than_it_has_to_wait() {
    const YEAR: Span = Span::from_secs(365 * 86_400);
    let server = Scripted::start(with(&[("RCPT TO:<busy@", Act::Say("451 4.2.1 later\r\n"))])).await;
    let disk = Forgetful::new();
    let setup = |disk: &Forgetful, clock: Arc<ManualClock>| Setup {
        disk: Arc::new(disk.clone()),
        clock,
        ..Setup::new(
            Limited { domains: &[("limited.example", "1/h sliding")], ..Limited::default() },
            vec![account("main", server.port, 0)],
        )
    };
    let stand = Stand::start_with(setup(&disk, keeping::clock())).await;
    let deferred = |id: u128| move |stand: &Stand| deferrals(stand, id).len() == 1;
    // The first one is retried later, the second one is sent, and the third one is deferred by the limit.
    submit(&stand.queue, envelope(0, &["busy@one.example"]), b"x\r\n").await.unwrap();
    submit(&stand.queue, envelope(1, &["a@limited.example"]), b"x\r\n").await.unwrap();
    stand.until("the second one", |_| server.texts.lock().len() == 1).await;
    submit(&stand.queue, envelope(2, &["a@limited.example"]), b"x\r\n").await.unwrap();
    stand.until("the third one waits", deferred(2)).await;
    let lost = Envelope { account: Some("typo".to_owned()), ..envelope(3, &["a@four.example"]) };
    submit(&stand.queue, lost, b"x\r\n").await.unwrap();
    stand.until("three lanes", |stand| stand.sender.lanes().len() == 3).await;
    stand.settle().await;
    assert_eq!(server.texts.lock().len(), 1);
    // A bad answer of a time server: a year ahead, and back.
    stand.advance(YEAR);
    stand.until("the deferred one goes out", |_| server.texts.lock().len() == 2).await;
    let wrong = Envelope { accepted: stand.clock.now(), ..envelope(4, &["a@limited.example"]) };
    submit(&stand.queue, wrong, b"x\r\n").await.unwrap();
    stand.until("the fifth one waits", deferred(4)).await;
    stand.settle().await;
    stand.clock.set(START + Span::from_secs(60));
    stand.sender.nudge();
    let soon = START + HOUR + HOUR;
    let is_back = |stand: &Stand| {
        let moments = |lane: &LaneView| [lane.sleep.as_ref().map(|sleep| sleep.until), lane.next_due];
        stand.sender.lanes().iter().flat_map(moments).flatten().all(|moment| moment < soon)
    };
    stand.until("lanes wait as long as they were told, and not for a year", is_back).await;
    assert_eq!(stand.show(3).kept.finished, None, "a step uses up no lifetime");
    // The limit of the fifth one is over within its window.
    pass(&stand, soon, Span::from_secs(600)).await;
    stand.until("the fifth one", |_| server.texts.lock().len() == 3).await;
    // A retry that was set while the clock was wrong, found at the next start.
    let now = stand.clock.now();
    stand.clock.set(now + YEAR);
    stand.sender.nudge();
    stand.until("the retry", |stand| stand.show(0).items[0].1.due > now + YEAR).await;
    let clock = Arc::clone(&stand.clock);
    stand.stop().await;
    clock.set(now + Span::from_secs(60));
    let before = server.heard.lock().iter().filter(|line| line.contains("busy@")).count();
    let stand = Stand::start_with(setup(&disk, clock)).await;
    let tried = |_: &Stand| server.heard.lock().iter().filter(|line| line.contains("busy@")).count() > before;
    stand.until("the retry after the start", tried).await;
    stand.stop().await;
}
