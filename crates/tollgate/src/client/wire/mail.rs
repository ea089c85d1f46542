//! Accounts, messages and lanes of the mail relay.

use serde::Deserialize;

/// An account.
#[derive(Clone, Debug, Deserialize)]
pub struct Account {
    /// Its name among the tenant's accounts.
    pub id: String,
    /// The tenant that it belongs to.
    pub tenant: String,
    /// The mail server.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How the connection is encrypted.
    pub tls: String,
    /// The user.
    pub user: Option<String>,
    /// The limits in force.
    pub limits: Vec<String>,
    /// What happens when they are exceeded.
    pub on_limit: String,
    /// Lower numbers are used first.
    pub priority: u32,
    /// `configuration` or `api`.
    pub source: String,
    /// Whether its password can be read.
    pub usable: bool,
    /// Why it is not used now.
    pub paused: Option<AccountPause>,
}

/// Why an account is not used.
#[derive(Clone, Debug, Deserialize)]
pub struct AccountPause {
    /// Until when; nothing if an operator has to resume it.
    pub until: Option<String>,
    /// Why.
    pub reason: String,
}

impl Account {
    /// Whether mail is sent through it.
    pub fn is_in_use(&self) -> bool {
        self.usable && self.paused.is_none()
    }

    /// Its state: if it is paused, why and until when.
    pub fn state(&self) -> String {
        match (self.usable, &self.paused) {
            (false, _) => "password unreadable".to_owned(),
            (true, Some(AccountPause { until: Some(until), reason })) => {
                format!("paused until {until}: {reason}")
            }
            (true, Some(AccountPause { until: None, reason })) => format!("paused: {reason}"),
            (true, None) => "in use".to_owned(),
        }
    }
}

/// A page of accounts.
#[derive(Clone, Debug, Deserialize)]
pub struct Accounts {
    /// By tenant and id.
    pub accounts: Vec<Account>,
    /// Where the next page begins.
    pub next: Option<String>,
}

/// A message in a list.
#[derive(Clone, Debug, Deserialize)]
pub struct Message {
    /// Its id.
    pub id: String,
    /// The tenant that it belongs to.
    pub tenant: String,
    /// Its state.
    pub status: String,
    /// The sender.
    pub from: String,
    /// The first recipients.
    pub to: Vec<String>,
    /// How many recipients there are.
    pub recipients: u64,
    /// Its `Message-ID`.
    pub message_id: Option<String>,
    /// Its size in bytes.
    pub size: u64,
    /// When it was accepted.
    pub accepted_at: String,
    /// What it waits for.
    pub waits_for: Option<MessageWait>,
}

/// What a message, or a part of it, waits for.
#[derive(Clone, Debug, Deserialize)]
pub struct MessageWait {
    /// What keeps it.
    pub cause: String,
    /// Until when.
    pub until: Option<String>,
    /// The rule, or what a server said.
    pub reason: Option<String>,
}

/// A page of messages.
#[derive(Clone, Debug, Deserialize)]
pub struct Messages {
    /// In the order that was asked for.
    pub messages: Vec<Message>,
    /// Where the next page begins.
    pub next: Option<String>,
}

/// A message with everything that happened to it.
#[derive(Clone, Debug, Deserialize)]
pub struct MessageDetail {
    /// The message.
    #[serde(flatten)]
    pub message: Message,
    /// Its recipients, by domain.
    pub parts: Vec<MessagePart>,
    /// What happened, oldest first.
    pub timeline: Vec<MessageEvent>,
}

/// The recipients of a message at one domain.
#[derive(Clone, Debug, Deserialize)]
pub struct MessagePart {
    /// The recipient domain.
    pub domain: String,
    /// What it waits for.
    pub waits_for: Option<MessageWait>,
    /// The recipients.
    pub recipients: Vec<MessageRecipient>,
}

