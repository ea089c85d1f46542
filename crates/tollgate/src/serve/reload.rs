//! Reloads the configuration, all of it or nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tollgate_core::{Policies, Span};
use tollgate_doors::{AccessKeys, ForwardAuth};
use tollgate_engine::Engine;
use tollgate_gateway::{Gateway, Settings};
use tollgate_postfix::{PolicyAddress, PolicyServer};
use tollgate_postgres::Databases;
use tollgate_relay::Relay;

use super::assemble::{access_keys, forward_auth};
use super::metrics::{ReloadCounts, ReloadResult};
use super::notifying::CurrentWebhooks;
use crate::config::{self, Config, ConfigError};

/// The source of the configuration.
pub(crate) struct Source {
    pub(crate) path: Option<PathBuf>,
    pub(crate) environment: Vec<(String, String)>,
}

/// What a reload replaces.
pub(crate) struct InForce {
    pub(crate) engine: Arc<Engine>,
    pub(crate) keys: Arc<AccessKeys>,
    pub(crate) forward_auth: Arc<ForwardAuth>,
    pub(crate) gateway: Option<Arc<Gateway>>,
    pub(crate) relay: Option<Arc<Relay>>,
    pub(crate) postfix: Option<PolicyServer>,
    pub(crate) webhooks: Arc<CurrentWebhooks>,
    pub(crate) databases: Arc<Databases>,
}

/// Reloads the configuration and puts its policies and keys in force, all of them or none.
pub(crate) struct Reloader {
    source: Source,
    /// The configuration at the start.
    started: Config,
    in_force: InForce,
    /// The latest configured policies.
    policies: Mutex<Policies>,
    /// How long requests in flight may take at the shutdown.
    drain: Mutex<Span>,
    /// The latest content of the file, so that an unchanged file causes no reload.
    last: Mutex<Option<Vec<u8>>>,
    counts: ReloadCounts,
}

impl Source {
    pub(crate) fn load(&self) -> Result<Config, ConfigError> {
        config::load(self.path.as_deref(), self.environment.iter().cloned())
    }

    /// The current content of the file, if there is one.
    pub(crate) fn bytes(&self) -> Option<Vec<u8>> {
        self.path.as_ref().and_then(|path| config::file_bytes(path).ok())
    }
}

impl InForce {
    /// Puts other policies, routes and settings of the relay and of Postfix in force. They name policies, so each must find its own
    /// at every moment: removed policies stay until nothing names them.
    /// Returns settings of the relay that need a restart.
    fn replace(&self, config: Config, policies: &mut Policies) -> Vec<String> {
        let mut needing = Vec::new();
        let last = std::mem::replace(policies, config.policies.clone());
        self.forward_auth.replace(forward_auth(&config));
        self.webhooks.replace(config.webhooks);
        self.engine.observer.set_denials(config.denials.clone());
        self.engine.observer.journal.keep(config.journal);
        if let Err(error) = self.databases.replace(&config.databases) {
            tracing::error!(component = "rows", %error, "the old databases stay in use");
        }
        if self.gateway.is_some() || self.relay.is_some() || self.postfix.is_some() {
            self.engine.reload(config.policies.beside(&last));
        }
        if let (Some(relay), Some(new)) = (&self.relay, config.relay) {
            needing.extend(relay.reload(new.settings).into_iter().map(String::from));
        }
        if let (Some(postfix), Some(new)) = (&self.postfix, config.postfix) {
            postfix.reload(new.settings);
        }
        if let (Some(gateway), Some(settings)) = (&self.gateway, config.gateway)
            && let Err(error) = gateway.replace(settings)
        {
            tracing::error!(component = "gateway", %error, "the old routes stay in force");
            return needing;
        }
        self.engine.reload(config.policies);
        needing
    }
}

impl Reloader {
    /// Follows a source whose content was `last` just before `started` was read from it.
    pub(crate) fn new(
        source: Source,
        last: Option<Vec<u8>>,
        started: Config,
        in_force: InForce,
        counts: ReloadCounts,
    ) -> Self {
        let (policies, drain) = (Mutex::new(started.policies.clone()), Mutex::new(started.drain));
        Self { source, started, in_force, policies, drain, last: Mutex::new(last), counts }
    }

