//! The grammar of `on_exceed`.
//!
//! ```text
//! exceed := "reject" | "observe" | "wait" duration | "defer" [ "aligned" ] [ "jitter" duration ]
//! ```

use core::fmt;
use core::str::FromStr;

use super::{GrammarError, Words};
use crate::rule::{Deferral, OnExceed};
use crate::time::Span;

impl FromStr for OnExceed {
    type Err = GrammarError;

    fn from_str(text: &str) -> Result<Self, GrammarError> {
        let mut words = Words { text, at: 0 };
        match words.next() {
            "reject" => words.end(Self::Reject),
            "observe" => words.end(Self::Observe),
            "wait" => {
                let most = words.duration()?;
                words.end(Self::Wait(most))
            }
            "defer" => {
                let aligned = words.takes("aligned");
                let jitter = if words.takes("jitter") { words.duration()? } else { Span::ZERO };
                words.end(Self::Defer(Deferral { aligned, jitter }))
            }
            _ => {
                Err(words
                    .wrong_at(0, "a rule that is exceeded does `reject`, `defer`, `wait 5s` or `observe`"))
            }
        }
    }
}

impl Words<'_> {
    /// Takes the next word if it is `word`. Returns whether it was.
    fn takes(&mut self, word: &str) -> bool {
        let is = self.peek() == word;
        if is {
            self.next();
        }
        is
    }
}

impl fmt::Display for OnExceed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reject => f.write_str("reject"),
            Self::Observe => f.write_str("observe"),
            Self::Wait(most) => write!(f, "wait {most}"),
            Self::Defer(how) => {
                f.write_str(if how.aligned { "defer aligned" } else { "defer" })?;
                if how.jitter == Span::ZERO { Ok(()) } else { write!(f, " jitter {}", how.jitter) }
            }
        }
    }
}
