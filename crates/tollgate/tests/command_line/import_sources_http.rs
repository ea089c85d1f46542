//! The limiter configurations of the ad marketplace and of the API gateway, imported and proved by their decisions.
//! `import_sources.rs` has those of the mail systems, and the list of all.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use crate::imported::{Stand, sample};
use tollgate_core::OnOutage;
use tollgate_import::Answers;

#[test]
fn marketplace_nginx_admits_its_burst_and_one_more() {
    let stand = Stand::of("nginx.conf", &sample("nginx.conf"));
    let client = [("ip", "192.0.2.7")];
    assert_eq!(stand.admits(10, "api.v1.auth", &client), 4, "rate=5r/m burst=3 nodelay");
    assert_eq!(stand.ask("api.v1.auth", &client, 1), "deny by auth for 12s");
    assert_eq!(stand.admits(100, "api.v1", &client), 51, "rate=30r/s burst=50 nodelay");
    stand.after("1s");
    assert_eq!(stand.admits(100, "api.v1", &client), 30);
    assert_eq!(stand.admits(100, "api.v1", &[("ip", "192.0.2.8")]), 51, "another client");
}

#[test]
fn marketplace_tiers_are_token_buckets_keyed_as_answered() {
    let answers =
        Answers::default().by("auth=ip").unwrap().by("api-write=user").unwrap().by("api-read=user").unwrap();
    let answers = answers.store("redis://localhost:6379");
    let stand = Stand::answered(&[("application.yml", &sample("marketplace.yml"))], &answers);
    assert_eq!(stand.found("answer"), [""; 0], "everything is answered");
    let tiers = [
        ("auth", "ip", "192.0.2.7", 3, "12s"),
        ("api-write", "user", "ada", 5, "3s"),
        ("api-read", "user", "ada", 20, "1s"),
    ];
    for (tier, field, value, burst, refill) in tiers {
        assert_eq!(stand.admits(50, tier, &[(field, value)]), burst, "{tier}");
        assert_eq!(stand.ask(tier, &[(field, value)], 1), format!("deny by {tier} for {refill}"));
        stand.after(refill);
        assert_eq!(stand.admits(50, tier, &[(field, value)]), 1, "{tier}");
    }
    stand.after("60s");
    assert_eq!(
        stand.ask("api-read", &[("user", "ada")], 20),
        "allow",
        "a cost above one, as the script takes"
    );
}

#[test]
fn marketplace_tiers_come_with_business_limits_and_calls_that_wait() {
    let stand = Stand::of("application.yml", &sample("marketplace.yml"));
    for deal in 0..10 {
        let id = format!("deal-{deal}");
        assert_eq!(stand.ask_as("active-deals", &[("advertiser", "ads")], 1, Some(&id)), "allow");
    }
    assert_eq!(
        stand.ask_as("active-deals", &[("advertiser", "ads")], 1, Some("deal-10")),
        "deny by active-deals"
    );
    assert_eq!(stand.admits(9, "deals", &[("channel", "c")]), 5);
    assert_eq!(stand.ask("deals", &[("channel", "c")], 1), "deny by deals for 12h", "until midnight");
    assert_eq!(stand.admits(9, "disputes", &[("user", "ada")]), 3);
    assert_eq!(stand.ask("disputes", &[("user", "ada")], 1), "deny by disputes for 1w");
    assert_eq!(stand.ask("ton-api", &[], 1), "allow");
    assert_eq!(stand.ask("ton-api", &[], 1), "wait by ton-api for 100ms", "10.0 in a second");
    assert!(stand.imported.config.contains("code: MAX_ACTIVE_DEALS"));
}

#[test]
fn marketplace_tiers_with_decimals_keep_their_rate() {
    let text = "rate-limit:\n  outbound:\n    slow-rate: 0.5\n    odd-rate: 2.5\n";
    let stand = Stand::of("application.yml", text);
    for (policy, wait) in [("slow", "2s"), ("odd", "400ms")] {
        assert_eq!(stand.ask(policy, &[], 1), "allow");
        assert_eq!(stand.ask(policy, &[], 1), format!("wait by {policy} for {wait}"));
    }
}

#[test]
fn api_gateway_fallback_halves_what_a_node_allows_without_redis() {
    let answers = Answers::default().limit("route=10/s burst 15").unwrap();
    let stand = Stand::answered(&[("application.yml", &sample("api-gateway.yml"))], &answers);
    let client = [("route", "orders"), ("ip", "192.168.1.100")];
    // The document's three tests of its script.
    assert_eq!(stand.ask("route", &client, 1), "allow");
    assert_eq!(stand.admits(20, "route", &client), 14, "the first request left 14");
    assert_eq!(stand.ask("route", &client, 1), "deny by route for 100ms");
    stand.after("550ms");
    assert_eq!(stand.admits(20, "route", &client), 5, "10/s gives five tokens back in 550 ms");
    assert_eq!(
        stand.ask("route", &[("route", "users"), ("ip", "192.168.1.100")], 15),
        "allow",
        "a bucket for each route"
    );
    assert_eq!(stand.config.policies.on_outage(), "local 50%".parse::<OnOutage>().unwrap());
    assert!(stand.imported.config.contains("key_prefix: ratelimit"));
}

#[test]
fn api_gateway_fallback_may_be_off_or_another_share() {
    let base = sample("api-gateway.yml");
    let table = [
        ("fallback-enabled: false", "allow"),
        ("fallback-enabled: true\n    fallback-reduction: 0.25", "local 25%"),
    ];
    for (settings, on_outage) in table {
        let text =
            base.replace("    fallback-reduction: 0.5\n", "").replace("fallback-enabled: true", settings);
        let stand = Stand::of("application.yml", &text);
        assert_eq!(stand.config.policies.on_outage(), on_outage.parse::<OnOutage>().unwrap());
    }
    let policies = r#"[{"name": "Slow", "requestsPerSecond": 5, "burstSize": 3}, {"name": "fast", "requestsPerSecond": 100, "burstSize": 200}]"#;
    let stand =
        Stand::answered(&[("application.yml", &base), ("policies.json", policies)], &Answers::default());
    let client = [("route", "orders"), ("ip", "192.0.2.1")];
    assert_eq!((stand.admits(300, "slow", &client), stand.admits(300, "fast", &client)), (3, 200));
}
