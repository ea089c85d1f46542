//! The deliver policy: charges deliveries to the limits of accounts and recipient domains.

mod check;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::time::timeout;
use tollgate_core::{
    Attempt, Decision, Field, Limit, Line, Mistake, Origin, Policy, Span, StoreError, Timestamp, Verdict,
    When,
};
use tollgate_engine::admit::{Holds, Look, Unsettled};
use tollgate_engine::{Admission, Admissions, ChangeFault, Engine, Fault, NotAdmitted, Terms};

pub use check::{Unfit, check};

/// The name of the rule for accounts, and of its field.
const ACCOUNT: &str = "account";
/// The field that rules count recipients by.
const RECIPIENTS: &str = "recipients";
/// The field that rules count messages by.
const MESSAGES: &str = "messages";
/// The pause before the next attempt if the engine knows no time.
const NO_TIME: Span = Span::from_secs(600);
/// The pause before the next attempt if another transaction holds the slot.
const RELEASE: Span = Span::from_secs(1);
/// The pause before the next attempt if the store cannot be used.
const OUTAGE: Span = Span::from_secs(5);
/// The most times that a transaction is tried with fewer recipients because others were faster.
const TRIES: usize = 3;
/// A transaction waits at most this long for its refund. If the store is slow, the engine completes the refund
/// later.
const REFUND_PATIENCE: Duration = Duration::from_secs(1);

/// Checks the limits of transactions.
pub struct Limits {
    admissions: Admissions,
    /// `None` if deliveries are not limited.
    policy: RwLock<Option<Arc<str>>>,
}

/// The size and the keys of a transaction.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// The tenant that the mail belongs to.
    pub tenant: &'a str,
    /// The account; empty if the mail goes directly to the recipients' hosts.
    pub account: &'a str,
    /// The recipient domain.
    pub domain: &'a str,
    /// The number of waiting recipients.
    pub recipients: u32,
}

/// The charges of a transaction that has not begun. Dropping this refunds them.
#[derive(Debug)]
pub struct Taken {
    /// The number of recipients that the transaction may have.
    pub recipients: u32,
    charges: tollgate_engine::Taken,
    /// When it was taken.
    at: Timestamp,
}

/// The charges of a transaction that has begun. Dropping this keeps them: the server may have got the message,
/// even if the task was cancelled.
#[derive(Debug)]
pub struct Begun {
    charges: tollgate_engine::Taken,
    /// When it was taken.
    pub at: Timestamp,
}

/// The reason why a transaction must not begin now. Nothing was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The time to ask again.
    pub until: Timestamp,
    /// The time at which the limits allow it. It is before `until` if the rule aligns or spreads deferred
    /// attempts.
    pub free_at: Timestamp,
    /// The rule and its key, or the fault.
    pub reason: String,
    /// The kind of refusal.
    pub by: RefusedBy,
}

/// The kind of refusal of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedBy {
    /// A limit of the account.
    Account,
    /// Another limit, or a share of a limit while the store cannot be used.
    Other,
    /// The store cannot be used, or the policy does not fit deliveries.
    Fault,
}

impl Limits {
    pub fn new(admissions: Admissions, policy: &str) -> Self {
        Self { admissions, policy: RwLock::new(Some(policy.into())) }
    }

    /// Makes limits without a policy: every delivery is allowed.
    pub fn unlimited(admissions: Admissions) -> Self {
        Self { admissions, policy: RwLock::default() }
    }

    /// Uses another policy from now on.
    pub fn reload(&self, policy: &Arc<str>) {
        *self.policy.write() = Some(Arc::clone(policy));
    }

    /// Decides as [`Limits::take`] does, but takes nothing. Returns the number of recipients that would be
    /// allowed.
    pub async fn look(&self, load: Load<'_>, now: Timestamp) -> Result<u32, Refusal> {
        self.ask(load, now, Look::Peek).await.map(|taken| taken.recipients)
    }

    /// Takes the charges of the account and the recipient domain together, for as many recipients as the limits
    /// allow.
    pub async fn take(&self, load: Load<'_>, now: Timestamp) -> Result<Taken, Refusal> {
        self.ask(load, now, Look::Take).await
    }

