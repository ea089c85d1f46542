//! What a next hop says against an account bounces no mail: the account rests, others are tried, and mail waits.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use crate::keeping::script::{Act, Scripted, polite, times, with};
use crate::keeping::stand::{Limited, Setup, Stand, account};
use crate::keeping::{START, envelope, patient_options, submit};
use tollgate_core::{Clock, Span};
use tollgate_relay::client::{ClientOptions, Login};
use tollgate_relay::lanes::Cause;
use tollgate_relay::queue::{EventKind, RecipientState};
use tollgate_relay::replies::{ReplyPattern, ReplyRule, ReplyRules, Rest, Verdict};

const HOUR: Span = Span::from_secs(3_600);
const QUOTA: &str =
    "550-5.4.5 Daily user sending limit exceeded. For more information\r\n550 5.4.5 go away\r\n";
const RATE: &str = "454 4.7.0 Throttling failure: Maximum sending rate exceeded.\r\n";
/// How many connections a stand has to one server.
const CONNECTIONS: usize = 10;

fn heard(server: &Scripted, word: &str) -> usize {
    server.heard.lock().iter().filter(|line| line.starts_with(word)).count()
}

fn bounced(stand: &Stand, messages: u128) -> Vec<u128> {
    let bounced = |id: &u128| {
        let shown = stand.show(*id);
        let mut states = shown.items.iter().flat_map(|(_, item)| &item.recipients).map(|one| &one.state);
        states.any(|state| matches!(state, RecipientState::Failed(_)))
    };
    (0..messages).filter(bounced).collect()
}

