//! The business limits of a marketplace through the real program, on a file and on Redis: at once, by the day
//! of a time zone, by any week, and in total.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::market::{Market, Time, refusal, until};
use crate::program::{Connection, pause, text};
use jiff::SignedDuration;
use serde_json::{Value, json};

fn both(time: Time, story: impl Fn(&Market)) {
    story(&Market::in_a_file(time));
    story(&Market::on_redis(time));
}

fn of(code: &str, limit: u64) -> (String, u64) {
    (code.to_owned(), limit)
}

#[test]
fn an_advertiser_has_ten_deals_at_once_each_by_its_id() {
    both(Time::Real, |market| {
        for number in 0..10 {
            let taken = market.deal(number, "ads", &format!("c{number}"), &format!("deal-{number}")).ok();
            assert_eq!((&taken["repeated"], &taken["id"]), (&json!(false), &json!(format!("deal-{number}"))));
        }
        let again = market.deal(1, "ads", "c0", "deal-0").ok();
        assert_eq!(again["repeated"], true, "the same id holds once: {again}");
        assert_eq!(market.deals_of(0, "ads").len(), 10);
        let eleventh = market.deal(0, "ads", "c0", "deal-10");
        assert_eq!(refusal(&eleventh), of("MAX_ACTIVE_DEALS", 10));
        assert_eq!(eleventh.json()["denied_by"], "active_deals");
        assert_eq!(eleventh.json().get("retry_after"), None, "no time helps: {}", eleventh.text());
        market.deal(1, "others", "c0", "deal-10").ok();
        assert_eq!(market.end_deal(0, "ads", "deal-3"), true);
        assert_eq!(market.end_deal(1, "ads", "deal-3"), false, "ending it again ends nothing else");
        assert_eq!(market.deals_of(1, "ads").len(), 9);
        market.deal(0, "ads", "c11", "deal-11").ok();
        assert_eq!(refusal(&market.deal(1, "ads", "c12", "deal-12")), of("MAX_ACTIVE_DEALS", 10));
    });
}

#[test]
fn every_answer_that_names_the_rule_has_its_code() {
    both(Time::Real, |market| {
        let ids: Vec<String> = (0..10).map(|number| format!("deal-{number}")).collect();
        let path = "/api/v1/holds/active_deals/ads";
        market.node(0).ask("PUT", path, Some(&json!({ "ids": ids }))).ok();
        let fields = json!({ "advertiser": "ads", "channel": "c" });
        let attempt = json!({ "policy": "deals.create", "fields": fields, "id": "more" });
        assert_eq!(refusal(&market.node(0).check(&attempt)), of("MAX_ACTIVE_DEALS", 10));
        let several = market.node(1).check(&json!({ "attempts": [attempt, attempt] })).ok();
        for decision in several["decisions"].as_array().unwrap() {
            assert_eq!((&decision["code"], &decision["limit"]), (&json!("MAX_ACTIVE_DEALS"), &json!(10)));
        }
        let run = market.homes[0]
            .run(market.node(0), &["check", "deals.create", "advertiser=ads", "channel=c", "--id", "more"]);
        let said = text(&run.stdout).lines().next().unwrap_or_default();
        let expected = "denied by active_deals ads (MAX_ACTIVE_DEALS), and waiting does not help: 10 at once";
        assert_eq!((run.status.code(), said), (Some(1), expected));
        let journal = market.node(0).get("/api/v1/decisions?limit=1").ok();
        assert_eq!(journal["decisions"][0]["code"], "MAX_ACTIVE_DEALS", "{journal}");
        let rules = market.node(0).get("/api/v1/counters").ok();
        assert_eq!(rules["rules"]["disputes"]["code"], "MAX_DISPUTES", "{rules}");
        market.node(0).wait_for_log("MAX_ACTIVE_DEALS");
    });
}

