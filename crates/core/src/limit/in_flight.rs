//! Things in flight: at most a number held at once, each under an id that the caller chooses.

use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;

use super::by_id::ById;
use super::kind::{Kind, LONGEST_MATTER, Nature};
use super::{Draft, Identity, Idle, Limit, Refund, State};
use crate::Ticket;
use crate::outage::Share;
use crate::reading::{Stock, When};
use crate::time::{Span, Timestamp};

/// At most `max` held at once; with a lease, a hold expires unless it is renewed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InFlight {
    pub(crate) max: u64,
    pub(crate) lease: Option<Span>,
}

/// The holds of one key, by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holds {
    by_id: ById,
    used: u64,
    /// No hold was renewed before this, so none can have expired while its lease lasts from here.
    oldest: Timestamp,
    /// No hold was renewed after this. It is the time of the latest renewal, unless one of many holds ended
    /// since the last full scan.
    newest: Timestamp,
}

/// One hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The ticket that took it.
    pub ticket: Ticket,
    /// How much of the limit it uses.
    pub weight: u64,
    /// When it was taken.
    pub since: Timestamp,
    /// When it was taken or last renewed; the lease starts here.
    pub renewed: Timestamp,
}

/// The kind of hold that an attempt takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holding {
    /// Nothing.
    #[default]
    Nothing,
    /// A hold that ends only when it is released.
    UntilReleased,
    /// A hold that also expires unless it is renewed.
    ForATime,
}

impl InFlight {
    /// At most `max` held at once; with a lease, each for so long unless it is renewed.
    pub fn new(max: u64, lease: Option<Span>) -> Self {
        Self { max, lease }
    }

    /// The most held at once.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// How long a hold lasts without renewal; `None` means for ever.
    pub fn lease(&self) -> Option<Span> {
        self.lease
    }

    /// Takes a hold for an id again if there is room, or renews its lease if it is held. Returns its hold, if
    /// it is held afterwards.
    pub fn claim(
        &self,
        holds: &mut Holds,
        (id, weight): (&str, u64),
        ticket: Ticket,
        now: Timestamp,
    ) -> Option<Hold> {
        if !holds.renew(id, now) {
            if weight > self.max.saturating_sub(holds.used) {
                return None;
            }
            holds.insert(id.into(), Hold { ticket, weight, since: now, renewed: now });
        }
        holds.find(id)
    }

    fn drop_expired(&self, holds: &mut Holds, now: Timestamp) {
        let Some(lease) = self.lease else { return };
        if holds.newest <= now && now < holds.oldest + lease {
            return;
        }
        holds.by_id.for_each_mut(|hold| hold.renewed = hold.renewed.min(now));
        holds.by_id.retain(|hold| now < hold.renewed + lease);
        holds.recount();
    }
}

impl Kind for InFlight {
    const NATURE: Nature = Nature { names_takes: true, keeps_tickets: true, consumes: true };

    fn identity(&self) -> Identity<'_> {
        Identity::InFlight
    }

    fn number(&self) -> u64 {
        self.max
    }

    fn period(&self) -> Option<Span> {
        None
    }

    fn matters_for(&self) -> Span {
        self.lease.unwrap_or(LONGEST_MATTER)
    }

    fn holding(&self) -> Holding {
        if self.lease.is_some() { Holding::ForATime } else { Holding::UntilReleased }
    }

    /// Drops the holds whose lease has run out. If the clock went back, a hold that was renewed in the future counts as
    /// renewed now.
    fn freshen(&self, state: &mut State, draft: &Draft<'_>) {
        let State::Holds(holds) = state else { return *state = State::Fresh };
        self.drop_expired(holds, draft.now);
        if holds.is_empty() {
            *state = State::Fresh;
        }
    }

    fn when(&self, state: &State, draft: &Draft<'_>) -> When {
        let holds = state.holds();
        if draft.cost == 0 || holds.is_some_and(|holds| holds.has(draft.id)) {
            return When::Now;
        }
        if draft.cost > self.max {
            return When::Never;
        }
        let used = holds.map_or(0, |holds| holds.used);
        match (self.lease, holds) {
            _ if used <= self.max - draft.cost => When::Now,
            (Some(lease), Some(holds)) => holds.room(used + draft.cost - self.max, lease, draft.now),
            _ => When::OnRelease,
        }
    }

    fn take(&self, state: &mut State, draft: &Draft<'_>) {
        state.change_holds(|holds| holds.take(draft));
    }

    fn read(&self, state: &State, draft: &Draft<'_>) -> Stock {
        let holds = state.holds();
        let newest = holds.filter(|holds| !holds.is_empty()).map(|holds| holds.newest);
        Stock {
            capacity: self.max,
            remaining: self.max.saturating_sub(holds.map_or(0, |holds| holds.used)),
            reset: self.lease.map(|lease| newest.map_or(draft.now, |renewed| renewed + lease)),
        }
    }

    fn refund(&self, state: &mut State, draft: &Draft<'_>, refund: Refund) {
        if let State::Holds(holds) = state {
            holds.refund(draft, refund);
        }
    }

    /// A lease that ran out must not be revived by a longer one, or by none.
    fn adopt(&self, old: &Limit, mut state: State, now: Timestamp) -> State {
        if let (Some(old), State::Holds(holds)) = (old.in_flight(), &mut state) {
            old.drop_expired(holds, now);
            if holds.is_empty() {
                return State::Fresh;
            }
        }
        state
    }

    /// None without a lease: only the shared store knows what lasts until it is released.
    fn share(&self, share: Share) -> Option<Limit> {
        self.lease.map(|lease| Limit::InFlight(Self { max: share.of(self.max), lease: Some(lease) }))
    }

    fn idle(&self, state: &State) -> Idle {
        match (self.lease, state.holds().filter(|holds| !holds.is_empty())) {
            (_, None) => Idle::At(Timestamp::ZERO),
            (Some(lease), Some(holds)) => Idle::At(holds.newest + lease),
            (None, Some(_)) => Idle::Never,
        }
    }
}

