//! Requests of guarded routes: logins. The guard admits each before it is forwarded, if need be after a
//! delay. The response says how the login ended.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use arc_swap::Guard;
use tollgate_core::{Line, Origin, Policy, When};
use tollgate_engine::guard::{Begun, Ending};
use tollgate_engine::{Lease, Leases, Snapshot};
use tollgate_web::Problem;
use tollgate_web::facts::{Asked, Facts, Pairs};

use super::ahead::{Ahead, Unread};
use super::limits::{Admitted, refusal};
use super::note::Note;
use super::{CLIENT_GONE, Case, Passed};
use crate::captcha::{self, Captcha};
use crate::connection::Downstream;
use crate::exchange::Client;
use crate::h1::response::ResponseHead;
use crate::h1::write::Answer;
use crate::settings::{CrossSite, GuardSettings};
use crate::worker::Worker;

/// How many requests a worker delays at once. It refuses further ones.
const MOST_DELAYED: u64 = 1_000;

/// A login that may be forwarded.
pub(super) struct Guarded {
    guard: Arc<GuardSettings>,
    /// The ticket that ends it; `None` if nothing was counted.
    ticket: Option<String>,
    pub(super) captcha: Captcha,
    /// Whether the next login must include a CAPTCHA if this one fails.
    captcha_next: Captcha,
    /// Its hold, until the request takes it over.
    lease: Option<Lease>,
}

/// What the guard decided on a login.
enum Weighed {
    Begun(Guarded, Option<Ahead>),
    Refused(Answer),
    /// The client went away.
    Gone,
}

/// How the delay of a login ended.
enum HeldBack {
    Over,
    /// The client went away.
    Gone,
    /// The gateway shuts down, and no login waits any more.
    Ending,
}

/// Counts one delayed request.
struct Delayed(Rc<Worker>);

impl Delayed {
    fn new(worker: &Rc<Worker>) -> Self {
        worker.meter.delayed.raise();
        Self(Rc::clone(worker))
    }
}

impl Drop for Delayed {
    fn drop(&mut self) {
        self.0.meter.delayed.lower();
    }
}

impl Guarded {
    fn new(guard: &Arc<GuardSettings>, leases: &Leases, begun: &mut Begun<'_>) -> Self {
        Self {
            lease: begun.decision.charges.id.map(|id| leases.keep(&begun.decision, id)),
            guard: Arc::clone(guard),
            ticket: begun.ticket.take(),
            captcha: Captcha::required(begun.advice().captcha),
            captcha_next: Captcha::required(begun.if_failed().captcha),
        }
    }

    /// A login while limits are switched off.
    fn uncounted(guard: &Arc<GuardSettings>) -> Self {
        let captcha = Captcha::NotRequired;
        Self { guard: Arc::clone(guard), ticket: None, captcha, captcha_next: captcha, lease: None }
    }

    /// Ends the login. Returns whether the next one must include a CAPTCHA.
    fn answered(self, downstream: &Downstream, ending: Ending) -> Captcha {
        let captcha = match ending {
            Ending::Success => Captcha::NotRequired,
            Ending::Failure => self.captcha_next,
            Ending::Abandoned => self.captcha,
        };
        self.end(downstream, ending);
        captcha
    }

