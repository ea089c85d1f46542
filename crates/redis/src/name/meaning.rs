//! Derives the meaning of a key of the store from its name alone.

use std::borrow::Cow;

use tollgate_core::versioned_map::Namespace;

/// The meaning of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameMeaning {
    /// A counter, or a part of one.
    Counter {
        rule: String,
        /// The key; none if the name has a hash of it.
        key: Option<String>,
        /// The part of the counter that the key contains.
        part: CounterPart,
    },
    /// Records, by the name of their kind.
    Records(&'static str),
}

/// A part of a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CounterPart {
    /// The limits and their numbers.
    Numbers,
    /// The attempts of a sliding limit with this period.
    Log(String),
    /// The slots of a sliding limit: its period, and the length of a slot.
    Slots(String),
    /// The holds of an `at once` limit.
    Holds,
    /// The failures of a ladder, which are forgotten after this time.
    Failures(String),
    /// The mark that a charge was refunded.
    Refunded,
}

impl NameMeaning {
    /// Reads a name, whatever its prefix is. None if the store makes no such names.
    pub fn of(name: &str) -> Option<Self> {
        let counter = name.split_once('{').filter(|(prefix, _)| prefix.ends_with(':'));
        let Some((_, rest)) = counter else { return records(name).map(Self::Records) };
        let (mut inside, mut after) = rest.split_once('}')?;
        // The tag that keeps several rules in one slot comes first.
        if let Some(rest) = after.strip_prefix('{') {
            (inside, after) = rest.split_once('}')?;
        }
        let (rule, key) = inside.split_once(':')?;
        let key = if is_hash(key) { None } else { Some(unescaped(key)?.into_owned()) };
        Some(Self::Counter { rule: unescaped(rule)?.into_owned(), key, part: part(after)? })
    }
}

fn part(after: &str) -> Option<CounterPart> {
    if after.is_empty() {
        return Some(CounterPart::Numbers);
    }
    let after = after.strip_prefix(':')?;
    let (kind, text) = after.split_once(':').unwrap_or((after, ""));
    Some(match kind {
        "log" => CounterPart::Log(text.to_owned()),
        "slots" => CounterPart::Slots(text.replacen(':', " by ", 1)),
        "holds" => CounterPart::Holds,
        "failures" => CounterPart::Failures(text.to_owned()),
        "given" => CounterPart::Refunded,
        _ => return None,
    })
}

fn records(name: &str) -> Option<&'static str> {
    let (_, what) = name.rsplit_once('/')?;
    match what {
        "records" => return Some("the secret that signs receipts and hashes secret keys"),
        "forgotten" => return Some("when each rule was last reset"),
        "ledger" => return Some("lists and locks of an earlier version"),
        _ => {}
    }
    if what.starts_with("probe:") {
        return Some("a probe, which expires at once");
    }
    let space = what.strip_prefix('{')?;
    let space = space.strip_suffix(":ends").unwrap_or(space).strip_suffix('}')?;
    Some(match Namespace::ALL.into_iter().find(|one| one.name() == space)? {
        Namespace::Config => "settings made at run time: overrides, policies, routes",
        Namespace::Lists => "entries made on the blocklist and the allowlist at run time",
        Namespace::Pauses => "pauses of upstreams",
        Namespace::Locks => "locks of guards, sealed",
        Namespace::Accounts => "accounts of the mail relay, with sealed passwords",
        Namespace::Nodes => "reports of the nodes, for `tollgate top --all-nodes`",
    })
}

/// Whether a key is replaced by its hash. In a readable key, `#` is escaped.
fn is_hash(key: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_hexdigit();
    key.strip_prefix('#').is_some_and(|digits| digits.len() == 32 && digits.bytes().all(is_digit))
}

/// Undoes the escaping of a name.
fn unescaped(text: &str) -> Option<Cow<'_, str>> {
    if !text.bytes().all(|byte| matches!(byte, 0x21..=0x7e) && !b"{#*?[]\\\"".contains(&byte)) {
        return None;
    }
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let byte = match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                let digits = std::str::from_utf8(&digits).ok().filter(|two| !two.starts_with('+'))?;
                u8::from_str_radix(digits, 16).ok()?
            }
            byte => byte,
        };
        bytes.push(byte);
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}
