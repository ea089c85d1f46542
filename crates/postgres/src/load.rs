//! The first half of a transaction: takes the locks, asks the server for its time, and loads the rows that
//! settling needs. A log or a set of holds is not loaded whole: only the rows that a decision depends on.

mod scene;
mod wants;

use std::time::Duration;

use tokio_postgres::Client;
use tokio_postgres::types::Type;
use tollgate_core::limit::Limit;
use tollgate_core::{StoreError, Timestamp};

use scene::RowKind;
pub(crate) use scene::Scene;
use wants::{MoreEntries, MoreHolds};
pub(crate) use wants::{Want, Wants};

use crate::arguments::Arguments;
use crate::codec::{Kept, column};
use crate::counter::HoldsKnown;
use crate::counter::holds::FEW;
use crate::lanes::Locking;
use crate::name::escape;
use crate::transaction::{Begin, Param, Statement, ask, ask_after};

/// At first, the node loads this many of the oldest entries of each limit.
const FIRST_ENTRIES: i64 = 12;

/// The name under which a reset of all rules is recorded. No rule can have it.
pub(crate) const ALL_RULES: &str = "%";

/// The statements that load.
pub(crate) struct LoadSql {
    lock_and_read: String,
    oldest: String,
    live: String,
    own: String,
    holds: String,
    all_holds: String,
    own_holds: String,
    soonest: String,
    bounds: String,
    spent: String,
    forgotten: String,
}

const ENTRIES: &str = "SELECT counter, place, part, seq, at, ticket, cost FROM ";

const HOLDS: &str = "SELECT h.counter, h.id, h.ticket, h.weight, h.since, h.renewed \
    FROM @.counter c JOIN @.hold h ON h.counter = c.id AND h.renewed >= c.oldest WHERE c.id = ANY($1)";

// The holds that expire next, up to this weight.
const SOONEST: &str = "SELECT s.counter, s.id, s.ticket, s.weight, s.since, s.renewed \
    FROM unnest($1::bytea[], $2::bigint[], $3::bigint[]) k(id, cutoff, weight) CROSS JOIN LATERAL ( \
    SELECT h.*, sum(h.weight) OVER (ORDER BY h.renewed, h.id) - h.weight AS before FROM @.hold h \
    WHERE h.counter = k.id AND h.renewed > k.cutoff) s WHERE s.before < k.weight";

// Of the holds that were not loaded: the number and weight of the expired ones, and the latest renewal of the
// others.
const BOUNDS: &str = "SELECT k.id, count(*) FILTER (WHERE h.renewed <= k.cutoff), \
    coalesce(sum(h.weight) FILTER (WHERE h.renewed <= k.cutoff), 0)::bigint, \
    max(h.renewed) FILTER (WHERE h.renewed > k.cutoff), k.cutoff \
    FROM unnest($1::bytea[], $2::bigint[]) k(id, cutoff) JOIN @.counter c ON c.id = k.id \
    JOIN @.hold h ON h.counter = k.id AND h.renewed >= c.oldest WHERE NOT EXISTS ( \
    SELECT FROM unnest($3::bytea[], $4::text[]) x(counter, id) WHERE x.counter = h.counter AND x.id = h.id) \
    GROUP BY k.id, k.cutoff";

const SPENT: &str = "SELECT counter FROM @.spent WHERE counter = ANY($1) AND ticket = $2 AND taken_at = $3";

const FORGOTTEN: &str = "SELECT rule, at FROM @.forgotten WHERE rule = ANY($1) OR rule = '%'";

impl LoadSql {
    pub(crate) fn new(schema: &str) -> Self {
        let sql = |text: &str| text.replace('@', schema);
        Self {
            lock_and_read: sql("SELECT @.lock_and_read"),
            oldest: sql(&format!("{ENTRIES} @.oldest_entries($1, $2, $3)")),
            live: sql(&format!("{ENTRIES} @.live_entries($1, $2, $3, $4)")),
            own: sql(&format!("{ENTRIES} @.own_entries($1, $2, $3, $4, $5)")),
            holds: sql(&format!("{HOLDS} AND (c.holds <= {FEW} OR h.id = ANY($2))")),
            all_holds: sql(HOLDS),
            own_holds: sql(&format!("{HOLDS} AND h.ticket = $2")),
            soonest: sql(SOONEST),
            bounds: sql(BOUNDS),
            spent: sql(SPENT),
            forgotten: sql(FORGOTTEN),
        }
    }

    /// The text that begins the transaction, takes all locks in ascending order and reads the counters' rows.
    /// It contains only numbers, no text of a caller. `now` replaces the server's time.
    pub(crate) fn opening(
        &self,
        begin: &Begin,
        wants: &Wants,
        locking: Locking,
        remaining: Duration,
        now: Option<Timestamp>,
    ) -> String {
        let mut locks: Vec<i64> = wants.counters.values().map(|want| want.name.lock).collect();
        locks.sort_unstable();
        locks.dedup();
        Arguments::of(format!("{}; {}", begin.plain, self.lock_and_read))
            .list(begin.time_outs_within(remaining).into_iter().map(Some))
            .list(locks.into_iter().map(Some))
            .ids(wants.counters.keys())
            .number(now.map(|now| column(now.as_micros())))
            .boolean(locking == Locking::Wait)
            .end()
    }

