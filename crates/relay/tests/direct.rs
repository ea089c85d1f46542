//! Direct delivery: the hosts that DNS names, and what is told when there are none.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod keeping;

use std::collections::HashMap;
use std::net::Ipv4Addr;

use keeping::dns::{self, Known};
use keeping::script::{Act, Scripted, with};
use keeping::stand::{Limited, Setup, Stand};
use keeping::{envelope, submit};
use tollgate_core::Span;
use tollgate_relay::direct::{Direct, Route};
use tollgate_relay::queue::{EventKind, RecipientState};
use tollgate_testbed::Sink;

const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Another address of loopback, where nobody listens.
const DEAD: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 99);

fn names() -> HashMap<&'static str, Known> {
    let mx = |mx: &[(u16, &'static str)]| Known { mx: mx.to_vec(), ..Known::default() };
    let host = |a: Ipv4Addr| Known { a: vec![a], ..Known::default() };
    HashMap::from([
        ("two.example", mx(&[(20, "mx2.example"), (10, "mx1.example")])),
        ("mx1.example", host(DEAD)),
        ("mx2.example", host(HERE)),
        ("bare.example", host(HERE)),
        ("null.example", mx(&[(0, "")])),
        ("own.example", mx(&[(10, "relay.example"), (20, "mx2.example")])),
        ("lost.example", mx(&[(10, "nowhere.example")])),
        ("broken.example", Known { fails: true, ..Known::default() }),
    ])
}

async fn direct(port: u16) -> Direct {
    Direct::with("relay.example", dns::start(names()).await, port).unwrap()
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
