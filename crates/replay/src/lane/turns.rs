//! Attempts that may wait: at once if no other waits for one of their keys, and otherwise in their turn.

use tollgate_core::{Attempt, Charges, OnExceed, Span, Ticket, Timestamp, Verdict};

use super::{Fate, Hear, Lane, Moment, Named, Report, Seen};
use crate::waiting::{self, Deferred};

impl Lane {
    /// Decides an attempt by a policy that lets attempts wait: at once if no other waits for one of its keys.
    pub(super) fn arrive_or_wait(
        &mut self,
        policy: &str,
        route: Option<&str>,
        moment: &Moment<'_>,
        hear: Hear<'_>,
    ) {
        if !self.waiting.is_empty()
            && let Some(queue) = self.waiting.queue_of(&self.keys_of(policy, route, moment))
        {
            let full = self.waiting.join(queue, Deferred::new(policy, route, moment));
            if let Some((_, named)) = full {
                self.idle = 0;
                hear(Report::Fate(moment, &Fate::Denied(Box::new(named))));
            }
            return;
        }
        let decided = self.decide(policy, route, moment, hear);
        match &decided {
            Ok((Seen { verdict: Verdict::Wait(span), named: Some(named), .. }, _)) => {
                let most = self.patience(named);
                let due = moment.entry.at + *span;
                self.waiting.open(named, most, due, Deferred::new(policy, route, moment));
            }
            _ => hear(Report::Fate(moment, &self.settle(decided, moment, Span::ZERO))),
        }
    }

    /// The ids of the keys that an attempt is counted at.
    fn keys_of(&self, policy: &str, route: Option<&str>, moment: &Moment<'_>) -> Vec<u64> {
        let Some(policy) = self.policies.named(policy) else { return Vec::new() };
        let fields = self.fields_of(policy.number(), route, moment);
        let attempt = Attempt { policy: &policy.name, fields: &fields, cost: 1, id: None };
        let mut charges = Charges::new(Ticket(0), 1, None);
        // A mistake is found when the attempt is decided.
        let _ = policy.charge_listed(&attempt, self.policies.roster(), &mut charges);
        charges.iter().map(|charge| waiting::id(charge.plan.rule(), charges.key(charge))).collect()
    }

    /// How long a rule lets attempts wait.
    fn patience(&self, named: &Named) -> Span {
        match self.policies.rule(&named.rule).map(|rule| rule.on_exceed) {
            Some(OnExceed::Wait(most)) => most,
            _ => Span::ZERO,
        }
    }

    /// Decides the attempts of the queue whose turn has come, until one has to wait on.
    pub(super) fn give_turn(&mut self, now: Timestamp, hear: Hear<'_>) {
        let Some(mut queue) = self.waiting.take() else { return };
        while let Some(first) = queue.attempts.pop_front() {
            let waited = now.since(first.at);
            let again = first.with(|moment| {
                if waited > queue.most {
                    let fate = Fate::Denied(Box::new(queue.named.clone()));
                    self.idle = 0;
                    hear(Report::Fate(moment, &fate));
                    return None;
                }
                let decided = self.decide(&first.policy, first.route.as_deref(), moment, hear);
                if let Ok((Seen { verdict: Verdict::Wait(span), .. }, _)) = &decided
                    && first.at + queue.most >= now + *span
                {
                    return Some(now + *span);
                }
                let fate = self.settle(decided, moment, waited);
                hear(Report::Fate(moment, &fate));
                None
            });
            if let Some(due) = again {
                queue.attempts.push_front(first);
                return self.waiting.put_back(queue, due);
            }
        }
    }
}
