//! Connections through their policy: how many, how often, and that what they hold is released however they end.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crate::support::{Client, Stand, policies, rule};
use tollgate_core::Policies;
use tollgate_testbed::wait_until;

fn holds(per_ip: &str, total: &str) -> Policies {
    let rules = vec![rule("per_ip", &["ip"], &[per_ip]), rule("total", &[], &[total])];
    policies(rules, &[("connect", &["per_ip", "total"])])
}

const FIELDS: [(&str, &str); 1] = [("ip", "127.0.0.1")];

#[test]
fn too_many_from_one_address_are_told_so_and_let_in_again_later() {
    let stand = Stand::new(holds("2 at once for 60s", "10 at once for 60s"), |_| {});
    let (one, two) = (stand.greeted(), stand.greeted());
    let mut third = stand.client();
    let refused = third.reply();
    assert!(refused.starts_with("421 4.7.0 Too many connections from your address; try again"), "{refused}");
    assert!(third.is_closed());
    assert_eq!(stand.engine.observer.journal.latest(1)[0].correlation, third.id);
    assert_eq!(stand.left("connect", &FIELDS), [0, 8], "a refused connection holds nothing");
    drop(one);
    wait_until("a place is free", || stand.left("connect", &FIELDS) == [1, 9]);
    let mut again = stand.greeted();
    assert!(again.message("a@x.test", &["b@y.test"]).starts_with("250"));
    drop((two, again));
    wait_until("all places are free", || stand.left("connect", &FIELDS) == [2, 10]);
}

#[test]
fn too_many_in_total_are_told_so() {
    let stand = Stand::new(holds("50 at once for 60s", "3 at once for 60s"), |_| {});
    let _open: Vec<Client> = (0..3).map(|_| stand.greeted()).collect();
    let mut fourth = stand.client();
    assert!(fourth.reply().starts_with("421 4.3.2 Too many connections; try again"));
    assert!(fourth.is_closed());
}

#[test]
fn holds_are_released_however_a_connection_ends() {
    let stand = Stand::new(holds("5 at once for 60s", "5 at once for 60s"), |_| {});
    let free = |what: &str| wait_until(what, || stand.left("connect", &FIELDS) == [5, 5]);
    let mut client = stand.greeted();
    assert_eq!(stand.left("connect", &FIELDS), [4, 4]);
    assert_eq!(client.ask("QUIT"), "221 2.0.0 Bye");
    free("QUIT");
    stand.greeted().abort();
    free("the client hangs up");
    let mut client = stand.greeted();
    client.announce("a@x.test", &["b@y.test"]);
    client.send("half");
    client.abort();
    free("the client hangs up within a message");
    let mut client = stand.greeted();
    (0..25).for_each(|_| client.send("nonsense\r\n"));
    free("too many errors");
    let mut client = stand.greeted();
    client.ask("STARTTLS");
    client.send("this is no TLS at all, and never will be\r\n");
    free("a failed handshake");
    let mut client = Client::connect(stand.secure_address);
    client.send("EHLO this is no TLS either\r\n");
    drop(client);
    free("nonsense where TLS should be");
    let client = Client::connect(stand.secure_address);
    drop(client);
    free("a connection without a handshake");
}

#[test]
fn holds_are_renewed_while_a_connection_lives() {
    let stand = Stand::new(holds("1 at once for 60s", "5 at once for 60s"), |_| {});
    let mut client = stand.greeted();
    for _ in 0..20 {
        stand.advance(15);
        // The leases are tended four times a second.
        wait_until("the hold is renewed", || {
            let pinned = stand.engine.pin();
            let plan = &pinned.policies.rule("per_ip").unwrap().plan;
            let counter = tollgate_core::store::Counter { plan, key: "127.0.0.1" };
            let report = stand
                .runtime
                .block_on(stand.engine.counters.holds(&counter, tollgate_core::store::HoldsOrder::List));
            let holds = report.unwrap().holds;
            assert_eq!(holds.len(), 1, "it is never let go");
            holds.iter().all(|(_, hold)| {
                hold.renewed + tollgate_core::Span::from_secs(45) > tollgate_core::Clock::now(&*stand.clock)
            })
        });
    }
    assert!(stand.client().reply().starts_with("421 4.7.0"), "five minutes later it is still held");
    assert_eq!(client.ask("NOOP"), "250 2.0.0 Ok");
}

