//! What a gateway is told: plain values, which the program makes from its configuration.
//!
//! Nothing here has a default that is filled in later: whoever makes settings says everything, and
//! the `default` functions are there to start from. What only makes sense together, such as the name
//! of an upstream that a route passes to, is checked when a gateway is made of it.

mod address;
mod guard;
mod pattern;

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method};
use tollgate_web::{Aliases, Answers, Credentials, TrustedProxies};

pub use address::{Address, BadAddress};
pub use guard::{CrossSite, GuardSettings, Success};
pub(crate) use pattern::Segment;
pub use pattern::{BadPattern, HostPattern, PathPattern};

/// Everything a gateway is told.
///
/// A running gateway can be given other settings. All of it changes then, except for the listeners and
/// the number of workers, which stay as they are until the next start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where it listens.
    pub listeners: Vec<ListenerSettings>,
    /// How many threads serve. Each has its own connections on both sides, and shares nothing but the
    /// counters with the others.
    pub workers: NonZeroUsize,
    /// Whom it passes requests to.
    pub upstreams: Vec<UpstreamSettings>,
    /// Which requests go where. The order matters only between routes that are equally specific.
    pub routes: Vec<RouteSettings>,
    /// The policy that a connection passes as soon as it is open, by the field `ip` alone. What it
    /// holds is released when the connection ends.
    pub connections: Option<Arc<str>>,
    /// What a client may ask for, and how long it may take.
    pub bounds: Bounds,
    /// Which requests the access log shows.
    pub access_log: AccessLog,
    /// The proxies in front of the gateway, whose word on the client's address is taken.
    pub trusted_proxies: TrustedProxies,
    /// Names of our own for parts of requests, which rules may use as fields.
    pub aliases: Aliases,
    /// What clients prove who they are with.
    pub credentials: Arc<Credentials>,
    /// How decisions are said.
    pub answers: Answers,
}

/// One address at which clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerSettings {
    /// Where it listens; port 0 takes a free one.
    pub address: SocketAddr,
    /// What it proves its name with; without, it speaks plain HTTP.
    pub tls: Option<TlsSettings>,
    /// Whether it speaks HTTP/2 too: by ALPN with TLS, and to clients that begin with it without.
    pub http2: bool,
}

/// What a listener proves its name with.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsSettings {
    /// Its certificate and those that lead to the authority's, as PEM.
    pub certificates: Vec<u8>,
    /// The key of the first certificate, as PEM.
    pub key: Vec<u8>,
}

/// Servers that answer the same requests.
///
/// # Defaults
/// [`UpstreamSettings::new`] gives what is said at each setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamSettings {
    /// Its name: routes name it, and so do metrics.
    pub name: Arc<str>,
    /// Where they are; requests go round among them.
    pub addresses: Vec<Address>,
    /// How their names are verified; without, plain HTTP is spoken to them. Default: plain.
    pub tls: Option<UpstreamTls>,
    /// What is spoken to them. Default: HTTP/1.1.
    pub protocol: Protocol,
    /// Which `Host` they are sent. Default: the client's.
    pub host: HostHeader,
    /// How long a connection may take until it can be used, with TLS if there is any. Default: 5 s.
    pub connect_timeout: Duration,
    /// How long the head of a response may take, once all of the request was sent. Default: 60 s.
    pub response_timeout: Duration,
    /// How long nothing of a body may move, in either direction, on the side of the upstream.
    /// Default: 60 s.
    pub stall_timeout: Duration,
    /// How long a connection is kept that nobody uses. Default: 60 s.
    pub idle_timeout: Duration,
    /// How many connections nobody uses each worker keeps for each address. Default: 64.
    pub most_idle: usize,
    /// When an address is left out for a while.
    pub health: Health,
    /// Whether a request goes to another address when the first cannot be connected to, so that
    /// nothing of it was sent; and one that changes nothing is sent again when a connection that was
    /// used before closed without a word. Default: yes.
    pub retry: bool,
}

