//! Guards, from their written form to their meaning.

mod body;
mod webhook;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use tollgate_core::key::{FieldKind, Kinds};
use tollgate_core::limit::Pause;
use tollgate_core::policy::nearest;
use tollgate_core::{Clears, Guard, Limit, Policy, Rule, grammar};

pub use body::{BodyBlank, BodyTemplate};
pub use webhook::{Webhook, WebhookSecret};

use super::problem::{Findings, hint, listed, shown};
use super::raw::guards::{ClearsForm, GuardForm, GuardTable};
use super::raw::{self, By, LimitText, Limits, Named, PolicyForm, PolicyTable};
use super::rules::{Guarded, Rules, check_name};
use super::tree::Path;
use super::{Config, Warning};

/// The ladder for `standard`.
const STANDARD: &str = "ladder 4 +2s then 6 +5s captcha then 11 lock 15m notify forget 15m";

/// The webhooks that are notified of locks, by guard.
pub type Webhooks = BTreeMap<Arc<str>, Arc<Webhook>>;

/// The rules whose keys may name accounts, because guards count by them.
pub(super) fn guarded(written: &Named<GuardForm>, policies: &Named<PolicyForm>) -> HashSet<String> {
    let named = written.0.iter().filter_map(|(_, form)| match form {
        GuardForm::Table(table) => table.policy.as_deref(),
        GuardForm::Word(_) => None,
    });
    let named: HashSet<&str> = named.collect();
    let own = policies.0.iter().filter(|(name, _)| named.contains(name.as_str()));
    let rules = own.flat_map(|(_, form)| match form {
        PolicyForm::Rules(rules) | PolicyForm::Table(PolicyTable { rules, .. }) => rules,
    });
    rules.cloned().collect()
}

/// The names of all written policies, and of those that guards create.
pub(super) fn written_policies<'w>(
    policies: &'w Named<PolicyForm>,
    guards: &'w Named<GuardForm>,
) -> Vec<&'w str> {
    let made = guards.0.iter().filter(|(_, form)| match form {
        GuardForm::Word(_) => true,
        GuardForm::Table(table) => table.policy.is_none(),
    });
    let written = policies.0.iter().map(|(name, _)| name.as_str());
    written.chain(made.map(|(name, _)| name.as_str())).collect()
}

/// Creates the rules and policies of guards without a policy.
pub(super) fn make(
    written: &Named<GuardForm>,
    kinds: &Kinds,
    policies: &Named<PolicyForm>,
    rules: &mut Rules,
    findings: &mut Findings<'_>,
) -> Vec<Policy> {
    let mut made = Vec::new();
    for (name, form) in &written.0 {
        let path = Path::of(&["guards", name]);
        let Some((by, ladder)) = simple(form, &path, findings) else { continue };
        let taken = if rules.written().any(|rule| rule == name) {
            Some("rule")
        } else {
            policies.0.iter().any(|(policy, _)| policy == name).then_some("policy")
        };
        if let Some(what) = taken {
            findings.key(
                &path,
                format!("`by` makes a rule and a policy of this name, and there is a {what} `{name}` already: rename the guard, or write `policy: {name}`"),
            );
            continue;
        }
        let rule = raw::Rule {
            by: Some(by),
            limits: Some(Limits::One(LimitText(ladder))),
            overrides: None,
            on_exceed: None,
            on_outage: None,
            ban: None,
            count: None,
            count_when: None,
            count_rows: None,
            enabled: None,
            code: None,
            secret: None,
        };
        if let Some(rule) = rules.add(name, &rule, &path, kinds, findings) {
            made.push(Policy::new(name.as_str().into(), vec![rule], false));
        }
    }
    made
}

