//! Messages through a real connection: what arrives, what is charged, and what is refunded.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crate::support::{self, intake::Fails};
use crate::support::{Stand, by_recipients, policies, rule};
use tollgate_core::Policies;
use tollgate_relay::message::{Needs, Notify, ReportWish};
use tollgate_testbed::wait_until;

/// All levels of the source: global, domain, sender, address, user.
fn levels() -> Policies {
    let rules = vec![
        rule("global", &[], &["100/hour"]),
        rule("domain", &["domain"], &["50/hour"]),
        rule("sender", &["sender"], &["3/hour"]),
        rule("ip", &["ip"], &["20/hour"]),
        rule("user", &["user"], &["10/hour"]),
    ];
    policies(rules, &[("accept", &["global", "domain", "sender", "ip", "user"])])
}

const FIELDS: [(&str, &str); 3] = [("domain", "x.test"), ("sender", "a@x.test"), ("ip", "127.0.0.1")];

#[test]
fn a_message_arrives_as_it_was_sent() {
    let stand = Stand::new(policies(vec![], &[]), |_| {});
    let mut client = stand.greeted();
    client.ask("MAIL FROM:<A@X.test> SIZE=100 RET=FULL ENVID=e+2B1");
    client.ask("RCPT TO:<b@Y.test.> NOTIFY=SUCCESS ORCPT=rfc822;orig@y.test");
    client.ask("RCPT TO:<\"c d\"@z.test>");
    client.ask("DATA");
    let reply = client.ask("Subject: hi\r\nBcc: hidden@x.test\r\n\r\n..dot\r\nh\u{e4}\r\n.");
    let (envelope, text) = stand.intake.only();
    let id = format!("{:032x}", envelope.id.0);
    assert_eq!(reply, format!("250 2.0.0 Ok: queued as {id}"));
    assert_eq!((&*envelope.tenant, envelope.sender.as_deref()), ("default", Some("A@X.test")));
    assert_eq!(envelope.recipients[0].address, "b@Y.test.");
    assert_eq!(envelope.recipients[0].domain, "y.test");
    assert_eq!(envelope.recipients[0].notify, Notify { success: true, failure: false, delay: false });
    assert_eq!(envelope.recipients[0].original.as_deref(), Some("rfc822;orig@y.test"));
    assert_eq!(envelope.recipients[1].address, "\"c d\"@z.test");
    assert_eq!(envelope.recipients[1].notify, Notify::default());
    assert_eq!(envelope.report, ReportWish { full: true, envelope_id: Some("e+1".to_owned()) });
    assert_eq!(envelope.needs, Needs { eight_bit: true, utf8: false });
    assert_eq!(envelope.accepted, support::START);
    let expected = format!(
        "Received: from client.test ([127.0.0.1])\r\n\tby relay.test with ESMTP id {id};\r\n\t\
         Sun, 15 Nov 2026 20:30:00 +0000\r\nSubject: hi\r\nDate: Sun, 15 Nov 2026 20:30:00 +0000\r\n\
         Message-ID: <{id}@relay.test>\r\n\r\n.dot\r\nh\u{e4}\r\n"
    );
    assert_eq!(text, expected);
}

#[test]
fn all_levels_are_charged_together_and_the_first_exceeded_is_named() {
    let stand = Stand::new(levels(), |_| {});
    let mut client = stand.greeted();
    for _ in 0..3 {
        assert!(client.message("a@x.test", &["b@y.test", "c@y.test"]).starts_with("250 2.0.0"));
    }
    assert_eq!(stand.left("accept", &FIELDS), [97, 47, 0, 17]);
    stand.advance(600);
    let refused = client.message("a@x.test", &["b@y.test"]);
    assert_eq!(refused, "451 4.7.1 Rate limit exceeded: sender a@x.test, 3/hour; try again in 3000 s");
    let journal = stand.engine.observer.journal.latest(1);
    assert_eq!(journal[0].correlation, client.id, "the reply names the entry of the journal");
    assert_eq!(
        stand.left("accept", &FIELDS),
        [97, 47, 0, 17],
        "a refused message takes nothing at any level"
    );
    // Case makes no other sender.
    assert!(client.message("A@X.Test", &["b@y.test"]).starts_with("451 4.7.1"));
    assert!(client.message("other@x.test", &["b@y.test"]).starts_with("250"));
    stand.advance(3_000);
    assert!(client.message("a@x.test", &["b@y.test"]).starts_with("250"));
    assert_eq!(stand.intake.count(), 5);
}

#[test]
fn the_null_sender_has_its_own_count_at_each_level() {
    let stand = Stand::new(levels(), |_| {});
    let mut client = stand.greeted();
    for _ in 0..3 {
        assert!(client.message("", &["b@y.test"]).starts_with("250"));
    }
    let refused = client.message("", &["b@y.test"]);
    assert!(
        refused.starts_with("451 4.7.1 Rate limit exceeded: sender null-sender@[127.0.0.1]"),
        "{refused}"
    );
    assert_eq!(stand.left("accept", &FIELDS), [97, 50, 3, 17], "no other sender has paid");
    assert_eq!(stand.intake.kept()[0].0.sender, None);
}

