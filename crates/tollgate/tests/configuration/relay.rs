//! The relay's section: what it means, what it adds to rules and policies, and the exact words in which mistakes are
//! refused.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::PathBuf;

use tollgate::config::{self, Config, Format};
use tollgate_core::{OnExceed, Span};
use tollgate_relay::accounts::OnLimit;
use tollgate_relay::client::TlsMode;
use tollgate_relay::server::Kind;

const RULES: &str = "
store: { file: ./tollgate.redb }
rules:
  ip: { by: ip, limits: 50 at once for 60s }
  sender: { by: sender, limits: 100/hour }
  recipient_domain: { by: recipient_domain, limits: 200/hour, on_exceed: defer }
  held: { by: recipient_domain, limits: 5 at once }
policies: { smtp.connect: [ip], mail.accept: [sender], mail.deliver: [recipient_domain], mail.held: [held] }
guards: { smtp.login: 'by user, ip' }
";

fn environment() -> impl Iterator<Item = (String, String)> {
    let variables = [
        ("APP_PASSWORD", "correct horse"),
        ("SHORT_PASSWORD", "horse"),
        ("SMTP_PASSWORD", "hunter22"),
        ("RELAY_SECRET", "0123456789abcdef"),
    ];
    variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()))
}

fn try_load(relay: &str) -> Result<Config, String> {
    let text = format!("{RULES}relay: {relay}\n");
    config::load_str(&text, Format::Yaml, "t.yaml", environment()).map_err(|error| error.to_string())
}

fn load(relay: &str) -> Config {
    try_load(relay).unwrap()
}

/// The messages without their places, which are all in the last line.
fn refused(relay: &str) -> String {
    try_load(relay).unwrap_err()
}

fn warnings(relay: &str) -> Vec<String> {
    load(relay).own_warnings().into_iter().map(|warning| warning.message).collect()
}

#[test]
fn the_example_of_the_guide_means_what_it_says() {
    let config = load(
        "{ hostname: Relay.Example.com, listen: [{ smtp: 127.0.0.1:0 }], connect: smtp.connect, accept: mail.accept,
           deliver: mail.deliver, guard: smtp.login, queue: { dir: /tmp/q, max_messages: 1_000, min_free: 2GiB, lifetime: 2d, delay_report: 1h },
           networks: [127.0.0.0/8, '::1'], network_tenant: acme, max_size: 10MB, max_recipients: 50,
           users: [{ name: app, tenant: acme, password_env: APP_PASSWORD, senders: [acme.example] }],
           accounts: { acme/primary: { host: smtp.example.com, user: u, password_env: SMTP_PASSWORD, priority: 2,
               limits: [10/min sliding, 100/hour sliding], on_limit: reject }, acme/second: { host: b, tls: implicit } },
           sending: { retry: [1m, 1h], connections: 3 }, secret_env: RELAY_SECRET }",
    );
    let relay = config.relay.as_ref().unwrap();
    let (settings, server) = (&relay.settings, &relay.settings.server);
    assert_eq!((&*settings.accept.hostname, relay.listeners[0].kind), ("relay.example.com", Kind::Smtp));
    assert_eq!(server.connect.as_deref(), Some("smtp.connect"));
    assert_eq!((server.guard.as_deref(), &*settings.deliver), (Some("smtp.login"), "mail.deliver"));
    assert_eq!((server.networks.len(), &*server.network_tenant), (2, "acme"));
    assert_eq!((settings.accept.max_size, settings.accept.max_recipients), (10_000_000, 50));
    assert_eq!((&settings.directory, settings.queue.max_messages), (&PathBuf::from("/tmp/q"), 1_000));
    assert_eq!((settings.queue.min_free, settings.retry.lifetime), (2 << 30, Span::from_secs(2 * 86_400)));
    assert_eq!(settings.queue.delay_report, Span::from_secs(3_600));
    assert_eq!((settings.retry.schedule.len(), settings.per_destination), (2, 3));
    assert!(server.users.identify("app", "correct horse").is_some() && settings.secret_key.is_some());
    let [primary, second] = &settings.accounts[..] else { panic!("two accounts") };
    assert_eq!((primary.destination.port, primary.destination.tls), (587, TlsMode::StartTls));
    assert_eq!((second.destination.port, second.destination.tls), (465, TlsMode::Implicit));
    assert_eq!((primary.priority, primary.on_limit, second.on_limit), (2, OnLimit::Reject, OnLimit::Defer));

    let rule = config.policies.rule("account").unwrap();
    assert!(rule.plan.limits().is_empty() && matches!(rule.on_exceed, OnExceed::Defer(_)));
    assert_eq!(rule.plan_at("acme,primary").limits().len(), 2);
    let deliver = config.policies.find("mail.deliver").unwrap();
    let rules: Vec<(&str, Option<&str>)> =
        deliver.rules.iter().map(|rule| (&*rule.name, rule.count.as_deref())).collect();
    assert_eq!(rules, [("recipient_domain", Some("recipients")), ("account", None)]);
}

