//! Guards in the configuration: their meaning, errors and warnings.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use tollgate::config::{Config, Format, load_str};
use tollgate_core::Clears;

const SECRET: (&str, &str) = ("SECRET", "0123456789abcdef");
const LADDER: &str = "ladder 4 +2s then 6 +5s captcha then 11 lock 15m notify forget 15m";

fn load(text: &str) -> Result<Config, String> {
    let environment = [SECRET].into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    load_str(&format!("store: memory\n{text}"), Format::Yaml, "t.yaml", environment)
        .map_err(|error| error.to_string())
}

fn recommended(guard: &str) -> String {
    format!(
        "rules:
  own: {{ by: [user, ip], limits: {LADDER} }}
  account: {{ by: user, on_exceed: observe, limits: ladder 10 captcha then 100 +1m captcha }}
  address: {{ by: ip, limits: ladder 100 lock 1h, ban: after 50 denials in 10m ban 1h }}
  other: {{ by: user, limits: 5/day }}
policies: {{ login: [own, account, address, other], plain: [other] }}
guards: {{ login: {guard} }}
"
    )
}

#[test]
fn one_line_is_a_guard_on_the_standard_ladder() {
    for line in ["by user", "{ by: user }", "{ by: [user], ladder: standard }"] {
        let config = load(&format!("guards: {{ login: {line} }}")).unwrap();
        let guard = config.policies.guard("login").unwrap();
        assert_eq!((&*guard.policy, &guard.clears), ("login", &Clears::Narrowest));
        let rule = &config.policies.find("login").unwrap().rules[0];
        assert_eq!(rule.plan.limits()[0].to_string(), LADDER, "{line}");
        assert!(rule.secret, "the keys are accounts");
    }
    let toml = "store = 'memory'\n[guards]\nlogin = 'by user, ip'\n[guards.signup]\nby = 'ip'\nladder = 'ladder 3 lock 1h'\n";
    let config = load_str(toml, Format::Toml, "t.toml", std::iter::empty()).unwrap();
    let login = &config.policies.find("login").unwrap().rules[0];
    assert_eq!(login.by.iter().map(|field| &*field.name).collect::<Vec<_>>(), ["user", "ip"]);
    assert!(!config.policies.find("signup").unwrap().rules[0].secret, "addresses alone can be read");
}

#[test]
fn keys_that_name_accounts_are_secret_unless_configured_otherwise() {
    let config = load(&recommended("{ policy: login }")).unwrap();
    let secret = |rule: &str| config.policies.rule(rule).unwrap().secret;
    assert_eq!(
        [secret("own"), secret("account"), secret("address"), secret("other")],
        [true, true, false, false]
    );
    let told = recommended("{ policy: login }").replace("by: [user, ip],", "by: [user, ip], secret: false,");
    assert!(!load(&told).unwrap().policies.rule("own").unwrap().secret);
    let banning = format!(
        "rules: {{ own: {{ by: [user, ip], limits: {LADDER}, ban: after 50 denials in 10m ban 1h }} }}\npolicies: {{ login: [own] }}\nguards: {{ login: {{ policy: login }} }}"
    );
    assert!(!load(&banning).unwrap().policies.rule("own").unwrap().secret, "who is banned can be read");
}

#[test]
fn a_guard_configures_the_cleared_rules_and_the_webhook() {
    let clears = |text: &str| {
        let config = load(&recommended(&format!("{{ policy: login, clears: {text} }}"))).unwrap();
        config.policies.guard("login").unwrap().clears.clone()
    };
    assert_eq!(clears("narrowest"), Clears::Narrowest);
    assert_eq!((clears("all"), clears("nothing")), (Clears::All, Clears::Nothing));
    assert_eq!(clears("account"), Clears::Rules(vec!["account".into()]));
    assert_eq!(clears("[own, account]"), Clears::Rules(vec!["own".into(), "account".into()]));
    let hook = "{ policy: login, webhook: { url: 'https://example.com/a?b=c', secret_env: SECRET } }";
    let config = load(&recommended(hook)).unwrap();
    let webhook = &config.webhooks["login"];
    assert_eq!((webhook.host(), webhook.port(), webhook.is_encrypted()), ("example.com", 443, true));
    assert_eq!((webhook.timeout, webhook.tries), (Duration::from_secs(5), 5));
    let hook = "{ policy: login, webhook: { url: 'https://example.com', body: { key: a-token } } }";
    let unsigned = load(&recommended(hook)).unwrap();
    assert!(unsigned.webhooks["login"].secret.is_none() && !format!("{unsigned:?}").contains("a-token"));
    let shown = format!("{config:?}");
    assert!(!shown.contains("0123456789abcdef") && !shown.contains("b=c"), "{shown}");
}

