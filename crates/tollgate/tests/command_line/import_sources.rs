//! Every limiter configuration of the five systems that tollgate grew from, imported and proved by its decisions: what
//! their documentation says happens.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use crate::imported::{Stand, sample};
use tollgate_core::OnOutage;
use tollgate_import::Answers;

/// Every block of configuration in the five documents, in their order, and the beginning of the tests that run each, here
/// and in `import_sources_http.rs`. Blocks that state the same account again, as a command, a call or an answer, are rows of
/// the pages below `docs/coming-from`.
const CONFIGURATIONS: [(&str, &str); 19] = [
    ("Sendry: six levels", "sendry_levels"),
    ("Sendry: limits of single domains", "sendry_domains"),
    ("Sendry: zero", "sendry_zero"),
    ("Sendry: flush interval", "sendry_flush_interval"),
    ("Sendry: transactional mail", "sendry_transactional"),
    ("Sendry: marketing", "sendry_marketing"),
    ("Sendry: shared hosting", "sendry_shared_hosting"),
    ("Sendry: recipient domains", "sendry_recipient_domains"),
    ("Sendry: development", "sendry_development"),
    ("genro-mail-proxy: an account", "mail_proxy_account"),
    ("genro-mail-proxy: an account without limits", "mail_proxy_unlimited"),
    ("genro-mail-proxy: three accounts", "mail_proxy_three_accounts"),
    ("the ad marketplace: nginx in front", "marketplace_nginx"),
    ("the ad marketplace: tiers, business limits, outbound", "marketplace_tiers"),
    ("the API gateway: fallback", "api_gateway_fallback"),
    ("Elemta: resources", "elemta_resources"),
    ("Elemta: environment", "elemta_environment"),
    ("Elemta: custom policies", "elemta_custom"),
    ("Elemta: environment with a password", "elemta_password"),
];

#[test]
fn every_configuration_has_its_test() {
    let tests = [include_str!("import_sources.rs"), include_str!("import_sources_http.rs")].concat();
    for (name, test) in CONFIGURATIONS {
        assert!(tests.contains(&format!("#[test]\nfn {test}")), "{name} has no test");
    }
}

/// What a message brings to `mail.accept`.
fn mail<'f>(sender: &'f str, ip: &'f str, api_key: &'f str) -> [(&'f str, &'f str); 3] {
    [("sender", sender), ("ip", ip), ("api_key", api_key)]
}

#[test]
fn sendry_levels_are_checked_in_order_and_counted_together() {
    let stand = Stand::of("sendry.yaml", &sample("sendry.yaml"));
    let accept =
        |sender: &str, ip: &str, key: &str, cost| stand.ask("mail.accept", &mail(sender, ip, key), cost);
    assert_eq!(accept("user@example.org", "192.0.2.1", "key-1", 100), "allow");
    assert_eq!(accept("user@example.org", "192.0.2.1", "key-1", 1), "deny by sender for 1h");
    // Half an hour later, the document's `retry_after` of 1800 seconds is left.
    stand.after("30m");
    assert_eq!(accept("user@example.org", "192.0.2.1", "key-1", 1), "deny by sender for 30m");
    // The denied messages count at no level: the address has 400 left, in steps of a hundred for each sender.
    for user in ["a", "b", "c", "d"] {
        assert_eq!(accept(&format!("{user}@example.org"), "192.0.2.1", "key-1", 100), "allow");
    }
    assert_eq!(accept("e@example.org", "192.0.2.1", "key-1", 1), "deny by ip for 30m");
    for user in ["f", "g", "h", "i", "j"] {
        assert_eq!(accept(&format!("{user}@other.example"), "192.0.2.2", "key-1", 100), "allow");
    }
    assert_eq!(accept("k@third.example", "192.0.2.3", "key-1", 1), "deny by api_key for 30m");
    for user in 0..5 {
        assert_eq!(accept(&format!("l{user}@example.org"), "192.0.2.4", "key-2", 100), "allow");
    }
    // Domain comes before sender, and sender before address.
    assert_eq!(accept("user@example.org", "192.0.2.1", "key-1", 1), "deny by domain for 30m");
    stand.after("30m");
    assert_eq!(
        accept("user@example.org", "192.0.2.1", "key-1", 1),
        "allow",
        "the hour began with its first message"
    );
}

