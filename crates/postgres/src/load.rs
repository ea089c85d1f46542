//! The first half of a transaction: locks, then the server's time, then what settling needs of each
//! counter.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};
use tollgate_core::limit::{Entry, Hold, Limit};
use tollgate_core::{Plan, StoreError, Ticket, Timestamp};

use crate::codec::{Garbled, moment_of, natural, ticket_of};
use crate::counter::holds::FEW;
use crate::counter::{Header, Loaded, LogRow};
use crate::fault::damaged;
use crate::name::{CounterId, Name, unescape};
use crate::transaction::{Begin, Param, Statement, ask};

/// What a transaction needs of one counter.
pub(crate) struct Want {
    pub(crate) name: Name,
    /// The limits that it is settled under.
    pub(crate) plans: Vec<Arc<Plan>>,
    /// The most that one attempt takes.
    pub(crate) cost: u64,
    /// The ids of holds that are named.
    pub(crate) ids: BTreeSet<String>,
    /// Whether all holds are needed, however many there are.
    pub(crate) all_holds: bool,
}

/// What a transaction needs.
#[derive(Default)]
pub(crate) struct Wants {
    pub(crate) counters: BTreeMap<CounterId, Want>,
    /// The ticket that is given back, and when it was taken.
    pub(crate) given: Option<(Ticket, Timestamp)>,
}

/// What was loaded.
pub(crate) struct Scene {
    pub(crate) now: Timestamp,
    pub(crate) counters: HashMap<CounterId, Loaded>,
    /// The counters at which the ticket was given back before.
    pub(crate) spent: BTreeSet<CounterId>,
    /// When rules were forgotten.
    pub(crate) forgotten: HashMap<String, Timestamp>,
}

/// Entries of a log that are loaded beyond those that the cost may need.
const SPARE_ENTRIES: u64 = 8;

/// Under which name it is kept when all rules were forgotten: no rule's name has it.
pub(crate) const ALL_RULES: &str = "%";

/// The statements that load.
pub(crate) struct LoadSql {
    counters: String,
    logs: String,
    own: String,
    holds: String,
    all_holds: String,
    spent: String,
    forgotten: String,
}

const COUNTERS: &str = "SELECT now, id, limits, states, born, used, seq, holds, held, oldest, newest, last_at \
    FROM @.lock_and_load($1, $2, $3, $4)";

const LOGS: &str = "SELECT counter, log, seq, at, ticket, cost FROM @.oldest_entries($1, $2)";

// From the newest on: most tickets are given back soon.
const OWN: &str = "SELECT k.id, 0::bigint, e.seq, e.at, e.ticket, e.cost FROM unnest($1::bytea[]) k(id) \
    CROSS JOIN LATERAL (SELECT seq, at, ticket, cost FROM @.entry \
    WHERE counter = k.id AND ticket = $2 ORDER BY seq DESC LIMIT 1) e";

const HOLDS: &str = "SELECT h.counter, h.id, h.ticket, h.weight, h.since, h.renewed \
    FROM @.counter c JOIN @.hold h ON h.counter = c.id WHERE c.id = ANY($1) AND c.holds <= 64 \
    UNION ALL SELECT h.counter, h.id, h.ticket, h.weight, h.since, h.renewed \
    FROM @.counter c JOIN @.hold h ON h.counter = c.id AND h.id = ANY($2) \
    WHERE c.id = ANY($1) AND c.holds > 64";

const ALL_HOLDS: &str = "SELECT h.counter, h.id, h.ticket, h.weight, h.since, h.renewed \
    FROM @.hold h WHERE h.counter = ANY($1)";

const SPENT: &str = "SELECT counter FROM @.spent WHERE counter = ANY($1) AND ticket = $2 AND taken_at = $3";

const FORGOTTEN: &str = "SELECT rule, at FROM @.forgotten WHERE rule = ANY($1) OR rule = '%'";

impl LoadSql {
    pub(crate) fn new(schema: &str) -> Self {
        let sql = |text: &str| text.replace('@', schema);
        Self {
            counters: sql(COUNTERS),
            logs: sql(LOGS),
            own: sql(OWN),
            holds: sql(HOLDS),
            all_holds: sql(ALL_HOLDS),
            spent: sql(SPENT),
            forgotten: sql(FORGOTTEN),
        }
    }

