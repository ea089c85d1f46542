//! An import in progress: the configuration so far, the report, and what is wrong.

use std::collections::{BTreeSet, HashMap};

use tollgate_core::Rule;
use tollgate_core::grammar::{self, Rewrite};
use tollgate_tree::{Place, Problems};

use crate::answers::Answers;
use crate::draft::{Draft, RuleDraft};
use crate::names::Names;
use crate::report::{Finding, Verdict};
use crate::system::System;
use crate::{ImportError, Imported, Input, Problem};

/// The state of an import.
pub(crate) struct Work<'a> {
    /// The configuration so far.
    pub(crate) draft: Draft,
    /// The names of rules.
    pub(crate) rule_names: Names,
    /// The names of policies.
    pub(crate) policy_names: Names,
    answers: &'a Answers,
    /// The names that were asked for, by option.
    asked_by: BTreeSet<String>,
    asked_limits: BTreeSet<String>,
    findings: Vec<Finding>,
    problems: Problems<Problem>,
}

/// The keys of a rule's overrides, to find those that are the same or none.
pub(crate) struct Keys {
    rule: Rule,
    seen: HashMap<Box<str>, Place>,
}

impl<'a> Work<'a> {
    pub(crate) fn new(answers: &'a Answers) -> Self {
        Self {
            draft: Draft::default(),
            rule_names: Names::default(),
            policy_names: Names::default(),
            answers,
            asked_by: BTreeSet::new(),
            asked_limits: BTreeSet::new(),
            findings: Vec::new(),
            problems: Problems::default(),
        }
    }

    pub(crate) fn exact(&mut self, place: &Place, message: impl Into<String>) {
        self.find(place, Verdict::Exact, message.into());
    }

    pub(crate) fn differs(&mut self, place: &Place, message: impl Into<String>) {
        self.find(place, Verdict::Differs, message.into());
    }

    pub(crate) fn asks(&mut self, place: &Place, message: impl Into<String>) {
        self.find(place, Verdict::Answer, message.into());
    }

    pub(crate) fn left_out(&mut self, place: &Place, message: impl Into<String>) {
        self.find(place, Verdict::LeftOut, message.into());
    }

    pub(crate) fn wrong(&mut self, place: &Place, message: impl Into<String>) {
        self.problems.add(|| Problem { place: Some(place.clone()), message: message.into() });
    }

    /// Reads a part of a file that other parts do not depend on: what is wrong with it leaves it out, and does not stop
    /// the import.
    pub(crate) fn apart(&mut self, read: impl FnOnce(&mut Self)) {
        let before = std::mem::take(&mut self.problems);
        read(self);
        let found = std::mem::replace(&mut self.problems, before);
        for Problem { place, message } in found {
            if let Some(place) = place {
                self.left_out(&place, message);
            }
        }
    }

    /// How many findings there are.
    pub(crate) fn found(&self) -> usize {
        self.findings.len()
    }

    /// Refuses the file for everything that was left out since then: nothing of it is left.
    pub(crate) fn refuse_since(&mut self, found: usize) {
        let left: Vec<Finding> = self.findings[found..].to_vec();
        for Finding { place, message, .. } in left.into_iter().filter(|one| one.verdict == Verdict::LeftOut) {
            self.wrong(&place, message);
        }
    }

    fn find(&mut self, place: &Place, verdict: Verdict, message: String) {
        self.findings.push(Finding { place: place.clone(), verdict, message });
    }

    /// A limit in its usual form. One that tollgate cannot count is wrong.
    pub(crate) fn limit(&mut self, place: &Place, text: &str) -> Option<String> {
        match grammar::parse(text) {
            Ok(limit) => limit.map(|limit| limit.to_string()),
            Err(error) => {
                self.wrong(place, format!("`{text}` cannot be counted: {}", error.problem));
                None
            }
        }
    }

    /// A limit in another program's notation.
    pub(crate) fn rewrite(&mut self, place: &Place, text: &str) -> Option<Rewrite> {
        if let Some([one]) = grammar::rewrite(text).as_deref() {
            return Some(one.clone());
        }
        self.wrong(place, format!("`{text}` is not a rate that can be counted exactly"));
        None
    }

    /// A sliding limit, and the finding about it: exact if its log is small enough, in slots otherwise. `what` is its
    /// setting there.
    pub(crate) fn sliding(&mut self, place: &Place, what: &str, max: u64, period: &str) -> Option<String> {
        if max <= MOST_LOGGED {
            let limit = self.limit(place, &format!("{max}/{period} sliding"))?;
            self.exact(place, format!("{what} is `{limit}`"));
            return Some(limit);
        }
        let slot = match period {
            "hour" => "10s",
            "day" => "5m",
            _ => "1s",
        };
        let limit = self.limit(place, &format!("{max}/{period} sliding by {slot}"))?;
        let message = format!(
            "{what} is `{limit}`: {max} a {period} are counted in slots of {slot}, so room comes back up to {slot} late. An exact log holds {MOST_LOGGED} entries a key"
        );
        self.differs(place, message);
        Some(limit)
    }

