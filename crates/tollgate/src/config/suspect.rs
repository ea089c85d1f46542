//! Guesses what an unknown key means: a term of another program, a setting of another section, or a wrongly
//! indented line.

use super::tree::{Entry, Node, Value};

/// Terms of other programs, and tollgate's.
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

/// Settings, and the section to which they belong.
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

/// What an unknown section looks like, if it looks like part of another one.
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

/// The last key before `entry` that has nothing below it.
pub(super) fn empty_above<'n>(entries: &'n [Entry], entry: &Entry) -> Option<&'n str> {
    let above = entries.iter().take_while(|above| !std::ptr::eq(*above, entry));
    above.filter(|above| matches!(above.node.value, Value::Null)).last().map(|above| &*above.key)
}

/// The error for an indentation between the levels of the lines above it, which is not valid YAML.
pub(super) fn between_levels(text: &str, line: usize) -> Option<String> {
    let indented =
        |line: &str| (!line.trim().is_empty()).then(|| line.len() - line.trim_start_matches(' ').len());
    let mut levels: Vec<usize> = Vec::new();
    for line in text.lines().take(line.checked_sub(1)?).filter(|line| !line.trim_start().starts_with('#')) {
        let Some(indent) = indented(line) else { continue };
        levels.retain(|level| *level < indent);
        levels.push(indent);
    }
    let indent = indented(text.lines().nth(line - 1)?)?;
    if levels.contains(&indent) || levels.last().is_none_or(|deepest| *deepest < indent) {
        return None;
    }
    let spaces = if indent == 1 { "space" } else { "spaces" };
    let levels: Vec<String> = levels.iter().map(ToString::to_string).collect();
    Some(format!(
        "the line is indented by {indent} {spaces}, and those above it by {}: indent it like the ones that it belongs to",
        levels.join(", ")
    ))
}