#[test]
fn sendry_levels_defer_what_is_sent_until_the_window_ends() {
    let stand = Stand::of("sendry.yaml", &sample("sendry.yaml"));
    for domain in ["gmail.com", "mail.ru", "yandex.ru"] {
        let to = [("recipient_domain", domain)];
        assert_eq!(stand.ask("mail.deliver", &to, 1_000), "allow");
        assert_eq!(stand.ask("mail.deliver", &to, 1), "defer by recipient_domain for 1h");
    }
    let to = [("recipient", "someone@example.net")];
    assert_eq!(stand.ask("mail.deliver", &to, 5_000), "allow");
    assert_eq!(stand.ask("mail.deliver", &to, 1), "defer by recipient_domain for 1h");
    stand.after("1h");
    assert_eq!(stand.ask("mail.deliver", &to, 5_000), "allow");
    let differs = stand.found("differs");
    assert!(differs.len() == 2 && differs[0].contains("/64") && differs[1].contains("case"), "{differs:?}");
}

#[test]
fn sendry_levels_bound_the_server_by_hour_and_day() {
    let stand = Stand::of("sendry.yaml", &sample("sendry.yaml"));
    for hour in 0..10 {
        assert_eq!(stand.ask("mail.accept", &[], 50_000), "allow", "hour {hour}");
        assert_eq!(
            stand.ask("mail.accept", &[], 1),
            if hour < 9 { "deny by global for 1h" } else { "deny by global for 15h" }
        );
        stand.after("1h");
    }
    assert_eq!(
        stand.ask("mail.accept", &[], 1),
        "deny by global for 14h",
        "the day began with its first message"
    );
}

#[test]
fn sendry_domains_override_the_default() {
    let stand = Stand::of("sendry.yaml", &sample("sendry.yaml"));
    let from = |domain: &str, cost| stand.ask("mail.accept", &[("domain", domain)], cost);
    for (domain, hourly) in
        [("example.com", 5_000), ("newsletter.example.com", 10_000), ("example.org", 1_000)]
    {
        assert_eq!(from(domain, hourly), "allow");
        assert_eq!(from(domain, 1), "deny by domain for 1h");
    }
    stand.after("1h");
    let recipients =
        |count: &str| stand.ask("mail.accept", &[("domain", "example.com"), ("recipients", count)], 1);
    assert_eq!((recipients("100").as_str(), recipients("101").as_str()), ("allow", "deny by domain"));
}

#[test]
fn sendry_domains_alone_leave_all_other_domains_unlimited() {
    let text = "domains:\n  example.com:\n    rate_limit:\n      messages_per_hour: 5\n  plain.example:\n    dkim: true\n";
    let stand = Stand::of("domains.yaml", text);
    assert_eq!(stand.ask("mail.accept", &[("domain", "example.com")], 6), "deny by domain");
    assert_eq!(stand.ask("mail.accept", &[("domain", "other.example")], 1_000_000), "allow");
    assert_eq!(stand.found("left_out").len(), 1, "dkim");
}

#[test]
fn sendry_zero_is_no_limit_for_its_window() {
    let text = "rate_limit:\n  global:\n    messages_per_hour: 0\n    messages_per_day: 100000\n";
    let stand = Stand::of("zero.yaml", text);
    assert_eq!(stand.ask("mail.accept", &[], 100_000), "allow");
    assert_eq!(stand.ask("mail.accept", &[], 1), "deny by global for 1d");
}

#[test]
fn sendry_flush_interval_is_that_of_the_store() {
    let stand = Stand::of("flush.yaml", "rate_limit:\n  flush_interval: 3s\n");
    assert!(stand.imported.config.contains("store: { file: ./tollgate.redb, flush_interval: 3s }"));
    let stand = Stand::of("default.yaml", "rate_limit:\n  enabled: true\n");
    assert!(stand.imported.config.contains("flush_interval: 10s"), "the document's default");
}

