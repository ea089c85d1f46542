//! Where connections and messages meet the engine, and how its decisions are said over SMTP.

use std::net::IpAddr;

use tollgate_core::{Attempt, Decision, Limit, Listing, Mistake, Origin, Policy, Ticket, When};
use tollgate_engine::admit::{Holds, Unsettled};
use tollgate_engine::{Admission, Admissions, Engine, Fault, NotAdmitted, Taken, Terms};

use super::settings::Settings;
use crate::session::reply::Reply;
use crate::session::{Identity, Transaction};

/// The longest key in a reply.
const MOST_KEY: usize = 100;

/// Asks whether a connection may stay. What it holds ends with what this answers.
pub(super) async fn connect(
    admissions: &Admissions,
    settings: &Settings,
    client: IpAddr,
) -> Result<Taken, Reply> {
    let engine = &admissions.engine;
    let address = client.to_string();
    let Some(policy) = &settings.connect else {
        return admit_unlimited(engine, &[("ip", &address)], Stage::Connect);
    };
    let value = |field: &str, _: &Policy| matches!(field, "ip" | "client_ip").then(|| address.clone());
    admit(admissions, policy, Stage::Connect, value).await
}

/// Asks whether a message may come, and takes what it costs. That is refunded unless it is kept.
pub(super) async fn accept(
    admissions: &Admissions,
    settings: &Settings,
    client: IpAddr,
    identity: &Identity,
    transaction: &Transaction,
) -> Result<Taken, Reply> {
    let known = Known::new(client, identity, transaction);
    let Some(policy) = &settings.accept else {
        return admit_unlimited(&admissions.engine, &known.fields(), Stage::Message);
    };
    let value = |field: &str, policy: &Policy| known.value(field, policy).map(str::to_owned);
    admit(admissions, policy, Stage::Message, value).await
}

/// Admits what no policy is about, unless the blocklist says otherwise.
fn admit_unlimited(engine: &Engine, fields: &[(&str, &str)], stage: Stage) -> Result<Taken, Reply> {
    match engine.bars(fields) {
        Some(entry) => Err(blocked(&entry.note(""), stage)),
        None => Ok(Taken::default()),
    }
}

/// Asks the engine, with the fields that the policy and the lists know. An error is the reply to an attempt that may
/// not pass.
async fn admit(
    admissions: &Admissions,
    policy: &str,
    stage: Stage,
    value: impl Fn(&str, &Policy) -> Option<String>,
) -> Result<Taken, Reply> {
    let admitting = {
        let pinned = admissions.pin();
        let found = pinned.policies.find(policy).map_err(|mistake| misconfigured(&mistake, stage))?;
        let wanted = admissions.engine.wanted();
        let listed = wanted.iter().flat_map(|wanted| wanted.iter()).map(|name| &**name);
        let mut names: Vec<&str> = found.fields().chain(listed).collect();
        names.sort_unstable();
        names.dedup();
        let values: Vec<(&str, String)> =
            names.into_iter().filter_map(|name| Some((name, value(name, found)?))).collect();
        let fields: Vec<(&str, &str)> = values.iter().map(|(name, value)| (*name, &**value)).collect();
        let attempt = Attempt { policy, fields: &fields, cost: 1, id: None };
        let unsettled = match stage {
            Stage::Connect => Unsettled::Keep,
            Stage::Message => Unsettled::Refund,
        };
        let terms = Terms { holds: Holds::ByTaken, unsettled, ..Terms::default() };
        let see = move |engine: &Engine, decision: &Decision<'_>| {
            (!decision.allowed()).then(|| refusal(engine, decision, stage))
        };
        pinned.admit(&attempt, terms, see)
    };
    match admitting.await {
        Ok(Admission { seen: None, taken, .. }) => Ok(taken),
        Ok(Admission { seen: Some(refusal), .. }) => Err(refusal),
        Err(NotAdmitted::Fault(Fault::Mistake(Mistake::NoRuleApplies { .. }))) => Ok(Taken::default()),
        Err(NotAdmitted::Fault(Fault::Mistake(mistake))) => Err(misconfigured(&mistake, stage)),
        Err(fault) => {
            tracing::error!(component = "relay", %fault, "the store cannot decide");
            Err(unavailable(stage))
        }
    }
}

/// How many recipients a message may have under its policy. Nothing is asked of a store.
pub(super) fn most_recipients(
    engine: &Engine,
    settings: &Settings,
    client: IpAddr,
    identity: &Identity,
    transaction: &Transaction,
) -> Option<usize> {
    let pinned = engine.pin();
    if !pinned.policies.enabled {
        return None;
    }
    let policy = pinned.policies.find(settings.accept.as_ref()?).ok()?;
    let known = Known { recipients: "1".to_owned(), ..Known::new(client, identity, transaction) };
    let fields: Vec<(&str, &str)> =
        policy.fields().filter_map(|name| Some((name, known.value(name, policy)?))).collect();
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

const RECIPIENTS: &str = "recipients";

/// The fields of a message.
struct Known<'m> {
    address: String,
    recipients: String,
    identity: &'m Identity,
    transaction: &'m Transaction,
}

