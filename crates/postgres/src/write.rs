//! The second half of a transaction: writes the changes, and commits.

use tokio_postgres::Client;
use tokio_postgres::types::Type;
use tollgate_core::{StoreError, Ticket, Timestamp};

use crate::arguments::Arguments;
use crate::codec::column;
use crate::counter::{CounterEdit, HeaderRow};
use crate::name::{CounterId, Name, escape};
use crate::transaction::{Param, Statement, commit};

#[derive(Default)]
pub(crate) struct Edits<'e> {
    pub(crate) counters: Vec<(&'e Name, CounterEdit)>,
    /// The refunded tickets to record.
    pub(crate) spent: Vec<Spent>,
}

/// A mark that a ticket was refunded at a counter.
pub(crate) struct Spent {
    pub(crate) counter: CounterId,
    pub(crate) ticket: Ticket,
    pub(crate) taken_at: Timestamp,
    /// The time until which the mark is needed.
    pub(crate) until: Timestamp,
}

/// The statements that write.
pub(crate) struct WriteSql {
    update: String,
    headers: String,
    put: String,
    drop: String,
    clamp: [String; 2],
    remove: String,
    put_holds: String,
    end_holds: String,
    end_all_holds: String,
    end_expired: String,
    spent: String,
}

/// One decision removes at most this many dead rows from each log.
const MOST_DROPPED: i64 = 500;

const HEADERS: &str = "SELECT @.put_counters($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";

const PUT: &str = "SELECT @.put_entries($1, $2, $3, $4, $5, $6)";

const DROP: &str = "SELECT @.drop_entries($1, $2, $3, $4)";

const CLAMP: [&str; 2] = [
    "UPDATE @.entry e SET at = d.at FROM unnest($1::bytea[], $2::bigint[]) d(counter, at) \
     WHERE e.counter = d.counter AND e.log <= 0 AND e.at > d.at",
    "UPDATE @.hold h SET renewed = d.at FROM unnest($1::bytea[], $2::bigint[]) d(counter, at) \
     WHERE h.counter = d.counter AND h.renewed > d.at",
];

const REMOVE: &str = "DELETE FROM @.entry e \
    USING unnest($1::bytea[], $2::bigint[], $3::bigint[]) d(counter, log, seq) \
    WHERE e.counter = d.counter AND e.log = d.log AND e.seq = d.seq";

const PUT_HOLDS: &str = "INSERT INTO @.hold (counter, id, ticket, weight, since, renewed) \
    SELECT * FROM unnest($1::bytea[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[]) \
    ON CONFLICT (counter, id) DO UPDATE SET ticket = excluded.ticket, weight = excluded.weight, \
    since = excluded.since, renewed = excluded.renewed";

const END_HOLDS: &str = "DELETE FROM @.hold h USING unnest($1::bytea[], $2::text[]) d(counter, id) \
    WHERE h.counter = d.counter AND h.id = d.id";

const END_EXPIRED: &str = "DELETE FROM @.hold h WHERE h.ctid = ANY (ARRAY( \
    SELECT x.tid FROM unnest($1::bytea[], $2::bigint[]) d(counter, cutoff) CROSS JOIN LATERAL ( \
    SELECT y.ctid AS tid FROM @.hold y WHERE y.counter = d.counter AND y.renewed <= d.cutoff LIMIT $3) x))";

const SPENT: &str = "INSERT INTO @.spent (counter, ticket, taken_at, until) \
    SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bigint[], $4::bigint[]) ON CONFLICT DO NOTHING";

/// The statements of a write.
#[derive(Default)]
struct Batch<'s>(Vec<Statement<'s>>);

impl<'s> Batch<'s> {
    /// Adds a statement, unless it has no rows.
    fn add(&mut self, sql: &'s str, rows: usize, params: Vec<Param<'s>>) {
        if rows > 0 {
            self.0.push(Statement { sql, params });
        }
    }
}

impl WriteSql {
    pub(crate) fn new(schema: &str) -> Self {
        let sql = |text: &str| text.replace('@', schema);
        Self {
            update: sql("SELECT @.update_counters"),
            headers: sql(HEADERS),
            put: sql(PUT),
            drop: sql(DROP),
            clamp: CLAMP.map(sql),
            remove: sql(REMOVE),
            put_holds: sql(PUT_HOLDS),
            end_holds: sql(END_HOLDS),
            end_all_holds: sql("DELETE FROM @.hold WHERE counter = ANY($1)"),
            end_expired: sql(END_EXPIRED),
            spent: sql(SPENT),
        }
    }

