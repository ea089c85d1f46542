//! An axum service whose limits, credentials, responses and store come from a configuration file of tollgate,
//! with metrics: `cargo run -p tollgate-tower --example configured -- tollgate.yaml`, then `curl -i
//! http://127.0.0.1:3000/`. The file must have a policy `api`.

use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::{Registry, Unit};
use tollgate::config::{self, StoreConfig, Sync};
use tollgate_engine::{Engine, Fallback, Leases, Parts};
use tollgate_postgres::PostgresStore;
use tollgate_redis::RedisStore;
use tollgate_store::file::{FileOptions, FileStore, Syncing};
use tollgate_store::{MemoryStore, SteadyClock, SystemClock};
use tollgate_tower::TollgateLayer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).unwrap_or_else(|| "tollgate.yaml".to_owned());
    let config = config::load(Some(Path::new(&file)), std::env::vars())?;
    let engine = Arc::new(Engine::start(config.policies, open(&config.store).await?).await?);
    tokio::spawn(tend(Arc::clone(&engine)));
    let leases = Arc::new(Leases::new(Arc::clone(&engine), Arc::new(SteadyClock::new())));
    let kept = Arc::clone(&leases);
    tokio::spawn(async move { kept.run().await });

    let limited = TollgateLayer::new(Arc::clone(&engine), "api")
        .peer(|extensions| extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip()))
        .trusted_proxies(config.clients.proxies)
        .credentials(config.clients.credentials)
        .fields(config.clients.aliases)
        .answers(config.answers)
        .leases(leases);
    let registry = Arc::new(registry(&engine));
    let app = Router::new()
        .route("/", get(|| async { "hello\n" }).layer(limited))
        .route("/metrics", get(move || async move { page(&registry) }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    println!("listens on http://{}", listener.local_addr()?);
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    // A graceful shutdown drops the store; a store with a file is saved then.
    let ended = async { tokio::signal::ctrl_c().await.unwrap_or_default() };
    axum::serve(listener, app).with_graceful_shutdown(ended).await?;
    Ok(())
}

/// Opens the store that a configuration names.
async fn open(config: &StoreConfig) -> Result<Parts, Box<dyn Error>> {
    let clock = Arc::new(SystemClock::new());
    match config {
        StoreConfig::Memory { max_keys } => {
            let store = Arc::new(MemoryStore::new(clock, *max_keys));
            Ok(Parts { store: store.clone(), records: store, fallback: None })
        }
        StoreConfig::File { path, flush_interval, sync, max_keys } => {
            let options = FileOptions {
                flush_interval: *flush_interval,
                sync: match sync {
                    Sync::Interval => Syncing::Interval,
                    Sync::Always => Syncing::Always,
                },
                max_keys: *max_keys,
                on_event: Box::new(|event| eprintln!("{event:?}")),
            };
            let (store, report) = FileStore::open(path, clock, options)?;
            if let Some(aside) = report.set_aside {
                eprintln!("{} is damaged, and now {}", path.display(), aside.to.display());
            }
            let store = Arc::new(store);
            Ok(Parts { store: store.clone(), records: store, fallback: None })
        }
        StoreConfig::Redis(settings) => {
            let fallback = fallback(clock, settings.health_check_interval);
            let store = Arc::new(RedisStore::start((**settings).clone()).await?);
            Ok(Parts { store: store.clone(), records: store, fallback: Some(fallback) })
        }
        StoreConfig::Postgres(settings) => {
            let fallback = fallback(clock, settings.health_check_interval);
            let store = Arc::new(PostgresStore::start((**settings).clone()).await?);
            Ok(Parts { store: store.clone(), records: store, fallback: Some(fallback) })
        }
    }
}

/// Decides while the shared store is down.
fn fallback(clock: Arc<SystemClock>, probe_every: Duration) -> Fallback {
    Fallback {
        store: Arc::new(MemoryStore::new(clock, 1_000_000)),
        clock: Arc::new(SteadyClock::new()),
        probe_every: probe_every.into(),
    }
}

/// The engine's background work: it probes a store that is down, follows changes of other nodes, and bans
/// keys that are denied too often.
async fn tend(engine: Arc<Engine>) {
    loop {
        engine.tend().await;
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

/// The metrics of the engine.
fn registry(engine: &Engine) -> Registry {
    let mut registry = Registry::default();
    let help = "How long decisions took; one in 64 is timed";
    let latency = engine.observer.meters.latency.clone();
    registry.register_with_unit("tollgate_decision_duration", help, Unit::Seconds, latency);
    registry.register_collector(Box::new(engine.observer.meters.clone()));
    if let Some(store) = engine.counters.store_meters() {
        registry.register_collector(Box::new(store.clone()));
    }
    registry
}

fn page(registry: &Registry) -> String {
    let mut page = String::new();
    encode(&mut page, registry).expect("writing to a string cannot fail");
    page
}
