//! What a policy makes of an outcome.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::Ticket;
use crate::charge::{Charge, Charges, Outcome};
use crate::limit::Limit;
use crate::lists::Listing;
use crate::outage::Reason;
use crate::plan::Plan;
use crate::policy::Policy;
use crate::reading::{Reading, When};
use crate::rule::{Deferral, OnExceed, Rule};
use crate::time::{Span, Timestamp};

const WEEK: Span = Span::from_secs(604_800);
/// When to ask again if the store cannot be used: nobody knows, and a second is not long.
const RETRY_IN_OUTAGE: Span = Span::from_secs(1);
const FIRST_MONDAY: Timestamp = Timestamp::from_micros(4 * 86_400_000_000);

/// What is to be done with an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Let it pass: everything was taken.
    Allow,
    /// Ask again after this long: nothing was taken.
    Wait(Span),
    /// Ask again at this moment: nothing was taken.
    Defer(Timestamp),
    /// Refuse it: nothing was taken.
    Deny,
}

/// How a decision was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// By the store.
    Store,
    /// By counters of this process, because the store cannot be used.
    Local(Reason),
    /// By what its rules do without their store, and no counter.
    Outage(Reason),
    /// Without any counter: limits are switched off, or none applies.
    Fixed,
    /// By the blocklist, before anything was counted.
    Barred,
}

/// The decision on one attempt: the verdict, and why.
#[derive(Clone, Debug)]
pub struct Decision<'a> {
    policy: Option<&'a Policy>,
    /// What is to be done.
    pub verdict: Verdict,
    /// When the same attempt would pass.
    pub retry: When,
    /// How it was reached.
    pub origin: Origin,
    /// What was asked of the store.
    pub charges: Charges<'a>,
    /// What the store said.
    pub outcome: Outcome,
    /// The id by which the caller knows the attempt, if it sent one. The engine sets it before it decides.
    pub correlation: Option<&'a str>,
    /// The fields of the attempt, if it is barred: no charge tells of them.
    pub barred_fields: &'a [(&'a str, &'a str)],
    /// The charge of the rule that is named, and where its readings begin.
    bound: Option<(usize, usize)>,
    /// The same of the rule that allows the attempt last.
    slowest: Option<(usize, usize)>,
    barred: Option<Arc<Listing>>,
}

/// One rule's part in a decision.
#[derive(Clone, Copy, Debug)]
pub struct Line<'d> {
    /// The rule.
    pub rule: &'d Rule,
    /// The key it counted under.
    pub key: &'d str,
    /// The plan that held there.
    pub plan: &'d Arc<Plan>,
    /// Its limits.
    pub limits: &'d [Limit],
    /// What each of them showed; nothing if no counter was asked.
    pub readings: &'d [Reading],
    /// Whether the attempt was charged here.
    pub taken: bool,
    /// How much it asked for.
    pub cost: u64,
}

/// What an allowed attempt can be given back with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Who took it.
    pub ticket: Ticket,
    /// When, by the store's clock.
    pub at: Timestamp,
    /// What was taken where.
    pub taken: Vec<ReceiptLine>,
}

/// One charge of a receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiptLine {
    /// The rule.
    pub rule: String,
    /// The key it counted under.
    pub key: String,
    /// How much was taken there.
    pub cost: u64,
}

impl<'a> Decision<'a> {
    /// What the policy makes of an outcome.
    pub fn new(policy: &'a Policy, charges: Charges<'a>, outcome: Outcome, origin: Origin) -> Self {
        let mut decision = Self { policy: Some(policy), charges, outcome, ..Self::blank() };
        decision.conclude(origin);
        decision
    }

