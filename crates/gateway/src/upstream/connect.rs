//! Connects to an upstream.

use std::io;

use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, TlsStream};

use super::Upstream;
use crate::alarm::Alarm;
use crate::settings::Address;
use crate::stream::Stream;

/// Why there is no connection. The fault is the upstream's or the network's; nothing was sent.
#[derive(Debug)]
pub(crate) enum Unreachable {
    /// It took too long.
    Late,
    /// The connection was refused, or the name is unknown.
    Refused(io::Error),
    /// The certificate was not valid for the name.
    Untrusted(io::Error),
}

pub(super) async fn connect(
    upstream: &Upstream,
    address: &Address,
    alarm: &Alarm,
) -> Result<Stream, Unreachable> {
    // Boxed, since it is large and short-lived.
    let connecting = Box::pin(open(upstream, address));
    let timeout = upstream.settings.connect_timeout;
    alarm.within(timeout, connecting).await.unwrap_or(Err(Unreachable::Late))
}

async fn open(upstream: &Upstream, address: &Address) -> Result<Stream, Unreachable> {
    let connected = match address.socket() {
        Some(socket) => TcpStream::connect(socket).await,
        None => TcpStream::connect((address.host(), address.port())).await,
    };
    let stream = connected.map_err(Unreachable::Refused)?;
    // A head is one small packet: send it at once.
    let _ = stream.set_nodelay(true);
    let Some((config, name)) = &upstream.tls else { return Ok(Stream::Plain(stream)) };
    let name = match name {
        Some(name) => name.clone(),
        None => ServerName::try_from(address.host().to_owned())
            .map_err(|error| Unreachable::Untrusted(io::Error::new(io::ErrorKind::InvalidInput, error)))?,
    };
    let stream = TlsConnector::from(config.clone()).connect(name, stream).await;
    Ok(Stream::Tls(Box::new(TlsStream::Client(stream.map_err(Unreachable::Untrusted)?))))
}

impl std::fmt::Display for Unreachable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Late => f.write_str("no connection in time"),
            Self::Refused(error) | Self::Untrusted(error) => error.fmt(f),
        }
    }
}
