//! The limits of a request: which policy, what is known, and what is decided.

mod queue;

use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use arc_swap::Guard;
use http::HeaderMap;
use tollgate_core::{Attempt, Decision, Mistake, Origin, Policy, Verdict};
use tollgate_engine::{Engine, Fault, Leases, Pending, Snapshot};
use tollgate_web::answer::Lines;
use tollgate_web::facts::{Asked, Body, Source};
use tollgate_web::{Aliases, Answers, Correlation, Facts, Identity, Problem, words};

use super::Case;
use super::guarding::Guarded;
use super::held::Held;
use super::note::{Decided, Note};
use crate::connection::Visit;
use crate::exchange::Client;
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
    pending: Option<Box<Pending>>,
    /// What its response ends, if it is a login.
    pub(super) guarded: Option<Box<Guarded>>,
    /// What it holds for as long as it is under way.
    pub(super) held: Held,
}

impl Admitted {
    /// Its lines are written to a buffer that is empty.
    fn new(
        buffer: Vec<u8>,
        answers: &Answers,
        engine: &Engine,
        leases: &Leases,
        decision: &Decision<'_>,
    ) -> Self {
        let mut lines = Lines(buffer);
        answers.headers(decision, &mut lines);
        let mut held = Held::default();
        if let Some(id) = decision.charges.id {
            held.add(leases.keep(decision, id));
        }
        Self { lines: lines.0, pending: engine.pending(decision).map(Box::new), guarded: None, held }
    }

