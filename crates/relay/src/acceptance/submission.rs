//! The data that a door gives about a message, and the terms on which all doors accept messages.

use std::net::IpAddr;
use std::sync::Arc;

use crate::lanes::Priority;
use crate::message::{Idempotency, Recipient, ReportWish};
use crate::session::Identity;
use crate::session::address::Address;

/// The terms on which mail is accepted at every door.
#[derive(Clone, Debug)]
pub struct AcceptTerms {
    /// The name of this relay.
    pub hostname: String,
    /// The policy over `sender`, `domain`, `ip`, `user`, `api_key`, `tenant` and `recipients` that every message
    /// passes.
    pub policy: Option<Arc<str>>,
    /// The largest message, in bytes.
    pub max_size: u64,
    /// The most recipients of one message.
    pub max_recipients: usize,
    /// Whether the senders of an identity bind `From` and `Sender` in the header too.
    pub check_from: bool,
}

/// The data of a submitted message, except its text.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The identity of the submitter.
    pub identity: Identity,
    /// The client's address.
    pub client: IpAddr,
    /// The sender; `None` is the null sender.
    pub sender: Option<Address>,
    /// The recipients. An address that is named twice gets one copy.
    pub recipients: Vec<Recipient>,
    /// The account to send it through, if the client names one.
    pub account: Option<String>,
    pub priority: Priority,
    /// Whether the client uses SMTPUTF8: header fields beyond ASCII are UTF-8 then.
    pub utf8: bool,
    /// The delivery reports that the sender wishes.
    pub report: ReportWish,
    /// The idempotency key, so that a repeated submission is accepted once.
    pub idempotency: Option<Idempotency>,
    /// The way to this relay, for the `Received` field.
    pub via: Via,
    /// The id by which the client knows the submission. By default that is the message's own.
    pub correlation: Option<String>,
}

/// The way by which a message came to this relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Via {
    /// The name that the client gave itself.
    pub client_name: Option<String>,
    /// The protocol, as `Received` names it: `ESMTPSA`, `HTTP`.
    pub protocol: String,
}

impl AcceptTerms {
    /// Defaults: no policy, 50 MiB, 1,000 recipients, `From` is checked.
    pub fn new(hostname: impl Into<String>) -> Self {
        let (hostname, max_size, max_recipients) = (hostname.into(), 50 << 20, 1_000);
        Self { hostname, policy: None, max_size, max_recipients, check_from: true }
    }
}