#[test]
fn rules_may_count_recipients() {
    let rules = vec![by_recipients("sender", &["sender"], &["10/hour"]), rule("ip", &["ip"], &["100/hour"])];
    let stand = Stand::new(policies(rules, &[("accept", &["sender", "ip"])]), |_| {});
    let mut client = stand.greeted();
    let left = || stand.left("accept", &[("sender", "a@x.test"), ("ip", "127.0.0.1"), ("recipients", "1")]);
    assert!(client.message("a@x.test", &["1@y.test", "2@y.test", "3@y.test", "4@y.test"]).starts_with("250"));
    assert_eq!(left(), [6, 99]);
    let many: Vec<String> = (0..7).map(|number| format!("{number}@y.test")).collect();
    let many: Vec<&str> = many.iter().map(|address| &**address).collect();
    let refused = client.message("a@x.test", &many);
    assert!(refused.starts_with("451 4.7.1 Rate limit exceeded: sender a@x.test, 10/hour;"), "{refused}");
    assert_eq!(left(), [6, 99]);
    // Eleven never fit: the last of them is refused, and the others are kept.
    client.ask("MAIL FROM:<b@x.test>");
    for number in 0..10 {
        assert_eq!(client.ask(&format!("RCPT TO:<{number}@y.test>")), "250 2.1.5 Ok");
    }
    assert!(client.ask("RCPT TO:<10@y.test>").starts_with("452 4.5.3 Too many recipients: at most 10"));
    client.ask("DATA");
    assert!(client.ask("text\r\n.").starts_with("250"));
    assert_eq!(stand.intake.kept()[1].0.recipients.len(), 10);
}

#[test]
fn recipients_per_message_are_bounded_for_each_sender_domain() {
    let mut domain = rule("domain", &["domain"], &["100/hour"]);
    let bound = ["100/hour".parse().unwrap(), "2 recipients per attempt".parse().unwrap()];
    let plan = tollgate_core::Plan::new("domain".into(), bound.to_vec()).unwrap();
    domain.overrides.insert("small.test".into(), plan.into());
    let stand = Stand::new(policies(vec![domain], &[("accept", &["domain"])]), |_| {});
    let mut client = stand.greeted();
    client.ask("MAIL FROM:<a@small.test>");
    assert_eq!(client.ask("RCPT TO:<1@y.test>"), "250 2.1.5 Ok");
    assert_eq!(client.ask("RCPT TO:<2@y.test>"), "250 2.1.5 Ok");
    assert!(client.ask("RCPT TO:<3@y.test>").starts_with("452 4.5.3"));
    assert!(client.ask("DATA").starts_with("354"));
    assert!(client.ask("text\r\n.").starts_with("250"));
    assert!(client.message("a@large.test", &["1@y.test", "2@y.test", "3@y.test"]).starts_with("250"));
}

#[test]
fn a_message_that_is_not_accepted_costs_nothing() {
    let stand = Stand::new(levels(), |settings| settings.terms.max_size = 1_000);
    let untouched = [100, 50, 3, 20];
    let check = |what: &str| {
        wait_until(what, || stand.intake.begun_and_open().1 == 0);
        wait_until(what, || stand.left("accept", &FIELDS) == untouched);
        assert_eq!(stand.intake.count(), 0, "{what}");
    };
    let mut client = stand.greeted();
    assert!(client.announce("a@x.test", &["b@y.test"]).starts_with("354"));
    assert_eq!(stand.left("accept", &FIELDS), [99, 49, 2, 19], "it is charged before 354");
    client.send("half a message");
    client.abort();
    check("the client hangs up");
    let mut client = stand.greeted();
    client.announce("a@x.test", &["b@y.test"]);
    assert!(client.ask(&format!("{}\r\n.", "x".repeat(1_001))).starts_with("552 5.3.4"));
    check("too large");
    client.announce("a@x.test", &["b@y.test"]);
    assert!(client.ask("bare\nlf\r\n.").starts_with("550 5.5.2"));
    check("malformed");
    client.announce("a@x.test", &["b@y.test"]);
    let hops = "Received: x\r\n".repeat(60);
    assert!(client.ask(&format!("{hops}\r\n.")).starts_with("250"), "sixty hops are not too many");
}

