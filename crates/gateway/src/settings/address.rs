//! The address of an upstream: `10.0.0.1:80`, `[::1]:8080`, `app.internal:8080`.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

/// The host and port of an upstream. A name is resolved for each new connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    host: Arc<str>,
    ip: Option<IpAddr>,
    port: u16,
}

/// A text that is not an address. The operator's fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadAddress {
    text: String,
}

impl Address {
    /// The host, without the brackets of an IPv6 address.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The socket address, unless the host is a name.
    pub fn socket(&self) -> Option<SocketAddr> {
        self.ip.map(|ip| SocketAddr::new(ip, self.port))
    }
}

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let bad = || BadAddress { text: text.chars().take(100).collect() };
        if let Ok(socket) = text.parse::<SocketAddr>() {
            return Some(Self::from(socket)).filter(|address| address.port != 0).ok_or_else(bad);
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(bad)?;
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(bad)?;
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        if host.is_empty() || host.len() > 253 || !host.bytes().all(fits) {
            return Err(bad());
        }
        Ok(Self { host: host.into(), ip: None, port })
    }
}

impl From<SocketAddr> for Address {
    fn from(socket: SocketAddr) -> Self {
        Self { host: socket.ip().to_string().into(), ip: Some(socket.ip()), port: socket.port() }
    }
}

/// Prints in the form that it is parsed from.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.socket() {
            Some(socket) => socket.fmt(f),
            None => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Display for BadAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not a host and a port, as in `10.0.0.1:80`, `[::1]:80` or `app.internal:80`",
            self.text
        )
    }
}

impl std::error::Error for BadAddress {}
