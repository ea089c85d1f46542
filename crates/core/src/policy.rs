//! Policies: which rules one kind of attempt passes, and how an attempt becomes charges.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use hashbrown::HashMap;

use crate::charge::Charges;
use crate::key::{Kinds, ValueError};
use crate::limit::Limit;
use crate::lists::Roster;
use crate::rule::{Rule, Values};
use crate::{MAX_EXACT, Ticket};

/// All policies and the rules they share: one consistent set, replaced as a whole.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    /// Whether limits are enforced at all.
    pub enabled: bool,
    rules: Vec<Arc<Rule>>,
    policies: Vec<Policy>,
    /// Where in `policies` a name is, for those who have many.
    by_name: HashMap<Arc<str>, usize>,
    roster: Arc<Roster>,
}

/// An ordered list of rules that one kind of attempt passes.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Its name.
    pub name: Arc<str>,
    /// Its rules, in the order in which they are named when exceeded.
    pub rules: Vec<Arc<Rule>>,
    /// Whether an attempt to which no rule applies is allowed instead of being a mistake.
    pub allow_unmatched: bool,
    /// Every field that some rule uses, and the numbers that some limit bounds.
    fields: Vec<Arc<str>>,
    numbers: Vec<Arc<str>>,
    /// For each rule, which of `fields` make its key.
    by: Vec<Box<[u8]>>,
    observes: bool,
    number: usize,
}

/// What a door asks.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// Which policy it passes.
    pub policy: &'a str,
    /// What is known of it.
    pub fields: &'a [(&'a str, &'a str)],
    /// How much it takes; 0 only looks.
    pub cost: u64,
    /// Under which id it holds what is limited at once.
    pub id: Option<&'a str>,
}

/// Why an attempt cannot be decided. The caller's fault, always; nothing was charged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// There is no such policy.
    UnknownPolicy {
        /// What was asked for.
        policy: String,
        /// The nearest name there is.
        near: Option<String>,
    },
    /// No rule of the policy knows this field.
    UnknownField {
        /// The policy.
        policy: String,
        /// What was sent.
        field: String,
        /// The nearest name that some rule knows.
        near: Option<String>,
    },
    /// A field was sent twice.
    RepeatedField {
        /// Its name.
        field: String,
    },
    /// A value cannot be used.
    BadValue {
        /// The field.
        field: String,
        /// What is wrong with it.
        error: ValueError,
    },
    /// No rule of the policy applies to what was sent.
    NoRuleApplies {
        /// The policy.
        policy: String,
        /// The fields that would make a rule apply.
        fields: Vec<String>,
    },
    /// The cost is beyond exact numbers.
    CostTooBig {
        /// What was asked for.
        cost: u64,
    },
    /// The id is longer than [`Attempt::MOST_ID_BYTES`].
    IdTooLong {
        /// How long it is.
        bytes: usize,
    },
}

impl Attempt<'_> {
    /// The longest id, in bytes.
    pub const MOST_ID_BYTES: usize = 256;
}

impl Policies {
    /// The most rules one policy may have.
    pub const MOST_RULES: usize = Charges::MOST;

    /// A set of rules and of policies that name them by position.
    pub fn new(enabled: bool, rules: Vec<Arc<Rule>>, policies: Vec<Policy>) -> Self {
        let numbered = policies.into_iter().enumerate().map(|(number, policy)| Policy { number, ..policy });
        let policies: Vec<Policy> = numbered.collect();
        let by_name = policies.iter().map(|policy| (Arc::clone(&policy.name), policy.number)).collect();
        Self { enabled, rules, policies, by_name, roster: Arc::default() }
    }

    /// The same set with these lists of whom is barred and who never is.
    #[must_use]
    pub fn with_roster(self, roster: Arc<Roster>) -> Self {
        Self { roster, ..self }
    }

    /// What is configured of the blocklist and the allowlist.
    pub fn roster(&self) -> &Arc<Roster> {
        &self.roster
    }

