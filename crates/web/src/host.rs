//! The host of a request, in one normal form for routes and rules.

use std::borrow::Cow;
use std::fmt;
use std::net::Ipv6Addr;

/// An authority without a valid host. The caller's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadHost;

/// The longest host, in bytes: no DNS name is longer.
const MOST_BYTES: usize = 255;

/// The host of an authority (`Host` or `:authority`): in lower case, without port and without a final dot.
pub fn normal(authority: &str) -> Result<Cow<'_, str>, BadHost> {
    let (host, port) = split(authority).ok_or(BadHost)?;
    if host.len() > MOST_BYTES || !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(BadHost);
    }
    if let Some(address) = host.strip_prefix('[') {
        let address: Ipv6Addr =
            address.strip_suffix(']').and_then(|text| text.parse().ok()).ok_or(BadHost)?;
        return Ok(format!("[{address}]").into());
    }
    let host = host.strip_suffix('.').unwrap_or(host);
    if !is_a_name(host) {
        return Err(BadHost);
    }
    let lower = !host.bytes().any(|byte| byte.is_ascii_uppercase());
    Ok(if lower { host.into() } else { host.to_ascii_lowercase().into() })
}

fn split(authority: &str) -> Option<(&str, &str)> {
    let end = if authority.starts_with('[') { authority.find(']').map(|at| at + 1) } else { None };
    let end = end.or_else(|| authority.find(':')).unwrap_or(authority.len());
    let (host, rest) = authority.split_at(end);
    if rest.is_empty() { Some((host, "")) } else { Some((host, rest.strip_prefix(':')?)) }
}

/// Whether the host consists of labels of letters, digits, hyphens and underscores.
fn is_a_name(host: &str) -> bool {
    let mut before = b'.';
    let labels = host.bytes().all(|byte| {
        let after_dot = std::mem::replace(&mut before, byte) == b'.';
        byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') || byte == b'.' && !after_dot
    });
    labels && before != b'.'
}

impl fmt::Display for BadHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the host is not a name or an address, perhaps with a port")
    }
}

impl std::error::Error for BadHost {}