#[test]
fn an_empty_section_is_a_relay_on_loopback_that_accepts_no_client_yet() {
    let config = load("{}");
    let relay = config.relay.as_ref().unwrap();
    assert_eq!(relay.listeners[0].address.to_string(), "127.0.0.1:2525");
    assert!(!relay.settings.accept.hostname.is_empty() && relay.settings.accounts.is_empty());
    assert_eq!((&*relay.settings.deliver, relay.settings.direct.is_some()), ("relay.deliver", false));
    let rules = &config.policies.find("relay.deliver").unwrap().rules;
    assert_eq!((rules.len(), &*rules[0].name), (1, "account"));
    let [warning] = &warnings("{}")[..] else { panic!("one warning") };
    assert!(warning.ends_with("no client may send over SMTP: there are neither `networks` nor `users`"));
}

#[test]
fn networks_of_strangers_are_refused() {
    for wide in ["0.0.0.0/0", "'::/0'", "[10.0.0.0/8, 64.0.0.0/2]", "'2000::/3'"] {
        let message = refused(&format!("{{ networks: {wide} }}"));
        assert!(message.contains("would make this an open relay"), "{message}");
    }
    let message = refused("{ networks: ['::ffff:0:0/96'] }");
    assert!(message.contains("open relay"), "{message}");
    load("{ networks: [10.0.0.0/8, 192.168.0.0/16, 'fd00::/16'] }");
}