    /// What fields hold: as the configuration says, or as some rule has it.
    pub fn kinds(&self) -> Kinds {
        let fields = self.rules.iter().flat_map(|rule| rule.by.iter());
        self.roster.kinds().clone().or(fields.map(|field| (Arc::clone(&field.name), field.kind)))
    }

    /// All rules, in the order in which they were written.
    pub fn rules(&self) -> &[Arc<Rule>] {
        &self.rules
    }

    /// A rule by its name.
    pub fn rule(&self, name: &str) -> Option<&Arc<Rule>> {
        self.rules.iter().find(|rule| *rule.name == *name)
    }

    /// All policies, in the order in which they were written.
    pub fn iter(&self) -> impl Iterator<Item = &Policy> {
        self.policies.iter()
    }

    /// The policy of this name.
    #[inline]
    pub fn find(&self, name: &str) -> Result<&Policy, Mistake> {
        // A few names are compared faster than one is hashed.
        let found = if self.policies.len() <= 8 {
            self.policies.iter().find(|policy| same(&policy.name, name))
        } else {
            self.by_name.get(name).map(|number| &self.policies[*number])
        };
        found.ok_or_else(|| self.unknown(name))
    }

    #[cold]
    fn unknown(&self, name: &str) -> Mistake {
        let near = nearest(name, self.policies.iter().map(|policy| &*policy.name));
        Mistake::UnknownPolicy { policy: shown(name), near }
    }

    /// The same set with one rule replaced by another of the same name.
    #[must_use]
    pub fn with_rule(&self, rule: Rule) -> Self {
        let rule = Arc::new(rule);
        let swap = |old: &Arc<Rule>| if old.name == rule.name { Arc::clone(&rule) } else { Arc::clone(old) };
        let policies = self.iter().map(|policy| {
            let rules = policy.rules.iter().map(swap).collect();
            Policy::new(Arc::clone(&policy.name), rules, policy.allow_unmatched)
        });
        let rules = self.rules.iter().map(swap).collect();
        Self::new(self.enabled, rules, policies.collect()).with_roster(Arc::clone(&self.roster))
    }
}

impl Policy {
    /// A policy over these rules, each of which appears once.
    pub fn new(name: Arc<str>, rules: Vec<Arc<Rule>>, allow_unmatched: bool) -> Self {
        let mut fields: Vec<Arc<str>> = Vec::new();
        let mut numbers: Vec<Arc<str>> = Vec::new();
        let mut by = Vec::new();
        for rule in &rules {
            by.push(rule.by.iter().map(|field| position(&mut fields, &field.name)).collect());
            let plans = core::iter::once(&rule.plan).chain(rule.overrides.values());
            for limit in plans.flat_map(|plan| plan.limits()) {
                if let Limit::PerAttempt { field, .. } = limit
                    && !numbers.contains(field)
                {
                    numbers.push(Arc::clone(field));
                }
            }
        }
        let observes = rules.iter().any(|rule| rule.observes());
        Self { name, rules, allow_unmatched, fields, numbers, by, observes, number: 0 }
    }

    /// Its place among the policies of its set.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Whether some rule only counts and reports.
    pub fn observes(&self) -> bool {
        self.observes
    }

    /// Turns an attempt into charges: one for each rule that applies.
    pub fn charges<'a>(&'a self, attempt: &Attempt<'a>, ticket: Ticket) -> Result<Charges<'a>, Mistake> {
        let mut charges = Charges::new(ticket, attempt.cost, attempt.id);
        self.charge(attempt, &mut charges)?;
        Ok(charges)
    }

