//! Assembles the parts: the only file that knows every crate.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use prometheus_client::registry::Registry;
use tollgate_core::Span;
use tollgate_core::rows::RowSource;
use tollgate_core::store::{Records, Store};
use tollgate_doors::{AccessKey, ForwardAuthSettings, MailTenant};
use tollgate_engine::{Admissions, Engine, Fallback, Leases, Pacer, PacerOptions, Parts};
use tollgate_gateway::{Gateway, Parts as GatewayParts, Settings};
use tollgate_postgres::{Databases, PostgresStore, Settings as PostgresSettings};
use tollgate_redis::{RedisStore, Settings as RedisSettings};
use tollgate_store::file::{FileEvent, FileOptions, FileStore, OpenReport, Syncing};
use tollgate_store::{MemoryStore, SteadyClock, SystemClock};

use super::metrics;
use super::postfix::{self, RunningPostfix};
use super::relay::{self, RunningRelay};
use crate::config::memory::FALLBACK_KEYS;
use crate::config::{ApiKey, Config, Role, StoreConfig, Sync};

/// The parts of a running server.
pub(crate) struct Assembly {
    /// Admits attempts, for every door.
    pub(crate) admissions: Admissions,
    /// Where rules count rows.
    pub(crate) databases: Arc<Databases>,
    pub(crate) registry: Registry,
    /// Saves unsaved counters.
    pub(crate) flush: Box<dyn FnOnce() -> anyhow::Result<()> + Send>,
    /// The reverse proxy, which is already serving.
    pub(crate) gateway: Option<Arc<Gateway>>,
    /// Paces attempts, for every door.
    pub(crate) pacer: Pacer,
    /// The mail relay, which serves already.
    pub(crate) relay: Option<RunningRelay>,
    /// The Postfix policy service, which serves already.
    pub(crate) postfix: Option<RunningPostfix>,
}

struct Kept {
    store: Arc<dyn Store>,
    records: Arc<dyn Records>,
    /// Decides during an outage; only for a store outside this process.
    fallback: Option<Fallback>,
    flush: Box<dyn FnOnce() -> anyhow::Result<()> + Send>,
}

impl Kept {
    /// Counters and records that other nodes share.
    fn shared(
        store: Arc<dyn Store>,
        records: Arc<dyn Records>,
        clock: Arc<SystemClock>,
        probe_every: Span,
    ) -> Self {
        let local = Arc::new(MemoryStore::new(clock, FALLBACK_KEYS));
        let fallback = Fallback { store: local, clock: Arc::new(SteadyClock::new()), probe_every };
        Self { store, records, fallback: Some(fallback), flush: Box::new(|| Ok(())) }
    }
}

pub(crate) async fn assemble(config: &Config) -> anyhow::Result<Assembly> {
    let mut registry = Registry::default();
    metrics::program(&mut registry);
    let kept = keep(&config.store, &mut registry).await?;
    let parts = Parts { store: kept.store, records: kept.records, fallback: kept.fallback };
    let engine = Engine::start(config.policies.clone(), parts)
        .await
        .context("cannot read run-time changes from the store")?;
    let databases = Databases::new(&config.databases).map_err(anyhow::Error::msg);
    let databases = Arc::new(databases.context("a database of `databases` cannot be used")?);
    let mut engine = engine.counting_rows(Arc::clone(&databases) as Arc<dyn RowSource>);
    engine.nodes.set_name(&node_name(config));
    let engine = Arc::new(engine);
    engine.observer.set_denials(config.denials.clone());
    engine.observer.journal.keep(config.journal);
    registry.register_collector(Box::new(engine.rows.meters.clone()));
    let leases = Arc::new(Leases::new(Arc::clone(&engine), Arc::new(SteadyClock::new())));
    // In the main runtime, so that waiting calls do not depend on the gateway's threads.
    let runtime = tokio::runtime::Handle::current();
    let pacer = Pacer::in_runtime(Arc::clone(&engine), PacerOptions::default(), runtime);
    let admissions = Admissions { engine, pacer: Some(pacer.clone()), leases };
    let gateway = config.gateway.as_ref().map(|settings| start_gateway(settings, &admissions)).transpose()?;
    let relay = match &config.relay {
        Some(relay) => Some(relay::start(relay, &admissions).await?),
        None => None,
    };
    let postfix = match &config.postfix {
        Some(postfix) => Some(postfix::start(postfix, &admissions).await?),
        None => None,
    };
    if let Some(gateway) = &gateway {
        registry.register_collector(Box::new(gateway.meters()));
    }
    if let Some(running) = &relay {
        registry.register_collector(Box::new(running.relay.meters().clone()));
    }
    if let Some(running) = &postfix {
        registry.register_collector(Box::new(running.server.meters().clone()));
    }
    if gateway.is_some() || relay.is_some() {
        registry.register_collector(Box::new(admissions.leases.meters()));
    }
    Ok(Assembly { admissions, databases, registry, flush: kept.flush, gateway, pacer, relay, postfix })
}

