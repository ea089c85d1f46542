//! A whole replay: of one configuration, optionally with a curve, and optionally compared with another
//! configuration.

use std::sync::Arc;

use hashbrown::HashMap;
use smallvec::SmallVec;
use tollgate_core::{Policies, StoreError, Timestamp};

use crate::choose::{Choosing, Wishes};
use crate::curve::{Curve, NoCurve, Point};
use crate::feed::{Account, Feed, FeedError};
use crate::lane::{Fate, Lane, Moment, Named, Report};
use crate::order::Entry;
use crate::tally::{ClientSlots, Tally};
use crate::top::{Occurrence, Top, TopKey};

/// One configuration to replay.
#[derive(Clone)]
pub struct Setup {
    pub policies: Policies,
    /// The most keys in memory.
    pub max_keys: usize,
    /// The way in which the policy of an attempt is chosen.
    pub choosing: Arc<Choosing>,
}

pub struct Replay {
    main: Lane,
    tally: Tally,
    curve: Option<Curve>,
    against: Option<Against>,
    number: u64,
}

/// The result of a replay.
#[derive(Debug)]
pub struct Outcome {
    /// The counts of lines.
    pub account: Account,
    /// The counts of decisions.
    pub tally: Tally,
    /// The curve of a rule.
    pub curve: Option<(Arc<str>, Vec<Point>)>,
    /// The difference from another configuration.
    pub difference: Option<Difference>,
    /// The last time at which a key that counted something was evicted to make room for another. After that,
    /// the number of denials may be too low.
    pub last_eviction: Option<Timestamp>,
}

/// The difference between two configurations on the same attempts.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Attempts that the other configuration denies.
    pub denied_before: u64,
    /// Attempts that only this configuration denies.
    pub newly_denied: u64,
    /// Attempts that only the other one denies.
    pub newly_allowed: u64,
    /// The keys of the newly denied, by rule and key of this configuration.
    pub denied_keys: Top,
    /// The keys of the newly allowed, by rule and key of the other one.
    pub allowed_keys: Top,
}

/// The other configuration, and the difference so far.
struct Against {
    lane: Lane,
    difference: Difference,
    /// Attempts that only one of the two configurations has decided, because they wait in the other.
    open: HashMap<u64, Option<Named>>,
}

/// The most keys of a difference that are counted one by one.
const MOST_KEYS: usize = 10_000;

impl Replay {
    /// Prepares a replay.
    pub fn new(setup: Setup, wishes: &Wishes) -> Result<Self, StoreError> {
        let tally = Tally::new(passed_rules(&setup), client_slots(wishes));
        let main = Lane::new(setup.policies, setup.max_keys, setup.choosing, wishes)?;
        Ok(Self { main, tally, curve: None, against: None, number: 0 })
    }

    /// Adds the curve of a rule of these policies to the replay.
    pub fn with_curve(mut self, setup: &Setup, rule: &str, wishes: &Wishes) -> Result<Self, NoCurve> {
        let Setup { policies, max_keys, choosing } = setup;
        self.curve = Some(Curve::new(policies, rule, *max_keys, choosing, wishes, client_slots(wishes))?);
        Ok(self)
    }

    /// Compares the replay with another configuration.
    pub fn against(mut self, other: Setup, wishes: &Wishes) -> Result<Self, StoreError> {
        let lane = Lane::new(other.policies, other.max_keys, other.choosing, wishes)?;
        let difference = Difference {
            denied_before: 0,
            newly_denied: 0,
            newly_allowed: 0,
            denied_keys: Top::new(MOST_KEYS),
            allowed_keys: Top::new(MOST_KEYS),
        };
        self.against = Some(Against { lane, difference, open: HashMap::new() });
        Ok(self)
    }

