//! Slow and silent clients, over connections in memory, with a clock that jumps ahead when nothing happens.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{self, MemoryIntake, START, policies, rule};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::{Instant, sleep};
use tollgate_core::{Attempt, Clock, Records, Store};
use tollgate_engine::{Admissions, Engine, Leases, Parts};
use tollgate_relay::acceptance::{AcceptTerms, Acceptances};
use tollgate_relay::server::{Kind, Server, Settings, Timeouts};
use tollgate_store::{ManualClock, MemoryStore};

struct Site {
    server: Server,
    engine: Arc<Engine>,
    intake: Arc<MemoryIntake>,
}

async fn site(adjust: impl FnOnce(&mut Settings, &mut AcceptTerms)) -> Site {
    let clock = Arc::new(ManualClock::at(START)) as Arc<dyn Clock>;
    let store = Arc::new(MemoryStore::new(Arc::clone(&clock), 1_000));
    let parts = Parts {
        store: Arc::clone(&store) as Arc<dyn Store>,
        records: store as Arc<dyn Records>,
        fallback: None,
    };
    let rules = vec![rule("ip", &["ip"], &["20000 at once for 60s"]), rule("sent", &["ip"], &["100/hour"])];
    let policies = policies(rules, &[("connect", &["ip"]), ("accept", &["sent"])]);
    let engine = Arc::new(Engine::start(policies, parts).await.unwrap());
    let leases = Arc::new(Leases::new(Arc::clone(&engine), Arc::clone(&clock)));
    let intake = Arc::new(MemoryIntake::default());
    let mut settings = Settings {
        connect: Some("connect".into()),
        timeouts: Timeouts {
            handshake: Duration::from_secs(30),
            command: Duration::from_secs(300),
            piece: Duration::from_secs(180),
            message: Duration::from_secs(600),
        },
        max_connections: 20_000,
        ..support::settings()
    };
    let mut terms = AcceptTerms { policy: Some("accept".into()), ..AcceptTerms::new("relay.test") };
    adjust(&mut settings, &mut terms);
    let admissions = Admissions { engine: Arc::clone(&engine), pacer: None, leases };
    let doors = Acceptances::new(terms, admissions, Arc::clone(&intake) as Arc<_>, clock);
    Site { server: Server::new(settings, Arc::new(doors)), engine, intake }
}

impl Site {
    fn connect(&self, kind: Kind) -> DuplexStream {
        let (ours, theirs) = duplex(64 * 1024);
        self.server.start(Box::new(theirs), SocketAddr::from(([127, 0, 0, 1], 1)), kind);
        ours
    }

    async fn left(&self, policy: &str) -> u64 {
        let pinned = self.engine.pin();
        let look = Attempt { policy, fields: &[("ip", "127.0.0.1")], cost: 0, id: None };
        self.engine.peek(&pinned, &look).await.unwrap().outcome.readings[0].remaining
    }

    /// Waits until no client is connected, and nothing is held or charged.
    async fn is_empty(&self) -> bool {
        while self.server.open() > 0 {
            sleep(Duration::from_millis(10)).await;
        }
        self.left("connect").await == 20_000 && self.left("accept").await == 100 && self.intake.count() == 0
    }
}

/// Reads until the server says something that ends so.
async fn until(client: &mut DuplexStream, end: &str) -> String {
    let mut said = String::new();
    while !said.ends_with(end) {
        let mut piece = [0; 1_024];
        let count = client.read(&mut piece).await.unwrap();
        assert!(count > 0, "the server closed after: {said}");
        said.push_str(str::from_utf8(&piece[..count]).unwrap());
    }
    said
}

async fn announced(client: &mut DuplexStream) {
    until(client, "tollgate\r\n").await;
    client.write_all(b"HELO c\r\nMAIL FROM:<a@x.test>\r\nRCPT TO:<b@y.test>\r\nDATA\r\n").await.unwrap();
    until(client, "<CR><LF>.<CR><LF>\r\n").await;
}

/// What the server says until it closes, and how many seconds that took.
async fn rest(client: &mut DuplexStream, start: Instant) -> (String, u64) {
    let mut said = String::new();
    client.read_to_string(&mut said).await.unwrap();
    (said, start.elapsed().as_secs())
}

#[tokio::test(start_paused = true)]
async fn a_silent_client_is_told_that_its_time_is_up() {
    let site = site(|_, _| {}).await;
    let mut client = site.connect(Kind::Smtp);
    until(&mut client, "tollgate\r\n").await;
    assert_eq!(rest(&mut client, Instant::now()).await, ("421 4.4.2 Timeout\r\n".to_owned(), 300));
    drop(client);
    assert!(site.is_empty().await);
}

#[tokio::test(start_paused = true)]
async fn a_command_that_comes_byte_by_byte_has_its_time_too() {
    let site = site(|_, _| {}).await;
    let mut client = site.connect(Kind::Smtp);
    until(&mut client, "tollgate\r\n").await;
    let (mut read, mut write) = tokio::io::split(client);
    let start = Instant::now();
    let slow = tokio::spawn(async move {
        while write.write_all(b"x").await.is_ok() {
            sleep(Duration::from_secs(10)).await
        }
    });
    let mut said = String::new();
    read.read_to_string(&mut said).await.unwrap();
    assert_eq!((&*said, start.elapsed().as_secs()), ("421 4.4.2 Timeout\r\n", 300));
    slow.abort();
}