/// The fields and the ladder of a guard without a policy; `None` if it has one or is invalid.
fn simple(form: &GuardForm, path: &Path, findings: &mut Findings<'_>) -> Option<(By, String)> {
    let table = match form {
        GuardForm::Word(word) => {
            let fields = word.strip_prefix("by ").map(|fields| {
                fields.split([',', ' ']).filter(|field| !field.is_empty()).map(str::to_owned).collect()
            });
            let fields: Vec<String> = fields.unwrap_or_default();
            if fields.is_empty() {
                let problem = "write what failures are counted by, as in `by user`, or a table, as in `{ policy: login }`";
                findings.value(path, problem);
                return None;
            }
            return Some((By::Several(fields), STANDARD.to_owned()));
        }
        GuardForm::Table(table) => table,
    };
    let by = match (&table.by, &table.policy) {
        (Some(by), None) => by,
        (None, Some(_)) => {
            if table.ladder.is_some() {
                let problem = "the rules of the policy have their own ladders: keep `ladder` for `by`";
                findings.key(&path.key("ladder"), problem);
            }
            return None;
        }
        (Some(_), Some(_)) => {
            findings.key(&path.key("by"), "keep one of `by` and `policy`");
            return None;
        }
        (None, None) => {
            findings.key(path, "what do logins pass? Add `policy`, or `by` for a guard without one");
            return None;
        }
    };
    let ladder = match table.ladder.as_deref() {
        None | Some("standard") => STANDARD,
        Some(text) => ladder(text, &path.key("ladder"), findings)?,
    };
    let by = match by {
        By::One(field) => By::One(field.clone()),
        By::Several(fields) => By::Several(fields.clone()),
    };
    if matches!(&by, By::Several(fields) if fields.is_empty()) {
        findings.value(&path.key("by"), "an empty list: one ladder for all users would lock all of them");
        return None;
    }
    Some((by, ladder.to_owned()))
}

/// A text that must be a ladder.
fn ladder<'t>(text: &'t str, path: &Path, findings: &mut Findings<'_>) -> Option<&'t str> {
    match grammar::parse(text) {
        Ok(Some(limit)) if limit.ladder().is_some() => Some(text),
        Ok(_) => {
            let text = shown(text);
            findings.value(
                path,
                format!(
                    "`{text}` is not a ladder: write `standard`, or one as in `ladder 4 +2s then 11 lock 15m`"
                ),
            );
            None
        }
        Err(error) => {
            findings.grammar(path, error);
            None
        }
    }
}

/// The fields that notices of a policy's ladders have.
fn fields(policy: &Policy) -> Vec<Arc<str>> {
    let ladders = policy.rules.iter().filter(|rule| has_ladder(rule));
    let mut fields: Vec<Arc<str>> =
        ladders.flat_map(|rule| &rule.by).map(|field| Arc::clone(&field.name)).collect();
    fields.sort();
    fields.dedup();
    fields
}

/// The guards and their webhooks.
pub(super) fn mean(
    written: &Named<GuardForm>,
    policies: &[Policy],
    written_policies: &[&str],
    environment: &HashMap<String, String>,
    findings: &mut Findings<'_>,
) -> (Vec<Guard>, Webhooks) {
    let (mut guards, mut webhooks) = (Vec::new(), Webhooks::new());
    let none = GuardTable::default();
    for (name, form) in &written.0 {
        let path = Path::of(&["guards", name]);
        if let Err(message) = check_name(name) {
            findings.key(&path, message);
        }
        let table = match form {
            GuardForm::Word(_) => &none,
            GuardForm::Table(table) => table,
        };
        let policy = table.policy.as_deref().unwrap_or(name);
        let found = policies.iter().find(|own| *own.name == *policy);
        let Some(policy) = found.or_else(|| {
            // An error in the policy itself is reported where the policy is.
            if let Some(written) =
                table.policy.as_ref().filter(|name| !written_policies.contains(&name.as_str()))
            {
                let near = hint(nearest(written, written_policies.iter().copied()));
                let written = shown(written);
                findings.value(&path.key("policy"), format!("there is no policy `{written}`{near}"));
            }
            None
        }) else {
            continue;
        };
        if !policy.rules.iter().any(|rule| has_ladder(rule)) {
            findings.value(
                &path.key("policy"),
                format!("no rule of policy `{}` has a ladder, so no failure would be remembered: add one, as in `limits: {STANDARD}`", policy.name),
            );
            continue;
        }
        let clears = match &table.clears {
            None => Some(Clears::Narrowest),
            Some(form) => mean_clears(form, policy, &path.key("clears"), findings),
        };
        let name: Arc<str> = name.as_str().into();
        if let Some(written) = &table.webhook
            && let Some(webhook) =
                webhook::mean(written, &fields(policy), &path.key("webhook"), environment, findings)
        {
            webhooks.insert(Arc::clone(&name), Arc::new(webhook));
        }
        guards.extend(clears.map(|clears| Guard { name, policy: Arc::clone(&policy.name), clears }));
    }
    (guards, webhooks)
}

