//! Accepting a message without any door: who is charged for what, and what is kept.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

#[allow(dead_code, reason = "shared with the tests of sending, which use the rest")]
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::keeping::watched::Watched;
use crate::support::{self, Stand, by_recipients, policies, rule};
use tollgate_core::Clock;
use tollgate_engine::Parts;
use tollgate_relay::acceptance::{
    AcceptTerms, Acceptance, Limited, NotAccepted, RefusalReason, Submission, Via,
};
use tollgate_relay::lanes::Priority;
use tollgate_relay::message::{Accepted, Idempotency, Notify, Recipient, ReportWish};
use tollgate_relay::session::address::Address;
use tollgate_relay::session::data::DataFault;
use tollgate_relay::session::headers::HeaderFault;
use tollgate_relay::session::{Identity, TextFault};
use tollgate_store::{ManualClock, MemoryStore};

const TEXT: &[u8] = b"Subject: test\r\nMessage-ID: <one@x.test>\r\n\r\ntext\r\n";

fn submission(recipients: &[&str]) -> Submission {
    let recipient = |address: &&str| {
        let Address { text, domain } = Address::read(address).unwrap();
        Recipient { address: text, domain, notify: Notify::default(), original: None }
    };
    Submission {
        identity: Identity {
            user: None,
            api_key: Some("ci".into()),
            tenant: "acme".into(),
            senders: Arc::new(["x.test".to_owned()]),
        },
        client: IpAddr::from([192, 0, 2, 1]),
        sender: Address::read("a@x.test"),
        recipients: recipients.iter().map(recipient).collect(),
        account: Some("primary".to_owned()),
        priority: Priority::High,
        utf8: false,
        report: ReportWish::default(),
        idempotency: None,
        via: Via { client_name: None, protocol: "HTTP".to_owned() },
        correlation: None,
    }
}

fn named(key: &str, digest: u8) -> Submission {
    let (scope, key) = ("ci".to_owned(), key.to_owned());
    let idempotency = Some(Idempotency { scope, key, digest: [digest; 32], repeated: false });
    Submission { idempotency, ..submission(&["b@y.test"]) }
}

fn submit(stand: &Stand, submission: Submission, text: &[u8]) -> Result<Accepted, NotAccepted> {
    stand.runtime.block_on(async {
        let mut acceptance = Acceptance::begin(&stand.doors, submission, None).await?;
        for piece in text.chunks(7) {
            if let Err(refusal) = acceptance.write(piece).await {
                acceptance.abandon().await;
                return Err(refusal);
            }
        }
        acceptance.finish().await
    })
}

fn reason(result: Result<Accepted, NotAccepted>) -> RefusalReason {
    result.unwrap_err().reason
}

/// A stand that allows so many messages of an API key.
fn stand(limit: &str) -> Stand {
    Stand::new(policies(vec![rule("api_key", &["api_key"], &[limit])], &[("accept", &["api_key"])]), |_| {})
}

#[test]
fn a_message_in_the_queue_is_acknowledged_though_its_count_is_not_on_disk() {
    let clock = Arc::new(ManualClock::at(support::START));
    let store = Arc::new(Watched::new(&clock, |_| {}));
    let records = MemoryStore::new(Arc::clone(&clock) as Arc<dyn Clock>, 1_000);
    let parts = Parts { store: store.as_store(), records: Arc::new(records), fallback: None };
    let limited = policies(vec![rule("api_key", &["api_key"], &["2/hour"])], &[("accept", &["api_key"])]);
    let stand = Stand::over(limited, parts, clock, |_| {});
    store.fails.store(true, Ordering::SeqCst);
    assert!(matches!(submit(&stand, submission(&["b@y.test"]), TEXT), Ok(Accepted::Now(_))));
    assert_eq!(stand.intake.count(), 1, "refused, it would come twice");
    assert_eq!(stand.left("accept", &[("api_key", "ci")]), [1], "it is counted as long as the store runs");
    // What the queue does not take is refused and refunded, whatever the store can save.
    stand.intake.fail(support::intake::Fails::AtCommit);
    assert!(matches!(reason(submit(&stand, submission(&["b@y.test"]), TEXT)), RefusalReason::Failed));
    assert_eq!((stand.intake.count(), stand.left("accept", &[("api_key", "ci")])), (1, vec![1]));
}

