//! Orders about the holds of one key.

use tollgate_core::limit::{Draft, Limit, State};
use tollgate_core::store::{HoldsOrder, HoldsReport};
use tollgate_core::{Plan, Ticket, Timestamp};

use super::Trace;

/// Does what was ordered with the one state that counts holds, and reports what is held then.
pub(super) fn obey(
    plan: &Plan,
    states: &mut [State],
    order: HoldsOrder<'_>,
    now: Timestamp,
) -> (HoldsReport, Trace) {
    let mut report = HoldsReport { found: false, now, holds: Vec::new() };
    let Some(index) = plan.limits().iter().position(Limit::holds) else { return (report, Trace::None) };
    let state = &mut states[index];
    let draft = Draft { cost: 0, id: None, ticket: Ticket(0), now, amounts: &[], calendar: &[] };
    plan.limits()[index].freshen(state, &draft);
    match order {
        HoldsOrder::List => {}
        HoldsOrder::Renew(id) => report.found = state.holds_mut().renew(id, now),
        HoldsOrder::Release(id) => report.found = state.holds_mut().release(id),
        HoldsOrder::Replace(ids, ticket) => state.holds_mut().replace(ids.iter().copied(), ticket, now),
    }
    plan.limits()[index].freshen(state, &draft);
    let holds = state.holds().into_iter().flat_map(|holds| holds.iter());
    report.holds = holds.map(|(id, hold)| (id.to_owned(), hold)).collect();
    let left = report.found || matches!(order, HoldsOrder::Replace(..));
    let trace = if left { Trace::Left } else { Trace::None };
    (report, trace)
}
