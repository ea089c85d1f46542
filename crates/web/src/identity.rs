//! Who a request proves to come from: by an API key that is known, or by a token that is signed.
//!
//! A request that sends nothing is anybody's. One that sends something wrong is refused, and is not
//! treated as anybody's: whoever could get rid of their name by misspelling it would get rid of their
//! limits too.

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

/// Who a request comes from, as far as it was proved.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// The `sub` of its token.
    pub subject: Option<Arc<str>>,
    /// The name of its API key; never the key itself.
    pub api_key: Option<Arc<str>>,
    /// Whom it belongs to: as the entry of the key says, or else a claim of the token.
    pub consumer: Option<Arc<str>>,
    /// What else its token says.
    pub claims: Option<Arc<Claims>>,
}

/// What is accepted as a proof.
#[derive(Debug, Default)]
pub struct Credentials {
    api_keys: Option<ApiKeys>,
    tokens: Option<Tokens>,
}

/// Why a proof is none. The caller's fault, always; it says nothing about secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadCredential {
    /// There is no such API key.
    UnknownKey,
    /// The same header was sent several times.
    Twice,
    /// The token is no token, or longer than [`Tokens::MOST_BYTES`].
    Malformed,
    /// No key that is known may be used as the token asks: another algorithm, another id, or none.
    UnknownSigner,
    /// The signature is wrong.
    Forged,
    /// The token was good until a moment ago, or does not say until when it is good.
    Expired,
    /// The token is not good yet.
    TooEarly,
    /// The token comes from another issuer.
    WrongIssuer,
    /// The token is meant for somebody else.
    WrongAudience,
}

impl Identity {
    /// What its token says under this name, if that is a text, a number or a truth.
    pub fn claim(&self, name: &str) -> Option<&str> {
        self.claims.as_ref()?.find(name)
    }
}

impl Credentials {
    /// These are accepted; with neither, everybody is anybody.
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

    /// Puts right what the headers of an answer ask for: a token is asked for only where one is accepted.
    pub fn ask_in(&self, headers: &mut HeaderMap) {
        if self.tokens.is_none() {
            headers.remove(WWW_AUTHENTICATE);
        }
    }

    /// Who a request with these headers comes from.
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

/// The one value of a header; `None` if it is not there.
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
            Self::Expired => "the bearer token has expired, or does not say when it does",
            Self::TooEarly => "the bearer token is not good yet",
            Self::WrongIssuer => "the bearer token comes from another issuer",
            Self::WrongAudience => "the bearer token is meant for somebody else",
        })
    }
}

impl std::error::Error for BadCredential {}
