//! Orders about the holds of one key.

use tollgate_core::limit::{Draft, Hold, Holds, InFlight, State};
use tollgate_core::store::{HoldsOrder, HoldsReport};
use tollgate_core::{Plan, Ticket, Timestamp};

use super::Trace;

/// Executes an order on the state that counts holds, and returns its result.
pub(super) fn obey(
    plan: &Plan,
    states: &mut [State],
    order: HoldsOrder<'_>,
    now: Timestamp,
) -> (HoldsReport, Trace) {
    let mut report = HoldsReport { found: false, now, holds: Vec::new() };
    let Some((index, kind)) = plan.in_flight() else { return (report, Trace::None) };
    let (limit, state) = (&plan.limits()[index], &mut states[index]);
    let draft = Draft { cost: 0, id: None, ticket: Ticket(0), now, amounts: &[], calendar: &[] };
    limit.freshen(state, &draft);
    let (changed, several) = state.change_holds(|holds| change(kind, holds, order, now));
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
            report.found = changed && !matches!(order, HoldsOrder::Replace(..));
            report.holds = holds.map(|(id, hold)| (id.to_owned(), hold)).collect();
        }
    }
    (report, if changed { Trace::Left } else { Trace::None })
}

/// How many ids an order named, and the holds that were found.
type Several<'o> = Option<(usize, Vec<(&'o str, Hold)>)>;

/// Changes the holds. Returns whether anything was changed.
fn change<'o>(
    kind: &InFlight,
    holds: &mut Holds,
    order: HoldsOrder<'o>,
    now: Timestamp,
) -> (bool, Several<'o>) {
    let (asked, several) = match order {
        HoldsOrder::List => return (false, None),
        HoldsOrder::Renew(id) => {
            let renewed = holds.renew(id, now).then(|| holds.find(id)).flatten();
            (1, renewed.into_iter().map(|hold| (id, hold)).collect())
        }
        HoldsOrder::Release(id) => (1, holds.release_all([id].into_iter())),
        HoldsOrder::Replace(ids, ticket) => {
            holds.replace(ids.iter().copied(), ticket, now);
            return (true, None);
        }
        HoldsOrder::RenewMany(ids) => {
            let renewed = ids.iter().filter(|id| holds.renew(id, now)).copied().collect::<Vec<_>>();
            (ids.len(), renewed.into_iter().filter_map(|id| Some((id, holds.find(id)?))).collect())
        }
        HoldsOrder::ReleaseMany(ids) => (ids.len(), holds.release_all(ids.iter().copied())),
        HoldsOrder::Claim(ids, ticket) => {
            let claim = |claim: &(&'o str, u64)| Some((claim.0, kind.claim(holds, *claim, ticket, now)?));
            (ids.len(), ids.iter().filter_map(claim).collect::<Vec<_>>())
        }
    };
    (!several.is_empty(), Some((asked, several)))
}
