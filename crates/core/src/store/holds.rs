//! Orders about the holds of one key, and their effects. Like [`Charges::settle`](crate::Charges::settle) for
//! attempts, this is the one specification: the in-process stores and the store on PostgreSQL call it, and the store
//! on Redis is tested against it.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use crate::limit::{Draft, Hold, Holds, InFlight, State};
use crate::{Plan, Ticket, Timestamp};

/// An order about the holds of a key.
#[derive(Clone, Copy, Debug)]
pub enum HoldsOrder<'a> {
    /// List them.
    List,
    /// Renew one.
    Renew(&'a str),
    /// Release one.
    Release(&'a str),
    /// Renew several, up to [`HoldsOrder::MOST_IDS`].
    RenewMany(&'a [&'a str]),
    /// Release several, up to [`HoldsOrder::MOST_IDS`].
    ReleaseMany(&'a [&'a str]),
    /// Hold these ids again, up to [`HoldsOrder::MOST_IDS`], each with its weight, in this order and as far
    /// as there is room. For example for a connection that still lasts although its hold has expired, or was taken in
    /// the counters of this process during an outage. An id that is still held is renewed. No other limit of the key
    /// is charged.
    Claim(&'a [(&'a str, u64)], Ticket),
    /// Make exactly these ids held, whatever the limit says: the caller's records are the truth.
    Replace(&'a [&'a str], Ticket),
}

impl HoldsOrder<'_> {
    /// How many ids one order may name; more need several orders.
    pub const MOST_IDS: usize = 10_000;
}

/// The result of an order about holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldsReport {
    /// Whether the id to renew or release was held; for several ids, whether all were. For a claim, whether all ids
    /// are held now. Always false for a list and a replacement.
    pub found: bool,
    /// The store's time.
    pub now: Timestamp,
    /// Holds by id: all of them for a list or a replacement; otherwise those of the named ids that were
    /// renewed, released or claimed.
    pub holds: Vec<(String, Hold)>,
}

impl HoldsOrder<'_> {
    /// Carries out the order on the states of a key, one for each limit of the plan. Returns the report, and whether any
    /// state was changed.
    pub fn settle(self, plan: &Plan, states: &mut [State], now: Timestamp) -> (HoldsReport, bool) {
        let mut report = HoldsReport { found: false, now, holds: Vec::new() };
        let Some((index, kind)) = plan.in_flight() else { return (report, false) };
        let (limit, state) = (&plan.limits()[index], &mut states[index]);
        let draft = Draft { cost: 0, id: None, ticket: Ticket(0), now, amounts: &[], calendar: &[] };
        limit.freshen(state, &draft);
        let (changed, several) = state.change_holds(|holds| self.change(kind, holds, now));
        limit.freshen(state, &draft);
        report.holds = match several {
            Some((asked, mut several)) => {
                report.found = several.len() == asked;
                several.sort_unstable_by_key(|(id, _)| *id);
                several.dedup_by_key(|(id, _)| *id);
                several.into_iter().map(|(id, hold)| (id.to_owned(), hold)).collect()
            }
            None => {
                let holds = state.holds().into_iter().flat_map(|holds| holds.iter());
                holds.map(|(id, hold)| (id.to_owned(), hold)).collect()
            }
        };
        (report, changed)
    }
}

/// How many ids an order named, and the holds of those that were found; `None` if the order is about all holds.
type Several<'o> = Option<(usize, Vec<(&'o str, Hold)>)>;

impl<'o> HoldsOrder<'o> {
    /// Changes the holds. Returns whether anything was changed.
    fn change(self, kind: &InFlight, holds: &mut Holds, now: Timestamp) -> (bool, Several<'o>) {
        let (asked, several) = match self {
            Self::List => return (false, None),
            Self::Replace(ids, ticket) => {
                holds.replace(ids.iter().copied(), ticket, now);
                return (true, None);
            }
            Self::Renew(id) => {
                let renewed = holds.renew(id, now).then(|| holds.find(id)).flatten();
                (1, renewed.into_iter().map(|hold| (id, hold)).collect())
            }
            Self::Release(id) => (1, holds.release_all([id].into_iter())),
            Self::RenewMany(ids) => {
                let renewed: Vec<&str> = ids.iter().filter(|id| holds.renew(id, now)).copied().collect();
                (ids.len(), renewed.into_iter().filter_map(|id| Some((id, holds.find(id)?))).collect())
            }
            Self::ReleaseMany(ids) => (ids.len(), holds.release_all(ids.iter().copied())),
            Self::Claim(ids, ticket) => {
                let claim = |claim: &(&'o str, u64)| Some((claim.0, kind.claim(holds, *claim, ticket, now)?));
                (ids.len(), ids.iter().filter_map(claim).collect::<Vec<_>>())
            }
        };
        (!several.is_empty(), Some((asked, several)))
    }
}
