//! One policy request: lines `name=value`, in any order. Unknown names are ignored.

use std::fmt;

use memchr::memchr;
use tollgate_core::MAX_EXACT;

/// The most attributes of a request. Postfix sends about 30.
pub const MOST_ATTRIBUTES: usize = 200;
/// The longest line, in bytes, without its end. Postfix cuts its lines at about 2 KiB.
pub const MOST_LINE: usize = 8 * 1024;
/// The largest request, in bytes.
pub const MOST_REQUEST: usize = 64 * 1024;

/// The only kind of request that Postfix sends.
const POLICY_REQUEST: &[u8] = b"smtpd_access_policy";

/// The attributes of a request that the door uses. Each is empty if Postfix does not know it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request<'b> {
    pub protocol_state: &'b [u8],
    pub instance: &'b [u8],
    pub queue_id: &'b [u8],
    pub client_address: &'b [u8],
    pub client_name: &'b [u8],
    pub helo_name: &'b [u8],
    pub sender: &'b [u8],
    pub recipient: &'b [u8],
    pub recipient_count: &'b [u8],
    pub size: &'b [u8],
    pub sasl_username: &'b [u8],
    pub policy_context: &'b [u8],
    pub server_port: &'b [u8],
}

/// Why bytes are not a policy request. The client's fault; nothing was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// More than [`MOST_REQUEST`] bytes.
    TooLong,
    /// A line of more than [`MOST_LINE`] bytes.
    LineTooLong,
    /// More than [`MOST_ATTRIBUTES`] attributes.
    TooManyAttributes,
    /// A line that is not `name=value`.
    NotAnAttribute,
    /// A NUL byte.
    Nul,
    /// An attribute that must be a whole number but is not.
    NotANumber { attribute: &'static str },
    /// There is no `request=smtpd_access_policy`.
    NotAPolicyRequest,
}

impl<'b> Request<'b> {
    /// Parses the lines of a request. Each has its line end; the empty line after the last one is left out.
    pub fn parse(mut lines: &'b [u8]) -> Result<Self, Malformed> {
        if lines.len() > MOST_REQUEST {
            return Err(Malformed::TooLong);
        }
        if memchr(0, lines).is_some() {
            return Err(Malformed::Nul);
        }
        let (mut request, mut kind) = (Self::default(), &b""[..]);
        let mut count = 0;
        while !lines.is_empty() {
            let end = memchr(b'\n', lines).unwrap_or(lines.len());
            let (line, rest) = (&lines[..end], lines.get(end + 1..).unwrap_or_default());
            count += 1;
            if count > MOST_ATTRIBUTES {
                return Err(Malformed::TooManyAttributes);
            }
            if line.len() > MOST_LINE {
                return Err(Malformed::LineTooLong);
            }
            let at = memchr(b'=', line).filter(|at| *at > 0).ok_or(Malformed::NotAnAttribute)?;
            let (name, value) = (&line[..at], &line[at + 1..]);
            let slot = if name == b"request" { Some(&mut kind) } else { request.slot(name) };
            // If an attribute is repeated, its first value counts.
            if let Some(slot) = slot.filter(|slot| slot.is_empty()) {
                *slot = value;
            }
            lines = rest;
        }
        if kind != POLICY_REQUEST {
            return Err(Malformed::NotAPolicyRequest);
        }
        request.check_numbers()?;
        Ok(request)
    }

    fn slot(&mut self, name: &[u8]) -> Option<&mut &'b [u8]> {
        Some(match name {
            b"protocol_state" => &mut self.protocol_state,
            b"instance" => &mut self.instance,
            b"queue_id" => &mut self.queue_id,
            b"client_address" => &mut self.client_address,
            b"client_name" => &mut self.client_name,
            b"helo_name" => &mut self.helo_name,
            b"sender" => &mut self.sender,
            b"recipient" => &mut self.recipient,
            b"recipient_count" => &mut self.recipient_count,
            b"size" => &mut self.size,
            b"sasl_username" => &mut self.sasl_username,
            b"policy_context" => &mut self.policy_context,
            b"server_port" => &mut self.server_port,
            _ => return None,
        })
    }

    fn check_numbers(&self) -> Result<(), Malformed> {
        let numbers = [
            ("recipient_count", self.recipient_count),
            ("size", self.size),
            ("server_port", self.server_port),
        ];
        for (attribute, value) in numbers {
            if !value.is_empty() && number(value).is_none() {
                return Err(Malformed::NotANumber { attribute });
            }
        }
        Ok(())
    }
}

/// Parses a whole number that is small enough to be counted exactly.
pub(crate) fn number(digits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    text?.parse().ok().filter(|number| *number <= MAX_EXACT)
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => write!(f, "the request is longer than {MOST_REQUEST} bytes"),
            Self::LineTooLong => write!(f, "a line is longer than {MOST_LINE} bytes"),
            Self::TooManyAttributes => write!(f, "there are more than {MOST_ATTRIBUTES} attributes"),
            Self::NotAnAttribute => f.write_str("a line is not `name=value`"),
            Self::Nul => f.write_str("there is a NUL byte in it"),
            Self::NotANumber { attribute } => write!(f, "`{attribute}` is not a whole number"),
            Self::NotAPolicyRequest => f.write_str("there is no `request=smtpd_access_policy`"),
        }
    }
}

impl std::error::Error for Malformed {}
