//! However much a key has taken, a decision about it loads and writes little, and takes part in no long work.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;

use crate::stage::{HASTY, Node, PATIENT, plan, runtime, settings, shared, ticket};
use tollgate_core::store::{Counter, HoldsOrder, HoldsReport};
use tollgate_core::{Charges, Outcome, Plan, Span, Store, Ticket, Timestamp};
use tollgate_postgres::PostgresStore;
use tollgate_store::ManualClock;
use tollgate_testbed::Proxy;

/// The most bytes of state that are loaded or written for one decision.
const MOST: u64 = 2_048;

struct Wire {
    proxy: Proxy,
    clock: Arc<ManualClock>,
    node: Node,
}

impl Wire {
    fn new(schema: &str) -> Self {
        let proxy = Proxy::to(shared().port());
        let url = format!("postgres://postgres@127.0.0.1:{}/postgres", proxy.port());
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_760_000_045_000_000)));
        let store = runtime().block_on(PostgresStore::start(settings(&url, schema, PATIENT))).unwrap();
        Self { proxy, clock: clock.clone(), node: Node { store: store.with_clock(clock) } }
    }

    fn take(&self, plan: &Arc<Plan>, key: &str, cost: u64, id: Option<&str>) -> Outcome {
        let mut charges = Charges::new(ticket(), cost, id);
        charges.push(plan, key, true);
        runtime().block_on(self.node.take_all(&charges)).unwrap()
    }

    fn order(&self, plan: &Arc<Plan>, order: HoldsOrder<'_>) -> HoldsReport {
        let counter = Counter { plan, key: "full" };
        runtime().block_on(async { self.node.store.holds(&counter, order).await }).unwrap()
    }

    /// How many bytes went each way meanwhile.
    fn bytes(&self, work: impl FnOnce()) -> [u64; 2] {
        let count = || [self.proxy.bytes_received(), self.proxy.bytes_sent()];
        let before = count();
        work();
        let after = count();
        [after[0] - before[0], after[1] - before[1]]
    }
}

/// Fills the log of a key: `count` entries of the limit at a place, each with its number, moment and ticket.
fn fill(schema: &str, place: usize, count: u64, columns: &str) {
    shared().sql(&format!(
        "DELETE FROM {schema}.entry WHERE counter = (SELECT id FROM {schema}.counter WHERE key = 'full'); \
         INSERT INTO {schema}.entry (counter, log, seq, at, ticket, cost) \
         SELECT c.id, c.logs[{place}], {columns} FROM {schema}.counter c, generate_series(0, {count} - 1) n \
         WHERE c.key = 'full'; \
         UPDATE {schema}.counter SET used[{place}] = {count}, seq = 1000000, marks[{place}] = \
         (SELECT min(seq) FROM {schema}.entry WHERE counter = id) WHERE key = 'full'"
    ));
}

#[test]
fn a_decision_loads_and_writes_little_however_much_there_is() {
    let wire = Wire::new("bounded");
    let start = wire.clock_now();
    let at = start.as_micros();
    for (limits, count, columns) in [
        ("50000/day sliding", 20_000, format!("n, {at} + n, n + 7, 1")),
        (
            "90000/day sliding by 9s",
            9_000,
            format!("({at} / 9000000) - 9000 + n, (({at} / 9000000) - 9000 + n) * 9000000, 0, 1"),
        ),
        ("ladder 990 +1ms then 1000 lock 1ms forget 1d", 985, format!("n, {at} + n, n + 7, 1")),
    ] {
        let plan = plan("rule", limits);
        wire.clock.set(start);
        for key in ["empty", "full"] {
            assert!(wire.take(&plan, key, 1, None).allowed, "{limits}");
        }
        fill("bounded", 1, count, &columns);
        wire.clock.set(start + Span::from_secs(1));
        let [empty, full] = ["empty", "full"]
            .map(|key| wire.bytes(|| assert!(wire.take(&plan, key, 1, None).allowed, "{limits}")));
        println!("{limits}: {empty:?} bytes for an empty log, {full:?} for one with {count} entries");
        assert!(full[0] < empty[0] + MOST && full[1] < empty[1] + MOST, "{limits}: {empty:?} {full:?}");
        assert_eq!(wire.node.used(&plan, "full"), count + 1, "{limits}");
        // A large attempt for which there is room loads no more.
        if limits.contains("50000") {
            let bytes = wire.bytes(|| assert!(wire.take(&plan, "full", 25_000, None).allowed));
            assert!(bytes[0] < empty[0] + MOST, "{bytes:?}");
        }
        // Nor does giving one of them back.
        if !limits.contains("by") {
            let bytes = wire.bytes(|| {
                wire.node.refund(&plan, "full", Ticket(400), start).unwrap();
            });
            assert!(bytes[0] < empty[0] + MOST, "{limits}: {bytes:?}");
            // Nor does undoing one of them, or looking for one that was never taken.
            let before = wire.node.used(&plan, "full");
            for ticket in [Ticket(401), Ticket(1 << 40)] {
                let bytes = wire.bytes(|| wire.node.retract(&plan, "full", ticket).unwrap());
                assert!(bytes[0] < empty[0] + MOST, "{limits}: {bytes:?}");
            }
            assert_eq!(wire.node.used(&plan, "full"), before - 1, "{limits}");
        }
        shared().sql("TRUNCATE bounded.counter, bounded.entry, bounded.spent");
    }
}

