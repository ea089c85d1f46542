//! What rules do while their store cannot be used.
//!
//! An outage is another set of policies. [`Policies::in_outage`] makes it from the set in force: the
//! same rules under the same names, with limits cut to each node's share, without the rules that let
//! everything pass, and with those that deny marked by their plan or their choice. An attempt is then
//! decided by it as by any other set, over a store of this process.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use crate::charge::Charge;
use crate::limit::{Bucket, Calendar, InFlight, Limit, Sliding, Slotted, Window};
use crate::plan::Plan;
use crate::policy::Policies;
use crate::rule::Rule;

/// What a rule does while its store cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnOutage {
    /// Count in this process alone, with limits cut to a share.
    Local(Share),
    /// Ask nothing of anybody: as if the rule were not there.
    Allow,
    /// Deny.
    Deny,
}

/// A share of a number, in whole numbers: `50%` or `1/3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    part: u32,
    whole: u32,
}

/// Why a decision was made without the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// It did not answer in time.
    Timeout,
    /// It cannot be reached, or says that it cannot be used.
    Unreachable,
    /// It failed a moment ago, and is not asked until it has answered a probe.
    Open,
    /// It has no room for another key.
    Full,
    /// Its access rules forbid a command that the attempt needs.
    Forbidden,
    /// What it keeps under one of the keys cannot be read.
    Damaged,
    /// Other callers kept one of the keys busy for too long.
    Busy,
    /// The rows that a rule counts beside the store could not be counted.
    Uncounted,
}

impl OnOutage {
    /// The default where the configuration has none: half of every limit on each node.
    pub const DEFAULT: Self = Self::Local(Share::HALF);

    /// What a rule with these limits does if it says nothing itself and this is the default. It denies
    /// where the default asks for a share and some limit has none. A ladder denies by every default:
    /// only its own rule can let guesses pass uncounted.
    #[must_use]
    pub fn as_default_of(self, plan: &Plan) -> Self {
        let has_ladder = plan.limits().iter().any(|limit| matches!(limit, Limit::Ladder(_)));
        match self {
            Self::Local(_) if !plan.has_share() => Self::Deny,
            Self::Allow if has_ladder => Self::Deny,
            chosen => chosen,
        }
    }

    /// What a rule with these limits does if neither it nor the configuration says anything.
    pub fn of(plan: &Plan) -> Self {
        Self::DEFAULT.as_default_of(plan)
    }
}

impl Share {
    /// A half.
    pub const HALF: Self = Self { part: 50, whole: 100 };
    /// The most nodes that may share something.
    pub const MOST_NODES: u64 = 1_000_000;

    /// So many of a hundred, from 1 to 100.
    pub fn percent(percent: u64) -> Option<Self> {
        let part = u32::try_from(percent).ok().filter(|part| (1..=100).contains(part))?;
        Some(Self { part, whole: 100 })
    }

    /// One of `nodes` equal parts.
    pub fn one_of(nodes: u64) -> Option<Self> {
        let nodes = Some(nodes).filter(|nodes| (1..=Self::MOST_NODES).contains(nodes))?;
        Some(Self { part: 1, whole: u32::try_from(nodes).ok()? })
    }

    /// This share of a number: rounded down, and at least 1.
    pub fn of(self, number: u64) -> u64 {
        let share = u128::from(number) * u128::from(self.part) / u128::from(self.whole);
        u64::try_from(share).expect("a part is no more than the whole").max(1)
    }
}

impl Reason {
    /// Every reason there is.
    pub const ALL: [Self; 8] = [
        Self::Timeout,
        Self::Unreachable,
        Self::Open,
        Self::Full,
        Self::Forbidden,
        Self::Damaged,
        Self::Busy,
        Self::Uncounted,
    ];

    /// Its name, fit for a metric's label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Unreachable => "unreachable",
            Self::Open => "open",
            Self::Full => "full",
            Self::Forbidden => "forbidden",
            Self::Damaged => "damaged",
            Self::Busy => "busy",
            Self::Uncounted => "uncounted",
        }
    }
}

impl Limit {
    /// Whether it can be cut to a share: what is counted for ever, or until somebody releases it, is
    /// known to the shared store alone, and whoever fails elsewhere must not be met as a stranger.
    pub fn has_share(&self) -> bool {
        match self {
            Self::InFlight(limit) => limit.lease().is_some(),
            Self::Ladder(_) | Self::Total { .. } => false,
            _ => true,
        }
    }

