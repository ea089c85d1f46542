//! Shuts the program down in order. On a signal, waiting callers get a 503, the API, the gateway, the relay and the
//! Postfix policy service tell their clients to disconnect and finish what is in flight, and the counters are saved. A second signal
//! skips everything but the saving.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;
use tollgate_doors::{HttpServer, Live};
use tollgate_engine::Admissions;
use tollgate_gateway::Gateway;
use tollgate_postfix::PolicyServer;
use tollgate_relay::Relay;

use super::notifying::Notifying;
use super::tending::Tending;

/// How long saving may take after a second signal.
const LAST_SAVING: Duration = Duration::from_secs(5);

/// The signals that end the program.
pub(crate) struct EndSignals {
    interrupt: Signal,
    terminate: Signal,
}

/// The parts that shut down, in their order.
pub(crate) struct Ending {
    pub(crate) admissions: Admissions,
    /// The streams of open pages.
    pub(crate) live: Arc<Live>,
    pub(crate) server: HttpServer,
    pub(crate) gateway: Option<Arc<Gateway>>,
    pub(crate) relay: Option<Arc<Relay>>,
    pub(crate) postfix: Option<PolicyServer>,
    pub(crate) tending: Tending,
    pub(crate) notifying: Notifying,
    /// Saves the counters.
    pub(crate) flush: Box<dyn FnOnce() -> anyhow::Result<()> + Send>,
}

impl EndSignals {
    /// Handles the signals from now on.
    pub(crate) fn catch() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for one of them.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

impl Ending {
    /// Shuts everything down. Requests in flight have `drain`, unless another signal arrives.
    pub(crate) async fn run(self, drain: Duration, signals: &mut EndSignals) -> anyhow::Result<()> {
        let Self { admissions, live, server, gateway, relay, postfix, tending, notifying, flush } = self;
        tracing::info!(
            component = "server",
            "shutting down: connections are closed after their next answer; a second signal ends immediately"
        );
        // First of all, since waiting requests must be finished too.
        admissions.end_waits();
        live.end();
        let in_order = async {
            let gateway_ends = async {
                if let Some(gateway) = &gateway {
                    gateway.end(drain).await;
                }
            };
            let relay_ends = async {
                if let Some(relay) = &relay {
                    relay.end(drain).await;
                }
            };
            let postfix_ends = async {
                if let Some(postfix) = &postfix {
                    postfix.end(drain).await;
                }
            };
            tokio::join!(server.end(drain), gateway_ends, relay_ends, postfix_ends);
            tending.end().await;
            notifying.end().await;
        };
        let cut = tokio::select! {
            () = in_order => false,
            () = signals.next() => true,
        };
        if cut {
            tracing::warn!(component = "server", "a second signal came: requests in flight are cut");
        }
        if let Some(relay) = relay {
            Relay::close(relay).await;
        }
        let too_long = async {
            if !cut {
                signals.next().await;
            }
            sleep(LAST_SAVING).await;
        };
        tokio::select! {
            saved = tokio::task::spawn_blocking(flush) => saved??,
            () = too_long => bail!("the counters could not be saved within {} s", LAST_SAVING.as_secs()),
        }
        tracing::info!(component = "server", "ended");
        Ok(())
    }
}