    /// As [`Policy::charges`], into charges that are empty yet: they are too large to be handed from
    /// call to call.
    pub fn charge<'a>(&'a self, attempt: &Attempt<'a>, charges: &mut Charges<'a>) -> Result<(), Mistake> {
        self.charge_listed(attempt, &Roster::default(), charges)
    }

    /// As [`Policy::charge`], where fields that the lists know may be among those of the attempt.
    pub fn charge_listed<'a>(
        &'a self,
        attempt: &Attempt<'a>,
        roster: &Roster,
        charges: &mut Charges<'a>,
    ) -> Result<(), Mistake> {
        if attempt.cost > MAX_EXACT {
            return Err(Mistake::CostTooBig { cost: attempt.cost });
        }
        if let Some(id) = attempt.id.filter(|id| id.len() > Attempt::MOST_ID_BYTES) {
            return Err(Mistake::IdTooLong { bytes: id.len() });
        }
        if self.charge_plain(attempt, charges) { Ok(()) } else { self.charge_any(attempt, roster, charges) }
    }

    /// Charges the one rule of a policy for its one field, if that is all there is and needs no
    /// writing: the shortest way there is.
    #[inline]
    fn charge_plain<'a>(&'a self, attempt: &Attempt<'a>, charges: &mut Charges<'a>) -> bool {
        let ([rule], [field], [(name, value)]) = (&*self.rules, &*self.fields, attempt.fields) else {
            return false;
        };
        let only = rule.enabled && self.numbers.is_empty() && same(field, name);
        only && rule.charge_plain(Some(value), charges)
    }

    #[inline(never)]
    fn charge_any<'a>(
        &'a self,
        attempt: &Attempt<'a>,
        roster: &Roster,
        charges: &mut Charges<'a>,
    ) -> Result<(), Mistake> {
        // Few policies use more fields than fit beside the call.
        let mut few = [None; 8];
        let mut many = Vec::new();
        let values = few.get_mut(..self.fields.len()).unwrap_or_else(|| {
            many.resize(self.fields.len(), None);
            &mut many
        });
        self.find_values(attempt, roster, charges, values)?;
        for (rule, by) in self.rules.iter().zip(&self.by).filter(|(rule, _)| rule.enabled) {
            let charged = rule.charge(Values { all: values, by }, charges);
            charged.map_err(|(index, error)| Mistake::BadValue {
                field: rule.by[index].name.to_string(),
                error,
            })?;
        }
        if charges.is_empty() && !self.allow_unmatched && !self.applies(values) {
            return Err(Mistake::NoRuleApplies {
                policy: self.name.to_string(),
                fields: self.fields.iter().map(ToString::to_string).collect(),
            });
        }
        Ok(())
    }

    /// The rule that a charge of [`Policy::charges`] stands for.
    pub fn rule(&self, name: &Arc<str>) -> Option<&Arc<Rule>> {
        // A plan names its rule by the very same text in most cases.
        let same = self.rules.iter().find(|rule| Arc::ptr_eq(&rule.name, name));
        same.or_else(|| self.rules.iter().find(|rule| rule.name == *name))
    }

    /// Every field that an attempt may bring.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().chain(&self.numbers).map(|name| &**name)
    }

    /// Whether some rule has all its fields: then it is unlimited or switched off, not unmatched.
    fn applies(&self, values: &[Option<&str>]) -> bool {
        self.rules.is_empty()
            || self.by.iter().any(|by| by.iter().all(|index| values[usize::from(*index)].is_some()))
    }

    fn find_values<'a>(
        &'a self,
        attempt: &Attempt<'a>,
        roster: &Roster,
        charges: &mut Charges<'a>,
        values: &mut [Option<&'a str>],
    ) -> Result<(), Mistake> {
        let mut next = 0;
        for (index, (name, value)) in attempt.fields.iter().enumerate() {
            let number = self.note_number(name, value, charges)?;
            match self.position_of(name, next) {
                Some(index) if values[index].is_some() => {
                    return Err(Mistake::RepeatedField { field: shown(name) });
                }
                Some(index) => {
                    values[index] = Some(value);
                    next = index + 1;
                }
                None if number => {}
                None => self.check_listed(roster, (name, value), &attempt.fields[..index])?,
            }
        }
        Ok(())
    }

    /// Which of the fields has this name. Callers tend to keep to the order of the rules, so the
    /// search begins where the last one ended.
    #[inline]
    fn position_of(&self, name: &str, next: usize) -> Option<usize> {
        let is = |known: &Arc<str>| same(known, name);
        match self.fields.get(next) {
            Some(known) if is(known) => Some(next),
            _ => self.fields.iter().position(is),
        }
    }

    /// Notes a number that some limit bounds. Answers whether it is one.
    #[inline]
    fn note_number<'a>(
        &'a self,
        name: &str,
        value: &str,
        charges: &mut Charges<'a>,
    ) -> Result<bool, Mistake> {
        let Some(known) = self.numbers.iter().find(|known| same(known, name)) else { return Ok(false) };
        if charges.amounts.iter().any(|(earlier, _)| *earlier == name) {
            return Err(Mistake::RepeatedField { field: shown(name) });
        }
        let amount = value
            .parse()
            .map_err(|_| Mistake::BadValue { field: shown(name), error: ValueError::NotANumber })?;
        charges.amounts.push((known, amount));
        Ok(true)
    }

    /// Checks a field that no rule knows: it is there for the lists, or a mistake.
    #[cold]
    fn check_listed(
        &self,
        roster: &Roster,
        (name, value): (&str, &str),
        before: &[(&str, &str)],
    ) -> Result<(), Mistake> {
        let kind = roster.knows(name).ok_or_else(|| self.unknown(name))?;
        if before.iter().any(|(earlier, _)| same(earlier, name)) {
            return Err(Mistake::RepeatedField { field: shown(name) });
        }
        kind.check(value).map_err(|error| Mistake::BadValue { field: shown(name), error })
    }

    #[cold]
    fn unknown(&self, name: &str) -> Mistake {
        Mistake::UnknownField {
            policy: self.name.to_string(),
            field: shown(name),
            near: nearest(name, self.fields()),
        }
    }
}

