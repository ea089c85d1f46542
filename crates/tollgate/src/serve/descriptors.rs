//! Raises the limit on file descriptors, since each connection needs one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tollgate_gateway::settings::{Bounds, Settings};

use crate::config::{Config, RelayConfig};

/// How many file descriptors a gateway without a bound of its own should have.
const USUAL: u64 = 1_000;

/// Raises the limit to its maximum, and logs a warning if the gateway, the relay and Postfix may need more.
pub(super) fn raise(config: &Config) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let limit = if raised.is_ok() { maximum } else { current };
    let needed = config.gateway.as_ref().map_or(0, needed)
        + config.relay.as_ref().map_or(0, needed_by_relay)
        + config.postfix.as_ref().map_or(0, |postfix| postfix.settings.max_connections as u64);
    if let Some(limit) = limit.filter(|limit| *limit < needed) {
        tracing::warn!(
            component = "server",
            limit,
            needed,
            "the limit of file descriptors is lower than connections may need: raise it, or lower `gateway.bounds.connections`, `relay.max_connections` or `postfix.max_connections`"
        );
    }
}

/// The most connections: each client connection may need one to an upstream. The default bound is only a bound: it says
/// nothing about how many clients the operator expects.
fn needed(settings: &Settings) -> u64 {
    let bound = settings.bounds.connections;
    if bound == Bounds::default().connections {
        return USUAL;
    }
    let each = 2 * bound as u64;
    each.saturating_mul(settings.workers.get() as u64)
}

/// How many there may be at the relay: connections of clients, connections to servers, and a file for each.
fn needed_by_relay(relay: &RelayConfig) -> u64 {
    let (clients, deliveries) =
        (relay.settings.server.max_connections, relay.settings.lanes.most_in_flight());
    clients as u64 + 2 * u64::from(deliveries)
}
