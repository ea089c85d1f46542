//! Decides whether a refusal of a next hop concerns a recipient, the message, or the account.
//!
//! The stage decides, unless a rule of the table fits the reply. Replies to the connection, EHLO, AUTH, MAIL and DATA are
//! about the account; those to RCPT are about a recipient; the one to the final dot is about the message. Everything here is
//! pure: it sends nothing and pauses nothing.

mod table;

use std::sync::Arc;

use tollgate_core::Span;

/// The command that a refusal answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReplyStage {
    /// The connection: the greeting, or STARTTLS.
    Connect,
    /// EHLO or HELO.
    Hello,
    /// AUTH.
    Login,
    /// MAIL.
    Mail,
    /// RCPT.
    Recipient,
    /// DATA, before the text.
    Data,
    /// The final dot.
    Text,
}

/// The kind of a next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A provider, which takes mail for everybody.
    Account,
    /// An MX host of the recipients.
    Host,
}

/// The consequence of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The recipient fails for good.
    Bounce,
    /// The recipient is retried.
    Retry,
    /// The recipient is retried, and other mail to its domain waits, too.
    SlowDomain,
    /// The account does not take this message: another one is tried. The message never fails for it.
    Next,
    /// The account takes no mail for a while: it rests, and others are tried. No message fails for it.
    Rest(Rest),
}

/// Why an account rests, from the shortest to the longest rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rest {
    /// Its server asks to slow down, or cannot take mail now.
    Slow,
    /// Its login is wrong.
    Login,
    /// A quota is used up, or its server has suspended it.
    Sleep(Option<Span>),
}

/// A rule for replies, of the operator or of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyRule {
    /// The replies that it fits.
    pub pattern: ReplyPattern,
    /// The stages that it holds for; all of them if there are none.
    pub stages: Vec<ReplyStage>,
    /// The consequence.
    pub verdict: Verdict,
}

/// Words that a reply has in this order, without regard to case. `*` stands between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyPattern(Vec<String>);

/// The rules of the operator, which come before the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplyRules(Arc<[ReplyRule]>);

/// A reply to judge.
#[derive(Clone, Copy, Debug)]
pub struct RefusedReply<'r> {
    /// The command that it answers.
    pub stage: ReplyStage,
    /// The kind of the server.
    pub peer: Peer,
    /// Its three digits.
    pub code: u16,
    /// The code and the text of all lines, in one line.
    pub text: &'r str,
}

impl ReplyPattern {
    /// Reads a pattern, such as `550 5.7.1*daily limit`; `None` if it has no letters or digits.
    pub fn new(text: &str) -> Option<Self> {
        let parts = text.split('*').filter(|part| !part.is_empty()).map(str::to_lowercase);
        text.contains(char::is_alphanumeric).then(|| Self(parts.collect()))
    }

    /// Whether a text in lower case has the words in their order.
    fn fits(&self, text: &str) -> bool {
        in_order(self.0.iter().map(String::as_str), text)
    }
}

impl ReplyRules {
    /// The rules of an operator, the first one first.
    pub fn new(rules: Vec<ReplyRule>) -> Self {
        Self(rules.into())
    }

    /// The consequence of a refusal.
    pub fn judge(&self, refusal: RefusedReply<'_>) -> Verdict {
        let text = one_line(refusal.text);
        let mut own = self.0.iter().filter(|rule| rule.holds_at(refusal.stage));
        if let Some(rule) = own.find(|rule| rule.pattern.fits(&text)) {
            return rule.verdict;
        }
        table::judge(refusal, &text).unwrap_or_else(|| usual(refusal.stage, refusal.code))
    }
}

impl ReplyRule {
    fn holds_at(&self, stage: ReplyStage) -> bool {
        self.stages.is_empty() || self.stages.contains(&stage)
    }
}

/// The consequence if no rule fits.
fn usual(stage: ReplyStage, code: u16) -> Verdict {
    use ReplyStage::{Connect, Data, Hello, Login, Mail, Recipient, Text};
    match (stage, code / 100) {
        // Every message would be told the same.
        (Connect | Hello, _) | (Login | Mail | Data, 4) => Verdict::Rest(Rest::Slow),
        // The server ends the connection, whoever the recipient is.
        (Recipient | Text, _) if code == 421 => Verdict::Rest(Rest::Slow),
        (Login, 5) => Verdict::Rest(Rest::Login),
        (Mail | Data, 5) => Verdict::Next,
        (Recipient | Text, 5) => Verdict::Bounce,
        // A reply that is no refusal is out of step.
        _ => Verdict::Retry,
    }
}

/// A reply in lower case with single spaces, without the status codes that its further lines repeat.
fn one_line(text: &str) -> String {
    let text = text.to_lowercase();
    let mut line = String::with_capacity(text.len());
    for (place, word) in text.split_whitespace().enumerate() {
        if place < 2 || !is_status(word) {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    line
}

/// Whether a word looks like `5.7.1`.
fn is_status(word: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    matches!(word.as_bytes(), [b'4' | b'5', b'.', ..])
        && word.split('.').count() == 3
        && word.split('.').all(digits)
}

/// Whether a text has these parts in their order.
fn in_order<'p>(parts: impl Iterator<Item = &'p str>, text: &str) -> bool {
    let mut rest = text;
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests;
