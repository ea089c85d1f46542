//! The address of the client, which only trusted proxies may state.
//!
//! The peer of the socket is the client, unless it is a trusted proxy. Then the one configured header is read
//! from the right, where the nearest proxy wrote, and the first address that is not a trusted proxy is the
//! client. Entries further left were written by untrusted hosts and are never read. An unreadable entry ends
//! the search: the last address that was read is the client.

mod hop;

use std::net::IpAddr;

use http::header::{FORWARDED, HeaderMap, HeaderName};
use ipnet::{IpNet, Ipv4Net};

/// The default header in which trusted proxies write the client's address.
pub const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The proxies that may state the client's address, and the header in which they do.
#[derive(Clone, Debug)]
pub struct TrustedProxies {
    nets: Vec<IpNet>,
    header: HeaderName,
}

impl TrustedProxies {
    /// No proxy is trusted: the client is the peer.
    pub fn none() -> Self {
        Self::new(Vec::new(), X_FORWARDED_FOR)
    }

    /// Trusts peers from these networks to have written this header: `X-Forwarded-For`, `Forwarded` (RFC
    /// 7239), or any other that holds one address or a list of them, such as `X-Real-IP`.
    pub fn new(nets: Vec<IpNet>, header: HeaderName) -> Self {
        Self { nets: nets.into_iter().map(canonical).collect(), header }
    }

    /// The header with the client's address.
    pub fn header(&self) -> &HeaderName {
        &self.header
    }

    /// Whether no proxy is trusted.
    pub fn is_none(&self) -> bool {
        self.nets.is_empty()
    }

    /// Whether this peer is a trusted proxy.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        self.nets.iter().any(|net| net.contains(&peer))
    }

    /// Whether the peer names a client in the header but is not a trusted proxy.
    pub fn ignores(&self, peer: IpAddr, headers: &HeaderMap) -> bool {
        headers.contains_key(&self.header) && !self.trusts(peer)
    }

    /// The client's address. An IPv4-mapped IPv6 address is returned as IPv4.
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer.to_canonical();
        if self.nets.is_empty() || !self.trusts(client) {
            return client;
        }
        let forwarded = self.header == FORWARDED;
        // Several lines of a header form one list (RFC 9110, section 5.3).
        for line in headers.get_all(&self.header).iter().rev() {
            let mut rest = line.as_bytes();
            while !rest.is_empty() {
                let hop = if forwarded { hop::last_element(&mut rest) } else { hop::last_item(&mut rest) };
                if hop.is_empty() {
                    continue;
                }
                let address = if forwarded { hop::forwarded(hop) } else { hop::address(hop) };
                let Some(address) = address else { return client };
                client = address.to_canonical();
                if !self.trusts(client) {
                    return client;
                }
            }
        }
        client
    }
}

/// Turns a network of IPv4-mapped IPv6 addresses into an IPv4 network, since peers are compared as IPv4.
fn canonical(net: IpNet) -> IpNet {
    const MAPPED_BITS: u8 = 96;
    if let IpNet::V6(v6) = net
        && let Some(prefix) = v6.prefix_len().checked_sub(MAPPED_BITS)
        && let Some(address) = v6.network().to_ipv4_mapped()
        && let Ok(net) = Ipv4Net::new(address, prefix)
    {
        return IpNet::V4(net);
    }
    net
}