/// The name that other nodes show: the name of the machine, and the port of the API.
fn node_name(config: &Config) -> String {
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let machine = Some(machine.trim()).filter(|name| !name.is_empty()).unwrap_or("localhost");
    format!("{machine}:{}", config.listen.http.port())
}

fn start_gateway(settings: &Settings, admissions: &Admissions) -> anyhow::Result<Arc<Gateway>> {
    let parts = GatewayParts { admissions: admissions.clone(), clock: Arc::new(SystemClock::new()) };
    Ok(Arc::new(Gateway::start(settings.clone(), parts).context("the gateway does not start")?))
}

async fn keep(config: &StoreConfig, registry: &mut Registry) -> anyhow::Result<Kept> {
    let clock = Arc::new(SystemClock::new());
    match config {
        StoreConfig::Memory { max_keys } => {
            let store = Arc::new(MemoryStore::new(clock, *max_keys));
            let counted = Arc::clone(&store);
            metrics::store_keys(registry, move || counted.len());
            let records = Arc::clone(&store);
            Ok(Kept { store, records, fallback: None, flush: Box::new(|| Ok(())) })
        }
        StoreConfig::File { path, flush_interval, sync, max_keys } => {
            let options = FileOptions {
                flush_interval: *flush_interval,
                sync: match sync {
                    Sync::Interval => Syncing::Interval,
                    Sync::Always => Syncing::Always,
                },
                max_keys: *max_keys,
                on_event: Box::new(tell),
            };
            // The error's text contains its cause; the chain would repeat it.
            let (store, report) = FileStore::open(path, clock, options)
                .map_err(|error| anyhow::Error::msg(error.to_string()))?;
            tell_opened(path, &report);
            let store = Arc::new(store);
            metrics::file_store(registry, &store);
            let (records, saved) = (Arc::clone(&store), Arc::clone(&store));
            Ok(Kept { store, records, fallback: None, flush: Box::new(move || Ok(saved.flush()?)) })
        }
        StoreConfig::Redis(settings) => {
            let probe_every = settings.health_check_interval.into();
            let store =
                RedisStore::start(RedisSettings::clone(settings)).await.map_err(anyhow::Error::msg)?;
            let store = Arc::new(store);
            let records = Arc::clone(&store);
            Ok(Kept::shared(store, records, clock, probe_every))
        }
        StoreConfig::Postgres(settings) => {
            let probe_every = settings.health_check_interval.into();
            let store =
                PostgresStore::start(PostgresSettings::clone(settings)).await.map_err(anyhow::Error::msg)?;
            let store = Arc::new(store);
            let records = Arc::clone(&store);
            Ok(Kept::shared(store, records, clock, probe_every))
        }
    }
}

/// Logs the report of opening the state file.
fn tell_opened(path: &Path, report: &OpenReport) {
    let file = path.display();
    if let Some(aside) = &report.set_aside {
        let (to, reason) = (aside.to.display(), &aside.reason);
        tracing::error!(component = "store", %file, %to, reason, "the file is damaged and was set aside; counting starts at zero");
    }
    if report.was_empty {
        tracing::warn!(component = "store", %file, "the state file was empty, so counting starts at zero; tollgate never leaves an empty file, so counters that were in it are lost");
    }
    if report.lost_commits > 0 {
        let lost = report.lost_commits;
        tracing::error!(component = "store", %file, lost_commits = lost, "the newest commit in the state file is damaged and was rolled back; counts, bans and overrides that it saved are lost");
    }
    if let Some(mode) = report.wide_permissions {
        let mode = format!("{mode:03o}");
        tracing::warn!(component = "store", %file, mode, "other users have access to the state file, which holds secrets: run `chmod 600` on it");
    }
    tracing::info!(component = "store", %file, keys = report.keys, "the store is open");
}

fn tell(event: FileEvent) {
    match event {
        FileEvent::Failed { reason } => {
            tracing::error!(
                component = "store",
                reason,
                "counters cannot be saved; retrying at every interval"
            );
        }
        FileEvent::Recovered => tracing::info!(component = "store", "counters are saved again"),
    }
}

/// The settings of forward-auth.
pub(crate) fn forward_auth(config: &Config) -> ForwardAuthSettings {
    ForwardAuthSettings {
        trusted_proxies: config.clients.proxies.clone(),
        credentials: Arc::clone(&config.clients.credentials),
        aliases: config.clients.aliases.clone(),
        answers: config.answers.clone(),
    }
}

/// The configured keys, in the door's type.
pub(crate) fn access_keys(config: &Config) -> Vec<AccessKey> {
    let key = |key: &ApiKey| {
        let role = match key.role {
            Role::Check => tollgate_doors::Role::Check,
            Role::Read => tollgate_doors::Role::Read,
            Role::Admin => tollgate_doors::Role::Admin,
        };
        let tenant = key.tenant.as_ref().map(|tenant| MailTenant {
            name: tenant.name.as_str().into(),
            senders: tenant.senders.clone().into(),
        });
        AccessKey { name: key.name.clone(), role, hash: key.token.bytes(), tenant }
    };
    config.keys.iter().map(key).collect()
}
