//! Turns a request into an attempt, asks the engine, and turns the decision into an action.

use std::borrow::Cow;

use smallvec::SmallVec;
use tollgate_core::{Attempt, Decision, Mistake, Origin, Policy, When};
use tollgate_engine::admit::Holds;
use tollgate_engine::{Admission, Engine, Fault, NotAdmitted, NullSender, Terms};

use crate::action::Action;
use crate::request::Request;
use crate::server::Shared;

/// The fields that a request can have.
pub const FIELDS: [&str; 13] = [
    "ip",
    "client_ip",
    "client_name",
    "helo",
    "user",
    "sender",
    "domain",
    "sender_domain",
    "recipient",
    "recipient_domain",
    "recipients",
    "size",
    "bytes",
];

/// The longest key that a client is shown, in characters.
const MOST_KEY: usize = 100;
/// Postfix sends this instead of a name or an address that it does not know.
const UNKNOWN: &[u8] = b"unknown";

type Fields<'n, 'r> = SmallVec<[(&'n str, Cow<'r, str>); 8]>;

/// Asks the engine about a request.
pub(crate) async fn ask(shared: &Shared, policy: &str, request: &Request<'_>) -> Action {
    let correlation = correlation(request);
    let wanted = shared.admissions.engine.lists.wanted();
    let admitting = {
        let pinned = shared.admissions.pin();
        if wanted.is_some() {
            // Entries of the lists may match fields that the policy does not use.
            let known = fields(request, FIELDS);
            if let Some(blocked) = pinned.blocks(&borrowed(&known)) {
                let listing = blocked.note(&correlation);
                return said(Refusal::Blocked { passing: listing.until.is_some() }, &correlation);
            }
        }
        let found = match pinned.policies.find(policy) {
            Ok(found) => found,
            Err(mistake) => return misconfigured(shared, &mistake, &correlation),
        };
        let listed = wanted.iter().flat_map(|wanted| wanted.iter()).map(|name| &**name);
        let taken = found.fields().chain(listed).filter(|name| !is_derived(found, name));
        let known = fields(request, taken);
        let fields = borrowed(&known);
        let attempt = Attempt { policy, fields: &fields, cost: 1, id: None };
        let correlation = Some(&*correlation).filter(|correlation| !correlation.is_empty());
        let terms = Terms { holds: Holds::ByTaken, correlation, ..Terms::default() };
        pinned.admit(&attempt, terms, |engine: &Engine, decision: &Decision<'_>| {
            (!decision.allowed()).then(|| refusal(engine, decision))
        })
    };
    match admitting.await {
        Ok(Admission { seen: None, .. }) => Action::Dunno,
        Ok(Admission { seen: Some(Refused { refusal, id }), .. }) => {
            said(refusal, if correlation.is_empty() { &id } else { &correlation })
        }
        // No rule of the policy applies, for example to a bounce of another server if all rules count senders.
        Err(NotAdmitted::Fault(Fault::Mistake(Mistake::NoRuleApplies { .. }))) => Action::Dunno,
        // The client chose the value. So a message that no rule can count must not pass.
        Err(NotAdmitted::Fault(Fault::Mistake(mistake @ Mistake::BadValue { .. }))) => {
            Action::defer("4.7.1", format!("Cannot be counted: {mistake}{}", Id(&correlation)))
        }
        Err(NotAdmitted::Fault(Fault::Mistake(mistake))) => misconfigured(shared, &mistake, &correlation),
        Err(fault) => {
            if let Some(held_back) = shared.complaints.admit(shared.clock.now()) {
                tracing::error!(component = "postfix", %fault, held_back, "the store cannot decide");
            }
            said(Refusal::Outage, &correlation)
        }
    }
}

/// The id by which the log and the journal name the request: the queue id, which is also in Postfix's log, if there
/// is one already.
fn correlation<'r>(request: &Request<'r>) -> Cow<'r, str> {
    let id = if request.queue_id.is_empty() { request.instance } else { request.queue_id };
    String::from_utf8_lossy(id)
}

/// Whether the engine derives this field from another one.
fn is_derived(policy: &Policy, field: &str) -> bool {
    policy.derived().any(|(derived, _)| derived == field)
}

/// The fields among `names` that the request has, each once.
fn fields<'n, 'r>(request: &Request<'r>, names: impl IntoIterator<Item = &'n str>) -> Fields<'n, 'r> {
    let mut known = Fields::new();
    for name in names {
        if known.iter().all(|(own, _)| *own != name)
            && let Some(text) = counted_null_sender(request, name)
                .or_else(|| value(request, name).map(String::from_utf8_lossy))
        {
            known.push((name, if matches!(name, "sender" | "recipient") { quoted(text) } else { text }));
        }
    }
    known
}

fn borrowed<'f>(fields: &'f Fields<'_, '_>) -> SmallVec<[(&'f str, &'f str); 8]> {
    fields.iter().map(|(name, value)| (*name, &**value)).collect()
}

