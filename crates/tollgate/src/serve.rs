//! `tollgate serve`: assembles the parts, listens, follows the configuration, and shuts down in order.

mod assemble;
mod descriptors;
mod ending;
mod following;
mod greeting;
pub mod log;
mod metrics;
mod notifying;
mod postfix;
mod process;
mod relay;
mod reload;
mod tending;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::anyhow;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tollgate_core::{Clock, Policies};
use tollgate_doors::http::{KnownRoutes, RouteInfo};
use tollgate_doors::{AccessKeys, ForwardAuth, HttpParts, HttpServer, Live, router};
use tollgate_engine::Admissions;
use tollgate_gateway::Gateway;
use tollgate_gateway::settings::RouteSettings;
use tollgate_store::SystemClock;

use crate::config::{Config, EnvTypo, StoreConfig, ValkeyVariable, Warning, slot_spread};
use assemble::{Assembly, access_keys};
use ending::{EndSignals, Ending};
use following::Following;
use metrics::ReloadCounts;
use notifying::{CurrentWebhooks, Notifying, WebhookMeters};
use reload::{InForce, Reloader, Source};
use tending::Tending;

/// SIGXFSZ, on every system this runs on.
const FILE_TOO_LARGE: i32 = 25;

/// Serves until a signal ends it.
pub fn run(
    path: Option<PathBuf>,
    environment: Vec<(String, String)>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let source = Source { path, environment };
    let bytes = source.bytes();
    let config = source.load()?;
    log::start(&config.log);
    log_config_warnings(&config);
    log_env_typos(&config.env_typos);
    log_valkey_variables(&config.valkey);
    warn_unverified_tls(&config.store);
    warn_slot_spread(&config.store, &config.policies);
    descriptors::raise(&config);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(serve(config, source, bytes, out));
    // After a second signal, tasks may still be running; the process does not wait for them.
    runtime.shutdown_background();
    ended
}

/// Logs the warnings of `check-config` that have no line of their own.
fn log_config_warnings(config: &Config) {
    for Warning { policy, message, remedy } in config.own_warnings() {
        tracing::warn!(
            component = "config",
            policy,
            warning = message,
            remedy,
            "the configuration may not do what you mean"
        );
    }
}

/// Logs environment variables that look like settings but are not.
fn log_env_typos(env_typos: &[EnvTypo]) {
    for EnvTypo { name, meant } in env_typos {
        tracing::warn!(
            component = "config",
            variable = name,
            meant,
            "this variable is ignored: two underscores separate levels"
        );
    }
}

/// Logs the effect of the `VALKEY_…` variables, which other programs use too.
fn log_valkey_variables(variables: &[ValkeyVariable]) {
    for variable in variables {
        let (name, effect) = (variable.name, variable.effect);
        if variable.is_used() {
            tracing::info!(component = "config", variable = name, %effect, "this variable sets the store");
        } else {
            tracing::warn!(component = "config", variable = name, %effect, "this variable does not set the store");
        }
    }
}

/// Logs a warning if the store's certificate is not verified.
fn warn_unverified_tls(store: &StoreConfig) {
    let unverified = match store {
        StoreConfig::Redis(settings) => settings.tls.as_ref().is_some_and(|tls| tls.unverified),
        StoreConfig::Postgres(settings) => settings.tls.as_ref().is_some_and(|tls| tls.unverified),
        StoreConfig::Memory { .. } | StoreConfig::File { .. } => return,
    };
    if unverified {
        tracing::warn!(
            component = "store",
            "the identity of the store is not checked: `tls_insecure` is set"
        );
    }
}

/// Logs a warning if the rules of a policy are in different slots of the store.
fn warn_slot_spread(store: &StoreConfig, policies: &Policies) {
    let apart = slot_spread::of(store, policies);
    if !apart.is_empty() {
        let policies: Vec<&str> = apart.iter().map(|apart| apart.policy.as_str()).collect();
        tracing::warn!(
            component = "config",
            policies = policies.join(", "),
            "the rules of these policies are in different slots of the Cluster, which is weaker than all or nothing: give each policy a `hash_tag`"
        );
    }
}