    /// Begins a transaction, locks all counters in one order, and loads them. `now` goes before the
    /// server's time.
    pub(crate) async fn load(
        &self,
        client: &Client,
        begin: &Begin,
        wants: &Wants,
        now: Option<Timestamp>,
    ) -> Result<Scene, StoreError> {
        let mut locks: Vec<i64> = wants.counters.values().map(|want| want.name.lock).collect();
        locks.sort_unstable();
        locks.dedup();
        let ids: Vec<&[u8]> = wants.counters.keys().map(|id| &id[..]).collect();
        let now = now.map(|now| now.as_micros().cast_signed());
        let (sliding, mosts) = wants.sliding();
        let (held, all_held, named) = wants.held();
        let ticket = wants.given.map(|(ticket, _)| ticket.0.cast_signed());
        let taken_at = wants.given.map(|(_, at)| at.as_micros().cast_signed());
        let rules: Vec<&str> = wants.counters.values().map(|want| &*want.name.rule).collect();
        let time_outs = &begin.time_outs[..];
        let counters: Vec<Param<'_>> = vec![
            (&time_outs, Type::TEXT_ARRAY),
            (&locks, Type::INT8_ARRAY),
            (&ids, Type::BYTEA_ARRAY),
            (&now, Type::INT8),
        ];
        let mut statements = vec![Statement { sql: &self.counters, params: counters }];
        let mut kinds = vec![Kind::Counters];
        let mut add = |kind, sql, params| {
            kinds.push(kind);
            statements.push(Statement { sql, params });
        };
        if !sliding.is_empty() {
            let params: Vec<Param<'_>> = vec![(&sliding, Type::BYTEA_ARRAY), (&mosts, Type::INT8_ARRAY)];
            add(Kind::Logs, &self.logs, params);
        }
        if !held.is_empty() {
            add(Kind::Holds, &self.holds, vec![(&held, Type::BYTEA_ARRAY), (&named, Type::TEXT_ARRAY)]);
        }
        if !all_held.is_empty() {
            add(Kind::Holds, &self.all_holds, vec![(&all_held, Type::BYTEA_ARRAY)]);
        }
        if let (Some(ticket), Some(taken_at)) = (&ticket, &taken_at) {
            if !sliding.is_empty() {
                add(Kind::Own, &self.own, vec![(&sliding, Type::BYTEA_ARRAY), (ticket, Type::INT8)]);
            }
            let params: Vec<Param<'_>> =
                vec![(&ids, Type::BYTEA_ARRAY), (ticket, Type::INT8), (taken_at, Type::INT8)];
            add(Kind::Spent, &self.spent, params);
            add(Kind::Forgotten, &self.forgotten, vec![(&rules, Type::TEXT_ARRAY)]);
        }
        let answers = ask(client, Some(&begin.plain), &statements).await?;
        let mut scene = Scene::empty();
        for (kind, rows) in kinds.into_iter().zip(answers) {
            scene.read(kind, &rows).map_err(|Garbled| damaged("a row of the store"))?;
        }
        for (id, want) in &wants.counters {
            if let Some(loaded) = scene.counters.get_mut(id) {
                let few = loaded.header.as_ref().is_none_or(|header| header.holds <= FEW);
                loaded.all_holds = few || want.all_holds;
            }
        }
        self.load_more(client, wants, &mut scene).await?;
        Ok(scene)
    }

    /// Loads what turns out to be needed besides: more entries of a log, or all holds.
    async fn load_more(&self, client: &Client, wants: &Wants, scene: &mut Scene) -> Result<(), StoreError> {
        loop {
            let (mut sliding, mut mosts, mut held) = (Vec::<&[u8]>::new(), Vec::<i64>::new(), Vec::new());
            for (id, want) in &wants.counters {
                let Some(loaded) = scene.counters.get(id) else { continue };
                if let Some(most) = want.lacks_entries(loaded, scene.now) {
                    sliding.push(&id[..]);
                    mosts.push(most.cast_signed());
                }
                if want.lacks_holds(loaded, scene.now) {
                    held.push(&id[..]);
                }
            }
            if sliding.is_empty() && held.is_empty() {
                return Ok(());
            }
            let mut statements = Vec::new();
            let logs: Vec<Param<'_>> = vec![(&sliding, Type::BYTEA_ARRAY), (&mosts, Type::INT8_ARRAY)];
            statements.push(Statement { sql: &self.logs, params: logs });
            statements.push(Statement { sql: &self.all_holds, params: vec![(&held, Type::BYTEA_ARRAY)] });
            let answers = ask(client, None, &statements).await?;
            for (id, loaded) in &mut scene.counters {
                if sliding.contains(&&id[..]) {
                    loaded.logs.iter_mut().for_each(Vec::clear);
                }
                loaded.all_holds |= held.contains(&&id[..]);
            }
            for (kind, rows) in [Kind::Logs, Kind::Holds].into_iter().zip(answers) {
                scene.read(kind, &rows).map_err(|Garbled| damaged("a row of the store"))?;
            }
        }
    }
}

