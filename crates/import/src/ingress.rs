//! ingress-nginx: the annotations of an Ingress.
//!
//! They become `limit_req` with a burst of five times the rate and `nodelay`, and `limit_conn`, in the controller.

use std::net::IpAddr;

use tollgate_tree::{Node, Path, Place, Value};

use crate::draft::{PolicyDraft, RuleDraft};
use crate::nginx::{AT_GATEWAY, IN_PROGRESS};
use crate::section::Section;
use crate::work::{Work, shorten};

const PREFIX: &str = "nginx.ingress.kubernetes.io/";
/// The burst, as a multiple of the rate.
const MULTIPLIER: u64 = 5;

pub(crate) fn read(tree: &Node, work: &mut Work<'_>) {
    let kind = |tree: &Node| match tree.entry("kind").map(|entry| &entry.node.value) {
        Some(Value::Text(kind)) => kind.clone(),
        _ => String::new(),
    };
    match (&*kind(tree), tree.entry("items").map(|entry| &entry.node.value)) {
        ("Ingress", _) => read_ingress(tree, work),
        ("List", Some(Value::List(items))) => items.iter().for_each(|item| read(item, work)),
        (other, _) => work.left_out(&tree.place, format!("`kind: {}`: it is not an Ingress", shorten(other))),
    }
}

/// The rules of one Ingress so far.
struct Limited<'t> {
    name: String,
    place: &'t Place,
    rules: Vec<RuleDraft>,
    /// The place of the limit on requests in progress, whose rule is the last.
    in_progress: Option<&'t Place>,
}

fn read_ingress(tree: &Node, work: &mut Work<'_>) {
    let Some(mut top) = Section::of(tree, Path::default(), work) else { return };
    let Some(mut metadata) = top.section("metadata", work) else { return };
    let text =
        |metadata: &mut Section<'_>, key, work: &mut Work<'_>| metadata.text(key, work).map(|(text, _)| text);
    let name = text(&mut metadata, "name", work).unwrap_or_else(|| "ingress".to_owned());
    let name = match text(&mut metadata, "namespace", work) {
        Some(namespace) if namespace != "default" => format!("{namespace}.{name}"),
        _ => name,
    };
    let Some(mut annotations) = metadata.section("annotations", work) else {
        work.left_out(&tree.place, format!("the Ingress `{}` has no annotations", shorten(&name)));
        return;
    };
    let mut limited = Limited { name, place: &tree.place, rules: Vec::new(), in_progress: None };
    let at = |key: &str| format!("{PREFIX}{key}");
    let multiplier =
        annotations.whole(&at("limit-burst-multiplier"), work).map_or(MULTIPLIER, |(number, _)| number);
    for (key, unit) in [("limit-rps", "s"), ("limit-rpm", "m")] {
        let Some((rate, place)) = annotations.whole(&at(key), work) else { continue };
        if rate == 0 {
            work.exact(place, format!("`{key}`: 0 is no limit"));
            continue;
        }
        let written = format!("{rate}r/{unit} burst={} nodelay", rate.saturating_mul(multiplier));
        let written = written.replace("burst=0 nodelay", "").trim().to_owned();
        let Some(limit) = work.rewrite(place, &written) else { continue };
        work.exact(
            place,
            format!(
                "`{key}: {rate}` is `{}`: a burst of {multiplier} times the rate, and one more",
                limit.limit
            ),
        );
        limited.add(key, limit.limit, format!("{key}: {rate}, in nginx `rate={written}`."));
    }
    if let Some((number, place)) = annotations.whole(&at("limit-connections"), work)
        && number > 0
        && let Some(limit) = work.limit(place, &format!("{number} at once for 60s"))
    {
        work.exact(place, format!("`limit-connections: {number}` is `{limit}`: requests in progress"));
        limited.add("limit-connections", limit, format!("limit-connections: {number}."));
        limited.in_progress = Some(place);
    }
    for key in ["limit-whitelist", "limit-allowlist"] {
        if let Some((list, place)) = annotations.text(&at(key), work) {
            limited.allow(&list, place, work);
        }
    }
    for key in ["limit-rate", "limit-rate-after"] {
        if let Some((_, place)) = annotations.text(&at(key), work) {
            work.left_out(
                place,
                format!("`{key}`: it bounds the bandwidth of a response; tollgate counts requests"),
            );
        }
    }
    annotations.leave("it is not about limits", work);
    limited.finish(work);
}

impl Limited<'_> {
    fn add(&mut self, kind: &str, limit: String, comment: String) {
        let name = format!("{}.{}", self.name, kind.trim_start_matches("limit-"));
        let by = vec!["ip".to_owned()];
        self.rules.push(RuleDraft {
            name,
            by,
            limits: vec![limit],
            comments: vec![comment],
            ..RuleDraft::default()
        });
    }

    /// Exempts single addresses.
    fn allow(&mut self, list: &str, place: &Place, work: &mut Work<'_>) {
        for target in list.split(',').map(str::trim).filter(|target| !target.is_empty()) {
            let bare = target.trim_end_matches("/32");
            if bare.parse::<IpAddr>().is_ok_and(|address| address.is_ipv4()) {
                for rule in &mut self.rules {
                    rule.overrides.retain(|(key, _)| key != bare);
                    rule.overrides.push((bare.to_owned(), Vec::new()));
                }
                work.exact(place, format!("`{target}` is not limited"));
            } else {
                work.differs(
                    place,
                    format!(
                        "`{}` is limited like all others: an override is for one key, not for a network",
                        shorten(target)
                    ),
                );
            }
        }
    }

    fn finish(self, work: &mut Work<'_>) {
        if self.rules.is_empty() {
            work.left_out(self.place, format!("the Ingress `{}` has no limits", shorten(&self.name)));
            return;
        }
        work.differs(self.place, "every replica of the controller counts by itself, so N replicas admit N times as much. tollgate counts once; with `store: redis://…` over all nodes");
        work.differs(self.place, "a denied request gets 429 with Retry-After, not 503: 429 tells clients to slow down, and 5xx that the server fails");
        let mut names = Vec::new();
        for rule in self.rules {
            let name = work.rule_names.free(&rule.name);
            names.push(name.clone());
            work.draft.rules.push(RuleDraft { name, ..rule });
        }
        let comment = format!("{}: the Ingress {}", crate::draft::short(self.place), shorten(&self.name));
        let rates = names.len() - usize::from(self.in_progress.is_some());
        let mut add = |name: &str, comment: String, rules: &[String]| {
            let name = work.policy_names.free(name);
            work.draft.policies.push(PolicyDraft { name, comments: vec![comment], rules: rules.to_vec() });
        };
        if rates > 0 {
            add(&self.name, comment.clone(), &names[..rates]);
        }
        if let Some(place) = self.in_progress {
            let comment = format!("{comment}, for the gateway alone: it counts requests in progress");
            add(&format!("{}.{AT_GATEWAY}", self.name), comment, &names);
            work.differs(place, IN_PROGRESS);
        }
    }
}
