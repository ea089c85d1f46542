//! Databases of the application, from what was written to what they mean.

use std::collections::{BTreeMap, HashMap};

use tollgate_core::policy::nearest;
use tollgate_postgres::{Databases, Settings};

use super::problem::{Findings, hint, listed, shown};
use super::raw::{self, Named, StoreTable};
use super::rules::check_name;
use super::secrets;
use super::store;
use super::tree::Path;

/// The most databases.
const MOST: usize = 32;

pub(super) fn mean(
    written: Option<Named<raw::Database>>,
    rules: &Named<raw::Rule>,
    environment: &HashMap<String, String>,
    findings: &mut Findings<'_>,
) -> BTreeMap<String, Settings> {
    let written = written.unwrap_or_default();
    check_named(rules, &written, findings);
    if written.0.len() > MOST {
        let message = format!("{} databases: at most {MOST} are allowed", written.0.len());
        findings.key(&Path::of(&["databases"]), message);
        return BTreeMap::new();
    }
    let mut databases = BTreeMap::new();
    for (name, table) in &written.0 {
        let path = Path::of(&["databases", name]);
        if let Err(message) = check_name(name) {
            findings.key(&path, message);
        }
        if let Some(settings) = mean_one(table, &path, environment, findings) {
            databases.insert(name.clone(), settings);
        }
    }
    databases
}

fn mean_one(
    table: &raw::Database,
    path: &Path,
    environment: &HashMap<String, String>,
    findings: &mut Findings<'_>,
) -> Option<Settings> {
    let (setting, url) = match (&table.url, &table.url_env, &table.url_file) {
        (Some(url), None, None) => ("url", Ok(url.clone())),
        (None, Some(name), None) => ("url_env", secrets::from_environment(name, environment)),
        (None, None, Some(file)) => ("url_file", secrets::from_file(file)),
        _ => {
            findings.key(path, "write one of `url`, `url_env` and `url_file`");
            return None;
        }
    };
    let at = path.key(setting);
    let url = url.map_err(|message| findings.value(&at, message)).ok()?;
    let beside = StoreTable {
        user: table.user.clone(),
        password_env: table.password_env.clone(),
        password_file: table.password_file.clone(),
        connect_timeout: table.connect_timeout.clone(),
        connections: Some(table.connections.unwrap_or(Databases::CONNECTIONS as u64)),
        tls_ca: table.tls_ca.clone(),
        tls_certificate: table.tls_certificate.clone(),
        tls_key: table.tls_key.clone(),
        tls_insecure: table.tls_insecure,
        ..StoreTable::default()
    };
    store::postgres_settings(&url, &at, &beside, path, environment, findings)
}

/// Reports rules that count rows in a database that was not written.
fn check_named(rules: &Named<raw::Rule>, databases: &Named<raw::Database>, findings: &mut Findings<'_>) {
    let names: Vec<&str> = databases.0.iter().map(|(name, _)| name.as_str()).collect();
    for (rule, written) in &rules.0 {
        let Some(rows) = &written.count_rows else { continue };
        if names.contains(&rows.database.as_str()) {
            continue;
        }
        let near = hint(nearest(&rows.database, names.iter().copied()));
        let known = match &*names {
            [] => "add it, as in `databases: { shop: { url_env: SHOP_DATABASE_URL } }`".to_owned(),
            names => format!("there are {}{near}", listed(names.iter().copied())),
        };
        let message = format!("`{}` is not one of `databases`: {known}", shown(&rows.database));
        findings.value(&Path::of(&["rules", rule, "count_rows", "in"]), message);
    }
}