    /// A decision yet to be made: it denies. Decisions are too large to be handed from call to call,
    /// so they are made where they stand: open one, let a store settle its charges into its
    /// outcome, and conclude.
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
            barred_fields: &[],
            bound: None,
            slowest: None,
            barred: None,
        }
    }

    /// As [`Decision::blank`], about an attempt that its caller knows by this id, if it sent one.
    #[inline]
    pub fn for_caller(correlation: Option<&'a str>) -> Self {
        Self { correlation, ..Self::blank() }
    }

    /// Begins a decision by this policy, with no charges yet.
    #[inline]
    pub fn open(&mut self, policy: &'a Policy, ticket: Ticket, cost: u64, id: Option<&'a str>) {
        // Only a decision that was opened before has anything to put away.
        if self.policy.is_some() {
            self.charges.clear();
            self.verdict = Verdict::Deny;
            self.retry = When::Now;
            self.bound = None;
            self.slowest = None;
            self.barred = None;
        }
        self.policy = Some(policy);
        (self.charges.ticket, self.charges.cost, self.charges.id) = (ticket, cost, id);
    }

    /// The policy that decided.
    #[inline]
    pub fn policy(&self) -> &'a Policy {
        self.policy.expect("a decision is opened by a policy")
    }

    /// Weighs the outcome. An exceeded `reject`, a `wait` beyond its bound, and whatever can never
    /// pass, deny; else an exceeded `defer` defers; else it is a wait.
    #[inline]
    pub fn conclude(&mut self, origin: Origin) {
        self.origin = origin;
        self.verdict = Verdict::Allow;
        if !self.outcome.allowed {
            self.weigh();
        }
    }

    /// Denies because the store cannot be used: the rule of the charge at `index` is named, nothing
    /// was read, and it may be over in a moment.
    pub fn refuse(&mut self, index: usize, reason: Reason, now: Timestamp) {
        self.outcome = Outcome { now, ..Outcome::default() };
        self.origin = Origin::Outage(reason);
        self.verdict = Verdict::Deny;
        self.retry = When::After(RETRY_IN_OUTAGE);
        (self.bound, self.slowest) = (Some((index, 0)), None);
    }

    /// Denies because an entry of the blocklist says so, whatever could be charged.
    pub fn bar(&mut self, listing: Arc<Listing>, now: Timestamp) {
        self.outcome = Outcome { now, ..Outcome::default() };
        self.origin = Origin::Barred;
        self.verdict = Verdict::Deny;
        self.retry = listing.until.map_or(When::Never, |until| When::After(until.since(now)));
        self.barred = Some(listing);
    }

    /// The entry of the blocklist that bars the attempt, if one does.
    pub fn barred(&self) -> Option<&Arc<Listing>> {
        self.barred.as_ref()
    }

    /// The first charge that its rule denies while the store cannot be used.
    pub fn denied_in_outage(&self) -> Option<usize> {
        let mut charges = self.charges.iter();
        charges.position(|charge| self.rule_of(charge).denies_in_outage(charge))
    }

    /// The first charge that asks more of a share than it ever holds, though not more than the
    /// `whole` does, if no other asks for what can never pass.
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

    /// Allows an attempt that no limit is asked about.
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
            let no_time = matches!(when, When::Never | When::OnRelease);
            match rule.on_exceed {
                OnExceed::Wait(most) if no_time || when > When::After(most) => denied = true,
                OnExceed::Reject => denied = true,
                OnExceed::Defer(_) if no_time => denied = true,
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
            _ => Verdict::Deny,
        };
    }

    /// Lets an attempt wait that was denied only because no time can be told, or none that its rules would
    /// wait for, at which holds end by themselves. For whoever stands by until somebody releases one.
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

    /// How long to wait before asking again; `None` where no time can be told. A deferred attempt
    /// waits for the moment it is deferred to, which may lie after the first one at which it would
    /// pass.
    pub fn wait(&self) -> Option<Span> {
        match (self.verdict, self.retry) {
            (Verdict::Defer(at), _) => Some(at.since(self.outcome.now)),
            (_, When::After(span)) => Some(span),
            _ => None,
        }
    }

    /// Whether the attempt may pass.
    pub fn allowed(&self) -> bool {
        self.verdict == Verdict::Allow
    }

    /// The policy's rules that applied, in order.
    pub fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        let mut start = 0;
        self.charges.iter().enumerate().map(move |(index, charge)| {
            let own = start;
            start += charge.plan.limits().len();
            self.line(index, charge, own)
        })
    }

    /// What one charge came to, whose readings begin here.
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

    /// The rule that a charge stands for.
    #[inline]
    fn rule_of(&self, charge: &Charge<'_>) -> &'a Arc<Rule> {
        self.policy().rule(charge.plan.rule()).expect("charges come from the policy's rules")
    }

    /// The rule of [`Decision::denied_by`].
    pub fn named_rule(&self) -> Option<&'a Arc<Rule>> {
        let (index, _) = self.bound?;
        self.charges.iter().as_slice().get(index).map(|charge| self.rule_of(charge))
    }

    /// The first rule that was exceeded: the one that is named.
    pub fn denied_by(&self) -> Option<Line<'_>> {
        let (index, start) = self.bound?;
        Some(self.line(index, self.charges.iter().as_slice().get(index)?, start))
    }

    /// The rule that determines when to ask again, if it is another one than is named.
    #[inline]
    pub fn retry_by(&self) -> Option<Line<'_>> {
        let (index, start) = self.slowest.filter(|slowest| Some(*slowest) != self.bound)?;
        Some(self.line(index, self.charges.iter().as_slice().get(index)?, start))
    }

    /// The limit that binds: on denial the one of the named rule with the longest wait, else the
    /// enforced one with the least left. What is only bounded in each attempt binds when it is
    /// exceeded, or when there is nothing else.
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

    /// What the attempt can be given back with; `None` if nothing was taken.
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

