//! Asks the engine about messages and connections.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use tollgate_core::{Attempt, Decision, Limit, Mistake, Origin, Policy, Ticket, When};
use tollgate_engine::admit::{Holds, Unsettled};
use tollgate_engine::{Admission, Admissions, Engine, Fault, NotAdmitted, NullSender, Taken, Terms};

use super::{Limited, RefusalReason, Submission};
use crate::session::Identity;
use crate::session::address::Address;

/// The longest key that a client is shown.
const MOST_KEY: usize = 100;
const RECIPIENTS: &str = "recipients";

/// A question to the engine.
pub(crate) struct Question<'q> {
    /// The policy; without one, only the blocklist is checked.
    pub(crate) policy: Option<&'q str>,
    /// The id that the log and the journal show.
    pub(crate) correlation: &'q str,
    /// Whether the charge is kept by default.
    pub(crate) unsettled: Unsettled,
    /// All known fields.
    pub(crate) fields: &'q [(&'static str, &'q str)],
}

/// Takes the charge of a message. It is refunded unless the caller keeps it.
pub(super) async fn take(
    admissions: &Admissions,
    policy: Option<&str>,
    submission: &Submission,
    correlation: &str,
) -> Result<Taken, RefusalReason> {
    let Submission { identity, client, sender, recipients, .. } = submission;
    let known = Known::new(identity, *client, sender.as_ref(), recipients.len());
    let fields = known.fields();
    let question = Question { policy, correlation, unsettled: Unsettled::Refund, fields: &fields };
    ask(admissions, &question).await
}

/// Asks the engine.
pub(crate) async fn ask(admissions: &Admissions, question: &Question<'_>) -> Result<Taken, RefusalReason> {
    let Question { policy, correlation, unsettled, fields } = *question;
    let admitting = {
        let pinned = admissions.pin();
        // Entries of the lists may match fields that the policy does not use.
        if let Some(blocked) = pinned.blocks(fields) {
            let listing = blocked.note(correlation);
            return Err(RefusalReason::Blocked { passing: listing.until.is_some() });
        }
        let Some(policy) = policy else { return Ok(Taken::default()) };
        let found = pinned.policies.find(policy).map_err(|mistake| misconfigured(&mistake))?;
        let wanted = admissions.engine.lists.wanted();
        let listed =
            |field: &str| wanted.iter().flat_map(|wanted| wanted.iter()).any(|name| **name == *field);
        let fields = fields_for(found, fields, listed);
        let attempt = Attempt { policy, fields: &fields, cost: 1, id: None };
        let terms =
            Terms { holds: Holds::ByTaken, unsettled, correlation: Some(correlation), ..Terms::default() };
        let see = |engine: &Engine, decision: &Decision<'_>| {
            (!decision.allowed()).then(|| refusal(engine, decision))
        };
        pinned.admit(&attempt, terms, see)
    };
    match admitting.await {
        Ok(Admission { seen: None, taken, .. }) => Ok(taken),
        Ok(Admission { seen: Some(refusal), .. }) => Err(refusal),
        Err(NotAdmitted::Fault(Fault::Mistake(Mistake::NoRuleApplies { .. }))) => Ok(Taken::default()),
        Err(NotAdmitted::Fault(Fault::Mistake(mistake))) => Err(misconfigured(&mistake)),
        Err(fault) => {
            tracing::error!(component = "relay", %fault, "the store failed, so limits cannot be checked");
            Err(RefusalReason::Outage)
        }
    }
}

/// The fields that a policy or the lists use. The engine derives some fields from others, as configured; these
/// are left out.
fn fields_for<'f>(
    policy: &Policy,
    fields: &[(&'static str, &'f str)],
    wanted: impl Fn(&str) -> bool,
) -> Vec<(&'static str, &'f str)> {
    let is_wanted = |field: &str| policy.fields().any(|name| name == field) || wanted(field);
    let is_derived = |field: &str| policy.derived().any(|(derived, _)| derived == field);
    fields.iter().copied().filter(|(name, _)| is_wanted(name) && !is_derived(name)).collect()
}

