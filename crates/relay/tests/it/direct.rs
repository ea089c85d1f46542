//! Direct delivery: the hosts that DNS names, and what is told when there are none.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::keeping::dns::{self, Known};
use crate::keeping::script::{Act, Scripted, with};
use crate::keeping::stand::{Limited, Setup, Stand};
use crate::keeping::{envelope, submit};
use tollgate_core::{Net, Span};
use tollgate_relay::DirectSettings;
use tollgate_relay::direct::{Direct, Route};
use tollgate_relay::queue::{EventKind, RecipientState};
use tollgate_testbed::Sink;

const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Another loopback address, without a listener.
const DEAD: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 99);
/// Where this relay listens in some of the tests.
const OURS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 77);

fn names() -> HashMap<&'static str, Known> {
    let mx = |mx: &[(u16, &'static str)]| Known { mx: mx.to_vec(), ..Known::default() };
    let host = |a: Ipv4Addr| Known { a: vec![a], ..Known::default() };
    let inside = |aaaa: Ipv6Addr| Known { aaaa: vec![aaaa], ..Known::default() };
    HashMap::from([
        ("two.example", mx(&[(20, "mx2.example"), (10, "mx1.example")])),
        ("mx1.example", host(DEAD)),
        ("mx2.example", host(HERE)),
        ("bare.example", host(HERE)),
        ("null.example", mx(&[(0, "")])),
        ("own.example", mx(&[(10, "relay.example"), (20, "mx2.example")])),
        ("lost.example", mx(&[(10, "nowhere.example")])),
        ("broken.example", Known { fails: true, ..Known::default() }),
        ("six.example", mx(&[(10, "mx6.example")])),
        ("mx6.example", Known { aaaa: vec![Ipv6Addr::LOCALHOST], ..Known::default() }),
        ("alias.example", Known { cname: Some("bare.example"), ..Known::default() }),
        ("behind.example", mx(&[(10, "alias.example")])),
        // Addresses that lead to IPv4 addresses: mapped, translated by SIIT and NAT64, and by 6to4.
        ("mapped.example", inside(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0x7f00, 1))),
        ("siit.example", inside(Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, 0x7f00, 1))),
        ("nat64.example", inside(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0xa9fe, 0xa9fe))),
        ("local-nat64.example", inside(Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0x808, 0x808))),
        ("6to4.example", inside(Ipv6Addr::new(0x2002, 0x0a00, 1, 0, 0, 0, 0, 1))),
        ("teredo.example", inside(Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0x80ff, 0xfffe))),
        // Answers that no DNS server should give.
        ("zero.example", host(Ipv4Addr::UNSPECIFIED)),
        ("all.example", host(Ipv4Addr::BROADCAST)),
        ("group.example", host(Ipv4Addr::new(224, 0, 0, 1))),
        ("mixed.example", Known { a: vec![Ipv4Addr::UNSPECIFIED, HERE], ..Known::default() }),
        ("number.example", mx(&[(10, "127.0.0.1")])),
        ("many.example", Known { mx: many_hosts(), ..Known::default() }),
        (
            "crowd.example",
            Known { a: (1..20).map(|last| Ipv4Addr::new(127, 0, 1, last)).collect(), ..Known::default() },
        ),
        ("disguise.example", mx(&[(10, "mx1.example"), (20, "other-name.example"), (30, "mx2.example")])),
        ("other-name.example", host(OURS)),
    ])
}

/// More hosts than are looked up, in the wrong order, and only the last of them exists.
fn many_hosts() -> Vec<(u16, &'static str)> {
    let names =
        (0..12_u16).map(|number| (100 - number, &*Box::leak(format!("h{number}.example").into_boxed_str())));
    names.chain([(1, "mx2.example")]).collect()
}

async fn direct(port: u16) -> Direct {
    allowing(port, &["127.0.0.0/8", "::1"]).await
}

/// Direct delivery that may use these networks, beside public addresses.
async fn allowing(port: u16, allow: &[&str]) -> Direct {
    let name_server = Some(dns::start(names()).await);
    let allow = allow.iter().map(|net| Net::parse(net).unwrap()).collect();
    Direct::new("relay.example", &DirectSettings { name_server, port, allow }).unwrap()
}

