//! Limits and counts in the terms of a mail server: messages per hour and per day, recipients.
//!
//! Only windows of an hour and of a day fit these terms; 0 means no limit.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollgate_core::{Limit, Outcome, Plan, Policies, Rule, Span, Timestamp};
use tollgate_engine::Engine;

use super::body::Whole;
use super::shown::Moment;

const HOUR: Span = Span::from_secs(3_600);
const DAY: Span = Span::from_secs(86_400);

/// The field with the number of recipients.
const RECIPIENTS: &str = "recipients";

/// The limits of a rule, or of one key.
#[derive(Serialize, JsonSchema)]
pub(crate) struct MailLimits {
    messages_per_hour: u64,
    messages_per_day: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    recipients_per_message: Option<u64>,
}

/// The limits of a mail server's rules, as far as they exist.
#[derive(Default, Serialize, JsonSchema)]
pub(crate) struct MailSections {
    #[serde(skip_serializing_if = "Option::is_none")]
    global: Option<MailLimits>,
    #[serde(skip_serializing_if = "Option::is_none")]
    default_domain: Option<MailLimits>,
    #[serde(skip_serializing_if = "Option::is_none")]
    default_sender: Option<MailLimits>,
    #[serde(skip_serializing_if = "Option::is_none")]
    default_ip: Option<MailLimits>,
    #[serde(skip_serializing_if = "Option::is_none")]
    default_api_key: Option<MailLimits>,
    #[serde(skip_serializing_if = "Option::is_none")]
    default_recipient_domain: Option<MailLimits>,
    /// The domains with limits of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    domains: Option<BTreeMap<String, MailLimits>>,
    /// The recipients' domains with limits of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    recipient_domains: Option<BTreeMap<String, MailLimits>>,
}

/// The counts of a key, for rules with a window of an hour or a day.
#[derive(Serialize, JsonSchema)]
pub(crate) struct MailCounts<'r> {
    /// The rule.
    level: &'r str,
    hourly_count: u64,
    daily_count: u64,
    /// 0 means no limit.
    hourly_limit: u64,
    /// 0 means no limit.
    daily_limit: u64,
    /// When the first message of this hour was counted; null if no hour has started.
    #[schemars(with = "Option<String>")]
    hour_start: Option<Moment>,
    /// When the first message of this day was counted; null if no day has started.
    #[schemars(with = "Option<String>")]
    day_start: Option<Moment>,
}

/// A number that is present; null means 0, no limit.
pub(crate) fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let number = Option::<Whole>::deserialize(deserializer)?;
    Ok(Some(number.map_or(0, |number| number.0)))
}

/// The numbers in the grammar of limits.
pub(crate) fn written(per_hour: Option<u64>, per_day: Option<u64>, recipients: Option<u64>) -> Vec<String> {
    let forms = [
        per_hour.map(|number| format!("{number}/hour")),
        per_day.map(|number| format!("{number}/day")),
        recipients.map(|number| format!("{number} {RECIPIENTS} per attempt")),
    ];
    forms.into_iter().flatten().collect()
}

impl MailLimits {
    /// A plan in these terms, if part of it fits them or it is unlimited.
    fn of(plan: &Plan) -> Option<Self> {
        let recipients = plan
            .limits()
            .iter()
            .filter_map(Limit::per_attempt)
            .find(|bound| **bound.field() == *RECIPIENTS)
            .map(|bound| bound.max());
        let fits = plan.limits().is_empty() || fits(plan) || recipients.is_some();
        fits.then(|| Self {
            messages_per_hour: window(plan, HOUR).map_or(0, |(_, limit)| limit.number()),
            messages_per_day: window(plan, DAY).map_or(0, |(_, limit)| limit.number()),
            recipients_per_message: recipients,
        })
    }
}

impl MailSections {
    pub(crate) fn of(engine: &Engine, policies: &Policies) -> Self {
        let default = |name: &str| {
            let plan = &policies.rule(name)?.plan;
            if fits(plan) { MailLimits::of(plan) } else { None }
        };
        let own = |name: &str| policies.rule(name).map(|rule| overrides(engine, rule));
        Self {
            global: default("global"),
            default_domain: default("domain"),
            default_sender: default("sender"),
            default_ip: default("ip"),
            default_api_key: default("api_key"),
            default_recipient_domain: default("recipient_domain"),
            domains: own("domain"),
            recipient_domains: own("recipient_domain"),
        }
    }
}

impl<'r> MailCounts<'r> {
    /// The counts of a rule at a key under `plan`; `None` if neither `plan` nor the rule's own limits have a
    /// fitting window.
    pub(crate) fn of(rule: &'r Rule, plan: &Plan, outcome: &Outcome) -> Option<Self> {
        if !fits(plan) && !fits(&rule.plan) {
            return None;
        }
        let [hour, day] = [HOUR, DAY].map(|period| Count::of(plan, period, outcome));
        Some(Self {
            level: &rule.name,
            hourly_count: hour.count,
            daily_count: day.count,
            hourly_limit: hour.limit,
            daily_limit: day.limit,
            hour_start: hour.start.map(Moment),
            day_start: day.start.map(Moment),
        })
    }
}

/// The count, limit and start of one window.
#[derive(Default)]
struct Count {
    count: u64,
    limit: u64,
    start: Option<Timestamp>,
}

impl Count {
    fn of(plan: &Plan, period: Span, outcome: &Outcome) -> Self {
        let Some((index, limit)) = window(plan, period) else { return Self::default() };
        let reading = outcome.readings[index];
        Self {
            count: reading.capacity - reading.remaining,
            limit: limit.number(),
            // A window that has not started resets at once.
            start: reading.reset.filter(|reset| *reset > outcome.now).map(|reset| reset - period),
        }
    }
}

fn overrides(engine: &Engine, rule: &Arc<Rule>) -> BTreeMap<String, MailLimits> {
    let fitting = rule.overrides.iter().filter_map(|(key, plan)| Some((key, MailLimits::of(plan)?)));
    fitting.map(|(key, limits)| (engine.observer.shown_key(rule, key).into_owned(), limits)).collect()
}

fn fits(plan: &Plan) -> bool {
    window(plan, HOUR).is_some() || window(plan, DAY).is_some()
}

/// The window of this length, and its index among the limits.
fn window(plan: &Plan, period: Span) -> Option<(usize, &Limit)> {
    let mut limits = plan.limits().iter().enumerate();
    limits.find(|(_, limit)| limit.window().is_some_and(|window| window.period() == period))
}
