//! The work on the holds at one key, and its result. The order matters: releasing makes room, and renewing
//! finds the lost holds, which are then claimed together with those held in the other home.

use std::sync::Arc;

use tollgate_core::store::{Counter, HoldsOrder, HoldsReport};
use tollgate_core::{Plan, Timestamp};

use super::inbox::Inbox;
use super::ledger::Site;
use crate::counters::Counters;
use crate::receipt::Home;
use crate::ticket;

/// One hold: its id, its weight, and its lease.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) id: Arc<str>,
    pub(super) weight: u64,
    pub(super) lease: u64,
}

/// A value for each home.
#[derive(Clone, Debug, Default)]
pub(super) struct ByHome<T> {
    pub(super) store: T,
    pub(super) local: T,
}

/// The work at one key.
#[derive(Debug)]
pub(super) struct Chore {
    pub(super) site: Site,
    /// The limits at the key in the store, and in the counters of this process.
    pub(super) plans: ByHome<Arc<Plan>>,
    pub(super) began: Timestamp,
    pub(super) release: ByHome<Vec<Arc<str>>>,
    pub(super) renew: ByHome<Vec<Held>>,
    /// The holds to claim in the store, and where they are held now.
    pub(super) claim: Vec<(Held, Option<Home>)>,
    /// Whether lost holds are claimed too.
    pub(super) claims_lost: bool,
}

/// The result of a chore.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) site: Site,
    pub(super) began: Timestamp,
    pub(super) released: Vec<Arc<str>>,
    /// Whether all holds of a home were due, and the renewal got a reply.
    pub(super) renewed: ByHome<bool>,
    pub(super) lost: Vec<Held>,
    pub(super) claimed: Vec<Arc<str>>,
    /// Whether there was no room for a claimed hold.
    pub(super) refused: bool,
}

/// The store cannot be used: it is not called any more for now.
struct Gone;

impl<T> ByHome<T> {
    pub(super) fn of(&self, home: Home) -> &T {
        match home {
            Home::Store => &self.store,
            Home::Local => &self.local,
        }
    }

    pub(super) fn of_mut(&mut self, home: Home) -> &mut T {
        match home {
            Home::Store => &mut self.store,
            Home::Local => &mut self.local,
        }
    }
}

impl Chore {
    /// An empty chore.
    pub(super) fn new(site: &Site, plans: ByHome<Arc<Plan>>, now: Timestamp) -> Self {
        Self {
            site: site.clone(),
            plans,
            began: now,
            release: ByHome::default(),
            renew: ByHome::default(),
            claim: Vec::new(),
            claims_lost: false,
        }
    }

    /// Does the work, as far as it can be done now. Holds of leases dropped meanwhile, which the inbox knows,
    /// are neither lost nor claimed.
    pub(super) async fn done(mut self, counters: &Counters, inbox: &Inbox) -> Done {
        let mut done = Done {
            site: self.site.clone(),
            began: self.began,
            released: Vec::new(),
            renewed: ByHome::default(),
            lost: Vec::new(),
            claimed: Vec::new(),
            refused: false,
        };
        for home in [Home::Store, Home::Local] {
            // Work that fails now is tried again later.
            let _ = self.release_in(counters, home, &mut done).await;
            let renewed = self.renew_in(counters, inbox, home, &mut done).await.is_ok();
            *done.renewed.of_mut(home) = renewed && !self.renew.of(home).is_empty();
        }
        if self.claims_lost {
            self.claim.extend(done.lost.iter().cloned().map(|held| (held, None)));
        }
        let _ = self.claim_all(counters, inbox, &mut done).await;
        done
    }

    async fn release_in(&self, counters: &Counters, home: Home, done: &mut Done) -> Result<(), Gone> {
        for some in self.release.of(home).chunks(HoldsOrder::MOST_IDS) {
            let ids: Vec<&str> = some.iter().map(|id| &**id).collect();
            self.order(counters, home, HoldsOrder::ReleaseMany(&ids)).await?;
            done.released.extend(some.iter().cloned());
        }
        Ok(())
    }

    async fn renew_in(
        &self,
        counters: &Counters,
        inbox: &Inbox,
        home: Home,
        done: &mut Done,
    ) -> Result<(), Gone> {
        for some in self.renew.of(home).chunks(HoldsOrder::MOST_IDS) {
            let ids: Vec<&str> = some.iter().map(|held| &*held.id).collect();
            let found = self.order(counters, home, HoldsOrder::RenewMany(&ids)).await?;
            let lost = some.iter().filter(|held| !has(&found, &held.id) && !inbox.has_dropped(held.lease));
            done.lost.extend(lost.cloned());
        }
        Ok(())
    }

    async fn claim_all(&self, counters: &Counters, inbox: &Inbox, done: &mut Done) -> Result<(), Gone> {
        for some in self.claim.chunks(HoldsOrder::MOST_IDS) {
            let some: Vec<_> = some.iter().filter(|(held, _)| !inbox.has_dropped(held.lease)).collect();
            let claims: Vec<(&str, u64)> = some.iter().map(|(held, _)| (&*held.id, held.weight)).collect();
            let found = self.order(counters, Home::Store, HoldsOrder::Claim(&claims, ticket::next())).await?;
            let (claimed, refused): (Vec<_>, Vec<_>) =
                some.into_iter().partition(|(held, _)| has(&found, &held.id));
            done.refused |= !refused.is_empty();
            done.claimed.extend(claimed.iter().map(|(held, _)| Arc::clone(&held.id)));
            let moved = claimed.iter().filter(|(_, home)| *home == Some(Home::Local));
            let moved: Vec<&str> = moved.map(|(held, _)| &*held.id).collect();
            if !moved.is_empty() {
                self.order(counters, Home::Local, HoldsOrder::ReleaseMany(&moved)).await?;
            }
        }
        Ok(())
    }

    /// Orders something about several holds. Returns those that it found.
    async fn order(
        &self,
        counters: &Counters,
        home: Home,
        order: HoldsOrder<'_>,
    ) -> Result<Option<HoldsReport>, Gone> {
        let counter = Counter { plan: self.plans.of(home), key: &self.site.key };
        match counters.order_at(home, &counter, order).await {
            Ok(report) => Ok(Some(report)),
            Err(error) if error.is_passing() => Err(Gone),
            // A key that is damaged or full has none of our holds.
            Err(_) => Ok(None),
        }
    }
}

impl Done {
    /// The number of holds that had expired.
    pub(super) fn lost(&self) -> u64 {
        self.lost.len() as u64
    }
}

/// Whether a report, whose holds are sorted, has an id.
fn has(report: &Option<HoldsReport>, id: &str) -> bool {
    report
        .as_ref()
        .is_some_and(|report| report.holds.binary_search_by(|(held, _)| held.as_str().cmp(id)).is_ok())
}