    /// Takes note of the response's status.
    pub(super) fn answered(&mut self, visit: &Visit, status: u16) {
        let Some(pending) = self.pending.take() else { return };
        let engine = &visit.worker.shared.engine;
        if let Some(pending) = engine.answered_at_once(*pending, status) {
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
pub(super) struct Known {
    client: IpAddr,
    needs: Needs,
    /// Who it proved to come from, if that matters.
    identity: Option<Box<Identity>>,
}

/// What a policy needs to know of a request beside its first line and its address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Needs {
    Nothing,
    Headers,
    Identity,
}

static NO_HEADERS: LazyLock<HeaderMap> = LazyLock::new(HeaderMap::new);
static NOBODY: Identity = Identity { subject: None, api_key: None, consumer: None, claims: None };

/// What could be decided without waiting for anybody.
enum AtOnce {
    Limited(Limited),
    /// The store has to be waited for.
    Later,
    /// It has to queue: others do, or it exceeds a limit that lets it wait.
    Queue,
}

impl Case<'_> {
    /// Asks the limits. `None` if the client went away while it had to wait.
    pub(super) async fn limit<C: Client>(&self, client: &mut C, note: &mut Note<'_>) -> Option<Limited> {
        let limited = match self.limit_at_once(note) {
            Ok(AtOnce::Limited(limited)) => Ok(limited),
            Err(problem) => Err(problem),
            // Boxed, since what waits is large, and few have to.
            Ok(AtOnce::Later) => Box::pin(self.limit_in_time(client, note)).await?,
            Ok(AtOnce::Queue) => Box::pin(self.queue(client, note)).await?,
        };
        Some(limited.unwrap_or_else(|problem| Limited::Refused(Box::new(self.problem(&problem)))))
    }

    /// Decides without waiting, if nobody has to be waited for.
    fn limit_at_once(&self, note: &mut Note<'_>) -> Result<AtOnce, Problem> {
        let shared = &self.visit.worker.shared;
        let pinned = shared.engine.pin();
        let wanted = shared.engine.wanted();
        let listed = wanted.as_deref().map_or(&[][..], |wanted| wanted);
        let Some(policy) = policy_of(&pinned, self.route()) else {
            return Ok(AtOnce::Limited(self.admit_unlimited(listed, note)?));
        };
        let policy = policy.map_err(|mistake| self.mistaken(mistake))?;
        let known = self.know_of(policy, listed, note)?;
        let facts = self.facts(&known, None);
        let mut asked = Asked::default();
        facts.ask_beside(policy, listed, self.aliases(), &mut asked)?;
        let pairs = asked.pairs();
        let id = self.id_for(policy);
        let attempt = Attempt { policy: &policy.name, fields: &pairs, cost: 1, id: id.as_deref() };
        if policy.lets_wait() && shared.pacer.is_waiting(&pinned, &attempt) {
            return Ok(AtOnce::Queue);
        }
        let mut decision = Decision::for_caller(self.given_id());
        let decided = shared.engine.decide_patiently_at_once(&pinned, &attempt, &mut decision);
        if !decided.map_err(|fault| self.fault(fault))? {
            return Ok(AtOnce::Later);
        }
        note.decide(&decision);
        Ok(match decision.verdict {
            Verdict::Wait(_) => AtOnce::Queue,
            _ => AtOnce::Limited(self.conclude(&decision)),
        })
    }

    /// Decides, however long the store takes.
    async fn limit_in_time<C: Client>(
        &self,
        client: &mut C,
        note: &mut Note<'_>,
    ) -> Option<Result<Limited, Problem>> {
        match self.decide_in_time(note).await {
            Ok(Some(limited)) => Some(Ok(limited)),
            Ok(None) => self.queue(client, note).await,
            Err(problem) => Some(Err(problem)),
        }
    }

    /// `None` if it has to wait for its turn.
    async fn decide_in_time(&self, note: &mut Note<'_>) -> Result<Option<Limited>, Problem> {
        let engine = &self.visit.worker.shared.engine;
        let pinned = Guard::into_inner(engine.pin());
        let wanted = engine.wanted();
        let listed = wanted.as_deref().map_or(&[][..], |wanted| wanted);
        let Some(policy) = policy_of(&pinned, self.route()) else {
            return self.admit_unlimited(listed, note).map(Some);
        };
        let policy = policy.map_err(|mistake| self.mistaken(mistake))?;
        let known = self.know_of(policy, listed, note)?;
        let facts = self.facts(&known, None);
        let mut asked = Asked::default();
        facts.ask_beside(policy, listed, self.aliases(), &mut asked)?;
        let pairs = asked.pairs();
        let id = self.id_for(policy);
        let attempt = Attempt { policy: &policy.name, fields: &pairs, cost: 1, id: id.as_deref() };
        let mut decision = Decision::for_caller(self.given_id());
        let decided = engine.decide_patiently(&pinned, &attempt, &mut decision).await;
        decided.map_err(|fault| self.fault(fault))?;
        note.decide(&decision);
        let waits = matches!(decision.verdict, Verdict::Wait(_));
        Ok((!waits).then(|| self.conclude(&decision)))
    }

    /// What a request of this policy is to be known by, if it holds something.
    pub(super) fn id_for(&self, policy: &Policy) -> Option<String> {
        policy.holds().then(|| self.visit.worker.shared.leases.fresh_id())
    }

    /// Admits a request that no policy is about, unless it is from somebody who is barred.
    fn admit_unlimited(&self, listed: &[Arc<str>], note: &mut Note<'_>) -> Result<Limited, Problem> {
        if !listed.is_empty() {
            let known = self.know(listed.iter().map(|name| &**name), self.aliases(), note)?;
            let asked = self.facts(&known, None);
            let asked = asked.ask_alone(listed, self.aliases())?;
            let engine = &self.visit.worker.shared.engine;
            if let Some(listing) = engine.bars(&asked.pairs()) {
                note.decided = Some(Decided::new(words::origin(Origin::Barred)));
                let correlation = self.correlation().settled();
                engine.tell_barred(&listing, correlation.text().unwrap_or_default());
                return Ok(Limited::Refused(Box::new(self.answer(&Problem::banned(&listing), &correlation))));
            }
        }
        Ok(Limited::Admitted(Admitted::default()))
    }

    /// The names that hold for all routes.
    fn aliases(&self) -> &Aliases {
        &self.local.plan.settings.aliases
    }

    /// Finds out what is needed to know the fields of a policy, and of the lists.
    fn know_of(&self, policy: &Policy, listed: &[Arc<str>], note: &mut Note<'_>) -> Result<Known, Problem> {
        self.know(policy.fields().chain(listed.iter().map(|name| &**name)), self.aliases(), note)
    }

    /// Finds out what is needed to know these fields.
    pub(super) fn know<'n>(
        &self,
        fields: impl Iterator<Item = &'n str>,
        aliases: &Aliases,
        note: &mut Note<'_>,
    ) -> Result<Known, Problem> {
        let settings = &self.local.plan.settings;
        let needs = |field: &str| match aliases.source(field) {
            Some(Source::Header(_) | Source::Cookie(_)) => Needs::Headers,
            Some(source) if source.is_proved() => Needs::Identity,
            _ => Needs::Nothing,
        };
        let needs =
            fields.filter(|field| !Source::is_at_hand(field)).map(needs).max().unwrap_or(Needs::Nothing);
        let origin = &self.visit.origin;
        let client = match origin.trust(&self.local.plan) {
            Trust::Nobody => origin.peer,
            Trust::Proxy => settings.trusted_proxies.client(origin.peer, self.request.headers()),
        };
        note.client = Some(client);
        let identity = match needs {
            Needs::Identity => Some(Box::new(settings.credentials.recognise(self.request.headers())?)),
            Needs::Nothing | Needs::Headers => None,
        };
        Ok(Known { client, needs, identity })
    }

