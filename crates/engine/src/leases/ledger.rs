//! All leases, with the keys and homes of their holds. Pure: time and policies are arguments, and calls to the
//! store are returned as chores.

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use smallvec::SmallVec;
use tollgate_core::limit::InFlight;
use tollgate_core::{Plan, Span, Timestamp};

use super::chore::{ByHome, Chore, Done, Held};
use super::inbox::{Kept, KeptSite, Letters};
use crate::live_config::Snapshot;
use crate::receipt::Home;

/// All leases.
#[derive(Default)]
pub(super) struct Ledger {
    leases: HashMap<u64, Lasting>,
    /// The keys at which leases ended since the last release.
    stirred: HashSet<Site>,
    places: HashMap<Site, LeasePlace>,
}

/// One rule at one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Site {
    pub(super) rule: Arc<str>,
    pub(super) key: Arc<str>,
}

/// The homes that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    Everywhere,
    /// The store cannot be used.
    Local,
}

/// A live lease.
struct Lasting {
    id: Arc<str>,
    sites: SmallVec<[Site; 2]>,
}

/// The holds at one key.
struct LeasePlace {
    /// The limits at the last take, for when the rule is gone.
    plan: Arc<Plan>,
    held: ByHome<Group>,
    /// Live holds that are in no home.
    adrift: HashMap<Arc<str>, Member>,
    /// Ended holds that are still to be released.
    ended: HashMap<Arc<str>, Ended>,
    /// When to claim the holds that are not in the store.
    claim_at: Timestamp,
}

/// The holds at one key in one home.
#[derive(Default)]
struct Group {
    members: HashMap<Arc<str>, Member>,
    /// No hold was last renewed before this.
    renewed: Timestamp,
}

#[derive(Clone, Copy)]
struct Member {
    lease: u64,
    weight: u64,
    /// When the hold was taken.
    at: Timestamp,
}

struct Ended {
    home: Home,
    /// When the hold was taken or last renewed.
    renewed: Timestamp,
}

/// The current limits at a key, if its rule still exists.
struct Current<'p> {
    store: Option<&'p Arc<Plan>>,
    local: Option<&'p Arc<Plan>>,
}

/// The pause before holds are claimed again if there was no room, unless a renewal comes earlier.
const CLAIM_EVERY: Span = Span::from_secs(10);

impl Ledger {
    /// Takes over new and dropped leases.
    pub(super) fn absorb(&mut self, letters: Letters) {
        for (number, kept) in letters.kept {
            self.keep(number, &kept);
        }
        for number in letters.dropped {
            if let Some(lasting) = self.leases.remove(&number) {
                lasting.end(number, &mut self.places);
                self.stirred.extend(lasting.sites);
            }
        }
    }

    fn keep(&mut self, number: u64, kept: &Kept) {
        let mut sites = SmallVec::new();
        for KeptSite { plan, key, weight } in &kept.sites {
            let member = Member { lease: number, weight: *weight, at: kept.at };
            let site = Site { rule: Arc::clone(plan.rule()), key: Arc::clone(key) };
            let place = self.places.entry(site.clone()).or_insert_with(|| LeasePlace::new(plan, kept.at));
            place.plan = Arc::clone(plan);
            place.held.of_mut(kept.home).insert(&kept.id, member);
            if kept.home == Home::Local {
                place.claim_at = kept.at;
            }
            sites.push(site);
        }
        self.leases.insert(number, Lasting { id: Arc::clone(&kept.id), sites });
    }

    /// Ends all leases.
    pub(super) fn end_all(&mut self) {
        for (number, lasting) in self.leases.drain() {
            lasting.end(number, &mut self.places);
        }
    }

    /// The releases to do now, at keys where leases ended since the last call. Releases that cannot be done
    /// now come with [`Self::chores`].
    pub(super) fn releases(&mut self, pinned: &Snapshot, reach: Reach, now: Timestamp) -> Vec<Chore> {
        let release = |site: Site| {
            let place = self.places.get(&site)?;
            place.release(&site, &Current::of(&site, pinned), reach, now)
        };
        self.stirred.drain().filter_map(release).collect()
    }

    /// The work to do now, for all keys.
    pub(super) fn chores(&mut self, pinned: &Snapshot, reach: Reach, now: Timestamp) -> Vec<Chore> {
        let mut chores = Vec::new();
        self.stirred.clear();
        self.places.retain(|site, place| {
            let current = Current::of(site, pinned);
            place.forget_run_out(&current, now);
            chores.extend(place.chore(site, &current, reach, now));
            !place.is_empty()
        });
        chores
    }

    /// Records the result of a chore.
    pub(super) fn note(&mut self, done: Done, now: Timestamp) {
        if let Some(place) = self.places.get_mut(&done.site) {
            place.note(done, now);
        }
    }
}

impl Reach {
    fn homes(self) -> &'static [Home] {
        match self {
            Self::Everywhere => &[Home::Store, Home::Local],
            Self::Local => &[Home::Local],
        }
    }
}

impl Lasting {
    /// Ends the holds of this lease.
    fn end(&self, number: u64, places: &mut HashMap<Site, LeasePlace>) {
        for site in &self.sites {
            if let Some(place) = places.get_mut(site) {
                place.end(&self.id, number);
            }
        }
    }
}

impl<'p> Current<'p> {
    fn of(site: &Site, pinned: &'p Snapshot) -> Self {
        let at = |home| Some(pinned.policies_of(home).rule(&site.rule)?.plan_at(&site.key));
        Self { store: at(Home::Store), local: at(Home::Local) }
    }

    /// The limit on holds; `None` if there is none any more, and nothing to keep up.
    fn limit(&self) -> Option<&'p InFlight> {
        self.store.and_then(|plan| plan.in_flight()).map(|(_, limit)| limit)
    }
}

