//! The mail relay: converts its listeners, users, accounts and queue from the file's form to checked
//! settings.

mod accounts;
mod doors;
mod doubts;
mod replies;
mod rules;
pub(super) mod size;
mod users;

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tollgate_core::policy::nearest;
use tollgate_core::{Guard, Policy, Span};
use tollgate_relay::accounts::SecretKey;
use tollgate_relay::sender::RecipientLog;
use tollgate_relay::server::Kind;
use tollgate_relay::session::address::normal_domain;
use tollgate_relay::seven_bit::EightBit;
use tollgate_relay::{DirectSettings, RelaySettings};

pub(super) use rules::{complete, prepare};

use super::gateway::pem;
use super::limits;
use super::problem::{Findings, hint, shown};
use super::raw::relay as raw;
use super::secrets;
use super::stage::{Stage, check_fields, policy_at};
use super::tree::Path;

/// The checked `relay` section.
#[derive(Clone, Debug)]
pub struct RelayConfig {
    /// Where it listens.
    pub listeners: Vec<RelayListener>,
    /// Everything else.
    pub settings: RelaySettings,
}

/// Where the relay listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayListener {
    /// Address and port.
    pub address: SocketAddr,
    /// The protocol.
    pub kind: Kind,
}

impl fmt::Display for RelayListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.kind {
            Kind::Smtp => "smtp",
            Kind::Smtps => "smtps",
        };
        write!(f, "{scheme}://{}", self.address)
    }
}

/// What the section refers to.
#[derive(Clone, Copy)]
pub(super) struct RelayKnown<'k> {
    pub(super) policies: &'k [Policy],
    pub(super) guards: &'k [Guard],
    /// The names that the file has, whether or not their definitions are valid.
    pub(super) written_policies: &'k [&'k str],
    pub(super) written_guards: &'k [&'k str],
    /// The addresses of the other listeners, and their names in messages.
    pub(super) taken: &'k [(SocketAddr, &'static str)],
    pub(super) environment: &'k HashMap<String, String>,
}

impl<'k> RelayKnown<'k> {
    /// What the gateway's section refers to, and more.
    pub(super) fn beside(
        gateway: super::gateway::Known<'k>,
        taken: &'k [(SocketAddr, &'static str)],
        environment: &'k HashMap<String, String>,
    ) -> Self {
        let super::gateway::Known { policies, guards, written_policies, written_guards, .. } = gateway;
        Self { policies, guards, written_policies, written_guards, taken, environment }
    }
}

/// The default directory of the queue.
const DIRECTORY: &str = "./queue";
/// The fields that are known at each stage.
const AT_CONNECT: &[&str] = &["ip", "client_ip"];
const AT_ACCEPT: &[&str] =
    &["ip", "client_ip", "sender", "domain", "sender_domain", "user", "api_key", "tenant", "recipients"];
const AT_DELIVER: &[&str] = &["tenant", "account", "recipient_domain", "recipients", "messages"];
const AT_LOGIN: &[&str] = &["ip", "client_ip", "user", "account"];
/// An attacker who reads sealed passwords could guess shorter secrets.
const LEAST_SECRET: usize = 16;
const MOST_LIFETIME: Span = Span::from_secs(28 * 86_400);

/// Converts and checks the section.
pub(super) fn mean(written: &raw::Relay, known: RelayKnown<'_>, findings: &mut Findings<'_>) -> RelayConfig {
    let path = Path::of(&["relay"]);
    let hostname = hostname(written.hostname.as_deref(), &path.key("hostname"), findings);
    let directory = written.queue.as_ref().and_then(|queue| queue.dir.as_deref()).unwrap_or(DIRECTORY);
    let mut settings = RelaySettings::new(&hostname, directory);
    let listeners = doors::listeners(written, known, &path, findings);
    settings.server.tls = doors::tls(written, &path, findings);
    settings.server.connect =
        policy(written.connect.as_deref(), Stage::CONNECT, known, &path.key("connect"), findings);
    settings.accept.policy =
        policy(written.accept.as_deref(), Stage::ACCEPT, known, &path.key("accept"), findings);
    settings.server.guard = guard(written.guard.as_deref(), known, &path.key("guard"), findings);
    let deliver = written.deliver.as_deref().unwrap_or(rules::DELIVER);
    settings.deliver = policy(Some(deliver), Stage::DELIVER, known, &path.key("deliver"), findings)
        .unwrap_or_else(|| Arc::from(deliver));
    if let Some(policy) = known.policies.iter().find(|policy| policy.name == settings.deliver) {
        rules::check(written, policy, findings);
    }
    doors::clients(written, &mut settings, &path, findings);
    settings.server.users = users::mean(written, known.environment, &path.key("users"), findings);
    queue(written, &mut settings, &path.key("queue"), findings);
    sending(written, &mut settings, &path.key("sending"), findings);
    settings.accounts = accounts::mean(written, known.environment, &path.key("accounts"), findings);
    settings.direct = direct(written.direct.as_ref(), &path.key("direct"), findings);
    settings.authorities = authorities(written.tls_ca.as_deref(), &path.key("tls_ca"), findings);
    settings.recipient_log = match written.log_recipients {
        None | Some(raw::LogRecipients::Plain) => RecipientLog::Plain,
        Some(raw::LogRecipients::Hashed) => RecipientLog::Hashed,
        Some(raw::LogRecipients::Off) => RecipientLog::Off,
    };
    settings.secret_key = secret_key(written, known.environment, &path, findings);
    doubts::find(written, &listeners, &settings, &path, findings);
    RelayConfig { listeners, settings }
}

