//! Business limits by the rows of the application's own tables, with counters in a file, in Redis and in
//! PostgreSQL.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::thread;
use std::time::Duration;

use crate::market_rows::{Shop, confirm, hold};
use crate::program::{Home, Server, pause, text, wait_until};
use crate::upstream::Upstream;
use serde_json::{Value, json};
use tollgate_testbed::{Pgbouncer, Server as Redis};

const NEGOTIATION: &str = "6e2d9a1e-7f0a-4d6c-9a54-0c8a3f1b2d11";

/// Creates a deal as an application does: a place, the row, the confirmation. An attempt that only other
/// reservations deny is made again.
fn create_deal(shop: &Shop, server: &Server, advertiser: &str, id: &str) -> bool {
    loop {
        let reply = hold(server, "deals.create", &json!({ "user": "ada", "advertiser": advertiser }), id);
        let answer = reply.json();
        match reply.status {
            200 => break,
            429 if answer.get("retry_after").is_some() => pause(Duration::from_millis(20)),
            429 => {
                assert_eq!((&answer["code"], &answer["limit"]), (&json!("MAX_ACTIVE_DEALS"), &json!(10)));
                return false;
            }
            _ => panic!("{answer}"),
        }
    }
    shop.postgres
        .sql(&format!("INSERT INTO deals (id, advertiser, channel) VALUES ('{id}', '{advertiser}', 7)"));
    confirm(server, "active_deals", advertiser, id);
    true
}

/// Fifty callers at once.
fn fifty(create: impl Fn(usize) -> bool + Sync) -> usize {
    let create = &create;
    thread::scope(|scope| {
        let callers: Vec<_> = (0..50).map(|number| scope.spawn(move || create(number))).collect();
        callers.into_iter().filter_map(|caller| caller.join().unwrap().then_some(())).count()
    })
}

#[test]
fn fifty_parallel_creates_admit_exactly_ten_with_counters_in_any_store() {
    let shop = Shop::open();
    let redis = Redis::redis().start();
    let postgres = format!("{{ postgres: '{}', command_timeout: 10s }}", shop.postgres.url());
    let redis = format!("{{ redis: '{}', command_timeout: 10s, connect_timeout: 10s }}", redis.url());
    for (advertiser, store) in [("file", "{ file: ./t.redb }"), ("redis", &redis), ("postgres", &postgres)] {
        let homes: Vec<Home> = (0..2).map(|_| shop.home(store)).collect();
        // A file has one node; the others have two.
        let nodes: Vec<Server> =
            homes.iter().take(if advertiser == "file" { 1 } else { 2 }).map(Home::start).collect();
        let create = |number: usize| {
            create_deal(&shop, &nodes[number % nodes.len()], advertiser, &format!("{advertiser}-{number}"))
        };
        assert_eq!(fifty(create), 10, "{advertiser}");
        let rows =
            shop.postgres.sql(&format!("SELECT count(*) FROM deals WHERE advertiser = '{advertiser}'"));
        assert_eq!(rows, "10", "{advertiser}");
        assert_eq!(nodes[0].remaining("active_deals", advertiser), 0);
        assert_eq!(nodes[0].remaining("writes", "ada"), 990);
        shop.postgres.sql(&format!("UPDATE deals SET status = 'DONE' WHERE id = (SELECT min(id) FROM deals WHERE advertiser = '{advertiser}')"));
        assert!(create_deal(&shop, &nodes[0], advertiser, &format!("{advertiser}-next")), "one has ended");
        assert!(!create_deal(&shop, &nodes[0], advertiser, &format!("{advertiser}-last")));
    }
}