/// The most recipients of a message under a policy. It does not call the store.
pub(super) fn most_recipients(
    engine: &Engine,
    policy: &str,
    identity: &Identity,
    client: IpAddr,
    sender: Option<&Address>,
) -> Option<usize> {
    let pinned = engine.pin();
    if !pinned.policies.enabled {
        return None;
    }
    let policy = pinned.policies.find(policy).ok()?;
    let known = Known::new(identity, client, sender, 1);
    let fields = fields_for(policy, &known.fields(), |_| false);
    let attempt = Attempt { policy: &policy.name, fields: &fields, cost: 1, id: None };
    let charges = policy.charges(&attempt, Ticket(0)).ok()?;
    let bounds = charges.iter().filter_map(|charge| {
        let rule = policy.rule(charge.plan.rule()).filter(|rule| !rule.observes())?;
        let counts = rule.count.as_deref() == Some(RECIPIENTS);
        let bound = |limit: &Limit| match limit.per_attempt() {
            Some(bound) => (**bound.field() == *RECIPIENTS).then(|| bound.max()),
            None => counts.then(|| limit.capacity()),
        };
        charge.plan.limits().iter().filter_map(bound).min()
    });
    bounds.min().map(|most| usize::try_from(most).unwrap_or(usize::MAX))
}

/// A message, in the fields that policies and the blocklist use.
struct Known<'m> {
    client: String,
    recipients: String,
    identity: &'m Identity,
    sender: Cow<'m, Address>,
}

impl<'m> Known<'m> {
    fn new(identity: &'m Identity, client: IpAddr, sender: Option<&'m Address>, recipients: usize) -> Self {
        let sender = sender.map_or_else(|| Cow::Owned(null_sender(identity, client)), Cow::Borrowed);
        Self { client: client.to_string(), recipients: recipients.to_string(), identity, sender }
    }

    /// All fields that the message has.
    fn fields(&self) -> Vec<(&'static str, &str)> {
        let identity = self.identity;
        let domain = Some(&*self.sender.domain);
        let fields = [
            ("ip", Some(&*self.client)),
            ("client_ip", Some(&*self.client)),
            ("sender", Some(&*self.sender.text)),
            ("domain", domain),
            ("sender_domain", domain),
            ("user", identity.user.as_deref()),
            ("api_key", identity.api_key.as_deref()),
            ("tenant", Some(&*identity.tenant)),
            (RECIPIENTS, Some(&*self.recipients)),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

/// The address that the null sender is counted by.
fn null_sender(identity: &Identity, client: IpAddr) -> Address {
    let null = match (identity.user.as_deref(), identity.api_key.as_deref()) {
        (Some(user), _) => NullSender::of_user(user),
        (None, Some(key)) => NullSender::of_key(key),
        (None, None) => NullSender::of_client(client),
    };
    Address { text: null.address(), domain: null.domain }
}

/// The reason why a decision refuses an attempt.
fn refusal(engine: &Engine, decision: &Decision<'_>) -> RefusalReason {
    if let Some(listing) = decision.blocked() {
        return RefusalReason::Blocked { passing: listing.until.is_some() };
    }
    if matches!(decision.origin, Origin::Outage(_)) {
        return RefusalReason::Outage;
    }
    let Some(line) = decision.denied_by() else { return RefusalReason::Outage };
    let (limit, bounds_count) = match decision.binding() {
        None => (String::new(), false),
        Some((limit, _)) => {
            let counts_too_many = line.rule.count.is_some() && line.cost > limit.capacity();
            (limit.to_string(), limit.per_attempt().is_some() || counts_too_many)
        }
    };
    let shown = || engine.observer.shown_key(line.rule, line.key).chars().take(MOST_KEY).collect();
    RefusalReason::Limited(Limited {
        rule: Arc::clone(&line.rule.name),
        key: (!line.rule.by.is_empty()).then(shown),
        limit,
        retry_secs: decision.wait().map(|wait| wait.as_secs_ceil().max(1)),
        never_fits: decision.retry == When::Never && bounds_count,
    })
}

fn misconfigured(mistake: &Mistake) -> RefusalReason {
    tracing::error!(component = "relay", %mistake, "the policy of the relay cannot be used");
    RefusalReason::Misconfigured
}
