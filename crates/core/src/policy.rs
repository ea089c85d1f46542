//! Policies: the rules for one kind of attempt.

mod charging;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use hashbrown::HashMap;

pub use crate::attempt::Attempt;
use crate::charge::Charges;
use crate::derived::IndexedDerivation;
use crate::guard::Guard;
use crate::key::{FieldKind, Kinds};
use crate::limit::Holding;
use crate::lists::Roster;
use crate::mistake::shown;
pub use crate::mistake::{Mistake, nearest};
use crate::numbers::Numbers;
use crate::outage::OnOutage;
use crate::rule::{OnExceed, Rule};
use charging::RuleStep;

/// All policies and the rules they share: one consistent set, replaced as a whole.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    /// Whether limits are enforced at all.
    pub enabled: bool,
    rules: Vec<Arc<Rule>>,
    policies: Vec<Policy>,
    /// The index of each policy, for large sets.
    by_name: HashMap<Arc<str>, usize>,
    /// The index of each rule.
    rules_by_name: HashMap<Arc<str>, usize>,
    roster: Arc<Roster>,
    guards: Arc<[Guard]>,
    on_outage: OnOutage,
    counts_rows: bool,
}

/// An ordered list of rules for one kind of attempt.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Its name.
    pub name: Arc<str>,
    /// Its rules. The first exceeded one is named in a denial.
    pub rules: Vec<Arc<Rule>>,
    /// Whether an attempt to which no rule applies is allowed instead of being a mistake.
    pub allow_unmatched: bool,
    /// Every field that is part of a rule's key, and every field from which such a field is derived.
    fields: Vec<Arc<str>>,
    derived: Box<[IndexedDerivation]>,
    numbers: Vec<Arc<str>>,
    /// For each rule, what is needed to charge it.
    steps: Box<[RuleStep]>,
    observes: bool,
    lets_wait: bool,
    counts_outcomes: bool,
    counts_rows: bool,
    holding: Holding,
    number: usize,
}

impl Policies {
    /// The most rules one policy may have.
    pub const MOST_RULES: usize = Charges::MOST;

    /// A set of these rules and policies.
    pub fn new(enabled: bool, rules: Vec<Arc<Rule>>, policies: Vec<Policy>) -> Self {
        let numbered = policies.into_iter().enumerate().map(|(number, policy)| Policy { number, ..policy });
        let policies: Vec<Policy> = numbered.collect();
        let by_name = policies.iter().map(|policy| (Arc::clone(&policy.name), policy.number)).collect();
        let names = rules.iter().enumerate().map(|(number, rule)| (Arc::clone(&rule.name), number));
        let rules_by_name = names.collect();
        let counts_rows = rules.iter().any(|rule| rule.rows.is_some());
        Self {
            enabled,
            rules,
            policies,
            by_name,
            rules_by_name,
            roster: Arc::default(),
            guards: Arc::default(),
            on_outage: OnOutage::DEFAULT,
            counts_rows,
        }
    }

    /// The same set with these configured lists and kinds of fields.
    #[must_use]
    pub fn with_roster(self, roster: Arc<Roster>) -> Self {
        let kinds = roster.kinds();
        let policies = self.policies.into_iter().map(|policy| policy.deriving(kinds)).collect();
        Self { policies, roster, ..self }
    }

    /// The same set with these guards.
    #[must_use]
    pub fn with_guards(self, guards: Vec<Guard>) -> Self {
        Self { guards: guards.into(), ..self }
    }

    /// The same set with this default for rules that are created at run time. Its own rules keep theirs.
    #[must_use]
    pub fn with_on_outage(self, on_outage: OnOutage) -> Self {
        Self { on_outage, ..self }
    }

    /// The default `on_outage` of rules.
    pub fn on_outage(&self) -> OnOutage {
        self.on_outage
    }

    /// Whether attempts of this policy wait until rows are counted.
    #[inline]
    pub fn count_rows(&self, policy: &str) -> bool {
        self.counts_rows && self.named(policy).is_some_and(Policy::counts_rows)
    }

    /// All guards, in the order of the configuration.
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// The configured part of the blocklist and the allowlist.
    pub fn roster(&self) -> &Arc<Roster> {
        &self.roster
    }

    /// The kind of a field, for a new rule.
    pub fn kind_of(&self, field: &str) -> FieldKind {
        self.roster.kinds().of(field)
    }

