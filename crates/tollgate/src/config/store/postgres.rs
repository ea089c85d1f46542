//! A store in PostgreSQL: its address and further settings.

use std::collections::HashMap;

use super::client::{ClientSettings, key_secret, password, trust};
use crate::config::problem::{Findings, shown};
use crate::config::raw::StoreTable;
use crate::config::tree::Path;
use tollgate_postgres::Settings;

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
    settings.key_secret = key_secret(table, path, environment, findings);
    let remedy = "write `?sslmode=require` after the address";
    trust(settings.tls.as_mut(), remedy, table, path, findings);
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
    match (settings.user(), &table.user) {
        (Some(_), Some(_)) => {
            findings.key(&path.key("user"), "the address names a user already: keep one of them");
        }
        (None, Some(user)) if !user.is_empty() => drop(settings.server.user(user)),
        (None, _) => findings.value(at, "the user is missing: write `user@` before the host, or add `user`"),
        (Some(_), None) => {}
    }
    let in_address = settings.server.get_password().is_some();
    if let Some(password) = password(in_address, table, path, environment, findings) {
        settings.server.password(password.0);
    }
}
