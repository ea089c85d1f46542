//! The identity of a caller, proved by a known API key or a signed token.
//!
//! A request without credentials is anonymous. A request with wrong credentials is refused and not treated as
//! anonymous: otherwise a client could shed its limits by sending a wrong key.

mod api_keys;
mod claims;
mod keys;
mod recent;
mod tokens;

use std::fmt;
use std::sync::Arc;

use http::HeaderMap;
use http::header::WWW_AUTHENTICATE;

pub use api_keys::{ApiKey, ApiKeys, BadKeys, X_API_KEY};
pub use claims::Claims;
pub use keys::{BadTokenKey, TokenKey};
pub use tokens::{BadTokens, TokenSettings, Tokens};

/// The identity of a caller, as far as it was proved.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// The `sub` of its token.
    pub subject: Option<Arc<str>>,
    /// The name of its API key; never the key itself.
    pub api_key: Option<Arc<str>>,
    /// The consumer: from the entry of the key, or else from a claim of the token.
    pub consumer: Option<Arc<str>>,
    /// The other claims of its token.
    pub claims: Option<Arc<Claims>>,
}

/// The accepted credentials.
#[derive(Debug, Default)]
pub struct Credentials {
    api_keys: Option<ApiKeys>,
    tokens: Option<Tokens>,
}

/// Why credentials are invalid. It is always the caller's fault, and reveals no secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadCredential {
    /// There is no such API key.
    UnknownKey,
    /// The same header was sent several times.
    Twice,
    /// The token is malformed, or longer than [`Tokens::MOST_BYTES`].
    Malformed,
    /// No known key fits the token's algorithm and key id.
    UnknownSigner,
    /// The signature is wrong.
    Forged,
    /// The token has expired, or has no expiry.
    Expired,
    /// The token is not valid yet.
    TooEarly,
    /// The token comes from another issuer.
    WrongIssuer,
    /// The token is meant for another audience.
    WrongAudience,
}

impl Identity {
    /// The claim of its token under this name, if it is a text, a number or a boolean.
    pub fn claim(&self, name: &str) -> Option<&str> {
        self.claims.as_ref()?.find(name)
    }
}

impl Credentials {
    /// Accepts these credentials; with neither, all callers are anonymous.
    pub fn new(api_keys: Option<ApiKeys>, tokens: Option<Tokens>) -> Self {
        Self { api_keys, tokens }
    }

    /// Whether API keys are accepted.
    pub fn takes_api_keys(&self) -> bool {
        self.api_keys.is_some()
    }

    /// Whether tokens are accepted.
    pub fn takes_tokens(&self) -> bool {
        self.tokens.is_some()
    }

    /// Removes the request for a token from a response if tokens are not accepted.
    pub fn ask_in(&self, headers: &mut HeaderMap) {
        if self.tokens.is_none() {
            headers.remove(WWW_AUTHENTICATE);
        }
    }

    /// The identity of the caller with these headers.
    pub fn recognise(&self, headers: &HeaderMap) -> Result<Identity, BadCredential> {
        let mut identity = Identity::default();
        if let Some(tokens) = &self.tokens {
            tokens.recognise(headers, &mut identity)?;
        }
        if let Some(keys) = &self.api_keys {
            keys.recognise(headers, &mut identity)?;
        }
        Ok(identity)
    }
}

/// The only value of a header; `None` if it is absent.
fn only<'h>(headers: &'h HeaderMap, name: &http::HeaderName) -> Result<Option<&'h [u8]>, BadCredential> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(BadCredential::Twice);
    }
    Ok(first.map(|value| value.as_bytes().trim_ascii()))
}

impl fmt::Display for BadCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownKey => "the API key is not known",
            Self::Twice => "a credential was sent several times",
            Self::Malformed => "the bearer token cannot be read",
            Self::UnknownSigner => "the bearer token is not signed in a way that is known here",
            Self::Forged => "the signature of the bearer token is wrong",
            Self::Expired => "the bearer token has expired, or has no expiry",
            Self::TooEarly => "the bearer token is not good yet",
            Self::WrongIssuer => "the bearer token comes from another issuer",
            Self::WrongAudience => "the bearer token is for another audience",
        })
    }
}

impl std::error::Error for BadCredential {}
