//! Shared by the laws: counters used through the public API, and random limits with numbers so small that
//! traces meet every boundary.

#![allow(dead_code, reason = "each file of laws uses its own part of this")]

use std::sync::Arc;

use proptest::prelude::*;
use tollgate_core::key::FieldKind;
use tollgate_core::limit::{Page, Period};
use tollgate_core::{
    Charges, Field, Limit, OnExceed, OnOutage, Outcome, Plan, Policy, Rule, State, Ticket, Timestamp, When,
};

/// The start of traces: far from the epoch, as real time is.
pub(crate) const START: u64 = 1_800_000_000_000_000;

/// The length of calendar periods in these tests: pages are made by hand, so they can be short.
pub(crate) const CALENDAR_MICROS: u64 = 40;

/// The moment this many microseconds after the start.
pub(crate) fn at(micros: u64) -> Timestamp {
    Timestamp::from_micros(START + micros)
}

/// A limit from its text.
pub(crate) fn limit(text: &str) -> Limit {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

/// The limits of one rule from their texts.
pub(crate) fn plan(rule: &str, limits: &[&str]) -> Arc<Plan> {
    Arc::new(Plan::new(rule.into(), limits.iter().map(|text| limit(text)).collect()).expect("limits differ"))
}

/// A rule that rejects, by fields of these kinds.
pub(crate) fn rule(name: &str, by: &[(&str, FieldKind)], limits: &[&str]) -> Rule {
    let fields = by.iter().map(|(name, kind)| Field { name: (*name).into(), kind: *kind });
    let plan = plan(name, limits);
    Rule {
        name: name.into(),
        by: fields.collect(),
        overrides: Default::default(),
        on_exceed: OnExceed::Reject,
        on_outage: OnOutage::of(&plan),
        plan,
        ban: None,
        code: None,
        count: None,
        count_when: None,
        rows: None,
        enabled: true,
        secret: false,
    }
}

/// A policy of these rules that does not allow unmatched attempts.
pub(crate) fn policy(rules: Vec<Rule>) -> Policy {
    Policy::new("policy".into(), rules.into_iter().map(Arc::new).collect(), false)
}

/// The page around a time for periods of [`CALENDAR_MICROS`].
pub(crate) fn page(period: &Period, now: Timestamp) -> Page {
    let start = now.as_micros() / CALENDAR_MICROS * CALENDAR_MICROS;
    let edges = [0, 1, 2].map(|index| Timestamp::from_micros(start + index * CALENDAR_MICROS));
    Page { period: period.clone(), edges }
}

/// One attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) cost: u64,
    pub(crate) ticket: Ticket,
    pub(crate) id: Option<&'a str>,
}

impl Ask<'_> {
    pub(crate) fn of(cost: u64) -> Self {
        Self { cost, ticket: Ticket(0), id: None }
    }

    pub(crate) fn by(cost: u64, ticket: u64) -> Self {
        Self { cost, ticket: Ticket(ticket), id: None }
    }
}

/// Some rules at one key each, and their states.
#[derive(Clone, Debug)]
pub(crate) struct Bench {
    pub(crate) plans: Vec<(Arc<Plan>, bool)>,
    pub(crate) states: Vec<State>,
}

impl Bench {
    /// Rules that are enforced or only observed.
    pub(crate) fn new(plans: Vec<(Arc<Plan>, bool)>) -> Self {
        let count = plans.iter().map(|(plan, _)| plan.limits().len()).sum();
        Self { plans, states: vec![State::Fresh; count] }
    }

    /// One enforced rule with one limit.
    pub(crate) fn one(text: &str) -> Self {
        Self::new(vec![(plan("rule", &[text]), true)])
    }

    /// One rule of several with its state, alone and enforced. Every rule has one limit.
    pub(crate) fn alone(&self, index: usize) -> Self {
        Self { plans: vec![(self.plans[index].0.clone(), true)], states: vec![self.states[index].clone()] }
    }

    /// The only limit of the rule at this index.
    pub(crate) fn limit(&self, index: usize) -> &Limit {
        &self.plans[index].0.limits()[0]
    }

    pub(crate) fn settle(&mut self, ask: Ask<'_>, now: Timestamp) -> Outcome {
        charges(&self.plans, ask, now).settle(&mut self.states, now).expect("the pages cover now")
    }

    /// What settling would return, on a copy of the states.
    pub(crate) fn look(&self, ask: Ask<'_>, now: Timestamp) -> Outcome {
        let mut states = self.states.clone();
        charges(&self.plans, ask, now).survey(&mut states, now).expect("the pages cover now")
    }

    /// What settling would return, on the states themselves.
    pub(crate) fn survey(&mut self, ask: Ask<'_>, now: Timestamp) -> Outcome {
        charges(&self.plans, ask, now).survey(&mut self.states, now).expect("the pages cover now")
    }

    /// Settles a whole trace from `now` on. Returns its end.
    pub(crate) fn run(&mut self, trace: &[(u64, u64)], mut now: u64) -> u64 {
        for (ticket, (wait, cost)) in (1_000..).zip(trace) {
            now += wait;
            self.settle(Ask::by(*cost, ticket), at(now));
        }
        now
    }

