//! The settings of a gateway: plain values, which the program makes from its configuration.
//!
//! No default is filled in later: the caller sets every value, and may start from the `default` functions.
//! Relations between settings, such as the name of a route's upstream, are checked when a gateway is made of
//! them.

mod address;
mod guard;
mod pattern;

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method};
use tollgate_remote::Identity;
use tollgate_web::{Aliases, Answers, Credentials, TrustedProxies};

pub use address::{Address, BadAddress};
pub use guard::{CrossSite, GuardSettings, Success};
pub(crate) use pattern::Segment;
pub use pattern::{BadPattern, HostPattern, PathPattern};

/// All settings of a gateway.
///
/// A running gateway accepts other settings. All of them take effect, except for the listeners and the number
/// of workers, which need a restart.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The addresses that it listens on.
    pub listeners: Vec<ListenerSettings>,
    /// The number of threads that serve. Each has its own connections on both sides, and shares only the
    /// counters with the others.
    pub workers: NonZeroUsize,
    /// The servers that it forwards requests to.
    pub upstreams: Vec<UpstreamSettings>,
    /// The routes. Their order matters only between equally specific ones.
    pub routes: Vec<RouteSettings>,
    /// The policy for each new connection, by the field `ip` alone. Its hold is released when the connection
    /// ends.
    pub connections: Option<Arc<str>>,
    /// Bounds and time-outs for clients.
    pub bounds: Bounds,
    /// The requests that the access log shows.
    pub access_log: AccessLog,
    /// The proxies in front of the gateway that may state the client's address.
    pub trusted_proxies: TrustedProxies,
    /// Configured names for parts of requests, which rules may use as fields.
    pub aliases: Aliases,
    /// The accepted API keys and tokens.
    pub credentials: Arc<Credentials>,
    /// How decisions are written in responses.
    pub answers: Answers,
}

/// One address at which clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerSettings {
    /// The address; port 0 means a free one.
    pub address: SocketAddr,
    /// Its certificate and key. Without, it speaks plain HTTP.
    pub tls: Option<TlsSettings>,
    /// Whether it also speaks HTTP/2: by ALPN with TLS, by the client's first bytes without.
    pub http2: bool,
}

/// The certificate and key of a listener.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsSettings {
    /// The certificate chain, as PEM.
    pub certificates: Vec<u8>,
    /// The key of the first certificate, as PEM.
    pub key: Vec<u8>,
}

/// A group of equivalent servers.
///
/// # Defaults
/// [`UpstreamSettings::new`] sets the default that each field states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamSettings {
    /// Its name, for routes and metrics.
    pub name: Arc<str>,
    /// The addresses, which are used in turn.
    pub addresses: Vec<Address>,
    /// How server certificates are verified. Without, plain HTTP is spoken. Default: plain.
    pub tls: Option<UpstreamTls>,
    /// The protocol. Default: HTTP/1.1.
    pub protocol: Protocol,
    /// The `Host` that they get. Default: the client's.
    pub host: HostHeader,
    /// How long it may take to establish a connection, TLS included. Default: 5 s.
    pub connect_timeout: Duration,
    /// How long the head of a response may take after the whole request was sent. Default: 60 s.
    pub response_timeout: Duration,
    /// How long the upstream may neither send nor accept any byte of a body. Default: 60 s.
    pub stall_timeout: Duration,
    /// How long an idle connection is kept. Default: 60 s.
    pub idle_timeout: Duration,
    /// How many idle connections each worker keeps for each address. Default: 64.
    pub most_idle: usize,
    /// When a failing address is left out.
    pub health: Health,
    /// Whether a request is retried at another address if the first cannot be connected to, and so nothing
    /// was sent. A safe request is also retried if a reused connection closed without an answer. Default:
    /// yes.
    pub retry: bool,
}

/// How the certificates of upstreams are verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamTls {
    /// Certificates of authorities, as PEM, which are trusted instead of the system's.
    pub authorities: Option<Vec<u8>>,
    /// The name that the certificate must have, if it is not the host of the address.
    pub server_name: Option<String>,
    /// The certificate that the gateway shows if the upstream asks for one.
    pub identity: Option<Identity>,
}

/// The protocol of an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2: by ALPN with TLS, else from the first byte on.
    Http2,
}

/// The `Host` that an upstream gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HostHeader {
    /// The client's.
    #[default]
    Client,
    /// The address of the upstream.
    Address,
    /// This value.
    Fixed(HeaderValue),
}

/// When a failing address is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// After this many failures in a row: it could not be connected to, or did not answer in time.
    pub fails: NonZeroU32,
    /// For this long. Then one request tries it again.
    pub out_for: Duration,
}