    /// The client's address as text, if it is the peer's, which was written down when it came.
    fn address(&self, known: &Known) -> Option<&str> {
        let origin = &self.visit.origin;
        (known.client == origin.peer).then_some(&*origin.text)
    }

    pub(super) fn facts<'f>(&'f self, known: &'f Known, body: Option<&'f Body>) -> Facts<'f> {
        Facts {
            route: &self.route().name,
            client: known.client,
            address: self.address(known),
            method: &self.request.method,
            path: self.path,
            query: self.query.and_then(|query| str::from_utf8(query).ok()),
            host: self.host,
            headers: if known.needs == Needs::Nothing { &NO_HEADERS } else { self.request.headers() },
            identity: known.identity.as_deref().unwrap_or(&NOBODY),
            body,
        }
    }

    /// What a decision means for the request.
    fn conclude(&self, decision: &Decision<'_>) -> Limited {
        let answers = &self.local.plan.settings.answers;
        let worker = &self.visit.worker;
        let engine = &worker.shared.engine;
        if decision.allowed() {
            let leases = &worker.shared.leases;
            return Limited::Admitted(Admitted::new(worker.buffer(), answers, engine, leases, decision));
        }
        let mut answer = worker.spare_answer();
        answer.status = answers.refuse_again(engine, decision, &self.correlation(), &mut answer.text);
        Limited::Refused(answer)
    }

    /// Why there is no decision.
    pub(super) fn fault(&self, fault: Fault) -> Problem {
        match fault {
            Fault::Mistake(mistake) => self.mistaken(mistake),
            Fault::Store(error) => error.into(),
        }
    }

    pub(super) fn mistaken(&self, mistake: Mistake) -> Problem {
        let aliases = self.aliases();
        match mistake {
            Mistake::NoRuleApplies { fields, .. }
                if fields
                    .iter()
                    .any(|field| aliases.source(field).is_some_and(|source| source.is_proved())) =>
            {
                Problem::unauthorized("the client's address is unknown")
            }
            Mistake::UnknownPolicy { .. } | Mistake::UnknownGuard { .. } | Mistake::UnknownField { .. } => {
                Problem::misconfigured(mistake.to_string())
            }
            mistake => Problem::bad_request(mistake.to_string()),
        }
    }
}

/// The answer to somebody who may not pass.
pub(crate) fn refusal(
    answers: &Answers,
    engine: &Engine,
    decision: &Decision<'_>,
    correlation: &Correlation,
) -> Answer {
    let (status, text) = answers.refuse_once(engine, decision, correlation);
    Answer { status, text }
}
