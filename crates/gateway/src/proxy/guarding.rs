//! Requests of guarded routes: logins. The guard admits each before it is forwarded, if need be after a
//! delay. The response says how the login ended.

use std::sync::Arc;

use tollgate_core::{Attempt, Decision, Policy};
use tollgate_engine::admit::{Holds, Login};
use tollgate_engine::guard::{Advice, Ending};
use tollgate_engine::{Admission, Engine, Taken, Terms};
use tollgate_web::Problem;
use tollgate_web::facts::{Asked, Facts, Pairs};

use super::ahead::{Ahead, Unread};
use super::limits::{Admitted, refusal, unless_gone};
use super::note::{Decided, Note};
use super::{CLIENT_GONE, Case, Passed};
use crate::captcha::{self, Captcha};
use crate::exchange::Client;
use crate::h1::response::ResponseHead;
use crate::h1::write::Answer;
use crate::settings::{CrossSite, GuardSettings};

/// A login that may be forwarded.
pub(super) struct Guarded {
    guard: Arc<GuardSettings>,
    /// What it took.
    taken: Taken,
    pub(super) captcha: Captcha,
    /// Whether the next login must include a CAPTCHA if this one fails.
    captcha_next: Captcha,
}

/// What the guard decided on a login.
enum Weighed {
    Begun(Guarded, Option<Ahead>),
    Refused(Box<Answer>),
    /// The client went away.
    Gone,
}

/// What a decision means for its login.
struct SeenLogin {
    /// Whether this login and the next one must include a CAPTCHA, or the refusal.
    answer: Result<(Captcha, Captcha), Box<Answer>>,
    decided: Option<Decided>,
}

impl Guarded {
    /// A login while limits are switched off.
    fn uncounted(guard: &Arc<GuardSettings>) -> Self {
        let captcha = Captcha::NotRequired;
        Self { guard: Arc::clone(guard), taken: Taken::default(), captcha, captcha_next: captcha }
    }

    /// Ends the login. Returns whether the next one must include a CAPTCHA.
    fn answered(self, ending: Ending) -> Captcha {
        let captcha = match ending {
            Ending::Success => Captcha::NotRequired,
            Ending::Failure => self.captcha_next,
            Ending::Abandoned => self.captcha,
        };
        self.end(ending);
        captcha
    }

    /// Reports the end to the engine, in the background if the store takes time. A store in this process is done when
    /// this returns, so the next request sees the result.
    fn end(mut self, ending: Ending) {
        let reporting = self.taken.end_login(ending);
        if !reporting.is_made() {
            tokio::task::spawn_local(reporting);
        }
    }
}

