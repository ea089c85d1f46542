//! Orders about the holds of one key.

use tollgate_core::limit::{Draft, Hold, Holds, InFlight, State};
use tollgate_core::store::{HoldsOrder, HoldsReport};
use tollgate_core::{Plan, Ticket, Timestamp};

/// An order, in a form that outlives the caller.
pub(crate) struct Order {
    kind: OrderKind,
    ids: Vec<(String, u64)>,
    ticket: Ticket,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OrderKind {
    List,
    Renew,
    Release,
    RenewMany,
    ReleaseMany,
    Claim,
    Replace,
}

impl Order {
    pub(crate) fn new(order: HoldsOrder<'_>) -> Self {
        let plain = |ids: &[&str]| ids.iter().map(|id| ((*id).to_owned(), 1)).collect();
        let (kind, ids, ticket) = match order {
            HoldsOrder::List => (OrderKind::List, Vec::new(), Ticket(0)),
            HoldsOrder::Renew(id) => (OrderKind::Renew, plain(&[id]), Ticket(0)),
            HoldsOrder::Release(id) => (OrderKind::Release, plain(&[id]), Ticket(0)),
            HoldsOrder::RenewMany(ids) => (OrderKind::RenewMany, plain(ids), Ticket(0)),
            HoldsOrder::ReleaseMany(ids) => (OrderKind::ReleaseMany, plain(ids), Ticket(0)),
            HoldsOrder::Replace(ids, ticket) => (OrderKind::Replace, plain(ids), ticket),
            HoldsOrder::Claim(ids, ticket) => {
                let claims = ids.iter().map(|(id, weight)| ((*id).to_owned(), *weight)).collect();
                (OrderKind::Claim, claims, ticket)
            }
        };
        Self { kind, ids, ticket }
    }

    /// Whether it is about all holds of the key.
    pub(crate) fn is_about_all(&self) -> bool {
        matches!(self.kind, OrderKind::List | OrderKind::Replace)
    }

    /// Whether it may change anything but what has run out.
    pub(crate) fn changes(&self) -> bool {
        self.kind != OrderKind::List
    }

    /// Whether it may end holds.
    pub(crate) fn ends_holds(&self) -> bool {
        matches!(self.kind, OrderKind::Release | OrderKind::ReleaseMany | OrderKind::Replace)
    }

    /// The ids that it names.
    pub(crate) fn ids(&self) -> impl ExactSizeIterator<Item = &str> {
        self.ids.iter().map(|(id, _)| id.as_str())
    }

    /// Passes the order on as the core has it.
    pub(crate) fn borrowed<T>(&self, then: impl FnOnce(HoldsOrder<'_>) -> T) -> T {
        let ids: Vec<&str> = self.ids().collect();
        let first = ids.first().copied().unwrap_or_default();
        match self.kind {
            OrderKind::List => then(HoldsOrder::List),
            OrderKind::Renew => then(HoldsOrder::Renew(first)),
            OrderKind::Release => then(HoldsOrder::Release(first)),
            OrderKind::RenewMany => then(HoldsOrder::RenewMany(&ids)),
            OrderKind::ReleaseMany => then(HoldsOrder::ReleaseMany(&ids)),
            OrderKind::Replace => then(HoldsOrder::Replace(&ids, self.ticket)),
            OrderKind::Claim => {
                let claims: Vec<_> = self.ids.iter().map(|(id, weight)| (id.as_str(), *weight)).collect();
                then(HoldsOrder::Claim(&claims, self.ticket))
            }
        }
    }
}

/// Carries out an order on the one state that counts holds, and reports what came of it.
pub(super) fn obey(plan: &Plan, states: &mut [State], order: HoldsOrder<'_>, now: Timestamp) -> HoldsReport {
    let mut report = HoldsReport { found: false, now, holds: Vec::new() };
    let Some((index, kind)) = plan.in_flight() else { return report };
    let (limit, state) = (&plan.limits()[index], &mut states[index]);
    let draft = Draft { cost: 0, id: None, ticket: Ticket(0), now, amounts: &[], calendar: &[] };
    limit.freshen(state, &draft);
    let several = state.change_holds(|holds| change(kind, holds, order, now));
    limit.freshen(state, &draft);
    match several {
        Some((asked, mut several)) => {
            report.found = several.len() == asked;
            several.sort_unstable_by_key(|(id, _)| *id);
            several.dedup_by_key(|(id, _)| *id);
            report.holds = several.into_iter().map(|(id, hold)| (id.to_owned(), hold)).collect();
        }
        None => {
            let holds = state.holds().into_iter().flat_map(|holds| holds.iter());
            report.holds = holds.map(|(id, hold)| (id.to_owned(), hold)).collect();
        }
    }
    report
}

/// How many ids an order named, and the holds of those that were found; `None` if it is about all.
type Several<'o> = Option<(usize, Vec<(&'o str, Hold)>)>;

fn change<'o>(kind: &InFlight, holds: &mut Holds, order: HoldsOrder<'o>, now: Timestamp) -> Several<'o> {
    Some(match order {
        HoldsOrder::List => return None,
        HoldsOrder::Replace(ids, ticket) => {
            holds.replace(ids.iter().copied(), ticket, now);
            return None;
        }
        HoldsOrder::Renew(id) => {
            let renewed = holds.renew(id, now).then(|| holds.find(id)).flatten();
            (1, renewed.into_iter().map(|hold| (id, hold)).collect())
        }
        HoldsOrder::Release(id) => (1, holds.release_all([id].into_iter())),
        HoldsOrder::RenewMany(ids) => {
            let renewed: Vec<&str> = ids.iter().filter(|id| holds.renew(id, now)).copied().collect();
            (ids.len(), renewed.into_iter().filter_map(|id| Some((id, holds.find(id)?))).collect())
        }
        HoldsOrder::ReleaseMany(ids) => (ids.len(), holds.release_all(ids.iter().copied())),
        HoldsOrder::Claim(ids, ticket) => {
            let claim = |claim: &(&'o str, u64)| Some((claim.0, kind.claim(holds, *claim, ticket, now)?));
            (ids.len(), ids.iter().filter_map(claim).collect())
        }
    })
}