#[test]
fn without_a_confirmation_a_place_is_reserved_and_a_refund_gives_everything_back() {
    let shop = Shop::open();
    let home = shop.home("memory");
    let server = home.start();
    let fields = json!({ "user": "ada", "advertiser": "acme", "channel": "7" });
    let first = hold(&server, "deals.in_channel", &fields, "d1").ok();
    assert_eq!((&first["origin"], &first["rules"][1]["remaining"]), (&json!("store"), &json!(9)), "{first}");
    assert_eq!(server.remaining("active_deals", "acme"), 9);
    let again = hold(&server, "deals.in_channel", &fields, "d1").ok();
    assert_eq!(again["repeated"], true, "{again}");
    server.post("/api/v1/refund", &json!({ "receipt": first["receipt"] })).ok();
    assert_eq!((server.remaining("active_deals", "acme"), server.remaining("channel_deals", "7")), (10, 5));
    assert_eq!(server.remaining("writes", "ada"), 1000);
    for number in 0..5 {
        shop.postgres.sql(&format!("INSERT INTO deals VALUES ('c{number}', 'other', 7)"));
    }
    let denied = hold(&server, "deals.in_channel", &fields, "d2");
    let answer = denied.json();
    assert_eq!((denied.status, &answer["code"]), (429, &json!("MAX_CHANNEL_DEALS_PER_DAY")), "{answer}");
    assert_eq!((&answer["denied_key"], answer.get("retry_after")), (&json!("7"), None), "{answer}");
    assert_eq!(answer["detail"], "channel_deals 7 exceeded 5 rows; retry when there are fewer");
    assert_eq!(server.remaining("active_deals", "acme"), 10, "the other rule reserves nothing");
    assert_eq!(server.remaining("writes", "ada"), 1000);
    let looked = json!({ "policy": "deals.in_channel", "fields": fields, "dry_run": true });
    assert_eq!(server.check(&looked).status, 429);
    let said = home.run(
        &server,
        &["check", "deals.in_channel", "user=ada", "advertiser=acme", "channel=7", "--id", "d3"],
    );
    assert!(
        text(&said.stdout).starts_with("denied by channel_deals 7 (MAX_CHANNEL_DEALS_PER_DAY)"),
        "{said:?}"
    );
}

#[test]
fn the_other_limits_of_the_business_table_hold_on_real_tables() {
    let shop = Shop::open();
    let server = shop.home("memory").start();
    let table = [
        ("disputes.create", "disputes", "ada", 3, "disputes (id, author)", "MAX_DISPUTES_PER_WEEK"),
        (
            "offers.counter",
            "counter_offers",
            NEGOTIATION,
            10,
            "offers (id, negotiation)",
            "MAX_COUNTER_OFFERS",
        ),
    ];
    for (policy, rule, key, most, into, code) in table {
        let fields: Value = match policy {
            "disputes.create" => json!({ "user": key }),
            _ => json!({ "user": "ada", "negotiation": key }),
        };
        for number in 0..most {
            let id = format!("{rule}-{number}");
            hold(&server, policy, &fields, &id).ok();
            shop.postgres.sql(&format!("INSERT INTO {into} VALUES ('{id}', '{key}')"));
            confirm(&server, rule, key, &id);
        }
        let denied = hold(&server, policy, &fields, "one-more");
        assert_eq!((denied.status, &denied.json()["code"]), (429, &json!(code)), "{}", denied.text());
    }
    shop.postgres.sql("UPDATE disputes SET created = now() - interval '8 days' WHERE id = 'disputes-0'");
    hold(&server, "disputes.create", &json!({ "user": "ada" }), "a-week-later").ok();
}

#[test]
fn values_are_bound_and_never_a_part_of_the_query() {
    let shop = Shop::open();
    let server = shop.home("memory").start();
    for advertiser in ["x' OR '1' = '1", "'; DROP TABLE deals; --", "$1", "\u{1F600}", "NULL"] {
        for number in 0..2 {
            let id = format!("{number}");
            let fields = json!({ "user": "ada", "advertiser": advertiser });
            assert_eq!(hold(&server, "deals.create", &fields, &id).ok()["rules"][1]["remaining"], 9 - number);
        }
    }
    let fields = json!({ "user": "ada", "advertiser": "acme", "channel": "7 OR 1 = 1" });
    let refused = hold(&server, "deals.in_channel", &fields, "d1");
    assert_eq!((refused.status, &refused.json()["reason"]), (503, &json!("uncounted")), "{}", refused.text());
    assert_eq!(shop.rows("deals"), 0, "the table is there");
}

