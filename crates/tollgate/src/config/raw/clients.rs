//! The written form of the sections `clients` and `answers`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::Named;
use super::gateway::Texts;

/// How the gateway and forward-auth identify clients.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table, as in `{ trusted_proxies: [10.0.0.0/8] }`")]
pub(in crate::config) struct Clients {
    /// The proxies that may state the client's address, as addresses or networks. By default none, and the
    /// client is the peer that connects.
    pub(in crate::config) trusted_proxies: Option<Texts>,
    /// The header with the client's address: `x-forwarded-for`, `forwarded`, or another that holds
    /// an address; by default `x-forwarded-for`.
    #[schemars(example = &"x-real-ip")]
    pub(in crate::config) address_header: Option<String>,
    /// Aliases of fields, as in `{ user: subject, tenant: header.x-tenant }`.
    pub(in crate::config) fields: Option<Named<String>>,
    /// The API keys that clients may send.
    pub(in crate::config) api_keys: Option<ApiKeys>,
    /// The tokens (JWT) that clients may send, as `Authorization: Bearer …`.
    pub(in crate::config) tokens: Option<Tokens>,
}

/// The API keys that clients may send.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table, as in `{ header: x-api-key, keys: [ … ] }`")]
pub(in crate::config) struct ApiKeys {
    /// The header with the API key; by default `x-api-key`.
    #[schemars(example = &"x-api-key")]
    pub(in crate::config) header: Option<String>,
    /// The keys.
    pub(in crate::config) keys: Vec<ClientKey>,
}

/// A key of a client. Exactly one of `token_env`, `token_file` and `token_sha256` must be set.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table with `name` and where the key is")]
pub(in crate::config) struct ClientKey {
    /// Its name: the field `api_key` of rules.
    #[schemars(regex(pattern = r"^[a-z0-9_.-]{1,64}$"))]
    pub(in crate::config) name: String,
    /// Its owner: the field `consumer` of rules.
    pub(in crate::config) consumer: Option<String>,
    /// The environment variable that holds the key, of at least 16 characters.
    pub(in crate::config) token_env: Option<String>,
    /// The file that holds the key, of at least 16 characters.
    pub(in crate::config) token_file: Option<String>,
    /// The SHA-256 hash of the key, in hexadecimal.
    #[schemars(regex(pattern = r"^[0-9a-fA-F]{64}$"))]
    pub(in crate::config) token_sha256: Option<String>,
}

/// Which tokens are accepted. At least one of the first four settings is required, to verify them.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table, as in `{ jwks_file: ./jwks.json }`")]
pub(in crate::config) struct Tokens {
    /// The environment variable with the shared secret, of at least 32 bytes.
    pub(in crate::config) secret_env: Option<String>,
    /// The file with the shared secret, of at least 32 bytes.
    pub(in crate::config) secret_file: Option<String>,
    /// The file with the public key that verifies them, as PEM.
    pub(in crate::config) key_file: Option<String>,
    /// The file with the set of public keys that verify them (JWKS).
    pub(in crate::config) jwks_file: Option<String>,
    /// The accepted issuers (`iss`); by default any.
    pub(in crate::config) issuer: Option<Texts>,
    /// The accepted audiences (`aud`); by default any.
    pub(in crate::config) audience: Option<Texts>,
    /// How far clocks may differ; by default `60s`.
    #[schemars(example = "60s")]
    pub(in crate::config) leeway: Option<String>,
    /// The claim that names the consumer; by default `sub`.
    pub(in crate::config) consumer: Option<String>,
}

/// How the gateway and forward-auth answer.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table, as in `{ title: Too Many Requests }`")]
pub(in crate::config) struct Answers {
    /// The media type of denials: `problem` for `application/problem+json`, `json` for
    /// `application/json`; by default `problem`.
    pub(in crate::config) media: Option<Media>,
    /// The `type` of denials: a URI.
    #[schemars(example = &"https://api.example.com/errors/rate-limit-exceeded")]
    pub(in crate::config) r#type: Option<String>,
    /// The `title` of denials.
    pub(in crate::config) title: Option<String>,
    /// The `detail` of denials: a sentence with placeholders.
    #[schemars(example = &"Rate limit exceeded. Try again in {retry_after} seconds.")]
    pub(in crate::config) detail: Option<String>,
    /// The whole body of denials: JSON with placeholders.
    pub(in crate::config) body: Option<String>,
    /// The rate-limit headers: `x-ratelimit`, `ietf`, a list of both, or `none`;
    /// by default `x-ratelimit`.
    pub(in crate::config) headers: Option<Texts>,
    /// Whether scripts of other origins may read these headers (CORS); by default false.
    pub(in crate::config) expose: Option<bool>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(in crate::config) enum Media {
    Problem,
    Json,
}
