//! Opens routing and forwarding to fuzzing: where a request goes, and the head that its upstream gets.

use std::net::{IpAddr, Ipv4Addr};

use bytes::BytesMut;

use crate::connection::normal_authority;
use crate::forward::{Forwarded, Origin, Scheme, Trust, split_target};
use crate::h1::lines::{MOST_BYTES, MOST_LINES};
use crate::h1::request::{self, Most, RequestHead};
use crate::proxy::normal_path;
use crate::route::{Found, Table};
use crate::settings::Rewrite;

/// A request that the gateway routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routed {
    /// Its route.
    pub found: Found,
    /// The host in its normal form, by which it is routed.
    pub host: String,
    /// The path in its normal form, by which it is routed.
    pub path: String,
    /// The text after `?`.
    pub query: Option<Vec<u8>>,
    /// Whether it names a host. If it does not, the upstream's address is forwarded as its host.
    pub names_host: bool,
    /// The head that an upstream gets.
    pub forwarded: Vec<u8>,
}

/// The bounds of a head. They are the largest, since the gateway adds lines to a request.
const MOST: Most = Most { bytes: MOST_BYTES, lines: MOST_LINES };

/// Routes the request at the start of these bytes; `None` if it is refused or its head is incomplete.
pub fn route(bytes: &[u8], table: &Table, rewrite: Option<&Rewrite>) -> Option<Routed> {
    let (mut scanned, mut head) = (0, RequestHead::default());
    if !request::take(&mut BytesMut::from(bytes), &mut scanned, MOST, &mut head).ok()? {
        return None;
    }
    let (path, query) = split_target(&head.target);
    let path = normal_path(path).ok()?;
    let host = normal_authority(head.host.as_deref()).ok()?;
    let origin = Origin::new(IpAddr::V4(Ipv4Addr::LOCALHOST), Scheme::Http);
    let mut forwarded = BytesMut::new();
    Forwarded {
        path: &path,
        query,
        rewrite,
        host: None,
        address: &"upstream.example:8080",
        origin: &origin,
        trust: Trust::Untrusted,
        forwarding_header: None,
        captcha: None,
        correlation: None,
    }
    .write(&head, &mut forwarded);
    Some(Routed {
        found: table.find(&host, &path, &head.method, &head),
        host: host.into_owned(),
        path: path.into_owned(),
        query: query.map(<[u8]>::to_vec),
        names_host: head.host.is_some(),
        forwarded: forwarded.to_vec(),
    })
}
