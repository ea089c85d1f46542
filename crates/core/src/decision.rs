//! Decisions: what a policy concludes from an outcome.

mod line;

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::Ticket;
use crate::charge::{Charge, Charges, Outcome};
use crate::limit::Limit;
use crate::lists::Listing;
use crate::outage::Reason;
use crate::policy::Policy;
use crate::reading::{Reading, When};
use crate::rule::{Deferral, OnExceed, Rule};
use crate::time::{Span, Timestamp};
use line::longest;

pub use line::Line;

const WEEK: Span = Span::from_secs(604_800);
/// The retry time during an outage, whose end is unknown.
const RETRY_IN_OUTAGE: Span = Span::from_secs(1);
const FIRST_MONDAY: Timestamp = Timestamp::from_micros(4 * 86_400_000_000);

/// The verdict on an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Allow it: everything was taken.
    Allow,
    /// Retry after this time: nothing was taken.
    Wait(Span),
    /// Retry at this time: nothing was taken.
    Defer(Timestamp),
    /// Deny it: nothing was taken.
    Deny,
}

/// How a decision was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// By the store.
    Store,
    /// By counters of this process, because the store cannot be used.
    Local(Reason),
    /// By `on_outage` of its rules, without a counter.
    Outage(Reason),
    /// Without a counter: limits are switched off, or none applies.
    Fixed,
    /// By the blocklist, before anything was counted.
    Blocked,
}

/// The decision on one attempt: the verdict, and why.
#[derive(Clone, Debug)]
pub struct Decision<'a> {
    policy: Option<&'a Policy>,
    /// The verdict.
    pub verdict: Verdict,
    /// When the same attempt would be allowed.
    pub retry: When,
    /// How it was reached.
    pub origin: Origin,
    /// The charges for the store.
    pub charges: Charges<'a>,
    /// The outcome of the store.
    pub outcome: Outcome,
    /// The caller's id of the attempt, if it sent one. The engine sets it before it decides.
    pub correlation: Option<&'a str>,
    /// The fields of a blocked attempt, since it has no charges that show them.
    pub blocked_fields: &'a [(&'a str, &'a str)],
    /// The charge of the rule that denied, and the index of its first reading.
    bound: Option<(usize, usize)>,
    /// The same of the rule with the longest wait.
    slowest: Option<(usize, usize)>,
    blocked: Option<Arc<Listing>>,
}

/// What is needed to refund an allowed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The ticket.
    pub ticket: Ticket,
    /// When, by the store's clock.
    pub at: Timestamp,
    /// The charges.
    pub taken: Vec<ReceiptLine>,
}

/// One charge of a receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiptLine {
    /// The rule.
    pub rule: String,
    /// The key.
    pub key: String,
    /// How much was charged.
    pub cost: u64,
}

impl<'a> Decision<'a> {
    /// Concludes a decision from an outcome.
    pub fn new(policy: &'a Policy, charges: Charges<'a>, outcome: Outcome, origin: Origin) -> Self {
        let mut decision = Self { policy: Some(policy), charges, outcome, ..Self::blank() };
        decision.conclude(origin);
        decision
    }

    /// An empty decision, which denies. Decisions are too large to move from call to call, so they are built
    /// in place: open one, let a store settle its charges into its outcome, and conclude.
    #[inline]
    pub fn blank() -> Self {
        Self {
            policy: None,
            verdict: Verdict::Deny,
            retry: When::Now,
            origin: Origin::Fixed,
            charges: Charges::new(Ticket(0), 1, None),
            outcome: Outcome::default(),
            correlation: None,
            blocked_fields: &[],
            bound: None,
            slowest: None,
            blocked: None,
        }
    }

    /// As [`Decision::blank`], with the caller's id of the attempt, if it sent one.
    #[inline]
    pub fn for_caller(correlation: Option<&'a str>) -> Self {
        Self { correlation, ..Self::blank() }
    }

    /// Starts a decision by this policy, without charges.
    #[inline]
    pub fn open(&mut self, policy: &'a Policy, ticket: Ticket, cost: u64, id: Option<&'a str>) {
        // Only a decision that was opened before must be cleared.
        if self.policy.is_some() {
            self.charges.clear();
            self.verdict = Verdict::Deny;
            self.retry = When::Now;
            self.bound = None;
            self.slowest = None;
            self.blocked = None;
        }
        self.policy = Some(policy);
        (self.charges.ticket, self.charges.cost, self.charges.id) = (ticket, cost, id);
    }

