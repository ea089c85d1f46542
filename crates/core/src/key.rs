//! Keys: turns the fields of an attempt into the text under which a rule counts.
//!
//! The encoding is injective. A rule with one field uses its value unchanged. With several, values are joined
//! by commas, and commas and backslashes inside them are escaped.

mod domain;
mod mailbox;

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::charge::KeyText;
use crate::derived::Derivation;
pub(crate) use crate::policy::same;

/// The longest value a field may have, in bytes.
pub const MOST_FIELD_BYTES: usize = 1_024;

/// The kind of a field, which determines the normalized form of its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FieldKind {
    /// Any text, unchanged.
    Text,
    /// A network address, cut to a prefix. An IPv4-mapped IPv6 address counts as IPv4.
    Ip {
        /// How many bits of an IPv4 address count.
        v4: u8,
        /// How many bits of an IPv6 address count.
        v6: u8,
    },
    /// A mail address in one form: without unnecessary quoting, in lower case and in NFC, with its domain as
    /// for [`FieldKind::Domain`]. The null sender (`<>` or nothing) counts as absent.
    Address,
    /// A domain in one form: in lower case, with A-labels (IDNA), without a final dot. An address literal
    /// (`[192.0.2.1]`) is one too.
    Domain,
}

/// Why a value is invalid in a key. The caller's fault; nothing was charged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueError {
    /// It is empty. A missing field must be left out.
    Empty,
    /// Longer than [`MOST_FIELD_BYTES`].
    TooLong {
        /// How long it is.
        bytes: usize,
    },
    /// It is not a network address.
    NotAnIp,
    /// It is not a whole number, although a limit bounds it.
    NotANumber,
    /// It is not a mail address.
    NotAnAddress {
        /// What is wrong with it.
        why: &'static str,
    },
    /// It is not a domain.
    NotADomain {
        /// What is wrong with it.
        why: &'static str,
    },
    /// It differs from the value that is derived from another field.
    NotDerived {
        /// The other field.
        source: String,
    },
}

/// The kinds of fields: as configured, or else by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kinds {
    said: BTreeMap<Arc<str>, FieldKind>,
    pub(crate) derived: Vec<Derivation>,
}

/// Whether a value is present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Present,
    Absent,
}

/// The fields that hold addresses by their names.
const ADDRESSES: [&str; 2] = ["client_ip", "ip"];

/// Checks the name of a field.
pub fn check_field_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    if (1..=64).contains(&name.len()) && name.chars().all(fits) {
        return Ok(());
    }
    let shown: String = name.chars().take(64).flat_map(char::escape_debug).collect();
    Err(format!("`{shown}` cannot name a field: use up to 64 of `A-Z a-z 0-9 _ . -`"))
}

impl Kinds {
    /// Sets the kinds of these fields.
    pub fn new(said: impl IntoIterator<Item = (Arc<str>, FieldKind)>) -> Self {
        Self { said: said.into_iter().collect(), derived: Vec::new() }
    }

    /// Adds the kinds of fields that have none yet.
    #[must_use]
    pub(crate) fn or(mut self, said: impl Iterator<Item = (Arc<str>, FieldKind)>) -> Self {
        for (name, kind) in said {
            self.said.entry(name).or_insert(kind);
        }
        self
    }

    /// The kind of a field.
    pub fn of(&self, name: &str) -> FieldKind {
        self.said.get(name).copied().unwrap_or_else(|| FieldKind::of_name(name))
    }

    /// Whether the kind of a field was set.
    pub fn tells(&self, name: &str) -> bool {
        self.said.contains_key(name)
    }

    /// The fields that hold addresses.
    pub fn addresses(&self) -> impl Iterator<Item = Arc<str>> {
        let named = ADDRESSES.iter().filter(|name| !self.tells(name)).map(|name| Arc::from(*name));
        let said = self.said.iter().filter(|(_, kind)| matches!(kind, FieldKind::Ip { .. }));
        named.chain(said.map(|(name, _)| Arc::clone(name)))
    }
}

impl FieldKind {
    /// The default kind of a field, by its well-known name.
    pub fn of_name(name: &str) -> Self {
        match name {
            name if ADDRESSES.contains(&name) => Self::Ip { v4: 32, v6: 64 },
            "sender" | "recipient" => Self::Address,
            "domain" | "sender_domain" | "recipient_domain" => Self::Domain,
            _ => Self::Text,
        }
    }

    /// Whether a value is already in its normalized form.
    #[inline]
    pub(crate) fn is_plain(self, value: &str) -> bool {
        (1..=MOST_FIELD_BYTES).contains(&value.len()) && (self == Self::Text || self.is_normal(value))
    }

    /// Whether the normalized form of a value may contain commas or backslashes.
    fn may_need_escapes(self) -> bool {
        !matches!(self, Self::Ip { .. })
    }

    fn is_normal(self, value: &str) -> bool {
        match self {
            Self::Text => true,
            // The parser accepts only one spelling of an IPv4 address.
            Self::Ip { v4: 32, .. } => value.parse::<Ipv4Addr>().is_ok(),
            Self::Ip { .. } => false,
            Self::Domain => domain::is_plain(value.as_bytes()),
            Self::Address => mailbox::is_plain(value),
        }
    }