async fn stand(port: u16, limited: Limited) -> Stand {
    Stand::start_with(Setup { direct: Some(direct(port).await), ..Setup::new(limited, vec![]) }).await
}

#[tokio::test]
async fn dns_says_where_mail_goes() {
    let direct = direct(25).await;
    let hosts = async |domain| match direct.route(domain).await {
        Route::Hosts(hosts) => hosts.into_iter().map(|host| (host.name, host.address)).collect(),
        other => panic!("{domain}: {other:?}"),
    };
    let of = |name: &str, address: Ipv4Addr| (name.to_owned(), address.into());
    let two: Vec<_> = hosts("two.example").await;
    assert_eq!(two, [of("mx1.example", DEAD), of("mx2.example", HERE)]);
    assert_eq!(hosts("bare.example").await, [of("bare.example", HERE)]);
    assert_eq!(hosts("[127.0.0.1]").await, [of("127.0.0.1", HERE)]);
    for (domain, expected) in [
        ("null.example", "5.1.10"),
        ("own.example", "5.4.6"),
        ("lost.example", "5.4.4"),
        ("unknown.example", "5.1.2"),
        ("[nonsense]", "5.1.2"),
    ] {
        let route = direct.route(domain).await;
        assert!(matches!(&route, Route::Never { status, .. } if *status == expected), "{domain}: {route:?}");
    }
    assert!(matches!(direct.route("broken.example").await, Route::Later(_)));
}

async fn addresses(direct: &Direct, domain: &str) -> Vec<IpAddr> {
    match direct.route(domain).await {
        Route::Hosts(hosts) => hosts.into_iter().map(|host| host.address).collect(),
        Route::Never { .. } => Vec::new(),
        Route::Later(reason) => panic!("{domain}: {reason}"),
    }
}

#[tokio::test]
async fn invalid_addresses_in_dns_are_not_used() {
    let direct = direct(25).await;
    for domain in ["zero.example", "all.example", "group.example", "number.example", "[0.0.0.0]"] {
        assert_eq!(addresses(&direct, domain).await, [] as [IpAddr; 0], "{domain}");
    }
    let everywhere = allowing(25, &["0.0.0.0/0", "::/0"]).await;
    for domain in ["zero.example", "all.example", "group.example", "[0.0.0.0]"] {
        assert_eq!(addresses(&everywhere, domain).await, [] as [IpAddr; 0], "{domain}");
    }
    assert_eq!(addresses(&direct, "mixed.example").await, [HERE]);
    assert_eq!(addresses(&direct, "many.example").await, [HERE], "the preferred host is found among many");
    assert!(addresses(&direct, "crowd.example").await.len() <= 5, "a bounded number of addresses");
}

#[tokio::test]
async fn special_addresses_are_used_only_if_the_operator_allows_them() {
    let none = allowing(25, &[]).await;
    for domain in [
        "bare.example",
        "six.example",
        "two.example",
        "alias.example",
        "behind.example",
        "mapped.example",
        "siit.example",
        "nat64.example",
        "local-nat64.example",
        "6to4.example",
        "teredo.example",
        "[127.0.0.1]",
        "[10.0.0.1]",
        "[IPv6:fe80::1]",
        "[IPv6:::1]",
        "[IPv6:::ffff:127.0.0.1]",
        "[IPv6:64:ff9b::7f00:1]",
    ] {
        let route = none.route(domain).await;
        assert!(matches!(route, Route::Never { status: "5.4.4", .. }), "{domain}: {route:?}");
    }
    assert_eq!(addresses(&none, "[8.8.8.8]").await, [IpAddr::from([8, 8, 8, 8])]);
    let one = allowing(25, &["127.0.0.1", "10.0.0.0/8"]).await;
    assert_eq!(addresses(&one, "two.example").await, [HERE], "the other host is not allowed");
    assert_eq!(addresses(&one, "behind.example").await, [HERE], "an alias of it");
    assert_eq!(addresses(&one, "mapped.example").await.len(), 1, "IPv4 in another form");
    assert_eq!(addresses(&one, "[IPv6:::ffff:10.0.0.1]").await.len(), 1);
    assert_eq!(addresses(&one, "[192.168.0.1]").await, [] as [IpAddr; 0]);
}

