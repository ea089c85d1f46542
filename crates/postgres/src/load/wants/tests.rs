//! A transaction loads every row that its decision needs, and no more.

use std::collections::BTreeMap;

use tollgate_core::Charges;
use tollgate_core::limit::{Entry, Hold};
use tollgate_core::store::HoldsOrder;

use super::*;
use crate::counter::Header;
use crate::name::Names;
use crate::settings::Settings;
use crate::work::{Attempt, Caller, Order, Work};

const NOW: Timestamp = Timestamp::from_micros(1_760_000_045_000_000);
const MINUTE: Span = Span::from_secs(60);
const MICRO: Span = Span::from_micros(1);

fn plan(limits: &str) -> Arc<Plan> {
    let limits = limits.split(", ").map(|limit| limit.parse().unwrap()).collect();
    Arc::new(Plan::new("rule".into(), limits).unwrap())
}

/// Attempts under these plans, with these costs.
fn want(plans: &[&str], costs: &[u64]) -> Want {
    let name = Name { id: [7; 16], lock: 7, rule: "rule".into(), key: "key".into() };
    let mut want = Want::new(&name);
    want.plans = plans.iter().map(|limits| plan(limits)).collect();
    want.cost = costs.iter().copied().max().unwrap_or(0);
    want.costs = costs.iter().sum();
    want.attempts = costs.len() as u64;
    want
}

/// A counter with this amount used. Loaded are the entries of these moments, and the one of `newest`.
fn logged(limits: &str, used: i64, oldest: &[Timestamp], newest: Timestamp) -> Loaded {
    let entries = oldest.iter().chain([&newest]).map(|at| Entry { at: *at, ticket: Ticket(1), cost: 1 });
    let rows: BTreeMap<i64, Entry> = (100..).zip(entries).collect();
    let header = Header { used: vec![Some(used)], ..Header::default() };
    let rows = Rows { rows, ..Rows::default() };
    Loaded { header: Some(header), plan: Some(plan(limits)), lists: vec![rows], ..Loaded::default() }
}

/// The cutoff and number of the entries that are requested.
fn asked(want: &Want, loaded: &Loaded) -> Option<(Timestamp, i64)> {
    let more = want.more_entries(loaded, NOW);
    assert!(more.len() <= 1);
    more.first().map(|more| {
        assert_eq!((more.counter, more.place), ([7; 16], 1));
        (Timestamp::from_micros(more.cutoff.cast_unsigned()), more.most)
    })
}

#[test]
fn attempts_at_one_counter_need_what_all_of_them_need() {
    let names = Names::new(&Settings::parse("postgres://a@localhost/b").unwrap());
    let (limits, mut wants) = (plan("10 at once"), Wants::default());
    for (cost, id) in [(2, Some("first")), (5, None), (1, Some("second"))] {
        let mut charges = Charges::new(Ticket(1), cost, id);
        charges.push(&limits, "key", true);
        Work::Take(Attempt::new(&charges, &names).unwrap(), Caller::new().0).want(&mut wants);
    }
    let all: Vec<&Want> = wants.counters.values().collect();
    let [want] = all[..] else { panic!("it is one counter") };
    assert_eq!((want.cost, want.costs, want.attempts, want.plans.len()), (5, 8, 3, 1));
    assert!(want.ids.iter().eq(["first", "second"]));
    assert!(!want.all_holds && !want.ends_holds);
}

#[test]
fn an_order_needs_the_holds_that_it_names_and_all_only_if_it_is_about_all() {
    let names = Names::new(&Settings::parse("postgres://a@localhost/b").unwrap());
    let limits = plan("10 at once for 1m");
    for (order, ids, all_holds, ends_holds) in [
        (HoldsOrder::List, &[][..], true, false),
        (HoldsOrder::Renew("a"), &["a"], false, false),
        (HoldsOrder::Release("a"), &["a"], false, true),
        (HoldsOrder::RenewMany(&["a", "b"]), &["a", "b"], false, false),
        (HoldsOrder::ReleaseMany(&["a", "b"]), &["a", "b"], false, true),
        (HoldsOrder::Claim(&[("a", 2)], Ticket(1)), &["a"], false, false),
        (HoldsOrder::Replace(&["a"], Ticket(1)), &["a"], true, true),
    ] {
        let mut wants = Wants::default();
        let name = names.counter(&limits, "key").unwrap();
        let caller = Caller::new().0;
        Work::Holds { plan: Arc::clone(&limits), name, order: Order::new(order), caller }.want(&mut wants);
        let all: Vec<&Want> = wants.counters.values().collect();
        let [want] = all[..] else { panic!("it is one counter") };
        assert!(want.ids.iter().eq(ids), "{order:?}");
        assert_eq!((want.all_holds, want.ends_holds), (all_holds, ends_holds), "{order:?}");
    }
}

