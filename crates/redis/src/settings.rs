//! What a Redis or Valkey store is told: where it is, who asks, and how long that may take; and how
//! it is read from an address.
//!
//! | address | what is there |
//! | --- | --- |
//! | `redis://[user[:password]@]host[:port][/database]` | one server |
//! | `unix:/path[?db=database]`, `redis+unix://[user:password@]/path[?db=database]` | one server behind a socket |
//! | `redis+sentinel://[…@]host[:port],…/service[/database]` | the master that Sentinels know by this name |
//! | `redis+cluster://[…@]host[:port],…` | a Cluster, found through any of these nodes |
//!
//! `rediss` instead of `redis` is with TLS; `valkey` and `valkeys` mean the same. What would mean
//! something else in a user or a password is written as `%` and two digits. No error repeats what
//! may be a password.

mod error;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub use error::UrlError;

/// What a store in Redis or Valkey is told.
///
/// # Defaults
///
/// What an address leaves out: port 6379 (26379 for a Sentinel), database 0, keys that begin with
/// `tollgate`, one second to connect, 50 milliseconds for a command, two connections, and a look at
/// the server's health every ten seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where it is.
    pub topology: Topology,
    /// How it is encrypted, if it is.
    pub tls: Option<Tls>,
    /// Who asks; the server's default user if nobody is named.
    pub user: Option<String>,
    /// The password, if one is asked for.
    pub password: Option<Password>,
    /// Which of its databases.
    pub database: u32,
    /// What every key begins with, without the colon after it.
    pub prefix: String,
    /// What keys of secret rules are hashed with; the store's own secret if nothing is said. All who share
    /// the store say the same.
    pub key_secret: Option<Password>,
    /// How long making a connection may take.
    pub connect_timeout: Duration,
    /// How long a command may take.
    pub command_timeout: Duration,
    /// How often the server is asked for its health.
    pub health_check_interval: Duration,
    /// How many connections there are, to each server.
    pub connections: usize,
    /// The rules whose keys are tagged, each with its tag, so that a Cluster keeps them together.
    pub tags: HashMap<String, String>,
}

/// How the servers are arranged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// One server.
    Single(Address),
    /// A master that Sentinels know.
    Sentinel {
        /// Where the Sentinels are; at least one.
        sentinels: Vec<Address>,
        /// What they call the master.
        service: String,
    },
    /// A Cluster.
    Cluster {
        /// Where some of its nodes are; at least one.
        seeds: Vec<Address>,
    },
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// At a port of a host.
    Tcp {
        /// Its name or address, an IPv6 address without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// At a socket of this machine.
    Unix(PathBuf),
}

/// How a connection is encrypted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// The file with the authorities that vouch for the server; those of the system if there is none.
    pub authorities: Option<PathBuf>,
    /// Whether whoever answers is believed, without anybody vouching.
    pub unverified: bool,
}

/// A password, or another secret. It does not show itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(pub String);

/// What a scheme says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Single,
    Socket,
    Sentinel,
    Cluster,
}

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

impl Settings {
    /// The settings that an address stands for.
    ///
    /// # Errors
    ///
    /// If it is none. Nothing that may be a password is in the error.
    pub fn parse(url: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = url.split_once(':').ok_or(UrlError::NoScheme)?;
        let rest = match (rest.strip_prefix("//"), scheme) {
            (Some(rest), _) => rest,
            (None, "unix") => rest,
            (None, _) => return Err(UrlError::NoScheme),
        };
        let (shape, tls) = read_scheme(scheme)?;
        match shape {
            Shape::Socket if tls => Err(UrlError::TlsOnSocket),
            Shape::Socket => Self::of_socket(rest),
            _ => Self::of_network(rest, shape, tls),
        }
    }

    /// The defaults for servers that are arranged like this.
    #[must_use]
    pub fn new(topology: Topology) -> Self {
        Self {
            topology,
            tls: None,
            user: None,
            password: None,
            database: 0,
            prefix: "tollgate".to_owned(),
            key_secret: None,
            connect_timeout: Duration::from_secs(1),
            command_timeout: Duration::from_millis(50),
            health_check_interval: Duration::from_secs(10),
            connections: 2,
            tags: HashMap::new(),
        }
    }

    fn of_socket(rest: &str) -> Result<Self, UrlError> {
        let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
        // A path may have an `@` in it; what is before one that begins a path is a login.
        let (login, path) = match rest.split_once("@/") {
            Some((login, _)) if !rest.starts_with(['/', '.']) => (Some(login), &rest[login.len() + 1..]),
            _ => (None, rest),
        };
        if !path.starts_with(['/', '.']) {
            return Err(if path.is_empty() { UrlError::NoSocket } else { UrlError::HostOfSocket });
        }
        let mut settings = Self::new(Topology::Single(Address::Unix(decode(path)?.into())));
        settings.log_in(login)?;
        settings.database = read_query(query)?.unwrap_or(0);
        Ok(settings)
    }

