//! Observability: the keys at the top of the rankings, and totals, of this node or of all that share the store.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::Method;
use schemars::JsonSchema;
use serde::Serialize;
use tollgate_core::Timestamp;
use tollgate_engine::nearest::Near;
use tollgate_engine::nodes::{NodeReport, Total};
use tollgate_engine::ranking::Ranked;

use super::App;
use super::auth::Role;
use super::endpoint::{Answered, Ask, Endpoint, Operation};
use super::page::limit;
use super::problem::Problem;
use super::shown::{Moment, json};

const TOP: &str = "/api/v1/top";

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Top")]
struct TopShown {
    /// The nodes that share the store, this one first; only with `nodes=all`.
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<Vec<NodeShown>>,
    /// The keys that are denied most, most first.
    offenders: Vec<OffenderShown>,
    /// The busiest keys, in a sample of all decisions.
    busiest: Vec<BusyShown>,
    /// The keys that rules with `on_exceed: observe` would have denied most, most first.
    observed: Vec<ObservedShown>,
    /// The keys nearest to their limits, nearest first: those of which less than a fifth of a limit is left.
    nearest: Vec<NearShown>,
    /// How often each outcome occurred since the start.
    totals: Vec<TotalShown>,
}

/// A node and when it reported.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Node")]
struct NodeShown {
    /// Its name: that of its machine, and its port.
    node: String,
    /// Its id: another one after a restart.
    id: String,
    /// When it reported (RFC 3339).
    #[schemars(with = "String")]
    at: Moment,
    /// How many milliseconds ago that was.
    age_ms: u64,
    /// Its decisions since it started.
    decisions: u64,
    /// Its decisions a second, in the last few seconds before the report.
    per_second: f64,
}

/// A denied key.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Offender")]
pub(crate) struct OffenderShown {
    /// The rule that denied it, or `blocklist`.
    rule: String,
    /// The key.
    key: String,
    /// How often, roughly.
    denied: u64,
    /// When it was last denied (RFC 3339).
    #[schemars(with = "String")]
    last: Moment,
}

/// A busy key.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Busy")]
pub(crate) struct BusyShown {
    /// The rule that counts it.
    rule: String,
    /// The key.
    key: String,
    /// How often it was sampled.
    seen: u64,
    /// When it was last sampled (RFC 3339).
    #[schemars(with = "String")]
    last: Moment,
}

/// A key that an observed rule would have denied.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Observed")]
pub(crate) struct ObservedShown {
    /// The rule.
    rule: String,
    /// The key.
    key: String,
    /// How often it would have been denied, roughly.
    would_deny: u64,
    /// When last (RFC 3339).
    #[schemars(with = "String")]
    last: Moment,
}

/// A key near its limit, as of its latest decision.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Near")]
pub(crate) struct NearShown {
    /// The rule.
    rule: String,
    /// The key.
    key: String,
    /// The limit of which the largest share is used.
    limit: String,
    /// What is used of it.
    used: u64,
    /// The most that can be used.
    capacity: u64,
    /// The used share, from 0.8 to 1.
    share: f64,
    /// Milliseconds until it is unused again; null if only a release or a reset does that.
    reset_after_ms: Option<u64>,
    /// When it was decided (RFC 3339).
    #[schemars(with = "String")]
    at: Moment,
}

/// The number of decisions with one outcome.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Total")]
struct TotalShown {
    policy: String,
    /// The rule that decided; empty for `allow` and `blocked`.
    rule: String,
    outcome: String,
    count: u64,
    /// How many a second, in the last few seconds before the nodes reported.
    per_second: f64,
}

pub(crate) fn endpoints() -> Vec<Endpoint> {
    let top = Operation::new(TOP, "Show the most denied, the busiest and other notable keys")
        .query(&[
            ("limit", "how many; 20 by default, at most 1000"),
            ("nodes", "`all` for all nodes that share the store; this one by default"),
        ])
        .answers::<TopShown>();
    vec![Endpoint::new(Method::GET, TOP, Some(Role::Read), show).does(top)]
}

