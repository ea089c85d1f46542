//! Why an address is none, and what would be one. What may be a password is in none of these.

use std::fmt;

/// Why an address is none. Its author's fault, always.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UrlError {
    /// It does not begin as an address does.
    NoScheme,
    /// It begins with a word that says nothing here.
    UnknownScheme {
        /// The word, if it can be shown.
        scheme: Option<String>,
    },
    /// A host is missing.
    NoHost,
    /// A host is none.
    BadHost,
    /// A port is none.
    BadPort {
        /// What stands there, if it can be shown.
        port: Option<String>,
    },
    /// The number of the database is none.
    BadDatabase,
    /// There are two numbers of a database.
    TwoDatabases,
    /// A Cluster has one database, which is 0.
    DatabaseOfCluster,
    /// The path of the socket is missing.
    NoSocket,
    /// There is a host before the path of the socket.
    HostOfSocket,
    /// Sockets are not encrypted.
    TlsOnSocket,
    /// What the Sentinels call the master is missing.
    NoService,
    /// There are several hosts where there can be one.
    SeveralHosts,
    /// A parameter is not known.
    UnknownParameter,
    /// There is a `#`.
    Fragment,
    /// A user or a password has a character in it that ends it.
    UnescapedLogin,
    /// A `%` is not followed by two hexadecimal digits, or they are not those of a text.
    BadEscape,
}

impl UrlError {
    /// A scheme is shown if it cannot be part of a password that was written first.
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
