//! The assembled relay: what it accepts it sends, a reload changes its accounts, and its end is bounded and loses nothing.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{self, Client, Stand, policies, rule};
use tokio::net::TcpListener;
use tollgate_core::Clock;
use tollgate_engine::{Admissions, Leases};
use tollgate_relay::accounts::{Account, AccountDraft, Existing, OnLimit, Source};
use tollgate_relay::client::{Destination, TlsMode};
use tollgate_relay::server::Kind;
use tollgate_relay::{Relay, RelayParts, RelaySettings, StartError};
use tollgate_testbed::{PATIENCE, Sink, wait_until};

fn stand() -> Stand {
    let rules = vec![rule("tenant", &["tenant"], &["1000/hour"])];
    Stand::new(policies(rules, &[("deliver", &["tenant"])]), |_| {})
}

fn settings(directory: &Path, accounts: Vec<Account>) -> RelaySettings {
    let mut settings = RelaySettings::new("relay.test", directory);
    settings.server = support::settings();
    settings.queue.min_free = 0;
    settings.deliver = "deliver".into();
    settings.accounts = accounts;
    settings
}

/// An account of the tenant that clients on loopback belong to.
fn account(id: &str, port: u16) -> Account {
    let destination = Destination { host: "127.0.0.1".to_owned(), port, tls: TlsMode::None, login: None };
    let (tenant, id) = ("default".to_owned(), id.to_owned());
    Account { tenant, id, destination, on_limit: OnLimit::Defer, priority: 0 }
}

fn start(stand: &Stand, settings: RelaySettings) -> Result<Relay, StartError> {
    let clock = || Arc::clone(&stand.clock) as Arc<dyn Clock>;
    let leases = Arc::new(Leases::new(Arc::clone(&stand.engine), clock()));
    let admissions = Admissions { engine: Arc::clone(&stand.engine), pacer: None, leases };
    stand.runtime.block_on(Relay::start(settings, RelayParts { admissions, clock: clock() }))
}

fn listen(stand: &Stand, relay: &Relay) -> SocketAddr {
    let _inside = stand.runtime.enter();
    let listener = stand.runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    relay.listen(listener, Kind::Smtp);
    address
}

fn submit(address: SocketAddr) {
    let mut client = Client::connect(address);
    client.reply();
    client.ask("EHLO client.test");
    assert!(client.message("a@x.test", &["b@y.test"]).starts_with("250"));
}

fn end(stand: &Stand, relay: Relay) {
    stand.runtime.block_on(relay.end(Duration::from_secs(1)));
    stand.runtime.block_on(Relay::close(Arc::new(relay)));
}

#[test]
fn accepted_mail_is_sent_through_the_account_that_a_reload_brings() {
    let (stand, home, sink) = (stand(), tempfile::tempdir().unwrap(), Sink::start());
    let relay = start(&stand, settings(home.path(), vec![account("old", sink.port())])).unwrap();
    let address = listen(&stand, &relay);
    let new = settings(home.path(), vec![account("main", sink.port())]);
    assert_eq!(relay.reload(new.clone()), Vec::<&str>::new());
    assert_eq!(relay.account_registry().view("default", "main").unwrap().source, Source::Configuration);
    submit(address);
    wait_until("the message arrives", || sink.count() == 1);

    // An account that was added at run time is not the file's to remove.
    let added = AccountDraft {
        tenant: "default".to_owned(),
        id: "other".to_owned(),
        host: "127.0.0.1".to_owned(),
        port: sink.port(),
        tls: TlsMode::None,
        user: None,
        password: None,
        limits: Vec::new(),
        on_limit: OnLimit::Defer,
        priority: 0,
    };
    stand.runtime.block_on(relay.account_registry().put(added, Existing::Refuse)).unwrap();
    let mut without = settings(home.path(), Vec::new());
    without.retry.jitter = 0;
    assert_eq!(relay.reload(without), ["relay.retry"]);
    let left: Vec<String> = relay.accounts().all().iter().map(|account| account.id.clone()).collect();
    assert_eq!((left, relay.fault()), (vec!["other".to_owned()], None));
    end(&stand, relay);
}

#[test]
fn a_relay_that_ends_cuts_hanging_deliveries_and_resumes_them_later() {
    let (stand, home, sink) = (stand(), tempfile::tempdir().unwrap(), Sink::start());
    let relay = start(&stand, settings(home.path(), vec![account("main", sink.port())])).unwrap();
    sink.pause();
    submit(listen(&stand, &relay));
    wait_until("the delivery is in flight", || relay.sender().lanes().iter().any(|lane| lane.in_flight == 1));
    let again = start(&stand, settings(home.path(), Vec::new())).unwrap_err();
    assert!(again.to_string().contains("in use by another process"), "{again}");
    let ended = async { tokio::time::timeout(PATIENCE, relay.end(Duration::from_millis(200))).await };
    stand.runtime.block_on(ended).expect("the end is bounded");
    assert_eq!(relay.fault().as_deref(), Some("the sender has stopped"));
    stand.runtime.block_on(Relay::close(Arc::new(relay)));
    sink.resume();
    let relay = start(&stand, settings(home.path(), vec![account("main", sink.port())])).unwrap();
    wait_until("the message arrives", || sink.count() == 1);
    end(&stand, relay);
}
