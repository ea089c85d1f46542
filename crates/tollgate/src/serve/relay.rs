//! Starts the mail relay: it opens its listeners before its queue, so that an address in use changes nothing.

use std::sync::Arc;

use anyhow::Context;
use tokio::net::TcpListener;
use tollgate_engine::Admissions;
use tollgate_relay::{Relay, RelayParts};
use tollgate_store::SystemClock;

use super::listen;
use crate::config::{RelayConfig, RelayListener};

/// A running relay, and its addresses.
pub(crate) struct RunningRelay {
    pub(crate) relay: Arc<Relay>,
    /// With the ports that the system chose.
    pub(crate) listeners: Vec<RelayListener>,
}

pub(crate) async fn start(config: &RelayConfig, admissions: &Admissions) -> anyhow::Result<RunningRelay> {
    let mut open: Vec<(TcpListener, RelayListener)> = Vec::new();
    for listener in &config.listeners {
        let opened = listen(listener.address).await.context("the relay does not start")?;
        let address = opened.local_addr()?;
        open.push((opened, RelayListener { address, ..*listener }));
    }
    let parts = RelayParts { admissions: admissions.clone(), clock: Arc::new(SystemClock::new()) };
    // The error already includes its cause; the chain would repeat it.
    let relay = Relay::start(config.settings.clone(), parts)
        .await
        .map_err(|error| anyhow::anyhow!("the relay does not start: {error}"))?;
    let mut listeners = Vec::new();
    for (opened, listener) in open {
        relay.listen(opened, listener.kind);
        listeners.push(listener);
    }
    Ok(RunningRelay { relay: Arc::new(relay), listeners })
}
