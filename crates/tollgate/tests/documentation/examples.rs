//! Every example configuration, served by the real program under the traffic that it is for.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use crate::server::{Server, root};
use serde_json::{Value, json};

/// The examples. Each has a test below.
const EXAMPLES: [&str; 21] = [
    "api-gateway.toml",
    "blocklist.yaml",
    "cluster-mail.toml",
    "denials.yaml",
    "development.yaml",
    "gateway-marketplace.yaml",
    "gateway-routes.yaml",
    "logins.yaml",
    "mail-accounts.yaml",
    "mail-levels.yaml",
    "mail-marketing.yaml",
    "mail-recipient-domains.yaml",
    "mail-shared-hosting.yaml",
    "mail-transactional.yaml",
    "marketplace.yaml",
    "outbound-api.yaml",
    "outbound-telegram.yaml",
    "postfix.yaml",
    "relay-and-sink.yaml",
    "relay-provider.yaml",
    "relay-small-host.yaml",
];

fn serve(example: &str) -> Server {
    assert!(EXAMPLES.contains(&example));
    Server::start(Some(&root().join("examples").join(example)), &[])
}

/// The result of one attempt: `allow`, or the verdict and the rule that denied.
fn ask(server: &Server, policy: &str, fields: Value, cost: u64) -> String {
    verdict(&server.post("/api/v1/check", &json!({ "policy": policy, "fields": fields, "cost": cost })).1)
}

fn verdict(answer: &Value) -> String {
    let verdict = answer["verdict"].as_str().unwrap_or_else(|| panic!("no verdict in {answer}"));
    match answer["denied_by"].as_str() {
        Some(rule) => format!("{verdict} by {rule}"),
        None => verdict.to_owned(),
    }
}

/// How many of these attempts, one after the other, are allowed.
fn admitted(server: &Server, attempts: &[Value]) -> usize {
    let mut admitted = 0;
    for some in attempts.chunks(100) {
        let (status, answer) = server.post("/api/v1/check", &json!({ "attempts": some }));
        assert_eq!(status, 200, "{answer}");
        let decisions = answer["decisions"].as_array().unwrap();
        assert_eq!(decisions.len(), some.len());
        assert!(decisions.iter().all(|one| one["verdict"].is_string()), "{answer}");
        admitted += decisions.iter().filter(|one| one["allowed"] == true).count();
    }
    admitted
}

fn times(count: usize, policy: &str, fields: &Value) -> Vec<Value> {
    (0..count).map(|_| json!({ "policy": policy, "fields": fields })).collect()
}

#[test]
fn no_example_is_without_a_test() {
    let mut found: Vec<_> = std::fs::read_dir(root().join("examples"))
        .unwrap()
        .map(Result::unwrap)
        // Directories are for other programs.
        .filter(|entry| entry.path().is_file())
        .map(|entry| entry.file_name().into_string().unwrap())
        // Files of other programs have tests of their own.
        .filter(|name| !name.ends_with(".md") && name != "forward-auth")
        .collect();
    found.sort();
    assert_eq!(found, EXAMPLES);
    let this = include_str!("examples.rs");
    let elsewhere = [
        include_str!("../program/gateway_marketplace.rs"),
        include_str!("../program/other_programs/gateway_routes.rs"),
        include_str!("../program/other_programs/outbound.rs"),
        include_str!("../program/other_programs/postfix.rs"),
        include_str!("../program/other_programs/relay.rs"),
    ]
    .concat();
    for example in EXAMPLES {
        let served = this.contains(&format!("serve(\"{example}\")"));
        assert!(served || elsewhere.contains(&format!("/examples/{example}")), "{example} is never served");
    }
}