    /// Sends this opening, and loads the rows of the counters.
    pub(crate) async fn load(
        &self,
        client: &Client,
        opening: &str,
        wants: &Wants,
    ) -> Result<Scene, StoreError> {
        let ids: Vec<&[u8]> = wants.counters.keys().map(|id| &id[..]).collect();
        let chosen = |of: fn(&Want) -> bool| -> Vec<&[u8]> {
            wants.counters.iter().filter(|(_, want)| of(want)).map(|(id, _)| &id[..]).collect()
        };
        let listed = chosen(Want::is_listed);
        let is_ladder = |limit: &Limit| Kept::of(limit) == Kept::Failures;
        let ladders = wants.counters.values().any(|want| want.limits().any(is_ladder));
        let held = chosen(|want| want.limits().any(Limit::holds) && !want.all_holds);
        let all_held = chosen(|want| want.limits().any(Limit::holds) && want.all_holds);
        let named: Vec<&str> =
            wants.counters.values().flat_map(|want| want.ids.iter().map(String::as_str)).collect();
        let ticket = wants.refund.map(|(ticket, _)| ticket.0.cast_signed());
        let taken_at = wants.refund.map(|(_, at)| column(at.as_micros()));
        let rules: Vec<&str> = wants.counters.values().map(|want| &*want.name.rule).collect();
        let (mut statements, mut kinds) = (Vec::new(), Vec::new());
        let mut add = |rows: usize, kind, sql, params| {
            if rows > 0 {
                kinds.push(kind);
                statements.push(Statement { sql, params });
            }
        };
        let bytes = || Type::BYTEA_ARRAY;
        let oldest: Vec<Param<'_>> =
            vec![(&listed, bytes()), (&FIRST_ENTRIES, Type::INT8), (&ladders, Type::BOOL)];
        add(listed.len(), RowKind::Entries, &self.oldest, oldest);
        let some: Vec<Param<'_>> = vec![(&held, bytes()), (&named, Type::TEXT_ARRAY)];
        add(held.len(), RowKind::Holds, &self.holds, some);
        add(all_held.len(), RowKind::Holds, &self.all_holds, vec![(&all_held, bytes())]);
        if let (Some(ticket), Some(taken_at)) = (&ticket, &taken_at) {
            add(held.len(), RowKind::Holds, &self.own_holds, vec![(&held, bytes()), (ticket, Type::INT8)]);
            let spent: Vec<Param<'_>> = vec![(&ids, bytes()), (ticket, Type::INT8), (taken_at, Type::INT8)];
            add(ids.len(), RowKind::Spent, &self.spent, spent);
            add(ids.len(), RowKind::Forgotten, &self.forgotten, vec![(&rules, Type::TEXT_ARRAY)]);
        }
        let answers = ask_after(client, opening, &statements).await?;
        let mut scene = Scene::read_counters(&answers.lines, wants)?;
        for (kind, rows) in kinds.into_iter().zip(answers.rows) {
            scene.read(kind, &rows)?;
        }
        self.load_more(client, wants, &mut scene).await?;
        Ok(scene)
    }

