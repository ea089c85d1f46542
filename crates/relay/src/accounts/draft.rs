//! Accounts in the form in which the API writes and shows them.

use std::fmt;

use tollgate_core::Limit;

use super::fault::AccountFault;
use super::{OnLimit, Pause};
use crate::client::TlsMode;

/// The longest name of a tenant or an account.
const MOST_NAME: usize = 64;
/// The longest host, user or password.
const MOST_TEXT: usize = 1_024;

/// The wanted state of an account.
#[derive(Clone, Debug)]
pub struct AccountDraft {
    /// The tenant that the account belongs to.
    pub tenant: String,
    /// Its name, unique within the tenant.
    pub id: String,
    /// The server's name or address.
    pub host: String,
    pub port: u16,
    /// The encryption of the connection.
    pub tls: TlsMode,
    /// The user, if the server wants a login.
    pub user: Option<String>,
    /// The password; `None` keeps the present one.
    pub password: Option<Secret>,
    /// Its limits; none means unlimited.
    pub limits: Vec<Limit>,
    /// The treatment of mail that exceeds one of its limits.
    pub on_limit: OnLimit,
    /// Lower numbers are used first.
    pub priority: u32,
}

/// The operator's key, which passwords are sealed with. It is not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretKey(pub [u8; 32]);

/// A text that is not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

/// An account without its password, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountView {
    /// The tenant that the account belongs to.
    pub tenant: String,
    /// Its name, unique within the tenant.
    pub id: String,
    /// The server's name or address.
    pub host: String,
    pub port: u16,
    /// The encryption of the connection.
    pub tls: TlsMode,
    pub user: Option<String>,
    /// Its limits in force; none means unlimited.
    pub limits: Vec<Limit>,
    /// The treatment of mail that exceeds one of its limits.
    pub on_limit: OnLimit,
    /// Lower numbers are used first.
    pub priority: u32,
    /// The origin of the account.
    pub source: Source,
    /// The pause, if the account is paused now.
    pub paused: Option<Pause>,
    /// Whether an operator paused it, so that only an operator ends the pause.
    pub held: bool,
    /// Whether it can be used: its password opens with the operator's key.
    pub usable: bool,
}

/// The origin of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The configuration.
    Configuration,
    /// The store's records.
    Api,
}

/// The condition for writing an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// The account must not exist.
    Refuse,
    /// The account must exist.
    Require,
    /// An existing account is replaced.
    Replace,
}

/// The result of writing an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It is new.
    Created,
    /// It replaced another one.
    Replaced,
}

impl AccountDraft {
    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.tenant, self.id)
    }

    pub(super) fn check(&self) -> Result<(), AccountFault> {
        check_name("tenant", &self.tenant)?;
        check_name("id", &self.id)?;
        let invalid = |reason: &str| Err(AccountFault::Invalid { reason: reason.to_owned() });
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b':' | b'_');
        if self.host.is_empty() || self.host.len() > 255 || !self.host.bytes().all(is_host) {
            return invalid("`host` is the name or the address of a mail server, as in `smtp.example.com`");
        }
        if self.port == 0 {
            return invalid("`port` is a number from 1 to 65535");
        }
        let is_text =
            |text: &str| !text.is_empty() && text.len() <= MOST_TEXT && !text.contains(['\0', '\r', '\n']);
        if self.user.as_deref().is_some_and(|user| !is_text(user)) {
            return invalid("`user` has 1 to 1024 bytes, on one line");
        }
        if self.password.as_ref().is_some_and(|Secret(password)| !is_text(password)) {
            return invalid("`password` has 1 to 1024 bytes, on one line");
        }
        if self.user.is_none() && self.password.is_some() {
            return invalid("`password` needs `user`");
        }
        if self.user.is_some() && self.tls == TlsMode::None && !is_loopback(&self.host) {
            return invalid(
                "without TLS the password could be read on the way: use `tls: starttls` or `implicit`, or no `user`",
            );
        }
        Ok(())
    }
}

/// Whether a password that is sent to this host without TLS stays on this machine.
fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Checks the name of a tenant or an account.
pub fn check_name(member: &str, name: &str) -> Result<(), AccountFault> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-' | b'@');
    match (1..=MOST_NAME).contains(&name.len()) && name.bytes().all(is_part) {
        true => Ok(()),
        false => Err(AccountFault::Invalid {
            reason: format!("`{member}` has 1 to {MOST_NAME} of `A-Z a-z 0-9 _ . - @`"),
        }),
    }
}

/// Generates an id for an account without one.
pub fn fresh_id() -> String {
    let random = getrandom::u64().expect("the system gives random numbers");
    format!("account-{:012x}", random >> 16)
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
