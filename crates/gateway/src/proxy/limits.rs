//! The limits of a request: which policy, what is known, and what is decided.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::Poll;

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue};
use tollgate_core::{Attempt, Decision, Mistake, Origin, Policy};
use tollgate_engine::admit::{Holds, Wait};
use tollgate_engine::{Admission, Admit, Engine, Fault, NotAdmitted, Snapshot, Taken, Terms};
use tollgate_web::answer::{Lines, Refusal};
use tollgate_web::facts::{Asked, Body, Source};
use tollgate_web::json::Json;
use tollgate_web::{Aliases, Answers, Correlation, Facts, Identity, Problem, words};

use super::guarding::Guarded;
use super::held::Held;
use super::note::{Decided, Note};
use super::{Case, ENDING};
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
    /// What it took. If there is no response, it stays counted: a guesser would hang up otherwise.
    taken: Taken,
    /// What its response ends, if it is a login.
    pub(super) guarded: Option<Box<Guarded>>,
    /// What it holds for as long as it is under way.
    pub(super) held: Held,
}

impl Admitted {
    /// Takes note of the response's status.
    pub(super) fn answered(&mut self, status: u16) {
        let refunding = self.taken.settle(status);
        if !refunding.is_made() {
            // The client need not wait for it, and the engine offers again what the store does not take.
            tokio::task::spawn_local(refunding);
        }
    }
}

/// What a decision means for the request that it is about.
struct Seen {
    /// The response's header lines, or the refusal.
    answer: Result<Vec<u8>, Box<Answer>>,
    decided: Option<Decided>,
}

/// The policy of a route's requests: the one that was assigned over the API, or else the configured one.
fn policy_of<'p>(pinned: &'p Snapshot, route: &Route) -> Option<Result<&'p Policy, Mistake>> {
    if let Some(assigned) = pinned.policy_of_route(&route.name) {
        return Some(Ok(assigned));
    }
    let name = route.policy.as_ref()?;
    Some(pinned.policies.find(name))
}

/// A request whose limits are asked.
enum Asking {
    /// No policy is about it.
    Unlimited(Limited),
    /// A policy is, which may let it wait: then this is its name.
    Admit(Admit<Seen>, Option<Arc<str>>),
}

type Admitting<T> = tollgate_engine::admit::Admitted<T>;

/// Room for the lines that a response usually says of its limits.
const USUAL_LINES: usize = 320;

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