#[test]
fn a_message_is_kept_with_all_that_is_known_of_it() {
    let stand = stand("1/hour");
    let Ok(Accepted::Now(id)) = submit(&stand, submission(&["b@y.test", "c@z.test", "b@y.test"]), TEXT)
    else {
        panic!("it is accepted")
    };
    let (envelope, text) = stand.intake.only();
    assert_eq!((envelope.id, &*envelope.tenant, envelope.account.as_deref()), (id, "acme", Some("primary")));
    assert_eq!((envelope.priority, envelope.recipients.len()), (Priority::High, 2), "one copy for each");
    assert_eq!(envelope.message_id.as_deref(), Some("<one@x.test>"));
    assert_eq!(envelope.origin.api_key.as_deref(), Some("ci"));
    assert_eq!(envelope.origin.client, Some(IpAddr::from([192, 0, 2, 1])));
    assert!(
        text.starts_with("Received: from unknown ([192.0.2.1])\r\n\tby relay.test with HTTP id "),
        "{text}"
    );
    // The API key is a level of its own.
    let refusal = submit(&stand, submission(&["b@y.test"]), TEXT).unwrap_err();
    let limited = Limited {
        rule: "api_key".into(),
        key: Some("ci".to_owned()),
        limit: "1/hour".to_owned(),
        retry_secs: Some(3_600),
        never_fits: false,
    };
    assert_eq!(refusal.reason, RefusalReason::Limited(limited));
    let journal = stand.engine.observer.journal.latest(10);
    assert_eq!(journal[0].correlation.as_deref(), Some(&*refusal.correlation), "the journal names its id");
}

#[test]
fn a_repeated_submission_costs_nothing_and_passes_a_limit_that_is_used_up() {
    let stand = stand("2/hour");
    let left = || stand.left("accept", &[("api_key", "ci")])[0];
    let Ok(Accepted::Now(first)) = submit(&stand, named("n", 1), TEXT) else { panic!("it is accepted") };
    assert_eq!(left(), 1);
    assert_eq!(submit(&stand, named("n", 1), TEXT), Ok(Accepted::Before(first)));
    assert_eq!(left(), 1, "nothing was added, so nothing is charged");
    assert_eq!(reason(submit(&stand, named("n", 2), TEXT)), RefusalReason::Conflict);
    assert_eq!(left(), 1);
    submit(&stand, named("other", 1), TEXT).unwrap();
    assert_eq!(left(), 0);
    assert_eq!(submit(&stand, named("n", 1), TEXT), Ok(Accepted::Before(first)), "the limit is used up");
    assert_eq!(stand.intake.count(), 2);
}

