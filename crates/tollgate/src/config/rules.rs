//! Rules, from their written form to their meaning.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use tollgate_core::code::BadCode;
use tollgate_core::grammar::GrammarError;
use tollgate_core::key::{FieldKind, Kinds, check_field_name};
use tollgate_core::policy::nearest;
use tollgate_core::{Banning, Code, Deferral, Field, OnExceed, OnOutage, Plan, Rule, Span};

use super::count_rows::{self, Limited};
use super::counting;
use super::guards;
use super::limits;
use super::problem::{Findings, hint, listed, shown};
use super::raw::{self, By, DeferForm, Named, OnExceedForm};
use super::tree::Path;

/// The valid rules, and the names of all written ones.
pub(super) struct Rules {
    usable: Vec<Arc<Rule>>,
    written: Vec<String>,
    /// Each written name, and the place of its rule among the usable ones. A translated file may have many thousand
    /// rules, and its policies name each.
    places: HashMap<String, Option<usize>>,
    /// The default `on_outage`.
    on_outage: OnOutage,
}

impl Rules {
    /// Every written name, valid or not.
    pub(super) fn written(&self) -> impl Iterator<Item = &str> {
        self.written.iter().map(String::as_str)
    }

    pub(super) fn find(&self, name: &str) -> Option<&Arc<Rule>> {
        self.places.get(name).copied().flatten().map(|place| &self.usable[place])
    }

    /// Whether a rule of this name is written, valid or not.
    pub(super) fn is_written(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }

    pub(super) fn usable(&self) -> &[Arc<Rule>] {
        &self.usable
    }

    pub(super) fn into_usable(self) -> Vec<Arc<Rule>> {
        self.usable
    }

    /// Replaces the rule of this name, or adds it.
    pub(super) fn put(&mut self, rule: Rule) {
        let rule = Arc::new(rule);
        match self.places.get(&*rule.name).copied().flatten() {
            Some(place) => self.usable[place] = rule,
            None => self.push(rule.name.to_string(), Some(rule)),
        }
    }

    fn push(&mut self, name: String, rule: Option<Arc<Rule>>) {
        let place = rule.is_some().then_some(self.usable.len());
        self.usable.extend(rule);
        // The first usable rule of a name stays the one that is found.
        let known = self.places.entry(name.clone()).or_default();
        *known = known.or(place);
        self.written.push(name);
    }

    /// Adds a rule of a guard, written at `path`.
    pub(super) fn add(
        &mut self,
        name: &str,
        written: &raw::Rule,
        path: &Path,
        kinds: &Kinds,
        findings: &mut Findings<'_>,
    ) -> Option<Arc<Rule>> {
        let rule = mean_one(name, written, path, kinds, (Guarded::Yes, self.on_outage), findings);
        self.push(name.to_owned(), rule.clone());
        rule
    }
}

/// Whether a guard counts by a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guarded {
    Yes,
    No,
}

/// What is wrong with the name of a rule, a policy or a key.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '.' | '-');
    if name.is_empty() {
        return Err("the name is empty".to_owned());
    }
    if let Some(c) = name.chars().find(|c| !fits(*c)) {
        return Err(format!(
            "`{}` cannot be part of a name: names are made of `a-z 0-9 _ . -`",
            c.escape_debug()
        ));
    }
    if name.len() > 64 {
        return Err(format!("the name has {} characters: at most 64 are allowed", name.len()));
    }
    Ok(())
}

pub(super) fn mean(
    written: &Named<raw::Rule>,
    kinds: &Kinds,
    guarded: &HashSet<String>,
    on_outage: OnOutage,
    findings: &mut Findings<'_>,
) -> Rules {
    let mut one = |(name, rule): &(String, raw::Rule)| {
        let path = Path::of(&["rules", name]);
        if let Err(message) = check_name(name) {
            findings.key(&path, message);
        }
        let guarded = if guarded.contains(name) { Guarded::Yes } else { Guarded::No };
        mean_one(name, rule, &path, kinds, (guarded, on_outage), findings)
    };
    let made = written.0.iter().map(|entry| (entry.0.clone(), one(entry)));
    let mut rules = Rules { usable: Vec::new(), written: Vec::new(), places: HashMap::new(), on_outage };
    made.for_each(|(name, rule)| rules.push(name, rule));
    rules
}

