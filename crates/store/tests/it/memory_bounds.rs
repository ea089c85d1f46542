//! What a full store in memory does, and which keys it evicts first.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::fmt::Write;
use std::sync::Arc;

use tollgate_core::store::{Answer, Counter, Forget, HoldsOrder, Refunded};
use tollgate_core::{Charges, Outcome, Plan, Span, Store, StoreError, Ticket, Timestamp};
use tollgate_store::{ManualClock, MemoryStore};

const START: Timestamp = Timestamp::from_micros(1_760_000_045_000_000);
const MAX_KEYS: usize = 10_000;
/// Each shard has its own part of the room, rounded up.
const SLACK: usize = 256;

struct Full {
    clock: Arc<ManualClock>,
    store: MemoryStore,
    ticket: u64,
}

impl Full {
    fn new(max_keys: usize) -> Self {
        let clock = Arc::new(ManualClock::at(START));
        Self { store: MemoryStore::new(clock.clone(), max_keys), clock, ticket: 0 }
    }

    fn try_take(&mut self, plan: &Arc<Plan>, key: &str, cost: u64) -> Result<bool, StoreError> {
        self.ticket += 1;
        let mut charges = Charges::new(Ticket(self.ticket), cost, None);
        charges.push(plan, key, true);
        let mut outcome = Outcome::default();
        ready(self.store.take(&charges, &mut outcome))?;
        Ok(outcome.allowed)
    }

    fn take(&mut self, plan: &Arc<Plan>, key: &str, cost: u64) -> bool {
        self.try_take(plan, key, cost).unwrap()
    }

    /// Refunds a ticket's take of a key at the start.
    fn refund(&mut self, plan: &Arc<Plan>, key: &str, cost: u64, ticket: u64) -> Refunded {
        let mut charges = Charges::new(Ticket(ticket), cost, None);
        charges.push(plan, key, true);
        ready(self.store.refund(&charges, START)).unwrap()
    }

    /// Takes one of each of these keys.
    fn flood(&mut self, plan: &Arc<Plan>, keys: std::ops::Range<usize>) {
        let mut key = String::new();
        for number in keys {
            key.clear();
            write!(key, "flood {number}").unwrap();
            assert!(self.take(plan, &key, 1), "{key}: a new key is always served");
        }
    }
}

fn ready<T>(answer: Answer<'_, T>) -> Result<T, StoreError> {
    let Answer::Ready(Some(result)) = answer else { panic!("memory answers at once") };
    result
}

fn plan(rule: &str, limits: &[&str]) -> Arc<Plan> {
    let limits = limits.iter().map(|limit| limit.parse().unwrap()).collect();
    Arc::new(Plan::new(rule.into(), limits).unwrap())
}

#[test]
fn a_store_full_of_live_keys_still_serves_new_ones() {
    for limits in [&["10/hour"][..], &["10/hour", "20/day"], &["10/hour sliding"]] {
        let mut full = Full::new(MAX_KEYS);
        full.flood(&plan("ip", limits), 0..MAX_KEYS * 5);
        let len = full.store.len();
        assert!((MAX_KEYS - SLACK..=MAX_KEYS + SLACK).contains(&len), "{len} keys of {MAX_KEYS}");
    }
}

#[test]
fn idle_keys_are_forgotten_before_live_ones() {
    let mut full = Full::new(MAX_KEYS);
    let (short, long) = (plan("short", &["10/min"]), plan("long", &["10/hour"]));
    let live = MAX_KEYS / 4;
    full.flood(&long, 0..live);
    full.flood(&short, 0..MAX_KEYS * 3 / 4);
    full.clock.advance(Span::from_secs(120));
    // As many new keys as idle ones: a search that met a live key first evicted it, but rarely.
    full.flood(&plan("new", &["10/hour"]), 0..MAX_KEYS / 2);
    let kept = (0..live).filter(|number| !full.take(&long, &format!("flood {number}"), 10)).count();
    assert!(kept > live * 95 / 100, "{kept} of {live} live keys were kept");
}

