//! Codes: the names of rules for applications, independent of the names here.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use core::ops::Deref;
use core::str::FromStr;

/// The code of a rule in its denials, such as `MAX_ACTIVE_DEALS`: 1 to [`Code::MOST_BYTES`] of `A-Z a-z 0-9 _
/// . -`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Code(Arc<str>);

/// An invalid code. The operator's fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadCode {
    /// It is empty.
    Empty,
    /// It is longer than [`Code::MOST_BYTES`].
    TooLong {
        /// How long it is.
        bytes: usize,
    },
    /// It has a character that is not allowed.
    Stray {
        /// The first of them.
        found: char,
    },
}

impl Code {
    /// The longest code, in bytes.
    pub const MOST_BYTES: usize = 64;
}

impl FromStr for Code {
    type Err = BadCode;

    fn from_str(text: &str) -> Result<Self, BadCode> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        match text.chars().find(|c| !fits(*c)) {
            Some(found) => Err(BadCode::Stray { found }),
            None if text.is_empty() => Err(BadCode::Empty),
            None if text.len() > Self::MOST_BYTES => Err(BadCode::TooLong { bytes: text.len() }),
            None => Ok(Self(text.into())),
        }
    }
}

impl Deref for Code {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for BadCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problem: String = match self {
            Self::Empty => "the code is empty".into(),
            Self::TooLong { bytes } => {
                format!("the code has {bytes} characters: at most {} are allowed", Code::MOST_BYTES)
            }
            Self::Stray { found } => format!(
                "`{}` cannot be part of a code: codes are made of `A-Z a-z 0-9 _ . -`",
                found.escape_debug()
            ),
        };
        f.write_str(&problem)
    }
}

impl core::error::Error for BadCode {}
