//! Decides whose turn it is: tenants take turns, and so do the lanes of a tenant, by priority first. The items
//! in flight of a tenant are bounded, so its slow deliveries leave room for others.
//!
//! A trial is a delivery to a server that is new, or did not answer the last time. As soon as servers do not answer,
//! trials get a share of the places. The more of a tenant's servers are silent, the smaller its share: so there is room
//! for another trial at any time, and lanes whose servers answer never wait for those that do not.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::flights::share;
use super::lane::Priority;
use super::ring::Ring;
use super::roster::{Offer, Roster};
use super::{LaneNumber, LaneOptions};

/// The tenants that have lanes with something to send, or items in flight.
#[derive(Debug)]
pub(super) struct Tenants {
    all: HashMap<Arc<str>, Tenant>,
    turns: Ring<Arc<str>>,
    quantum: u32,
    bounds: Bounds,
    /// The number of tenants that have something to send but have reached their bound.
    held_back: usize,
    /// The number of lanes that wait for room for a trial.
    benched: usize,
    /// Tenants whose trials wait for those of other tenants, in their order.
    crowd: VecDeque<Arc<str>>,
    /// The trials of all tenants that hold a place.
    trials: u32,
    /// The silent deliveries of all tenants.
    silent: u32,
}

#[derive(Debug)]
struct Bounds {
    per_tenant: u32,
    /// Trials of one tenant, and the same if many of its servers are silent.
    trials: u32,
    few_trials: u32,
    /// From how many silent deliveries a tenant gets few trials, and none.
    many_silent: u32,
    most_silent: u32,
    trials_in_total: u32,
}

#[derive(Debug)]
struct Tenant {
    /// One for each priority.
    rosters: [Roster; Priority::ALL.len()],
    in_flight: u32,
    /// Those of them that are trials.
    trials: u32,
    /// Deliveries whose answer is overdue, with a place or without.
    silent: u32,
    state: TenantState,
    in_crowd: bool,
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

/// Whether a tenant may begin a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Open,
    /// Its own trials are too many.
    Own,
    /// Those of all tenants are.
    Total,
}

/// The lane whose turn it is.
pub(super) struct Picked {
    pub(super) tenant: Arc<str>,
    pub(super) priority: Priority,
    pub(super) lane: LaneNumber,
    pub(super) trial: bool,
}

/// What a delivery counts as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Weight {
    /// It holds a place.
    pub(super) place: bool,
    /// It is a trial that holds a place.
    pub(super) trial: bool,
    /// Its answer is overdue.
    pub(super) silent: bool,
}

impl Bounds {
    fn gate(&self, tenant: &Tenant, trials: u32, silent: u32) -> Gate {
        let most = match tenant.silent {
            0 => self.per_tenant,
            silent if silent < self.many_silent => self.trials,
            silent if silent < self.most_silent => self.few_trials,
            _ => 0,
        };
        if tenant.trials >= most {
            Gate::Own
        } else if silent > 0 && trials >= self.trials_in_total {
            Gate::Total
        } else {
            Gate::Open
        }
    }
}

impl Tenants {
    pub(super) fn new(options: &LaneOptions) -> Self {
        let (trials, most_silent) = (share(options.per_tenant), share(share(options.most_slow)).max(1));
        let bounds = Bounds {
            per_tenant: options.per_tenant,
            trials,
            few_trials: (trials / 24).max(1),
            many_silent: (most_silent / 3).max(1),
            most_silent,
            trials_in_total: share(options.in_total),
        };
        Self {
            all: HashMap::new(),
            turns: Ring::new(options.quantum),
            quantum: options.quantum,
            bounds,
            held_back: 0,
            benched: 0,
            crowd: VecDeque::new(),
            trials: 0,
            silent: 0,
        }
    }

    /// Adds a lane whose first item has this priority.
    pub(super) fn join(&mut self, name: &Arc<str>, priority: Priority, lane: LaneNumber) {
        self.tenant(name).rosters[priority as usize].join(lane);
        self.list(name);
    }

    /// Chooses the lane whose turn it is. Lanes that offer nothing at a priority leave its ring.
    pub(super) fn pick(&mut self, mut offer: impl FnMut(LaneNumber, Priority) -> Offer) -> Option<Picked> {
        loop {
            let room = self.silent == 0 || self.trials < self.bounds.trials_in_total;
            let first = self.crowd.pop_front_if(|_| room);
            if let Some(name) = &first {
                if let Some(tenant) = self.all.get_mut(name) {
                    tenant.in_crowd = false;
                }
                self.list(name);
            }
            let picked = self.pick_from_ring(&mut offer);
            if picked.is_some() || first.is_none() {
                return picked;
            }
        }
    }