#[test]
fn an_attempt_that_may_wait_passes_when_a_reservation_ends_and_counts_seldom() {
    let shop = Shop::open();
    shop.postgres.sql("INSERT INTO deals SELECT 'd' || n, 'acme', 1 FROM generate_series(1, 9) n");
    let rules = "rules: { a: { by: advertiser, on_exceed: wait 1m, count_rows: { in: shop, query: 'SELECT count(*) FROM deals WHERE advertiser = $1', at_most: 10, timeout: 10s } } }
policies: { p: [a] }";
    let server = shop.home_with("memory", rules).start();
    let fields = json!({ "advertiser": "acme" });
    hold(&server, "p", &fields, "first").ok();
    thread::scope(|scope| {
        let body = json!({ "policy": "p", "fields": fields, "id": "second" });
        let waiting = scope.spawn({
            let server = &server;
            move || server.post("/api/v1/acquire", &body)
        });
        let waits = || server.get("/metrics").text().contains("tollgate_paced_waiting{policy=\"p\"} 1");
        wait_until("the second waits", waits);
        confirm(&server, "a", "acme", "first");
        waiting.join().unwrap().ok();
    });
    let page = server.get("/metrics");
    let counts = page
        .text()
        .lines()
        .find_map(|line| line.strip_prefix("tollgate_row_counts_total{database=\"shop\",result=\"ok\"} "));
    let counts: u64 = counts.unwrap().parse().unwrap();
    assert!(counts < 50, "it counts when something has changed, and not all the time: {counts}");
}

#[test]
fn at_the_gateway_a_reservation_lasts_until_the_upstream_has_answered() {
    let shop = std::sync::Arc::new(Shop::open());
    let own = std::sync::Arc::clone(&shop);
    let upstream = Upstream::answering(move |_| {
        own.postgres.sql("INSERT INTO deals SELECT 'd' || count(*), 'acme', 1 FROM deals");
        201
    });
    let rules = format!(
        "rules: {{ all_deals: {{ code: MAX_DEALS, count_rows: {{ in: shop, query: SELECT count(*) FROM deals, at_most: 3, timeout: 10s }} }} }}
policies: {{ create: [all_deals] }}
gateway:
  listen: 127.0.0.1:0
  upstreams: {{ app: {} }}
  routes: {{ deals: {{ upstream: app, policy: create }} }}
",
        upstream.address
    );
    let server = shop.home_with("memory", &rules).start();
    let held = || server.get("/api/v1/holds/all_deals/all_deals").ok()["held"].clone();
    for _ in 0..3 {
        assert_eq!(server.gateway().ask("POST", "/deals", &[], None).status, 201);
        wait_until("it is confirmed", || held() == 0);
    }
    let denied = server.gateway().ask("POST", "/deals", &[], None);
    assert_eq!((denied.status, &denied.json()["code"]), (429, &json!("MAX_DEALS")), "{}", denied.text());
    assert_eq!((shop.rows("deals"), held()), (3, json!(0)));
}

#[test]
fn rows_are_counted_behind_a_pooler_with_one_connection() {
    let shop = Shop::open();
    let pooler = Pgbouncer::start(&shop.postgres, 1);
    let server = shop.home_through(&pooler.url()).start();
    thread::scope(|scope| {
        for number in 0..20 {
            let server = &server;
            scope.spawn(move || {
                let fields = json!({ "user": "ada", "advertiser": format!("a{number}") });
                hold(server, "deals.create", &fields, "d1").ok();
            });
        }
    });
}

#[test]
fn the_doctor_looks_at_the_role_and_at_the_queries() {
    let shop = Shop::open();
    let home = shop.home("memory");
    let doctor = |home: &Home| home.program().args(["doctor", "--config", "tollgate.yaml"]).output().unwrap();
    let output = doctor(&home);
    let words = text(&output.stdout);
    assert!(output.status.success(), "{words}");
    assert!(words.contains("shop: reader can change no table"), "{words}");
    assert!(words.contains("shop: the query of active_deals counts"), "{words}");
    shop.postgres.sql("GRANT INSERT ON deals TO reader; REVOKE SELECT ON offers FROM reader");
    let output = doctor(&home);
    let words = text(&output.stdout);
    assert_eq!(output.status.code(), Some(2), "{words}");
    assert!(words.contains("shop: reader can change 1 table") && words.contains("GRANT SELECT"), "{words}");
    assert!(
        words.contains("the query of counter_offers: the database refuses the query: permission denied"),
        "{words}"
    );
    let rules = "rules: { a: { by: b, count_rows: { in: shop, query: 'SELECT $1::text', at_most: 1 } } }\npolicies: { p: [a] }";
    let output = doctor(&shop.home_with("memory", rules));
    assert!(text(&output.stdout).contains("the query must select one whole number, as `SELECT count(*)` does, and selected a value of type text"), "{}", text(&output.stdout));
}
