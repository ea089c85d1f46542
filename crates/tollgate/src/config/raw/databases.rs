//! Databases of the application, and the rows that rules count in them.

use schemars::JsonSchema;
use serde::Deserialize;

/// A database of the application, in PostgreSQL. Exactly one of `url`, `url_env` and `url_file` must be set.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table, as in `{ url_env: SHOP_DATABASE_URL }`")]
pub(in crate::config) struct Database {
    /// Its address.
    #[schemars(
        regex(pattern = r"^postgres(ql)?://.+"),
        example = "postgres://tollgate_reader@localhost/shop"
    )]
    pub(in crate::config) url: Option<String>,
    /// The environment variable that holds its address.
    #[schemars(example = &"SHOP_DATABASE_URL")]
    pub(in crate::config) url_env: Option<String>,
    /// The file that holds its address.
    pub(in crate::config) url_file: Option<String>,
    /// The user that the server knows, if the address names none.
    pub(in crate::config) user: Option<String>,
    /// The environment variable that holds the password, if the address has none.
    pub(in crate::config) password_env: Option<String>,
    /// The file that holds the password, if the address has none.
    pub(in crate::config) password_file: Option<String>,
    /// How long connecting may take; by default `1s`.
    #[schemars(example = "1s")]
    pub(in crate::config) connect_timeout: Option<String>,
    /// How many connections; by default 4.
    #[schemars(range(min = 1, max = 64))]
    pub(in crate::config) connections: Option<u64>,
    /// The PEM file with the certificate authorities for the server; by default those of the system.
    pub(in crate::config) tls_ca: Option<String>,
    /// The PEM file with the certificate that the server asks clients for; by default none.
    pub(in crate::config) tls_certificate: Option<String>,
    /// The PEM file with the private key of `tls_certificate`.
    pub(in crate::config) tls_key: Option<String>,
    /// Accept any certificate of the server; by default false.
    pub(in crate::config) tls_insecure: Option<bool>,
}

/// Rows that a rule counts, and how many there may be.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a table, as in `{ in: shop, query: SELECT count(*) FROM deals WHERE advertiser = $1, at_most: 10 }`"
)]
pub(in crate::config) struct CountRows {
    /// The database they are in, one of `databases`.
    #[serde(rename = "in")]
    pub(in crate::config) database: String,
    /// The query that counts them. It selects one whole number. `$1` is the value of the first field of `by`,
    /// `$2` that of the second.
    #[schemars(length(min = 1, max = 10_000))]
    pub(in crate::config) query: String,
    /// How many rows there may be.
    #[schemars(range(min = 1))]
    pub(in crate::config) at_most: u64,
    /// How long an allowed attempt reserves its place, unless it is confirmed or refunded before; `30s` unless
    /// said otherwise. It must be longer than the application takes to commit.
    #[schemars(example = "30s")]
    pub(in crate::config) reserve: Option<String>,
    /// How long a count may be used again to deny attempts; by default `0s`, not at all.
    #[schemars(example = "1s")]
    pub(in crate::config) cache: Option<String>,
    /// How long counting may take; by default `250ms`.
    #[schemars(example = "250ms")]
    pub(in crate::config) timeout: Option<String>,
}
