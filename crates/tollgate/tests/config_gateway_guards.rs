//! The guard of a route: what it means, and the exact words in which mistakes are refused.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use tollgate::config::{self, Format};
use tollgate_gateway::settings::GuardSettings;

/// The guard of a route that says this of it, among a few things to choose from.
fn load(guard: &str, clients: &str) -> Result<GuardSettings, String> {
    let text = format!(
        "
rules: {{ own: {{ by: [user, ip], limits: ladder 3 lock 15m }} }}
policies: {{ login: [own] }}
guards: {{ login: {{ policy: login }} }}
clients: {{ fields: {clients} }}
gateway:
  listen: 127.0.0.1:0
  upstreams: {{ shop: a:1 }}
  routes: {{ r: {{ upstream: shop, guard: {guard} }} }}
"
    );
    match config::load_str(&text, Format::Yaml, "t.yaml", std::iter::empty()) {
        Ok(config) => Ok(config.gateway.unwrap().routes[0].guard.clone().expect("the route has a guard")),
        Err(error) => Err(error.to_string()),
    }
}

fn source(guard: &GuardSettings, field: &str) -> String {
    guard.fields.source(field).map(|source| source.to_string()).unwrap_or_default()
}

#[test]
fn the_name_alone_means_the_defaults() {
    let guard = load("login", "{ user: header.x-user }").unwrap();
    assert_eq!((&*guard.name, source(&guard, "user")), ("login", "header.x-user".to_owned()));
    assert_eq!(
        (guard.success.to_string(), guard.failure.to_string()),
        ("[2xx, 3xx]".into(), "[401, 403]".into())
    );
    assert_eq!(guard.max_delay, Duration::from_secs(5));
}

#[test]
fn everything_that_can_be_said_is_understood() {
    let guard = load(
        "{ name: login, fields: { user: json.login.name }, success: 204, failure: [400, 4xx], max_delay: 500ms }",
        "{ user: subject, tenant: header.x-tenant }",
    )
    .unwrap();
    assert_eq!(source(&guard, "user"), "json.login.name", "it comes before what holds for all");
    assert_eq!(source(&guard, "tenant"), "header.x-tenant");
    assert_eq!((guard.success.to_string(), guard.failure.to_string()), ("204".into(), "4xx".into()));
    assert_eq!(guard.max_delay, Duration::from_millis(500));
    let guard =
        load("{ name: login, fields: { user: form.user }, failure: 200, max_delay: none }", "{}").unwrap();
    assert_eq!(guard.failure.to_string(), "200", "the others of the default stay successes");
    assert_eq!(guard.max_delay, Duration::ZERO);
}

#[test]
fn mistakes_are_refused_where_they_stand() {
    const THERE_ARE: &str = "there are route, ip, method, path, host, header.NAME, cookie.NAME, query.NAME, subject, claim.NAME, api_key and consumer, form.NAME and json.NAME";
    let unknown = format!(
        "gateway.routes.r.guard: policy `login` counts by `user`, which is no part of a request; {THERE_ARE}, and whatever `fields` names, as in `fields: {{ user: form.user }}`"
    );
    let no_source = format!(
        "gateway.routes.r.guard.fields: `user` stands for `body.user`, which is no part of a request; {THERE_ARE}"
    );
    for (guard, expected) in [
        ("logn", "gateway.routes.r.guard: there is no guard `logn`; did you mean `login`?"),
        ("{ name: logn }", "gateway.routes.r.guard.name: there is no guard `logn`; did you mean `login`?"),
        ("{ fields: {} }", "gateway.routes.r.guard: the key `name` is missing"),
        ("login", &unknown),
        ("{ name: login }", &unknown),
        ("{ name: login, fields: { user: body.user } }", &no_source),
        (
            "{ name: login, fields: { user: form.user, usr: form.usr } }",
            "gateway.routes.r.guard.fields.usr: no rule of policy `login` counts by `usr`; did you mean `user`?",
        ),
        (
            "{ name: login, fields: { user: form.user, ip: header.x-real-ip } }",
            "gateway.routes.r.guard.fields: `ip` has a meaning of its own and cannot stand for anything else",
        ),
        (
            "{ name: login, fields: { user: form.user }, success: 2xx, failure: [204, 401] }",
            "gateway.routes.r.guard.failure: `204` is written for `success` too",
        ),
        (
            "{ name: login, fields: { user: form.user }, max_delay: 2m }",
            "gateway.routes.r.guard.max_delay: a login is held back for `60s` at most, and refused then",
        ),
        (
            "{ name: login, fields: { user: form.user }, captcha: true }",
            "gateway.routes.r.guard.captcha: unknown key `captcha`; the keys here are `name`, `fields`, `success`, `failure`, `max_delay`",
        ),
    ] {
        let error = load(guard, "{}").unwrap_err();
        let (_, message) = error.split_once(": ").unwrap();
        assert!(message.starts_with(expected), "for {guard}:\n{message}");
    }
}

#[test]
fn what_lies_in_a_body_is_for_guards_alone() {
    let error = load("{ name: login, fields: { user: form.user } }", "{ user: form.user }").unwrap_err();
    assert!(
        error.contains("clients.fields: `user` stands for `form.user`, which is no part of a request"),
        "{error}"
    );
    let text = "
rules: { r: { by: form.user, limits: 1/day } }
policies: { p: [r] }
gateway: { listen: 127.0.0.1:0, upstreams: { s: a:1 }, routes: { r: { upstream: s, policy: p } } }
";
    let error = config::load_str(text, Format::Yaml, "t.yaml", std::iter::empty()).unwrap_err().to_string();
    assert!(error.contains("gateway.routes.r.policy: policy `p` counts by `form.user`"), "{error}");
}

#[test]
fn a_guard_with_one_line_can_count_by_what_lies_in_a_body() {
    let text = "
guards: { login: by form.user }
gateway: { listen: 127.0.0.1:0, upstreams: { s: a:1 }, routes: { r: { upstream: s, guard: login } } }
";
    let config = config::load_str(text, Format::Yaml, "t.yaml", std::iter::empty()).unwrap();
    let guard = config.gateway.unwrap().routes[0].guard.clone().unwrap();
    assert_eq!(source(&guard, "form.user"), "form.user");
}
