//! The reasons why an account was not changed.

use std::fmt;

use tollgate_core::StoreError;
use tollgate_engine::ChangeFault;

/// The reason why an account was not changed. Nothing was changed, unless the store says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccountFault {
    /// A member has a value that it cannot have. The caller's fault.
    Invalid {
        /// The error, and the accepted values.
        reason: String,
    },
    /// The configuration has the account. The caller's fault.
    Configured {
        /// Its tenant and id.
        name: String,
    },
    /// It exists already. The caller's fault.
    Exists {
        /// Its tenant and id.
        name: String,
    },
    /// It does not exist. The caller's fault.
    Unknown {
        /// Its tenant and id.
        name: String,
    },
    /// There is no key to seal a password with. The operator's fault.
    NoKey,
    /// There is no rule that could hold an account's limits. The operator's fault.
    NoRule,
    /// Other callers keep changing the account. Not the caller's fault.
    Contended {
        /// Its tenant and id.
        name: String,
    },
    /// Its limits cannot be set.
    Limits(ChangeFault),
    /// The store cannot answer. Whether it was changed is not known.
    Store(StoreError),
}

impl From<StoreError> for AccountFault {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl fmt::Display for AccountFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid { reason } => f.write_str(reason),
            Self::Configured { name } => {
                write!(f, "account `{name}` is in the configuration file: change it there and reload")
            }
            Self::Exists { name } => {
                write!(f, "account `{name}` exists already: use PUT to replace it")
            }
            Self::Unknown { name } => write!(f, "there is no account `{name}`"),
            Self::NoKey => f.write_str(
                "a password cannot be stored because the relay has no key to encrypt it with: make one with `openssl rand -hex 32`, and name it in the configuration as `relay: { secret_env: TOLLGATE_RELAY_SECRET }` or `secret_file`",
            ),
            Self::NoRule => f.write_str(
                "limits of an account need a rule: add `account: { by: [tenant, account], limits: unlimited }` to `rules` and `account` to the relay's `deliver` policy",
            ),
            Self::Contended { name } => write!(f, "another request is changing account `{name}`: try again"),
            Self::Limits(fault) => fault.fmt(f),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for AccountFault {}
