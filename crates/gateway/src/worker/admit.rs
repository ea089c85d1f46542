//! The limits of connections, which are asked before anything is read.

use std::sync::Arc;

use arc_swap::Guard;
use smallvec::SmallVec;
use tollgate_core::{Attempt, Decision, Mistake};
use tollgate_engine::leases::Lease;
use tollgate_engine::{Fault, Snapshot};
use tollgate_web::facts::Source;
use tollgate_web::{Correlation, Problem};

use super::{Local, Worker};
use crate::forward::{Origin, Trust};
use crate::h1::write::Answer;
use crate::proxy::limits::refusal;

/// What a connection's limits say.
pub(super) enum Entry {
    /// It may stay, and has this for as long.
    Open(Option<Lease>),
    /// It may not.
    Refused(Box<Answer>),
}

impl Worker {
    /// Asks whether a connection may stay.
    pub(super) async fn admit(&self, local: &Local, origin: &Origin) -> Entry {
        let Some(policy) = &local.plan.settings.connections else { return Entry::Open(None) };
        let engine = &self.shared.engine;
        let pinned = Guard::into_inner(engine.pin());
        let id = self.shared.leases.fresh_id();
        match self.decide(&pinned, policy, &id, local, origin).await {
            Ok(entry) => entry,
            Err(Fault::Mistake(Mistake::NoRuleApplies { .. })) => Entry::Open(None),
            Err(fault) => {
                tracing::error!(component = "gateway", policy = &**policy, %fault, "connections cannot be limited");
                Entry::Refused(Box::new(Problem::from(fault).answer(&Correlation::default()).into()))
            }
        }
    }

    async fn decide(
        &self,
        pinned: &Snapshot,
        policy: &Arc<str>,
        id: &str,
        local: &Local,
        origin: &Origin,
    ) -> Result<Entry, Fault> {
        let policy = pinned.policies.find(policy).map_err(Fault::Mistake)?;
        let address = origin.peer.to_string();
        // Whose connection it is is known by nobody if a proxy made it.
        let known = origin.trust(&local.plan) == Trust::Nobody;
        let is_address =
            |field: &&str| known && local.plan.settings.aliases.source(field) == Some(Source::Ip);
        let fields: SmallVec<[(&str, &str); 2]> =
            policy.fields().filter(is_address).map(|field| (field, &*address)).collect();
        let attempt = Attempt { policy: &policy.name, fields: &fields, cost: 1, id: Some(id) };
        let engine = &self.shared.engine;
        let mut decision = Decision::blank();
        if !engine.decide_at_once(pinned, &attempt, &mut decision)? {
            engine.decide_into(pinned, &attempt, &mut decision).await?;
        }
        if decision.allowed() {
            return Ok(Entry::Open(Some(self.shared.leases.keep(&decision, id))));
        }
        let answers = &local.plan.settings.answers;
        Ok(Entry::Refused(Box::new(refusal(answers, engine, &decision, &Correlation::default()))))
    }
}
