//! The impact curve: how many requests and clients one rule would affect with other numbers.

use std::sync::Arc;

use tollgate_core::{Limit, Plan, Policies, StoreError, Timestamp, grammar};

use crate::choose::{Choosing, Wishes};
use crate::lane::{Lane, Moment};
use crate::tally::{ClientSlots, Tally, Way};

/// The lanes of a curve: one for each multiple except 1, which is the main lane. All see each attempt once.
pub struct Curve {
    pub rule: Arc<str>,
    points: Vec<(Factor, String, Lane, Tally)>,
    main: String,
}

/// A multiple of a rule's numbers, as a fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Factor {
    part: u64,
    whole: u64,
}

/// One point of the curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The multiple of the rule's numbers.
    pub factor: f64,
    /// The limits with this multiple, as text.
    pub limits: String,
    /// Requests that the rule denies.
    pub denied: u64,
    /// Requests that it defers.
    pub deferred: u64,
    /// Requests that it would deny, but only observes.
    pub observed: u64,
    /// The number of clients that the rule denies, defers or observes at least once.
    pub clients: u64,
}

/// Why there is no curve. The operator's fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoCurve {
    /// There is no such rule.
    UnknownRule { rule: String },
    /// No policy that attempts pass has the rule, or the rule is switched off.
    NotPassed {
        rule: String,
        /// The policies that attempts pass.
        policies: Vec<String>,
    },
    /// A limit of the rule has no multiple.
    NoMultiple { limit: String },
    /// The store cannot be used.
    Store(StoreError),
}

/// The multiples of a curve, except 1.
const FACTORS: [Factor; 3] =
    [Factor { part: 1, whole: 2 }, Factor { part: 2, whole: 1 }, Factor { part: 4, whole: 1 }];

impl Curve {
    /// Prepares the curve of a rule.
    pub fn new(
        policies: &Policies,
        rule: &str,
        max_keys: usize,
        choosing: &Arc<Choosing>,
        wishes: &Wishes,
        slots: ClientSlots,
    ) -> Result<Self, NoCurve> {
        check_passed(policies, rule, choosing)?;
        let mut points = Vec::new();
        for factor in FACTORS {
            let scaled = scale(policies, rule, factor)?;
            let limits = limits_of(&scaled, rule);
            let lane = Lane::new(scaled, max_keys, Arc::clone(choosing), wishes).map_err(NoCurve::Store)?;
            points.push((factor, limits, lane, Tally::new([], slots)));
        }
        Ok(Self { rule: rule.into(), points, main: limits_of(policies, rule) })
    }

    /// Decides an attempt at every multiple.
    pub fn attempt(&mut self, moment: &Moment<'_>) {
        for (_, _, lane, tally) in &mut self.points {
            lane.attempt(moment, &mut |report| tally.hear(report));
        }
    }

    /// Decides the attempts that still wait.
    pub fn finish(&mut self) {
        for (_, _, lane, tally) in &mut self.points {
            lane.finish(&mut |report| tally.hear(report));
        }
    }

    /// The points of the curve. `main` gives the point of multiple 1.
    pub fn points(&self, main: &Tally) -> Vec<Point> {
        let one = Factor { part: 1, whole: 1 };
        let others = self.points.iter().map(|(factor, limits, _, tally)| (*factor, limits.clone(), tally));
        let all = others.chain([(one, self.main.clone(), main)]);
        let mut points: Vec<Point> = all
            .map(|(factor, limits, tally)| {
                let rule = tally.rule(&self.rule);
                Point {
                    factor: factor.part as f64 / factor.whole as f64,
                    limits,
                    denied: rule.map_or(0, |rule| rule.denied.count),
                    deferred: rule.map_or(0, |rule| rule.deferred.count),
                    observed: rule.map_or(0, |rule| rule.observed.count),
                    clients: rule.map_or(0, |rule| rule.clients.count()),
                }
            })
            .collect();
        points.sort_by(|a, b| a.factor.total_cmp(&b.factor));
        points
    }

    /// The last time at which a lane evicted a key that counted something.
    pub fn last_eviction(&self) -> Option<Timestamp> {
        self.points.iter().filter_map(|(_, _, lane, _)| lane.last_eviction()).max()
    }
}

impl Point {
    /// The number of requests that the rule affects, in any way.
    pub fn affected(&self) -> u64 {
        self.denied + self.deferred + self.observed
    }

    pub fn count(&self, way: Way) -> u64 {
        match way {
            Way::Denied => self.denied,
            Way::Deferred => self.deferred,
            Way::Observed => self.observed,
        }
    }
}