/// How the names of upstreams are verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamTls {
    /// Certificates of authorities, as PEM, to be trusted instead of the system's.
    pub authorities: Option<Vec<u8>>,
    /// The name to be proved, if it is not the host of the address.
    pub server_name: Option<String>,
}

/// What is spoken to upstreams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2: by ALPN with TLS, else from the first byte on.
    Http2,
}

/// Which `Host` upstreams are sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HostHeader {
    /// The one that the client sent.
    #[default]
    Client,
    /// The address of the upstream.
    Address,
    /// This one.
    Fixed(HeaderValue),
}

/// When an address is left out for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// After so many failures in a row: it could not be connected to, or did not answer in time.
    pub fails: NonZeroU32,
    /// For so long; then one request tries it again.
    pub out_for: Duration,
}

/// Which requests go where, and what holds for them.
#[derive(Clone, Debug)]
pub struct RouteSettings {
    /// Its name: the field `route` of rules, and the label of metrics.
    pub name: Arc<str>,
    /// The hosts it answers for; none means all.
    pub hosts: Vec<HostPattern>,
    /// The paths; none means all.
    pub paths: Vec<PathPattern>,
    /// The methods; none means all.
    pub methods: Vec<Method>,
    /// What else must be in the head: all of it.
    pub headers: Vec<HeaderMatch>,
    /// The upstream's name.
    pub upstream: Arc<str>,
    /// The policy that its requests pass, unless another one was assigned over the API. Requests of a
    /// route without policy are passed on untouched.
    pub policy: Option<Arc<str>>,
    /// The guard that its requests pass beside the policy: they are logins.
    pub guard: Option<GuardSettings>,
    /// How the path changes on its way to the upstream.
    pub rewrite: Option<Rewrite>,
    /// Overrules the upstream's.
    pub response_timeout: Option<Duration>,
    /// Overrules the bound for all.
    pub body_bytes: Option<u64>,
}

/// A header that a request must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderMatch {
    /// Its name.
    pub name: HeaderName,
    /// The exact value of one of its lines; without, any will do.
    pub value: Option<HeaderValue>,
}

/// How a path changes on its way to the upstream: what it begins with is replaced.
///
/// A path that does not begin with it, segment by segment, stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewrite {
    /// What is taken away: `/api`.
    pub prefix: Box<str>,
    /// What is put in its place: `/v1`, or nothing.
    pub replacement: Box<str>,
}

/// What a client may ask for, and how long it may take. Times are kept to a tenth of a second.
///
/// # Defaults
/// What is said at each setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The longest head of a request, in bytes. Default: 32 KiB.
    pub head_bytes: usize,
    /// The most header lines. Default: 100.
    pub head_lines: usize,
    /// The longest body of a request, in bytes. Default: none.
    pub body_bytes: Option<u64>,
    /// How long a client may take to send a head, and to agree on TLS. Default: 10 s.
    pub head_timeout: Duration,
    /// How long a connection stays open that asks nothing. Default: 75 s.
    pub idle_timeout: Duration,
    /// How long nothing of a body may move on the side of the client: it sends nothing, or reads
    /// nothing. Default: 30 s.
    pub stall_timeout: Duration,
    /// How many connections each worker serves at once; the next ones wait to be accepted.
    /// Default: 20 000.
    pub connections: usize,
    /// How many of them may be tunnels: WebSockets and other upgrades. Default: 10 000.
    pub tunnels: usize,
    /// How long nothing may move in a tunnel. Default: 1 h.
    pub tunnel_timeout: Duration,
    /// How many requests one HTTP/2 connection may have open at once. Default: 128.
    pub streams: u32,
}

/// Which requests the access log shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessLog {
    /// None.
    #[default]
    Off,
    /// One of so many, chosen at random; 1 is all.
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
    /// Every request, passed on untouched.
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
    /// The longest that the longest head may be, in bytes.
    pub const MOST_HEAD_BYTES: usize = crate::h1::lines::MOST_BYTES;
    /// The most that the most header lines may be.
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

/// Says nothing of the key.
impl std::fmt::Debug for TlsSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsSettings").field("key", &"***").finish_non_exhaustive()
    }
}
