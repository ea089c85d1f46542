//! Requests that exceed a limit which lets them wait: first come, first served.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use arc_swap::Guard;
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use tollgate_core::{Attempt, Span};
use tollgate_engine::pacer::{Ask, Unpaced};
use tollgate_web::Problem;
use tollgate_web::facts::Asked;

use super::{Admitted, Limited, policy_of, refusal};
use crate::exchange::Client;
use crate::h1::write::Answer;
use crate::proxy::note::{Decided, Note};
use crate::proxy::{Case, ENDING};

/// What was seen of a decision, wherever it was made.
struct Seen {
    limited: Limited,
    decided: Decided,
}

impl Case<'_> {
    /// Waits for the request's turn. `None` if the client does not.
    pub(super) async fn queue<C: Client>(
        &self,
        client: &mut C,
        note: &mut Note<'_>,
    ) -> Option<Result<Limited, Problem>> {
        let (mut waiting, mut ended) = (pin!(self.wait(note)), pin!(self.visit.worker.ended()));
        poll_fn(|cx| {
            if let Poll::Ready(limited) = waiting.as_mut().poll(cx) {
                return Poll::Ready(Some(limited));
            }
            if ended.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Some(Err(Problem::unavailable(ENDING))));
            }
            client.poll_gone(cx).map(|()| None)
        })
        .await
    }

    async fn wait(&self, note: &mut Note<'_>) -> Result<Limited, Problem> {
        let shared = &self.visit.worker.shared;
        let pinned = Guard::into_inner(shared.engine.pin());
        let wanted = shared.engine.wanted();
        let listed = wanted.as_deref().map_or(&[][..], |wanted| wanted);
        let Some(policy) = policy_of(&pinned, self.route()) else {
            return self.admit_unlimited(listed, note);
        };
        let policy = policy.map_err(|mistake| self.mistaken(mistake))?;
        let known = self.know_of(policy, listed, note)?;
        let facts = self.facts(&known, None);
        let mut asked = Asked::default();
        facts.ask_beside(policy, listed, self.aliases(), &mut asked)?;
        let pairs = asked.pairs();
        let id = self.id_for(policy);
        let attempt = Attempt { policy: &policy.name, fields: &pairs, cost: 1, id: id.as_deref() };
        let (plan, correlation) = (Arc::clone(&self.local.plan), self.correlation());
        let leases = Arc::clone(&shared.leases);
        let see = move |engine: &tollgate_engine::Engine, decision: &tollgate_core::Decision<'_>| {
            let answers = &plan.settings.answers;
            let limited = if decision.allowed() {
                Limited::Admitted(Admitted::new(Vec::new(), answers, engine, &leases, decision))
            } else {
                Limited::Refused(Box::new(refusal(answers, engine, decision, &correlation)))
            };
            Seen { limited, decided: Decided::of(decision) }
        };
        let ask = Ask { correlation: self.given_id(), ..Ask::from(attempt) };
        let seen = match shared.pacer.acquire_with(ask, see).await {
            Ok(paced) => paced.seen,
            Err(Unpaced::Denied { seen, .. }) => seen,
            Err(Unpaced::TooLate { wait, .. }) => {
                note.decided = Some(Decided::queued(policy));
                return Ok(self.crowded(Some(wait)));
            }
            Err(Unpaced::Full { .. }) => {
                note.decided = Some(Decided::queued(policy));
                return Ok(self.crowded(None));
            }
            Err(Unpaced::Fault(fault)) => return Err(self.fault(fault)),
            Err(Unpaced::Ended) => {
                // So that this answer, too, closes its connection.
                self.visit.worker.note_ending();
                return Err(Problem::unavailable(ENDING));
            }
        };
        note.decided = Some(seen.decided);
        Ok(seen.limited)
    }

    /// The answer to somebody whose turn would come too late.
    fn crowded(&self, wait: Option<Span>) -> Limited {
        let problem = Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            "/problems/rate-limit-exceeded",
            "Rate limit exceeded",
            "too many requests wait for their turn already",
        );
        let mut answer = problem.answer(&self.correlation());
        let seconds = wait.map_or(1, |wait| wait.as_secs_ceil().max(1));
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        Limited::Refused(Box::new(Answer::from(answer)))
    }
}