#[test]
fn the_entry_of_a_ticket_is_found_without_reading_the_log() {
    let wire = Wire::new("sought");
    let plan = plan("rule", "90000/day sliding");
    assert!(wire.take(&plan, "full", 1, None).allowed);
    let at = wire.clock_now().as_micros();
    for (count, sought, found) in [(10, 14, "1"), (60_000, 30_000, "1"), (60_000, 90_000, "0")] {
        fill("sought", 1, count, &format!("n, {at} + n, n + 7, 1"));
        let read = shared().sql(&format!(
            "BEGIN; SELECT count(*) FROM sought.counter c, sought.own_entries(ARRAY[c.id], '{{1}}', '{{NULL}}', {sought}, 0); \
             SELECT idx_tup_fetch + seq_tup_read FROM pg_stat_xact_all_tables WHERE relid = 'sought.entry'::regclass; \
             COMMIT"
        ));
        let lines: Vec<&str> = read.lines().collect();
        assert_eq!(lines[0], found, "{read}");
        assert!(lines[1].parse::<u64>().unwrap() <= 2, "{read}");
    }
}

#[test]
fn full_leased_holds_cost_a_denial_little() {
    let wire = Wire::new("bounded_holds");
    let plan = plan("rule", "3000 at once for 1h");
    assert!(wire.take(&plan, "full", 1, Some("first")).allowed);
    let at = wire.clock_now().as_micros();
    shared().sql(&format!(
        "INSERT INTO bounded_holds.hold SELECT id, 'some id of a caller ' || n, n + 7, 1, {at}, {at} + n \
         FROM bounded_holds.counter, generate_series(1, 2999) n; \
         UPDATE bounded_holds.counter SET holds = 3000, used[1] = 3000, newest = {at} + 2999"
    ));
    wire.clock.set(wire.clock_now() + Span::from_secs(1));
    let mut outcome = Outcome::default();
    let bytes = wire.bytes(|| outcome = wire.take(&plan, "full", 1, Some("new")));
    assert!(!outcome.allowed && bytes[0] < MOST, "{bytes:?}");
    let when = outcome.readings[0].when;
    assert_eq!(when, tollgate_core::When::After(Span::from_secs(3_599)), "the first hold runs out then");
    let refunded = wire.bytes(|| {
        wire.node.refund(&plan, "full", Ticket(400), wire.clock_now()).unwrap();
    });
    assert!(refunded[0] < MOST, "{refunded:?}");
    assert_eq!(wire.node.used(&plan, "full"), 2_999);
    // An order loads the holds that it names, and no others.
    let renewed = wire.bytes(|| assert!(wire.order(&plan, HoldsOrder::Renew("some id of a caller 7")).found));
    assert!(renewed[0] < MOST, "{renewed:?}");
    // All run out: they are not loaded one by one, and not removed all at once.
    wire.clock.set(wire.clock_now() + Span::from_secs(7_200));
    let bytes = wire.bytes(|| assert!(wire.take(&plan, "full", 1, Some("new")).allowed));
    assert!(bytes[0] < MOST, "{bytes:?}");
    assert_eq!(wire.node.used(&plan, "full"), 1);
    assert!(wire.take(&plan, "full", 1, Some("some id of a caller 2999")).allowed, "it is not held any more");
    assert_eq!(wire.node.used(&plan, "full"), 2);
}

