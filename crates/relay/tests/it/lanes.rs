//! The laws of the scheduler: nothing is lost or sent twice at once, nothing comes early or late, and every tenant
//! and lane gets its share.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use proptest::prelude::*;
use tollgate_core::{Span, Timestamp};
use tollgate_relay::lanes::{Cause, End, LaneOptions, Lanes, Priority, Scope, Sleep, Turn};
use tollgate_relay::message::MessageId;
use tollgate_relay::queue::{ItemKey, Waiting};

const START: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);

fn at(seconds: u64) -> Timestamp {
    START + Span::from_secs(seconds)
}

fn key(number: u128) -> ItemKey {
    ItemKey { message: MessageId(number), number: 0 }
}

fn waiting(number: u128, tenant: &str, domain: &str, recipients: u32, due: u64) -> Waiting {
    Waiting {
        key: key(number),
        tenant: tenant.to_owned(),
        account: None,
        priority: Priority::Normal,
        domain: domain.to_owned(),
        recipients,
        due: at(due),
        reports_on: None,
    }
}

fn limit(until: u64) -> End {
    End::Blocked(Sleep::new(at(until), Cause::Limit, "10/min".to_owned()))
}

/// Blocked by what other lanes are blocked by.
fn together(bound: &str, until: u64) -> End {
    let sleep = Sleep::new(at(until), Cause::Limit, bound.to_owned());
    End::Blocked(Sleep { shared: Some(bound.into()), ..sleep })
}

/// Deferred to a later moment than the limit needs.
fn aligned(bound: &str, free_at: u64, until: u64) -> End {
    let End::Blocked(sleep) = together(bound, until) else { unreachable!() };
    End::Blocked(Sleep { free_at: at(free_at), ..sleep })
}

/// Blocked because all connections are in use.
fn busy(name: &str, now: u64) -> End {
    let sleep = Sleep::new(at(now + 1), Cause::Busy, name.to_owned());
    End::Blocked(Sleep { shared: Some(name.into()), ..sleep })
}

fn lanes(per_lane: u32, in_total: u32) -> Lanes {
    let slow_after = Span::from_secs(1_000_000);
    let (per_tenant, unanswered_after) = (in_total, slow_after);
    let options = LaneOptions {
        quantum: 10,
        per_lane,
        in_total,
        per_tenant,
        slow_after,
        unanswered_after,
        most_slow: 10,
    };
    Lanes::new(options)
}

/// Everything that is sent now. The limits of a lane that asks for no other allow it.
fn all(lanes: &mut Lanes, now: u64) -> Vec<u128> {
    let mut turns = Vec::new();
    while let Some(turn) = lanes.next(at(now)) {
        turns.push(turn.item.message.0);
        if lanes.lane_of(turn.item).unwrap().waiting > 0 {
            lanes.admitted(turn.item, at(now));
        }
    }
    turns
}

#[test]
fn items_come_by_priority_then_by_due_time() {
    let mut lanes = lanes(10, 10);
    for (number, priority, due) in [
        (1, Priority::Normal, 3),
        (2, Priority::Normal, 1),
        (3, Priority::Low, 0),
        (4, Priority::High, 4),
        (5, Priority::High, 99),
        (6, Priority::Normal, 1),
    ] {
        lanes.add(&Waiting { priority, ..waiting(number, "acme", "one.example", 1, due) }, START);
    }
    assert_eq!(all(&mut lanes, 50), [4, 2, 6, 1, 3]);
    assert_eq!(lanes.wake_at(), Some(at(99)));
    assert_eq!(all(&mut lanes, 98), [0_u128; 0]);
    assert_eq!(all(&mut lanes, 99), [5]);
}

#[test]
fn a_blocked_lane_sleeps_with_one_timer_and_delays_no_other() {
    let mut lanes = lanes(10, 1_000);
    for number in 0..500 {
        lanes.add(&waiting(number, "acme", "full.example", 1, 0), START);
    }
    lanes.add(&waiting(900, "acme", "free.example", 1, 0), START);
    let first = lanes.next(START).unwrap();
    assert_eq!(first.item, key(0));
    lanes.done(first.item, limit(60), START);
    assert_eq!(all(&mut lanes, 0), [900]);
    assert_eq!(lanes.wake_at(), Some(at(60)));
    let view = lanes.lane_of(key(3)).unwrap();
    assert_eq!((view.waiting, view.sleep.unwrap().reason), (500, "10/min".to_owned()));
    assert_eq!(all(&mut lanes, 59), [0_u128; 0]);
    assert_eq!(lanes.next(at(60)).unwrap().item, key(0), "the item kept its place");
}

#[test]
fn a_lane_that_hangs_takes_no_more_than_its_share() {
    let mut lanes = lanes(3, 5);
    for number in 0..50 {
        lanes.add(&waiting(number, "slow", "slow.example", 1, 0), START);
        lanes.add(&waiting(100 + number, "quick", "quick.example", 1, 0), START);
    }
    let in_flight = all(&mut lanes, 0);
    assert_eq!(in_flight.len(), 5);
    let slow = in_flight.iter().filter(|number| **number < 100).count();
    assert!(slow <= 3);
    let mut quick: Vec<u128> = in_flight.into_iter().filter(|number| *number >= 100).collect();
    let mut sent = 0;
    while let Some(number) = quick.pop() {
        lanes.done(key(number), End::Settled, START);
        sent += 1;
        quick.extend(all(&mut lanes, 0).into_iter().filter(|number| *number >= 100));
    }
    assert_eq!(sent, 50, "all of the quick lane went out");
}

#[test]
fn tenants_share_by_recipients_whatever_their_lanes_and_items() {
    let mut lanes = lanes(1_000, 1_000);
    for number in 0..1_000 {
        let domain = format!("d{}.example", number % 50);
        lanes.add(&waiting(number, "many-lanes", &domain, 1, 0), START);
        lanes.add(&waiting(2_000 + number, "large-items", "one.example", 20, 0), START);
    }
    let mut served: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..600 {
        let turn = lanes.next(START).unwrap();
        *served.entry(turn.lane.tenant.to_string()).or_default() += turn.recipients;
        lanes.done(turn.item, End::Settled, START);
    }
    let apart = served["many-lanes"].abs_diff(served["large-items"]);
    assert!(apart <= 40, "{served:?}");
}

