//! A gateway on loopback, upstreams that do what a test tells them, and a client that sends bytes.

#![allow(dead_code, clippy::unwrap_used, reason = "shared by several tests, each of which uses a part")]

pub(crate) mod client;
pub(crate) mod distant;
pub(crate) mod http2;
pub(crate) mod rules;
pub(crate) mod upstream;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tollgate_core::{Clock, Policies, Store, Timestamp};
use tollgate_engine::{Admissions, Engine, Leases, Pacer, PacerOptions};
use tollgate_gateway::settings::{
    AccessLog, Address, Bounds, ListenerSettings, RouteSettings, Settings, UpstreamSettings,
};
use tollgate_gateway::{Gateway, Parts};
use tollgate_store::{ManualClock, MemoryStore, SystemClock};
use tollgate_web::{Answers, Credentials, TrustedProxies};

pub(crate) use client::{Client, Reply};
pub(crate) use upstream::Upstream;

/// A Sunday in November 2026, half past eight in the evening.
pub(crate) const START: Timestamp = Timestamp::from_micros(1_794_774_600_000_000);

/// The longest wait of a test. Nothing takes that long on a working machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A running gateway.
pub(crate) struct Stage {
    pub(crate) gateway: Gateway,
    pub(crate) engine: Arc<Engine>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) address: SocketAddr,
    pub(crate) parts: Parts,
}

impl Stage {
    /// A gateway without limits.
    pub(crate) async fn new(settings: Settings) -> Self {
        Self::with_policies(settings, Policies::new(true, Vec::new(), Vec::new())).await
    }

    /// A gateway with limits, whose clock stands still until it is moved.
    pub(crate) async fn with_policies(settings: Settings, policies: Policies) -> Self {
        let clock = Arc::new(ManualClock::at(START));
        Self::start(settings, policies, Arc::clone(&clock) as Arc<dyn Clock>, clock).await
    }

    /// A gateway with limits by the system clock.
    pub(crate) async fn in_real_time(settings: Settings, policies: Policies) -> Self {
        let clock = Arc::new(ManualClock::at(START));
        Self::start(settings, policies, Arc::new(SystemClock::new()), clock).await
    }

    async fn start(
        settings: Settings,
        policies: Policies,
        counts: Arc<dyn Clock>,
        clock: Arc<ManualClock>,
    ) -> Self {
        let store = Arc::new(MemoryStore::new(counts, 100_000));
        Self::over(settings, policies, store, clock).await
    }

    /// A gateway over another store.
    pub(crate) async fn over(
        settings: Settings,
        policies: Policies,
        store: Arc<dyn Store>,
        clock: Arc<ManualClock>,
    ) -> Self {
        let records = Arc::new(MemoryStore::new(Arc::clone(&clock) as Arc<dyn Clock>, 1_000));
        let parts = tollgate_engine::Parts { store, records, fallback: None };
        let engine = Arc::new(Engine::start(policies, parts).await.unwrap());
        let parts = Parts {
            admissions: Admissions {
                engine: Arc::clone(&engine),
                pacer: Some(Pacer::new(Arc::clone(&engine), PacerOptions::default())),
                leases: Arc::new(Leases::new(Arc::clone(&engine), clock.clone())),
            },
            clock: clock.clone(),
        };
        let gateway = Gateway::start(settings, parts.clone()).unwrap();
        let address = gateway.addresses()[0];
        Self { gateway, engine, clock, address, parts }
    }

    /// A connection to the gateway.
    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.address).await
    }

    /// Sends a request over a new connection and reads the response.
    pub(crate) async fn ask(&self, request: impl AsRef<[u8]>) -> Reply {
        let mut client = self.client().await;
        client.send(request).await;
        client.reply().await
    }

    /// Sends a `GET` for a path.
    pub(crate) async fn fetch(&self, path: &str) -> Reply {
        self.ask(format!("GET {path} HTTP/1.1\r\nHost: example.com\r\n\r\n")).await
    }

    /// The metrics page.
    pub(crate) fn metrics(&self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self.gateway.meters()));
        registry.register_collector(Box::new(self.engine.guards.meters().clone()));
        let mut page = String::new();
        encode(&mut page, &registry).unwrap();
        page
    }

    /// The value of a metric; 0 if there is none with these labels.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let page = self.metrics();
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0.0, |value| value.parse().unwrap())
    }
}

/// One worker, one upstream `app` at this address, and one route `all` to it.
pub(crate) fn settings(upstream: SocketAddr) -> Settings {
    Settings {
        listeners: vec![listener()],
        workers: NonZeroUsize::MIN,
        upstreams: vec![UpstreamSettings::new("app", vec![Address::from(upstream)])],
        routes: vec![RouteSettings::new("all", "app")],
        connections: None,
        bounds: Bounds::default(),
        access_log: AccessLog::Off,
        trusted_proxies: TrustedProxies::none(),
        aliases: Default::default(),
        credentials: Arc::new(Credentials::new(None, None)),
        answers: Answers::default(),
    }
}

/// A listener on a free port.
pub(crate) fn listener() -> ListenerSettings {
    ListenerSettings { address: "127.0.0.1:0".parse().unwrap(), tls: None, http2: true }
}

/// A route to `app` for one path.
pub(crate) fn route(name: &str, path: &str) -> RouteSettings {
    RouteSettings { paths: vec![path.parse().unwrap()], ..RouteSettings::new(name, "app") }
}

/// Waits until something holds.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waited = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waited).await.unwrap_or_else(|_| panic!("it never came true: {what}"));
}
