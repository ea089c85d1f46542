//! The address at which the door listens: an IP address and a port, or a Unix socket.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The longest path of a Unix socket, in bytes.
const MOST_PATH: usize = 107;

/// The address at which the door listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyAddress {
    /// An address and a port.
    Tcp(SocketAddr),
    /// A Unix socket, by its absolute path.
    Unix(PathBuf),
}

impl PolicyAddress {
    /// Parses `127.0.0.1:10031` or `unix:/path`. The error says what is wrong, and how to write it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some(path) = text.strip_prefix("unix:") else {
            return text.parse().map(Self::Tcp).map_err(|_| {
                "is neither an address and a port, as in `127.0.0.1:10031`, nor a socket, as in `unix:/run/tollgate/policy`".to_owned()
            });
        };
        if !Path::new(path).is_absolute() || path.ends_with('/') {
            return Err(
                "does not name a socket: write its whole path, as in `unix:/run/tollgate/policy`".to_owned()
            );
        }
        if path.len() > MOST_PATH || path.contains('\0') {
            return Err(format!("is too long: the path of a socket has at most {MOST_PATH} bytes"));
        }
        Ok(Self::Unix(PathBuf::from(path)))
    }
}

impl fmt::Display for PolicyAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_printed() {
        for text in ["127.0.0.1:10031", "[::1]:10031", "unix:/run/tollgate/policy"] {
            assert_eq!(PolicyAddress::parse(text).map(|address| address.to_string()).as_deref(), Ok(text));
        }
        let long = format!("unix:/{}", "x".repeat(107));
        for text in ["", "10031", "localhost:10031", "unix:", "unix:policy", "unix:/run/", &long] {
            assert!(PolicyAddress::parse(text).is_err(), "{text}");
        }
    }
}
