//! The limits of one rule at one key, in the form that stores use.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use crate::limit::{Idle, InFlight, Limit, State};
use crate::time::{Span, Timestamp};

/// A rule's name and all its limits at a key. It is built once when limits are configured, and shared by all
/// charges that use it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    rule: Arc<str>,
    limits: Box<[Limit]>,
    /// The text of each limit, since responses often show it.
    texts: Box<[Box<str>]>,
    salt: u64,
    calendar: bool,
    secret: bool,
}

/// Limits that cannot be combined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// Two limits would share one counter. The operator's fault.
    Twice {
        /// The second one, as written.
        limit: String,
    },
    /// There are more limits than a rule may have. The operator's fault.
    TooMany {
        /// How many there are.
        count: usize,
    },
}

impl Plan {
    /// The most limits that one rule may hold.
    pub const MOST_LIMITS: usize = 8;

    /// The limits of a rule: each kind and period at most once.
    pub fn new(rule: Arc<str>, limits: Vec<Limit>) -> Result<Self, PlanError> {
        if limits.len() > Self::MOST_LIMITS {
            return Err(PlanError::TooMany { count: limits.len() });
        }
        for (index, limit) in limits.iter().enumerate() {
            if limits[..index].iter().any(|earlier| earlier.identity() == limit.identity()) {
                return Err(PlanError::Twice { limit: limit.to_string() });
            }
        }
        let salt = rule.bytes().fold(0xcbf2_9ce4_8422_2325, |salt: u64, byte| {
            (salt ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let calendar = limits.iter().any(|limit| limit.calendar().is_some());
        let texts = limits.iter().map(|limit| limit.to_string().into()).collect();
        Ok(Self { rule, limits: limits.into(), texts, salt, calendar, secret: false })
    }

    /// Marks the keys of these limits as secret.
    #[must_use]
    pub fn with_secret_keys(self) -> Self {
        Self { secret: true, ..self }
    }

    /// Whether the keys of these limits are secret.
    pub fn is_secret(&self) -> bool {
        self.secret
    }

    /// The rule of these limits.
    pub fn rule(&self) -> &Arc<str> {
        &self.rule
    }

    /// A number for the rule's name, so that stores that hash keys need not hash the name each time.
    pub fn salt(&self) -> u64 {
        self.salt
    }

    /// Whether any limit is a calendar limit.
    pub fn has_calendar(&self) -> bool {
        self.calendar
    }

    /// The limits; none means unlimited.
    pub fn limits(&self) -> &[Limit] {
        &self.limits
    }

    /// The limit that counts holds, and its place among the limits. A plan has one at most.
    pub fn in_flight(&self) -> Option<(usize, &InFlight)> {
        self.limits.iter().enumerate().find_map(|(index, limit)| Some((index, limit.in_flight()?)))
    }

    /// Each limit and how it is written.
    pub fn written(&self) -> impl ExactSizeIterator<Item = (&Limit, &str)> {
        self.limits.iter().zip(self.texts.iter().map(|text| &**text))
    }

    /// How long takes under these limits matter; at most about a month. A renewed hold matters for longer.
    pub fn matters_for(&self) -> Span {
        self.limits.iter().map(Limit::matters_for).max().unwrap_or(Span::ZERO)
    }

    /// Converts states from another plan of the same rule: limits of the same identity keep theirs.
    pub fn adopt(&self, old: &Self, mut states: Vec<State>, now: Timestamp) -> Vec<State> {
        self.limits
            .iter()
            .map(|limit| {
                let found = old.limits.iter().position(|other| other.identity() == limit.identity());
                found.map_or(State::Fresh, |index| {
                    limit.adopt(&old.limits[index], core::mem::take(&mut states[index]), now)
                })
            })
            .collect()
    }

    /// From when on all these states can be forgotten without effect.
    pub fn idle(&self, states: &[State]) -> Idle {
        let idles = self.limits.iter().zip(states).map(|(limit, state)| limit.idle(state));
        idles.max().unwrap_or(Idle::At(Timestamp::ZERO))
    }

    /// Whether an attempt with cost 1 would be denied now.
    pub fn denies(&self, states: &[State], now: Timestamp) -> bool {
        self.limits.iter().zip(states).any(|(limit, state)| limit.denies(state, now))
    }
}

/// Prints the limits, separated by commas.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.limits.is_empty() {
            return f.write_str("unlimited");
        }
        for (index, limit) in self.limits.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{limit}")?;
        }
        Ok(())
    }
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Twice { limit } => {
                write!(f, "`{limit}` is of the same kind and period as another limit here: keep one of them")
            }
            Self::TooMany { count } => {
                write!(f, "{count} limits in one rule: at most {} are allowed", Plan::MOST_LIMITS)
            }
        }
    }
}

impl core::error::Error for PlanError {}
