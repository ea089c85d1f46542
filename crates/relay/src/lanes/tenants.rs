//! Decides whose turn it is: tenants take turns, and so do the lanes of a tenant, by priority first. The items
//! in flight of a tenant are bounded, so its slow deliveries leave room for others.

use std::collections::HashMap;
use std::sync::Arc;

use super::lane::Priority;
use super::ring::Ring;
use super::{LaneNumber, LaneOptions};

/// The tenants that have lanes with something to send, or items in flight.
#[derive(Debug)]
pub(super) struct Tenants {
    all: HashMap<Arc<str>, Tenant>,
    turns: Ring<Arc<str>>,
    quantum: u32,
    per_tenant: u32,
    /// The number of tenants that have something to send but have reached their bound.
    held_back: usize,
}

#[derive(Debug)]
struct Tenant {
    /// One for each priority.
    rings: [Ring<LaneNumber>; Priority::ALL.len()],
    in_flight: u32,
    state: TenantState,
}

/// Whether a tenant takes turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TenantState {
    /// It has nothing to send.
    Idle,
    /// It is in the ring.
    InRing,
    /// It has something to send, but has reached its bound of items in flight.
    HeldBack,
}

/// The lane whose turn it is.
pub(super) struct Picked {
    pub(super) tenant: Arc<str>,
    pub(super) priority: Priority,
    pub(super) lane: LaneNumber,
}

impl Tenants {
    pub(super) fn new(options: &LaneOptions) -> Self {
        let (quantum, per_tenant) = (options.quantum, options.per_tenant);
        Self { all: HashMap::new(), turns: Ring::new(quantum), quantum, per_tenant, held_back: 0 }
    }

    /// Adds a lane whose first item has this priority.
    pub(super) fn join(&mut self, name: &Arc<str>, priority: Priority, lane: LaneNumber) {
        self.tenant(name).rings[priority as usize].join(lane);
        self.list(name);
    }

    /// Chooses the lane whose turn it is. Lanes that are not active at a priority leave its ring.
    pub(super) fn pick(&mut self, mut active: impl FnMut(LaneNumber, Priority) -> bool) -> Option<Picked> {
        let mut found = None;
        let tenant = self.turns.turn(|name| {
            let Some(tenant) = self.all.get_mut(name) else { return false };
            if tenant.in_flight >= self.per_tenant {
                tenant.state = TenantState::HeldBack;
                self.held_back += 1;
                return false;
            }
            found = Priority::ALL.into_iter().find_map(|priority| {
                let lane = tenant.rings[priority as usize].turn(|lane| active(*lane, priority))?;
                Some((priority, lane))
            });
            tenant.state = if found.is_some() { TenantState::InRing } else { TenantState::Idle };
            if found.is_none() && tenant.in_flight == 0 {
                self.all.remove(name);
            }
            found.is_some()
        })?;
        found.map(|(priority, lane)| Picked { tenant, priority, lane })
    }

    /// Records that an item of the chosen lane is in flight.
    pub(super) fn charge(&mut self, picked: &Picked, recipients: u32) {
        self.turns.charge(recipients);
        let tenant = self.tenant(&picked.tenant);
        tenant.rings[picked.priority as usize].charge(recipients);
        tenant.in_flight += 1;
    }

    /// Records that an item of a tenant is no longer in flight, or is so slow that it no longer counts.
    pub(super) fn freed(&mut self, name: &Arc<str>) {
        let tenant = self.tenant(name);
        tenant.in_flight = tenant.in_flight.saturating_sub(1);
        self.list(name);
    }

    /// Whether a tenant with something to send has reached its bound.
    pub(super) fn any_held_back(&self) -> bool {
        self.held_back > 0
    }

    fn tenant(&mut self, name: &Arc<str>) -> &mut Tenant {
        let quantum = self.quantum;
        self.all.entry(Arc::clone(name)).or_insert_with(|| Tenant {
            rings: std::array::from_fn(|_| Ring::new(quantum)),
            in_flight: 0,
            state: TenantState::Idle,
        })
    }

    /// Puts a tenant into the ring if it may take turns, and forgets it if it has nothing.
    fn list(&mut self, name: &Arc<str>) {
        let Some(tenant) = self.all.get_mut(name) else { return };
        let waits = tenant.rings.iter().any(|ring| !ring.is_empty());
        if tenant.state == TenantState::HeldBack && tenant.in_flight < self.per_tenant {
            tenant.state = TenantState::Idle;
            self.held_back -= 1;
        }
        if waits && tenant.state == TenantState::Idle {
            tenant.state = TenantState::InRing;
            self.turns.join(Arc::clone(name));
        } else if !waits && tenant.in_flight == 0 && tenant.state == TenantState::Idle {
            self.all.remove(name);
        }
    }
}