fn mean_one(
    name: &str,
    written: &raw::Rule,
    path: &Path,
    kinds: &Kinds,
    (guarded, default): (Guarded, OnOutage),
    findings: &mut Findings<'_>,
) -> Option<Arc<Rule>> {
    let name: Arc<str> = name.into();
    let code = written.code.as_deref().and_then(|code| mean_code(code, &path.key("code"), findings));
    let by = mean_by(written.by.as_ref(), kinds, &path.key("by"), findings);
    let limited = count_rows::limited(&name, written, by.as_deref(), path, findings);
    let plan = limited.as_ref().map(|(plan, _)| plan);
    let on_exceed = match &written.on_exceed {
        Some(form) => mean_on_exceed(form, &path.key("on_exceed"), findings),
        None => Some(OnExceed::Reject),
    };
    let on_outage = match &written.on_outage {
        Some(text) => mean_on_outage(text, limited.as_ref(), &path.key("on_outage"), findings),
        None => limited.as_ref().map(|limited| count_rows::default_of(default, limited)),
    };
    let count = mean_count(written.count.as_deref(), &path.key("count"), findings);
    let count_when = match &written.count_when {
        Some(form) => {
            counting::mean(form, &path.key("count_when"), findings).map(|statuses| Some(statuses.classes()))
        }
        None => Some(None),
    };
    let mut rule = Rule {
        name,
        code,
        by: by?,
        plan: Arc::clone(plan?),
        rows: limited.as_ref().and_then(|(_, rows)| rows.clone()),
        overrides: Default::default(),
        on_exceed: on_exceed?,
        on_outage: on_outage?,
        count: count?,
        count_when: count_when?,
        ban: None,
        enabled: written.enabled.unwrap_or(true),
        secret: false,
    };
    let secret = written.secret.unwrap_or_else(|| guards::secret_by_default(guarded, &rule, written));
    rule.secret = secret;
    let table = path.key("overrides");
    let at = |key: &str| if secret { table.secret_key(key) } else { table.key(key) };
    let overrides = mean_overrides(&rule.name, written.overrides.as_ref(), at, findings);
    rule.ban = mean_ban(written.ban.as_deref(), &rule, &path.key("ban"), findings);
    counting::check(&rule, &rule.plan, &path.key("limits"), findings);
    add_overrides(&mut rule, overrides, findings);
    Some(Arc::new(if secret { rule.with_secret_keys() } else { rule }))
}

/// Adds limits of single keys to a rule, as far as they fit it.
fn add_overrides(rule: &mut Rule, overrides: Vec<(&str, Arc<Plan>, Path)>, findings: &mut Findings<'_>) {
    for (key, plan, path) in overrides {
        counting::check(rule, &plan, &path, findings);
        count_rows::check(rule, &plan, &path, findings);
        match rule.key_of(key) {
            None => findings.key(&path, other_network(rule, key).unwrap_or_else(|| misfit(rule, key))),
            Some(text) if rule.overrides.contains_key(&text) => findings.key(
                &path,
                format!(
                    "this key is the same as one above it: both are counted as `{}`",
                    shown_of(rule, &text)
                ),
            ),
            Some(text) => {
                rule.overrides.insert(text, plan);
            }
        }
    }
}

/// The field that a rule counts by, or that there is none; nothing at all if it is wrong.
fn mean_count(written: Option<&str>, path: &Path, findings: &mut Findings<'_>) -> Option<Option<Arc<str>>> {
    let Some(field) = written else { return Some(None) };
    check_field_name(field).map_err(|message| findings.value(path, message)).ok()?;
    Some(Some(field.into()))
}

/// The code of a rule. An invalid one is reported, but does not invalidate the rule.
fn mean_code(written: &str, path: &Path, findings: &mut Findings<'_>) -> Option<Code> {
    written.parse().map_err(|error: BadCode| findings.value(path, error.to_string())).ok()
}

