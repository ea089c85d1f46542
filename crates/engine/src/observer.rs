//! Shows decisions to operators, in the journal, the rankings, the metrics and the log.

use std::borrow::Cow;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tollgate_core::{
    Attempt, Charges, Decision, Line, Listing, Origin, Rule, Span, Ticket, Timestamp, Verdict, When,
};

use crate::decision_token::DenialSettings;
use crate::journal::{Entry, Journal, KeyMark};
use crate::live_config::Snapshot;
use crate::log_limiter::{LogLimiter, PacedLog};
use crate::meter::Meters;
use crate::nearest::Nearest;
use crate::ranking::Ranking;
use crate::rates::Rates;
use crate::receipt::{self, Seals};

/// Takes the place of the rule's name if the blocklist refuses an attempt.
const BLOCKLIST: &str = "blocklist";

/// Records decisions for operators.
pub struct Observer {
    /// The latest decisions.
    pub journal: Journal,
    /// The keys refused most often.
    pub offenders: Ranking,
    /// The keys that ask most often, in a sample of all decisions.
    pub busiest: Ranking,
    /// The keys that observed rules would have denied most often.
    pub observed: Ranking,
    /// The keys nearest to their limits.
    pub nearest: Nearest,
    /// The metrics.
    pub meters: Meters,
    /// The rates of the last fifteen minutes, sampled from the metrics.
    pub rates: Rates,
    log: PacedLog,
    /// Chooses the denials for the sample of the busiest keys.
    refused_sample: LogLimiter,
    pub(crate) seals: Arc<Seals>,
    /// The additional contents of denials over HTTP.
    pub(crate) denials: ArcSwap<DenialSettings>,
}

impl Observer {
    pub(crate) fn new(seals: Arc<Seals>) -> Self {
        Self {
            journal: Journal::default(),
            offenders: Ranking::default(),
            busiest: Ranking::default(),
            observed: Ranking::default(),
            nearest: Nearest::default(),
            meters: Meters::default(),
            rates: Rates::default(),
            log: PacedLog::default(),
            refused_sample: LogLimiter::new(Span::from_micros(1_000), 100),
            seals,
            denials: ArcSwap::default(),
        }
    }

