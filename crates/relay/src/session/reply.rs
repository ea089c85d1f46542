//! Replies: a code, an enhanced status code (RFC 3463), and text.

use std::borrow::Cow;

/// The longest line of a reply, with its CR LF (RFC 5321, 4.5.3.1.5).
const MOST_LINE: usize = 512;

/// One reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    code: u16,
    status: Option<&'static str>,
    lines: Vec<Cow<'static, str>>,
}

impl Reply {
    /// A reply with an enhanced status code.
    pub fn new(code: u16, status: &'static str, text: impl Into<Cow<'static, str>>) -> Self {
        Self { code, status: Some(status), lines: vec![text.into()] }
    }

    /// A reply that has no enhanced status code: a greeting, 334, 354, and that to EHLO.
    pub fn plain(code: u16, lines: impl IntoIterator<Item = impl Into<Cow<'static, str>>>) -> Self {
        Self { code, status: None, lines: lines.into_iter().map(Into::into).collect() }
    }

    pub fn code(&self) -> u16 {
        self.code
    }

    /// The enhanced status code.
    pub fn status(&self) -> Option<&'static str> {
        self.status
    }

    /// The first line of text.
    pub fn text(&self) -> &str {
        self.lines.first().map_or("", |line| line)
    }

    /// Appends the reply as it is sent. Text may contain what a client sent, so every character that is not
    /// printable ASCII becomes `?`, and long lines are cut.
    pub fn write(&self, out: &mut Vec<u8>) {
        let last = self.lines.len().saturating_sub(1);
        for (index, line) in self.lines.iter().enumerate() {
            let start = out.len();
            let separator = if index == last { ' ' } else { '-' };
            out.extend_from_slice(format!("{:03}{separator}", self.code).as_bytes());
            if let Some(status) = self.status {
                out.extend_from_slice(status.as_bytes());
                out.push(b' ');
            }
            let printable = |c: char| if matches!(c, ' '..='~') { c as u8 } else { b'?' };
            out.extend(line.chars().map(printable));
            out.truncate(start + MOST_LINE - 2);
            out.extend_from_slice(b"\r\n");
        }
    }
}
