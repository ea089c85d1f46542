//! The blocklist and the allowlist, from what was written to what they mean.

use std::collections::HashMap;

use tollgate_core::key::Kinds;
use tollgate_core::policy::nearest;
use tollgate_core::{Author, Listing, Roster, Rule, Stance, Target, Timestamp};

use super::problem::{Findings, hint, shown};
use super::raw::{ListedForm, ListedTable};
use super::rules::Rules;
use super::tree::Path;

/// The two lists as they were written.
pub(super) struct Written<'w> {
    pub(super) blocklist: &'w [ListedForm],
    pub(super) allowlist: &'w [ListedForm],
}

pub(super) fn mean(
    written: &Written<'_>,
    kinds: &Kinds,
    rules: &Rules,
    findings: &mut Findings<'_>,
) -> Roster {
    let mut listings: Vec<Listing> = Vec::new();
    let mut known: HashMap<Target, &str> = HashMap::new();
    let lists =
        [("blocklist", written.blocklist, Stance::Block), ("allowlist", written.allowlist, Stance::Allow)];
    for (list, forms, stance) in lists {
        for (index, form) in forms.iter().enumerate() {
            let path = || Path::of(&[list]).index(index);
            let Some(listing) = mean_one(form, stance, kinds, path, findings) else { continue };
            if let Some(problem) = misfit(&listing.target, kinds, rules) {
                findings.value(&path(), problem);
            } else if let Some(earlier) = known.insert(listing.target.clone(), list) {
                let target = shown(&listing.target.to_string());
                findings.value(&path(), format!("`{target}` is in the {earlier} already"));
            } else {
                listings.push(listing);
            }
        }
    }
    Roster::new(kinds.clone(), listings)
}

fn mean_one(
    form: &ListedForm,
    stance: Stance,
    kinds: &Kinds,
    path: impl Fn() -> Path,
    findings: &mut Findings<'_>,
) -> Option<Listing> {
    let alone;
    let (table, target_at) = match form {
        ListedForm::Target(target) => {
            alone = ListedTable { target: target.clone(), until: None, reason: None, public: None };
            (&alone, path())
        }
        ListedForm::Table(table) => (table, path().key("target")),
    };
    let target =
        Target::parse(&table.target, kinds).map_err(|error| findings.grammar(&target_at, error)).ok();
    let reason = table.reason.as_deref().unwrap_or_default();
    if let Err(problem) = Listing::check_reason(reason) {
        findings.value(&path().key("reason"), problem);
    }
    let public = table.public.unwrap_or(false);
    if public && reason.is_empty() {
        findings.value(&path().key("public"), "there is no `reason` to tell");
    }
    let until = match &table.until {
        None => None,
        Some(text) => match moment(text) {
            Some(until) => Some(until),
            None => {
                let problem = "write a moment as in `2027-01-31T12:00:00Z`";
                findings.value(&path().key("until"), format!("`{}` is none: {problem}", shown(text)));
                return None;
            }
        },
    };
    Some(Listing {
        target: target?,
        stance,
        since: Timestamp::ZERO,
        until,
        reason: reason.into(),
        told: public,
        author: Author::Configuration,
        times: 0,
    })
}

fn moment(text: &str) -> Option<Timestamp> {
    let moment: jiff::Timestamp = text.parse().ok()?;
    u64::try_from(moment.as_microsecond()).ok().map(Timestamp::from_micros)
}

/// Why nobody could be found by a target.
fn misfit(target: &Target, kinds: &Kinds, rules: &Rules) -> Option<String> {
    let Target::Values(values) = target else { return None };
    let has = |rule: &Rule, name: &str| rule.by.iter().any(|field| *field.name == *name);
    values.iter().find_map(|(field, _)| {
        let name = &*field.name;
        if let Some(rule) = rules.usable().iter().find(|rule| rule.secret && has(rule, name)) {
            return Some(format!("the keys of rule `{}` are secret, and the lists are not", rule.name));
        }
        let known = || rules.usable().iter().flat_map(|rule| rule.by.iter()).map(|field| &*field.name);
        if kinds.tells(name) || known().any(|known| known == name) {
            return None;
        }
        let near = hint(nearest(name, known()));
        Some(format!("no rule knows the field `{name}`, and `fields` does not say what it holds{near}"))
    })
}