fn mean_by(
    written: Option<&By>,
    kinds: &Kinds,
    path: &Path,
    findings: &mut Findings<'_>,
) -> Option<Box<[Field]>> {
    let names: Vec<(&String, Path)> = match written {
        None => Vec::new(),
        Some(By::One(name)) => vec![(name, path.clone())],
        Some(By::Several(names)) => {
            names.iter().enumerate().map(|(index, name)| (name, path.index(index))).collect()
        }
    };
    if names.len() > Rule::MOST_FIELDS {
        let most = Rule::MOST_FIELDS;
        findings.value(path, format!("{} fields make a key: at most {most} are allowed", names.len()));
        return None;
    }
    let mut fields: Vec<Field> = Vec::new();
    for (name, path) in &names {
        if let Err(message) = check_field_name(name) {
            findings.value(path, message);
        } else if fields.iter().any(|field| *field.name == ***name) {
            findings.value(path, format!("the field `{name}` is written twice"));
        } else {
            fields.push(Field { name: name.as_str().into(), kind: kinds.of(name) });
        }
    }
    (fields.len() == names.len()).then(|| fields.into())
}

fn mean_on_exceed(form: &OnExceedForm, path: &Path, findings: &mut Findings<'_>) -> Option<OnExceed> {
    let word = match form {
        OnExceedForm::Defer(form) => return mean_deferral(&form.defer, &path.key("defer"), findings),
        OnExceedForm::Word(word) => word,
    };
    match word.split_once(' ') {
        None if word == "reject" => Some(OnExceed::Reject),
        None if word == "defer" => Some(OnExceed::Defer(Deferral::default())),
        None if word == "observe" => Some(OnExceed::Observe),
        Some(("wait", rest)) => match tollgate_core::grammar::parse_span(rest) {
            Ok(span) => Some(OnExceed::Wait(span)),
            Err(error) => {
                let at = error.at + "wait ".len();
                findings.grammar(path, GrammarError { text: word.clone(), at, ..error });
                None
            }
        },
        None if word == "wait" => {
            findings.value(path, "wait how long at most? Write it, as in `wait 5s`");
            None
        }
        _ => {
            let near = nearest(word, ["reject", "defer", "observe", "wait 5s"].into_iter());
            findings.value(
                path,
                format!("`{}` is none of `reject`, `defer`, `wait 5s`, `observe`{}", shown(word), hint(near)),
            );
            None
        }
    }
}

/// The default `on_outage` of rules.
pub(super) fn default_on_outage(written: Option<&str>, findings: &mut Findings<'_>) -> OnOutage {
    let Some(text) = written else { return OnOutage::DEFAULT };
    mean_on_outage(text, None, &Path::of(&["on_outage"]), findings).unwrap_or(OnOutage::DEFAULT)
}

/// The `on_outage` of a rule. A rule whose limits have no share cannot use `local`.
fn mean_on_outage(
    text: &str,
    limited: Option<&Limited>,
    path: &Path,
    findings: &mut Findings<'_>,
) -> Option<OnOutage> {
    let on_outage = match tollgate_core::grammar::parse_on_outage(text) {
        Ok(on_outage) => on_outage,
        Err(error) => {
            findings.grammar(path, error);
            return None;
        }
    };
    if let (OnOutage::Local(_), Some((_, Some(_)))) = (on_outage, limited) {
        findings.value(path, "rows cannot be counted by each node alone: write `deny` or `allow`");
        return None;
    }
    let whole = limited.and_then(|(plan, _)| plan.limits().iter().find(|limit| !limit.has_share()));
    if let (OnOutage::Local(_), Some(limit)) = (on_outage, whole) {
        findings.value(
            path,
            format!("`{limit}` cannot be counted by each node alone: write `deny` or `allow`, or put it into a rule of its own"),
        );
        return None;
    }
    Some(on_outage)
}

/// The `ban` of a rule. The rule must deny keys that a list entry can express.
fn mean_ban(written: Option<&str>, rule: &Rule, path: &Path, findings: &mut Findings<'_>) -> Option<Banning> {
    let banning = written?.parse().map_err(|error| findings.grammar(path, error)).ok()?;
    let problem = if rule.by.is_empty() {
        "without `by` the rule has one key, so a ban would block all clients"
    } else if rule.observes() {
        "a rule that only observes denies no attempt, so it cannot ban"
    } else if rule.secret {
        "the keys of the rule are secret, but the lists show who is banned"
    } else {
        return Some(banning);
    };
    findings.value(path, problem);
    None
}