#[test]
fn a_channel_has_five_deals_on_each_day_of_its_time_zone() {
    both(Time::Moved, |market| {
        // Half an hour before the day ends in Tokyo; the UTC day has nine hours left.
        let evening = until(14, 30);
        market.set_clock(evening);
        let deal = |number: usize| market.deal(number, &format!("ads-{number}"), "sports", "deal");
        for number in 0..5 {
            deal(number).ok();
        }
        let sixth = deal(5);
        assert_eq!(refusal(&sixth), of("MAX_DEALS_A_DAY", 5));
        let wait = sixth.json()["retry_after"].as_u64().unwrap();
        assert!((1..=1_860).contains(&wait), "until midnight in Tokyo: {wait} s");
        assert!(market.deals_of(0, "ads-5").is_empty(), "what the channel refuses takes no other place");
        market.set_clock(evening + SignedDuration::from_mins(60));
        for number in 6..11 {
            deal(number).ok();
        }
        assert_eq!(refusal(&deal(11)), of("MAX_DEALS_A_DAY", 5));
        assert_eq!(market.deals_of(0, "ads-0"), ["deal"], "a day ends no deal");
    });
}

#[test]
fn a_user_has_three_disputes_in_any_seven_days() {
    both(Time::Moved, |market| {
        let dispute = |turn: usize| market.once(turn, "disputes.create", "user", "angry");
        for day in [0, 2, 4] {
            market.set_clock(SignedDuration::from_hours(24 * day));
            dispute(0).ok();
        }
        market.set_clock(SignedDuration::from_hours(24 * 5));
        let fourth = dispute(1);
        assert_eq!(refusal(&fourth), of("MAX_DISPUTES", 3));
        let wait = fourth.json()["retry_after"].as_u64().unwrap();
        assert!(wait.abs_diff(2 * 86_400) < 600, "until the first is a week old: {wait} s");
        market.once(0, "disputes.create", "user", "calm").ok();
        market.set_clock(SignedDuration::from_hours(24 * 7 + 1));
        dispute(0).ok();
        assert_eq!(refusal(&dispute(1)), of("MAX_DISPUTES", 3), "only one is a week old");
    });
}

#[test]
fn a_negotiation_has_ten_counter_offers_in_total_and_a_rollback_is_refunded() {
    both(Time::Moved, |market| {
        let offer = |turn: usize| market.once(turn, "offers.counter", "negotiation", "n1");
        let receipts: Vec<Value> = (0..10).map(|turn| offer(turn).ok()["receipt"].clone()).collect();
        let eleventh = offer(0);
        assert_eq!(refusal(&eleventh), of("MAX_COUNTER_OFFERS", 10));
        assert_eq!(eleventh.json().get("retry_after"), None);
        let give = |turn: usize| {
            market.node(turn).post("/api/v1/refund", &json!({ "receipt": receipts[7] })).ok()["refunded"]
                .clone()
        };
        assert_eq!((give(0), give(1)), (json!("back"), json!("already")));
        offer(1).ok();
        assert_eq!(refusal(&offer(0)), of("MAX_COUNTER_OFFERS", 10));
        market.set_clock(SignedDuration::from_hours(24 * 400));
        assert_eq!(refusal(&offer(1)), of("MAX_COUNTER_OFFERS", 10), "a year changes nothing");
    });
}

#[test]
fn a_deal_takes_all_its_places_or_none_and_gives_all_of_them_back() {
    both(Time::Moved, |market| {
        // Not near midnight in Tokyo.
        market.set_clock(until(3, 0));
        let shows = |rule: &str, key: &str| {
            let shown = market.node(1).get(&format!("/api/v1/counters/{rule}/{key}")).ok();
            shown["limits"][0]["used"].as_u64().unwrap()
        };
        let ids: Vec<String> = (0..10).map(|number| format!("old-{number}")).collect();
        let path = "/api/v1/holds/active_deals/full";
        market.node(0).ask("PUT", path, Some(&json!({ "ids": ids }))).ok();
        assert_eq!(refusal(&market.deal(0, "full", "news", "deal")), of("MAX_ACTIVE_DEALS", 10));
        assert_eq!(
            shows("channel_deals", "news"),
            0,
            "what the advertiser refuses is no deal of the channel"
        );
        let receipt = market.deal(0, "ads", "news", "deal").ok()["receipt"].clone();
        assert_eq!((shows("active_deals", "ads"), shows("channel_deals", "news")), (1, 1));
        let given = market.node(1).post("/api/v1/refund", &json!({ "receipt": receipt })).ok();
        assert_eq!(given["refunded"], "back");
        assert_eq!((shows("active_deals", "ads"), shows("channel_deals", "news")), (0, 0));
    });
}