/// Sends one message to each of so many domains.
async fn to_domains(stand: &Stand, messages: u128) {
    for id in 0..messages {
        submit(&stand.queue, envelope(id, &[&format!("a@d{id}.example")]), b"x\r\n").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_at_any_stage_bounces_nothing_and_the_account_sleeps_for_an_hour() {
    for word in ["GREETING", "EHLO", "MAIL", "RCPT", "DATA", "."] {
        let server = Scripted::start(with(&[(word, times(usize::MAX / 2, QUOTA))])).await;
        let main = account("main", server.port, 0);
        let limited = Limited { account: &["100/hour sliding"], ..Limited::default() };
        let stand = Stand::start(limited, vec![main.clone()]).await;
        to_domains(&stand, 30).await;
        stand.until("the account sleeps", |stand| stand.accounts.paused(&main, START).is_some()).await;
        stand.settle().await;
        assert_eq!(bounced(&stand, 30), [] as [u128; 0], "{word}");
        let pause = stand.accounts.paused(&main, START).unwrap();
        assert_eq!(pause.until, START + HOUR, "{word}");
        assert!(pause.reason.contains("5.4.5 Daily user sending limit exceeded"), "{word}: {pause:?}");
        let all_sleep = |stand: &Stand| {
            let lanes = stand.sender.lanes();
            lanes.len() == 30 && lanes.iter().all(|lane| lane.sleep.is_some())
        };
        stand.until("all lanes sleep", all_sleep).await;
        for lane in stand.sender.lanes() {
            let sleep = lane.sleep.unwrap();
            assert_eq!((sleep.cause, sleep.until), (Cause::Paused, pause.until), "{word}");
            assert!(sleep.reason.starts_with("account main is paused: "), "{word}: {}", sleep.reason);
        }
        assert!(*server.connections.lock() <= CONNECTIONS + 1, "{word}");
        let known = stand.show(0);
        assert!(known.items[0].1.failures == 0, "{word}: it is no failure of the message");
        stand.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_account_takes_what_the_first_refuses() {
    for (word, says) in [("DATA", QUOTA), ("MAIL", "553 5.7.1 not your sender\r\n"), (".", RATE)] {
        let first = Scripted::start(with(&[(word, Act::Say(says))])).await;
        let second = Scripted::start(polite()).await;
        let accounts = vec![account("first", first.port, 0), account("second", second.port, 1)];
        let limited = Limited { domain: &["10/hour sliding"], ..Limited::default() };
        let stand = Stand::start(limited, accounts).await;
        to_domains(&stand, 30).await;
        stand.until("an empty queue", |stand| stand.queue.is_empty()).await;
        assert_eq!((second.texts.lock().len(), bounced(&stand, 30).len()), (30, 0), "{word}");
        let told = stand.show(0).events;
        let refusal = told.iter().find(|event| event.kind == EventKind::Failed).unwrap();
        assert_eq!((refusal.account.as_deref(), refusal.recipient), (Some("first"), Some(0)));
        assert!(refusal.text.starts_with(&says[..3]), "{refusal:?}");
        if word != "." {
            assert_eq!(stand.left_at_domain("d0.example").await, 9, "{word}: charged once");
        }
        stand.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_domains_ask_a_throttled_account_once_each_time_it_wakes() {
    let refused = CONNECTIONS + 2;
    let server = Scripted::start(with(&[("MAIL", times(refused, RATE))])).await;
    let client = ClientOptions { per_destination: 1, ..patient_options(rustls::RootCertStore::empty()) };
    let main = account("main", server.port, 0);
    let setup = Setup { client, ..Setup::new(Limited::default(), vec![main.clone()]) };
    let stand = Stand::start_with(setup).await;
    to_domains(&stand, 60).await;
    let mut minutes = 1;
    for asked in 1..=refused {
        stand
            .until("the account rests", |stand| stand.accounts.paused(&main, stand.clock.now()).is_some())
            .await;
        stand.settle().await;
        assert_eq!(heard(&server, "MAIL"), asked);
        let until = stand.accounts.paused(&main, stand.clock.now()).unwrap().until;
        assert_eq!(until.since(stand.clock.now()), Span::from_secs(60 * minutes));
        minutes = (minutes * 2).min(32);
        stand.advance(until.since(stand.clock.now()));
    }
    stand.until("an empty queue", |stand| stand.queue.is_empty()).await;
    assert_eq!(server.texts.lock().len(), 60);
    assert_eq!(bounced(&stand, 60), [] as [u128; 0]);
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mail_waits_for_an_account_until_its_lifetime_ends() {
    let server = Scripted::start(with(&[("MAIL", Act::Say(QUOTA))])).await;
    let stand = Stand::start(Limited::default(), vec![account("main", server.port, 0)]).await;
    to_domains(&stand, 1).await;
    for hour in 0..5 * 24 {
        stand.settle().await;
        assert_eq!(bounced(&stand, 1), [] as [u128; 0], "after {hour} hours");
        stand.advance(HOUR);
    }
    // Attempts in between use up no lifetime.
    for _ in 0..5 * 24 {
        stand.settle().await;
        if bounced(&stand, 1).is_empty() {
            stand.advance(HOUR);
        }
    }
    stand.until("it expires", |stand| !bounced(stand, 1).is_empty()).await;
    let RecipientState::Failed(last) = stand.show(0).items[0].1.recipients[0].state.clone() else { panic!() };
    assert_eq!(last.status, "5.4.7");
    assert!(last.reply.contains("5.4.5 Daily user sending limit exceeded"), "{last:?}");
    stand.settle().await;
    let heard = server.heard.lock().join("\n");
    assert!(!heard.contains("MAIL FROM:<>"), "the report waits, too: {heard}");
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_every_account_refuses_is_retried_and_delays_no_other() {
    let refused = ("MAIL FROM:<bad@", Act::Say("553 5.7.1 sender address rejected\r\n"));
    let server = Scripted::start(with(&[refused])).await;
    let stand = Stand::start(Limited::default(), vec![account("main", server.port, 0)]).await;
    let mut bad = envelope(0, &["a@there.example"]);
    bad.sender = Some("bad@here.example".to_owned());
    submit(&stand.queue, bad, b"x\r\n").await.unwrap();
    stand.until("the failure", |stand| stand.show(0).items[0].1.failures == 1).await;
    submit(&stand.queue, envelope(1, &["a@there.example"]), b"x\r\n").await.unwrap();
    stand.until("the other message", |stand| stand.show(1).kept.finished.is_some()).await;
    let shown = stand.show(0);
    let failed: Vec<_> = shown.events.iter().filter(|event| event.kind == EventKind::Failed).collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(failed[0].until, Some(START + Span::from_secs(120)));
    assert_eq!(&*failed[0].text, "553 5.7.1 sender address rejected");
    assert_eq!(bounced(&stand, 2), [] as [u128; 0]);
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_greylisted_recipient_does_not_stop_its_domain() {
    let script = with(&[
        ("RCPT TO:<grey@", times(1, "450 4.7.1 Greylisted, come back in 300 seconds\r\n")),
        ("RCPT TO:<slow@", Act::Say("450 4.7.1 too many messages, slow down\r\n")),
    ]);
    let server = Scripted::start(script).await;
    let stand = Stand::start(Limited::default(), vec![account("main", server.port, 0)]).await;
    submit(&stand.queue, envelope(0, &["grey@there.example"]), b"x\r\n").await.unwrap();
    stand.until("the failure", |stand| stand.show(0).items[0].1.failures == 1).await;
    submit(&stand.queue, envelope(1, &["a@there.example"]), b"x\r\n").await.unwrap();
    stand.until("the other message", |stand| stand.show(1).kept.finished.is_some()).await;
    submit(&stand.queue, envelope(2, &["gone@there.example", "slow@there.example"]), b"x\r\n").await.unwrap();
    stand.until("the failure", |stand| stand.show(2).items[0].1.failures == 1).await;
    stand.settle().await;
    let sleep = stand.sender.lanes()[0].sleep.clone().unwrap();
    assert_eq!(sleep.cause, Cause::Throttled);
    assert_eq!(sleep.reason, "450 4.7.1 too many messages, slow down", "the reply that caused it");
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_avoids_the_account_that_refused_the_text() {
    let first = Scripted::start(with(&[(".", Act::Say("554 5.7.1 message rejected as spam\r\n"))])).await;
    let second = Scripted::start(polite()).await;
    let accounts = vec![account("first", first.port, 0), account("second", second.port, 1)];
    let stand = Stand::start(Limited::default(), accounts).await;
    let mut named = envelope(0, &["a@there.example"]);
    named.account = Some("first".to_owned());
    submit(&stand.queue, named, b"x\r\n").await.unwrap();
    stand.until("an empty queue", |stand| stand.queue.is_empty()).await;
    assert_eq!((first.texts.lock().len(), second.texts.lock().len()), (1, 1));
    assert!(second.texts.lock()[0].contains("message rejected as spam"));
    assert!(stand.page().contains("tollgate_relay_reports_failed_total 0"));
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_that_is_given_up_is_counted() {
    let script = with(&[("RCPT", Act::Say("550 5.1.1 no such user\r\n"))]);
    let server = Scripted::start(script).await;
    let stand = Stand::start(Limited::default(), vec![account("main", server.port, 0)]).await;
    to_domains(&stand, 1).await;
    stand.until("an empty queue", |stand| stand.queue.is_empty()).await;
    stand.until("the count", |stand| stand.page().contains("tollgate_relay_reports_failed_total 1\n")).await;
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_of_the_operator_lets_an_account_sleep() {
    let server = Scripted::start(with(&[(".", Act::Say("550 limite giornaliero raggiunto\r\n"))])).await;
    let nap = Span::from_secs(600);
    let rule = ReplyRule {
        pattern: ReplyPattern::new("limite*raggiunto").unwrap(),
        stages: Vec::new(),
        verdict: Verdict::Rest(Rest::Sleep(Some(nap))),
    };
    let rules = ReplyRules::new(vec![rule]);
    let client = ClientOptions { rules, ..patient_options(rustls::RootCertStore::empty()) };
    let main = account("main", server.port, 0);
    let stand =
        Stand::start_with(Setup { client, ..Setup::new(Limited::default(), vec![main.clone()]) }).await;
    to_domains(&stand, 1).await;
    stand.until("the account sleeps", |stand| stand.accounts.paused(&main, START).is_some()).await;
    assert_eq!(stand.accounts.paused(&main, START).unwrap().until, START + nap);
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_repeats_the_login_reveals_no_password() {
    let script = with(&[
        ("EHLO", Act::Say("250-script.example\r\n250 AUTH PLAIN\r\n")),
        ("AUTH", Act::Say("500 unknown: AUTH PLAIN AHUAc2VjcmV0LXBhc3N3b3Jk, secret-password\r\n")),
    ]);
    let server = Scripted::start(script).await;
    let mut main = account("main", server.port, 0);
    main.destination.login = Some(Login { user: "u".to_owned(), password: "secret-password".to_owned() });
    let stand = Stand::start(Limited::default(), vec![main.clone()]).await;
    to_domains(&stand, 1).await;
    stand.until("the account rests", |stand| stand.accounts.paused(&main, START).is_some()).await;
    stand.settle().await;
    let shown =
        format!("{:?} {:?} {:?}", stand.accounts.paused(&main, START), stand.sender.lanes(), stand.show(0));
    assert!(!shown.contains("secret-password") && !shown.contains("AHUAc2Vj"), "{shown}");
    assert!(shown.contains("AUTH PLAIN ***"), "{shown}");
    stand.stop().await;
}
