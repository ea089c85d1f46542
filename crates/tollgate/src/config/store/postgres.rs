//! A store in PostgreSQL: its address and further settings.

use std::collections::HashMap;

use super::redis::{
    MOST_CONNECTIONS, MOST_INTERVAL, MOST_WAIT, authorities, from_environment, from_file, key_secret, time,
};
use crate::config::problem::{Findings, shown};
use crate::config::raw::StoreTable;
use crate::config::tree::Path;
use tollgate_postgres::{Password, Settings, Tls};

/// Whether a text is meant to be an address of PostgreSQL.
pub(super) fn is_address(text: &str) -> bool {
    text.starts_with("postgres:") || text.starts_with("postgresql:")
}

/// Converts the address at `at`, with the settings of the table at `path`.
pub(in crate::config) fn mean(
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
    settings.key_secret = key_secret(table, path, environment, findings).map(|secret| Password(secret.0));
    trust(&mut settings, table, path, findings);
    match &table.schema {
        Some(schema) if !Settings::is_schema_name(schema) => findings.value(
            &path.key("schema"),
            format!(
                "`{}` cannot be the name of a schema: use small letters, digits and `_`, at most 63",
                shown(schema)
            ),
        ),
        Some(schema) => settings.schema.clone_from(schema),
        None => {}
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
    match (settings.user(), &table.user) {
        (Some(_), Some(_)) => {
            findings.key(&path.key("user"), "the address names a user already: keep one of them");
        }
        (None, Some(user)) if !user.is_empty() => drop(settings.server.user(user)),
        (None, _) => findings.value(at, "the user is missing: write `user@` before the host, or add `user`"),
        (Some(_), None) => {}
    }
    let (setting, password) = match (&table.password_env, &table.password_file) {
        (None, None) => return,
        (Some(name), None) => ("password_env", from_environment(name, environment)),
        (None, Some(file)) => ("password_file", from_file(file)),
        (Some(_), Some(_)) => {
            findings.key(&path.key("password_file"), "keep one of `password_env` and `password_file`");
            return;
        }
    };
    match password {
        _ if settings.server.get_password().is_some() => {
            findings.key(&path.key(setting), "the address has a password already: keep one of them");
        }
        Ok(password) => drop(settings.server.password(password.0)),
        Err(message) => findings.value(&path.key(setting), message),
    }
}

fn trust(settings: &mut Settings, table: &StoreTable, path: &Path, findings: &mut Findings<'_>) {
    let insecure = table.tls_insecure.unwrap_or(false);
    let written = [("tls_ca", table.tls_ca.is_some()), ("tls_insecure", insecure)];
    let Some(tls) = &mut settings.tls else {
        for (name, _) in written.into_iter().filter(|(_, written)| *written) {
            let message = "this is a setting of TLS: write `?sslmode=require` after the address";
            findings.key(&path.key(name), message);
        }
        return;
    };
    if table.tls_ca.is_some() && insecure {
        let message = "keep one of `tls_ca` and `tls_insecure`: without verification no authority is asked";
        findings.key(&path.key("tls_insecure"), message);
        return;
    }
    if let Some(authorities) = authorities(table, path, findings) {
        *tls = Tls { authorities, unverified: insecure };
    }
}