#[test]
fn sendry_transactional_mail_is_bounded_at_three_levels() {
    let text = "rate_limit:\n  enabled: true\n  global:\n    messages_per_hour: 100000\n    messages_per_day: 1000000\n  default_domain:\n    messages_per_hour: 10000\n    messages_per_day: 100000\n  default_sender:\n    messages_per_hour: 1000\n    messages_per_day: 10000\n";
    let stand = Stand::of("transactional.yaml", text);
    let from = |sender: &str| stand.ask("mail.accept", &[("sender", sender)], 1_000);
    for domain in 0..10 {
        for user in 0..10 {
            assert_eq!(from(&format!("u{user}@d{domain}.example")), "allow");
        }
        let refused = from(&format!("late@d{domain}.example"));
        assert_eq!(refused, if domain < 9 { "deny by domain for 1h" } else { "deny by global for 1h" });
    }
    stand.after("1h");
    assert_eq!(from("u0@d0.example"), "allow");
    assert_eq!(from("u0@d0.example"), "deny by sender for 1h");
}

#[test]
fn sendry_marketing_lets_one_sender_use_its_domains_hour() {
    let text = "rate_limit:\n  enabled: true\n  global:\n    messages_per_hour: 50000\n  default_domain:\n    messages_per_hour: 5000\n  default_sender:\n    messages_per_hour: 5000\n    messages_per_day: 50000\n";
    let stand = Stand::of("marketing.yaml", text);
    let news = [("sender", "news@shop.example")];
    for hour in 0..10 {
        assert_eq!(stand.ask("mail.accept", &news, 5_000), "allow", "hour {hour}");
        assert_eq!(stand.ask("mail.accept", &[("sender", "other@shop.example")], 1), "deny by domain for 1h");
        stand.after("1h");
    }
    assert_eq!(stand.ask("mail.accept", &news, 1), "deny by sender for 14h", "50000 in its day");
}

#[test]
fn sendry_shared_hosting_is_strict_by_domain_and_stricter_by_sender() {
    let text = "rate_limit:\n  enabled: true\n  global:\n    messages_per_hour: 10000\n  default_domain:\n    messages_per_hour: 100\n    messages_per_day: 500\n  default_sender:\n    messages_per_hour: 20\n    messages_per_day: 100\n";
    let stand = Stand::of("shared.yaml", text);
    for user in 0..5 {
        let sender = format!("u{user}@shop.example");
        assert_eq!(stand.admits(21, "mail.accept", &[("sender", &sender)]), 20);
    }
    assert_eq!(stand.ask("mail.accept", &[("sender", "u5@shop.example")], 1), "deny by domain for 1h");
    assert_eq!(stand.admits(30, "mail.accept", &[("sender", "u@other.example")]), 20);
}

#[test]
fn sendry_recipient_domains_are_deferred_and_never_denied() {
    let large = ["gmail.com", "mail.ru", "yandex.ru", "yahoo.com", "outlook.com", "hotmail.com"];
    let limits = "{ messages_per_hour: 1000, messages_per_day: 10000 }";
    let mut text = "rate_limit:\n  enabled: true\n  default_recipient_domain: { messages_per_hour: 5000, messages_per_day: 50000 }\n  recipient_domains:\n".to_owned();
    large.iter().for_each(|domain| text.push_str(&format!("    {domain}: {limits}\n")));
    let stand = Stand::of("recipients.yaml", &text);
    for domain in large {
        assert_eq!(stand.ask("mail.deliver", &[("recipient_domain", domain)], 1_000), "allow");
        assert_eq!(
            stand.ask("mail.deliver", &[("recipient_domain", domain)], 1),
            "defer by recipient_domain for 1h"
        );
    }
    assert_eq!(stand.ask("mail.deliver", &[("recipient_domain", "example.net")], 5_000), "allow");
}

#[test]
fn sendry_development_limits_nothing() {
    let stand = Stand::of("development.yaml", "rate_limit:\n  enabled: false\n");
    assert!(!stand.config.policies.enabled);
    let off = sample("sendry.yaml").replace("enabled: true", "enabled: false");
    let stand = Stand::of("sendry.yaml", &off);
    assert_eq!(stand.admits(300, "mail.accept", &[("sender", "a@example.org")]), 300);
}

