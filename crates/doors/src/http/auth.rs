//! Who may ask for what.

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use sha2::{Digest, Sha256};

use super::problem::Problem;

/// A token that opens the API, known only by its hash.
#[derive(Clone, Debug)]
pub struct AccessKey {
    /// What it is called in the log.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// The SHA-256 of the token.
    pub hash: [u8; 32],
}

/// What a token may do; each role may also do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Ask for decisions, and give back.
    Check,
    /// Also look at counters, limits and metrics.
    Read,
    /// Also change them.
    Admin,
}

impl Role {
    /// Its name, as it is written in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Read => "read",
            Self::Admin => "admin",
        }
    }
}

/// The number of the key that a request came with, if it may do what `role` may.
pub(crate) fn admit(keys: &[AccessKey], role: Role, headers: &HeaderMap) -> Result<usize, Problem> {
    let token = token(headers).ok_or_else(Problem::unauthorized)?;
    let hash: [u8; 32] = Sha256::digest(token).into();
    // Every key is compared to its last byte, so that the time taken tells nothing.
    let mut found = None;
    for (index, key) in keys.iter().enumerate() {
        let differs = key.hash.iter().zip(&hash).fold(0, |sum, (a, b)| sum | (a ^ b));
        if differs == 0 {
            found = Some(index);
        }
    }
    let index = found.ok_or_else(Problem::unauthorized)?;
    let has = keys[index].role;
    if has < role {
        let detail = format!("this needs the role `{}`; the token has `{}`", role.name(), has.name());
        return Err(Problem::forbidden(detail));
    }
    Ok(index)
}

fn token(headers: &HeaderMap) -> Option<&[u8]> {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| {
        let (scheme, token) = value.as_bytes().split_at_checked("Bearer ".len())?;
        scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
    });
    let plain = || {
        let value = headers.get("x-api-key").or_else(|| headers.get("x-api-token"))?;
        Some(value.as_bytes())
    };
    bearer.or_else(plain).filter(|token| !token.is_empty())
}
