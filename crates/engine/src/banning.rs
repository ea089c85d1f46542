//! Bans by rules: a key that a rule keeps denying is put on the blocklist.
//!
//! A decision only records its denial, whether the store denied the attempt or this node's denial cache did.
//! The periodic task counts the recorded denials in the store like any other attempt, so that all nodes count
//! together, and bans. No decision waits for this.
//!
//! The recorded denials are bounded: beyond [`MOST_NOTED`] keys between two rounds, denials are not counted,
//! and a metric counts those. If the reply to a count is lost, the count is not repeated, so no key is banned
//! for denials that were counted twice.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tollgate_core::store::{Counter, Forget};
use tollgate_core::{
    Author, Banning, Charges, Decision, Listing, Origin, Outcome, Plan, Rule, Span, Stance, Target,
    Timestamp, Verdict, When,
};

use crate::counters::{Aim, Counters};
use crate::journal::Entry;
use crate::lists::{ListFault, LiveLists};
use crate::observer::Observer;
use crate::ticket;

/// Bans keys that rules keep denying.
pub(crate) struct Bans {
    denials: Denials,
    lists: Arc<LiveLists>,
    counters: Arc<Counters>,
    observer: Arc<Observer>,
}

/// Denials that are recorded and not counted yet.
struct Denials {
    shards: [Mutex<HashMap<Spotted, Noted>>; SHARDS],
    hasher: RandomState,
}

/// A rule and one of its keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Spotted {
    rule: Arc<str>,
    key: Box<str>,
}

/// The denials recorded for it.
#[derive(Clone, Debug)]
struct Noted {
    denials: u64,
    /// The policy of the last denial.
    policy: Arc<str>,
}

/// A ban to be set.
struct Ban<'r> {
    listing: Arc<Listing>,
    rule: &'r Rule,
    key: Box<str>,
    policy: Arc<str>,
}

const SHARDS: usize = 16;
/// The most keys for which denials are recorded between two rounds.
pub(crate) const MOST_NOTED: usize = 16_384;
/// The most keys that are counted in one round. The others wait for the next round.
const MOST_COUNTED: usize = 512;

impl Denials {
    fn new() -> Self {
        Self { shards: Default::default(), hasher: RandomState::new() }
    }

    /// Records denials of a key. Returns whether there was room.
    fn note(&self, counter: Spotted, denials: u64, policy: &Arc<str>) -> bool {
        let shard = &self.shards[self.hasher.hash_one(&counter) as usize % SHARDS];
        let mut noted = shard.lock();
        let room = noted.len() < MOST_NOTED / SHARDS;
        match noted.get_mut(&counter) {
            Some(known) => known.denials = known.denials.saturating_add(denials),
            None if room => drop(noted.insert(counter, Noted { denials, policy: Arc::clone(policy) })),
            None => return false,
        }
        true
    }

    /// Takes out all recorded denials.
    fn take(&self) -> Vec<(Spotted, Noted)> {
        self.shards.iter().flat_map(|shard| std::mem::take(&mut *shard.lock())).collect()
    }
}

impl Bans {
    pub(crate) fn new(lists: Arc<LiveLists>, counters: Arc<Counters>, observer: Arc<Observer>) -> Self {
        Self { denials: Denials::new(), lists, counters, observer }
    }

    /// Records a denial for every exceeded rule that bans.
    pub(crate) fn note(&self, decision: &Decision<'_>) {
        // A denial by a node's share of a limit, or without a limit, does not exceed the limit itself.
        if decision.verdict != Verdict::Deny || decision.origin != Origin::Store {
            return;
        }
        if decision.policy().rules.iter().all(|rule| banning_of(rule).is_none()) {
            return;
        }
        for line in decision.lines().filter(|line| banning_of(line.rule).is_some() && line.exceeded()) {
            let counter = Spotted { rule: Arc::clone(&line.rule.name), key: line.key.into() };
            if !self.denials.note(counter, 1, &decision.policy().name) {
                self.lists.meters.missed.inc();
            }
        }
    }

    /// Counts the recorded denials, and bans.
    pub(crate) async fn count(&self) {
        let mut noted = self.denials.take().into_iter();
        let pinned = self.counters.pin();
        let mut bans = Vec::new();
        for (counter, Noted { denials, policy }) in noted.by_ref().take(MOST_COUNTED) {
            let rule = pinned.policies.rule(&counter.rule);
            if let Some((rule, banning)) = rule.and_then(|rule| Some((rule, banning_of(rule)?)))
                && self.exceeds(banning, &counter, denials).await
                && let Some(listing) = self.ban_of(rule, banning, &counter.key)
            {
                bans.push(Ban { listing, rule, key: counter.key, policy });
            }
        }
        for (counter, Noted { denials, policy }) in noted {
            self.denials.note(counter, denials, &policy);
        }
        if !bans.is_empty() {
            self.ban(bans).await;
        }
    }

