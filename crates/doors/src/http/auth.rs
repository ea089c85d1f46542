//! Access keys and their roles.

use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderName};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tollgate_core::Timestamp;
use tollgate_engine::session::Session;

use super::pages;
use super::problem::Problem;

/// The header in which a proxy sends its token.
pub(crate) const PROXY_TOKEN: HeaderName = HeaderName::from_static("x-tollgate-token");

/// A token for the API, known only by its hash.
#[derive(Clone, Debug)]
pub struct AccessKey {
    /// Its name in the log.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// The SHA-256 of the token.
    pub hash: [u8; 32],
    /// The tenant that it belongs to: it reaches only what carries that tenant. `None` for everything.
    pub tenant: Option<MailTenant>,
}

/// The tenant of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailTenant {
    /// Its name.
    pub name: Arc<str>,
    /// The domains that its senders may have, in their normal form; any if there are none.
    pub senders: Arc<[String]>,
}

/// The tokens for the API. They can be replaced, all at once, while the API is served. Without any key, every
/// program may do everything, but web pages in a browser may not.
#[derive(Debug, Default)]
pub struct AccessKeys(ArcSwap<Vec<AccessKey>>);

/// The key that a request was sent with.
pub(crate) struct Caller {
    keys: Arc<Vec<AccessKey>>,
    index: usize,
    /// When its session ends, if it has one.
    until: Option<Timestamp>,
}

/// What a token allows; each role includes those before it.
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
    /// Accepts these keys.
    pub fn new(keys: Vec<AccessKey>) -> Self {
        Self(ArcSwap::from_pointee(keys))
    }

    /// Whether there are no keys, so that every program may do everything.
    pub fn is_empty(&self) -> bool {
        self.0.load().is_empty()
    }

    /// Accepts only these keys from now on, for every request that is not admitted yet.
    pub fn replace(&self, keys: Vec<AccessKey>) {
        self.0.store(Arc::new(keys));
    }

    /// Whether a proxy may ask for its clients. It sends its token in a header of its own, since the others
    /// come from its client.
    pub(crate) fn admits_proxy(&self, headers: &HeaderMap) -> bool {
        let keys = self.0.load();
        let mut tokens = headers.get_all(PROXY_TOKEN).iter();
        // Every role may do what the lowest may, but a client of the proxy belongs to no tenant. Exactly one value, so
        // that a client cannot add another.
        keys.is_empty()
            || match (tokens.next(), tokens.next()) {
                (Some(token), None) => {
                    let found = find(&keys, &Sha256::digest(token).into());
                    found.is_some_and(|index| keys[index].tenant.is_none())
                }
                _ => false,
            }
    }

    /// The caller of a request, if its role is at least `role`; `None` if there are no keys.
    pub(crate) fn admit(&self, role: Role, headers: &HeaderMap) -> Result<Option<Caller>, Problem> {
        let keys = self.0.load();
        if keys.is_empty() {
            return pages::refuse(headers).map(|()| None);
        }
        let token = token(headers).ok_or_else(Problem::unauthorized)?;
        let index = find(&keys, &Sha256::digest(token).into()).ok_or_else(Problem::unauthorized)?;
        check_role(&keys[index], role)?;
        Ok(Some(Caller { keys: Arc::clone(&keys), index, until: None }))
    }

    /// The caller of a session, if its key still exists and its role is at least `role`.
    pub(crate) fn admit_session(&self, role: Role, session: &Session) -> Result<Caller, Problem> {
        let keys = self.0.load_full();
        let index = find(&keys, &session.hash).ok_or_else(Problem::session_ended)?;
        check_role(&keys[index], role)?;
        Ok(Caller { keys, index, until: Some(session.until) })
    }

    /// Whether the keys are still those with which a caller was admitted.
    pub(crate) fn still_has(&self, caller: &Caller) -> bool {
        Arc::ptr_eq(&self.0.load(), &caller.keys)
    }
}

impl Caller {
    /// The tenant of its key.
    pub(crate) fn tenant(&self) -> Option<&MailTenant> {
        self.keys[self.index].tenant.as_ref()
    }

    /// What its key may do.
    pub(crate) fn role(&self) -> Role {
        self.keys[self.index].role
    }

    /// The name of its key in the log.
    pub(crate) fn name(&self) -> &str {
        &self.keys[self.index].name
    }

    /// The SHA-256 of its token.
    pub(crate) fn hash(&self) -> [u8; 32] {
        self.keys[self.index].hash
    }

    /// When its session ends; `None` if it sent its token.
    pub(crate) fn until(&self) -> Option<Timestamp> {
        self.until
    }

    /// Whether a request has a token.
    pub(crate) fn sends_token(headers: &HeaderMap) -> bool {
        token(headers).is_some()
    }
}

/// Fails if the role of a key is less than `role`.
fn check_role(key: &AccessKey, role: Role) -> Result<(), Problem> {
    let has = key.role;
    if has < role {
        let detail = format!("this needs the role `{}`; the token has `{}`", role.name(), has.name());
        return Err(Problem::forbidden(detail));
    }
    Ok(())
}

/// The index of the key whose token has this hash.
fn find(keys: &[AccessKey], hash: &[u8; 32]) -> Option<usize> {
    // Every key is compared to its last byte, so that the time reveals nothing.
    let mut found = None;
    for (index, key) in keys.iter().enumerate() {
        if bool::from(key.hash.ct_eq(hash)) {
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