fn mean_deferral(form: &DeferForm, path: &Path, findings: &mut Findings<'_>) -> Option<OnExceed> {
    let jitter = match &form.jitter {
        None => Span::ZERO,
        Some(text) => limits::span(text, &path.key("jitter"), findings)?,
    };
    Some(OnExceed::Defer(Deferral { aligned: form.aligned.unwrap_or(false), jitter }))
}

/// The limits of single keys. Whether the keys fit is checked later.
fn mean_overrides<'w>(
    name: &Arc<str>,
    written: Option<&'w Named<raw::Limits>>,
    at: impl Fn(&str) -> Path,
    findings: &mut Findings<'_>,
) -> Vec<(&'w str, Arc<Plan>, Path)> {
    let mut overrides = Vec::new();
    for (key, limits) in written.map_or(&[][..], |written| &written.0) {
        let path = at(key);
        if let Some(plan) = limits::plan(name, limits, &path, findings) {
            overrides.push((key.as_str(), plan, path));
        }
    }
    overrides
}

/// A key of a rule, unless it is secret.
fn shown_of(rule: &Rule, key: &str) -> String {
    if rule.secret { "***".to_owned() } else { shown(key).to_string() }
}

/// Why a key does not fit a rule, and which would.
fn misfit(rule: &Rule, written: &str) -> String {
    let key = shown_of(rule, written);
    match &*rule.by {
        [_] if key.is_empty() => "an empty value is not a key".to_owned(),
        [] => {
            format!("`{key}` is not a key: without `by` the rule has one key, its own name `{}`", rule.name)
        }
        [field] => {
            let name = &field.name;
            match field.kind.check(written) {
                _ if matches!(field.kind, FieldKind::Ip { .. }) => {
                    format!("`{key}` is not a key: the field `{name}` holds IPv4 or IPv6 addresses")
                }
                Err(error) => format!("`{key}` is not a key: the value of `{name}` {error}"),
                Ok(()) => format!("`{key}` is not a key: the rule does not apply to the null sender"),
            }
        }
        several => format!(
            "`{key}` is not a key: write one value for each of {}, separated by commas",
            listed(several.iter().map(|field| &*field.name))
        ),
    }
}

/// The error for a key that is a network of another size than the rule counts.
fn other_network(rule: &Rule, key: &str) -> Option<String> {
    let values: Vec<&str> = if rule.by.len() > 1 { key.split(',').collect() } else { vec![key] };
    rule.by.iter().zip(values).find_map(|(field, value)| {
        let FieldKind::Ip { v4, v6 } = field.kind else { return None };
        let (address, prefix) = value.split_once('/')?;
        let counted = if address.parse::<IpAddr>().ok()?.to_canonical().is_ipv4() { v4 } else { v6 };
        (prefix != counted.to_string()).then(|| {
            format!(
                "`{}` is a network, but the field `{}` is counted by /{counted}",
                shown_of(rule, value),
                field.name
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A search through all of them would not end within minutes.
    #[test]
    fn each_of_many_thousand_rules_is_found_by_its_name() {
        const MANY: usize = 100_000;
        let mut rules = Rules {
            usable: Vec::new(),
            written: Vec::new(),
            places: HashMap::new(),
            on_outage: OnOutage::default(),
        };
        for number in 0..MANY {
            rules.put(Rule::new(&format!("rule-{number}"), &["ip"], Vec::new()).unwrap());
        }
        rules.put(Rule::new("rule-7", &["user"], Vec::new()).unwrap());
        assert_eq!((rules.usable().len(), rules.written().count()), (MANY, MANY));
        for number in 0..MANY {
            let name = format!("rule-{number}");
            assert!(rules.is_written(&name) && *rules.find(&name).unwrap().name == *name);
        }
        assert_eq!(&*rules.find("rule-7").unwrap().by[0].name, "user");
        assert!(!rules.is_written("rule") && rules.find("rule").is_none());
    }
}
