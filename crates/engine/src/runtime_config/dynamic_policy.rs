//! A policy created at run time: its record and its rule.
//!
//! A record consists of lines, each a word and its value. Lines with unknown words are skipped, so that nodes
//! of different versions can share the store. A line with a known word and a wrong value makes the whole
//! record unreadable.

use std::fmt::Write as _;
use std::sync::Arc;

use tollgate_core::{Field, Policies, Rule, Timestamp, grammar};

use super::policy_spec::{PolicyDraft, PolicySpec};

/// A policy created at run time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DynamicPolicy {
    /// Its definition.
    pub spec: PolicySpec,
    /// When it was created.
    pub created: Timestamp,
    /// When it was last changed.
    pub updated: Timestamp,
    /// The number of times that it was written, from 1.
    pub version: u64,
    /// Its record.
    written: Box<[u8]>,
}

impl DynamicPolicy {
    /// A policy created now.
    pub(crate) fn new(spec: PolicySpec, now: Timestamp) -> Self {
        Self::of(spec, now, now, 1)
    }

    /// This policy, changed now.
    pub(crate) fn changed(&self, spec: PolicySpec, now: Timestamp) -> Self {
        Self::of(spec, self.created, now, self.version + 1)
    }

    fn of(spec: PolicySpec, created: Timestamp, updated: Timestamp, version: u64) -> Self {
        let written = write(&spec, created, updated, version).into_bytes().into();
        Self { spec, created, updated, version, written }
    }

    /// Identifies exactly this state of the policy. No other state has the same tag, not even of a policy
    /// that is deleted and created again.
    pub fn tag(&self) -> String {
        format!("{:x}-{}", self.created.as_micros(), self.version)
    }

    /// Its record.
    pub(crate) fn written(&self) -> &[u8] {
        &self.written
    }

    /// Reads a record.
    pub(crate) fn read(name: &str, record: &[u8]) -> Option<Self> {
        let mut draft = PolicyDraft { name: name.to_owned(), ..PolicyDraft::default() };
        let (mut created, mut updated, mut version) = (None, None, None);
        for line in std::str::from_utf8(record).ok()?.split('\n') {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match word {
                "version" => version = Some(rest.parse().ok()?),
                "created" => created = Some(Timestamp::from_micros(rest.parse().ok()?)),
                "updated" => updated = Some(Timestamp::from_micros(rest.parse().ok()?)),
                "by" => draft.by.push(rest.to_owned()),
                "limit" => draft.limits.extend(grammar::parse(rest).ok()?),
                "on_exceed" => draft.on_exceed = Some(rest.parse().ok()?),
                "on_outage" => draft.on_outage = Some(rest.parse().ok()?),
                "description" => draft.description = unescape(rest),
                _ => {}
            }
        }
        let spec = PolicySpec::new(draft).ok()?;
        let written = record.into();
        Some(Self { spec, created: created?, updated: updated?, version: version?, written })
    }

    /// Its rule, with the field kinds of these policies.
    pub(crate) fn rule(&self, base: &Policies) -> Rule {
        let field = |name: &Arc<str>| Field { name: Arc::clone(name), kind: base.kind_of(name) };
        let spec = &self.spec;
        Rule {
            name: Arc::clone(&spec.name),
            code: None,
            by: spec.by.iter().map(field).collect(),
            plan: Arc::clone(&spec.plan),
            overrides: Default::default(),
            on_exceed: spec.on_exceed,
            on_outage: spec.in_outage(base.on_outage()),
            count: None,
            count_when: None,
            rows: None,
            ban: None,
            enabled: true,
            secret: false,
        }
    }
}

fn write(spec: &PolicySpec, created: Timestamp, updated: Timestamp, version: u64) -> String {
    let (created, updated) = (created.as_micros(), updated.as_micros());
    let mut text = format!("version {version}\ncreated {created}\nupdated {updated}");
    let mut line = |word: &str, rest: &dyn std::fmt::Display| {
        write!(text, "\n{word} {rest}").expect("a string takes everything");
    };
    spec.by.iter().for_each(|field| line("by", field));
    spec.plan.limits().iter().for_each(|limit| line("limit", limit));
    line("on_exceed", &spec.on_exceed);
    if let Some(on_outage) = &spec.on_outage {
        line("on_outage", on_outage);
    }
    if !spec.description.is_empty() {
        line("description", &escape(&spec.description));
    }
    text
}

fn escape(text: &str) -> String {
    text.replace('\\', r"\\").replace('\n', r"\n")
}

fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' if chars.as_str().starts_with('n') => {
                chars.next();
                plain.push('\n');
            }
            '\\' => plain.extend(chars.next()),
            c => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(description: &str) -> PolicyDraft {
        PolicyDraft {
            name: "partners".into(),
            description: description.into(),
            by: vec!["header.x-partner".into(), "ip".into()],
            limits: vec![
                "10/s burst 50".parse().unwrap(),
                "9/day calendar in Europe/Berlin".parse().unwrap(),
            ],
            on_exceed: Some("wait 2s".parse().unwrap()),
            on_outage: Some("local 1/3".parse().unwrap()),
        }
    }

    #[test]
    fn a_record_reads_back_as_it_was_written() {
        let at = Timestamp::from_micros;
        for text in ["", "for partners", "a\nb\\n\\", "\\", "\n", "version 9\nby x"] {
            let made = DynamicPolicy::new(PolicySpec::new(draft(text)).unwrap(), at(7));
            assert_eq!(DynamicPolicy::read("partners", made.written()), Some(made.clone()));
            let plain =
                PolicyDraft { name: "partners".into(), by: vec!["ip".into()], ..PolicyDraft::default() };
            let changed = made.changed(PolicySpec::new(plain).unwrap(), at(9));
            assert_eq!(DynamicPolicy::read("partners", changed.written()), Some(changed.clone()));
            let times = (changed.created, changed.updated, changed.version);
            assert_eq!(times, (at(7), at(9), 2));
            assert_ne!(made.tag(), changed.tag());
        }
    }

    #[test]
    fn unknown_lines_of_a_newer_node_are_skipped_and_wrong_ones_refused() {
        let made = DynamicPolicy::new(PolicySpec::new(draft("x")).unwrap(), Timestamp::ZERO);
        let text = String::from_utf8(made.written().to_vec()).unwrap();
        let newer = DynamicPolicy::read("partners", format!("{text}\ncolour red").as_bytes()).unwrap();
        assert_eq!(newer.spec, made.spec);
        for wrong in [
            String::new(),
            text.replace("version 1", "version one"),
            text.replace("version 1\n", ""),
            text.replace("10/s burst 50", "10/s burst 0"),
            text.replace("Europe/Berlin", "Europe/Berin"),
            text.replace("wait 2s", "wait"),
            text.replace("local 1/3", "local"),
            text.replace("by ip", "by i p"),
        ] {
            assert_eq!(DynamicPolicy::read("partners", wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(DynamicPolicy::read("Partners", text.as_bytes()), None);
        assert_eq!(DynamicPolicy::read("partners", b"\xff"), None);
    }
}
