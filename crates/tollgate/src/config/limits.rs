//! Limits and durations, from their text to their meaning.

mod idle;

use std::sync::Arc;

use tollgate_core::grammar::{self, GrammarError};
use tollgate_core::{Limit, Plan, Span};

use super::problem::Findings;
use super::raw::{LimitText, Limits};
use super::tree::Path;
use super::zones;
pub(in crate::config) use idle::most_within;

/// A duration, as in `10s`.
pub(super) fn span(text: &str, path: &Path, findings: &mut Findings<'_>) -> Option<Span> {
    grammar::parse_span(text).map_err(|error| findings.grammar(path, error)).ok()
}

/// The limits of the rule `name` at `path`.
pub(super) fn plan(
    name: &Arc<str>,
    written: &Limits,
    path: &Path,
    findings: &mut Findings<'_>,
) -> Option<Arc<Plan>> {
    let texts: Vec<(&LimitText, Path)> = match written {
        Limits::One(text) => vec![(text, path.clone())],
        Limits::Several(texts) => {
            texts.iter().enumerate().map(|(index, text)| (text, path.index(index))).collect()
        }
    };
    if texts.is_empty() {
        findings.value(path, "an empty list: write `unlimited` if there is to be no limit");
        return None;
    }
    let read: Vec<Option<Option<Limit>>> =
        texts.iter().map(|(LimitText(text), path)| limit(text, path, findings)).collect();
    let limits: Vec<Limit> = read.into_iter().collect::<Option<Vec<_>>>()?.into_iter().flatten().collect();
    if let Some((idle, other)) = idle::find(&limits) {
        findings.warn(
            path,
            &format!("`{idle}` never denies anything, because `{other}` allows less"),
            &format!("remove `{idle}`, or correct one of the two numbers or periods"),
        );
    }
    match Plan::new(Arc::clone(name), limits) {
        Ok(plan) => Some(Arc::new(plan)),
        Err(error) => {
            findings.value(path, error.to_string());
            None
        }
    }
}

/// A limit, or `Some(None)` for no limit; `None` if the text is invalid.
fn limit(text: &str, path: &Path, findings: &mut Findings<'_>) -> Option<Option<Limit>> {
    let limit = match grammar::parse(text) {
        Ok(limit) => limit,
        Err(error) => {
            findings.grammar(path, error);
            return None;
        }
    };
    if limit.is_none() && text.trim() != "unlimited" {
        findings.warn(
            path,
            "0 and null mean that nothing is limited, not that nothing passes",
            "write `unlimited`; to block a key, put it on the `blocklist`",
        );
    }
    let zone = limit.as_ref().and_then(Limit::calendar).and_then(|period| period.zone.as_ref());
    if let Some(problem) = zone.and_then(|zone| zones::problem(zone)) {
        let at = zone.and_then(|zone| text.rfind(&**zone)).unwrap_or(0);
        findings.grammar(path, GrammarError { text: text.to_owned(), at, problem });
        return None;
    }
    Some(limit)
}