#[test]
fn a_server_that_throttles_slows_its_lane_only() {
    let mut lanes = lanes(1, 10);
    for number in 0..3 {
        lanes.add(&waiting(number, "acme", "busy.example", 1, 0), START);
    }
    lanes.add(&waiting(9, "acme", "free.example", 1, 0), START);
    let turn: Turn = lanes.next(START).unwrap();
    let busy = turn.lane.clone();
    assert_eq!(lanes.throttle(&busy, "421 slow down", START), Some(at(60)));
    lanes.done(turn.item, End::Again { due: at(120), recipients: 1 }, START);
    assert_eq!(all(&mut lanes, 0), [9]);
    assert_eq!(all(&mut lanes, 59), [0_u128; 0]);
    assert_eq!(lanes.next(at(60)).unwrap().item, key(1));
    assert_eq!(lanes.throttle(&busy, "421 slow down", at(60)), Some(at(180)), "the second rest is longer");
    lanes.done(key(1), End::Settled, at(60));
    lanes.relax(&busy);
    assert_eq!(lanes.throttle(&busy, "421 slow down", at(200)), Some(at(260)), "the first one again");
}

#[test]
fn a_retried_item_moves_and_one_in_flight_stays() {
    let mut lanes = lanes(10, 10);
    lanes.add(&waiting(1, "acme", "one.example", 1, 500), START);
    lanes.add(&waiting(1, "acme", "one.example", 1, 0), START);
    assert_eq!(all(&mut lanes, 0), [1]);
    lanes.add(&waiting(1, "acme", "one.example", 1, 0), START);
    assert_eq!(all(&mut lanes, 0), [0_u128; 0], "it is not sent twice at once");
    lanes.done(key(1), End::Settled, START);
    assert!(lanes.is_empty());
    assert_eq!(lanes.views().count(), 0, "an empty lane is forgotten");
    assert_eq!(lanes.wake_at(), None);
}

#[test]
fn one_lane_asks_for_all_that_wait_for_the_same_limit() {
    const LANES: u128 = 1_000;
    let mut lanes = lanes(5, 5_000);
    for number in 0..LANES {
        let domain = format!("d{number}.example");
        lanes.add(&waiting(number, "acme", &domain, 1, 0), START);
    }
    for number in all(&mut lanes, 0) {
        lanes.done(key(number), together("account main", 30), START);
    }
    assert_eq!(lanes.wake_at(), Some(at(30)));
    assert_eq!(all(&mut lanes, 29), [0_u128; 0]);
    // Three slots are free: four lanes ask, and the others sleep on.
    let mut asked = Vec::new();
    while let Some(turn) = lanes.next(at(30)) {
        asked.push(turn.item.message.0);
        assert_eq!(turn.kept, Some((Cause::Limit, at(30))));
        if asked.len() <= 3 {
            lanes.admitted(turn.item, at(30));
            lanes.done(turn.item, End::Settled, at(30));
        } else {
            lanes.done(turn.item, together("account main", 45), at(30));
        }
    }
    assert_eq!(asked.len(), 4);
    assert_eq!(lanes.lane_of(key(LANES - 1)).unwrap().sleep.unwrap().until, at(45), "all see the new moment");
    assert_eq!(lanes.wake_at(), Some(at(45)));
    let first = lanes.next(at(45)).unwrap();
    assert_eq!(first.item.message.0, asked[3], "who asked in vain asks first");
    assert_eq!(lanes.next(at(45)), None, "the others wait for its answer");
    // Its connection fails before it takes anything: the next one follows.
    lanes.done(first.item, End::Again { due: at(500), recipients: 1 }, at(45));
    assert_eq!(std::iter::from_fn(|| lanes.next(at(45))).take(3).count(), 1);
}

#[test]
fn lanes_that_wait_far_ahead_look_now_and_then() {
    let mut lanes = lanes(5, 50);
    for number in 0..3 {
        let domain = format!("d{number}.example");
        lanes.add(&waiting(number, "acme", &domain, 1, 0), START);
    }
    for number in all(&mut lanes, 0) {
        lanes.done(key(number), together("account main", 86_400), START);
    }
    assert_eq!(lanes.wake_at(), Some(at(60)), "the limit may have been raised");
    let probe = lanes.next(at(60)).unwrap();
    assert_eq!(lanes.next(at(60)), None);
    lanes.admitted(probe.item, at(60));
    let second = lanes.next(at(60)).unwrap();
    lanes.remove(second.item, at(60));
    lanes.admitted(second.item, at(60));
    let third = lanes.next(at(60)).unwrap();
    for turn in [probe, second, third] {
        lanes.done(turn.item, End::Settled, at(60));
    }
    assert_eq!(lanes.next(at(60)), None);
    assert!(lanes.is_empty() && lanes.views().count() == 0, "empty lanes are forgotten");
}

/// The messages that limits began to defer since the last look.
fn deferrals(lanes: &mut Lanes) -> u64 {
    lanes.take_deferrals().into_iter().map(|(_, messages)| messages).sum()
}

#[test]
fn each_message_that_a_limit_keeps_waiting_counts_once_however_often_its_lane_asks() {
    let mut lanes = lanes(10, 1_000);
    for number in 0..100 {
        lanes.add(&waiting(number, "acme", "full.example", 1, 0), START);
    }
    assert_eq!(deferrals(&mut lanes), 0, "no limit was asked yet");
    // One message passes in each minute, and the lane asks in vain for the next one.
    for minute in 0..50 {
        let now = 60 * minute;
        let passes = lanes.next(at(now)).unwrap().item;
        lanes.admitted(passes, at(now));
        let refused = lanes.next(at(now)).unwrap().item;
        lanes.done(refused, limit(now + 60), at(now));
        lanes.done(passes, End::Settled, at(now));
        assert_eq!(deferrals(&mut lanes), if minute == 0 { 99 } else { 0 }, "minute {minute}");
    }
    lanes.add(&Waiting { priority: Priority::High, ..waiting(200, "acme", "full.example", 1, 0) }, at(2_941));
    lanes.add(&waiting(201, "acme", "full.example", 1, 2_950), at(2_941));
    assert_eq!(
        deferrals(&mut lanes),
        1,
        "a message that comes while the lane sleeps, and none that is due later"
    );
    let urgent = lanes.next(at(3_000)).unwrap().item;
    assert_eq!(urgent, key(200));
    lanes.done(urgent, limit(3_060), at(3_000));
    assert_eq!(deferrals(&mut lanes), 1, "the one that became due");
}