#[test]
fn mail_proxy_account_is_deferred_by_minute_hour_and_day() {
    let stand = Stand::of("account.json", &sample("genro-mail-proxy.json"));
    let primary = [("tenant", "acme"), ("account", "primary-smtp")];
    let mut sent = 0;
    for minute in 0..10 {
        assert_eq!(stand.admits(15, "mail.send", &primary), 10, "minute {minute}");
        sent += 10;
        if minute < 9 {
            assert_eq!(stand.ask("mail.send", &primary, 1), "defer by account for 1m");
        }
        stand.after("1m");
    }
    // The hour's hundred are sent: the first ten of them are an hour old in 50 minutes.
    assert_eq!(stand.ask("mail.send", &primary, 1), "defer by account for 50m");
    stand.after("50m");
    while sent < 1_000 {
        assert_eq!(stand.ask("mail.send", &primary, 10), "allow", "after {sent}");
        sent += 10;
        stand.after(if sent % 100 == 0 { "51m" } else { "1m" });
    }
    assert!(
        stand.ask("mail.send", &primary, 1).starts_with("defer by account for 14h"),
        "the day's thousand are sent"
    );
    let other = [("tenant", "globex"), ("account", "primary-smtp")];
    assert_eq!(stand.ask("mail.send", &other, 50), "allow", "another tenant's account has its own budget");
}

#[test]
fn mail_proxy_account_becomes_one_of_the_relay_without_its_password() {
    let stand = Stand::of("account.json", &sample("genro-mail-proxy.json"));
    let config = &stand.imported.config;
    let account = "acme/primary-smtp: { host: smtp.example.com, port: 587, tls: starttls, user: sender@example.com, password_env: PRIMARY_SMTP_PASSWORD, limits: [10/min sliding, 100/hour sliding, 1000/day sliding] }";
    assert!(config.contains(account), "{config}");
    let everything = format!("{config}{:?}", stand.imported.findings);
    assert!(
        !everything.contains("\"secret\"") && !everything.contains(": secret"),
        "the password is nowhere"
    );
    assert_eq!(stand.imported.variables, ["PRIMARY_SMTP_PASSWORD", "TOLLGATE_RELAY_SECRET"]);
    assert!(stand.config.relay.is_some());
    let most = 1 << 30;
    assert!(stand.config.memory_need().bytes <= most, "the counters fit into a small machine");
}

#[test]
fn mail_proxy_account_has_a_variable_of_its_own_for_its_password() {
    let account = |tenant: &str, id: &str| {
        format!(
            r#"{{"id": "{id}", "tenant_id": "{tenant}", "host": "a.example", "user": "u", "password": "p"}}"#
        )
    };
    let named =
        [("t", "a-b"), ("t", "a_b"), ("t", "a.b"), ("other", "a-b")].map(|(tenant, id)| account(tenant, id));
    let stand = Stand::of("accounts.json", &format!("[{}]", named.join(",\n")));
    assert_eq!(
        stand.imported.variables,
        ["A_B_PASSWORD", "T_A_B_PASSWORD", "T_A_B_PASSWORD_2", "OTHER_A_B_PASSWORD", "TOLLGATE_RELAY_SECRET"]
    );
}