/// Blocks keys, floods the store with others, and checks that every one is still blocked.
fn blocked_keys_survive(blocked_by: &[&str], flooded_by: &[&str], max_keys: usize, flood: usize) {
    let blocked = max_keys * 2 / 5;
    let mut full = Full::new(max_keys);
    let (strict, lenient) = (plan("strict", blocked_by), plan("lenient", flooded_by));
    for number in 0..blocked {
        assert!(full.take(&strict, &format!("blocked {number}"), 10));
    }
    full.flood(&lenient, 0..flood);
    let let_in = (0..blocked).filter(|number| full.take(&strict, &format!("blocked {number}"), 1)).count();
    assert_eq!(let_in, 0, "of {blocked} blocked by {blocked_by:?}, flooded by {flooded_by:?}");
}

#[test]
fn no_blocked_key_is_forgotten_while_fewer_than_half_are_blocked() {
    // Narrow, wide and deep slots are in different tables.
    let (narrow, wide, deep) = (["10/hour"], ["10/hour", "20/day"], ["10/hour sliding"]);
    let ladder = ["ladder 10 lock 1h"];
    let pairs: [(&[&str], &[&str]); 6] = [
        (&narrow, &narrow),
        (&wide, &narrow),
        (&deep, &wide),
        (&["10/hour burst 10"], &deep),
        (&ladder, &narrow),
        (&ladder, &ladder),
    ];
    for (blocked_by, flooded_by) in pairs {
        blocked_keys_survive(blocked_by, flooded_by, MAX_KEYS, MAX_KEYS * 10);
    }
}

#[test]
fn blocked_keys_that_fill_one_table_are_passed_over_for_open_ones_in_the_other() {
    // Large enough that a shard has more blocked keys than a search reaches.
    blocked_keys_survive(&["10/hour"], &["10/hour", "20/day"], 700_000, 450_000);
}

#[test]
fn when_most_keys_are_blocked_new_ones_are_served_all_the_same() {
    let mut full = Full::new(MAX_KEYS);
    let strict = plan("strict", &["10/hour"]);
    for number in 0..MAX_KEYS * 2 {
        assert!(full.take(&strict, &format!("blocked {number}"), 10));
    }
    assert!(full.store.len() <= MAX_KEYS + SLACK);
}

#[test]
fn a_refund_to_an_evicted_key_takes_nothing_from_later_charges() {
    for limit in ["10/hour", "10/hour burst 10", "10/hour sliding by 5m", "10/hour sliding"] {
        let mut full = Full::new(MAX_KEYS);
        let plan = plan("client", &[limit]);
        assert!(full.take(&plan, "ada", 4));
        let ticket = full.ticket;
        full.flood(&self::plan("others", &["10/week"]), 0..MAX_KEYS * 5);
        assert!(full.take(&plan, "ada", 10), "{limit}: it was forgotten");
        let named = limit == "10/hour sliding";
        let given = full.refund(&plan, "ada", 4, ticket);
        assert_eq!(given, if named { Refunded::Done } else { Refunded::TooOld }, "{limit}");
        assert!(!full.take(&plan, "ada", 1), "{limit}: nothing came back");
    }
}

#[test]
fn evicting_keys_invalidates_receipts_of_plain_counts() {
    for (limit, good) in [("10/hour burst 10", Refunded::TooOld), ("10/hour sliding", Refunded::Done)] {
        let mut full = Full::new(MAX_KEYS);
        let plan = plan("client", &[limit]);
        full.flood(&self::plan("others", &["10/week"]), 0..MAX_KEYS * 2);
        assert!(full.take(&plan, "ada", 10));
        let ticket = full.ticket;
        assert_eq!(full.refund(&plan, "ada", 10, ticket), good, "{limit}");
        assert_eq!(full.take(&plan, "ada", 10), good == Refunded::Done, "{limit}");
    }
}

#[test]
fn forgetting_idle_keys_spoils_no_receipt() {
    let mut full = Full::new(MAX_KEYS);
    full.clock.set(START - Span::from_secs(120));
    full.flood(&plan("idle", &["10/min"]), 0..MAX_KEYS * 2);
    full.clock.set(START);
    let plan = plan("client", &["10/hour burst 10"]);
    let before = full.store.len();
    for number in 0..1_000 {
        let key = format!("client {number}");
        assert!(full.take(&plan, &key, 10));
        let ticket = full.ticket;
        assert_eq!(full.refund(&plan, &key, 10, ticket), Refunded::Done);
        assert!(full.take(&plan, &key, 10));
    }
    assert_eq!(full.store.len(), before, "each of them took the place of an idle one");
}