#[test]
fn a_message_that_passed_a_limit_and_is_retried_counts_again_if_a_limit_defers_the_retry() {
    let mut lanes = lanes(10, 10);
    lanes.add(&waiting(1, "acme", "one.example", 1, 0), START);
    for round in 0..3 {
        let now = 100 * round;
        let item = lanes.next(at(now)).unwrap().item;
        lanes.done(item, limit(now + 10), at(now));
        assert_eq!((lanes.next(at(now + 10)).unwrap().item, deferrals(&mut lanes)), (item, 1));
        lanes.admitted(item, at(now + 10));
        lanes.done(item, End::Again { due: at(now + 100), recipients: 1 }, at(now + 11));
    }
    assert_eq!(deferrals(&mut lanes), 0);
}

#[test]
fn a_message_to_several_domains_is_deferred_once_and_counts_for_the_account_of_the_limit() {
    let mut lanes = lanes(10, 10);
    for number in 0..3 {
        let key = ItemKey { number, ..key(1) };
        lanes.add(&Waiting { key, ..waiting(1, "acme", &format!("{number}.example"), 1, 0) }, START);
    }
    for _ in 0..3 {
        let item = lanes.next(START).unwrap().item;
        let End::Blocked(sleep) = limit(60) else { unreachable!() };
        lanes.done(item, End::Blocked(Sleep { account: Some("main".into()), ..sleep }), START);
    }
    let told = lanes.take_deferrals();
    let told: Vec<_> =
        told.iter().map(|(label, messages)| (&*label.tenant, &*label.account, *messages)).collect();
    assert_eq!(told, [("acme", "main", 1)]);
}

#[test]
fn only_limits_defer_and_not_outages_throttles_or_busy_servers() {
    let mut lanes = lanes(10, 10);
    lanes.add(&waiting(1, "acme", "one.example", 1, 0), START);
    lanes.add(&waiting(2, "acme", "one.example", 1, 0), START);
    for (round, cause) in
        [Cause::Throttled, Cause::Paused, Cause::Busy, Cause::Outage].into_iter().enumerate()
    {
        let now = 10 * round as u64;
        let item = lanes.next(at(now)).unwrap().item;
        lanes.done(item, End::Blocked(Sleep::new(at(now + 10), cause, "no limit".to_owned())), at(now));
        assert_eq!(deferrals(&mut lanes), 0, "{cause:?}");
    }
}

#[test]
fn a_probe_without_anything_to_ask_for_hands_on() {
    let mut lanes = lanes(5, 50);
    for number in 0..3 {
        let domain = format!("d{number}.example");
        lanes.add(&waiting(number, "acme", &domain, 1, 0), START);
    }
    let turns = all(&mut lanes, 0);
    for number in &turns {
        lanes.done(key(*number), together("account main", 30), START);
    }
    lanes.remove(key(turns[0]), at(1));
    lanes.remove(key(turns[1]), at(1));
    assert_eq!(all(&mut lanes, 30), [turns[2]]);
}

#[test]
fn an_aligned_or_spread_message_is_not_sent_before_its_moment() {
    let mut lanes = lanes(5, 50);
    for number in 0..2 {
        lanes.add(&waiting(number, "acme", &format!("d{number}.example"), 1, 0), START);
    }
    for (number, until) in all(&mut lanes, 0).into_iter().zip([3_600, 3_660]) {
        lanes.done(key(number), aligned("account main", 100, until), START);
    }
    let view = lanes.lane_of(key(0)).unwrap().sleep.unwrap();
    assert_eq!((view.until, view.free_at), (at(3_600), at(100)));
    assert_eq!(lanes.wake_at(), Some(at(60)), "a look before the limit is free");
    let probe = lanes.next(at(60)).unwrap();
    lanes.done(probe.item, aligned("account main", 100, 3_600), at(60));
    assert_eq!(lanes.wake_at(), Some(at(3_600)), "none after it");
    assert_eq!(all(&mut lanes, 3_599), [0_u128; 0]);
    let first = lanes.next(at(3_600)).unwrap();
    lanes.admitted(first.item, at(3_600));
    lanes.done(first.item, End::Settled, at(3_600));
    assert_eq!(all(&mut lanes, 3_659), [0_u128; 0], "each lane has its own moment");
    assert_eq!(all(&mut lanes, 3_660).len(), 1);
}

#[test]
fn a_limit_that_was_raised_is_noticed_by_lanes_that_wait_for_an_aligned_moment() {
    let mut lanes = lanes(5, 50);
    for number in 0..3 {
        lanes.add(&waiting(number, "acme", &format!("d{number}.example"), 1, 0), START);
    }
    for number in all(&mut lanes, 0) {
        lanes.done(key(number), aligned("account main", 1_000, 3_600), START);
    }
    for _ in 0..3 {
        let turn = lanes.next(at(60)).unwrap();
        lanes.admitted(turn.item, at(60));
        lanes.done(turn.item, End::Settled, at(60));
    }
    assert!(lanes.is_empty());
}

#[test]
fn a_probe_that_hangs_delays_the_others_by_seconds() {
    let mut lanes = lanes(5, 50);
    for number in 0..3 {
        lanes.add(&waiting(number, "acme", &format!("d{number}.example"), 1, 0), START);
    }
    for number in all(&mut lanes, 0) {
        lanes.done(key(number), together("total", 30), START);
    }
    assert_eq!(all(&mut lanes, 30).len(), 1);
    assert_eq!(lanes.wake_at(), Some(at(32)));
    assert_eq!(all(&mut lanes, 32).len(), 1, "the second one does not wait for the first");
}

