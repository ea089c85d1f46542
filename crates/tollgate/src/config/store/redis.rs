//! A store in Redis or Valkey: its address and further settings.

use std::collections::HashMap;

use super::client::{ClientSettings, key_secret, password, trust};
use crate::config::problem::Findings;
use crate::config::raw::StoreTable;
use crate::config::tree::Path;
use tollgate_redis::Settings;

const MOST_PREFIX_BYTES: usize = 64;

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
    trust(settings.tls.as_mut(), "write `rediss://` in the address", table, path, findings);
    if let Some(written) = &table.key_prefix {
        // Users write `name:` as well as `name`; the store adds a colon either way.
        let prefix = written.strip_suffix(':').unwrap_or(written);
        match check_prefix(prefix) {
            Ok(()) => prefix.clone_into(&mut settings.prefix),
            Err(message) => findings.value(&path.key("key_prefix"), message),
        }
    }
    let client = ClientSettings {
        connect_timeout: &mut settings.connect_timeout,
        command_timeout: &mut settings.command_timeout,
        health_check_interval: &mut settings.health_check_interval,
        connections: &mut settings.connections,
    };
    client.read(table, path, findings);
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
    let in_address = settings.password.is_some();
    if table.password_env.is_none() && table.password_file.is_none() && settings.user.is_some() && !in_address
    {
        // The supposed user may be a password, so it is not repeated.
        findings.value(
            at,
            "there is a user without a password: add `password_env` or `password_file`, or write `user:password@` in the address; a password alone is `:password@`",
        );
    }
    if let Some(password) = password(in_address, table, path, environment, findings) {
        settings.password = Some(password);
    }
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
