//! Refuses requests of web pages of other sites: on a server without keys, and with a session. Any page in a browser on this machine can send
//! requests to a local server. By a DNS name that the page's owner points at this machine, it could also read
//! the responses.
//!
//! Browsers state the origin of a request, and pages cannot forge it. Other programs do not send these
//! headers and are not affected.

use std::net::{IpAddr, Ipv6Addr};

use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::problem::Problem;

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Refuses requests that a browser sends for a page of another site, and requests for another host name than
/// this machine's own.
pub(crate) fn refuse(headers: &HeaderMap) -> Result<(), Problem> {
    if !headers.get_all(HOST).iter().all(is_own) {
        let detail = "without keys this server accepts only `localhost` or an IP address as `Host`: use one of these, or set `keys`";
        return Err(Problem::forbidden(detail.to_owned()));
    }
    let own_site = |site: &HeaderValue| matches!(site.as_bytes(), b"same-origin" | b"none");
    let host = headers.get(HOST).map_or(&b""[..], HeaderValue::as_bytes);
    let own_origin = |origin: &HeaderValue| is_origin(origin.as_bytes(), host);
    if headers.get_all(FETCH_SITE).iter().all(own_site) && headers.get_all(ORIGIN).iter().all(own_origin) {
        return Ok(());
    }
    let detail = "a browser sent this request for a page of another site, which a server without keys refuses: set `keys`, or use another program";
    Err(Problem::forbidden(detail.to_owned()))
}

/// Refuses requests with a session that a browser sends for a page of another site. A browser without
/// `Sec-Fetch-Site` at least sends `Origin` with changes.
pub(crate) fn refuse_other_sites(method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
    let looks = method.is_safe();
    let host = headers.get(HOST).map_or(&b""[..], HeaderValue::as_bytes);
    let allowed = match (headers.get(FETCH_SITE), headers.get(ORIGIN)) {
        (Some(site), _) => site == "same-origin" || (looks && site == "none"),
        (None, Some(origin)) => is_origin(origin.as_bytes(), host),
        (None, None) => looks,
    };
    if allowed {
        return Ok(());
    }
    let detail =
        "a browser sent this request for a page of another site, or a proxy does not pass on its `Host`";
    Err(Problem::forbidden(detail.to_owned()))
}

/// Whether a host is an address or `localhost`.
fn is_own(host: &HeaderValue) -> bool {
    let Ok(host) = host.to_str() else { return false };
    if let Some((address, port)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return address.parse::<Ipv6Addr>().is_ok() && (port.is_empty() || port.starts_with(':'));
    }
    let name = host.split_once(':').map_or(host, |(name, _)| name);
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

/// Whether an origin is this server.
fn is_origin(origin: &[u8], host: &[u8]) -> bool {
    let served = origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"));
    served.is_some_and(|served| !served.is_empty() && served.eq_ignore_ascii_case(host))
}
