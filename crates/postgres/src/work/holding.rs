//! Orders about the holds of one key.

use tollgate_core::Ticket;
use tollgate_core::store::HoldsOrder;

/// An order, as data that outlives the caller.
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

    /// Whether the order reads or replaces all holds of the key.
    pub(crate) fn is_about_all(&self) -> bool {
        matches!(self.kind, OrderKind::List | OrderKind::Replace)
    }

    /// Whether the order may change anything other than removing expired holds.
    pub(crate) fn changes(&self) -> bool {
        self.kind != OrderKind::List
    }

    /// Whether the order may end holds.
    pub(crate) fn ends_holds(&self) -> bool {
        matches!(self.kind, OrderKind::Release | OrderKind::ReleaseMany | OrderKind::Replace)
    }

    /// The ids of the holds that the order names.
    pub(crate) fn ids(&self) -> impl ExactSizeIterator<Item = &str> {
        self.ids.iter().map(|(id, _)| id.as_str())
    }

    /// Calls `then` with the order in the core's borrowed form.
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