#[test]
fn a_tenant_leaves_room_for_others() {
    let options = LaneOptions { per_lane: 5, per_tenant: 3, in_total: 5, ..LaneOptions::default() };
    let mut lanes = Lanes::new(options);
    for number in 0..20 {
        lanes.add(&waiting(number, "slow", &format!("d{number}.example"), 1, 0), START);
    }
    assert_eq!(all(&mut lanes, 0).len(), 3);
    lanes.add(&waiting(100, "quick", "one.example", 1, 0), START);
    assert_eq!(all(&mut lanes, 0), [100], "there is room for another tenant");
    lanes.done(key(0), End::Settled, START);
    assert_eq!(all(&mut lanes, 0).len(), 1, "the next one follows when one of its own has ended");
}

#[test]
fn slow_deliveries_give_up_their_places_within_a_bound() {
    let slow_after = Span::from_secs(10);
    let options = LaneOptions {
        per_lane: 5,
        per_tenant: 4,
        in_total: 4,
        slow_after,
        unanswered_after: slow_after,
        most_slow: 6,
        ..LaneOptions::default()
    };
    let mut lanes = Lanes::new(options);
    for number in 0..20 {
        lanes.add(&waiting(number, "acme", &format!("d{number}.example"), 1, 0), START);
    }
    // Their servers answer.
    let accepted = |lanes: &mut Lanes, now: u64| {
        let turns = all(lanes, now);
        turns.iter().for_each(|number| lanes.admitted(key(*number), at(now)));
        turns
    };
    let first = accepted(&mut lanes, 0);
    assert_eq!(first.len(), 4);
    assert_eq!(lanes.wake_at(), Some(at(10)));
    assert_eq!(accepted(&mut lanes, 9).len(), 0);
    assert_eq!(accepted(&mut lanes, 10).len(), 4, "others go on");
    assert_eq!(accepted(&mut lanes, 20).len(), 2, "no more than six are slow");
    assert_eq!((lanes.in_flight(), accepted(&mut lanes, 1_000).len()), (10, 0));
    lanes.done(key(first[0]), End::Settled, at(1_000));
    assert_eq!(accepted(&mut lanes, 1_000).len(), 1, "one that ended makes room");
}

#[test]
fn servers_that_do_not_answer_give_up_their_places_sooner_than_slow_ones() {
    let options = LaneOptions { per_tenant: 20, in_total: 40, ..LaneOptions::default() };
    let mut lanes = Lanes::new(options);
    for number in 0..100 {
        lanes.add(&waiting(number, "acme", &format!("d{number}.example"), 1, 0), START);
    }
    // Half of the servers answer, and are slow.
    let mut tried = 0;
    while let Some(turn) = lanes.next(START) {
        tried += 1;
        if tried % 2 == 0 {
            lanes.admitted(turn.item, START);
        }
    }
    assert_eq!(tried, 20);
    assert_eq!(lanes.wake_at(), Some(at(2)));
    let mut later = |now: u64| std::iter::from_fn(|| lanes.next(at(now))).count();
    assert_eq!([later(1), later(2), later(4)], [0, 10, 10], "the places of those that did not answer");
}

/// Deliveries over virtual time. Servers of domains that start with `hang` never answer: their deliveries fail after
/// three minutes. All others answer after 200 ms.
struct Network {
    lanes: Lanes,
    now: Timestamp,
    ends: BTreeSet<(Timestamp, u128, bool)>,
    added: HashMap<u128, Timestamp>,
    /// How long each item of a server that answers waited.
    waits: Vec<(String, Span)>,
    /// When deliveries to servers that hang began, and how often to each.
    hung: Vec<Timestamp>,
    hung_domains: HashMap<u128, u32>,
    /// After how many attempts such an item is given up.
    most_tries: u32,
}

impl Network {
    fn new(options: LaneOptions, most_tries: u32) -> Self {
        Self {
            lanes: Lanes::new(options),
            now: START,
            ends: BTreeSet::new(),
            added: HashMap::new(),
            waits: Vec::new(),
            hung: Vec::new(),
            hung_domains: HashMap::new(),
            most_tries,
        }
    }

    fn add(&mut self, number: u128, tenant: &str, domain: &str) {
        self.added.insert(number, self.now);
        let waiting = Waiting { due: self.now, ..waiting(number, tenant, domain, 1, 0) };
        self.lanes.add(&waiting, self.now);
    }

    /// Runs until this time. Nothing is looked at between the moments that the scheduler tells.
    fn run(&mut self, until: Timestamp) {
        loop {
            while let Some(turn) = self.lanes.next(self.now) {
                let (number, hangs) = (turn.item.message.0, turn.lane.domain.starts_with("hang"));
                if hangs {
                    self.hung.push(self.now);
                    *self.hung_domains.entry(number).or_default() += 1;
                } else {
                    self.waits.push((turn.lane.domain.to_string(), self.now.since(self.added[&number])));
                }
                let lasts = if hangs { Span::from_secs(180) } else { Span::from_millis(200) };
                self.ends.insert((self.now + lasts, number, hangs));
            }
            let end = self.ends.first().map(|(end, ..)| *end);
            let wake = self.lanes.wake_at();
            assert!(wake.is_none_or(|wake| wake > self.now), "a moment that came is used up");
            let next = end.into_iter().chain(wake).min().filter(|next| *next <= until);
            self.now = next.unwrap_or(until);
            while let Some((end, number, hangs)) = self.ends.first().copied()
                && end <= self.now
            {
                self.ends.pop_first();
                let due = self.now + Span::from_secs(120);
                let end = match hangs && self.hung_domains[&number] < self.most_tries {
                    true => End::Again { due, recipients: 1 },
                    false => End::Settled,
                };
                if !hangs {
                    self.lanes.admitted(key(number), self.now);
                }
                self.lanes.done(key(number), end, self.now);
            }
            if next.is_none() {
                return;
            }
        }
    }
}