    /// Reports the end to the engine, in the background if the store takes time. If the store never learns of the
    /// end, the login stays a failure.
    fn end(self, downstream: &Downstream, ending: Ending) {
        let Some(ticket) = self.ticket else { return };
        let engine = Arc::clone(&downstream.worker.shared.admissions.engine);
        let mut ended = Box::pin(async move {
            let pinned = Guard::into_inner(engine.pin());
            // If the store fails, the engine reports the end again.
            let _ = engine.guards.finish(&pinned, &ticket, ending).await;
        });
        // A store in this process is done after the first poll, so the next request sees the result.
        if ended.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            tokio::task::spawn_local(ended);
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
            Ok(Weighed::Refused(answer)) => return Err(answer),
            Ok(Weighed::Gone) => {
                note.status = CLIENT_GONE;
                return Ok(Passed::Cut);
            }
            Ok(Weighed::Begun(mut guarded, ahead)) => {
                if let Some(lease) = guarded.lease.take() {
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
            guarded.end(self.downstream, ending);
        }
        passed
    }

    /// Ends the login when the response has arrived, if the request is one.
    pub(super) fn end_login(&self, admitted: &mut Admitted, response: &ResponseHead) {
        let Some(guarded) = admitted.guarded.take() else { return };
        let ending = guarded.guard.ending(&self.request.method, self.path, response);
        if guarded.answered(self.downstream, ending) == Captcha::Required {
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
        // Pinned for the whole delay, so that the login ends under the policies under which it began.
        let pinned = Guard::into_inner(engine.pin());
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
        let id = self.id_for(policy);
        let login = Login { pinned: &pinned, guard, found, pairs: &pairs, id: id.as_deref() };
        Ok(match self.begin(&login, client, note).await? {
            Some(Ok(guarded)) => Weighed::Begun(guarded, ahead),
            Some(Err(answer)) => Weighed::Refused(answer),
            None => Weighed::Gone,
        })
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

    /// Begins a login, at once or after the delay of the guard's ladders. `None` if the client went away
    /// meanwhile.
    async fn begin<C: Client>(
        &self,
        login: &Login<'_>,
        client: &mut C,
        note: &mut Note<'_>,
    ) -> Result<Option<Result<Guarded, Answer>>, Problem> {
        let worker = &self.downstream.worker;
        let mut left = login.guard.max_delay;
        loop {
            let Login { pinned, found, pairs, id, .. } = *login;
            let begun = worker
                .shared
                .admissions
                .engine
                .begin_guarded_as(pinned, found, pairs, id, self.sent_id())
                .await;
            let mut begun = begun.map_err(|fault| self.fault(fault))?;
            note.decide(&begun.decision);
            if begun.allowed() {
                return Ok(Some(Ok(Guarded::new(login.guard, &worker.shared.admissions.leases, &mut begun))));
            }
            let room = worker.meter.delayed.value() < MOST_DELAYED;
            let pause = pause(&begun).filter(|pause| *pause <= left && room);
            let Some(pause) = pause else { return Ok(Some(Err(self.refuse_login(&begun)))) };
            drop(begun);
            left -= pause;
            match self.hold_back(pause, client).await {
                HeldBack::Over => {}
                HeldBack::Gone => return Ok(None),
                HeldBack::Ending => return Err(Problem::unavailable(super::ENDING)),
            }
        }
    }

    /// Waits, unless the client goes away or the gateway shuts down.
    async fn hold_back<C: Client>(&self, time: Duration, client: &mut C) -> HeldBack {
        let worker = &self.downstream.worker;
        let _delayed = Delayed::new(worker);
        let (mut passing, mut ended) = (pin!(tokio::time::sleep(time)), pin!(worker.ended()));
        poll_fn(|cx| match (passing.as_mut().poll(cx), ended.as_mut().poll(cx)) {
            (Poll::Ready(()), _) => Poll::Ready(HeldBack::Over),
            (Poll::Pending, Poll::Ready(())) => Poll::Ready(HeldBack::Ending),
            (Poll::Pending, Poll::Pending) => client.poll_gone(cx).map(|()| HeldBack::Gone),
        })
        .await
    }

    /// The response to a refused login.
    fn refuse_login(&self, begun: &Begun<'_>) -> Answer {
        let (answers, engine) =
            (&self.local.plan.settings.answers, &self.downstream.worker.shared.admissions.engine);
        let mut answer = refusal(answers, engine, &begun.decision, &self.correlation());
        if begun.if_failed().captcha {
            answer.lines.extend_from_slice(captcha::LINE);
        }
        answer
    }
}

/// What the guard needs to decide on a login.
struct Login<'l> {
    pinned: &'l Snapshot,
    guard: &'l Arc<GuardSettings>,
    found: &'l tollgate_core::Guard,
    pairs: &'l [(&'l str, &'l str)],
    /// Its id, if it takes a hold.
    id: Option<&'l str>,
}

/// How long to delay a refused login, if the delay of a ladder is the only reason for the refusal. Never
/// zero, so that the gateway does not retry in a tight loop.
fn pause(begun: &Begun<'_>) -> Option<Duration> {
    const LEAST: Duration = Duration::from_millis(1);
    let decision = &begun.decision;
    let weighed = matches!(decision.origin, Origin::Store | Origin::Local(_));
    let slowed = |line: Line<'_>| {
        let mut limits = line.limits.iter().zip(line.readings);
        limits.all(|(limit, reading)| reading.when <= When::Now || limit.ladder().is_some())
    };
    if !weighed || begun.advice().locked_until.is_some() {
        return None;
    }
    let mut enforced = decision.lines().filter(|line| !line.rule.observes());
    let wait = decision.wait().filter(|_| enforced.all(slowed))?;
    Some(Duration::from_micros(wait.as_micros()).max(LEAST))
}