    /// The policy that decided.
    #[inline]
    pub fn policy(&self) -> &'a Policy {
        self.policy.expect("a decision is opened by a policy")
    }

    /// Computes the verdict. An exceeded `reject`, a `wait` beyond its bound, and an attempt that can never
    /// pass are denied. Otherwise an exceeded `defer` defers, and anything else waits.
    #[inline]
    pub fn conclude(&mut self, origin: Origin) {
        self.origin = origin;
        self.verdict = Verdict::Allow;
        if !self.outcome.allowed {
            self.weigh();
        }
    }

    /// Denies during an outage. The decision names the rule of the charge at `index` and a short retry time,
    /// and has no readings.
    pub fn refuse(&mut self, index: usize, reason: Reason, now: Timestamp) {
        self.outcome = Outcome { now, ..Outcome::default() };
        self.origin = Origin::Outage(reason);
        self.verdict = Verdict::Deny;
        self.retry = When::After(RETRY_IN_OUTAGE);
        (self.bound, self.slowest) = (Some((index, 0)), None);
    }

    /// Denies because of an entry of the blocklist.
    pub fn block(&mut self, listing: Arc<Listing>, now: Timestamp) {
        self.outcome = Outcome { now, ..Outcome::default() };
        self.origin = Origin::Blocked;
        self.verdict = Verdict::Deny;
        self.retry = listing.until.map_or(When::Never, |until| When::After(until.since(now)));
        self.blocked = Some(listing);
    }

    /// The entry of the blocklist that blocks the attempt, if there is one.
    pub fn blocked(&self) -> Option<&Arc<Listing>> {
        self.blocked.as_ref()
    }

    /// The first charge that its rule denies during an outage.
    pub fn denied_in_outage(&self) -> Option<usize> {
        let mut charges = self.charges.iter();
        charges.position(|charge| self.rule_of(charge).denies_in_outage(charge))
    }

    /// The first charge that exceeds the capacity of a share but not that of the `whole`. `None` if another
    /// charge could never pass anyway.
    pub fn beyond_share(&self, whole: &Policy) -> Option<usize> {
        let mut beyond = None;
        for (index, line) in self.lines().enumerate().filter(|(_, line)| !line.rule.observes()) {
            let never = line.readings.iter().enumerate().filter(|(_, reading)| reading.when == When::Never);
            for (position, _) in never {
                let limit = whole.rule(&line.rule.name)?.plan_at(line.key).limits().get(position)?;
                if !limit.consumes() || line.cost > limit.capacity() {
                    return None;
                }
                beyond = beyond.or(Some(index));
            }
        }
        beyond
    }

    /// Allows an attempt that no limit applies to.
    pub fn allow_unmetered(&mut self) {
        self.outcome = Outcome { allowed: true, ..Outcome::default() };
        self.conclude(Origin::Fixed);
    }

    fn weigh(&mut self) {
        let mut denied = false;
        let mut deferred: Option<(When, Deferral, Option<Span>)> = None;
        let mut retry = When::Now;
        let mut bound = None;
        let mut slowest = None;
        let mut start = 0;
        for (index, charge) in self.charges.iter().enumerate() {
            let (own, limits) = (start, charge.plan.limits());
            start += limits.len();
            let longest = longest(limits, self.outcome.readings_from(own, limits.len()));
            let Some((limit, Reading { when, .. })) = longest else { continue };
            let rule = self.rule_of(charge);
            if when <= When::Now || rule.on_exceed == OnExceed::Observe {
                continue;
            }
            bound = bound.or(Some((index, own)));
            if when > retry {
                (retry, slowest) = (when, Some((index, own)));
            }
            match rule.on_exceed {
                OnExceed::Wait(most) if when > When::After(most) => denied = true,
                OnExceed::Reject => denied = true,
                OnExceed::Defer(how) if deferred.is_none_or(|(longest, ..)| when > longest) => {
                    deferred = Some((when, how, limit.period()));
                }
                OnExceed::Defer(_) | OnExceed::Wait(_) | OnExceed::Observe => {}
            }
        }
        self.bound = bound;
        self.slowest = slowest;
        self.retry = retry;
        self.verdict = match (denied, deferred, retry) {
            (false, Some((_, how, period)), When::After(span)) => {
                Verdict::Defer(self.deferred_to(span, how, period))
            }
            (false, None, When::After(span)) => Verdict::Wait(span),
            // Also if the longest wait has no known end.
            _ => Verdict::Deny,
        };
    }

    /// Turns a denial into a wait, if only holds are the reason: no end of them is known, or none that the
    /// rules would wait for. For a caller that waits until a hold is released.
    pub fn let_wait(&mut self) {
        if self.verdict != Verdict::Deny || !self.policy().lets_wait() {
            return;
        }
        if !self.denied_by().is_some_and(|line| line.may_be_released()) {
            return;
        }
        let over = |line: &Line<'_>| line.exceeded() && !line.rule.observes();
        if self.lines().filter(over).all(|line| line.may_be_released()) {
            self.verdict = Verdict::Wait(self.wait().unwrap_or_default());
        }
    }

    fn deferred_to(&self, span: Span, how: Deferral, period: Option<Span>) -> Timestamp {
        let mut at = self.outcome.now + span;
        if let (true, Some(period)) = (how.aligned, period) {
            // The epoch was a Thursday, and weeks start on Monday.
            let first = if period == WEEK { FIRST_MONDAY } else { Timestamp::ZERO };
            let boundary = at.since(first).as_micros().next_multiple_of(period.as_micros());
            at = first + Span::from_micros(boundary);
        }
        let spread = self.charges.ticket.0.checked_rem(how.jitter.as_micros()).unwrap_or(0);
        at + Span::from_micros(spread)
    }

    /// How long to wait before a retry; `None` if that is unknown. A deferred attempt waits until the
    /// deferred time, which may be later than the first at which it would pass.
    pub fn wait(&self) -> Option<Span> {
        match (self.verdict, self.retry) {
            (Verdict::Defer(at), _) => Some(at.since(self.outcome.now)),
            (_, When::After(span)) => Some(span),
            _ => None,
        }
    }

    /// Whether the attempt is allowed.
    pub fn allowed(&self) -> bool {
        self.verdict == Verdict::Allow
    }

    /// The rules that applied, in the order of the policy.
    pub fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        let mut start = 0;
        self.charges.iter().enumerate().map(move |(index, charge)| {
            let own = start;
            start += charge.plan.limits().len();
            self.line(index, charge, own)
        })
    }

    /// The line of one charge, whose readings start at `start`.
    #[inline]
    fn line<'d>(&'d self, index: usize, charge: &'d Charge<'a>, start: usize) -> Line<'d> {
        let limits = charge.plan.limits();
        Line {
            rule: self.rule_of(charge),
            key: self.charges.key(charge),
            plan: charge.plan,
            limits,
            readings: self.outcome.readings_from(start, limits.len()),
            taken: self.outcome.taken & (1 << index) != 0,
            cost: charge.cost,
        }
    }

    /// The rule of a charge.
    #[inline]
    fn rule_of(&self, charge: &Charge<'_>) -> &'a Arc<Rule> {
        self.policy().rule(charge.plan.rule()).expect("charges come from the policy's rules")
    }

    /// The rule of [`Decision::denied_by`].
    pub fn named_rule(&self) -> Option<&'a Arc<Rule>> {
        let (index, _) = self.bound?;
        self.charges.iter().as_slice().get(index).map(|charge| self.rule_of(charge))
    }

    /// The first exceeded rule, which the decision names.
    pub fn denied_by(&self) -> Option<Line<'_>> {
        let (index, start) = self.bound?;
        Some(self.line(index, self.charges.iter().as_slice().get(index)?, start))
    }

    /// The rule that determines the retry time, if it is not the named one.
    #[inline]
    pub fn retry_by(&self) -> Option<Line<'_>> {
        let (index, start) = self.slowest.filter(|slowest| Some(*slowest) != self.bound)?;
        Some(self.line(index, self.charges.iter().as_slice().get(index)?, start))
    }

    /// The binding limit. On denial it is the limit of the named rule with the longest wait, otherwise the
    /// enforced limit with the least left. A bound on a single attempt is binding only if it is exceeded, or
    /// if there is no other limit.
    pub fn binding(&self) -> Option<(&Limit, Reading)> {
        self.binding_charge().map(|(_, limit, reading)| (limit, reading))
    }

    /// As [`Decision::binding`], with the rule whose limit it is.
    pub fn binding_of_rule(&self) -> Option<(&Rule, &Limit, Reading)> {
        let (charge, limit, reading) = self.binding_charge()?;
        Some((self.rule_of(charge), limit, reading))
    }

    fn binding_charge(&self) -> Option<(&Charge<'a>, &Limit, Reading)> {
        if let Some((index, start)) = self.bound {
            let charge = self.charges.iter().as_slice().get(index)?;
            let limits = charge.plan.limits();
            let (limit, reading) = longest(limits, self.outcome.readings_from(start, limits.len()))?;
            return Some((charge, limit, reading));
        }
        let mut readings = self.outcome.readings.iter();
        let mut least = None;
        let mut fewest = (true, u64::MAX);
        for charge in self.charges.iter() {
            for (limit, reading) in charge.plan.limits().iter().zip(&mut readings) {
                let left = (!limit.consumes(), reading.remaining);
                if charge.enforced && (left < fewest || least.is_none()) {
                    (least, fewest) = (Some((charge, limit, reading)), left);
                }
            }
        }
        least.map(|(charge, limit, reading)| (charge, limit, *reading))
    }

    /// The receipt for a refund; `None` if nothing was taken.
    pub fn receipt(&self) -> Option<Receipt> {
        let taken: Vec<_> = self
            .lines()
            .filter(|line| line.taken)
            .map(|line| ReceiptLine {
                rule: line.rule.name.to_string(),
                key: line.key.to_string(),
                cost: line.cost,
            })
            .collect();
        let (ticket, at) = (self.charges.ticket, self.outcome.now);
        (!taken.is_empty()).then_some(Receipt { ticket, at, taken })
    }
}
