//! The written form of the section `gateway`.

use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::Named;
use super::forms::{CountWhen, StatusText, read_forms};

/// The reverse proxy: its listeners, upstreams, routes and limits.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table with `listen`, `upstreams` and `routes`")]
pub(in crate::config) struct Gateway {
    /// The addresses that clients connect to.
    pub(in crate::config) listen: Listeners,
    /// How many threads serve; by default one for each core.
    #[schemars(range(min = 1, max = 256))]
    pub(in crate::config) workers: Option<u64>,
    /// The servers that requests are forwarded to, by name.
    #[schemars(extend("propertyNames" = { "pattern": "^[a-z0-9_.-]{1,64}$" }))]
    pub(in crate::config) upstreams: Named<Upstream>,
    /// The routes by name: which requests go to which upstream, and their limits. The most specific one wins.
    #[schemars(extend("propertyNames" = { "pattern": "^[a-z0-9_.-]{1,64}$" }))]
    pub(in crate::config) routes: Named<Route>,
    /// The policy of each new connection, by the field `ip`; its limits are `at once for` some time. Its
    /// holds are released when the connection ends.
    #[schemars(regex(pattern = r"^[a-z0-9_.-]{1,64}$"))]
    pub(in crate::config) connections: Option<String>,
    /// What a client may send, and how long it may take.
    pub(in crate::config) bounds: Option<Bounds>,
    /// Which requests are logged: `all`, `off`, or a fraction, as in `1/100`; by default `off`.
    #[schemars(regex(pattern = r"^\s*(all|off|1\s*/\s*[1-9][0-9]*)\s*$"))]
    pub(in crate::config) access_log: Option<String>,
}

/// One listener, or a list of them.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(in crate::config) enum Listeners {
    One(Box<Listener>),
    Several(#[schemars(length(min = 1))] Vec<Listener>),
}

/// An address and a port, or a table with them and further settings.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(in crate::config) enum Listener {
    /// An address and a port, without TLS.
    Address(#[schemars(example = "0.0.0.0:8000")] String),
    Table(ListenerTable),
}

/// A listener with its settings.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table, as in `{ address: \"0.0.0.0:8443\", tls: { … } }`")]
#[schemars(inline)]
pub(in crate::config) struct ListenerTable {
    /// The address and port.
    #[schemars(example = "0.0.0.0:8443")]
    pub(in crate::config) address: String,
    /// The certificate; without it, the listener speaks plain HTTP.
    pub(in crate::config) tls: Option<ListenerTls>,
    /// Whether it also speaks HTTP/2; by default true.
    pub(in crate::config) http2: Option<bool>,
}

/// The certificate and key of a listener.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table, as in `{ certificate: cert.pem, key: key.pem }`")]
pub(in crate::config) struct ListenerTls {
    /// The file with its certificate chain, as PEM.
    #[schemars(example = "./cert.pem")]
    pub(in crate::config) certificate: String,
    /// The file with the key of the certificate, as PEM.
    #[schemars(example = "./key.pem")]
    pub(in crate::config) key: String,
}

/// One address, a list of them, or a table with them.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(in crate::config) enum Upstream {
    /// One server.
    Address(#[schemars(example = "127.0.0.1:9000")] String),
    /// Equivalent servers.
    Addresses(#[schemars(length(min = 1))] Vec<String>),
    Table(Box<UpstreamTable>),
}

/// An upstream with its settings.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(in crate::config) struct UpstreamTable {
    /// The addresses of its servers, which are used in turn. A name is resolved for each new connection.
    #[schemars(length(min = 1), example = ["10.0.0.1:80", "10.0.0.2:80"])]
    pub(in crate::config) addresses: Vec<String>,
    /// TLS to the upstream, and its certificate authorities; by default plain HTTP.
    pub(in crate::config) tls: Option<UpstreamTls>,
    /// Whether to use HTTP/2, as gRPC needs; by default HTTP/1.1.
    pub(in crate::config) http2: Option<bool>,
    /// The `Host` header for the upstream: `client` for the client's, `address` for the upstream's address,
    /// or a name; by default `client`.
    pub(in crate::config) host: Option<String>,
    /// How long connecting may take; by default `5s`.
    #[schemars(example = "5s")]
    pub(in crate::config) connect_timeout: Option<String>,
    /// How long the head of a response may take; by default `60s`.
    #[schemars(example = "60s")]
    pub(in crate::config) response_timeout: Option<String>,
    /// How long a body may stall; by default `60s`.
    #[schemars(example = "60s")]
    pub(in crate::config) stall_timeout: Option<String>,
    /// How long an unused connection is kept; by default `60s`.
    #[schemars(example = "60s")]
    pub(in crate::config) idle_timeout: Option<String>,
    /// How many unused connections each worker keeps for each address; by default 64.
    #[schemars(range(min = 0, max = 65536))]
    pub(in crate::config) most_idle: Option<u64>,
    /// After how many consecutive failures an address is not used for a while; by default 3.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(in crate::config) fails: Option<u64>,
    /// For how long it is not used; by default `10s`.
    #[schemars(example = "10s")]
    pub(in crate::config) out_for: Option<String>,
    /// Whether a request is sent to another address if it cannot have reached the first, and a safe request
    /// again if a connection closed without an answer; by default true.
    pub(in crate::config) retry: Option<bool>,
}

