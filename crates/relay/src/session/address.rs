//! Mail addresses in commands: `<user@example.com>`.
//!
//! An address goes to the next hop as it was written, quotation marks included: taken out of its quotes, a local
//! part such as `"a> SIZE=1 <b"` would become a command of its own there.

use std::sync::LazyLock;

use tollgate_core::Rule;
use tollgate_core::key::FieldKind;

/// A mail address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The text as the client sent it.
    pub text: String,
    /// The domain in the form that rules count.
    pub domain: String,
}

/// The reason why a path cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadPath {
    /// There is no `<…>`.
    Syntax,
    /// The text between them is not an address with a domain.
    Address,
}

/// The longest address.
const MOST_BYTES: usize = 320;

/// Parses a path. Returns the address, which is `None` for `<>`, and the text after it.
pub(super) fn read_path(text: &str) -> Result<(Option<Address>, &str), BadPath> {
    let inner = text.trim_start_matches(' ').strip_prefix('<').ok_or(BadPath::Syntax)?;
    let end = end_of_path(inner).ok_or(BadPath::Syntax)?;
    let (path, rest) = (&inner[..end], &inner[end + 1..]);
    if !rest.is_empty() && !rest.starts_with(' ') {
        return Err(BadPath::Syntax);
    }
    if path.is_empty() {
        return Ok((None, rest));
    }
    // A route before the address is obsolete, and ignored.
    let text = match path.strip_prefix('@') {
        Some(route) => route.split_once(':').ok_or(BadPath::Address)?.1,
        None => path,
    };
    Ok((Some(Address::read(text).ok_or(BadPath::Address)?), rest))
}

/// The position of the `>` that is not quoted.
fn end_of_path(text: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'>' if !quoted => return Some(at),
            b'<' | b' ' if !quoted => return None,
            _ => {}
        }
    }
    None
}

impl Address {
    /// Parses an address; `None` if the text is not an address with a domain.
    pub fn read(text: &str) -> Option<Self> {
        let forbidden = |c: char| c.is_control() || c.is_whitespace() && c != ' ';
        if text.len() > MOST_BYTES || text.starts_with('<') || text.chars().any(forbidden) {
            return None;
        }
        let (local, domain) = text.rsplit_once('@')?;
        let quoted = local.starts_with('"');
        if !quoted && local.contains([' ', '<', '>']) || FieldKind::Address.check(text).is_err() {
            return None;
        }
        Some(Self { text: text.to_owned(), domain: normal_domain(domain)? })
    }

    /// Whether it can be sent only with SMTPUTF8.
    pub fn needs_utf8(&self) -> bool {
        !self.text.is_ascii()
    }
}

/// A domain in the form that rules count: lower case, A-labels, no dot at its end.
pub fn normal_domain(domain: &str) -> Option<String> {
    static BY_DOMAIN: LazyLock<Rule> =
        LazyLock::new(|| Rule::new("domain", &["domain"], Vec::new()).expect("it has no limits"));
    BY_DOMAIN.key_of(domain).map(Into::into)
}