/// Mistakes, and what is said about each.
const MISTAKES: &[(&str, &str)] = &[
    (
        "{ listen: [{ smtps: 127.0.0.1:4650 }] }",
        "t.yaml:10:28: relay.listen[0].smtps: `smtps` needs a certificate: add `tls` to `relay`, as in `tls: { certificate: cert.pem, key: key.pem }`",
    ),
    (
        "{ listen: [{ smtp: 127.0.0.1:8080 }] }",
        "t.yaml:10:27: relay.listen[0].smtp: `127.0.0.1:8080` is where the HTTP interface listens: give one of them another port",
    ),
    (
        "{ listen: [{ smtp: here }] }",
        "t.yaml:10:27: relay.listen[0].smtp: `here` is not an address and a port, as in `127.0.0.1:2525` or `[::1]:2525`",
    ),
    (
        "{ accept: mail.acept }",
        "t.yaml:10:18: relay.accept: there is no policy `mail.acept`; did you mean `mail.accept`?",
    ),
    (
        "{ connect: mail.accept }",
        "t.yaml:10:19: relay.connect: policy `mail.accept` uses the field `sender`, which no connection has: the fields here are `ip`",
    ),
    (
        "{ deliver: mail.held }",
        "t.yaml:7:41: rules.held.limits: rule held has the limit `5 at once`, whose holds never end by themselves: deliveries that a crash cuts would hold it for ever; write `5 at once for 60s`",
    ),
    (
        "{ guard: smtp.logn }",
        "t.yaml:10:17: relay.guard: there is no guard `smtp.logn`; did you mean `smtp.login`?",
    ),
    (
        "{ users: [{ name: app, tenant: acme }] }",
        "t.yaml:10:18: relay.users[0]: where is the password? Add `password_env`, `password_file` or `password_hash`",
    ),
    (
        "{ users: [{ name: app, tenant: acme, password_env: SHORT_PASSWORD }] }",
        "t.yaml:10:59: relay.users[0].password_env: the password has 5 characters: at least 8 are needed, as from `openssl rand -hex 16`",
    ),
    (
        "{ users: [{ name: app, tenant: acme, password_hash: hunter2 }] }",
        "t.yaml:10:60: relay.users[0].password_hash: this is not a hash of the form `pbkdf2-sha256$ROUNDS$SALT$HASH`, with salt and hash in base64",
    ),
    (
        "{ accounts: { primary: { host: a } } }",
        "t.yaml:10:22: relay.accounts.primary: `primary` is not a tenant and a name of `A-Z a-z 0-9 _ . - @`, with a `/` between: write it as in `acme/primary`",
    ),
    (
        "{ accounts: { a/b: { host: a, user: u } } }",
        "t.yaml:10:44: relay.accounts.\"a/b\".user: there is a user without a password: add `password_env` or `password_file`",
    ),
    (
        "{ accounts: { a/b: { host: a, user: u, password_env: SMTP_PASSWORD, tls: none } } }",
        "t.yaml:10:81: relay.accounts.\"a/b\".tls: without TLS the password could be read on the way: write `starttls` or `implicit`, or leave `user` out",
    ),
    (
        "{ accounts: { a/b: { host: a, limits: 5 at once } } }",
        "t.yaml:10:46: relay.accounts.\"a/b\".limits: rule account has the limit `5 at once`, whose holds never end by themselves: deliveries that a crash cuts would hold it for ever; write `5 at once for 60s`",
    ),
    (
        "{ queue: { min_free: much } }",
        "t.yaml:10:29: relay.queue.min_free: `much` is not a size, as in `50MiB` or `1GiB`",
    ),
    (
        "{ queue: { lifetime: 5w } }",
        "t.yaml:10:29: relay.queue.lifetime: `5w` is too long: at most `4w` is allowed",
    ),
    (
        "{ queue: { delay_report: 30s } }",
        "t.yaml:10:33: relay.queue.delay_report: `30s` is too short: write at least `1m`",
    ),
    (
        "{ secret_env: SHORT_PASSWORD }",
        "t.yaml:10:22: relay.secret_env: the secret has 5 characters: at least 16 are needed, as from `openssl rand -hex 32`",
    ),
    (
        "{ direct: { name_server: dns } }",
        "t.yaml:10:33: relay.direct.name_server: `dns` is not an address and a port, as in `127.0.0.1:53`",
    ),
    (
        "{ direct: { allow: [lan] } }",
        "t.yaml:10:28: relay.direct.allow[0]: `lan` is not an address or a network, as in `10.0.0.1` or `10.0.0.0/8`",
    ),
    ("{ sender: x }", "t.yaml:10:10: relay.sender: unknown key `sender`; did you mean `sending`?"),
];

#[test]
fn mistakes_are_refused_with_their_place_and_remedy() {
    for (relay, expected) in MISTAKES {
        assert_eq!(refused(relay), *expected, "for:\n{relay}");
    }
}

