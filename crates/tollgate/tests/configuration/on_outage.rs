//! The default `on_outage`, and what each rule gets from it.

use tollgate::config::{self, Config, ConfigError, Format};

const RULES: &str = "
store: redis://localhost
rules:
  plain: { by: ip, limits: 100/hour }
  own: { by: ip, limits: 100/hour, on_outage: deny }
  stock: { by: item, limits: 10 in total }
policies: { p: [plain, own, stock] }
";

fn load(text: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let environment = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    config::load_str(text, Format::Yaml, "t.yaml", environment)
}

/// The `on_outage` of these rules.
fn modes(config: &Config, rules: &[&str]) -> Vec<String> {
    rules.iter().map(|rule| config.policies.rule(rule).expect("it is a rule").on_outage.to_string()).collect()
}

#[test]
fn a_rule_that_says_nothing_follows_the_default() {
    for (default, expected) in [
        ("", ["local 50%", "deny", "deny"]),
        ("on_outage: local 100%", ["local 100%", "deny", "deny"]),
        ("on_outage: local 1/3", ["local 1/3", "deny", "deny"]),
        ("on_outage: allow", ["allow", "deny", "allow"]),
        ("on_outage: deny", ["deny", "deny", "deny"]),
    ] {
        let config = load(&format!("{default}{RULES}"), &[]).unwrap();
        assert_eq!(modes(&config, &["plain", "own", "stock"]), expected, "{default}");
    }
    let config = load(RULES, &[("TOLLGATE__ON_OUTAGE", "allow")]).unwrap();
    assert_eq!(config.policies.on_outage().to_string(), "allow");
}

#[test]
fn a_ladder_is_opened_by_its_own_rule_alone() {
    let ladder = "
on_outage: allow
store: redis://localhost
rules:
  shut: { by: user, limits: ladder 10 lock 15m }
  open: { by: user, limits: ladder 10 lock 15m, on_outage: allow }
policies: { p: [shut], q: [open] }
";
    let config = load(ladder, &[]).unwrap();
    assert_eq!(modes(&config, &["shut", "open"]), ["deny", "allow"]);
}

#[test]
fn an_invalid_outage_action_is_refused_at_its_place() {
    let error = load("on_outage: local 0%", &[]).unwrap_err().to_string();
    assert!(error.starts_with("t.yaml:1:12: on_outage: ") && error.contains("local 0%"), "{error}");
    let error = load("", &[("TOLLGATE__ON_OUTAGE", "shrug")]).unwrap_err().to_string();
    assert!(error.starts_with("environment variable TOLLGATE__ON_OUTAGE: on_outage: "), "{error}");
}
