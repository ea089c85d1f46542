//! Rules that count rows: an attempt that the rows deny, or whose caller left, takes nothing, and an error of the
//! database does what the rule says.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use crate::support::{Stand, admissions, policies, rule, start};
use futures_lite::future::{block_on, poll_once};
use tollgate_core::rows::Counting;
use tollgate_core::{
    Attempt, Decision, OnExceed, OnOutage, Origin, Policies, Reason, RowCount, RowSource, RowsError, Rule,
    Span,
};
use tollgate_engine::{Engine, Terms};

/// A database that answers what it is told to, in order; after the last answer it never does.
#[derive(Default)]
struct Table {
    answers: Mutex<VecDeque<Result<u64, RowsError>>>,
    asked: Mutex<Vec<Vec<String>>>,
}

impl RowSource for Table {
    fn count<'a>(&'a self, _: &'a RowCount, values: &'a [String]) -> Counting<'a> {
        self.asked.lock().unwrap().push(values.to_vec());
        let answer = self.answers.lock().unwrap().pop_front();
        Box::pin(async move {
            match answer {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        })
    }
}

struct Market {
    stand: Stand,
    table: Arc<Table>,
}

const FIELDS: [(&str, &str); 2] = [("user", "ada"), ("advertiser", "acme")];

fn deals(cache: Span) -> Rule {
    let (query, timeout) = ("SELECT count(*) FROM deals WHERE advertiser = $1".into(), Span::from_secs(1));
    let rows = RowCount { database: "shop".into(), query, timeout, cache };
    Rule::counting_rows("deals", &["advertiser"], (10, Span::from_secs(30)), rows).unwrap()
}

impl Market {
    fn new(rule: Rule, answers: impl IntoIterator<Item = Result<u64, RowsError>>) -> Self {
        let stand = Stand::new(Policies::default());
        let table = Arc::new(Table::default());
        table.answers.lock().unwrap().extend(answers);
        let rules = vec![rule::rejecting("writes", &["user"], &["100/hour"]), rule];
        let engine = start(policies(rules, &[("create", &["writes", "deals"])]), &stand.store);
        let engine = engine.counting_rows(Arc::clone(&table) as Arc<dyn RowSource>);
        Self { stand: Stand { engine: Arc::new(engine), ..stand }, table }
    }

    fn create<T: Send + 'static>(&self, id: &str, see: fn(&Engine, &Decision<'_>) -> T) -> T {
        let attempt = Attempt { policy: "create", fields: &FIELDS, cost: 1, id: Some(id) };
        let admissions = admissions(&self.stand.engine);
        block_on(admissions.pin().admit(&attempt, Terms::default(), see)).unwrap().seen
    }

    fn is_allowed(&self, id: &str) -> bool {
        self.create(id, |_, decision| decision.allowed())
    }

    /// What is left of the writes, and of the reservations.
    fn left(&self) -> [u64; 2] {
        let pinned = self.stand.pin();
        let left = |rule: &str, key: &str| {
            let plan = pinned.policies.rule(rule).unwrap().plan_at(key);
            block_on(self.stand.engine.counters.look(plan, key)).unwrap().readings[0].remaining
        };
        [left("writes", "ada"), left("deals", "acme")]
    }

    fn asked(&self) -> usize {
        self.table.asked.lock().unwrap().len()
    }
}

#[test]
fn an_allowed_attempt_keeps_its_place_and_a_denied_one_keeps_nothing() {
    let market = Market::new(deals(Span::ZERO), [Ok(8), Ok(8), Ok(8), Ok(10)]);
    assert!(market.is_allowed("d1") && market.is_allowed("d2"));
    assert_eq!(market.left(), [98, 8]);
    assert!(!market.is_allowed("d3"), "eight rows, two reservations");
    assert_eq!(market.left(), [98, 8]);
    assert!(!market.is_allowed("d4"), "ten rows");
    assert_eq!(market.left(), [98, 8]);
    assert_eq!(market.table.asked.lock().unwrap()[0], ["acme"]);
}

