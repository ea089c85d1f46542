//! envoyproxy/ratelimit: the descriptors of a domain.
//!
//! A descriptor of keys without values becomes a rule by these fields. One with all values given becomes an override of
//! that rule. Any other becomes a rule and a policy of its own, for requests with these values. A descriptor that cannot be
//! translated is left out, and does not stop the others.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use tollgate_core::key::check_field_name;
use tollgate_tree::{Node, Path, Place, Value};

use crate::draft::{PolicyDraft, RuleDraft};
use crate::names;
use crate::section::Section;
use crate::work::{Keys, Work, shorten};

/// A step of a descriptor: its key, and its value if it is given.
#[derive(Clone)]
struct Step {
    key: String,
    value: Option<String>,
}

/// What a descriptor allows.
enum Allowed {
    Limit(String),
    Unlimited,
    Nothing,
}

/// A domain in progress.
struct Domain {
    name: String,
    /// Which rule counts by these fields.
    rules: HashMap<Vec<String>, (usize, Keys)>,
}

pub(crate) fn read(tree: &Node, work: &mut Work<'_>) {
    let Some(mut top) = Section::of(tree, Path::default(), work) else { return };
    let Some((name, place)) = top.text("domain", work) else {
        work.wrong(&tree.place, "the file has descriptors and no `domain`");
        return;
    };
    work.differs(place, "a request may carry several descriptors there, which are counted one by one. Here a policy lists the rules, which are charged together or not at all, and a denied request counts nowhere");
    work.asks(place, "Envoy's own protocol is not served; assumed that the caller asks `POST /api/v1/check`, or that a proxy asks by forward-auth, with the descriptor's keys as fields");
    let mut domain = Domain { name, rules: HashMap::new() };
    let (rules, blocked, found) = (work.draft.rules.len(), work.draft.blocklist.len(), work.found());
    if let Some(entry) = top.take("descriptors") {
        domain.descriptors(&entry.node, &mut Vec::new(), work);
    }
    if (work.draft.rules.len(), work.draft.blocklist.len()) == (rules, blocked) {
        work.refuse_since(found);
    }
    top.leave("ratelimit has no such setting", work);
}

impl Domain {
    fn descriptors(&mut self, node: &Node, path: &mut Vec<Step>, work: &mut Work<'_>) {
        let Value::List(nodes) = &node.value else {
            if !matches!(node.value, Value::Null) {
                work.wrong(
                    &node.place,
                    format!("`descriptors` is {}, where a list is expected", node.value.kind()),
                );
            }
            return;
        };
        for node in nodes {
            work.apart(|work| self.descriptor(node, path, work));
        }
    }

    fn descriptor(&mut self, node: &Node, path: &mut Vec<Step>, work: &mut Work<'_>) {
        let Some(mut descriptor) = Section::of(node, Path::default(), work) else { return };
        let Some((key, place)) = descriptor.text("key", work) else {
            work.wrong(&node.place, "the descriptor has no `key`");
            return;
        };
        let value = descriptor.text("value", work).map(|(value, _)| value);
        let key = names::reported_field(&key, &node.place, work);
        if let Err(problem) = check_field_name(&key) {
            work.wrong(place, format!("the key `{}` cannot be a field: {problem}", shorten(&key)));
            return;
        }
        path.push(Step { key, value });
        let observed = descriptor.flag("shadow_mode", work).is_some_and(|(on, _)| on);
        let below = descriptor.take("descriptors");
        let limit = descriptor.take("rate_limit");
        match limit.and_then(|limit| Section::of(&limit.node, Path::of(&["rate_limit"]), work)) {
            Some(limit) => {
                if let Some(allowed) = read_limit(limit, work) {
                    self.add(path, allowed, observed, &node.place, work);
                }
            }
            // A limit that is no table is not the same as none.
            None if below.is_none() && limit.is_none_or(|limit| matches!(limit.node.value, Value::Null)) => {
                self.add(path, Allowed::Unlimited, observed, &node.place, work);
            }
            None => {}
        }
        for setting in ["detailed_metric", "value_to_metric", "metadata"] {
            if let Some(entry) = descriptor.take(setting) {
                work.left_out(
                    &entry.key_place,
                    format!("`{setting}`: metrics have no values of keys; `tollgate decisions` has them"),
                );
            }
        }
        descriptor.leave("it has no equivalent", work);
        if let Some(below) = below {
            self.descriptors(&below.node, path, work);
        }
        path.pop();
    }