#[test]
fn the_rule_of_accounts_is_by_tenant_and_account() {
    let text = "rules: { account: { by: account, limits: 10/min } }\nrelay: {}\n";
    let error = config::load_str(text, Format::Yaml, "t.yaml", environment()).unwrap_err().to_string();
    assert_eq!(
        error,
        "t.yaml:1:25: rules.account.by: the relay limits accounts by this rule, and two tenants may have accounts of the same name: write `by: [tenant, account]`"
    );
    let text = "rules: { account: { by: [tenant, account], limits: 10/min, overrides: { 'a,b': 1/min } } }\n\
                relay: { accounts: { a/b: { host: a, limits: 5/min }, a/c: { host: a } } }\n";
    let error = config::load_str(text, Format::Yaml, "t.yaml", environment()).unwrap_err().to_string();
    assert!(error.contains("has an override at `a,b` already: keep one of them"), "{error}");
    let text = "rules: { account: { by: [account, tenant], limits: 10/min } }\n\
                relay: { accounts: { a/b: { host: a, limits: 5/min }, a/c: { host: a, limits: unlimited } } }\n";
    let config = config::load_str(text, Format::Yaml, "t.yaml", environment()).unwrap();
    let rule = config.policies.rule("account").unwrap();
    let limits = |key: &str| rule.plan_at(key).limits().iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(limits("b,a"), ["5/min"]);
    assert_eq!((limits("c,a").len(), limits("d,a")), (0, vec!["10/min".to_owned()]));
}

#[test]
fn doubtful_settings_give_warnings() {
    let users = "users: [{ name: app, tenant: acme, password_env: APP_PASSWORD }]";
    let told = warnings(&format!("{{ {users} }}"));
    assert!(
        told.iter()
            .any(|told| told.ends_with("users cannot log in: the relay accepts no password without TLS")),
        "{told:?}"
    );
    assert!(told.iter().any(|told| told.ends_with("no guard slows down password guessing")), "{told:?}");
    let told = warnings("{ networks: 10.0.0.0/8, listen: [{ smtp: 0.0.0.0:0 }] }");
    assert!(told.iter().any(|told| told.contains("no policy limits their connections")), "{told:?}");
    let text = "store: memory\nrelay: { networks: 127.0.0.0/8 }\n";
    let config = config::load_str(text, Format::Yaml, "t.yaml", environment()).unwrap();
    let told: Vec<String> = config.own_warnings().into_iter().map(|warning| warning.message).collect();
    assert!(told.iter().any(|told| told.contains("counters are kept in memory")), "{told:?}");
}

#[test]
fn mail_that_no_account_could_send_gives_a_warning() {
    let about = |relay: &str| {
        let told = warnings(relay).into_iter().filter(|told| told.contains("no account to send it through"));
        told.collect::<Vec<_>>()
    };
    let acme = "accounts: { acme/main: { host: 127.0.0.1, tls: none } }";
    let told = about(&format!("{{ networks: 127.0.0.0/8, {acme} }}"));
    assert!(
        told.len() == 1 && told[0].contains("tenant `default`, which is that of `networks` by default"),
        "{told:?}"
    );
    let user = "users: [{ name: app, tenant: globex, password_env: APP_PASSWORD }]";
    let told = about(&format!("{{ {user}, {acme} }}"));
    assert!(told.len() == 1 && told[0].contains("user `app`") && told[0].contains("`globex`"), "{told:?}");
    for fine in [
        format!("{{ networks: 127.0.0.0/8, network_tenant: acme, {acme} }}"),
        "{ networks: 127.0.0.0/8, direct: true, hostname: relay.example.com }".to_owned(),
        format!("{{ networks: 127.0.0.0/8, {user}, secret_env: RELAY_SECRET }}"),
    ] {
        assert_eq!(about(&fine), Vec::<String>::new(), "{fine}");
    }
    assert_eq!(about("{ networks: 127.0.0.0/8 }").len(), 1);
}

#[test]
fn passwords_are_never_printed() {
    let config = load(
        "{ users: [{ name: app, tenant: acme, password_env: APP_PASSWORD }], secret_env: RELAY_SECRET,
           accounts: { a/b: { host: a, user: u, password_env: SMTP_PASSWORD } } }",
    );
    let printed = format!("{config:?}");
    for secret in ["correct horse", "hunter22", "0123456789abcdef"] {
        assert!(!printed.contains(secret));
    }
}