#[test]
fn a_window_per_address_counts_connections() {
    let rules = vec![rule("rate", &["ip"], &["3/60s sliding"])];
    let stand = Stand::new(policies(rules, &[("connect", &["rate"])]), |_| {});
    for _ in 0..3 {
        assert_eq!(stand.greeted().ask("QUIT"), "221 2.0.0 Bye");
    }
    stand.advance(10);
    let refused = stand.client().reply();
    assert_eq!(refused, "421 4.7.0 Too many connections from your address; try again in 50 s");
    stand.advance(50);
    stand.greeted();
}

#[test]
fn more_connections_than_the_server_can_bear_are_turned_away() {
    let stand = Stand::new(policies(vec![], &[]), |settings| settings.max_connections = 2);
    let open = [stand.greeted(), stand.greeted()];
    assert!(stand.client().reply().starts_with("421 4.3.2"));
    drop(open);
    wait_until("both are closed", || stand.server.open() == 0);
    stand.greeted();
}

#[test]
fn a_trusted_proxy_names_the_client_of_its_connection() {
    let rules = vec![rule("ip", &["ip"], &["1 at once for 60s"]), rule("sent", &["ip"], &["10/hour"])];
    let policies = policies(rules, &[("connect", &["ip"]), ("accept", &["sent"])]);
    let stand = Stand::new(policies, |settings| {
        settings.proxies = vec![tollgate_core::Net::parse("127.0.0.1").unwrap()];
        settings.networks =
            ["192.0.2.0/24", "127.0.0.0/8"].map(|net| tollgate_core::Net::parse(net).unwrap()).to_vec();
    });
    let mut client = stand.client();
    client.send("PROXY TCP4 192.0.2.7 127.0.0.1 1234 25\r\nEHLO c\r\n");
    client.expect("220 relay.test ESMTP tollgate");
    client.reply();
    assert!(client.message("a@x.test", &["b@y.test"]).starts_with("250"));
    assert_eq!(stand.left("accept", &[("ip", "192.0.2.7")]), [9]);
    assert!(stand.intake.only().1.starts_with("Received: from c ([192.0.2.7])\r\n"));
    // The next is another client's, by version 2.
    let mut other = stand.client();
    other.send(
        [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"[..], &[198, 51, 100, 1, 127, 0, 0, 1, 1, 2, 0, 25]].concat(),
    );
    other.expect("220 relay.test ESMTP tollgate");
    other.ask("EHLO c");
    assert_eq!(other.ask("MAIL FROM:<a@x.test>"), "530 5.7.0 Begin TLS and authenticate first");
    let mut same = stand.client();
    same.send("PROXY TCP4 192.0.2.7 127.0.0.1 1235 25\r\n");
    assert!(same.reply().starts_with("421 4.7.0"));
    let mut unknown = stand.client();
    unknown.send("PROXY UNKNOWN\r\n");
    unknown.expect("220 relay.test ESMTP tollgate");
    unknown.ask("EHLO c");
    assert_eq!(unknown.ask("MAIL FROM:<a@x.test>"), "530 5.7.0 Begin TLS and authenticate first");
    let mut none = stand.client();
    none.send("EHLO client.example\r\n");
    assert!(none.is_closed(), "a proxy that does not say whose connection it is is not served");
}

#[test]
fn a_proxy_header_from_an_untrusted_client_is_refused() {
    let stand = Stand::new(policies(vec![], &[]), |settings| settings.networks.clear());
    let mut client = stand.client();
    client.send("PROXY TCP4 127.0.0.1 127.0.0.1 1234 25\r\n");
    client.expect("220 relay.test ESMTP tollgate");
    client.expect("500 5.5.2 Command unknown");
    client.ask("EHLO c");
    assert_eq!(client.ask("MAIL FROM:<a@x.test>"), "530 5.7.0 Begin TLS and authenticate first");
}

#[test]
fn a_server_that_ends_lets_messages_arrive() {
    let stand = Stand::new(policies(vec![], &[]), |_| {});
    let mut idle = stand.greeted();
    let mut sending = stand.greeted();
    sending.announce("a@x.test", &["b@y.test"]);
    let server = stand.server.clone();
    let ended = stand.runtime.spawn(async move { server.end(std::time::Duration::from_secs(30)).await });
    idle.expect("421 4.3.2 Server is shutting down");
    assert!(idle.is_closed());
    assert!(!ended.is_finished());
    assert!(sending.ask("text\r\n.").starts_with("250"));
    sending.expect("421 4.3.2 Server is shutting down");
    stand.runtime.block_on(ended).unwrap();
    assert_eq!((stand.server.open(), stand.intake.count()), (0, 1));
    assert!(std::net::TcpStream::connect(stand.address).is_err());
}