    fn add(&mut self, path: &[Step], allowed: Allowed, observed: bool, place: &Place, work: &mut Work<'_>) {
        let by: Vec<String> = path.iter().map(|step| step.key.clone()).collect();
        let exact = |step: &Step| step.value.as_ref().is_some_and(|value| !value.contains('*'));
        let given = path.iter().filter(|step| exact(step)).count();
        let free = path.iter().filter(|step| step.value.is_none()).count();
        let different: HashSet<&String> = by.iter().collect();
        if different.len() < by.len() || by.len() > tollgate_core::Rule::MOST_FIELDS {
            let keys = shorten(&by.join(", "));
            work.wrong(
                place,
                format!("the descriptor of `{keys}` has more than four keys, or a key twice: a rule counts by up to four fields"),
            );
            return;
        }
        let is_odd = |step: &&Step| {
            let address = |value: &String| value.contains('*') || value.parse::<IpAddr>().is_ok();
            step.key == "remote_address" && !step.value.as_ref().is_none_or(address)
        };
        if let Some(odd) = path.iter().find(is_odd) {
            let value = shorten(odd.value.as_deref().unwrap_or_default());
            work.wrong(place, format!("`{value}` is not an address, so no `remote_address` has this value"));
            return;
        }
        if by.iter().any(|field| field == "remote_address") {
            work.draft.field("remote_address", "{ ip: { v6: 128 } }");
        }
        match allowed {
            Allowed::Nothing if given == path.len() => self.block(path, place, work),
            Allowed::Nothing => work.differs(place, "`requests_per_unit: 0` denies everything, and here 0 is no limit: it is left out. Put what is to be denied on the blocklist"),
            allowed if !observed && given == path.len() => self.add_override(by, path, &allowed, place, work),
            allowed if !observed && free == path.len() => self.add_general(by, &allowed, place, work),
            allowed => self.add_own(path, &allowed, observed, place, work),
        }
    }

    fn block(&self, path: &[Step], place: &Place, work: &mut Work<'_>) {
        let pairs: Vec<String> = path
            .iter()
            .map(|step| format!("{}={}", step.key, step.value.as_deref().unwrap_or_default()))
            .collect();
        let fields: Vec<&str> = path.iter().map(|step| &*step.key).collect();
        let values: Vec<&str> = path.iter().filter_map(|step| step.value.as_deref()).collect();
        let fits = Keys::new(&fields).checked(&values, place).is_ok();
        if !fits || pairs.iter().any(|pair| pair.contains([',', ' ', '\\'])) {
            work.differs(place, "`requests_per_unit: 0` denies everything, and here 0 is no limit: it is left out. Put it on the blocklist");
            return;
        }
        work.exact(
            place,
            format!(
                "`requests_per_unit: 0` denies everything: `{}` is on the blocklist, and gets 403",
                pairs.join(",")
            ),
        );
        for step in path {
            work.draft.field(&step.key, "text");
        }
        work.draft.blocklist.push((pairs.join(","), crate::draft::short(place)));
    }

    /// The rule by these fields.
    fn rule(&mut self, by: &[String], work: &mut Work<'_>) -> &mut (usize, Keys) {
        let name = &self.name;
        self.rules.entry(by.to_vec()).or_insert_with(|| {
            let name = work.rule_names.free(&format!("{name}.{}", by.join(".")));
            let comments = vec![format!(
                "Requests with {}. Without a limit of its own, a value is not limited.",
                by.join(" and ")
            )];
            let rules = vec![name.clone()];
            work.draft.policies.push(PolicyDraft { name: name.clone(), comments: Vec::new(), rules });
            work.draft.rules.push(RuleDraft { name, by: by.to_vec(), comments, ..RuleDraft::default() });
            let fields: Vec<&str> = by.iter().map(String::as_str).collect();
            (work.draft.rules.len() - 1, Keys::new(&fields))
        })
    }

    fn add_general(&mut self, by: Vec<String>, allowed: &Allowed, place: &Place, work: &mut Work<'_>) {
        let index = self.rule(&by, work).0;
        let rule = &mut work.draft.rules[index];
        if !rule.limits.is_empty() {
            work.wrong(place, format!("`{}` is written twice", by.join(", ")));
            return;
        }
        rule.comments = vec![format!("Each value of {}.", by.join(" and "))];
        rule.limits = limits(allowed);
        work.exact(place, format!("each value of `{}`: `{}`", by.join(", "), shown(allowed)));
    }

    fn add_override(
        &mut self,
        by: Vec<String>,
        path: &[Step],
        allowed: &Allowed,
        place: &Place,
        work: &mut Work<'_>,
    ) {
        let values: Vec<&str> = path.iter().filter_map(|step| step.value.as_deref()).collect();
        let index = self.rule(&by, work).0;
        let Some((_, keys)) = self.rules.get_mut(&by) else { return };
        let Some(key) = keys.key(&values, place, work) else { return };
        work.exact(place, format!("`{}`: `{}`", shorten(&key), shown(allowed)));
        work.draft.rules[index].overrides.push((key, limits(allowed)));
    }

