//! The deliver policy: what a transaction takes from the engine, and what it is told.

use std::fmt;
use std::sync::Arc;

use tollgate_core::{Attempt, Decision, Field, Limit, Line, Policy, Span, Timestamp, Verdict};
use tollgate_engine::engine::RefundPart;
use tollgate_engine::{ChangeFault, Engine, Fault, Snapshot};

/// The rule, and its field, that limit accounts.
const ACCOUNT: &str = "account";
/// The field that rules count recipients by.
const RECIPIENTS: &str = "recipients";
/// When to ask again if no time can be told.
const NO_TIME: Span = Span::from_secs(600);
/// When to ask again if the store cannot be used.
const OUTAGE: Span = Span::from_secs(1);
/// How often a smaller part is tried because others were faster.
const TRIES: usize = 3;

/// The limits that a transaction passes.
pub struct Limits {
    engine: Arc<Engine>,
    policy: String,
}

/// What a transaction is about.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// Whose mail it is.
    pub tenant: &'a str,
    /// The account; empty if the mail goes directly to the recipients' hosts.
    pub account: &'a str,
    /// The recipient domain.
    pub domain: &'a str,
    /// How many recipients wait.
    pub recipients: u32,
}

/// What a transaction took.
#[derive(Clone, Debug)]
pub struct Taken {
    /// How many recipients it may have.
    pub recipients: u32,
    /// What it is given back with; `None` if nothing was taken.
    receipt: Option<String>,
}

/// Why a transaction must not begin now. Nothing was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// When to ask again.
    pub until: Timestamp,
    /// The rule that is named, with its key, or the fault.
    pub reason: String,
    /// What refused.
    pub by: RefusedBy,
}

/// What refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedBy {
    /// A limit of the account.
    Account,
    /// Another limit.
    Other,
    /// The store cannot be used, or the policy does not fit.
    Fault,
}

impl Limits {
    /// The limits of a policy.
    pub fn new(engine: Arc<Engine>, policy: &str) -> Self {
        Self { engine, policy: policy.to_owned() }
    }

    /// Says what [`Limits::take`] would, and takes nothing.
    pub async fn look(&self, load: Load<'_>, now: Timestamp) -> Result<u32, Refusal> {
        self.ask(load, now, Aim::Look).await.map(|taken| taken.recipients)
    }

    /// Takes all limits of account and recipient domain together, for as many recipients as they allow.
    pub async fn take(&self, load: Load<'_>, now: Timestamp) -> Result<Taken, Refusal> {
        self.ask(load, now, Aim::Take).await
    }

    /// Gives back what a transaction took that did not reach the server.
    pub async fn refund(&self, taken: &Taken) {
        let Some(receipt) = &taken.receipt else { return };
        let pinned = Arc::clone(&self.engine.pin());
        if let Err(fault) = self.engine.refund(&pinned, receipt, RefundPart::All).await {
            // The slot stays taken: too little is sent, never too much.
            tracing::warn!(component = "relay", ?fault, "a refund failed");
        }
    }

    /// Gives an account limits of its own, in place of those of rule `account`. They hold from now on, on all nodes.
    pub async fn set_account(
        &self,
        tenant: &str,
        account: &str,
        limits: Vec<Limit>,
    ) -> Result<(), ChangeFault> {
        let key = self.account_key(tenant, account)?;
        self.engine.set_override(ACCOUNT, &key, limits).await.map(drop)
    }

    /// Takes the own limits of an account back: those of rule `account` hold again.
    pub async fn reset_account(&self, tenant: &str, account: &str) -> Result<(), ChangeFault> {
        let key = self.account_key(tenant, account)?;
        self.engine.remove_override(ACCOUNT, &key).await.map(drop)
    }

    /// The limits of an account that are in force; none means unlimited.
    pub fn of_account(&self, tenant: &str, account: &str) -> Vec<Limit> {
        let Ok(key) = self.account_key(tenant, account) else { return Vec::new() };
        let pinned = self.engine.pin();
        pinned.policies.rule(ACCOUNT).map_or_else(Vec::new, |rule| rule.plan_at(&key).limits().to_vec())
    }

    /// The key of an account at rule `account`, which must be by tenant and account.
    fn account_key(&self, tenant: &str, account: &str) -> Result<Box<str>, ChangeFault> {
        let unknown = || ChangeFault::Unknown { name: ACCOUNT.to_owned() };
        let pinned = self.engine.pin();
        let rule = pinned.policies.rule(ACCOUNT).ok_or_else(unknown)?;
        let value = |field: &Field| match &*field.name {
            "tenant" => Some(escape(tenant)),
            ACCOUNT => Some(escape(account)),
            _ => None,
        };
        let values: Option<Vec<String>> = rule.by.iter().map(value).collect();
        values.and_then(|values| rule.key_of(&values.join(","))).ok_or_else(unknown)
    }

