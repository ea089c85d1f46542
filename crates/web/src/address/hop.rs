//! Parses the entries of forwarding headers. Lists are read from the right, because a trusted proxy wrote
//! only the right end. Nothing further left can change how that is read.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Removes the last item of a comma-separated list and returns it without surrounding space.
pub(super) fn last_item<'l>(list: &mut &'l [u8]) -> &'l [u8] {
    let comma = list.iter().rposition(|byte| *byte == b',');
    cut(list, comma)
}

/// Removes the last element of a `Forwarded` list. Commas inside quotes do not separate.
pub(super) fn last_element<'l>(list: &mut &'l [u8]) -> &'l [u8] {
    let mut quoted = false;
    let comma = list.iter().enumerate().rev().find_map(|(at, byte)| match byte {
        b'"' if !escaped(&list[..at]) => {
            quoted = !quoted;
            None
        }
        b',' if !quoted => Some(at),
        _ => None,
    });
    cut(list, comma)
}

/// Whether a backslash at the end of these bytes escapes the next one.
fn escaped(before: &[u8]) -> bool {
    before.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

fn cut<'l>(list: &mut &'l [u8], comma: Option<usize>) -> &'l [u8] {
    let (rest, item) = match comma {
        Some(at) => (&list[..at], &list[at + 1..]),
        None => (&list[..0], *list),
    };
    *list = rest;
    item.trim_ascii()
}

/// The `for` address of a `Forwarded` element. `None` if it is obfuscated or there are two.
pub(super) fn forwarded(element: &[u8]) -> Option<IpAddr> {
    let mut found = None;
    let mut rest = element;
    while !rest.is_empty() {
        let (pair, more) = first_pair(rest);
        rest = more;
        let equals = pair.iter().position(|byte| *byte == b'=');
        let Some((name, value)) = equals.map(|at| (&pair[..at], &pair[at + 1..])) else { continue };
        if name.trim_ascii().eq_ignore_ascii_case(b"for") && found.replace(value.trim_ascii()).is_some() {
            return None;
        }
    }
    let node = found?;
    match node.strip_prefix(b"\"") {
        Some(quoted) => address(quoted.strip_suffix(b"\"")?),
        None => address(node),
    }
}

/// The first pair of an element, and the rest. Semicolons inside quotes do not separate.
fn first_pair(element: &[u8]) -> (&[u8], &[u8]) {
    let mut quoted = false;
    let end = element.iter().enumerate().position(|(at, byte)| {
        quoted ^= *byte == b'"' && !escaped(&element[..at]);
        *byte == b';' && !quoted
    });
    end.map_or((element, &[]), |at| (&element[..at], &element[at + 1..]))
}

/// An address, with or without a port: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]:80`.
pub(super) fn address(text: &[u8]) -> Option<IpAddr> {
    // A scope id is meaningful on one machine only.
    let text = str::from_utf8(text).ok().filter(|text| !text.contains('%'))?;
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    match bare {
        Some(bare) => bare.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        None => text.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|socket| socket.ip())),
    }
}
