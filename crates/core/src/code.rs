//! Codes: how an application knows a rule, whatever the rule is called here.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use core::ops::Deref;
use core::str::FromStr;

/// The word for a rule in every answer that it refuses, such as `MAX_ACTIVE_DEALS`: 1 to
/// [`Code::MOST_BYTES`] of `A-Z a-z 0-9 _ . -`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Code(Arc<str>);

/// A text that is no code. The fault of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadCode {
    /// Nothing at all.
    Empty,
    /// More than [`Code::MOST_BYTES`].
    TooLong {
        /// How long it is.
        bytes: usize,
    },
    /// Something that no code is made of.
    Stray {
        /// The first of it.
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