    /// Writes everything and commits.
    pub(crate) async fn write(&self, client: &Client, edits: &Edits<'_>) -> Result<(), StoreError> {
        let headers = HeaderColumns::new(edits);
        let logs = LogColumns::new(edits);
        let holds = HoldColumns::new(edits);
        let marks = mark_columns(edits);
        let (bytes, number) = (|| Type::BYTEA_ARRAY, || Type::INT8_ARRAY);
        let mut batch = Batch::default();
        batch.add(&self.headers, headers.ids.len(), headers.params());
        for clamp in &self.clamp {
            let params: Vec<Param<'_>> = vec![(&logs.clamp.0, bytes()), (&logs.clamp.1, number())];
            batch.add(clamp, logs.clamp.0.len(), params);
        }
        let mut drop: Vec<Param<'_>> =
            vec![(&logs.drop.0, bytes()), (&logs.drop.1, number()), (&logs.drop.2, number())];
        drop.push((&MOST_DROPPED, Type::INT8));
        batch.add(&self.drop, logs.drop.0.len(), drop);
        let removed: Vec<Param<'_>> =
            vec![(&logs.remove.0, bytes()), (&logs.remove.1, number()), (&logs.remove.2, number())];
        batch.add(&self.remove, logs.remove.0.len(), removed);
        let mut put: Vec<Param<'_>> = vec![(&logs.put.0, bytes())];
        put.extend(logs.put.1.iter().map(|numbers| -> Param<'_> { (numbers, number()) }));
        batch.add(&self.put, logs.put.0.len(), put);
        holds.add_to(&mut batch, self);
        let mut spent: Vec<Param<'_>> = vec![(&marks.0, bytes())];
        spent.extend(marks.1.iter().map(|numbers| -> Param<'_> { (numbers, number()) }));
        batch.add(&self.spent, marks.0.len(), spent);
        commit(client, &batch.0, self.updates(edits).as_deref()).await
    }

    /// The call that updates the rows of counters whose limits are the same as before. It contains only
    /// numbers.
    fn updates(&self, edits: &Edits<'_>) -> Option<String> {
        let all = edits.counters.iter().filter_map(|(name, edit)| Some((name, edit.header.as_ref()?)));
        let known: Vec<(&&Name, &HeaderRow)> = all.filter(|(_, row)| row.is_known).collect();
        if known.is_empty() {
            return None;
        }
        let numbers = |place: usize| known.iter().map(move |(_, row)| Some(row.numbers[place]));
        let call = Arguments::of(self.update.clone())
            .ids(known.iter().map(|(name, _)| &name.id))
            .lists(known.iter().map(|(_, row)| row.used.iter().copied()))
            .lists(known.iter().map(|(_, row)| row.marks.iter().copied().map(Some)))
            .list(numbers(0))
            .list(numbers(1))
            .list(numbers(2))
            .list(numbers(3))
            .list(known.iter().map(|(_, row)| row.idle_at));
        Some(call.end())
    }
}

/// The columns of counters that are new or whose limits have changed.
#[derive(Default)]
struct HeaderColumns<'c> {
    ids: Vec<&'c [u8]>,
    texts: [Vec<&'c str>; 3],
    arrays: [Vec<String>; 3],
    numbers: [Vec<i64>; 4],
    idle_at: Vec<Option<i64>>,
}

impl<'c> HeaderColumns<'c> {
    fn new(edits: &'c Edits<'_>) -> Self {
        let mut columns = Self::default();
        for (name, edit) in &edits.counters {
            let Some(row) = edit.header.as_ref().filter(|row| !row.is_known) else { continue };
            columns.ids.push(&name.id);
            for (column, text) in columns.texts.iter_mut().zip([&name.rule, &name.key, &row.limits]) {
                column.push(text);
            }
            let marks: Vec<Option<i64>> = row.marks.iter().copied().map(Some).collect();
            for (column, array) in columns.arrays.iter_mut().zip([&row.used, &marks, &row.logs]) {
                column.push(array_text(array));
            }
            for (column, number) in columns.numbers.iter_mut().zip(row.numbers) {
                column.push(number);
            }
            columns.idle_at.push(row.idle_at);
        }
        columns
    }

    fn params(&self) -> Vec<Param<'_>> {
        let mut params: Vec<Param<'_>> = vec![(&self.ids, Type::BYTEA_ARRAY)];
        params.extend(self.texts.iter().map(|texts| -> Param<'_> { (texts, Type::TEXT_ARRAY) }));
        params.extend(self.arrays.iter().map(|texts| -> Param<'_> { (texts, Type::TEXT_ARRAY) }));
        params.extend(self.numbers.iter().map(|numbers| -> Param<'_> { (numbers, Type::INT8_ARRAY) }));
        params.push((&self.idle_at, Type::INT8_ARRAY));
        params
    }
}

/// The numbers as the text of an array. All inner arrays of an SQL array would need the same length.
fn array_text(numbers: &[Option<i64>]) -> String {
    let text = |number: &Option<i64>| number.map_or_else(|| "NULL".to_owned(), |number| number.to_string());
    let numbers: Vec<String> = numbers.iter().map(text).collect();
    format!("{{{}}}", numbers.join(","))
}

/// Counters, and two numbers for each.
type Located<'c> = (Vec<&'c [u8]>, Vec<i64>, Vec<i64>);

/// The changes of the entry table, as columns.
#[derive(Default)]
struct LogColumns<'c> {
    put: (Vec<&'c [u8]>, [Vec<i64>; 5]),
    drop: Located<'c>,
    remove: Located<'c>,
    clamp: (Vec<&'c [u8]>, Vec<i64>),
}

impl<'c> LogColumns<'c> {
    fn new(edits: &'c Edits<'_>) -> Self {
        let mut columns = Self::default();
        for (name, edit) in &edits.counters {
            for row in &edit.put {
                columns.put.0.push(&name.id);
                let [at, cost] = [row.entry.at.as_micros(), row.entry.cost].map(column);
                let numbers = [row.log, row.seq, at, row.entry.ticket.0.cast_signed(), cost];
                columns.put.1.iter_mut().zip(numbers).for_each(|(column, number)| column.push(number));
            }
            for (located, rows) in
                [(&mut columns.drop, &edit.drop_below), (&mut columns.remove, &edit.removed)]
            {
                for (log, number) in rows {
                    located.0.push(&name.id);
                    located.1.push(*log);
                    located.2.push(*number);
                }
            }
            if let Some(at) = edit.clamp {
                columns.clamp.0.push(&name.id);
                columns.clamp.1.push(column(at.as_micros()));
            }
        }
        columns
    }
}

/// The changes of the hold table, as columns.
#[derive(Default)]
struct HoldColumns<'c> {
    put: (Vec<&'c [u8]>, Vec<String>),
    numbers: [Vec<i64>; 4],
    end: (Vec<&'c [u8]>, Vec<String>),
    end_all: Vec<&'c [u8]>,
    expired: (Vec<&'c [u8]>, Vec<i64>),
}

impl<'c> HoldColumns<'c> {
    fn new(edits: &'c Edits<'_>) -> Self {
        let mut columns = Self::default();
        for (name, edit) in &edits.counters {
            for (id, hold) in &edit.put_holds {
                columns.put.0.push(&name.id);
                columns.put.1.push(escape(id));
                let [weight, since, renewed] =
                    [hold.weight, hold.since.as_micros(), hold.renewed.as_micros()].map(column);
                let numbers = [hold.ticket.0.cast_signed(), weight, since, renewed];
                columns.numbers.iter_mut().zip(numbers).for_each(|(column, number)| column.push(number));
            }
            for id in &edit.end_holds {
                columns.end.0.push(&name.id);
                columns.end.1.push(escape(id));
            }
            if edit.end_all_holds {
                columns.end_all.push(&name.id);
            }
            if let Some(cutoff) = edit.end_expired {
                columns.expired.0.push(&name.id);
                columns.expired.1.push(cutoff);
            }
        }
        columns
    }

    fn add_to<'s>(&'s self, batch: &mut Batch<'s>, sql: &'s WriteSql) {
        let (bytes, number, text) = (|| Type::BYTEA_ARRAY, || Type::INT8_ARRAY, || Type::TEXT_ARRAY);
        batch.add(&sql.end_all_holds, self.end_all.len(), vec![(&self.end_all, bytes())]);
        let expired: Vec<Param<'_>> =
            vec![(&self.expired.0, bytes()), (&self.expired.1, number()), (&MOST_DROPPED, Type::INT8)];
        batch.add(&sql.end_expired, self.expired.0.len(), expired);
        let ended: Vec<Param<'_>> = vec![(&self.end.0, bytes()), (&self.end.1, text())];
        batch.add(&sql.end_holds, self.end.0.len(), ended);
        let mut put: Vec<Param<'_>> = vec![(&self.put.0, bytes()), (&self.put.1, text())];
        put.extend(self.numbers.iter().map(|numbers| -> Param<'_> { (numbers, number()) }));
        batch.add(&sql.put_holds, self.put.0.len(), put);
    }
}

fn mark_columns<'c>(edits: &'c Edits<'_>) -> (Vec<&'c [u8]>, [Vec<i64>; 3]) {
    let ids = edits.spent.iter().map(|mark| &mark.counter[..]).collect();
    let numbers = |of: fn(&Spent) -> i64| edits.spent.iter().map(of).collect();
    let columns = [
        numbers(|mark| mark.ticket.0.cast_signed()),
        numbers(|mark| column(mark.taken_at.as_micros())),
        numbers(|mark| column(mark.until.as_micros())),
    ];
    (ids, columns)
}

impl Edits<'_> {
    /// Whether nothing is to be written.
    pub(crate) fn is_empty(&self) -> bool {
        self.counters.is_empty() && self.spent.is_empty()
    }
}
