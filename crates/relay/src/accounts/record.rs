//! The record of an account in the store: JSON without the password, and the sealed password.

use serde::{Deserialize, Serialize};
use tollgate_core::{Limit, Receipt, ReceiptLine, Ticket, Timestamp, grammar};
use tollgate_engine::receipt::{Kind, Seal};

use super::{Account, OnLimit};
use crate::client::{Destination, Login, TlsMode};

/// An account that was made over the API, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Recorded {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) tls: TlsMode,
    pub(super) login: Option<SealedLogin>,
    pub(super) limits: Vec<Limit>,
    pub(super) on_limit: OnLimit,
    pub(super) priority: u32,
}

/// A user, and a password that only the operator's key opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SealedLogin {
    pub(super) user: String,
    pub(super) password: String,
}

/// The JSON form of a record.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    host: String,
    port: u16,
    tls: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    password: Option<String>,
    limits: Vec<String>,
    on_limit: String,
    priority: u32,
}

/// The names of the TLS modes.
const NAMES: [(&str, TlsMode); 4] = [
    ("none", TlsMode::None),
    ("starttls", TlsMode::StartTls),
    ("implicit", TlsMode::Implicit),
    ("opportunistic", TlsMode::Opportunistic),
];

impl TlsMode {
    /// The name in the configuration and in the API.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(_, mode)| *mode == self).map_or("", |(name, _)| name)
    }

    /// The TLS mode with this name.
    pub fn of_name(name: &str) -> Option<Self> {
        NAMES.iter().find(|(own, _)| *own == name).map(|(_, mode)| *mode)
    }
}

impl OnLimit {
    /// The name in the configuration and in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Defer => "defer",
            Self::Reject => "reject",
        }
    }

    /// Parses a name.
    pub fn of_name(name: &str) -> Option<Self> {
        [Self::Defer, Self::Reject].into_iter().find(|own| own.name() == name)
    }
}

impl Recorded {
    /// The bytes of the record.
    pub(super) fn write(&self) -> Vec<u8> {
        let login = self.login.as_ref();
        let written = Written {
            host: self.host.clone(),
            port: self.port,
            tls: self.tls.name().to_owned(),
            user: login.map(|login| login.user.clone()),
            password: login.map(|login| login.password.clone()),
            limits: self.limits.iter().map(ToString::to_string).collect(),
            on_limit: self.on_limit.name().to_owned(),
            priority: self.priority,
        };
        serde_json::to_vec(&written).expect("texts and numbers can be written")
    }

    /// Parses the bytes of a record; `None` if another version wrote them, or if they are damaged.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let written: Written = serde_json::from_slice(bytes).ok()?;
        let limits = written.limits.iter().map(|limit| grammar::parse(limit).ok()?);
        let login = match (written.user, written.password) {
            (Some(user), Some(password)) => Some(SealedLogin { user, password }),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => return None,
        };
        Some(Self {
            tls: TlsMode::of_name(&written.tls)?,
            limits: limits.collect::<Option<_>>()?,
            on_limit: OnLimit::of_name(&written.on_limit)?,
            login,
            host: written.host,
            port: written.port,
            priority: written.priority,
        })
    }

    /// Makes the account that mail is delivered through; `None` if its password cannot be opened.
    pub(super) fn account(&self, tenant: &str, id: &str, seal: Option<&Seal>) -> Option<Account> {
        let login = match &self.login {
            None => None,
            Some(login) => {
                let password = open(seal?, tenant, id, &login.password)?;
                Some(Login { user: login.user.clone(), password })
            }
        };
        let destination = Destination { host: self.host.clone(), port: self.port, tls: self.tls, login };
        Some(Account {
            tenant: tenant.to_owned(),
            id: id.to_owned(),
            destination,
            on_limit: self.on_limit,
            priority: self.priority,
        })
    }
}

/// Seals the password of an account. It cannot be opened in the record of another account.
pub(super) fn seal(seal: &Seal, tenant: &str, id: &str, password: &str) -> String {
    let line = ReceiptLine { rule: whose(tenant, id), key: password.to_owned(), cost: 0 };
    seal.seal(Kind::Password, &Receipt { ticket: Ticket(0), at: Timestamp::ZERO, taken: vec![line] })
}

fn open(seal: &Seal, tenant: &str, id: &str, sealed: &str) -> Option<String> {
    let Ok((Kind::Password, receipt)) = seal.open(sealed) else { return None };
    let ReceiptLine { rule, key, .. } = receipt.taken.into_iter().next()?;
    (rule == whose(tenant, id)).then_some(key)
}

fn whose(tenant: &str, id: &str) -> String {
    format!("{tenant}/{id}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(login: Option<SealedLogin>) -> Recorded {
        Recorded {
            host: "smtp.example.com".to_owned(),
            port: 587,
            tls: TlsMode::StartTls,
            login,
            limits: vec!["10/min sliding".parse().unwrap(), "1000/day sliding".parse().unwrap()],
            on_limit: OnLimit::Reject,
            priority: 3,
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let key = Seal::new([7; 32]);
        let password = seal(&key, "acme", "main", "top secret");
        for login in [None, Some(SealedLogin { user: "u".to_owned(), password })] {
            let own = recorded(login);
            let bytes = own.write();
            assert!(!String::from_utf8_lossy(&bytes).contains("top secret"));
            assert_eq!(Recorded::read(&bytes), Some(own));
        }
        assert_eq!(Recorded::read(b"{\"host\":\"a\"}"), None);
        assert_eq!(Recorded::read(b"\xff"), None);
    }

    #[test]
    fn a_password_opens_with_its_key_and_for_its_account_only() {
        let key = Seal::new([7; 32]);
        let password = seal(&key, "acme", "main", "top secret");
        let own = recorded(Some(SealedLogin { user: "u".to_owned(), password }));
        let account = own.account("acme", "main", Some(&Seal::new([7; 32]))).unwrap();
        assert_eq!(account.destination.login.unwrap().password, "top secret");
        assert_eq!(own.account("acme", "main", Some(&Seal::new([8; 32]))), None, "another key");
        assert_eq!(own.account("acme", "other", Some(&key)), None, "moved to another account");
        assert_eq!(own.account("acme", "main", None), None);
        let login = own.login.clone().unwrap();
        // The first bytes of a sealed text are its version.
        let earlier = SealedLogin { password: format!("AA{}", &login.password[2..]), ..login };
        assert_eq!(recorded(Some(earlier)).account("acme", "main", Some(&key)), None, "another version");
    }
}
