//! Raises the limit on file descriptors, since each connection needs one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tollgate_gateway::settings::Settings;

/// Raises the limit to its maximum, and logs a warning if the gateway may need more.
pub(super) fn raise(gateway: Option<&Settings>) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let limit = if raised.is_ok() { maximum } else { current };
    let needed = gateway.map_or(0, needed);
    if let Some(limit) = limit.filter(|limit| *limit < needed) {
        tracing::warn!(
            component = "server",
            limit,
            needed,
            "the limit of file descriptors is lower than connections may need: raise it, or lower `gateway.bounds.connections`"
        );
    }
}

/// The most connections: each client connection may need one to an upstream.
fn needed(settings: &Settings) -> u64 {
    let each = 2 * settings.bounds.connections as u64;
    each.saturating_mul(settings.workers.get() as u64)
}