#[test]
fn a_message_that_cannot_be_stored_costs_nothing() {
    let stand = Stand::new(levels(), |_| {});
    let mut client = stand.greeted();
    for (fails, reply) in [
        (Fails::FullAtOnce, "452 4.3.1 Queue is full; try again later"),
        (Fails::FullLater, "452 4.3.1 Queue is full; try again later"),
        (Fails::AtCommit, "451 4.3.0 Message not stored; try again later"),
    ] {
        stand.intake.fail(fails);
        assert_eq!(client.message("a@x.test", &["b@y.test"]), reply);
        assert_eq!(stand.left("accept", &FIELDS), [100, 50, 3, 20], "{fails:?}");
    }
    stand.intake.fail(Fails::Never);
    assert!(client.message("a@x.test", &["b@y.test"]).starts_with("250"), "it recovers by itself");
    assert_eq!(stand.left("accept", &FIELDS), [99, 49, 2, 19]);
}

#[test]
fn loops_are_stopped() {
    let stand = Stand::new(levels(), |_| {});
    let mut client = stand.greeted();
    client.announce("a@x.test", &["b@y.test"]);
    let hops = "Received: from x\r\n\tby y\r\n".repeat(101);
    assert_eq!(
        client.ask(&format!("{hops}\r\ntext\r\n.")),
        "554 5.4.6 Too many hops: the message is in a loop"
    );
    assert_eq!(stand.left("accept", &FIELDS), [100, 50, 3, 20]);
}

#[test]
fn limits_that_are_switched_off_or_do_not_apply_let_mail_pass() {
    let rules = || vec![rule("user", &["user"], &["1/hour"]), rule("ip", &["ip"], &["1/hour"])];
    let mut off = policies(rules(), &[("accept", &["ip"])]);
    off.enabled = false;
    let stand = Stand::new(off, |_| {});
    for _ in 0..3 {
        assert!(stand.greeted().message("a@x.test", &["b@y.test"]).starts_with("250"));
    }
    let stand = Stand::new(policies(rules(), &[("accept", &["user"])]), |_| {});
    assert!(
        stand.greeted().message("a@x.test", &["b@y.test"]).starts_with("250"),
        "the client did not log in"
    );
    // A policy that is gone is the operator's fault, and temporary.
    let stand = Stand::new(policies(rules(), &[]), |settings| settings.terms.policy = Some("accept".into()));
    assert!(stand.greeted().message("a@x.test", &["b@y.test"]).starts_with("451 4.3.5"));
}

#[test]
fn a_large_message_is_streamed() {
    let stand = Stand::new(policies(vec![], &[]), |_| {});
    let mut client = stand.greeted();
    client.announce("a@x.test", &["b@y.test"]);
    let line = format!("{}\r\n", "x".repeat(998));
    let piece = line.repeat(100);
    for _ in 0..100 {
        client.send(&piece);
    }
    assert!(client.ask(".").starts_with("250"));
    let (_, text) = stand.intake.only();
    assert!(text.ends_with(&piece) && text.len() > 10_000_000);
}

#[test]
fn a_text_that_comes_before_354_is_never_taken_for_commands() {
    let stand = Stand::new(levels(), |_| {});
    let mut client = stand.greeted();
    client.send(
        "MAIL FROM:<a@x.test>\r\nRCPT TO:<b@y.test>\r\nDATA\r\ntext\r\n.\r\nMAIL FROM:<evil@x.test>\r\n",
    );
    client.expect("250 2.1.0 Ok");
    client.expect("250 2.1.5 Ok");
    client.expect("554 5.5.0 Protocol error: wait for the reply to DATA");
    assert!(client.is_closed());
    assert_eq!((stand.intake.count(), stand.left("accept", &FIELDS)), (0, vec![100, 50, 3, 20]));
}

#[test]
fn thousands_of_recipients_are_answered_one_by_one() {
    let stand = Stand::new(policies(vec![], &[]), |_| {});
    let mut client = stand.greeted();
    client.ask("MAIL FROM:<a@x.test>");
    let commands: String = (0..5_000).map(|number| format!("RCPT TO:<{number}@y.test>\r\n")).collect();
    client.send(commands);
    for number in 0..5_000 {
        let expected = if number < 1_000 { "250 2.1.5" } else { "452 4.5.3" };
        assert!(client.reply().starts_with(expected), "recipient {number}");
    }
    assert!(client.ask("DATA").starts_with("354"));
    assert!(client.ask("text\r\n.").starts_with("250"));
    assert_eq!(stand.intake.only().0.recipients.len(), 1_000);
}

#[test]
fn a_total_that_is_used_up_is_temporary_too() {
    let stand = Stand::new(
        policies(vec![rule("trial", &["ip"], &["1 in total"])], &[("accept", &["trial"])]),
        |_| {},
    );
    let mut client = stand.greeted();
    assert!(client.message("a@x.test", &["b@y.test"]).starts_with("250"));
    let refused = client.message("a@x.test", &["b@y.test"]);
    assert_eq!(refused, "451 4.7.1 Rate limit exceeded: trial 127.0.0.1, 1 in total; try again later");
}
