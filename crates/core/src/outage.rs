//! What rules do during an outage of their store.
//!
//! During an outage the engine decides with another set of policies. [`Policies::in_outage`] derives it: the
//! same rules under the same names, with limits cut to each node's share. Rules with `on_outage: allow` are
//! disabled. [`Rule::denies_in_outage`] recognises rules that deny. The counters are in a store in this process.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use crate::charge::Charge;
use crate::limit::Limit;
use crate::plan::Plan;
use crate::policy::Policies;
use crate::rule::Rule;

/// What a rule does during an outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnOutage {
    /// Count in this process alone, with limits cut to a share.
    Local(Share),
    /// Skip the rule.
    Allow,
    /// Deny.
    Deny,
}

/// A share of a number, as a fraction: `50%` or `1/3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    part: u32,
    whole: u32,
}

/// Why a decision was made without the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The store did not answer in time.
    Timeout,
    /// The store cannot be reached, or says that it cannot be used.
    Unreachable,
    /// The circuit breaker is open: the store failed a moment ago, and is not asked until it has answered
    /// probes.
    Open,
    /// The store has no room for another key.
    Full,
    /// The store's access rules forbid a command that the attempt needs.
    Forbidden,
    /// The store's value for one of the keys is damaged.
    Damaged,
    /// Other callers kept one of the keys busy for too long.
    Busy,
    /// The database rows that a rule counts could not be counted.
    Uncounted,
}

impl OnOutage {
    /// The default if none is configured: half of every limit on each node.
    pub const DEFAULT: Self = Self::Local(Share::HALF);

    /// The behaviour of a rule without `on_outage`, given this default. It denies if the default is a share and
    /// one of its limits cannot be cut. A rule with a ladder always denies: only its own `on_outage` can allow
    /// uncounted guesses.
    #[must_use]
    pub fn as_default_of(self, plan: &Plan) -> Self {
        match self {
            Self::Local(_) if !plan.has_share() => Self::Deny,
            Self::Allow if plan.has_ladder() => Self::Deny,
            chosen => chosen,
        }
    }

    /// What a rule with these limits does if neither it nor the configuration sets `on_outage`.
    pub fn of(plan: &Plan) -> Self {
        Self::DEFAULT.as_default_of(plan)
    }
}

impl Share {
    /// A half.
    pub const HALF: Self = Self { part: 50, whole: 100 };
    /// The largest N in `1/N`.
    pub const MOST_NODES: u64 = 1_000_000;

    /// A percentage, from 1 to 100.
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

    /// Its name as a label of metrics.
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
    /// Whether it can be cut to a share. A count that lasts for ever, or until a release, is known only to
    /// the shared store. A ladder has no share either: a client with failures elsewhere must not start afresh
    /// here.
    pub fn has_share(&self) -> bool {
        self.share(Share::HALF).is_some()
    }
}

impl Plan {
    /// Whether every limit can be cut to a share: `in total`, `at once` without `for`, and ladders cannot.
    pub fn has_share(&self) -> bool {
        self.limits().iter().all(Limit::has_share)
    }

    /// These limits, with every count and burst cut to a share; `None` if one of them has none.
    pub fn share(&self, share: Share) -> Option<Self> {
        let limits = self.limits().iter().map(|limit| limit.share(share)).collect::<Option<_>>()?;
        let plan = Self::new(Arc::clone(self.rule()), limits).expect("shares differ as their limits do");
        Some(if self.is_secret() { plan.with_secret_keys() } else { plan })
    }
}

impl Rule {
    /// The rule that replaces this one during an outage. A rule that allows everything is switched off, and
    /// so is one that denies but only observes.
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

    /// Keeps a plan that cannot be cut. [`Rule::denies_in_outage`] recognises it by that. A rule that only
    /// observes gets an empty plan.
    fn without_share(&self, plan: &Arc<Plan>) -> Arc<Plan> {
        if self.observes() {
            let none = Plan::new(Arc::clone(&self.name), Vec::new());
            return Arc::new(none.expect("an empty plan has no conflicting limits"));
        }
        Arc::clone(plan)
    }

    /// Whether a charge by a rule from [`Rule::in_outage`] is denied without counting.
    pub fn denies_in_outage(&self, charge: &Charge<'_>) -> bool {
        self.on_outage == OnOutage::Deny || !charge.plan.has_share()
    }
}

impl Policies {
    /// The set that decides during an outage.
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

/// Prints in the form of the configuration.
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