/// A route: which requests it matches, and what applies to them.
#[derive(Clone, Debug)]
pub struct RouteSettings {
    /// Its name, which is the field `route` of rules and a label of metrics.
    pub name: Arc<str>,
    /// The hosts that it matches; none means all.
    pub hosts: Vec<HostPattern>,
    /// The paths that it matches; none means all.
    pub paths: Vec<PathPattern>,
    /// The methods that it matches; none means all.
    pub methods: Vec<Method>,
    /// Headers that a request must have, all of them.
    pub headers: Vec<HeaderMatch>,
    /// The upstream's name.
    pub upstream: Arc<str>,
    /// The policy of its requests, unless the API assigned another one. Without a policy its requests are not
    /// limited.
    pub policy: Option<Arc<str>>,
    /// The guard of its requests, beside the policy: they are logins.
    pub guard: Option<GuardSettings>,
    /// How the path is rewritten for the upstream.
    pub rewrite: Option<Rewrite>,
    /// Overrides the upstream's.
    pub response_timeout: Option<Duration>,
    /// Overrides the bound for all routes.
    pub body_bytes: Option<u64>,
}

/// A header that a request must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderMatch {
    /// Its name.
    pub name: HeaderName,
    /// The exact value of one of its lines; `None` accepts any.
    pub value: Option<HeaderValue>,
}

/// Replaces the start of a path for the upstream.
///
/// A path is left alone unless whole segments of it match the prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewrite {
    /// The prefix to remove: `/api`.
    pub prefix: Box<str>,
    /// What replaces it: `/v1`, or nothing.
    pub replacement: Box<str>,
}

/// Bounds and time-outs for clients. Times have a resolution of a tenth of a second.
///
/// # Defaults
/// Each field states its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The longest head of a request, in bytes. Default: 32 KiB.
    pub head_bytes: usize,
    /// The most header lines. Default: 100.
    pub head_lines: usize,
    /// The longest body of a request, in bytes. Default: none.
    pub body_bytes: Option<u64>,
    /// How long a client may take for a head and for the TLS handshake. Default: 10 s.
    pub head_timeout: Duration,
    /// How long an idle connection stays open. Default: 75 s.
    pub idle_timeout: Duration,
    /// How long the client may neither send nor accept any byte of a body. Default: 30 s.
    pub stall_timeout: Duration,
    /// How many connections each worker serves at once. Further ones wait to be accepted. Default: 20 000.
    pub connections: usize,
    /// How many of them may be tunnels: WebSockets and other upgrades. Default: 10 000.
    pub tunnels: usize,
    /// How long a tunnel may be idle. Default: 1 h.
    pub tunnel_timeout: Duration,
    /// How many requests one HTTP/2 connection may have open at once. Default: 128.
    pub streams: u32,
}

/// The requests that the access log shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessLog {
    /// None.
    #[default]
    Off,
    /// One in this many, chosen at random; 1 means all.
    OneIn(NonZeroU32),
}

impl UpstreamSettings {
    /// Plain HTTP/1.1 to these addresses, with the defaults.
    pub fn new(name: impl Into<Arc<str>>, addresses: Vec<Address>) -> Self {
        Self {
            name: name.into(),
            addresses,
            tls: None,
            protocol: Protocol::Http1,
            host: HostHeader::Client,
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(60),
            stall_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(60),
            most_idle: 64,
            health: Health::default(),
            retry: true,
        }
    }
}

/// Three failures, ten seconds.
impl Default for Health {
    fn default() -> Self {
        Self { fails: NonZeroU32::new(3).expect("3 is not 0"), out_for: Duration::from_secs(10) }
    }
}

impl RouteSettings {
    /// A route for every request, without a limit.
    pub fn new(name: impl Into<Arc<str>>, upstream: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            hosts: Vec::new(),
            paths: Vec::new(),
            methods: Vec::new(),
            headers: Vec::new(),
            upstream: upstream.into(),
            policy: None,
            guard: None,
            rewrite: None,
            response_timeout: None,
            body_bytes: None,
        }
    }
}

impl Bounds {
    /// The upper bound of `head_bytes`.
    pub const MOST_HEAD_BYTES: usize = crate::h1::lines::MOST_BYTES;
    /// The upper bound of `head_lines`.
    pub const MOST_HEAD_LINES: usize = crate::h1::lines::MOST_LINES;
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            head_bytes: 32 * 1024,
            head_lines: 100,
            body_bytes: None,
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            stall_timeout: Duration::from_secs(30),
            connections: 20_000,
            tunnels: 10_000,
            tunnel_timeout: Duration::from_secs(3_600),
            streams: 128,
        }
    }
}

/// Does not print the key.
impl std::fmt::Debug for TlsSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsSettings").field("key", &"***").finish_non_exhaustive()
    }
}
