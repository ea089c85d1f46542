//! A rule: a named level with its key, its limits, what it does when they are exceeded, and what
//! without its store.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use hashbrown::HashMap;

use crate::banning::Banning;
use crate::charge::KeyText;
use crate::code::Code;
use crate::key::{self, FieldKind, Presence};
use crate::limit::Limit;
use crate::outage::OnOutage;
use crate::plan::{Plan, PlanError};
use crate::rows::RowCount;
use crate::statuses::Statuses;
use crate::time::Span;

/// A named level.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Its name: unique, and part of every counter's identity.
    pub name: Arc<str>,
    /// How answers that it refuses name it to an application, beside its name.
    pub code: Option<Code>,
    /// The fields that make its key; none means one counter for all.
    pub by: Box<[Field]>,
    /// Its limits, where nothing else is said.
    pub plan: Arc<Plan>,
    /// Limits of single keys, by the key's text.
    pub overrides: HashMap<Box<str>, Arc<Plan>>,
    /// What happens when a limit is exceeded.
    pub on_exceed: OnExceed,
    /// What happens while the store cannot be used.
    pub on_outage: OnOutage,
    /// When it bans a key that it keeps denying.
    pub ban: Option<Banning>,
    /// The field whose number an attempt costs at this rule; without one it costs what the attempt says.
    pub count: Option<Arc<str>>,
    /// Of which statuses an answer must be for its attempt to count; any if nothing is said. An attempt
    /// is charged at first like any other, and given back once it is answered otherwise.
    pub count_when: Option<Statuses>,
    /// Which rows of the application count beside what it holds.
    pub rows: Option<Arc<RowCount>>,
    /// A switched-off rule charges nothing.
    pub enabled: bool,
    /// Whether its keys are kept out of everything that people read.
    pub secret: bool,
}

/// A field of an attempt that is part of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    /// Its name.
    pub name: Arc<str>,
    /// How its values are made comparable.
    pub kind: FieldKind,
}

/// What a rule does when one of its limits is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnExceed {
    /// Deny the attempt.
    Reject,
    /// Tell when to come back; never deny what could pass later.
    Defer(Deferral),
    /// Tell how long to wait, up to this long; deny beyond it.
    Wait(Span),
    /// Only count and report: the verdict is never touched.
    Observe,
}

/// To when an attempt is deferred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deferral {
    /// To the next boundary of the limit's period in UTC instead of the exact moment.
    pub aligned: bool,
    /// Spread over this much time, so that not all come back at once.
    pub jitter: Span,
}

impl Rule {
    /// The most fields that may make a key.
    pub const MOST_FIELDS: usize = 4;

    /// A rule by these fields, with these limits, that rejects what exceeds them. What its fields hold
    /// goes by their well-known names; everything else can be set afterwards.
    pub fn new(name: &str, by: &[&str], limits: Vec<Limit>) -> Result<Self, PlanError> {
        let field = |name: &&str| Field { name: (*name).into(), kind: FieldKind::of_name(name) };
        let plan = Plan::new(name.into(), limits)?;
        Ok(Self {
            name: name.into(),
            code: None,
            by: by.iter().map(field).collect(),
            overrides: HashMap::new(),
            on_exceed: OnExceed::Reject,
            on_outage: OnOutage::of(&plan),
            plan: Arc::new(plan),
            count: None,
            count_when: None,
            rows: None,
            ban: None,
            enabled: true,
            secret: false,
        })
    }

    /// The same rule, with keys that nobody may read.
    #[must_use]
    pub fn with_secret_keys(mut self) -> Self {
        let hide = |plan: &Arc<Plan>| Arc::new(Plan::clone(plan).with_secret_keys());
        self.plan = hide(&self.plan);
        self.overrides.values_mut().for_each(|plan| *plan = hide(plan));
        self.secret = true;
        self
    }

    /// Whether this rule only counts and reports.
    pub fn observes(&self) -> bool {
        self.on_exceed == OnExceed::Observe
    }

    /// The first of these limits that cannot be counted by what came of an attempt: giving back what
    /// is held ends the hold, whatever it stands for.
    pub fn uncountable<'l>(&self, limits: &'l [Limit]) -> Option<&'l Limit> {
        self.count_when.and_then(|_| limits.iter().find(|limit| limit.holds()))
    }

    /// The limits at a key, by its text.
    #[inline]
    pub fn plan_at(&self, key: &str) -> &Arc<Plan> {
        if self.overrides.is_empty() { &self.plan } else { self.overrides.get(key).unwrap_or(&self.plan) }
    }

    /// The text of the key whose values are joined in `text` as this rule's keys are; the rule's own
    /// name stands for the one key of a rule without fields. `None` if the text does not fit.
    pub fn key_of(&self, text: &str) -> Option<Box<str>> {
        if self.by.is_empty() {
            return (text == &*self.name).then(|| text.into());
        }
        let values = key::split(text, self.by.len())?;
        let mut out = KeyText::new();
        let parts = self.by.iter().zip(&values).map(|(field, value)| (field.kind, Some(value.as_str())));
        match key::write_all(parts, &mut out) {
            Ok(Presence::Present) => core::str::from_utf8(&out).ok().map(Into::into),
            _ => None,
        }
    }

    /// The fields that make a key, each with its value in the comparable form; `None` if the text is no
    /// key of this rule.
    pub fn values_of(&self, key: &str) -> Option<Vec<(Arc<str>, String)>> {
        if self.by.is_empty() {
            return (key == &*self.name).then(Vec::new);
        }
        let values = key::split(key, self.by.len())?;
        Some(self.by.iter().map(|field| Arc::clone(&field.name)).zip(values).collect())
    }

    /// Whether a key has these values in these fields, whatever it has in others.
    pub fn is_about(&self, key: &str, fields: &[(&str, &str)]) -> bool {
        let Some(values) = self.values_of(key) else { return false };
        fields.iter().all(|(name, value)| {
            let mut written = KeyText::new();
            let position = self.by.iter().position(|field| *field.name == **name);
            position.is_some_and(|position| {
                let present = self.by[position].kind.write(value, &mut written);
                present == Ok(Presence::Present) && *written == *values[position].1.as_bytes()
            })
        })
    }
}
