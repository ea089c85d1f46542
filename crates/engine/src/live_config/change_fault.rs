//! Why a run-time change was refused.

use std::fmt;

use tollgate_core::{Clash, Mistake, StoreError};

use crate::runtime_config::{BadSpec, Misfit};

/// Why a change was refused. Nothing was changed, unless the store says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeFault {
    /// The configuration has a rule or a policy of that name. The caller's fault.
    Configured {
        /// The name.
        name: String,
    },
    /// A policy of that name was created before. The caller's fault.
    Taken {
        /// The name.
        name: String,
    },
    /// Nothing of that name exists. The caller's fault.
    Unknown {
        /// The name.
        name: String,
    },
    /// The policy to assign does not exist. The caller's fault.
    NoPolicy(Mistake),
    /// It is in use. The caller's fault.
    InUse {
        /// The name.
        name: String,
        /// The names that use it, sorted.
        users: Vec<String>,
    },
    /// The maximum number exists already.
    TooMany {
        /// The maximum.
        most: usize,
        /// The name of the items, in the plural.
        what: &'static str,
    },
    /// It is not in the state that the caller expected. The caller's fault.
    Changed {
        /// Its name.
        name: String,
    },
    /// Other callers keep changing it.
    Contended {
        /// Its name.
        name: String,
    },
    /// The policy is invalid. The caller's fault.
    PolicySpec(BadSpec),
    /// No attempt could meet its limits. The caller's fault.
    Clash(Box<Clash>),
    /// The store cannot answer. Whether it was changed is not known.
    Store(StoreError),
}

impl ChangeFault {
    /// Why a policy of this name cannot hold beside the configuration.
    pub(super) fn of(misfit: Misfit, name: &str) -> Self {
        match misfit {
            Misfit::Taken => Self::Configured { name: name.to_owned() },
            Misfit::Clash(clash) => Self::Clash(clash),
        }
    }
}

impl From<StoreError> for ChangeFault {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<BadSpec> for ChangeFault {
    fn from(error: BadSpec) -> Self {
        Self::PolicySpec(error)
    }
}

impl fmt::Display for ChangeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configured { name } => {
                write!(
                    f,
                    "`{name}` is taken: the configuration has a rule or a policy of that name, or it is built in"
                )
            }
            Self::Taken { name } => write!(f, "`{name}` is taken: there is a policy of that name already"),
            Self::Unknown { name } => write!(f, "no policy `{name}` was made over the API"),
            Self::NoPolicy(mistake) => mistake.fmt(f),
            Self::InUse { name, .. } => write!(f, "`{name}` is in use"),
            Self::TooMany { most, what } => write!(f, "there are {most} {what} already, which is the most"),
            Self::Changed { name } => write!(f, "`{name}` has changed since you looked at it"),
            Self::Contended { name } => write!(f, "others are changing `{name}` at this moment: try again"),
            Self::PolicySpec(error) => error.fmt(f),
            Self::Clash(clash) => clash.fmt(f),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ChangeFault {}
