//! The business limits of a marketplace, in a file or on Redis, with a clock that a test moves.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "every test crate uses its own part of this"
)]

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tollgate_testbed::Server as Redis;

use crate::program::{Home, Reply, Server, wait_until};

const RULES: &str = "
log: { format: json }
rules:
  active_deals: { code: MAX_ACTIVE_DEALS, by: advertiser, limits: 10 at once }
  channel_deals: { code: MAX_DEALS_A_DAY, by: channel, limits: 5/day calendar in Asia/Tokyo }
  disputes: { code: MAX_DISPUTES, by: user, limits: 3/week sliding }
  counter_offers: { code: MAX_COUNTER_OFFERS, by: negotiation, limits: 10 in total }
  tick: { limits: 1000000/week }
policies:
  deals.create: [active_deals, channel_deals]
  disputes.create: [disputes]
  offers.counter: [counter_offers]
  tick: [tick]
";

/// The store of the counters.
pub enum Store {
    File,
    Redis(Box<Redis>),
}

/// The clock of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    Real,
    /// One that [`Market::set_clock`] moves.
    Moved,
}

/// A marketplace: its store, and one node or more.
pub struct Market {
    pub store: Store,
    pub homes: Vec<Home>,
    pub nodes: Vec<Server>,
}

impl Market {
    /// One node with a file that is written before every response.
    pub fn in_a_file(time: Time) -> Self {
        let home = Home::with(&format!("store: {{ file: ./market.redb, sync: always }}\n{RULES}"));
        let home = if time == Time::Moved { home.with_moved_clock() } else { home };
        Self { store: Store::File, nodes: vec![home.start()], homes: vec![home] }
    }

    /// Two nodes that share a Redis.
    pub fn on_redis(time: Time) -> Self {
        let redis = Redis::redis();
        let redis = if time == Time::Moved { redis.faketime(0).start() } else { redis.start() };
        // A busy machine is not an outage.
        let settings = "command_timeout: 20s, connect_timeout: 20s";
        let config = format!("store: {{ redis: '{}', {settings} }}\n{RULES}", redis.url());
        let homes: Vec<Home> = (0..2).map(|_| Home::with(&config)).collect();
        Self { store: Store::Redis(Box::new(redis)), nodes: homes.iter().map(Home::start).collect(), homes }
    }

    /// The next node: each in its turn.
    pub fn node(&self, turn: usize) -> &Server {
        &self.nodes[turn % self.nodes.len()]
    }

    /// Sets the store's clock this far ahead of the real one, and waits until decisions use it.
    pub fn set_clock(&self, ahead: SignedDuration) {
        match &self.store {
            Store::File => self.homes[0].shift_clock(ahead.as_secs()),
            Store::Redis(redis) => redis.shift_clock(ahead.as_secs()),
        }
        wait_until("the store's clock has moved", || {
            let off = self.now().duration_since(Timestamp::now() + ahead);
            off.abs() < SignedDuration::from_mins(1)
        });
    }

    /// The store's time, from the journal.
    fn now(&self) -> Timestamp {
        self.nodes[0].check(&json!({ "policy": "tick" })).ok();
        let journal = self.nodes[0].get("/api/v1/decisions?limit=1").ok();
        journal["decisions"][0]["at"].as_str().unwrap().parse().unwrap()
    }

    /// Begins a deal.
    pub fn deal(&self, turn: usize, advertiser: &str, channel: &str, id: &str) -> Reply {
        let fields = json!({ "advertiser": advertiser, "channel": channel });
        self.node(turn)
            .post("/api/v1/holds", &json!({ "policy": "deals.create", "fields": fields, "id": id }))
    }

    /// The ids of an advertiser's deals.
    pub fn deals_of(&self, turn: usize, advertiser: &str) -> Vec<String> {
        let held = self.node(turn).get(&format!("/api/v1/holds/active_deals/{advertiser}")).ok();
        let ids = held["holds"].as_array().unwrap().iter();
        ids.map(|hold| hold["id"].as_str().unwrap().to_owned()).collect()
    }

    /// Ends a deal. Returns whether it existed.
    pub fn end_deal(&self, turn: usize, advertiser: &str, id: &str) -> Value {
        let path = format!("/api/v1/holds/active_deals/{advertiser}/{id}");
        self.node(turn).ask("DELETE", &path, None).ok()["released"].clone()
    }

    /// One attempt with one field.
    pub fn once(&self, turn: usize, policy: &str, field: &str, value: &str) -> Reply {
        self.node(turn).check(&json!({ "policy": policy, "fields": { field: value } }))
    }
}

/// The code and the number in a denial.
pub fn refusal(reply: &Reply) -> (String, u64) {
    assert_eq!(reply.status, 429, "{}", reply.text());
    let body = reply.json();
    let code = body["code"].as_str().unwrap_or_else(|| panic!("{body}")).to_owned();
    (code, body["limit"].as_u64().unwrap_or_else(|| panic!("{body}")))
}

/// The time until the next moment with this hour and minute in UTC.
pub fn until(hour: i8, minute: i8) -> SignedDuration {
    let now = Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC);
    let today = now.date().at(hour, minute, 0, 0).to_zoned(jiff::tz::TimeZone::UTC).unwrap();
    let next = if today > now { today } else { today.checked_add(jiff::Span::new().days(1)).unwrap() };
    next.timestamp().duration_since(now.timestamp())
}
