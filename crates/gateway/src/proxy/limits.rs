//! The limits of a request: its policy, its facts, and the decision.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::Poll;

use http::HeaderMap;
use tollgate_core::{Attempt, Decision, Mistake, Origin, Policy, Span, When};
use tollgate_engine::admit::{Holds, Wait};
use tollgate_engine::{Admission, Admit, Engine, Fault, NotAdmitted, Pinned, Snapshot, Taken, Terms};
use tollgate_web::answer::{Lines, Refusal, headers};
use tollgate_web::facts::{Asked, Body, Source};
use tollgate_web::{Aliases, Answers, Correlation, Facts, Identity, Problem, Statuses, words};

use super::guarding::Guarded;
use super::held::Held;
use super::note::{Decided, Note};
use super::{Case, ENDING};
use crate::exchange::Client;
use crate::forward::Trust;
use crate::h1::write::Answer;
use crate::plan::Route;

/// The result of a request's limits.
pub(super) enum Limited {
    Admitted(Admitted),
    Refused(Box<Answer>),
}

/// A request that may be forwarded.
#[derive(Default)]
pub(super) struct Admitted {
    /// The rate-limit header lines of the response.
    pub(super) lines: Vec<u8>,
    /// What it took. Without a response it stays counted: otherwise a guesser would disconnect early.
    taken: Taken,
    /// The login that its response ends, if it is one.
    pub(super) guarded: Option<Box<Guarded>>,
    /// Its holds while it is in flight.
    pub(super) held: Held,
}

impl Admitted {
    /// Settles what the request took by the status of its response.
    pub(super) fn answered(&mut self, status: u16) {
        let refunding = self.taken.settle(Statuses::class_of(status));
        if !refunding.is_made() {
            // The client need not wait for the refund. The engine retries it if the store fails.
            tokio::task::spawn_local(refunding);
        }
    }
}

/// What a decision means for its request.
struct Seen {
    /// The response's header lines, or the refusal.
    answer: Result<Vec<u8>, Box<Answer>>,
    decided: Option<Decided>,
}

/// The policy of a route's requests: the one assigned over the API, or else the configured one.
fn policy_of<'p>(pinned: &'p Snapshot, route: &Route) -> Option<Result<&'p Policy, Mistake>> {
    if let Some(assigned) = pinned.assigned_policy(&route.name) {
        return Some(Ok(assigned));
    }
    let name = route.policy.as_ref()?;
    Some(pinned.policies.find(name))
}

/// The state of asking the limits.
enum Asking {
    /// No policy applies.
    Unlimited(Limited),
    /// A policy applies. If it may make the request wait, its name is given.
    Admit(Admit<Seen>, Option<Arc<str>>),
}

type Admitting<T> = tollgate_engine::admit::Admitted<T>;

/// Capacity for the usual rate-limit header lines of a response.
const USUAL_LINES: usize = 320;

/// The facts of a request, as far as its policy needs them.
pub(super) struct Known {
    client: IpAddr,
    needs: Needs,
    /// The client's proven identity, if a rule needs it.
    identity: Option<Box<Identity>>,
}

/// What a policy needs of a request beside its first line and its address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Needs {
    Nothing,
    Headers,
    Identity,
}

static NO_HEADERS: LazyLock<HeaderMap> = LazyLock::new(HeaderMap::new);
static ANONYMOUS: Identity = Identity { subject: None, api_key: None, consumer: None, claims: None };

