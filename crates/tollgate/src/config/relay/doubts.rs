//! Warnings about settings of the relay that are valid and may not be intended.

use tollgate_relay::RelaySettings;
use tollgate_relay::accounts::Account;

use super::RelayListener;
use super::raw;
use crate::config::problem::Findings;
use crate::config::tree::Path;
use crate::config::{Config, StoreConfig, Warning};

/// Warns of settings that do not fit together.
pub(super) fn find(
    written: &raw::Relay,
    listeners: &[RelayListener],
    settings: &RelaySettings,
    path: &Path,
    findings: &mut Findings<'_>,
) {
    let (server, users) = (&settings.server, written.users.as_deref().unwrap_or_default());
    if !users.is_empty() && written.tls.is_none() {
        findings.warn(
            &path.key("users"),
            "without a certificate users cannot log in: the relay accepts no password without TLS",
            "add `tls: { certificate: cert.pem, key: key.pem }` to `relay`",
        );
    }
    if !users.is_empty() && written.guard.is_none() {
        findings.warn(
            &path.key("users"),
            "no guard slows down password guessing",
            "add a guard by `ip` and `user` to `guards`, as in `smtp.login: by user, ip`, and `guard: smtp.login` to `relay`",
        );
    }
    if users.is_empty() && server.networks.is_empty() {
        findings.warn(
            path,
            "no client may send over SMTP: there are neither `networks` nor `users`",
            "add `networks: [127.0.0.0/8]` for clients on this machine, or `users`",
        );
    }
    let open = listeners.iter().any(|listener| !listener.address.ip().to_canonical().is_loopback());
    if open && written.connect.is_none() {
        findings.warn(
            &path.key("listen"),
            "the relay can be reached from other machines, and no policy limits their connections",
            "add `connect` with a policy over `ip`, as in `limits: [100/min sliding, 50 at once for 60s]`",
        );
    }
    unsendable(written, settings, path, findings);
    if settings.direct.is_some() && !settings.accept.hostname.contains('.') {
        findings.warn(
            path,
            &format!(
                "many mail servers refuse a relay whose name has no domain: `{}`",
                settings.accept.hostname
            ),
            "write the name that your DNS has for this machine, as in `hostname: relay.example.com`",
        );
    }
}

/// Warns of clients whose mail no account could send: the relay refuses it.
fn unsendable(written: &raw::Relay, settings: &RelaySettings, path: &Path, findings: &mut Findings<'_>) {
    let Some(accounts) = Required::of(settings) else { return };
    let remedy = |tenant: &str| {
        format!(
            "add an account `{tenant}/main` to `accounts`, or write `direct: true`; see `tollgate accounts add` for accounts at run time"
        )
    };
    let tenant = &settings.server.network_tenant;
    if !settings.server.networks.is_empty() && accounts.needs_account_of(tenant) {
        let default =
            if written.network_tenant.is_none() { ", which is that of `networks` by default" } else { "" };
        let message = format!(
            "mail from `networks` is refused: tenant `{tenant}`{default} has no account to send it through"
        );
        let setting = if written.network_tenant.is_none() { "networks" } else { "network_tenant" };
        findings.warn(&path.key(setting), &message, &remedy(tenant));
    }
    let users = written.users.as_deref().unwrap_or_default();
    for (index, user) in users.iter().enumerate().filter(|(_, user)| accounts.needs_account_of(&user.tenant))
    {
        let (tenant, name) = (&*user.tenant, user.name.escape_debug());
        let message =
            format!("mail of user `{name}` is refused: tenant `{tenant}` has no account to send it through");
        findings.warn(&path.key("users").index(index).key("tenant"), &message, &remedy(tenant));
    }
}

/// The accounts of the file, where mail needs one of them. It does not if it may go directly to the recipients' hosts.
/// A file with a secret for the passwords of other accounts, and with no account of its own, leaves all accounts to the API.
struct Required<'s>(&'s [Account]);

impl<'s> Required<'s> {
    fn of(settings: &'s RelaySettings) -> Option<Self> {
        let at_run_time = settings.accounts.is_empty() && settings.secret_key.is_some();
        (settings.direct.is_none() && !at_run_time).then_some(Self(&settings.accounts))
    }

    fn needs_account_of(&self, tenant: &str) -> bool {
        !self.0.iter().any(|account| account.tenant == *tenant)
    }
}

impl Config {
    /// Warns if the limits of the relay do not outlive its messages.
    pub(in crate::config) fn forgetful_relay(&self) -> Option<Warning> {
        let memory = self.relay.is_some() && matches!(self.store, StoreConfig::Memory { .. });
        memory.then(|| Warning {
            policy: None,
            message: "messages of the relay survive a restart, but their counts do not: the counters are kept in memory".to_owned(),
            remedy: "write `store: { file: ./tollgate.redb }`, or an address of Redis or PostgreSQL".to_owned(),
        })
    }
}
