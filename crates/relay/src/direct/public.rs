//! Decides which addresses are public.
//!
//! The owner of a domain chooses the addresses that its DNS gives. Without this check, a stranger could make
//! the relay connect to this machine, to its neighbours or to a cloud's metadata service.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use tollgate_core::Net;

/// The networks that IANA lists as not globally reachable (RFC 6890), and those for groups of hosts.
const SPECIAL: [&str; 28] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
    "::/96",
    "::ffff:0:0:0/96",
    "64:ff9b:1::/48",
    "100::/64",
    "100:0:0:1::/64",
    "2001::/23",
    "2001:db8::/32",
    "3fff::/20",
    "5f00::/16",
    "fc00::/7",
    "fe80::/10",
    "fec0::/10",
    "ff00::/8",
];

/// Whether the internet can reach an address.
pub(super) fn is_public(address: IpAddr) -> bool {
    static NETS: LazyLock<Vec<Net>> = LazyLock::new(|| {
        SPECIAL.iter().map(|net| Net::parse(net).expect("each of them is a network")).collect()
    });
    let address = address.to_canonical();
    let inner = match address {
        IpAddr::V6(address) => inner(address),
        IpAddr::V4(_) => None,
    };
    !NETS.iter().any(|net| net.contains(address)) && inner.is_none_or(|inner| is_public(inner.into()))
}

/// The IPv4 address that a gateway would forward to: NAT64 (RFC 6052) and 6to4 (RFC 3056).
fn inner(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d] = match address.octets() {
        [0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d] => [a, b, c, d],
        [0x20, 0x02, a, b, c, d, ..] => [a, b, c, d],
        _ => return None,
    };
    Some(Ipv4Addr::new(a, b, c, d))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_that_everyone_reaches_are_public() {
        for address in ["8.8.8.8", "172.32.0.1", "100.63.0.1", "1.1.1.1", "2606:4700::1111", "2a00::1"] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
        assert!(
            is_public("64:ff9b::8.8.8.8".parse().unwrap()) && is_public("2002:808:808::1".parse().unwrap())
        );
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.1.2.3",
            "100.100.0.1",
            "127.0.0.1",
            "127.99.0.1",
            "169.254.169.254",
            "172.31.0.1",
            "192.168.1.1",
            "198.19.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::10.0.0.1",
            "2002:7f00:1::1",
            "fe80::1",
            "fd00:ec2::254",
            "ff02::1",
            "2001:db8::1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }
}
