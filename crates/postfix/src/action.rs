//! The action that a request gets: exactly one line, whatever values it quotes.

/// The longest text of an action, in bytes: an SMTP reply line has 512, and Postfix puts its own words before it.
const MOST_TEXT: usize = 350;

/// The action that Postfix takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// No action: the restrictions after the check decide.
    Dunno,
    /// Answer with 4xx, unless a later restriction rejects the message for good.
    Defer {
        /// The enhanced status code.
        status: &'static str,
        /// The reason, for the sender.
        text: String,
    },
    /// Answer with 5xx.
    Reject {
        /// The enhanced status code.
        status: &'static str,
        /// The reason, for the sender.
        text: String,
    },
}

impl Action {
    pub(crate) fn defer(status: &'static str, text: impl Into<String>) -> Self {
        Self::Defer { status, text: text.into() }
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        let (word, status, text) = match self {
            Self::Dunno => return out.extend_from_slice(b"action=DUNNO\n\n"),
            Self::Defer { status, text } => ("DEFER_IF_PERMIT", status, text),
            Self::Reject { status, text } => ("REJECT", status, text),
        };
        out.extend_from_slice(format!("action={word} {status} ").as_bytes());
        // Replaces characters that could end the line or that SMTP does not allow.
        let printable = |c: char| if c == ' ' || c.is_ascii_graphic() { c as u8 } else { b'?' };
        out.extend(text.chars().take(MOST_TEXT).map(printable));
        out.extend_from_slice(b"\n\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(action: &Action) -> String {
        let mut out = Vec::new();
        action.write(&mut out);
        String::from_utf8(out).expect("an action is ASCII")
    }

    #[test]
    fn a_text_cannot_end_its_line() {
        let text = "sender x\n\naction=OK\r\n\0\u{85}\u{2028}é".to_owned();
        let action = Action::Defer { status: "4.7.1", text };
        assert_eq!(written(&action), "action=DEFER_IF_PERMIT 4.7.1 sender x??action=OK??????\n\n");
    }

    #[test]
    fn a_long_text_is_cut() {
        let action = Action::Reject { status: "5.7.1", text: "x".repeat(10_000) };
        assert_eq!(written(&action).len(), "action=REJECT 5.7.1 \n\n".len() + MOST_TEXT);
    }
}
