//! Sendry: `rate_limit:` with six levels, and `domains:` with limits of their own.
//!
//! Its windows start with the first message, as ours do. A level that a message does not have is skipped.

use tollgate_tree::{Entry, Node, Path, Place};

use crate::draft::{PolicyDraft, RuleDraft};
use crate::section::Section;
use crate::work::{Keys, Work};

/// A level: its key in the file, its rule, the field it counts by, and what it bounds.
struct Level {
    key: &'static str,
    rule: &'static str,
    by: Option<&'static str>,
    comment: &'static str,
}

/// The levels at acceptance, in the order in which they are checked.
const ACCEPTANCE: [Level; 5] = [
    Level { key: "global", rule: "global", by: None, comment: "All messages that the server accepts." },
    Level { key: "default_domain", rule: "domain", by: Some("domain"), comment: "Each sender domain." },
    Level {
        key: "default_sender",
        rule: "sender",
        by: Some("sender"),
        comment: "Each sender, whatever the case of its address.",
    },
    Level { key: "default_ip", rule: "ip", by: Some("ip"), comment: "Each client address." },
    Level {
        key: "default_api_key",
        rule: "api_key",
        by: Some("api_key"),
        comment: "Each API key; `secret` keeps it out of answers, logs and lists.",
    },
];

const DELIVERY: Level = Level {
    key: "default_recipient_domain",
    rule: "recipient_domain",
    by: Some("recipient_domain"),
    comment: "Each recipient domain, when a message is sent. A message over the limit is deferred, never rejected.",
};

const UNRELATED: &str = "it is not about limits";
const UNKNOWN: &str = "Sendry has no such setting";

/// Limits of single domains, by domain.
type Overrides = Vec<(String, Vec<String>)>;

pub(crate) fn read(trees: &[&Node], work: &mut Work<'_>) {
    let mut rules: Vec<RuleDraft> = Vec::new();
    let mut senders = Keys::new(&["domain"]);
    let mut of_domains: Overrides = Vec::new();
    let mut levels: Option<&Place> = None;
    for tree in trees {
        let Some(mut top) = Section::of(tree, Path::default(), work) else { continue };
        if let Some(section) = top.section("rate_limit", work) {
            if let Some(before) = levels.replace(section.place) {
                work.wrong(section.place, format!("`rate_limit` is at {before} already: keep one of them"));
            }
            read_levels(section, &mut rules, work);
        }
        if let Some(mut domains) = top.section("domains", work) {
            for entry in domains.take_all() {
                of_domains.extend(read_domain(entry, &domains.path, &mut senders, work));
            }
        }
        top.leave(UNRELATED, work);
    }
    if !of_domains.is_empty() {
        match rules.iter_mut().find(|rule| rule.name == "domain") {
            Some(rule) => rule.overrides = of_domains,
            None => {
                let mut rule = of_level(&ACCEPTANCE[1], Vec::new());
                rule.overrides = of_domains;
                rules.push(rule);
            }
        }
    }
    write(rules, work);
}

fn read_levels(mut section: Section<'_>, rules: &mut Vec<RuleDraft>, work: &mut Work<'_>) {
    if let Some((enabled, place)) = section.flag("enabled", work) {
        work.draft.disabled = !enabled;
        work.exact(
            place,
            if enabled { "limits are enforced" } else { "`enabled: false`: nothing is limited" },
        );
    }
    if let Some((interval, place)) = section.text("flush_interval", work) {
        match tollgate_core::grammar::parse_span(&interval) {
            Ok(span) => {
                work.draft.store = Some(format!("{{ file: ./tollgate.redb, flush_interval: {span} }}"));
                work.exact(place, format!("counters are saved every {span}"));
            }
            Err(error) => work.wrong(place, format!("`{interval}` is not an interval: {}", error.problem)),
        }
    }
    for level in &ACCEPTANCE {
        let limits = section.section(level.key, work).map(|section| {
            if level.rule == "sender" {
                work.differs(section.place, "senders are the same whatever the case of their addresses");
            }
            windows(section, work)
        });
        rules.extend(limits.filter(|limits| !limits.is_empty()).map(|limits| of_level(level, limits)));
    }
    let default = section.section(DELIVERY.key, work).map(|section| windows(section, work));
    let mut overrides = Overrides::new();
    if let Some(mut domains) = section.section("recipient_domains", work) {
        let mut keys = Keys::new(&["recipient_domain"]);
        for entry in domains.take_all() {
            let path = domains.path.key(&entry.key);
            let Some(section) = Section::of(&entry.node, path, work) else { continue };
            let limits = windows(section, work);
            let key = keys.key(&[&entry.key], &entry.key_place, work);
            overrides.extend(key.map(|key| (key, limits)));
        }
    }
    let default = default.unwrap_or_default();
    if !default.is_empty() || !overrides.is_empty() {
        let mut rule = of_level(&DELIVERY, default);
        (rule.overrides, rule.on_exceed) = (overrides, Some("defer".to_owned()));
        rules.push(rule);
    }
    section.leave(UNKNOWN, work);
}

