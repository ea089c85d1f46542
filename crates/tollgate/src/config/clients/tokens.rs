//! The accepted tokens.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate_core::Span;
use tollgate_store::SystemClock;
use tollgate_web::identity::{BadTokens, TokenKey, TokenSettings, Tokens};

use super::raw;
use super::raw::Tokens as Written;
use crate::config::files;
use crate::config::hush;
use crate::config::limits;
use crate::config::problem::Findings;
use crate::config::raw::gateway::Texts;
use crate::config::tree::Path;

/// Clocks that differ by more than this are broken.
const MOST_LEEWAY: Span = Span::from_secs(3600);

pub(super) fn mean(
    written: &raw::Tokens,
    path: &Path,
    environment: &HashMap<String, String>,
    findings: &mut Findings<'_>,
) -> Option<Tokens> {
    let (names, keys): (Vec<&str>, Vec<TokenKey>) =
        keys(written, path, environment, findings)?.into_iter().unzip();
    let texts =
        |texts: &Option<Texts>| texts.as_ref().map_or_else(Vec::new, |texts| texts.as_slice().to_vec());
    let mut settings = TokenSettings {
        keys,
        issuers: texts(&written.issuer),
        audiences: texts(&written.audience),
        ..TokenSettings::default()
    };
    if let Some(consumer) = &written.consumer {
        settings.consumer.clone_from(consumer);
    }
    if let Some(text) = &written.leeway {
        let path = path.key("leeway");
        match limits::span(text, &path, findings) {
            Some(span) if span > MOST_LEEWAY => {
                findings.value(&path, format!("`{span}` is too long: at most `{MOST_LEEWAY}` is allowed"));
            }
            Some(span) => settings.leeway = span,
            None => {}
        }
    }
    match Tokens::new(settings, Arc::new(SystemClock::new())) {
        Ok(tokens) => Some(tokens),
        Err(error) => {
            match error {
                BadTokens::Key { index, error } => {
                    let name = names.get(index).copied().unwrap_or_default();
                    findings.value(&path.key(name), format!("{}{error}", origin(written, name)));
                }
                BadTokens::NoKey | BadTokens::TooManyKeys { .. } => findings.value(path, error.to_string()),
            }
            None
        }
    }
}

/// The keys that verify tokens, each with its setting.
fn keys(
    written: &Written,
    path: &Path,
    environment: &HashMap<String, String>,
    findings: &mut Findings<'_>,
) -> Option<Vec<(&'static str, TokenKey)>> {
    let secret = |text: String| TokenKey::Secret(text.into_bytes());
    let found = [
        ("secret_env", written.secret_env.as_ref().map(|name| variable(name, environment).map(secret))),
        ("secret_file", written.secret_file.as_ref().map(|name| file(name).map(secret))),
        ("key_file", written.key_file.as_ref().map(|name| file(name).map(TokenKey::Pem))),
        ("jwks_file", written.jwks_file.as_ref().map(|name| file(name).map(TokenKey::Jwks))),
    ];
    if found.iter().all(|(_, key)| key.is_none()) {
        findings.value(
            path,
            "what are tokens verified with? Add `secret_env`, `secret_file`, `key_file` or `jwks_file`",
        );
        return None;
    }
    let mut keys = Vec::new();
    for (name, key) in found {
        match key {
            None => {}
            Some(Ok(key)) => keys.push((name, key)),
            Some(Err(message)) => {
                findings.value(&path.key(name), message);
                return None;
            }
        }
    }
    Some(keys)
}

/// The file of a key, for the start of an error message.
fn origin(written: &Written, setting: &str) -> String {
    let file = match setting {
        "secret_file" => &written.secret_file,
        "key_file" => &written.key_file,
        "jwks_file" => &written.jwks_file,
        _ => &None,
    };
    file.as_ref().map_or_else(String::new, |file| format!("the file `{}`: ", file.escape_debug()))
}

fn variable(name: &str, environment: &HashMap<String, String>) -> Result<String, String> {
    let value = environment.get(name);
    value.cloned().ok_or_else(|| format!("{} is not set", hush::variable(name)))
}

fn file(name: &str) -> Result<String, String> {
    let text = files::read_text(name);
    // A file that an editor wrote ends with a line's end, which is no part of a secret.
    text.map(|text| text.trim_end_matches(['\r', '\n']).to_owned())
        .map_err(|error| format!("{} cannot be read: {error}", hush::file(name)))
}