#[test]
fn three_thousand_domains_that_hang_stall_no_other_mail_of_their_tenant() {
    let mut network = Network::new(LaneOptions::default(), u32::MAX);
    network.add(10_000, "acme", "known.example");
    network.run(at(1));
    for number in 0..3_000 {
        network.add(number, "acme", &format!("hang{number}.example"));
    }
    for second in 1..900_u32 {
        let number = 20_000 + u128::from(second) * 10;
        network.add(number, "acme", "known.example");
        if second % 5 == 0 {
            // Nothing is known of its server yet.
            network.add(number + 1, "acme", &format!("new{second}.example"));
            network.add(number + 2, "other", &format!("other{second}.example"));
        }
        network.run(at(1 + u64::from(second)));
    }
    network.run(at(905));
    assert_eq!(network.waits.len(), 1 + 899 + 2 * 179);
    for (domain, wait) in &network.waits {
        let most = if domain.starts_with("new") { 5 } else { 3 };
        assert!(*wait <= Span::from_secs(most), "mail to {domain} waited {wait:?}");
    }
    // Those that hang are tried, at a bounded rate, and each of them within the time.
    let tries =
        |from: u64, to: u64| network.hung.iter().filter(|began| (at(from)..at(to)).contains(began)).count();
    for from in (0..890).step_by(10) {
        assert!(tries(from, from + 10) > 0, "none is tried from {from} s on");
    }
    assert!(tries(20, 180) <= 160 * 4, "{} deliveries began", tries(20, 180));
    assert!(network.lanes.in_flight() < 1_500);
    network.run(at(1_200));
    assert_eq!(network.hung_domains.len(), 3_000, "each was tried");
}

#[test]
fn items_of_a_tenant_go_by_priority_whatever_their_lanes() {
    let mut lanes = lanes(10, 100);
    let priorities =
        [(Priority::Low, "a"), (Priority::Normal, "b"), (Priority::High, "c"), (Priority::High, "a")];
    for (number, (priority, domain)) in (0..).zip(priorities) {
        lanes.add(&Waiting { priority, ..waiting(number, "acme", domain, 1, 0) }, START);
    }
    lanes.add(&Waiting { priority: Priority::Low, ..waiting(9, "other", "a", 1, 0) }, START);
    let order = all(&mut lanes, 0);
    let own: Vec<u128> = order.iter().copied().filter(|number| *number != 9).collect();
    assert_eq!(own[..2].iter().copied().collect::<HashSet<u128>>(), HashSet::from([2, 3]), "{order:?}");
    assert_eq!(own[2..], [1, 0]);
}

#[test]
fn lanes_that_wait_for_a_connection_go_on_one_for_each_that_is_released() {
    let mut lanes = lanes(1, 50);
    for number in 0..6 {
        lanes.add(&waiting(number, "acme", &format!("d{number}.example"), 1, 0), START);
    }
    for number in all(&mut lanes, 0) {
        lanes.done(key(number), busy("mx.example:25", 0), START);
    }
    assert_eq!(all(&mut lanes, 0).len(), 0);
    lanes.released("other.example:25", START);
    assert_eq!(all(&mut lanes, 0).len(), 0);
    lanes.released("mx.example:25", START);
    lanes.released("mx.example:25", START);
    let turns: Vec<Turn> = std::iter::from_fn(|| lanes.next(START)).collect();
    assert_eq!(turns.len(), 2);
    lanes.admitted(turns[0].item, START);
    assert_eq!(all(&mut lanes, 0).len(), 0, "one that got a connection frees none");
    // One that has no use for the connection passes it on.
    lanes.done(turns[1].item, limit(500), START);
    assert_eq!(all(&mut lanes, 0).len(), 1);
    assert_eq!(all(&mut lanes, 2).len(), 1, "a release without a notice is found by looking");
}

/// No account can be used.
fn unserved(until: u64, since: u64) -> End {
    End::Unserved { sleep: Sleep::new(at(until), Cause::Paused, "no account".to_owned()), since: at(since) }
}

#[test]
fn items_without_an_account_wait_each_for_itself_and_are_woken_together() {
    let mut lanes = lanes(10, 10);
    for number in 0..3 {
        lanes.add(&waiting(number, "acme", "one.example", 1, 0), START);
    }
    for (number, now) in [(0, 0), (1, 0), (2, 5)] {
        let turn = lanes.next(at(now)).unwrap();
        assert_eq!((turn.item, turn.kept), (key(number), None), "the lane goes on");
        lanes.done(turn.item, unserved(now + 60, now), at(now));
    }
    let sleep = lanes.lane_of(key(0)).unwrap().sleep.unwrap();
    assert_eq!((sleep.cause, sleep.until), (Cause::Paused, at(65)));
    assert_eq!(lanes.wake_at(), Some(at(60)));
    for number in 0..2 {
        let turn = lanes.next(at(60)).unwrap();
        assert_eq!((turn.item, turn.kept), (key(number), Some((Cause::Paused, START))));
        lanes.done(turn.item, unserved(120, 0), at(60));
    }
    lanes.wake("other", Cause::Paused, at(61));
    lanes.wake("acme", Cause::Limit, at(61));
    assert_eq!(lanes.next(at(61)), None);
    lanes.add(&waiting(9, "acme", "one.example", 1, 1_000), at(61));
    lanes.wake("acme", Cause::Paused, at(61));
    assert_eq!(lanes.lane_of(key(0)).unwrap().sleep, None);
    assert_eq!(all(&mut lanes, 61), [0, 1, 2], "all at once, in their order, and nothing that is due later");
    lanes.done(key(0), End::Settled, at(62));
    assert_eq!(all(&mut lanes, 1_000), [9]);
}

#[test]
fn a_hundred_thousand_lanes_are_woken_in_one_pass() {
    const MANY: u128 = 100_000;
    let mut lanes = lanes(1, 200_000);
    for number in 0..MANY {
        lanes.add(&waiting(number, "acme", &format!("d{number}.example"), 1, 0), START);
    }
    for number in all(&mut lanes, 0) {
        let end = if number % 2 == 0 { together("10/min", 60) } else { aligned("10/min", 30, 60) };
        lanes.done(key(number), end, START);
    }
    assert_eq!(lanes.next(at(1)), None);
    lanes.wake("acme", Cause::Limit, at(1));
    assert_eq!(all(&mut lanes, 1).len() as u128, MANY);
}