#[test]
fn attempts_may_wait_for_what_they_go_beyond_the_limit() {
    for (costs, used, max, expected) in [
        (&[5, 5, 10][..], 50, 90, 0),
        (&[5, 5, 10], 80, 90, 10),
        (&[5, 5, 10], 85, 90, 10),
        (&[5], 88, 90, 3),
        (&[5], 90, 90, 5),
        (&[5, 5], 100, 90, 15),
        (&[], 100, 90, 10),
    ] {
        assert_eq!(want(&[], costs).excess(used, max), expected, "{costs:?} {used} {max}");
    }
}

#[test]
fn the_lowest_of_several_limits_is_the_one_to_wait_for() {
    let want = want(&["90/min sliding, 200/hour sliding", "50/min sliding", "70/min sliding"], &[1]);
    let limit = |text: &str| text.parse::<Limit>().unwrap();
    assert_eq!(want.smallest(&limit("10/min sliding")), Some(50));
    assert_eq!(want.smallest(&limit("10/hour sliding")), Some(200));
    assert_eq!(want.smallest(&limit("10/min")), None);
    assert!(want.keeps(&limit("10/hour sliding")) && !want.keeps(&limit("10/hour")));
    assert!(want.is_listed() && !self::want(&["10/min, 5 at once"], &[1]).is_listed());
}

#[test]
fn a_log_is_asked_for_what_has_not_aged_out_and_an_attempt_waits_for() {
    let limits = "100/min sliding";
    let cutoff = NOW - MINUTE;
    let (aged, live) = ([cutoff; 12], [cutoff + MICRO; 12]);
    let log = |used, oldest: &[Timestamp], newest| logged(limits, used, oldest, newest);
    let one = want(&[limits], &[1]);
    assert_eq!(asked(&one, &log(50, &live, NOW)), None, "the first of them is known");
    assert_eq!(asked(&one, &log(50, &aged, NOW)), Some((cutoff, 1)), "the first that counts is not known");
    assert_eq!(asked(&one, &log(13, &aged, NOW)), None, "there are no others");
    assert_eq!(asked(&one, &log(14, &aged, NOW)), Some((cutoff, 1)), "there is another one");
    assert_eq!(asked(&one, &log(50, &aged, cutoff)), None, "all of them have aged out");
    assert_eq!(asked(&one, &log(50, &aged, cutoff + MICRO)), Some((cutoff, 1)), "the newest has not");
    assert_eq!(asked(&one, &log(50, &aged, NOW + MINUTE)), Some((cutoff, 1)), "the clock went back");
    let mut mixed = aged;
    mixed[11] = cutoff + MICRO;
    assert_eq!(asked(&one, &log(50, &mixed, NOW)), None, "the first that counts is known");
    // The live entries before the newest free twelve.
    assert_eq!(asked(&want(&[limits], &[12]), &log(100, &live, NOW)), None);
    assert_eq!(asked(&want(&[limits], &[13]), &log(100, &live, NOW)), Some((cutoff, 13)));
    let lowered = want(&["80/min sliding"], &[5]);
    assert_eq!(asked(&lowered, &log(90, &live, NOW)), Some((cutoff, 15)));
    assert_eq!(
        asked(&want(&["100/hour sliding"], &[1]), &log(50, &aged, NOW)),
        None,
        "no plan has the limit"
    );
}

#[test]
fn slots_are_asked_for_what_has_not_aged_out_or_lies_ahead() {
    let limits = "100/min sliding by 1s";
    // A slot counts until its last moment has aged out.
    let cutoff = NOW - MINUTE - Span::from_secs(1);
    let (aged, live) = ([cutoff; 12], [cutoff + MICRO; 12]);
    let one = want(&[limits], &[1]);
    let slots = |oldest: &[Timestamp], newest| logged(limits, 50, oldest, newest);
    assert_eq!(asked(&one, &slots(&live, NOW)), None);
    assert_eq!(asked(&one, &slots(&aged, NOW)), Some((cutoff, 1)));
    assert_eq!(asked(&one, &slots(&aged, cutoff)), None, "all of them have aged out");
    assert_eq!(asked(&one, &slots(&aged, cutoff + MICRO)), Some((cutoff, 1)));
    let all = Some((Timestamp::ZERO, i64::MAX));
    assert_eq!(asked(&one, &slots(&live, NOW + MICRO)), all, "the clock went back");
}