impl Case<'_> {
    /// Asks the limits. `None` if the client went away while it had to wait.
    pub(super) async fn limit<C: Client>(&self, client: &mut C, note: &mut Note<'_>) -> Option<Limited> {
        let limited = match self.admit(note) {
            Ok(Asking::Unlimited(limited)) => Ok(limited),
            Ok(Asking::Admit(Admit::Ready(Some(admitted)), _)) => self.conclude(admitted, None, note),
            Ok(Asking::Admit(later, queue)) => {
                let admitted = unless_gone(client, later).await?;
                self.conclude(admitted, queue, note)
            }
            Err(problem) => Err(problem),
        };
        Some(limited.unwrap_or_else(|problem| Limited::Refused(Box::new(self.problem(&problem)))))
    }

    /// Finds out what the limits need to know, and asks them.
    fn admit(&self, note: &mut Note<'_>) -> Result<Asking, Problem> {
        let admissions = &self.visit.worker.shared.admissions;
        let pinned = admissions.pin();
        let wanted = admissions.engine.wanted();
        let listed = wanted.as_deref().map_or(&[][..], |wanted| wanted);
        let Some(policy) = policy_of(&pinned, self.route()) else {
            return self.admit_unlimited(listed, note).map(Asking::Unlimited);
        };
        let policy = policy.map_err(|mistake| self.mistaken(mistake))?;
        let known = self.know_of(policy, listed, note)?;
        let facts = self.facts(&known, None);
        let mut asked = Asked::default();
        facts.ask_beside(policy, listed, self.aliases(), &mut asked)?;
        let attempt = Attempt { policy: &policy.name, fields: &asked.pairs(), cost: 1, id: None };
        let (plan, correlation, logged) =
            (Arc::clone(&self.local.plan), self.correlation(), note.is_logged());
        let see = move |engine: &Engine, decision: &Decision<'_>| {
            let answers = &plan.settings.answers;
            let answer = if decision.allowed() {
                let mut lines = Lines(Vec::with_capacity(USUAL_LINES));
                answers.headers(decision, &mut lines);
                Ok(lines.0)
            } else {
                Err(Box::new(refusal(answers, engine, decision, &correlation)))
            };
            Seen { answer, decided: logged.then(|| Decided::of(decision)) }
        };
        let (wait, holds) = (Wait::AsRulesSay, Holds::ByTaken);
        let terms = Terms { wait, holds, correlation: self.given_id(), ..Terms::default() };
        let admit = pinned.admit(&attempt, terms, see);
        let queue = policy.lets_wait().then(|| Arc::clone(&policy.name));
        Ok(Asking::Admit(admit, queue))
    }

    /// What an admission means for the request. `queue` is the policy that lets it wait, if one does.
    fn conclude(
        &self,
        admitted: Admitting<Seen>,
        queue: Option<Arc<str>>,
        note: &mut Note<'_>,
    ) -> Result<Limited, Problem> {
        let Admission { seen: Seen { answer, decided }, mut taken, .. } = match admitted {
            Ok(admission) => admission,
            Err(not_admitted) => return self.not_admitted(not_admitted, queue, note),
        };
        note.decided = decided.or(note.decided.take());
        Ok(match answer {
            Ok(lines) => {
                let mut held = Held::default();
                if let Some(lease) = taken.lease() {
                    held.add(lease);
                }
                Limited::Admitted(Admitted { lines, taken, guarded: None, held })
            }
            Err(answer) => Limited::Refused(answer),
        })
    }

    /// The answer to a request that cannot be decided, or whose turn would come too late.
    fn not_admitted(
        &self,
        not_admitted: NotAdmitted,
        queue: Option<Arc<str>>,
        note: &mut Note<'_>,
    ) -> Result<Limited, Problem> {
        let wait = match not_admitted {
            NotAdmitted::Fault(fault) => return Err(self.fault(fault)),
            NotAdmitted::Ended => {
                // So that this answer, too, closes its connection.
                self.visit.worker.note_ending();
                return Err(Problem::unavailable(ENDING));
            }
            NotAdmitted::TooLate { wait, .. } => Some(wait),
            NotAdmitted::Full { .. } => None,
        };
        note.decided = queue.map(Decided::queued);
        let mut answer = Problem::from(not_admitted).answer(&self.correlation());
        let seconds = wait.map_or(1, |wait| wait.as_secs_ceil().max(1));
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        Ok(Limited::Refused(Box::new(Answer::from(answer))))
    }

    /// What a request of this policy is to be known by, if it holds something.
    pub(super) fn id_for(&self, policy: &Policy) -> Option<String> {
        policy.holds().then(|| self.visit.worker.shared.admissions.leases.fresh_id())
    }

    /// Admits a request that no policy is about, unless it is from somebody who is barred.
    fn admit_unlimited(&self, listed: &[Arc<str>], note: &mut Note<'_>) -> Result<Limited, Problem> {
        if !listed.is_empty() {
            let known = self.know(listed.iter().map(|name| &**name), self.aliases(), note)?;
            let asked = self.facts(&known, None);
            let asked = asked.ask_alone(listed, self.aliases())?;
            let engine = &self.visit.worker.shared.admissions.engine;
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

    /// Why there is no decision.
    pub(super) fn fault(&self, fault: Fault) -> Problem {
        match fault {
            Fault::Mistake(mistake) => self.mistaken(mistake),
            Fault::Store(error) => error.into(),
        }
    }

    pub(super) fn mistaken(&self, mistake: Mistake) -> Problem {
        Problem::about(mistake, self.aliases())
    }
}

/// Awaits an admission for as long as the client is there.
async fn unless_gone<C: Client, T>(client: &mut C, mut admit: Admit<T>) -> Option<Admitting<T>> {
    poll_fn(|cx| match Pin::new(&mut admit).poll(cx) {
        Poll::Ready(admitted) => Poll::Ready(Some(admitted)),
        Poll::Pending => client.poll_gone(cx).map(|()| None),
    })
    .await
}

/// The answer to a request or a connection that may not pass.
pub(crate) fn refusal(
    answers: &Answers,
    engine: &Engine,
    decision: &Decision<'_>,
    correlation: &Correlation,
) -> Answer {
    let mut lines = Lines(Vec::with_capacity(USUAL_LINES));
    let mut body = Json::with_capacity(Refusal::USUAL_BYTES);
    let status = answers.refuse(engine, decision, correlation, &mut lines, &mut body);
    Answer { status, lines: lines.0, body: body.into_bytes() }
}