/// The value by which the null sender of a user counts: nobody else's mail may use it to escape rules by sender. Without a
/// login it is what servers send their reports with, and any other sender is as easy to invent.
fn counted_null_sender(request: &Request<'_>, field: &str) -> Option<Cow<'static, str>> {
    if !request.sender.is_empty() || request.sasl_username.is_empty() {
        return None;
    }
    let null = || NullSender::of_user(&String::from_utf8_lossy(request.sasl_username));
    match field {
        "sender" => Some(null().address().into()),
        "domain" | "sender_domain" => Some(null().domain.into()),
        _ => None,
    }
}

/// The value of a field; `None` if the request does not have it. The null sender has neither address nor domain, except
/// that of a user.
fn value<'r>(request: &Request<'r>, field: &str) -> Option<&'r [u8]> {
    let known = |value: &'r [u8]| Some(value).filter(|value| !value.is_empty());
    let number = |value: &'r [u8]| Some(if value.is_empty() { &b"0"[..] } else { value });
    match field {
        "ip" | "client_ip" => known(request.client_address).filter(|value| *value != UNKNOWN),
        "client_name" => known(request.client_name).filter(|value| *value != UNKNOWN),
        "helo" => known(request.helo_name),
        "user" => known(request.sasl_username),
        "sender" => known(request.sender),
        "domain" | "sender_domain" => domain(request.sender),
        "recipient" => known(request.recipient),
        "recipient_domain" => domain(request.recipient),
        // The request is about one recipient; Postfix learns the message's number of recipients only later.
        "recipients" if request.protocol_state == b"RCPT" => Some(b"1"),
        "recipients" => number(request.recipient_count),
        "size" | "bytes" => number(request.size),
        _ => None,
    }
}

/// An address in the form of SMTP. Postfix sends the local part without the quotes that it needs there.
fn quoted(address: Cow<'_, str>) -> Cow<'_, str> {
    let Some((local, domain)) = address.rsplit_once('@') else { return address };
    let is_special = |byte: u8| byte.is_ascii_control() || b" \"(),:;<>@[\\]".contains(&byte);
    if !local.split('.').any(str::is_empty) && !local.bytes().any(is_special) {
        return address;
    }
    let local = local.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{local}\"@{domain}").into()
}

fn domain(address: &[u8]) -> Option<&[u8]> {
    let at = memchr::memrchr(b'@', address)?;
    Some(&address[at + 1..]).filter(|domain| !domain.is_empty())
}

/// A refusal, and the id that the engine gave it.
struct Refused {
    refusal: Refusal,
    id: String,
}

/// Why a request is refused.
enum Refusal {
    /// An entry of the blocklist matches.
    Blocked {
        /// Whether the entry ends by itself.
        passing: bool,
    },
    /// The store cannot decide.
    Outage,
    /// A limit is exceeded, in words.
    Limited(String),
    /// The message has more recipients than the limit ever allows, in words.
    TooManyRecipients(String),
}

fn refusal(engine: &Engine, decision: &Decision<'_>) -> Refused {
    let id = String::from_utf8_lossy(&decision.charges.ticket.id()).into_owned();
    let refusal = match (decision.blocked(), decision.origin, decision.denied_by()) {
        (Some(listing), _, _) => Refusal::Blocked { passing: listing.until.is_some() },
        (None, Origin::Outage(_), _) | (None, _, None) => Refusal::Outage,
        (None, _, Some(line)) => {
            let mut subject = line.rule.name.to_string();
            if !line.rule.by.is_empty() {
                subject.push(' ');
                subject.extend(engine.observer.shown_key(line.rule, line.key).chars().take(MOST_KEY));
            }
            let limit = decision.binding().map(|(limit, _)| limit);
            let of_recipients = limit.and_then(|limit| limit.per_attempt()).map_or_else(
                || line.rule.count.as_deref() == Some("recipients"),
                |bound| **bound.field() == *"recipients",
            );
            let limit = limit.map_or_else(String::new, |limit| format!(", {limit}"));
            match (decision.retry, decision.wait()) {
                (When::Never, _) if of_recipients => Refusal::TooManyRecipients(format!("{subject}{limit}")),
                (When::Never, _) => Refusal::Limited(format!("{subject}{limit}")),
                (_, None) => Refusal::Limited(format!("{subject}{limit}; try again later")),
                (_, Some(wait)) => {
                    let seconds = wait.as_secs_ceil().max(1);
                    Refusal::Limited(format!("{subject}{limit}; try again in {seconds} s"))
                }
            }
        }
    };
    Refused { refusal, id }
}

/// The action for a refusal. An exceeded rate is temporary, so the action never answers with 5xx.
fn said(refusal: Refusal, id: &str) -> Action {
    let id = Id(id);
    match refusal {
        Refusal::Blocked { passing: false } => {
            Action::Reject { status: "5.7.1", text: format!("Blocked{id}") }
        }
        Refusal::Blocked { passing: true } => Action::defer("4.7.1", format!("Blocked for a while{id}")),
        Refusal::Outage => Action::defer("4.3.0", format!("Temporary failure{id}")),
        Refusal::Limited(what) => Action::defer("4.7.1", format!("Rate limit exceeded: {what}{id}")),
        Refusal::TooManyRecipients(what) => {
            Action::defer("4.5.3", format!("Too many recipients: {what}{id}"))
        }
    }
}

fn misconfigured(shared: &Shared, mistake: &Mistake, id: &str) -> Action {
    if let Some(held_back) = shared.complaints.admit(shared.clock.now()) {
        tracing::error!(component = "postfix", %mistake, held_back, "the policy for Postfix cannot be used");
    }
    Action::defer("4.3.5", format!("Server configuration problem{}", Id(id)))
}

/// An id in parentheses, if there is one.
struct Id<'i>(&'i str);

impl std::fmt::Display for Id<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, " ({})", self.0) }
    }
}
