//! Networks: an address and the length of its prefix. A single address is a network of one.

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::grammar::GrammarError;

/// A network, or a single address. An IPv4-mapped IPv6 address counts as IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Net {
    first: IpAddr,
    length: u8,
}

const EXAMPLES: &str = "write it as in `203.0.113.7`, `203.0.113.0/24` or `2001:db8::/32`";

impl Net {
    /// The network of one address.
    pub fn host(address: IpAddr) -> Self {
        let first = address.to_canonical();
        Self { first, length: whole(first) }
    }

    /// The network of this length around an address; `None` if addresses have fewer bits.
    pub fn around(address: IpAddr, length: u8) -> Option<Self> {
        (length <= whole(address)).then(|| Self { first: cut(address, length), length })
    }

    /// Parses an address or a network, as in `203.0.113.7`, `203.0.113.0/24` or `2001:db8::/32`.
    pub fn parse(text: &str) -> Result<Self, GrammarError> {
        let wrong = |at: usize, problem: String| Err(GrammarError { text: text.into(), at, problem });
        let (bare, prefix) = match text.split_once('/') {
            Some((bare, prefix)) => (bare, Some(prefix)),
            None => (text, None),
        };
        let Ok(address) = bare.parse::<IpAddr>() else { return wrong(0, no_address(bare)) };
        let Some(prefix) = prefix else { return Ok(Self::host(address)) };
        let at = bare.len() + 1;
        let most = whole(address);
        let digits = !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_digit());
        let Some(length) = prefix.parse::<u8>().ok().filter(|length| digits && *length <= most) else {
            return wrong(at, no_length(address, prefix));
        };
        if cut(address, length) != address {
            let mended = Self { first: cut(address, length), length };
            let problem =
                format!("bits are set beyond /{length}: write `{mended}` for the network, or `{address}`");
            return wrong(at, problem);
        }
        match (address, address.to_canonical()) {
            (IpAddr::V6(_), IpAddr::V4(inner)) if length >= 96 => {
                Ok(Self { first: IpAddr::V4(inner), length: length - 96 })
            }
            _ => Ok(Self { first: address, length }),
        }
    }

    /// Its first address.
    pub fn first(&self) -> IpAddr {
        self.first
    }

    /// The length of its prefix, in bits.
    pub fn length(&self) -> u8 {
        self.length
    }

    /// Whether an address is in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.first.is_ipv4() && cut(address, self.length) == self.first
    }
}

/// The address at the start of a field's value, if there is one.
pub(crate) fn address_of(value: &str) -> Option<IpAddr> {
    let parsed = |text: &str| text.parse().ok();
    let address: Option<IpAddr> = parsed(value).or_else(|| parsed(value.split_once('/')?.0));
    address.map(|address| address.to_canonical())
}

/// How many bits an address has.
fn whole(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// An address with all but its first bits cleared.
fn cut(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
    }
}

/// The error for a text that is not an address.
fn no_address(bare: &str) -> String {
    if bare.trim() != bare {
        return format!("there is a space in it: {EXAMPLES}");
    }
    if bare.contains('%') {
        return format!("an address is listed without its zone: {EXAMPLES}");
    }
    if bare.parse::<core::net::SocketAddr>().is_ok() {
        return format!("an address is listed without its port: {EXAMPLES}");
    }
    let parts = bare.split('.').count();
    let dotted = bare.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    match (dotted, parts) {
        (true, 2..=3) => format!("an IPv4 address has four numbers: {EXAMPLES}"),
        (true, 4) => format!("the numbers of an IPv4 address are 0 to 255, without zeros before: {EXAMPLES}"),
        _ => format!("this is not an address: {EXAMPLES}"),
    }
}

/// The error for the text after the slash.
fn no_length(address: IpAddr, prefix: &str) -> String {
    let (family, most) = if address.is_ipv4() { ("IPv4", 32) } else { ("IPv6", 128) };
    let mask = prefix.parse::<Ipv4Addr>().map(Ipv4Addr::to_bits).ok();
    if let Some(mask) = mask.filter(|mask| address.is_ipv4() && mask.count_zeros() == mask.trailing_zeros()) {
        let length = mask.count_ones();
        return format!("the length of the prefix is written, not the mask: `{address}/{length}`");
    }
    format!("the prefix of an {family} network is 0 to {most} bits: {EXAMPLES}")
}

/// Prints in the form that it is parsed from: a single address without its length.
impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, length } = self;
        if *length == whole(*first) { first.fmt(f) } else { write!(f, "{first}/{length}") }
    }
}