#[test]
fn levels_are_charged_together_and_the_first_exceeded_is_named() {
    let server = serve("mail-levels.yaml");
    let message = |sender: &str, ip: &str| json!({ "domain": "example.org", "sender": sender, "ip": ip, "api_key": "key-abc123", "recipients": 3 });
    assert_eq!(ask(&server, "mail.accept", message("a@example.org", "192.0.2.1"), 100), "allow");
    // The sender's hour is used up, and case does not matter.
    assert_eq!(ask(&server, "mail.accept", message("A@Example.org", "192.0.2.2"), 1), "deny by sender");
    assert_eq!(ask(&server, "mail.accept", message("b@example.org", "192.0.2.1"), 100), "allow");
    // A denied attempt was charged nowhere.
    let (_, domain) = server.ask("GET", "/api/v1/counters/domain/example.org");
    assert_eq!((&domain["hourly_count"], &domain["hourly_limit"]), (&json!(200), &json!(1000)));
    let (_, ip) = server.ask("GET", "/api/v1/counters/ip/192.0.2.2");
    assert_eq!(ip["hourly_count"], 0);
    // A new address for every hundred, until the domain's thousand are used up.
    for number in 3..11 {
        let (sender, ip) = (format!("u{number}@example.org"), format!("192.0.2.{number}"));
        assert_eq!(ask(&server, "mail.accept", message(&sender, &ip), 100), "allow");
    }
    let (status, denied) = server.post(
        "/api/v1/check",
        &json!({ "policy": "mail.accept", "fields": message("late@example.org", "192.0.2.99") }),
    );
    assert_eq!((status, verdict(&denied).as_str()), (429, "deny by domain"));
    assert_eq!(denied["denied_key"], "example.org");
    assert!((3590..=3600).contains(&denied["retry_after"].as_u64().unwrap()), "{denied}");
}

#[test]
fn the_levels_of_domains_hold_for_messages_that_bring_addresses_alone() {
    let server = serve("mail-levels.yaml");
    assert_eq!(ask(&server, "mail.accept", json!({ "sender": "a@example.org" }), 100), "allow");
    let (_, domain) = server.ask("GET", "/api/v1/counters/domain/example.org");
    assert_eq!(domain["hourly_count"], 100);
    let many = json!({ "sender": "b@example.com", "recipients": 101 });
    assert_eq!(ask(&server, "mail.accept", many, 1), "deny by domain");
    assert_eq!(ask(&server, "mail.deliver", json!({ "recipient": "A@Gmail.com" }), 1_000), "allow");
    let more = json!({ "recipient_domain": "gmail.com" });
    assert_eq!(ask(&server, "mail.deliver", more, 1), "defer by recipient_domain");
}

#[test]
fn levels_hide_api_keys_and_bound_recipients() {
    let server = serve("mail-levels.yaml");
    let fields = json!({ "domain": "other.example", "api_key": "key-abc123" });
    let (_, allowed) = server.post("/api/v1/check", &json!({ "policy": "mail.accept", "fields": fields }));
    assert!(!allowed["rules"].to_string().contains("key-abc123"), "{allowed}");
    let many = json!({ "domain": "example.com", "recipients": 101 });
    assert_eq!(ask(&server, "mail.accept", many, 1), "deny by domain");
    assert_eq!(
        ask(&server, "mail.accept", json!({ "domain": "example.com", "recipients": 100 }), 1),
        "allow"
    );
    // The override is larger than the rule's limit, and the rule for an API key binds first.
    assert_eq!(ask(&server, "mail.accept", json!({ "domain": "example.com" }), 4_999), "allow");
    assert_eq!(ask(&server, "mail.accept", json!({ "domain": "example.com" }), 1), "deny by domain");
}

#[test]
fn levels_defer_what_is_sent_on_and_spread_it() {
    let server = serve("mail-levels.yaml");
    let to = |domain: &str| json!({ "recipient_domain": domain });
    assert_eq!(ask(&server, "mail.deliver", to("Gmail.com."), 1_000), "allow");
    let (_, deferred) =
        server.post("/api/v1/check", &json!({ "policy": "mail.deliver", "fields": to("gmail.com") }));
    assert_eq!(verdict(&deferred), "defer by recipient_domain");
    assert!(deferred["defer_until"].is_string(), "{deferred}");
    assert_eq!(ask(&server, "mail.deliver", to("example.net"), 5_000), "allow");
}

