//! Policies, from their written form to their meaning.

use std::sync::Arc;

use tollgate_core::policy::nearest;
use tollgate_core::{Clash, Policies, Policy, Rule};

use super::problem::{Findings, hint, shown};
use super::raw::{Named, PolicyForm, PolicyTable};
use super::rules::{Rules, check_name};
use super::tree::Path;

pub(super) fn mean(written: &Named<PolicyForm>, rules: &Rules, findings: &mut Findings<'_>) -> Vec<Policy> {
    let mut policies = Vec::new();
    for (name, form) in &written.0 {
        let path = Path::of(&["policies", name]);
        if let Err(message) = check_name(name) {
            findings.key(&path, message);
        }
        let (names, allow_unmatched, path) = match form {
            PolicyForm::Rules(names) => (names, false, path),
            PolicyForm::Table(PolicyTable { rules, allow_unmatched, hash_tag: _ }) => {
                (rules, allow_unmatched.unwrap_or(false), path.key("rules"))
            }
        };
        if let Some(rules) = named(names, rules, &path, findings) {
            policies.push(Policy::new(name.as_str().into(), rules, allow_unmatched));
        }
    }
    check_bounds(&policies, rules, findings);
    policies
}

/// Reports limits that no attempt of some policy could meet.
fn check_bounds(policies: &[Policy], rules: &Rules, findings: &mut Findings<'_>) {
    for rule in rules.usable() {
        let path = Path::of(&["rules", &rule.name]);
        if let Some(clash) = Clash::find(&rule.name, rule.plan.limits(), policies.iter()) {
            findings.value(&path.key("limits"), clash.to_string());
        }
        let mut own = rule.overrides.values();
        if let Some(clash) = own.find_map(|own| Clash::find(&rule.name, own.limits(), policies.iter())) {
            findings.value(&path.key("overrides"), clash.to_string());
        }
    }
}

/// The rules of these names, if all are valid.
fn named(
    names: &[String],
    rules: &Rules,
    path: &Path,
    findings: &mut Findings<'_>,
) -> Option<Vec<Arc<Rule>>> {
    if names.len() > Policies::MOST_RULES {
        findings.value(
            path,
            format!("{} rules in one policy: at most {} are allowed", names.len(), Policies::MOST_RULES),
        );
        return None;
    }
    let mut found = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let path = path.index(index);
        if names[..index].contains(name) {
            findings.value(&path, format!("the rule `{}` is in this policy already", shown(name)));
        } else if !rules.is_written(name) {
            let near = hint(nearest(name, rules.written()));
            findings.value(&path, format!("there is no rule `{}`{near}", shown(name)));
        } else {
            found.extend(rules.find(name).cloned());
        }
    }
    (found.len() == names.len()).then_some(found)
}
