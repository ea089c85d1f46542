//! Rules that count rows and the databases they are in: what can be written, and every way to get it wrong.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use tollgate::config::{self, Config, ConfigError, Format};
use tollgate_core::{OnOutage, Span};

fn load(text: &str) -> Result<Config, ConfigError> {
    let variables = [("SHOP_DATABASE_URL", "postgres://reader:hunter2@db.example/shop"), ("EMPTY", "")];
    let environment = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    config::load_str(text, Format::Yaml, "t.yaml", environment)
}

const SHOP: &str = "databases: { shop: { url_env: SHOP_DATABASE_URL } }\n";
const QUERY: &str = "query: 'SELECT count(*) FROM deals WHERE advertiser = $1'";

/// A rule by `advertiser` with these settings beside it, that counts rows with these settings.
fn rule(beside: &str, rows: &str) -> String {
    format!(
        "{SHOP}rules: {{ a: {{ by: advertiser, {beside} count_rows: {{ in: shop, {rows} }} }} }}\npolicies: {{ p: [a] }}"
    )
}

#[test]
fn a_rule_that_counts_rows_reserves_by_holds_and_has_its_defaults() {
    let config = load(&rule("", &format!("{QUERY}, at_most: 10, cache: 0s"))).unwrap();
    let rule = config.policies.rule("a").unwrap();
    let rows = rule.rows.as_ref().unwrap();
    assert_eq!(rule.plan.to_string(), "10 at once for 30s");
    assert_eq!((&*rows.database, rows.timeout, rows.cache), ("shop", Span::from_millis(250), Span::ZERO));
    assert_eq!(rule.on_outage, OnOutage::Deny);
    let shop = &config.databases["shop"];
    assert_eq!(
        (shop.address().as_str(), shop.user(), shop.connections),
        ("db.example:5432/shop", Some("reader"), 4)
    );
    assert!(shop.tls.is_some(), "it is not local");
    let text = rule_text_with_everything();
    let config = load(&text).unwrap();
    let rule = config.policies.rule("a").unwrap();
    assert_eq!((rule.plan.to_string().as_str(), rule.on_outage), ("10 at once for 1m", OnOutage::Allow));
    assert_eq!(rule.plan_at("acme").to_string(), "20 at once for 1m");
    let rows = rule.rows.as_ref().unwrap();
    assert_eq!((rows.timeout, rows.cache), (Span::from_secs(1), Span::from_secs(5)));
}

fn rule_text_with_everything() -> String {
    rule(
        "code: MAX, on_outage: allow, overrides: { acme: 20 at once for 1m },",
        &format!("{QUERY}, at_most: 10, reserve: 1m, cache: 5s, timeout: 1s"),
    )
}

#[test]
fn the_top_level_default_counts_unless_it_asks_each_node_to_count_alone() {
    for (default, expected) in
        [("allow", OnOutage::Allow), ("deny", OnOutage::Deny), ("local 100%", OnOutage::Deny)]
    {
        let text = format!("on_outage: {default}\n{}", rule("", &format!("{QUERY}, at_most: 10")));
        assert_eq!(load(&text).unwrap().policies.rule("a").unwrap().on_outage, expected, "{default}");
    }
}

#[test]
fn mistakes_are_explained_without_repeating_a_password() {
    let good = &format!("{QUERY}, at_most: 10");
    let query = |text: &str| rule("", &format!("query: '{text}', at_most: 10"));
    let database = |table: &str| format!("databases: {{ shop: {{ {table} }} }}");
    for (text, expected) in [
        (rule("", "at_most: 10"), "missing"),
        (query(" "), "the query is empty"),
        (query("SELECT count(*) FROM deals"), "does not use `$1`, the value of `advertiser`"),
        (query("SELECT count(*) FROM deals WHERE a = $1 AND b = $2"), "no field for `$2`"),
        (query("SELECT ''$1''"), "does not use `$1`"),
        (rule("", &format!("{QUERY}, at_most: 0")), "Write a number from 1"),
        (rule("", &format!("{good}, reserve: 250ms")), "longer than `timeout`, `250ms`"),
        (rule("", &format!("{good}, timeout: 0s")), "more than nothing"),
        (rule("", &format!("{good}, timeout: 2m")), "at most `1m` is allowed"),
        (rule("", &format!("{good}, cache: 2h")), "at most `1h` is allowed"),
        (rule("limits: 10/hour,", good), "has no `limits`: put them into a rule of its own"),
        (rule("on_outage: local 50%,", good), "rows cannot be counted by each node alone"),
        (rule("overrides: { acme: 20/hour },", good), "`20/hour` does not count rows"),
        (rule("count_when: 4xx,", good), "`count_when` would end it"),
        (rule("", good).replace("in: shop", "in: shp"), "did you mean `shop`"),
        (rule("", good).replace(SHOP, ""), "add it, as in `databases:"),
        (database(""), "write one of `url`, `url_env` and `url_file`"),
        (database("url: 'postgres://u@h/d', url_env: SHOP_DATABASE_URL"), "write one of"),
        (database("url_env: EMPTY"), "is empty"),
        (database("url_env: NOT_SET"), "is not set"),
        (database("url: 'mysql://u:hunter2@h/d'"), "an address begins with `postgres://`"),
        (database("url: 'postgres://h/d'"), "the user is missing"),
        (database("url: 'postgres://u@h/d', connections: 0"), "too few or too many"),
        (database("url: 'postgres://u@h/d', schema: s"), "unknown key `schema`"),
        ("databases: { A: { url: 'postgres://u@h/d' } }".to_owned(), "names are made of"),
    ] {
        let error = load(&text).expect_err(&text).to_string();
        assert!(error.contains(expected) && !error.contains("hunter2"), "{text}\n{error}");
    }
}