#[test]
fn a_clock_that_is_wrong_for_a_moment_strands_nothing() {
    const YEAR: u64 = 365 * 86_400;
    let mut lanes = lanes(10, 10);
    for (number, domain) in
        [(1, "limit"), (2, "shared"), (3, "aligned"), (4, "retry"), (5, "account"), (6, "slow")]
    {
        lanes.add(&waiting(number, "acme", domain, 1, 0), START);
    }
    let ends = |now: u64| {
        [
            (1, limit(now + 60)),
            (2, together("rule", now + 60)),
            (3, aligned("rule", now + 30, now + 60)),
            (4, End::Again { due: at(now + 60), recipients: 1 }),
            (5, unserved(now + 60, now)),
        ]
    };
    let sorted = |mut turns: Vec<u128>| {
        turns.sort_unstable();
        turns
    };
    assert_eq!(sorted(all(&mut lanes, 0)), [1, 2, 3, 4, 5, 6]);
    for (number, end) in ends(0) {
        lanes.done(key(number), end, START);
    }
    // The clock is a year ahead: what waits is tried, and is told to wait again. One of the two that wait together asks.
    let again = sorted(all(&mut lanes, YEAR));
    assert_eq!(again, [1, 2, 4, 5]);
    for (number, end) in ends(YEAR) {
        lanes.done(key(number), end, at(YEAR));
    }
    lanes.add(&waiting(7, "acme", "new", 1, YEAR), at(YEAR));
    assert_eq!(all(&mut lanes, YEAR), [7]);
    lanes.done(key(7), limit(YEAR + 60), at(YEAR));
    // It is right again. What is in flight ends, and everything else waits for as long as it was told.
    assert_eq!(all(&mut lanes, 10), [0_u128; 0]);
    lanes.done(key(6), End::Settled, at(10));
    let wake = lanes.wake_at().unwrap();
    assert!(wake <= at(70), "{wake:?}");
    for lane in lanes.views() {
        let until = lane.sleep.map_or(START, |sleep| sleep.until).max(lane.next_due.unwrap_or(START));
        assert!(until <= at(70), "{} sleeps until {until:?}", lane.key.domain);
    }
    assert_eq!(all(&mut lanes, 39), [0_u128; 0], "nothing is early");
    let mut came = all(&mut lanes, 70);
    for number in [2, 3] {
        // The two that wait together come one after the other.
        lanes.admitted(key(number), at(70));
        came.extend(all(&mut lanes, 70));
    }
    assert_eq!(sorted(came), [1, 2, 3, 4, 5, 7]);
}

#[test]
fn a_paused_lane_waits_until_an_operator_resumes_it() {
    let mut lanes = lanes(5, 50);
    let domain = Scope::Domain { tenant: "acme".into(), domain: "a".into() };
    assert!(lanes.hold(domain.clone(), START) && !lanes.hold(domain.clone(), START));
    for (number, tenant, domain) in [(0, "acme", "a"), (1, "acme", "b"), (2, "other", "a")] {
        lanes.add(&waiting(number, tenant, domain, 1, 0), START);
    }
    lanes.hold(Scope::Tenant("other".into()), START);
    assert_eq!(all(&mut lanes, 0), [1]);
    assert!(lanes.lane_of(key(0)).unwrap().held);
    lanes.done(key(1), End::Again { due: at(5), recipients: 1 }, START);
    lanes.hold(Scope::Queue, at(1));
    assert_eq!(lanes.holds().len(), 3);
    assert!(lanes.release(&domain, at(1)) && !lanes.release(&domain, at(1)));
    assert_eq!(all(&mut lanes, 10).len(), 0, "the whole queue is paused");
    lanes.release(&Scope::Queue, at(10));
    assert_eq!(all(&mut lanes, 10).into_iter().collect::<HashSet<u128>>(), HashSet::from([0, 1]));
    lanes.release(&Scope::Tenant("other".into()), at(10));
    assert_eq!(all(&mut lanes, 10), [2]);
}

#[derive(Clone, Debug)]
enum Act {
    Add { tenant: u8, domain: u8, recipients: u32, due: u64, priority: u8 },
    Next,
    Admit { which: usize },
    Settle { which: usize },
    Again { which: usize, wait: u64 },
    Block { which: usize, wait: u64 },
    Remove { number: u128 },
    Pass { seconds: u64 },
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0..3_u8, 0..3_u8, 1..8_u32, 0..30_u64, 0..3_u8)
            .prop_map(|(tenant, domain, recipients, due, priority)| Act::Add { tenant, domain, recipients, due, priority }),
        6 => Just(Act::Next),
        4 => (0..10_usize).prop_map(|which| Act::Admit { which }),
        2 => (0..10_usize).prop_map(|which| Act::Settle { which }),
        2 => (0..10_usize, 0..20_u64).prop_map(|(which, wait)| Act::Again { which, wait }),
        1 => (0..10_usize, 1..20_u64).prop_map(|(which, wait)| Act::Block { which, wait }),
        1 => (0..60_u128).prop_map(|number| Act::Remove { number }),
        2 => (1..10_u64).prop_map(|seconds| Act::Pass { seconds }),
    ]
}

type Rank = (Priority, u64, u128);
type LaneName = (u8, u8);

/// What the model knows of an item that waits.
#[derive(Clone, Debug)]
struct Modelled {
    lane: LaneName,
    rank: Rank,
}

#[derive(Debug, Default)]
struct Model {
    waiting: HashMap<u128, Modelled>,
    in_flight: Vec<(u128, Modelled)>,
    asleep: HashMap<LaneName, u64>,
    /// The item of a lane that asks the limits, and since when.
    asking: HashMap<LaneName, (u128, u64)>,
}