fn mean_clears(
    form: &ClearsForm,
    policy: &Policy,
    path: &Path,
    findings: &mut Findings<'_>,
) -> Option<Clears> {
    let names: Vec<(&String, Path)> = match form {
        ClearsForm::Word(word) => match word.as_str() {
            "narrowest" => return Some(Clears::Narrowest),
            "all" => return Some(Clears::All),
            "nothing" => return Some(Clears::Nothing),
            _ => vec![(word, path.clone())],
        },
        ClearsForm::Rules(names) => {
            names.iter().enumerate().map(|(index, name)| (name, path.index(index))).collect()
        }
    };
    if names.is_empty() {
        findings.value(path, "an empty list: write `nothing` if a success is to clear nothing");
        return None;
    }
    let ladders: Vec<&Arc<Rule>> = policy.rules.iter().filter(|rule| has_ladder(rule)).collect();
    let mut rules = Vec::new();
    for (name, path) in &names {
        match ladders.iter().find(|rule| *rule.name == *name.as_str()) {
            Some(rule) => rules.push(Arc::clone(&rule.name)),
            None => {
                let known = listed(ladders.iter().map(|rule| &*rule.name));
                let name = shown(name);
                findings.value(
                    path,
                    format!("`{name}` is none of `narrowest`, `all`, `nothing`, and no rule with a ladder of policy `{}`: these are {known}", policy.name),
                );
            }
        }
    }
    (rules.len() == names.len()).then_some(Clears::Rules(rules))
}

fn has_ladder(rule: &Rule) -> bool {
    rule.plan.has_ladder()
}

/// Whether the keys of a rule are secret by default: those that name accounts and are counted by a guard. A
/// rule that bans cannot have secret keys.
pub(super) fn secret_by_default(guarded: Guarded, rule: &Rule, written: &raw::Rule) -> bool {
    let account = rule.by.iter().any(|field| !matches!(field.kind, FieldKind::Ip { .. }));
    guarded == Guarded::Yes && written.ban.is_none() && account && has_ladder(rule)
}

impl Config {
    /// The warnings about guards.
    pub(super) fn lockouts(&self) -> Vec<Warning> {
        let mut warnings = Vec::new();
        for guard in self.policies.guards() {
            let Ok(policy) = self.policies.find(&guard.policy) else { continue };
            warnings.extend(policy.rules.iter().filter_map(|rule| locks_owner(guard, rule)));
            let ladders = policy.rules.iter().flat_map(|rule| rule.plan.limits()).filter_map(ladder_of);
            let notifies = ladders.flat_map(|ladder| ladder.steps()).any(|step| step.notify);
            let Some(webhook) = self.webhooks.get(&guard.name) else { continue };
            let warning = |message: String, remedy: &str| Warning {
                policy: Some(policy.name.to_string()),
                message,
                remedy: remedy.to_owned(),
            };
            if !notifies {
                warnings.push(warning(
                    format!("guard {} has a webhook, but no step of its ladders has `notify`", guard.name),
                    "add `notify` to a step, as in `11 lock 15m notify`",
                ));
            }
            if webhook.is_in_clear() {
                warnings.push(warning(
                    format!("the webhook of guard {} gets account names without TLS", guard.name),
                    "write its `url` with https://",
                ));
            }
        }
        warnings
    }
}

/// A warning if any client that knows an account's name can lock its owner out.
fn locks_owner(guard: &Guard, rule: &Rule) -> Option<Warning> {
    let has = |wanted: fn(&FieldKind) -> bool| rule.by.iter().any(|field| wanted(&field.kind));
    let (address, account) =
        (has(|kind| matches!(kind, FieldKind::Ip { .. })), has(|kind| !matches!(kind, FieldKind::Ip { .. })));
    let mut steps = rule.plan.limits().iter().filter_map(ladder_of).flat_map(|ladder| ladder.steps());
    let locks = steps.any(|step| matches!(step.pause, Pause::Lock(_)));
    if rule.observes() || !rule.enabled || address || !account || !locks {
        return None;
    }
    let by: Vec<&str> = rule.by.iter().map(|field| &*field.name).collect();
    Some(Warning {
        policy: Some(guard.policy.to_string()),
        message: format!(
            "the rule {} locks by {} only, so an attacker who fails often enough locks the owner out too",
            rule.name,
            by.join(", ")
        ),
        remedy: format!(
            "lock `by: [{}, ip]`, and let a rule by {} `observe` and ask for a CAPTCHA, as in examples/logins.yaml",
            by.join(", "),
            by.join(", ")
        ),
    })
}

fn ladder_of(limit: &Limit) -> Option<&tollgate_core::limit::Ladder> {
    limit.ladder()
}