#[test]
fn a_message_that_does_not_come_in_costs_nothing() {
    let rules = vec![by_recipients("sender", &["sender"], &["10/hour"])];
    let stand = Stand::new(policies(rules, &[("accept", &["sender"])]), |settings| {
        (settings.terms.max_size, settings.terms.max_recipients) = (1_000, 3);
    });
    let text = |fault| RefusalReason::Text(fault);
    let to = |count: usize| {
        let addresses: Vec<String> = (0..count).map(|number| format!("{number}@y.test")).collect();
        submission(&addresses.iter().map(|address| &**address).collect::<Vec<_>>())
    };
    let bare = text(TextFault::Data(DataFault::BareLineEnd));
    assert_eq!(reason(submit(&stand, to(1), b"a: b\r\n\r\nbare\nlf\r\n")), bare);
    assert_eq!(reason(submit(&stand, to(1), b"a: b\r\n\r\nbare cr\r")), bare);
    assert_eq!(reason(submit(&stand, to(1), b"a: b\r\n\r\nx\0\r\n")), text(TextFault::Data(DataFault::Nul)));
    let large = text(TextFault::Data(DataFault::TooLarge));
    assert_eq!(reason(submit(&stand, to(1), &[b'x'; 1_001])), large);
    let mut looping = b"Received: x\r\n".repeat(101);
    looping.extend_from_slice(b"\r\n");
    let terms =
        tollgate_relay::acceptance::AcceptTerms { max_size: 10_000, ..(*stand.doors.terms()).clone() };
    stand.doors.reload(terms);
    assert_eq!(reason(submit(&stand, to(1), &looping)), text(TextFault::Header(HeaderFault::Loop)));
    assert_eq!(reason(submit(&stand, to(0), TEXT)), RefusalReason::NoRecipients);
    assert_eq!(reason(submit(&stand, to(4), TEXT)), RefusalReason::TooManyRecipients { most: 3 });
    let foreign = Submission { sender: Address::read("a@evil.test"), ..to(1) };
    let domain = "evil.test".to_owned();
    assert_eq!(reason(submit(&stand, foreign, TEXT)), RefusalReason::SenderNotAllowed { domain });
    for fails in [support::intake::Fails::FullAtOnce, support::intake::Fails::FullLater] {
        stand.intake.fail(fails);
        assert_eq!(reason(submit(&stand, to(2), TEXT)), RefusalReason::Full, "{fails:?}");
    }
    stand.intake.fail(support::intake::Fails::AtCommit);
    assert_eq!(reason(submit(&stand, to(2), TEXT)), RefusalReason::Failed);
    stand.intake.fail(support::intake::Fails::Never);
    assert_eq!(stand.left("accept", &[("sender", "a@x.test")]), [10]);
    assert_eq!((stand.intake.count(), stand.intake.begun_and_open().1), (0, 0));
    // A text without a line end at its end gets one.
    submit(&stand, to(2), b"Subject: x\r\n\r\nlast line").unwrap();
    assert!(stand.intake.only().1.ends_with("\r\n\r\nlast line\r\n"));
    assert_eq!(stand.left("accept", &[("sender", "a@x.test")]), [8]);
}

/// A header is in memory until it is complete.
#[test]
fn messages_on_their_way_in_share_a_bound_on_memory() {
    let stand = stand("1000000/day");
    let line = [&b"X-Filler: "[..], &[b'x'; 990], b"\r\n"].concat();
    let header = line.repeat(250);
    stand.runtime.block_on(async {
        let mut come = Vec::new();
        let refused = loop {
            let mut acceptance =
                Acceptance::begin(&stand.doors, submission(&["b@y.test"]), None).await.unwrap();
            if let Err(refusal) = acceptance.write(&header).await {
                acceptance.abandon().await;
                break refusal;
            }
            come.push(acceptance);
        };
        assert_eq!(refused.reason, RefusalReason::NoMemory);
        assert_eq!(come.len(), (256 << 20) / (2 * header.len()));
        drop(come);
    });
    submit(&stand, submission(&["b@y.test"]), TEXT).unwrap();
}

#[test]
fn from_and_sender_are_bound_to_the_senders_of_the_client() {
    let stand = stand("1000/hour");
    let send = |header: &str| {
        let text = format!("{header}\r\nSubject: x\r\n\r\nFrom: ceo@evil.test\r\n");
        submit(&stand, submission(&["b@y.test"]), text.as_bytes())
    };
    let fault = |fault| RefusalReason::Text(TextFault::Header(fault));
    for header in [
        "From: a@x.test",
        "From: Ada <a@X.test>",
        "FROM : Ada\r\n <a@x.test>",
        "From: a@x.test\r\nSender: list@x.test\r\nReply-To: b@elsewhere.test",
        "From: a@x.test\r\nResent-From: a@x.test\r\nResent-From: b@x.test",
        "To: b@y.test",
    ] {
        assert!(matches!(send(header), Ok(Accepted::Now(_))), "{header}");
    }
    for header in [
        "From: ceo@evil.test",
        "from:ceo@evil.test",
        "From : CEO\r\n\t<ceo@evil.test>",
        "From: a@x.test, ceo@evil.test",
        "From: \"ceo@evil.test\" <a@x.test>",
        "From: a@x.test\r\nSender: ceo@evil.test",
        "From: a@x.test\r\nResent-From: ceo@evil.test",
        "From: a@x.test\r\nResent-Sender: ceo@evil.test",
        "From: undisclosed",
    ] {
        assert_eq!(reason(send(header)), fault(HeaderFault::ForeignAuthor), "{header}");
    }
    let twice =
        ["From: a@x.test\r\nFrom: b@x.test", "From: a@x.test\r\nSender: a@x.test\r\nsender: a@x.test"];
    for header in twice {
        assert_eq!(reason(send(header)), fault(HeaderFault::SeveralAuthors), "{header}");
    }
    assert_eq!(stand.left("accept", &[("api_key", "ci")]), [994], "what is refused costs nothing");

    // The operator can leave it to the envelope; two fields are wrong for every client.
    let terms = AcceptTerms { check_from: false, ..(*stand.doors.terms()).clone() };
    stand.doors.reload(terms);
    assert!(send("From: ceo@evil.test").is_ok());
    assert_eq!(reason(send(twice[0])), fault(HeaderFault::SeveralAuthors));
}