impl<'m> Known<'m> {
    fn new(client: IpAddr, identity: &'m Identity, transaction: &'m Transaction) -> Self {
        let recipients = transaction.recipients().len().to_string();
        Self { address: client.to_string(), recipients, identity, transaction }
    }

    /// All fields, for the blocklist.
    fn fields(&self) -> Vec<(&str, &str)> {
        let mut fields = vec![("ip", &*self.address)];
        if let Some(sender) = self.transaction.sender() {
            fields.extend([("sender", &*sender.text), ("domain", &*sender.domain)]);
        }
        fields.extend(self.identity.user.as_deref().map(|user| ("user", user)));
        fields
    }

    /// The value of a field; `None` if the message has none. The null sender has neither address nor domain, so
    /// that rules over senders do not apply to it.
    fn value(&self, field: &str, policy: &Policy) -> Option<&str> {
        let sender = self.transaction.sender();
        match field {
            "ip" | "client_ip" => Some(&self.address),
            "sender" => sender.map(|sender| &*sender.text),
            // The engine derives it from the sender where the configuration says so.
            "domain" | "sender_domain" if policy.derived().any(|(derived, _)| derived == field) => None,
            "domain" | "sender_domain" => sender.map(|sender| &*sender.domain),
            "user" => self.identity.user.as_deref(),
            "tenant" => Some(&self.identity.tenant),
            RECIPIENTS => Some(&self.recipients),
            _ => None,
        }
    }
}

/// The stage that a decision is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Connect,
    Message,
}

/// The reply to an attempt that may not pass. A rate is temporary, whatever rule it is: never 5xx.
fn refusal(engine: &Engine, decision: &Decision<'_>, stage: Stage) -> Reply {
    if let Some(listing) = decision.barred() {
        return blocked(listing, stage);
    }
    if matches!(decision.origin, Origin::Outage(_)) {
        return unavailable(stage);
    }
    let Some(line) = decision.denied_by() else { return unavailable(stage) };
    let wait = decision.wait().map(|wait| wait.as_secs_ceil().max(1));
    let again = wait.map_or("try again later".to_owned(), |seconds| format!("try again in {seconds} s"));
    if stage == Stage::Connect {
        return match line.rule.by.is_empty() {
            true => Reply::new(421, "4.3.2", format!("Too many connections; {again}")),
            false => Reply::new(421, "4.7.0", format!("Too many connections from your address; {again}")),
        };
    }
    let (limit, never_fits) = match decision.binding() {
        None => (String::new(), false),
        Some((limit, _)) => {
            let counts_too_many = line.rule.count.is_some() && line.cost > limit.capacity();
            (limit.to_string(), !limit.consumes() || counts_too_many)
        }
    };
    let key: String = engine.shown_key(line.rule, line.key).chars().take(MOST_KEY).collect();
    let key = if line.rule.by.is_empty() { String::new() } else { format!(" {key}") };
    let level = &line.rule.name;
    // No waiting helps a message that has more recipients than a limit ever allows; splitting it does.
    if decision.retry == When::Never && never_fits {
        return Reply::new(452, "4.5.3", format!("Too many recipients for {level}{key}: {limit}"));
    }
    Reply::new(451, "4.7.1", format!("Rate limit exceeded: {level}{key}, {limit}; {again}"))
}

/// The reply to a client on the blocklist. An entry that ends by itself may come of a rate.
fn blocked(listing: &Listing, stage: Stage) -> Reply {
    match (stage, listing.until) {
        (Stage::Connect, Some(_)) => Reply::new(421, "4.7.0", "Blocked for a while"),
        (Stage::Connect, None) => Reply::new(554, "5.7.1", "Blocked"),
        (Stage::Message, Some(_)) => Reply::new(451, "4.7.1", "Blocked for a while"),
        (Stage::Message, None) => Reply::new(550, "5.7.1", "Blocked"),
    }
}

fn unavailable(stage: Stage) -> Reply {
    match stage {
        Stage::Connect => Reply::new(421, "4.3.0", "Temporary failure"),
        Stage::Message => Reply::new(451, "4.3.0", "Temporary failure"),
    }
}

/// The reply if the configuration and the policies in force do not fit.
fn misconfigured(mistake: &Mistake, stage: Stage) -> Reply {
    tracing::error!(component = "relay", %mistake, "the policy of the relay cannot be used");
    match stage {
        Stage::Connect => Reply::new(421, "4.3.5", "Server configuration problem"),
        Stage::Message => Reply::new(451, "4.3.5", "Server configuration problem"),
    }
}
