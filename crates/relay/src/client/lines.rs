//! The command lines of a transaction.

use std::fmt::Write;

use super::Extensions;
use crate::message::{Envelope, Notify, Recipient};

/// MAIL with the options that the server offers.
pub(super) fn mail_line(envelope: &Envelope, size: u64, extensions: &Extensions) -> String {
    let mut line = format!("MAIL FROM:<{}>", envelope.sender.as_deref().unwrap_or_default());
    if extensions.size.is_some() {
        let _ = write!(line, " SIZE={size}");
    }
    if envelope.needs.eight_bit && extensions.eight_bit {
        line.push_str(" BODY=8BITMIME");
    }
    if envelope.needs.utf8 {
        line.push_str(" SMTPUTF8");
    }
    if extensions.dsn {
        line.push_str(if envelope.report.full { " RET=FULL" } else { " RET=HDRS" });
        if let Some(id) = &envelope.report.envelope_id {
            let _ = write!(line, " ENVID={}", xtext(id));
        }
    }
    line.push_str("\r\n");
    line
}

/// RCPT with the wishes about reports, if the server offers DSN.
pub(super) fn rcpt_line(recipient: &Recipient, dsn: bool) -> String {
    let mut line = format!("RCPT TO:<{}>", recipient.address);
    if dsn {
        let Notify { success, failure, delay } = recipient.notify;
        let wishes = [(success, "SUCCESS"), (failure, "FAILURE"), (delay, "DELAY")];
        let wishes: Vec<&str> = wishes.iter().filter(|(wish, _)| *wish).map(|(_, name)| *name).collect();
        let _ = write!(line, " NOTIFY={}", if wishes.is_empty() { "NEVER".into() } else { wishes.join(",") });
        if let Some(original) = &recipient.original {
            let (kind, address) = original.split_once(';').unwrap_or(("rfc822", original));
            // An address of type utf-8 has an encoding of its own, which it still has (RFC 6533).
            let encoded = kind.eq_ignore_ascii_case("utf-8");
            let address = if encoded { address.to_owned() } else { xtext(address.trim_start()) };
            let _ = write!(line, " ORCPT={kind};{address}");
        }
    }
    line.push_str("\r\n");
    line
}

/// Whether an address can be written into a command without being more than an address.
pub(super) fn is_plain(address: &str) -> bool {
    !address.chars().any(|char| char.is_control() || matches!(char, '<' | '>'))
}

/// RFC 3461: what is not printable, `+` and `=` are written as `+` and two digits.
fn xtext(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if (b'!'..=b'~').contains(&byte) && byte != b'+' && byte != b'=' {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "+{byte:02X}");
        }
    }
    out
}
