//! Counts decisions in bounded memory.

use std::sync::Arc;

use tollgate_core::{Span, Timestamp};

use crate::distinct::Distinct;
use crate::hash;
use crate::lane::{Fate, Moment, Named, Report};
use crate::timeline::Timeline;
use crate::top::{Occurrence, Top, TopKey};

/// The counts of all decisions.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Attempts that a policy decided.
    pub attempts: u64,
    /// Allowed attempts, including those that waited.
    pub allowed: u64,
    /// Allowed after a wait.
    pub delayed: u64,
    pub longest_wait: Span,
    pub deferred: u64,
    pub denied: u64,
    /// Attempts that at least one rule would have denied if it did not only observe. Each is also counted by its
    /// real result.
    pub observed: u64,
    /// Requests whose route has no policy.
    pub unlimited: u64,
    /// Requests without a route.
    pub unrouted: u64,
    /// Attempts that the server would refuse as a mistake.
    pub invalid: u64,
    /// The texts of the first mistakes.
    pub mistakes: Vec<String>,
    /// All clients.
    pub clients: Distinct,
    /// The clients of [`Tally::clients_of`], in the order of [`Way`].
    affected: [Distinct; 3],
    /// All rules, in the order of the configuration, and the blocklist if it denied.
    pub rules: Vec<RuleTally>,
    /// Allowed and denied attempts over time.
    pub timeline: Timeline,
    slots: ClientSlots,
    /// The number of the attempt that was observed last. Several rules may observe one attempt, which counts
    /// once.
    last_observed: Option<u64>,
}

/// The decisions that name one rule.
#[derive(Clone, Debug)]
pub struct RuleTally {
    pub rule: Arc<str>,
    /// Attempts that it denied.
    pub denied: Effect,
    /// Attempts that it deferred.
    pub deferred: Effect,
    /// Attempts that it would have denied, but only observes.
    pub observed: Effect,
    /// The clients that it denied, deferred, or would have denied.
    pub clients: Distinct,
}

/// The decisions of one kind that one rule made.
#[derive(Clone, Debug)]
pub struct Effect {
    /// The number of attempts.
    pub count: u64,
    /// The time of the first.
    pub first: Option<Timestamp>,
    /// The keys of the attempts.
    pub keys: Top,
}

/// The ways in which a rule affects attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It denies them.
    Denied,
    /// It defers them.
    Deferred,
    /// It would deny them, but only observes.
    Observed,
}

/// The slots of an attempt's client and user.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientSlots {
    /// The slots that may identify the client, such as its address. The first one that an attempt has counts.
    pub client: [Option<usize>; 3],
    pub user: Option<usize>,
}

/// The most keys of a rule that are counted individually.
const MOST_KEYS: usize = 10_000;
/// The number of mistakes to show.
const SHOWN: usize = 5;

