//! Upstreams, as one worker sees them: whose turn it is, who is out, and which connections can be
//! used again.

mod connect;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use crate::alarm::{Alarm, Alarms};
use crate::h1::side::Side;
use crate::http2::trunk::Trunk;
use crate::settings::{Address, UpstreamSettings};

pub(crate) use connect::Unreachable;

/// An upstream, ready to be connected to. Workers share it.
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
    /// The one that was used last comes last, and is used next.
    idle: RefCell<Vec<Idle>>,
    /// How often it failed in a row.
    fails: Cell<u32>,
    /// Until when it is left out, once it failed too often.
    out_until: Cell<u32>,
    /// The connection that all share, if HTTP/2 is spoken, and until when it is kept unused.
    shared: RefCell<Option<(Trunk, u32)>>,
}

struct Idle {
    side: Side,
    until: u32,
}

/// A connection that is in use. If it is not given back, it is closed.
pub(crate) struct Borrowed {
    pub(crate) side: Side,
    pub(crate) place: usize,
    /// Whether others used it before: then it may be closed without anybody's fault.
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

    /// Whose turn it is: the next address that is not out. If all are, it is the next one all the
    /// same, since somebody must find out when they are back.
    pub(crate) fn choose(&self) -> usize {
        let (count, first) = (self.places.len(), self.turn.get());
        self.turn.set((first + 1) % count);
        let in_order = (first..first + count).map(|place| place % count);
        in_order.into_iter().find(|place| self.admits(*place)).unwrap_or(first % count)
    }

    /// Whether an address may be asked. One that was out long enough is asked once, and by nobody
    /// else until that one has got an answer or the time is up again.
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

    /// A connection to an address that was used before, if there is one that still can be.
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

    /// The connection to an address that all requests share, if there is one that still can be used. One
    /// on which too many were given up is left to those who are on it.
    pub(crate) async fn reuse_shared(&self, place: usize) -> Option<Trunk> {
        let shared = &self.places[place].shared;
        let trunk = {
            let mut kept = shared.borrow_mut();
            kept.take_if(|(trunk, _)| trunk.is_strained());
            kept.as_ref().map(|(trunk, _)| trunk.clone())?
        };
        let ready = trunk.ready().await.ok();
        let until = self.alarms.after(self.upstream.settings.idle_timeout);
        let mut kept = shared.borrow_mut();
        match (&ready, &mut *kept) {
            (Some(_), Some((_, kept_until))) => *kept_until = until,
            (None, kept) => *kept = None,
            _ => {}
        }
        ready
    }

    /// A new connection to an address, for all requests to share.
    pub(crate) async fn connect_shared(&self, place: usize, alarm: &Alarm) -> Result<Trunk, Unreachable> {
        let address = &self.places[place].address;
        let made = connect::connect(&self.upstream, address, alarm).await;
        let begun = match made {
            Ok(stream) => {
                let timeout = self.upstream.settings.connect_timeout;
                let begun = alarm.within(timeout, Box::pin(Trunk::begin(stream, &self.alarms))).await;
                begun.map_err(|_| Unreachable::Late).and_then(|begun| {
                    begun.map_err(|error| Unreachable::Refused(std::io::Error::other(error)))
                })
            }
            Err(unreachable) => Err(unreachable),
        };
        if let Err(reason) = &begun {
            self.failed(place, reason);
        }
        let trunk = begun?;
        let until = self.alarms.after(self.upstream.settings.idle_timeout);
        *self.places[place].shared.borrow_mut() = Some((trunk.clone(), until));
        trunk.ready().await.map_err(|error| Unreachable::Refused(std::io::Error::other(error)))
    }

    /// Takes a connection back, to be used again.
    pub(crate) fn give_back(&self, borrowed: Borrowed) {
        let Borrowed { mut side, place, .. } = borrowed;
        let mut idle = self.places[place].idle.borrow_mut();
        if idle.len() < self.upstream.settings.most_idle {
            side.rest();
            idle.push(Idle { side, until: self.alarms.after(self.upstream.settings.idle_timeout) });
        }
    }

    /// Takes note that an address answered.
    pub(crate) fn succeeded(&self, place: usize) {
        self.places[place].fails.set(0);
    }

    /// Takes note that an address failed, and why.
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

    /// The address of a place.
    pub(crate) fn address(&self, place: usize) -> &Address {
        &self.places[place].address
    }

    /// How many addresses there are.
    pub(crate) fn size(&self) -> usize {
        self.places.len()
    }

    /// Closes connections that nobody used for too long, and those that the upstream closed.
    pub(crate) fn sweep(&self) {
        let now = self.alarms.now();
        for place in &self.places {
            place.idle.borrow_mut().retain_mut(|idle| idle.until > now && idle.side.is_quiet());
            let mut shared = place.shared.borrow_mut();
            if shared.as_ref().is_some_and(|(_, until)| *until <= now) {
                // What is under way over it goes on; then it is closed.
                *shared = None;
            }
        }
    }
}
