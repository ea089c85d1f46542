//! The blocklist at connections and messages. An entry that ends by itself may come of a rate, so it is temporary.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crate::support::{Stand, policies, rule};
use tollgate_core::{Author, Policies, Span, Stance};
use tollgate_engine::Wish;

fn block(stand: &Stand, target: &str, lasts: Option<u64>) {
    let wish = Wish {
        target: stand.engine.lists.target(target).unwrap(),
        stance: Stance::Block,
        lasts: lasts.map(Span::from_secs),
        reason: "spam".into(),
        show_reason: false,
        author: Author::Key("ops".into()),
    };
    stand.runtime.block_on(stand.engine.lists.put(vec![wish])).unwrap();
}

/// With policies for connections and messages, and without.
fn stands() -> [Stand; 2] {
    let rules = || {
        let sender = rule("sender", &["sender"], &["10/hour"]);
        let (domain, tenant) =
            (rule("domain", &["domain"], &["10/hour"]), rule("tenant", &["tenant"], &["10/hour"]));
        vec![rule("ip", &["ip"], &["10 at once for 60s"]), sender, domain, tenant]
    };
    let limited =
        policies(rules(), &[("connect", &["ip"]), ("accept", &["sender", "domain"]), ("other", &["tenant"])]);
    let unlimited: Policies = policies(rules(), &[("other", &["ip", "sender", "domain", "tenant"])]);
    [Stand::new(limited, |_| {}), Stand::new(unlimited, |_| {})]
}

#[test]
fn a_blocked_address_is_told_so_and_closed() {
    for stand in stands() {
        block(&stand, "ip=127.0.0.1", Some(60));
        let mut client = stand.client();
        client.expect("421 4.7.0 Blocked for a while");
        assert!(client.is_closed());
        stand.advance(61);
        stand.greeted();
        block(&stand, "ip=127.0.0.1", None);
        stand.client().expect("554 5.7.1 Blocked");
    }
}

#[test]
fn a_blocked_sender_is_told_so_and_others_are_not_touched() {
    for stand in stands() {
        block(&stand, "sender=bad@x.test", None);
        block(&stand, "domain=slow.test", Some(60));
        let mut client = stand.greeted();
        assert_eq!(client.message("Bad@x.test", &["b@y.test"]), "550 5.7.1 Blocked");
        assert_eq!(client.message("a@slow.test", &["b@y.test"]), "451 4.7.1 Blocked for a while");
        assert_eq!(stand.engine.observer.journal.latest(1)[0].correlation, client.id);
        assert!(client.message("good@x.test", &["b@y.test"]).starts_with("250"));
        block(&stand, "tenant=default", Some(60));
        assert_eq!(client.message("good@x.test", &["b@y.test"]), "451 4.7.1 Blocked for a while");
    }
}
