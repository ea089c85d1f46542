//! Failures of a query that counts rows: each is reported, takes nothing, delays no other request, and ends
//! with its cause.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::thread;
use std::time::Duration;

use crate::market_rows::{Shop, hold};
use crate::program::{PATIENCE, Server, now, pause, wait_until};
use serde_json::{Value, json};

/// Queries that do not count, and a word that the log says of each.
const FAULTS: [(&str, &str, &str); 12] = [
    ("missing", "SELECT count(*) FROM nothing WHERE a = $1", "42P01"),
    ("broken", "SELECT 1 / (length($1) - 3)::bigint", "22012"),
    ("hangs", "SELECT 1 FROM pg_sleep(600) WHERE $1 <> ''", "did not answer in time"),
    ("nothing", "SELECT NULL::bigint WHERE $1 <> ''", "selected NULL"),
    ("words", "SELECT 'many'::text WHERE $1 <> ''", "a value of type text"),
    ("none", "SELECT 1 WHERE $1 = ''", "selected no row"),
    ("several", "SELECT generate_series(1, 100)::bigint WHERE $1 <> ''", "more than one row"),
    ("table", "SELECT generate_series(1, 1000000)::bigint WHERE $1 <> ''", "more than 65536 bytes"),
    ("flood", "SELECT repeat('x', 100000000) WHERE $1 <> ''", "more than 65536 bytes"),
    ("negative", "SELECT -1::bigint WHERE $1 <> ''", "the negative number -1"),
    ("writes", "WITH d AS (DELETE FROM deals RETURNING 1) SELECT count(*) FROM d WHERE $1 <> ''", "25006"),
    ("secret", "SELECT count(*) FROM secrets WHERE word = $1", "42501"),
];

/// A rule and a policy for each fault, and for a query that counts; each policy also bounds tries.
fn rules() -> String {
    let mut rules = "rules:\n  tries: { by: user, limits: 100/hour }\n".to_owned();
    let mut policies = "policies:\n".to_owned();
    let sound = ("sound", "SELECT count(*) FROM deals WHERE advertiser = $1", "");
    for (name, query, _) in FAULTS.into_iter().chain([sound]) {
        rules += &format!(
            "  {name}: {{ by: advertiser, code: C, count_rows: {{ in: shop, query: \"{query}\", at_most: 10, timeout: 1s }} }}\n"
        );
        policies += &format!("  {name}: [tries, {name}]\n");
    }
    rules += "  lenient: { by: advertiser, on_outage: allow, count_rows: { in: shop, query: \"SELECT NULL::bigint WHERE $1 <> ''\", at_most: 10 } }\n";
    policies += "  lenient: [tries, lenient]\n";
    rules + &policies
}

fn fields() -> Value {
    json!({ "user": "ada", "advertiser": "ada" })
}

/// Asks until the rows are counted again.
fn comes_back(server: &Server) -> Duration {
    let start = now();
    loop {
        let reply = hold(server, "sound", &fields(), "returning");
        if reply.status == 200 {
            return start.elapsed();
        }
        assert!(start.elapsed() < PATIENCE, "{}", reply.text());
        pause(Duration::from_millis(10));
    }
}

#[test]
fn every_query_that_does_not_count_denies_takes_nothing_and_is_told() {
    let shop = Shop::open();
    shop.postgres.sql("INSERT INTO deals VALUES ('d', 'ada', 1)");
    let server = shop.home_with("memory", &rules()).start();
    for (policy, _, said) in FAULTS {
        let reply = hold(&server, policy, &fields(), "d1");
        let answer = reply.json();
        assert_eq!((reply.status, &answer["denied_by"]), (503, &json!(policy)), "{answer}");
        assert_eq!((&answer["code"], &answer["reason"]), (&json!("C"), &json!("uncounted")), "{answer}");
        assert_eq!(
            (&answer["type"], &answer["error"]),
            (&json!("/problems/rows-uncounted"), &json!("rows uncounted"))
        );
        server.wait_for_log(said);
        let held = server.get(&format!("/api/v1/holds/{policy}/ada")).ok();
        assert_eq!(held["held"], 0, "{policy}: {held}");
    }
    assert_eq!(server.remaining("tries", "ada"), 100, "nothing stays counted");
    assert_eq!(shop.rows("deals"), 1, "a query cannot write");
    let lenient = hold(&server, "lenient", &fields(), "d1").ok();
    assert_eq!(
        (&lenient["origin"], &lenient["reason"]),
        (&json!("outage"), &json!("uncounted")),
        "{lenient}"
    );
    hold(&server, "sound", &fields(), "d1").ok();
    let metrics = server.get("/metrics");
    assert!(
        metrics.text().contains("tollgate_row_counts_total{database=\"shop\",result=\"failed\"} 13"),
        "{}",
        metrics.text()
    );
    let open = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'reader' AND state <> 'idle'";
    wait_until("no transaction is left open", || shop.postgres.sql(open) == "0");
}

#[test]
fn a_database_that_is_gone_paused_or_back_again_is_noticed() {
    let mut shop = Shop::open();
    let server = shop.home_with("memory", &rules()).start();
    hold(&server, "sound", &fields(), "d1").ok();
    shop.postgres.pause();
    let start = now();
    let reply = hold(&server, "sound", &fields(), "d2");
    assert_eq!((reply.status, &reply.json()["reason"]), (503, &json!("uncounted")), "{}", reply.text());
    assert!(start.elapsed() < PATIENCE, "it waits no longer than its time-out");
    shop.postgres.resume();
    comes_back(&server);
    shop.postgres.stop();
    assert_eq!(hold(&server, "sound", &fields(), "d3").status, 503);
    shop.postgres.restart();
    assert!(comes_back(&server) < Duration::from_secs(3 + 4), "3 s, and the rest for a busy machine");
    assert_eq!(server.remaining("tries", "ada"), 100 - 2, "those that were denied took nothing");
}

#[test]
fn an_open_transaction_of_the_application_neither_counts_nor_blocks() {
    let shop = Shop::open();
    let server = shop.home_with("memory", &rules()).start();
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    thread::scope(|scope| {
        let open = scope.spawn(|| {
            shop.postgres.try_sql("BEGIN; INSERT INTO deals VALUES ('d', 'ada', 1); SELECT * FROM deals FOR UPDATE; SELECT pg_sleep(60)")
        });
        wait_until("the transaction is open", || shop.postgres.sql(waiting) == "1");
        let reply = hold(&server, "sound", &fields(), "d1").ok();
        assert_eq!(reply["rules"][1]["remaining"], 9, "what is not committed does not count: {reply}");
        shop.postgres.sql("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'");
        assert!(open.join().unwrap().is_err());
        let locked = scope.spawn(|| shop.postgres.try_sql("BEGIN; LOCK TABLE deals; SELECT pg_sleep(60)"));
        wait_until("the table is locked", || shop.postgres.sql(waiting) == "1");
        assert_eq!(
            hold(&server, "sound", &fields(), "d2").status,
            503,
            "the count waits for the lock, and gives up"
        );
        shop.postgres.sql("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'");
        assert!(locked.join().unwrap().is_err());
        comes_back(&server);
    });
}
