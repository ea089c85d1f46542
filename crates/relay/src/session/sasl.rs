//! AUTH PLAIN and AUTH LOGIN (RFC 4954, RFC 4616).

use std::fmt;

use data_encoding::BASE64;

use super::reply::Reply;

/// A name and a password that a client sent.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The user name.
    pub user: String,
    pub password: String,
}

/// An AUTH exchange that waits for the client's next line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Exchange {
    Plain,
    LoginUser,
    LoginPassword { user: String },
}

/// The next step of an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SaslStep {
    /// The server asks, and the exchange continues.
    Ask(Exchange, Reply),
    /// The exchange is complete.
    Done(Login),
    /// The exchange failed.
    Failed(Reply),
}

/// The longest name and password.
const MOST_BYTES: usize = 1_024;

/// Begins an exchange.
pub(super) fn begin(mechanism: &str, initial: Option<&str>) -> SaslStep {
    let exchange = match &*mechanism.to_ascii_uppercase() {
        "PLAIN" => Exchange::Plain,
        "LOGIN" => Exchange::LoginUser,
        _ => {
            return SaslStep::Failed(Reply::new(504, "5.5.4", "Mechanism not supported: use PLAIN or LOGIN"));
        }
    };
    match initial {
        // An empty response is written so.
        Some("=") => exchange.go_on(b""),
        Some(initial) => exchange.go_on(initial.as_bytes()),
        None => exchange.ask(),
    }
}

impl Exchange {
    /// Sends the server's next challenge.
    fn ask(self) -> SaslStep {
        let challenge = match &self {
            Self::Plain => "",
            Self::LoginUser => "Username:",
            Self::LoginPassword { .. } => "Password:",
        };
        SaslStep::Ask(self, Reply::plain(334, [BASE64.encode(challenge.as_bytes())]))
    }

    /// Handles the client's line.
    pub(super) fn go_on(self, line: &[u8]) -> SaslStep {
        if line == b"*" {
            return SaslStep::Failed(Reply::new(501, "5.7.0", "Authentication cancelled"));
        }
        let Ok(said) = BASE64.decode(line) else {
            return SaslStep::Failed(Reply::new(501, "5.5.2", "Response is not base64"));
        };
        match self {
            Self::Plain => plain(&said),
            Self::LoginUser => match text(&said) {
                Some(user) => Self::LoginPassword { user }.ask(),
                None => SaslStep::Failed(wrong()),
            },
            Self::LoginPassword { user } => match text(&said) {
                Some(password) => SaslStep::Done(Login { user, password }),
                None => SaslStep::Failed(wrong()),
            },
        }
    }
}

/// `authorization NUL name NUL password`. Acting for another user is not supported.
fn plain(said: &[u8]) -> SaslStep {
    let mut parts = said.split(|byte| *byte == 0).map(text_or_empty);
    let parts = (parts.next().flatten(), parts.next().flatten(), parts.next().flatten(), parts.next());
    let (Some(acting), Some(user), Some(password), None) = parts else { return SaslStep::Failed(wrong()) };
    if user.is_empty() || password.is_empty() || !acting.is_empty() && acting != user {
        return SaslStep::Failed(wrong());
    }
    SaslStep::Done(Login { user, password })
}

/// The reply to wrong credentials.
pub(super) fn wrong() -> Reply {
    Reply::new(535, "5.7.8", "Authentication failed")
}

fn text(said: &[u8]) -> Option<String> {
    text_or_empty(said).filter(|text| !text.is_empty())
}

fn text_or_empty(said: &[u8]) -> Option<String> {
    let text = str::from_utf8(said).ok()?;
    (text.len() <= MOST_BYTES && !text.chars().any(char::is_control)).then(|| text.to_owned())
}

/// Shows no password.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}