#[test]
fn mail_proxy_unlimited_account_is_never_deferred() {
    let text = r#"{ "id": "unlimited-smtp", "tenant_id": "acme", "host": "smtp.example.com", "port": 587 }"#;
    let nulls = text.replace(" }", r#", "limit_per_minute": 0, "limit_per_hour": null }"#);
    for text in [text, &nulls] {
        let stand = Stand::of("account.json", text);
        let fields = [("tenant", "acme"), ("account", "unlimited-smtp")];
        assert_eq!(stand.admits(2_000, "mail.send", &fields), 2_000);
    }
}

#[test]
fn mail_proxy_account_is_exact_only_where_it_decides_the_same() {
    let text = r#"[
{ "id": "own", "limit_per_hour": 5, "limit_behavior": "reject" },
{ "id": "relayed", "host": "smtp.example.com", "port": 465, "limit_behavior": "reject" },
{ "id": "patient", "limit_per_hour": 5, "limit_behavior": "defer" },
{ "id": "odd", "limit_per_hour": 5, "limit_behavior": "drop" },
{ "id": "large", "limit_per_day": 200000 }
]"#;
    let stand = Stand::of("accounts.json", text);
    let says = |verdict: &str, line: u32, words: &str| {
        let start = format!("accounts.json:{line}:");
        stand.found(verdict).iter().any(|found| found.starts_with(&start) && found.contains(words))
    };
    assert!(says("differs", 2, "`limit_behavior: reject` defers here") && !says("exact", 2, "reject"));
    let fields = [("tenant", "default"), ("account", "own")];
    assert_eq!(stand.admits(5, "mail.send", &fields), 5);
    assert!(stand.ask("mail.send", &fields, 1).starts_with("defer by account"), "as the report says");
    assert!(says("exact", 3, "`on_limit: reject`") && stand.imported.config.contains("on_limit: reject"));
    assert!(says("exact", 4, "mail over the limit waits"));
    assert!(says("answer", 5, "not `drop`; assumed `defer`"), "{:?}", stand.found("answer"));
    assert!(
        says("differs", 6, "`limit_per_day` is `200000/day sliding by 5m`"),
        "{:?}",
        stand.found("differs")
    );
    assert!(!says("exact", 6, ""), "{:?}", stand.found("exact"));
}