#[test]
fn holds_that_run_out_at_this_very_moment_are_not_held_though_their_rows_remain() {
    let wire = Wire::new("just_ended");
    let plan = plan("rule", "3000 at once for 1h");
    assert!(wire.take(&plan, "full", 1, Some("first")).allowed);
    let at = wire.clock_now().as_micros();
    shared().sql(&format!(
        "INSERT INTO just_ended.hold SELECT id, 'id ' || n, n + 7, 1, {at}, {at} \
         FROM just_ended.counter, generate_series(1, 2999) n; \
         UPDATE just_ended.counter SET holds = 3000, used[1] = 3000"
    ));
    wire.clock.set(wire.clock_now() + Span::from_secs(3_600));
    assert!(wire.take(&plan, "full", 2_999, Some("new")).allowed);
    assert_eq!(wire.node.used(&plan, "full"), 2_999);
    let held = wire.order(&plan, HoldsOrder::List).holds;
    assert_eq!(held.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["new"]);
    assert!(wire.take(&plan, "full", 1, Some("id 7")).allowed);
    assert_eq!(wire.node.used(&plan, "full"), 3_000);
    assert_eq!(shared().sql("SELECT holds FROM just_ended.counter"), "2");
    let rows = shared().sql("SELECT count(*) FROM just_ended.hold").parse::<u64>().unwrap();
    assert!(rows < 2_600, "their rows go by and by: {rows}");
}

#[test]
fn a_longer_lease_does_not_revive_holds_whose_rows_remain() {
    let wire = Wire::new("not_revived");
    let (plan, longer) = (plan("rule", "3000 at once for 1h"), plan("rule", "3000 at once for 2h"));
    assert!(wire.take(&plan, "full", 1, Some("first")).allowed);
    let at = wire.clock_now().as_micros();
    shared().sql(&format!(
        "INSERT INTO not_revived.hold SELECT id, 'id ' || n, n + 7, 1, {at}, {at} \
         FROM not_revived.counter, generate_series(1, 2999) n; \
         UPDATE not_revived.counter SET holds = 3000, used[1] = 3000"
    ));
    wire.clock.set(wire.clock_now() + Span::from_secs(3_600));
    assert!(!wire.order(&plan, HoldsOrder::Release("id 7")).found, "it has run out");
    assert!(wire.order(&longer, HoldsOrder::List).holds.is_empty());
    assert_eq!(wire.node.used(&longer, "full"), 0);
}

#[test]
fn a_key_that_is_held_and_released_again_and_again_leaves_no_row() {
    let wire = Wire::new("released");
    let plan = plan("rule", "5 at once");
    for _ in 0..20 {
        assert!(wire.take(&plan, "full", 1, Some("job")).allowed);
        assert!(wire.order(&plan, HoldsOrder::Release("job")).found);
    }
    assert_eq!(shared().sql("SELECT holds FROM released.counter"), "0");
    assert_eq!(runtime().block_on(wire.node.store.sweep()).unwrap(), 1);
}

#[test]
fn the_row_of_a_counter_says_how_many_holds_there_are_when_its_limits_change() {
    let wire = Wire::new("counted");
    let (holds, window) = (plan("rule", "100 at once"), plan("rule", "10/min"));
    let all: Vec<String> = (0..40).map(|number| number.to_string()).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    wire.order(&holds, HoldsOrder::Replace(&all, Ticket(1)));
    let counted = || shared().sql("SELECT holds, (SELECT count(*) FROM counted.hold) FROM counted.counter");
    assert_eq!(counted(), "40|40");
    assert!(wire.take(&window, "full", 1, None).allowed);
    assert_eq!(counted(), "0|0");
    assert!(wire.take(&holds, "full", 1, Some("new")).allowed);
    assert_eq!(counted(), "1|1");
}

