//! The client against real servers: `smtp-sink` and Postfix.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use crate::keeping::{envelope, patient_options, plain, text};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tollgate_relay::client::{Answer, Client, Delivery, Destination, Progress, TlsMode};
use tollgate_relay::message::Envelope;
use tollgate_testbed::{Postfix, Sink, wait_until};

async fn transact(client: &Client, destination: &Destination, envelope: &Envelope, bytes: &[u8]) -> Delivery {
    let idle = client.idle(destination);
    let mut connection = match idle {
        Some(connection) => connection,
        None => client.connect(destination).await.unwrap(),
    };
    let recipients: Vec<_> = envelope.recipients.iter().collect();
    let times = &client.options().timeouts;
    let delivery = connection.transact(envelope, &recipients, text(bytes), times).await;
    client.give_back(connection);
    delivery
}

const DOTS: &[u8] = b"Subject: dots\r\n\r\n.\r\n..\r\n.a\r\nb.\r\n";

#[tokio::test]
async fn a_sink_gets_what_was_sent() {
    let sink = Sink::start();
    let client = Client::new(patient_options(rustls::RootCertStore::empty()));
    let envelope = envelope(1, &["a@there.example", "b@there.example"]);
    for _ in 0..3 {
        let delivery = transact(&client, &plain(sink.port()), &envelope, DOTS).await;
        assert_eq!(delivery.progress, Progress::Answered, "{delivery:?}");
    }
    wait_until("three messages", || sink.count() == 3);
    for message in sink.messages() {
        assert!(message.sender.starts_with("<app@here.example>"), "{message:?}");
        assert_eq!(message.recipients.len(), 2);
        assert!(message.text.contains("Subject: dots\n\n.\n..\n.a\nb.\n"), "{message:?}");
    }
}

#[tokio::test]
async fn a_sink_that_refuses_is_understood() {
    for (options, progress) in [
        (&["-f", "MAIL"][..], Progress::BeforeData),
        (&["-r", "RCPT"], Progress::BeforeData),
        (&["-f", "DATA"], Progress::BeforeData),
        (&["-f", "RCPT"], Progress::BeforeData),
        (&["-r", "."], Progress::Answered),
        (&["-q", "."], Progress::Unknown),
        (&["-q", "MAIL"], Progress::BeforeMail),
    ] {
        let sink = Sink::start_with(options);
        let client = Client::new(patient_options(rustls::RootCertStore::empty()));
        let delivery = transact(&client, &plain(sink.port()), &envelope(1, &["a@b.example"]), DOTS).await;
        assert_eq!(delivery.progress, progress, "{options:?}: {delivery:?}");
        let permanent = matches!(delivery.answers[0], Answer::Permanent(_));
        assert_eq!(permanent, *options == ["-f", "RCPT"], "{options:?}: {delivery:?}");
        assert_eq!(delivery.refused.is_some(), matches!(options, ["-f", "MAIL" | "DATA"]), "{delivery:?}");
    }
}

#[tokio::test]
async fn postfix_takes_mail_over_verified_tls_and_hands_it_on() {
    let sink = Sink::start();
    let postfix = Postfix::start(sink.port());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(postfix.authority()).unwrap()).unwrap();
    let client = Client::new(patient_options(roots));
    let destination = Destination {
        host: "localhost".to_owned(),
        port: postfix.port(),
        tls: TlsMode::StartTls,
        login: None,
    };
    let mut envelope = envelope(1, &["a@there.example", "b@there.example"]);
    envelope.report.envelope_id = Some("QQ+314=159".to_owned());
    envelope.recipients[0].original = Some("rfc822;old+name@there.example".to_owned());
    envelope.needs.eight_bit = true;
    let mut long = "Subject: größer\r\n\r\n".to_owned();
    (0..40_000).for_each(|line| long.push_str(&format!(".line {line} ist größer\r\n")));
    for bytes in [DOTS, long.as_bytes()] {
        let delivery = transact(&client, &destination, &envelope, bytes).await;
        assert_eq!(delivery.progress, Progress::Answered, "{delivery:?}: {}", postfix.log());
        assert!(delivery.answers.iter().all(|answer| matches!(answer, Answer::Sent(_))), "{delivery:?}");
    }
    wait_until("two messages behind Postfix", || sink.count() == 2);
    let messages = sink.messages();
    let long = messages.iter().find(|message| message.text.contains("größer")).unwrap();
    assert!(long.text.contains("\n.line 0 ist größer\n"));
    assert!(long.text.ends_with("\n.line 39999 ist größer\n"), "{:?}", long.text.len());
    let dots = messages.iter().find(|message| message.text.contains("dots")).unwrap();
    assert!(dots.text.contains("\n\n.\n..\n.a\nb.\n"), "{dots:?}");
}
