//! Limits in bodies: in the grammar of limits, or as a rate and a burst.

use tollgate_core::grammar::{self, GrammarError};
use tollgate_core::{Limit, Plan, Span};
use tollgate_engine::calendar::zone_exists;

use super::body::{OneOrMore, Text, Whole};
use super::problem::Problem;

/// Limits in the grammar, a single one or a list.
pub(crate) type Written<'b> = OneOrMore<{ Plan::MOST_LIMITS }, Text<'b>>;

/// The limits in a body, in either form.
pub(crate) fn wanted(
    limits: Option<&Written<'_>>,
    per_second: Option<Whole>,
    burst: Option<Whole>,
) -> Result<Vec<Limit>, Problem> {
    let refuse = |detail: &str| Err(Problem::bad_request(detail));
    match (limits, per_second, burst) {
        (Some(limits), None, None) => {
            let texts: Vec<&str> = limits.0.iter().map(Text::as_str).collect();
            read(&texts)
        }
        (Some(_), ..) => refuse("give either `limits`, or `requestsPerSecond` with `burstSize`"),
        (None, Some(Whole(0)), _) => {
            refuse("`requestsPerSecond` is at least 1; for fewer, write `limits`, as in `30/min burst 5`")
        }
        (None, _, Some(Whole(0))) => {
            refuse("`burstSize` is at least 1: a bucket with no room admits nothing")
        }
        (None, Some(Whole(rate)), Some(Whole(burst))) => read(&[&*format!("{rate}/s burst {burst}")]),
        (None, Some(_), None) => refuse("`requestsPerSecond` needs `burstSize`"),
        (None, None, Some(_)) => refuse("`burstSize` needs `requestsPerSecond`"),
        (None, None, None) => refuse(
            "limits are missing: give `requestsPerSecond` with `burstSize`, or `limits`, as in `{\"limits\":\"100/hour\"}`, or `unlimited`",
        ),
    }
}

/// Reads limits in the grammar. An error says where it is. No limit is written `unlimited`, not 0.
pub(crate) fn read(texts: &[&str]) -> Result<Vec<Limit>, Problem> {
    read_by(texts, grammar::parse_explicit)
}

/// As [`read`], for the members of a mail server, where 0 and null mean no limit.
pub(crate) fn read_mail(texts: &[&str]) -> Result<Vec<Limit>, Problem> {
    read_by(texts, grammar::parse)
}

fn read_by(
    texts: &[&str],
    parse: fn(&str) -> Result<grammar::Written, GrammarError>,
) -> Result<Vec<Limit>, Problem> {
    if texts.is_empty() {
        return Err(Problem::bad_request("an empty list: write `unlimited` if there is to be no limit"));
    }
    let mut limits = Vec::new();
    for text in texts {
        let limit = parse(text).map_err(|error| Problem::bad_request(error.to_string()))?;
        limits.extend(limit);
    }
    for zone in limits.iter().filter_map(|limit| limit.calendar()?.zone.as_deref()) {
        if !zone_exists(zone) {
            return Err(Problem::bad_request(format!("there is no time zone `{zone}`")));
        }
    }
    Ok(limits)
}

/// The rate per second and the burst, if the plan is just that.
pub(crate) fn rate_and_burst(plan: &Plan) -> Option<(u64, u64)> {
    let [limit] = plan.limits() else { return None };
    let bucket = limit.bucket().filter(|bucket| bucket.period() == Span::from_secs(1))?;
    Some((bucket.rate(), bucket.burst()))
}
