//! The blocklist and the allowlist, from their written form to their meaning.

use std::collections::HashMap;

use ipnet::IpNet;
use tollgate_core::key::Kinds;
use tollgate_core::policy::nearest;
use tollgate_core::{Author, Listing, Roster, Rule, Stance, Target, Timestamp};

use super::clients::covered;
use super::problem::{Findings, hint, shown};
use super::raw::{AllowedForm, AllowedTable, BlockedForm, BlockedTable};
use super::rules::Rules;
use super::tree::Path;

/// A written entry of either list.
struct ListEntry<'w> {
    target: &'w str,
    until: Option<&'w str>,
    reason: &'w str,
    public: bool,
    stance: Stance,
    /// The path of the entry, and that of its target.
    path: Path,
    target_at: Path,
}

pub(super) fn mean(
    blocklist: &[BlockedForm],
    allowlist: &[AllowedForm],
    kinds: &Kinds,
    rules: &Rules,
    findings: &mut Findings<'_>,
) -> Roster {
    let mut listings: Vec<Listing> = Vec::new();
    let mut known: HashMap<Target, Stance> = HashMap::new();
    let blocked = blocklist.iter().enumerate().map(|(index, form)| ListEntry::blocked(form, index));
    let allowed = allowlist.iter().enumerate().map(|(index, form)| ListEntry::allowed(form, index));
    for entry in blocked.chain(allowed) {
        let Some(listing) = entry.mean(kinds, findings) else { continue };
        if let Some(problem) = misfit(&listing.target, kinds, rules) {
            findings.value(&entry.target_at, problem);
        } else if let Some(earlier) = known.insert(listing.target.clone(), listing.stance) {
            let target = shown(&listing.target.to_string());
            findings.value(&entry.target_at, format!("`{target}` is in the {}list already", earlier.name()));
        } else {
            listings.push(listing);
        }
    }
    warn_if_all_are_blocked(&listings, findings);
    Roster::new(kinds.clone(), listings)
}

/// Warns if the blocklist's networks cover every address.
fn warn_if_all_are_blocked(listings: &[Listing], findings: &mut Findings<'_>) {
    let blocked = listings.iter().filter(|listing| listing.stance == Stance::Block);
    let nets: Vec<IpNet> = blocked
        .filter_map(|listing| match &listing.target {
            Target::Net(net) => IpNet::new(net.first(), net.length()).ok(),
            Target::Values(_) => None,
        })
        .collect();
    for family in covered(&nets) {
        let message =
            format!("these networks are every {family} address, so every attempt that brings one is blocked");
        findings.warn(&Path::of(&["blocklist"]), &message, "name the networks that you mean");
    }
}

impl<'w> ListEntry<'w> {
    fn blocked(form: &'w BlockedForm, index: usize) -> Self {
        let path = Path::of(&["blocklist"]).index(index);
        match form {
            BlockedForm::Target(target) => Self::alone(target, Stance::Block, path),
            BlockedForm::Table(BlockedTable { target, until, reason, public }) => Self {
                until: until.as_deref(),
                reason: reason.as_deref().unwrap_or_default(),
                public: public.unwrap_or(false),
                target_at: path.key("target"),
                ..Self::alone(target, Stance::Block, path)
            },
        }
    }

    fn allowed(form: &'w AllowedForm, index: usize) -> Self {
        let path = Path::of(&["allowlist"]).index(index);
        match form {
            AllowedForm::Target(target) => Self::alone(target, Stance::Allow, path),
            AllowedForm::Table(AllowedTable { target, until, reason }) => Self {
                until: until.as_deref(),
                reason: reason.as_deref().unwrap_or_default(),
                target_at: path.key("target"),
                ..Self::alone(target, Stance::Allow, path)
            },
        }
    }

    fn alone(target: &'w str, stance: Stance, path: Path) -> Self {
        Self { target, until: None, reason: "", public: false, stance, target_at: path.clone(), path }
    }

    fn mean(&self, kinds: &Kinds, findings: &mut Findings<'_>) -> Option<Listing> {
        let target = Target::parse(self.target, kinds);
        let target = target.map_err(|error| findings.grammar(&self.target_at, error)).ok();
        if let Err(problem) = Listing::check_reason(self.reason) {
            findings.value(&self.path.key("reason"), problem);
        }
        if self.public && self.reason.is_empty() {
            findings.value(&self.path.key("public"), "`public` needs a `reason`");
        }
        let until = self.until.map(|text| moment(text).ok_or(text));
        let until = until.transpose().map_err(|text| {
            let problem = format!("`{}` is not a time: write it as in `2027-01-31T12:00:00Z`", shown(text));
            findings.value(&self.path.key("until"), problem);
        });
        Some(Listing {
            target: target?,
            stance: self.stance,
            since: Timestamp::ZERO,
            until: until.ok()?,
            reason: self.reason.into(),
            show_reason: self.public,
            author: Author::Configuration,
            times: 0,
        })
    }
}

fn moment(text: &str) -> Option<Timestamp> {
    let moment: jiff::Timestamp = text.parse().ok()?;
    u64::try_from(moment.as_microsecond()).ok().map(Timestamp::from_micros)
}

/// Why a target can never match.
fn misfit(target: &Target, kinds: &Kinds, rules: &Rules) -> Option<String> {
    let Target::Values(values) = target else { return None };
    let has = |rule: &Rule, name: &str| rule.by.iter().any(|field| *field.name == *name);
    values.iter().find_map(|(field, _)| {
        let name = &*field.name;
        if let Some(rule) = rules.usable().iter().find(|rule| rule.secret && has(rule, name)) {
            return Some(format!(
                "the keys of rule `{}` are secret, and the lists are not: the rule may say `secret: false`",
                rule.name
            ));
        }
        let known = || rules.usable().iter().flat_map(|rule| rule.by.iter()).map(|field| &*field.name);
        if kinds.tells(name) || known().any(|known| known == name) {
            return None;
        }
        let near = hint(nearest(name, known()));
        Some(format!("no rule uses the field `{name}`, and `fields` does not declare it{near}"))
    })
}
