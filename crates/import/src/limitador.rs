//! limitador: a list of limits with conditions and variables.
//!
//! Its windows start with the first hit, as ours do. Limits with the same conditions apply to the same requests: each set
//! of conditions becomes a policy, which also has the limits without conditions.

use std::collections::{BTreeSet, HashMap};

use tollgate_tree::{Node, Path, Place, Value};

use crate::draft::{PolicyDraft, RuleDraft};
use crate::names;
use crate::section::Section;
use crate::work::{Work, shorten, shorten_to};

/// A limit that became a rule.
struct Limit {
    namespace: String,
    conditions: BTreeSet<String>,
    rule: String,
    place: Place,
}

pub(crate) fn read(trees: &[&Node], work: &mut Work<'_>) {
    let mut limits = Vec::new();
    for tree in trees {
        let listed = tree.entry("limits").map_or(*tree, |entry| &entry.node);
        match &listed.value {
            Value::List(nodes) => {
                for (index, node) in nodes.iter().enumerate() {
                    limits.extend(read_limit(node, index, work));
                }
            }
            _ => limits.extend(read_limit(listed, 0, work)),
        }
    }
    match limits.get(MOST_LIMITS) {
        Some(limit) => work.wrong(
            &limit.place,
            format!("there are more than {MOST_LIMITS} limits: import a part of them at a time"),
        ),
        None => write(&limits, work),
    }
}

/// The most limits: each set of conditions is compared with every limit.
const MOST_LIMITS: usize = 10_000;

fn read_limit(node: &Node, index: usize, work: &mut Work<'_>) -> Option<Limit> {
    let mut limit = Section::of(node, Path::default(), work)?;
    let namespace = limit.text("namespace", work).map_or("default".to_owned(), |(text, _)| text);
    let max = limit.whole("max_value", work);
    let seconds = limit.whole("seconds", work);
    let name = limit.text("name", work).or_else(|| limit.text("id", work)).map(|(name, _)| name);
    let conditions: BTreeSet<String> = texts(&mut limit, "conditions", work).into_iter().collect();
    let variables = texts(&mut limit, "variables", work);
    limit.leave("limitador has no such setting", work);
    let (Some((max, place)), Some((seconds, _))) = (max, seconds) else {
        work.wrong(&node.place, "the limit needs `max_value` and `seconds`");
        return None;
    };
    let by = variables.iter().map(|variable| names::reported_field(last_name(variable), &node.place, work));
    let by: Vec<String> = by.collect();
    if by.len() > tollgate_core::Rule::MOST_FIELDS {
        work.wrong(&node.place, "the limit has more than four variables: a rule counts by up to four fields");
        return None;
    }
    if max == 0 {
        work.differs(place, "`max_value: 0` denies everything, and here 0 is no limit: it is left out. Put what is to be denied on the blocklist");
        return None;
    }
    let written = work.limit(place, &format!("{max}/{seconds}s"))?;
    work.exact(
        place,
        format!("{max} in {seconds} seconds is `{written}`, from the first request on{}", per(&by)),
    );
    let text = name.unwrap_or_else(|| format!("{namespace}.{}", index + 1));
    let rule = work.rule_names.free(&text);
    let comments = match conditions.len() {
        0 => vec![format!("All requests of {}.", shorten(&namespace))],
        _ => vec![format!("If {}.", all_of(&conditions))],
    };
    work.draft.rules.push(RuleDraft {
        name: rule.clone(),
        by,
        limits: vec![written],
        comments,
        ..RuleDraft::default()
    });
    Some(Limit { namespace, conditions, rule, place: node.place.clone() })
}

fn per(by: &[String]) -> String {
    if by.is_empty() { String::new() } else { format!(", for each `{}`", by.join(", ")) }
}

/// A list of texts.
fn texts(limit: &mut Section<'_>, key: &str, work: &mut Work<'_>) -> Vec<String> {
    let Some(entry) = limit.take(key) else { return Vec::new() };
    let Value::List(nodes) = &entry.node.value else {
        if !matches!(entry.node.value, Value::Null) {
            work.wrong(
                &entry.node.place,
                format!("`{key}` is {}, where a list is expected", entry.node.value.kind()),
            );
        }
        return Vec::new();
    };
    let mut texts = Vec::new();
    for node in nodes {
        match &node.value {
            Value::Text(text) => texts.push(text.clone()),
            other => {
                work.wrong(&node.place, format!("`{key}` has {}, where a text is expected", other.kind()))
            }
        }
    }
    texts
}

/// The name in `descriptors[0]['user_id']`, `descriptors[0].user_id` or `user_id`.
fn last_name(expression: &str) -> &str {
    let quoted = expression.split(['\'', '"']).nth(1);
    let plain = expression.strip_prefix("descriptors[0].").unwrap_or(expression);
    quoted.unwrap_or(plain).trim()
}