#[tokio::test(start_paused = true)]
async fn an_unfinished_message_is_given_up_and_costs_nothing() {
    let site = site(|_, _| {}).await;
    let mut client = site.connect(Kind::Smtp);
    announced(&mut client).await;
    assert_eq!(site.left("accept").await, 99);
    client.write_all(b"half a mess").await.unwrap();
    assert_eq!(rest(&mut client, Instant::now()).await, ("421 4.4.2 Timeout\r\n".to_owned(), 180));
    drop(client);
    assert!(site.is_empty().await);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_comes_byte_by_byte_has_its_time_too() {
    let site = site(|_, _| {}).await;
    let mut client = site.connect(Kind::Smtp);
    announced(&mut client).await;
    let start = Instant::now();
    let (mut read, mut write) = tokio::io::split(client);
    let slow = tokio::spawn(async move {
        while write.write_all(b"x").await.is_ok() {
            sleep(Duration::from_secs(100)).await
        }
    });
    let mut said = String::new();
    read.read_to_string(&mut said).await.unwrap();
    assert_eq!((&*said, start.elapsed().as_secs()), ("421 4.4.2 Timeout\r\n", 600));
    slow.abort();
    drop(read);
    assert!(site.is_empty().await);
}

#[tokio::test(start_paused = true)]
async fn a_handshake_that_does_not_come_ends_the_connection() {
    let site = site(|settings, _| {
        settings.proxies = vec!["127.0.0.1".parse().map(tollgate_core::Net::host).unwrap()]
    })
    .await;
    let mut client = site.connect(Kind::Smtp);
    assert_eq!(rest(&mut client, Instant::now()).await, (String::new(), 30), "no PROXY header");
    let mut client = site.connect(Kind::Smtps);
    client.write_all(b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n").await.unwrap();
    assert_eq!(rest(&mut client, Instant::now()).await, (String::new(), 30), "no TLS");
    assert!(site.is_empty().await);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_no_replies_is_given_up() {
    let site = site(|_, _| {}).await;
    let (mut ours, theirs) = duplex(256);
    site.server.start(Box::new(theirs), SocketAddr::from(([127, 0, 0, 1], 1)), Kind::Smtp);
    // More replies than fit into the connection. The client does not read them.
    let _ =
        tokio::time::timeout(Duration::from_secs(900), ours.write_all(&b"EHLO c\r\n".repeat(1_000))).await;
    assert!(site.is_empty().await);
}

#[tokio::test(start_paused = true)]
async fn a_line_without_an_end_is_cut_off() {
    let site = site(|_, _| {}).await;
    let mut client = site.connect(Kind::Smtp);
    until(&mut client, "tollgate\r\n").await;
    let (mut read, mut write) = tokio::io::split(client);
    let endless = tokio::spawn(async move { while write.write_all(&[b'x'; 1_000]).await.is_ok() {} });
    let mut said = String::new();
    read.read_to_string(&mut said).await.unwrap();
    assert_eq!(said, "421 4.7.0 Line too long\r\n");
    endless.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_message_without_an_end_is_cut_off() {
    let site = site(|_, terms| terms.max_size = 1_000).await;
    let mut client = site.connect(Kind::Smtp);
    announced(&mut client).await;
    let (mut read, mut write) = tokio::io::split(client);
    let endless = tokio::spawn(async move { while write.write_all(&[b'x'; 60_000]).await.is_ok() {} });
    let mut said = String::new();
    read.read_to_string(&mut said).await.unwrap();
    assert_eq!(said, "552 5.3.4 Message too large: at most 1000 bytes\r\n");
    endless.await.unwrap();
    drop(read);
    assert!(site.is_empty().await);
}

#[tokio::test]
async fn a_flood_of_connections_is_bounded() {
    let site = site(|settings, _| settings.max_connections = 1).await;
    let mut served = site.connect(Kind::Smtp);
    until(&mut served, "tollgate\r\n").await;
    // These clients do not read the refusal, so their connections stay open for a while.
    let mut flood: Vec<DuplexStream> = (0..1_500).map(|_| site.connect(Kind::Smtp)).collect();
    assert_eq!(site.server.open(), 1_001);
    let mut said = String::new();
    flood[0].read_to_string(&mut said).await.unwrap();
    assert_eq!(said, "421 4.3.2 Too many connections; try again later\r\n");
    said.clear();
    flood[1_400].read_to_string(&mut said).await.unwrap();
    assert_eq!(said, "", "closed without a word");
    served.write_all(b"NOOP\r\n").await.unwrap();
    assert_eq!(until(&mut served, "\r\n").await, "250 2.0.0 Ok\r\n");
    drop((flood, served));
    while site.server.open() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn ten_thousand_idle_clients_leave_room_for_a_message() {
    let site = site(|_, _| {}).await;
    let mut idle = Vec::new();
    for _ in 0..10_000 {
        let mut client = site.connect(Kind::Smtp);
        until(&mut client, "tollgate\r\n").await;
        idle.push(client);
    }
    assert_eq!(site.left("connect").await, 10_000);
    let mut client = site.connect(Kind::Smtp);
    announced(&mut client).await;
    client.write_all(b"text\r\n.\r\n").await.unwrap();
    assert!(until(&mut client, "\r\n").await.starts_with("250 2.0.0"));
    drop((idle, client));
    while site.server.open() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(site.left("connect").await, 20_000);
}
