//! The limits of a request: which policy, what is known, and what is decided.

use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use arc_swap::Guard;
use http::HeaderMap;
use tollgate_core::{Attempt, Decision, Mistake, Origin, Policy};
use tollgate_engine::{Fault, Pending, Snapshot};
use tollgate_web::answer::Lines;
use tollgate_web::facts::Source;
use tollgate_web::{Facts, Identity, Problem};

use super::note::Note;
use super::{Case, correlation};
use crate::connection::Visit;
use crate::forward::Trust;
use crate::h1::write::Answer;
use crate::plan::Route;

/// What a request's limits say.
pub(super) enum Limited {
    Admitted(Admitted),
    Refused(Box<Answer>),
}

/// A request that may pass.
#[derive(Default)]
pub(super) struct Admitted {
    /// What the response says of the limits, as header lines.
    pub(super) lines: Vec<u8>,
    /// What may be given back, depending on the response. If there is none, it stays counted: a guesser
    /// would hang up otherwise.
    pending: Option<Pending>,
}

impl Admitted {
    /// Takes note of the response's status.
    pub(super) fn answered(&mut self, visit: &Visit, status: u16) {
        let Some(pending) = self.pending.take() else { return };
        let engine = &visit.worker.shared.engine;
        if let Some(pending) = engine.answered_at_once(pending, status) {
            let engine = Arc::clone(engine);
            // The client need not wait for it, and the engine offers again what the store does not take.
            tokio::task::spawn_local(async move { engine.answered(pending, status).await });
        }
    }
}

/// The policy of a route's requests: the one that was assigned over the API, or else the configured one.
fn policy_of<'p>(pinned: &'p Snapshot, route: &Route) -> Option<Result<&'p Policy, Mistake>> {
    if let Some(assigned) = pinned.policy_of_route(&route.name) {
        return Some(Ok(assigned));
    }
    let name = route.policy.as_ref()?;
    Some(pinned.policies.find(name))
}

/// What is known of a request, as far as its policy needs it.
struct Known {
    client: IpAddr,
    needs: Needs,
    identity: Identity,
}

/// What a policy needs to know of a request beside its first line and its address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Needs {
    Nothing,
    Headers,
    Identity,
}

/// Room for the header lines that a decision comes with, in most cases.
const ROOM: usize = 320;

static NO_HEADERS: LazyLock<HeaderMap> = LazyLock::new(HeaderMap::new);