#[test]
fn transactional_mail_is_bounded_by_sender_domain_and_server() {
    let server = serve("mail-transactional.yaml");
    let mail = |domain: &str, user: &str| json!({ "domain": domain, "sender": format!("{user}@{domain}") });
    assert_eq!(ask(&server, "mail.accept", mail("a.example", "u0"), 1_000), "allow");
    assert_eq!(ask(&server, "mail.accept", mail("a.example", "u0"), 1), "deny by sender");
    for user in 1..10 {
        assert_eq!(ask(&server, "mail.accept", mail("a.example", &format!("u{user}")), 1_000), "allow");
    }
    assert_eq!(ask(&server, "mail.accept", mail("a.example", "u10"), 1), "deny by domain");
    for domain in 0..90 {
        let name = format!("d{}.example", domain / 10);
        assert_eq!(ask(&server, "mail.accept", mail(&name, &format!("u{domain}")), 1_000), "allow");
    }
    assert_eq!(ask(&server, "mail.accept", mail("last.example", "u"), 1), "deny by global");
}

#[test]
fn a_newsletter_may_use_its_domains_whole_hour() {
    let server = serve("mail-marketing.yaml");
    let mail = |user: &str| json!({ "domain": "news.example", "sender": format!("{user}@news.example") });
    assert_eq!(ask(&server, "mail.accept", mail("a"), 5_000), "allow");
    assert_eq!(ask(&server, "mail.accept", mail("b"), 1), "deny by domain");
    let (_, global) = server.ask("GET", "/api/v1/counters/global/global");
    assert_eq!((&global["hourly_limit"], &global["daily_limit"]), (&json!(50_000), &json!(0)));
}

#[test]
fn one_customer_of_shared_hosting_is_stopped_early() {
    let server = serve("mail-shared-hosting.yaml");
    let mail = |user: usize| json!({ "domain": "shop.example", "sender": format!("u{user}@shop.example") });
    assert_eq!(admitted(&server, &times(21, "mail.accept", &mail(0))), 20);
    assert_eq!(ask(&server, "mail.accept", mail(0), 1), "deny by sender");
    for user in 1..5 {
        assert_eq!(admitted(&server, &times(20, "mail.accept", &mail(user))), 20);
    }
    assert_eq!(ask(&server, "mail.accept", mail(5), 1), "deny by domain");
    let other = json!({ "domain": "other.example", "sender": "a@other.example" });
    assert_eq!(ask(&server, "mail.accept", other, 1), "allow");
}

#[test]
fn mail_to_large_providers_is_deferred_and_never_denied() {
    let server = serve("mail-recipient-domains.yaml");
    for domain in ["gmail.com", "mail.ru", "yandex.ru", "yahoo.com", "outlook.com", "hotmail.com"] {
        let to = json!({ "recipient_domain": domain });
        assert_eq!(ask(&server, "mail.deliver", to.clone(), 1_000), "allow");
        assert_eq!(ask(&server, "mail.deliver", to, 1), "defer by recipient_domain");
    }
    let to = json!({ "recipient_domain": "example.net" });
    assert_eq!(ask(&server, "mail.deliver", to.clone(), 5_000), "allow");
    assert_eq!(ask(&server, "mail.deliver", to, 1), "defer by recipient_domain");
}

#[test]
fn a_denial_carries_the_token_of_its_decision() {
    let server = serve("denials.yaml");
    let attempt = json!({ "policy": "api", "fields": { "account": "ada", "ip": "192.0.2.1" }, "cost": 4 });
    let (status, denied) = server.post("/api/v1/check", &attempt);
    assert_eq!((status, verdict(&denied).as_str()), (429, "deny by account"));
    let token = denied["decision"].as_str().unwrap();
    let (_, decision) = server.ask("GET", &format!("/api/v1/decisions/{token}"));
    assert_eq!((&decision["rule"], decision["rules"].as_array().unwrap().len()), (&json!("account"), 3));
}