impl Case<'_> {
    /// Forwards a login once its guard admits it. An error is the response to send.
    pub(super) async fn forward_guarded<C: Client>(
        &self,
        guard: &Arc<GuardSettings>,
        client: &mut C,
        admitted: &mut Admitted,
        note: &mut Note<'_>,
    ) -> Result<Passed, Answer> {
        let weighed = self.weigh_login(guard, client, note).await;
        let passed = match weighed {
            Err(problem) => return Err(self.problem(&problem)),
            Ok(Weighed::Refused(answer)) => return Err(*answer),
            Ok(Weighed::Gone) => {
                note.status = CLIENT_GONE;
                return Ok(Passed::Cut);
            }
            Ok(Weighed::Begun(mut guarded, ahead)) => {
                if let Some(lease) = guarded.taken.lease() {
                    admitted.held.add(lease);
                }
                admitted.guarded = Some(Box::new(guarded));
                match ahead {
                    Some(ahead) => self.forward(&mut ahead.replay(client), admitted, note).await,
                    None => self.forward(client, admitted, note).await,
                }
            }
        };
        if let Some(guarded) = admitted.guarded.take() {
            let ending = match &passed {
                // No upstream was reached, so no password was checked.
                Err(_) if note.place.is_none() => Ending::Abandoned,
                Err(answer) => guard.ending_unanswered(answer.status.as_u16()),
                // The client disconnected, as a password guesser would.
                Ok(_) => Ending::Failure,
            };
            guarded.end(ending);
        }
        passed
    }

    /// Ends the login when the response has arrived, if the request is one.
    pub(super) fn end_login(&self, admitted: &mut Admitted, response: &ResponseHead) {
        let Some(guarded) = admitted.guarded.take() else { return };
        let ending = guarded.guard.ending(&self.request.method, self.path, response);
        if guarded.answered(ending) == Captcha::Required {
            admitted.lines.extend_from_slice(captcha::LINE);
        }
    }

    /// Reads the fields of the login and asks the guard.
    async fn weigh_login<C: Client>(
        &self,
        guard: &Arc<GuardSettings>,
        client: &mut C,
        note: &mut Note<'_>,
    ) -> Result<Weighed, Problem> {
        let engine = &self.downstream.worker.shared.admissions.engine;
        let pinned = self.pin();
        if !pinned.policies.enabled {
            return Ok(Weighed::Begun(Guarded::uncounted(guard), None));
        }
        self.check_site(guard)?;
        let wanted = engine.lists.wanted();
        let listed = wanted.as_deref().map_or(&[][..], |wanted| wanted);
        let found = pinned.policies.find_guard(&guard.name).map_err(|mistake| self.mistaken(mistake))?;
        let policy = pinned.policies.find(&found.policy).map_err(|mistake| self.mistaken(mistake))?;
        let fields = || policy.fields().chain(listed.iter().map(|name| &**name));
        let known = self.know(fields(), &guard.fields, note)?;
        // A service may read from the body what a rule reads from the query.
        let looks_into_body = |name| {
            guard.fields.source(name).is_some_and(|source| source.is_of_body() || source.is_of_query())
        };
        let (body, ahead) = match fields().any(looks_into_body) {
            false => Default::default(),
            true => match self.read_ahead(client).await {
                Ok((body, ahead)) => (body, Some(ahead)),
                Err(Unread::Gone) => return Ok(Weighed::Gone),
                Err(Unread::Problem(problem)) => return Err(problem),
            },
        };
        let facts = self.facts(&known, Some(&body));
        let mut asked = Asked::default();
        facts.ask_beside(policy, listed, &guard.fields, &mut asked)?;
        Facts { headers: self.request.headers(), ..facts }.check_method()?;
        let pairs = asked.pairs();
        self.check_complete(guard, policy, &pairs)?;
        let attempt = Attempt { policy: &policy.name, fields: &pairs, cost: 1, id: None };
        let login = Some(Login { guard: found, max_delay: guard.max_delay.into() });
        let terms = Terms { holds: Holds::ByTaken, login, correlation: self.sent_id(), ..Terms::default() };
        let Some(admitted) = unless_gone(client, pinned.admit(&attempt, terms, self.see_login(note))).await
        else {
            return Ok(Weighed::Gone);
        };
        let Admission { seen: SeenLogin { answer, decided }, taken, .. } = match admitted {
            Ok(admission) => admission,
            Err(not_admitted) => return self.not_admitted(not_admitted, None, note).map(Weighed::Refused),
        };
        note.decided = decided.or(note.decided.take());
        Ok(match answer {
            Ok((captcha, captcha_next)) => {
                Weighed::Begun(Guarded { guard: Arc::clone(guard), taken, captcha, captcha_next }, ahead)
            }
            Err(answer) => Weighed::Refused(answer),
        })
    }

    /// What the guard's decision means for this request.
    fn see_login(&self, note: &Note<'_>) -> impl FnOnce(&Engine, &Decision<'_>) -> SeenLogin + Send + use<> {
        let (plan, correlation, logged) =
            (Arc::clone(&self.local.plan), self.correlation(), note.is_logged());
        move |engine, decision| {
            let next = Captcha::required(Advice::if_failed(decision).captcha);
            let answer = if decision.allowed() {
                Ok((Captcha::required(Advice::of(decision).captcha), next))
            } else {
                let mut answer = refusal(&plan.settings.answers, engine, decision, &correlation);
                if next == Captcha::Required {
                    answer.lines.extend_from_slice(captcha::LINE);
                }
                Err(Box::new(answer))
            };
            SeenLogin { answer, decided: logged.then(|| Decided::of(decision)) }
        }
    }

    /// Refuses logins that a page of another site sends. Such a page could use its visitors' browsers to lock
    /// them out.
    fn check_site(&self, guard: &GuardSettings) -> Result<(), Problem> {
        let site = self.request.value("sec-fetch-site").unwrap_or_default();
        if guard.cross_site == CrossSite::Refused && site.eq_ignore_ascii_case(b"cross-site") {
            return Err(Problem::forbidden("a page of another site sent this login"));
        }
        Ok(())
    }

    /// Refuses a login without a field that a rule needs. Such a login would evade some of the rules, and its
    /// success would clear the failures of other clients.
    fn check_complete(
        &self,
        guard: &GuardSettings,
        policy: &Policy,
        pairs: &Pairs<'_>,
    ) -> Result<(), Problem> {
        let rules = policy.rules.iter().filter(|rule| rule.enabled);
        let known = |name: &str| pairs.iter().any(|(own, _)| *own == name);
        // A derived field is present if its source is.
        let origin =
            |name| policy.derived().find(|(field, _)| *field == name).map_or(name, |(_, source)| source);
        let fields = rules.flat_map(|rule| &rule.by).map(|field| &*field.name);
        let missing = fields.filter(|name| !known(name)).map(origin).find(|name| !known(name));
        let Some(source) = missing.and_then(|name| guard.fields.source(name)) else { return Ok(()) };
        Err(if source.is_proved() {
            Problem::credentials_required()
        } else {
            Problem::bad_request(format!("the request does not name the account: there is no `{source}`"))
        })
    }
}