    fn of_network(rest: &str, shape: Shape, tls: bool) -> Result<Self, UrlError> {
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at(end);
        // Then one of these was part of a password, and everything after it would be misread.
        if tail.contains('@') {
            return Err(UrlError::UnescapedLogin);
        }
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, authority),
        };
        let default = if shape == Shape::Sentinel { SENTINEL_PORT } else { PORT };
        let mut addresses = hosts
            .split(',')
            .map(|text| Address::read(text, default, login.is_some()))
            .collect::<Result<Vec<_>, _>>()?;
        if tail.contains('#') {
            return Err(UrlError::Fragment);
        }
        let (path, query) = tail.split_once('?').map_or((tail, None), |(path, query)| (path, Some(query)));
        let path = path.strip_prefix('/').unwrap_or("");
        let (topology, database) = match shape {
            Shape::Cluster => (Topology::Cluster { seeds: addresses }, path),
            Shape::Sentinel => {
                let (service, database) = path.split_once('/').unwrap_or((path, ""));
                let service = decode(service)?;
                if service.is_empty() {
                    return Err(UrlError::NoService);
                }
                (Topology::Sentinel { sentinels: addresses, service }, database)
            }
            Shape::Single | Shape::Socket => match (addresses.pop(), addresses.is_empty()) {
                (Some(address), true) => (Topology::Single(address), path),
                _ => return Err(UrlError::SeveralHosts),
            },
        };
        let mut settings = Self::new(topology);
        settings.tls = tls.then(Tls::default);
        settings.log_in(login)?;
        settings.database = match (database, read_query(query)?) {
            ("", database) => database.unwrap_or(0),
            (text, None) => read_database(text)?,
            (_, Some(_)) => return Err(UrlError::TwoDatabases),
        };
        if shape == Shape::Cluster && settings.database != 0 {
            return Err(UrlError::DatabaseOfCluster);
        }
        Ok(settings)
    }

    fn log_in(&mut self, login: Option<&str>) -> Result<(), UrlError> {
        let Some(login) = login else { return Ok(()) };
        let (user, password) = login.split_once(':').map_or((login, None), |(user, pass)| (user, Some(pass)));
        let full = |text: String| Some(text).filter(|text| !text.is_empty());
        self.user = full(decode(user)?);
        self.password = full(decode(password.unwrap_or(""))?).map(Password);
        Ok(())
    }
}

impl Address {
    /// Reads `host`, `host:port`, `[::1]` or `[::1]:port`.
    fn read(text: &str, default: u16, after_login: bool) -> Result<Self, UrlError> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, after) = rest.split_once(']').ok_or(UrlError::BadHost)?;
                host.parse::<std::net::Ipv6Addr>().map_err(|_| UrlError::BadHost)?;
                match after.strip_prefix(':') {
                    Some(port) => (host, Some(port)),
                    None if after.is_empty() => (host, None),
                    None => return Err(UrlError::BadHost),
                }
            }
            None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
        };
        if host.is_empty() {
            return Err(UrlError::NoHost);
        }
        if !host.chars().all(|c| c.is_ascii_alphanumeric() || "-._:".contains(c)) {
            return Err(UrlError::BadHost);
        }
        let port = match port {
            None => default,
            Some(text) => match text.parse() {
                Ok(port @ 1..) => port,
                // Where a host was forgotten, this may be a password.
                _ => return Err(UrlError::BadPort { port: after_login.then(|| text.to_owned()) }),
            },
        };
        Ok(Self::Tcp { host: host.to_owned(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

fn read_scheme(scheme: &str) -> Result<(Shape, bool), UrlError> {
    let (server, shape) = match scheme.split_once('+') {
        None if scheme == "unix" => return Ok((Shape::Socket, false)),
        None => (scheme, Shape::Single),
        Some((server, "unix")) => (server, Shape::Socket),
        Some((server, "sentinel")) => (server, Shape::Sentinel),
        Some((server, "cluster")) => (server, Shape::Cluster),
        Some(_) => return Err(UrlError::unknown_scheme(scheme)),
    };
    match server {
        "redis" | "valkey" => Ok((shape, false)),
        "rediss" | "valkeys" => Ok((shape, true)),
        _ => Err(UrlError::unknown_scheme(scheme)),
    }
}

fn read_query(query: Option<&str>) -> Result<Option<u32>, UrlError> {
    let mut database = None;
    for pair in query.into_iter().flat_map(|query| query.split('&')).filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("db", _)) if database.is_some() => return Err(UrlError::TwoDatabases),
            Some(("db", text)) => database = Some(read_database(text)?),
            _ => return Err(UrlError::UnknownParameter),
        }
    }
    Ok(database)
}

fn read_database(text: &str) -> Result<u32, UrlError> {
    text.parse().map_err(|_| UrlError::BadDatabase)
}

/// Reads `%` and two hexadecimal digits as the byte they stand for.
fn decode(text: &str) -> Result<String, UrlError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = after.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok()).ok_or(UrlError::BadEscape)?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| UrlError::BadEscape)?);
        rest = &after[2..];
    }
    String::from_utf8(bytes).map_err(|_| UrlError::BadEscape)
}
