//! Opens connections for requests of the program itself: its commands, webhooks, and the benchmark.

use std::io;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tollgate_remote::Trust;

/// A connection, encrypted or not.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Verifies servers with the system's certificates, so that a company's own authority is trusted too.
pub(crate) fn tls() -> Result<TlsConnector, String> {
    Ok(TlsConnector::from(Arc::new(Trust::System.configuration()?)))
}

/// Connects to a host; encrypted with `tls`.
pub(crate) async fn dial(host: &str, port: u16, tls: Option<&TlsConnector>) -> io::Result<Box<dyn Stream>> {
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    let Some(tls) = tls else { return Ok(Box::new(stream)) };
    let name = ServerName::try_from(host.to_owned())
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    Ok(Box::new(tls.connect(name, stream).await?))
}