    async fn ask(&self, load: Load<'_>, now: Timestamp, aim: Aim) -> Result<Taken, Refusal> {
        let pinned = Arc::clone(&self.engine.pin());
        let mut recipients = load.recipients;
        for _ in 0..TRIES {
            match self.ask_for(&pinned, Load { recipients, ..load }, now, aim).await? {
                Answer::Taken(taken) => return Ok(taken),
                Answer::Refused(refusal, _) if recipients == 1 => return Err(refusal),
                // An item that is larger than what is left is split. If nothing is left, the moment counts at
                // which the first recipient may be sent.
                Answer::Refused(_, fewer) => recipients = fewer.unwrap_or(1),
            }
        }
        Err(fault("the limits change too quickly".to_owned(), now))
    }

    async fn ask_for(
        &self,
        pinned: &Snapshot,
        load: Load<'_>,
        now: Timestamp,
        aim: Aim,
    ) -> Result<Answer, Refusal> {
        let count = load.recipients.to_string();
        let known = [
            ("tenant", load.tenant),
            (ACCOUNT, load.account),
            ("recipient_domain", load.domain),
            (RECIPIENTS, &count),
        ];
        let policy = pinned.policies.find(&self.policy).map_err(|mistake| fault(mistake.to_string(), now))?;
        // A field that no rule of the policy uses would be a mistake.
        let used: Vec<(&str, &str)> =
            known.into_iter().filter(|(name, value)| uses(policy, name) && !value.is_empty()).collect();
        let attempt = Attempt { policy: &self.policy, fields: &used, cost: 1, id: None };
        let decision = match aim {
            Aim::Look => self.engine.peek(pinned, &attempt).await,
            Aim::Take => self.engine.decide(pinned, &attempt).await,
        };
        let decision = match decision {
            Ok(decision) => decision,
            Err(Fault::Store(error)) => return Err(fault(error.to_string(), now)),
            Err(Fault::Mistake(mistake)) => return Err(fault(mistake.to_string(), now)),
        };
        if decision.allowed() {
            let receipt = if aim == Aim::Take { self.engine.receipt(&decision) } else { None };
            return Ok(Answer::Taken(Taken { recipients: load.recipients, receipt }));
        }
        let fewer = fewer(&decision, load.recipients);
        Ok(Answer::Refused(refusal(&decision, now), fewer))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aim {
    Look,
    Take,
}

enum Answer {
    Taken(Taken),
    /// With how many recipients would be allowed, if any.
    Refused(Refusal, Option<u32>),
}

fn uses(policy: &Policy, name: &str) -> bool {
    policy.fields().any(|field| field == name)
}

/// How many recipients every limit allows now, if that is at least one.
fn fewer(decision: &Decision<'_>, recipients: u32) -> Option<u32> {
    let mut most = u64::from(recipients);
    for line in decision.lines().filter(|line| !line.rule.observes()) {
        let left = line.readings.iter().map(|reading| reading.remaining).min().unwrap_or(u64::MAX);
        let counts = line.rule.count.as_deref() == Some(RECIPIENTS);
        if counts {
            most = most.min(left);
        } else if left < line.cost {
            return None;
        }
    }
    u32::try_from(most).ok().filter(|most| (1..recipients).contains(most))
}

fn refusal(decision: &Decision<'_>, now: Timestamp) -> Refusal {
    let wait = decision.wait().unwrap_or(NO_TIME);
    // The rule that lets it pass last says why it has to wait that long.
    let line = decision.retry_by().or_else(|| decision.denied_by());
    let of_account = |line: &Line<'_>| line.rule.by.iter().any(|field| *field.name == *ACCOUNT);
    let by = if line.as_ref().is_some_and(of_account) { RefusedBy::Account } else { RefusedBy::Other };
    let reason = match (&line, decision.barred()) {
        (_, Some(listing)) => format!("blocklist: {}", listing.target),
        (Some(line), None) => format!("{} {}", line.rule.name, line.key),
        (None, None) => "limits".to_owned(),
    };
    debug_assert_ne!(decision.verdict, Verdict::Allow);
    Refusal { until: now + wait, reason, by }
}

/// A value inside of a key of several values.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace(',', "\\,")
}

fn fault(reason: String, now: Timestamp) -> Refusal {
    Refusal { until: now + OUTAGE, reason, by: RefusedBy::Fault }
}

impl fmt::Debug for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limits").field("policy", &self.policy).finish_non_exhaustive()
    }
}
