//! The head of a request as the upstream gets it.
//!
//! Hop-by-hop headers are removed. The gateway itself says where the request came from, and keeps what the
//! client says of that only if the client is a trusted proxy.

use std::cell::Cell;
use std::net::IpAddr;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::captcha::{self, Captcha};
use crate::h1::decode::Decoder;
use crate::h1::encode::Encoder;
use crate::h1::lines::{Kind, Line};
use crate::h1::request::RequestHead;
use crate::h1::write::{line, number_line};
use crate::plan::Plan;
use crate::settings::Rewrite;

/// Where a connection's requests come from.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) peer: IpAddr,
    /// The peer's address as text.
    pub(crate) text: Box<str>,
    pub(crate) scheme: Scheme,
    /// The plan by which the peer was last judged, and whether it is a trusted proxy.
    judged: Cell<(u64, Trust)>,
    /// The number of buffered body bytes that arrived over this connection and were not yet forwarded.
    pub(crate) kept: Cell<usize>,
}

/// The scheme that clients of a listener use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
}

/// Whether a peer is a trusted proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    Proxy,
    Untrusted,
}

/// What the head of a forwarded request is made of, beside the client's header lines.
pub(crate) struct Forwarded<'f> {
    /// The normalised path.
    pub(crate) path: &'f str,
    /// The client's text after `?`.
    pub(crate) query: Option<&'f [u8]>,
    pub(crate) rewrite: Option<&'f Rewrite>,
    /// Replaces the client's `Host`.
    pub(crate) host: Option<&'f HeaderValue>,
    /// Used as `Host` if the client sent none.
    pub(crate) address: &'f dyn std::fmt::Display,
    pub(crate) origin: &'f Origin,
    pub(crate) trust: Trust,
    /// A further header that is accepted from trusted proxies only.
    pub(crate) forwarding_header: Option<&'f HeaderName>,
    /// Whether the request must include a CAPTCHA, if a guard decided that. Then the client's own hint is
    /// removed.
    pub(crate) captcha: Option<Captcha>,
    /// The request's id in the gateway's log, so that the upstream can log the same id.
    pub(crate) correlation: Option<&'f HeaderValue>,
}

/// The header that carries a request's id.
const CORRELATION: &[u8] = b"x-correlation-id";

impl Origin {
    pub(crate) fn new(peer: IpAddr, scheme: Scheme) -> Self {
        // A dual-stack socket sees IPv4 clients as mapped IPv6 addresses.
        let peer = peer.to_canonical();
        let judged = Cell::new((u64::MAX, Trust::Untrusted));
        Self { peer, text: peer.to_string().into(), scheme, judged, kept: Cell::new(0) }
    }

    /// Whether the peer is a trusted proxy under this plan. A connection may outlive the plan that it was
    /// accepted under.
    pub(crate) fn trust(&self, plan: &Plan) -> Trust {
        let (number, trust) = self.judged.get();
        if number == plan.number {
            return trust;
        }
        let trusted = plan.settings.trusted_proxies.trusts(self.peer);
        let trust = if trusted { Trust::Proxy } else { Trust::Untrusted };
        self.judged.set((plan.number, trust));
        trust
    }
}

impl Scheme {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

impl Forwarded<'_> {
    /// Writes the head. Returns how the body is encoded.
    pub(crate) fn write(&self, request: &RequestHead, out: &mut BytesMut) -> Encoder {
        out.extend_from_slice(request.method.as_str().as_bytes());
        out.extend_from_slice(b" ");
        self.write_target(out);
        out.extend_from_slice(b" HTTP/1.1\r\n");
        self.write_host(request, out);
        self.write_lines(request, out);
        match (&request.upgrade, request.trailers) {
            (Some(to), _) => {
                out.extend_from_slice(b"connection: upgrade\r\n");
                line(out, b"upgrade", to);
            }
            (None, true) => out.extend_from_slice(b"connection: te\r\n"),
            (None, false) => {}
        }
        let encoder = self.write_length(request, out);
        out.extend_from_slice(b"\r\n");
        encoder
    }

    /// The head for an upstream that speaks HTTP/2.
    pub(crate) fn request(&self, request: &RequestHead, scheme: Scheme) -> Option<http::Request<()>> {
        let mut text = BytesMut::new();
        self.write_target(&mut text);
        let target = text.split().freeze();
        let authority = match (self.host, &request.host) {
            (Some(host), _) => host.as_bytes().to_vec(),
            (None, Some(host)) => host.to_vec(),
            (None, None) => self.address.to_string().into(),
        };
        let uri = http::Uri::builder()
            .scheme(scheme.name())
            .authority(authority)
            .path_and_query(http::uri::PathAndQuery::from_maybe_shared(target).ok()?);
        let mut head = http::Request::new(());
        *head.method_mut() = request.method.clone();
        *head.uri_mut() = uri.build().ok()?;
        self.write_lines(request, &mut text);
        if let Decoder::Length(length) = request.body {
            number_line(&mut text, b"content-length", length);
        }
        add_lines(&text, head.headers_mut());
        // The gateway has sent `100 Continue` itself.
        head.headers_mut().remove(http::header::EXPECT);
        Some(head)
    }

