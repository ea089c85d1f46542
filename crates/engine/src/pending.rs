//! Attempts whose answer is still to come: what was charged by rules that count only some answers, and
//! is given back once the answer turns out to be another.
//!
//! What is never answered stays counted: whoever hangs up before the answer does not guess for free.

use std::sync::Arc;

use smallvec::SmallVec;
use tollgate_core::store::{Answer, Given};
use tollgate_core::{Charges, Decision, Origin, Policies, Statuses, StoreError, Ticket, Timestamp};

use crate::calendar::page;
use crate::engine::{Engine, Snapshot};
use crate::receipt::Home;

/// What may be given back once an answer is known. Dropped, it stays counted.
#[derive(Clone, Debug)]
#[must_use = "what is not told its answer stays counted"]
pub struct Pending {
    ticket: Ticket,
    at: Timestamp,
    cost: u64,
    home: Home,
    charged: SmallVec<[Charged; 1]>,
}

/// One charge of a rule that counts only some answers.
#[derive(Clone, Debug)]
struct Charged {
    rule: Arc<str>,
    key: Box<str>,
    counts: Statuses,
}

impl Pending {
    /// Keeps what does not count, now that the status is known; nothing if all of it does.
    fn owed(mut self, status: u16) -> Option<Self> {
        self.charged.retain(|charged| !charged.counts.contains(status));
        (!self.charged.is_empty()).then_some(self)
    }

    /// The charges that are to be given back, under the limits that hold now.
    fn charges<'a>(&'a self, policies: &'a Policies) -> Charges<'a> {
        let mut charges = Charges::new(self.ticket, self.cost, None);
        for Charged { rule, key, .. } in &self.charged {
            if let Some(rule) = policies.rule(rule) {
                charges.push(rule.plan_at(key), key, true);
            }
        }
        charges.calendar = charges.periods().map(|period| page(period, self.at)).collect();
        charges
    }
}

impl Engine {
    /// What may be given back once the answer is known; `None` if every rule counts at once, or nothing
    /// was taken.
    pub fn pending(&self, decision: &Decision<'_>) -> Option<Pending> {
        if decision.outcome.taken == 0 || !decision.policy().counts_answers() {
            return None;
        }
        let charged: SmallVec<[Charged; 1]> = decision
            .lines()
            .filter(|line| line.taken)
            .filter_map(|line| {
                let (rule, key) = (Arc::clone(&line.rule.name), line.key.into());
                line.rule.count_when.map(|counts| Charged { rule, key, counts })
            })
            .collect();
        let (ticket, at, cost) = (decision.charges.ticket, decision.outcome.now, decision.charges.cost);
        let home = if matches!(decision.origin, Origin::Local(_)) { Home::Local } else { Home::Store };
        (!charged.is_empty()).then_some(Pending { ticket, at, cost, home, charged })
    }

    /// Tells what an attempt was answered with: what rules charged that do not count this status is
    /// given back, once, as far as it still counts.
    pub async fn answered(&self, pending: Pending, status: u16) -> Result<(), StoreError> {
        let Some(pending) = pending.owed(status) else { return Ok(()) };
        let pinned = self.pin();
        let charges = pending.charges(pinned.policies_of(pending.home));
        if charges.is_empty() {
            return Ok(());
        }
        let given = match pending.home {
            Home::Store => self.ask(self.store.give(&charges, pending.at)).await,
            Home::Local => self.give_local(&charges, pending.at).await,
        };
        if let Some(shared) = &self.shared {
            shared.freed(&charges);
        }
        given.map(|_: Given| ())
    }

    /// As [`Engine::answered`], without waiting, if nobody need wait: nothing is to be given back, or
    /// the store answers at once. Otherwise what is pending comes back, to be told with
    /// [`Engine::answered`].
    pub fn answered_at_once(&self, pending: Pending, status: u16) -> Result<(), Pending> {
        let Some(pending) = pending.owed(status) else { return Ok(()) };
        if !self.gives_at_once(pending.home) {
            return Err(pending);
        }
        let pinned = self.pin();
        let charges = pending.charges(pinned.policies_of(pending.home));
        let store = match (&self.shared, pending.home) {
            (Some(shared), Home::Local) => &shared.fallback,
            _ => &self.store,
        };
        if !charges.is_empty() {
            match store.give(&charges, pending.at) {
                // A store of this process has nothing to fail with: it is asked for no new key.
                Answer::Ready(_) => {}
                Answer::Later(_) => unreachable!("it says that it answers at once"),
            }
        }
        if let Some(shared) = &self.shared {
            shared.freed(&charges);
        }
        Ok(())
    }

    fn gives_at_once(&self, home: Home) -> bool {
        match (&self.shared, home) {
            (None, _) => self.store.answers_at_once(),
            (Some(shared), Home::Local) => shared.fallback.answers_at_once(),
            (Some(_), Home::Store) => false,
        }
    }
}

impl Snapshot {
    /// The policies under which something was taken.
    pub(crate) fn policies_of(&self, home: Home) -> &Policies {
        match home {
            Home::Store => &self.policies,
            Home::Local => self.local.as_ref().unwrap_or(&self.policies),
        }
    }
}