#[test]
fn development_limits_nothing() {
    let server = serve("development.yaml");
    let attempts = times(200, "mail.accept", &json!({ "sender": "a@example.com" }));
    assert_eq!(admitted(&server, &attempts), 200);
    let attempt = json!({ "policy": "mail.accept", "fields": { "sender": "a@example.com" } });
    let (_, answer) = server.post("/api/v1/check", &attempt);
    assert_eq!((&answer["origin"], &answer["rules"]), (&json!("fixed"), &json!([])));
}

#[test]
fn accounts_are_deferred_by_their_minute_and_tenants_do_not_share() {
    let server = serve("mail-accounts.yaml");
    let from = |tenant: &str, account: &str| json!({ "tenant": tenant, "account": account });
    assert_eq!(admitted(&server, &times(15, "mail.send", &from("acme", "main"))), 10);
    let attempt = json!({ "policy": "mail.send", "fields": from("acme", "main") });
    let (status, deferred) = server.post("/api/v1/check", &attempt);
    assert_eq!((status, verdict(&deferred).as_str()), (429, "defer by account"));
    assert!((1..=60).contains(&deferred["retry_after"].as_u64().unwrap()), "{deferred}");
    assert_eq!(admitted(&server, &times(15, "mail.send", &from("globex", "main"))), 10);
    assert_eq!(admitted(&server, &times(20, "mail.send", &from("acme", "ses"))), 14);
    assert_eq!(admitted(&server, &times(3, "mail.send", &from("acme", "ses-sandbox"))), 1);
    assert_eq!(admitted(&server, &times(300, "mail.send", &from("acme", "internal"))), 300);
}

#[test]
fn the_aligned_variant_of_accounts_defers_to_a_full_minute() {
    let text = std::fs::read_to_string(root().join("examples/mail-accounts.yaml")).unwrap();
    let (plain, aligned) = ("    on_exceed: defer\n", "    # on_exceed: { defer: { aligned: true } }\n");
    assert!(text.contains(plain) && text.contains(aligned), "the variants are not where they were");
    let text = text.replace(plain, "").replace(aligned, &aligned.replace("# ", ""));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("aligned.yaml");
    std::fs::write(&file, text).unwrap();
    let server = Server::start(Some(&file), &[]);
    let fields = json!({ "tenant": "acme", "account": "main" });
    admitted(&server, &times(10, "mail.send", &fields));
    let (_, deferred) = server.post("/api/v1/check", &json!({ "policy": "mail.send", "fields": fields }));
    let until = deferred["defer_until"].as_str().unwrap();
    assert!(until.ends_with(":00Z"), "{until} is no full minute");
}

#[test]
fn the_tiers_of_the_marketplace_admit_their_burst() {
    let server = serve("marketplace.yaml");
    let user = |name: &str| json!({ "user": name });
    let tiers = [
        ("auth", json!({ "ip": "192.0.2.7" }), 3, "deny by auth"),
        ("deals.read", user("reader"), 20, "deny by deals_read"),
        ("channels.search", user("searcher"), 10, "deny by channels_search"),
        ("creatives.upload", user("uploader"), 3, "deny by creative_upload"),
        ("admin", user("root"), 30, "deny by admin"),
    ];
    for (policy, fields, burst, then) in tiers {
        assert_eq!(ask(&server, policy, fields.clone(), burst), "allow", "{policy}");
        assert_eq!(ask(&server, policy, fields, burst), then, "{policy}");
    }
    // A user's requests count together, whichever tier they use.
    let busy = |policy: &str, cost: u64| json!({ "policy": policy, "fields": user("busy"), "cost": cost });
    let attempts = [busy("deals.read", 20), busy("channels.search", 10), busy("creatives.upload", 3)];
    let (_, answer) = server.post("/api/v1/check", &json!({ "attempts": attempts }));
    let verdicts: Vec<String> = answer["decisions"].as_array().unwrap().iter().map(verdict).collect();
    assert_eq!(verdicts, ["allow", "allow", "deny by user"]);
}

