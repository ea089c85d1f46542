//! Connections that switch to another protocol.

use std::rc::Rc;

use super::held::Held;
use crate::connection::Downstream;
use crate::h1::side::Side;
use crate::tunnel;
use crate::worker::{Local, Worker};

/// The upstream's end of a connection that switched to another protocol.
pub(crate) struct Tunnel {
    upstream: Side,
    /// Its holds, for as long as it lasts.
    _held: Held,
    worker: Rc<Worker>,
}

/// Whether another tunnel is allowed.
pub(super) fn has_room(downstream: &Downstream, local: &Local) -> bool {
    downstream.worker.meter.tunnels.value() < local.plan.settings.bounds.tunnels as u64
}

impl Tunnel {
    pub(super) fn new(downstream: &Downstream, upstream: Side, held: Held) -> Self {
        downstream.worker.meter.tunnels.raise();
        Self { upstream, _held: held, worker: Rc::clone(&downstream.worker) }
    }

    /// Passes bytes both ways until both sides end or the gateway shuts down.
    pub(crate) async fn run(mut self, downstream: &Downstream, client: &mut Side) {
        let idle = self.worker.local().plan.settings.bounds.tunnel_timeout;
        let stop = || downstream.worker.is_ending();
        tunnel::run(client, &mut self.upstream, &downstream.alarm, idle, stop).await;
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.worker.meter.tunnels.lower();
    }
}