impl Model {
    fn can_send(&self, lane: (u8, u8), now: u64, per_lane: usize) -> bool {
        self.asleep.get(&lane).is_none_or(|until| *until <= now)
            && self.asking.get(&lane).is_none_or(|(_, since)| since + 2 <= now)
            && self.in_flight.iter().filter(|(_, item)| item.lane == lane).count() < per_lane
    }

    /// Ends a turn.
    fn land(&mut self, which: usize) -> (u128, Modelled) {
        let (number, item) = self.in_flight.remove(which);
        self.asked(number, item.lane);
        (number, item)
    }

    fn asked(&mut self, number: u128, lane: LaneName) {
        if self.asking.get(&lane).is_some_and(|(asking, _)| *asking == number) {
            self.asking.remove(&lane);
        }
    }

    /// The items that may come next: the first of each lane that can send.
    fn candidates(&self, now: u64, per_lane: usize) -> HashSet<u128> {
        let mut firsts: HashMap<LaneName, (Rank, u128)> = HashMap::new();
        for (number, item) in &self.waiting {
            if item.rank.1 <= now && self.can_send(item.lane, now, per_lane) {
                let first = firsts.entry(item.lane).or_insert((item.rank, *number));
                if item.rank < first.0 {
                    *first = (item.rank, *number);
                }
            }
        }
        firsts.into_values().map(|(_, number)| number).collect()
    }
}

proptest! {
    /// Whatever servers hang, each item gets its turn, and the scheduler tells when.
    #[test]
    fn nothing_is_forgotten_while_servers_hang(
        items in prop::collection::vec((0..3_u8, 0..12_u8, 0..60_u64), 1..80),
        (per_tenant, in_total, most_slow) in (1..6_u32, 1..9_u32, 0..9_u32),
    ) {
        let options =
            LaneOptions { per_lane: 2, per_tenant, in_total, most_slow, quantum: 2, ..LaneOptions::default() };
        let mut network = Network::new(options, 2);
        for (number, (tenant, domain, seconds)) in items.iter().enumerate() {
            network.run(network.now + Span::from_secs(*seconds));
            let kind = if domain % 3 == 0 { "good" } else { "hang" };
            network.add(number as u128, &tenant.to_string(), &format!("{kind}{domain}.example"));
        }
        network.run(at(1_000_000));
        prop_assert!(network.lanes.is_empty(), "{} wait for ever", network.lanes.len());
        prop_assert_eq!((network.lanes.in_flight(), network.lanes.views().count()), (0, 0));
        prop_assert_eq!(network.lanes.wake_at(), None);
    }
}