    /// The kinds of fields: as configured, or as a rule has them.
    pub fn kinds(&self) -> Kinds {
        let fields = self.rules.iter().flat_map(|rule| rule.by.iter());
        self.roster.kinds().clone().or(fields.map(|field| (Arc::clone(&field.name), field.kind)))
    }

    /// All rules, in the order of the configuration.
    pub fn rules(&self) -> &[Arc<Rule>] {
        &self.rules
    }

    /// A rule by its name.
    pub fn rule(&self, name: &str) -> Option<&Arc<Rule>> {
        self.rules_by_name.get(name).map(|number| &self.rules[*number])
    }

    /// All policies, in the order of the configuration.
    pub fn iter(&self) -> impl Iterator<Item = &Policy> {
        self.policies.iter()
    }

    /// The policy of this name.
    #[inline]
    pub fn find(&self, name: &str) -> Result<&Policy, Mistake> {
        self.named(name).ok_or_else(|| self.unknown(name))
    }

    /// The policy with this index.
    #[inline]
    pub fn at(&self, number: usize) -> Option<&Policy> {
        self.policies.get(number)
    }

    /// As [`Policies::find`], but without an error.
    #[inline]
    pub fn named(&self, name: &str) -> Option<&Policy> {
        // Comparing a few names is faster than hashing one.
        if self.policies.len() <= 8 {
            self.policies.iter().find(|policy| same(&policy.name, name))
        } else {
            self.by_name.get(name).map(|number| &self.policies[*number])
        }
    }

    #[cold]
    fn unknown(&self, name: &str) -> Mistake {
        let near = nearest(name, self.policies.iter().map(|policy| &*policy.name));
        Mistake::UnknownPolicy { policy: shown(name), near }
    }

    /// This set, with the policies, rules and guards of another one whose names are not taken. A policy of
    /// the other one uses this set's rules where the names are equal.
    #[must_use]
    pub fn beside(&self, other: &Self) -> Self {
        let own_rule = |rule: &Arc<Rule>| self.rule(&rule.name).unwrap_or(rule).clone();
        let rules = other.rules.iter().filter(|rule| self.rule(&rule.name).is_none());
        let policies = other.policies.iter().filter(|policy| self.named(&policy.name).is_none());
        let policies = policies.map(|policy| {
            let rules = policy.rules.iter().map(own_rule).collect();
            Policy::new(Arc::clone(&policy.name), rules, policy.allow_unmatched)
        });
        let guards = other.guards().iter().filter(|guard| self.guard(&guard.name).is_none());
        let guards = self.guards().iter().chain(guards).cloned().collect();
        self.with(
            self.rules.iter().chain(rules).cloned().collect(),
            self.policies.iter().cloned().chain(policies).collect(),
        )
        .with_guards(guards)
    }

    /// The same set with one rule replaced by another of the same name.
    #[must_use]
    pub fn with_rule(&self, rule: Rule) -> Self {
        let mut rules = self.rules.clone();
        if let Some(number) = self.rules_by_name.get(&rule.name) {
            rules[*number] = Arc::new(rule);
        }
        self.over(rules)
    }

    /// Other rules and policies with the same settings.
    #[must_use]
    pub fn with(&self, rules: Vec<Arc<Rule>>, policies: Vec<Policy>) -> Self {
        let guards = Arc::clone(&self.guards);
        let set = Self { guards, on_outage: self.on_outage, ..Self::new(self.enabled, rules, policies) };
        set.with_roster(Arc::clone(&self.roster))
    }

    /// The same policies with other rules, which must have the same names in the same order.
    #[must_use]
    pub fn over(&self, rules: Vec<Arc<Rule>>) -> Self {
        let mut numbers = Numbers::default();
        let find =
            |old: &Arc<Rule>| self.rules_by_name.get(&old.name).map(|number| Arc::clone(&rules[*number]));
        let policies = self.iter().map(|policy| {
            let own = policy.rules.iter().filter_map(find).collect();
            Policy::sharing(Arc::clone(&policy.name), own, policy.allow_unmatched, &mut numbers)
        });
        let policies = policies.collect();
        self.with(rules, policies)
    }
}

impl Policy {
    /// A policy of these rules, each of which appears once.
    pub fn new(name: Arc<str>, rules: Vec<Arc<Rule>>, allow_unmatched: bool) -> Self {
        Self::sharing(name, rules, allow_unmatched, &mut Numbers::default())
    }

