//! Access keys. A token is hashed as soon as it is read, and cannot be printed after that.

use std::collections::HashMap;
use std::fmt;

use data_encoding::HEXLOWER_PERMISSIVE;
use sha2::{Digest, Sha256};
use tollgate_relay::accounts::check_name as check_tenant;
use tollgate_relay::session::NULL_SENDER;
use tollgate_relay::session::address::normal_domain;

use super::files;
use super::hush;
use super::problem::{Findings, shown};
use super::raw;
use super::rules::check_name;
use super::tree::Path;

/// A key for the API, and its role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey {
    /// Its name, in logs and responses.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// The hash of its token.
    pub token: TokenHash,
    /// The tenant that it belongs to: it reaches only what carries that tenant. `None` for a key that reaches everything.
    pub tenant: Option<KeyTenant>,
}

/// The tenant of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyTenant {
    /// Its name.
    pub name: String,
    /// The domains that its senders may have, in their normal form; any if there are none.
    pub senders: Vec<String>,
}

/// What a key allows; each role includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Request decisions.
    Check,
    /// Read everything.
    Read,
    /// Change everything.
    Admin,
}

/// The SHA-256 hash of a token.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenHash([u8; 32]);

/// The valid keys, and how many were written.
pub(super) struct Keys {
    usable: Vec<ApiKey>,
    written: usize,
}

/// Shorter tokens can be guessed.
const LEAST_TOKEN_CHARS: usize = 16;

/// A hash does not show the length of its token, but these tokens are in every attacker's list.
const GUESSED_FIRST: [&str; 8] = ["", "admin", "changeme", "password", "secret", "test", "token", "tollgate"];

impl TokenHash {
    /// The hash of this token.
    pub fn of(token: &str) -> Self {
        Self(Sha256::digest(token).into())
    }

    /// The hash itself.
    pub fn bytes(&self) -> [u8; 32] {
        self.0
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Check => "check",
            Self::Read => "read",
            Self::Admin => "admin",
        })
    }
}

impl Keys {
    /// Whether no key was written, valid or not.
    pub(super) fn none_written(&self) -> bool {
        self.written == 0
    }

    pub(super) fn into_usable(self) -> Vec<ApiKey> {
        self.usable
    }
}

pub(super) fn mean(
    written: &[raw::Key],
    environment: &HashMap<String, String>,
    findings: &mut Findings<'_>,
) -> Keys {
    let mut usable: Vec<ApiKey> = Vec::new();
    for (index, key) in written.iter().enumerate() {
        let path = Path::of(&["keys"]).index(index);
        if let Err(message) = check_name(&key.name) {
            findings.value(&path.key("name"), message);
        } else if written[..index].iter().any(|earlier| earlier.name == key.name) {
            findings.value(&path.key("name"), format!("there are two keys named `{}`", key.name));
        }
        let tenant = tenant(key, &path, findings);
        let place = TokenPlace {
            env: key.token_env.as_deref(),
            file: key.token_file.as_deref(),
            sha256: key.token_sha256.as_deref(),
        };
        let Some((setting, token)) = token(&place, &path, environment, findings) else { continue };
        if let Some(same) = usable.iter().find(|earlier| earlier.token == token) {
            findings.value(
                &path.key(setting),
                format!("the token is the same as that of `{}`: give each key its own", same.name),
            );
            continue;
        }
        let role = match key.role {
            raw::Role::Check => Role::Check,
            raw::Role::Read => Role::Read,
            raw::Role::Admin => Role::Admin,
        };
        usable.push(ApiKey { name: key.name.clone(), role, token, tenant });
    }
    Keys { usable, written: written.len() }
}

