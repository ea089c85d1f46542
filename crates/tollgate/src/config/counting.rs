//! `count_when`, from its written form to its meaning.

use tollgate_core::{Plan, Rule};
use tollgate_web::Statuses;

use super::problem::Findings;
use super::raw::{CountWhen, StatusText};
use super::tree::Path;

/// The statuses; `None` if there are none or they are invalid.
pub(super) fn mean(written: &CountWhen, path: &Path, findings: &mut Findings<'_>) -> Option<Statuses> {
    let texts = match written {
        CountWhen::One(StatusText(text)) => {
            return text.parse().map_err(|error| findings.grammar(path, error)).ok();
        }
        CountWhen::Several(texts) => texts,
    };
    if texts.is_empty() {
        findings.value(path, "an empty list counts nothing: leave the rule out instead");
        return None;
    }
    let mut read = Vec::new();
    for (index, StatusText(text)) in texts.iter().enumerate() {
        match Statuses::entry(text) {
            Ok(statuses) => read.push(statuses),
            Err(error) => findings.grammar(&path.index(index), error),
        }
    }
    if read.len() < texts.len() { None } else { read.into_iter().reduce(Statuses::or) }
}

/// Reports limits that a rule cannot have because of `count_when`.
pub(super) fn check(rule: &Rule, plan: &Plan, path: &Path, findings: &mut Findings<'_>) {
    if let Some(limit) = rule.uncountable(plan.limits()) {
        findings.value(
            path,
            format!("`{limit}` holds for as long as something lasts, whatever the answer, and `count_when` would end it: put it into a rule of its own"),
        );
    }
}
