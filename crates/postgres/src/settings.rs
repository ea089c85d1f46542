//! The settings of a PostgreSQL store: the server, the user, the database and the time-outs; and the parser of
//! `postgres://` addresses.
//!
//! `postgres://[user[:password]@]host[:port][,host[:port]…][/database][?sslmode=…]`. Several hosts are tried
//! in turn for the one that can be written to. A connection is encrypted and verified, unless all hosts are
//! loopback addresses or sockets, or `sslmode=disable` says otherwise. No error repeats what may be a
//! password.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

pub use tollgate_remote::{Password, Tls};

/// The settings of a store on PostgreSQL.
///
/// # Defaults
///
/// For an address that leaves them out: port 5432, the database of the user's name, the schema `tollgate`, one second
/// to connect, 250 milliseconds for a decision, and eight connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The server, the database and the user.
    pub server: Config,
    /// The TLS settings; `None` for an unencrypted connection.
    pub tls: Option<Tls>,
    /// The schema that holds all tables of this store.
    pub schema: String,
    /// The secret for hashing the keys of secret rules; `None` means the store's own secret. All nodes that
    /// share the store must have the same one.
    pub key_secret: Option<Password>,
    /// The time-out of a connection attempt.
    pub connect_timeout: Duration,
    /// The time-out of a decision, including all waiting for locks.
    pub command_timeout: Duration,
    /// The time between two health checks of the server.
    pub health_check_interval: Duration,
    /// The most connections.
    pub connections: usize,
    /// The time between two sweeps, which remove idle rows.
    pub sweep_interval: Duration,
}

/// Why an address cannot be used. Always the operator's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlError {
    /// It does not begin with `postgres://` or `postgresql://`.
    NoScheme,
    /// It cannot be read.
    Malformed,
    /// The host is missing.
    NoHost,
    /// The value of `sslmode` is not one of those that are supported.
    BadSslMode,
    /// There is a parameter that this store sets itself, or does not know.
    UnknownParameter,
}

/// The TCP keepalive time: after this silence the system probes the server.
const KEEPALIVES_IDLE: Duration = Duration::from_secs(30);

/// The parameters of an address that the client library gets.
const PARAMETERS: [&str; 6] = [
    "application_name",
    "channel_binding",
    "keepalives",
    "keepalives_idle",
    "target_session_attrs",
    "tcp_user_timeout",
];

impl Settings {
    /// Parses an address.
    ///
    /// # Errors
    ///
    /// If the address cannot be used. The error contains no password.
    pub fn parse(url: &str) -> Result<Self, UrlError> {
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(UrlError::NoScheme);
        }
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut ssl_mode, mut passed) = (None, Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("sslmode", mode)) => ssl_mode = Some(mode),
                Some((name, _)) if PARAMETERS.contains(&name) => passed.push(pair),
                _ => return Err(UrlError::UnknownParameter),
            }
        }
        let address = format!("{address}?{}", passed.join("&"));
        let server: Config = address.parse().map_err(|_| UrlError::Malformed)?;
        if server.get_hosts().is_empty() {
            return Err(UrlError::NoHost);
        }
        let encrypted = match ssl_mode {
            None => !server.get_hosts().iter().all(is_local),
            Some("disable") => false,
            Some("require" | "verify-full") => true,
            Some(_) => return Err(UrlError::BadSslMode),
        };
        let mut settings = Self::new(server);
        settings.tls = encrypted.then(Tls::default);
        Ok(settings)
    }

    /// The default settings for a server.
    #[must_use]
    pub fn new(mut server: Config) -> Self {
        if server.get_hosts().len() > 1 {
            server.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        if server.get_application_name().is_none() {
            server.application_name("tollgate");
        }
        Self {
            server,
            tls: None,
            schema: "tollgate".to_owned(),
            key_secret: None,
            connect_timeout: Duration::from_secs(1),
            command_timeout: Duration::from_millis(250),
            health_check_interval: Duration::from_secs(10),
            connections: 8,
            sweep_interval: Duration::from_secs(10),
        }
    }

    /// The user, if the address has one.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.server.get_user().filter(|user| !user.is_empty())
    }

    /// The hosts and the database, without user and password.
    #[must_use]
    pub fn address(&self) -> String {
        let ports = self.server.get_ports();
        let port = |index: usize| ports.get(index).or(ports.first()).copied().unwrap_or(5432);
        let host = |(index, host): (usize, &Host)| match host {
            Host::Tcp(name) if name.contains(':') => format!("[{name}]:{}", port(index)),
            Host::Tcp(name) => format!("{name}:{}", port(index)),
            Host::Unix(path) => path.display().to_string(),
        };
        let hosts: Vec<String> = self.server.get_hosts().iter().enumerate().map(host).collect();
        let database = self.server.get_dbname().or(self.user()).unwrap_or_default();
        format!("{}/{database}", hosts.join(","))
    }

    /// The connection settings of each host.
    pub(crate) fn hosts(&self) -> Vec<Config> {
        let (server, ports, addresses) = (&self.server, self.server.get_ports(), self.server.get_hostaddrs());
        let hosts = server.get_hosts().iter().enumerate().map(|(index, host)| {
            let mut one = Config::new();
            match host {
                Host::Tcp(name) => one.host(name),
                Host::Unix(path) => one.host_path(path),
            };
            addresses.get(index).map(|address| one.hostaddr(*address));
            ports.get(index).or(ports.first()).map(|port| one.port(*port));
            server.get_user().map(|user| one.user(user));
            server.get_password().map(|password| one.password(password));
            server.get_dbname().map(|name| one.dbname(name));
            server.get_options().map(|options| one.options(options));
            server.get_application_name().map(|name| one.application_name(name));
            server.get_tcp_user_timeout().map(|time| one.tcp_user_timeout(*time));
            one.keepalives(server.get_keepalives());
            one.keepalives_idle(server.get_keepalives_idle().min(KEEPALIVES_IDLE));
            one.target_session_attrs(server.get_target_session_attrs());
            one.channel_binding(server.get_channel_binding());
            one.ssl_mode(if self.tls.is_some() { SslMode::Require } else { SslMode::Disable });
            one.connect_timeout(self.connect_timeout);
            one
        });
        hosts.collect()
    }

    /// Whether a name is valid for a schema without quotes.
    #[must_use]
    pub fn is_schema_name(name: &str) -> bool {
        let mut chars = name.chars();
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        chars.next().is_some_and(|c| c.is_ascii_lowercase() || c == '_')
            && chars.all(fits)
            && name.len() <= 63
            && !name.starts_with("pg_")
    }
}

