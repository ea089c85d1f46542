//! Finds a limit that never denies anything, because another limit of the same rule always denies first.

use tollgate_core::Span;
use tollgate_core::limit::Limit;

/// A limit that never denies anything, and the one that always denies first. Only if both count units over a time; it
/// stays silent where the limits may both matter.
pub(super) fn find(limits: &[Limit]) -> Option<(&Limit, &Limit)> {
    limits.iter().enumerate().find_map(|(index, idle)| {
        // Of two equal ones the second is idle.
        let others = limits.iter().enumerate().filter(|(at, _)| *at != index);
        let other = others.map(|(_, other)| other).find(|other| allows_less(other, idle))?;
        Some((idle, other))
    })
}

/// Whether `strict` never lets pass as much as `wide` allows in a shorter time. A limit over a longer time may be one that
/// a provider states, so it is not called idle.
fn allows_less(strict: &Limit, wide: &Limit) -> bool {
    let (Some(own), Some(period)) = (strict.period(), wide.period()) else { return false };
    let comparable = match wide {
        Limit::Window(_) | Limit::Sliding(_) | Limit::Bucket(_) => period <= own,
        Limit::Calendar(_)
        | Limit::Slotted(_)
        | Limit::InFlight(_)
        | Limit::Ladder(_)
        | Limit::Total(_)
        | Limit::PerAttempt(_) => false,
    };
    comparable && most_within(strict, own).is_some_and(|most| most < wide.capacity())
}

/// The most units that a limit lets pass within a time, wherever it begins; `None` if that is not known.
pub(in crate::config) fn most_within(limit: &Limit, within: Span) -> Option<u64> {
    let periods = within.as_micros().div_ceil(limit.period()?.as_micros().max(1));
    match limit {
        Limit::Sliding(_) | Limit::Slotted(_) => Some(limit.number().saturating_mul(periods)),
        Limit::Window(_) => Some(limit.number().saturating_mul(periods + 1)),
        Limit::Bucket(_) => Some(limit.capacity().saturating_add(limit.number().saturating_mul(periods))),
        Limit::Calendar(_)
        | Limit::InFlight(_)
        | Limit::Ladder(_)
        | Limit::Total(_)
        | Limit::PerAttempt(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_core::grammar::parse;

    fn idle(texts: &[&str]) -> Option<String> {
        let limits: Vec<Limit> =
            texts.iter().map(|text| parse(text).expect("a limit").expect("it limits")).collect();
        find(&limits).map(|(idle, _)| idle.to_string())
    }

    #[test]
    fn a_limit_that_another_one_makes_useless_is_found_and_no_other() {
        for (texts, expected) in [
            (&["10/hour", "1000/min"][..], Some("1000/min")),
            (&["1000/min", "10/hour"], Some("1000/min")),
            (&["10/hour sliding", "11/min sliding"], Some("11/min sliding")),
            (&["10/hour", "21/min"], Some("21/min")),
            (&["10/hour", "50/s burst 100"], Some("50/s burst 100")),
            (&["14/min sliding", "50000/day sliding"], None),
            // Two windows of an hour may meet within a minute.
            (&["10/hour", "15/min"], None),
            (&["10/min", "100/hour"], None),
            (&["10/min", "100/hour", "1000/day"], None),
            (&["10/s burst 50", "1000/hour"], None),
            (&["1000/hour", "10/s burst 50"], None),
            (&["5/hour", "3 at once"], None),
            (&["5/day calendar", "100/hour"], None),
            (&["10/hour sliding", "10/min sliding"], None),
            (&["10/hour"], None),
        ] {
            assert_eq!(idle(texts).as_deref(), expected, "{texts:?}");
        }
    }
}
