//! Whether a policy fits deliveries, for programs that check their configuration.

use std::fmt;

use tollgate_core::limit::Holding;
use tollgate_core::{Limit, Policy};

/// A limit that deliveries cannot be counted by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    /// The rule.
    pub rule: String,
    /// The limit, as it is written.
    pub limit: String,
}

/// Whether deliveries can be limited by a policy: a hold of a delivery must end by itself, or a crash would keep it
/// for ever.
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