    /// The configuration file.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.source.path.as_deref()
    }

    /// How long requests in flight may take when the program ends.
    pub(crate) fn drain(&self) -> Duration {
        Duration::from_micros(self.drain.lock().as_micros())
    }

    /// Reloads, and returns the changed settings that need a restart. If the configuration is invalid, the old one stays
    /// in force.
    pub(crate) fn reload(&self) -> Result<Vec<String>, ConfigError> {
        let done = self.try_reload();
        self.counts.count(if done.is_ok() { ReloadResult::Ok } else { ReloadResult::Failed });
        done
    }

    fn try_reload(&self) -> Result<Vec<String>, ConfigError> {
        let mut last = self.last.lock();
        // Read before loading, so that a change in between is seen as a change.
        *last = self.source.bytes();
        let config = self.source.load()?;
        if let Some(message) = self.loses_everything(&config) {
            let source = self.source.path.as_ref().map(|path| path.display().to_string());
            return Err(ConfigError::of_source(&source.unwrap_or_default(), message.to_owned()));
        }
        let mut needing: Vec<String> = needing_a_restart(&self.started, &config).map(str::to_owned).collect();
        super::log_config_warnings(&config);
        // Tags are part of the store, which stays the one of the start.
        super::warn_slot_spread(&self.started.store, &config.policies);
        self.in_force.keys.replace(access_keys(&config));
        *self.drain.lock() = config.drain;
        needing.extend(self.in_force.replace(config, &mut self.policies.lock()));
        for setting in &needing {
            tracing::warn!(component = "config", setting, "this setting has changed and needs a restart");
        }
        Ok(needing)
    }

    /// Why a configuration without policies, or without keys, does not replace one with them.
    fn loses_everything(&self, config: &Config) -> Option<&'static str> {
        let pinned = self.in_force.engine.pin();
        let had = pinned.policies.iter().any(|policy| pinned.is_configured(policy));
        if config.policies.enabled && had && config.policies.iter().next().is_none() {
            return Some(
                "there are no policies left, so every attempt would be a mistake: the file may be half-written; to switch limits off, write `enabled: false`",
            );
        }
        let opens = config.keys.is_empty() && !self.in_force.keys.is_empty();
        opens.then_some(
            "there are no access keys left, so every caller could do everything: the file may be half-written; to serve without keys, restart",
        )
    }

    /// Reloads and logs the result.
    pub(crate) fn reload_and_tell(&self) {
        match self.reload() {
            Ok(_) => {
                let pinned = self.in_force.engine.pin();
                let (rules, policies) = (pinned.policies.rules().len(), pinned.policies.iter().count());
                tracing::info!(component = "config", rules, policies, "the configuration was reloaded");
            }
            Err(error) => {
                tracing::error!(component = "config", %error, "the configuration is broken; the old one stays in force");
            }
        }
    }

    pub(crate) fn reload_if_changed(&self) {
        let Some(now) = self.source.bytes() else { return };
        // A file may be missing or empty for a moment while it is written.
        if !now.is_empty() && Some(now) != *self.last.lock() {
            self.reload_and_tell();
        }
    }
}

/// The changed settings that need a restart.
fn needing_a_restart(started: &Config, now: &Config) -> impl Iterator<Item = &'static str> {
    let changed = [
        ("listen", started.listen != now.listen),
        ("store", started.store != now.store),
        ("log", started.log != now.log),
        ("gateway", started.gateway.is_some() != now.gateway.is_some()),
        ("gateway.listen", differ(started, now, |before, after| !before.listens_like(after))),
        ("relay", started.relay.is_some() != now.relay.is_some()),
        ("relay.listen", relay_moved(started, now)),
        ("listen.postfix", address_of(started) != address_of(now)),
        ("gateway.workers", differ(started, now, |before, after| before.workers != after.workers)),
    ];
    changed.into_iter().filter_map(|(setting, changed)| changed.then_some(setting))
}

/// Whether settings of the gateway differ in this, if there is a gateway before and after.
fn differ(started: &Config, now: &Config, in_this: impl Fn(&Settings, &Settings) -> bool) -> bool {
    let both = started.gateway.as_ref().zip(now.gateway.as_ref());
    both.is_some_and(|(before, after)| in_this(before, after))
}

/// Where Postfix connects.
fn address_of(config: &Config) -> Option<&PolicyAddress> {
    config.postfix.as_ref().map(|postfix| &postfix.address)
}

/// Whether the relay is to listen elsewhere, if there is one before and after.
fn relay_moved(started: &Config, now: &Config) -> bool {
    let both = started.relay.as_ref().zip(now.relay.as_ref());
    both.is_some_and(|(before, after)| before.listeners != after.listeners)
}