/// What the rows of a statement are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counters,
    Logs,
    Own,
    Holds,
    Spent,
    Forgotten,
}

impl Wants {
    /// The counters with sliding limits, and how many entries of each are loaded.
    fn sliding(&self) -> (Vec<&[u8]>, Vec<i64>) {
        let slides = |want: &&(&CounterId, &Want)| want.1.limits().any(|it| it.sliding().is_some());
        let all: Vec<_> = self.counters.iter().collect();
        let sliding = || all.iter().filter(slides);
        (
            sliding().map(|(id, _)| &id[..]).collect(),
            sliding().map(|(_, want)| (want.cost + SPARE_ENTRIES).cast_signed()).collect(),
        )
    }

    /// The counters with holds, those of which all are needed, and the ids that are named.
    fn held(&self) -> (Vec<&[u8]>, Vec<&[u8]>, Vec<&str>) {
        let holding = self.counters.iter().filter(|(_, want)| want.limits().any(Limit::holds));
        let (all, some): (Vec<_>, Vec<_>) = holding.partition(|(_, want)| want.all_holds);
        let named = some.iter().flat_map(|(_, want)| want.ids.iter().map(String::as_str)).collect();
        let [some, all] = [some, all].map(|wants| wants.into_iter().map(|(id, _)| &id[..]).collect());
        (some, all, named)
    }
}

impl Want {
    fn limits(&self) -> impl Iterator<Item = &Limit> {
        self.plans.iter().flat_map(|plan| plan.limits())
    }

    /// How many entries to load, if those that were loaded may not be enough: of each log they must be
    /// all, or reach beyond what has aged out and give back as much as an attempt may have to wait for.
    fn lacks_entries(&self, loaded: &Loaded, now: Timestamp) -> Option<u64> {
        let header = loaded.header.as_ref()?;
        let last_at = moment_of(header.last_at?).ok()?;
        let old = header.plan(&self.name.rule.as_str().into()).ok()?;
        let logs = old.limits().iter().filter_map(|limit| Some(limit.sliding()?.period()));
        let mut most = None;
        for (index, period) in logs.enumerate() {
            let same = self.limits().filter_map(Limit::sliding).filter(|limit| limit.period() == period);
            let maxima = same.map(|limit| limit.max());
            let Some(max) = maxima.min() else { continue };
            let used = natural(*header.used.get(index)?).ok()?;
            let rows = loaded.logs.get(index).map(Vec::as_slice).unwrap_or_default();
            let aged_out = |at: Timestamp| at.min(now) + period <= now;
            let cost = |row: &LogRow| row.entry.cost;
            let live: u64 = rows.iter().filter(|row| !aged_out(row.entry.at)).map(cost).sum();
            let need = used.saturating_sub(max) + self.cost.max(1);
            if rows.iter().map(cost).sum::<u64>() < used && !aged_out(last_at) && live < need {
                most = most.max(Some(rows.len() as u64 * 8 + need));
            }
        }
        most
    }

