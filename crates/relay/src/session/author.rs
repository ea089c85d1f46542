//! The address of a `From` or `Sender` field (RFC 5322, 3.6.2).
//!
//! `mail-parser` reads the field. Programs disagree on unusual fields: a comment inside an address, a group,
//! several addresses. A client that may use only some domains could show another address to some readers, so
//! this module accepts a field only in a form that all programs read alike.

use mail_parser::parsers::MessageStream;

use super::address::{Address, normal_domain};

/// Whether a field, with the CR LF at its end, shows only addresses of these domains.
pub(super) fn is_of(field: &[u8], domains: &[String]) -> bool {
    let Some(colon) = memchr::memchr(b':', field) else { return false };
    let value = &field[colon + 1..];
    let Some(parsed) = MessageStream::new(value).parse_address().into_address() else { return false };
    let Some([author]) = parsed.as_list() else { return false };
    let is_own = |domain: &str| domains.iter().any(|own| own == domain);
    let name_is_own = author.name().is_none_or(|name| domains_in(name).all(|domain| is_own(&domain)));
    let Some(text) = author.address() else { return false };
    let domain_is_own = Address::read(text).is_some_and(|address| is_own(&address.domain));
    domain_is_own && name_is_own && is_common_form(&String::from_utf8_lossy(value), text)
}

/// Whether a value is `ada@example.com`, `Ada <ada@example.com>` or `ada@example.com (Ada)`.
fn is_common_form(value: &str, address: &str) -> bool {
    let value = value.trim();
    let in_brackets = value.strip_suffix('>').and_then(|rest| rest.strip_suffix(address));
    let comment = value.strip_prefix(address).map(str::trim_start);
    let comment = comment.and_then(|rest| rest.strip_prefix('(')?.strip_suffix(')'));
    value == address
        || in_brackets.is_some_and(|rest| rest.ends_with('<'))
        || comment.is_some_and(|comment| !comment.contains(['(', ')', '\\']))
}

/// The domains of all addresses that a name contains, in their normal form. Readers show the name more often than the
/// address, and some characters look like `@`.
fn domains_in(name: &str) -> impl Iterator<Item = String> {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_');
    name.split(['@', '\u{ff20}', '\u{fe6b}']).skip(1).map(move |rest| {
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        normal_domain(&rest[..end]).unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_accepted(value: &str) -> bool {
        is_of(format!("From:{value}\r\n").as_bytes(), &["acme.example".to_owned()])
    }

    #[test]
    fn common_forms_are_accepted() {
        for value in [
            "ada@acme.example",
            " Ada Lovelace <ada@ACME.example>",
            " Ada Lovelace <ada@acme.example>  ",
            " <ada@acme.example>",
            " \"Lovelace, Ada\" <ada@acme.example>",
            " \"ada@acme.example\" <ada@acme.example>",
            " ada@acme.example <ada@acme.example>",
            " \"Ada (Sales)\" <ada@acme.example>",
            " Ada (Sales) <ada@acme.example>",
            " =?utf-8?q?Ad=C3=A4?= <ada@acme.example>",
            " Ada\r\n\t<ada@acme.example>",
            " root@acme.example (Cron Daemon)",
            " Adä <ada@acme.example>",
            " \"odd \\\"name\" <ada@acme.example>",
        ] {
            assert!(is_accepted(value), "{value}");
        }
        let latin = is_of(b"From: Ad\xe4 <ada@acme.example>\r\n", &["acme.example".to_owned()]);
        assert!(latin, "another character set");
    }

    #[test]
    fn foreign_addresses_and_forms_that_readers_take_for_different_addresses_are_refused() {
        for value in [
            "",
            " ",
            " Ada",
            " ada",
            " b@other.example",
            " Ada <b@other.example>",
            " Ada <b@acme.example.other.example>",
            " a@acme.example, b@other.example",
            " b@other.example, a@acme.example",
            " a@acme.example (<b@other.example>)",
            " (a@acme.example) b@other.example",
            " a@acme.example(x).other.example",
            " a@acme.example (x).other.example (y)",
            " a@acme.example.(x)other.example",
            " a@acme.example .other.example",
            " a@(x)acme.example",
            " <a@acme.example(x).other.example>",
            " Group: a@acme.example;",
            " Group: <a@acme.example>",
            " b@other.example <a@acme.example>",
            " \"b@other.example\" <a@acme.example>",
            " =?utf-8?q?b=40other.example?= <a@acme.example>",
            " =?utf-8?b?YkBvdGhlci5leGFtcGxl?= <a@acme.example>",
            " <b@other.example> <a@acme.example>",
            " <a@acme.example> <b@other.example>",
            " <a@acme.example> b@other.example",
            " <a@acme.example",
            " \"a <a@acme.example>",
            " a@acme.example@other.example",
            " a@other.example@acme.example",
            " <@other.example:a@acme.example>",
            " a@acme.example b@other.example",
            " \"b@other.example\"a@acme.example",
            " \"b@other.example\"@acme.example",
            " <\"b@other.example> \"@acme.example>",
            " (comment a@acme.example",
            " b@other.example\r\n <a@acme.example>",
            " b\u{ff20}other.example <a@acme.example>",
            " b\u{fe6b}other.example <a@acme.example>",
            " Ada (b@other.example) <a@acme.example>",
            " Ada (=?utf-8?q?b=40other.example?=) <a@acme.example>",
            " a@acme.example (b@other.example)",
            " b@other.example;<a@acme.example>",
            " <b@other.example <a@acme.example>",
            " <<b@other.example>> <a@acme.example>",
            " =?utf-8?q?b=40ot?= =?utf-8?q?her.example?= <a@acme.example>",
            " b@=?utf-8?q?other.example?= <a@acme.example>",
            " \"=?utf-8?q?b=40other.example?=\" <a@acme.example>",
            " =?x-unknown?q?b=40other.example?= <a@acme.example>",
        ] {
            assert!(!is_accepted(value), "{value}");
        }
    }
}