#[test]
fn the_books_of_the_application_heal_a_count_that_has_drifted() {
    both(Time::Real, |market| {
        for number in 0..10 {
            market.deal(number, "ads", &format!("c{number}"), &format!("gone-{number}")).ok();
        }
        // The application lost track of these, and has three that were never taken here.
        let live = json!({ "ids": ["gone-4", "new-1", "new-2", "new-3"] });
        let put = |turn: usize, live: &Value| {
            market.node(turn).ask("PUT", "/api/v1/holds/active_deals/ads", Some(live)).ok()["held"].clone()
        };
        assert_eq!(put(0, &live), 4);
        assert_eq!(put(1, &live), 4, "saying it again changes nothing");
        assert_eq!(market.deals_of(1, "ads"), ["gone-4", "new-1", "new-2", "new-3"]);
        for number in 0..6 {
            market.deal(number, "ads", &format!("d{number}"), &format!("next-{number}")).ok();
        }
        assert_eq!(refusal(&market.deal(0, "ads", "e", "last")), of("MAX_ACTIVE_DEALS", 10));
        // More than the limit can be held if the application says so; then no further one is allowed.
        let many: Vec<String> = (0..12).map(|number| format!("real-{number}")).collect();
        assert_eq!(put(0, &json!({ "ids": many })), 12);
        assert_eq!(refusal(&market.deal(1, "ads", "e", "last")), of("MAX_ACTIVE_DEALS", 10));
        assert_eq!(put(0, &json!({ "ids": [] })), 0);
        market.deal(1, "ads", "e", "first").ok();
    });
}

/// Every connection begins deals of one advertiser and ends its own, unless `ends` is false. Returns how many
/// were allowed in the first round.
fn rush(market: &Market, connections: usize, each: usize, ends: bool) -> usize {
    let (number, admitted) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = |mut connection: Connection| {
        for _ in 0..each {
            let number = number.fetch_add(1, Ordering::SeqCst);
            let id = format!("deal-{ends}-{number}");
            let fields = json!({ "advertiser": "ads", "channel": format!("{ends}-{number}") });
            let body = json!({ "policy": "deals.create", "fields": fields, "id": id });
            let reply = connection.ask("POST", "/api/v1/holds", &[], Some(&body));
            assert!(matches!(reply.status, 200 | 429), "{}", reply.text());
            if reply.status == 200 {
                admitted.fetch_add(1, Ordering::SeqCst);
                let path = format!("/api/v1/holds/active_deals/ads/{id}");
                if ends {
                    connection.ask("DELETE", &path, &[], None).ok();
                }
            }
        }
    };
    thread::scope(|scope| {
        for turn in 0..connections {
            let connection = market.node(turn).connect();
            scope.spawn(move || work(connection));
        }
    });
    admitted.into_inner()
}

#[test]
fn two_hundred_takes_side_by_side_never_hold_more_than_ten() {
    both(Time::Real, |market| {
        assert_eq!(rush(market, 8, 25, false), 10);
        assert_eq!(market.deals_of(0, "ads").len(), 10);
        let eight: Vec<String> = (0..8).map(|number| format!("live-{number}")).collect();
        let path = "/api/v1/holds/active_deals/ads";
        market.node(0).ask("PUT", path, Some(&json!({ "ids": eight }))).ok();
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let watching = scope.spawn(|| {
                let mut most = 0;
                while !over.load(Ordering::SeqCst) {
                    most = most.max(market.deals_of(1, "ads").len());
                    pause(Duration::from_millis(2));
                }
                most
            });
            let admitted = rush(market, 8, 25, true);
            over.store(true, Ordering::SeqCst);
            let most = watching.join().unwrap();
            assert!(admitted >= 2 && most <= 10, "{admitted} were let in, {most} at once");
        });
        assert_eq!(market.deals_of(0, "ads").len(), 8, "all that began have ended");
    });
}
