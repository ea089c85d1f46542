//! A store in Redis or Valkey: its address and further settings.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use tollgate_core::Span;

use crate::config::files;
use crate::config::limits;
use crate::config::problem::{Findings, shown};
use crate::config::raw::StoreTable;
use crate::config::secrets;
use crate::config::tree::Path;
use tollgate_redis::{Password, Settings, Tls};

/// More connections would only wait for each other at the server.
pub(super) const MOST_CONNECTIONS: u64 = 64;
const MOST_PREFIX_BYTES: usize = 64;
/// Shorter secrets could be guessed from hashed keys.
const LEAST_SECRET_BYTES: usize = 16;
/// Callers have given up long before.
pub(super) const MOST_WAIT: Span = Span::from_secs(60);
pub(super) const MOST_INTERVAL: Span = Span::from_secs(3600);

/// Converts the address at `at`, with the settings of the table at `path`.
pub(super) fn mean(
    url: &str,
    at: &Path,
    table: &StoreTable,
    path: &Path,
    environment: &HashMap<String, String>,
    findings: &mut Findings<'_>,
) -> Option<Settings> {
    let mut settings = match Settings::parse(url) {
        Ok(settings) => settings,
        Err(error) => {
            findings.value(at, error.to_string());
            return None;
        }
    };
    log_in(&mut settings, at, table, path, environment, findings);
    settings.key_secret = key_secret(table, path, environment, findings);
    trust(&mut settings, table, path, findings);
    if let Some(written) = &table.key_prefix {
        // Users write `name:` as well as `name`; the store adds a colon either way.
        let prefix = written.strip_suffix(':').unwrap_or(written);
        match check_prefix(prefix) {
            Ok(()) => prefix.clone_into(&mut settings.prefix),
            Err(message) => findings.value(&path.key("key_prefix"), message),
        }
    }
    let (interval, health) = (&table.health_check_interval, &mut settings.health_check_interval);
    for (name, most, written, setting) in [
        ("connect_timeout", MOST_WAIT, &table.connect_timeout, &mut settings.connect_timeout),
        ("command_timeout", MOST_WAIT, &table.command_timeout, &mut settings.command_timeout),
        ("health_check_interval", MOST_INTERVAL, interval, health),
    ] {
        let written = written.as_ref();
        if let Some(time) = written.and_then(|text| time(text, most, &path.key(name), findings)) {
            *setting = time;
        }
    }
    match table.connections {
        None => {}
        Some(count @ 1..=MOST_CONNECTIONS) => settings.connections = usize::try_from(count).unwrap_or(1),
        Some(count) => findings.value(
            &path.key("connections"),
            format!(
                "`{count}` connections are too few or too many: write a number from 1 to {MOST_CONNECTIONS}"
            ),
        ),
    }
    Some(settings)
}

fn log_in(
    settings: &mut Settings,
    at: &Path,
    table: &StoreTable,
    path: &Path,
    environment: &HashMap<String, String>,
    findings: &mut Findings<'_>,
) {
    match (&settings.user, &table.user) {
        (Some(_), Some(_)) => {
            findings.key(&path.key("user"), "the address names a user already: keep one of them")
        }
        (None, Some(user)) if user.is_empty() => {
            findings.value(&path.key("user"), "the user is empty: write a name, or leave it out");
        }
        (None, Some(user)) => settings.user = Some(user.clone()),
        (_, None) => {}
    }
    let (setting, password) = match (&table.password_env, &table.password_file) {
        (None, None) => {
            // The supposed user may be a password, so it is not repeated.
            if settings.user.is_some() && settings.password.is_none() {
                findings.value(
                    at,
                    "there is a user without a password: add `password_env` or `password_file`, or write `user:password@` in the address; a password alone is `:password@`",
                );
            }
            return;
        }
        (Some(name), None) => ("password_env", from_environment(name, environment)),
        (None, Some(file)) => ("password_file", from_file(file)),
        (Some(_), Some(_)) => {
            findings.key(&path.key("password_file"), "keep one of `password_env` and `password_file`");
            return;
        }
    };
    match password {
        _ if settings.password.is_some() => {
            findings.key(&path.key(setting), "the address has a password already: keep one of them");
        }
        Ok(password) => settings.password = Some(password),
        Err(message) => findings.value(&path.key(setting), message),
    }
}