    /// Sets an account's own limits, in place of those of rule `account`. They apply at once, on all nodes.
    pub async fn set_account(
        &self,
        tenant: &str,
        account: &str,
        limits: Vec<Limit>,
    ) -> Result<(), ChangeFault> {
        let key = self.account_key(tenant, account)?;
        self.admissions.engine.config.set_override(ACCOUNT, &key, limits).await.map(drop)
    }

    /// Removes an account's own limits, so those of rule `account` apply again.
    pub async fn reset_account(&self, tenant: &str, account: &str) -> Result<(), ChangeFault> {
        let key = self.account_key(tenant, account)?;
        self.admissions.engine.config.remove_override(ACCOUNT, &key).await.map(drop)
    }

    /// The limits in force of an account; none means unlimited.
    pub fn of_account(&self, tenant: &str, account: &str) -> Vec<Limit> {
        let Ok(key) = self.account_key(tenant, account) else { return Vec::new() };
        let pinned = self.admissions.engine.pin();
        pinned.policies.rule(ACCOUNT).map_or_else(Vec::new, |rule| rule.plan_at(&key).limits().to_vec())
    }

    /// The key of an account at rule `account`. The rule's key must consist of tenant and account.
    fn account_key(&self, tenant: &str, account: &str) -> Result<Box<str>, ChangeFault> {
        let unknown = || ChangeFault::Unknown { name: ACCOUNT.to_owned() };
        let pinned = self.admissions.engine.pin();
        let rule = pinned.policies.rule(ACCOUNT).ok_or_else(unknown)?;
        let value = |field: &Field| match &*field.name {
            "tenant" => Some(escape(tenant)),
            ACCOUNT => Some(escape(account)),
            _ => None,
        };
        let values: Option<Vec<String>> = rule.by.iter().map(value).collect();
        values.and_then(|values| rule.key_of(&values.join(","))).ok_or_else(unknown)
    }

    async fn ask(&self, load: Load<'_>, now: Timestamp, look: Look) -> Result<Taken, Refusal> {
        let Some(policy) = self.policy.read().clone() else {
            return Ok(Taken::nothing(load.recipients, now));
        };
        let mut recipients = load.recipients;
        for _ in 0..TRIES {
            match self.ask_for(&policy, Load { recipients, ..load }, now, look).await? {
                TakeAnswer::Taken(taken) => return Ok(taken),
                TakeAnswer::Refused(refusal, _) if recipients == 1 => return Err(refusal),
                // If the item is larger than what the limits allow now, it is split. If they allow nothing now,
                // the refusal of a single recipient gives the time to ask again.
                TakeAnswer::Refused(_, fewer) => recipients = fewer.unwrap_or(1),
            }
        }
        Err(fault("the limits change too quickly".to_owned(), now))
    }

    async fn ask_for(
        &self,
        policy: &str,
        load: Load<'_>,
        now: Timestamp,
        look: Look,
    ) -> Result<TakeAnswer, Refusal> {
        let count = load.recipients.to_string();
        let known = [
            ("tenant", load.tenant),
            (ACCOUNT, load.account),
            ("recipient_domain", load.domain),
            (RECIPIENTS, &count),
            (MESSAGES, "1"),
        ];
        let recipients = load.recipients;
        let admitting = {
            let pinned = self.admissions.pin();
            let found = pinned.policies.find(policy).map_err(|mistake| fault(mistake.to_string(), now))?;
            // The engine would refuse a field that no rule of the policy uses.
            let used: Vec<(&str, &str)> =
                known.into_iter().filter(|(name, value)| uses(found, name) && !value.is_empty()).collect();
            let attempt = Attempt { policy, fields: &used, cost: 1, id: None };
            let terms =
                Terms { look, holds: Holds::ByTaken, unsettled: Unsettled::Refund, ..Terms::default() };
            let see = move |_: &Engine, decision: &Decision<'_>| {
                (!decision.allowed()).then(|| (refusal(decision, now), fewer(decision, recipients)))
            };
            pinned.admit(&attempt, terms, see)
        };
        match admitting.await {
            Ok(Admission { seen: None, taken, .. }) => {
                Ok(TakeAnswer::Taken(Taken { recipients, charges: taken, at: now }))
            }
            Ok(Admission { seen: Some((refusal, _)), .. }) if refusal.by == RefusedBy::Fault => Err(refusal),
            Ok(Admission { seen: Some((refusal, fewer)), .. }) => Ok(TakeAnswer::Refused(refusal, fewer)),
            // If no rule applies, the mail is not limited: for example direct mail, if all rules are about
            // accounts.
            Err(NotAdmitted::Fault(Fault::Mistake(Mistake::NoRuleApplies { .. }))) => {
                Ok(TakeAnswer::Taken(Taken::nothing(recipients, now)))
            }
            Err(error) => Err(fault(error.to_string(), now)),
        }
    }
}

