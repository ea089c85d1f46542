//! Which leases there are, and what each of them holds where. Pure: time and policies are arguments,
//! and what is to be asked of a store leaves as chores.

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use smallvec::SmallVec;
use tollgate_core::limit::InFlight;
use tollgate_core::{Plan, Span, Timestamp};

use super::chore::{ByHome, Chore, Done, Held};
use super::inbox::{Kept, KeptSite, Letters};
use crate::engine::Snapshot;
use crate::receipt::Home;

/// All leases.
#[derive(Default)]
pub(super) struct Ledger {
    leases: HashMap<u64, Lasting>,
    /// Where something has ended since it was last released.
    stirred: HashSet<Site>,
    places: HashMap<Site, Place>,
}

/// One rule at one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Site {
    pub(super) rule: Arc<str>,
    pub(super) key: Arc<str>,
}

/// Where chores may be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    Everywhere,
    /// The store cannot be used.
    Local,
}

/// A lease that was not dropped.
struct Lasting {
    id: Arc<str>,
    sites: SmallVec<[Site; 2]>,
}

/// What is held at one key.
struct Place {
    /// The limits that held there when something was last taken, for when the rule is gone.
    plan: Arc<Plan>,
    held: ByHome<Group>,
    /// What lasts, and is held nowhere.
    adrift: HashMap<Arc<str>, Member>,
    /// What has ended, and is to be released.
    ended: HashMap<Arc<str>, Ended>,
    /// When to claim what is not held in the store.
    claim_at: Timestamp,
}

/// What is held at one key in one home.
#[derive(Default)]
struct Group {
    members: HashMap<Arc<str>, Member>,
    /// None of them was renewed before this.
    renewed: Timestamp,
}

#[derive(Clone, Copy)]
struct Member {
    lease: u64,
    weight: u64,
    /// When it was taken.
    at: Timestamp,
}

struct Ended {
    home: Home,
    /// When it was taken or last renewed.
    renewed: Timestamp,
}

/// The limits at a key as they are now, if its rule is still there.
struct Current<'p> {
    store: Option<&'p Arc<Plan>>,
    local: Option<&'p Arc<Plan>>,
}

/// When to try again where there was no room, if nothing is to be renewed meanwhile.
const CLAIM_EVERY: Span = Span::from_secs(10);

impl Ledger {
    /// Takes in what is new.
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
            let place = self.places.entry(site.clone()).or_insert_with(|| Place::new(plan, kept.at));
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

    /// What is to be released now, where something has ended since it was last asked. What cannot be is
    /// among all that is to be done.
    pub(super) fn releases(&mut self, pinned: &Snapshot, reach: Reach, now: Timestamp) -> Vec<Chore> {
        let release = |site: Site| {
            let place = self.places.get(&site)?;
            place.release(&site, &Current::of(&site, pinned), reach, now)
        };
        self.stirred.drain().filter_map(release).collect()
    }

    /// What is to be done now.
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

    /// Takes note of what came of a chore.
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
    /// Ends what this lease holds.
    fn end(&self, number: u64, places: &mut HashMap<Site, Place>) {
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

    /// The limit on what is held. Where there is none any more there is nothing to keep up.
    fn limit(&self) -> Option<&'p InFlight> {
        self.store.and_then(|plan| plan.in_flight()).map(|(_, limit)| limit)
    }
}

impl Group {
    fn insert(&mut self, id: &Arc<str>, member: Member) {
        self.renewed = if self.members.is_empty() { member.at } else { self.renewed.min(member.at) };
        self.members.insert(Arc::clone(id), member);
    }

    /// Whether they are to be renewed.
    fn is_due(&self, lease: Option<Span>, now: Timestamp) -> bool {
        !self.members.is_empty() && lease.is_some_and(|lease| self.renewed + third(lease) <= now)
    }
}

impl Place {
    fn new(plan: &Arc<Plan>, now: Timestamp) -> Self {
        let (held, adrift, ended) = (ByHome::default(), HashMap::new(), HashMap::new());
        Self { plan: Arc::clone(plan), held, adrift, ended, claim_at: now }
    }

    /// Ends what a lease holds here.
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

    /// Whether nothing is left to look after.
    fn is_empty(&self) -> bool {
        self.held.store.members.is_empty() && self.all_in_store() && self.ended.is_empty()
    }

    /// What has ended and has run out by itself need not be released.
    fn forget_run_out(&mut self, current: &Current<'_>, now: Timestamp) {
        let limit = current.limit().or_else(|| self.plan.in_flight().map(|(_, limit)| limit));
        if let Some(lease) = limit.and_then(InFlight::lease) {
            self.ended.retain(|_, ended| now < ended.renewed + lease);
        }
    }

    /// What is to be released here, if anything is.
    fn release(&self, site: &Site, current: &Current<'_>, reach: Reach, now: Timestamp) -> Option<Chore> {
        let mut chore = Chore::new(site, self.plans(current), now);
        for home in reach.homes() {
            *chore.release.of_mut(*home) = self.ended_in(*home);
        }
        reach.homes().iter().any(|home| !chore.release.of(*home).is_empty()).then_some(chore)
    }

    /// The limits here now.
    fn plans(&self, current: &Current<'_>) -> ByHome<Arc<Plan>> {
        let plan = |current: Option<&Arc<Plan>>| Arc::clone(current.unwrap_or(&self.plan));
        ByHome { store: plan(current.store), local: plan(current.local) }
    }

    /// What is to be released in a home.
    fn ended_in(&self, home: Home) -> Vec<Arc<str>> {
        let ended = self.ended.iter().filter(|(_, ended)| ended.home == home);
        ended.map(|(id, _)| Arc::clone(id)).collect()
    }

    /// What is to be done here now, if anything is.
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

    /// Whether nothing lasts that is not held in the store.
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

/// How long after it was renewed a hold is renewed again.
fn third(lease: Span) -> Span {
    Span::from_micros(lease.as_micros() / 3)
}
