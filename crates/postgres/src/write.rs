//! The second half of a transaction: what changed is written, and committed.

use tokio_postgres::Client;
use tokio_postgres::types::Type;
use tollgate_core::{StoreError, Ticket, Timestamp};

use crate::codec::column;
use crate::counter::CounterEdit;
use crate::name::{CounterId, Name, escape};
use crate::transaction::{Param, Statement, commit};

/// All that a transaction writes.
#[derive(Default)]
pub(crate) struct Edits<'e> {
    pub(crate) counters: Vec<(&'e Name, CounterEdit)>,
    /// What was given back.
    pub(crate) spent: Vec<Spent>,
    /// Rules of which counters were forgotten, and when.
    pub(crate) forgotten: Vec<(String, Timestamp)>,
}

/// A mark that a ticket was given back at a counter.
pub(crate) struct Spent {
    pub(crate) counter: CounterId,
    pub(crate) ticket: Ticket,
    pub(crate) taken_at: Timestamp,
    /// How long the mark is needed.
    pub(crate) until: Timestamp,
}

/// The statements that write.
pub(crate) struct WriteSql {
    headers: String,
    add: String,
    drop: String,
    clamp: String,
    lower: String,
    remove: String,
    put_holds: String,
    end_holds: String,
    end_all_holds: String,
    forget: [String; 3],
    spent: String,
    forgotten: String,
}

const HEADERS: &str = "SELECT @.put_counters($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";

const ADD: &str = "SELECT @.add_entries($1, $2, $3, $4, $5)";

const DROP: &str = "SELECT @.drop_entries($1, $2)";

const CLAMP: &str = "UPDATE @.entry e SET at = d.at FROM unnest($1::bytea[], $2::bigint[]) d(counter, at) \
    WHERE e.counter = d.counter AND e.at > d.at";

const LOWER: &str = "UPDATE @.entry e SET cost = d.cost \
    FROM unnest($1::bytea[], $2::bigint[], $3::bigint[]) d(counter, seq, cost) \
    WHERE e.counter = d.counter AND e.seq = d.seq";

const REMOVE: &str = "DELETE FROM @.entry e USING unnest($1::bytea[], $2::bigint[]) d(counter, seq) \
    WHERE e.counter = d.counter AND e.seq = d.seq";

const PUT_HOLDS: &str = "INSERT INTO @.hold (counter, id, ticket, weight, since, renewed) \
    SELECT * FROM unnest($1::bytea[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[]) \
    ON CONFLICT (counter, id) DO UPDATE SET ticket = excluded.ticket, weight = excluded.weight, \
    since = excluded.since, renewed = excluded.renewed";

const END_HOLDS: &str = "DELETE FROM @.hold h USING unnest($1::bytea[], $2::text[]) d(counter, id) \
    WHERE h.counter = d.counter AND h.id = d.id";

const SPENT: &str = "INSERT INTO @.spent (counter, ticket, taken_at, until) \
    SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bigint[], $4::bigint[]) ON CONFLICT DO NOTHING";

const FORGOTTEN: &str = "INSERT INTO @.forgotten AS f (rule, at) SELECT * FROM unnest($1::text[], $2::bigint[]) \
    ON CONFLICT (rule) DO UPDATE SET at = greatest(f.at, excluded.at)";

/// Columns of the rows that statements write.
#[derive(Default)]
struct Columns<'c> {
    ids: Vec<&'c [u8]>,
    texts: [Vec<&'c str>; 3],
    states: Vec<&'c [u8]>,
    arrays: [Vec<String>; 2],
    numbers: [Vec<i64>; 5],
    idle_at: Vec<Option<i64>>,
}

impl WriteSql {
    pub(crate) fn new(schema: &str) -> Self {
        let sql = |text: &str| text.replace('@', schema);
        Self {
            headers: sql(HEADERS),
            add: sql(ADD),
            drop: sql(DROP),
            clamp: sql(CLAMP),
            lower: sql(LOWER),
            remove: sql(REMOVE),
            put_holds: sql(PUT_HOLDS),
            end_holds: sql(END_HOLDS),
            end_all_holds: sql("DELETE FROM @.hold WHERE counter = ANY($1)"),
            forget: [
                sql("DELETE FROM @.counter WHERE id = ANY($1)"),
                sql("DELETE FROM @.entry WHERE counter = ANY($1)"),
                sql("DELETE FROM @.hold WHERE counter = ANY($1)"),
            ],
            spent: sql(SPENT),
            forgotten: sql(FORGOTTEN),
        }
    }