impl Taken {
    /// The charges of a transaction that no limit applies to.
    fn nothing(recipients: u32, at: Timestamp) -> Self {
        Self { recipients, charges: tollgate_engine::Taken::default(), at }
    }

    /// Returns when the charges survive a crash, as far as their store promises that.
    pub async fn durable(&self) -> Result<(), StoreError> {
        self.charges.durable().await
    }

    /// Marks the transaction as begun: from now on its charges are kept unless it refunds them.
    pub fn begin(self) -> Begun {
        Begun { charges: self.charges, at: self.at }
    }

    /// Refunds the charges, now if the store answers quickly.
    pub async fn refund(mut self) {
        let _ = timeout(REFUND_PATIENCE, self.charges.refund()).await;
    }
}

impl Begun {
    /// Refunds the charges, because the server never learned of the transaction.
    pub async fn refund(mut self) {
        self.give_back().await;
    }

    /// The same for a transaction that goes on, and takes anew.
    pub async fn give_back(&mut self) {
        let _ = timeout(REFUND_PATIENCE, self.charges.refund()).await;
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.charges.keep();
    }
}

enum TakeAnswer {
    Taken(Taken),
    /// Refused; with the number of recipients that would be allowed, if any.
    Refused(Refusal, Option<u32>),
}

fn uses(policy: &Policy, name: &str) -> bool {
    policy.fields().any(|field| field == name)
}

/// The number of recipients that every limit allows now; `None` if it is zero, or not fewer than asked for.
fn fewer(decision: &Decision<'_>, recipients: u32) -> Option<u32> {
    let mut most = u64::from(recipients);
    for line in decision.lines().filter(|line| !line.rule.observes()) {
        let counts = line.rule.count.as_deref() == Some(RECIPIENTS);
        for (limit, reading) in line.limits.iter().zip(line.readings) {
            if let Some(bound) = limit.per_attempt() {
                if **bound.field() == *RECIPIENTS {
                    most = most.min(bound.max());
                }
            } else if counts {
                most = most.min(reading.remaining);
            } else if reading.remaining < line.cost {
                return None;
            }
        }
    }
    u32::try_from(most).ok().filter(|most| (1..recipients).contains(most))
}

fn refusal(decision: &Decision<'_>, now: Timestamp) -> Refusal {
    debug_assert_ne!(decision.verdict, Verdict::Allow);
    if let Origin::Outage(reason) = decision.origin {
        return fault(format!("the store cannot be used: {}", reason.name()), now);
    }
    let no_time = if decision.retry == When::OnRelease { RELEASE } else { NO_TIME };
    let until = now + decision.wait().unwrap_or(no_time);
    let free_at = match decision.retry {
        When::After(span) => until.min(now + span),
        When::Now | When::OnRelease | When::Never => until,
    };
    // The rule with the latest free time gives the reason.
    let line = decision.retry_by().or_else(|| decision.denied_by());
    let of_account = |line: &Line<'_>| line.rule.by.iter().any(|field| *field.name == *ACCOUNT);
    // If the store is down, a node's share of a limit is not the account's limit: no mail is rejected for it.
    let counted = matches!(decision.origin, Origin::Store | Origin::Fixed);
    let by =
        if counted && line.as_ref().is_some_and(of_account) { RefusedBy::Account } else { RefusedBy::Other };
    let reason = match (&line, decision.blocked()) {
        (_, Some(listing)) => format!("blocklist: {}", listing.target),
        (Some(line), None) => format!("{} {}", line.rule.name, line.key),
        (None, None) => "limits".to_owned(),
    };
    Refusal { until, free_at, reason, by }
}

/// Escapes a value inside a key of several values.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace(',', "\\,")
}

fn fault(reason: String, now: Timestamp) -> Refusal {
    let until = now + OUTAGE;
    Refusal { until, free_at: until, reason, by: RefusedBy::Fault }
}

impl fmt::Debug for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limits").field("policy", &self.policy).finish_non_exhaustive()
    }
}
