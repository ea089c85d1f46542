//! Users who may log in. A password is hashed as soon as it is read; nothing after that can print it.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate_relay::server::{BadUsers, PasswordHash, User, Users};

use super::accounts::is_name;
use super::raw;
use crate::config::problem::{Findings, shown};
use crate::config::secrets::{from_environment, from_file};
use crate::config::tree::Path;

/// Hashing a password takes a moment, at every reload.
const MOST_USERS: usize = 1_000;
const MOST_NAME: usize = 256;

pub(super) fn mean(
    written: &raw::Relay,
    environment: &HashMap<String, String>,
    path: &Path,
    findings: &mut Findings<'_>,
) -> Arc<Users> {
    let written = written.users.as_deref().unwrap_or_default();
    if written.len() > MOST_USERS {
        findings.value(path, format!("{} users: at most {MOST_USERS} are allowed", written.len()));
        return Arc::default();
    }
    let mut users: Vec<User> = Vec::new();
    for (index, user) in written.iter().enumerate() {
        let path = path.index(index);
        if user.name.is_empty() || user.name.len() > MOST_NAME || user.name.contains(char::is_control) {
            findings
                .value(&path.key("name"), format!("a user's name has 1 to {MOST_NAME} bytes on one line"));
        }
        check_tenant(&user.tenant, &path.key("tenant"), findings);
        let Some(password) = password(user, &path, environment, findings) else { continue };
        let senders = user.senders.clone().unwrap_or_default();
        if user.senders.as_ref().is_some_and(Vec::is_empty) {
            findings
                .value(&path.key("senders"), "an empty list: leave `senders` out if any domain may be used");
        }
        let (name, tenant) = (user.name.as_str().into(), user.tenant.as_str().into());
        let made = User { name, tenant, senders, password };
        // Each user is checked alone, so that an error is reported at its own place.
        match Users::new(vec![made.clone()]) {
            Ok(_) if users.iter().any(|known| known.name == made.name) => {
                let message = format!("there are two users named `{}`", shown(&made.name));
                findings.value(&path.key("name"), message);
            }
            Ok(_) => users.push(made),
            Err(bad @ (BadUsers::NotADomain { .. } | BadUsers::Twice { .. })) => {
                findings.value(&path.key("senders"), bad.to_string());
            }
        }
    }
    Arc::new(Users::new(users).unwrap_or_default())
}

/// Reports an invalid tenant name.
pub(super) fn check_tenant(tenant: &str, path: &Path, findings: &mut Findings<'_>) {
    if !is_name(tenant) {
        findings.value(
            path,
            format!("`{}` is not a tenant: write 1 to 64 of `A-Z a-z 0-9 _ . - @`", shown(tenant)),
        );
    }
}

fn password(
    user: &raw::User,
    path: &Path,
    environment: &HashMap<String, String>,
    findings: &mut Findings<'_>,
) -> Option<PasswordHash> {
    let (setting, hash) = match (&user.password_env, &user.password_file, &user.password_hash) {
        (Some(name), None, None) => ("password_env", from_environment(name, environment).and_then(of_clear)),
        (None, Some(file), None) => ("password_file", from_file(file).and_then(of_clear)),
        // The value may be a password by mistake, so the error does not repeat it.
        (None, None, Some(hash)) => (
            "password_hash",
            PasswordHash::read(hash).ok_or_else(|| {
                "this is not a hash of the form `pbkdf2-sha256$ROUNDS$SALT$HASH`, with salt and hash in base64".to_owned()
            }),
        ),
        (None, None, None) => {
            findings.value(path, "where is the password? Add `password_env`, `password_file` or `password_hash`");
            return None;
        }
        _ => {
            findings.value(path, "keep one of `password_env`, `password_file` and `password_hash`");
            return None;
        }
    };
    hash.map_err(|message| findings.value(&path.key(setting), message)).ok()
}

fn of_clear(password: String) -> Result<PasswordHash, String> {
    match password.chars().count() {
        PasswordHash::LEAST_CHARACTERS.. => Ok(PasswordHash::of(&password)),
        count => Err(format!(
            "the password has {count} characters: at least {} are needed, as from `openssl rand -hex 16`",
            PasswordHash::LEAST_CHARACTERS
        )),
    }
}