    /// As [`Policy::new`], for one of many that share rules.
    pub fn sharing(
        name: Arc<str>,
        rules: Vec<Arc<Rule>>,
        allow_unmatched: bool,
        known: &mut Numbers,
    ) -> Self {
        let mut fields: Vec<Arc<str>> = Vec::new();
        let mut numbers: Vec<Arc<str>> = Vec::new();
        let steps: Box<[RuleStep]> = rules.iter().map(|rule| RuleStep::new(rule, &mut fields)).collect();
        let mut holding = Holding::Nothing;
        for rule in &rules {
            holding = holding.max(known.holding(rule));
            let own = known.of(rule);
            if numbers.is_empty() {
                numbers.extend_from_slice(own);
            } else {
                let more: Vec<_> = own.iter().filter(|field| !numbers.contains(field)).cloned().collect();
                numbers.extend(more);
            }
        }
        let observes = rules.iter().any(|rule| rule.observes());
        let lets_wait = rules.iter().any(|rule| matches!(rule.on_exceed, OnExceed::Wait(_)));
        let counts_outcomes = rules.iter().any(|rule| rule.count_when.is_some());
        let counts_rows = rules.iter().any(|rule| rule.rows.is_some());
        Self {
            name,
            rules,
            allow_unmatched,
            fields,
            derived: Box::default(),
            numbers,
            steps,
            observes,
            lets_wait,
            counts_outcomes,
            counts_rows,
            holding,
            number: 0,
        }
    }

    /// The same policy with the derived fields of these kinds. [`Policies::with_roster`] calls it.
    #[must_use]
    pub fn deriving(mut self, kinds: &Kinds) -> Self {
        self.derived = IndexedDerivation::of(kinds, &mut self.fields);
        self
    }

    /// The fields that are derived if an attempt does not have them, each with its source.
    pub fn derived(&self) -> impl Iterator<Item = (&str, &str)> {
        self.derived.iter().map(|placed| {
            let (field, source) = placed.places();
            (&*self.fields[field], &*self.fields[source])
        })
    }

    /// Its index in its set.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Whether any rule only observes.
    pub fn observes(&self) -> bool {
        self.observes
    }

    /// Whether any rule makes attempts wait.
    pub fn lets_wait(&self) -> bool {
        self.lets_wait
    }

    /// Whether any rule has `count_when`.
    pub fn counts_outcomes(&self) -> bool {
        self.counts_outcomes
    }

    /// Whether some rule counts rows.
    #[inline]
    pub fn counts_rows(&self) -> bool {
        self.counts_rows
    }

    /// The kind of hold of its attempts, at any key.
    pub fn holding(&self) -> Holding {
        self.holding
    }

    /// Whether its attempts take holds, and so need an id to release them.
    #[inline]
    pub fn holds(&self) -> bool {
        self.holding != Holding::Nothing
    }

    /// The rule of a charge of [`Policy::charges`].
    pub fn rule(&self, name: &Arc<str>) -> Option<&Arc<Rule>> {
        // A plan mostly shares the text of its rule's name.
        let same = self.rules.iter().find(|rule| Arc::ptr_eq(&rule.name, name));
        same.or_else(|| self.rules.iter().find(|rule| rule.name == *name))
    }

    /// The numeric fields that limits bound or rules count.
    pub fn numbers(&self) -> impl Iterator<Item = &str> {
        self.numbers.iter().map(|name| &**name)
    }

    /// Every field that a rule uses: the fields of keys, the sources of derived fields, and the numeric fields that
    /// limits bound or rules count.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().chain(&self.numbers).map(|name| &**name)
    }
}

/// Whether two names are equal. Names are short, so calling a comparison function would take longer than
/// comparing.
#[inline]
pub(crate) fn same(one: &str, other: &str) -> bool {
    /// Whether both have the same start and end, which covers up to twice as many bytes.
    #[inline]
    fn ends<const N: usize>(one: &[u8], other: &[u8]) -> bool {
        one.first_chunk::<N>() == other.first_chunk() && one.last_chunk::<N>() == other.last_chunk()
    }
    let (one, other) = (one.as_bytes(), other.as_bytes());
    one.len() == other.len()
        && match one.len() {
            0 => true,
            1 => one[0] == other[0],
            2..=4 => ends::<2>(one, other),
            5..=8 => ends::<4>(one, other),
            9..=16 => ends::<8>(one, other),
            _ => one == other,
        }
}