/// The limits of one sender domain.
fn read_domain(
    entry: &Entry,
    path: &Path,
    keys: &mut Keys,
    work: &mut Work<'_>,
) -> Option<(String, Vec<String>)> {
    let mut domain = Section::of(&entry.node, path.key(&entry.key), work)?;
    let limits = domain.section("rate_limit", work).map(|section| windows(section, work));
    domain.leave(UNRELATED, work);
    let key = keys.key(&[&entry.key], &entry.key_place, work)?;
    Some((key, limits?))
}

/// The limits of a level: an hour, a day, and the recipients of a message. 0 is no limit.
fn windows(mut section: Section<'_>, work: &mut Work<'_>) -> Vec<String> {
    let mut limits = Vec::new();
    let path = section.path.clone();
    let kinds = [
        ("messages_per_hour", "/hour"),
        ("messages_per_day", "/day"),
        ("recipients_per_message", " recipients per attempt"),
    ];
    for (key, ending) in kinds {
        let Some((number, place)) = section.whole(key, work) else { continue };
        match number {
            0 => work.exact(place, format!("`{}`: 0 is no limit", path.key(key))),
            number => {
                let limit = work.limit(place, &format!("{number}{ending}"));
                limit.iter().for_each(|limit| work.exact(place, format!("`{}` is `{limit}`", path.key(key))));
                limits.extend(limit);
            }
        }
    }
    section.leave(UNKNOWN, work);
    limits
}

fn of_level(level: &Level, limits: Vec<String>) -> RuleDraft {
    RuleDraft {
        name: level.rule.to_owned(),
        comments: vec![level.comment.to_owned()],
        by: level.by.iter().map(ToString::to_string).collect(),
        limits,
        secret: level.rule == "api_key",
        ..RuleDraft::default()
    }
}

fn write(mut rules: Vec<RuleDraft>, work: &mut Work<'_>) {
    let order = |rule: &RuleDraft| ACCEPTANCE.iter().position(|level| level.rule == rule.name);
    rules.sort_by_key(|rule| order(rule).unwrap_or(ACCEPTANCE.len()));
    let names = |delivery: bool| -> Vec<String> {
        let named = rules.iter().filter(|rule| (rule.name == DELIVERY.rule) == delivery);
        named.map(|rule| rule.name.clone()).collect()
    };
    let policies = [
        (
            "mail.accept",
            names(false),
            "Asked for every message, over SMTP or an API. All levels are charged, or none; a denial names the first that is exceeded.",
        ),
        ("mail.deliver", names(true), "Asked for every recipient, or recipient domain, before sending."),
    ];
    for (name, rules, comment) in policies {
        if !rules.is_empty() {
            let comments = vec![comment.to_owned()];
            work.draft.policies.push(PolicyDraft { name: name.to_owned(), comments, rules });
        }
    }
    for rule in &rules {
        match &*rule.name {
            "domain" => work.draft.field("domain", "{ of: sender }"),
            "recipient_domain" => work.draft.field("recipient_domain", "{ of: recipient }"),
            _ => {}
        }
    }
    if work.draft.store.is_none() {
        work.draft.store = Some("{ file: ./tollgate.redb, flush_interval: 10s }".to_owned());
    }
    if !rules.is_empty() {
        let settings = work.draft.policies.iter().map(|policy| match &*policy.name {
            "mail.accept" => "  accept: mail.accept\n",
            _ => "  deliver: mail.deliver\n",
        });
        let settings: String = settings.collect();
        work.draft.hints.push(format!(
            "With tollgate's own relay, these policies limit mail without a change to any program:\nrelay:\n  networks: [127.0.0.0/8]\n{settings}  accounts: {{ default/provider: {{ host: smtp.example.com }} }}"
        ));
    }
    work.draft.rules = rules;
}
