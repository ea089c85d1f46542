//! Servers that hang: they delay their own mail, and no other mail.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::HashMap;
use std::net::Ipv4Addr;

use crate::keeping::dns::{self, Known};
use crate::keeping::script::{Act, Scripted, with};
use crate::keeping::stand::{Limited, Setup, Stand, account};
use crate::keeping::{envelope, submit};
use tokio::net::TcpListener;
use tollgate_core::{Net, Span};
use tollgate_relay::DirectSettings;
use tollgate_relay::accounts::Account;
use tollgate_relay::direct::Direct;
use tollgate_relay::lanes::{Cause, LaneOptions};
use tollgate_relay::message::Envelope;
use tollgate_testbed::Sink;

/// Fewer places than the hanging servers have mail for.
const LANES: LaneOptions = LaneOptions {
    quantum: 50,
    per_lane: 5,
    per_tenant: 20,
    in_total: 20,
    slow_after: Span::from_secs(10),
    unanswered_after: Span::from_secs(10),
    most_slow: 1_000,
};

#[tokio::test(flavor = "multi_thread")]
async fn an_account_whose_server_hangs_takes_no_more_places_than_it_has_connections() {
    let (server, sink) = (Scripted::start(with(&[("GREETING", Act::Hang)])).await, Sink::start());
    let other = Account { tenant: "other".to_owned(), ..account("main", sink.port(), 0) };
    let setup = Setup::new(Limited::default(), vec![account("main", server.port, 0), other]);
    let stand = Stand::start_with(Setup { lanes: LANES, ..setup }).await;
    for id in 0..100 {
        let to = format!("a@d{id}.example");
        submit(&stand.queue, envelope(id, &[&to]), b"x\r\n").await.unwrap();
    }
    stand.until("the connections are used", |_| *server.connections.lock() == 10).await;
    stand
        .until("the other lanes wait", |stand| {
            let sleeps = |cause| {
                let lanes = stand.sender.lanes();
                lanes
                    .iter()
                    .filter(|lane| lane.sleep.as_ref().is_some_and(|sleep| sleep.cause == cause))
                    .count()
            };
            sleeps(Cause::Busy) >= 80
        })
        .await;
    let quick = |id: u128| Envelope { tenant: "other".to_owned(), ..envelope(id, &["b@quick.example"]) };
    for id in 1_000..1_030 {
        submit(&stand.queue, quick(id), b"x\r\n").await.unwrap();
    }
    stand.until("the mail of the other tenant", |_| sink.count() == 30).await;
    assert_eq!(*server.connections.lock(), 10, "no more than the destination gets");
    assert!(stand.page().contains(r#"tollgate_relay_sleeping_lanes{cause="busy"}"#), "{}", stand.page());
    drop(stand);
}

#[tokio::test(flavor = "multi_thread")]
async fn lanes_that_waited_for_a_connection_go_on_as_soon_as_one_is_free() {
    let sink = Sink::start();
    let setup = Setup::new(Limited::default(), vec![account("main", sink.port(), 0)]);
    let mut client = setup.client.clone();
    client.per_destination = 1;
    let stand = Stand::start_with(Setup { client, ..setup }).await;
    for id in 0..200 {
        let to = format!("a@d{id}.example");
        submit(&stand.queue, envelope(id, &[&to]), b"x\r\n").await.unwrap();
    }
    // The clock stands still: no lane wakes by its timer.
    stand.until("all of them", |_| sink.count() == 200).await;
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_of_many_domains_that_hang_make_room_for_others() {
    let sink = Sink::start();
    let mut names =
        HashMap::from([("good.example", Known { a: vec![Ipv4Addr::LOCALHOST], ..Known::default() })]);
    let mut tarpits = Vec::new();
    for number in 2..32_u8 {
        let address = Ipv4Addr::new(127, 0, 0, number);
        // Connections are made, and never greeted.
        tarpits.push(TcpListener::bind((address, sink.port())).await.unwrap());
        let name: &'static str = Box::leak(format!("tarpit{number}.example").into_boxed_str());
        names.insert(name, Known { a: vec![address], ..Known::default() });
    }
    let (name_server, allow) = (Some(dns::start(names).await), vec![Net::parse("127.0.0.0/8").unwrap()]);
    let settings = DirectSettings { name_server, port: sink.port(), allow };
    let direct = Direct::new("relay.example", &settings).unwrap();
    let setup = Setup::new(Limited::default(), vec![]);
    let stand = Stand::start_with(Setup { lanes: LANES, direct: Some(direct), ..setup }).await;
    for number in 2..32 {
        let to = format!("a@tarpit{number}.example");
        submit(&stand.queue, envelope(number, &[&to]), b"x\r\n").await.unwrap();
    }
    let in_flight = |stand: &Stand| stand.sender.lanes().iter().map(|lane| lane.in_flight).sum::<u32>();
    stand.until("all places are taken", |stand| in_flight(stand) == 20).await;
    submit(&stand.queue, envelope(100, &["a@good.example"]), b"x\r\n").await.unwrap();
    stand.advance(Span::from_secs(10));
    stand.until("the other message", |_| sink.count() == 1).await;
    drop((stand, tarpits));
}
