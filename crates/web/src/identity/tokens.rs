//! JSON Web Tokens in `Authorization: Bearer`.
//!
//! A token is accepted if a configured key signed it with an algorithm of that key, and if it is valid now,
//! from the right issuer and for the right audience. `none` is not an algorithm, and a public key is never
//! used as a secret.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use data_encoding::BASE64URL_NOPAD;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use jsonwebtoken::Algorithm;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use tollgate_core::{Clock, Span};

use super::claims::Claims;
use super::keys::{BadTokenKey, TokenKey, Verifier};
use super::recent::Recent;
use super::{BadCredential, Identity, only};

/// The accepted tokens.
#[derive(Clone, Debug)]
pub struct TokenSettings {
    /// The keys that may sign them.
    pub keys: Vec<TokenKey>,
    /// The accepted issuers (`iss`); with none, the issuer is not checked.
    pub issuers: Vec<String>,
    /// The accepted audiences (`aud`); with none, the audience is not checked.
    pub audiences: Vec<String>,
    /// The tolerated difference between clocks.
    pub leeway: Span,
    /// The claim that names the consumer.
    pub consumer: String,
}

/// Verifies tokens.
pub struct Tokens {
    verifiers: Vec<Verifier>,
    issuers: Vec<String>,
    audiences: Vec<String>,
    leeway: f64,
    consumer: String,
    clock: Arc<dyn Clock>,
    recent: Recent,
}

/// The verified content of a token. Whether it is valid *now* is checked separately.
pub(super) struct Verified {
    expires: f64,
    not_before: Option<f64>,
    subject: Option<Arc<str>>,
    consumer: Option<Arc<str>>,
    claims: Arc<Claims>,
}

/// Settings that cannot be used. The operator's fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadTokens {
    /// There is no key.
    NoKey,
    /// There are more keys than [`Tokens::MOST_KEYS`].
    TooManyKeys {
        /// The number of keys.
        count: usize,
    },
    /// A key cannot be used.
    Key {
        /// The index of the key, from 0.
        index: usize,
        /// The fault of the key.
        error: BadTokenKey,
    },
}

/// The token's header. Other members are ignored.
#[derive(Deserialize)]
struct Head {
    alg: String,
    kid: Option<String>,
    /// Extensions that must be understood, or else the token is refused (RFC 7515, section 4.1.11).
    crit: Option<IgnoredAny>,
}

impl Default for TokenSettings {
    /// No keys, a leeway of a minute, and the subject as the consumer.
    fn default() -> Self {
        Self {
            keys: Vec::new(),
            issuers: Vec::new(),
            audiences: Vec::new(),
            leeway: Span::from_secs(60),
            consumer: "sub".to_owned(),
        }
    }
}

impl Tokens {
    /// The longest token, in bytes.
    pub const MOST_BYTES: usize = 8 * 1024;
    /// The most keys. A token without a key id is tried with all that fit.
    pub const MOST_KEYS: usize = 32;
    /// The most verified tokens that are remembered. This bounds the memory for their claims.
    pub const MOST_REMEMBERED: usize = 4096;

    /// Accepts the tokens of these settings, by this clock.
    pub fn new(settings: TokenSettings, clock: Arc<dyn Clock>) -> Result<Self, BadTokens> {
        let mut verifiers = Vec::new();
        for (index, key) in settings.keys.iter().enumerate() {
            verifiers.extend(key.verifiers().map_err(|error| BadTokens::Key { index, error })?);
        }
        match verifiers.len() {
            0 => return Err(BadTokens::NoKey),
            1..=Self::MOST_KEYS => {}
            count => return Err(BadTokens::TooManyKeys { count }),
        }
        Ok(Self {
            verifiers,
            issuers: settings.issuers,
            audiences: settings.audiences,
            leeway: settings.leeway.as_micros() as f64 / 1e6,
            consumer: settings.consumer,
            clock,
            recent: Recent::with_places(Self::MOST_REMEMBERED),
        })
    }

    /// Records the identity in the request's token.
    pub(super) fn recognise(
        &self,
        headers: &HeaderMap,
        identity: &mut Identity,
    ) -> Result<(), BadCredential> {
        let Some(value) = only(headers, &AUTHORIZATION)? else { return Ok(()) };
        let Some(token) = bearer(value)? else { return Ok(()) };
        if token.len() > Self::MOST_BYTES {
            return Err(BadCredential::Malformed);
        }
        let hash: [u8; 32] = Sha256::digest(token).into();
        let verified = match self.recent.find(&hash) {
            Some(verified) => verified,
            None => {
                let token = str::from_utf8(token).map_err(|_| BadCredential::Malformed)?;
                let verified = Arc::new(self.verify(token)?);
                self.recent.keep(hash, Arc::clone(&verified));
                verified
            }
        };
        self.good_now(&verified)?;
        identity.subject.clone_from(&verified.subject);
        identity.consumer.clone_from(&verified.consumer);
        identity.claims = Some(Arc::clone(&verified.claims));
        Ok(())
    }