    /// Replays logs. `each` also receives every report of the main configuration.
    pub fn run(mut self, feed: &mut Feed, each: &mut dyn FnMut(&Report<'_>)) -> Result<Outcome, FeedError> {
        feed.run(&mut |entry| self.attempt(entry, each))?;
        self.finish(each);
        let last_eviction = self.last_eviction();
        let Self { tally, curve, against, .. } = self;
        let curve = curve.map(|curve| (Arc::clone(&curve.rule), curve.points(&tally)));
        let difference = against.map(|against| against.difference);
        Ok(Outcome { account: feed.account.clone(), tally, curve, difference, last_eviction })
    }

    fn last_eviction(&self) -> Option<Timestamp> {
        let curve = self.curve.as_ref().and_then(Curve::last_eviction);
        let against = self.against.as_ref().and_then(|against| against.lane.last_eviction());
        self.main.last_eviction().into_iter().chain(curve).chain(against).max()
    }

    #[inline]
    fn attempt(&mut self, entry: &Entry<'_>, each: &mut dyn FnMut(&Report<'_>)) {
        let values: SmallVec<[Option<&str>; 12]> = entry.values().collect();
        let moment = Moment { number: self.number, entry, values: &values };
        self.number += 1;
        let Self { main, tally, against, curve, .. } = self;
        main.attempt(&moment, &mut |report| {
            if let Some(against) = against {
                against.hear(&report, Side::This);
            }
            each(&report);
            tally.hear(report);
        });
        if let Some(curve) = curve {
            curve.attempt(&moment);
        }
        if let Some(against) = against {
            against.attempt(&moment);
        }
    }

    fn finish(&mut self, each: &mut dyn FnMut(&Report<'_>)) {
        let Self { main, tally, against, curve, .. } = self;
        main.finish(&mut |report| {
            if let Some(against) = against {
                against.hear(&report, Side::This);
            }
            each(&report);
            tally.hear(report);
        });
        if let Some(curve) = curve {
            curve.finish();
        }
        if let Some(against) = against {
            against.finish();
        }
    }
}

/// The configuration that decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    This,
    Other,
}

impl Against {
    fn attempt(&mut self, moment: &Moment<'_>) {
        let Self { lane, difference, open } = self;
        lane.attempt(moment, &mut |report| note(difference, open, &report, Side::Other));
    }

    fn finish(&mut self) {
        let Self { lane, difference, open } = self;
        lane.finish(&mut |report| note(difference, open, &report, Side::Other));
    }

    fn hear(&mut self, report: &Report<'_>, side: Side) {
        note(&mut self.difference, &mut self.open, report, side);
    }
}

/// Compares the two results of an attempt, once both are known.
fn note(
    difference: &mut Difference,
    open: &mut HashMap<u64, Option<Named>>,
    report: &Report<'_>,
    side: Side,
) {
    let Report::Fate(moment, fate) = report else { return };
    let denied = match fate {
        Fate::Denied(named) => Some(&**named),
        _ => None,
    };
    if side == Side::Other {
        difference.denied_before += u64::from(denied.is_some());
    }
    let Some(first) = open.remove(&moment.number) else {
        open.insert(moment.number, denied.cloned());
        return;
    };
    let (this, other) = match side {
        Side::This => (denied, first.as_ref()),
        Side::Other => (first.as_ref(), denied),
    };
    let entry = moment.entry;
    let seen = Occurrence { at: entry.at, status: entry.status, agent: entry.agent, user: 0 };
    match (this, other) {
        (Some(named), None) => {
            difference.newly_denied += 1;
            difference.denied_keys.note(&joined(named), seen);
        }
        (None, Some(named)) => {
            difference.newly_allowed += 1;
            difference.allowed_keys.note(&joined(named), seen);
        }
        (Some(_), Some(_)) | (None, None) => {}
    }
}

/// Joins a rule and a key to one text. Names of rules contain no line feed.
fn joined(named: &Named) -> String {
    format!("{}\n{}", named.rule, named.key)
}

/// Splits an entry of a difference into its rule and key.
pub fn rule_and_key(entry: &TopKey) -> (&str, &str) {
    entry.key.split_once('\n').unwrap_or(("", &entry.key))
}

fn passed_rules(setup: &Setup) -> Vec<&Arc<str>> {
    let passed = setup.choosing.policies();
    let policies = passed.iter().filter_map(|name| setup.policies.named(name));
    let passed: Vec<&Arc<str>> = policies.flat_map(|policy| &policy.rules).map(|rule| &rule.name).collect();
    let rules = setup.policies.rules().iter().filter(|rule| rule.enabled).map(|rule| &rule.name);
    rules.filter(|rule| passed.contains(rule)).collect()
}

/// The slots of an attempt's client and user. Without an address, the user or the sender identifies the client.
fn client_slots(wishes: &Wishes) -> ClientSlots {
    let user = wishes.place("user");
    let address = wishes.place("ip").or_else(|| wishes.place("client_ip"));
    ClientSlots { client: [address, user, wishes.place("sender")], user }
}
