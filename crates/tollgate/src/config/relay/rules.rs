//! What the relay adds to rules and policies: the rule `account`, the limits of single accounts, and a deliver policy
//! where there is none. Rules over recipient domains count recipients.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate_core::{Deferral, OnExceed, OnOutage, Policies, Policy, Rule};

use super::accounts;
use crate::config::limits;
use crate::config::problem::{Findings, shown};
use crate::config::raw::relay::Relay;
use crate::config::raw::{Limits, Named, PolicyForm, PolicyTable};
use crate::config::rules::Rules;
use crate::config::tree::Path;

/// The default policy of deliveries.
pub(super) const DELIVER: &str = "relay.deliver";
/// The rule that limits accounts.
const ACCOUNT: &str = "account";
const DOMAIN: &str = "recipient_domain";
const RECIPIENTS: &str = "recipients";

/// Prepares the rules before the policies are built.
pub(in crate::config) fn prepare(
    written: Option<&Relay>,
    policies: &Named<PolicyForm>,
    on_outage: OnOutage,
    rules: &mut Rules,
    findings: &mut Findings<'_>,
) {
    let Some(written) = written else { return };
    if !rules.written().any(|name| name == ACCOUNT) {
        rules.put(own_rule(on_outage));
    }
    let Some(rule) = rules.find(ACCOUNT).cloned() else { return };
    let mut by: Vec<&str> = rule.by.iter().map(|field| &*field.name).collect();
    by.sort_unstable();
    if by != [ACCOUNT, "tenant"] {
        findings.value(
            &Path::of(&["rules", ACCOUNT, "by"]),
            "the relay limits accounts by this rule, and two tenants may have accounts of the same name: write `by: [tenant, account]`",
        );
        return;
    }
    rules.put(with_limits(written, Rule::clone(&rule), findings));
    let deliver = written.deliver.as_deref().unwrap_or(DELIVER);
    let own = policies.0.iter().filter(|(name, _)| name == deliver).flat_map(|(_, form)| rules_of(form));
    for name in own {
        let Some(rule) = rules.find(name).cloned() else { continue };
        if rule.count.is_none() && rule.by.iter().any(|field| &*field.name == DOMAIN) {
            rules.put(Rule { count: Some(RECIPIENTS.into()), ..Rule::clone(&rule) });
        }
    }
}

fn rules_of(form: &PolicyForm) -> &[String] {
    match form {
        PolicyForm::Rules(rules) | PolicyForm::Table(PolicyTable { rules, .. }) => rules,
    }
}

fn own_rule(on_outage: OnOutage) -> Rule {
    let rule = Rule::new(ACCOUNT, &["tenant", ACCOUNT], Vec::new()).expect("no limits fit together");
    let on_outage = on_outage.as_default_of(&rule.plan);
    Rule { on_exceed: OnExceed::Defer(Deferral::default()), on_outage, ..rule }
}

/// The rule with the limits of the accounts as its overrides.
fn with_limits(written: &Relay, mut rule: Rule, findings: &mut Findings<'_>) -> Rule {
    for (name, table) in written.accounts.iter().flat_map(|named| &named.0) {
        let path = Path::of(&["relay", "accounts", name, "limits"]);
        let (Some(limits), Some((tenant, id))) = (&table.limits, accounts::split(name)) else { continue };
        let Some(plan) = limits::plan(&rule.name, limits, &path, findings) else { continue };
        let values: Vec<&str> =
            rule.by.iter().map(|field| if &*field.name == ACCOUNT { id } else { tenant }).collect();
        let Some(key) = rule.key_of(&values.join(",")) else { continue };
        if rule.overrides.contains_key(&key) {
            let message = format!(
                "the rule `{ACCOUNT}` has an override at `{}` already: keep one of them",
                shown(&key)
            );
            findings.value(&path, message);
        }
        rule.overrides.insert(key, plan);
    }
    rule
}

/// Adds the rule `account` to the deliver policy, or builds a policy of it.
pub(in crate::config) fn complete(
    written: Option<&Relay>,
    rules: &Rules,
    policies: &mut Vec<Policy>,
    tags: &mut HashMap<String, String>,
    findings: &mut Findings<'_>,
) {
    let (Some(written), Some(account)) = (written, rules.find(ACCOUNT)) else { return };
    let name = written.deliver.as_deref().unwrap_or(DELIVER);
    let Some(place) = policies.iter().position(|policy| &*policy.name == name) else {
        // A name without a policy is reported where it is written.
        if written.deliver.is_none() {
            policies.push(Policy::new(DELIVER.into(), vec![Arc::clone(account)], true));
        }
        return;
    };
    let policy = &policies[place];
    if policy.rules.iter().any(|rule| &*rule.name == ACCOUNT) {
        return;
    }
    if policy.rules.len() >= Policies::MOST_RULES {
        findings.value(
            &Path::of(&["relay", "deliver"]),
            format!(
                "policy `{name}` has no room for the rule `{ACCOUNT}`: at most {} rules are allowed",
                Policies::MOST_RULES
            ),
        );
        return;
    }
    // On a Redis Cluster, the rules of a policy are kept together.
    if let Some(tag) = policy.rules.iter().find_map(|rule| tags.get(&*rule.name).cloned()) {
        tags.insert(ACCOUNT.to_owned(), tag);
    }
    let all = policy.rules.iter().cloned().chain([Arc::clone(account)]).collect();
    policies[place] = Policy::new(Arc::clone(&policy.name), all, policy.allow_unmatched);
}

/// Reports a limit that deliveries cannot be counted by, where it is written.
pub(super) fn check(written: &Relay, policy: &Policy, findings: &mut Findings<'_>) {
    let Err(unfit) = tollgate_relay::limits::check(policy) else { return };
    let has = |limits: &Limits| match limits {
        Limits::One(text) => text.0.trim() == unfit.limit,
        Limits::Several(texts) => texts.iter().any(|text| text.0.trim() == unfit.limit),
    };
    let accounts = written.accounts.iter().flat_map(|named| &named.0);
    let own = accounts.filter(|_| unfit.rule == ACCOUNT);
    let account = own.into_iter().find(|(_, table)| table.limits.as_ref().is_some_and(has));
    let path = match account {
        Some((name, _)) => Path::of(&["relay", "accounts", name, "limits"]),
        None => Path::of(&["rules", &unfit.rule, "limits"]),
    };
    findings.value(&path, unfit.to_string());
}
