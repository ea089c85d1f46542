//! Secrets in the environment or in a file. Errors do not show the secret.

use std::collections::HashMap;

use super::{files, hush};

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