impl Stage {
    const CONNECT: Self = Self { what: "connection", fields: AT_CONNECT };
    const ACCEPT: Self = Self { what: "message", fields: AT_ACCEPT };
    const DELIVER: Self = Self { what: "delivery", fields: AT_DELIVER };
    const LOGIN: Self = Self { what: "login", fields: AT_LOGIN };
}

/// The name of a policy that exists and whose fields are known at this stage.
fn policy(
    name: Option<&str>,
    stage: Stage,
    known: RelayKnown<'_>,
    path: &Path,
    findings: &mut Findings<'_>,
) -> Option<Arc<str>> {
    let name = name?;
    // The policy of this name is made if the file has none.
    if name == rules::DELIVER && !known.policies.iter().any(|policy| *policy.name == *name) {
        return None;
    }
    let policy = policy_at(name, stage, (known.policies, known.written_policies), path, findings)?;
    Some(Arc::clone(&policy.name))
}

fn guard(
    name: Option<&str>,
    known: RelayKnown<'_>,
    path: &Path,
    findings: &mut Findings<'_>,
) -> Option<Arc<str>> {
    let name = name?;
    let Some(guard) = known.guards.iter().find(|guard| *guard.name == *name) else {
        let written = || known.written_guards.iter().copied();
        if !written().any(|written| written == name) {
            let near = hint(nearest(name, written()));
            findings.value(path, format!("there is no guard `{}`{near}", shown(name)));
        }
        return None;
    };
    if let Some(policy) = known.policies.iter().find(|policy| policy.name == guard.policy) {
        check_fields(policy, Stage::LOGIN, path, findings);
    }
    Some(Arc::clone(&guard.name))
}

/// The configured name, or the system's.
fn hostname(written: Option<&str>, path: &Path, findings: &mut Findings<'_>) -> String {
    match written {
        Some(name) => normal_domain(name).unwrap_or_else(|| {
            findings.value(
                path,
                format!("`{}` is not the name of a host, as in `relay.example.com`", shown(name)),
            );
            "localhost".to_owned()
        }),
        None => {
            let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
            normal_domain(name.trim()).unwrap_or_else(|| "localhost".to_owned())
        }
    }
}

fn queue(written: &raw::Relay, settings: &mut RelaySettings, path: &Path, findings: &mut Findings<'_>) {
    let Some(table) = &written.queue else { return };
    if table.dir.as_deref().is_some_and(str::is_empty) {
        findings.value(&path.key("dir"), "the directory is empty: write one, as in `./queue`");
    }
    if let Some(count) = &table.max_messages
        && let Some(count) = size::count(&count.0, &path.key("max_messages"), findings)
    {
        settings.queue.max_messages = count;
    }
    if let Some(free) = &table.min_free
        && let Some(bytes) = size::bytes(&free.0, &path.key("min_free"), findings)
    {
        settings.queue.min_free = bytes;
    }
    let least = Span::from_secs(60);
    if let Some(lifetime) = time(table.lifetime.as_deref(), &path.key("lifetime"), findings) {
        if lifetime < least {
            let message = format!("`{lifetime}` is too short: at least `{least}` is needed to retry");
            findings.value(&path.key("lifetime"), message);
        }
        settings.retry.lifetime = lifetime;
    }
    if let Some(wait) = time(table.delay_report.as_deref(), &path.key("delay_report"), findings) {
        if wait < least {
            findings
                .value(&path.key("delay_report"), format!("`{wait}` is too short: write at least `{least}`"));
        }
        settings.queue.delay_report = wait;
    }
    if let Some(history) = time(table.history.as_deref(), &path.key("history"), findings) {
        settings.queue.history = history;
    }
}