    /// Loads the rows that are still missing: the entries of a ticket, more entries, or more holds.
    async fn load_more(&self, client: &Client, wants: &Wants, scene: &mut Scene) -> Result<(), StoreError> {
        let mut more = More::default();
        for (id, want) in &wants.counters {
            let Some(loaded) = scene.counters.get_mut(id).filter(|_| !scene.damaged.contains(id)) else {
                continue;
            };
            let few = loaded.header.as_ref().is_none_or(|header| header.holds <= FEW);
            if few || want.all_holds {
                loaded.holds_known = HoldsKnown::All;
            }
            match wants.refund {
                Some((_, taken_at)) => more.add_own(want, loaded, taken_at),
                None => more.entries.extend(want.more_entries(loaded, scene.now)),
            }
            match want.more_holds(loaded, scene.now) {
                Some(MoreHolds::All) => {
                    loaded.holds_known = HoldsKnown::All;
                    more.all_held.push(id);
                }
                Some(MoreHolds::Soonest { cutoff, weight, exact }) => {
                    loaded.hold_bounds.exact = exact;
                    let ids = loaded.holds.keys().map(|name| (&id[..], escape(name)));
                    more.loaded.extend(ids);
                    more.soonest.push((id, cutoff, weight));
                }
                None => {}
            }
        }
        let columns = more.columns(wants);
        let statements = columns.statements(self);
        if statements.is_empty() {
            return Ok(());
        }
        let (kinds, statements): (Vec<RowKind>, Vec<Statement<'_>>) = statements.into_iter().unzip();
        for (kind, rows) in kinds.into_iter().zip(ask(client, None, &statements).await?) {
            scene.read(kind, &rows)?;
        }
        Ok(())
    }
}

/// The rows to load in the second step.
#[derive(Default)]
struct More<'w> {
    entries: Vec<MoreEntries>,
    /// The limits whose entry of the refunded ticket is needed. A slotted limit needs the slot with this number
    /// instead.
    own: Vec<(&'w [u8], i64, Option<i64>)>,
    all_held: Vec<&'w [u8; 16]>,
    soonest: Vec<(&'w [u8; 16], i64, i64)>,
    /// The holds that the first step loaded.
    loaded: Vec<(&'w [u8], String)>,
}

impl<'w> More<'w> {
    fn add_own(&mut self, want: &'w Want, loaded: &crate::counter::Loaded, taken_at: Timestamp) {
        let limits = loaded.plan.iter().flat_map(|plan| plan.limits()).enumerate();
        for (place, limit) in limits.filter(|(_, limit)| want.keeps(limit)) {
            let slot = limit.slotted().map(|limit| limit.slot().as_micros());
            let seq = slot.map(|slot| column(taken_at.as_micros() / slot));
            if Kept::of(limit).is_listed() {
                self.own.push((&want.name.id[..], place as i64 + 1, seq));
            }
        }
    }

    fn columns(&self, wants: &Wants) -> Columns<'_> {
        let entries = &self.entries;
        let numbers = |of: fn(&MoreEntries) -> i64| entries.iter().map(of).collect();
        Columns {
            entries: (
                entries.iter().map(|more| &more.counter[..]).collect(),
                [numbers(|more| more.place), numbers(|more| more.cutoff), numbers(|more| more.most)],
            ),
            own: (
                self.own.iter().map(|(id, ..)| *id).collect(),
                self.own.iter().map(|(_, place, _)| *place).collect(),
                self.own.iter().map(|(.., seq)| *seq).collect(),
            ),
            refund: wants.refund.map(|(ticket, at)| (ticket.0.cast_signed(), column(at.as_micros()))),
            all_held: self.all_held.iter().map(|id| &id[..]).collect(),
            soonest: (
                self.soonest.iter().map(|(id, ..)| &id[..]).collect(),
                self.soonest.iter().map(|(_, cutoff, _)| *cutoff).collect(),
                self.soonest.iter().map(|(.., weight)| *weight).collect(),
            ),
            loaded: self.loaded.iter().map(|(id, name)| (*id, name.as_str())).unzip(),
        }
    }
}

/// The rows of [`More`], as columns for the statements.
struct Columns<'m> {
    entries: (Vec<&'m [u8]>, [Vec<i64>; 3]),
    own: (Vec<&'m [u8]>, Vec<i64>, Vec<Option<i64>>),
    refund: Option<(i64, i64)>,
    all_held: Vec<&'m [u8]>,
    soonest: (Vec<&'m [u8]>, Vec<i64>, Vec<i64>),
    loaded: (Vec<&'m [u8]>, Vec<&'m str>),
}

impl Columns<'_> {
    fn statements<'s>(&'s self, sql: &'s LoadSql) -> Vec<(RowKind, Statement<'s>)> {
        let mut statements = Vec::new();
        let mut add = |rows: usize, kind, sql, params| {
            if rows > 0 {
                statements.push((kind, Statement { sql, params }));
            }
        };
        let (bytes, number) = (|| Type::BYTEA_ARRAY, || Type::INT8_ARRAY);
        let mut live: Vec<Param<'_>> = vec![(&self.entries.0, bytes())];
        live.extend(self.entries.1.iter().map(|column| -> Param<'_> { (column, number()) }));
        add(self.entries.0.len(), RowKind::Entries, &sql.live, live);
        if let Some((ticket, taken_at)) = &self.refund {
            let own: Vec<Param<'_>> = vec![
                (&self.own.0, bytes()),
                (&self.own.1, number()),
                (&self.own.2, number()),
                (ticket, Type::INT8),
                (taken_at, Type::INT8),
            ];
            add(self.own.0.len(), RowKind::Entries, &sql.own, own);
        }
        add(self.all_held.len(), RowKind::Holds, &sql.all_holds, vec![(&self.all_held, bytes())]);
        let (ids, cutoffs, weights) = &self.soonest;
        let bounds: Vec<Param<'_>> = vec![
            (ids, bytes()),
            (cutoffs, number()),
            (&self.loaded.0, bytes()),
            (&self.loaded.1, Type::TEXT_ARRAY),
        ];
        add(ids.len(), RowKind::HoldBounds, &sql.bounds, bounds);
        let soonest: Vec<Param<'_>> = vec![(ids, bytes()), (cutoffs, number()), (weights, number())];
        add(ids.len(), RowKind::Holds, &sql.soonest, soonest);
        statements
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    #[test]
    fn a_transaction_waits_for_locks_only_if_it_was_told_to() {
        let settings = Settings::parse("postgres://a@localhost/b").unwrap();
        let opening = |locking| {
            let (begin, wants) = (Begin::new(&settings), Wants::default());
            LoadSql::new("s").opening(&begin, &wants, locking, Duration::from_secs(1), None)
        };
        assert!(opening(Locking::Wait).ends_with(",NULL,true)"), "{}", opening(Locking::Wait));
        assert!(opening(Locking::OnlyFree).ends_with(",NULL,false)"), "{}", opening(Locking::OnlyFree));
    }
}