    /// Drops the recorded denials: the store cannot be used, and they would be counted too late.
    pub(crate) fn forget(&self) {
        self.denials.take();
    }

    /// Counts denials of a key. Returns whether they reach the rule's threshold; counting starts over then.
    async fn exceeds(&self, banning: Banning, counter: &Spotted, denials: u64) -> bool {
        let Some(limit) = banning.limit() else { return true };
        let plan = Plan::new(format!("{}~denials", counter.rule).into(), vec![limit]);
        let plan = Arc::new(plan.expect("one limit does not clash"));
        let mut charges = Charges::new(ticket::next(), denials, None);
        charges.push(&plan, &counter.key, true);
        let mut outcome = Outcome::default();
        let counted = self.counters.settle_in_store(Aim::Take, &mut charges, &mut outcome).await;
        if counted.is_err() || outcome.allowed {
            return false;
        }
        let place = Counter { plan: &plan, key: &counter.key };
        // If it stays, the next ban comes sooner.
        let _ = self.counters.ask(self.counters.store.forget(Forget::Key(place))).await;
        true
    }

    /// The entry that bans a key; `None` if the key is already blocked or is on the allowlist.
    fn ban_of(&self, rule: &Rule, banning: Banning, key: &str) -> Option<Arc<Listing>> {
        let target = Target::of_key(rule, key)?;
        let now = self.counters.time();
        let before = self.lists.set_for(&target);
        let blocked = before.as_ref().is_some_and(|before| before.is_live(now));
        if blocked || self.lists.in_force().allows(&target, || now) {
            return None;
        }
        Some(Arc::new(grown(rule, banning, target, before.as_deref(), now)))
    }

    /// Puts keys on the blocklist, as many as there is room for.
    async fn ban(&self, mut bans: Vec<Ban<'_>>) {
        let all = bans.len();
        bans.truncate(self.lists.room());
        let set = self.lists.set(bans.iter().map(|ban| Arc::clone(&ban.listing)).collect()).await;
        let banned = if set.is_ok() { bans.len() } else { 0 };
        for ban in bans.iter().take(banned) {
            self.tell_ban(ban);
        }
        let missed = all - banned;
        if missed > 0 {
            self.lists.meters.missed.inc_by(missed as u64);
            let error = set.err().unwrap_or(ListFault::Full);
            tracing::error!(component = "lists", missed, %error, "rules could not ban");
        }
    }

    /// Reports a ban to the log, the journal and a metric.
    fn tell_ban(&self, ban: &Ban<'_>) {
        let Ban { listing, rule, key, policy } = ban;
        let lasts = listing.until.map_or(Span::ZERO, |until| until.since(listing.since));
        let (name, times) = (&*rule.name, listing.times);
        tracing::warn!(component = "lists", rule = name, key = &**key, %lasts, times, "banned by a rule");
        self.lists.meters.count_ban(&rule.name);
        self.observer.journal.write(Entry {
            at: listing.since,
            policy: policy.to_string(),
            verdict: Verdict::Deny,
            origin: Origin::Blocked,
            rule: Some(name.to_owned()),
            code: rule.code.clone(),
            key: Some(key.to_string()),
            keys: vec![(Arc::clone(&rule.name), key.to_string())],
            correlation: None,
            listing: Some(Arc::clone(listing)),
            cost: 0,
            retry: When::After(lasts),
            observed: Vec::new(),
            token: None,
            banned: Some(lasts),
            locked: None,
        });
    }
}

/// When a rule bans. A rule with secret keys never bans, because the lists can be read.
fn banning_of(rule: &Rule) -> Option<Banning> {
    rule.ban.filter(|_| !rule.secret)
}

/// The entry that bans a key. It lasts longer if the same rule banned the key before and that ban is still
/// remembered.
fn grown(rule: &Rule, banning: Banning, target: Target, before: Option<&Listing>, now: Timestamp) -> Listing {
    let author = Author::Rule((&*rule.name).into());
    let remembered = before.filter(|before| {
        before.author == author && before.forgotten_at().is_some_and(|forgotten| now < forgotten)
    });
    let times = remembered.map_or(0, |before| before.times);
    Listing {
        target,
        stance: Stance::Block,
        since: now,
        until: Some(now + banning.lasts_after(times)),
        reason: format!("{} denials in {} by rule {}", banning.after(), banning.within(), rule.name).into(),
        show_reason: false,
        author,
        times: if banning.most().is_some() { times.saturating_add(1) } else { 0 },
    }
}