/// A recipient of a message.
#[derive(Clone, Debug, Deserialize)]
pub struct MessageRecipient {
    /// The address.
    pub address: String,
    /// The state of its delivery.
    pub status: String,
    /// What the remote server said.
    pub reply: Option<String>,
}

/// One entry of a timeline.
#[derive(Clone, Debug, Deserialize)]
pub struct MessageEvent {
    /// When it happened.
    pub at: String,
    /// What happened.
    pub event: String,
    /// At which recipient domain.
    pub domain: Option<String>,
    /// The recipient, if it is about one.
    pub recipient: Option<String>,
    /// Through which account.
    pub account: Option<String>,
    /// The remote reply, or the rule.
    pub text: Option<String>,
    /// Until when it waits.
    pub until: Option<String>,
}

/// What a retry did.
#[derive(Clone, Debug, Deserialize)]
pub struct Retried {
    /// How many parts of the message were made due.
    pub retried: u64,
    /// What parts still wait for.
    pub waits_for: Vec<MessageWait>,
}

/// What a deletion did.
#[derive(Clone, Debug, Deserialize)]
pub struct Deleted {
    /// Whether the message is gone.
    pub deleted: bool,
}

/// What a request for many messages found and did.
#[derive(Clone, Debug, Deserialize)]
pub struct ManyChanged {
    /// How many messages fit the filter.
    pub matched: u64,
    /// How many were changed.
    pub changed: u64,
    /// Whether more may fit.
    pub more: bool,
}

/// What an operator paused.
#[derive(Clone, Debug, Deserialize)]
pub struct MailPause {
    /// `all`, `tenant`, `domain` or `account`.
    pub what: String,
    /// The tenant, unless all mail is paused.
    pub tenant: Option<String>,
    /// The recipient domain, or the account.
    pub name: Option<String>,
}

impl MailPause {
    /// What is paused, in words.
    pub fn in_words(&self) -> String {
        let (tenant, name) = (self.tenant.as_deref().unwrap_or("?"), self.name.as_deref().unwrap_or("?"));
        match &*self.what {
            "all" => "all mail".to_owned(),
            "tenant" => format!("mail of {tenant}"),
            "domain" => format!("mail of {tenant} to {name}"),
            _ => format!("account {tenant}/{name}"),
        }
    }
}

/// What operators paused.
#[derive(Clone, Debug, Deserialize)]
pub struct MailPauses {
    /// The pauses.
    pub pauses: Vec<MailPause>,
}

/// What a cancellation did.
#[derive(Clone, Debug, Deserialize)]
pub struct Cancelled {
    /// Whether recipients were waiting.
    pub cancelled: bool,
}

/// What a pause or its end changed.
#[derive(Clone, Debug, Deserialize)]
pub struct PauseChanged {
    /// Whether it is paused now.
    pub paused: bool,
    /// Whether that is new.
    pub changed: bool,
}

/// The lanes of the queue.
#[derive(Clone, Debug, Deserialize)]
pub struct Lanes {
    /// The first of them.
    pub lanes: Vec<Lane>,
    /// What operators paused.
    #[serde(default)]
    pub pauses: Vec<MailPause>,
}

/// The mail of a tenant to one recipient domain.
#[derive(Clone, Debug, Deserialize)]
pub struct Lane {
    /// The tenant that it belongs to.
    pub tenant: String,
    /// The recipient domain.
    pub domain: String,
    /// How many messages wait.
    pub waiting: u64,
    /// How many are being sent.
    pub in_flight: u64,
    /// Whether an operator paused it.
    #[serde(default)]
    pub held: bool,
    /// Until when it sleeps.
    pub sleeps_until: Option<String>,
    /// Why it sleeps.
    pub cause: Option<String>,
    /// The rule, or what the server said.
    pub reason: Option<String>,
    /// When the oldest message was accepted, among those that come next.
    pub oldest: Option<String>,
    /// Why an attempt last failed for now.
    pub last_error: Option<String>,
}
