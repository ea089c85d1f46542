//! The definition of a policy created at run time, checked.

use std::fmt;
use std::sync::Arc;

use tollgate_core::plan::PlanError;
use tollgate_core::{Limit, OnExceed, OnOutage, Plan, Rule};

use crate::calendar::zone_exists;

/// The definition of a policy created at run time. Every value of this type can be a policy of some
/// configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PolicySpec {
    /// The name of the policy and of its rule.
    pub name: Arc<str>,
    /// The purpose, in its author's words.
    pub description: String,
    /// The fields that form the rule's key.
    pub by: Box<[Arc<str>]>,
    /// The rule's limits.
    pub plan: Arc<Plan>,
    /// The action when a limit is exceeded.
    pub on_exceed: OnExceed,
    /// The action while the store cannot be used; `None` means the default.
    pub on_outage: Option<OnOutage>,
}

/// The unchecked definition of a policy.
#[derive(Clone, Debug, Default)]
pub struct PolicyDraft {
    /// The name.
    pub name: String,
    /// The purpose.
    pub description: String,
    /// The fields that form its key.
    pub by: Vec<String>,
    /// Its limits; an empty list means unlimited.
    pub limits: Vec<Limit>,
    /// The action when a limit is exceeded; `None` means that attempts are rejected.
    pub on_exceed: Option<OnExceed>,
    /// The action while the store cannot be used; `None` means the default of the configuration.
    pub on_outage: Option<OnOutage>,
}

/// Why a definition is invalid. The caller's fault; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadSpec {
    /// The name is invalid.
    Name,
    /// The description is longer than [`PolicySpec::MOST_DESCRIPTION_BYTES`].
    LongDescription {
        /// Its length.
        bytes: usize,
    },
    /// The description has a character that cannot be printed.
    UnprintableDescription,
    /// No fields, or more than a key may have.
    FieldCount {
        /// The number of fields.
        count: usize,
    },
    /// The name of a field is invalid.
    Field {
        /// The text that was sent.
        field: String,
    },
    /// A field occurs twice.
    FieldTwice {
        /// Its name.
        field: String,
    },
    /// The limits cannot be combined.
    Plan(PlanError),
    /// The time zone does not exist.
    Zone {
        /// Its name.
        zone: String,
    },
    /// Without its store the rule is to count with a share of its limits, and this limit cannot be shared.
    NoShare {
        /// The limit, as written.
        limit: String,
    },
}

impl PolicySpec {
    /// The longest name.
    pub const MOST_NAME_BYTES: usize = 64;
    /// The longest description.
    pub const MOST_DESCRIPTION_BYTES: usize = 1_024;

    /// Checks a definition.
    pub fn new(draft: PolicyDraft) -> Result<Self, BadSpec> {
        let PolicyDraft { name, description, by, limits, on_exceed, on_outage } = draft;
        if !is_name(&name) {
            return Err(BadSpec::Name);
        }
        check_description(&description)?;
        let by = check_fields(by)?;
        let zones = limits.iter().filter_map(|limit| limit.calendar()?.zone.as_deref());
        if let Some(zone) = zones.into_iter().find(|zone| !zone_exists(zone)) {
            return Err(BadSpec::Zone { zone: zone.to_owned() });
        }
        if let (Some(OnOutage::Local(_)), Some(limit)) =
            (on_outage, limits.iter().find(|limit| !limit.has_share()))
        {
            return Err(BadSpec::NoShare { limit: limit.to_string() });
        }
        let name: Arc<str> = name.into();
        let plan = Plan::new(Arc::clone(&name), limits).map_err(BadSpec::Plan)?;
        let on_exceed = on_exceed.unwrap_or(OnExceed::Reject);
        Ok(Self { name, description, by, plan: Arc::new(plan), on_exceed, on_outage })
    }

    /// The rule's action without its store. `default` is the default of the configuration.
    pub fn in_outage(&self, default: OnOutage) -> OnOutage {
        self.on_outage.unwrap_or_else(|| default.as_default_of(&self.plan))
    }

    /// In words: the limits, the key, and what happens when they are exceeded. `default` is the default for
    /// outages.
    pub fn in_words(&self, default: OnOutage) -> String {
        let (by, on_outage) = (self.by.join(","), self.in_outage(default));
        let mut words = format!("{} by {by}; {}; {on_outage}", self.plan, self.on_exceed);
        if !self.description.is_empty() {
            words.push_str(&format!("; {:?}", self.description));
        }
        words
    }
}

/// Whether this is a valid name of a rule or policy. A name of dots alone could be read as a parent
/// directory.
fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_.-".contains(&byte);
    let length = (1..=PolicySpec::MOST_NAME_BYTES).contains(&name.len());
    length && name.bytes().all(fits) && name.bytes().any(|byte| byte != b'.')
}

fn check_description(description: &str) -> Result<(), BadSpec> {
    if description.len() > PolicySpec::MOST_DESCRIPTION_BYTES {
        return Err(BadSpec::LongDescription { bytes: description.len() });
    }
    let unprintable = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if description.contains(unprintable) { Err(BadSpec::UnprintableDescription) } else { Ok(()) }
}

fn check_fields(names: Vec<String>) -> Result<Box<[Arc<str>]>, BadSpec> {
    if !(1..=Rule::MOST_FIELDS).contains(&names.len()) {
        return Err(BadSpec::FieldCount { count: names.len() });
    }
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    for (index, name) in names.iter().enumerate() {
        let shown = || name.chars().take(64).collect();
        if !(1..=64).contains(&name.len()) || !name.bytes().all(fits) {
            return Err(BadSpec::Field { field: shown() });
        }
        if names[..index].contains(name) {
            return Err(BadSpec::FieldTwice { field: shown() });
        }
    }
    Ok(names.into_iter().map(Into::into).collect())
}

impl fmt::Display for BadSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => write!(
                f,
                "a name has 1 to {} of `a-z 0-9 _ . -`, and is not made of dots only",
                PolicySpec::MOST_NAME_BYTES
            ),
            Self::LongDescription { bytes } => {
                let most = PolicySpec::MOST_DESCRIPTION_BYTES;
                write!(f, "the description is {bytes} bytes long; at most {most} are allowed")
            }
            Self::UnprintableDescription => f.write_str(
                "there is a control character in the description; only line breaks and tabs may be",
            ),
            Self::FieldCount { count } => {
                write!(f, "{count} fields make no key; 1 to {} do", Rule::MOST_FIELDS)
            }
            Self::Field { field } => {
                write!(f, "`{field}` cannot name a field: use up to 64 of `A-Z a-z 0-9 _ . -`")
            }
            Self::FieldTwice { field } => write!(f, "the field `{field}` is in `by` twice"),
            Self::Plan(error) => error.fmt(f),
            Self::Zone { zone } => write!(f, "there is no time zone `{zone}`"),
            Self::NoShare { limit } => write!(
                f,
                "`{limit}` cannot be counted by each node alone: without the store, `deny` or `allow`"
            ),
        }
    }
}

impl std::error::Error for BadSpec {}