/// The secret that hashes keys of secret rules, if one is configured.
pub(super) fn key_secret(
    table: &StoreTable,
    path: &Path,
    environment: &HashMap<String, String>,
    findings: &mut Findings<'_>,
) -> Option<Password> {
    let (setting, secret) = match (&table.key_secret_env, &table.key_secret_file) {
        (None, None) => return None,
        (Some(name), None) => ("key_secret_env", from_environment(name, environment)),
        (None, Some(file)) => ("key_secret_file", from_file(file)),
        (Some(_), Some(_)) => {
            findings.key(&path.key("key_secret_file"), "keep one of `key_secret_env` and `key_secret_file`");
            return None;
        }
    };
    let long_enough = secret.and_then(|secret| match secret.0.len() {
        LEAST_SECRET_BYTES.. => Ok(secret),
        bytes => Err(format!("the secret has {bytes} characters: at least {LEAST_SECRET_BYTES} are needed")),
    });
    long_enough.map_err(|message| findings.value(&path.key(setting), message)).ok()
}

pub(super) fn from_environment(
    name: &str,
    environment: &HashMap<String, String>,
) -> Result<Password, String> {
    secrets::from_environment(name, environment).map(Password)
}

pub(super) fn from_file(file: &str) -> Result<Password, String> {
    secrets::from_file(file).map(Password)
}

fn trust(settings: &mut Settings, table: &StoreTable, path: &Path, findings: &mut Findings<'_>) {
    let insecure = table.tls_insecure.unwrap_or(false);
    let written = [("tls_ca", table.tls_ca.is_some()), ("tls_insecure", insecure)];
    let Some(tls) = &mut settings.tls else {
        for (name, _) in written.into_iter().filter(|(_, written)| *written) {
            findings.key(&path.key(name), "this is a setting of TLS: write `rediss://` in the address");
        }
        return;
    };
    if table.tls_ca.is_some() && insecure {
        findings.key(
            &path.key("tls_insecure"),
            "keep one of `tls_ca` and `tls_insecure`: the latter checks no certificate",
        );
        return;
    }
    if let Some(authorities) = authorities(table, path, findings) {
        *tls = Tls { authorities, unverified: insecure };
    }
}

/// The file with the certificate authorities, if one is named; `None` if it is invalid.
pub(super) fn authorities(
    table: &StoreTable,
    path: &Path,
    findings: &mut Findings<'_>,
) -> Option<Option<PathBuf>> {
    let Some(file) = &table.tls_ca else { return Some(None) };
    let message = match files::read_text(file) {
        Ok(text) if text.contains("-----BEGIN CERTIFICATE-----") => return Some(Some(PathBuf::from(file))),
        Ok(_) => format!("the file `{}` has no certificate in it, as PEM", shown(file)),
        Err(error) => format!("the file `{}` cannot be read: {error}", shown(file)),
    };
    findings.value(&path.key("tls_ca"), message);
    None
}

/// What is wrong with a prefix. Braces would be hash tags, and stars patterns.
fn check_prefix(prefix: &str) -> Result<(), String> {
    if prefix.is_empty() {
        return Err("the prefix is empty: write one, as in `tollgate`, or leave it out".to_owned());
    }
    if prefix.len() > MOST_PREFIX_BYTES {
        return Err(format!(
            "the prefix has {} bytes: at most {MOST_PREFIX_BYTES} are allowed",
            prefix.len()
        ));
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || "_.:/-".contains(c);
    match prefix.chars().find(|c| !fits(*c)) {
        None => Ok(()),
        Some(c) => Err(format!(
            "`{}` cannot be part of a prefix: prefixes are made of `a-z A-Z 0-9 _ . : / -`",
            c.escape_debug()
        )),
    }
}

pub(super) fn time(text: &str, most: Span, path: &Path, findings: &mut Findings<'_>) -> Option<Duration> {
    let span = limits::span(text, path, findings)?;
    if span > most {
        findings.value(path, format!("`{span}` is too long: at most `{most}` is allowed"));
        return None;
    }
    Some(Duration::from_micros(span.as_micros()))
}