/// Fails unless attempts pass the rule.
fn check_passed(policies: &Policies, rule: &str, choosing: &Choosing) -> Result<(), NoCurve> {
    if policies.rule(rule).is_none() {
        return Err(NoCurve::UnknownRule { rule: rule.to_owned() });
    }
    let passed = choosing.policies();
    let mut rules = passed.iter().filter_map(|name| policies.named(name)).flat_map(|policy| &policy.rules);
    if rules.any(|known| *known.name == *rule && known.enabled) {
        return Ok(());
    }
    let policies = passed.into_iter().map(ToOwned::to_owned).collect();
    Err(NoCurve::NotPassed { rule: rule.to_owned(), policies })
}

impl Factor {
    /// This multiple of a number: rounded, and at least 1.
    fn of(self, number: u64) -> u64 {
        let scaled = (u128::from(number) * u128::from(self.part)).div_ceil(u128::from(self.whole));
        u64::try_from(scaled).unwrap_or(u64::MAX).clamp(1, tollgate_core::MAX_EXACT)
    }
}

/// Returns the same policies with the limits of one rule multiplied. Limits that overrides set for single keys
/// stay.
pub fn scale(policies: &Policies, rule: &str, factor: Factor) -> Result<Policies, NoCurve> {
    let unknown = || NoCurve::UnknownRule { rule: rule.to_owned() };
    let found = policies.rule(rule).ok_or_else(unknown)?;
    let scaled = |limit: &Limit| {
        scale_limit(limit, factor).ok_or_else(|| NoCurve::NoMultiple { limit: limit.to_string() })
    };
    let limits = found.plan.limits().iter().map(scaled).collect::<Result<_, _>>()?;
    let plan = Plan::new(Arc::clone(&found.name), limits).expect("multiples differ as their limits do");
    let plan = if found.secret { plan.with_secret_keys() } else { plan };
    let mut changed = tollgate_core::Rule::clone(found);
    changed.plan = Arc::new(plan);
    Ok(policies.with_rule(changed))
}

/// Multiplies the number of a limit, and the burst of a bucket, in its text, which begins with the number.
fn scale_limit(limit: &Limit, factor: Factor) -> Option<Limit> {
    let text = limit.to_string();
    let rest = text.strip_prefix(&limit.number().to_string())?;
    let scaled = match limit.bucket() {
        Some(bucket) => {
            let period = rest.rsplit_once(" burst ").map_or(rest, |(period, _)| period);
            format!("{}{period} burst {}", factor.of(bucket.rate()), factor.of(bucket.burst()))
        }
        None => format!("{}{rest}", factor.of(limit.number())),
    };
    grammar::parse(&scaled).ok().flatten()
}

fn limits_of(policies: &Policies, rule: &str) -> String {
    policies.rule(rule).map_or_else(String::new, |rule| rule.plan.to_string())
}

impl std::fmt::Display for NoCurve {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::UnknownRule { rule } => write!(f, "there is no rule `{rule}`"),
            Self::NotPassed { rule, policies } => write!(
                f,
                "no attempt passes the rule `{rule}`: it is switched off, or not in policy {}",
                policies.join(", ")
            ),
            Self::NoMultiple { limit } => write!(f, "`{limit}` has no multiples, so there is no curve of it"),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for NoCurve {}

#[cfg(test)]
mod tests {
    use super::*;

    fn scaled(text: &str, factor: Factor) -> Option<String> {
        let limit = grammar::parse(text).expect("a limit").expect("a limit");
        scale_limit(&limit, factor).map(|limit| limit.to_string())
    }

    #[test]
    fn a_multiple_of_a_limit_is_the_same_limit_with_other_numbers() {
        let [half, double, four] = FACTORS;
        assert_eq!(scaled("10/s burst 50", half).as_deref(), Some("5/s burst 25"));
        assert_eq!(
            scaled("1000/day calendar in Europe/Berlin", double).as_deref(),
            Some("2000/day calendar in Europe/Berlin")
        );
        assert_eq!(scaled("100/hour sliding", four).as_deref(), Some("400/hour sliding"));
        assert_eq!(scaled("3 at once for 30s", half).as_deref(), Some("2 at once for 30s"));
        assert_eq!(scaled("1/hour", half).as_deref(), Some("1/hour"), "never below one");
        assert_eq!(scaled("7 in total", double).as_deref(), Some("14 in total"));
        assert_eq!(
            scaled("100 recipients per attempt", double).as_deref(),
            Some("200 recipients per attempt")
        );
        assert_eq!(scaled("ladder 4 +2s then 11 lock 15m", double), None);
    }
}