proptest! {
    /// Whatever lanes wait for together, each item gets its turn, and no lane waits for ever.
    #[test]
    fn nothing_is_forgotten_in_a_park(
        items in prop::collection::vec((0..3_u8, 0..6_u8), 1..40),
        fates in prop::collection::vec((0..6_u8, 0..3_u8, 1..200_u64), 0..200),
    ) {
        let mut lanes = lanes(2, 4);
        for (number, (tenant, domain)) in items.iter().enumerate() {
            let waiting = waiting(number as u128, &tenant.to_string(), &domain.to_string(), 1, 0);
            lanes.add(&waiting, START);
        }
        let (mut now, mut fates, mut left) = (0, fates.into_iter(), items.len());
        while left > 0 {
            let Some(turn) = lanes.next(at(now)) else {
                let wake = lanes.wake_at().expect("something waits, so something wakes");
                prop_assert!(wake > at(now), "a moment that came is used up");
                now = wake.since(START).as_secs_ceil();
                continue;
            };
            match fates.next() {
                Some((0 | 1, bound, wait)) => {
                    lanes.done(turn.item, together(&bound.to_string(), now + wait), at(now));
                }
                Some((2, _, wait)) => {
                    lanes.throttle(&turn.lane, "421", at(now));
                    lanes.done(turn.item, End::Again { due: at(now + wait), recipients: 1 }, at(now));
                }
                Some((3, bound, wait)) => {
                    let bound = bound.to_string();
                    lanes.done(turn.item, aligned(&bound, now + wait / 2 + 1, now + wait + 1), at(now));
                }
                Some((4, bound, _)) => {
                    lanes.done(turn.item, busy(&format!("mx{bound}"), now), at(now));
                    lanes.released(&format!("mx{}", bound / 2), at(now));
                }
                _ => {
                    lanes.admitted(turn.item, at(now));
                    lanes.done(turn.item, End::Settled, at(now));
                    left -= 1;
                }
            }
            prop_assert_eq!(lanes.len(), left);
        }
        prop_assert_eq!(lanes.in_flight(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn the_scheduler_is_what_the_model_says(acts in prop::collection::vec(act(), 1..120)) {
        const PER_LANE: usize = 2;
        let mut lanes = lanes(2, 5);
        let (mut model, mut now, mut added) = (Model::default(), 0, 0_u128);
        for act in acts {
            match act {
                Act::Add { tenant, domain, recipients, due, priority } => {
                    added += 1;
                    let priority = [Priority::High, Priority::Normal, Priority::Low][usize::from(priority)];
                    let waiting = waiting(added, &tenant.to_string(), &domain.to_string(), recipients, now + due);
                    lanes.add(&Waiting { priority, ..waiting }, at(now));
                    let rank = (priority, now + due, added);
                    model.waiting.insert(added, Modelled { lane: (tenant, domain), rank });
                }
                Act::Next => {
                    let full = model.in_flight.len() >= 5;
                    let candidates = if full { HashSet::new() } else { model.candidates(now, PER_LANE) };
                    match lanes.next(at(now)) {
                        None => prop_assert!(candidates.is_empty(), "{candidates:?} wait for nothing"),
                        Some(turn) => {
                            let number = turn.item.message.0;
                            prop_assert!(candidates.contains(&number), "{number} is not among {candidates:?}");
                            let item = model.waiting.remove(&number).unwrap();
                            model.asking.insert(item.lane, (number, now));
                            model.in_flight.push((number, item));
                        }
                    }
                }
                Act::Admit { which } if which < model.in_flight.len() => {
                    let (number, lane) = (model.in_flight[which].0, model.in_flight[which].1.lane);
                    lanes.admitted(key(number), at(now));
                    model.asked(number, lane);
                }
                Act::Settle { which } if which < model.in_flight.len() => {
                    let (number, _) = model.land(which);
                    lanes.done(key(number), End::Settled, at(now));
                }
                Act::Again { which, wait } if which < model.in_flight.len() => {
                    let (number, mut item) = model.land(which);
                    lanes.done(key(number), End::Again { due: at(now + wait), recipients: 1 }, at(now));
                    item.rank.1 = now + wait;
                    model.waiting.insert(number, item);
                }
                Act::Block { which, wait } if which < model.in_flight.len() => {
                    let (number, item) = model.land(which);
                    lanes.done(key(number), limit(now + wait), at(now));
                    let until = model.asleep.get(&item.lane).copied().filter(|until| *until > now);
                    model.asleep.insert(item.lane, until.unwrap_or(u64::MAX).min(now + wait));
                    model.waiting.insert(number, item);
                }
                Act::Remove { number } => {
                    lanes.remove(key(number), at(now));
                    model.waiting.remove(&number);
                }
                Act::Pass { seconds } => now += seconds,
                _ => {}
            }
            prop_assert_eq!(lanes.len(), model.waiting.len() + model.in_flight.len());
            prop_assert_eq!(lanes.in_flight() as usize, model.in_flight.len());
        }
        // Without anything in flight, the timers lead through everything that is left, at the right moments.
        model.asking.clear();
        for (number, _) in model.in_flight.drain(..) {
            lanes.done(key(number), End::Settled, at(now));
        }
        while !model.waiting.is_empty() {
            while let Some(turn) = lanes.next(at(now)) {
                prop_assert!(model.candidates(now, PER_LANE).contains(&turn.item.message.0));
                model.waiting.remove(&turn.item.message.0);
                lanes.done(turn.item, End::Settled, at(now));
            }
            prop_assert!(model.candidates(now, PER_LANE).is_empty());
            if model.waiting.is_empty() {
                break;
            }
            let wake = lanes.wake_at().expect("something waits");
            prop_assert!(wake > at(now));
            now = wake.since(START).as_secs_ceil();
        }
        prop_assert!(lanes.is_empty());
    }
}

/// A message that arrives in a lane: after how many seconds, how urgent, for how many recipients, and how often its
/// server fails before it takes the message.
type Arrival = (u64, u8, u32, u8);

/// Sends what arrives in one lane through `limit` recipients in `window` seconds, over `connections`. The relay starts
/// anew at the given times. Returns the order in which the limit allowed the messages, with the ranks that they had.
fn pass(
    arrivals: &[Arrival],
    (limit, window): (u32, u64),
    connections: u32,
    restarts: &[u64],
) -> Vec<(Rank, u64)> {
    let priorities = [Priority::High, Priority::Normal, Priority::Low];
    let (mut lanes, mut allowed) = (lanes(connections, 100), Vec::new());
    let (mut ranks, mut failures, mut taken) = (HashMap::new(), HashMap::new(), Vec::<(u64, u32)>::new());
    let (mut next, mut left, mut now) = (0, arrivals.len(), 0);
    let wait_for = |number: u128, rank: &Rank, recipients| {
        let waiting = waiting(number, "acme", "one.example", recipients, rank.1);
        Waiting { priority: rank.0, ..waiting }
    };
    while left > 0 {
        if restarts.contains(&now) {
            lanes = self::lanes(connections, 100);
            for number in 0..next as u128 {
                if let Some(rank) = ranks.get(&number) {
                    lanes.add(&wait_for(number, rank, arrivals[number as usize].2), at(now));
                }
            }
        }
        while let Some((at_second, priority, recipients, fails)) = arrivals.get(next)
            && *at_second <= now
        {
            let rank = (priorities[usize::from(*priority)], now, next as u128);
            lanes.add(&wait_for(next as u128, &rank, *recipients), at(now));
            ranks.insert(next as u128, rank);
            failures.insert(next as u128, *fails);
            next += 1;
        }
        // Of those that are in flight together, the last one asks first.
        let mut turns: Vec<Turn> = Vec::new();
        loop {
            turns.extend(std::iter::from_fn(|| lanes.next(at(now))));
            let Some(turn) = turns.pop() else { break };
            let number = turn.item.message.0;
            taken.retain(|(since, _)| since + window > now);
            let used: u32 = taken.iter().map(|(_, count)| count).sum();
            if used + turn.recipients > limit {
                let until = taken.first().map_or(now + 1, |(since, _)| since + window);
                lanes.done(turn.item, self::limit(until), at(now));
                continue;
            }
            taken.push((now, turn.recipients));
            lanes.admitted(turn.item, at(now));
            let rank = ranks.remove(&number).unwrap();
            allowed.push((rank, now));
            if failures[&number] == 0 {
                lanes.done(turn.item, End::Settled, at(now));
                left -= 1;
            } else {
                let due = now + 7;
                *failures.get_mut(&number).unwrap() -= 1;
                ranks.insert(number, (rank.0, due, number));
                lanes.done(turn.item, End::Again { due: at(due), recipients: turn.recipients }, at(now));
            }
        }
        now += 1;
    }
    allowed
}

proptest! {
    /// A limit allows the messages of a lane by priority, then first come, first served. A retry has the place of its
    /// due time. A restart changes nothing.
    #[test]
    fn a_lane_keeps_its_order(
        mut arrivals in prop::collection::vec((0..40_u64, 0..3_u8, 1..4_u32, 0..3_u8), 1..30),
        limit in (3..6_u32, 1..9_u64),
        connections in 1..6_u32,
        restarts in prop::collection::vec(0..60_u64, 0..3),
    ) {
        arrivals.sort_unstable_by_key(|(at, ..)| *at);
        let allowed = pass(&arrivals, limit, connections, &restarts);
        for (place, (earlier, at)) in allowed.iter().enumerate() {
            for (later, _) in &allowed[place + 1..] {
                // Only one that was not due yet when the other passed may be before it in the order.
                prop_assert!(earlier < later || later.1 > *at, "{earlier:?} overtook {later:?}: {allowed:?}");
            }
        }
    }
}
