//! Limits of single keys, set at run time: they replace the configured limits until they are removed or end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tollgate_core::{Clash, Limit, Plan, Policies, Rule, Timestamp, grammar};

use super::{LeftOut, Subject};

/// The overrides, by rule and key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overrides {
    by_rule: BTreeMap<String, BTreeMap<String, Override>>,
    count: usize,
    /// The future ends of overrides, with rule and key.
    ends: BTreeSet<(Timestamp, String, String)>,
    /// The store's time: an override that ended before is no longer in force, even if the store has not
    /// removed it yet.
    now: Timestamp,
}

/// The limits of one key.
#[derive(Clone, Debug)]
pub(crate) struct Override {
    pub(crate) plan: Arc<Plan>,
    /// When it ends, by the store's clock; `None` if it lasts until it is removed.
    pub(crate) until: Option<Timestamp>,
}

/// The first word of the line that says when an override ends. No limit begins with it.
const UNTIL: &str = "until ";

impl Override {
    /// The recorded form: when it ends, if it does, and then one limit a line.
    pub(crate) fn write(&self) -> Vec<u8> {
        let until = self.until.map(|until| format!("{UNTIL}{}", until.as_micros()));
        let lines = until.into_iter().chain(self.plan.limits().iter().map(ToString::to_string));
        lines.collect::<Vec<_>>().join("\n").into_bytes()
    }

    /// Reads a record. An unchanged plan is kept: stores identify plans by their address.
    pub(super) fn read(rule: &Arc<str>, record: &[u8], before: Option<&Self>) -> Option<Self> {
        let text = std::str::from_utf8(record).ok()?;
        let (until, text) = match text.strip_prefix(UNTIL) {
            Some(rest) => {
                let (until, limits) = rest.split_once('\n').unwrap_or((rest, ""));
                (Some(Timestamp::from_micros(until.parse().ok()?)), limits)
            }
            None => (None, text),
        };
        let limits: Vec<Limit> =
            text.lines().map(|line| grammar::parse(line).ok()?).collect::<Option<_>>()?;
        let same = before.filter(|before| before.plan.limits() == limits).map(|same| Arc::clone(&same.plan));
        let plan = same.or_else(|| Plan::new(Arc::clone(rule), limits).ok().map(Arc::new))?;
        Some(Self { plan, until })
    }

    fn is_over(&self, now: Timestamp) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

impl Overrides {
    pub(super) fn set(&mut self, rule: &str, key: &str, new: Override) {
        let until = new.until.filter(|until| *until > self.now);
        let replaced = self.by_rule.entry(rule.to_owned()).or_default().insert(key.to_owned(), new);
        self.count += usize::from(replaced.is_none());
        self.forget_end(rule, key, replaced);
        self.ends.extend(until.map(|until| (until, rule.to_owned(), key.to_owned())));
    }

    pub(super) fn remove(&mut self, rule: &str, key: &str) {
        let removed = self.by_rule.get_mut(rule).and_then(|keys| keys.remove(key));
        self.count -= usize::from(removed.is_some());
        self.forget_end(rule, key, removed);
    }

    fn forget_end(&mut self, rule: &str, key: &str, old: Option<Override>) {
        if let Some(until) = old.and_then(|old| old.until) {
            self.ends.remove(&(until, rule.to_owned(), key.to_owned()));
        }
    }

    /// Learns the store's time. Returns the rules of overrides that have ended since.
    pub(crate) fn end(&mut self, now: Timestamp) -> BTreeSet<String> {
        self.now = now;
        let mut rules = BTreeSet::new();
        while self.ends.first().is_some_and(|(until, ..)| *until <= now) {
            rules.extend(self.ends.pop_first().map(|(_, rule, _)| rule));
        }
        rules
    }

    /// The override of a key, whether it has ended or not.
    pub(super) fn at(&self, rule: &str, key: &str) -> Option<&Override> {
        self.by_rule.get(rule)?.get(key)
    }

    /// The override of a key, unless it has ended.
    pub(crate) fn lasting(&self, rule: &str, key: &str) -> Option<&Override> {
        self.at(rule, key).filter(|own| !own.is_over(self.now))
    }

    /// The ends of the overrides of a rule's keys; overrides without an end are left out.
    pub(crate) fn ends_of(&self, rule: &str) -> impl Iterator<Item = (&str, Timestamp)> {
        let keys = self.by_rule.get(rule).into_iter().flatten();
        keys.filter(|(_, own)| !own.is_over(self.now)).filter_map(|(key, own)| Some((&**key, own.until?)))
    }

    /// The override of one of a rule's keys.
    pub(super) fn first(&self, rule: &str) -> Option<&Override> {
        self.by_rule.get(rule)?.values().next()
    }

    /// Every key of a rule that has an override.
    pub(crate) fn keys_of(&self, rule: &str) -> impl Iterator<Item = &str> {
        self.by_rule.get(rule).into_iter().flatten().map(|(key, _)| key.as_str())
    }

    /// Every rule that has an override.
    pub(crate) fn rules(&self) -> impl Iterator<Item = &str> {
        self.by_rule.iter().filter(|(_, keys)| !keys.is_empty()).map(|(rule, _)| rule.as_str())
    }

    /// The number of keys that have limits of their own.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// A rule with its overrides applied. Overrides that do not fit the policies are left out for as long as
    /// they do not.
    pub(crate) fn over(&self, rule: &Arc<Rule>, policies: &Policies, left_out: &mut LeftOut) -> Arc<Rule> {
        let Some(keys) = self.by_rule.get(&*rule.name).filter(|keys| !keys.is_empty()) else {
            return Arc::clone(rule);
        };
        let mut rule = Rule::clone(rule);
        rule.overrides.reserve(keys.len());
        for (key, own) in keys.iter().filter(|(_, own)| !own.is_over(self.now)) {
            match Clash::find(&rule.name, own.plan.limits(), policies.iter()) {
                Some(clash) => left_out.note(Subject::Override { rule: &rule.name, key }, clash),
                None => drop(rule.overrides.insert(key.as_str().into(), Arc::clone(&own.plan))),
            }
        }
        Arc::new(if rule.secret { rule.with_secret_keys() } else { rule })
    }
}
