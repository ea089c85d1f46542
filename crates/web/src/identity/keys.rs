//! Keys that verify tokens. The kind of a key determines its algorithms. A token chooses among these and can
//! never add to them.

use std::fmt;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde_json::Value;

/// A configured key.
#[derive(Clone)]
pub enum TokenKey {
    /// A shared secret: HS256, HS384 and HS512.
    Secret(Vec<u8>),
    /// A public key in PEM: RSA (RS and PS), P-256 and P-384 (ES256, ES384), or Ed25519 (EdDSA).
    Pem(String),
    /// A set of keys (RFC 7517), the text of a JWKS file.
    Jwks(String),
}

/// A key that cannot be used. The fault of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadTokenKey {
    /// A secret is too short.
    ShortSecret {
        /// The length of the secret.
        bytes: usize,
    },
    /// A private key must not be configured.
    Private,
    /// A text is not the PEM of a public key.
    NotPem,
    /// A text is not a set of keys.
    NotJwks {
        /// The line of the error.
        line: usize,
    },
    /// No key of a set can verify signatures.
    NoneUsable {
        /// The number of keys in the set.
        count: usize,
    },
}

/// A key that is ready to verify.
pub(super) struct Verifier {
    /// Its key id, if it has one.
    pub(super) id: Option<String>,
    algorithms: &'static [Algorithm],
    key: DecodingKey,
}

const HMAC: &[Algorithm] = &[Algorithm::HS256, Algorithm::HS384, Algorithm::HS512];
const RSA: &[Algorithm] = &[
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
];
const EC: &[Algorithm] = &[Algorithm::ES256, Algorithm::ES384];
const ED: &[Algorithm] = &[Algorithm::EdDSA];

/// The shortest secret, in bytes: the length of an HMAC-SHA-256 (RFC 7518, section 3.2).
const LEAST_SECRET_BYTES: usize = 32;

impl TokenKey {
    /// The verifiers: one key, or the usable ones of a set.
    pub(super) fn verifiers(&self) -> Result<Vec<Verifier>, BadTokenKey> {
        match self {
            Self::Secret(secret) if secret.len() < LEAST_SECRET_BYTES => {
                Err(BadTokenKey::ShortSecret { bytes: secret.len() })
            }
            Self::Secret(secret) => Ok(vec![Verifier::new(HMAC, DecodingKey::from_secret(secret))]),
            Self::Pem(text) => pem(text).map(|verifier| vec![verifier]),
            Self::Jwks(text) => jwks(text),
        }
    }
}

impl Verifier {
    fn new(algorithms: &'static [Algorithm], key: DecodingKey) -> Self {
        Self { id: None, algorithms, key }
    }

    /// Whether it may be used with this algorithm.
    pub(super) fn allows(&self, algorithm: Algorithm) -> bool {
        self.algorithms.contains(&algorithm)
    }

    /// Whether the signature of this message is valid. The key must allow the algorithm.
    pub(super) fn made(&self, signature: &str, message: &[u8], algorithm: Algorithm) -> bool {
        debug_assert!(self.allows(algorithm), "the caller has checked the algorithm");
        jsonwebtoken::crypto::verify(signature, message, &self.key, algorithm).unwrap_or(false)
    }
}

fn pem(text: &str) -> Result<Verifier, BadTokenKey> {
    if text.contains("PRIVATE KEY-----") {
        return Err(BadTokenKey::Private);
    }
    // Keys inside certificates are not supported.
    if text.contains("CERTIFICATE-----") {
        return Err(BadTokenKey::NotPem);
    }
    let bytes = text.as_bytes();
    let rsa = || DecodingKey::from_rsa_pem(bytes).map(|key| Verifier::new(RSA, key));
    let ec = |_| DecodingKey::from_ec_pem(bytes).map(|key| Verifier::new(EC, key));
    let ed = |_| DecodingKey::from_ed_pem(bytes).map(|key| Verifier::new(ED, key));
    rsa().or_else(ec).or_else(ed).map_err(|_| BadTokenKey::NotPem)
}

