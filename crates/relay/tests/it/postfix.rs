//! A real Postfix that relays through the server: it understands refusals, keeps what is refused, and comes back.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::process::Command;

use crate::support::{self, postfix::Postfix};
use crate::support::{Stand, policies, rule};
use tollgate_testbed::wait_until;

fn send(postfix: &Postfix, messages: usize) {
    let mut command = Command::new("/usr/sbin/smtp-source");
    command.args(["-m", &messages.to_string(), "-f", "a@x.test", "-t", "b@y.test", "-l", "3000"]);
    let output = command.arg(postfix.address()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn postfix_defers_what_exceeds_a_rate_and_delivers_it_later() {
    let rules = vec![rule("sender", &["sender"], &["5/hour"])];
    let stand = Stand::new(policies(rules, &[("accept", &["sender"])]), |_| {});
    let settings = "smtp_tls_security_level = may\nminimal_backoff_time = 1000s";
    let postfix = Postfix::relaying_to(stand.address.port(), settings);
    send(&postfix, 8);
    wait_until("five have arrived", || stand.intake.count() == 5);
    let deferred = "said: 451 4.7.1 Rate limit exceeded: sender a@x.test, 5/hour; try again in 3600 s";
    wait_until("three are deferred", || postfix.log().matches(deferred).count() == 3);
    assert_eq!((postfix.queued(), stand.intake.count()), (3, 5));
    let (envelope, text) = stand.intake.kept().remove(0);
    assert_eq!(envelope.sender.as_deref(), Some("a@x.test"));
    let received = "Received: from client.test ([127.0.0.1])\r\n\tby relay.test with ESMTPS id ";
    let text = String::from_utf8(text).unwrap();
    assert!(text.starts_with(received), "{text}");
    stand.advance(3_600);
    postfix.flush();
    wait_until("the others have arrived", || stand.intake.count() == 8);
    wait_until("nothing is left", || postfix.queued() == 0);
}

#[test]
fn postfix_waits_while_there_are_too_many_connections_or_the_queue_is_full() {
    let rules = vec![rule("rate", &["ip"], &["1/60s sliding"])];
    let stand = Stand::new(policies(rules, &[("connect", &["rate"])]), |_| {});
    let postfix = Postfix::relaying_to(stand.address.port(), "smtp_connection_cache_on_demand = no");
    drop(stand.greeted());
    send(&postfix, 1);
    wait_until("it is deferred", || {
        postfix.log().contains("refused to talk to me: 421 4.7.0 Too many connections from")
    });
    stand.advance(60);
    stand.intake.fail(support::intake::Fails::FullAtOnce);
    postfix.flush();
    wait_until("it is deferred again", || {
        postfix.log().contains("said: 452 4.3.1 Queue is full; try again later")
    });
    assert_eq!(stand.intake.count(), 0);
    stand.advance(60);
    stand.intake.fail(support::intake::Fails::Never);
    postfix.flush();
    wait_until("it has arrived", || stand.intake.count() == 1);
}