/// The TLS settings of upstreams.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a table, as in `{ ca: ca.pem }`; `{}` trusts the certificate authorities of the system"
)]
pub(in crate::config) struct UpstreamTls {
    /// The PEM file with the certificate authorities; by default those of the system.
    pub(in crate::config) ca: Option<String>,
    /// The name in their certificate, if it is not the host of their address.
    pub(in crate::config) server_name: Option<String>,
    /// The PEM file with the certificate that they ask clients for; by default none.
    pub(in crate::config) certificate: Option<String>,
    /// The PEM file with the private key of `certificate`.
    pub(in crate::config) key: Option<String>,
}

/// Which requests go to which upstream, and their limits.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table, as in `{ path: /api/*, upstream: shop, policy: api }`")]
pub(in crate::config) struct Route {
    /// The hosts, as in `api.example.com` or `*.example.com`; by default all.
    pub(in crate::config) host: Option<Texts>,
    /// The paths: `/a` is only that path, `/a/*` also everything below it, and `{id}` is one
    /// segment; by default all.
    pub(in crate::config) path: Option<Texts>,
    /// The methods; by default all.
    pub(in crate::config) method: Option<Texts>,
    /// The headers that a request must have, by name; `true` is any value.
    pub(in crate::config) headers: Option<Named<HeaderForm>>,
    /// The upstream of its requests.
    pub(in crate::config) upstream: String,
    /// The policy of its requests; without, they are not limited.
    #[schemars(regex(pattern = r"^[a-z0-9_.-]{1,64}$"))]
    pub(in crate::config) policy: Option<String>,
    /// The guard for its requests if they are logins, in addition to the policy.
    pub(in crate::config) guard: Option<RouteGuard>,
    /// A prefix of the path that is removed for the upstream.
    #[schemars(example = "/api")]
    pub(in crate::config) strip_prefix: Option<String>,
    /// A prefix that is then added to the path for the upstream.
    #[schemars(example = "/v1")]
    pub(in crate::config) add_prefix: Option<String>,
    /// How long the head of a response may take; by default as the upstream has it.
    #[schemars(example = "5s")]
    pub(in crate::config) response_timeout: Option<String>,
    /// The longest body of a request, in bytes; by default that of `bounds`.
    pub(in crate::config) body_bytes: Option<u64>,
}

/// A guard, the fields of its requests, and the meaning of their responses.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a table, as in `{ name: login, fields: { user: form.user }, success: 303 }`"
)]
#[schemars(inline)]
pub(in crate::config) struct RouteGuard {
    /// Its name.
    #[schemars(regex(pattern = r"^[a-z0-9_.-]{1,64}$"))]
    pub(in crate::config) name: String,
    /// The sources of its policy's fields, if their names are not sources: those allowed in `clients.fields`,
    /// and `form.NAME` and `json.NAME` for a member of the body.
    #[schemars(example = serde_json::json!({ "user": "form.user" }))]
    pub(in crate::config) fields: Option<Named<String>>,
    /// The responses of a successful login: statuses, or a table. Every other response
    /// counts as a failure.
    #[schemars(required)]
    pub(in crate::config) success: Option<SuccessForm>,
    /// The statuses that mean that no password was checked: the attempt is refunded; by default
    /// none.
    pub(in crate::config) neutral: Option<CountWhen>,
    /// Whether to accept a login that a page of another site sends; by default false.
    pub(in crate::config) cross_site: Option<bool>,
    /// The longest delay of a login, or `none`; by default `5s`. A login that needs a longer delay is denied.
    #[schemars(example = "5s")]
    pub(in crate::config) max_delay: Option<String>,
}

/// Statuses, or a table.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(in crate::config) enum SuccessForm {
    Statuses(CountWhen),
    Table(Box<SuccessTable>),
}