    /// This limit cut to a share, if it has one. What bounds a single attempt stays as it is.
    fn share(&self, share: Share) -> Option<Self> {
        Some(match self {
            Self::Window(limit) => {
                Self::Window(Window { max: share.of(limit.max()), period: limit.period() })
            }
            Self::Calendar(limit) => {
                Self::Calendar(Calendar { max: share.of(limit.max()), period: limit.period().clone() })
            }
            Self::Sliding(limit) => {
                Self::Sliding(Sliding { max: share.of(limit.max()), period: limit.period() })
            }
            Self::Slotted(limit) => Self::Slotted(Slotted {
                max: share.of(limit.max()),
                period: limit.period(),
                slot: limit.slot(),
            }),
            Self::Bucket(limit) => Self::Bucket(share_of_bucket(limit, share)),
            Self::InFlight(limit) if limit.lease().is_some() => {
                Self::InFlight(InFlight { max: share.of(limit.max()), lease: limit.lease() })
            }
            Self::PerAttempt { .. } => self.clone(),
            Self::InFlight(_) | Self::Ladder(_) | Self::Total { .. } => return None,
        })
    }
}

/// A rate that does not divide its period may need larger numbers than the whole one did; where they
/// are too large to be exact, the burst gives way.
fn share_of_bucket(bucket: &Bucket, share: Share) -> Bucket {
    let (rate, period, burst) = (share.of(bucket.rate()), bucket.period(), share.of(bucket.burst()));
    let exact = Bucket::new(rate, period, burst).or_else(|too_big| Bucket::new(rate, period, too_big.most));
    exact.expect("a period of ten years leaves room for a token")
}

impl Plan {
    /// Whether every limit can be cut to a share: `in total`, `at once` without `for`, and ladders
    /// cannot.
    pub fn has_share(&self) -> bool {
        self.limits().iter().all(Limit::has_share)
    }

    /// These limits, with every count and burst cut to a share; `None` if one of them cannot be.
    pub fn share(&self, share: Share) -> Option<Self> {
        let limits = self.limits().iter().map(|limit| limit.share(share)).collect::<Option<_>>()?;
        let plan = Self::new(Arc::clone(self.rule()), limits).expect("shares differ as their limits do");
        Some(if self.is_secret() { plan.with_secret_keys() } else { plan })
    }
}

impl Rule {
    /// What stands for this rule while its store cannot be used. One that lets everything pass is
    /// switched off, and so is one that would deny but only observes.
    #[must_use]
    pub fn in_outage(&self) -> Self {
        let enabled = match self.on_outage {
            OnOutage::Local(_) => self.enabled,
            OnOutage::Allow => false,
            OnOutage::Deny => self.enabled && !self.observes(),
        };
        let cut = |plan: &Arc<Plan>| match self.on_outage {
            OnOutage::Local(share) => plan.share(share).map_or_else(|| self.without_share(plan), Arc::new),
            OnOutage::Allow | OnOutage::Deny => Arc::clone(plan),
        };
        let overrides = self.overrides.iter().map(|(key, plan)| (key.clone(), cut(plan))).collect();
        Self { plan: cut(&self.plan), overrides, enabled, ..self.clone() }
    }

    /// A plan that cannot be cut: it is kept, and [`Rule::denies_in_outage`] knows it by that. A rule
    /// that only observes is left without one.
    fn without_share(&self, plan: &Arc<Plan>) -> Arc<Plan> {
        if self.observes() {
            let none = Plan::new(Arc::clone(&self.name), Vec::new());
            return Arc::new(none.expect("no limits do not clash"));
        }
        Arc::clone(plan)
    }

    /// Whether a charge by what [`Rule::in_outage`] made of this rule is denied without counting.
    pub fn denies_in_outage(&self, charge: &Charge<'_>) -> bool {
        self.on_outage == OnOutage::Deny || !charge.plan.has_share()
    }
}

impl Policies {
    /// The set that decides while the store cannot be used.
    #[must_use]
    pub fn in_outage(&self) -> Self {
        self.over(self.rules().iter().map(|rule| Arc::new(rule.in_outage())).collect())
    }
}

impl Default for OnOutage {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Prints as the configuration writes it.
impl fmt::Display for OnOutage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(share) => write!(f, "local {share}"),
            Self::Allow => f.write_str("allow"),
            Self::Deny => f.write_str("deny"),
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.whole {
            100 => write!(f, "{}%", self.part),
            whole => write!(f, "1/{whole}"),
        }
    }
}