async fn show(app: Arc<App>, ask: Ask) -> Answered {
    let most = limit(&ask, 20)?;
    let all = match ask.query("nodes") {
        None => false,
        Some("all") => true,
        Some(_) => return Err(Problem::bad_request("`nodes` is `all`, or absent for this node alone")),
    };
    let reports =
        if all { app.engine.nodes.reports(most).await? } else { vec![app.engine.nodes.report(most)] };
    let now = reports[0].at;
    let nodes = all.then(|| reports.iter().map(|report| NodeShown::of(report, now)).collect());
    let offenders = merged(reports.iter().flat_map(|report| &report.offenders), most);
    let busiest = merged(reports.iter().flat_map(|report| &report.busiest), most);
    let observed = merged(reports.iter().flat_map(|report| &report.observed), most);
    let nearest = nearest(reports.iter().flat_map(|report| &report.nearest), most, now);
    let totals = added(reports.into_iter().flat_map(|report| report.totals));
    Ok(json(&TopShown {
        nodes,
        offenders: offenders.into_iter().map(OffenderShown::from).collect(),
        busiest: busiest.into_iter().map(BusyShown::from).collect(),
        observed: observed.into_iter().map(ObservedShown::from).collect(),
        nearest,
        totals: totals.into_iter().map(TotalShown::from).collect(),
    }))
}

/// One ranking of several nodes' rankings, most frequent first.
fn merged<'r>(rankings: impl Iterator<Item = &'r Ranked>, most: usize) -> Vec<Ranked> {
    let mut by_key: BTreeMap<(&str, &str), Ranked> = BTreeMap::new();
    for ranked in rankings {
        by_key
            .entry((&ranked.rule, &ranked.key))
            .and_modify(|sum| {
                sum.count += ranked.count;
                sum.last = sum.last.max(ranked.last);
            })
            .or_insert_with(|| ranked.clone());
    }
    let mut all: Vec<Ranked> = by_key.into_values().collect();
    all.sort_by(Ranked::order);
    all.truncate(most);
    all
}

/// The keys nearest to their limits on several nodes, by the latest decision of each key.
fn nearest<'r>(all: impl Iterator<Item = &'r Near>, most: usize, now: Timestamp) -> Vec<NearShown> {
    let mut by_key: BTreeMap<(&str, &str), &Near> = BTreeMap::new();
    for near in all {
        let latest = by_key.entry((&near.rule, &near.key)).or_insert(near);
        if near.at > latest.at {
            *latest = near;
        }
    }
    let mut nearest: Vec<&Near> = by_key.into_values().collect();
    nearest.sort_by(|a, b| Near::order(a, b));
    nearest.into_iter().take(most).map(|near| NearShown::of(near, now)).collect()
}

/// The totals of several nodes, added up.
fn added(totals: impl Iterator<Item = Total>) -> Vec<Total> {
    let mut sums: BTreeMap<[Arc<str>; 3], Total> = BTreeMap::new();
    for total in totals {
        let labels = [&total.policy, &total.rule, &total.outcome].map(Arc::clone);
        sums.entry(labels)
            .and_modify(|sum| {
                sum.count += total.count;
                sum.per_second += total.per_second;
            })
            .or_insert(total);
    }
    sums.into_values().collect()
}

impl NodeShown {
    fn of(report: &NodeReport, now: Timestamp) -> Self {
        // An observed rule that was exceeded is no decision of its own.
        let decided = || report.totals.iter().filter(|total| *total.outcome != *"observe");
        Self {
            node: report.name.to_string(),
            id: report.id.clone(),
            at: Moment(report.at),
            age_ms: now.since(report.at).as_millis_ceil(),
            decisions: decided().map(|total| total.count).sum(),
            per_second: decided().map(|total| total.per_second).sum(),
        }
    }
}

impl From<Ranked> for OffenderShown {
    fn from(Ranked { rule, key, count, last }: Ranked) -> Self {
        Self { rule, key, denied: count, last: Moment(last) }
    }
}

impl From<Ranked> for BusyShown {
    fn from(Ranked { rule, key, count, last }: Ranked) -> Self {
        Self { rule, key, seen: count, last: Moment(last) }
    }
}

impl From<Ranked> for ObservedShown {
    fn from(Ranked { rule, key, count, last }: Ranked) -> Self {
        Self { rule, key, would_deny: count, last: Moment(last) }
    }
}

impl NearShown {
    pub(crate) fn of(near: &Near, now: Timestamp) -> Self {
        Self {
            rule: near.rule.clone(),
            key: near.key.clone(),
            limit: near.limit.clone(),
            used: near.used,
            capacity: near.capacity,
            share: near.share(),
            reset_after_ms: near.reset.map(|reset| reset.since(now).as_millis_ceil()),
            at: Moment(near.at),
        }
    }
}

impl From<Total> for TotalShown {
    fn from(Total { policy, rule, outcome, count, per_second }: Total) -> Self {
        let [policy, rule, outcome] = [policy, rule, outcome].map(|label| label.to_string());
        Self { policy, rule, outcome, count, per_second }
    }
}
