//! The configuration that is being made, and its text.

use std::fmt::Write as _;

use tollgate_tree::Place;

use crate::report::{Finding, Verdict};
use crate::system::System;

/// The configuration so far.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    /// `enabled: false`, if the file says so.
    pub(crate) disabled: bool,
    /// The value of `store`, in YAML.
    pub(crate) store: Option<String>,
    /// The value of `on_outage`.
    pub(crate) on_outage: Option<String>,
    /// Kinds of fields, in YAML.
    pub(crate) fields: Vec<(String, String)>,
    /// Targets of the blocklist, each with a comment.
    pub(crate) blocklist: Vec<(String, String)>,
    pub(crate) rules: Vec<RuleDraft>,
    pub(crate) policies: Vec<PolicyDraft>,
    /// Further sections as they are, each with its lines.
    pub(crate) sections: Vec<String>,
    /// Comments at the end: how to go on.
    pub(crate) hints: Vec<String>,
    /// The environment variables with secrets.
    pub(crate) variables: Vec<String>,
}

/// A rule.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuleDraft {
    pub(crate) name: String,
    /// Comments above it, one for each line.
    pub(crate) comments: Vec<String>,
    pub(crate) code: Option<String>,
    pub(crate) by: Vec<String>,
    /// Its limits; none means `unlimited`.
    pub(crate) limits: Vec<String>,
    /// Limits of single keys; none means `unlimited`.
    pub(crate) overrides: Vec<(String, Vec<String>)>,
    /// The value of `on_exceed`, in YAML.
    pub(crate) on_exceed: Option<String>,
    pub(crate) on_outage: Option<String>,
    pub(crate) secret: bool,
}

/// A policy.
#[derive(Clone, Debug, Default)]
pub(crate) struct PolicyDraft {
    pub(crate) name: String,
    pub(crate) comments: Vec<String>,
    pub(crate) rules: Vec<String>,
}

impl Draft {
    /// Adds a field, unless it is there.
    pub(crate) fn field(&mut self, name: &str, kind: &str) {
        if !self.fields.iter().any(|(known, _)| known == name) {
            self.fields.push((name.to_owned(), kind.to_owned()));
        }
    }

    /// The text of the configuration.
    pub(crate) fn write(&self, system: System, files: &[&str], findings: &[Finding]) -> String {
        let mut out = Lines::default();
        out.comment("", &format!("Imported from {} ({system}) by `tollgate import`.", files.join(", ")));
        out.comment("", "Explain it with `tollgate check-config`, and run it with `tollgate serve`.");
        let open: Vec<&Finding> =
            findings.iter().filter(|finding| finding.verdict == Verdict::Answer).collect();
        if !open.is_empty() {
            out.comment("", "");
            out.comment("", "Open questions, and what was assumed:");
        }
        for finding in open.iter().take(MOST_ASSUMED) {
            out.comment("", &format!("- {}: {}", short(&finding.place), finding.message));
        }
        if open.len() > MOST_ASSUMED {
            out.comment("", &format!("- and {} more; the report has them all", open.len() - MOST_ASSUMED));
        }
        out.line("");
        self.write_settings(&mut out);
        if !self.rules.is_empty() {
            out.line("rules:");
        }
        for rule in &self.rules {
            rule.write(&mut out);
        }
        if !self.policies.is_empty() {
            out.line("");
            out.line("policies:");
        }
        for PolicyDraft { name, comments, rules } in &self.policies {
            comments.iter().for_each(|comment| out.comment("  ", comment));
            out.line(&format!("  {name}: [{}]", rules.join(", ")));
        }
        for section in &self.sections {
            out.line("");
            section.lines().for_each(|line| out.line(line));
        }
        for hint in &self.hints {
            out.line("");
            hint.lines().for_each(|line| out.comment("", line));
        }
        out.0
    }

    fn write_settings(&self, out: &mut Lines) {
        if self.disabled {
            out.comment("", "Nothing is limited: the files switch limits off.");
            out.line("enabled: false");
        }
        if let Some(store) = &self.store {
            out.line(&format!("store: {store}"));
        }
        if let Some(on_outage) = &self.on_outage {
            out.line(&format!("on_outage: {on_outage}"));
        }
        if self.disabled || self.store.is_some() || self.on_outage.is_some() {
            out.line("");
        }
        if !self.fields.is_empty() {
            out.line("fields:");
            self.fields.iter().for_each(|(name, kind)| out.line(&format!("  {}: {kind}", scalar(name))));
            out.line("");
        }
        if !self.blocklist.is_empty() {
            out.line("blocklist:");
            for (target, comment) in &self.blocklist {
                out.comment("  ", comment);
                out.line(&format!("  - {}", scalar(target)));
            }
            out.line("");
        }
    }
}

/// How many assumptions the head of the file lists.
const MOST_ASSUMED: usize = 20;

impl RuleDraft {
    fn write(&self, out: &mut Lines) {
        self.comments.iter().for_each(|comment| out.comment("  ", comment));
        out.line(&format!("  {}:", self.name));
        if let Some(code) = &self.code {
            out.line(&format!("    code: {}", scalar(code)));
        }
        match &*self.by {
            [] => {}
            [one] => out.line(&format!("    by: {}", scalar(one))),
            several => {
                let fields: Vec<String> = several.iter().map(|field| scalar(field)).collect();
                out.line(&format!("    by: [{}]", fields.join(", ")));
            }
        }
        out.line(&format!("    limits: {}", list(&self.limits)));
        for (setting, value) in [("on_exceed", &self.on_exceed), ("on_outage", &self.on_outage)] {
            value.iter().for_each(|value| out.line(&format!("    {setting}: {value}")));
        }
        if self.secret {
            out.line("    secret: true");
        }
        if !self.overrides.is_empty() {
            out.line("    overrides:");
        }
        for (key, limits) in &self.overrides {
            out.line(&format!("      {}: {}", scalar(key), list(limits)));
        }
    }
}

/// Limits, in YAML.
pub(crate) fn list(limits: &[String]) -> String {
    match limits {
        [] => "unlimited".to_owned(),
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

/// A text as a scalar of YAML: as it is where that is safe, and in quotes otherwise.
pub(crate) fn scalar(text: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/' | '@' | '+' | '=');
    let starts = text.starts_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/'));
    let word = text.to_ascii_lowercase();
    let reserved = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"].contains(&&*word);
    // `1e3`, `0x10`, `12` and `.inf` are numbers, and `2026-11-17` may be a date.
    let numeric = text.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && text.bytes().filter(|byte| *byte == b'.').count() < 3
        && !text.contains('/');
    if starts && text.chars().all(safe) && !reserved && !numeric {
        return text.to_owned();
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if acts(c) => write!(quoted, "\\U{:08X}", u32::from(c)).expect("a string takes everything"),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

/// Whether a character controls a terminal, ends a line or turns text.
fn acts(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{206f}' | '\u{feff}')
}

/// The text without characters that control a terminal, end a line or turn text.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if acts(c) { '\u{fffd}' } else { c }).collect()
}

/// A position without the column.
pub(crate) fn short(place: &Place) -> String {
    match place {
        Place::At { source, line, .. } => format!("{source}:{line}"),
        other => other.to_string(),
    }
}

#[derive(Default)]
struct Lines(String);

impl Lines {
    fn line(&mut self, text: &str) {
        self.0.push_str(text);
        self.0.push('\n');
    }

    /// A comment. Text of foreign files cannot end its line.
    fn comment(&mut self, indent: &str, text: &str) {
        self.line(format!("{indent}# {}", plain(text)).trim_end());
    }
}