fn write(limits: &[Limit], work: &mut Work<'_>) {
    let mut sets: Vec<(&str, &BTreeSet<String>)> = Vec::new();
    let mut seen = BTreeSet::new();
    for limit in limits {
        if seen.insert((&limit.namespace, &limit.conditions)) {
            sets.push((&limit.namespace, &limit.conditions));
        }
    }
    let index = Index::of(limits);
    for (namespace, conditions) in sets {
        let applying = index.applying(namespace, conditions);
        let own = applying.iter().find(|limit| limit.conditions == *conditions);
        let Some(place) = own.map(|limit| &limit.place) else { continue };
        if applying.len() > tollgate_core::Policies::MOST_RULES {
            work.wrong(
                place,
                format!(
                    "{} limits apply to the same requests: a policy has at most {} rules",
                    applying.len(),
                    tollgate_core::Policies::MOST_RULES
                ),
            );
            continue;
        }
        let words: Vec<String> = conditions.iter().map(|condition| words_of(condition)).collect();
        let text = std::iter::once(namespace.to_owned()).chain(words).collect::<Vec<_>>().join(".");
        let name = work.policy_names.free(&text);
        let joined = all_of(conditions);
        if !conditions.is_empty() {
            work.differs(
                place,
                format!(
                    "the caller asks the policy `{name}` if {joined}, because a rule does not look at values"
                ),
            );
        }
        let comments =
            if conditions.is_empty() { Vec::new() } else { vec![format!("Requests for which {joined}.")] };
        let rules = applying.iter().map(|limit| limit.rule.clone()).collect();
        work.draft.policies.push(PolicyDraft { name, comments, rules });
    }
    if let Some(first) = limits.first() {
        work.differs(&first.place, "all limits of a request are charged together or not at all; there, stacked limits may count a request that another limit denies");
    }
}

/// A namespace, and the first condition if there is one.
type Slot<'l> = (&'l str, Option<&'l str>);

/// The limits by namespace and first condition, so that finding those of a set does not look at all.
struct Index<'l>(HashMap<Slot<'l>, Vec<(usize, &'l Limit)>>);

impl<'l> Index<'l> {
    fn of(limits: &'l [Limit]) -> Self {
        let mut index: HashMap<_, Vec<_>> = HashMap::new();
        for (at, limit) in limits.iter().enumerate() {
            let first = limit.conditions.first().map(String::as_str);
            index.entry((&*limit.namespace, first)).or_default().push((at, limit));
        }
        Self(index)
    }

    /// The limits whose conditions are all among these, in the order of the files.
    fn applying(&self, namespace: &str, conditions: &BTreeSet<String>) -> Vec<&'l Limit> {
        let firsts = std::iter::once(None).chain(conditions.iter().map(|condition| Some(condition.as_str())));
        let found = firsts.filter_map(|first| self.0.get(&(namespace, first))).flatten();
        let mut found: Vec<_> = found.filter(|(_, limit)| limit.conditions.is_subset(conditions)).collect();
        found.sort_by_key(|(at, _)| *at);
        found.into_iter().map(|(_, limit)| *limit).collect()
    }
}

/// The conditions, for a reader who has to tell them apart: they often differ at their end only.
fn all_of(conditions: &BTreeSet<String>) -> String {
    let conditions: Vec<&str> = conditions.iter().map(String::as_str).collect();
    shorten_to(&conditions.join(" and "), MOST_SHOWN)
}

/// How many characters of conditions are shown.
const MOST_SHOWN: usize = 2_000;

/// What stands for an operator in a name. `==` stands for itself: `method == 'GET'` is `method.get`.
const OPERATORS: [(&str, &str); 9] = [
    ("==", " "),
    ("!=", " not "),
    ("<=", " up.to "),
    (">=", " from "),
    ("&&", " and "),
    ("||", " or "),
    ("<", " below "),
    (">", " above "),
    ("!", " not "),
];

/// A condition as a part of a name: `descriptors[0]['method'] != 'GET'` is `method.not.get`.
fn words_of(condition: &str) -> String {
    let mut plain = String::new();
    let condition = condition.replace("descriptors[0]", "");
    let mut rest = condition.as_str();
    let mut quote = None;
    while let Some(first) = rest.chars().next() {
        let operator = OPERATORS.iter().find(|(operator, _)| quote.is_none() && rest.starts_with(operator));
        let length = match operator {
            Some((operator, words)) => {
                plain.push_str(words);
                operator.len()
            }
            None => {
                plain.push(first);
                first.len_utf8()
            }
        };
        // An operator inside of quotes belongs to a value.
        match (quote, first) {
            (None, '\'' | '"') => quote = Some(first),
            (Some(open), _) if open == first => quote = None,
            _ => {}
        }
        rest = &rest[length..];
    }
    names::plain(&plain)
}