    /// The fields of a key that the file does not name: as answered, or as assumed.
    pub(crate) fn fields_of(&mut self, place: &Place, name: &str, assumed: &str, why: &str) -> Vec<String> {
        self.asked_by.insert(name.to_owned());
        if let Some(fields) = self.answers.by.get(name) {
            return fields.clone();
        }
        let message = format!(
            "`{name}`: {why}; assumed `{assumed}`. Answer with `--by {name}={assumed}`, or another field"
        );
        self.asks(place, message);
        assumed.split(',').map(ToOwned::to_owned).collect()
    }

    /// The answered fields of a key, if there is an answer.
    pub(crate) fn answered_fields(&mut self, name: &str) -> Option<Vec<String>> {
        self.asked_by.insert(name.to_owned());
        self.answers.by.get(name).cloned()
    }

    /// The answered limit, if there is one.
    pub(crate) fn answered_limit(&mut self, name: &str) -> Option<String> {
        self.asked_limits.insert(name.to_owned());
        self.answers.limits.get(name).cloned()
    }

    /// The answered address of the store.
    pub(crate) fn answered_store(&self) -> Option<&'a str> {
        self.answers.store.as_deref()
    }

    /// The result, unless something was wrong.
    pub(crate) fn conclude(mut self, system: System, inputs: &[Input<'_>]) -> Result<Imported, ImportError> {
        self.unused("--by", self.answers.by.keys(), &self.asked_by.clone());
        self.unused("--limit", self.answers.limits.keys(), &self.asked_limits.clone());
        if let (Some(_), Some(input)) = (&self.answers.store, inputs.first()) {
            let place = Place::Source { source: input.name.into() };
            crate::store::answered(&place, &mut self);
        }
        if !self.problems.is_empty() {
            return Err(ImportError { problems: self.problems });
        }
        let by_address = |rule: &RuleDraft| rule.by.iter().any(|field| field == "ip");
        if let (true, Some(input)) = (self.draft.rules.iter().any(by_address), inputs.first()) {
            self.differs(&Place::Source { source: input.name.into() }, NETWORKS);
        }
        let order: HashMap<&str, usize> =
            inputs.iter().enumerate().map(|(index, input)| (input.name, index)).collect();
        self.findings.sort_by_key(|finding| match &finding.place {
            Place::At { source, line, .. } => (order.get(&**source).copied().unwrap_or(usize::MAX), *line),
            Place::Source { source } => (order.get(&**source).copied().unwrap_or(usize::MAX), 0),
            Place::Variable { .. } => (usize::MAX, 0),
        });
        let names: Vec<&str> = inputs.iter().map(|input| input.name).collect();
        let variables = self.draft.variables.clone();
        let config = self.draft.write(system, &names, &self.findings);
        Ok(Imported { system, config, findings: self.findings, variables })
    }

    /// Reports answers to questions that were not asked.
    fn unused<'n>(
        &mut self,
        option: &str,
        given: impl Iterator<Item = &'n String>,
        asked: &BTreeSet<String>,
    ) {
        for name in given.filter(|name| !asked.contains(*name)) {
            let known: Vec<String> = asked.iter().take(20).map(|name| format!("`{name}`")).collect();
            let known = if known.is_empty() {
                "these files need no such answer".to_owned()
            } else {
                format!("it answers for {}", known.join(", "))
            };
            self.problems.add(|| Problem { place: None, message: format!("`{option} {name}=…`: {known}") });
        }
    }
}

/// How addresses are counted.
const NETWORKS: &str = "IPv6 clients are counted by their /64 network, because a client owns all of it. `fields: { ip: { ip: { v6: 128 } } }` counts single addresses";

/// How many attempts an exact log holds.
const MOST_LOGGED: u64 = 100_000;

impl Keys {
    /// For a rule with these fields.
    pub(crate) fn new(by: &[&str]) -> Self {
        let rule = Rule::new("imported", by, Vec::new()).expect("no limits fit together");
        Self { rule, seen: HashMap::new() }
    }

    /// The text of a key with these values. One that is none, or that occurs twice, is wrong.
    pub(crate) fn key(&mut self, values: &[&str], place: &Place, work: &mut Work<'_>) -> Option<String> {
        self.checked(values, place).map_err(|problem| work.wrong(place, problem)).ok()
    }

    /// The text of a key with these values, or the reason why there is none.
    pub(crate) fn checked(&mut self, values: &[&str], place: &Place) -> Result<String, String> {
        let key = match values {
            [one] => (*one).to_owned(),
            several => several.iter().map(|value| escaped(value)).collect::<Vec<_>>().join(","),
        };
        let Some(normal) = self.rule.key_of(&key) else {
            let fields: Vec<&str> = self.rule.by.iter().map(|field| &*field.name).collect();
            return Err(format!("`{}` cannot be a value of {}", shorten(&key), fields.join(" and ")));
        };
        if let Some(before) = self.seen.get(&normal) {
            return Err(format!("`{}` is the same key as at {before}: keep one of them", shorten(&key)));
        }
        self.seen.insert(normal, place.clone());
        Ok(key)
    }
}

/// A value inside a key of several values.
fn escaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for c in value.chars() {
        if matches!(c, ',' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// A text of the file, for a message.
pub(crate) fn shorten(text: &str) -> String {
    shorten_to(text, 64)
}

/// As [`shorten`], with room for so many characters.
pub(crate) fn shorten_to(text: &str, most: usize) -> String {
    let short: String = text.chars().take(most).collect();
    if short.len() < text.len() { format!("{short}…") } else { short }
}