#[test]
fn a_store_that_was_full_of_pinned_keys_has_room_again_once_one_may_go() {
    let mut full = Full::new(256);
    let pinned = plan("pinned", &["1 in total"]);
    let keys: Vec<String> = (0..4_000).map(|number| number.to_string()).collect();
    let mut held = Vec::new();
    for key in &keys {
        if full.try_take(&pinned, key, 1).is_ok() {
            held.push((key, full.ticket));
        }
    }
    assert_eq!(held.len(), full.store.len());
    assert!(keys.iter().rev().take(500).all(|key| full.try_take(&pinned, key, 1) != Ok(true)));
    held.iter().for_each(|(key, ticket)| assert_eq!(full.refund(&pinned, key, 1, *ticket), Refunded::Done));
    let admitted = keys.iter().rev().filter(|key| full.try_take(&pinned, key, 1) == Ok(true)).count();
    assert_eq!(admitted, held.len(), "every place was free again");
}

#[test]
fn totals_and_endless_holds_are_never_forgotten() {
    for limits in [&["1 in total"][..], &["1 at once"], &["1 in total", "10/min"]] {
        let mut full = Full::new(MAX_KEYS);
        let pinned = plan("pinned", limits);
        // Few enough that they fill no shard: a shard of pinned keys alone has no room for others.
        let kept: Vec<String> = (0..MAX_KEYS / 4).map(|number| format!("pinned {number}")).collect();
        kept.iter().for_each(|key| assert!(full.take(&pinned, key, 1)));
        full.flood(&plan("ip", &["10/hour"]), 0..MAX_KEYS * 3);
        full.clock.advance(Span::from_secs(400 * 86_400));
        full.flood(&plan("ip", &["10/hour"]), 0..MAX_KEYS);
        full.store.sweep();
        assert!(kept.iter().all(|key| !full.take(&pinned, key, 1)), "{limits:?}");
    }
}

#[test]
fn a_store_full_of_keys_that_must_stay_reports_that_it_is_full() {
    let mut full = Full::new(2_000);
    let pinned = plan("pinned", &["1 in total"]);
    let answers: Vec<_> = (0..8_000).map(|number| full.try_take(&pinned, &number.to_string(), 1)).collect();
    let admitted = answers.iter().filter(|answer| **answer == Ok(true)).count();
    assert_eq!(admitted, full.store.len());
    assert!((2_000..=2_000 + SLACK).contains(&admitted), "{admitted}");
    let refused = Err(StoreError::Full { max_keys: 2_000 });
    assert_eq!(answers.iter().filter(|answer| **answer == refused).count(), 8_000 - admitted);
    // A call that needs no room still succeeds.
    let ip = plan("ip", &["10/hour"]);
    assert_eq!(full.try_take(&ip, "new", 1), refused);
    assert_eq!(full.try_take(&ip, "new", 0), Ok(true));
    assert_eq!(full.try_take(&plan("bound", &["5 recipients per attempt"]), "new", 1), Ok(true));
    let mut charges = Charges::new(Ticket(u64::MAX), 1, None);
    charges.push(&ip, "new", true);
    let mut outcome = Outcome::default();
    assert_eq!(ready(full.store.peek(&charges, &mut outcome)), Ok(()));
    assert_eq!(ready(full.store.refund(&charges, START)), Ok(Refunded::Done));
    let holds = plan("holds", &["1 at once"]);
    let counter = Counter { plan: &holds, key: "new" };
    assert!(ready(full.store.holds(&counter, HoldsOrder::Release("job"))).is_ok_and(|report| !report.found));
    for nothing in [HoldsOrder::Claim(&[], Ticket(1)), HoldsOrder::Replace(&[], Ticket(1))] {
        assert!(ready(full.store.holds(&counter, nothing)).is_ok(), "an order about no id needs no room");
    }
    let claim = HoldsOrder::Claim(&[("job", 1)], Ticket(1));
    for claim in [claim, HoldsOrder::Replace(&["job"], Ticket(1))] {
        let answer = ready(full.store.holds(&counter, claim)).map(drop);
        assert_eq!(answer, refused.clone().map(drop), "a new hold needs room");
    }
}

#[test]
fn one_key_that_may_go_is_found_among_all_that_may_not() {
    // Large enough that a shard has more keys than a search reaches.
    let mut full = Full::new(300_000);
    let (pinned, ip) = (plan("pinned", &["1 in total"]), plan("ip", &["10/hour"]));
    full.flood(&ip, 0..2_560);
    let keys = (0..).map(|number: u64| number.to_string());
    let refused: Vec<String> = keys.filter(|key| full.try_take(&pinned, key, 1).is_err()).take(100).collect();
    // If an open key had been left in a shard that refused, there would be room now.
    ready(full.store.forget(Forget::Rule("ip"))).unwrap();
    assert!(refused.iter().all(|key| full.try_take(&pinned, key, 1).is_err()));
}