    /// Whether no later attempt at any single rule can tell these two apart.
    pub(crate) fn behaves_as(&self, other: &Self, now: u64) -> bool {
        (0..self.plans.len()).all(|index| self.alone(index).alone_behaves_as(&other.alone(index), now))
    }

    fn alone_behaves_as(&self, other: &Self, now: u64) -> bool {
        let costs = [0, 1, self.limit(0).capacity()];
        let waits = [0, 1, 7, 20, 41];
        waits.iter().all(|wait| {
            let then = at(now + wait);
            costs.iter().all(|cost| self.look(Ask::of(*cost), then) == other.look(Ask::of(*cost), then))
        })
    }

    pub(crate) fn refund(&mut self, ask: Ask<'_>, taken_at: Timestamp, now: Timestamp) {
        charges(&self.plans, ask, taken_at).refund(&mut self.states, taken_at, now);
    }

    /// When the attempt would pass every enforced rule.
    pub(crate) fn retry(&self, outcome: &Outcome) -> When {
        let enforced = self.plans.iter().flat_map(|(plan, enforced)| plan.limits().iter().map(|_| *enforced));
        let whens = outcome.readings.iter().zip(enforced).filter(|(_, enforced)| *enforced);
        whens.map(|(reading, _)| reading.when).max().unwrap_or(When::Now)
    }
}

fn charges<'a>(plans: &'a [(Arc<Plan>, bool)], ask: Ask<'a>, now: Timestamp) -> Charges<'a> {
    let mut charges = Charges::new(ask.ticket, ask.cost, ask.id);
    for (plan, enforced) in plans {
        charges.push(plan, "key", *enforced);
    }
    charges.calendar = charges.periods().map(|period| page(period, now)).collect();
    charges
}

/// A limit with a state: every kind except the bound on a single attempt.
pub(crate) fn any_limit() -> impl Strategy<Value = String> {
    prop_oneof![8 => quota(), 1 => ladder()]
}

/// A limit whose `remaining` can be taken: every kind with a state except ladders.
pub(crate) fn quota() -> impl Strategy<Value = String> {
    prop_oneof![
        (1..6_u64, 1..50_u64).prop_map(|(max, period)| format!("{max}/{period}us")),
        (1..6_u64).prop_map(|max| format!("{max}/min calendar")),
        (1..6_u64, 1..50_u64).prop_map(|(max, period)| format!("{max}/{period}us sliding")),
        slotted(),
        bucket(),
        (1..6_u64, 1..50_u64).prop_map(|(max, lease)| format!("{max} at once for {lease}us")),
        (1..6_u64).prop_map(|max| format!("{max} at once")),
        (1..30_u64).prop_map(|max| format!("{max} in total")),
    ]
}

/// A ladder of one to four steps, with random hints.
pub(crate) fn ladder() -> impl Strategy<Value = String> {
    let step =
        (1..4_u64, 0..15_u64, prop::sample::select(vec!["", " captcha", " notify", " captcha notify"]));
    (prop::collection::vec(step, 1..5), any::<bool>(), 0..40_u64).prop_map(|(steps, locks, longer)| {
        let (mut from, mut pause, mut text) = (0, 0, String::from("ladder"));
        for (index, (more, longer, hints)) in steps.iter().enumerate() {
            let last = index + 1 == steps.len();
            from += more;
            pause = (pause + longer).max(u64::from(last));
            let then = if index == 0 { "" } else { " then" };
            let wait = match pause {
                0 if hints.is_empty() => String::from(" captcha"),
                0 => String::new(),
                _ if last && locks => format!(" lock {pause}us"),
                _ => format!(" +{pause}us"),
            };
            text.push_str(&format!("{then} {from}{wait}{hints}"));
        }
        format!("{text} forget {}us", pause + longer)
    })
}

pub(crate) fn slotted() -> impl Strategy<Value = String> {
    (1..6_u64, 1..50_u64, 1..50_u64)
        .prop_map(|(max, a, b)| format!("{max}/{}us sliding by {}us", a.max(b), a.min(b)))
}

pub(crate) fn bucket() -> impl Strategy<Value = String> {
    (1..12_u64, 1..50_u64, 1..6_u64)
        .prop_map(|(rate, period, burst)| format!("{rate}/{period}us burst {burst}"))
}

/// Several rules of one limit each; about a quarter only observe.
pub(crate) fn any_bench() -> impl Strategy<Value = Bench> {
    let rule = (any_limit(), prop::bool::weighted(0.75));
    prop::collection::vec(rule, 1..5).prop_map(|rules| {
        let named = rules.iter().enumerate();
        Bench::new(named.map(|(index, (text, on))| (plan(&format!("rule{index}"), &[text]), *on)).collect())
    })
}

/// Costs and the time before each: mostly small, so that limits are met, and sometimes long.
pub(crate) fn any_trace() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let wait = prop_oneof![6 => 0..6_u64, 3 => 0..60_u64, 1 => 0..400_u64];
    let cost = prop_oneof![6 => 1..3_u64, 1 => 0..8_u64];
    prop::collection::vec((wait, cost), 1..60)
}
