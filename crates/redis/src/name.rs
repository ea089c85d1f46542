//! Under which keys things are kept.
//!
//! A counter's key is `prefix:{rule:key}`, readable and escaped; the braces make a cluster keep
//! everything about it in one place. A key that is too long to read, or must not be read, is hashed.

use std::collections::HashMap;

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use tollgate_core::{Limit, Plan, Span, Ticket};

/// Makes the names of keys.
pub(crate) struct Names {
    prefix: String,
    tags: HashMap<String, String>,
}

/// The longest key that is kept readable, in bytes.
const MOST_READABLE: usize = 128;

impl Names {
    /// Names that begin with this prefix; keys of tagged rules live together.
    pub(crate) fn new(prefix: &str, tags: HashMap<String, String>) -> Self {
        Self { prefix: escaped(prefix), tags }
    }

    /// Where the numbers of a rule at a key are.
    pub(crate) fn counter(&self, plan: &Plan, key: &str) -> String {
        let mut name = self.rule(plan.rule());
        if key.len() > MOST_READABLE || plan.is_secret() {
            name.push('#');
            name.push_str(&HEXLOWER.encode(&Sha256::digest(key.as_bytes())[..16]));
        } else {
            escape(key, &mut name);
        }
        name.push('}');
        name
    }

    /// What the keys of a rule begin with.
    fn rule(&self, rule: &str) -> String {
        let mut name = String::with_capacity(96);
        name.push_str(&self.prefix);
        name.push(':');
        if let Some(tag) = self.tags.get(rule) {
            name.push('{');
            escape(tag, &mut name);
            name.push('}');
        }
        name.push('{');
        escape(rule, &mut name);
        name.push(':');
        name
    }

    /// A pattern that matches all counters of a rule, or of all rules.
    pub(crate) fn pattern(&self, rule: Option<&str>) -> String {
        // Escaped text has no character that means something in a pattern.
        match rule {
            Some(rule) => format!("{}*", self.rule(rule)),
            None => format!("{}:{{*", self.prefix),
        }
    }

    /// Where it is kept up to when rules were forgotten.
    pub(crate) fn forgotten(&self) -> String {
        format!("{}:forgotten", self.prefix)
    }

    /// Where records, their version, and the secret are.
    pub(crate) fn records(&self) -> String {
        format!("{}:records", self.prefix)
    }

    /// Where the ledger is, with its latest changes.
    pub(crate) fn ledger(&self) -> String {
        format!("{}:ledger", self.prefix)
    }
}

/// Where a limit keeps more than numbers, if it does: beside the numbers of its counter.
pub(crate) fn beside(counter: &str, limit: &Limit) -> Option<String> {
    match limit {
        Limit::Sliding(limit) => Some(format!("{counter}:log:{}", limit.period())),
        Limit::Slotted(limit) => Some(format!("{counter}:slots:{}:{}", limit.period(), limit.slot())),
        Limit::InFlight(_) => Some(format!("{counter}:holds")),
        Limit::Ladder(limit) => Some(format!("{counter}:failures:{}", limit.forget())),
        _ => None,
    }
}

/// Where it is marked that what a ticket took at a counter was given back: beside the counter.
pub(crate) fn spent(counter: &str, ticket: Ticket) -> String {
    format!("{counter}:given:{ticket}")
}

/// How long it can matter what was taken under these limits; at most a month or so.
pub(crate) fn memory(plan: &Plan) -> Span {
    const MOST: Span = Span::from_secs(32 * 86_400);
    let of = |limit: &Limit| match limit {
        Limit::Window(limit) => limit.period(),
        Limit::Sliding(limit) => limit.period(),
        Limit::Slotted(limit) => Span::from_micros(limit.period().as_micros() + limit.slot().as_micros()),
        Limit::Bucket(limit) => limit.fills_in(),
        Limit::InFlight(limit) => limit.lease().unwrap_or(MOST),
        Limit::Ladder(limit) => limit.forget(),
        // Where clocks are put back, a day or a week is a little longer than others.
        Limit::Calendar(limit) => {
            limit.period().unit.length().map_or(MOST, |length| Span::from_micros(length.as_micros() * 2))
        }
        Limit::Total { .. } => MOST,
        Limit::PerAttempt { .. } => Span::ZERO,
    };
    plan.limits().iter().map(of).max().unwrap_or(Span::ZERO).min(MOST)
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    escape(text, &mut out);
    out
}

/// Appends a text with everything that is not plainly readable as `%` and two digits.
fn escape(text: &str, out: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'%' | b'{' | b'}' | b'#' | b'*' | b'?' | b'[' | b']' | b'\\' | b'"' => escape_byte(byte, out),
            0x21..=0x7e => out.push(char::from(byte)),
            _ => escape_byte(byte, out),
        }
    }
}

fn escape_byte(byte: u8, out: &mut String) {
    out.push('%');
    HEXLOWER.encode_append(&[byte], out);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(rule: &str) -> Plan {
        Plan::new(rule.into(), vec!["10/min".parse().unwrap()]).unwrap()
    }

    #[test]
    fn keys_are_readable_and_no_two_share_a_name() {
        let names = Names::new("tollgate", HashMap::from([("mail".into(), "m".into())]));
        assert_eq!(names.counter(&plan("ip"), "2001:db8::/64"), "tollgate:{ip:2001:db8::/64}");
        assert_eq!(names.counter(&plan("mail"), "a b"), "tollgate:{m}{mail:a%20b}");
        let keys = ["a", "a}", "{a", "a%7d", "#a", "ä", "", "*", "a:log:1h"];
        let mut seen: Vec<_> = keys.iter().map(|key| names.counter(&plan("ip"), key)).collect();
        seen.push(names.counter(&plan("ip"), &"a".repeat(200)));
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), keys.len() + 1);
    }

    #[test]
    fn a_secret_key_is_nowhere_to_be_read() {
        let names = Names::new("tollgate", HashMap::new());
        let plan = plan("api_key").with_secret_keys();
        assert!(!names.counter(&plan, "sk-123").contains("123"));
    }
}
