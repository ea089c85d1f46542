//! Who may ask for what.

use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderName};
use sha2::{Digest, Sha256};

use super::pages;
use super::problem::Problem;

/// Where a proxy that asks for its clients has its token.
pub(crate) const PROXY_TOKEN: HeaderName = HeaderName::from_static("x-tollgate-token");

/// A token that opens the API, known only by its hash.
#[derive(Clone, Debug)]
pub struct AccessKey {
    /// Its name in the log.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// The SHA-256 of the token.
    pub hash: [u8; 32],
}

/// The tokens that open the API. They are replaced all at once, while it is served; with none at all,
/// every program may do everything; web pages in a browser may not.
#[derive(Debug, Default)]
pub struct AccessKeys(ArcSwap<Vec<AccessKey>>);

/// Who asks: one of the keys that were known then.
pub(crate) struct Caller {
    keys: Arc<Vec<AccessKey>>,
    index: usize,
}

/// What a token may do; each role may also do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Ask for decisions, hold and refund.
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

impl AccessKeys {
    /// These keys.
    pub fn new(keys: Vec<AccessKey>) -> Self {
        Self(ArcSwap::from_pointee(keys))
    }

    /// Whether there are no keys, so that every program may do everything.
    pub fn is_empty(&self) -> bool {
        self.0.load().is_empty()
    }

    /// Knows these keys from now on, and no other: every request that is not admitted yet is asked for
    /// one of them.
    pub fn replace(&self, keys: Vec<AccessKey>) {
        self.0.store(Arc::new(keys));
    }

    /// Whether a proxy may ask for its clients. Its token stands in a header of its own: in the others
    /// are those of the client, which mean nothing here.
    pub(crate) fn admits_proxy(&self, headers: &HeaderMap) -> bool {
        let keys = self.0.load();
        let mut tokens = headers.get_all(PROXY_TOKEN).iter();
        // Any role may do what the least one may. One value, so that a client cannot bring another.
        keys.is_empty()
            || match (tokens.next(), tokens.next()) {
                (Some(token), None) => find(&keys, token.as_bytes()).is_some(),
                _ => false,
            }
    }

    /// Who a request comes from, if it may do what `role` may; `None` where there are no keys.
    pub(crate) fn admit(&self, role: Role, headers: &HeaderMap) -> Result<Option<Caller>, Problem> {
        let keys = self.0.load();
        if keys.is_empty() {
            return pages::refuse(headers).map(|()| None);
        }
        let index = admit(&keys, role, headers)?;
        Ok(Some(Caller { keys: Arc::clone(&keys), index }))
    }
}

impl Caller {
    /// What its key is called in the log.
    pub(crate) fn name(&self) -> &str {
        &self.keys[self.index].name
    }
}

/// The number of the key that a request came with, if it may do what `role` may.
fn admit(keys: &[AccessKey], role: Role, headers: &HeaderMap) -> Result<usize, Problem> {
    let token = token(headers).ok_or_else(Problem::unauthorized)?;
    let index = find(keys, token).ok_or_else(Problem::unauthorized)?;
    let has = keys[index].role;
    if has < role {
        let detail = format!("this needs the role `{}`; the token has `{}`", role.name(), has.name());
        return Err(Problem::forbidden(detail));
    }
    Ok(index)
}

/// The number of the key that this token is.
fn find(keys: &[AccessKey], token: &[u8]) -> Option<usize> {
    let hash: [u8; 32] = Sha256::digest(token).into();
    // Every key is compared to its last byte, so that the time taken tells nothing.
    let mut found = None;
    for (index, key) in keys.iter().enumerate() {
        let differs = key.hash.iter().zip(&hash).fold(0, |sum, (a, b)| sum | (a ^ b));
        if differs == 0 {
            found = Some(index);
        }
    }
    found
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