impl Case<'_> {
    /// Asks the limits.
    pub(super) async fn limit(&self, note: &mut Note<'_>) -> Limited {
        let limited = match self.limit_at_once(note) {
            // Boxed, since what waits for a store is large, and most stores need not be waited for.
            Ok(None) => Box::pin(self.limit_in_time(note)).await,
            Ok(Some(limited)) => Ok(limited),
            Err(problem) => Err(problem),
        };
        limited.unwrap_or_else(|problem| Limited::Refused(Box::new(self.problem(&problem))))
    }

    /// Decides without waiting, if the store is one that answers at once.
    fn limit_at_once(&self, note: &mut Note<'_>) -> Result<Option<Limited>, Problem> {
        let engine = &self.visit.worker.shared.engine;
        let pinned = engine.pin();
        let Some(policy) = policy_of(&pinned, self.route()) else {
            return Ok(Some(Limited::Admitted(Admitted::default())));
        };
        let policy = policy.map_err(|mistake| self.mistaken(mistake))?;
        let known = self.know(policy, note)?;
        let facts = self.facts(&known);
        let asked = facts.ask(policy, &self.local.plan.settings.aliases)?;
        let pairs = asked.pairs();
        let attempt = Attempt { policy: &policy.name, fields: &pairs, cost: 1, id: None };
        let mut decision = Decision::blank();
        let decided = engine.decide_at_once(&pinned, &attempt, &mut decision);
        let decided = decided.map_err(|fault| self.fault(fault))?;
        Ok(decided.then(|| self.conclude(&decision, note)))
    }

    /// Decides, however long the store takes.
    async fn limit_in_time(&self, note: &mut Note<'_>) -> Result<Limited, Problem> {
        let engine = &self.visit.worker.shared.engine;
        let pinned = Guard::into_inner(engine.pin());
        let Some(policy) = policy_of(&pinned, self.route()) else {
            return Ok(Limited::Admitted(Admitted::default()));
        };
        let policy = policy.map_err(|mistake| self.mistaken(mistake))?;
        let known = self.know(policy, note)?;
        let facts = self.facts(&known);
        let asked = facts.ask(policy, &self.local.plan.settings.aliases)?;
        let pairs = asked.pairs();
        let attempt = Attempt { policy: &policy.name, fields: &pairs, cost: 1, id: None };
        let mut decision = Decision::blank();
        let decided = engine.decide_into(&pinned, &attempt, &mut decision).await;
        decided.map_err(|fault| self.fault(fault))?;
        Ok(self.conclude(&decision, note))
    }

    /// Finds out what a policy needs to know.
    fn know(&self, policy: &Policy, note: &mut Note<'_>) -> Result<Known, Problem> {
        let settings = &self.local.plan.settings;
        let needs = |field: &str| match settings.aliases.source(field) {
            Some(Source::Header(_) | Source::Cookie(_)) => Needs::Headers,
            Some(source) if proves(source) => Needs::Identity,
            _ => Needs::Nothing,
        };
        let needs = policy.fields().map(needs).max().unwrap_or(Needs::Nothing);
        let origin = &self.visit.origin;
        let client = match origin.trust {
            Trust::Nobody => origin.peer,
            Trust::Proxy => settings.trusted_proxies.client(origin.peer, self.request.headers()),
        };
        note.client = Some(client);
        let identity = match needs {
            Needs::Identity => settings.credentials.recognise(self.request.headers())?,
            Needs::Nothing | Needs::Headers => Identity::default(),
        };
        Ok(Known { client, needs, identity })
    }

    fn facts<'f>(&'f self, known: &'f Known) -> Facts<'f> {
        Facts {
            route: &self.route().name,
            client: known.client,
            method: &self.request.method,
            path: self.path,
            query: self.query.and_then(|query| str::from_utf8(query).ok()),
            host: self.host,
            headers: if known.needs == Needs::Nothing { &NO_HEADERS } else { self.request.headers() },
            identity: &known.identity,
        }
    }

    /// What a decision means for the request.
    fn conclude(&self, decision: &Decision<'_>, note: &mut Note<'_>) -> Limited {
        note.decided = Some(match decision.origin {
            Origin::Store => "store",
            Origin::Local(_) => "local",
            Origin::Outage(_) => "outage",
            Origin::Fixed => "fixed",
            Origin::Barred => "barred",
        });
        let answers = &self.local.plan.settings.answers;
        let engine = &self.visit.worker.shared.engine;
        let mut lines = Lines(Vec::with_capacity(ROOM));
        if decision.allowed() {
            answers.headers(decision, &mut lines);
            return Limited::Admitted(Admitted { lines: lines.0, pending: engine.pending(decision) });
        }
        let correlation = correlation(self.request);
        let (status, body) = answers.refuse(engine, decision, &correlation, &mut lines);
        Limited::Refused(Box::new(Answer { status, lines: lines.0, body }))
    }

    /// Why there is no decision.
    fn fault(&self, fault: Fault) -> Problem {
        match fault {
            Fault::Mistake(mistake) => self.mistaken(mistake),
            Fault::Store(error) => error.into(),
        }
    }

    fn mistaken(&self, mistake: Mistake) -> Problem {
        let aliases = &self.local.plan.settings.aliases;
        match mistake {
            Mistake::NoRuleApplies { fields, .. }
                if fields.iter().any(|field| aliases.source(field).is_some_and(proves)) =>
            {
                Problem::unauthorized("the request does not say who it comes from")
            }
            Mistake::UnknownPolicy { .. } | Mistake::UnknownField { .. } => {
                Problem::misconfigured(mistake.to_string())
            }
            mistake => Problem::bad_request(mistake.to_string()),
        }
    }
}

/// Whether a source is something that the client has to prove.
fn proves(source: Source<'_>) -> bool {
    matches!(source, Source::Subject | Source::Claim(_) | Source::ApiKey | Source::Consumer)
}
