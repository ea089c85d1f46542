//! The upstreams of one worker: which address is next, which is left out, and which connections can be
//! reused.

mod connect;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use crate::alarm::{Alarm, Alarms};
use crate::h1::side::Side;
use crate::http2::shared_connection::SharedConnection;
use crate::settings::{Address, UpstreamSettings};

pub(crate) use connect::Unreachable;

/// An upstream's settings and TLS configuration, shared by all workers.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) settings: UpstreamSettings,
    pub(crate) tls: Option<(Arc<ClientConfig>, Option<ServerName<'static>>)>,
}

/// The connections of one worker to an upstream.
pub(crate) struct Pool {
    pub(crate) upstream: Arc<Upstream>,
    places: Vec<Place>,
    turn: Cell<usize>,
    alarms: Rc<Alarms>,
}

/// One address of an upstream.
struct Place {
    address: Address,
    /// The most recently used connection comes last and is reused first.
    idle: RefCell<Vec<Idle>>,
    /// The number of failures in a row.
    fails: Cell<u32>,
    /// Until when it is left out, after too many failures.
    out_until: Cell<u32>,
    /// The HTTP/2 connection that all requests share, and until when it is kept idle.
    shared: RefCell<Option<(SharedConnection, u32)>>,
}

struct Idle {
    side: Side,
    until: u32,
}

/// A connection in use. Unless it is given back, it is closed.
pub(crate) struct Borrowed {
    pub(crate) side: Side,
    pub(crate) place: usize,
    /// Whether earlier requests used it. The upstream may then have closed it as idle.
    pub(crate) reused: bool,
}

impl Pool {
    pub(crate) fn new(upstream: Arc<Upstream>, alarms: Rc<Alarms>) -> Self {
        let place = |address: &Address| Place {
            address: address.clone(),
            idle: RefCell::default(),
            fails: Cell::new(0),
            out_until: Cell::new(0),
            shared: RefCell::new(None),
        };
        let places = upstream.settings.addresses.iter().map(place).collect();
        Self { upstream, places, turn: Cell::new(0), alarms }
    }

    /// Chooses the next address that is not left out. If all are left out, it chooses the next one anyway,
    /// since only a request shows when an address works again.
    pub(crate) fn choose(&self) -> usize {
        let (count, first) = (self.places.len(), self.turn.get());
        self.turn.set((first + 1) % count);
        let in_order = (first..first + count).map(|place| place % count);
        in_order.into_iter().find(|place| self.admits(*place)).unwrap_or(first % count)
    }

    /// Whether an address may be used. After its time-out a single request tries it. Others follow only once
    /// that request succeeded or the time is up again.
    fn admits(&self, place: usize) -> bool {
        let (health, place) = (self.upstream.settings.health, &self.places[place]);
        if place.fails.get() < health.fails.get() {
            return true;
        }
        let over = place.out_until.get() <= self.alarms.now();
        if over {
            place.out_until.set(self.alarms.after(health.out_for));
        }
        over
    }

    /// An idle connection to an address, if a usable one is left.
    pub(crate) fn reuse(&self, place: usize) -> Option<Borrowed> {
        let mut idle = self.places[place].idle.borrow_mut();
        while let Some(mut last) = idle.pop() {
            if last.side.is_quiet() {
                return Some(Borrowed { side: last.side, place, reused: true });
            }
        }
        None
    }

    /// A new connection to an address.
    pub(crate) async fn connect(&self, place: usize, alarm: &Alarm) -> Result<Borrowed, Unreachable> {
        let address = &self.places[place].address;
        let made = connect::connect(&self.upstream, address, alarm).await;
        if let Err(reason) = &made {
            self.failed(place, reason);
        }
        Ok(Borrowed { side: Side::new(made?), place, reused: false })
    }

    /// The shared connection to an address, if there is a usable one. A connection with too many abandoned
    /// requests gets no new ones.
    pub(crate) async fn reuse_shared(&self, place: usize) -> Option<SharedConnection> {
        let shared = &self.places[place].shared;
        let connection = {
            let mut kept = shared.borrow_mut();
            kept.take_if(|(connection, _)| connection.is_strained());
            kept.as_ref().map(|(connection, _)| connection.clone())?
        };
        let ready = connection.ready().await.ok();
        let until = self.alarms.after(self.upstream.settings.idle_timeout);
        let mut kept = shared.borrow_mut();
        match (&ready, &mut *kept) {
            (Some(_), Some((_, kept_until))) => *kept_until = until,
            (None, kept) => *kept = None,
            _ => {}
        }
        ready
    }

    /// A new connection to an address that requests will share.
    pub(crate) async fn connect_shared(
        &self,
        place: usize,
        alarm: &Alarm,
    ) -> Result<SharedConnection, Unreachable> {
        let address = &self.places[place].address;
        let made = connect::connect(&self.upstream, address, alarm).await;
        let begun = match made {
            Ok(stream) => {
                let timeout = self.upstream.settings.connect_timeout;
                let begun =
                    alarm.within(timeout, Box::pin(SharedConnection::begin(stream, &self.alarms))).await;
                begun.map_err(|_| Unreachable::Late).and_then(|begun| {
                    begun.map_err(|error| Unreachable::Refused(std::io::Error::other(error)))
                })
            }
            Err(unreachable) => Err(unreachable),
        };
        if let Err(reason) = &begun {
            self.failed(place, reason);
        }
        let connection = begun?;
        let until = self.alarms.after(self.upstream.settings.idle_timeout);
        *self.places[place].shared.borrow_mut() = Some((connection.clone(), until));
        connection.ready().await.map_err(|error| Unreachable::Refused(std::io::Error::other(error)))
    }

    /// Takes a connection back for reuse.
    pub(crate) fn give_back(&self, borrowed: Borrowed) {
        let Borrowed { mut side, place, .. } = borrowed;
        let mut idle = self.places[place].idle.borrow_mut();
        if idle.len() < self.upstream.settings.most_idle {
            side.rest();
            idle.push(Idle { side, until: self.alarms.after(self.upstream.settings.idle_timeout) });
        }
    }

    /// Records that an address answered.
    pub(crate) fn succeeded(&self, place: usize) {
        self.places[place].fails.set(0);
    }

    /// Records that an address failed, and why.
    pub(crate) fn failed(&self, place: usize, reason: &dyn std::fmt::Display) {
        let (health, place) = (self.upstream.settings.health, &self.places[place]);
        place.fails.set(place.fails.get().saturating_add(1));
        if place.fails.get() >= health.fails.get() {
            place.out_until.set(self.alarms.after(health.out_for));
        }
        if place.fails.get() == health.fails.get() {
            let (upstream, address) = (&*self.upstream.settings.name, &place.address);
            tracing::warn!(component = "gateway", upstream, %address, %reason, "an upstream fails and is not used for a while");
        }
    }

    /// The address with this index.
    pub(crate) fn address(&self, place: usize) -> &Address {
        &self.places[place].address
    }

    /// The number of addresses.
    pub(crate) fn size(&self) -> usize {
        self.places.len()
    }

    /// Closes connections that were idle for too long or that the upstream closed.
    pub(crate) fn sweep(&self) {
        let now = self.alarms.now();
        for place in &self.places {
            place.idle.borrow_mut().retain_mut(|idle| idle.until > now && idle.side.is_quiet());
            let mut shared = place.shared.borrow_mut();
            if shared.as_ref().is_some_and(|(_, until)| *until <= now) {
                // Requests in flight keep it open until they end.
                *shared = None;
            }
        }
    }
}