    /// Whether all holds must be looked at: some may have run out, or the time until one does is needed.
    fn lacks_holds(&self, loaded: &Loaded, now: Timestamp) -> bool {
        let Some(header) = loaded.header.as_ref().filter(|_| !loaded.all_holds) else { return false };
        let Ok(old) = header.plan(&self.name.rule.as_str().into()) else { return false };
        let moments = moment_of(header.oldest).and_then(|oldest| Ok((oldest, moment_of(header.newest)?)));
        let (Ok((oldest, newest)), Ok(held)) = (moments, natural(header.held)) else { return false };
        self.limits().chain(old.limits()).filter_map(Limit::in_flight).any(|limit| {
            let lacks = |lease| newest > now || now >= oldest + lease || held + self.cost > limit.max();
            limit.lease().is_some_and(lacks)
        })
    }
}

impl Scene {
    fn empty() -> Self {
        let (counters, forgotten) = (HashMap::new(), HashMap::new());
        Self { now: Timestamp::ZERO, counters, spent: BTreeSet::new(), forgotten }
    }

    fn read(&mut self, kind: Kind, rows: &[Row]) -> Result<(), Garbled> {
        rows.iter().try_for_each(|row| match kind {
            Kind::Counters => self.read_header(row),
            Kind::Logs | Kind::Own => self.read_entry(kind, row),
            Kind::Holds => self.read_hold(row),
            Kind::Spent => self.spent.insert(id_of(row, 0)?).then_some(()).ok_or(Garbled),
            Kind::Forgotten => {
                self.forgotten.insert(cell(row, 0)?, moment_of(cell(row, 1)?)?);
                Ok(())
            }
        })
    }

    fn read_header(&mut self, row: &Row) -> Result<(), Garbled> {
        self.now = moment_of(cell(row, 0)?)?;
        if cell::<Option<&[u8]>>(row, 1)?.is_none() {
            return Ok(());
        }
        let header = Header {
            limits: cell(row, 2)?,
            states: cell(row, 3)?,
            born: cell(row, 4)?,
            used: cell(row, 5)?,
            seq: cell(row, 6)?,
            holds: cell(row, 7)?,
            held: cell(row, 8)?,
            oldest: cell(row, 9)?,
            newest: cell(row, 10)?,
            last_at: cell(row, 11)?,
        };
        let logs = vec![Vec::new(); header.born.len()];
        let loaded = Loaded { header: Some(header), logs, ..Loaded::default() };
        self.counters.insert(id_of(row, 1)?, loaded);
        Ok(())
    }

    fn read_entry(&mut self, kind: Kind, row: &Row) -> Result<(), Garbled> {
        let Some(loaded) = self.counters.get_mut(&id_of(row, 0)?) else { return Ok(()) };
        let entry = Entry {
            at: moment_of(cell(row, 3)?)?,
            ticket: ticket_of(cell(row, 4)?),
            cost: natural(cell(row, 5)?)?,
        };
        let log_row = LogRow { seq: cell(row, 2)?, entry };
        if kind == Kind::Own {
            loaded.own = Some(log_row);
            return Ok(());
        }
        let index = usize::try_from(cell::<i64>(row, 1)? - 1).map_err(|_| Garbled)?;
        loaded.logs.get_mut(index).ok_or(Garbled)?.push(log_row);
        Ok(())
    }

    fn read_hold(&mut self, row: &Row) -> Result<(), Garbled> {
        let Some(loaded) = self.counters.get_mut(&id_of(row, 0)?) else { return Ok(()) };
        let hold = Hold {
            ticket: ticket_of(cell(row, 2)?),
            weight: natural(cell(row, 3)?)?,
            since: moment_of(cell(row, 4)?)?,
            renewed: moment_of(cell(row, 5)?)?,
        };
        loaded.holds.insert(unescape(cell(row, 1)?).ok_or(Garbled)?, hold);
        Ok(())
    }
}

fn cell<'r, T: tokio_postgres::types::FromSql<'r>>(row: &'r Row, index: usize) -> Result<T, Garbled> {
    row.try_get(index).map_err(|_| Garbled)
}

fn id_of(row: &Row, index: usize) -> Result<CounterId, Garbled> {
    cell::<&[u8]>(row, index)?.try_into().map_err(|_| Garbled)
}