#[test]
fn mail_proxy_three_accounts_have_independent_limits() {
    let account = |id: &str| format!(r#"{{"id": "{id}", "limit_per_minute": 10, "limit_per_hour": 500}}"#);
    let text = format!("[\n\t{},\n\t{},\n\t{}\n]\n", account("smtp-1"), account("smtp-2"), account("smtp-3"));
    let stand = Stand::of("accounts.json", &text);
    let mut in_a_minute = 0;
    for id in ["smtp-1", "smtp-2", "smtp-3"] {
        in_a_minute += stand.admits(20, "mail.send", &[("tenant", "default"), ("account", id)]);
    }
    assert_eq!(in_a_minute, 30, "30 a minute over all accounts");
    let mut in_an_hour = in_a_minute;
    for _ in 1..60 {
        stand.after("1m");
        for id in ["smtp-1", "smtp-2", "smtp-3"] {
            in_an_hour += stand.admits(11, "mail.send", &[("tenant", "default"), ("account", id)]);
        }
    }
    assert_eq!(in_an_hour, 1_500, "1500 an hour over all accounts");
}

/// Connections, each with an id of its own.
fn connect(stand: &Stand, ip: &str, ids: std::ops::Range<usize>) -> usize {
    let ask =
        |id: &usize| stand.ask_as("smtp.connect", &[("ip", ip)], 1, Some(&format!("{ip}-{id}"))) == "allow";
    ids.filter(ask).count()
}

#[test]
fn elemta_resources_bound_connections_and_their_rate() {
    let stand = Stand::of("elemta.toml", &sample("elemta.toml"));
    assert_eq!(connect(&stand, "172.20.0.1", 0..60), 50, "50 at once from one address");
    for network in 0..30 {
        connect(&stand, &format!("172.21.{network}.1"), 0..50);
    }
    assert_eq!(
        stand.ask_as("smtp.connect", &[("ip", "172.22.0.1")], 1, Some("x")),
        "deny by overall for 1m",
        "1000 in all"
    );
    assert!(
        stand
            .imported
            .config
            .contains(r#"store: { redis: "valkey://elemta-valkey:6379", key_prefix: "elemta:ratelimit" }"#)
    );
    assert_eq!(stand.config.policies.on_outage(), "local 100%".parse::<OnOutage>().unwrap());
}

#[test]
fn elemta_resources_count_a_hundred_connections_in_any_minute() {
    let stand = Stand::of("elemta.toml", "[resources]\nmax_connections_per_ip = 0\nmax_connections = 0\n");
    assert_eq!(connect(&stand, "172.20.0.1", 0..60), 60);
    stand.after("30s");
    assert_eq!(connect(&stand, "172.20.0.1", 60..160), 40, "100 in 60 seconds");
    stand.after("30s");
    assert_eq!(connect(&stand, "172.20.0.1", 160..260), 60, "those of the first moment have left the window");
}

#[test]
fn elemta_resources_may_set_the_rate_and_its_window() {
    let none = "[resources]\nmax_connections_per_ip = 0\nmax_connections = 0\n";
    let text = format!("{none}rate_limit_window = 30\nmax_requests_per_window = 20\n");
    let stand = Stand::of("elemta.toml", &text);
    assert_eq!(connect(&stand, "172.20.0.1", 0..60), 20);
    stand.after("30s");
    assert_eq!(connect(&stand, "172.20.0.1", 60..120), 20, "20 in 30 seconds");
    assert!(stand.imported.config.contains("limits: 20/30s sliding"), "{}", stand.imported.config);
    assert!(stand.found("left_out").is_empty(), "{:?}", stand.found("left_out"));
    for (settings, limit) in [
        ("max_requests_per_window = 20", "20/min sliding"),
        ("rate_limit_window = 3600", "100/hour sliding"),
        ("rate_limit_window = 0\nmax_requests_per_window = 0", "100/min sliding"),
        ("max_requests_per_window = 200000", "200000/min sliding by 1s"),
    ] {
        let stand = Stand::of("elemta.toml", &format!("{none}{settings}\n"));
        assert!(stand.imported.config.contains(&format!("limits: {limit}\n")), "{}", stand.imported.config);
    }
}

#[test]
fn elemta_environment_alone_has_the_documented_defaults() {
    let text = "export VALKEY_URL=\"valkey://valkey.example.com:6379\"\nexport VALKEY_KEY_PREFIX=\"elemta:ratelimit:\"\n";
    let stand = Stand::of("environment", text);
    assert!(stand.imported.config.contains("valkey://valkey.example.com:6379"));
    assert_eq!(connect(&stand, "172.20.0.1", 0..60), 50);
    stand.after("61s");
    assert_eq!(connect(&stand, "172.20.0.1", 60..120), 50, "what was held for a minute is free");
}

#[test]
fn elemta_password_is_kept_out_and_the_file_s_limits_hold() {
    let custom = sample("elemta.toml").replace("max_connections_per_ip = 50", "max_connections_per_ip = 7");
    let files = [("elemta.toml", custom), ("elemta.env", sample("elemta.env"))];
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let stand = Stand::answered(&files, &Answers::default());
    let config = &stand.imported.config;
    assert!(config.contains("password_env: VALKEY_PASSWORD"), "{config}");
    assert!(!format!("{config}{:?}", stand.imported.findings).contains("your-secure-password"));
    assert_eq!(connect(&stand, "172.20.0.1", 0..60), 7);
}

#[test]
fn elemta_custom_policies_raise_both_bounds() {
    let text = "[resources]\nmax_connections = 2000              # Increase cluster capacity\nmax_connections_per_ip = 100        # Per-IP limit\n";
    let stand = Stand::of("elemta-generated.toml", text);
    assert_eq!(connect(&stand, "172.20.0.1", 0..120), 100);
    let mut open = 100;
    for network in 0..30 {
        open += connect(&stand, &format!("172.21.{network}.1"), 0..100);
    }
    assert_eq!(open, 2_000);
}

#[test]
fn an_answered_store_replaces_that_of_the_files() {
    let answers = Answers::default().store("redis://:hunter2@redis.example:6379");
    for (name, prefix) in [
        ("sendry.yaml", ""),
        ("elemta.toml", ", key_prefix: \"elemta:ratelimit\""),
        ("marketplace.yml", ", key_prefix: rl"),
    ] {
        let stand = Stand::answered(&[(name, &sample(name))], &answers);
        let store = format!(
            "store: {{ redis: \"redis://redis.example:6379\"{prefix}, password_env: STORE_PASSWORD }}"
        );
        assert!(stand.imported.config.contains(&store), "{}", stand.imported.config);
        assert!(!stand.imported.config.contains("hunter2"));
        assert_eq!(stand.imported.variables, ["STORE_PASSWORD"]);
    }
}
