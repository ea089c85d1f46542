//! The guard of a route: its meaning, and the exact messages for errors.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use http::Method;
use tollgate::config::{self, Format};
use tollgate_gateway::settings::{CrossSite, GuardSettings};

/// A configuration with a guarded route and a few other parts.
fn text(route: &str, guard: &str, clients: &str) -> String {
    format!(
        "
rules: {{ own: {{ by: [user, ip], limits: ladder 3 lock 15m }} }}
policies: {{ login: [own] }}
guards: {{ login: {{ policy: login }} }}
clients: {{ fields: {clients} }}
gateway:
  listen: 127.0.0.1:0
  upstreams: {{ shop: a:1 }}
  routes: {{ r: {{ {route} upstream: shop, guard: {guard} }} }}
"
    )
}

/// The guard of a route with these settings.
fn load(guard: &str, clients: &str) -> Result<GuardSettings, String> {
    load_route("path: /in", guard, clients)
}

fn load_route(route: &str, guard: &str, clients: &str) -> Result<GuardSettings, String> {
    let route = if route.is_empty() { String::new() } else { format!("{route}, ") };
    match config::load_str(&text(&route, guard, clients), Format::Yaml, "t.yaml", std::iter::empty()) {
        Ok(config) => Ok(config.gateway.unwrap().routes[0].guard.clone().expect("the route has a guard")),
        Err(error) => Err(error.to_string()),
    }
}

fn paths(guard: &GuardSettings) -> String {
    guard.success.paths.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
}

fn source(guard: &GuardSettings, field: &str) -> String {
    guard.fields.source(field).map(|source| source.to_string()).unwrap_or_default()
}

#[test]
fn omitted_guard_settings_have_their_defaults() {
    let guard = load("{ name: login, success: 303 }", "{ user: header.x-user }").unwrap();
    assert_eq!((&*guard.name, source(&guard, "user")), ("login", "header.x-user".to_owned()));
    assert_eq!((guard.success.statuses.to_string(), guard.neutral.is_none()), ("303".into(), true));
    assert_eq!((guard.success.methods.as_slice(), paths(&guard)), ([Method::POST].as_slice(), "/in".into()));
    assert_eq!((guard.success.headers.len(), guard.success.cookie.is_none()), (0, true));
    assert_eq!(guard.max_delay, Duration::from_secs(5));
}

#[test]
fn everything_that_can_be_said_is_understood() {
    let guard = load(
        "{ name: login, fields: { user: json.login.name }, success: [201, 204], neutral: [404, 5xx], max_delay: 500ms }",
        "{ user: subject, tenant: header.x-tenant }",
    )
    .unwrap();
    assert_eq!(source(&guard, "user"), "json.login.name", "it comes before what holds for all");
    assert_eq!(source(&guard, "tenant"), "header.x-tenant");
    assert_eq!(
        (guard.success.statuses.to_string(), guard.neutral.unwrap().to_string()),
        ("[201, 204]".into(), "[404, 5xx]".into())
    );
    assert_eq!(guard.max_delay, Duration::from_millis(500));
    let guard = load(
        "{ name: login, fields: { user: form.user }, max_delay: none, success: { status: 302, header: { location: /home, x-ok: true }, cookie: sid, method: [PUT, POST], path: /in } }",
        "{}",
    )
    .unwrap();
    let success = &guard.success;
    assert_eq!((success.statuses.to_string(), success.cookie.as_deref()), ("302".into(), Some("sid")));
    assert_eq!(
        success.headers.iter().map(|header| header.name.as_str()).collect::<Vec<_>>(),
        ["location", "x-ok"]
    );
    assert_eq!(
        (success.methods.as_slice(), paths(&guard)),
        ([Method::PUT, Method::POST].as_slice(), "/in".into())
    );
    assert_eq!(guard.max_delay, Duration::ZERO);
    assert_eq!(guard.cross_site, CrossSite::Refused);
    let open =
        load("{ name: login, fields: { user: form.user }, success: 303, cross_site: true }", "{}").unwrap();
    assert_eq!(open.cross_site, CrossSite::Allowed);
    let guard = load("{ name: login, fields: { user: form.user }, success: { cookie: sid } }", "{}").unwrap();
    assert_eq!(guard.success.statuses.to_string(), "[2xx, 3xx]");
}

