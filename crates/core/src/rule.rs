//! A rule: its key, its limits, and what it does when they are exceeded or its store is down.

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
use crate::outcome_class::OutcomeClasses;
use crate::plan::{Plan, PlanError};
use crate::rows::RowCount;
use crate::time::Span;

/// A named set of limits for one kind of key.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Its name: unique, and part of every counter's identity.
    pub name: Arc<str>,
    /// A code for applications. Denials contain it together with the rule's name.
    pub code: Option<Code>,
    /// The fields that make its key; none means one counter for all.
    pub by: Box<[Field]>,
    /// Its limits for keys without an override.
    pub plan: Arc<Plan>,
    /// Limits of single keys, by the key's text.
    pub overrides: HashMap<Box<str>, Arc<Plan>>,
    /// What happens when a limit is exceeded.
    pub on_exceed: OnExceed,
    /// What happens during an outage.
    pub on_outage: OnOutage,
    /// When it bans a key that it keeps denying.
    pub ban: Option<Banning>,
    /// The numeric field that gives the cost of an attempt at this rule; `None` uses the attempt's own cost.
    pub count: Option<Arc<str>>,
    /// The outcomes whose attempts count; `None` means all. An attempt is charged at first, and refunded if it
    /// ends otherwise.
    pub count_when: Option<OutcomeClasses>,
    /// Rows in the application's database that count in addition to the holds.
    pub rows: Option<Arc<RowCount>>,
    /// A disabled rule charges nothing.
    pub enabled: bool,
    /// Whether its keys are secret: hidden in all output.
    pub secret: bool,
}

/// A field of an attempt that is part of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    /// Its name.
    pub name: Arc<str>,
    /// How its values are normalized.
    pub kind: FieldKind,
}

/// What a rule does when one of its limits is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnExceed {
    /// Deny the attempt.
    Reject,
    /// Return when to retry; never deny an attempt that could pass later.
    Defer(Deferral),
    /// Return how long to wait, up to this; deny beyond it.
    Wait(Span),
    /// Only count and report, without an effect on the verdict.
    Observe,
}

/// Until when an attempt is deferred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deferral {
    /// Defer to the next boundary of the limit's period in UTC, instead of the exact retry time.
    pub aligned: bool,
    /// Spread retries over this much time, so that they do not all come at once.
    pub jitter: Span,
}

impl Rule {
    /// The most fields that may make a key.
    pub const MOST_FIELDS: usize = 4;

    /// A rule by these fields with these limits, which denies. The kinds of its fields follow from their
    /// well-known names; everything else can be set afterwards.
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

    /// The same rule with secret keys.
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

    /// The first of these limits that does not support `count_when`: a refund would end its hold while the
    /// held thing still lasts.
    pub fn uncountable<'l>(&self, limits: &'l [Limit]) -> Option<&'l Limit> {
        self.count_when.and_then(|_| limits.iter().find(|limit| limit.holds()))
    }

    /// The limits of a key.
    #[inline]
    pub fn plan_at(&self, key: &str) -> &Arc<Plan> {
        if self.overrides.is_empty() { &self.plan } else { self.overrides.get(key).unwrap_or(&self.plan) }
    }

    /// The key for a text of joined values, in its normalized form. The key of a rule without fields is the
    /// rule's name. `None` if the text does not fit.
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

    /// The fields of a key with their values in normalized form; `None` if the text is not a key of this
    /// rule.
    pub fn values_of(&self, key: &str) -> Option<Vec<(Arc<str>, String)>> {
        if self.by.is_empty() {
            return (key == &*self.name).then(Vec::new);
        }
        let values = key::split(key, self.by.len())?;
        Some(self.by.iter().map(|field| Arc::clone(&field.name)).zip(values).collect())
    }

    /// Whether a key has these values in these fields.
    pub fn key_has_values(&self, key: &str, fields: &[(&str, &str)]) -> bool {
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