impl Tally {
    /// Makes an empty tally for these rules.
    pub fn new<'r>(rules: impl IntoIterator<Item = &'r Arc<str>>, slots: ClientSlots) -> Self {
        Self {
            attempts: 0,
            allowed: 0,
            delayed: 0,
            longest_wait: Span::ZERO,
            deferred: 0,
            denied: 0,
            observed: 0,
            unlimited: 0,
            unrouted: 0,
            invalid: 0,
            mistakes: Vec::new(),
            clients: Distinct::default(),
            affected: Default::default(),
            rules: rules.into_iter().map(RuleTally::new).collect(),
            timeline: Timeline::default(),
            slots,
            last_observed: None,
        }
    }

    /// Counts a report of a lane.
    #[inline]
    pub fn hear(&mut self, report: Report<'_>) {
        match report {
            Report::Fate(moment, fate) => self.count(moment, fate),
            Report::Observed(moment, named) => {
                let another = self.last_observed.replace(moment.number) != Some(moment.number);
                self.observed += u64::from(another);
                self.note(moment, named, Way::Observed);
            }
        }
    }

    #[inline]
    fn count(&mut self, moment: &Moment<'_>, fate: &Fate) {
        match fate {
            Fate::Unlimited => self.unlimited += 1,
            Fate::Unrouted => self.unrouted += 1,
            Fate::Invalid(reason) => self.mistake(reason),
            Fate::Allowed(waited) => {
                self.allowed += 1;
                self.delayed += u64::from(*waited > Span::ZERO);
                self.longest_wait = self.longest_wait.max(*waited);
                self.attempt(moment, false);
            }
            Fate::Deferred(named) => {
                self.deferred += 1;
                self.attempt(moment, false);
                self.note(moment, named, Way::Deferred);
            }
            Fate::Denied(named) => {
                self.denied += 1;
                self.attempt(moment, true);
                self.note(moment, named, Way::Denied);
            }
        }
    }

    /// Counts an attempt that a policy decided.
    #[inline]
    fn attempt(&mut self, moment: &Moment<'_>, denied: bool) {
        self.attempts += 1;
        self.timeline.count(moment.entry.at, denied);
        if let Some(client) = self.client_of(moment) {
            self.clients.note(client);
        }
    }

    /// The hash of the client of an attempt, if it is known.
    #[inline]
    fn client_of(&self, moment: &Moment<'_>) -> Option<u64> {
        let mut slots = self.slots.client.iter().flatten();
        slots.find_map(|slot| moment.values[*slot]).map(|client| hash(client.as_bytes()))
    }

    /// Counts a decision of a rule.
    #[cold]
    fn note(&mut self, moment: &Moment<'_>, named: &Named, way: Way) {
        let place = self.rules.iter().position(|rule| rule.rule == named.rule).unwrap_or_else(|| {
            self.rules.push(RuleTally::new(&named.rule));
            self.rules.len() - 1
        });
        let client = self.client_of(moment);
        let user = self.slots.user.and_then(|slot| moment.values[slot]);
        let user = user.map_or(0, |user| hash(user.as_bytes()).max(1));
        let rule = &mut self.rules[place];
        if let Some(client) = client {
            rule.clients.note(client);
            self.affected[way as usize].note(client);
        }
        let effect = match way {
            Way::Denied => &mut rule.denied,
            Way::Deferred => &mut rule.deferred,
            Way::Observed => &mut rule.observed,
        };
        let at = moment.entry.at;
        effect.count += 1;
        effect.first = Some(effect.first.map_or(at, |first| first.min(at)));
        let (status, agent) = (moment.entry.status, moment.entry.agent);
        effect.keys.note(&named.key, Occurrence { at, status, agent, user });
    }

    #[cold]
    fn mistake(&mut self, reason: &str) {
        self.invalid += 1;
        if self.mistakes.len() < SHOWN && !self.mistakes.iter().any(|known| known == reason) {
            self.mistakes.push(reason.to_owned());
        }
    }

    /// The most frequent keys of all rules, for one kind of decision.
    pub fn top_keys(&self, way: Way, most: usize) -> Vec<(Arc<str>, TopKey)> {
        let of_rule = |rule: &RuleTally| {
            let name = Arc::clone(&rule.rule);
            rule.effect(way).keys.ranked(most).into_iter().map(move |key| (Arc::clone(&name), key))
        };
        let mut keys: Vec<_> = self.rules.iter().flat_map(of_rule).collect();
        keys.sort_by(|(_, a), (_, b)| b.count.cmp(&a.count).then(a.first.cmp(&b.first)));
        keys.truncate(most);
        keys
    }

    /// The tally of a rule.
    pub fn rule(&self, name: &str) -> Option<&RuleTally> {
        self.rules.iter().find(|rule| *rule.rule == *name)
    }

    /// The number of attempts that were affected in this way.
    pub fn attempts_of(&self, way: Way) -> u64 {
        match way {
            Way::Denied => self.denied,
            Way::Deferred => self.deferred,
            Way::Observed => self.observed,
        }
    }

    /// The clients that were affected in this way at least once.
    pub fn clients_of(&self, way: Way) -> &Distinct {
        &self.affected[way as usize]
    }

    /// The time at which an attempt was first affected in this way.
    pub fn first_of(&self, way: Way) -> Option<Timestamp> {
        self.rules.iter().filter_map(|rule| rule.effect(way).first).min()
    }

    /// The share of attempts that were denied, from 0 to 1.
    pub fn denied_share(&self) -> f64 {
        if self.attempts == 0 { 0.0 } else { self.denied as f64 / self.attempts as f64 }
    }
}

impl RuleTally {
    fn new(rule: &Arc<str>) -> Self {
        let [denied, deferred, observed] =
            std::array::from_fn(|_| Effect { count: 0, first: None, keys: Top::new(MOST_KEYS) });
        Self { rule: Arc::clone(rule), denied, deferred, observed, clients: Distinct::default() }
    }

    /// The rule's decisions of one kind.
    pub fn effect(&self, way: Way) -> &Effect {
        match way {
            Way::Denied => &self.denied,
            Way::Deferred => &self.deferred,
            Way::Observed => &self.observed,
        }
    }

    /// The number of attempts that the rule denied, deferred, or would have denied.
    pub fn affected(&self) -> u64 {
        self.denied.count + self.deferred.count + self.observed.count
    }

    /// The time at which the rule first affected an attempt.
    pub fn first(&self) -> Option<Timestamp> {
        [&self.denied, &self.deferred, &self.observed].iter().filter_map(|effect| effect.first).min()
    }
}
