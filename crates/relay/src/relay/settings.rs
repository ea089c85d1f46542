//! The settings of a relay.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::Net;

use crate::acceptance::AcceptTerms;
use crate::accounts::{Account, SecretKey};
use crate::client::Timeouts;
use crate::lanes::{LaneOptions, Retry};
use crate::queue::QueueOptions;
use crate::server::Settings;

/// The settings of a relay.
#[derive(Clone, Debug)]
pub struct RelaySettings {
    /// The terms on which every door accepts mail. The relay's name is in here.
    pub accept: AcceptTerms,
    /// How the SMTP server behaves.
    pub server: Settings,
    /// Where the queue is.
    pub directory: PathBuf,
    /// How the queue behaves.
    pub queue: QueueOptions,
    /// The accounts that mail is handed on through; others may come at run time.
    pub accounts: Vec<Account>,
    /// The key that seals passwords of accounts that are made at run time; without one they have no passwords.
    pub secret_key: Option<SecretKey>,
    /// The policy over `tenant`, `account`, `recipient_domain` and `recipients` that every transaction passes.
    pub deliver: Arc<str>,
    /// How mail is delivered where no account fits; `None` if it waits for an account.
    pub direct: Option<DirectSettings>,
    /// The certificate authorities for accounts, as PEM; those of the system if there are none.
    pub authorities: Option<Vec<u8>>,
    /// How long the stages of a delivery may take.
    pub timeouts: Timeouts,
    /// How many connections one destination gets.
    pub per_destination: usize,
    /// How many transactions a connection carries.
    pub per_connection: u32,
    /// For how long an unused connection is kept.
    pub idle: Duration,
    /// How failures are retried.
    pub retry: Retry,
    /// How items are scheduled.
    pub lanes: LaneOptions,
    /// How many recipients one transaction has at most.
    pub most_recipients: u32,
}

/// How mail is delivered to the hosts that DNS names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectSettings {
    /// The name server; one of the system's if there is none.
    pub name_server: Option<SocketAddr>,
    /// The port that mail servers listen on.
    pub port: u16,
    /// The addresses that mail may go to though they are not public. By default none.
    pub allow: Vec<Net>,
}

impl Default for DirectSettings {
    /// The name servers of the system, port 25, public addresses only.
    fn default() -> Self {
        Self { name_server: None, port: 25, allow: Vec::new() }
    }
}

impl RelaySettings {
    /// Defaults, with a queue in this directory. No client may send yet, and there are no accounts.
    pub fn new(hostname: &str, directory: impl Into<PathBuf>) -> Self {
        Self {
            accept: AcceptTerms::new(hostname),
            server: Settings::default(),
            directory: directory.into(),
            queue: QueueOptions { hostname: hostname.to_owned(), ..QueueOptions::default() },
            accounts: Vec::new(),
            secret_key: None,
            deliver: "mail.deliver".into(),
            direct: None,
            authorities: None,
            timeouts: Timeouts::default(),
            per_destination: 20,
            per_connection: 100,
            idle: Duration::from_secs(30),
            retry: Retry::default(),
            lanes: LaneOptions::default(),
            most_recipients: 100,
        }
    }

    /// The settings that differ in others and are read at the start alone, by the names that the configuration has for
    /// them.
    pub(super) fn needing_a_restart(&self, other: &Self) -> Vec<&'static str> {
        let sending = |settings: &Self| {
            let Self { timeouts, per_destination, per_connection, idle, lanes, most_recipients, .. } =
                settings.clone();
            (timeouts, per_destination, per_connection, idle, lanes, most_recipients)
        };
        let queue = |settings: &Self| {
            let QueueOptions { max_messages, min_free, delay_report, history, history_messages, .. } =
                settings.queue;
            (settings.directory.clone(), max_messages, min_free, delay_report, history, history_messages)
        };
        let changed = [
            ("relay.hostname", self.accept.hostname != other.accept.hostname),
            ("relay.queue", queue(self) != queue(other)),
            ("relay.secret", self.secret_key != other.secret_key),
            ("relay.direct", self.direct != other.direct),
            ("relay.tls_ca", self.authorities != other.authorities),
            ("relay.retry", self.retry != other.retry),
            ("relay.sending", sending(self) != sending(other)),
        ];
        changed.into_iter().filter_map(|(setting, changed)| changed.then_some(setting)).collect()
    }
}