#[test]
fn mistakes_in_guards_are_reported_at_their_place() {
    let hook = |settings: &str| recommended(&format!("{{ policy: login, webhook: {{ {settings} }} }}"));
    let table = [
        (
            recommended("{ policy: logn }"),
            "guards.login.policy: there is no policy `logn`; did you mean `login`?",
        ),
        (recommended("{ policy: plain }"), "no rule of policy `plain` has a ladder"),
        (
            recommended("{ policy: login, clears: other }"),
            "no rule with a ladder of policy `login`: these are `own`",
        ),
        (recommended("{ policy: login, clears: [] }"), "write `nothing`"),
        (recommended("{ policy: login, ladder: standard }"), "keep `ladder` for `by`"),
        (recommended("{ policy: login, by: user }"), "keep one of `by` and `policy`"),
        (recommended("{ clears: all }"), "what do logins pass?"),
        (recommended("by user"), "there is a policy `login` already"),
        ("guards: { login: user }".to_owned(), "as in `by user`"),
        ("guards: { login: { by: [] } }".to_owned(), "would lock all of them"),
        ("guards: { login: { by: user, ladder: 5/day } }".to_owned(), "`5/day` is not a ladder"),
        ("guards: { login: { by: user, ladder: ladder 4 lok 1h } }".to_owned(), "guards.login.ladder"),
        ("guards: { Login: { by: user } }".to_owned(), "cannot be part of a name"),
        ("guards: { login: { by: user, notify: x } }".to_owned(), "notify"),
        (hook("url: 'ftp://x', secret_env: SECRET"), "starts with https:// or http://"),
        (hook("url: 'https://u:p@x', secret_env: SECRET"), "no user or password"),
        (hook("url: 'https://x/#a', secret_env: SECRET"), "never sent"),
        (hook("url: 'https://x'"), "what are calls signed with?"),
        (
            hook("url: 'https://x', body: { text: '{usr}' }"),
            "webhook.body.text: there is no placeholder `{usr}`",
        ),
        (
            hook("url: 'https://x', body: { a: ['{fields.usr}'] }"),
            "`{fields.usr}`; did you mean `fields.user`?; there are id, event",
        ),
        (hook("url: 'https://x', body: { text: 'for {guard' }"), "`{guard` lacks its `}`"),
        (hook("url: 'https://x', body: text"), "guards.login.webhook.body"),
        (hook(&format!("url: 'https://x', body: {{ a: '{}' }}", "x".repeat(4_096))), "at most 4096 bytes"),
        (
            hook(&format!("url: 'https://x', body: {{ a: '{}' }}", "{id}".repeat(33))),
            "at most 32 placeholders",
        ),
        (hook("url: 'https://x', body: {}, secret_env: NONE"), "`NONE` is not set"),
        (hook("url: 'https://x', secret_env: NONE"), "`NONE` is not set"),
        (hook("url: 'https://x', secret_file: /nowhere"), "cannot be read"),
        (hook("url: 'https://x', secret_env: SECRET, secret_file: /x"), "keep one of"),
        (hook("url: 'https://x', secret_env: SECRET, timeout: 2m"), "from 100ms to 60s"),
        (hook("url: 'https://x', secret_env: SECRET, tries: 0"), "from 1 to 10 times"),
    ];
    for (text, words) in table {
        let error = load(&text).map(|_| ()).unwrap_err();
        assert!(error.contains(words), "{text}\n{error}");
    }
}

#[test]
fn doubtful_settings_give_warnings() {
    let warnings = |text: &str| -> Vec<String> {
        load(text)
            .unwrap()
            .warnings()
            .into_iter()
            .map(|one| format!("{}; {}", one.message, one.remedy))
            .collect()
    };
    assert_eq!(warnings(&recommended("{ policy: login }")), Vec::<String>::new());
    let alone = warnings("guards: { login: by user }");
    assert!(
        alone.len() == 1 && alone[0].contains("locks the owner out") && alone[0].contains("by: [user, ip]")
    );
    assert_eq!(warnings("guards: { login: 'by user, ip' }"), Vec::<String>::new());
    assert_eq!(warnings("guards: { login: { by: user, ladder: ladder 4 +2s } }"), Vec::<String>::new());
    let hook = |url: &str, ladder: &str| {
        warnings(&format!(
            "guards: {{ login: {{ by: [user, ip], ladder: {ladder}, webhook: {{ url: '{url}', secret_env: SECRET }} }} }}"
        ))
    };
    assert!(
        hook("https://example.com", "ladder 4 lock 1h")[0].contains("no step of its ladders has `notify`")
    );
    assert!(hook("http://example.com", "standard")[0].contains("without TLS"));
    assert_eq!(hook("http://127.0.0.1:9", "standard"), Vec::<String>::new());
}