/// Whether two names are equal. Names are short: calling a function that compares takes longer than
/// comparing them.
#[inline]
pub(crate) fn same(one: &str, other: &str) -> bool {
    /// Whether both begin and end alike: all there is of up to twice as many bytes.
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

fn position(names: &mut Vec<Arc<str>>, name: &Arc<str>) -> u8 {
    let index = names.iter().position(|known| known == name).unwrap_or_else(|| {
        names.push(Arc::clone(name));
        names.len() - 1
    });
    u8::try_from(index).expect("a policy has at most 16 rules of 4 fields")
}

/// A name somebody sent, cut to a length that is fit to be shown back.
fn shown(name: &str) -> String {
    name.chars().take(64).collect()
}

/// The known name that differs least from `name`, if it differs little enough to be what was meant.
pub fn nearest<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<String> {
    let name = shown(name);
    let best = known.map(|known| (distance(&name, known), known)).min()?;
    (best.0 <= 1 + name.chars().count() / 3).then(|| best.1.to_string())
}

/// How many letters must be changed, added or left out to turn one into the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hint = |near: &Option<String>| {
            near.as_ref().map_or_else(String::new, |near| alloc::format!("; did you mean `{near}`?"))
        };
        match self {
            Self::UnknownPolicy { policy, near } => write!(f, "there is no policy `{policy}`{}", hint(near)),
            Self::UnknownField { policy, field, near } => {
                write!(f, "no rule of policy `{policy}` knows the field `{field}`{}", hint(near))
            }
            Self::RepeatedField { field } => write!(f, "the field `{field}` was sent twice"),
            Self::BadValue { field, error } => write!(f, "the value of `{field}` {error}"),
            Self::NoRuleApplies { policy, fields } => write!(
                f,
                "no rule of policy `{policy}` applies: its rules need some of the fields {}; set `allow_unmatched` to let such attempts pass",
                fields.join(", ")
            ),
            Self::CostTooBig { cost } => {
                write!(f, "the cost {cost} is beyond the largest exact number, {MAX_EXACT}")
            }
            Self::IdTooLong { bytes } => {
                write!(f, "the id is {bytes} bytes long; at most {} are allowed", Attempt::MOST_ID_BYTES)
            }
        }
    }
}

impl core::error::Error for Mistake {}