fn sending(written: &raw::Relay, settings: &mut RelaySettings, path: &Path, findings: &mut Findings<'_>) {
    let Some(table) = &written.sending else { return };
    let mut set = |name: &str, written: Option<u64>, most: u64, setting: &mut dyn FnMut(u32)| {
        if let Some(number) = size::between(written, (1, most), &path.key(name), findings) {
            setting(u32::try_from(number).unwrap_or(u32::MAX));
        }
    };
    set("connections", table.connections, 1_000, &mut |number| settings.per_destination = number as usize);
    let per_connection = table.messages_per_connection;
    set("messages_per_connection", per_connection, 1_000_000, &mut |number| settings.per_connection = number);
    set("recipients", table.recipients, 10_000, &mut |number| settings.most_recipients = number);
    if let Some(idle) = time(table.idle_timeout.as_deref(), &path.key("idle_timeout"), findings) {
        settings.idle = Duration::from(idle);
    }
    settings.eight_bit = match table.eight_bit {
        None | Some(raw::EightBit::Convert) => EightBit::Convert,
        Some(raw::EightBit::Send) => EightBit::Send,
    };
    settings.replies = replies::mean(table.replies.as_deref(), &path.key("replies"), findings);
    let Some(schedule) = &table.retry else { return };
    let path = path.key("retry");
    if schedule.is_empty() || schedule.len() > 32 {
        findings.value(&path, "write 1 to 32 waits, as in `[2m, 10m, 1h]`");
        return;
    }
    let waits =
        schedule.iter().enumerate().map(|(index, text)| time(Some(text), &path.index(index), findings));
    if let Some(waits) = waits.collect::<Vec<_>>().into_iter().collect() {
        settings.retry.schedule = waits;
    }
}

/// The configured time, if it is valid.
fn time(written: Option<&str>, path: &Path, findings: &mut Findings<'_>) -> Option<Span> {
    let span = limits::span(written?, path, findings)?;
    if span > MOST_LIFETIME {
        findings.value(path, format!("`{span}` is too long: at most `{MOST_LIFETIME}` is allowed"));
        return None;
    }
    Some(span)
}

fn direct(
    written: Option<&raw::DirectForm>,
    path: &Path,
    findings: &mut Findings<'_>,
) -> Option<DirectSettings> {
    let table = match written {
        None | Some(raw::DirectForm::Flag(false)) => return None,
        Some(raw::DirectForm::Flag(true)) => return Some(DirectSettings::default()),
        Some(raw::DirectForm::Table(table)) => table,
    };
    let port = size::between(table.port, (1, 65_535), &path.key("port"), findings).unwrap_or(25);
    let mut name_server = None;
    if let Some(text) = &table.name_server {
        let Ok(address) = text.parse() else {
            let message = format!("`{}` is not an address and a port, as in `127.0.0.1:53`", shown(text));
            findings.value(&path.key("name_server"), message);
            return None;
        };
        name_server = Some(address);
    }
    let allow = doors::allowed(table.allow.as_ref(), &path.key("allow"), findings);
    Some(DirectSettings { name_server, port: u16::try_from(port).unwrap_or(25), allow })
}

fn authorities(file: Option<&str>, path: &Path, findings: &mut Findings<'_>) -> Option<Vec<u8>> {
    let bytes = pem(file?, "-----BEGIN CERTIFICATE-----", path, findings)?;
    if let Err(reason) = tollgate_relay::client::authorities(Some(&bytes)) {
        findings.value(path, reason);
        return None;
    }
    Some(bytes)
}

/// The key that seals the passwords of accounts in the store.
fn secret_key(
    written: &raw::Relay,
    environment: &HashMap<String, String>,
    path: &Path,
    findings: &mut Findings<'_>,
) -> Option<SecretKey> {
    let named = [("secret_env", &written.secret_env), ("secret_file", &written.secret_file)];
    let (setting, secret) = secrets::of_either(named, path, environment, findings)?;
    let secret = secret.and_then(|secret| match secret.chars().count() {
        LEAST_SECRET.. => Ok(secret),
        count => Err(format!(
            "the secret has {count} characters: at least {LEAST_SECRET} are needed, as from `openssl rand -hex 32`"
        )),
    });
    match secret {
        Ok(secret) => Some(SecretKey(Sha256::digest(secret).into())),
        Err(message) => {
            findings.value(&path.key(setting), message);
            None
        }
    }
}
