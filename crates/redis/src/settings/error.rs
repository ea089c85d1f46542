//! Why a URL is invalid, and how to correct it. No error contains a text that may be a password.

use std::fmt;

/// Why a URL is invalid. Always its author's fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UrlError {
    /// It has no scheme.
    NoScheme,
    /// Its scheme is unknown.
    UnknownScheme {
        /// The scheme, if it may be shown.
        scheme: Option<String>,
    },
    /// A host is missing.
    NoHost,
    /// A host is invalid.
    BadHost,
    /// A port is invalid.
    BadPort {
        /// The text, if it may be shown.
        port: Option<String>,
    },
    /// The number of the database is invalid.
    BadDatabase,
    /// The database is given twice.
    TwoDatabases,
    /// A Cluster has only database 0.
    DatabaseOfCluster,
    /// The path of the socket is missing.
    NoSocket,
    /// There is a host before the path of the socket.
    HostOfSocket,
    /// A socket has no TLS.
    TlsOnSocket,
    /// The Sentinels' name for the master is missing.
    NoService,
    /// There are several hosts where only one is allowed.
    SeveralHosts,
    /// A parameter is unknown.
    UnknownParameter,
    /// There is a `#`.
    Fragment,
    /// A user or a password has an unescaped special character.
    UnescapedLogin,
    /// A `%` is not followed by two hexadecimal digits, or the bytes are not UTF-8.
    BadEscape,
}

impl UrlError {
    /// Shows a scheme only if it cannot be part of a password.
    pub(super) fn unknown_scheme(scheme: &str) -> Self {
        let fits = |c: char| c.is_ascii_lowercase() || c == '+';
        Self::UnknownScheme {
            scheme: Some(scheme).filter(|it| it.len() <= 20 && it.chars().all(fits)).map(str::to_owned),
        }
    }
}

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self {
            Self::NoScheme => "an address begins with a scheme, as in `redis://localhost:6379`",
            Self::UnknownScheme { scheme } => {
                match scheme {
                    Some(scheme) => write!(f, "`{scheme}` is not a known scheme: ")?,
                    None => f.write_str("this is not a known scheme: ")?,
                }
                "write `redis`, `valkey` or `unix`, `rediss` or `valkeys` for TLS, and `+sentinel` or `+cluster` after it, as in `redis+cluster://…`"
            }
            Self::NoHost => "the host is missing: write it, as in `redis://localhost:6379`",
            Self::BadHost => {
                "the host is none: write a name or an address, an IPv6 address in brackets, as in `redis://[::1]:6379`"
            }
            Self::BadPort { port } => {
                match port {
                    Some(port) => write!(f, "the port `{}` is none", port.escape_debug())?,
                    None => f.write_str("the port is none")?,
                }
                ": write a number from 1 to 65535, as in `redis://localhost:6379`"
            }
            Self::BadDatabase => {
                "the database is none: write its number, as in `redis://localhost:6379/1` or `unix:/run/redis.sock?db=1`"
            }
            Self::TwoDatabases => "the database is written twice: keep one",
            Self::DatabaseOfCluster => "a Cluster has no databases but 0: leave the number out",
            Self::NoSocket => "the path of the socket is missing: write it, as in `unix:/run/redis.sock`",
            Self::HostOfSocket => {
                "a socket is on this machine: leave the host out, as in `unix:/run/redis.sock`"
            }
            Self::TlsOnSocket => "a socket is not encrypted: write `unix:` or `redis+unix://`, without TLS",
            Self::NoService => {
                "what do the Sentinels call the master? Write it at the end, as in `redis+sentinel://host:26379/main`"
            }
            Self::SeveralHosts => {
                "several hosts are a Cluster or Sentinels: write `redis+cluster://…` or `redis+sentinel://…/service`"
            }
            Self::UnknownParameter => "the only parameter after `?` is `db`, as in `?db=1`: leave others out",
            Self::Fragment => "there is a `#`, which means nothing here: leave it out",
            Self::UnescapedLogin => {
                "a `/`, `?` or `#` in a user or a password is written as `%2F`, `%3F` or `%23`; or keep the password elsewhere, with `password_env` or `password_file`"
            }
            Self::BadEscape => {
                "a `%` is followed by two hexadecimal digits that stand for a character, and is itself written as `%25`"
            }
        };
        f.write_str(words)
    }
}

impl std::error::Error for UrlError {}