#[tokio::test]
async fn mail_never_comes_back_to_an_address_where_the_relay_listens() {
    let direct = direct(2525).await;
    direct.avoid(SocketAddr::from((OURS, 25)));
    assert_eq!(addresses(&direct, "disguise.example").await.len(), 3, "another port is another server");
    direct.avoid(SocketAddr::from((OURS, 2525)));
    assert_eq!(addresses(&direct, "disguise.example").await, [DEAD], "only hosts before this relay");
    for domain in ["other-name.example", "[127.0.0.77]", "[IPv6:::ffff:127.0.0.77]"] {
        let route = direct.route(domain).await;
        assert!(matches!(route, Route::Never { status: "5.4.6", .. }), "{domain}: {route:?}");
    }
    assert_eq!(addresses(&direct, "bare.example").await, [HERE]);
    // A relay that listens everywhere listens at every address of this machine.
    direct.avoid(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 2525)));
    let route = direct.route("bare.example").await;
    assert!(matches!(route, Route::Never { status: "5.4.6", .. }), "{route:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn mail_goes_to_hosts_that_have_only_an_ipv6_address() {
    let Ok(listener) = tokio::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await else {
        panic!("this machine has no IPv6 loopback, which the test needs");
    };
    let server = Scripted::start_on(listener, with(&[])).await;
    let stand = stand(server.port, Limited::default()).await;
    submit(&stand.queue, envelope(1, &["a@six.example"]), b"x\r\n").await.unwrap();
    stand.until("the message", |stand| stand.queue.is_empty()).await;
    assert_eq!(server.texts.lock().len(), 1);
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mail_goes_to_the_first_host_that_answers_under_the_limits_of_its_domain() {
    let sink = Sink::start();
    let limited = Limited { account: &["1/hour sliding"], domain: &["2/hour sliding"], ..Limited::default() };
    let stand = stand(sink.port(), limited).await;
    for id in 0..3 {
        submit(&stand.queue, envelope(id, &["a@two.example"]), b"x\r\n").await.unwrap();
    }
    stand.until("two messages", |_| sink.count() == 2).await;
    stand.settle().await;
    assert_eq!(sink.count(), 2, "the limit of the domain holds, and no account's");
    stand.advance(Span::from_secs(3_600));
    stand.until("the third message", |_| sink.count() == 3).await;
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn domains_without_a_host_fail_at_once_and_broken_dns_is_retried() {
    let sink = Sink::start();
    let stand = stand(sink.port(), Limited::default()).await;
    let to = ["a@null.example", "b@broken.example"];
    submit(&stand.queue, envelope(1, &to), b"x\r\n").await.unwrap();
    stand
        .until("both outcomes", |stand| {
            let kinds: Vec<_> = stand.show(1).events.iter().map(|event| event.kind).collect();
            kinds.contains(&EventKind::Bounced) && kinds.contains(&EventKind::Failed)
        })
        .await;
    let shown = stand.show(1);
    let RecipientState::Failed(last) = &shown.items[0].1.recipients[0].state else { panic!("it failed") };
    assert_eq!(last.status, "5.1.10");
    assert!(last.reply.starts_with("556 5.1.10 null.example accepts no mail"), "{last:?}");
    assert_eq!(shown.items[1].1.recipients[0].state, RecipientState::Waiting);
    assert_eq!(sink.count(), 0);
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_used_where_it_is_offered_and_missed_where_it_is_broken() {
    let offers = ("EHLO", Act::Say("250-script.example\r\n250 STARTTLS\r\n"));
    let working = with(&[offers.clone(), ("STARTTLS", Act::Say("220 go\r\n"))]);
    let broken = with(&[offers, ("STARTTLS", Act::Say("454 4.7.0 not now\r\n"))]);
    for (script, hellos) in [(working, 2), (broken, 2)] {
        let server = Scripted::start(script).await;
        let stand = stand(server.port, Limited::default()).await;
        submit(&stand.queue, envelope(1, &["a@bare.example"]), b"x\r\n").await.unwrap();
        stand.until("the message", |stand| stand.queue.is_empty()).await;
        let heard = server.heard.lock().clone();
        assert_eq!(heard.iter().filter(|line| line.starts_with("EHLO")).count(), hellos, "{heard:?}");
        assert!(heard.contains(&"STARTTLS".to_owned()));
        assert_eq!(server.texts.lock().len(), 1);
        stand.stop().await;
    }
}