    /// A rule and a policy for requests with these values.
    fn add_own(
        &mut self,
        path: &[Step],
        allowed: &Allowed,
        observed: bool,
        place: &Place,
        work: &mut Work<'_>,
    ) {
        let words = path.iter().flat_map(|step| [Some(step.key.as_str()), step.value.as_deref()]).flatten();
        let text = std::iter::once(self.name.as_str()).chain(words).collect::<Vec<_>>().join(".");
        let exact = |step: &&Step| step.value.as_ref().is_none_or(|value| value.contains('*'));
        let by: Vec<String> = path.iter().filter(exact).map(|step| step.key.clone()).collect();
        let conditions: Vec<String> =
            path.iter().filter_map(|step| Some(format!("{}={}", step.key, step.value.as_ref()?))).collect();
        let name = work.rule_names.free(&text);
        let on_exceed = observed.then(|| "observe".to_owned());
        if observed {
            work.exact(place, "`shadow_mode` is `on_exceed: observe`");
        }
        if conditions.is_empty() {
            work.exact(place, format!("each value of `{}`: `{}`", by.join(", "), shown(allowed)));
        } else {
            work.differs(place, format!("`{}`: the caller asks the policy `{name}` for requests with {}, because a rule does not look at values", shown(allowed), conditions.join(" and ")));
        }
        let comments = vec![format!(
            "Requests with {}.",
            if conditions.is_empty() { by.join(" and ") } else { conditions.join(" and ") }
        )];
        work.draft.policies.push(PolicyDraft {
            name: name.clone(),
            comments: comments.clone(),
            rules: vec![name.clone()],
        });
        work.draft.rules.push(RuleDraft {
            name,
            by,
            limits: limits(allowed),
            on_exceed,
            comments,
            ..RuleDraft::default()
        });
    }
}

fn limits(allowed: &Allowed) -> Vec<String> {
    match allowed {
        Allowed::Limit(limit) => vec![limit.clone()],
        Allowed::Unlimited | Allowed::Nothing => Vec::new(),
    }
}

fn shown(allowed: &Allowed) -> &str {
    match allowed {
        Allowed::Limit(limit) => limit,
        Allowed::Unlimited => "unlimited",
        Allowed::Nothing => "nothing",
    }
}

/// `{ unit: minute, requests_per_unit: 10 }`.
fn read_limit(mut limit: Section<'_>, work: &mut Work<'_>) -> Option<Allowed> {
    let place = limit.place;
    let unlimited = limit.flag("unlimited", work).is_some_and(|(on, _)| on);
    let unit = limit.text("unit", work);
    let number = limit.whole("requests_per_unit", work);
    for setting in ["name", "replaces"] {
        if let Some(entry) = limit.take(setting) {
            work.left_out(
                &entry.key_place,
                format!("`{setting}`: a policy lists the rules that hold, so none is replaced"),
            );
        }
    }
    limit.leave("ratelimit has no such setting", work);
    if unlimited {
        return Some(Allowed::Unlimited);
    }
    let (Some((unit, unit_place)), Some((number, _))) = (unit, number) else {
        work.wrong(place, "the limit needs `unit` and `requests_per_unit`");
        return None;
    };
    if number == 0 {
        return Some(Allowed::Nothing);
    }
    let written = match &*unit.to_ascii_lowercase() {
        "minute" => format!("{number}/min calendar"),
        "hour" => format!("{number}/hour calendar"),
        "day" => format!("{number}/day calendar"),
        "second" => {
            work.differs(
                unit_place,
                "a second starts with the first request, not with the clock; each second admits as many",
            );
            format!("{number}/s")
        }
        "week" => {
            work.differs(
                unit_place,
                "a week starts on Monday, not on Thursday, the weekday of 1 January 1970",
            );
            format!("{number}/week calendar")
        }
        "month" => {
            work.differs(unit_place, "a month of 30 days starts with the first request, not at a multiple of 30 days since 1970. `month calendar` counts real months");
            format!("{number}/30d")
        }
        "year" => {
            work.differs(
                unit_place,
                "a year of 365 days starts with the first request, not at a multiple of 365 days since 1970",
            );
            format!("{number}/365d")
        }
        other => {
            work.wrong(
                unit_place,
                format!("`{}` is none of second, minute, hour, day, week, month and year", shorten(other)),
            );
            return None;
        }
    };
    Some(Allowed::Limit(work.limit(place, &written)?))
}