/// The response to a successful login; all conditions must hold.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table, as in `{ status: 303, cookie: session }`")]
#[schemars(inline)]
pub(in crate::config) struct SuccessTable {
    /// Its status; by default `[2xx, 3xx]` beside a `header` or a `cookie`.
    pub(in crate::config) status: Option<CountWhen>,
    /// Headers that it must have, each with a value, or `true` for any.
    #[schemars(example = serde_json::json!({ "location": "/home" }))]
    pub(in crate::config) header: Option<Named<HeaderForm>>,
    /// The cookie that it must set.
    #[schemars(regex(pattern = r"^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$"))]
    pub(in crate::config) cookie: Option<String>,
    /// The methods of requests that can succeed; by default `POST`.
    #[schemars(example = &"POST")]
    pub(in crate::config) method: Option<Texts>,
    /// The paths of requests that can succeed; by default those of the route. For a path that ends in `/*`,
    /// pages below it do not count.
    #[schemars(example = "/login")]
    pub(in crate::config) path: Option<Texts>,
}

/// One text, or a list of them.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(in crate::config) enum Texts {
    One(String),
    Several(#[schemars(length(min = 1))] Vec<String>),
}

/// A header's value, or `true` for any.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(in crate::config) enum HeaderForm {
    Value(String),
    Present(bool),
}

/// What a client may send, and how long it may take.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table, as in `{ head_timeout: 10s, body_bytes: 10_485_760 }`")]
pub(in crate::config) struct Bounds {
    /// The longest head of a request, in bytes; by default 32768.
    #[schemars(range(min = 8192, max = 1_048_576))]
    pub(in crate::config) head_bytes: Option<u64>,
    /// The most header lines; by default 100.
    #[schemars(range(min = 1, max = 1000))]
    pub(in crate::config) head_lines: Option<u64>,
    /// The longest body of a request, in bytes; by default any.
    pub(in crate::config) body_bytes: Option<u64>,
    /// How long a client may take to send a head; by default `10s`.
    #[schemars(example = "10s")]
    pub(in crate::config) head_timeout: Option<String>,
    /// How long an idle connection stays open; by default `75s`.
    #[schemars(example = "75s")]
    pub(in crate::config) idle_timeout: Option<String>,
    /// How long a body may stall; by default `30s`.
    #[schemars(example = "30s")]
    pub(in crate::config) stall_timeout: Option<String>,
    /// How many connections each worker serves at once; by default 20000.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(in crate::config) connections: Option<u64>,
    /// How many of them may be WebSockets and other upgrades; by default 10000.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub(in crate::config) tunnels: Option<u64>,
    /// How long one of those may be idle; by default `1h`.
    #[schemars(example = "1h")]
    pub(in crate::config) tunnel_timeout: Option<String>,
    /// How many requests one HTTP/2 connection may have open at once; by default 128.
    #[schemars(range(min = 1, max = 10_000))]
    pub(in crate::config) streams: Option<u64>,
}

impl Texts {
    pub(in crate::config) fn as_slice(&self) -> &[String] {
        match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::Several(texts) => texts,
        }
    }
}

read_forms!(Listeners, "an address and a port, a table, or a list of them", {
    word => |text| Listeners::One(Box::new(Listener::Address(text))),
    table => |table| Listeners::One(Box::new(Listener::Table(table))),
    list => Listeners::Several,
});
read_forms!(Listener, "an address and a port, or a table, as in `{ address: \"0.0.0.0:8443\", tls: { … } }`", {
    word => Listener::Address,
    table => Listener::Table,
});
read_forms!(Upstream, "an address, a list of addresses, or a table with `addresses`", {
    word => Upstream::Address,
    list => Upstream::Addresses,
    table => |table| Upstream::Table(Box::new(table)),
});
read_forms!(SuccessForm, "statuses, as in `303`, or a table, as in `{ status: 303, cookie: session }`", {
    word => |text| SuccessForm::Statuses(CountWhen::One(StatusText(text))),
    number => |text| SuccessForm::Statuses(CountWhen::One(StatusText(text))),
    list => |list| SuccessForm::Statuses(CountWhen::Several(list)),
    table => |table| SuccessForm::Table(Box::new(table)),
});
read_forms!(Texts, "a text, or a list of texts", { word => Texts::One, list => Texts::Several });
read_forms!(HeaderForm, "a text, or `true` for any value", {
    word => HeaderForm::Value,
    flag => HeaderForm::Present,
});