#[test]
fn only_the_path_of_the_login_can_succeed_and_no_path_below_it() {
    let guard =
        |route: &str| load_route(route, "{ name: login, fields: { user: form.user }, success: 303 }", "{}");
    let path = |route: &str| paths(&guard(route).unwrap());
    assert_eq!(path("path: /login/*"), "/login or /login/");
    assert_eq!(
        path("path: [/login, '/admin/{site}/login/*']"),
        "/login or /admin/{site}/login or /admin/{site}/login/"
    );
    for route in ["", "path: /*", "path: [/login, /*]"] {
        let error = guard(route).unwrap_err();
        let expected = "gateway.routes.r.guard.success: the route takes every path, and not every path is a login: name the login's, as in `success: { status: 303, path: /login }`";
        assert!(error.contains(expected), "{route}: {error}");
    }
    let error = guard("path: /login, method: [PUT, GET]").unwrap_err();
    let expected = "gateway.routes.r.guard.success: a request with `POST` can succeed, and the route takes `PUT`, `GET`: add `method` to `success`";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn statuses_that_let_a_guesser_through_are_warned_of() {
    let warnings = |guard: &str| {
        let text = text("path: /in, ", guard, "{}");
        let config = config::load_str(&text, Format::Yaml, "t.yaml", std::iter::empty()).unwrap();
        let warnings = config.warnings().into_iter().map(|warning| warning.message);
        warnings.filter(|message| message.contains("route r")).collect::<Vec<_>>()
    };
    let of = |rest: &str| warnings(&format!("{{ name: login, fields: {{ user: form.user }}, {rest} }}"));
    for fine in [
        "success: 303",
        "success: [200, 204], neutral: [404, 429, 5xx]",
        "success: { status: 302, cookie: sid }",
    ] {
        assert_eq!(of(fine), [""; 0], "{fine}");
    }
    for (doubtful, about) in [
        ("success: 3xx", "route r: 301 clears"),
        ("success: [200, 308]", "route r: 308 clears"),
        ("success: { status: 302, method: POST }", "route r: 302 clears"),
        ("success: 303, neutral: [404, 422]", "route r: a login that is answered with 422 is refunded"),
        ("success: 303, neutral: 308", "route r: a login that is answered with 308 is refunded"),
    ] {
        let told = of(doubtful);
        assert!(told.len() == 1 && told[0].starts_with(about), "{doubtful}: {told:?}");
    }
}

#[test]
fn mistakes_are_refused_where_they_stand() {
    const THERE_ARE: &str = "there are route, ip, method, path, host, header.NAME, cookie.NAME, query.NAME, subject, claim.NAME, api_key and consumer, form.NAME and json.NAME";
    let unknown = format!(
        "gateway.routes.r.guard: policy `login` counts by `user`, which is not part of a request; {THERE_ARE}, and whatever `fields` names, as in `fields: {{ user: form.user }}`"
    );
    let no_source = format!(
        "gateway.routes.r.guard.fields: `user` stands for `body.user`, which is not part of a request; {THERE_ARE}"
    );
    let form = "name: login, fields: { user: form.user }";
    for (guard, expected) in [
        (
            "login",
            "gateway.routes.r.guard: expected a mapping, as in `{ name: login, fields: { user: form.user }, success: 303 }`",
        ),
        (
            "{ name: logn, success: 303 }",
            "gateway.routes.r.guard.name: there is no guard `logn`; did you mean `login`?",
        ),
        ("{ fields: {} }", "gateway.routes.r.guard: the key `name` is missing"),
        ("{ name: login, success: 303 }", &unknown),
        ("{ name: login, fields: { user: body.user }, success: 303 }", &no_source),
        (
            &format!("{{ {form} }}"),
            "gateway.routes.r.guard: which responses mean that a login succeeded? Add `success`, as in `success: 303` or `success: { status: 303, cookie: session }`; every other response counts as a failure",
        ),
        (
            &format!("{{ {form}, success: {{ method: POST }} }}"),
            "gateway.routes.r.guard.success: `success` is empty: add `status`, `header` or `cookie`",
        ),
        (
            &format!("{{ {form}, success: {{ cookie: 'a b' }} }}"),
            "gateway.routes.r.guard.success.cookie: `a b` cannot name a cookie",
        ),
        (
            &format!("{{ {form}, success: {{ status: 303, path: /out }} }}"),
            "gateway.routes.r.guard.success.path: the route does not take `/out`",
        ),
        (
            "{ name: login, fields: { user: form.user, usr: form.usr }, success: 303 }",
            "gateway.routes.r.guard.fields.usr: no rule of policy `login` counts by `usr`; did you mean `user`?",
        ),
        (
            "{ name: login, fields: { user: form.user, ip: header.x-real-ip }, success: 303 }",
            "gateway.routes.r.guard.fields: `ip` is a built-in name and cannot be redefined",
        ),
        (
            &format!("{{ {form}, success: 2xx, neutral: [204, 401] }}"),
            "gateway.routes.r.guard.neutral: `204` is one of the statuses of `success` too",
        ),
        (
            &format!("{{ {form}, success: 303, max_delay: 2m }}"),
            "gateway.routes.r.guard.max_delay: a login can be delayed for `60s` at most",
        ),
        (
            &format!("{{ {form}, success: 303, failure: 401 }}"),
            "gateway.routes.r.guard.failure: unknown key `failure`; the keys here are `name`, `fields`, `success`, `neutral`, `cross_site`, `max_delay`",
        ),
    ] {
        let error = load(guard, "{}").unwrap_err();
        let (_, message) = error.split_once(": ").unwrap();
        assert!(message.starts_with(expected), "for {guard}:\n{message}");
    }
}

#[test]
fn only_guards_may_use_fields_of_a_body() {
    let error = load("{ name: login, fields: { user: form.user }, success: 303 }", "{ user: form.user }")
        .unwrap_err();
    assert!(
        error.contains("clients.fields: `user` stands for `form.user`, which is not part of a request"),
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
fn a_one_line_guard_can_count_by_a_field_of_the_body() {
    let text = "
guards: { login: by form.user }
gateway: { listen: 127.0.0.1:0, upstreams: { s: a:1 }, routes: { r: { path: /in, upstream: s, guard: { name: login, success: 303 } } } }
";
    let config = config::load_str(text, Format::Yaml, "t.yaml", std::iter::empty()).unwrap();
    let guard = config.gateway.unwrap().routes[0].guard.clone().unwrap();
    assert_eq!(source(&guard, "form.user"), "form.user");
}