impl Group {
    fn insert(&mut self, id: &Arc<str>, member: Member) {
        self.renewed = if self.members.is_empty() { member.at } else { self.renewed.min(member.at) };
        self.members.insert(Arc::clone(id), member);
    }

    /// Whether they are due for renewal.
    fn is_due(&self, lease: Option<Span>, now: Timestamp) -> bool {
        !self.members.is_empty() && lease.is_some_and(|lease| self.renewed + third(lease) <= now)
    }
}

impl LeasePlace {
    fn new(plan: &Arc<Plan>, now: Timestamp) -> Self {
        let (held, adrift, ended) = (ByHome::default(), HashMap::new(), HashMap::new());
        Self { plan: Arc::clone(plan), held, adrift, ended, claim_at: now }
    }

    /// Ends the holds of a lease here.
    fn end(&mut self, id: &Arc<str>, lease: u64) {
        let take_own = |members: &mut HashMap<Arc<str>, Member>| {
            let own = members.get(id).is_some_and(|member| member.lease == lease);
            if own { members.remove(id) } else { None }
        };
        for home in [Home::Store, Home::Local] {
            let group = self.held.of_mut(home);
            if let Some(member) = take_own(&mut group.members) {
                let renewed = group.renewed.max(member.at);
                self.ended.insert(Arc::clone(id), Ended { home, renewed });
            }
        }
        take_own(&mut self.adrift);
    }

    /// Whether there is nothing left to do here.
    fn is_empty(&self) -> bool {
        self.held.store.members.is_empty() && self.all_in_store() && self.ended.is_empty()
    }

    /// Forgets ended holds that have expired: they need not be released.
    fn forget_run_out(&mut self, current: &Current<'_>, now: Timestamp) {
        let limit = current.limit().or_else(|| self.plan.in_flight().map(|(_, limit)| limit));
        if let Some(lease) = limit.and_then(InFlight::lease) {
            self.ended.retain(|_, ended| now < ended.renewed + lease);
        }
    }

    /// The releases to do here, if there are any.
    fn release(&self, site: &Site, current: &Current<'_>, reach: Reach, now: Timestamp) -> Option<Chore> {
        let mut chore = Chore::new(site, self.plans(current), now);
        for home in reach.homes() {
            *chore.release.of_mut(*home) = self.ended_in(*home);
        }
        reach.homes().iter().any(|home| !chore.release.of(*home).is_empty()).then_some(chore)
    }

    /// The current limits here.
    fn plans(&self, current: &Current<'_>) -> ByHome<Arc<Plan>> {
        let plan = |current: Option<&Arc<Plan>>| Arc::clone(current.unwrap_or(&self.plan));
        ByHome { store: plan(current.store), local: plan(current.local) }
    }

    /// The holds to release in a home.
    fn ended_in(&self, home: Home) -> Vec<Arc<str>> {
        let ended = self.ended.iter().filter(|(_, ended)| ended.home == home);
        ended.map(|(id, _)| Arc::clone(id)).collect()
    }

    /// The work to do here now, if there is any.
    fn chore(&self, site: &Site, current: &Current<'_>, reach: Reach, now: Timestamp) -> Option<Chore> {
        let limit = current.limit();
        let lease = limit.and_then(InFlight::lease);
        let homes = reach.homes();
        let due = |home: &Home| self.held.of(*home).is_due(lease, now);
        let ends = |home: &Home| self.ended.values().any(|ended| ended.home == *home);
        let claims = limit.is_some() && reach == Reach::Everywhere;
        let claims_now = claims && self.claim_at <= now && !self.all_in_store();
        if !claims_now && !homes.iter().any(|home| due(home) || ends(home)) {
            return None;
        }
        let mut chore = Chore { claims_lost: claims, ..Chore::new(site, self.plans(current), now) };
        for home in homes {
            *chore.release.of_mut(*home) = self.ended_in(*home);
            if due(home) {
                *chore.renew.of_mut(*home) = self.held.of(*home).members.iter().map(held).collect();
            }
        }
        if claims_now {
            let local = self.held.local.members.iter().map(|one| (held(one), Some(Home::Local)));
            chore.claim = local.chain(self.adrift.iter().map(|one| (held(one), None))).collect();
        }
        Some(chore)
    }

    /// Whether every live hold is in the store.
    fn all_in_store(&self) -> bool {
        self.held.local.members.is_empty() && self.adrift.is_empty()
    }

    fn note(&mut self, done: Done, now: Timestamp) {
        for id in &done.released {
            self.ended.remove(id);
        }
        for home in [Home::Store, Home::Local] {
            let group = self.held.of_mut(home);
            if *done.renewed.of(home) && group.renewed < done.began {
                group.renewed = done.began;
            }
        }
        for held in &done.lost {
            for home in [Home::Store, Home::Local] {
                if let Some(member) = self.held.of_mut(home).members.remove(&held.id) {
                    self.adrift.insert(Arc::clone(&held.id), member);
                }
            }
        }
        for id in &done.claimed {
            let found = self.adrift.remove(id).or_else(|| self.held.local.members.remove(id));
            if let Some(member) = found {
                self.held.store.insert(id, Member { at: done.began, ..member });
            }
        }
        if done.refused {
            let lease = self.plan.in_flight().and_then(|(_, limit)| limit.lease());
            self.claim_at = now + lease.map_or(CLAIM_EVERY, third);
        }
    }
}

fn held((id, member): (&Arc<str>, &Member)) -> Held {
    Held { id: Arc::clone(id), weight: member.weight, lease: member.lease }
}

/// The time after a renewal at which a hold is renewed again: a third of its lease.
fn third(lease: Span) -> Span {
    Span::from_micros(lease.as_micros() / 3)
}
