//! Secrets in the environment or in a file. Errors do not show the secret.

use std::collections::HashMap;

use super::problem::Findings;
use super::tree::Path;
use super::{files, hush};

/// A secret that a table may name in two ways: a setting with a variable of the environment, or one with a file. Returns
/// the setting and the secret, or why it cannot be read; `None` if no setting is there, or both are.
pub(super) fn of_either(
    [(env, variable), (file, place)]: [(&'static str, &Option<String>); 2],
    path: &Path,
    environment: &HashMap<String, String>,
    findings: &mut Findings<'_>,
) -> Option<(&'static str, Result<String, String>)> {
    match (variable, place) {
        (None, None) => None,
        (Some(name), None) => Some((env, from_environment(name, environment))),
        (None, Some(place)) => Some((file, from_file(place))),
        (Some(_), Some(_)) => {
            findings.key(&path.key(file), format!("keep one of `{env}` and `{file}`"));
            None
        }
    }
}

/// The secret in an environment variable.
pub(super) fn from_environment(name: &str, environment: &HashMap<String, String>) -> Result<String, String> {
    match environment.get(name) {
        None => Err(format!("{} is not set", hush::variable(name))),
        Some(secret) if secret.is_empty() => Err(format!("{} is empty", hush::variable(name))),
        Some(secret) => Ok(secret.clone()),
    }
}

/// The secret in a file, without the line end that an editor adds.
pub(super) fn from_file(file: &str) -> Result<String, String> {
    let text =
        files::read_text(file).map_err(|error| format!("{} cannot be read: {error}", hush::file(file)))?;
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err(format!("{} is empty", hush::file(file))),
        secret => Ok(secret.to_owned()),
    }
}
