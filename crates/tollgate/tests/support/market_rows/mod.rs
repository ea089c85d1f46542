//! A marketplace with its own tables, and a node that counts their rows.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "every test crate uses its own part of this"
)]

use serde_json::{Value, json};
use tollgate_testbed::Postgres;

use crate::program::{Home, Reply, Server};

/// The application's database: tables, and a role that may only read them.
pub struct Shop {
    pub postgres: Postgres,
}

const TABLES: &str = "
CREATE TABLE deals (id text PRIMARY KEY, advertiser text NOT NULL, channel bigint NOT NULL,
    status text NOT NULL DEFAULT 'OPEN', created timestamptz NOT NULL DEFAULT now());
CREATE TABLE disputes (id text PRIMARY KEY, author text NOT NULL, created timestamptz NOT NULL DEFAULT now());
CREATE TABLE offers (id text PRIMARY KEY, negotiation uuid NOT NULL);
CREATE TABLE secrets (word text);
CREATE ROLE reader LOGIN;
GRANT SELECT ON deals, disputes, offers TO reader;";

/// The business limits of a marketplace, by the rows that there are.
const RULES: &str = "
rules:
  writes: { by: user, limits: 1000/hour }
  active_deals:
    by: advertiser
    code: MAX_ACTIVE_DEALS
    count_rows:
      in: shop
      query: SELECT count(*) FROM deals WHERE advertiser = $1 AND status NOT IN ('DONE', 'CANCELLED')
      at_most: 10
      timeout: 10s
  channel_deals:
    by: channel
    code: MAX_CHANNEL_DEALS_PER_DAY
    count_rows:
      in: shop
      query: SELECT count(*) FROM deals WHERE channel = $1 AND created >= date_trunc('day', now())
      at_most: 5
      timeout: 10s
  disputes:
    by: user
    code: MAX_DISPUTES_PER_WEEK
    count_rows:
      in: shop
      query: SELECT count(*) FROM disputes WHERE author = $1 AND created > now() - interval '7 days'
      at_most: 3
      timeout: 10s
  counter_offers:
    by: negotiation
    code: MAX_COUNTER_OFFERS
    count_rows:
      in: shop
      query: SELECT count(*) FROM offers WHERE negotiation = $1
      at_most: 10
      timeout: 10s
policies:
  deals.create: [writes, active_deals]
  deals.in_channel: [writes, active_deals, channel_deals]
  disputes.create: [writes, disputes]
  offers.counter: [writes, counter_offers]
";

impl Shop {
    pub fn open() -> Self {
        let postgres = Postgres::start();
        postgres.sql(TABLES);
        Self { postgres }
    }

    /// Its address for the role that may only read.
    pub fn url(&self) -> String {
        format!("postgres://reader@127.0.0.1:{}/postgres", self.postgres.port())
    }

    /// A node with these settings of its store, and the limits of the marketplace.
    pub fn home(&self, store: &str) -> Home {
        self.home_with(store, RULES)
    }

    pub fn home_with(&self, store: &str, rules: &str) -> Home {
        home_at(&self.url(), store, rules)
    }

    /// A node that reaches the tables another way.
    pub fn home_through(&self, url: &str) -> Home {
        home_at(url, "memory", RULES)
    }

    pub fn rows(&self, table: &str) -> u64 {
        self.postgres.sql(&format!("SELECT count(*) FROM {table}")).parse().unwrap()
    }
}

fn home_at(url: &str, store: &str, rules: &str) -> Home {
    let databases = "databases: { shop: { url_env: SHOP_DATABASE_URL } }";
    Home::with(&format!("store: {store}\n{databases}\n{rules}")).variable("SHOP_DATABASE_URL", url)
}

/// Asks for a place.
pub fn hold(server: &Server, policy: &str, fields: &Value, id: &str) -> Reply {
    server.post("/api/v1/holds", &json!({ "policy": policy, "fields": fields, "id": id }))
}

/// Confirms a reservation, after the commit.
pub fn confirm(server: &Server, rule: &str, key: &str, id: &str) {
    server.ask("DELETE", &format!("/api/v1/holds/{rule}/{key}/{id}"), None).ok();
}