impl Case<'_> {
    /// Pins the policies in force. A login passes its route's limits and its guard under the same policies.
    pub(super) fn pin(&self) -> Pinned<'_> {
        let admissions = &self.downstream.worker.shared.admissions;
        match &self.route().guard {
            None => admissions.pin(),
            Some(_) => admissions.pin_again(self.policies.get_or_init(|| admissions.pin().snapshot())),
        }
    }

    /// Applies the limits. `None` if the client went away while the request waited.
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

    /// Collects the facts that the limits need, and asks the engine.
    fn admit(&self, note: &mut Note<'_>) -> Result<Asking, Problem> {
        let pinned = self.pin();
        let wanted = self.downstream.worker.shared.admissions.engine.lists.wanted();
        let listed = wanted.as_deref().map_or(&[][..], |wanted| wanted);
        let mut policy = policy_of(&pinned, self.route());
        if matches!(policy, Some(Err(_))) {
            // A reload came between this request's plan and its policies: the same route of the new plan names a
            // policy that is in force.
            let renewed = self.downstream.worker.local();
            let same = renewed.plan.routes.iter().find(|route| route.name == self.route().name);
            policy = same.map_or(policy, |route| policy_of(&pinned, route));
        }
        let Some(policy) = policy else {
            return self.admit_unlimited(&pinned, listed, note).map(Asking::Unlimited);
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
        let terms = Terms { wait, holds, correlation: self.sent_id(), ..Terms::default() };
        let admit = pinned.admit(&attempt, terms, see);
        let queue = policy.lets_wait().then(|| Arc::clone(&policy.name));
        Ok(Asking::Admit(admit, queue))
    }

    /// Turns an admission into the request's result. `queue` is the policy that may make it wait, if there is
    /// one.
    fn conclude(
        &self,
        admitted: Admitting<Seen>,
        queue: Option<Arc<str>>,
        note: &mut Note<'_>,
    ) -> Result<Limited, Problem> {
        let Admission { seen: Seen { answer, decided }, mut taken, .. } = match admitted {
            Ok(admission) => admission,
            Err(not_admitted) => return self.not_admitted(not_admitted, queue, note).map(Limited::Refused),
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

    /// The response to a request that cannot be decided, or whose turn would come too late.
    pub(super) fn not_admitted(
        &self,
        not_admitted: NotAdmitted,
        queue: Option<Arc<str>>,
        note: &mut Note<'_>,
    ) -> Result<Box<Answer>, Problem> {
        let wait = match not_admitted {
            NotAdmitted::Fault(fault) => return Err(self.fault(fault)),
            NotAdmitted::Ended => {
                // So that this response closes its connection too.
                self.downstream.worker.note_ending();
                return Err(Problem::unavailable(ENDING));
            }
            NotAdmitted::TooLate { wait, .. } => Some(wait),
            NotAdmitted::Full { .. } => None,
        };
        note.decided = queue.map(Decided::queued);
        let mut answer = Problem::from(not_admitted).answer(&self.correlation());
        let wait = When::After(wait.unwrap_or(Span::from_secs(1)));
        headers::retry(
            wait,
            self.downstream.worker.shared.admissions.engine.observer.retry_within(),
            answer.headers_mut(),
        );
        Ok(Box::new(Answer::from(answer)))
    }

    /// Admits a request without a policy, unless the blocklist blocks it.
    fn admit_unlimited(
        &self,
        pinned: &Pinned<'_>,
        listed: &[Arc<str>],
        note: &mut Note<'_>,
    ) -> Result<Limited, Problem> {
        if !listed.is_empty() {
            let known = self.know(listed.iter().map(|name| &**name), self.aliases(), note)?;
            let asked = self.facts(&known, None);
            let asked = asked.ask_alone(listed, self.aliases())?;
            if let Some(blocked) = pinned.blocks(&asked.pairs()) {
                note.decided = Some(Decided::new(words::origin(Origin::Blocked)));
                let correlation = self.correlation().settled();
                let listing = blocked.note(correlation.text().unwrap_or_default());
                return Ok(Limited::Refused(Box::new(self.answer(&Problem::banned(&listing), &correlation))));
            }
        }
        Ok(Limited::Admitted(Admitted::default()))
    }

    /// The aliases for all routes.
    fn aliases(&self) -> &Aliases {
        &self.local.plan.settings.aliases
    }

    /// Collects the facts for the fields of a policy and of the lists.
    fn know_of(&self, policy: &Policy, listed: &[Arc<str>], note: &mut Note<'_>) -> Result<Known, Problem> {
        self.know(policy.fields().chain(listed.iter().map(|name| &**name)), self.aliases(), note)
    }

    /// Collects the facts for these fields.
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
        let origin = &self.downstream.origin;
        let client = match origin.trust(&self.local.plan) {
            Trust::Untrusted => origin.peer,
            Trust::Proxy => settings.trusted_proxies.client(origin.peer, self.request.headers()),
        };
        note.client = Some(client);
        let identity = match needs {
            Needs::Identity => Some(Box::new(settings.credentials.recognise(self.request.headers())?)),
            Needs::Nothing | Needs::Headers => None,
        };
        Ok(Known { client, needs, identity })
    }

    /// The client's address as text, if the client is the peer; that text is kept for the connection.
    fn address(&self, known: &Known) -> Option<&str> {
        let origin = &self.downstream.origin;
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
            identity: known.identity.as_deref().unwrap_or(&ANONYMOUS),
            body,
        }
    }

    /// The problem to report if there is no decision.
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

/// Awaits an admission while the client is connected.
pub(super) async fn unless_gone<C: Client, T>(client: &mut C, mut admit: Admit<T>) -> Option<Admitting<T>> {
    poll_fn(|cx| match Pin::new(&mut admit).poll(cx) {
        Poll::Ready(admitted) => Poll::Ready(Some(admitted)),
        Poll::Pending => client.poll_gone(cx).map(|()| None),
    })
    .await
}

/// The response to a refused request or connection.
pub(crate) fn refusal(
    answers: &Answers,
    engine: &Engine,
    decision: &Decision<'_>,
    correlation: &Correlation,
) -> Answer {
    let mut lines = Lines(Vec::with_capacity(USUAL_LINES));
    let mut body = Vec::with_capacity(Refusal::USUAL_BYTES);
    let status = answers.refuse(engine, decision, correlation, &mut lines, &mut body);
    Answer { status, lines: lines.0, body }
}
