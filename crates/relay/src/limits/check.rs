//! Checks whether a policy is usable for deliveries, for programs that check their configuration.

use std::fmt;

use tollgate_core::limit::Holding;
use tollgate_core::{Limit, Policy};

/// A limit that cannot count deliveries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    pub rule: String,
    /// The limit as text.
    pub limit: String,
}

/// Checks whether a policy can limit deliveries. A hold of a delivery must end by itself, because a crash would
/// otherwise keep it for ever.
pub fn check(policy: &Policy) -> Result<(), Unfit> {
    for rule in &policy.rules {
        let plans = std::iter::once(&rule.plan).chain(rule.overrides.values());
        let endless = |(limit, _): &(&Limit, &str)| limit.holding() == Holding::UntilReleased;
        if let Some((_, text)) = plans.flat_map(|plan| plan.written()).find(endless) {
            return Err(Unfit { rule: rule.name.to_string(), limit: text.to_owned() });
        }
    }
    Ok(())
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, limit } = self;
        write!(
            f,
            "rule {rule} has the limit `{limit}`, whose holds never end by themselves: deliveries that a crash cuts \
             would hold it for ever; write `{limit} for 60s`"
        )
    }
}

impl std::error::Error for Unfit {}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tollgate_core::Rule;

    use super::*;

    fn policy(limits: &[&str]) -> Policy {
        let limits: Vec<Limit> = limits.iter().map(|limit| limit.parse().expect("a limit")).collect();
        let rule = Rule::new("account", &["tenant", "account"], limits).expect("a rule");
        Policy::new("mail.deliver".into(), vec![Arc::new(rule)], false)
    }

    #[test]
    fn holds_must_end_by_themselves() {
        assert_eq!(check(&policy(&["10/min sliding", "5 at once for 60s"])), Ok(()));
        let unfit = check(&policy(&["10/min sliding", "5 at once"])).expect_err("it holds for ever");
        assert_eq!((&*unfit.rule, &*unfit.limit), ("account", "5 at once"));
        assert!(unfit.to_string().contains("write `5 at once for 60s`"), "{unfit}");
    }
}
