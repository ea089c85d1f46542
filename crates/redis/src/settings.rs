//! The settings of a Redis or Valkey store: servers, login and time-outs; and how they are parsed from a URL.
//!
//! | address | what is there |
//! | --- | --- |
//! | `redis://[user[:password]@]host[:port][/database]` | one server |
//! | `unix:/path[?db=database]`, `redis+unix://[user:password@]/path[?db=database]` | one server behind a socket |
//! | `redis+sentinel://[…@]host[:port],…/service[/database]` | the master that Sentinels know by this name |
//! | `redis+cluster://[…@]host[:port],…` | a Cluster, found through any of these nodes |
//!
//! `rediss` instead of `redis` means TLS; `valkey` and `valkeys` mean the same. Special characters in a user
//! or a password are written as `%` and two digits. No error repeats a text that may be a password.

mod error;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub use tollgate_remote::{Password, Tls};

pub use error::UrlError;

/// The settings of a store on Redis or Valkey.
///
/// # Defaults
///
/// Port 6379 (26379 for a Sentinel), database 0, the key prefix `tollgate`, one second to connect, 50
/// milliseconds for a command, two connections, and a health check every ten seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The servers.
    pub topology: Topology,
    /// TLS, if it is used.
    pub tls: Option<Tls>,
    /// The user; the server's default user if absent.
    pub user: Option<String>,
    /// The password, if one is required.
    pub password: Option<Password>,
    /// The number of the database.
    pub database: u32,
    /// The prefix of every key, without the colon after it.
    pub prefix: String,
    /// The secret that hashes the keys of secret rules; by default the store's own. All nodes that share the
    /// store must have the same.
    pub key_secret: Option<Password>,
    /// The time-out of a connection.
    pub connect_timeout: Duration,
    /// The time-out of a command.
    pub command_timeout: Duration,
    /// The time between two health checks of the server.
    pub health_check_interval: Duration,
    /// The number of connections to each server.
    pub connections: usize,
    /// The rules with a hash tag, and the tag, which makes a Cluster keep their keys in one slot.
    pub tags: HashMap<String, String>,
}

/// The arrangement of the servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// One server.
    Single(Address),
    /// A master behind Sentinels.
    Sentinel {
        /// The addresses of the Sentinels; at least one.
        sentinels: Vec<Address>,
        /// Their name for the master.
        service: String,
    },
    Cluster {
        /// The addresses of some of its nodes; at least one.
        seeds: Vec<Address>,
    },
}

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// A host and a port.
    Tcp {
        /// Its name or address, an IPv6 address without brackets.
        host: String,
        port: u16,
    },
    /// A Unix socket.
    Unix(PathBuf),
}

/// The meaning of a URL scheme.
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
    /// Parses a URL.
    ///
    /// # Errors
    /// If it is invalid. The error never contains a text that may be a password.
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

    /// The defaults for this topology.
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
        // A path may contain an `@`. A login ends at the first `@/`.
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
        // An `@` here means that the login had an unescaped character, and everything after it would be
        // misread.
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
                // If the host was forgotten, this may be a password.
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

/// Decodes `%` and two hexadecimal digits.
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
