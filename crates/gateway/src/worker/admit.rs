//! The limits of connections, which are applied before anything is read.

use std::sync::Arc;

use smallvec::SmallVec;
use tollgate_core::{Attempt, Decision, Mistake, Policy};
use tollgate_engine::admit::Holds;
use tollgate_engine::leases::Lease;
use tollgate_engine::{Admission, Admit, Engine, Fault, NotAdmitted, Terms};
use tollgate_web::facts::Source;
use tollgate_web::{Correlation, Problem};

use super::{Local, Worker};
use crate::forward::{Origin, Trust};
use crate::h1::write::Answer;
use crate::proxy::limits::refusal;

/// The result of a connection's limits.
pub(super) enum ConnectionEntry {
    /// It may stay, with this lease.
    Open(Option<Lease>),
    /// It is refused.
    Refused(Box<Answer>),
}

impl Worker {
    /// Asks whether a connection may stay.
    pub(super) async fn admit(&self, local: &Local, origin: &Origin) -> ConnectionEntry {
        let Some(policy) = &local.plan.settings.connections else { return ConnectionEntry::Open(None) };
        match self.ask(policy, local, origin).await {
            Ok(Admission { seen: None, mut taken, .. }) => ConnectionEntry::Open(taken.lease()),
            Ok(Admission { seen: Some(refusal), .. }) => ConnectionEntry::Refused(refusal),
            Err(NotAdmitted::Fault(Fault::Mistake(Mistake::NoRuleApplies { .. }))) => {
                ConnectionEntry::Open(None)
            }
            Err(fault) => {
                tracing::error!(component = "gateway", policy = &**policy, %fault, "connections cannot be limited");
                ConnectionEntry::Refused(Box::new(
                    Problem::from(fault).answer(&Correlation::default()).into(),
                ))
            }
        }
    }

    /// Asks the engine. `seen` is the refusal, if the connection is refused.
    fn ask(&self, policy: &Arc<str>, local: &Local, origin: &Origin) -> Admit<Option<Box<Answer>>> {
        let pinned = self.shared.admissions.pin();
        let address = origin.peer.to_string();
        // A connection of a trusted proxy does not show the client's address.
        let known = origin.trust(&local.plan) == Trust::Untrusted;
        let is_address =
            |field: &&str| known && local.plan.settings.aliases.source(field) == Some(Source::Ip);
        let asked = pinned.policies.find(policy).into_iter().flat_map(Policy::fields);
        let fields: SmallVec<[(&str, &str); 2]> =
            asked.filter(is_address).map(|field| (field, &*address)).collect();
        let attempt = Attempt { policy, fields: &fields, cost: 1, id: None };
        let plan = Arc::clone(&local.plan);
        let see = move |engine: &Engine, decision: &Decision<'_>| {
            let answers = &plan.settings.answers;
            let refused = || Box::new(refusal(answers, engine, decision, &Correlation::default()));
            (!decision.allowed()).then(refused)
        };
        pinned.admit(&attempt, Terms { holds: Holds::ByTaken, ..Terms::default() }, see)
    }
}