impl<'d> Line<'d> {
    /// What a rule shows at a key that was only looked at.
    pub fn looked_up(rule: &'d Rule, key: &'d str, plan: &'d Arc<Plan>, outcome: &'d Outcome) -> Self {
        let readings = &outcome.readings;
        Self { rule, key, plan, limits: plan.limits(), readings, taken: false, cost: 0 }
    }

    /// Whether some limit here is exceeded.
    pub fn exceeded(&self) -> bool {
        self.readings.iter().any(|reading| reading.when > When::Now)
    }

    /// The limit that binds here: if one is exceeded the one with the longest wait, else the one
    /// with the least left.
    pub fn binding(&self) -> Option<(&'d Limit, Reading)> {
        if self.exceeded() { longest(self.limits, self.readings) } else { least(self.limits, self.readings) }
    }

    /// As [`Line::binding`], with the limit as it is written.
    pub fn binding_written(&self) -> Option<(&'d str, &'d Limit, Reading)> {
        let (binding, reading) = self.binding()?;
        let mut written = self.plan.written();
        written.find(|(limit, _)| core::ptr::eq(*limit, binding)).map(|(_, text)| (text, binding, reading))
    }

    /// Whether its rule lets the attempt wait, and all that would take too long are holds, which may be
    /// released at any moment.
    fn may_be_released(&self) -> bool {
        let OnExceed::Wait(most) = self.rule.on_exceed else { return false };
        // Where no counter was asked there is nothing to wait for.
        self.exceeded()
            && self.limits.iter().zip(self.readings).all(|(limit, reading)| match reading.when {
                When::Now => true,
                When::After(span) => limit.holds() || span <= most,
                When::OnRelease => limit.holds(),
                When::Never => false,
            })
    }

    /// How long the attempt has to wait here at least, whatever is released: as long as all of its rule's
    /// limits but holds say.
    pub fn surely(&self) -> Span {
        let pairs = self.limits.iter().zip(self.readings).filter(|(limit, _)| !limit.holds());
        let spans = pairs.filter_map(|(_, reading)| match reading.when {
            When::After(span) => Some(span),
            When::Now | When::OnRelease | When::Never => None,
        });
        spans.max().unwrap_or_default()
    }
}

fn longest<'l>(limits: &'l [Limit], readings: &[Reading]) -> Option<(&'l Limit, Reading)> {
    let pairs = limits.iter().zip(readings);
    pairs.max_by_key(|(_, reading)| reading.when).map(|(limit, reading)| (limit, *reading))
}

/// The limit with the least left.
fn least<'l>(limits: &'l [Limit], readings: &[Reading]) -> Option<(&'l Limit, Reading)> {
    let pairs = limits.iter().zip(readings);
    let least = pairs.min_by_key(|(limit, reading)| (!limit.consumes(), reading.remaining));
    least.map(|(limit, reading)| (limit, *reading))
}
