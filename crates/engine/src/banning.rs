//! Bans by rules: whoever a rule keeps denying is put on the blocklist.
//!
//! A denial is only noted when it is decided, whether the store denied or this node remembered that it
//! had. Whoever tends the engine counts what was noted, in the store like any other attempt, so that all
//! nodes count together; and bans. A decision waits for none of this.
//!
//! What is noted is bounded: beyond [`MOST_NOTED`] keys between two rounds, denials are not counted, and a
//! meter says so. A count whose answer is lost is lost too, so nobody is banned for what was counted twice.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tollgate_core::store::{Counter, Forget};
use tollgate_core::{
    Author, Banning, Charges, Decision, Listing, Origin, Outcome, Plan, Rule, Span, Stance, Target,
    Timestamp, Verdict, When,
};

use crate::engine::Aim;
use crate::engine::Engine;
use crate::journal::Entry;
use crate::lists::ListFault;
use crate::ticket;

/// Denials that nobody has counted yet.
pub(crate) struct Denials {
    shards: [Mutex<HashMap<Spotted, Noted>>; SHARDS],
    hasher: RandomState,
}

/// A rule and one of its keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Spotted {
    rule: Arc<str>,
    key: Box<str>,
}

/// What was noted there.
#[derive(Clone, Debug)]
struct Noted {
    denials: u64,
    /// The policy of the last one.
    policy: Arc<str>,
}

/// A ban that is to be.
struct Ban<'r> {
    listing: Arc<Listing>,
    rule: &'r Rule,
    key: Box<str>,
    policy: Arc<str>,
}

const SHARDS: usize = 16;
/// The most keys at which denials are noted between two rounds.
pub(crate) const MOST_NOTED: usize = 16_384;
/// The most keys that are counted in one round; the rest waits for the next.
const MOST_COUNTED: usize = 512;

impl Denials {
    pub(crate) fn new() -> Self {
        Self { shards: Default::default(), hasher: RandomState::new() }
    }

    /// Notes denials at a key. Answers whether there was room.
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

    /// Takes out what was noted.
    fn take(&self) -> Vec<(Spotted, Noted)> {
        self.shards.iter().flat_map(|shard| std::mem::take(&mut *shard.lock())).collect()
    }
}

impl Engine {
    /// Notes a denial at every rule that was exceeded and bans.
    pub(crate) fn note_denial(&self, decision: &Decision<'_>) {
        // Whoever is denied by a share of a limit, or without one, has not exceeded the limit.
        if decision.verdict != Verdict::Deny || decision.origin != Origin::Store {
            return;
        }
        if decision.policy().rules.iter().all(|rule| banning_of(rule).is_none()) {
            return;
        }
        for line in decision.lines().filter(|line| banning_of(line.rule).is_some() && line.exceeded()) {
            let counter = Spotted { rule: Arc::clone(&line.rule.name), key: line.key.into() };
            if !self.denials.note(counter, 1, &decision.policy().name) {
                self.barrier.meters.missed.inc();
            }
        }
    }

    /// Counts the denials that were noted, and bans.
    pub(crate) async fn count_denials(&self) {
        let mut noted = self.denials.take().into_iter();
        let pinned = self.pin();
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

    /// Forgets the denials that were noted: the store cannot be used, and they would be counted too late.
    pub(crate) fn forget_denials(&self) {
        self.denials.take();
    }

    /// Counts denials at a key. Answers whether they are as many as it takes; then counting begins anew.
    async fn exceeds(&self, banning: Banning, counter: &Spotted, denials: u64) -> bool {
        let Some(limit) = banning.limit() else { return true };
        let plan = Plan::new(format!("{}~denials", counter.rule).into(), vec![limit]);
        let plan = Arc::new(plan.expect("one limit does not clash"));
        let mut charges = Charges::new(ticket::next(), denials, None);
        charges.push(&plan, &counter.key, true);
        let mut outcome = Outcome::default();
        let counted = self.ask(self.settle(&*self.store, Aim::Take, &mut charges, &mut outcome)).await;
        if counted.is_err() || outcome.allowed {
            return false;
        }
        let place = Counter { plan: &plan, key: &counter.key };
        // If it stays, the next ban comes sooner.
        let _ = self.ask(self.store.forget(Forget::Key(place))).await;
        true
    }

    /// The entry that bans a key, unless it is barred already or on the allowlist.
    fn ban_of(&self, rule: &Rule, banning: Banning, key: &str) -> Option<Arc<Listing>> {
        let target = Target::of_key(rule, key)?;
        let now = self.store_time();
        let before = self.listed(&target);
        let barred = before.as_ref().is_some_and(|before| before.is_live(now));
        if barred || self.lists().allows(&target, || now) {
            return None;
        }
        Some(Arc::new(grown(rule, banning, target, before.as_deref(), now)))
    }

    /// Puts keys on the blocklist, as many as there is room for.
    async fn ban(&self, mut bans: Vec<Ban<'_>>) {
        let all = bans.len();
        bans.truncate(self.room());
        let set = self.set(bans.iter().map(|ban| Arc::clone(&ban.listing)).collect()).await;
        let made = if set.is_ok() { bans.len() } else { 0 };
        for ban in bans.iter().take(made) {
            self.tell_ban(ban);
        }
        let missed = all - made;
        if missed > 0 {
            self.barrier.meters.missed.inc_by(missed as u64);
            let error = set.err().unwrap_or(ListFault::Full);
            tracing::error!(component = "lists", missed, %error, "rules could not ban");
        }
    }

    /// Tells of a ban: the log, the journal and a meter.
    fn tell_ban(&self, ban: &Ban<'_>) {
        let Ban { listing, rule, key, policy } = ban;
        let lasts = listing.until.map_or(Span::ZERO, |until| until.since(listing.since));
        let (name, times) = (&*rule.name, listing.times);
        tracing::warn!(component = "lists", rule = name, key = &**key, %lasts, times, "banned by a rule");
        self.barrier.meters.count_ban(&rule.name);
        self.journal.write(Entry {
            at: listing.since,
            policy: policy.to_string(),
            verdict: Verdict::Deny,
            origin: Origin::Barred,
            rule: Some(name.to_owned()),
            code: rule.code.clone(),
            key: Some(key.to_string()),
            keys: vec![(Arc::clone(&rule.name), key.to_string())],
            correlation: None,
            listing: Some(Arc::clone(listing)),
            cost: 0,
            retry: When::After(lasts),
            banned: Some(lasts),
            locked: None,
        });
    }
}

/// When a rule bans. One whose keys are secret does not: the lists can be read.
fn banning_of(rule: &Rule) -> Option<Banning> {
    rule.ban.filter(|_| !rule.secret)
}

/// The entry that bans a key, which lasts longer if the same rule did before and it is not forgotten.
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
        told: false,
        author,
        times: if banning.most().is_some() { times.saturating_add(1) } else { 0 },
    }
}