impl Holds {
    /// Up to this many holds, ending one triggers a full scan for the latest renewal. With more, the cost of
    /// ending one must not grow.
    const FEW: usize = 64;

    /// The holds by id.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, Hold)> {
        self.by_id.iter().map(|(id, hold)| (id, *hold))
    }

    /// Whether this id is held.
    pub fn has(&self, id: Option<&str>) -> bool {
        id.is_some_and(|id| self.by_id.find(id).is_some())
    }

    /// The hold of an id.
    pub fn find(&self, id: &str) -> Option<Hold> {
        self.by_id.find(id).copied()
    }

    /// Renews a hold, if it still exists. Returns whether it did.
    pub fn renew(&mut self, id: &str, now: Timestamp) -> bool {
        let hold = self.by_id.find_mut(id);
        let found = hold.is_some();
        if let Some(hold) = hold {
            hold.renewed = now;
            self.oldest = self.oldest.min(now);
            self.newest = self.newest.max(now);
        }
        found
    }

    /// Releases a hold, if it still exists. Returns whether it did.
    pub fn release(&mut self, id: &str) -> bool {
        !self.release_all([id].into_iter()).is_empty()
    }

    /// Releases several holds. Returns those that still existed.
    pub fn release_all<'i>(&mut self, ids: impl Iterator<Item = &'i str>) -> Vec<(&'i str, Hold)> {
        let newest = self.newest;
        let ended: Vec<_> = ids.filter_map(|id| Some((id, self.by_id.remove(id)?.1))).collect();
        self.used -= ended.iter().map(|(_, hold)| hold.weight).sum::<u64>();
        if self.by_id.len() <= Self::FEW && ended.iter().any(|(_, hold)| hold.renewed == newest) {
            self.recount();
        }
        ended
    }

    /// Makes exactly these ids held: takes missing ones and ends all others.
    pub fn replace<'i>(&mut self, ids: impl Iterator<Item = &'i str>, ticket: Ticket, now: Timestamp) {
        let fresh = Hold { ticket, weight: 1, since: now, renewed: now };
        let mut old = core::mem::take(&mut self.by_id);
        for id in ids {
            if self.by_id.find(id).is_none() {
                let (id, hold) = old.remove(id).unwrap_or_else(|| (id.into(), fresh));
                self.by_id.insert(id, hold);
            }
        }
        self.recount();
    }

    fn take(&mut self, draft: &Draft<'_>) {
        if self.has(draft.id) {
            return;
        }
        let id = draft.id.map_or_else(|| draft.ticket.to_string().into(), Box::from);
        let hold = Hold { ticket: draft.ticket, weight: draft.cost, since: draft.now, renewed: draft.now };
        self.insert(id, hold);
    }

    /// Reduces the weight of the ticket's hold, and ends it if nothing is left.
    fn refund(&mut self, draft: &Draft<'_>, refund: Refund) {
        let own = self.by_id.iter().filter(|(_, hold)| hold.ticket == draft.ticket);
        let own: Vec<Box<str>> = own.map(|(id, _)| id.into()).collect();
        let mut ended = Vec::new();
        for id in own {
            let Some(hold) = self.by_id.find_mut(&id) else { continue };
            match refund.rest_of(hold.weight, draft) {
                0 => ended.push(id),
                rest => {
                    self.used -= hold.weight - rest;
                    hold.weight = rest;
                }
            }
        }
        self.release_all(ended.iter().map(|id| &**id));
    }

    fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// When enough leases will have expired to free `excess`.
    fn room(&self, excess: u64, lease: Span, now: Timestamp) -> When {
        let mut ends: Vec<(Timestamp, u64)> =
            self.by_id.holds().map(|hold| (hold.renewed + lease, hold.weight)).collect();
        ends.sort_unstable();
        let mut freed = 0;
        let end = ends.into_iter().find(|(_, weight)| {
            freed += weight;
            freed >= excess
        });
        end.map_or(When::OnRelease, |(end, _)| When::After(end.since(now)))
    }

    fn insert(&mut self, id: Box<str>, hold: Hold) {
        self.oldest = if self.by_id.is_empty() { hold.renewed } else { self.oldest.min(hold.renewed) };
        self.newest = self.newest.max(hold.renewed);
        self.used += hold.weight;
        self.by_id.insert(id, hold);
    }

    fn recount(&mut self) {
        self.used = self.by_id.holds().map(|hold| hold.weight).sum();
        self.oldest = self.by_id.holds().map(|hold| hold.renewed).min().unwrap_or_default();
        self.newest = self.by_id.holds().map(|hold| hold.renewed).max().unwrap_or_default();
    }
}

impl FromIterator<(Box<str>, Hold)> for Holds {
    fn from_iter<I: IntoIterator<Item = (Box<str>, Hold)>>(holds: I) -> Self {
        let mut all = Self { by_id: holds.into_iter().collect(), ..Self::default() };
        all.recount();
        all
    }
}