#[test]
fn a_ladder_is_asked_for_the_failures_that_are_merged() {
    let limits = "ladder 20 +1s then 40 +2s forget 1h";
    let most = plan(limits).limits()[0].ladder().unwrap().most_entries() as u64;
    let ask = |count, costs: &[u64]| {
        let mut loaded = logged(limits, 1_000, &[NOW; 12], NOW);
        loaded.lists[0].count = count;
        asked(&want(&[limits], costs), &loaded)
    };
    assert_eq!(ask(most, &[]), None, "nothing is merged");
    assert_eq!(ask(most, &[1]), None, "the first twelve are known");
    // Ten failures and the two after them are loaded.
    assert_eq!(ask(most + 9, &[1]), None);
    assert_eq!(ask(most + 10, &[1]), Some((Timestamp::ZERO, 13)));
    assert_eq!(ask(most, &[1; 10]), None);
    assert_eq!(ask(most, &[1; 11]), Some((Timestamp::ZERO, 13)), "each attempt may merge one");
    assert_eq!(ask(most + 40, &[1]), Some((Timestamp::ZERO, 43)));
    // A ladder with few failures merges none.
    let mut short = logged(limits, 1_000, &[], NOW);
    short.lists[0].count = 1;
    assert_eq!(asked(&want(&[limits], &[1]), &short), None);
}

/// A counter with many holds. This many of them are loaded.
fn holding(limits: &str, holds: i64, loaded: usize, used: i64, oldest: Timestamp) -> Loaded {
    let hold = Hold { ticket: Ticket(1), weight: 1, since: oldest, renewed: oldest };
    let oldest = column(oldest.as_micros());
    let header = Header { used: vec![Some(used)], holds, oldest, ..Header::default() };
    let holds = (0..loaded).map(|number| (number.to_string(), hold)).collect();
    Loaded { header: Some(header), plan: Some(plan(limits)), holds, ..Loaded::default() }
}

/// The cutoff, the weight, and whether the latest renewal must be known.
fn held(want: &Want, loaded: &Loaded) -> Option<(Timestamp, i64, bool)> {
    match want.more_holds(loaded, NOW)? {
        MoreHolds::All => panic!("only some are needed"),
        MoreHolds::Soonest { cutoff, weight, exact } => {
            Some((Timestamp::from_micros(cutoff.cast_unsigned()), weight, exact))
        }
    }
}

#[test]
fn many_holds_are_asked_for_those_that_ran_out_and_those_to_wait_for() {
    let limits = "100 at once for 1m";
    let (full, roomy) = (want(&[limits], &[3]), want(&[limits], &[1]));
    let recent = NOW - MINUTE + MICRO;
    assert_eq!(held(&full, &holding(limits, 16, 0, 100, recent)), None, "few are all loaded");
    assert_eq!(held(&full, &holding(limits, 17, 0, 100, recent)), Some((recent - MICRO, 3, false)));
    assert_eq!(held(&roomy, &holding(limits, 17, 0, 99, recent)), None, "there is room");
    assert_eq!(held(&roomy, &holding(limits, 17, 0, 100, recent)), Some((recent - MICRO, 1, false)));
    let ended = NOW - MINUTE;
    assert_eq!(held(&roomy, &holding(limits, 17, 0, 50, ended)), Some((ended, 0, true)));
    assert_eq!(held(&roomy, &holding(limits, 17, 0, 50, ended - MINUTE)), Some((ended, 0, true)));
    assert_eq!(held(&want(&["100 at once"], &[3]), &holding("100 at once", 17, 0, 100, ended)), None);
    let mut all = want(&[limits], &[3]);
    all.all_holds = true;
    assert_eq!(held(&all, &holding(limits, 17, 0, 100, ended)), None, "all are loaded");
    let longer = want(&["100 at once for 2m"], &[1]).more_holds(&holding(limits, 17, 0, 1, recent), NOW);
    assert!(matches!(longer, Some(MoreHolds::All)), "each has to be looked at under the new lease");
}

#[test]
fn the_latest_renewal_is_asked_for_when_one_of_few_may_end() {
    let limits = "100 at once for 1m";
    let recent = NOW - MINUTE + MICRO;
    let mut ending = want(&[limits], &[]);
    ending.ends_holds = true;
    assert_eq!(held(&ending, &holding(limits, 66, 2, 50, recent)), Some((recent - MICRO, 0, true)));
    assert_eq!(held(&ending, &holding(limits, 67, 2, 50, recent)), None, "of many, a bound is enough");
    assert_eq!(held(&want(&[limits], &[]), &holding(limits, 66, 2, 50, recent)), None, "none ends");
}