#[test]
fn the_business_limits_of_the_marketplace_hold() {
    let server = serve("marketplace.yaml");
    let deal = |number: usize, channel: usize| {
        let fields = json!({
            "user": format!("u{number}"), "advertiser": "ads", "channel": format!("c{channel}")
        });
        let body = json!({ "policy": "deals.create", "fields": fields, "id": format!("deal-{number}") });
        verdict(&server.post("/api/v1/holds", &body).1)
    };
    for number in 0..10 {
        assert_eq!(deal(number, number / 5), "allow");
    }
    assert_eq!(deal(10, 7), "deny by active_deals");
    let (_, released) = server.ask("DELETE", "/api/v1/holds/active_deals/ads/deal-3");
    assert_eq!(released["released"], true);
    assert_eq!(deal(11, 7), "allow");
    let once = |policy: &str, fields: Value| ask(&server, policy, fields, 1);
    for number in 0..2 {
        assert_eq!(once("disputes.create", json!({ "user": "angry" })), "allow", "{number}");
    }
    assert_eq!(once("disputes.create", json!({ "user": "angry" })), "deny by dispute_submit");
    let (_, week) = server.ask("GET", "/api/v1/counters/disputes/angry");
    assert_eq!((&week["limits"][0]["used"], &week["limits"][0]["capacity"]), (&json!(2), &json!(3)));
    for number in 0..10 {
        let fields = json!({ "user": format!("v{number}"), "negotiation": "n1" });
        assert_eq!(once("offers.counter", fields), "allow", "{number}");
    }
    let last = json!({ "user": "w", "negotiation": "n1" });
    let (_, denied) = server.post("/api/v1/check", &json!({ "policy": "offers.counter", "fields": last }));
    assert_eq!(verdict(&denied), "deny by counter_offers");
    assert_eq!((&denied["code"], &denied["limit"]), (&json!("MAX_COUNTER_OFFERS"), &json!(10)));
    assert!(denied.get("retry_after").is_none(), "a total never passes by waiting: {denied}");
}

#[test]
fn a_channel_of_the_marketplace_has_five_deals_a_day() {
    let server = serve("marketplace.yaml");
    let last = |channel: &str| {
        let deal = |number: usize| {
            let user = format!("{channel}-u{number}");
            let fields = json!({ "user": user, "advertiser": user, "channel": channel });
            let body = json!({ "policy": "deals.create", "fields": fields, "id": "deal" });
            verdict(&server.post("/api/v1/holds", &body).1)
        };
        assert!((0..5).all(|number| deal(number) == "allow"));
        deal(5)
    };
    // Midnight may come between two of them, but not again in the next channel.
    assert!(["c1", "c2"].iter().any(|channel| last(channel) == "deny by channel_deals"));
}

#[test]
fn the_gateway_limits_routes_and_consumers_and_charges_both_or_none() {
    let server = serve("api-gateway.toml");
    let request =
        |route: &str, ip: &str, consumer: &str| json!({ "route": route, "ip": ip, "consumer": consumer });
    assert_eq!(ask(&server, "gateway", request("orders", "192.0.2.7", "acme"), 50), "allow");
    assert_eq!(ask(&server, "gateway", request("orders", "192.0.2.7", "acme"), 50), "deny by route");
    assert_eq!(ask(&server, "gateway", request("items", "192.0.2.7", "acme"), 50), "deny by consumer");
    // The denied requests took nothing from the route, which had room.
    assert_eq!(ask(&server, "gateway", request("items", "192.0.2.7", "other"), 50), "allow");
    let fields = json!({ "route": "orders", "ip": "198.51.100.9" });
    assert_eq!(ask(&server, "gateway", fields, 200), "allow");
    assert_eq!(ask(&server, "gateway", json!({}), 1), "allow");
}

