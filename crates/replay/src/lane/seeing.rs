//! Extracts the parts of a decision that a replay reports.

use std::sync::Arc;

use tollgate_core::{Decision, Verdict};
use tollgate_engine::Engine;

use super::Named;

/// The parts of a decision that a replay reports.
pub(crate) struct Seen {
    pub(super) verdict: Verdict,
    pub(super) named: Option<Box<Named>>,
    pub(super) observed: Option<Vec<Named>>,
}

/// Takes the place of the rule's name if the blocklist refuses an attempt.
pub(super) const BLOCKLIST: &str = "blocklist";

/// Extracts the parts of a decision.
pub(super) fn see(engine: &Engine, decision: &Decision<'_>) -> Seen {
    let verdict = decision.verdict;
    let named = (!decision.allowed()).then(|| Box::new(named(engine, decision)));
    let observed = decision.blocked().is_none() && decision.policy().observes();
    let observed = if observed { observed_by(engine, decision) } else { None };
    Seen { verdict, named, observed }
}

#[cold]
fn named(engine: &Engine, decision: &Decision<'_>) -> Named {
    if let Some(listing) = decision.blocked() {
        return Named { rule: BLOCKLIST.into(), key: listing.target.to_string().into() };
    }
    match decision.denied_by() {
        Some(line) => {
            let key = engine.observer.shown_key(line.rule, line.key).into();
            Named { rule: Arc::clone(&line.rule.name), key }
        }
        None => Named { rule: BLOCKLIST.into(), key: "".into() },
    }
}

fn observed_by(engine: &Engine, decision: &Decision<'_>) -> Option<Vec<Named>> {
    let exceeded = decision.lines().filter(|line| line.rule.observes() && line.exceeded());
    let named = exceeded.map(|line| Named {
        rule: Arc::clone(&line.rule.name),
        key: engine.observer.shown_key(line.rule, line.key).into(),
    });
    let named: Vec<Named> = named.collect();
    (!named.is_empty()).then_some(named)
}
