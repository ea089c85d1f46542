//! The token for the server. It is never printed, and never read from the arguments, which every user of the
//! machine can see.

use std::fmt;
use std::path::Path;

use crate::config::files;

/// A token.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// A token that cannot be used. The caller's fault.
#[derive(Debug)]
pub enum TokenError {
    /// The file cannot be read.
    Unreadable {
        /// The file.
        file: String,
        /// Why.
        error: std::io::Error,
    },
    /// It is empty, or no valid header value.
    Unusable {
        /// Its source.
        place: String,
    },
}

impl Token {
    /// The token in the first line of a file, or else in the environment, if there is one.
    pub fn find(file: Option<&Path>, environment: &[(String, String)]) -> Result<Option<Self>, TokenError> {
        if let Some(file) = file {
            let place = file.display().to_string();
            let text = files::read_text(file)
                .map_err(|error| TokenError::Unreadable { file: place.clone(), error })?;
            return Self::new(text.lines().next().unwrap_or(""), place).map(Some);
        }
        let variable = environment.iter().find(|(name, _)| name == "TOLLGATE_TOKEN");
        match variable {
            Some((_, value)) if !value.is_empty() => Self::new(value, "TOLLGATE_TOKEN".to_owned()).map(Some),
            _ => Ok(None),
        }
    }

    fn new(text: &str, place: String) -> Result<Self, TokenError> {
        let text = text.trim();
        let usable = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        if usable { Ok(Self(text.to_owned())) } else { Err(TokenError::Unusable { place }) }
    }

    /// The value of the `Authorization` header.
    pub(crate) fn bearer(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { file, error } => write!(f, "the token file {file} cannot be read: {error}"),
            Self::Unusable { place } => {
                write!(f, "{place} holds no token: one word of visible ASCII characters is expected")
            }
        }
    }
}

impl std::error::Error for TokenError {}