#[test]
fn a_look_evicts_no_key() {
    let mut full = Full::new(MAX_KEYS);
    let ip = plan("ip", &["10/hour"]);
    full.flood(&ip, 0..MAX_KEYS * 2);
    let before = full.store.len();
    for number in 0..1_000 {
        let key = format!("look {number}");
        let mut charges = Charges::new(Ticket(number), 1, None);
        charges.push(&ip, &key, true);
        let mut outcome = Outcome::default();
        ready(full.store.peek(&charges, &mut outcome)).unwrap();
        ready(full.store.refund(&charges, START)).unwrap();
    }
    assert_eq!(full.store.len(), before);
}

#[test]
fn an_idle_store_ends_empty() {
    let mut full = Full::new(MAX_KEYS);
    for limits in [
        &["10/hour"][..],
        &["10/hour", "20/day"],
        &["10/hour sliding"],
        &["10 at once for 1m"],
        &["ladder 4 +2s then 11 lock 15m"],
    ] {
        full.flood(&plan(limits[0], limits), 0..2_000);
    }
    full.clock.advance(Span::from_secs(86_400));
    // Closing gaps may carry a key past the sweep; the next sweep meets it.
    for _ in 0..3 {
        full.store.sweep();
    }
    assert_eq!(full.store.len(), 0);
}

#[test]
fn a_store_tells_when_it_last_evicted_a_key_that_counted_something() {
    let mut full = Full::new(MAX_KEYS);
    assert!(full.store.answers_at_once());
    assert!(full.store.is_empty() && full.store.last_eviction().is_none());
    full.flood(&plan("few", &["10/hour"]), 0..MAX_KEYS / 4);
    assert!(!full.store.is_empty() && full.store.last_eviction().is_none(), "there was room for all");
    full.clock.advance(Span::from_secs(120));
    full.flood(&plan("more", &["10/hour"]), 0..MAX_KEYS * 3);
    assert_eq!(full.store.last_eviction(), Some(START + Span::from_secs(120)));
}

#[test]
fn only_the_evicted_part_of_a_refund_is_too_old() {
    let mut full = Full::new(MAX_KEYS);
    let (counted, named) = (plan("counted", &["10/hour burst 10"]), plan("named", &["10/hour sliding"]));
    full.flood(&plan("others", &["10/week"]), 0..MAX_KEYS * 2);
    for order in [[&counted, &named], [&named, &counted]] {
        full.ticket += 1;
        let key = format!("key {}", full.ticket);
        let mut charges = Charges::new(Ticket(full.ticket), 10, None);
        order.iter().for_each(|plan| charges.push(plan, &key, true));
        ready(full.store.take(&charges, &mut Outcome::default())).unwrap();
        assert_eq!(ready(full.store.refund(&charges, START)), Ok(Refunded::Done));
        assert!(full.take(&named, &key, 10), "the log knows its takes");
        assert!(!full.take(&counted, &key, 1), "a bucket cannot tell whether it began anew");
    }
}

#[test]
fn a_refund_is_too_old_if_all_of_its_keys_may_have_been_evicted() {
    let mut full = Full::new(MAX_KEYS);
    full.flood(&plan("others", &["10/week"]), 0..MAX_KEYS * 2);
    let plans = ["first", "second"].map(|rule| plan(rule, &["10/hour burst 10"]));
    let mut charges = Charges::new(Ticket(u64::MAX), 10, None);
    plans.iter().for_each(|plan| charges.push(plan, "key", true));
    ready(full.store.take(&charges, &mut Outcome::default())).unwrap();
    assert_eq!(ready(full.store.refund(&charges, START)), Ok(Refunded::TooOld));
    assert!(plans.iter().all(|plan| !full.take(plan, "key", 1)));
}

#[test]
fn no_two_stores_share_a_secret() {
    let secrets = [1, 2].map(|_| Full::new(256).store.secret());
    assert_ne!(secrets[0], secrets[1]);
    assert!(secrets.iter().all(|secret| secret.iter().any(|byte| *byte != secret[0])));
}
