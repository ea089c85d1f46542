//! Accounts: the servers that mail is handed to.

use std::collections::HashMap;
use std::net::IpAddr;

use tollgate_relay::accounts::{Account, OnLimit, check_name};
use tollgate_relay::client::{Destination, Login, TlsMode};

use super::raw::{self, AccountTable, AccountTls};
use super::size;
use crate::config::problem::{Findings, shown};
use crate::config::secrets;
use crate::config::tree::Path;

pub(super) fn mean(
    written: &raw::Relay,
    environment: &HashMap<String, String>,
    path: &Path,
    findings: &mut Findings<'_>,
) -> Vec<Account> {
    let mut accounts = Vec::new();
    for (name, table) in written.accounts.iter().flat_map(|named| &named.0) {
        let path = path.key(name);
        let Some((tenant, id)) = split(name) else {
            findings.key(
                &path,
                format!("`{}` is not a tenant and a name of `A-Z a-z 0-9 _ . - @`, with a `/` between: write it as in `acme/primary`", shown(name)),
            );
            continue;
        };
        let Some(destination) = destination(table, environment, &path, findings) else { continue };
        let priority = size::between(table.priority, (0, 1_000_000), &path.key("priority"), findings);
        accounts.push(Account {
            tenant: tenant.to_owned(),
            id: id.to_owned(),
            destination,
            on_limit: match table.on_limit {
                None | Some(raw::OnLimit::Defer) => OnLimit::Defer,
                Some(raw::OnLimit::Reject) => OnLimit::Reject,
            },
            priority: u32::try_from(priority.unwrap_or(0)).unwrap_or(u32::MAX),
        });
    }
    accounts
}

/// Splits an account's name into tenant and id.
pub(super) fn split(name: &str) -> Option<(&str, &str)> {
    name.split_once('/').filter(|(tenant, id)| is_name(tenant) && is_name(id))
}

/// Whether this is a valid name of a tenant or an account.
pub(super) fn is_name(name: &str) -> bool {
    check_name("name", name).is_ok()
}

fn destination(
    table: &AccountTable,
    environment: &HashMap<String, String>,
    path: &Path,
    findings: &mut Findings<'_>,
) -> Option<Destination> {
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b':' | b'_');
    let host = &table.host;
    if host.is_empty() || host.len() > 255 || !host.bytes().all(is_host) {
        let message =
            format!("`{}` is not the name or the address of a server, as in `smtp.example.com`", shown(host));
        findings.value(&path.key("host"), message);
        return None;
    }
    let (tls, usual) = match table.tls {
        None | Some(AccountTls::Starttls) => (TlsMode::StartTls, 587),
        Some(AccountTls::Implicit) => (TlsMode::Implicit, 465),
        Some(AccountTls::None) => (TlsMode::None, 25),
    };
    let port = size::between(table.port, (1, 65_535), &path.key("port"), findings);
    let port = port.and_then(|port| u16::try_from(port).ok()).unwrap_or(usual);
    let login = login(table, environment, path, findings)?;
    if login.is_some() && tls == TlsMode::None && !is_loopback(host) {
        findings.value(
            &path.key("tls"),
            "without TLS the password could be read on the way: write `starttls` or `implicit`, or leave `user` out",
        );
        return None;
    }
    Some(Destination { host: host.clone(), port, tls, login })
}

/// The login, if there is one; `None` if it is invalid.
fn login(
    table: &AccountTable,
    environment: &HashMap<String, String>,
    path: &Path,
    findings: &mut Findings<'_>,
) -> Option<Option<Login>> {
    let named = [("password_env", &table.password_env), ("password_file", &table.password_file)];
    if named.iter().all(|(_, written)| written.is_none()) {
        if table.user.is_some() {
            findings.value(
                &path.key("user"),
                "there is a user without a password: add `password_env` or `password_file`",
            );
        }
        return table.user.is_none().then_some(None);
    }
    let (setting, password) = secrets::of_either(named, path, environment, findings)?;
    let Some(user) = table.user.clone().filter(|user| !user.is_empty()) else {
        findings.key(&path.key(setting), "there is a password without a user: add `user`");
        return None;
    };
    match password {
        Ok(password) => Some(Some(Login { user, password })),
        Err(message) => {
            findings.value(&path.key(setting), message);
            None
        }
    }
}

/// Whether a password that is sent there without TLS stays on this machine.
fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
