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
use crate::replies::ReplyRules;
use crate::sender::RecipientLog;
use crate::server::Settings;
use crate::seven_bit::EightBit;

/// The settings of a relay.
#[derive(Clone, Debug)]
pub struct RelaySettings {
    /// The terms on which every door accepts mail. They contain the relay's name.
    pub accept: AcceptTerms,
    /// The settings of the SMTP server.
    pub server: Settings,
    /// The directory of the queue.
    pub directory: PathBuf,
    /// The options of the queue.
    pub queue: QueueOptions,
    /// The accounts that mail is delivered through; others may be added at run time.
    pub accounts: Vec<Account>,
    /// The key that seals passwords of accounts that are made at run time; without one they have no passwords.
    pub secret_key: Option<SecretKey>,
    /// The policy over `tenant`, `account`, `recipient_domain` and `recipients` that every transaction passes.
    pub deliver: Arc<str>,
    /// The settings of direct delivery, for mail without an account; `None` if such mail waits for an account.
    pub direct: Option<DirectSettings>,
    /// The certificate authorities for accounts, as PEM; those of the system if there are none.
    pub authorities: Option<Vec<u8>>,
    /// The time-outs of the stages of a delivery.
    pub timeouts: Timeouts,
    /// The most connections to one destination.
    pub per_destination: usize,
    /// The most transactions over one connection.
    pub per_connection: u32,
    /// An idle connection is closed after this time.
    pub idle: Duration,
    /// The operator's rules for refusals. They come before the table of replies and the stage.
    pub replies: ReplyRules,
    /// The treatment of 8-bit texts if the next hop does not accept them.
    pub eight_bit: EightBit,
    /// The schedule of retries.
    pub retry: Retry,
    /// The options of the scheduler.
    pub lanes: LaneOptions,
    /// The most recipients of one transaction.
    pub most_recipients: u32,
    /// The form of recipients in log lines.
    pub recipient_log: RecipientLog,
}

/// The settings of direct delivery, to the hosts that DNS names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectSettings {
    /// The name server; one of the system's if there is none.
    pub name_server: Option<SocketAddr>,
    /// The port that mail servers listen on.
    pub port: u16,
    /// The addresses that are not public but that mail may go to. None by default.
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
            replies: ReplyRules::default(),
            eight_bit: EightBit::default(),
            retry: Retry::default(),
            lanes: LaneOptions::default(),
            most_recipients: 100,
            recipient_log: RecipientLog::default(),
        }
    }

    /// The changed settings that apply only after a restart, by their names in the configuration.
    pub(super) fn needing_a_restart(&self, other: &Self) -> Vec<&'static str> {
        let sending = |settings: &Self| {
            let Self { timeouts, per_destination, per_connection, idle, replies, .. } = settings.clone();
            let Self { lanes, most_recipients, eight_bit, .. } = settings.clone();
            (timeouts, per_destination, per_connection, idle, replies, lanes, most_recipients, eight_bit)
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
            ("relay.log_recipients", self.recipient_log != other.recipient_log),
        ];
        changed.into_iter().filter_map(|(setting, changed)| changed.then_some(setting)).collect()
    }
}
