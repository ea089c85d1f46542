//! Mistakes of callers: what is wrong with an attempt, and what was probably meant.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::MAX_EXACT;
use crate::key::ValueError;
use crate::policy::Attempt;

/// Why an attempt cannot be decided. The caller's fault, or that of the configuration if a route chose the policy or
/// the field. Nothing was charged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// The policy does not exist.
    UnknownPolicy {
        /// The requested name.
        policy: String,
        /// The most similar name.
        near: Option<String>,
    },
    /// The guard does not exist.
    UnknownGuard {
        /// The requested name.
        guard: String,
        /// The most similar name.
        near: Option<String>,
    },
    /// Neither a rule of the policy nor a list uses this field.
    UnknownField {
        /// The policy.
        policy: String,
        /// The field.
        field: String,
        /// The most similar field of a rule.
        near: Option<String>,
    },
    /// A field was sent twice.
    RepeatedField {
        /// Its name.
        field: String,
    },
    /// A value is invalid.
    BadValue {
        /// The field.
        field: String,
        /// What is wrong with it.
        error: ValueError,
    },
    /// A rule counts a field that the attempt does not have.
    MissingNumber {
        /// The rule.
        rule: String,
        /// The field.
        field: String,
    },
    /// No rule of the policy applies to the fields.
    NoRuleApplies {
        /// The policy.
        policy: String,
        /// The fields that would make a rule apply.
        fields: Vec<String>,
    },
    /// The cost is larger than exact numbers allow.
    CostTooBig {
        /// The cost.
        cost: u64,
    },
    /// The id is empty. A caller without an id must leave it out.
    IdEmpty,
    /// The id is longer than [`Attempt::MOST_ID_BYTES`].
    IdTooLong {
        /// How long it is.
        bytes: usize,
    },
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hint = |near: &Option<String>| {
            near.as_ref().map_or_else(String::new, |near| alloc::format!("; did you mean `{near}`?"))
        };
        match self {
            Self::UnknownPolicy { policy, near } => write!(f, "there is no policy `{policy}`{}", hint(near)),
            Self::UnknownGuard { guard, near } => write!(f, "there is no guard `{guard}`{}", hint(near)),
            Self::UnknownField { policy, field, near } => {
                write!(f, "no rule of policy `{policy}` uses the field `{field}`{}", hint(near))
            }
            Self::RepeatedField { field } => write!(f, "the field `{field}` was sent twice"),
            Self::BadValue { field, error } => write!(f, "the value of `{field}` {error}"),
            Self::MissingNumber { rule, field } => {
                write!(f, "rule `{rule}` counts `{field}`: send that field, with a whole number")
            }
            Self::NoRuleApplies { policy, fields } => write!(
                f,
                "no rule of policy `{policy}` applies: its rules need some of the fields {}; set `allow_unmatched` to let such attempts pass",
                fields.join(", ")
            ),
            Self::CostTooBig { cost } => {
                write!(f, "the cost {cost} is too large; at most {MAX_EXACT} is allowed")
            }
            Self::IdEmpty => f.write_str("the id is empty; leave it out if there is none"),
            Self::IdTooLong { bytes } => {
                write!(f, "the id is {bytes} bytes long; at most {} are allowed", Attempt::MOST_ID_BYTES)
            }
        }
    }
}

impl core::error::Error for Mistake {}

/// A caller's name, shortened for an error message.
pub(crate) fn shown(name: &str) -> String {
    name.chars().take(64).collect()
}

/// How many names are compared with an unknown one, so that a caller cannot keep the node busy.
const MOST_COMPARED: usize = 1_000;

/// The known name that differs least from `name`, if it differs little enough to be what was meant.
pub fn nearest<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<String> {
    let name = shown(name);
    let best = known.take(MOST_COMPARED).map(|known| (distance(&name, known), known)).min()?;
    (best.0 <= 1 + name.chars().count() / 3).then(|| best.1.to_string())
}

/// The edit distance: how many letters must be changed, added or removed.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
