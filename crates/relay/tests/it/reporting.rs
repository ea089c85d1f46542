//! Delivery reports on their whole way: a sender is told of a failure whatever the next hop can take.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use crate::keeping::script::{Act, Scripted, with};
use crate::keeping::stand::{Limited, Setup, Stand, account};
use crate::keeping::{START, envelope, patient_options, submit};
use tollgate_core::Clock;
use tollgate_relay::client::ClientOptions;
use tollgate_relay::lanes::Retry;
use tollgate_relay::message::{Envelope, Needs};
use tollgate_relay::queue::EventKind;
use tollgate_relay::seven_bit::EightBit;

const PLAIN: &str = "250-script.example\r\n250 PIPELINING\r\n";
const PLAIN_SIZE: &str = "250-script.example\r\n250 SIZE 1000000\r\n";

/// Sends a message that the next hop cannot take. Returns the texts that the next hop got: the report, if there is one.
async fn reports(server: &Scripted, envelope: Envelope, text: &[u8]) -> Vec<String> {
    let stand = Stand::start(Limited::default(), vec![account("main", server.port, 0)]).await;
    let id = envelope.id.0;
    submit(&stand.queue, envelope, text).await.unwrap();
    stand.until("an empty queue", |stand| stand.queue.is_empty()).await;
    assert!(stand.show(id).events.iter().any(|event| event.kind == EventKind::Bounced));
    stand.stop().await;
    server.texts.lock().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_smtputf8_gets_the_report_about_an_address_that_needs_it() {
    let server = Scripted::start(with(&[("EHLO", Act::Say(PLAIN))])).await;
    let needs = Needs { eight_bit: true, utf8: true };
    let mut envelope = Envelope { needs, ..envelope(1, &["jörg+x@there.example"]) };
    envelope.report.full = true;
    let texts = reports(&server, envelope, "Subject: grüße\r\n\r\nschön\r\n".as_bytes()).await;
    assert_eq!(texts.len(), 1, "{texts:?}");
    let report = &texts[0];
    assert!(report.is_ascii(), "{report}");
    for part in [
        "Content-Type: message/delivery-status\r\n",
        "Final-Recipient: utf-8; j\\x{F6}rg\\x{2B}x@there.example\r\n",
        "Status: 5.6.7\r\n",
        "<j\\x{F6}rg+x@there.example>:\r\n",
        "Content-Type: message/global-headers\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n",
        "Subject: gr=C3=BC=C3=9Fe\r\n",
    ] {
        assert!(report.contains(part), "{part:?} is missing in {report}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_8bitmime_gets_the_text_in_7_bits_unless_the_operator_says_otherwise() {
    let text = "Subject: x\r\n\r\nschön\r\n";
    for (eight_bit, body) in [
        (EightBit::Convert, "Content-Transfer-Encoding: quoted-printable\r\n\r\nsch=C3=B6n\r\n"),
        (EightBit::Send, "Subject: x\r\n\r\nschön\r\n"),
    ] {
        let server = Scripted::start(with(&[("EHLO", Act::Say(PLAIN_SIZE))])).await;
        let client = ClientOptions { eight_bit, ..patient_options(rustls::RootCertStore::empty()) };
        let accounts = vec![account("main", server.port, 0)];
        let stand = Stand::start_with(Setup { client, ..Setup::new(Limited::default(), accounts) }).await;
        let needs = Needs { eight_bit: true, utf8: false };
        let envelope = Envelope { needs, ..envelope(1, &["a@there.example"]) };
        submit(&stand.queue, envelope, text.as_bytes()).await.unwrap();
        stand.until("an empty queue", |stand| stand.queue.is_empty()).await;
        assert!(stand.show(1).events.iter().any(|event| event.kind == EventKind::Sent), "{eight_bit:?}");
        let sent = server.texts.lock()[0].clone();
        assert!(sent.ends_with(body), "{eight_bit:?}: {sent}");
        let size = format!("MAIL FROM:<app@here.example> SIZE={}", sent.len());
        assert!(server.heard.lock().contains(&size), "{:?}", server.heard.lock());
        stand.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_never_takes_a_message_ends_in_one_report() {
    let script = with(&[
        ("RCPT TO:<busy@", Act::Say("451 4.2.1 later\r\n")),
        ("RCPT TO:<gone@", Act::Say("550 5.1.1 no such user\r\n")),
    ]);
    let server = Scripted::start(script).await;
    let stand = Stand::start(Limited::default(), vec![account("main", server.port, 0)]).await;
    let to = ["busy@there.example", "gone@elsewhere.example", "a@fine.example"];
    submit(&stand.queue, envelope(1, &to), b"Subject: x\r\n\r\nx\r\n").await.unwrap();
    let lifetime = Retry::default().lifetime;
    stand.until("the others are settled", |stand| stand.sender.lanes().len() == 1).await;
    while stand.clock.now() < START + lifetime {
        stand.settle().await;
        assert_eq!(stand.queue.len(), 1, "it is tried until its lifetime is over");
        let due = stand.sender.lanes()[0].next_due.unwrap();
        stand.advance(due.since(stand.clock.now()));
    }
    stand.until("an empty queue", |stand| stand.queue.is_empty()).await;
    let texts = server.texts.lock().clone();
    assert_eq!(texts.len(), 2, "the message for one recipient, and one report: {texts:?}");
    let report = &texts[1];
    for part in [
        "Final-Recipient: rfc822; busy@there.example\r\nAction: failed\r\nStatus: 5.4.7\r\n",
        "Final-Recipient: rfc822; gone@elsewhere.example\r\nAction: failed\r\nStatus: 5.1.1\r\n",
        "last error: 451 4.2.1 later",
    ] {
        assert!(report.contains(part), "{part:?} is missing in {report}");
    }
    assert!(!report.contains("fine.example"), "{report}");
    assert_eq!(stand.clock.now(), START + lifetime, "the last attempt is at the end");
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_null_sender_gets_no_report() {
    let server = Scripted::start(with(&[("RCPT", Act::Say("550 5.1.1 no such user\r\n"))])).await;
    let texts =
        reports(&server, Envelope { sender: None, ..envelope(1, &["a@there.example"]) }, b"x\r\n").await;
    assert_eq!(texts, Vec::<String>::new());
    assert_eq!(server.heard.lock().iter().filter(|line| line.starts_with("MAIL")).count(), 1);
}
