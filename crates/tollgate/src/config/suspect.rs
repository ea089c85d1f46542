//! Guesses what an unknown key means: a term of another program, a setting of another section, or a wrongly
//! indented line.

use tollgate_core::grammar;

use super::tree::{Entry, Node, Value};

/// Terms of other programs, and tollgate's term for each.
const SYNONYMS: [(&[&str], &str); 11] = [
    (&["servers", "server", "url", "urls", "targets", "target", "backends", "endpoints"], "addresses"),
    (&["rate_limit", "ratelimit", "limit", "limits", "limiter"], "policy"),
    (&["prefix", "paths", "uri", "uris", "location", "match"], "path"),
    (&["backend", "service", "proxy_pass", "target", "to"], "upstream"),
    (&["domain", "domains", "server_name"], "host"),
    (&["port", "bind"], "address"),
    (&["cert", "cert_file", "certificate_file"], "certificate"),
    (&["timeout", "read_timeout", "proxy_read_timeout"], "response_timeout"),
    (&["rate", "quota", "quotas"], "limits"),
    (&["per", "key", "keys"], "by"),
    (&["token", "secret", "password", "value"], "token_env"),
];

/// Sections, and the settings that belong to them.
const BELOW: [(&str, &[&str]); 3] = [
    ("bounds", &["head_bytes", "head_lines", "head_timeout", "tunnels", "tunnel_timeout", "streams"]),
    ("clients", &["trusted_proxies", "address_header", "api_keys", "tokens"]),
    ("gateway", &["upstreams", "routes", "workers", "access_log", "bounds"]),
];

/// Tollgate's term for an unknown key, if it is a term of another program.
pub(super) fn synonym(found: &str, known: &[&str]) -> Option<String> {
    let word = found.to_ascii_lowercase().replace('-', "_");
    let ours = SYNONYMS.iter().filter(|(words, _)| words.contains(&&*word)).map(|(_, ours)| *ours);
    ours.into_iter().find(|ours| known.contains(ours)).map(str::to_owned)
}

/// The section to which a key belongs.
pub(super) fn section_of(found: &str) -> Option<&'static str> {
    BELOW.iter().find(|(_, keys)| keys.contains(&found)).map(|(section, _)| *section)
}

/// The likely meaning of an unknown section that should stand inside another one: a rule or a policy.
pub(super) fn outdented(node: &Node) -> Option<&'static str> {
    match &node.value {
        Value::Table(entries) => {
            let rule = entries.iter().any(|entry| matches!(&*entry.key, "limits" | "by"));
            rule.then_some("a rule, to be indented below `rules`")
        }
        Value::List(_) => Some("a policy, to be indented below `policies`"),
        _ => None,
    }
}

/// The error for an unknown key that is one of several limits without brackets, as in `{ limits: 10/min, 100/hour }`.
pub(super) fn unbracketed(entries: &[Entry], entry: &Entry) -> Option<String> {
    let is_limit = |text: &str| grammar::parse(text).is_ok_and(|limit| limit.is_some());
    if !matches!(entry.node.value, Value::Null) || !is_limit(&entry.key) {
        return None;
    }
    let at = entries.iter().position(|own| std::ptr::eq(own, entry))?;
    let limits = entries[..at].iter().rposition(|own| &*own.key == "limits")?;
    let Value::Text(first) = &entries[limits].node.value else { return None };
    let more = entries[limits + 1..].iter();
    let more = more.take_while(|own| matches!(own.node.value, Value::Null) && is_limit(&own.key));
    let all: Vec<&str> = std::iter::once(&**first).chain(more.map(|own| &*own.key)).collect();
    Some(format!("several limits need brackets: write `limits: [{}]`", all.join(", ")))
}

/// The last key before `entry` that has no value.
pub(super) fn empty_above<'n>(entries: &'n [Entry], entry: &Entry) -> Option<&'n str> {
    let above = entries.iter().take_while(|above| !std::ptr::eq(*above, entry));
    above.filter(|above| matches!(above.node.value, Value::Null)).last().map(|above| &*above.key)
}