    fn pick_from_ring(&mut self, offer: &mut impl FnMut(LaneNumber, Priority) -> Offer) -> Option<Picked> {
        let (mut found, trials, silent) = (None, self.trials, self.silent);
        let tenant = self.turns.turn(|name| {
            let Some(tenant) = self.all.get_mut(name) else { return false };
            if tenant.in_flight >= self.bounds.per_tenant {
                tenant.state = TenantState::HeldBack;
                self.held_back += 1;
                return false;
            }
            let gate = self.bounds.gate(tenant, trials, silent);
            found = Priority::ALL.into_iter().find_map(|priority| {
                let roster = &mut tenant.rosters[priority as usize];
                let next = roster.next(gate == Gate::Open, &mut self.benched, |lane| offer(lane, priority));
                next.map(|(lane, trial)| (priority, lane, trial))
            });
            tenant.state = if found.is_some() { TenantState::InRing } else { TenantState::Idle };
            if found.is_none() && gate == Gate::Total && tenant.has_bench() && !tenant.in_crowd {
                tenant.in_crowd = true;
                self.crowd.push_back(Arc::clone(name));
            }
            if found.is_none() && tenant.is_forgettable() {
                self.all.remove(name);
            }
            found.is_some()
        })?;
        found.map(|(priority, lane, trial)| Picked { tenant, priority, lane, trial })
    }

    /// Records that an item of the chosen lane is in flight.
    pub(super) fn charge(&mut self, picked: &Picked, recipients: u32) {
        self.turns.charge(recipients);
        self.tenant(&picked.tenant).rosters[picked.priority as usize].charge(recipients);
        let weight = Weight { place: true, trial: picked.trial, silent: false };
        self.reweigh(&picked.tenant, Weight::default(), weight);
    }

    /// Records that a delivery of a tenant counts as something else now.
    pub(super) fn reweigh(&mut self, name: &Arc<str>, old: Weight, new: Weight) {
        let changed =
            |count: u32, old: bool, new: bool| count.saturating_sub(u32::from(old)) + u32::from(new);
        self.trials = changed(self.trials, old.trial, new.trial);
        self.silent = changed(self.silent, old.silent, new.silent);
        let tenant = self.tenant(name);
        tenant.in_flight = changed(tenant.in_flight, old.place, new.place);
        tenant.trials = changed(tenant.trials, old.trial, new.trial);
        tenant.silent = changed(tenant.silent, old.silent, new.silent);
        self.list(name);
    }

    /// Records that the server of a lane answers. The lane no longer waits for room for a trial.
    pub(super) fn recall(&mut self, name: &Arc<str>, lane: LaneNumber) {
        let Some(tenant) = self.all.get_mut(name) else { return };
        let recalled =
            tenant.rosters.iter_mut().map(|roster| usize::from(roster.recall(lane))).sum::<usize>();
        self.benched -= recalled;
        self.list(name);
    }

    /// Whether a tenant with something to send has reached its bound, or lanes wait for room for a trial.
    pub(super) fn any_held_back(&self) -> bool {
        self.held_back > 0 || self.benched > 0
    }

    fn tenant(&mut self, name: &Arc<str>) -> &mut Tenant {
        let quantum = self.quantum;
        self.all.entry(Arc::clone(name)).or_insert_with(|| Tenant {
            rosters: std::array::from_fn(|_| Roster::new(quantum)),
            in_flight: 0,
            trials: 0,
            silent: 0,
            state: TenantState::Idle,
            in_crowd: false,
        })
    }

    /// Puts a tenant into the ring if it may take turns, and forgets it if it has nothing.
    fn list(&mut self, name: &Arc<str>) {
        let Some(tenant) = self.all.get_mut(name) else { return };
        let gate = self.bounds.gate(tenant, self.trials, self.silent);
        let waits = tenant
            .rosters
            .iter()
            .any(|roster| roster.has_turns() || gate == Gate::Open && roster.has_bench());
        if gate == Gate::Total && tenant.has_bench() && !tenant.in_crowd {
            tenant.in_crowd = true;
            self.crowd.push_back(Arc::clone(name));
        }
        if tenant.state == TenantState::HeldBack && tenant.in_flight < self.bounds.per_tenant {
            tenant.state = TenantState::Idle;
            self.held_back -= 1;
        }
        if waits && tenant.state == TenantState::Idle {
            tenant.state = TenantState::InRing;
            self.turns.join(Arc::clone(name));
        } else if !waits && tenant.state == TenantState::Idle && tenant.is_forgettable() {
            self.all.remove(name);
        }
    }
}

impl Tenant {
    fn has_bench(&self) -> bool {
        self.rosters.iter().any(Roster::has_bench)
    }

    fn is_forgettable(&self) -> bool {
        self.in_flight == 0 && self.silent == 0 && !self.in_crowd && !self.has_bench()
    }
}