#[test]
fn lists_block_the_clients_they_name_and_rules_ban_clients_denied_repeatedly() {
    let server = serve("blocklist.yaml");
    let status = |policy: &str, fields: Value| {
        server.post("/api/v1/check", &json!({ "policy": policy, "fields": fields })).0
    };
    let login = |user: &str, ip: &str| status("login", json!({ "user": user, "ip": ip }));
    assert_eq!(login("ann", "192.0.2.9"), 403);
    assert_eq!(login("ann", "192.0.2.77"), 200);
    assert_eq!(login("mallory", "203.0.113.7"), 403);
    assert_eq!(status("api", json!({ "ip": "203.0.113.7", "device": "d-1" })), 200);
    assert_eq!(status("api", json!({ "ip": "198.51.100.23" })), 403);
    let mut last = 0;
    for _ in 0..50_000 {
        last = login("eve", "203.0.113.8");
        if last == 403 {
            break;
        }
    }
    assert_eq!(last, 403, "denied until it is banned");
    assert_eq!(login("eve", "203.0.113.9"), 200, "only the pair is banned");
}

#[test]
fn connections_are_bounded_by_rate_by_client_and_overall() {
    let server = serve("cluster-mail.toml");
    let connect = |ip: &str, id: usize| {
        let body = json!({ "policy": "smtp.connect", "fields": { "ip": ip }, "id": format!("conn-{id}") });
        verdict(&server.post("/api/v1/holds", &body).1)
    };
    for id in 0..50 {
        assert_eq!(connect("192.0.2.7", id), "allow");
    }
    assert_eq!(connect("192.0.2.7", 50), "deny by per_ip");
    let (_, released) = server.ask("DELETE", "/api/v1/holds/per_ip/192.0.2.7/conn-0");
    assert_eq!(released["released"], true);
    assert_eq!(connect("192.0.2.7", 50), "allow");
    // Clients that come and go are limited by their rate.
    for id in 0..100 {
        assert_eq!(connect("192.0.2.8", 1_000 + id), "allow");
        server.ask("DELETE", &format!("/api/v1/holds/per_ip/192.0.2.8/conn-{}", 1_000 + id));
        server.ask("DELETE", &format!("/api/v1/holds/overall/overall/conn-{}", 1_000 + id));
    }
    assert_eq!(connect("192.0.2.8", 2_000), "deny by rate");
    // A front end sets its ids, which fill the limit up to the last slot.
    let ids: Vec<String> = (0..1_000).map(|id| format!("other-{id}")).collect();
    let url = format!("http://{}/api/v1/holds/overall/overall", server.address);
    ureq::put(&url).send(json!({ "ids": ids }).to_string()).unwrap();
    assert_eq!(connect("192.0.2.9", 3_000), "deny by overall");
}

/// Fails to log in. Returns whether the attempt was allowed.
fn fails_to_log_in(server: &Server, user: &str, ip: &str) -> bool {
    let fields = json!({ "user": user, "ip": ip });
    let (status, begun) = server.post("/api/v1/guards/login/begin", &json!({ "fields": fields }));
    if status != 200 {
        assert_eq!(status, 429, "{begun}");
        return false;
    }
    let finish = json!({ "ticket": begun["ticket"], "outcome": "failure" });
    assert_eq!(server.post("/api/v1/guards/finish", &finish).1["finished"], "now");
    true
}

#[test]
fn logins_lock_an_account_where_it_is_attacked_from_and_not_where_its_owner_is() {
    let server = serve("logins.yaml");
    // Three failures are free at each address, whatever fails elsewhere.
    for address in 1..=8 {
        for _ in 0..3 {
            assert!(fails_to_log_in(&server, "ada", &format!("198.51.100.{address}")));
        }
    }
    let owner = json!({ "fields": { "user": "ada", "ip": "192.0.2.1" } });
    let (status, begun) = server.post("/api/v1/guards/login/begin", &owner);
    assert_eq!((status, &begun["captcha"]), (200, &json!(true)), "the account is attacked: {begun}");
    let finish = json!({ "ticket": begun["ticket"], "outcome": "success" });
    assert_eq!(server.post("/api/v1/guards/finish", &finish).1["finished"], "now");
    let (_, shown) = server.post("/api/v1/guards/login/inspect", &owner);
    let failures = |ladder: usize| shown["ladders"][ladder]["failures"].clone();
    assert_eq!((failures(0), failures(1), failures(2)), (json!(0), json!(24), json!(0)));
}
