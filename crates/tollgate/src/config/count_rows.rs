//! Rows that a rule counts, from what was written to what they mean.

use std::sync::Arc;

use tollgate_core::limit::InFlight;
use tollgate_core::rows::RowCount;
use tollgate_core::{Field, Limit, MAX_EXACT, OnOutage, Plan, Rule, Span};

use super::limits;
use super::problem::Findings;
use super::raw;
use super::tree::Path;

const RESERVE: Span = Span::from_secs(30);
const TIMEOUT: Span = Span::from_millis(250);
const MOST_TIMEOUT: Span = Span::from_secs(60);
const MOST_RESERVE: Span = Span::from_secs(86_400);
const MOST_CACHE: Span = Span::from_secs(3_600);
const MOST_QUERY_BYTES: usize = 10_000;

/// What a rule bounds: its limits, or the one that stands for rows that it counts.
pub(super) type Limited = (Arc<Plan>, Option<Arc<RowCount>>);

/// What a rule bounds; nothing if something is wrong.
pub(super) fn limited(
    name: &Arc<str>,
    written: &raw::Rule,
    by: Option<&[Field]>,
    path: &Path,
    findings: &mut Findings<'_>,
) -> Option<Limited> {
    let at = path.key("count_rows");
    match (&written.limits, &written.count_rows) {
        (Some(limits), None) => {
            limits::plan(name, limits, &path.key("limits"), findings).map(|plan| (plan, None))
        }
        (None, Some(rows)) => {
            let (plan, rows) = mean(name, rows, by?, &at, findings)?;
            Some((plan, Some(rows)))
        }
        (Some(_), Some(_)) => {
            findings.key(&at, "a rule that counts rows has no `limits`: put them into a rule of its own");
            None
        }
        (None, None) => {
            findings
                .key(path, "the rule has no `limits`: add them, as in `limits: 100/hour`, or `unlimited`");
            None
        }
    }
}

/// What a rule does without its store if it says nothing. No node can count rows by itself.
pub(super) fn default_of(default: OnOutage, (plan, rows): &Limited) -> OnOutage {
    match (default, rows) {
        (OnOutage::Local(_), Some(_)) => OnOutage::Deny,
        _ => default.as_default_of(plan),
    }
}

/// The plan of a rule that counts rows, and which rows; nothing if something is wrong.
fn mean(
    name: &Arc<str>,
    written: &raw::CountRows,
    by: &[Field],
    path: &Path,
    findings: &mut Findings<'_>,
) -> Option<(Arc<Plan>, Arc<RowCount>)> {
    let (at, query) = (path.key("query"), written.query.trim());
    let checked = check_query(query, by).map_err(|message| findings.value(&at, message));
    let mut span = |setting: &str, text: &Option<String>, default: Span, most: Span| {
        let at = path.key(setting);
        let span = text.as_ref().map_or(Some(default), |text| limits::span(text, &at, findings))?;
        if span > most {
            findings.value(&at, format!("`{span}` is too long: at most `{most}` is allowed"));
            return None;
        }
        Some(span)
    };
    let reserve = span("reserve", &written.reserve, RESERVE, MOST_RESERVE);
    let timeout = span("timeout", &written.timeout, TIMEOUT, MOST_TIMEOUT);
    // Everywhere else a duration of zero is an error.
    let cache = match written.cache.as_deref().map(str::trim) {
        Some("0" | "0s") => Span::ZERO,
        _ => span("cache", &written.cache, Span::ZERO, MOST_CACHE)?,
    };
    let (reserve, timeout) = (reserve?, timeout?);
    if reserve <= timeout {
        let message = format!(
            "a reservation of `{reserve}` may end while its rows are counted: it must be longer than `timeout`, `{timeout}`"
        );
        findings.value(&path.key("reserve"), message);
        return None;
    }
    if !(1..=MAX_EXACT).contains(&written.at_most) {
        let message = format!("at most how many? Write a number from 1 to {MAX_EXACT}");
        findings.value(&path.key("at_most"), message);
        return None;
    }
    checked.ok()?;
    let limit = Limit::InFlight(InFlight::new(written.at_most, Some(reserve)));
    let plan =
        Plan::new(Arc::clone(name), vec![limit]).map_err(|error| findings.value(path, error.to_string()));
    let rows = RowCount { database: written.database.as_str().into(), query: query.into(), timeout, cache };
    Some((Arc::new(plan.ok()?), Arc::new(rows)))
}

/// Reports limits of single keys that a rule which counts rows cannot have.
pub(super) fn check(rule: &Rule, plan: &Plan, path: &Path, findings: &mut Findings<'_>) {
    if let Some(limit) = rule.unfit_for_rows(plan.limits()) {
        findings.value(
            path,
            format!("`{limit}` does not count rows: write how many there may be and how long a place is reserved, as in `20 at once for 30s`"),
        );
    }
}

/// Whether a query has a parameter for each field, and no other.
fn check_query(query: &str, by: &[Field]) -> Result<(), String> {
    if query.is_empty() {
        return Err(
            "the query is empty: write one, as in `SELECT count(*) FROM deals WHERE advertiser = $1`".into(),
        );
    }
    if query.len() > MOST_QUERY_BYTES {
        return Err(format!("the query has {} bytes: at most {MOST_QUERY_BYTES} are allowed", query.len()));
    }
    let used = parameters(query);
    if let Some(number) = used.iter().find(|number| !(1..=by.len()).contains(*number)) {
        return Err(format!("there is no field for `${number}`: `by` has {} of them", by.len()));
    }
    match (1..=by.len()).find(|number| !used.contains(number)) {
        Some(number) => Err(format!(
            "the query does not use `${number}`, the value of `{}`: all keys would count the same rows",
            by[number - 1].name
        )),
        None => Ok(()),
    }
}

/// The numbers of the parameters in a query, outside of quoted text.
fn parameters(query: &str) -> Vec<usize> {
    let mut numbers = Vec::new();
    let mut quote = None;
    let mut rest = query;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '$') => {
                let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
                numbers.extend(rest[..digits].parse::<usize>());
                rest = &rest[digits..];
            }
            (None, _) => {}
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_found_outside_of_quoted_text() {
        assert_eq!(parameters("SELECT count(*) FROM a WHERE b = $1 AND c = $12"), [1, 12]);
        assert_eq!(parameters("SELECT '$1', \"$2\", 'it''s $3', $4::uuid"), [4]);
        assert_eq!(parameters("SELECT 'ü$', $ , $x"), Vec::<usize>::new());
    }
}