    fn verify(&self, token: &str) -> Result<Verified, BadCredential> {
        let (message, signature) = token.rsplit_once('.').ok_or(BadCredential::Malformed)?;
        let (head, claims) = message.split_once('.').ok_or(BadCredential::Malformed)?;
        let head: Head = part(head)?;
        if head.crit.is_some() {
            return Err(BadCredential::UnknownSigner);
        }
        self.check_signature(&head, signature, message.as_bytes())?;
        let claims: Map<String, Value> = part(claims)?;
        self.check_origin(&claims)?;
        let not_before = match claims.get("nbf") {
            Some(value) => Some(value.as_f64().ok_or(BadCredential::Malformed)?),
            None => None,
        };
        let plain = Claims::of(&claims);
        Ok(Verified {
            expires: claims.get("exp").and_then(Value::as_f64).ok_or(BadCredential::Expired)?,
            not_before,
            subject: plain.find("sub").map(Into::into),
            consumer: plain.find(&self.consumer).map(Into::into),
            claims: Arc::new(plain),
        })
    }

    fn check_signature(&self, head: &Head, signature: &str, message: &[u8]) -> Result<(), BadCredential> {
        let algorithm = Algorithm::from_str(&head.alg).map_err(|_| BadCredential::UnknownSigner)?;
        let fits = |verifier: &&Verifier| {
            // A key without an id is tried with every token id.
            let called = head.kid.is_none() || verifier.id.is_none() || verifier.id == head.kid;
            called && verifier.allows(algorithm)
        };
        let mut fitting = self.verifiers.iter().filter(fits).peekable();
        if fitting.peek().is_none() {
            return Err(BadCredential::UnknownSigner);
        }
        let made = fitting.any(|verifier| verifier.made(signature, message, algorithm));
        if made { Ok(()) } else { Err(BadCredential::Forged) }
    }

    fn check_origin(&self, claims: &Map<String, Value>) -> Result<(), BadCredential> {
        let known = |list: &[String], value: &Value| {
            value.as_str().is_some_and(|text| list.iter().any(|known| known == text))
        };
        let issued = claims.get("iss").is_some_and(|issuer| known(&self.issuers, issuer));
        if !issued && !self.issuers.is_empty() {
            return Err(BadCredential::WrongIssuer);
        }
        let meant = claims.get("aud").is_some_and(|audience| match audience {
            Value::Array(several) => several.iter().any(|one| known(&self.audiences, one)),
            one => known(&self.audiences, one),
        });
        if !meant && !self.audiences.is_empty() {
            return Err(BadCredential::WrongAudience);
        }
        Ok(())
    }

    fn good_now(&self, verified: &Verified) -> Result<(), BadCredential> {
        let now = self.clock.now().as_micros() as f64 / 1e6;
        if now >= verified.expires + self.leeway {
            return Err(BadCredential::Expired);
        }
        if verified.not_before.is_some_and(|from| now < from - self.leeway) {
            return Err(BadCredential::TooEarly);
        }
        Ok(())
    }
}

/// The token of an `Authorization`; `None` for another scheme. A malformed `Bearer` is an error and not
/// another scheme: a more lenient service might accept a token that was never checked here.
fn bearer(value: &[u8]) -> Result<Option<&[u8]>, BadCredential> {
    const SCHEME: &[u8] = b"Bearer";
    let Some((scheme, rest)) = value.split_at_checked(SCHEME.len()) else { return Ok(None) };
    if !scheme.eq_ignore_ascii_case(SCHEME) {
        return Ok(None);
    }
    match rest.first() {
        Some(b' ' | b'\t') => Ok(Some(rest.trim_ascii())),
        _ => Err(BadCredential::Malformed),
    }
}

/// Decodes one part of a token.
fn part<T: for<'de> Deserialize<'de>>(encoded: &str) -> Result<T, BadCredential> {
    let bytes = BASE64URL_NOPAD.decode(encoded.as_bytes()).map_err(|_| BadCredential::Malformed)?;
    serde_json::from_slice(&bytes).map_err(|_| BadCredential::Malformed)
}

/// Prints nothing of the keys or of callers.
impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens")
            .field("keys", &self.verifiers)
            .field("issuers", &self.issuers)
            .field("audiences", &self.audiences)
            .field("leeway", &self.leeway)
            .field("consumer", &self.consumer)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for BadTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKey => f.write_str("there is no key to verify tokens with"),
            Self::TooManyKeys { count } => {
                write!(f, "there are {count} keys; at most {} are allowed", Tokens::MOST_KEYS)
            }
            Self::Key { index, error } => write!(f, "key {}: {error}", index + 1),
        }
    }
}

impl std::error::Error for BadTokens {}
