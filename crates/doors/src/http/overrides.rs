//! Overrides: limits of single keys, set and removed at run time.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollgate_core::{Clash, Limit, Plan, Policies, Rule, Span, grammar};
use tollgate_engine::live_config::OverrideEnd;

use super::App;
use super::audit::Change;
use super::body::{self, OneOrMore, Text, Whole};
use super::counters::{ALL, look, named};
use super::endpoint::{Answered, Ask};
use super::limits;
use super::mail_shape;
use super::path::{self, Place};
use super::problem::Problem;
use super::shown::{Moment, json};

/// Limits for one key: in the grammar of limits, or in the terms of a mail server, where 0 and null mean no
/// limit.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "OverrideRequest")]
pub(crate) struct OverrideBody<'b> {
    /// The limits, as in `["2000/hour", "20000/day"]`, or a single one, as in `"2000/hour"`; `"unlimited"`
    /// means no limit. No other member but `for` is allowed with them.
    #[serde(borrow, default)]
    limits: Option<OneOrMore<{ Plan::MOST_LIMITS }, Text<'b>>>,
    #[serde(default, deserialize_with = "mail_shape::present")]
    #[schemars(with = "Option<Whole>")]
    messages_per_hour: Option<u64>,
    #[serde(default, deserialize_with = "mail_shape::present")]
    #[schemars(with = "Option<Whole>")]
    messages_per_day: Option<u64>,
    #[serde(default, deserialize_with = "mail_shape::present")]
    #[schemars(with = "Option<Whole>")]
    recipients_per_message: Option<u64>,
    /// How long they last, as in `1d`; until they are removed by default.
    #[serde(borrow, default, rename = "for")]
    lasts: Option<Text<'b>>,
}

/// When limits of a key end that were set for a time.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "OverrideEnd")]
pub(crate) struct EndShown {
    /// When (RFC 3339).
    #[schemars(with = "String")]
    at: Moment,
    /// In how many milliseconds.
    after_ms: u64,
}

impl From<OverrideEnd> for EndShown {
    fn from(end: OverrideEnd) -> Self {
        Self { at: Moment(end.at), after_ms: end.after.as_millis_ceil() }
    }
}

/// Whether there was an override.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Removed {
    pub(crate) removed: bool,
}

pub(crate) async fn set_key(app: Arc<App>, ask: Ask) -> Answered {
    let (rule, key) = path::rest(&ask.uri);
    set(&app, &ask, |policies| Place::find(&app.engine.observer, policies, rule, key)).await
}

pub(crate) async fn set_domain(app: Arc<App>, ask: Ask) -> Answered {
    let (domain, _) = path::rest(&ask.uri);
    set(&app, &ask, |policies| match policies.rule(domain) {
        // A caller that forgot the key must not set limits for a domain with the rule's name.
        Some(rule) => {
            let name = &rule.name;
            Err(Problem::bad_request(format!("`{name}` is a rule: add a key, as in {ALL}/{name}/KEY")))
        }
        None => Place::find(&app.engine.observer, policies, "domain", domain),
    })
    .await
}

/// Sets the limits of a key, and returns its counts under them.
async fn set<F>(app: &App, ask: &Ask, find: F) -> Answered
where
    F: for<'p> Fn(&'p Policies) -> Result<Place<'p>, Problem>,
{
    let pinned = app.engine.pin();
    let place = find(&pinned.policies)?;
    let (limits, lasts) = wanted(place.rule, &ask.body)?;
    if let Some(clash) = Clash::find(&place.rule.name, &limits, pinned.policies.iter()) {
        return Err(Problem::bad_request(clash.to_string()));
    }
    if let Some(limit) = place.rule.uncountable(&limits) {
        return Err(Problem::bad_request(format!("`{limit}` cannot be combined with `count_when`")));
    }
    if let Some(limit) = place.rule.unfit_for_rows(&limits) {
        let detail = format!("`{limit}` does not count rows: give a limit as in `20 at once for 30s`");
        return Err(Problem::bad_request(detail));
    }
    let after = Some(described(&limits, lasts));
    let before = app.engine.config.set_override_for(&place.rule.name, &place.key, limits, lasts).await?;
    let what = &named(app, &place);
    Change { action: "override.set", what, before: before.map(|plan| plan.to_string()), after }.record(ask);
    let pinned = app.engine.pin();
    look(app, &find(&pinned.policies)?).await
}

/// Reads limits from either form, and how long they last.
fn wanted(rule: &Rule, bytes: &[u8]) -> Result<(Vec<Limit>, Option<Span>), Problem> {
    let OverrideBody { limits, messages_per_hour, messages_per_day, recipients_per_message, lasts } =
        body::read(bytes)?;
    let mail = mail_shape::written(messages_per_hour, messages_per_day, recipients_per_message);
    let limits = match limits {
        Some(_) if !mail.is_empty() => {
            return Err(Problem::bad_request("no other member but `for` is allowed with `limits`"));
        }
        Some(limits) if !limits.0.is_empty() => {
            limits::read(&limits.0.iter().map(Text::as_str).collect::<Vec<_>>())?
        }
        Some(_) | None if mail.is_empty() => {
            let detail = "limits are missing: give `{\"limits\":[\"2000/hour\"]}`, or `unlimited`, \
                      or messages_per_hour, messages_per_day, recipients_per_message";
            return Err(Problem::bad_request(detail));
        }
        _ => limits::read_mail(&mail.iter().map(String::as_str).collect::<Vec<_>>())?,
    };
    let plan = Plan::new(Arc::clone(&rule.name), limits);
    let plan = plan.map_err(|error| Problem::bad_request(error.to_string()))?;
    Ok((plan.limits().to_vec(), span(lasts.as_ref())?))
}

/// Reads how long limits last.
pub(crate) fn span(lasts: Option<&Text<'_>>) -> Result<Option<Span>, Problem> {
    let read = |text: &Text<'_>| grammar::parse_span(text.as_str());
    lasts.map(read).transpose().map_err(|error| Problem::bad_request(format!("`for`: {error}")))
}

/// Removes the limits of a key.
pub(crate) async fn remove(app: &App, ask: &Ask, place: &Place<'_>) -> Answered {
    let removed = app.engine.config.remove_override(&place.rule.name, &place.key).await?;
    let (what, before) = (&named(app, place), removed.map(|plan| plan.to_string()));
    let removed = before.is_some();
    if removed {
        Change { action: "override.remove", what, before, ..Change::default() }.record(ask);
    }
    Ok(json(&Removed { removed }))
}

/// Limits for the log.
fn described(limits: &[Limit], lasts: Option<Span>) -> String {
    let written = match limits {
        [] => "unlimited".to_owned(),
        limits => limits.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    };
    lasts.map_or_else(|| written.clone(), |lasts| format!("{written} for {lasts}"))
}
