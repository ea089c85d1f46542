//! The settings that both shared stores have: secrets, TLS, time-outs and the number of connections.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use tollgate_core::Span;
use tollgate_redis::{Password, Tls};

use crate::config::files;
use crate::config::identity;
use crate::config::limits;
use crate::config::problem::{Findings, shown};
use crate::config::raw::StoreTable;
use crate::config::secrets;
use crate::config::tree::Path;

/// More connections would only wait for each other at the server.
const MOST_CONNECTIONS: u64 = 64;
/// Shorter secrets could be guessed from hashed keys.
const LEAST_SECRET_BYTES: usize = 16;
/// Callers have given up long before.
const MOST_WAIT: Span = Span::from_secs(60);
const MOST_INTERVAL: Span = Span::from_secs(3600);

/// The settings of a client that the table may replace.
pub(super) struct ClientSettings<'s> {
    pub(super) connect_timeout: &'s mut Duration,
    pub(super) command_timeout: &'s mut Duration,
    pub(super) health_check_interval: &'s mut Duration,
    pub(super) connections: &'s mut usize,
}

impl ClientSettings<'_> {
    /// Takes over what the table says.
    pub(super) fn read(self, table: &StoreTable, path: &Path, findings: &mut Findings<'_>) {
        for (name, most, written, setting) in [
            ("connect_timeout", MOST_WAIT, &table.connect_timeout, self.connect_timeout),
            ("command_timeout", MOST_WAIT, &table.command_timeout, self.command_timeout),
            (
                "health_check_interval",
                MOST_INTERVAL,
                &table.health_check_interval,
                self.health_check_interval,
            ),
        ] {
            let written = written.as_ref();
            if let Some(time) = written.and_then(|text| time(text, most, &path.key(name), findings)) {
                *setting = time;
            }
        }
        match table.connections {
            None => {}
            Some(count @ 1..=MOST_CONNECTIONS) => *self.connections = usize::try_from(count).unwrap_or(1),
            Some(count) => findings.value(
                &path.key("connections"),
                format!(
                    "`{count}` connections are too few or too many: write a number from 1 to {MOST_CONNECTIONS}"
                ),
            ),
        }
    }
}

/// The password that the table names. The address may already have one.
pub(super) fn password(
    in_address: bool,
    table: &StoreTable,
    path: &Path,
    environment: &HashMap<String, String>,
    findings: &mut Findings<'_>,
) -> Option<Password> {
    let written = [("password_env", &table.password_env), ("password_file", &table.password_file)];
    let (setting, password) = secrets::of_either(written, path, environment, findings)?;
    if in_address {
        findings.key(&path.key(setting), "the address has a password already: keep one of them");
        return None;
    }
    password.map(Password).map_err(|message| findings.value(&path.key(setting), message)).ok()
}

/// The secret that hashes keys of secret rules, if one is configured.
pub(super) fn key_secret(
    table: &StoreTable,
    path: &Path,
    environment: &HashMap<String, String>,
    findings: &mut Findings<'_>,
) -> Option<Password> {
    let written = [("key_secret_env", &table.key_secret_env), ("key_secret_file", &table.key_secret_file)];
    let (setting, secret) = secrets::of_either(written, path, environment, findings)?;
    let long_enough = secret.and_then(|secret| match secret.len() {
        LEAST_SECRET_BYTES.. => Ok(secret),
        bytes => Err(format!("the secret has {bytes} characters: at least {LEAST_SECRET_BYTES} are needed")),
    });
    long_enough.map(Password).map_err(|message| findings.value(&path.key(setting), message)).ok()
}

/// Takes over what the table says about TLS. `remedy` says how an address asks for TLS.
pub(super) fn trust(
    tls: Option<&mut Tls>,
    remedy: &str,
    table: &StoreTable,
    path: &Path,
    findings: &mut Findings<'_>,
) {
    let insecure = table.tls_insecure.unwrap_or(false);
    let written = [
        ("tls_ca", table.tls_ca.is_some()),
        ("tls_certificate", table.tls_certificate.is_some()),
        ("tls_key", table.tls_key.is_some()),
        ("tls_insecure", insecure),
    ];
    let Some(tls) = tls else {
        for (name, _) in written.into_iter().filter(|(_, written)| *written) {
            findings.key(&path.key(name), format!("this is a setting of TLS: {remedy}"));
        }
        return;
    };
    if table.tls_ca.is_some() && insecure {
        let message = "keep one of `tls_ca` and `tls_insecure`: the latter checks no certificate";
        findings.key(&path.key("tls_insecure"), message);
        return;
    }
    let pair = [("tls_certificate", &table.tls_certificate), ("tls_key", &table.tls_key)];
    let identity = identity::mean(pair, path, findings);
    if let Some(authorities) = authorities(table, path, findings) {
        *tls = Tls { authorities, unverified: insecure, identity };
    }
}

/// The file with the certificate authorities, if one is named; `None` if it is invalid.
fn authorities(table: &StoreTable, path: &Path, findings: &mut Findings<'_>) -> Option<Option<PathBuf>> {
    let Some(file) = &table.tls_ca else { return Some(None) };
    let message = match files::read_text(file) {
        Ok(text) if text.contains("-----BEGIN CERTIFICATE-----") => return Some(Some(PathBuf::from(file))),
        Ok(_) => format!("the file `{}` has no certificate in it, as PEM", shown(file)),
        Err(error) => format!("the file `{}` cannot be read: {error}", shown(file)),
    };
    findings.value(&path.key("tls_ca"), message);
    None
}

fn time(text: &str, most: Span, path: &Path, findings: &mut Findings<'_>) -> Option<Duration> {
    let span = limits::span(text, path, findings)?;
    if span > most {
        findings.value(path, format!("`{span}` is too long: at most `{most}` is allowed"));
        return None;
    }
    Some(Duration::from_micros(span.as_micros()))
}
