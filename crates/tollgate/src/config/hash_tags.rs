//! The hash tags of rules. A Cluster keeps keys with the same tag on one node, and only there an attempt can
//! be all or nothing.
//!
//! A tag is part of a key's name in Redis. So a rule has the same tag in all policies that use it, or none.
//! Otherwise one counter would have two names.

use std::collections::HashMap;

use super::problem::{Findings, shown};
use super::raw::{Named, PolicyForm, PolicyTable};
use super::rules::check_name;
use super::tree::Path;

/// The tag of each rule that has one.
pub(super) fn mean(written: &Named<PolicyForm>, findings: &mut Findings<'_>) -> HashMap<String, String> {
    // The first policy that uses a rule, and its tag.
    let mut first: HashMap<&str, (&str, Option<&str>)> = HashMap::new();
    for (policy, form) in &written.0 {
        let path = Path::of(&["policies", policy]);
        let (rules, tag) = match form {
            PolicyForm::Rules(rules) => (rules, None),
            PolicyForm::Table(PolicyTable { rules, hash_tag, .. }) => (rules, hash_tag.as_deref()),
        };
        if let Some(Err(message)) = tag.map(check_name) {
            findings.value(&path.key("hash_tag"), message);
            continue;
        }
        let clash = rules.iter().find_map(|rule| {
            let (other, others) = *first.entry(rule).or_insert((policy, tag));
            (others != tag).then_some((rule, other, others))
        });
        if let Some((rule, other, others)) = clash {
            let message = format!(
                "the rule `{}` is {} in the policy `{}` and {} here, but its counters have one name: give both policies the same `hash_tag`, or each a rule of its own",
                shown(rule),
                tagged(others),
                shown(other),
                tagged(tag),
            );
            match tag {
                Some(_) => findings.value(&path.key("hash_tag"), message),
                None => findings.key(&path, message),
            }
        }
    }
    let tags = first.into_iter().filter_map(|(rule, (_, tag))| Some((rule.to_owned(), tag?.to_owned())));
    tags.collect()
}

fn tagged(tag: Option<&str>) -> String {
    tag.map_or_else(|| "not tagged".to_owned(), |tag| format!("tagged `{tag}`"))
}