#[test]
fn the_null_sender_is_counted_by_user_key_or_address() {
    let rules = vec![rule("sender", &["sender"], &["3/hour"]), rule("domain", &["domain"], &["2/hour"])];
    let stand = Stand::new(policies(rules, &[("accept", &["sender", "domain"])]), |_| {});
    let send = |user: Option<&str>, api_key: Option<&str>, client: [u8; 4]| {
        let identity = Identity {
            user: user.map(Into::into),
            api_key: api_key.map(Into::into),
            tenant: "acme".into(),
            senders: Arc::default(),
        };
        let client = IpAddr::from(client);
        let null = Submission { identity, client, sender: None, ..submission(&["b@y.test"]) };
        submit(&stand, null, TEXT)
    };
    let (one, other) = ([192, 0, 2, 1], [192, 0, 2, 2]);
    let long = "x".repeat(64);
    for (user, key, client, counted) in [
        (Some("app"), None, one, "app.user.null-sender.invalid"),
        (Some("ada@acme.example"), None, one, "ada.at.acme.example.user.null-sender.invalid"),
        (None, Some("app"), one, "app.key.null-sender.invalid"),
        (None, None, one, "[192.0.2.1]"),
        (None, None, other, "[192.0.2.2]"),
    ] {
        assert!(send(user, key, client).is_ok() && send(user, key, client).is_ok(), "{counted}");
        let RefusalReason::Limited(limited) = reason(send(user, key, client)) else { panic!("{counted}") };
        assert_eq!((&*limited.rule, limited.key.as_deref()), ("domain", Some(counted)));
    }
    // An IPv6 host has a whole /64.
    let from = |client: &str| {
        let identity = Identity { user: None, api_key: None, tenant: "acme".into(), senders: Arc::default() };
        let client = client.parse().unwrap();
        submit(&stand, Submission { identity, client, sender: None, ..submission(&["b@y.test"]) }, TEXT)
    };
    assert!(from("2001:db8::1").is_ok() && from("2001:db8::2").is_ok());
    let RefusalReason::Limited(limited) = reason(from("2001:db8::3")) else { panic!("not limited") };
    assert_eq!(limited.key.as_deref(), Some("[ipv6:2001:db8::]"));
    assert!(from("2001:db8:0:1::1").is_ok());
    // A name that no domain can contain.
    assert!(send(Some(&long), None, one).is_ok() && send(Some(&long), None, one).is_ok());
    assert!(send(Some(&long), None, one).is_err());

    // With `senders`, only those who may use it.
    let own = |senders: &[&str]| {
        let senders = senders.iter().map(|domain| (*domain).to_owned()).collect();
        let identity = Identity { user: Some("bound".into()), api_key: None, tenant: "acme".into(), senders };
        submit(&stand, Submission { identity, sender: None, ..submission(&["b@y.test"]) }, TEXT)
    };
    let domain = "<>".to_owned();
    assert_eq!(reason(own(&["x.test"])), RefusalReason::SenderNotAllowed { domain });
    assert!(own(&["x.test", "<>"]).is_ok());
}
