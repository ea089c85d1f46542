//! The address of the HTTP API. Beyond loopback it needs keys, and TLS before it.

use std::net::SocketAddr;

use super::keys::Keys;
use super::problem::{Findings, shown};
use super::raw;
use super::tree::Path;

/// The addresses of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The address and port of the HTTP API; by default 127.0.0.1:8080.
    pub http: SocketAddr,
}

const DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080);

pub(super) fn mean(
    written: Option<&raw::Listen>,
    keys: &Keys,
    findings: &mut Findings<'_>,
) -> Option<Listen> {
    let Some(text) = written.and_then(|listen| listen.http.as_ref()) else {
        return Some(Listen { http: DEFAULT });
    };
    let path = Path::of(&["listen", "http"]);
    let Ok(http) = text.parse::<SocketAddr>() else {
        findings.value(
            &path,
            format!("`{}` is not an address and a port, as in `127.0.0.1:8080` or `[::1]:8080`", shown(text)),
        );
        return None;
    };
    if !http.ip().to_canonical().is_loopback() && keys.none_written() {
        findings.value(
            &path,
            format!(
                "`{http}` can be reached from other machines, and there are no access keys: add one under `keys`, as in `{{ name: ops, role: admin, token_env: TOLLGATE_ADMIN_TOKEN }}`, or listen on `127.0.0.1:{}`",
                http.port()
            ),
        );
        return None;
    }
    let unencrypted = written.and_then(|listen| listen.unencrypted).unwrap_or(false);
    if !http.ip().to_canonical().is_loopback() && !unencrypted {
        findings.warn(
            &path,
            "other machines can reach this address, and it has no TLS: their access keys travel unencrypted",
            "listen on loopback behind a proxy with TLS; on a private network write `unencrypted: true` beside it",
        );
    }
    Some(Listen { http })
}