    /// A rule's key as operators may see it.
    pub fn shown_key<'k>(&self, rule: &Rule, key: &'k str) -> Cow<'k, str> {
        if rule.secret { Cow::Owned(self.seals.pseudonym(key)) } else { Cow::Borrowed(key) }
    }

    /// Whether a text looks like the pseudonym of a secret key of this rule.
    pub fn is_pseudonym(rule: &Rule, text: &str) -> bool {
        rule.secret && receipt::is_pseudonym(text)
    }

    /// The secret key that a pseudonym stands for. Only keys with limits of their own are known.
    pub fn key_of_pseudonym<'r>(&self, rule: &'r Rule, pseudonym: &str) -> Option<&'r str> {
        rule.overrides.keys().map(|key| &**key).find(|key| self.seals.pseudonym(key) == pseudonym)
    }

    /// Counts a decision, and records it for operators.
    #[inline]
    pub(crate) fn note(&self, pinned: &Snapshot, decision: &Decision<'_>) {
        // While limits are switched off there is no policy to count for.
        if pinned.policies.enabled
            && let Some(meter) = pinned.meters.get(decision.policy().number())
        {
            if decision.allowed() {
                meter.allow.raise();
            }
            if !decision.allowed() || decision.policy().observes() {
                meter.count_rules(decision);
            }
        }
        // A client denied by an outage is no offender.
        if !decision.allowed() && !matches!(decision.origin, Origin::Outage(_)) {
            self.note_refusal(decision);
        }
        let observed = decision.policy().observes() && self.note_observed(decision);
        if self.nearest.wants(decision) {
            self.nearest.note(decision, |rule, key| self.shown_key(rule, key));
        }
        if decision.allowed() && !observed {
            self.journal.record_allowed(decision.outcome.now, || {
                self.note_busy(decision);
                (self.mark(decision), self.entry(pinned, decision))
            });
        } else {
            self.record_refused(pinned, decision);
        }
    }

    /// Records a denial, or what would have been one.
    #[cold]
    fn record_refused(&self, pinned: &Snapshot, decision: &Decision<'_>) {
        let now = decision.outcome.now;
        if self.refused_sample.admits(now) {
            self.note_busy(decision);
        }
        self.journal.record_refused(self.mark(decision), now, || self.entry(pinned, decision));
    }

    /// The mark by which the journal is fair: that of the key that denied, or would have, or of the first one.
    fn mark(&self, decision: &Decision<'_>) -> KeyMark {
        if let Some(listing) = decision.blocked() {
            return self.journal.mark((BLOCKLIST, &listing.target));
        }
        let line = decision.denied_by().or_else(|| exceeded_observed(decision).next());
        let line = line.or_else(|| decision.lines().next());
        self.journal.mark(line.map(|line| (&*line.rule.name, line.key)))
    }

    /// Counts a decision of the sample at its keys.
    fn note_busy(&self, decision: &Decision<'_>) {
        for line in decision.lines() {
            let key = self.shown_key(line.rule, line.key);
            self.busiest.note(&line.rule.name, &key, decision.outcome.now);
        }
    }

    /// Records the keys that observed rules would have denied. Returns whether there are any.
    fn note_observed(&self, decision: &Decision<'_>) -> bool {
        let mut any = false;
        for line in exceeded_observed(decision) {
            any = true;
            let key = self.shown_key(line.rule, line.key);
            self.observed.note(&line.rule.name, &key, decision.outcome.now);
        }
        any
    }

    #[cold]
    fn note_refusal(&self, decision: &Decision<'_>) {
        if let Some(listing) = decision.blocked() {
            let (ticket, policy) = (decision.charges.ticket.id(), &decision.policy().name);
            let id = correlation(decision.correlation, &ticket);
            return self.note_blocked(policy, listing, id, decision.outcome.now);
        }
        let Some(line) = decision.denied_by() else { return };
        let now = decision.outcome.now;
        let key = self.shown_key(line.rule, line.key);
        self.offenders.note(&line.rule.name, &key, now);
        if matches!(decision.verdict, Verdict::Wait(_)) {
            return;
        }
        let Some(held_back) = self.log.admit(now) else { return };
        let retry_after = match decision.wait() {
            Some(wait) => Span::from_secs(wait.as_secs_ceil()).to_string(),
            None => String::from("never"),
        };
        let (policy, denied_by) = (&*decision.policy().name, &*line.rule.name);
        let code = line.rule.code.as_deref();
        let retry_by = decision.retry_by().map(|line| line.rule.name.to_string());
        let ticket = decision.charges.ticket.id();
        let held_back = Some(held_back).filter(|lines| *lines > 0);
        tracing::warn!(
            component = "ratelimit",
            policy,
            denied_by,
            code,
            key = &*key,
            retry_after,
            retry_by,
            correlation = correlation(decision.correlation, &ticket),
            held_back,
            "rate limit exceeded"
        );
    }

    /// Records a blocked attempt: which blocklist entry matched, its reason, and until when it blocks.
    fn note_blocked(&self, policy: &str, listing: &Listing, correlation: &str, now: Timestamp) {
        let target = listing.target.to_string();
        self.offenders.note(BLOCKLIST, &target, now);
        let Some(held_back) = self.log.admit(now) else { return };
        let reason = Some(&*listing.reason).filter(|reason| !reason.is_empty());
        let ends_in = listing.until.map(|until| Span::from_secs(until.since(now).as_secs_ceil()).to_string());
        let author = listing.author.to_string();
        tracing::info!(
            component = "lists",
            policy,
            target,
            reason,
            ends_in,
            author,
            correlation,
            held_back,
            "blocked"
        );
    }

    /// Logs a blocked client to which no policy applies, and writes it to the journal.
    pub(crate) fn note_blocked_elsewhere(&self, listing: &Arc<Listing>, correlation: &str, now: Timestamp) {
        self.note_blocked("", listing, correlation, now);
        let mark = self.journal.mark((BLOCKLIST, &listing.target));
        self.journal.record_refused(mark, now, || Entry {
            at: now,
            policy: String::new(),
            verdict: Verdict::Deny,
            origin: Origin::Blocked,
            rule: None,
            code: None,
            key: Some(listing.target.to_string()),
            keys: Vec::new(),
            correlation: Some(correlation.to_owned()),
            listing: Some(Arc::clone(listing)),
            cost: 1,
            retry: listing.until.map_or(When::Never, |until| When::After(until.since(now))),
            observed: Vec::new(),
            token: None,
            banned: None,
            locked: None,
        });
    }

    #[cold]
    fn entry(&self, pinned: &Snapshot, decision: &Decision<'_>) -> Entry {
        let named = decision.denied_by();
        let line = named.or_else(|| decision.lines().next());
        let blocked = decision.blocked().map(|listing| listing.target.to_string());
        let mut keys = Vec::new();
        for line in decision.lines() {
            let key = self.shown_key(line.rule, line.key);
            keys.push((Arc::clone(&line.rule.name), key.into_owned()));
        }
        if decision.blocked().is_some() {
            keys = self.keys_of_blocked(pinned, decision);
        }
        let ticket = decision.charges.ticket.id();
        let known_id = decision.correlation.is_some() || !decision.allowed();
        Entry {
            at: decision.outcome.now,
            policy: decision.policy().name.to_string(),
            verdict: decision.verdict,
            origin: decision.origin,
            rule: named.map(|line| line.rule.name.to_string()),
            code: named.and_then(|line| line.rule.code.clone()),
            key: blocked.or_else(|| line.map(|line| self.shown_key(line.rule, line.key).into_owned())),
            keys,
            correlation: known_id.then(|| correlation(decision.correlation, &ticket).to_owned()),
            listing: decision.blocked().cloned(),
            cost: decision.charges.cost,
            retry: decision.wait().map_or(decision.retry, When::After),
            observed: exceeded_observed(decision).map(|line| Arc::clone(&line.rule.name)).collect(),
            token: Some(self.decision_token(decision)),
            banned: None,
            locked: None,
        }
    }

    /// The keys at which a blocked attempt would have been counted, so that operators can find it by them.
    fn keys_of_blocked(&self, pinned: &Snapshot, decision: &Decision<'_>) -> Vec<(Arc<str>, String)> {
        let policy = decision.policy();
        let attempt = Attempt { policy: &policy.name, fields: decision.blocked_fields, cost: 0, id: None };
        let mut charges = Charges::new(Ticket(0), 0, None);
        // These fields are not checked yet: a malformed value is no key.
        let _ = policy.charge_listed(&attempt, pinned.policies.roster(), &mut charges);
        let keys = charges.iter().filter_map(|charge| {
            let rule = policy.rule(charge.plan.rule())?;
            Some((Arc::clone(&rule.name), self.shown_key(rule, charges.key(charge)).into_owned()))
        });
        keys.collect()
    }
}

/// The lines of observed rules that would have denied the attempt.
fn exceeded_observed<'d>(decision: &'d Decision<'_>) -> impl Iterator<Item = Line<'d>> {
    decision.lines().filter(|line| line.rule.observes() && line.exceeded())
}

/// The id by which the caller knows an attempt: its own, or one derived from the ticket.
fn correlation<'c>(own: Option<&'c str>, ticket: &'c [u8; 16]) -> &'c str {
    own.unwrap_or_else(|| str::from_utf8(ticket).unwrap_or_default())
}