    /// Writes everything and commits.
    pub(crate) async fn write(&self, client: &Client, edits: &Edits<'_>) -> Result<(), StoreError> {
        let headers = header_columns(edits);
        let logs = LogColumns::new(edits);
        let holds = HoldColumns::new(edits);
        let (forget, marks) = (forgotten_ids(edits), mark_columns(edits));
        let rules: Vec<&str> = edits.forgotten.iter().map(|(rule, _)| rule.as_str()).collect();
        let moments: Vec<i64> = edits.forgotten.iter().map(|(_, at)| column(at.as_micros())).collect();
        let mut statements = Vec::new();
        let mut add = |sql, rows: usize, params| {
            if rows > 0 {
                statements.push(Statement { sql, params });
            }
        };
        let bytes = Type::BYTEA_ARRAY;
        let number = Type::INT8_ARRAY;
        for sql in &self.forget {
            add(sql, forget.len(), vec![(&forget, bytes.clone())]);
        }
        add(&self.headers, headers.ids.len(), headers.params());
        let pair = |ids, numbers| -> Vec<Param<'_>> { vec![(ids, bytes.clone()), (numbers, number.clone())] };
        add(&self.clamp, logs.clamp.0.len(), pair(&logs.clamp.0, &logs.clamp.1));
        add(&self.drop, logs.drop.0.len(), pair(&logs.drop.0, &logs.drop.1));
        add(&self.remove, logs.remove.0.len(), pair(&logs.remove.0, &logs.remove.1));
        let mut lower = pair(&logs.lower.0, &logs.lower.1);
        lower.push((&logs.lowered, number.clone()));
        add(&self.lower, logs.lower.0.len(), lower);
        let mut added: Vec<Param<'_>> = vec![(&logs.added.0, bytes.clone())];
        added.extend(logs.added.1.iter().map(|numbers| -> Param<'_> { (numbers, number.clone()) }));
        add(&self.add, logs.added.0.len(), added);
        add(&self.end_all_holds, holds.end_all.len(), vec![(&holds.end_all, bytes.clone())]);
        let text = Type::TEXT_ARRAY;
        let ended: Vec<Param<'_>> = vec![(&holds.end.0, bytes.clone()), (&holds.end.1, text.clone())];
        add(&self.end_holds, holds.end.0.len(), ended);
        let mut put: Vec<Param<'_>> = vec![(&holds.put.0, bytes.clone()), (&holds.put.1, text.clone())];
        put.extend(holds.numbers.iter().map(|numbers| -> Param<'_> { (numbers, number.clone()) }));
        add(&self.put_holds, holds.put.0.len(), put);
        let mut spent: Vec<Param<'_>> = vec![(&marks.0, bytes.clone())];
        spent.extend(marks.1.iter().map(|numbers| -> Param<'_> { (numbers, number.clone()) }));
        add(&self.spent, marks.0.len(), spent);
        add(&self.forgotten, rules.len(), vec![(&rules, text.clone()), (&moments, number.clone())]);
        commit(client, &statements).await
    }
}

fn header_columns<'c>(edits: &'c Edits<'_>) -> Columns<'c> {
    let mut columns = Columns::default();
    for (name, edit) in &edits.counters {
        let Some(row) = &edit.header else { continue };
        columns.ids.push(&name.id);
        for (column, text) in columns.texts.iter_mut().zip([&name.rule, &name.key, &row.limits]) {
            column.push(text);
        }
        columns.states.push(&row.states);
        for (column, array) in columns.arrays.iter_mut().zip([&row.born, &row.used]) {
            column.push(array_text(array));
        }
        for (column, number) in columns.numbers.iter_mut().zip(row.numbers) {
            column.push(number);
        }
        columns.idle_at.push(row.idle_at);
    }
    columns
}

impl Columns<'_> {
    fn params(&self) -> Vec<Param<'_>> {
        let mut params: Vec<Param<'_>> = vec![(&self.ids, Type::BYTEA_ARRAY)];
        params.extend(self.texts.iter().map(|texts| -> Param<'_> { (texts, Type::TEXT_ARRAY) }));
        params.push((&self.states, Type::BYTEA_ARRAY));
        params.extend(self.arrays.iter().map(|texts| -> Param<'_> { (texts, Type::TEXT_ARRAY) }));
        params.extend(self.numbers.iter().map(|numbers| -> Param<'_> { (numbers, Type::INT8_ARRAY) }));
        params.push((&self.idle_at, Type::INT8_ARRAY));
        params
    }
}

/// Numbers in the form that a column of arrays is written in: an array of arrays would have to be even.
fn array_text(numbers: &[i64]) -> String {
    let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    format!("{{{}}}", numbers.join(","))
}

type Numbered<'c> = (Vec<&'c [u8]>, Vec<i64>);

/// What becomes of entries.
#[derive(Default)]
struct LogColumns<'c> {
    added: (Vec<&'c [u8]>, [Vec<i64>; 4]),
    drop: Numbered<'c>,
    clamp: Numbered<'c>,
    remove: Numbered<'c>,
    lower: Numbered<'c>,
    lowered: Vec<i64>,
}

impl<'c> LogColumns<'c> {
    fn new(edits: &'c Edits<'_>) -> Self {
        let mut columns = Self::default();
        let push = |(ids, numbers): &mut Numbered<'c>, name: &'c Name, number| {
            ids.push(&name.id[..]);
            numbers.push(number);
        };
        for (name, edit) in &edits.counters {
            for row in &edit.added {
                columns.added.0.push(&name.id);
                let [at, cost] = [row.entry.at.as_micros(), row.entry.cost].map(column);
                let numbers = [row.seq, at, row.entry.ticket.0.cast_signed(), cost];
                columns.added.1.iter_mut().zip(numbers).for_each(|(column, number)| column.push(number));
            }
            if let Some(below) = edit.drop_below {
                push(&mut columns.drop, name, below);
            }
            if let Some(at) = edit.clamp {
                push(&mut columns.clamp, name, column(at.as_micros()));
            }
            match edit.given {
                Some((seq, 0)) => push(&mut columns.remove, name, seq),
                Some((seq, left)) => {
                    push(&mut columns.lower, name, seq);
                    columns.lowered.push(column(left));
                }
                None => {}
            }
        }
        columns
    }
}

/// What becomes of holds.
#[derive(Default)]
struct HoldColumns<'c> {
    put: (Vec<&'c [u8]>, Vec<String>),
    numbers: [Vec<i64>; 4],
    end: (Vec<&'c [u8]>, Vec<String>),
    end_all: Vec<&'c [u8]>,
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
        }
        columns
    }
}

fn forgotten_ids<'c>(edits: &'c Edits<'_>) -> Vec<&'c [u8]> {
    edits.counters.iter().filter(|(_, edit)| edit.forget).map(|(name, _)| &name.id[..]).collect()
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
        self.counters.is_empty() && self.spent.is_empty() && self.forgotten.is_empty()
    }
}