#[derive(Deserialize)]
struct Set {
    keys: Vec<Value>,
}

fn jwks(text: &str) -> Result<Vec<Verifier>, BadTokenKey> {
    // The error's text could show part of a key.
    let set: Set = serde_json::from_str(text).map_err(|error| BadTokenKey::NotJwks { line: error.line() })?;
    let count = set.keys.len();
    // Keys of an unknown kind are skipped (RFC 7517, section 5).
    let mut verifiers = Vec::new();
    for key in set.keys {
        let Ok(jwk) = serde_json::from_value::<Jwk>(key) else { continue };
        verifiers.extend(jwk_verifier(&jwk)?);
    }
    if verifiers.is_empty() { Err(BadTokenKey::NoneUsable { count }) } else { Ok(verifiers) }
}

/// The verifier of a key of a set; `None` if the key is for another use.
fn jwk_verifier(jwk: &Jwk) -> Result<Option<Verifier>, BadTokenKey> {
    let by_kind = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => RSA,
        AlgorithmParameters::EllipticCurve(params) => match params.curve {
            EllipticCurve::P256 => &EC[..1],
            EllipticCurve::P384 => &EC[1..],
            EllipticCurve::P521 | EllipticCurve::Ed25519 => return Ok(None),
        },
        AlgorithmParameters::OctetKeyPair(params) if params.curve == EllipticCurve::Ed25519 => ED,
        AlgorithmParameters::OctetKeyPair(_) => return Ok(None),
        AlgorithmParameters::OctetKey(_) => HMAC,
    };
    let algorithms = match jwk.common.key_algorithm {
        None => by_kind,
        Some(named) => {
            let named = named.to_string();
            let at = by_kind.iter().position(|algorithm| format!("{algorithm:?}") == named);
            let Some(at) = at else { return Ok(None) };
            &by_kind[at..=at]
        }
    };
    let for_signatures = matches!(jwk.common.public_key_use, None | Some(PublicKeyUse::Signature));
    let (true, Ok(key)) = (for_signatures, DecodingKey::from_jwk(jwk)) else { return Ok(None) };
    if let AlgorithmParameters::OctetKey(params) = &jwk.algorithm {
        // Four characters stand for three bytes.
        let bytes = params.value.len() * 3 / 4;
        if bytes < LEAST_SECRET_BYTES {
            return Err(BadTokenKey::ShortSecret { bytes });
        }
    }
    Ok(Some(Verifier { id: jwk.common.key_id.clone(), algorithms, key }))
}

/// Prints the kind of key, and nothing of the key.
impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Secret(_) => "Secret(***)",
            Self::Pem(_) => "Pem(***)",
            Self::Jwks(_) => "Jwks(***)",
        })
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, algorithms, key: _ } = self;
        f.debug_struct("Verifier").field("id", id).field("algorithms", algorithms).finish_non_exhaustive()
    }
}

impl fmt::Display for BadTokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ShortSecret { bytes } => write!(
                f,
                "a secret of {bytes} bytes can be guessed; it needs at least {LEAST_SECRET_BYTES}, as `openssl rand -base64 48` gives"
            ),
            Self::Private => f.write_str(
                "this is a private key, which only the issuer of tokens needs; `openssl pkey -in KEY -pubout` gives the public one",
            ),
            Self::NotPem => f.write_str(
                "this is not a public key in PEM (`-----BEGIN PUBLIC KEY-----`) of RSA, P-256, P-384 or Ed25519; `openssl x509 -in CERTIFICATE -pubkey -noout` takes it out of a certificate",
            ),
            Self::NotJwks { line } => {
                write!(f, "this is not a set of keys (`{{\"keys\": […]}}`); it goes wrong in line {line}")
            }
            Self::NoneUsable { count: 0 } => f.write_str("there is no key in this set"),
            Self::NoneUsable { count } => {
                write!(f, "none of the {count} keys of this set can verify signatures (RS, PS, ES256, ES384, EdDSA, HS)")
            }
        }
    }
}

impl std::error::Error for BadTokenKey {}