    /// Checks a value. The null sender is valid, though it makes no key.
    pub fn check(self, value: &str) -> Result<(), ValueError> {
        self.write(value, &mut KeyText::new()).map(|_| ())
    }

    /// The domain of a mail address as written; `None` if it has none.
    pub(crate) fn domain_of(address: &str) -> Option<&str> {
        mailbox::domain_of(address)
    }

    /// Appends the normalized form of a value.
    pub(crate) fn write(self, value: &str, out: &mut KeyText) -> Result<Presence, ValueError> {
        if value.len() > MOST_FIELD_BYTES {
            return Err(ValueError::TooLong { bytes: value.len() });
        }
        let start = out.len();
        match self {
            Self::Address => return mailbox::write(value, out),
            Self::Text => out.extend_from_slice(value.as_bytes()),
            Self::Domain => domain::write(value, out).map_err(|why| ValueError::NotADomain { why })?,
            Self::Ip { .. } if value.is_empty() => {}
            // Copying is faster than parsing and printing.
            Self::Ip { .. } if self.is_normal(value) => out.extend_from_slice(value.as_bytes()),
            Self::Ip { v4, v6 } => write_ip(value, v4, v6, out)?,
        }
        if out.len() == start { Err(ValueError::Empty) } else { Ok(Presence::Present) }
    }
}

/// Appends the key of these values, in the order of their fields. The error has the index of the value.
pub(crate) fn write_all<'v>(
    values: impl ExactSizeIterator<Item = (FieldKind, Option<&'v str>)>,
    out: &mut KeyText,
) -> Result<Presence, (usize, ValueError)> {
    let several = values.len() > 1;
    for (index, (kind, value)) in values.enumerate() {
        let Some(value) = value else { return Ok(Presence::Absent) };
        if index > 0 {
            out.push(b',');
        }
        let start = out.len();
        if kind.write(value, out).map_err(|error| (index, error))? == Presence::Absent {
            return Ok(Presence::Absent);
        }
        if several && kind.may_need_escapes() {
            escape_from(start, out);
        }
    }
    Ok(Presence::Present)
}

/// Escapes the text from `start` on, so that a comma after it can only be a separator.
pub(crate) fn escape_from(start: usize, out: &mut KeyText) {
    if !out[start..].iter().any(|byte| matches!(byte, b',' | b'\\')) {
        return;
    }
    let plain: KeyText = out[start..].into();
    out.truncate(start);
    for byte in plain {
        if matches!(byte, b',' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
}

/// Splits the text of a key into its values, for a rule with `count` fields.
pub(crate) fn split(key: &str, count: usize) -> Option<Vec<String>> {
    if count <= 1 {
        return Some(alloc::vec![String::from(key)]);
    }
    let mut values = alloc::vec![String::new()];
    let mut chars = key.chars();
    while let Some(c) = chars.next() {
        match c {
            ',' => values.push(String::new()),
            '\\' => values.last_mut()?.push(chars.next()?),
            c => values.last_mut()?.push(c),
        }
    }
    (values.len() == count).then_some(values)
}

/// Appends an address, or a network in exactly the form that is written here.
fn write_ip(value: &str, v4: u8, v6: u8, out: &mut KeyText) -> Result<(), ValueError> {
    let (bare, prefix) = match value.split_once('/') {
        Some((bare, prefix)) => (bare, Some(prefix.parse::<u8>().map_err(|_| ValueError::NotAnIp)?)),
        None => (value, None),
    };
    let address: IpAddr = bare.parse().map_err(|_| ValueError::NotAnIp)?;
    let (network, kept, whole) = match address.to_canonical() {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(v4)).unwrap_or(0);
            (IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask)), v4, 32)
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(v6)).unwrap_or(0);
            (IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask)), v6, 128)
        }
    };
    if prefix.is_some_and(|prefix| prefix != kept) {
        return Err(ValueError::NotAnIp);
    }
    write_network(network, kept, whole, out);
    Ok(())
}

/// Appends what a value prints.
fn write_text(value: impl core::fmt::Display, out: &mut KeyText) {
    struct Bytes<'k>(&'k mut KeyText);
    impl core::fmt::Write for Bytes<'_> {
        fn write_str(&mut self, text: &str) -> core::fmt::Result {
            self.0.extend_from_slice(text.as_bytes());
            Ok(())
        }
    }
    let _ = core::fmt::Write::write_fmt(&mut Bytes(out), format_args!("{value}"));
}

fn write_network(address: IpAddr, prefix: u8, whole: u8, out: &mut KeyText) {
    write_text(address, out);
    if prefix != whole {
        out.push(b'/');
        write_text(prefix, out);
    }
}

impl core::fmt::Display for ValueError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Empty => f.write_str("is empty; leave the field out if there is none"),
            Self::TooLong { bytes } => {
                write!(f, "is {bytes} bytes long; at most {MOST_FIELD_BYTES} are allowed")
            }
            Self::NotAnIp => f.write_str("is not an IPv4 or IPv6 address"),
            Self::NotANumber => f.write_str("is not a whole number"),
            Self::NotAnAddress { why } => {
                write!(f, "is not a mail address: {why}; write it as in `user@example.com`")
            }
            Self::NotDerived { source } => {
                write!(f, "is not the one of `{source}`, from which it is derived; leave it out")
            }
            Self::NotADomain { why } => write!(f, "is not a domain: {why}; write it as in `example.com`"),
        }
    }
}
