//! Parses and prints addresses quickly, since every decision by an address does one or both.
//!
//! It accepts and prints exactly what the standard library does.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::charge::KeyText;

/// Parses an address.
#[inline]
pub(crate) fn read(text: &str) -> Option<IpAddr> {
    if let Some(address) = read_v4(text) {
        return Some(IpAddr::V4(address));
    }
    if let Some(address) = read_v6(text.as_bytes()) {
        return Some(IpAddr::V6(address));
    }
    // Unusual spellings.
    text.parse().ok()
}

/// Parses an IPv4 address. There is only one spelling of each.
#[inline]
pub(crate) fn read_v4(text: &str) -> Option<Ipv4Addr> {
    let mut rest = text.as_bytes();
    let mut bits = 0;
    for place in 0..4 {
        if place > 0 {
            rest = rest.strip_prefix(b".")?;
        }
        // A number with a leading zero has no further digits.
        let (number, digits) = match *rest {
            [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', ..] => {
                (100 * digit(a) + 10 * digit(b) + digit(c), 3)
            }
            [a @ b'1'..=b'9', b @ b'0'..=b'9', ..] => (10 * digit(a) + digit(b), 2),
            [a @ b'0'..=b'9', ..] => (digit(a), 1),
            _ => return None,
        };
        if number > 255 {
            return None;
        }
        bits = bits << 8 | number;
        rest = &rest[digits..];
    }
    rest.is_empty().then(|| Ipv4Addr::from_bits(bits))
}

#[inline]
fn digit(byte: u8) -> u32 {
    u32::from(byte - b'0')
}

/// Parses an IPv6 address without an IPv4 address at its end.
#[inline]
fn read_v6(bytes: &[u8]) -> Option<Ipv6Addr> {
    if !(2..=39).contains(&bytes.len()) {
        return None;
    }
    let mut groups = [0_u16; 8];
    let (mut count, mut gap, mut at) = (0, None, 0);
    if bytes.starts_with(b"::") {
        (gap, at) = (Some(0), 2);
    }
    while at < bytes.len() {
        let start = at;
        let mut group = 0_u16;
        while let Some(digit) = bytes.get(at).and_then(|byte| HEX[usize::from(*byte)]) {
            if at - start == 4 {
                return None;
            }
            group = group << 4 | digit;
            at += 1;
        }
        if at == start || count == 8 {
            return None;
        }
        groups[count] = group;
        count += 1;
        match bytes.get(at..) {
            Some([b':', b':', ..]) if gap.is_none() => {
                gap = Some(count);
                at += 2;
            }
            Some([b':', _, ..]) => at += 1,
            Some([]) => {}
            _ => return None,
        }
    }
    let missing = 8 - count;
    match gap {
        // It stands for at least one group of zeros.
        Some(gap) if missing > 0 => groups[gap..].rotate_right(missing),
        None if missing == 0 => {}
        _ => return None,
    }
    Some(Ipv6Addr::from(groups))
}

/// The value of each hexadecimal digit.
const HEX: [Option<u16>; 256] = {
    let mut table = [None; 256];
    let mut byte = 0;
    while byte < 256 {
        let digit = (byte as u8 as char).to_digit(16);
        if let Some(digit) = digit {
            table[byte] = Some(digit as u16);
        }
        byte += 1;
    }
    table
};

/// Appends an address.
pub(crate) fn write(address: IpAddr, out: &mut KeyText) {
    match address {
        IpAddr::V4(address) => write_v4(address, out),
        IpAddr::V6(address) => write_v6(address, out),
    }
}

fn write_v4(address: Ipv4Addr, out: &mut KeyText) {
    for (index, number) in address.octets().into_iter().enumerate() {
        if index > 0 {
            out.push(b'.');
        }
        write_number(number, out);
    }
}

/// Appends a number in decimal.
pub(crate) fn write_number(number: u8, out: &mut KeyText) {
    if number >= 100 {
        out.push(b'0' + number / 100);
    }
    if number >= 10 {
        out.push(b'0' + number / 10 % 10);
    }
    out.push(b'0' + number % 10);
}

fn write_v6(address: Ipv6Addr, out: &mut KeyText) {
    let groups = address.segments();
    // An IPv4-mapped address has its own form.
    if let Some(inner) = address.to_ipv4_mapped() {
        out.extend_from_slice(b"::ffff:");
        return write_v4(inner, out);
    }
    let (start, length) = longest_gap(&groups);
    let (before, after) = if length > 1 { (start, start + length) } else { (8, 8) };
    write_groups(&groups[..before], out);
    if length > 1 {
        out.extend_from_slice(b"::");
        write_groups(&groups[after..], out);
    }
}

/// The first of the longest runs of zeros: its start and its length.
fn longest_gap(groups: &[u16; 8]) -> (usize, usize) {
    let (mut best, mut current) = ((0, 0), (0, 0));
    for (index, group) in groups.iter().enumerate() {
        if *group != 0 {
            current = (index + 1, 0);
        } else {
            current.1 += 1;
            if current.1 > best.1 {
                best = current;
            }
        }
    }
    best
}

fn write_groups(groups: &[u16], out: &mut KeyText) {
    for (index, group) in groups.iter().enumerate() {
        if index > 0 {
            out.push(b':');
        }
        let digits = (16 - group.leading_zeros()).div_ceil(4).max(1);
        for digit in (0..digits).rev() {
            out.push(b"0123456789abcdef"[usize::from(*group >> (4 * digit) & 15)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::{String, ToString};

    use proptest::prelude::*;

    use super::*;

    fn written(address: IpAddr) -> String {
        let mut out = KeyText::new();
        write(address, &mut out);
        String::from_utf8(out.to_vec()).expect("it is text")
    }

    /// Addresses with runs of zeros, which random ones hardly have.
    fn v6() -> impl Strategy<Value = Ipv6Addr> {
        prop::array::uniform8(prop_oneof![Just(0_u16), Just(1), Just(0xffff), any::<u16>()])
            .prop_map(Ipv6Addr::from)
    }

    #[test]
    fn numbers_longer_than_any_in_an_address_are_none() {
        for text in ["4300000000", "999999999999999", "256.1.1.1", "1000.1.1.1", "1.1.1.4294967297"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn addresses_are_read_and_written_as_the_standard_library_does(v4: u32, v6 in v6()) {
            for address in [IpAddr::V4(Ipv4Addr::from_bits(v4)), IpAddr::V6(v6)] {
                prop_assert_eq!(written(address), address.to_string());
                prop_assert_eq!(read(&address.to_string()), Some(address));
            }
        }

        #[test]
        fn what_is_nearly_an_address_is_read_as_the_standard_library_reads_it(
            text in "[0-9.]{5,16}|([0-9a-fA-F]{0,5}:{1,2}){1,9}[0-9a-f]{0,4}|::ffff:[0-9.]{5,16}|[0-9a-f:.]{0,42}",
        ) {
            prop_assert_eq!(read_v4(&text), text.parse().ok());
            prop_assert_eq!(read(&text), text.parse().ok());
            if let Some(address) = read_v6(text.as_bytes()) {
                prop_assert_eq!(Ok(address), text.parse());
            }
        }

        #[test]
        fn mangled_addresses_are_read_as_the_standard_library_reads_them(
            v6 in v6(), at: prop::sample::Index, byte in "[0-9a-fg:./% ]",
        ) {
            let mut text = v6.to_string();
            let index = at.index(text.len() + 1);
            text.insert_str(index, &byte);
            prop_assert_eq!(read(&text), text.parse().ok());
        }
    }
}
