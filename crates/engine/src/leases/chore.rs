//! What is to be done about the holds at one key, and what came of it. In this order: what is released
//! makes room, what turns out to be lost is claimed with what was held elsewhere.

use std::sync::Arc;

use tollgate_core::store::{Counter, HoldsOrder, HoldsReport};
use tollgate_core::{Plan, Timestamp};

use super::inbox::Inbox;
use super::ledger::Site;
use crate::engine::Engine;
use crate::receipt::Home;
use crate::ticket;

/// One hold: its id, how much it weighs, and whose it is.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) id: Arc<str>,
    pub(super) weight: u64,
    pub(super) lease: u64,
}

/// Something for each home.
#[derive(Clone, Debug, Default)]
pub(super) struct ByHome<T> {
    pub(super) store: T,
    pub(super) local: T,
}

/// What is to be done at one key.
#[derive(Debug)]
pub(super) struct Chore {
    pub(super) site: Site,
    /// The limits at the key in the store, and in the counters of this process.
    pub(super) plans: ByHome<Arc<Plan>>,
    pub(super) began: Timestamp,
    pub(super) release: ByHome<Vec<Arc<str>>>,
    pub(super) renew: ByHome<Vec<Held>>,
    /// What is to be held in the store, and where it is held now.
    pub(super) claim: Vec<(Held, Option<Home>)>,
    /// Whether that goes for what turns out to be lost, too.
    pub(super) claims_lost: bool,
}

/// What came of a chore.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) site: Site,
    pub(super) began: Timestamp,
    pub(super) released: Vec<Arc<str>>,
    /// Whether all that is held in a home was to be renewed, and asked about.
    pub(super) renewed: ByHome<bool>,
    pub(super) lost: Vec<Held>,
    pub(super) claimed: Vec<Arc<str>>,
    /// Whether there was no room for something that was claimed.
    pub(super) refused: bool,
}

/// The store cannot be used: nothing more is asked of it for now.
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
    /// Nothing yet.
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

    /// Does it, as far as that can be done now. What was dropped meanwhile, which the inbox knows, is
    /// neither lost nor claimed.
    pub(super) async fn done(mut self, engine: &Engine, inbox: &Inbox) -> Done {
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
            // What cannot be done now is done when it is tried again.
            let _ = self.release_in(engine, home, &mut done).await;
            let renewed = self.renew_in(engine, inbox, home, &mut done).await.is_ok();
            *done.renewed.of_mut(home) = renewed && !self.renew.of(home).is_empty();
        }
        if self.claims_lost {
            self.claim.extend(done.lost.iter().cloned().map(|held| (held, None)));
        }
        let _ = self.claim_all(engine, inbox, &mut done).await;
        done
    }

    async fn release_in(&self, engine: &Engine, home: Home, done: &mut Done) -> Result<(), Gone> {
        for some in self.release.of(home).chunks(HoldsOrder::MOST_IDS) {
            let ids: Vec<&str> = some.iter().map(|id| &**id).collect();
            self.order(engine, home, HoldsOrder::ReleaseMany(&ids)).await?;
            done.released.extend(some.iter().cloned());
        }
        Ok(())
    }

    async fn renew_in(
        &self,
        engine: &Engine,
        inbox: &Inbox,
        home: Home,
        done: &mut Done,
    ) -> Result<(), Gone> {
        for some in self.renew.of(home).chunks(HoldsOrder::MOST_IDS) {
            let ids: Vec<&str> = some.iter().map(|held| &*held.id).collect();
            let found = self.order(engine, home, HoldsOrder::RenewMany(&ids)).await?;
            let lost = some.iter().filter(|held| !has(&found, &held.id) && !inbox.has_dropped(held.lease));
            done.lost.extend(lost.cloned());
        }
        Ok(())
    }

    async fn claim_all(&self, engine: &Engine, inbox: &Inbox, done: &mut Done) -> Result<(), Gone> {
        for some in self.claim.chunks(HoldsOrder::MOST_IDS) {
            let some: Vec<_> = some.iter().filter(|(held, _)| !inbox.has_dropped(held.lease)).collect();
            let claims: Vec<(&str, u64)> = some.iter().map(|(held, _)| (&*held.id, held.weight)).collect();
            let found = self.order(engine, Home::Store, HoldsOrder::Claim(&claims, ticket::next())).await?;
            let (claimed, refused): (Vec<_>, Vec<_>) =
                some.into_iter().partition(|(held, _)| has(&found, &held.id));
            done.refused |= !refused.is_empty();
            done.claimed.extend(claimed.iter().map(|(held, _)| Arc::clone(&held.id)));
            let moved = claimed.iter().filter(|(_, home)| *home == Some(Home::Local));
            let moved: Vec<&str> = moved.map(|(held, _)| &*held.id).collect();
            if !moved.is_empty() {
                self.order(engine, Home::Local, HoldsOrder::ReleaseMany(&moved)).await?;
            }
        }
        Ok(())
    }

    /// Gives an order about several holds; answers those that it found.
    async fn order(
        &self,
        engine: &Engine,
        home: Home,
        order: HoldsOrder<'_>,
    ) -> Result<Option<HoldsReport>, Gone> {
        let counter = Counter { plan: self.plans.of(home), key: &self.site.key };
        match engine.order_at(home, &counter, order).await {
            Ok(report) => Ok(Some(report)),
            Err(error) if error.is_passing() => Err(Gone),
            // What is damaged or full holds nothing of ours.
            Err(_) => Ok(None),
        }
    }
}

impl Done {
    /// How many holds had run out.
    pub(super) fn lost(&self) -> u64 {
        self.lost.len() as u64
    }
}

/// Whether a report, whose holds are in order, has an id.
fn has(report: &Option<HoldsReport>, id: &str) -> bool {
    report
        .as_ref()
        .is_some_and(|report| report.holds.binary_search_by(|(held, _)| held.as_str().cmp(id)).is_ok())
}
