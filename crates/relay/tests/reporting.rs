//! Delivery reports on their whole way: a sender is told of a failure whatever the next hop can take.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod keeping;

use keeping::script::{Act, Scripted, with};
use keeping::stand::{Limited, Stand, account};
use keeping::{envelope, submit};
use tollgate_relay::message::{Envelope, Needs};
use tollgate_relay::queue::EventKind;

const PLAIN: &str = "250-script.example\r\n250 PIPELINING\r\n";

/// Sends a message that the next hop cannot take. Answers the texts that the next hop got: the report, if there is one.
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
async fn a_server_without_8bitmime_gets_the_report_about_a_text_that_needs_it() {
    let server = Scripted::start(with(&[("EHLO", Act::Say(PLAIN))])).await;
    let needs = Needs { eight_bit: true, utf8: false };
    let mut envelope = Envelope { needs, ..envelope(1, &["a@there.example"]) };
    envelope.report.full = true;
    let texts = reports(&server, envelope, b"Subject: gr\xfc\xdfe\r\n\r\nsch\xf6n\r\n").await;
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert!(texts[0].is_ascii() && texts[0].contains("Status: 5.6.3\r\n"), "{}", texts[0]);
    assert!(texts[0].contains(
        "Content-Type: text/rfc822-headers\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n\
         Subject: gr=FC=DFe\r\n"
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_null_sender_gets_no_report() {
    let server = Scripted::start(with(&[("RCPT", Act::Say("550 5.1.1 no such user\r\n"))])).await;
    let texts =
        reports(&server, Envelope { sender: None, ..envelope(1, &["a@there.example"]) }, b"x\r\n").await;
    assert_eq!(texts, Vec::<String>::new());
    assert_eq!(server.heard.lock().iter().filter(|line| line.starts_with("MAIL")).count(), 1);
}