/// The tenant of a key, if it has one.
fn tenant(key: &raw::Key, path: &Path, findings: &mut Findings<'_>) -> Option<KeyTenant> {
    let Some(name) = &key.tenant else {
        if key.senders.is_some() {
            let message = "`senders` needs `tenant`: add the tenant that the key sends for";
            findings.value(&path.key("senders"), message);
        }
        return None;
    };
    if check_tenant("tenant", name).is_err() {
        let message = format!("`{}` is not a tenant: write 1 to 64 of `A-Z a-z 0-9 _ . - @`", shown(name));
        findings.value(&path.key("tenant"), message);
    }
    if key.senders.as_ref().is_some_and(Vec::is_empty) {
        findings.value(&path.key("senders"), "an empty list: leave `senders` out if any domain may be used");
    }
    let mut senders = Vec::new();
    for (index, domain) in key.senders.iter().flatten().enumerate() {
        let null = (domain == NULL_SENDER).then(|| domain.clone());
        match null.or_else(|| normal_domain(domain)) {
            Some(domain) => senders.push(domain),
            None => {
                let message = format!("`{}` is not a domain, as in `example.com`", shown(domain));
                findings.value(&path.key("senders").index(index), message);
            }
        }
    }
    Some(KeyTenant { name: name.clone(), senders })
}

/// The source of a token; exactly one of these.
pub(super) struct TokenPlace<'t> {
    pub(super) env: Option<&'t str>,
    pub(super) file: Option<&'t str>,
    pub(super) sha256: Option<&'t str>,
}

/// The hash of a key's token, and its setting.
pub(super) fn token(
    place: &TokenPlace<'_>,
    path: &Path,
    environment: &HashMap<String, String>,
    findings: &mut Findings<'_>,
) -> Option<(&'static str, TokenHash)> {
    let (setting, token) = match (place.env, place.file, place.sha256) {
        (Some(name), None, None) => ("token_env", from_environment(name, environment)),
        (None, Some(file), None) => ("token_file", from_file(file)),
        (None, None, Some(hash)) => ("token_sha256", from_hash(hash)),
        (None, None, None) => {
            findings.value(path, "where is the token? Add `token_env`, `token_file` or `token_sha256`");
            return None;
        }
        _ => {
            findings.value(path, "keep one of `token_env`, `token_file` and `token_sha256`");
            return None;
        }
    };
    match token {
        Ok(token) => Some((setting, token)),
        Err(message) => {
            findings.value(&path.key(setting), message);
            None
        }
    }
}

fn from_environment(name: &str, environment: &HashMap<String, String>) -> Result<TokenHash, String> {
    let token = environment.get(name).ok_or_else(|| format!("{} is not set", hush::variable(name)))?;
    from_token(token, &hush::variable(name))
}

fn from_file(file: &str) -> Result<TokenHash, String> {
    let text =
        files::read_text(file).map_err(|error| format!("{} cannot be read: {error}", hush::file(file)))?;
    from_token(text.trim_end(), &hush::file(file))
}

fn from_token(token: &str, holder: &str) -> Result<TokenHash, String> {
    match token.chars().count() {
        0 => Err(format!("{holder} is empty")),
        count if count < LEAST_TOKEN_CHARS => Err(format!(
            "the token in {holder} has {count} characters: at least {LEAST_TOKEN_CHARS} are needed, as from `openssl rand -hex 32`"
        )),
        _ => Ok(TokenHash::of(token)),
    }
}

fn from_hash(hash: &str) -> Result<TokenHash, String> {
    let bytes = HEXLOWER_PERMISSIVE.decode(hash.as_bytes()).ok();
    let bytes = bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
    // The value may be a token by mistake, so it is not repeated.
    let hash = bytes.map(TokenHash).ok_or_else(|| {
        "this is not a SHA-256 hash of 64 hexadecimal digits, as from `printf %s \"$TOKEN\" | sha256sum`"
            .to_owned()
    })?;
    match GUESSED_FIRST.iter().find(|word| TokenHash::of(word) == hash) {
        Some(word) => Err(format!(
            "this is the hash of `{word}`, which is guessed first: hash a token as from `openssl rand -hex 32`"
        )),
        None => Ok(hash),
    }
}