    fn write_target(&self, out: &mut BytesMut) {
        match self.rewrite.and_then(|rewrite| Some((rewrite, below(self.path, &rewrite.prefix)?))) {
            Some((rewrite, rest)) => {
                out.extend_from_slice(rewrite.replacement.as_bytes());
                out.extend_from_slice(rest.as_bytes());
                if rest.is_empty() && rewrite.replacement.is_empty() {
                    out.extend_from_slice(b"/");
                }
            }
            None => out.extend_from_slice(self.path.as_bytes()),
        }
        if let Some(query) = self.query {
            out.extend_from_slice(b"?");
            out.extend_from_slice(query);
        }
    }

    /// Writes the header lines that are the same for every version of HTTP.
    fn write_lines(&self, request: &RequestHead, out: &mut BytesMut) {
        let mut forwarded = ForwardedOrigin::default();
        let trusted = self.trust == Trust::Proxy;
        request.lines.write(out, |Line { name, kind, .. }| match kind {
            Kind::Plain => {
                let forwards = self.forwarding_header.is_none_or(|header| passes(name, header, self.trust));
                forwards
                    && (self.captcha.is_none() || !captcha::is_hint(name))
                    && (self.correlation.is_none() || !name.eq_ignore_ascii_case(CORRELATION))
            }
            Kind::Expect => request.expects,
            Kind::Forwarding => trusted,
            _ => false,
        });
        for Line { value, kind, .. } in request.lines.iter().filter(|_| trusted) {
            match kind {
                Kind::ForwardedFor => forwarded.chain.push(value),
                Kind::ForwardedProto => forwarded.proto = Some(value),
                Kind::ForwardedHost => forwarded.host = Some(value),
                _ => {}
            }
        }
        self.write_origin(request, &forwarded, out);
        if self.captcha == Some(Captcha::Required) {
            out.extend_from_slice(captcha::LINE);
        }
        if let Some(correlation) = self.correlation {
            line(out, CORRELATION, correlation.as_bytes());
        }
        if request.trailers {
            out.extend_from_slice(b"te: trailers\r\n");
        }
    }

    fn write_host(&self, request: &RequestHead, out: &mut BytesMut) {
        match (self.host, &request.host) {
            (Some(host), _) => line(out, b"host", host.as_bytes()),
            (None, Some(host)) => line(out, b"host", host),
            (None, None) => line(out, b"host", self.address.to_string().as_bytes()),
        }
    }

    /// Writes where the request came from.
    fn write_origin(&self, request: &RequestHead, forwarded: &ForwardedOrigin<'_>, out: &mut BytesMut) {
        out.extend_from_slice(b"x-forwarded-for: ");
        for address in &forwarded.chain {
            out.extend_from_slice(address);
            out.extend_from_slice(b", ");
        }
        out.extend_from_slice(self.origin.text.as_bytes());
        out.extend_from_slice(b"\r\nx-forwarded-proto: ");
        out.extend_from_slice(forwarded.proto.unwrap_or(self.origin.scheme.name().as_bytes()));
        out.extend_from_slice(b"\r\n");
        let host = forwarded.host.or(request.host.as_deref());
        if let Some(host) = host {
            line(out, b"x-forwarded-host", host);
        }
    }

    fn write_length(&self, request: &RequestHead, out: &mut BytesMut) -> Encoder {
        match request.body {
            Decoder::Empty if request.says_length => {
                out.extend_from_slice(b"content-length: 0\r\n");
                Encoder::Empty
            }
            Decoder::Empty => Encoder::Empty,
            Decoder::Length(length) => {
                number_line(out, b"content-length", length);
                Encoder::Plain
            }
            Decoder::Chunked(_) | Decoder::UntilClose | Decoder::Broken(_) => {
                out.extend_from_slice(b"transfer-encoding: chunked\r\n");
                Encoder::Chunked
            }
        }
    }
}

/// Whether a line may be forwarded, given a header that only trusted proxies may set. A name that differs
/// from it only in `_` for `-` is never forwarded, since some servers treat the two alike.
fn passes(name: &[u8], header: &HeaderName, trust: Trust) -> bool {
    let header = header.as_str().as_bytes();
    let plain = |byte: &u8| if *byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    let alike = name.len() == header.len() && name.iter().map(plain).eq(header.iter().map(plain));
    !alike || trust == Trust::Proxy && name.eq_ignore_ascii_case(header)
}

/// Adds header lines to a map.
pub(crate) fn add_lines(lines: &[u8], headers: &mut HeaderMap) {
    for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        let name = HeaderName::from_bytes(&line[..colon]);
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
}

/// What a trusted proxy said of the request's origin.
#[derive(Default)]
struct ForwardedOrigin<'h> {
    chain: smallvec::SmallVec<[&'h [u8]; 2]>,
    proto: Option<&'h [u8]>,
    host: Option<&'h [u8]>,
}

/// The rest of the path after a prefix, if whole segments of it match.
fn below<'p>(path: &'p str, prefix: &str) -> Option<&'p str> {
    let rest = path.strip_prefix(prefix.trim_end_matches('/'))?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

/// The path and the query of a request target.
pub(crate) fn split_target(target: &Bytes) -> (&[u8], Option<&[u8]>) {
    match memchr::memchr(b'?', target) {
        Some(at) => (&target[..at], Some(&target[at + 1..])),
        None => (target, None),
    }
}
