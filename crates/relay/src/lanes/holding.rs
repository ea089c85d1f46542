//! Pauses by operators. The items of a paused lane wait until the operator resumes it, whatever else would let
//! them go.

use std::collections::HashSet;
use std::sync::Arc;

use tollgate_core::Timestamp;

use super::lane::LaneKey;
use super::{LaneNumber, Lanes};

/// A scope that an operator can pause.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// All mail.
    Queue,
    /// All mail of a tenant.
    Tenant(Arc<str>),
    /// All mail of a tenant to one recipient domain.
    Domain {
        /// The tenant that the mail belongs to.
        tenant: Arc<str>,
        /// The recipient domain.
        domain: Arc<str>,
    },
}

/// The paused scopes.
#[derive(Debug, Default)]
pub(super) struct Held(HashSet<Scope>);

impl Held {
    /// Whether a lane is paused.
    pub(super) fn covers(&self, key: &LaneKey) -> bool {
        !self.0.is_empty() && self.0.iter().any(|scope| scope.covers(key))
    }
}

impl Scope {
    fn covers(&self, key: &LaneKey) -> bool {
        match self {
            Self::Queue => true,
            Self::Tenant(tenant) => *tenant == key.tenant,
            Self::Domain { tenant, domain } => *tenant == key.tenant && *domain == key.domain,
        }
    }
}

impl Lanes {
    /// Pauses a scope. Deliveries in flight continue. Returns whether it was not paused before.
    pub fn hold(&mut self, scope: Scope, now: Timestamp) -> bool {
        let new = self.held.0.insert(scope);
        self.apply_holds(now);
        new
    }

    /// Resumes a scope. Lanes that another paused scope covers stay paused. Returns whether the scope was
    /// paused.
    pub fn release(&mut self, scope: &Scope, now: Timestamp) -> bool {
        let known = self.held.0.remove(scope);
        self.apply_holds(now);
        known
    }

    /// The paused scopes.
    pub fn holds(&self) -> Vec<Scope> {
        let mut scopes: Vec<Scope> = self.held.0.iter().cloned().collect();
        scopes.sort();
        scopes
    }

    fn apply_holds(&mut self, now: Timestamp) {
        let mut changed: Vec<LaneNumber> = Vec::new();
        for (number, lane) in &mut self.lanes {
            let held = self.held.covers(&lane.key);
            if held != lane.held {
                lane.held = held;
                changed.push(*number);
            }
        }
        for number in changed {
            self.refresh(number, now);
        }
    }
}