fn is_local(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        }
        Host::Unix(_) => true,
    }
}

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoScheme => "an address begins with `postgres://`, as in `postgres://tollgate@db.example/limits`",
            Self::Malformed => {
                "the address cannot be read: write it as in `postgres://user@host:5432/database`; a `/`, `?`, `#`, `@` or `%` in a user or a password is written as `%2F`, `%3F`, `%23`, `%40` or `%25`"
            }
            Self::NoHost => "the host is missing: write it, as in `postgres://tollgate@localhost/limits`",
            Self::BadSslMode => {
                "`sslmode` is `disable`, `require` or `verify-full`: the last two mean the same, encrypted and verified"
            }
            Self::UnknownParameter => {
                "a parameter after `?` is not known: use `sslmode`, `application_name`, `channel_binding`, `keepalives`, `keepalives_idle`, `target_session_attrs` or `tcp_user_timeout`"
            }
        })
    }
}

impl std::error::Error for UrlError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_encrypted_unless_it_is_local_or_says_otherwise() {
        let tls = |url: &str| Settings::parse(url).unwrap().tls.is_some();
        assert!(tls("postgres://a:b@db.example/limits"));
        assert!(tls("postgres://a@127.0.0.1,db.example/limits"));
        assert!(tls("postgres://a@localhost/limits?sslmode=require"));
        assert!(!tls("postgresql://a@localhost:5433/limits"));
        assert!(!tls("postgres://a@[::1]/limits"));
        assert!(!tls("postgres://a@db.example/limits?sslmode=disable"));
    }

    #[test]
    fn an_unusable_url_is_refused_without_repeating_it() {
        let error = |url: &str| Settings::parse(url).unwrap_err();
        assert_eq!(error("mysql://a:secret@b"), UrlError::NoScheme);
        assert_eq!(error("postgres://a:secret@b:x/c"), UrlError::Malformed);
        assert_eq!(error("postgres:///c"), UrlError::NoHost);
        assert_eq!(Settings::parse("postgres://b/c").unwrap().user(), None);
        assert_eq!(error("postgres://a:secret@b/c?sslmode=prefer"), UrlError::BadSslMode);
        assert_eq!(error("postgres://a:secret@b/c?options=-cx"), UrlError::UnknownParameter);
        let shown = format!("{:?}", Settings::parse("postgres://a:hidden@b/c").unwrap());
        assert!(!shown.contains("hidden"), "{shown}");
    }
}