/// The gateway's current routes.
fn known_routes(gateway: Option<Arc<Gateway>>) -> KnownRoutes {
    let info = |route: RouteSettings| RouteInfo {
        path: route.paths.first().map_or_else(|| "/*".to_owned(), ToString::to_string),
        policy: route.policy.map(|policy| policy.to_string()),
        name: route.name.to_string(),
    };
    Arc::new(move || {
        let routes = gateway.iter().flat_map(|gateway| gateway.settings().routes);
        routes.map(info).collect()
    })
}

/// Opens a listener.
async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let taken = |error: &io::Error| match error.kind() {
        io::ErrorKind::AddrInUse => "; another program listens there already",
        _ => "",
    };
    let opened = TcpListener::bind(address).await;
    opened.map_err(|error| anyhow!("cannot listen on {address}: {error}{}", taken(&error)))
}

async fn serve(
    config: Config,
    source: Source,
    bytes: Option<Vec<u8>>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    // With this handler, exceeding the limit on file sizes is a failed write, like a full disk. Without it,
    // the signal would end the process.
    let _file_too_large = signal(SignalKind::from_raw(FILE_TOO_LARGE))?;
    let Assembly { admissions, databases, mut registry, flush, gateway, pacer, relay, postfix } =
        assemble::assemble(&config).await?;
    let (relay, relay_listeners) = relay.map(|running| (running.relay, running.listeners)).unzip();
    let (postfix, postfix_address) = postfix.map(|running| (running.server, running.address)).unzip();
    let Admissions { engine, leases, .. } = admissions.clone();
    let webhook_meters = WebhookMeters::default();
    registry.register_collector(Box::new(webhook_meters.clone()));
    let webhooks = Arc::new(CurrentWebhooks::new(config.webhooks.clone()));
    let notifying = Notifying::start(&engine, Arc::clone(&webhooks), webhook_meters);
    let keys = Arc::new(AccessKeys::new(access_keys(&config)));
    let forward_auth = Arc::new(ForwardAuth::new(assemble::forward_auth(&config)));
    let in_force = InForce {
        engine: Arc::clone(&engine),
        keys: Arc::clone(&keys),
        forward_auth: Arc::clone(&forward_auth),
        gateway: gateway.clone(),
        relay: relay.clone(),
        postfix: postfix.clone(),
        webhooks,
        databases,
    };
    let file = source.path.clone();
    let counts = ReloadCounts::register(&mut registry);
    let reloader = Arc::new(Reloader::new(source, bytes, config.clone(), in_force, counts));
    let by_request = Arc::clone(&reloader);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let live = Live::new(Arc::clone(&engine), pacer.clone(), relay.clone(), Arc::clone(&clock));
    let live = Arc::new(live);
    let parts = HttpParts {
        admissions: admissions.clone(),
        pacer: pacer.clone(),
        keys,
        reload: Arc::new(move || by_request.reload().map_err(|error| error.to_string())),
        routes: known_routes(gateway.clone()),
        forward_auth,
        relay: relay.clone(),
        live: Arc::clone(&live),
        clock: Arc::clone(&clock),
        registry,
    };
    let listener = listen(config.listen.http).await?;
    let hangup = signal(SignalKind::hangup())?;
    let mut end_signals = EndSignals::catch()?;
    let following = Following::start(Arc::clone(&reloader), hangup);
    // Standard output may be closed; the server serves anyway.
    let relay_listeners = relay_listeners.unwrap_or_default();
    let files = (file.as_deref(), &config);
    let listening = greeting::Listening {
        api: listener.local_addr()?,
        gateway: gateway.as_deref(),
        relay: &relay_listeners,
        postfix: postfix_address.as_ref(),
    };
    let _ = greeting::greet(out, files, listening);
    let tending = Tending::start(&engine, &leases, &live);
    let server = HttpServer::start(listener, router(parts), clock);
    end_signals.next().await;
    following.end();
    let ending = Ending { admissions, live, server, gateway, relay, postfix, tending, notifying, flush };
    ending.run(reloader.drain(), &mut end_signals).await
}
