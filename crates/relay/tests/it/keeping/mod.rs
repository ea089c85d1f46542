//! What the tests of the relay share: envelopes, queues, and a disk that forgets.

#![allow(dead_code, clippy::unwrap_used, reason = "shared by several tests, each of which uses a part")]

pub(crate) mod dns;
pub(crate) mod forgetful;
pub(crate) mod script;
pub(crate) mod stand;
pub(crate) mod watched;

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Clock, Timestamp};
use tollgate_relay::client::{ClientOptions, Destination, Timeouts, TlsMode};
use tollgate_relay::lanes::Priority;
use tollgate_relay::message::{
    Accepted, Envelope, Intake, IntakeError, MessageId, Needs, Notify, Origin, Recipient, ReportWish,
};
use tollgate_relay::queue::disk::Disk;
use tollgate_relay::queue::{Opened, Queue, QueueOptions, Text};
use tollgate_relay::replies::ReplyRules;
use tollgate_relay::seven_bit::EightBit;
use tollgate_store::ManualClock;

/// A Sunday in November 2026, half past eight in the evening.
pub(crate) const START: Timestamp = Timestamp::from_micros(1_794_774_600_000_000);

pub(crate) fn options() -> QueueOptions {
    QueueOptions { hostname: "relay.example".to_owned(), min_free: 0, ..QueueOptions::default() }
}

pub(crate) fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(START))
}

pub(crate) fn open(disk: Arc<dyn Disk>, clock: &Arc<ManualClock>) -> (Queue, Opened) {
    open_with(disk, clock, options())
}

pub(crate) fn open_with(
    disk: Arc<dyn Disk>,
    clock: &Arc<ManualClock>,
    options: QueueOptions,
) -> (Queue, Opened) {
    Queue::open(disk, Arc::clone(clock) as Arc<dyn Clock>, options).unwrap()
}

/// An envelope from `app@here.example`.
pub(crate) fn envelope(id: u128, recipients: &[&str]) -> Envelope {
    let recipient = |address: &&str| Recipient {
        address: (*address).to_owned(),
        domain: address.rsplit_once('@').unwrap().1.to_owned(),
        notify: Notify::default(),
        original: None,
    };
    Envelope {
        id: MessageId(id),
        tenant: "acme".to_owned(),
        account: None,
        priority: Priority::Normal,
        sender: Some("app@here.example".to_owned()),
        recipients: recipients.iter().map(recipient).collect(),
        accepted: START,
        needs: Needs::default(),
        report: ReportWish::default(),
        message_id: None,
        origin: Origin::default(),
        idempotency: None,
    }
}

/// Puts a message into a queue.
pub(crate) async fn submit(queue: &Queue, envelope: Envelope, text: &[u8]) -> Result<Accepted, IntakeError> {
    let mut incoming = queue.begin(Some(text.len() as u64)).await?;
    for piece in text.chunks(10_000) {
        incoming.write(piece).await?;
    }
    incoming.commit(envelope).await
}

/// A text of this size that differs from message to message.
pub(crate) fn text_of(id: u128, size: usize) -> Vec<u8> {
    let line = format!("Subject: {id}\r\n\r\n");
    let mut text = line.into_bytes();
    while text.len() + 2 < size {
        text.push(b'a' + u8::try_from((text.len() as u128 + id) % 26).unwrap());
    }
    text.extend_from_slice(b"\r\n");
    text
}

/// Everything that is left of a text.
pub(crate) fn read_text(queue: &Queue, id: u128) -> Vec<u8> {
    let shown = queue.show(MessageId(id)).unwrap().unwrap();
    let mut bytes = Vec::new();
    queue.text(&shown.kept).unwrap().bytes.read_to_end(&mut bytes).unwrap();
    bytes
}

/// A client that is quick to give up.
pub(crate) fn client_options(roots: rustls::RootCertStore) -> ClientOptions {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let (short, long) = (Duration::from_secs(2), Duration::from_secs(30));
    ClientOptions {
        hostname: "relay.example".to_owned(),
        tls: Arc::new(tls),
        timeouts: Timeouts {
            connect: long,
            greeting: long,
            command: short,
            data_start: short,
            data_piece: long,
            data_end: short,
            last_words: short,
        },
        per_destination: 2,
        per_connection: 100,
        idle: long,
        rules: ReplyRules::default(),
        eight_bit: EightBit::default(),
    }
}

/// A client as it is in production, but for TLS.
pub(crate) fn patient_options(roots: rustls::RootCertStore) -> ClientOptions {
    ClientOptions { timeouts: Timeouts::default(), per_destination: 10, ..client_options(roots) }
}

/// A server on loopback without TLS.
pub(crate) fn plain(port: u16) -> Destination {
    Destination { host: "127.0.0.1".to_owned(), port, tls: TlsMode::None, login: None }
}

/// A text as the queue would give it.
pub(crate) fn text(bytes: &[u8]) -> Text {
    use std::hash::Hasher;
    let mut hasher = siphasher::sip::SipHasher13::new();
    hasher.write(bytes);
    let reader = Box::new(std::io::Cursor::new(bytes.to_vec()));
    Text { bytes: reader, size: bytes.len() as u64, checksum: hasher.finish() }
}