#[test]
fn a_long_log_that_has_aged_out_is_decided_in_time_and_goes_by_and_by() {
    let wire = Wire::new("aged");
    let plan = plan("rule", "90000/hour sliding");
    assert!(wire.take(&plan, "full", 1, None).allowed);
    let at = wire.clock_now().as_micros();
    // One of them still counts.
    fill(
        "aged",
        1,
        60_000,
        &format!("n, CASE WHEN n = 59999 THEN {at} + 3000000000 ELSE {at} END, n + 7, 1"),
    );
    let hasty = runtime()
        .block_on(PostgresStore::start(settings(&shared().url(), "aged", HASTY)))
        .unwrap()
        .with_clock(wire.clock.clone());
    wire.clock.set(wire.clock_now() + Span::from_secs(3_700));
    let node = Node { store: hasty };
    let left = || shared().sql("SELECT count(*) FROM aged.entry").parse::<u64>().unwrap();
    let bytes = wire.bytes(|| assert!(wire.take(&plan, "full", 1, None).allowed));
    // With what the protocol needs around it.
    assert!(bytes[0] < 2 * MOST, "{bytes:?}");
    assert!((59_000..60_001).contains(&left()), "{}", left());
    assert_eq!(node.used(&plan, "full"), 2);
    for _ in 0..4 {
        wire.clock.set(wire.clock_now() + Span::from_secs(3_700));
        assert!(node.take(&plan, "full").unwrap().allowed);
    }
    assert!(left() < 59_000, "{}", left());
    wire.clock.set(wire.clock_now() + Span::from_secs(7_200));
    assert_eq!(runtime().block_on(node.store.sweep()).unwrap(), 1);
    assert_eq!(left(), 0);
}

impl Wire {
    fn clock_now(&self) -> Timestamp {
        tollgate_core::Clock::now(&*self.clock)
    }
}

#[test]
fn a_denial_writes_nothing_though_other_counts_have_run_out() {
    let wire = Wire::new("denied");
    let brief =
        plan("brief", "5/min, 5/min sliding, 5/min sliding by 10s, 5 at once for 1m, ladder 3 +1s forget 1m");
    let full = plan("full", "2 in total");
    for _ in 0..2 {
        wire.take(&brief, "k", 1, None);
        assert!(wire.take(&full, "k", 1, None).allowed);
        wire.clock.set(wire.clock_now() + Span::from_secs(2));
    }
    let rows = || shared().sql("SELECT count(*), max(xmin::text) FROM denied.counter");
    let before = rows();
    for step in [10, 50, 600, 7_200] {
        wire.clock.set(wire.clock_now() + Span::from_secs(step));
        let mut charges = Charges::new(ticket(), 1, Some("id"));
        charges.push(&brief, "k", true);
        charges.push(&full, "k", true);
        assert!(!runtime().block_on(wire.node.take_all(&charges)).unwrap().allowed);
        assert_eq!(wire.node.used(&full, "k"), 2);
        assert_eq!(rows(), before, "a denial wrote a counter");
    }
}

#[test]
fn an_order_that_changes_no_hold_writes_nothing_though_some_have_run_out() {
    let wire = Wire::new("listed");
    let plan = plan("rule", "5 at once for 1m");
    wire.take(&plan, "full", 1, Some("first"));
    wire.clock.set(wire.clock_now() + Span::from_secs(30));
    wire.take(&plan, "full", 1, Some("second"));
    let rows = || shared().sql("SELECT count(*), max(xmin::text) FROM listed.counter");
    let before = rows();
    for order in [HoldsOrder::Release("unknown"), HoldsOrder::Renew("unknown")] {
        assert!(!wire.order(&plan, order).found);
        assert_eq!(rows(), before, "{order:?} wrote a counter");
    }
    wire.clock.set(wire.clock_now() + Span::from_secs(30));
    let held = wire.order(&plan, HoldsOrder::List).holds;
    assert_eq!(held.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["second"]);
    assert_eq!(rows(), before, "a list wrote a counter");
}