#[test]
fn a_caller_that_goes_away_while_rows_are_counted_leaves_nothing_taken() {
    let market = Market::new(deals(Span::ZERO), []);
    let attempt = Attempt { policy: "create", fields: &FIELDS, cost: 1, id: Some("d1") };
    let admissions = admissions(&market.stand.engine);
    let mut admit = Box::pin(admissions.pin().admit(&attempt, Terms::default(), |_, _| ()));
    assert!(block_on(poll_once(&mut admit)).is_none(), "the database has not answered");
    assert_eq!(market.left(), [99, 9], "it reserves first");
    drop(admit);
    assert_eq!(market.left(), [100, 10]);
}

#[test]
fn a_failed_count_of_rows_does_what_the_rule_says() {
    let fault = || Err(RowsError::NotACount { answer: "NULL".to_owned() });
    let seen = |_: &Engine, decision: &Decision<'_>| {
        let named = decision.denied_by().map(|line| line.rule.name.to_string());
        (decision.allowed(), decision.origin, named)
    };
    let uncounted = Origin::Outage(Reason::Uncounted);
    let market = Market::new(deals(Span::ZERO), [fault(), Ok(0)]);
    assert_eq!(market.create("d1", seen), (false, uncounted, Some("deals".to_owned())));
    assert_eq!(market.left(), [100, 10]);
    assert_eq!(market.create("d1", seen), (true, Origin::Store, None), "the next attempt counts again");
    let market = Market::new(Rule { on_outage: OnOutage::Allow, ..deals(Span::ZERO) }, [fault()]);
    assert_eq!(market.create("d1", seen), (true, uncounted, None));
    assert_eq!(market.left(), [99, 9], "the other rules count");
    let market = Market::new(Rule { on_exceed: OnExceed::Observe, ..deals(Span::ZERO) }, [fault(), Ok(10)]);
    assert_eq!(market.create("d1", seen), (true, uncounted, None));
    assert_eq!(market.create("d2", seen), (true, Origin::Store, None), "it only reports");
    assert_eq!(market.left(), [98, 9], "what it would deny is not reserved");
}

#[test]
fn a_remembered_count_denies_and_never_allows() {
    let market = Market::new(deals(Span::from_secs(5)), [Ok(10), Ok(3), Ok(3), Ok(4), Ok(10)]);
    assert!(!market.is_allowed("d1"));
    assert!(!market.is_allowed("d2"), "as a moment ago");
    assert_eq!(market.asked(), 1);
    market.stand.clock.advance(Span::from_secs(5));
    assert!(market.is_allowed("d3") && market.is_allowed("d4"));
    assert_eq!(market.asked(), 4, "each has counted after it reserved, and the first before that too");
    assert!(!market.is_allowed("d5"));
    assert_eq!(market.asked(), 5);
}

#[test]
fn after_a_denial_by_rows_an_attempt_looks_before_it_reserves() {
    let market = Market::new(deals(Span::ZERO), [Ok(10)]);
    assert!(!market.is_allowed("d1"));
    let attempt = Attempt { policy: "create", fields: &FIELDS, cost: 1, id: Some("d2") };
    let admissions = admissions(&market.stand.engine);
    let mut admit = Box::pin(admissions.pin().admit(&attempt, Terms::default(), |_, _| ()));
    assert!(block_on(poll_once(&mut admit)).is_none(), "the database has not answered");
    assert_eq!(market.left(), [100, 10], "it takes no room from other attempts");
}

#[test]
fn looking_and_dry_runs_show_rows_and_take_nothing() {
    let market = Market::new(deals(Span::ZERO), [Ok(7), Ok(7), Ok(10)]);
    let pinned = market.stand.pin();
    let rule = pinned.policies.rule("deals").unwrap();
    let shown = block_on(market.stand.engine.rows.look(rule, "acme")).unwrap();
    assert_eq!(shown.readings[0].remaining, 3);
    let attempt = Attempt { policy: "create", fields: &FIELDS, cost: 1, id: Some("d1") };
    assert!(block_on(market.stand.engine.peek(&pinned, &attempt)).unwrap().allowed());
    assert!(!block_on(market.stand.engine.peek(&pinned, &attempt)).unwrap().allowed());
    assert_eq!(market.left(), [100, 10]);
}
